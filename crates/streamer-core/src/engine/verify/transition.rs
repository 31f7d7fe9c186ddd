//! How does a subscription want an event: with which transition, and how certain is that (semantics.md sections 7 and 8)?
//!
//! A *side* is the verdict of a subscription for one document: `new` for the event as it is, `old` for the event as it
//! was before.
//!
//! | event | new | old | reported |
//! |---|---|---|---|
//! | the subscription looks at `before` | yes | | without transition |
//! | insert | yes | | enter |
//! | delete (`new` is the last document) | yes | | leave |
//! | update with `before` | yes | yes / no | stay / enter |
//! | | no | yes | leave, if the subscription wants `transitions` |
//! | update without `before`, or no type | yes | | without transition |
//!
//! Invariant: a subscription that wants the new side of an event without unknown values has the event's [`Change`];
//! only those that leave are separate. So a match has no data of its own, and the old side is read for transitions of
//! ordinary matches only on request.

use crate::engine::verify::store::flags;

/// The part of a match in a document's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transition {
    /// Only the new document matches.
    Enter,
    /// Both do.
    Stay,
    /// Only the old one does, or it is gone.
    Leave,
}

impl Transition {
    /// The word of it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Transition::Enter => "enter",
            Transition::Stay => "stay",
            Transition::Leave => "leave",
        }
    }
}

/// How a subscription wants an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Outcome {
    /// Absent if the event does not have it, or if the subscription looks at `before`.
    pub transition: Option<Transition>,
    /// False if the event lacks a value that the match or its transition needed.
    pub certain: bool,
}

impl Outcome {
    /// The outcome for two changes of one record.
    pub fn or(self, other: Outcome) -> Outcome {
        let transition = self.transition.filter(|_| self.transition == other.transition);
        Outcome { transition, certain: self.certain || other.certain }
    }
}

/// The transition of an ordinary match of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Change {
    /// There is none.
    #[default]
    Untold,
    /// `enter`.
    Enter,
    /// `leave`.
    Leave,
    /// `stay` if the old side matches too, else `enter`: see [`crate::engine::Engine::stays`].
    Compare,
}

impl Change {
    /// The transition of a match whose subscription has *flags*; None if the old side must be matched.
    pub fn transition(self, flags: u8) -> Option<Option<Transition>> {
        match self {
            _ if flags & flags::BEFORE != 0 => Some(None),
            Change::Untold => Some(None),
            Change::Enter => Some(Some(Transition::Enter)),
            Change::Leave => Some(Some(Transition::Leave)),
            Change::Compare => None,
        }
    }
}
