//! Reads the records of a source as change events, each with its key.
//!
//! ```text
//!  record, key ─ RecordReader ─►  {"type":"update","collection":"shop.orders","data":{…}}   "7"
//! ```
//!
//! An engine reads records, too, each by itself. A source has more: the key of a record, and the order of its records.
//! The decoders of `streamer.cdc` state the same in Python.

use super::changes::{Changes, Wanted};
use super::debezium::{Debezium, TableOptions};
use super::text::{Json, What};
use super::wal2json::Tables;
use super::{MOST, canal, cloudevents, dynamodb, mongodb, pgoutput, wal2json};
use crate::error::{EventCode, EventError};
use crate::flatten::{envelope, records};
use crate::json;
use crate::json::token::space;
use crate::layout::ADDED;
use crate::limits::Limits;

/// A record's content.
#[derive(Debug, PartialEq, Eq)]
pub enum Read {
    /// Events of the layout `cdc.LAYOUT` as JSON, each with its key if keys are known; none of an empty batch.
    Events(Vec<(String, Option<String>)>),
    /// No change, but what this says.
    Nothing(String),
    /// Empty, or null: a tombstone.
    Tombstone,
}

/// Reads the records of one source, in their order.
#[derive(Debug)]
pub struct RecordReader {
    format: Of,
    wanted: Wanted,
    whole_rows: Vec<Box<str>>,
    table: Option<Box<str>>,
    added_prefix: Box<str>,
}

/// Deeper than any event may be, so that one event that is too deep is refused by itself, not with the others of its record.
const DEEPEST: usize = 1_000;

#[derive(Debug)]
enum Of {
    Canal,
    CloudEvents,
    Debezium(Box<Debezium>),
    DynamoDb,
    MongoDb,
    Pgoutput(pgoutput::Stream),
    Wal2json(Tables),
}

impl RecordReader {
    /// A reader of records of a format; None for an unknown one.
    ///
    /// *most* is the most events of a record.
    pub fn new(format: &str, envelope: bool, most: usize) -> Option<RecordReader> {
        let format = match format {
            "canal" => Of::Canal,
            "cloudevents" => Of::CloudEvents,
            "debezium" => Of::Debezium(Box::new(Debezium::new(false))),
            "debezium_unwrapped" => Of::Debezium(Box::new(Debezium::new(true))),
            "dynamodb" => Of::DynamoDb,
            "mongodb" => Of::MongoDb,
            "pgoutput" => Of::Pgoutput(pgoutput::Stream::default()),
            "wal2json" => Of::Wal2json(Tables::default()),
            _ => return None,
        };
        let wanted = Wanted { envelope, keys: true, most, most_bytes: Limits::default().max_event_bytes * MOST };
        Some(RecordReader { format, wanted, whole_rows: Vec::new(), table: None, added_prefix: ADDED.into() })
    }

    /// Name the collections whose deleted rows are whole.
    pub fn know_whole_rows(&mut self, mut tables: Vec<Box<str>>) {
        tables.sort_unstable();
        self.whole_rows = tables;
    }

    /// Name the collection of rows of Debezium that do not name their table, and the prefix of the members that its
    /// transform adds to rows.
    pub fn know_added(&mut self, table: Option<Box<str>>, prefix: Box<str>) {
        (self.table, self.added_prefix) = (table, prefix);
    }

    /// Name the columns of a table of wal2json.
    pub fn know_columns(&mut self, table: String, columns: impl IntoIterator<Item = String>) {
        if let Of::Wal2json(Tables(tables)) = &mut self.format {
            tables.insert(table, columns.into_iter().collect());
        }
    }

    /// Read a record, with its own *key* if it has one.
    ///
    /// *table* is the collection of a row that does not name its table, unless the reader has one.
    ///
    /// # Errors
    ///
    /// The record is not one of this format.
    pub fn read(&mut self, record: &[u8], key: Option<&[u8]>, table: Option<&str>) -> Result<Read, EventError> {
        if envelope::nothing(record).is_some() {
            return Ok(Read::Tombstone);
        }
        let most_bytes = self.wanted.most_bytes.max(record.len().saturating_mul(MOST));
        let mut changes = Changes::new(Wanted { most_bytes, ..self.wanted });
        self.find(record, key, table, &mut changes)?;
        Ok(match changes.ignored {
            Some(what) => Read::Nothing(what),
            None => Read::Events(changes.texts.into_iter().zip(changes.keys).collect()),
        })
    }

    /// Read a message of a stream as the record that an engine of its format reads: an array of its changes. A tombstone is
    /// itself.
    ///
    /// # Errors
    ///
    /// The message is not one of the format, needs one that was not read, or is not within the *limits* of an engine.
    pub fn record(&mut self, message: &[u8], limits: &Limits) -> Result<String, EventError> {
        if envelope::nothing(message).is_some() {
            return Ok(String::from_utf8_lossy(message).into_owned());
        }
        json::check_length(message.len(), limits.max_event_bytes)?;
        let most_bytes = limits.max_event_bytes.saturating_mul(MOST);
        let mut changes = Changes::new(Wanted { keys: false, most_bytes, ..self.wanted });
        self.find(message, None, None, &mut changes)?;
        Ok(format!("[{}]", changes.texts.join(",")))
    }

    /// Find the changes of a record.
    fn find(&mut self, record: &[u8], key: Option<&[u8]>, table: Option<&str>, changes: &mut Changes) -> Result<(), EventError> {
        if let Of::Pgoutput(stream) = &mut self.format {
            let message = pgoutput::bytes_of(record)?;
            return stream.read(&message, changes).map_err(|error| pgoutput::in_record(record, error));
        }
        let what = self.what();
        // The error names the depth that an event may have.
        let record = value(what, record, DEEPEST).or_else(|_| value(what, record, Limits::default().max_depth))?;
        if record.first() != b'{' && !matches!(self.format, Of::CloudEvents) {
            let reason = format!("a message is a JSON object, not {}", record.named());
            return Err(what.error(EventCode::NotAnObject, "", &reason));
        }
        let object = || what.object(record, String::new);
        match &mut self.format {
            Of::Canal => canal::read(&object()?, changes),
            Of::CloudEvents => cloudevents::read(record, changes),
            Of::Debezium(debezium) => {
                let table = self.table.as_deref().or(table);
                let options = TableOptions { whole_rows: &self.whole_rows, table, prefix: &self.added_prefix };
                debezium.read(record, key, options, changes)
            }
            Of::DynamoDb => dynamodb::read(&object()?, changes),
            Of::MongoDb => mongodb::read(&object()?, changes),
            Of::Pgoutput(_) => unreachable!("its messages are not JSON"),
            Of::Wal2json(tables) => wal2json::read(&object()?, Some(tables), changes),
        }
    }

    fn what(&self) -> What {
        match &self.format {
            Of::Canal => canal::WHAT,
            Of::CloudEvents => cloudevents::WHAT,
            Of::Debezium(debezium) => debezium.what(),
            Of::DynamoDb => dynamodb::WHAT,
            Of::MongoDb => mongodb::WHAT,
            Of::Pgoutput(_) => pgoutput::WHAT,
            Of::Wal2json(_) => wal2json::WHAT,
        }
    }
}

/// The event that stands for a record that is no change.
pub fn no_change(what: &str) -> String {
    let mut event = String::from(r#"{"type":"ignore","ignored":"#);
    json::write_string(&mut event, what);
    event.push('}');
    event
}

/// A record that is JSON to the letter.
fn value(what: What, record: &[u8], max_depth: usize) -> Result<Json<'_>, EventError> {
    json::check_length(record.len(), usize::MAX)?;
    let from = space(record, 0);
    let read = records::whole(record, from, 0, max_depth, &mut Vec::new());
    let (text, end) = json::utf8_first(record, read).map_err(|fault| {
        let error = EventError::from(fault);
        EventError { reason: format!("{}: {}", what.0, error.reason).into(), ..error }
    })?;
    Ok(Json(&text[from..end]))
}
