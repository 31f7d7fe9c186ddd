//! Values that the source does not carry, where it writes a text in their place (`unknown_value` of a layout).

use crate::json::token::peek;
use crate::layout::{EventLayout, Pointer};
use crate::value::Value;
use memchr::memmem::Finder;

/// The texts that stand for a value which the source does not carry, ready to be searched for.
#[derive(Debug)]
pub(crate) struct Unavailable {
    texts: Box<[Box<str>]>,
    finders: Box<[Finder<'static>]>,
    /// The characters of ASCII in them, and at the end whether there are others: what an escape may spell.
    spelled: [bool; 129],
}

impl Unavailable {
    pub(crate) fn new(layout: &EventLayout) -> Unavailable {
        let mut spelled = [false; 129];
        for char in layout.unknown_value.iter().flat_map(|text| text.chars()) {
            spelled[(char as usize).min(128)] = true;
        }
        let finders = layout.unknown_value.iter().map(|text| Finder::new(text.as_bytes()).into_owned()).collect();
        Unavailable { texts: layout.unknown_value.clone(), finders, spelled }
    }

    /// Whether a document may hold one of them.
    pub(super) fn may_be_in(&self, document: &[u8]) -> bool {
        self.finders.iter().any(|finder| finder.find(document).is_some()) || self.is_spelled_in(document)
    }

    /// Whether an escape in a document spells a character of theirs.
    fn is_spelled_in(&self, document: &[u8]) -> bool {
        let mut next = 0;
        memchr::memchr_iter(b'\\', document).any(|at| {
            if at < next {
                return false;
            }
            next = at + 2;
            let char = match peek(document, at + 1) {
                b'u' => {
                    let digits = document.get(at + 2..at + 6).and_then(|digits| std::str::from_utf8(digits).ok());
                    digits.and_then(|digits| usize::from_str_radix(digits, 16).ok()).unwrap_or(128)
                }
                b'b' => 8,
                b'f' => 12,
                b'n' => 10,
                b'r' => 13,
                b't' => 9,
                plain => usize::from(plain),
            };
            self.spelled[char.min(128)]
        })
    }

    fn is(&self, text: &str) -> bool {
        self.texts.iter().any(|known| **known == *text)
    }

    /// Whether a value says of itself that it is unknown.
    fn is_unknown(&self, value: &Value) -> bool {
        let is_text = |value: &Value| value.as_str().is_some_and(|text| self.is(text));
        match value {
            Value::Map(members) => members.iter().any(|(name, _)| self.is(name)),
            Value::List(elements) => elements.iter().any(is_text),
            other => is_text(other),
        }
    }

    /// Add where a document says that a value is unknown; of one inside another only the outer. A way is written only of these.
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
