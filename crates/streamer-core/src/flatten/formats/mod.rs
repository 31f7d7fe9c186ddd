//! Records that no layout can describe, as the change events in them (semantics.md section 1, "Records").
//!
//! ```text
//!   {"type": "DELETE", "database": "shop", "table": "orders", "data": [{"id": "1"}, …], "sqlType": {"id": -5}, …}    Canal
//!     ─► {"type":"delete","collection":"shop.orders","before":{"id":1},"envelope":{…}}   and one for each other row
//! ```
//!
//! A change event has the layout `change`, with `before` as far as the record has it, and the rest of the record in
//! `envelope`. Contract: a value that the record does not carry is unknown. The decoders of `streamer.cdc` state the same
//! in Python.
//!
//! Cost: the record is walked once, and a change is copied and then read as any other event. The changes of a record are
//! bounded together ([`MOST`]), because each has a copy of the envelope.

mod canal;
mod changes;
mod cloudevents;
mod debezium;
mod dynamodb;
mod mongodb;
mod pg_values;
mod pgoutput;
mod reader;
mod text;
mod wal2json;

use super::{envelope, records};
use crate::error::{EventCode, EventError, Ignored, Unread};
use crate::json;
use crate::json::token::space;
use crate::layout::{EventLayout, Format};
use crate::limits::Limits;
use changes::{Changes, Wanted};
use debezium::{Debezium, TableOptions};
pub use reader::{Read, RecordReader, no_change};
use std::cell::RefCell;
use text::{Json, Object, What};

/// How many times longer than the longest event the changes of one record may be together.
const MOST: usize = 8;
/// The most changes of a record.
const MOST_CHANGES: usize = 10_000;

thread_local! {
    /// Keeps the schema of the previous record, which the next one mostly has, too. Boxed: a process has only some hundred
    /// bytes for the thread-local variables of all modules that it loads.
    static ROWS: RefCell<Box<Debezium>> = RefCell::new(Box::new(Debezium::new(true)));
}

/// The change events of a record, in their order; one at least.
///
/// # Errors
///
/// The record is not one of this format, or it has no change and is ignored.
pub(crate) fn changes(layout: &EventLayout, record: &[u8], limits: &Limits) -> Result<Vec<String>, Unread> {
    if layout.format == Some(Format::Pgoutput) {
        return in_array(record);
    }
    json::check_length(record.len(), limits.max_event_bytes)?;
    if let Some(reason) = envelope::nothing(record) {
        return Err(Unread::Ignored(reason));
    }
    let most_bytes = limits.max_event_bytes.saturating_mul(MOST);
    let mut changes = Changes::new(Wanted { envelope: true, keys: false, most: MOST_CHANGES, most_bytes });
    let object = |what| object(what, record, limits.max_depth);
    match layout.format {
        Some(Format::Canal) => canal::read(&object(canal::WHAT)?, &mut changes)?,
        Some(Format::DynamoDb) => dynamodb::read(&object(dynamodb::WHAT)?, &mut changes)?,
        Some(Format::MongoDb) => mongodb::read(&object(mongodb::WHAT)?, &mut changes)?,
        Some(Format::Wal2json) => wal2json::read(&object(wal2json::WHAT)?, None, &mut changes)?,
        Some(Format::DebeziumUnwrapped) => {
            let record = root(record, limits.max_depth)?;
            let options = TableOptions { whole_rows: &layout.whole_rows, table: Some(""), prefix: &layout.added_prefix };
            ROWS.with_borrow_mut(|rows| rows.read(record, None, options, &mut changes))?;
        }
        _ => unreachable!("the records of other formats are events"),
    }
    match changes.texts {
        texts if !texts.is_empty() => Ok(texts),
        _ if changes.ignored.is_some() => Err(Unread::Ignored(Ignored::Type)),
        _ => Err(Unread::Ignored(Ignored::NoChange)),
    }
}

/// The changes in the array that [`RecordReader::record`] made of a message. A message needs those before it, which an engine,
/// whose threads read events in any order, does not keep.
fn in_array(record: &[u8]) -> Result<Vec<String>, Unread> {
    if let Some(reason) = envelope::nothing(record) {
        return Err(Unread::Ignored(reason));
    }
    if record.first() != Some(&b'[') {
        let reason = "pgoutput: a message needs those before it: expected the array that a reader made of it";
        return Err(Unread::Bad(EventError::at(EventCode::WrongType, 0, reason)));
    }
    // A change that is too deep is refused by itself.
    let array = value(record, usize::MAX)?;
    match array.elements().map(|change| change.0.to_owned()).collect::<Vec<_>>() {
        none if none.is_empty() => Err(Unread::Ignored(Ignored::Type)),
        changes => Ok(changes),
    }
}

/// The limits for a change of a record that is within *limits*: its envelope is one level deeper.
pub(crate) fn limits_of_changes(limits: &Limits) -> Limits {
    Limits {
        max_depth: limits.max_depth.saturating_add(1),
        max_event_bytes: limits.max_event_bytes.saturating_mul(MOST),
        ..limits.clone()
    }
}

/// The error of a change, of which *at* come before it, as that of its record, in which the change's offsets mean nothing.
#[cold]
pub(crate) fn of_change(unread: Unread, at: usize) -> Unread {
    match unread {
        Unread::Bad(error) => {
            let reason = format!("change {} of the record: {}", at + 1, error.reason).into();
            Unread::Bad(EventError { offset: None, reason, ..error })
        }
        unread => unread,
    }
}

/// A record that is JSON to the letter, and an object.
fn object(what: What, record: &[u8], max_depth: usize) -> Result<Object<'_>, EventError> {
    what.object(root(record, max_depth)?, String::new)
}

fn root(record: &[u8], max_depth: usize) -> Result<Json<'_>, EventError> {
    let root = value(record, max_depth)?;
    if root.first() != b'{' {
        return Err(envelope::not_an_object(root.first(), space(record, 0)));
    }
    Ok(root)
}

/// A record that is JSON to the letter.
fn value(record: &[u8], max_depth: usize) -> Result<Json<'_>, EventError> {
    let from = space(record, 0);
    let read = records::whole(record, from, 0, max_depth, &mut Vec::new());
    let (text, end) = json::utf8_first(record, read)?;
    Ok(Json(&text[from..end]))
}
