//! CloudEvents 1.0 in structured JSON: one event, or a batch of them in an array.
//!
//! An engine reads one event by its layout. A record of a source may also be a batch, and have its data in base64.

use super::super::{records, timestamps, typed};
use super::changes::{Change, Changes, key_of};
use super::text::{Expected, Json, Object, What};
use crate::error::{EventCode, EventError};
use crate::json;
use crate::json::token::space;
use std::borrow::Cow;

pub(super) const WHAT: What = What("cloudevents");
const NOT_IN_ENVELOPE: [&str; 2] = ["data", "data_base64"];

pub(super) fn read(record: Json<'_>, changes: &mut Changes) -> Result<(), EventError> {
    if record.first() != b'[' {
        return event(record, "", changes);
    }
    for (at, each) in WHAT.changes(record, "", changes.wanted.most)?.into_iter().enumerate() {
        event(each, &format!("/{at}"), changes)?;
    }
    Ok(())
}

fn event(source: Json<'_>, at: &str, changes: &mut Changes) -> Result<(), EventError> {
    if source.first() != b'{' {
        let reason = format!("an event is a JSON object, not {}", source.named());
        return Err(WHAT.error(EventCode::NotAnObject, at, &reason));
    }
    let members = Object::of(source);
    let version = WHAT.part(&members, "specversion", Expected::String, at)?.and_then(Json::string);
    let reason = match version.as_deref() {
        Some("1.0") => None,
        None => Some(
            "specversion is missing: expected structured mode; binary mode, whose attributes are headers, is not read".into(),
        ),
        Some(other) => Some(format!("specversion is 1.0, not '{}'", other.chars().take(20).collect::<String>())),
    };
    if let Some(reason) = reason {
        return Err(WHAT.error(EventCode::WrongType, format!("{at}/specversion"), &reason));
    }
    let mut change = Change::untyped(changes.wanted);
    for (part, name) in [("id", "id"), ("collection", "source"), ("topic", "type")] {
        change.string(part, &WHAT.text(&members, name, at)?);
    }
    if let Some(time) = WHAT.part(&members, "time", Expected::String, at)?.and_then(Json::string) {
        let ns =
            timestamps::rfc3339(&time).map_err(|reason| WHAT.error(EventCode::BadTimestamp, format!("{at}/time"), reason))?;
        change.ts(Some(ns.div_euclid(1_000_000)));
    }
    if let Some(data) = data(&members, at)? {
        change.value("data", &data);
    }
    change.envelope(&members, &NOT_IN_ENVELOPE);
    let key = WHAT.part(&members, "partitionkey", Expected::String, at)?;
    changes.push(change, || key_of([key].into_iter()).filter(|key| !key.is_empty()))
}

/// The document of an event. Data may be of any type, but a document is an object.
fn data<'t>(members: &Object<'t>, at: &str) -> Result<Option<Cow<'t, str>>, EventError> {
    let data = members.get("data").filter(|data| !data.is_null());
    let data = match WHAT.part(members, "data_base64", Expected::String, at)?.and_then(Json::string) {
        None => data.map(|Json(data)| Cow::Borrowed(data)),
        Some(encoded) => {
            let place = format!("{at}/data_base64");
            if data.is_some() {
                return Err(WHAT.error(EventCode::BadValue, place, "data and data_base64 exclude each other"));
            }
            decoded(&encoded, members, at, &place)?.map(Cow::Owned)
        }
    };
    Ok(data.filter(|data| data.starts_with('{')))
}

/// The JSON in base64; None for data of another content type, which is no document.
fn decoded(encoded: &str, members: &Object<'_>, at: &str, place: &str) -> Result<Option<String>, EventError> {
    let kind = WHAT.part(members, "datacontenttype", Expected::String, at)?.and_then(Json::string).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_lowercase();
    let raw =
        typed::base64(encoded.as_bytes()).ok_or_else(|| WHAT.error(EventCode::BadValue, place, "data_base64 is not base64"))?;
    if !kind.ends_with("/json") && !kind.ends_with("+json") {
        return Ok(None);
    }
    let from = space(&raw, 0);
    let read = records::whole(&raw, from, 0, usize::MAX, &mut Vec::new());
    let (text, end) = json::utf8_first(&raw, read).map_err(|fault| WHAT.inside(fault, place))?;
    Ok(Some(text[from..end].to_owned()))
}
