//! Debezium's records as change events: whole, or as rows that its transform ExtractNewRecordState left.
//!
//! ```text
//!   {"before": {"id": 7}, "after": {"id": 8, "note": "__debezium_unavailable_value"}, "source": {…}, "op": "u"}   key {"id": 8}
//!     ─► {"type":"delete","collection":"shop.orders","before":{"id":7}}
//!        {"type":"insert","collection":"shop.orders","data":{"id":8},"unknown":["/data/note"]}
//! ```
//!
//! An engine reads a whole record by its layout, without its key. These events say more, because a source has the key of
//! the record, and because an unchanged value may be in the old row.
//!
//! Cost: the record is walked once, and its columns are copied. A row with a schema, and a deleted row of a database
//! that may send only its key, is parsed.

use super::super::carried::{CELLS, WHOLE, is_key, may_be_filled_in, may_be_unset};
use super::super::records;
use super::super::timestamps;
use super::super::typed::{self, Columns, Defaults};
use super::super::unavailable::Unavailable;
use super::changes::{Change, Changes, Row, TextMap, by_name, is_moved, key_of};
use super::text::{Expected, Json, Object, What, below, shown};
use crate::error::{EventCode, EventError};
use crate::json::token::space;
use crate::json::{self, ParseOptions};
use crate::value::Value;
use std::borrow::Cow;
use std::collections::{BTreeSet, HashSet};

const RECORD: What = What("debezium");
const ROW: What = What("debezium_unwrapped");
const NOT_IN_ENVELOPE: [&str; 2] = ["before", "after"];
/// The member that marks a deleted row, under every prefix of the members that the transform adds.
const DELETED: &str = "__deleted";
const OPS: [(&str, Op); 7] = [
    ("c", Op::Change("insert")),
    ("d", Op::Change("delete")),
    // Cassandra's connector writes `i`.
    ("i", Op::Change("insert")),
    ("m", Op::Nothing("a message")),
    ("r", Op::Change("insert")),
    ("t", Op::Nothing("a truncate")),
    ("u", Op::Change("update")),
];
/// The members of a record about a transaction.
const OF_TRANSACTION: [&str; 7] = ["status", "id", "ts_ms", "ts_us", "ts_ns", "event_count", "data_collections"];
/// The names of a schema, database or keyspace, and of a table.
const SPACES: [&str; 4] = ["schema", "db", "keyspace", "keyspace_name"];
const TABLES: [&str; 3] = ["table", "collection", "table_name"];
const TOMBSTONE: &str = "a tombstone: the record before it reported the delete";

#[derive(Clone, Copy)]
enum Op {
    Change(&'static str),
    Nothing(&'static str),
}

/// Reads the records of one source.
#[derive(Debug)]
pub(super) struct Debezium {
    /// Whether the records are rows.
    is_unwrapped: bool,
    columns: Columns,
    unavailable: Unavailable,
}

/// What is known of the tables of records.
#[derive(Clone, Copy, Debug)]
pub(super) struct TableOptions<'o> {
    /// The collections whose deleted rows are whole, in order.
    pub whole_rows: &'o [Box<str>],
    /// The collection of rows that do not name their table; empty for none.
    pub table: Option<&'o str>,
    /// The prefix of the members that the transform adds to a row.
    pub prefix: &'o str,
}

impl TableOptions<'_> {
    fn is_whole(&self, collection: &str) -> bool {
        let has = |name: &str| self.whole_rows.binary_search_by(|each| (**each).cmp(name)).is_ok();
        !self.whole_rows.is_empty() && (has(collection) || has("*"))
    }
}

/// The parts of a record in either shape.
struct RecordParts<'t> {
    /// The type of the change; None if a row does not show it.
    kind: Option<&'static str>,
    /// Empty if a row does not show it.
    collection: String,
    ts: Option<i128>,
    data: Option<Known<'t>>,
    before: Option<Known<'t>>,
    /// The members of the record's key.
    key: Option<Object<'t>>,
}

/// The columns that a row of a record has, and the names of the others.
struct Known<'t> {
    row: Row<'t>,
    /// Those with a placeholder.
    missing: Vec<Cow<'t, str>>,
    /// Those that are null, if that may be a value that the connector does not have.
    unset: Vec<Cow<'t, str>>,
}

impl Debezium {
    pub fn new(is_unwrapped: bool) -> Debezium {
        Debezium { is_unwrapped, columns: Columns::default(), unavailable: Unavailable::of_debezium() }
    }

    pub fn what(&self) -> What {
        if self.is_unwrapped { ROW } else { RECORD }
    }

    /// Read a record with its own *key*.
    pub fn read(
        &mut self,
        record: Json<'_>,
        key: Option<&[u8]>,
        options: TableOptions<'_>,
        changes: &mut Changes,
    ) -> Result<(), EventError> {
        let what = self.what();
        let root = what.object(record, String::new)?;
        let is_enveloped = is_enveloped(&root);
        let payload = match is_enveloped {
            true => match what.part(&root, "payload", Expected::Object, "")? {
                Some(payload) => Some(Object::of(payload)),
                None => {
                    changes.ignore(TOMBSTONE);
                    return Ok(());
                }
            },
            false => None,
        };
        let schema = root.get("schema").filter(|schema| is_enveloped && !schema.is_null());
        self.columns.learn_schema(schema.map_or(&[], |Json(schema)| schema.as_bytes()));
        let body = payload.as_ref().unwrap_or(&root);
        let key = key.and_then(|key| std::str::from_utf8(key).ok()).and_then(key_columns);
        let change = match self.is_unwrapped {
            true => self.row(body, key, options, changes)?,
            false => self.record(body, key, options, changes)?,
        };
        let Some(change) = change else { return Ok(()) };
        write(change, body, self.is_unwrapped.then_some(options.prefix), changes)
    }

    fn record<'t>(
        &self,
        body: &Object<'t>,
        key: Option<Object<'t>>,
        options: TableOptions<'_>,
        changes: &mut Changes,
    ) -> Result<Option<RecordParts<'t>>, EventError> {
        if body.get("op").is_none() {
            if let Some(what) = no_change(body) {
                changes.ignore(what);
                return Ok(None);
            }
            let reason = "op is missing; a bare row, as ExtractNewRecordState writes it, has the format debezium_unwrapped";
            return Err(RECORD.error(EventCode::WrongType, "/op", reason));
        }
        let word = RECORD.text(body, "op", "")?;
        let Some(kind) = kind_of(op(&word, "/op", RECORD)?, changes) else { return Ok(None) };
        let source = Object::of(RECORD.needed(body, "source", Expected::Object, "")?);
        let connector = RECORD.part(&source, "connector", Expected::String, "/source")?.and_then(Json::string);
        let connector = connector.as_deref().unwrap_or_default();
        let (mut data, mut before) = (document(body, "after", connector)?, document(body, "before", connector)?);
        let mut side = "before";
        if kind == "delete" && before.is_none() {
            // Cassandra has the key of a deleted row in `after`.
            (side, before) = ("after", data.take());
        }
        let collection = collection(&source, "", "/source", RECORD)?.ok_or_else(|| {
            let reason = "table is missing: expected the name of a table or a collection";
            RECORD.error(EventCode::WrongType, "/source/table", reason)
        })?;
        let ts = match RECORD.part(&source, "ts_ms", Expected::Integer, "/source")? {
            Some(ts) => ts.integer(),
            None => first(body, &["ts_ms"], RECORD)?,
        };
        let is_whole = options.is_whole(&collection);
        let data = data.map(|data| self.typed(data, Some("after")));
        let before = before.map(|before| self.typed(before, Some(side)));
        let lacks = match (&before, kind) {
            (Some(before), "delete") if !is_whole && !WHOLE.contains(&connector) => {
                not_carried(before, key.as_ref(), &self.columns.defaults(Some(side), &self.unavailable), connector)
            }
            _ => HashSet::new(),
        };
        let captured = source.get("value_capture_type").and_then(Json::string);
        let may_be_unset = |side: &str| !is_whole && may_be_unset(Some(connector), captured.as_deref(), side, kind == "update");
        let data = data.map(|data| self.known(data, &HashSet::new(), may_be_unset("after")));
        let before = before.map(|before| self.known(before, &lacks, may_be_unset("before")));
        Ok(Some(RecordParts { kind: Some(kind), collection, ts: in_range(ts), data, before, key }))
    }

    fn row<'t>(
        &self,
        body: &Object<'t>,
        key: Option<Object<'t>>,
        options: TableOptions<'_>,
        changes: &mut Changes,
    ) -> Result<Option<RecordParts<'t>>, EventError> {
        let TableOptions { prefix, .. } = options;
        let op_at = format!("{prefix}op");
        let deleted = body.get(DELETED);
        if deleted.is_none() && body.get(&op_at).is_none() {
            if let Some(what) = no_change(body).or_else(|| unchanged_record(body)) {
                changes.ignore(what);
                return Ok(None);
            }
            if body.get("op").is_some() && body.get("source").is_some() {
                return Err(ROW.error(EventCode::WrongType, "/op", "a whole record, which is of the format debezium"));
            }
        }
        let is_deleted =
            deleted.is_some_and(|deleted| deleted.0 == "true" || deleted.string().is_some_and(|text| text == "true"));
        let word = match is_deleted {
            true => Some(Cow::Borrowed("d")),
            false => ROW.part(body, &op_at, Expected::String, "")?.and_then(Json::string),
        };
        let kind = match word {
            Some(word) => match kind_of(op(&word, &below("", &op_at), ROW)?, changes) {
                None => return Ok(None),
                kind => kind,
            },
            None => None,
        };
        let collection = collection(body, prefix, "", ROW)?.or_else(|| options.table.map(str::to_owned)).ok_or_else(|| {
            let name = if kind.is_none() { op_at.clone() } else { format!("{prefix}table") };
            let reason = format!("{name} is missing: the transform needs add.fields=op,table");
            ROW.error(EventCode::WrongType, below("", &name), &reason)
        })?;
        let times = ["source_ts_ms", "ts_ms"].map(|name| format!("{prefix}{name}"));
        let ts = in_range(first(body, &times.each_ref().map(String::as_str), ROW)?);
        let columns = body.members.iter().filter(|(name, _)| !is_added(name, prefix));
        let mut text = String::new();
        super::changes::write_members(&mut text, columns.map(|(name, Json(value))| (&**name, *value)));
        let row = self.typed(Cow::Owned(text), None);
        let (data, before) = if kind == Some("delete") {
            let lacks = match options.is_whole(&collection) {
                true => HashSet::new(),
                false => not_carried(&row, key.as_ref(), &self.columns.defaults(None, &self.unavailable), ""),
            };
            (None, Some(self.known(row, &lacks, false)))
        } else {
            (Some(self.known(row, &HashSet::new(), false)), None)
        };
        Ok(Some(RecordParts { kind, collection, ts, data, before, key }))
    }

    /// A row with its values as the schema types them: that of the member *name* of the payload, or all of it.
    fn typed<'t>(&self, row: Cow<'t, str>, name: Option<&str>) -> Cow<'t, str> {
        // A document in a text has no schema.
        if name.is_some() && matches!(row, Cow::Owned(_)) {
            return row;
        }
        let text = row.as_bytes();
        let mut pieces = Vec::new();
        let mut reader = typed::Reader { text, unavailable: &self.unavailable, pieces: &mut pieces };
        match name {
            Some(name) => self.columns.read(&mut reader, name, 0, text.len()),
            None => self.columns.read_all(&mut reader),
        }
        reader.scaled(0, 0, text.len());
        if pieces.is_empty() {
            return row;
        }
        pieces.sort_by_key(|(start, _, _)| *start);
        String::from_utf8(typed::put_in_all(text, &pieces)).map_or(row, Cow::Owned)
    }

    /// The columns that a row has.
    fn known<'t>(&self, row: Cow<'t, str>, lacks: &HashSet<String>, may_be_unset: bool) -> Known<'t> {
        let may_lack = self.unavailable.may_be_in(row.as_bytes());
        let mut known = Known { row: Vec::new(), missing: Vec::new(), unset: Vec::new() };
        for (name, value) in members(row) {
            if lacks.contains(&*name) {
                continue;
            }
            if may_be_unset && Json(&value).is_null() {
                known.unset.push(name);
            } else if may_lack && self.is_unavailable(&value) {
                known.missing.push(name);
            } else {
                known.row.push((name, value));
            }
        }
        known
    }

    /// Whether a value is a placeholder or contains one.
    fn is_unavailable(&self, value: &str) -> bool {
        let mut paths = Vec::new();
        if self.unavailable.may_be_in(value.as_bytes())
            && let Some(value) = parsed(value)
        {
            self.unavailable.collect(&Default::default(), &value, &mut paths);
        }
        !paths.is_empty()
    }
}

fn is_enveloped(root: &Object<'_>) -> bool {
    let is_either = root.members.iter().all(|(name, _)| name == "schema" || name == "payload");
    let (Some(schema), Some(_), true) = (root.get("schema"), root.get("payload"), is_either) else { return false };
    let fields = Object::of(schema);
    schema.is_null() || schema.first() == b'{' && (fields.members.is_empty() || fields.get("type").is_some())
}

/// The members of a record's key; None for a key that names no columns.
fn key_columns(key: &str) -> Option<Object<'_>> {
    let from = space(key.as_bytes(), 0);
    let end = records::whole(key.as_bytes(), from, 0, usize::MAX, &mut Vec::new()).ok()?;
    fn object(value: Json<'_>) -> Option<Json<'_>> {
        (value.first() == b'{').then_some(value)
    }
    let root = Object::of(object(Json(&key[from..end]))?);
    let columns = match is_enveloped(&root) {
        true => Object::of(object(root.get("payload")?)?),
        false => root,
    };
    Some(Object { members: unique(columns.members) }).filter(|columns| !columns.members.is_empty())
}

/// A name for a record that rightly has no operation.
fn no_change(body: &Object<'_>) -> Option<&'static str> {
    if !body.members.is_empty() && body.members.iter().all(|(name, _)| ["ts_ms", "ts_us", "ts_ns"].contains(&&**name)) {
        return Some("a heartbeat");
    }
    let status = body.get("status").and_then(Json::string);
    let is_of_transaction = || body.members.iter().all(|(name, _)| OF_TRANSACTION.contains(&&**name));
    if status.is_some_and(|status| status == "BEGIN" || status == "END") && body.get("id").is_some() && is_of_transaction() {
        return Some("the begin or the end of a transaction");
    }
    let has = |names: [&str; 2]| names.iter().any(|name| body.get(name).is_some());
    (has(["tableChanges", "ddl"]) && has(["source", "databaseName"])).then_some("a change of the schema")
}

/// A name for a whole record that the transform leaves as it is.
fn unchanged_record(body: &Object<'_>) -> Option<&'static str> {
    body.get("source")?;
    match op(&body.get("op")?.string()?, "", ROW) {
        Ok(Op::Nothing(what)) => Some(what),
        _ => None,
    }
}

fn op(word: &str, place: &str, what: What) -> Result<Op, EventError> {
    OPS.iter().find(|(known, _)| *known == word).map(|(_, op)| *op).ok_or_else(|| {
        let words = OPS.map(|(known, _)| known).join(", ");
        what.error(EventCode::WrongType, place, &format!("op is one of {words}, not {}", shown(word)))
    })
}

/// The type of a change; without one the record is ignored.
fn kind_of(op: Op, changes: &mut Changes) -> Option<&'static str> {
    match op {
        Op::Change(kind) => Some(kind),
        Op::Nothing(what) => {
            changes.ignore(what);
            None
        }
    }
}

fn collection(source: &Object<'_>, prefix: &str, at: &str, what: What) -> Result<Option<String>, EventError> {
    let name = |names: &[&str]| -> Result<Option<String>, EventError> {
        for name in names {
            let name = format!("{prefix}{name}");
            let text = what.part(source, &name, Expected::String, at)?.and_then(Json::string);
            if let Some(text) = text.filter(|text| !text.is_empty()) {
                return Ok(Some(text.into_owned()));
            }
        }
        Ok(None)
    };
    Ok(match (name(&SPACES)?, name(&TABLES)?) {
        (Some(space), Some(table)) => Some(format!("{space}.{table}")),
        (_, table) => table,
    })
}

/// The first of some members that is there.
fn first(body: &Object<'_>, names: &[&str], what: What) -> Result<Option<i128>, EventError> {
    for name in names {
        if let Some(value) = what.part(body, name, Expected::Integer, "")? {
            return Ok(value.integer());
        }
    }
    Ok(None)
}

/// A time, unless it is outside of the years 1 to 9999: Cassandra's connector may write microseconds.
fn in_range(ts: Option<i128>) -> Option<i128> {
    ts.filter(|ts| timestamps::in_range(ts * 1_000_000).is_ok())
}

/// The text of a row or, for MongoDB, of a document, which Debezium writes as Extended JSON in a string.
fn document<'t>(body: &Object<'t>, name: &str, connector: &str) -> Result<Option<Cow<'t, str>>, EventError> {
    let place = || format!("/{name}");
    let Some(value) = body.get(name).filter(|value| !value.is_null()) else { return Ok(None) };
    let row = match value.string() {
        None => Cow::Borrowed(value.0),
        Some(text) => {
            let text = RECORD.json(&text, place)?;
            let pieces = if connector == "mongodb" { typed::extended(text.as_bytes()) } else { Vec::new() };
            let text = typed::put_in_all(text.as_bytes(), &pieces);
            Cow::Owned(String::from_utf8_lossy(&text).into_owned())
        }
    };
    match Json(&row) {
        null if null.is_null() => Ok(None),
        row if row.first() != b'{' => {
            let reason = format!("{name} is an object, not {}", row.named());
            Err(RECORD.error(EventCode::WrongType, place(), &reason))
        }
        _ => Ok(Some(row)),
    }
}

/// The columns of a row, each once: of several with one name the last counts.
fn unique<'t, V>(members: Vec<(Cow<'t, str>, V)>) -> Vec<(Cow<'t, str>, V)> {
    let mut places: TextMap<&str, usize> = TextMap::with_capacity_and_hasher(members.len(), Default::default());
    // The last member of each name, in the order of the first ones.
    let mut last: Vec<usize> = Vec::with_capacity(members.len());
    for (at, (name, _)) in members.iter().enumerate() {
        let place = *places.entry(name).or_insert(last.len());
        if place == last.len() {
            last.push(at);
        } else {
            last[place] = at;
        }
    }
    if last.len() == members.len() {
        return members;
    }
    let mut members: Vec<Option<(Cow<'t, str>, V)>> = members.into_iter().map(Some).collect();
    last.into_iter().filter_map(|at| members[at].take()).collect()
}

fn members(row: Cow<'_, str>) -> Row<'_> {
    match row {
        Cow::Borrowed(row) => {
            unique(Object::of(Json(row)).members).into_iter().map(|(name, value)| (name, value.0.into())).collect()
        }
        Cow::Owned(row) => {
            let members = unique(Object::of(Json(&row)).members).into_iter();
            members.map(|(name, value)| (Cow::Owned(name.into_owned()), Cow::Owned(value.0.to_owned()))).collect()
        }
    }
}

fn parsed(text: &str) -> Option<Value> {
    json::parse::<Value>(text.as_bytes(), ParseOptions { max_depth: usize::MAX, max_bytes: usize::MAX }).ok()
}

/// The columns of a deleted row that the source may not have sent: PostgreSQL sends only the key, and Debezium fills in
/// the rest.
fn not_carried(row: &str, key: Option<&Object<'_>>, defaults: &Defaults<'_>, connector: &str) -> HashSet<String> {
    let row = unique(Object::of(Json(row)).members);
    if connector == "sqlserver" {
        // It logs all values except large ones, which are null.
        return row.iter().filter(|(_, value)| value.is_null()).map(|(name, _)| name.to_string()).collect();
    }
    let may_be_filled_in =
        |name: &str, value: Json<'_>| parsed(value.0).is_none_or(|value| may_be_filled_in(name, &value, defaults));
    let blank: HashSet<&str> =
        row.iter().filter(|(name, value)| may_be_filled_in(name, *value)).map(|(name, _)| &**name).collect();
    let names: Option<HashSet<&str>> = key.map(|key| key.members.iter().map(|(name, _)| &**name).collect());
    let is_in_key = |name: &str| names.as_ref().map_or_else(|| is_key(name), |names| names.contains(name));
    // If PostgreSQL sends only the key, all other columns are blank. So with one that is not, the row is whole.
    let is_other = row.iter().any(|(name, _)| !is_in_key(name) && !blank.contains(&**name));
    let is_proof = |names: &HashSet<&str>| !CELLS.contains(&connector) && names.is_disjoint(&blank);
    if is_other && names.as_ref().is_some_and(is_proof) {
        return HashSet::new();
    }
    // Or the identity is an index, or `message.key.columns` has a column that it lacks: so the key may be blank, too.
    let has_key = !is_other;
    blank.into_iter().filter(|name| !has_key || !is_in_key(name)).map(str::to_owned).collect()
}

/// Whether the transform added a member to a row.
fn is_added(name: &str, prefix: &str) -> bool {
    name.starts_with(prefix) || name == DELETED
}

/// Add the changes of a record. The members of a row that the transform added begin with *prefix*; a whole record has none.
fn write(record: RecordParts<'_>, envelope: &Object<'_>, prefix: Option<&str>, changes: &mut Changes) -> Result<(), EventError> {
    let RecordParts { kind, collection, ts, mut data, mut before, key } = record;
    if let (Some(data), Some(before)) = (&mut data, &before)
        && !data.missing.is_empty()
    {
        // The new row marks these values as unchanged, so take them from the old row.
        let old = by_name(&before.row);
        let (carried, missing) =
            std::mem::take(&mut data.missing).into_iter().partition::<Vec<_>, _>(|name| old.contains_key(&**name));
        data.missing = missing;
        data.row.extend(carried.into_iter().map(|name| {
            let value = Cow::Owned(old[&*name].to_owned());
            (name, value)
        }));
    }
    for known in [&mut data, &mut before].into_iter().flatten() {
        known.missing.append(&mut known.unset);
    }
    let wanted = changes.wanted;
    let change = |kind: Option<&str>| {
        let mut change = Change::untyped(wanted);
        if let Some(kind) = kind {
            change.string("type", kind);
        }
        match &*collection {
            // A layout with a table for such rows has it there.
            "" => change.string("unnamed", ""),
            named => change.string("collection", named),
        }
        change.ts(ts);
        if let Some(prefix) = prefix {
            let added = envelope.members.iter().filter(|(name, _)| is_added(name, prefix)).cloned().collect();
            change.envelope(&Object { members: added }, &[]);
        } else {
            change.envelope(envelope, &NOT_IN_ENVELOPE);
        }
        change
    };
    let with = |mut change: Change, name: &str, row: Option<&Known<'_>>| {
        if let Some(known) = row {
            change.row(name, &known.row);
        }
        change
    };
    let made = |kind: Option<&str>| {
        let mut change = with(change(kind), "data", data.as_ref());
        data.iter().flat_map(|known| &known.missing).for_each(|name| change.unknown("/data", name));
        change
    };
    let own = |row: Option<&Known<'_>>| match &key {
        Some(key) => key_of(key.members.iter().map(|(_, value)| Some(*value))),
        None => {
            let row = by_name(&row?.row);
            let value =
                ["id", "_id"].iter().find_map(|name| row.get(name).map(|value| Json(value)).filter(|value| !value.is_null()));
            key_of([Some(value?)].into_iter())
        }
    };
    if kind == Some("delete") {
        return changes.push(with(change(kind), "before", before.as_ref()), || own(before.as_ref()));
    }
    let Some(new) = &data else {
        let mut change = with(change(kind), "before", before.as_ref());
        change.unknown_document("/data");
        return changes.push(change, || own(None));
    };
    if kind.is_none() {
        let mut change = made(kind);
        change.unknown_document("/type");
        change.unknown_document("/before");
        return changes.push(change, || own(data.as_ref()));
    }
    if kind == Some("insert") {
        return changes.push(made(kind), || own(data.as_ref()));
    }
    let Some(old) = &before else { return changes.push(made(kind), || own(data.as_ref())) };
    let (old_values, new_values) = (by_name(&old.row), by_name(&new.row));
    let names: Vec<Cow<'_, str>> = key.iter().flat_map(|key| key.members.iter().map(|(name, _)| name.clone())).collect();
    if is_moved(&names, &old_values, &new_values) {
        let of = |row: &TextMap<&str, &str>| key_of(names.iter().map(|name| row.get(&**name).map(|value| Json(value))));
        changes.push(with(change(Some("delete")), "before", Some(old)), || of(&old_values))?;
        return changes.push(made(Some("insert")), || of(&new_values));
    }
    let mut change = with(made(kind), "before", Some(old));
    let untold: BTreeSet<&str> = new.missing.iter().chain(&old.missing).map(|name| &**name).collect();
    untold.into_iter().filter(|name| !old_values.contains_key(name)).for_each(|name| change.unknown("/before", name));
    changes.push(change, || own(data.as_ref()))
}
