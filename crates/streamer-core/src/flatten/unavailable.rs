//! Values that the source does not carry, in whose place it writes a text (`unknown_value` of a layout).

use crate::json::token::peek;
use crate::layout::{EventLayout, Format, Pointer};
use crate::value::{Number, Scalar, Value};
use aho_corasick::packed::Searcher;
use memchr::memmem::Finder;

/// The text that Debezium writes for a geometry, a geography and a point that it does not carry: their bytes in base64.
const PLACES: [&str; 3] =
    ["AQEAACDmEAAAAAAA/IPXl8EAAAD8g9eXwQ==", "AQEAACDmEAAADCHn/f9/ZkAYQs77/39WQA==", "AQEAAAAAAAD8g9eXwQAAAPyD15fB"];

/// Its placeholder: as text; for a column of bytes as base64, with or without padding, or in hex; and as the UUID that it
/// makes of the text. The preset of an engine has the same.
const DEBEZIUM: [&str; 5] = [
    "__debezium_unavailable_value",
    "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==",
    "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ",
    "5f5f646562657a69756d5f756e617661696c61626c655f76616c7565",
    "b68a35a7-17ad-35b3-af2a-ae46edb4545a",
];

/// The characters that have an escape of their own.
const ESCAPES: [(u8, &str); 8] =
    [(b'"', "\\\""), (b'\\', "\\\\"), (b'/', "\\/"), (8, "\\b"), (12, "\\f"), (b'\n', "\\n"), (b'\r', "\\r"), (b'\t', "\\t")];

/// Whether a value is such a place.
fn is_place(value: &Value) -> bool {
    value.get("wkb").and_then(Value::as_str).is_some_and(|bytes| PLACES.contains(&bytes))
}

/// The texts that mark a value which the source does not carry, ready to be searched for.
#[derive(Debug)]
pub(crate) struct Unavailable {
    texts: Box<[Box<str>]>,
    /// Whether Debezium writes them, which has more forms of them.
    is_debezium: bool,
    /// For these texts and the places, and then the escapes that may spell a character in them. None if there are no
    /// texts, or if it cannot search for them here.
    searcher: Option<Searcher>,
    /// The ASCII characters in them, and last whether there are others: an escape may spell these.
    spelled: [bool; 129],
    /// A name in records of Debezium. Boxed: a finder is aligned to 32 bytes, and so would be every type that contains it.
    pub(super) scale: Box<Finder<'static>>,
    /// How an escape of an ASCII character begins, so a search for a name does not find it.
    escape: Box<Finder<'static>>,
}

impl Unavailable {
    pub(crate) fn new(layout: &EventLayout) -> Unavailable {
        let is_debezium = layout.format == Some(Format::Debezium);
        let places = PLACES.iter().copied().filter(|_| is_debezium);
        let texts = layout.unknown_value.iter().map(|text| &**text).chain(places);
        let mut spelled = [false; 129];
        for char in texts.clone().flat_map(str::chars) {
            spelled[(char as usize).min(128)] = true;
        }
        let escapes = ESCAPES.iter().filter(|(char, _)| spelled[usize::from(*char)]).map(|(_, escape)| *escape).chain(["\\u"]);
        let searcher = texts.clone().next().and_then(|_| Searcher::new(texts.chain(escapes)));
        let [scale, escape] = ["scale", "\\u00"].map(|name| Box::new(Finder::new(name)));
        Unavailable { texts: layout.unknown_value.clone(), is_debezium, searcher, spelled, scale, escape }
    }

    /// Those of Debezium in its default settings.
    pub(super) fn of_debezium() -> Unavailable {
        let unknown_value = DEBEZIUM.into_iter().map(Box::from).collect();
        Unavailable::new(&EventLayout { unknown_value, format: Some(Format::Debezium), ..EventLayout::default() })
    }

    /// Whether an escape may spell a character of a name in a text.
    pub(super) fn may_spell_names_in(&self, text: &[u8]) -> bool {
        self.escape.find(text).is_some()
    }

    /// Whether a document may contain one of them.
    pub(super) fn may_be_in(&self, document: &[u8]) -> bool {
        let Some(searcher) = &self.searcher else { return self.is_debezium || !self.texts.is_empty() };
        searcher.find_iter(document).any(|hit| self.is_spelled_at(document, hit.start()))
            || self.is_debezium && self.may_be_numbers_in(document)
    }

    /// Whether a document may have an array of the bytes of one of them: one that is long, and has the first two.
    fn may_be_numbers_in(&self, document: &[u8]) -> bool {
        memchr::memchr(b'[', document).is_some_and(|at| {
            let array = &document[at..];
            let has = |byte: &u8| memchr::memmem::find(array, byte.to_string().as_bytes()).is_some();
            self.texts.iter().any(|text| text.bytes().take(8).all(|byte| has(&byte)))
        })
    }

    /// Whether what was found there is one of them, or an escape that spells a character of theirs.
    fn is_spelled_at(&self, document: &[u8], at: usize) -> bool {
        let Some(digits) = document[at..].strip_prefix(b"\\u") else { return true };
        let digits = digits.get(..4).and_then(|digits| std::str::from_utf8(digits).ok());
        let char = digits.and_then(|digits| usize::from_str_radix(digits, 16).ok());
        self.spelled[char.unwrap_or(128).min(128)]
    }

    fn is(&self, text: &str) -> bool {
        self.texts.iter().any(|known| **known == *text)
    }

    /// Whether it is one of them, or of Debezium a document in a text, as hstore is one under `hstore.handling.mode=json`.
    pub(super) fn is_in(&self, text: &str) -> bool {
        self.is(text) || self.is_debezium && self.texts.iter().any(|known| text.contains(&format!("\"{known}\"")))
    }

    /// Whether a value is a mark of an unknown value.
    fn is_unknown(&self, value: &Value) -> bool {
        let is_text = |value: &Value| value.as_str().is_some_and(|text| self.is_in(text));
        match value {
            Value::Map(members) => members.iter().any(|(name, _)| self.is(name)) || self.is_debezium && is_place(value),
            Value::List(elements) => elements.iter().any(is_text) || self.is_debezium && self.is_spelled_by(elements),
            other => is_text(other),
        }
    }

    /// Whether the text of an array is that of the numbers of a placeholder's bytes.
    pub(super) fn is_spelled(&self, array: &[u8]) -> bool {
        let is_one = |text: &str| {
            let numbers: Vec<String> = text.bytes().map(|byte| byte.to_string()).collect();
            let mut rest = array.iter().filter(|byte| !byte.is_ascii_whitespace());
            let expected = format!("[{}]", numbers.join(","));
            expected.bytes().all(|byte| rest.next() == Some(&byte)) && rest.next().is_none()
        };
        // Each has some characters, and each of these a number.
        self.is_debezium && peek(array, 1) != b']' && self.texts.iter().any(|text| array.len() > 2 * text.len() && is_one(text))
    }

    /// Whether an array of numbers has the bytes of one of them, as one of integers has them.
    fn is_spelled_by(&self, elements: &[Value]) -> bool {
        let is = |element: &Value, byte: u8| matches!(element, Value::Scalar(Scalar::Number(number)) if *number == Number::from_u64(byte.into()));
        let spell = |text: &str| {
            text.len() == elements.len() && elements.iter().zip(text.bytes()).all(|(element, byte)| is(element, byte))
        };
        self.texts.iter().any(|text| spell(text))
    }

    /// Add the places of a document that are marked as unknown; of one inside another only the outer. Only these paths
    /// are built.
    pub(super) fn collect(&self, at: &Pointer, document: &Value, unknown: &mut Vec<Pointer>) {
        // Each container that is open, and how many of its children have been entered.
        let mut open: Vec<(&Value, usize)> = Vec::new();
        let mut value = document;
        loop {
            if self.is_unknown(value) {
                let way = open.iter().map(|(container, entered)| name_of_child(container, entered - 1));
                unknown.push(at.iter().cloned().chain(way).collect());
            } else {
                open.push((value, 0));
            }
            value = loop {
                let Some((container, entered)) = open.last_mut() else { return };
                if let Some(child) = child(container, *entered) {
                    *entered += 1;
                    break child;
                }
                open.pop();
            };
        }
    }
}

fn child(container: &Value, at: usize) -> Option<&Value> {
    match container {
        Value::Map(members) => members.get(at).map(|(_, member)| member),
        Value::List(elements) => elements.get(at),
        _ => None,
    }
}

fn name_of_child(container: &Value, at: usize) -> Box<str> {
    match container {
        Value::Map(members) => members[at].0.clone(),
        _ => at.to_string().into(),
    }
}
