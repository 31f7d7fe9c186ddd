//! Values that a record of a wire format does not carry, although it has no mark in their place (semantics.md section
//! 1, "Formats").
//!
//! ```text
//!   debezium   {"op": "d", "before": {"id": 1, "name": null}}               name is unknown: PostgreSQL sent only the key
//!   maxwell    {"type": "update", "data": {"id": 1, "a": 2}, "old": {…}}    other columns are unknown: the row image may be minimal
//!   dms        {"data": {"id": 1, "name": null}, …"operation": "delete"}    name is unknown
//!   supabase   {"columns": […"body"…], "record": {"id": 1}}                 body is unknown: it was too large
//! ```
//!
//! Contract: a value that the record may not carry is unknown, never null and never missing. A blank value is known
//! only if the record itself proves it.
//!
//! Cost: free for an insert with a document, and for Maxwell; a parse of the event for other deletes, and for records of
//! Supabase that list their columns.

use super::entries::{Entries, Entry};
use super::envelope::Resolved;
use super::records::{Members, document, end_of, places_of};
use super::trie::{DATA, PartPlace, PathTrie};
use super::typed::{self, Defaults};
use crate::error::EventError;
use crate::json::token::space;
use crate::json::{self, ParseOptions};
use crate::layout::{BeforeHolds, EventLayout, EventType, Format, Pointer};
use crate::value::{Kind, Number, Scalar, Value};
use memchr::memmem;
use std::borrow::Cow;
use std::collections::HashSet;

/// The missing parts of a record that have no pointer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NotCarried {
    /// The document after an insert or update.
    pub(super) data: bool,
    /// Every member that the document lacks.
    pub(super) rest_of_data: bool,
    /// Every member that the document before the change lacks.
    pub(super) rest_of_before: bool,
}

impl NotCarried {
    pub(super) fn any(self) -> bool {
        self.data || self.rest_of_data || self.rest_of_before
    }
}

/// Connectors of Debezium that write whole rows, so that a null in one is a null.
pub(super) const WHOLE: [&str; 5] = ["db2", "mariadb", "mongodb", "mysql", "oracle"];
/// Those that write null for a column that a change did not set, and an object for one that it did.
pub(super) const CELLS: [&str; 3] = ["cassandra", "scylla", "yugabytedb"];
/// All in whose inserts and updates a null may be a value that they do not have.
const MAY_BE_UNSET: [&str; 5] = ["cassandra", "scylla", "yugabytedb", "spanner", "sqlserver"];
/// The values that Debezium writes for a value that it does not have, in a column that may not be null.
const BLANKS: [&str; 15] = [
    "",
    "0",
    "AA==",
    "{}",
    "[]",
    "P0D",
    "PT0S",
    "1970-01-01",
    "1970-01-01Z",
    "00:00:00",
    "00:00:00Z",
    "00:00:00.000000Z",
    "1970-01-01T00:00:00Z",
    "1970-01-01T00:00:00.000000Z",
    "00000000-0000-0000-0000-000000000000",
];

/// Add the values that the record does not carry to *unknown*; return those that have no pointer.
pub(super) fn find(
    format: Format,
    trie: &PathTrie,
    entries: &Entries,
    text: &[u8],
    resolved: &Resolved,
    is_whole: bool,
    unknown: &mut Vec<Pointer>,
) -> Result<NotCarried, EventError> {
    let event = CarriedRecord { trie, entries, text, before: resolved.before, data: resolved.data };
    let lacks_data = || event.data().is_none() && !trie.places[DATA].is_empty();
    // The value of a member that `before` lacks is that of `data`, so a value that is unknown there is unknown in both.
    let is_completed = trie.layout.before_holds == BeforeHolds::Changed;
    let mut not_carried = NotCarried::default();
    match (format, resolved.event_type) {
        (Format::Debezium | Format::Maxwell, _) if is_whole => {}
        (_, Some(EventType::Insert | EventType::Update)) if format.may_be_partial() && !is_whole && event.is_partial() => {
            not_carried.data = lacks_data();
            not_carried.rest_of_data = event.data().is_some();
            not_carried.rest_of_before = event.before().is_some();
        }
        (Format::Debezium, Some(EventType::Delete)) => not_carried.rest_of_data = event.debezium_delete(unknown)?,
        (Format::Dms, Some(EventType::Delete)) => not_carried = event.dms_delete(is_whole, unknown)?,
        // The image of a row may be MINIMAL or NOBLOB, which a record does not show.
        (Format::Maxwell, Some(EventType::Update | EventType::Delete)) if event.data().is_some() => {
            not_carried.rest_of_data = true;
            not_carried.rest_of_before = is_completed;
        }
        (Format::Supabase, Some(_)) => not_carried.data = event.supabase(unknown)?,
        (Format::Debezium, Some(event_type)) => event.debezium_write(event_type, unknown)?,
        _ => {}
    }
    not_carried.data |= format.has_rows() && is_write(resolved.event_type) && lacks_data();
    Ok(not_carried)
}

/// Whether the layout declares that records of this table have whole rows. In `debezium` a table may also be named with
/// its schema, or its database if there are no schemas.
pub(super) fn has_whole_rows(
    layout: &EventLayout,
    text: &[u8],
    collection: Option<&str>,
    document: Option<&Pointer>,
) -> Result<bool, EventError> {
    let names = |name: &str| layout.whole_rows.binary_search_by(|each| (**each).cmp(name)).is_ok();
    if layout.whole_rows.is_empty() || document.is_none() {
        return Ok(false);
    }
    if collection.is_some_and(names) || names("*") {
        return Ok(true);
    }
    let (Some(Format::Debezium), Some(document)) = (layout.format, document) else { return Ok(false) };
    let options = ParseOptions { max_depth: usize::MAX, max_bytes: usize::MAX };
    let event = json::parse::<Value>(text, options)?;
    let Some(source) = root_of(&event, document).get("source") else { return Ok(false) };
    let of = |name: &str| source.get(name).and_then(Value::as_str);
    let table = ["table", "collection", "table_name"].into_iter().find_map(of);
    // A database is named only if there are no schemas.
    let space = ["schema", "db"].into_iter().find_map(of);
    Ok(table.zip(space).is_some_and(|(table, space)| names(&format!("{space}.{table}"))))
}

fn is_write(event_type: Option<EventType>) -> bool {
    matches!(event_type, Some(EventType::Insert | EventType::Update))
}

/// A record, as far as it was read.
struct CarriedRecord<'r> {
    trie: &'r PathTrie,
    entries: &'r Entries,
    text: &'r [u8],
    data: u16,
    before: u16,
}

impl<'r> CarriedRecord<'r> {
    fn data(&self) -> Option<(&'r Entry, &'r PartPlace)> {
        document(self.trie, self.entries, self.data).filter(|_| self.data != self.before)
    }

    fn before(&self) -> Option<(&'r Entry, &'r PartPlace)> {
        document(self.trie, self.entries, self.before)
    }

    fn parsed(&self, from: usize, to: usize) -> Result<Value, EventError> {
        let options = ParseOptions { max_depth: usize::MAX, max_bytes: usize::MAX };
        json::parse::<Value>(&self.text[from..to], options)
            .map_err(|error| EventError { offset: error.offset.map(|at| at + from), ..error })
    }

    fn whole(&self) -> Result<Value, EventError> {
        self.parsed(0, self.text.len())
    }

    /// The members of a document.
    fn row(&self, entry: &Entry) -> Result<Vec<(Box<str>, Value)>, EventError> {
        match &mut self.parsed(entry.start as usize, end_of(entry, self.text))? {
            Value::Map(members) => Ok(std::mem::take(members)),
            _ => Ok(Vec::new()),
        }
    }

    fn names(&self, entry: &Entry) -> HashSet<Box<str>> {
        let members = Members::of(self.text, entry).map_while(Result::ok);
        members.map(|member| String::from_utf8_lossy(&member.name).into()).collect()
    }

    /// PostgreSQL sends only the key of a deleted row, unless the table has REPLICA IDENTITY FULL. Debezium fills in
    /// the rest. Return whether every member that `after` lacks is unknown: there, Cassandra has the key.
    fn debezium_delete(&self, unknown: &mut Vec<Pointer>) -> Result<bool, EventError> {
        let side = if self.before().is_some() { "before" } else { "after" };
        let Some((entry, place)) = self.before().or_else(|| self.data()) else { return Ok(false) };
        let event = self.whole()?;
        let source = root_of(&event, &place.pointer).get("source");
        let connector = source.and_then(connector);
        if connector.is_some_and(|name| WHOLE.contains(&name)) {
            return Ok(false);
        }
        if connector == Some("sqlserver") {
            self.nulls(entry, &place.pointer, unknown)?;
            return Ok(side == "after");
        }
        let schema = event.get("schema").and_then(|schema| typed::column(schema, side));
        let defaults = schema.map_or_else(Defaults::default, |row| typed::defaults_of(row, &self.trie.unavailable));
        let row = self.row(entry)?;
        let may_be_filled_in = |(name, value): &&(Box<str>, Value)| may_be_filled_in(name, value, &defaults);
        // An index as replica identity: its columns are there, and those of the primary key are not.
        let is_other = row.iter().any(|column| !is_key(&column.0) && !may_be_filled_in(&column));
        let filled_in = row.iter().filter(may_be_filled_in).filter(|(name, _)| is_other || !is_key(name));
        unknown.extend(filled_in.map(|(name, _)| below(&place.pointer, name)));
        Ok(side == "after")
    }

    /// Whether the change says that its document may lack columns.
    fn is_partial(&self) -> bool {
        let members = Members::at(self.text, space(self.text, 0)).map_while(Result::ok);
        let partial = members.filter(|member| &*member.name == b"partial").last();
        partial.is_some_and(|member| self.text[member.value..member.to] == *b"true")
    }

    /// Some connectors write null for a column whose value they do not have.
    fn debezium_write(&self, event_type: EventType, unknown: &mut Vec<Pointer>) -> Result<(), EventError> {
        if !self.names_connector(&MAY_BE_UNSET) {
            return Ok(());
        }
        let event = self.whole()?;
        for (side, document) in [("after", self.data()), ("before", self.before())] {
            let Some((entry, place)) = document else { continue };
            let Some(source) = root_of(&event, &place.pointer).get("source") else { continue };
            let captured = source.get("value_capture_type").and_then(Value::as_str);
            if may_be_unset(connector(source), captured, side, event_type == EventType::Update) {
                self.nulls(entry, &place.pointer, unknown)?;
            }
        }
        Ok(())
    }

    /// Whether the source may have one of these connectors; without a parse of the event.
    fn names_connector(&self, names: &[&str]) -> bool {
        let connectors = self.trie.connectors.iter().filter_map(|node| self.entries.value(*node));
        connectors.filter(|entry| entry.kind == Kind::String).any(|entry| {
            let value = &self.text[entry.start as usize + 1..];
            entry.plain != 0 || names.iter().any(|name| value.starts_with(name.as_bytes()))
        })
    }

    /// Add the columns of a row that are null.
    fn nulls(&self, entry: &Entry, place: &Pointer, unknown: &mut Vec<Pointer>) -> Result<(), EventError> {
        let row = self.row(entry)?;
        let nulls = row.iter().filter(|(_, value)| value.kind() == Kind::Null);
        unknown.extend(nulls.map(|(name, _)| below(place, name)));
        Ok(())
    }

    /// AWS DMS writes the key of a deleted row, and null or no member for each other column; the row may be in
    /// `before-image`.
    fn dms_delete(&self, is_whole: bool, unknown: &mut Vec<Pointer>) -> Result<NotCarried, EventError> {
        let data = places_of(self.trie, self.entries, DATA).next();
        let written = data.map_or(Ok(Vec::new()), |(_, entry)| self.row(entry))?;
        let Some((entry, place)) = self.before() else {
            if is_whole && data.is_some() {
                return Ok(NotCarried::default());
            }
            if let Some((place, _)) = data {
                let nulls = written.iter().filter(|(_, value)| value.kind() == Kind::Null);
                unknown.extend(nulls.map(|(name, _)| below(&place.pointer, name)));
            }
            return Ok(NotCarried { rest_of_data: data.is_some(), ..NotCarried::default() });
        };
        if let Some((place, _)) = data {
            unknown.push(place.pointer.clone());
        }
        let is_written = |name: &str| written.iter().any(|(column, value)| **column == *name && value.kind() != Kind::Null);
        let image = self.row(entry)?;
        // An image that has more than the key is of the whole row.
        let is_whole = is_whole || image.iter().any(|(name, value)| value.kind() != Kind::Null && !is_written(name));
        if !is_whole {
            self.nulls(entry, &place.pointer, unknown)?;
        }
        Ok(NotCarried::default())
    }

    /// Supabase's Realtime lists the columns of a table, and leaves out values that are too large or that the user may
    /// not read.
    fn supabase(&self, unknown: &mut Vec<Pointer>) -> Result<bool, EventError> {
        let has = |name: &[u8]| memmem::find(self.text, name).is_some();
        if !has(b"columns") && !has(b"errors") && !self.trie.unavailable.may_spell_names_in(self.text) {
            return Ok(false);
        }
        let event = self.whole()?;
        let columns: Vec<&str> = match event.get("columns") {
            Some(Value::List(columns)) => columns.iter().filter_map(|column| column.get("name")?.as_str()).collect(),
            _ => Vec::new(),
        };
        let failed = matches!(event.get("errors"), Some(Value::List(errors)) if !errors.is_empty());
        for document in [self.data(), self.before()].into_iter().flatten() {
            let (entry, place) = document;
            let names = self.names(entry);
            if failed && columns.is_empty() && names.is_empty() {
                unknown.push(place.pointer.clone());
            }
            let lacking = columns.iter().filter(|name| !names.contains(**name));
            unknown.extend(lacking.map(|name| below(&place.pointer, name)));
        }
        Ok(false)
    }
}

fn below(place: &Pointer, name: &str) -> Pointer {
    [&place[..], &[Box::from(name)]].concat().into()
}

/// Members that are a key in every record, because the record itself does not list its key columns.
pub(super) fn is_key(name: &str) -> bool {
    matches!(name, "id" | "_id")
}

/// The record around a document, inside or outside of Kafka Connect's schema and payload.
fn root_of<'v>(event: &'v Value, document: &Pointer) -> &'v Value {
    match &document[..] {
        [payload, _] => event.get(payload).unwrap_or(event),
        _ => event,
    }
}

fn connector(source: &Value) -> Option<&str> {
    source.get("connector")?.as_str()
}

/// Whether a null in a row of an insert or update may be a value that the connector does not have; *captured* is the
/// `value_capture_type` of its source.
pub(super) fn may_be_unset(connector: Option<&str>, captured: Option<&str>, side: &str, is_update: bool) -> bool {
    match connector {
        // SQL Server logs no large value from before an update.
        Some("sqlserver") => is_update && side == "before",
        // A change stream has the columns that were changed, unless it captures whole rows.
        Some("spanner") => is_update && !(side == "after" && captured.is_some_and(|captured| captured.starts_with("NEW_ROW"))),
        name => name.is_some_and(|name| CELLS.contains(&name)),
    }
}

/// Whether Debezium may have written a value of a deleted row in place of one that it does not have.
pub(super) fn may_be_filled_in(name: &str, value: &Value, defaults: &Defaults<'_>) -> bool {
    let is = |default: &Cow<'_, Value>| default.equals(value) == Some(true);
    is_blank(value) || defaults.get(name).is_some_and(|defaults| defaults.iter().any(is))
}

/// Whether Debezium writes this value for one that it does not have.
fn is_blank(value: &Value) -> bool {
    let mut open = vec![value];
    while let Some(value) = open.pop() {
        let is_blank = match value {
            Value::Scalar(Scalar::Null | Scalar::Bool(false)) => true,
            Value::Scalar(Scalar::String(text)) => BLANKS.contains(&&**text),
            Value::Scalar(Scalar::Number(number)) => *number == Number::from_i64(0),
            Value::List(elements) => elements.is_empty(),
            Value::Map(members) => {
                open.extend(members.iter().map(|(_, member)| member));
                true
            }
            Value::Scalar(Scalar::Bool(true)) | Value::BeyondFloat(_) => false,
        };
        if !is_blank {
            return false;
        }
    }
    true
}
