//! Matches as text: lines of JSON, byte for byte as `streamer/reference/core.py` writes them, and messages, CloudEvents in
//! structured JSON, byte for byte as `streamer/service/delivery/messages.py` writes them.
//!
//! ```text
//!   {"specversion":"1.0","id":"  32 digits  ","source":…,"type":"  streamer.match.enter  ","subject":  "s1"
//!      the hash of place, transition, subscription      argument                                  without its tenant
//!   ,"time":…,"partitionkey":…,"tenant":…,"collection":…   ,"gateway":…,"certain":true,…"data":{"labels":  {}   ,"event":…}}
//!      `attributes`, once an event                                                                     kept      argument
//! ```
//!
//! Invariant: an id is made of the same bytes in both, so that a message keeps its id if it is delivered again by
//! another version, or by the reference.
//!
//! Cost: a hash and a copy a message; its bytes are the only Python object.

use crate::host;
use crate::shared::Shared;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use streamer_core::bloom::portable::murmur3_x64_128;
use streamer_core::engine::{Identity, Outcome, Record, Transition};
use streamer_core::flatten::{EventId, write_rfc3339};
use streamer_core::json;

/// The common parts of all messages about one event.
pub struct Common<'a> {
    /// The place of the event, which is a part of the ids.
    pub place: &'a [u8],
    /// From the end of the id to the type.
    pub source: &'a str,
    pub attributes: &'a str,
    /// The text after the labels.
    pub tail: &'a [u8],
}

/// Writes messages, one after the other.
#[derive(Default)]
pub struct Encoder {
    text: String,
    hashed: Vec<u8>,
}

impl Encoder {
    /// Write the message of one match.
    ///
    /// # Errors
    ///
    /// An exception of the host while it computed labels.
    pub fn message<'py>(
        &mut self,
        py: Python<'py>,
        shared: &Shared,
        common: &Common<'_>,
        record: &Record,
        transition: Option<Transition>,
        is_certain: bool,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let Encoder { text, hashed } = self;
        let transition = transition.map_or("", Transition::as_str);
        hashed.clear();
        for part in [common.place, transition.as_bytes(), b"\0", record.id().as_bytes()] {
            hashed.extend_from_slice(part);
        }
        text.clear();
        text.push_str(r#"{"specversion":"1.0","id":""#);
        push_digits(text, murmur3_x64_128(hashed));
        text.push_str(common.source);
        text.push_str("streamer.match");
        if !transition.is_empty() {
            text.extend([".", transition]);
        }
        text.push_str(r#"","subject":"#);
        json::write_string(text, record.id().split_once('\0').map_or("", |(_, id)| id));
        text.push_str(common.attributes);
        if let Some(gateway) = record.gateway_id() {
            text.push_str(r#","gateway":"#);
            json::write_string(text, gateway);
        }
        text.push_str(if is_certain { r#","certain":true"# } else { r#","certain":false"# });
        text.push_str(r#","datacontenttype":"application/json","data":{"labels":"#);
        text.push_str(host::labels_of(py, &shared.host, record)?.unwrap_or("{}"));
        PyBytes::new_with(py, text.len() + common.tail.len(), |bytes| {
            let (head, tail) = bytes.split_at_mut(text.len());
            head.copy_from_slice(text.as_bytes());
            tail.copy_from_slice(common.tail);
            Ok(())
        })
    }
}

/// Write one match of a batch as a line of JSON, as `streamer.reference.core` does.
///
/// # Errors
///
/// An exception of the host while it computed labels.
pub fn push_line(
    py: Python<'_>,
    shared: &Shared,
    text: &mut String,
    row: usize,
    record: &Record,
    outcome: Outcome,
) -> PyResult<()> {
    text.extend([r#"{"row":"#, &row.to_string(), r#","subscription_id":"#]);
    json::write_string(text, record.id());
    text.push_str(r#","gateway_id":"#);
    match record.gateway_id() {
        Some(gateway) => json::write_string(text, gateway),
        None => text.push_str("null"),
    }
    text.push_str(r#","transition":"#);
    match outcome.transition {
        Some(transition) => text.extend(["\"", transition.as_str(), "\""]),
        None => text.push_str("null"),
    }
    text.push_str(if outcome.certain { r#","certain":true,"labels":"# } else { r#","certain":false,"labels":"# });
    text.push_str(host::labels_of(py, &shared.host, record)?.unwrap_or("null"));
    text.push_str("}\n");
    Ok(())
}

/// A hash as `mmh3_x64_128_digest` and `hex` write it.
fn push_digits(text: &mut String, (low, high): (u64, u64)) {
    for byte in low.to_le_bytes().into_iter().chain(high.to_le_bytes()) {
        text.extend([byte >> 4, byte & 15].map(|digit| char::from(b"0123456789abcdef"[usize::from(digit)])));
    }
}

/// The event's part of messages, from its *identity*; None if it has an empty tenant.
///
/// *key* is that of the record, if it has one, else the event's id; *tenant* that of its subscriptions, if they have
/// one.
pub fn attributes(identity: &Identity<'_>, key: Option<&str>, tenant: Option<&str>) -> Option<String> {
    if identity.tenant.is_empty() {
        return None;
    }
    let mut text = String::new();
    if let Some(ns) = identity.ts_ns {
        text.push_str(r#","time":""#);
        write_rfc3339(&mut text, ns);
        text.push('"');
    }
    let id = match identity.id {
        Some(EventId::Integer(id)) if key.is_none() => Some(id.to_string()),
        _ => None,
    };
    let key = key.or(match identity.id {
        Some(EventId::Text(id)) => Some(id),
        _ => id.as_deref(),
    });
    let tenant = tenant.unwrap_or(identity.tenant);
    let named = [("partitionkey", key), ("tenant", Some(tenant)), ("collection", identity.collection)];
    for (name, value) in named {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            text.extend([",\"", name, "\":"]);
            json::write_string(&mut text, value);
        }
    }
    Some(text)
}
