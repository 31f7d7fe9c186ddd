//! Records of Amazon DynamoDB Streams, one or a batch of `Records`, and of Kinesis Data Streams for DynamoDB.
//!
//! A value is an object whose only member names its type, such as `{"N": "42"}`. The StreamViewType of the table decides
//! which images a record has; a missing image is unknown.

use super::changes::{Change, Changes, Row, key_of, merged, write_members};
use super::text::{Expected, Json, Object, What, below};
use crate::error::{EventCode, EventError};
use crate::json;
use std::borrow::Cow;

pub(super) const WHAT: What = What("dynamodb");
/// The nesting limit, above DynamoDB's own; it bounds the recursion.
const DEEPEST: usize = 40;
const MOST_SECONDS: f64 = 253_402_300_800.0;
const MOST_MILLISECONDS: f64 = 1e18;
const IMAGES: [&str; 3] = ["Keys", "NewImage", "OldImage"];

pub(super) fn read(record: &Object<'_>, changes: &mut Changes) -> Result<(), EventError> {
    let Some(records) = WHAT.part(record, "Records", Expected::Array, "")? else { return change(record, "", changes) };
    for (at, each) in WHAT.changes(records, "/Records", changes.wanted.most)?.into_iter().enumerate() {
        let at = format!("/Records/{at}");
        if each.first() != b'{' {
            let reason = format!("a message is a JSON object, not {}", each.named());
            return Err(WHAT.error(EventCode::NotAnObject, at, &reason));
        }
        change(&WHAT.object(each, || at.clone())?, &at, changes)?;
    }
    Ok(())
}

fn change(record: &Object<'_>, at: &str, changes: &mut Changes) -> Result<(), EventError> {
    let word = WHAT.text(record, "eventName", at)?;
    let kind = match &*word {
        "INSERT" => "insert",
        "MODIFY" => "update",
        "REMOVE" => "delete",
        other => {
            let reason = format!("eventName is one of INSERT, MODIFY, REMOVE, not {}", super::text::shown(other));
            return Err(WHAT.error(EventCode::WrongType, format!("{at}/eventName"), &reason));
        }
    };
    let collection = table(record, at)?;
    let of = WHAT.object(WHAT.needed(record, "dynamodb", Expected::Object, at)?, || format!("{at}/dynamodb"))?;
    let image = |name: &str| -> Result<Option<Row<'_>>, EventError> {
        let Some(image) = WHAT.part(&of, name, Expected::Object, &format!("{at}/dynamodb"))? else { return Ok(None) };
        let column = |(column, source): (Cow<'_, str>, Json<'_>)| {
            let mut text = String::with_capacity(source.0.len());
            let place = || below(&format!("{at}/dynamodb/{name}"), &column);
            value(source, 0, &mut text).map_err(|fault| fault.error(&place()))?;
            Ok((Cow::Owned(column.into_owned()), Cow::Owned(text)))
        };
        let image = WHAT.object(image, || format!("{at}/dynamodb/{name}"))?;
        image.members.into_iter().map(column).collect::<Result<_, _>>().map(Some)
    };
    let (new, old, keys) = (image("NewImage")?, image("OldImage")?, image("Keys")?);
    let mut change = Change::new(kind, &collection, changes.wanted);
    change.ts(milliseconds(&of));
    if let Some(id) = WHAT.part(record, "eventID", Expected::String, at)?.and_then(Json::string) {
        change.string("id", &id);
    }
    if changes.wanted.envelope {
        let mut inner = String::new();
        let rest = of.members.iter().filter(|(name, _)| !IMAGES.contains(&&**name));
        write_members(&mut inner, rest.map(|(name, Json(value))| (&**name, *value)));
        let rest = record.members.iter().filter(|(name, _)| name != "dynamodb");
        let mut envelope = String::new();
        let members = rest.map(|(name, Json(value))| (&**name, *value)).chain([("dynamodb", &*inner)]);
        write_members(&mut envelope, members);
        change.value("envelope", &envelope);
    }
    let key = || key_of_item(&of);
    let old = old.filter(|old| !old.is_empty());
    if kind == "delete" {
        // With KEYS_ONLY, the image of the item is missing or empty. An image includes the key.
        let before = merged(&keys.unwrap_or_default(), &old.unwrap_or_default());
        if !before.is_empty() {
            change.row("before", &before);
        }
        return changes.push(change, key);
    }
    if let Some(old) = &old {
        change.row("before", old);
    }
    match (new.filter(|new| !new.is_empty()), keys.filter(|keys| !keys.is_empty())) {
        (Some(new), _) => change.row("data", &new),
        (None, Some(keys)) => {
            // The item is unknown, except its key.
            change.row("data", &keys);
            change.value("partial", "true");
        }
        (None, None) => change.unknown_document("/data"),
    }
    changes.push(change, key)
}

/// The key of an item: the values of `Keys` without their types, in the order of their names.
fn key_of_item(of: &Object<'_>) -> Option<String> {
    let keys = Object::of(of.get("Keys")?);
    key_of(keys.sorted().into_values().map(|value| Object::of(value).members.last().map(|(_, value)| *value)))
}

fn table(record: &Object<'_>, at: &str) -> Result<String, EventError> {
    let name = match WHAT.part(record, "tableName", Expected::String, at)?.and_then(Json::string) {
        Some(name) => name.into_owned(),
        None => {
            // arn:aws:dynamodb:REGION:ACCOUNT:table/NAME/stream/LABEL
            let resource = WHAT.text(record, "eventSourceARN", at)?;
            let name = resource.split_once(":table/").map_or("", |(_, rest)| rest.split('/').next().unwrap_or(""));
            name.to_owned()
        }
    };
    if name.is_empty() {
        return Err(WHAT.error(EventCode::BadValue, format!("{at}/eventSourceARN"), "eventSourceARN does not name a table"));
    }
    Ok(name)
}

fn milliseconds(of: &Object<'_>) -> Option<i128> {
    let time = of.get("ApproximateCreationDateTime")?;
    let precision = of.get("ApproximateCreationDateTimePrecision").and_then(Json::string).unwrap_or_default();
    let value: f64 = time.0.parse().ok().filter(|_| time.named() == "a number")?;
    let factor = match &*precision {
        "MILLISECOND" => 1.0,
        "MICROSECOND" => 0.001,
        // Kinesis writes milliseconds, and does not always say so; seconds of this size are after the year 9999.
        _ if value.abs() >= MOST_SECONDS => 1.0,
        _ => 1000.0,
    };
    let milliseconds = value * factor;
    // An infinity is no time.
    (milliseconds.abs() < MOST_MILLISECONDS).then_some(milliseconds as i128)
}

/// A value that cannot be read: where in the value, and why.
struct Fault {
    place: String,
    code: EventCode,
    reason: String,
}

impl Fault {
    #[cold]
    fn new(reason: String) -> Fault {
        Fault { place: String::new(), code: EventCode::BadValue, reason }
    }

    fn inside(self, place: &str) -> Fault {
        Fault { place: format!("{place}{}", self.place), ..self }
    }

    fn error(self, place: &str) -> EventError {
        WHAT.error(self.code, format!("{place}{}", self.place), &self.reason)
    }
}

/// Write a value without its type. Recursive, at most [`DEEPEST`] deep.
fn value(source: Json<'_>, depth: usize, text: &mut String) -> Result<(), Fault> {
    if depth > DEEPEST {
        return Err(Fault::new(format!("nested deeper than {DEEPEST}")));
    }
    let members = if source.first() == b'{' { Object::of(source).members } else { Vec::new() };
    // The last of several with one name counts.
    let only = members.last().filter(|(last, _)| members.iter().all(|(name, _)| name == last));
    let Some((kind, inner)) = only else {
        return Err(Fault::new(r#"a value is an object of one type, as {"N": "42"}"#.into()));
    };
    let inner = *inner;
    match (&**kind, inner.first()) {
        ("M", b'{') => {
            let mut mark = '{';
            for (name, member) in Object::of(inner).members {
                text.push(mark);
                json::write_string(text, &name);
                text.push(':');
                value(member, depth + 1, text).map_err(|fault| fault.inside(&below("/M", &name)))?;
                mark = ',';
            }
            if mark == '{' {
                text.push('{');
            }
            text.push('}');
        }
        ("L", b'[') => {
            list(inner, text, |item, at, text| value(item, depth + 1, text).map_err(|fault| fault.inside(&format!("/L/{at}"))))?;
        }
        (kind @ ("SS" | "NS" | "BS"), b'[') => {
            list(inner, text, |item, at, text| {
                scalar(&kind[..1], item, text).map_err(|fault| fault.inside(&format!("/{kind}/{at}")))
            })?;
        }
        (kind @ ("S" | "N" | "B" | "BOOL" | "NULL"), _) => {
            scalar(kind, inner, text).map_err(|fault| fault.inside(&format!("/{kind}")))?;
        }
        (kind, _) => {
            let known = "M, L, S, N, B, BOOL, NULL, SS, NS, BS";
            let shown = super::text::shown(kind);
            return Err(Fault::new(format!("a value has one of the types {known}, not {shown} of {}", inner.named())));
        }
    }
    Ok(())
}

fn list(
    of: Json<'_>,
    text: &mut String,
    mut write: impl FnMut(Json<'_>, usize, &mut String) -> Result<(), Fault>,
) -> Result<(), Fault> {
    text.push('[');
    for (at, item) in of.elements().enumerate() {
        if at > 0 {
            text.push(',');
        }
        write(item, at, text)?;
    }
    text.push(']');
    Ok(())
}

fn scalar(kind: &str, source: Json<'_>, text: &mut String) -> Result<(), Fault> {
    let expected = |what: &str| Fault::new(format!("expected {what}, not {}", source.named()));
    match kind {
        "NULL" => text.push_str("null"),
        "BOOL" if matches!(source.first(), b't' | b'f') => text.push_str(source.0),
        "BOOL" => return Err(expected("a boolean")),
        "N" => {
            let digits = source.string().ok_or_else(|| expected("a string"))?;
            if !super::text::is_number(&digits) {
                let reason = format!("expected a number as JSON has it, not {}", super::text::shown(&digits));
                return Err(Fault::new(reason));
            }
            text.push_str(&digits);
        }
        _ if source.first() == b'"' => text.push_str(source.0),
        _ => return Err(expected("a string")),
    }
    Ok(())
}
