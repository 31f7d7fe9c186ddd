//! What a write is asked for, and what it changed.

use crate::engine::record::HeldRecord;
use crate::error::SubscriptionError;

/// What to do with an id that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMode {
    /// It is an error.
    Add,
    /// The new subscription takes its place.
    Replace,
    /// The new subscription takes its place, unless their texts are equal. What is not given is removed.
    Apply,
}

/// What a write changed. Positions are those in the call.
#[derive(Debug, Default)]
pub struct Changes {
    /// Positions and slots of ids that were not held before.
    pub added: Vec<(usize, u32)>,
    /// Positions and new slots of ids whose subscription is another one now.
    pub replaced: Vec<(usize, u32)>,
    /// Positions of ids that were held already just so.
    pub unchanged: Vec<usize>,
    /// Records of ids that are no longer held, in order of adding.
    pub removed: Vec<HeldRecord>,
    /// Slots that are no longer in use: of `removed`, and of what was replaced.
    pub freed: Vec<u32>,
    /// What was passed over, by position.
    pub errors: Vec<(usize, SubscriptionError)>,
}

/// Which subscriptions are meant: those that meet every criterion given.
#[derive(Clone, Copy, Debug, Default)]
pub struct Selection<'a> {
    /// These ids.
    pub ids: Option<&'a [&'a str]>,
    /// Of this gateway.
    pub gateway_id: Option<&'a str>,
    /// Filed under this tenant, or `*`.
    pub tenant: Option<&'a str>,
    /// Filed under this collection, or `*`.
    pub collection: Option<&'a str>,
}
