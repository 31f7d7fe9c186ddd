//! An event as it is handed to an engine, and what can be said of it without matching it.

use crate::flatten::{EventId, GivenParts};
use crate::layout::EventType;

/// An event's text, and what the caller says of it.
#[derive(Clone, Copy, Debug)]
pub struct Event<'e> {
    /// Its JSON.
    pub text: &'e [u8],
    /// Whose it is; None: as the event says.
    pub tenant: Option<&'e str>,
    /// Of which collection it is; None: as the event says.
    pub collection: Option<&'e str>,
}

impl<'e> Event<'e> {
    /// An event, with what the caller says of it.
    pub fn new(text: &'e [u8], tenant: Option<&'e str>, collection: Option<&'e str>) -> Event<'e> {
        Event { text, tenant, collection }
    }

    /// What is given for its flattening.
    pub(super) fn given(&self, default_tenant: Option<&'e str>) -> GivenParts<'e> {
        GivenParts { tenant: self.tenant, collection: self.collection, default_tenant }
    }
}

/// Of which the caller says nothing.
impl<'e, T: AsRef<[u8]> + ?Sized> From<&'e T> for Event<'e> {
    fn from(text: &'e T) -> Event<'e> {
        Event::new(text.as_ref(), None, None)
    }
}

/// What an event is called, and where it belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity<'e> {
    /// What names it.
    pub id: Option<EventId<'e>>,
    /// Whose it is: the argument, else its own, else the default.
    pub tenant: &'e str,
    /// Which collection: the argument, else its own.
    pub collection: Option<&'e str>,
    /// What happened.
    pub event_type: Option<EventType>,
    /// When, in nanoseconds since the epoch. None also under lazy validation.
    pub ts_ns: Option<i128>,
}

/// Where an event belongs, as far as can be told without reading all of it.
#[derive(Clone, Copy, Debug)]
pub struct Located<'e> {
    /// A number that events of one tenant and collection share.
    pub key: u64,
    pub(super) tenant: Option<&'e str>,
    pub(super) collection: Option<&'e str>,
}
