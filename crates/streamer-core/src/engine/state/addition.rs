//! A subscription to add, as a host gives it.

use crate::cel::Executable;
use crate::error::SubscriptionError;
use crate::subscriptions::normal_form::NormalForm;
use std::any::Any;
use std::sync::Arc;

/// The host's data of a subscription; the engine never reads it.
pub type Host = Box<dyn Any + Send + Sync>;

/// A subscription to add, or why it is none.
pub type Item = Result<Addition, Box<SubscriptionError>>;

/// A subscription to add.
#[derive(Debug)]
pub struct Addition {
    /// Its id.
    pub id: Box<str>,
    /// The receiver of the match.
    pub gateway_id: Option<Box<str>>,
    /// A tenant, or `*`.
    pub tenant: Box<str>,
    /// A collection; None for all.
    pub collection: Option<Box<str>>,
    /// Its conditions. The rest of its `cel` is evaluated on candidates, with
    /// [`flags::CEL`](crate::engine::flags::CEL).
    pub form: NormalForm,
    /// Its other properties, see [`crate::engine::flags`]; `SEVERAL` and `VERIFY` are found from its form.
    pub flags: u8,
    /// Whether it has a CEL part or groups of filters, even if its form contains all of them.
    pub has_cel: bool,
    /// Whether its groups of filters are evaluated on candidates, with the flag `CEL`: its form does not contain all of them.
    pub open_groups: bool,
    /// Its CEL part, only with the flag `CEL`: a part that its form contains is compiled again for an event with
    /// unknown values.
    pub program: Option<Arc<Executable>>,
    /// Whether its CEL part is the [`ExternalCel`]'s to evaluate; then it has no *program*, and the flag `CEL`.
    pub external_cel: bool,
    /// Its original text, or a substitute: equal for equal subscriptions.
    pub text: Box<[u8]>,
    /// Another text with the same meaning: if that is stored, applying this changes only its own draft.
    pub same_as: Option<Box<[u8]>>,
    /// Its conditions as JSON, if *text* is not JSON.
    pub conditions: Option<Box<[u8]>>,
    /// The host's data.
    pub host: Option<Host>,
}

impl Addition {
    /// An addition with only conditions, for events of every tenant and collection.
    pub fn new(id: impl Into<Box<str>>, form: NormalForm, text: &[u8]) -> Addition {
        Addition {
            id: id.into(),
            gateway_id: None,
            tenant: "*".into(),
            collection: None,
            form,
            flags: 0,
            has_cel: false,
            open_groups: false,
            program: None,
            external_cel: false,
            text: text.into(),
            same_as: None,
            conditions: None,
            host: None,
        }
    }
}
