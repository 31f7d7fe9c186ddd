//! The data of a subscription without its conditions.
//!
//! ```text
//!   bytes   6 orders  2 c7  5 total ...          the values of its text; its id is inside them, or after them
//!             ^^^^^^
//! ```
//!
//! Cost: 64 bytes, which are one line of the processor's caches, and the values of its text. Rare data is stored
//! elsewhere, and so is data that many share ([`Rest`], [`Filing`]).

use crate::cel::Executable;
use crate::engine::state::addition::{Addition, Host};
use crate::engine::state::name::PartitionName;
use crate::engine::state::texts::{Split, join};
use crate::engine::verify::failures::Heard;
use crate::heap::block;
use crate::prefetch::{prefetch, prefetch_at};
use crate::subscriptions::normal_form::Unknowns;
use memchr::memmem;
use once_cell::race::OnceBox;
use std::borrow::Cow;
use std::sync::{Arc, OnceLock, Weak};

/// The data of a subscription without its conditions.
#[derive(Debug)]
pub struct Record {
    /// The values of its text, or all of it, then its id unless that is inside them.
    bytes: Box<[u8]>,
    id_length: u32,
    /// The offset of the id, or [`BEHIND`] if it is after the text.
    id_at: u8,
    /// See [`crate::engine::verify::store::flags`].
    pub flags: u8,
    /// Whether it has a CEL part or groups of filters.
    pub has_cel: bool,
    /// What its clauses tell of an event with unknown values.
    pub unknowns: Unknowns,
    rest: Option<Arc<Rest>>,
    filing: Arc<Filing>,
    /// Its place in the order of adding; a replacement keeps it.
    pub order: u64,
    later: OnceBox<Later>,
}

/// A record, shared: without the second count that the standard library's [`Arc`] has for weak references.
pub type RecordRef = triomphe::Arc<Record>;

/// Heap bytes of a record and of its count.
const SIZE: usize = size_of::<usize>() + size_of::<Record>();
// Each byte of it is a megabyte of a million subscriptions.
const _: () = assert!(SIZE == 64 || size_of::<usize>() != 8);

/// Data that few subscriptions have from the start: most get it when they first match or fail.
#[derive(Debug, Default)]
struct Later {
    /// How many errors it had, and when one was last reported.
    heard: Heard,
    host: OnceLock<Host>,
}

/// The partition of a subscription, and the receiver of its matches: many subscriptions share it.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(in crate::engine) struct Filing {
    pub partition: Arc<PartitionName>,
    pub gateway_id: Option<Box<str>>,
}

impl Filing {
    /// Heap bytes used if it is shared, without the partition's name.
    pub fn bytes(&self) -> usize {
        shared_size::<Filing>() + self.gateway_id.as_ref().map_or(0, |id| id.len())
    }
}

/// Heap bytes of a value and of its two reference counts.
pub(super) const fn shared_size<T>() -> usize {
    2 * size_of::<usize>() + size_of::<T>()
}

/// An id is searched up to this offset in the stored part of its text.
const BEGIN: usize = 32;
const BEHIND: u8 = u8::MAX;

/// Rare data of subscriptions, and the shape of their texts. Many share all of it if they have only the shape.
#[derive(Debug, Default)]
pub(in crate::engine) struct Rest {
    /// Empty if the text is stored whole.
    pub shape: Arc<[u8]>,
    program: Option<Arc<Executable>>,
    external_cel: bool,
    open_groups: bool,
    conditions: Option<Box<[u8]>>,
}

impl Rest {
    /// Only a shape.
    pub fn of(shape: &[u8]) -> Rest {
        Rest { shape: shape.into(), ..Rest::default() }
    }

    /// Whether it is but a shape.
    fn is_shared(&self) -> bool {
        self.program.is_none() && !self.external_cel && !self.open_groups && self.conditions.is_none()
    }
}

/// The content of a record to compare later: its text, and its CEL part. It does not keep that part alive.
#[derive(Debug)]
pub(in crate::engine) struct Saying {
    text: Box<[u8]>,
    /// While this is here, no other has its address.
    rest: Option<Weak<Rest>>,
}

/// Heap bytes of records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordBytes {
    /// The records, and the table that finds them.
    pub records: usize,
    /// Texts and ids.
    pub texts: usize,
}

/// The partition of an added subscription, and its order and text.
pub(in crate::engine) struct Filed {
    pub filing: Arc<Filing>,
    pub order: u64,
    /// Its text, which the addition no longer has.
    pub text: Split,
}

/// The stored bytes, and the offset of an id in them.
fn with_id(bytes: Box<[u8]>, id: &str) -> (Box<[u8]>, u8) {
    // Nearly always it is the first member.
    let begin = &bytes[..bytes.len().min(id.len() + BEGIN)];
    match memmem::find(begin, id.as_bytes()) {
        Some(at) => (bytes, at as u8),
        None => ([&bytes, id.as_bytes()].concat().into(), BEHIND),
    }
}

impl Record {
    /// The record of an added subscription. None: it is longer than 2^32 bytes.
    pub(in crate::engine) fn of(addition: Addition, filed: Filed) -> Option<Record> {
        let Filed { filing, order, text: Split { rest, bytes } } = filed;
        let Addition { has_cel, open_groups, program, external_cel, .. } = addition;
        let unknowns = if external_cel { Unknowns::Hidden } else { addition.form.unknowns };
        let shape = rest.as_ref().map_or_else(Arc::default, |rest| rest.shape.clone());
        let own = Rest { shape, program, external_cel, open_groups, conditions: addition.conditions };
        let rest = if own.is_shared() { rest } else { Some(Arc::new(own)) };
        let id_length = u32::try_from(addition.id.len()).ok()?;
        let (bytes, id_at) = with_id(bytes, &addition.id);
        let later = addition.host.map(|host| Box::new(Later { host: host.into(), ..Later::default() }));
        Some(Record {
            bytes,
            id_length,
            id_at,
            flags: addition.flags,
            has_cel,
            unknowns,
            rest,
            filing,
            order,
            later: later.map_or_else(OnceBox::new, OnceBox::with_value),
        })
    }

    /// The receiver of the match.
    #[inline]
    pub fn gateway_id(&self) -> Option<&str> {
        self.filing.gateway_id.as_deref()
    }

    fn later(&self) -> &Later {
        self.later.get_or_init(Box::default)
    }

    /// How many errors it had, and when one was last reported.
    pub(in crate::engine) fn heard(&self) -> &Heard {
        &self.later().heard
    }

    /// How many errors it had.
    pub(in crate::engine) fn errors(&self) -> u64 {
        self.later.get().map_or(0, |later| later.heard.errors())
    }

    /// The host's data for it, if any.
    #[inline]
    pub fn host(&self) -> Option<&Host> {
        self.later.get()?.host.get()
    }

    /// The host's data for it; if there is none, keep the result of *make*.
    #[inline]
    pub fn host_or(&self, make: impl FnOnce() -> Host) -> &Host {
        self.later().host.get_or_init(make)
    }

    /// Prefetch the line that leads to its host data.
    #[inline]
    pub fn prefetch_host(&self) {
        if let Some(later) = self.later.get() {
            prefetch_at(later);
        }
    }

    /// Its partition.
    #[inline]
    pub fn partition(&self) -> &Arc<PartitionName> {
        &self.filing.partition
    }

    /// Heap bytes of the record and of its text, without shared and later data.
    pub(super) fn bytes(&self) -> RecordBytes {
        let rest = self.rest.as_ref().filter(|rest| !rest.is_shared());
        let rest =
            rest.map_or(0, |rest| block(shared_size::<Rest>()) + rest.conditions.as_ref().map_or(0, |text| block(text.len())));
        RecordBytes { records: block(SIZE) + rest, texts: block(self.bytes.len()) }
    }

    fn text_length(&self) -> usize {
        self.bytes.len() - if self.id_at == BEHIND { self.id_length as usize } else { 0 }
    }

    fn id_start(&self) -> usize {
        if self.id_at == BEHIND { self.text_length() } else { usize::from(self.id_at) }
    }

    /// Its id.
    #[inline]
    pub fn id(&self) -> &str {
        let bytes = &self.bytes[self.id_start()..][..self.id_length as usize];
        // It was copied from a string, or found to be equal to one.
        std::str::from_utf8(bytes).unwrap_or_default()
    }

    /// Prefetch its id.
    #[inline]
    pub fn prefetch_id(&self) {
        prefetch(&self.bytes, self.id_start());
    }

    /// The stored part of its text: the values, or all of it.
    fn stored_text(&self) -> &[u8] {
        &self.bytes[..self.text_length()]
    }

    /// Its original text, for the host.
    pub fn text(&self) -> Cow<'_, [u8]> {
        match &self.rest {
            Some(rest) if !rest.shape.is_empty() => join(&rest.shape, self.stored_text()).into(),
            _ => self.stored_text().into(),
        }
    }

    /// Its content, to compare with another record.
    pub(in crate::engine) fn saying(&self) -> Saying {
        Saying { text: self.stored_text().into(), rest: self.rest.as_ref().map(Arc::downgrade) }
    }

    /// Whether its content equals that of another record.
    pub(in crate::engine) fn says(&self, Saying { text, rest }: &Saying) -> bool {
        let rest = rest.as_ref().map(Weak::as_ptr);
        *self.stored_text() == **text && self.rest.as_ref().map(Arc::as_ptr) == rest
    }

    /// Its conditions as JSON.
    pub fn conditions(&self) -> Cow<'_, [u8]> {
        let own = self.rest.as_ref().and_then(|rest| rest.conditions.as_deref());
        own.map_or_else(|| self.text(), Cow::from)
    }

    /// Its CEL part, unless its conditions contain all of it.
    pub fn program(&self) -> Option<&Arc<Executable>> {
        self.rest.as_ref()?.program.as_ref()
    }

    /// Whether its groups of filters are evaluated on candidates.
    pub fn open_groups(&self) -> bool {
        self.rest.as_ref().is_some_and(|rest| rest.open_groups)
    }

    /// Whether its CEL part is the [`ExternalCel`](crate::engine::ExternalCel)'s to evaluate.
    pub fn external_cel(&self) -> bool {
        self.rest.as_ref().is_some_and(|rest| rest.external_cel)
    }
}
