//! The request of a write, and its changes.

use crate::engine::state::record::RecordRef;
use crate::error::SubscriptionError;

/// How to handle an id that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMode {
    /// Report an error.
    Add,
    /// The new subscription takes its place.
    Replace,
    /// The new subscription replaces it, unless their texts are equal. A subscription whose id is not in the draft is
    /// removed.
    Apply,
}

/// The changes of a write. Positions are those in the call.
#[derive(Debug, Default)]
pub struct Changes {
    /// Positions and slots of ids that are new.
    pub added: Vec<(usize, u32)>,
    /// Positions and new slots of ids whose subscription was replaced.
    pub replaced: Vec<(usize, u32)>,
    /// Positions of ids whose subscription was equal before.
    pub unchanged: Vec<usize>,
    /// Records of ids that were removed, in order of adding.
    pub removed: Vec<RecordRef>,
    /// Slots that became free: those of `removed`, and of replaced subscriptions.
    pub freed: Vec<u32>,
    /// Items that were skipped, by position.
    pub errors: Vec<(usize, SubscriptionError)>,
}

/// The subscriptions to select: those that satisfy every criterion.
#[derive(Clone, Copy, Debug, Default)]
pub struct Selection<'a> {
    /// These ids.
    pub ids: Option<&'a [&'a str]>,
    /// With this gateway.
    pub gateway_id: Option<&'a str>,
    /// Filed under this tenant, or `*`.
    pub tenant: Option<&'a str>,
    /// Filed under this collection, or `*`.
    pub collection: Option<&'a str>,
}
