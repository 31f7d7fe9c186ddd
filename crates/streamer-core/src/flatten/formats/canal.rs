//! Canal's flat messages of MySQL (`flatMessage=true`): several rows in one, whose values are all text.
//!
//! `sqlType` marks numbers, by the constants of java.sql.Types, and `mysqlType` marks JSON and years. `old` has only the
//! changed columns: the row before the change is the row with these values put in. With binlog_row_image=MINIMAL, a row has only
//! its key and the changed columns, and `old` is empty: such an update is `partial`.

use super::changes::{Change, Changes, Row, TextMap, Wanted, by_name, is_moved, key_of, merged};
use super::text::{Expected, Json, Object, What, below, shown};
use crate::error::{EventCode, EventError};
use std::borrow::Cow;
use std::collections::HashSet;

pub(super) const WHAT: What = What("canal");
/// BIT, TINYINT, BIGINT, NUMERIC, DECIMAL, INTEGER, SMALLINT, FLOAT, REAL, DOUBLE.
const NUMBERS: [i128; 10] = [-7, -6, -5, 2, 3, 4, 5, 6, 7, 8];
const NOT_IN_ENVELOPE: [&str; 4] = ["data", "old", "sqlType", "mysqlType"];

/// The columns of a table.
struct Types<'t> {
    /// Each once, in the order of the record.
    names: Vec<Cow<'t, str>>,
    numbers: TextMap<Cow<'t, str>, i128>,
    json: HashSet<Cow<'t, str>>,
}

pub(super) fn read(record: &Object<'_>, changes: &mut Changes) -> Result<(), EventError> {
    let word = WHAT.text(record, "type", "")?;
    if record.get("isDdl").is_some_and(|value| value.first() == b't') {
        changes.ignore("a change of the schema");
        return Ok(());
    }
    let kind = match &*word {
        "INSERT" => "insert",
        "UPDATE" => "update",
        "DELETE" => "delete",
        other => {
            changes.ignore(format!("the operation {}, which changes no row", shown(other)));
            return Ok(());
        }
    };
    let collection = format!("{}.{}", WHAT.text(record, "database", "")?, WHAT.text(record, "table", "")?);
    let types = types_of(record)?;
    let is_missing = record.get("data").is_none_or(Json::is_null);
    if is_missing && record.get("sql").is_some_and(|sql| sql.first() == b'"') {
        // With binlog_format=STATEMENT or MIXED, a statement has no rows.
        changes.ignore("a statement, whose rows are not carried");
        return Ok(());
    }
    let rows = WHAT.changes(WHAT.needed(record, "data", Expected::Array, "")?, "/data", changes.wanted.most)?;
    let olds = WHAT.part(record, "old", Expected::Array, "")?;
    let mut olds: Vec<Json<'_>> = olds.into_iter().flat_map(Json::elements).take(rows.len() + 1).collect();
    if olds.len() != rows.len() {
        // Some versions leave out empty ones, so that the others are not in their places.
        olds.clear();
    }
    let ts = WHAT.part(record, "es", Expected::Integer, "")?.and_then(Json::integer);
    let key = record.get("pkNames").into_iter().flat_map(Json::elements).filter_map(Json::string).collect();
    let message = Message { record, collection, ts, key, types, wanted: changes.wanted };
    for (at, source) in rows.into_iter().enumerate() {
        let row = message.types.row(source, || format!("/data/{at}"))?;
        let old = olds.get(at).copied().filter(|old| !old.is_null());
        let key = || message.key_of(source, None);
        match kind {
            "delete" => changes.push(with_before(message.change(kind), &row), key)?,
            "insert" => changes.push(message.with_row(kind, &row), key)?,
            _ => match old {
                Some(old) => {
                    let changed = message.types.row(old, || format!("/old/{at}"))?;
                    message.update((source, &row), (old, &changed), changes)?;
                }
                // The row before the change is unknown.
                None => changes.push(partial(message.with_row(kind, &row)), key)?,
            },
        }
    }
    Ok(())
}

/// A message, as far as its rows share it.
struct Message<'r, 't> {
    record: &'r Object<'t>,
    collection: String,
    ts: Option<i128>,
    key: Vec<Cow<'t, str>>,
    types: Types<'t>,
    wanted: Wanted,
}

impl Message<'_, '_> {
    fn change(&self, kind: &str) -> Change {
        let mut change = Change::new(kind, &self.collection, self.wanted);
        change.ts(self.ts);
        change.envelope(self.record, &NOT_IN_ENVELOPE);
        change
    }

    /// The key of a row, or of the row with its *old* values. Its values are texts, which do not depend on their types.
    fn key_of(&self, row: Json<'_>, old: Option<Json<'_>>) -> Option<String> {
        let rows = [Some(Object::of(row)), old.map(Object::of)];
        let values: TextMap<&str, Json<'_>> =
            rows.iter().flatten().flat_map(|row| &row.members).map(|(name, value)| (&**name, *value)).collect();
        key_of(self.key.iter().map(|name| values.get(&**name).copied()))
    }

    fn with_row(&self, kind: &str, row: &Row<'_>) -> Change {
        let mut change = self.change(kind);
        change.row("data", row);
        self.lacking(&by_name(row)).for_each(|name| change.unknown("/data", name));
        change
    }

    /// The columns of the table that a row lacks.
    fn lacking<'m>(&'m self, row: &TextMap<&str, &str>) -> impl Iterator<Item = &'m str> {
        self.types.names.iter().map(|name| &**name).filter(|name| !row.contains_key(name))
    }

    /// An update with its *old* values. It may lack columns: a row image that is NOBLOB has no large value that was not
    /// changed. MySQL logs no update without a change: if *old* is empty, the row image is MINIMAL, and the old values of
    /// the changed columns are missing.
    fn update(
        &self,
        (source, row): (Json<'_>, &Row<'_>),
        (old_source, old): (Json<'_>, &Row<'_>),
        changes: &mut Changes,
    ) -> Result<(), EventError> {
        let own = || self.key_of(source, None);
        let key: HashSet<&str> = self.key.iter().map(|name| &**name).collect();
        let before = match old.is_empty() {
            true => row.iter().filter(|(name, _)| key.contains(&**name)).cloned().collect(),
            false => merged(row, old),
        };
        let (columns, changed) = (by_name(row), by_name(old));
        if is_moved(&self.key, &changed, &columns) {
            changes.push(with_before(self.change("delete"), &before), || self.key_of(source, Some(old_source)))?;
            return changes.push(partial(self.with_row("insert", row)), own);
        }
        let mut change = partial(with_before(self.with_row("update", row), &before));
        self.lacking(&columns).filter(|name| !changed.contains_key(name)).for_each(|name| change.unknown("/before", name));
        changes.push(change, own)
    }
}

fn with_before(mut change: Change, before: &Row<'_>) -> Change {
    change.row("before", before);
    change
}

/// A change that may lack columns.
fn partial(mut change: Change) -> Change {
    change.value("partial", "true");
    change
}

fn types_of<'t>(record: &Object<'t>) -> Result<Types<'t>, EventError> {
    let object = |name: &str| -> Result<Vec<(Cow<'t, str>, Json<'t>)>, EventError> {
        let Some(types) = WHAT.part(record, name, Expected::Object, "")? else { return Ok(Vec::new()) };
        Ok(WHAT.object(types, || format!("/{name}"))?.members)
    };
    let (types, columns) = (object("sqlType")?, object("mysqlType")?);
    let mut names: Vec<Cow<'t, str>> = types.iter().chain(&columns).map(|(name, _)| name.clone()).collect();
    names.sort_unstable();
    names.dedup();
    // Of several with one name the last counts.
    let types: TextMap<Cow<'t, str>, Json<'t>> = types.into_iter().collect();
    let columns: TextMap<Cow<'t, str>, Json<'t>> = columns.into_iter().collect();
    // The sqlType of a year is that of text.
    let is_year = |name: &str| columns.get(name).and_then(|kind| kind.string()).is_some_and(|kind| kind.starts_with("year"));
    let number = |name: &str, value: Json<'t>| value.integer().filter(|kind| NUMBERS.contains(kind) || is_year(name));
    let is_json = |value: Json<'t>| value.string().is_some_and(|kind| kind == "json");
    Ok(Types {
        names,
        numbers: types
            .into_iter()
            .filter_map(|(name, value)| {
                let kind = number(&name, value)?;
                Some((name, kind))
            })
            .collect(),
        json: columns.into_iter().filter(|(_, value)| is_json(*value)).map(|(name, _)| name).collect(),
    })
}

impl<'t> Types<'t> {
    fn row(&self, source: Json<'t>, place: impl Fn() -> String) -> Result<Row<'t>, EventError> {
        if source.first() != b'{' {
            let reason = format!("a row is an object, not {}", source.named());
            return Err(WHAT.error(EventCode::WrongType, place(), &reason));
        }
        let columns = WHAT.object(source, &place)?.members.into_iter();
        columns
            .map(|(name, value)| {
                let at = || below(&place(), &name);
                let value = match value.string() {
                    Some(text) if self.json.contains(&name) => WHAT.json(&text, at)?.to_owned().into(),
                    Some(text) if self.numbers.contains_key(&name) => match WHAT.number(&text, at) {
                        Ok(number) => number.to_owned().into(),
                        Err(error) => {
                            let reason = format!("{}; its sqlType is {}", error.reason, self.numbers[&name]);
                            return Err(EventError { reason: reason.into(), ..error });
                        }
                    },
                    _ => Cow::Borrowed(value.0),
                };
                Ok((name, value))
            })
            .collect()
    }
}
