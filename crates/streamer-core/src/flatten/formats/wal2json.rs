//! Messages of PostgreSQL's plugin wal2json, format version 2: one for each change, with lists of columns.
//!
//! An update leaves out, without a mark, large values that did not change (TOAST). One record does not show which columns
//! a table has, so an update is `partial`: every column that it lacks is unknown. With REPLICA IDENTITY FULL, the old row
//! has the missing columns.

use super::super::timestamps;
use super::changes::{Change, Changes, Row, TextMap, by_name, is_moved, key_of, merged};
use super::text::{Expected, Json, Object, What, is_number, shown};
use crate::error::{EventCode, EventError};
use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap, HashSet};

pub(super) const WHAT: What = What("wal2json");
const NOT_IN_ENVELOPE: [&str; 2] = ["columns", "identity"];
const NO_CHANGES: [(&str, &str); 4] =
    [("B", "the begin of a transaction"), ("C", "the commit of a transaction"), ("T", "a truncate"), ("M", "a message")];
const NUMBERS: [&str; 13] = [
    "smallint",
    "integer",
    "bigint",
    "numeric",
    "decimal",
    "real",
    "double precision",
    "oid",
    "int2",
    "int4",
    "int8",
    "float4",
    "float8",
];

/// The columns of tables, by the table, as far as the messages before showed them.
#[derive(Debug, Default)]
pub(super) struct Tables(pub HashMap<String, BTreeSet<String>>);

/// Read a message. With the *tables* of the messages before it, the columns that an update lacks have names.
pub(super) fn read(record: &Object<'_>, mut tables: Option<&mut Tables>, changes: &mut Changes) -> Result<(), EventError> {
    let action = WHAT.text(record, "action", "")?;
    if let Some((_, what)) = NO_CHANGES.iter().find(|(word, _)| *word == action) {
        changes.ignore(*what);
        return Ok(());
    }
    if !["I", "U", "D"].contains(&&*action) {
        let reason = format!("action is one of I, U, D, B, C, T, M, not {}", shown(&action));
        return Err(WHAT.error(EventCode::WrongType, "/action", &reason));
    }
    let table = format!("{}.{}", WHAT.text(record, "schema", "")?, WHAT.text(record, "table", "")?);
    let ts = match WHAT.part(record, "timestamp", Expected::String, "")?.and_then(Json::string) {
        Some(text) => Some(milliseconds(&text)?),
        None => None,
    };
    let identity = row_of(record, "identity")?;
    let row = row_of(record, "columns")?;
    let wanted = changes.wanted;
    let change = |kind: &str| {
        let mut change = Change::new(kind, &table, wanted);
        change.ts(ts);
        change.envelope(record, &NOT_IN_ENVELOPE);
        change
    };
    let with = |mut change: Change, document: &str, row: &Row<'_>| {
        change.row(document, row);
        change
    };
    // Without a replica identity, the row before is unknown.
    let with_before = |change: Change| if identity.is_empty() { change } else { with(change, "before", &identity) };
    let (old, new) = (by_name(&identity), by_name(&row));
    let pk = || names(record.get("pk"));
    // The identity may be the whole row, so it does not identify the key.
    let own = || key_of(pk().ok()?.iter().map(|name| new.get(&**name).or_else(|| old.get(&**name)).map(|value| Json(value))));
    match &*action {
        "D" => {
            pk()?;
            return changes.push(with_before(change("delete")), own);
        }
        "I" => {
            pk()?;
            if let Some(Tables(tables)) = tables {
                tables.insert(table.clone(), new.keys().map(|name| (*name).to_owned()).collect());
            }
            return changes.push(with(change("insert"), "data", &row), own);
        }
        _ => {}
    }
    // Only REPLICA IDENTITY FULL has all columns of the row and more.
    let is_whole = !new.is_empty() && old.len() > new.len() && new.keys().all(|name| old.contains_key(name));
    let key = match pk()? {
        // Without `pk`, an identity that is a part of the row is the key; the replica identity FULL has all columns.
        none if none.is_empty() && old.len() < new.len() && old.keys().all(|name| new.contains_key(name)) => {
            identity.iter().map(|(name, _)| name.clone()).collect()
        }
        key => key,
    };
    let mut updated = |kind: &str, old: &Row<'_>| {
        let data = merged(old, &row);
        let mut change = with(change(kind), "data", &data);
        match tables.as_mut().and_then(|Tables(tables)| tables.get_mut(&table)) {
            Some(columns) => {
                columns.extend(data.iter().map(|(name, _)| name.clone().into_owned()));
                let names = by_name(&data);
                columns.iter().filter(|name| !names.contains_key(&***name)).for_each(|name| change.unknown("/data", name));
            }
            None if !is_whole => change.value("partial", "true"),
            None => {}
        }
        change
    };
    if is_moved(&key, &old, &new) {
        let of = |row: &TextMap<&str, &str>| key_of(pk().ok()?.iter().map(|name| row.get(&**name).map(|value| Json(value))));
        changes.push(with_before(change("delete")), || of(&old))?;
        let key: HashSet<Cow<'_, str>> = key.into_iter().collect();
        let rest = identity.iter().filter(|(name, _)| !key.contains(name)).cloned().collect();
        return changes.push(updated("insert", &rest), || of(&new));
    }
    changes.push(with_before(updated("update", &identity)), own)
}

/// The columns in a list of a record.
fn row_of<'t>(record: &Object<'t>, name: &str) -> Result<Row<'t>, EventError> {
    let columns = WHAT.columns(WHAT.part(record, name, Expected::Array, "")?, &format!("/{name}"))?;
    columns
        .into_iter()
        .enumerate()
        .map(|(at, column)| {
            let place = || format!("/{name}/{at}");
            if column.first() != b'{' {
                let reason = format!("a column is an object, not {}", column.named());
                return Err(WHAT.error(EventCode::WrongType, place(), &reason));
            }
            let column = WHAT.object(column, place)?;
            let value = match column.get("value") {
                None => Cow::Borrowed("null"),
                Some(value) => match value.string() {
                    None => Cow::Borrowed(value.0),
                    Some(text) => typed(&text, value, &column, || format!("{}/value", place()))?,
                },
            };
            let name = match column.get("name").and_then(Json::string) {
                Some(name) => name,
                None => WHAT.text(&column, "name", &place())?,
            };
            Ok((name, value))
        })
        .collect()
}

/// The value of a text: the JSON in it for a column of JSON, a number for a numeric one
/// (`numeric-data-types-as-string`). NaN and the like have no number in JSON and stay text.
fn typed<'t>(
    text: &str,
    value: Json<'t>,
    column: &Object<'t>,
    place: impl FnOnce() -> String,
) -> Result<Cow<'t, str>, EventError> {
    let kind = column.get("type").and_then(Json::string).unwrap_or_default();
    if kind == "json" || kind == "jsonb" {
        return WHAT.json(text, place).map(|json| Cow::Owned(json.to_owned()));
    }
    // The type may be numeric(10,2).
    let is_numeric = NUMBERS.contains(&kind.split('(').next().unwrap_or_default().trim_matches(' '));
    Ok(if is_numeric && is_number(text) { Cow::Owned(text.to_owned()) } else { Cow::Borrowed(value.0) })
}

/// The names in a list of columns.
fn names<'t>(columns: Option<Json<'t>>) -> Result<Vec<Cow<'t, str>>, EventError> {
    let name = |column: Json<'t>| Object::of(column).get("name")?.string();
    Ok(WHAT.columns(columns, "/pk")?.into_iter().filter_map(name).collect())
}

/// The time in a text of PostgreSQL, such as `2026-11-22 10:15:30.123456+00`.
fn milliseconds(text: &str) -> Result<i128, EventError> {
    let wrong = || {
        WHAT.error(
            EventCode::BadTimestamp,
            "/timestamp",
            &format!("timestamp is a time as 2026-11-22 10:15:30+00, not {}", shown(text)),
        )
    };
    let zone = text.get(19..).and_then(|rest| rest.find(['+', '-', 'Z']).map(|at| at + 19));
    let written = match zone {
        None => format!("{text}Z"),
        // A zone of whole hours has no minutes.
        Some(at) if text.len() == at + 3 => format!("{text}:00"),
        Some(_) => text.to_owned(),
    };
    let ns = timestamps::rfc3339(&written.replacen(' ', "T", 1)).map_err(|_| wrong())?;
    Ok(ns.div_euclid(1_000_000))
}
