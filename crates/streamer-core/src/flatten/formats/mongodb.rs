//! Events of MongoDB's change streams, as Extended JSON.
//!
//! An update has the whole document only if the stream was opened with `full_document`, and the document before the
//! change only with `full_document_before_change`. Otherwise they are unknown.

use super::super::typed;
use super::changes::{Change, Changes, key_of};
use super::text::{Expected, Json, Object, What, shown};
use crate::error::{EventCode, EventError};

pub(super) const WHAT: What = What("mongodb");
const NOT_IN_ENVELOPE: [&str; 2] = ["fullDocument", "fullDocumentBeforeChange"];

pub(super) fn read(record: &Object<'_>, changes: &mut Changes) -> Result<(), EventError> {
    if record.get("splitEvent").is_some() && record.get("operationType").is_none_or(Json::is_null) {
        // The first fragment has the operation; other members may be in the next ones.
        changes.ignore("a fragment of a split event");
        return Ok(());
    }
    let word = WHAT.text(record, "operationType", "")?;
    let kind = match &*word {
        "insert" => "insert",
        "update" | "replace" => "update",
        "delete" => "delete",
        other => {
            changes.ignore(format!("the operation {}, which changes no document", shown(other)));
            return Ok(());
        }
    };
    let space = Object::of(WHAT.needed(record, "ns", Expected::Object, "")?);
    let collection = format!("{}.{}", WHAT.text(&space, "db", "/ns")?, WHAT.text(&space, "coll", "/ns")?);
    let document = |name: &str| -> Result<Option<String>, EventError> {
        let document = WHAT.part(record, name, Expected::Object, "")?;
        Ok(document.and_then(|Json(text)| {
            let text = text.as_bytes();
            String::from_utf8(typed::put_in_all(text, &typed::extended(text))).ok()
        }))
    };
    let (new, before, key) = (document("fullDocument")?, document("fullDocumentBeforeChange")?, document("documentKey")?);
    let mut change = Change::new(kind, &collection, changes.wanted);
    change.ts(milliseconds(record)?);
    if let Some(token) = WHAT.part(record, "_id", Expected::Object, "")?
        && let Some(id) = Object::of(token).get("_data").and_then(Json::string)
    {
        change.string("id", &id);
    }
    change.envelope(record, &NOT_IN_ENVELOPE);
    // A document that is unknown has its `_id`, which never changes. The rest of the key is a shard key, which may.
    let id = key.as_ref().and_then(|key| Object::of(Json(key)).get("_id").map(|Json(id)| format!("{{\"_id\":{id}}}")));
    let before = if kind == "delete" { before.or(key) } else { before };
    if let Some(before) = before {
        change.value("before", &before);
    }
    match (new, id) {
        _ if kind == "delete" => {}
        (Some(new), _) => change.value("data", &new),
        (None, Some(id)) => {
            change.value("data", &id);
            change.value("partial", "true");
        }
        (None, None) => change.unknown_document("/data"),
    }
    changes.push(change, || key_of_document(record))
}

/// The key of a document: the values of `documentKey` in the order of their names.
fn key_of_document(record: &Object<'_>) -> Option<String> {
    let keys = object(record.get("documentKey"))?;
    key_of(keys.sorted().into_values().map(|value| Some(Object::of(value).get("$oid").unwrap_or(value))))
}

fn object(value: Option<Json<'_>>) -> Option<Object<'_>> {
    value.filter(|value| value.first() == b'{').map(Object::of)
}

fn milliseconds(record: &Object<'_>) -> Result<Option<i128>, EventError> {
    if let Some(date) = object(record.get("wallTime")).and_then(|time| time.get("$date")) {
        let ns = typed::moment_ns(date.0.as_bytes()).ok_or_else(|| {
            let reason = "expected milliseconds or RFC 3339 in $date, as 2026-01-31T12:00:00.5Z";
            WHAT.error(EventCode::BadTimestamp, "/wallTime", reason)
        })?;
        return Ok(Some(ns.div_euclid(1_000_000)));
    }
    let stamp = object(object(record.get("clusterTime")).and_then(|time| time.get("$timestamp")));
    Ok(stamp.and_then(|stamp| stamp.get("t")?.integer()).map(|seconds| seconds * 1000))
}
