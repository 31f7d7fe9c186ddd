//! The result of one pass over an event: for each wanted path its values, their places, and the array elements that
//! contain them.
//!
//! The wrong match that this prevents. For the pattern `{"a": {"b": [1], "c": [4]}}` the event
//!
//! ```json
//! {"a": [{"b": 1, "c": 2}, {"b": 3, "c": 4}]}
//! ```
//!
//! has a leaf `a.b` = 1 and a leaf `a.c` = 4, yet no element of `a` has both. So each value keeps its *position*: the
//! elements it lies in, a chain from the innermost element outwards.
//!
//! ```text
//!   entries    [ a.b=1 @1 ][ a.c=2 @1 ][ a.b=3 @2 ][ a.c=4 @2 ]        linked by node: a.b: 0 -> 2, a.c: 1 -> 3
//!   positions  0: no array   1: {outer: 0, array: 7, element: 0}   2: {outer: 0, array: 7, element: 1}
//! ```
//!
//! Invariant: the entries of a node are linked in the order of the text, and those that a later duplicate replaced are
//! marked dead. A value outside of arrays is unique among the living entries of its node and comes before those inside
//! one, as a list comes before its elements. A position is made once for each element, so two values lie in the same
//! element if and only if they share the position.
//!
//! Scalars that follow one another in a long list are one entry, a *run*. Their positions are numbers from [`RUNS`] on:
//!
//! ```text
//!   "tags": ["a", ... , "b", "c", "d", {"x": 1}, ...]      run: the text "b", "c", "d", three values, positions RUNS to RUNS + 2
//! ```
//!
//! Cost: 28 bytes a value found, 44 in an array, and 60 for each run. Nothing is cleared between events: what is older than the
//! event's stamp is not there.
//!
//! Rejected: a map from path to values for each event (allocates), and a fixed slot for each path (an array may put any
//! number of values at a path).

use super::carried::NotCarried;
use super::trie::{ALWAYS, PathTrie, ROOT};
use crate::layout::Pointer;
use crate::value::Kind;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// In which element of which arrays a value lies; [`Position::NONE`] is in no array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Position(pub(crate) u32);

impl Position {
    /// In no array.
    pub const NONE: Position = Position(0);
}

/// One element of one array.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArrayElement {
    pub(crate) outer: Position,
    /// Which array of the event, a serial number.
    pub(crate) array: u32,
    pub(crate) depth: u32,
    /// How many names lead to the outermost array that it lies in; 0 if that is unknown, `u32::MAX` outside of arrays.
    pub(crate) names: u32,
}

impl ArrayElement {
    /// The element of a value outside of arrays.
    pub(crate) const NONE: ArrayElement = ArrayElement { outer: Position::NONE, array: u32::MAX, depth: 0, names: u32::MAX };
}

/// The scalars of a run lie at a number of their own, from this one on, in the order of the text.
pub(crate) const RUNS: u32 = 1 << 31;

/// The numbers of a run, and the element that each of its values is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) first: u32,
    pub(crate) element: ArrayElement,
}

/// What [`Entry::plain`] is of a run; `plain_length` is then the number of its values.
pub(crate) const IS_RUN: u32 = u32::MAX;

pub(crate) const NO_ENTRY: u32 = u32::MAX;
pub(crate) const DEAD: u32 = u32::MAX;

/// A value that was found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// Its node of the trie, or DEAD.
    pub(crate) node: u32,
    pub(crate) next: u32,
    pub(crate) start: u32,
    pub(crate) end: u32,
    pub(crate) position: Position,
    /// Of a string with escapes: where its plain text begins, plus one, and its length; [`IS_RUN`] and a count; else 0.
    pub(crate) plain: u32,
    pub(crate) plain_length: u32,
    pub(crate) kind: Kind,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Head {
    pub(crate) stamp: u64,
    pub(crate) first: u32,
    pub(crate) last: u32,
}

/// The scratch of one flattening after another. One for each thread; it grows to the largest event and trie it has seen.
#[derive(Debug, Default)]
pub struct Entries {
    pub(crate) all: Vec<Entry>,
    pub(crate) heads: Vec<Head>,
    pub(crate) elements: Vec<ArrayElement>,
    pub(crate) runs: Vec<Run>,
    /// Whether there may be a number beyond float64 outside of arrays.
    pub(crate) has_beyond: bool,
    /// The number of the next value in a run.
    pub(crate) next_in_run: u32,
    /// Unescaped strings, one after the other.
    pub(crate) plain: Vec<u8>,
    /// Unescaped strings of lists whose elements were read.
    pub(crate) texts: TextShelves,
    pub(crate) stamp: u64,
    /// Unknown values by the rules of the layout. `untold`: an update without `before` that may have had one.
    /// `is_partial_delete`: a delete whose document is known only as far as `before` has it. `only_before`: only
    /// `before` has unknown values.
    pub(crate) unknown: Vec<Pointer>,
    pub(crate) untold: bool,
    pub(crate) is_partial_delete: bool,
    pub(crate) only_before: bool,
    /// The values that the layout's format does not carry, in addition to these.
    pub(super) not_carried: NotCarried,
    /// The end of `before` in the event, if the layout completes it.
    pub(crate) before_end: u32,
}

impl Entries {
    pub(crate) fn begin(&mut self, nodes: usize) {
        self.all.clear();
        self.elements.clear();
        self.elements.push(ArrayElement::NONE);
        self.runs.clear();
        (self.next_in_run, self.has_beyond) = (RUNS, false);
        self.plain.clear();
        self.texts.clear();
        self.unknown.clear();
        (self.untold, self.is_partial_delete, self.only_before, self.before_end) = (false, false, false, 0);
        self.not_carried = NotCarried::default();
        self.stamp += 1;
        if self.heads.len() < nodes {
            self.heads.resize(nodes, Head::default());
        }
    }

    /// Add an entry at the end of its node's list.
    #[inline]
    pub(crate) fn push(&mut self, entry: Entry) -> u32 {
        let index = self.all.len() as u32;
        let head = &mut self.heads[entry.node as usize];
        if head.stamp == self.stamp {
            self.all[head.last as usize].next = index;
            head.last = index;
        } else {
            *head = Head { stamp: self.stamp, first: index, last: index };
        }
        self.all.push(entry);
        index
    }

    /// Remove all entries from *from* on, of which each is the last of its node once those behind it are removed.
    /// Return false, without a change, if the entry before one of them would take long to find. *before* is scratch.
    pub(crate) fn take_back(&mut self, from: u32, before: &mut Vec<u32>) -> bool {
        let end = self.all.len();
        let reach = 4 * (end - from as usize) + 64;
        before.clear();
        for index in from..end as u32 {
            let node = self.all[index as usize].node;
            if self.heads[node as usize].first == index {
                before.push(NO_ENTRY);
                continue;
            }
            let least = (index as usize).saturating_sub(reach);
            let Some(at) = (least..index as usize).rev().find(|at| self.all[*at].next == index) else { return false };
            before.push(at as u32);
        }
        for (index, before) in (from..end as u32).zip(&*before).rev() {
            let head = &mut self.heads[self.all[index as usize].node as usize];
            head.last = *before;
            match self.all.get_mut(*before as usize) {
                Some(entry) => entry.next = NO_ENTRY,
                None => head.stamp = 0,
            }
        }
        self.all.truncate(from as usize);
        true
    }

    /// The element at a position.
    #[inline]
    pub(crate) fn element(&self, position: Position) -> &ArrayElement {
        self.elements.get(position.0 as usize).unwrap_or_else(|| &self.run(position).element)
    }

    /// The run that a position lies in.
    #[cold]
    pub(crate) fn run(&self, position: Position) -> &Run {
        &self.runs[self.runs.partition_point(|run| run.first <= position.0) - 1]
    }

    /// How many values there are in runs, those included that were forgotten.
    pub(crate) fn in_runs(&self) -> u32 {
        self.next_in_run - RUNS
    }

    /// The first living entry of a node.
    #[inline]
    pub(crate) fn first(&self, node: u32) -> Option<&Entry> {
        let head = &self.heads[node as usize];
        if head.stamp != self.stamp {
            return None;
        }
        let entry = &self.all[head.first as usize];
        if entry.node == DEAD { self.living(entry.next) } else { Some(entry) }
    }

    #[inline]
    pub(super) fn living(&self, mut index: u32) -> Option<&Entry> {
        while index != NO_ENTRY {
            let entry = &self.all[index as usize];
            if entry.node != DEAD {
                return Some(entry);
            }
            index = entry.next;
        }
        None
    }

    /// The index of the place that has the record: the first with an object. The event itself is one.
    #[inline]
    pub(crate) fn record(&self, trie: &PathTrie) -> u16 {
        let is_object = |node: u32| node == ROOT || self.value(node).is_some_and(|entry| entry.kind == Kind::Map);
        trie.records.iter().position(|place| is_object(place.node)).map_or(ALWAYS, |at| at as u16)
    }

    /// The living value of a node outside of arrays.
    #[inline]
    pub(crate) fn value(&self, node: u32) -> Option<&Entry> {
        self.first(node).filter(|entry| entry.position == Position::NONE)
    }
}

/// Texts that stay in place as long as the container does: it adds them through a shared reference. Shelf n has room
/// for 2^n.
#[derive(Debug, Default)]
pub(crate) struct TextShelves {
    count: AtomicUsize,
    shelves: [OnceLock<Shelf>; SHELVES],
}

/// Room for texts.
type Shelf = Box<[OnceLock<Box<str>>]>;

/// An event is too short for more than 2^32 lists.
const SHELVES: usize = 32;

impl TextShelves {
    fn clear(&mut self) {
        if *self.count.get_mut() > 0 {
            *self = TextShelves::default();
        }
    }

    /// Keep a text.
    pub(crate) fn keep(&self, text: Box<str>) -> &str {
        let place = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        let shelf = place.ilog2();
        let room = || (0..1 << shelf).map(|_| OnceLock::new()).collect();
        let slots = self.shelves[shelf as usize].get_or_init(room);
        slots[place - (1 << shelf)].get_or_init(|| text)
    }
}

#[cfg(test)]
mod tests {
    use super::TextShelves;

    #[test]
    fn kept_texts_stay_where_they_are() {
        let mut kept = TextShelves::default();
        for _ in 0..2 {
            let texts: Vec<&str> = (0..100).map(|at| kept.keep(at.to_string().into())).collect();
            assert!(texts.iter().enumerate().all(|(at, text)| *text == at.to_string()));
            kept.clear();
        }
    }
}
