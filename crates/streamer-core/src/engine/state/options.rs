//! How an engine works.

use crate::engine::index::build::Depth;
use crate::engine::state::external_cel::ExternalCel;
use crate::flatten::Validation;
use crate::layout::EventLayout;
use crate::limits::Limits;
use crate::subscriptions::normal_form::Path;
use crate::subscriptions::parse::Defaults;
use crate::subscriptions::topics::TopicDialect;
use crate::watch::Ask;
use std::sync::Arc;

/// Runs its argument once.
pub type ReleaseGil = Arc<dyn Fn(&mut (dyn FnMut() + Send)) + Send + Sync>;

/// How an engine works.
#[derive(Clone)]
pub struct Options {
    /// The places of the parts of events.
    pub layout: Arc<EventLayout>,
    /// The tenant of events that have none.
    pub default_tenant: Option<Box<str>>,
    /// The dialect of topic patterns for subscriptions that do not choose one.
    pub topic_dialect: TopicDialect,
    /// How much of an event is checked.
    pub validation: Validation,
    /// Bounds on the cost of users and events.
    pub limits: Limits,
    /// Whether subscriptions without any indexable condition are accepted. They may be about any event.
    pub allow_unindexed: bool,
    /// Whether a thread merges segments; else only [`Engine::merge`] does.
    pub background: bool,
    /// How deep buckets nest.
    pub depth: Depth,
    /// The field of `data` that flags a document as deleted.
    pub soft_delete: Option<Path>,
    /// Phase 1; None leaves it out.
    pub bloom: Option<Phase1>,
    /// Evaluates the CEL part of subscriptions whose CEL is [external](crate::engine::Addition::external_cel); without
    /// it such a subscription is an error.
    pub external_cel: Option<Arc<dyn ExternalCel>>,
    /// The seed of all hashes: that of a file with tables; None for a random one.
    pub seed: Option<u64>,
    /// Runs work that may wait, with the host's lock (Python's GIL) released; None: there is no such lock.
    pub release_gil: Option<ReleaseGil>,
    /// Called every 20 ms by a long match: should it continue? See [`Interrupted`](crate::watch::Interrupted).
    pub ask: Option<Ask>,
    /// Called by the thread that merges, when it has left memory free and has no more to do.
    pub give_back: Option<fn()>,
    /// Called inside each write, under the writer's lock, just before it is published.
    pub before_publish: Option<Arc<dyn Fn() + Send + Sync>>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            layout: Arc::default(),
            default_tenant: Some("default".into()),
            topic_dialect: TopicDialect::default(),
            validation: Validation::Full,
            limits: Limits::default(),
            allow_unindexed: true,
            background: true,
            depth: Depth::RECURSIVE,
            soft_delete: None,
            bloom: Some(Phase1::default()),
            external_cel: None,
            seed: None,
            release_gil: None,
            ask: None,
            give_back: None,
            before_publish: None,
        }
    }
}

impl Options {
    /// The defaults of subscriptions.
    pub fn defaults(&self) -> Defaults<'_> {
        Defaults { tenant: self.default_tenant.as_deref(), topic_dialect: self.topic_dialect }
    }
}

/// How phase 1 works.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Phase1 {
    /// The share of the events without a key that may pass.
    pub fp_rate: f64,
    /// How many keys a filter has room for at least.
    pub initial_capacity: usize,
}

impl Default for Phase1 {
    fn default() -> Phase1 {
        Phase1 { fp_rate: 0.01, initial_capacity: 128 }
    }
}

impl Phase1 {
    /// The error rate for a key, if an event carries one at each place.
    pub(in crate::engine) fn key_rate(&self, places: usize) -> f64 {
        1.0 - (1.0 - self.fp_rate.clamp(0.0, 1.0)).powf(1.0 / places.max(1) as f64)
    }
}
