//! The change events of a record, as they are written.

use super::text::{Json, Object, below};
use crate::error::{EventCode, EventError};
use crate::json;
use crate::json::token;
use rapidhash::fast::RandomState;
use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Write;

/// What is wanted of a record, apart from its changes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    /// Whether each change has the rest of the record.
    pub envelope: bool,
    pub keys: bool,
    /// The most changes.
    pub most: usize,
    /// The most bytes of all changes together.
    pub most_bytes: usize,
}

/// The changes that were found so far.
#[derive(Debug)]
pub(super) struct Changes {
    pub texts: Vec<String>,
    /// The key of each change, if keys are wanted.
    pub keys: Vec<Option<String>>,
    /// What a record is that is no change.
    pub ignored: Option<String>,
    pub wanted: Wanted,
    bytes: usize,
}

impl Changes {
    pub fn new(wanted: Wanted) -> Changes {
        Changes { texts: Vec::new(), keys: Vec::new(), ignored: None, wanted, bytes: 0 }
    }

    /// Take the record as no change.
    pub fn ignore(&mut self, what: impl Into<String>) {
        self.ignored = Some(what.into());
    }

    /// Add a change with its key. Fails if all of them are longer than a record may make them.
    pub fn push(&mut self, change: Change, key: impl FnOnce() -> Option<String>) -> Result<(), EventError> {
        let text = change.end();
        self.bytes += text.len();
        if self.bytes > self.wanted.most_bytes {
            let reason = format!("the changes of the record have more than {} bytes together", self.wanted.most_bytes);
            return Err(EventError { code: EventCode::TooLong, offset: None, place: None, reason: reason.into() });
        }
        self.texts.push(text);
        if self.wanted.keys {
            self.keys.push(key());
        }
        Ok(())
    }
}

/// The columns of a row, each with the text of its value.
pub(super) type Row<'t> = Vec<(Cow<'t, str>, Cow<'t, str>)>;

/// A map of texts, hashed under a secret seed.
pub(super) type TextMap<K, V> = HashMap<K, V, RandomState>;

/// A change event that is being written.
#[derive(Debug)]
pub(super) struct Change {
    text: String,
    unknown: Vec<String>,
    has_envelope: bool,
}

impl Change {
    /// A change of a row.
    pub fn new(kind: &str, collection: &str, wanted: Wanted) -> Change {
        let mut change = Change::untyped(wanted);
        change.string("type", kind);
        change.string("collection", collection);
        change
    }

    pub fn untyped(wanted: Wanted) -> Change {
        Change { text: String::from("{"), unknown: Vec::new(), has_envelope: wanted.envelope }
    }

    fn name(&mut self, name: &str) {
        if self.text.len() > 1 {
            self.text.push(',');
        }
        json::write_string(&mut self.text, name);
        self.text.push(':');
    }

    pub fn string(&mut self, name: &str, content: &str) {
        self.name(name);
        json::write_string(&mut self.text, content);
    }

    pub fn ts(&mut self, milliseconds: Option<i128>) {
        if let Some(milliseconds) = milliseconds {
            self.name("ts");
            // Writing to a string cannot fail.
            _ = write!(self.text, "{milliseconds}");
        }
    }

    /// Add a value as it stands.
    pub fn value(&mut self, name: &str, value: &str) {
        self.name(name);
        self.text.push_str(value);
    }

    pub fn row(&mut self, name: &str, row: &Row<'_>) {
        self.name(name);
        write_members(&mut self.text, row.iter().map(|(name, value)| (&**name, &**value)));
    }

    /// Add all members of a record but the *others*, if that is wanted.
    pub fn envelope(&mut self, record: &Object<'_>, others: &[&str]) {
        if !self.has_envelope {
            return;
        }
        self.name("envelope");
        let rest = record.members.iter().filter(|(name, _)| !others.contains(&&**name));
        write_members(&mut self.text, rest.map(|(name, Json(value))| (&**name, *value)));
    }

    /// A member of a document that the record does not carry.
    pub fn unknown(&mut self, document: &str, name: &str) {
        self.unknown.push(below(document, name));
    }

    /// A document that the record does not carry.
    pub fn unknown_document(&mut self, document: &str) {
        self.unknown.push(document.into());
    }

    fn end(mut self) -> String {
        if !self.unknown.is_empty() {
            self.name("unknown");
            let mut mark = '[';
            for pointer in std::mem::take(&mut self.unknown) {
                self.text.push(mark);
                json::write_string(&mut self.text, &pointer);
                mark = ',';
            }
            self.text.push(']');
        }
        self.text.push('}');
        self.text
    }
}

/// Write an object.
pub(super) fn write_members<'m>(text: &mut String, members: impl Iterator<Item = (&'m str, &'m str)>) {
    let mut mark = '{';
    for (name, value) in members {
        text.push(mark);
        json::write_string(text, name);
        text.push(':');
        text.push_str(value);
        mark = ',';
    }
    if mark == '{' {
        text.push('{');
    }
    text.push('}');
}

/// The columns of *over*, and those of *row* that it lacks.
pub(super) fn merged<'t>(row: &Row<'t>, over: &Row<'t>) -> Row<'t> {
    let columns = by_name(over);
    let rest = row.iter().filter(|(name, _)| !columns.contains_key(&**name)).cloned();
    rest.chain(over.iter().cloned()).collect()
}

/// The values of columns by name; of several with one name the last counts.
pub(super) fn by_name<'r>(row: &'r Row<'_>) -> TextMap<&'r str, &'r str> {
    row.iter().map(|(name, value)| (&**name, &**value)).collect()
}

/// The key of a change as text: the value of one column, or a JSON array of the values of several.
///
/// None if one of the columns is null or missing. Equal keys have one text, however they are spelled.
pub(super) fn key_of<'k>(values: impl Iterator<Item = Option<Json<'k>>>) -> Option<String> {
    let values: Vec<Json<'_>> = values.map(|value| value.filter(|value| !value.is_null())).collect::<Option<_>>()?;
    match values[..] {
        [] => None,
        [one] if one.first() == b'"' => one.string().map(Cow::into_owned),
        [one] if !matches!(one.first(), b'{' | b'[') => Some(compact(one)),
        _ => Some(format!("[{}]", values.into_iter().map(compact).collect::<Vec<_>>().join(","))),
    }
}

/// A value in the shortest spelling: without white space, and without escapes that JSON does not need.
fn compact(value: Json<'_>) -> String {
    let (bytes, mut text, mut at) = (value.0.as_bytes(), String::new(), 0);
    while at < bytes.len() {
        let end = match bytes[at] {
            b'"' => match token::string(bytes, at) {
                Ok((end, _)) => {
                    json::write_string(&mut text, &Json(&value.0[at..end]).string().unwrap_or_default());
                    end
                }
                Err(_) => bytes.len(),
            },
            b'-' | b'0'..=b'9' => {
                let end = token::number(bytes, at).map_or(bytes.len(), |(end, _)| end);
                let number = Json(&value.0[at..end]);
                match number.integer() {
                    Some(integer) => _ = write!(text, "{integer}"),
                    None => text.push_str(number.0),
                }
                end
            }
            b' ' | b'\t' | b'\n' | b'\r' => at + 1,
            byte => {
                text.push(char::from(byte));
                at + 1
            }
        };
        at = end;
    }
    text
}

/// Whether an update changes the key, which makes it a delete and an insert. A value that is missing did not change.
pub(super) fn is_moved(key: &[Cow<'_, str>], before: &TextMap<&str, &str>, data: &TextMap<&str, &str>) -> bool {
    let differ = |one: &str, other: &str| match (Json(one).string(), Json(other).string()) {
        (Some(one), Some(other)) => one != other,
        _ if one == other => false,
        _ => match (Json(one).integer(), Json(other).integer()) {
            (Some(one), Some(other)) => one != other,
            _ => compact(Json(one)) != compact(Json(other)),
        },
    };
    key.iter().any(|name| before.get(&**name).zip(data.get(&**name)).is_some_and(|(one, other)| differ(one, other)))
}
