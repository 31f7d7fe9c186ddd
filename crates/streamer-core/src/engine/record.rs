//! What is known of a subscription besides its conditions.

use crate::cel::Executable;
use crate::engine::access::CostClass;
use crate::engine::addition::{Addition, Host};
use crate::engine::failures::Heard;
use crate::engine::name::PartitionName;
use crate::subscriptions::normal_form::NormalForm;
use std::sync::{Arc, OnceLock};

/// What is known of a subscription besides its conditions.
#[derive(Debug)]
pub struct Record {
    /// Its id.
    pub id: Box<str>,
    /// Who gets the match.
    pub gateway_id: Option<Arc<str>>,
    /// Where it is filed.
    pub partition: Arc<PartitionName>,
    /// Its place in the order of adding; a replacement keeps it.
    pub order: u64,
    /// Its CEL part.
    pub program: Option<Arc<Executable>>,
    /// Whether its CEL part is the [`ExternalCel`](crate::engine::ExternalCel)'s to evaluate.
    pub external_cel: bool,
    /// How many errors it had, and when one was told last.
    pub(super) heard: Heard,
    /// As it was given, for the host.
    pub text: Box<[u8]>,
    /// Its conditions as JSON, where *text* is none.
    pub conditions: Option<Box<[u8]>>,
    /// What the host keeps with it, from the beginning or from when it first wants to.
    pub host: OnceLock<Host>,
    /// How quickly it is found.
    pub cost_class: CostClass,
    /// See [`crate::engine::store::flags`].
    pub flags: u8,
}

/// Where an added subscription is filed, and what is known of it then.
pub(super) struct Filed {
    pub partition: Arc<PartitionName>,
    pub gateway_id: Option<Arc<str>>,
    pub order: u64,
    pub cost_class: CostClass,
}

impl Record {
    /// The record of an added subscription, and the normal form that it is indexed by.
    pub(super) fn of(addition: Addition, filed: Filed) -> (Record, NormalForm) {
        let Filed { partition, gateway_id, order, cost_class } = filed;
        let record = Record {
            id: addition.id,
            gateway_id,
            partition,
            order,
            program: addition.program,
            external_cel: addition.external_cel,
            heard: Heard::default(),
            text: addition.text,
            conditions: addition.conditions,
            host: addition.host.map_or_else(OnceLock::new, OnceLock::from),
            cost_class,
            flags: addition.flags,
        };
        (record, addition.form)
    }
}
