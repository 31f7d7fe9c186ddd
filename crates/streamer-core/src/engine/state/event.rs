//! An event as the caller passes it to an engine, and its properties that can be read without matching it.

use crate::flatten::{CallerParts, EventId};
use crate::layout::EventType;

/// An event's text, and the parts that the caller supplies.
#[derive(Clone, Copy, Debug)]
pub struct Event<'e> {
    /// Its JSON.
    pub text: &'e [u8],
    /// Its tenant; None: the tenant in the event.
    pub tenant: Option<&'e str>,
    /// Its collection; None: the collection in the event.
    pub collection: Option<&'e str>,
}

impl<'e> Event<'e> {
    /// An event, with the parts that the caller supplies.
    pub fn new(text: &'e [u8], tenant: Option<&'e str>, collection: Option<&'e str>) -> Event<'e> {
        Event { text, tenant, collection }
    }

    /// The parts that its flattening gets from the caller.
    pub(in crate::engine) fn caller_parts(&self, default_tenant: Option<&'e str>) -> CallerParts<'e> {
        CallerParts { tenant: self.tenant, collection: self.collection, default_tenant }
    }
}

/// The caller supplies only the text.
impl<'e, T: AsRef<[u8]> + ?Sized> From<&'e T> for Event<'e> {
    fn from(text: &'e T) -> Event<'e> {
        Event::new(text.as_ref(), None, None)
    }
}

/// The names of an event, and its partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity<'e> {
    /// Its id.
    pub id: Option<EventId<'e>>,
    /// Whose it is: the argument, else its own, else the default.
    pub tenant: &'e str,
    /// Which collection: the argument, else its own.
    pub collection: Option<&'e str>,
    /// The change of the document.
    pub event_type: Option<EventType>,
    /// Source time, in nanoseconds since the epoch. Lazy validation leaves it out.
    pub ts_ns: Option<i128>,
}

/// The partition of an event, as far as it can be found without reading all of it.
#[derive(Clone, Copy, Debug)]
pub struct Located<'e> {
    /// A number that events of one tenant and collection share.
    pub key: u64,
    pub(in crate::engine) tenant: Option<&'e str>,
    pub(in crate::engine) collection: Option<&'e str>,
}
