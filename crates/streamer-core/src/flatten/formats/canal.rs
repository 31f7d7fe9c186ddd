//! Canal's flat messages of MySQL (`flatMessage=true`): several rows in one, whose values are all text.
//!
//! `sqlType` marks numbers, by the constants of java.sql.Types, and `mysqlType` marks JSON. `old` has only the changed
//! columns: the row before the change is the row with these values put in.

use super::changes::{Change, Changes, Row, by_name, is_moved, merged};
use super::text::{Expected, Json, Object, What, below};
use crate::error::{EventCode, EventError};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

const WHAT: What = What("canal");
/// BIT, TINYINT, BIGINT, NUMERIC, DECIMAL, INTEGER, SMALLINT, FLOAT, REAL, DOUBLE.
const NUMBERS: [i128; 10] = [-7, -6, -5, 2, 3, 4, 5, 6, 7, 8];
const LEFT: [&str; 4] = ["data", "old", "sqlType", "mysqlType"];

/// The columns of a table.
struct Types<'t> {
    /// Each once, in the order of the record.
    names: Vec<Cow<'t, str>>,
    numbers: HashSet<Cow<'t, str>>,
    json: HashSet<Cow<'t, str>>,
}

pub(super) fn read(record: &Object<'_>, changes: &mut Changes) -> Result<(), EventError> {
    let word = WHAT.text(record, "type", "")?;
    let kind = match &*word {
        "INSERT" => "insert",
        "UPDATE" => "update",
        "DELETE" => "delete",
        _ => {
            changes.ignores = true;
            return Ok(());
        }
    };
    if record.get("isDdl").is_some_and(|value| value.first() == b't') {
        changes.ignores = true;
        return Ok(());
    }
    let collection = format!("{}.{}", WHAT.text(record, "database", "")?, WHAT.text(record, "table", "")?);
    let types = types_of(record)?;
    let is_missing = record.get("data").is_none_or(Json::is_null);
    if is_missing && record.get("sql").is_some_and(|sql| sql.first() == b'"') {
        // With binlog_format=STATEMENT or MIXED, a statement has no rows.
        changes.ignores = true;
        return Ok(());
    }
    let rows = WHAT.needed(record, "data", Expected::Array, "")?;
    let mut olds = WHAT.part(record, "old", Expected::Array, "")?.into_iter().flat_map(Json::elements);
    let ts = WHAT.part(record, "es", Expected::Integer, "")?.and_then(Json::integer);
    let key: Vec<Cow<'_, str>> = record.get("pkNames").into_iter().flat_map(Json::elements).filter_map(Json::string).collect();
    for (at, row) in rows.elements().enumerate() {
        let old = olds.next().filter(|old| !old.is_null());
        let row = types.row(row, || format!("/data/{at}"))?;
        let change = |kind: &str| {
            let mut change = Change::new(kind, &collection);
            change.ts(ts);
            change.envelope(record, &LEFT);
            change
        };
        // With binlog_row_image=MINIMAL, a row has only its key and the changed columns.
        let columns = by_name(&row);
        let lacking = || types.names.iter().filter(|name| !columns.contains_key(&***name));
        let with_row = |kind: &str| {
            let mut change = change(kind);
            change.row("data", &row);
            lacking().for_each(|name| change.unknown("/data", name));
            change
        };
        let with_before = |mut change: Change, before: &Row<'_>| {
            change.row("before", before);
            change
        };
        match kind {
            "delete" => changes.push(with_before(change(kind), &row))?,
            "insert" => changes.push(with_row(kind))?,
            _ => {
                // Without `old`, the row before the change is unknown.
                let Some(old) = old else {
                    changes.push(with_row(kind))?;
                    continue;
                };
                let old = types.row(old, || format!("/old/{at}"))?;
                let before = merged(&row, &old);
                let changed = by_name(&old);
                if is_moved(&key, &changed, &columns) {
                    changes.push(with_before(change("delete"), &before))?;
                    changes.push(with_row("insert"))?;
                    continue;
                }
                let mut change = with_before(with_row(kind), &before);
                lacking().filter(|name| !changed.contains_key(&***name)).for_each(|name| change.unknown("/before", name));
                changes.push(change)?;
            }
        }
    }
    Ok(())
}

fn types_of<'t>(record: &Object<'t>) -> Result<Types<'t>, EventError> {
    let types = WHAT.part(record, "sqlType", Expected::Object, "")?.map(Object::of);
    let columns = WHAT.part(record, "mysqlType", Expected::Object, "")?.map(Object::of);
    let members = |of: &Option<Object<'t>>| of.as_ref().map_or_else(Vec::new, |of| of.members.clone());
    // Of several with one name the last counts.
    let types: HashMap<Cow<'t, str>, Json<'t>> = members(&types).into_iter().collect();
    let columns_of: HashMap<Cow<'t, str>, Json<'t>> = members(&columns).into_iter().collect();
    let named = |all: &HashMap<Cow<'t, str>, Json<'t>>, is: &dyn Fn(Json<'t>) -> bool| {
        all.iter().filter(|(_, value)| is(**value)).map(|(name, _)| name.clone()).collect()
    };
    let mut names: Vec<Cow<'t, str>> = types.keys().chain(columns_of.keys()).cloned().collect();
    names.sort_unstable();
    names.dedup();
    Ok(Types {
        names,
        numbers: named(&types, &|value| value.integer().is_some_and(|kind| NUMBERS.contains(&kind))),
        json: named(&columns_of, &|value| value.string().is_some_and(|kind| kind == "json")),
    })
}

impl<'t> Types<'t> {
    fn row(&self, given: Json<'t>, place: impl Fn() -> String) -> Result<Row<'t>, EventError> {
        if given.first() != b'{' {
            let reason = format!("a row is an object, not {}", given.named());
            return Err(WHAT.error(EventCode::WrongType, place(), &reason));
        }
        let columns = Object::of(given).members.into_iter();
        columns
            .map(|(name, value)| {
                let at = || below(&place(), &name);
                let value = match value.string() {
                    Some(text) if self.json.contains(&name) => WHAT.json(&text, at)?.to_owned().into(),
                    Some(text) if self.numbers.contains(&name) => WHAT.number(&text, at)?.to_owned().into(),
                    _ => Cow::Borrowed(value.0),
                };
                Ok((name, value))
            })
            .collect()
    }
}
