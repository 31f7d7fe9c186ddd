//! The change events of a record, as they are written.

use super::text::{Json, Object, below};
use crate::error::{EventCode, EventError};
use crate::json;
use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Write;

/// The changes that were found so far.
#[derive(Debug)]
pub(super) struct Changes {
    pub texts: Vec<String>,
    /// Whether something in the record is no change.
    pub ignores: bool,
    bytes: usize,
    most: usize,
}

impl Changes {
    pub fn new(most: usize) -> Changes {
        Changes { texts: Vec::new(), ignores: false, bytes: 0, most }
    }

    /// Add a change. Fails if all of them are longer than a record may make them.
    pub fn push(&mut self, change: Change) -> Result<(), EventError> {
        let text = change.end();
        self.bytes += text.len();
        if self.bytes > self.most {
            let reason = format!("the changes of the record have more than {} bytes together", self.most);
            return Err(EventError { code: EventCode::TooLong, offset: None, place: None, reason: reason.into() });
        }
        self.texts.push(text);
        Ok(())
    }
}

/// The columns of a row, each with the text of its value.
pub(super) type Row<'t> = Vec<(Cow<'t, str>, Cow<'t, str>)>;

/// A change event that is being written.
#[derive(Debug)]
pub(super) struct Change {
    text: String,
    unknown: Vec<String>,
}

impl Change {
    pub fn new(kind: &str, collection: &str) -> Change {
        let mut change = Change { text: String::from("{"), unknown: Vec::new() };
        change.string("type", kind);
        change.string("collection", collection);
        change
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

    /// Add all members of a record but those that are *left* out.
    pub fn envelope(&mut self, record: &Object<'_>, left: &[&str]) {
        self.name("envelope");
        let rest = record.members.iter().filter(|(name, _)| !left.contains(&&**name));
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
pub(super) fn by_name<'r>(row: &'r Row<'_>) -> HashMap<&'r str, &'r str> {
    row.iter().map(|(name, value)| (&**name, &**value)).collect()
}

/// A value without white space around its tokens.
fn spelled(value: &str) -> String {
    let mut is_string = false;
    let mut is_escaped = false;
    let mut is_kept = |byte: &char| {
        if is_string {
            is_string = is_escaped || *byte != '"';
            is_escaped = !is_escaped && *byte == '\\';
            return true;
        }
        is_string = *byte == '"';
        !matches!(byte, ' ' | '\t' | '\n' | '\r')
    };
    value.chars().filter(|byte| is_kept(byte)).collect()
}

/// Whether an update changes the key, which makes it a delete and an insert. A value that is missing did not change.
pub(super) fn is_moved(key: &[Cow<'_, str>], before: &HashMap<&str, &str>, data: &HashMap<&str, &str>) -> bool {
    let differ = |one: &str, other: &str| match (Json(one).string(), Json(other).string()) {
        (Some(one), Some(other)) => one != other,
        _ if one == other => false,
        _ => match (Json(one).integer(), Json(other).integer()) {
            (Some(one), Some(other)) => one != other,
            _ => spelled(one) != spelled(other),
        },
    };
    key.iter().any(|name| before.get(&**name).zip(data.get(&**name)).is_some_and(|(one, other)| differ(one, other)))
}
