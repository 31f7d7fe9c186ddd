//! The data that events of one tenant and collection share, looked up for the first of them: their partitions and their
//! view.
//!
//! ```text
//!   event of (acme, orders)   locate, partitions, view ─► flatten ─► search      kept
//!   event of (acme, orders)                               flatten ─► search      the guess is right: its names are compared
//!   event of (acme, users)                                flatten ─╳            looked up, and kept in its place
//! ```
//!
//! Invariant: the paths that are searched were flattened for the partitions of the names that were read, so a wrong
//! guess costs a flattening and never a match. Errors are those of an event by itself: an error after a guess is
//! checked again.
//!
//! Cost: a guess saves a tenth of a small event, a wrong one costs a half; after a few of these there is no guessing for some
//! events. Rejected: keeping it between calls (it would keep merged segments alive).

use crate::engine::state::engine_version::Version;
use crate::engine::state::event::Located;
use crate::engine::state::partitions::Partition;
use crate::engine::verify::paths::{Luck, View};
use crate::flatten::Parts;
use std::sync::Arc;

/// The partitions that an event sees.
pub(super) type VisiblePartitions<'r> = [Option<&'r Arc<Partition>>; 4];

/// See the head of this file. It matches on one state of an engine, in one thread.
#[derive(Debug)]
pub struct Group<'r> {
    pub(super) version: &'r Arc<Version>,
    located: Option<Located<'r>>,
    key: Option<u64>,
    is_reused: bool,
    tenant: String,
    collection: String,
    has_collection: bool,
    pub(super) visible: VisiblePartitions<'r>,
    view: Option<Arc<View>>,
    luck: Luck,
}

impl<'r> Group<'r> {
    /// For several events.
    pub fn new(version: &'r Arc<Version>) -> Group<'r> {
        Group { is_reused: true, ..Group::alone(version) }
    }

    /// For one event.
    pub(super) fn alone(version: &'r Arc<Version>) -> Group<'r> {
        Group {
            version,
            located: None,
            key: None,
            is_reused: false,
            tenant: String::new(),
            collection: String::new(),
            has_collection: false,
            visible: [None; 4],
            view: None,
            luck: Luck::default(),
        }
    }

    /// Announce the partition of the next event.
    pub fn expect(&mut self, located: Located<'r>) {
        if self.key != Some(located.key) {
            (self.key, self.view) = (Some(located.key), None);
        }
        self.located = Some(located);
    }

    /// The announced partition of the next event, if any.
    pub(super) fn expected(&mut self) -> Option<Located<'r>> {
        self.located.take()
    }

    /// The view that the next event is flattened for, if it is worth guessing.
    pub(super) fn guess(&mut self) -> Option<Arc<View>> {
        if self.view.is_some() && self.luck.guesses() { self.view.clone() } else { None }
    }

    /// Whether the names that were read are those of the guess.
    pub(super) fn is_right(&mut self, parts: &Parts<'_>) -> bool {
        let collection = self.has_collection.then_some(&*self.collection);
        self.luck.settle(parts.tenant == self.tenant && parts.collection == collection)
    }

    /// Whether the group has no data for the event, and will not keep any for the next.
    pub(super) fn is_alone(&self) -> bool {
        !self.is_reused && self.located.is_none()
    }

    /// Keep the partitions and the view of an event.
    pub(super) fn keep(&mut self, parts: &Parts<'_>, visible: VisiblePartitions<'r>, view: &Arc<View>) {
        if self.is_reused {
            self.tenant.clear();
            self.tenant.push_str(parts.tenant);
            self.collection.clear();
            self.collection.push_str(parts.collection.unwrap_or_default());
            self.has_collection = parts.collection.is_some();
            self.visible = visible;
            self.view = Some(view.clone());
        }
    }
}
