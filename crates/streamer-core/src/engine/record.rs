//! What is known of a subscription besides its conditions.
//!
//! ```text
//!   bytes   {"id": "orders", "collection": ...}          its id is where the text has it, or behind the text
//!                   ^^^^^^
//! ```
//!
//! Cost: 128 bytes and its text. What few have lies elsewhere ([`Rest`]).

use crate::cel::Executable;
use crate::engine::access::CostClass;
use crate::engine::addition::{Addition, Host};
use crate::engine::failures::Heard;
use crate::engine::name::PartitionName;
use crate::engine::store::flags;
use crate::prefetch::prefetch;
use crate::subscriptions::normal_form::NormalForm;
use memchr::memmem;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// What is known of a subscription besides its conditions.
#[derive(Debug)]
pub struct Record {
    /// Its text as it was given, and its id behind it where the text does not have it.
    bytes: Box<[u8]>,
    text_length: u32,
    id_at: u32,
    id_length: u32,
    /// How quickly it is found.
    pub cost_class: CostClass,
    /// See [`crate::engine::store::flags`].
    pub flags: u8,
    /// Whether it has a CEL part.
    pub has_cel: bool,
    rest: Option<Box<Rest>>,
    /// Who gets the match.
    pub gateway_id: Option<Arc<str>>,
    /// Where it is filed.
    pub partition: Arc<PartitionName>,
    /// Its place in the order of adding; a replacement keeps it.
    pub order: u64,
    /// How many errors it had, and when one was told last.
    pub(super) heard: Heard,
    /// What the host keeps with it, from the beginning or from when it first wants to.
    pub host: OnceLock<Host>,
}

/// What few subscriptions have.
#[derive(Debug)]
struct Rest {
    program: Option<Arc<Executable>>,
    external_cel: bool,
    conditions: Option<Box<[u8]>>,
}

/// Where an added subscription is filed, and what is known of it then.
pub(super) struct Filed {
    pub partition: Arc<PartitionName>,
    pub gateway_id: Option<Arc<str>>,
    pub order: u64,
    pub cost_class: CostClass,
}

/// Where an id lies in what is kept, and what is kept: at most 2^32 bytes.
fn kept(text: Box<[u8]>, id: &str) -> (Box<[u8]>, Range<usize>) {
    // Nearly always it is the first member.
    let begin = &text[..text.len().min(id.len() + 32)];
    match memmem::find(begin, id.as_bytes()) {
        Some(at) => (text, at..at + id.len()),
        None => {
            let at = text.len();
            let mut bytes = Vec::with_capacity(at + id.len());
            bytes.extend_from_slice(&text);
            bytes.extend_from_slice(id.as_bytes());
            (bytes.into(), at..at + id.len())
        }
    }
}

impl Record {
    /// The record of an added subscription, and the normal form that it is indexed by. None: it is longer than 2^32 bytes.
    pub(super) fn of(addition: Addition, filed: Filed) -> Option<(Record, NormalForm)> {
        let Filed { partition, gateway_id, order, cost_class } = filed;
        let has_cel = addition.program.is_some() || addition.external_cel;
        // What its conditions say is compiled again for events with unknown values: it takes ten times the text.
        let program = addition.program.filter(|_| addition.flags & flags::CEL != 0);
        let external_cel = addition.external_cel;
        let is_plain = program.is_none() && !external_cel && addition.conditions.is_none();
        let text_length = u32::try_from(addition.text.len()).ok()?;
        let (bytes, id) = kept(addition.text, &addition.id);
        u32::try_from(bytes.len()).ok()?;
        let record = Record {
            bytes,
            text_length,
            id_at: id.start as u32,
            id_length: id.len() as u32,
            cost_class,
            flags: addition.flags,
            has_cel,
            rest: (!is_plain).then(|| Box::new(Rest { program, external_cel, conditions: addition.conditions })),
            gateway_id,
            partition,
            order,
            heard: Heard::default(),
            host: addition.host.map_or_else(OnceLock::new, OnceLock::from),
        };
        Some((record, addition.form))
    }

    /// Its id.
    #[inline]
    pub fn id(&self) -> &str {
        let bytes = &self.bytes[self.id_at as usize..][..self.id_length as usize];
        // It was copied from one, or found to be equal to it.
        std::str::from_utf8(bytes).unwrap_or_default()
    }

    /// Ask the processor for its id.
    #[inline]
    pub fn prefetch_id(&self) {
        prefetch(&self.bytes, self.id_at as usize);
    }

    /// As it was given, for the host.
    pub fn text(&self) -> &[u8] {
        &self.bytes[..self.text_length as usize]
    }

    /// Its conditions as JSON.
    pub fn conditions(&self) -> &[u8] {
        self.rest.as_ref().and_then(|rest| rest.conditions.as_deref()).unwrap_or(self.text())
    }

    /// Its CEL part, where its conditions do not say all of it.
    pub fn program(&self) -> Option<&Arc<Executable>> {
        self.rest.as_ref()?.program.as_ref()
    }

    /// Whether its CEL part is the [`ExternalCel`](crate::engine::ExternalCel)'s to evaluate.
    pub fn external_cel(&self) -> bool {
        self.rest.as_ref().is_some_and(|rest| rest.external_cel)
    }
}
