//! What is known of a subscription besides its conditions.

use crate::cel::Executable;
use crate::engine::access::CostClass;
use crate::engine::failures::Heard;
use crate::engine::name::PartitionName;
use std::any::Any;
use std::sync::{Arc, OnceLock};

/// What a host keeps with a subscription; never looked into here.
pub type Host = Arc<dyn Any + Send + Sync>;

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
