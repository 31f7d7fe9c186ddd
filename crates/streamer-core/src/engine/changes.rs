//! What a write is asked for, and what it changed.

use crate::cel::Executable;
use crate::engine::record::{Host, Record};
use crate::error::SubscriptionError;
use crate::subscriptions::normal_form::NormalForm;
use std::sync::Arc;

/// A subscription to add.
#[derive(Clone, Debug)]
pub struct Addition {
    /// Its id.
    pub id: Box<str>,
    /// Who gets the match.
    pub gateway_id: Option<Box<str>>,
    /// A tenant, or `*`.
    pub tenant: Box<str>,
    /// A collection; None for all.
    pub collection: Option<Box<str>>,
    /// Its conditions; what is left of its `cel` is evaluated on candidates, with [`flags::CEL`](crate::engine::flags::CEL).
    pub form: NormalForm,
    /// What it is besides, see [`crate::engine::flags`]; `SEVERAL` and `VERIFY` are found from its form.
    pub flags: u8,
    /// Its CEL part, also where its form says all of it: for events with unknown values.
    pub program: Option<Arc<Executable>>,
    /// Whether its CEL part is the [`ExternalCel`]'s to evaluate; then it has no *program*, and the flag `CEL`.
    pub external_cel: bool,
    /// As it was given, or what stands for that: equal for equal subscriptions.
    pub text: Box<[u8]>,
    /// Another text that says the same: applied where that is held, it changes nothing.
    pub same_as: Option<Box<[u8]>>,
    /// Its conditions as JSON, where *text* is none.
    pub conditions: Option<Box<[u8]>>,
    /// What the host keeps with it.
    pub host: Option<Host>,
}

impl Addition {
    /// Of conditions alone, for events of every tenant and collection.
    pub fn new(id: impl Into<Box<str>>, form: NormalForm, text: &[u8]) -> Addition {
        Addition {
            id: id.into(),
            gateway_id: None,
            tenant: "*".into(),
            collection: None,
            form,
            flags: 0,
            program: None,
            external_cel: false,
            text: text.into(),
            same_as: None,
            conditions: None,
            host: None,
        }
    }
}

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
    pub removed: Vec<Arc<Record>>,
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
