//! Events of other formats than JSON, given as their fields: path, value, array position.
//!
//! ```text
//!   {"a": [{"b": 1}, {"b": "x"}]}        a b = 1    in element 0 of array 0
//!                                        a b = "x"  in element 1 of array 0
//!
//!   names    a b a b          values   1"x"          elements   (none)  0 of array 0  1 of array 0
//! ```
//!
//! Such an event has paths from its root, and perhaps a topic. It has no document, no type and no collection, so CEL
//! and filters find only missing values. It has no unknown values.
//!
//! Invariant: an element is stored once, so two values lie in the same element if and only if they share the position.
//! A value is stored as JSON writes a scalar, a string without escapes, so all readers of a [`Flat`] can read this one.
//!
//! Cost: a copy of each name and value, and a look-up for each array around a value. After warm-up it does not
//! allocate.
//!
//! Rejected: to write such an event as JSON text. Its arrays would have to be built again from positions, and names and strings
//! would be escaped here to be unescaped there.

use super::entries::{ArrayElement, Entries, Entry, NO_ENTRY, Position};
use super::flat::{Flat, Parts};
use super::trie::{ALWAYS, LEAVES, NOWHERE, PathTrie, ROOT, VALUE};
use crate::error::{EventCode, EventError};
use crate::layout::encode_pointer;
use crate::value::Kind;
use std::collections::HashMap;
use std::fmt::Write;
use std::ops::Range;

/// The scalar of a field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FieldValue<'v> {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// An integer of 64 bits, with a sign or without.
    Integer(i128),
    /// A finite float64.
    Float(f64),
    /// The literal of a number beyond float64.
    BeyondFloat(&'v str),
    /// A string.
    String(&'v str),
}

#[derive(Clone, Debug)]
struct StoredField {
    /// Its path: which of the names.
    names: Range<u32>,
    value: Range<u32>,
    kind: Kind,
    position: Position,
}

/// The fields of one event. Reused from event to event; see the head of this file.
#[derive(Clone, Debug)]
pub struct EventFields {
    names: Vec<u8>,
    /// The end of each name.
    ends: Vec<u32>,
    values: String,
    fields: Vec<StoredField>,
    elements: Vec<ArrayElement>,
    /// Positions by outer position, array and index, as the flattener names them.
    positions: HashMap<(Position, u64, u64), Position>,
    /// The serial number of each array by the position around it.
    arrays: HashMap<(Position, u64), u32>,
    topic: Option<String>,
}

impl Default for EventFields {
    fn default() -> EventFields {
        let mut fields = EventFields {
            names: Vec::new(),
            ends: Vec::new(),
            values: String::new(),
            fields: Vec::new(),
            elements: Vec::new(),
            positions: HashMap::new(),
            arrays: HashMap::new(),
            topic: None,
        };
        fields.clear();
        fields
    }
}

impl EventFields {
    /// Begin a new event.
    pub fn clear(&mut self) {
        self.names.clear();
        self.ends.clear();
        self.values.clear();
        self.fields.clear();
        self.elements.clear();
        self.elements.push(ArrayElement::NONE);
        self.positions.clear();
        self.arrays.clear();
        self.topic = None;
    }

    /// How many bytes its names and values have.
    pub fn bytes(&self) -> usize {
        self.names.len() + self.values.len()
    }

    /// Give the event a topic.
    pub fn set_topic(&mut self, topic: &str) {
        let buffer = self.topic.get_or_insert_default();
        buffer.clear();
        buffer.push_str(topic);
    }

    /// The position of element *index* of an array that lies at *outer*; *array* is a number that no other array there has.
    pub fn element(&mut self, outer: Position, array: u64, index: u64) -> Position {
        let EventFields { elements, positions, arrays, .. } = self;
        *positions.entry((outer, array, index)).or_insert_with(|| {
            let serial = arrays.len() as u32;
            let array = *arrays.entry((outer, array)).or_insert(serial);
            let depth = elements[outer.0 as usize].depth + 1;
            // The name at which an array begins is known only when all fields are there.
            elements.push(ArrayElement { outer, array, depth, names: 0 });
            Position(elements.len() as u32 - 1)
        })
    }

    /// Add a field: the names from the root of the event, the value there, and in which element it lies.
    ///
    /// # Errors
    ///
    /// All fields together are longer than 4 GiB.
    pub fn push<'n>(
        &mut self,
        path: impl IntoIterator<Item = &'n str>,
        value: FieldValue<'_>,
        position: Position,
    ) -> Result<(), EventError> {
        let first = self.ends.len();
        for name in path {
            self.names.extend_from_slice(name.as_bytes());
            self.ends.push(checked(self.names.len())?);
        }
        let start = self.values.len();
        let kind = self.write(value);
        self.fields.push(StoredField {
            names: checked(first)?..checked(self.ends.len())?,
            value: checked(start)?..checked(self.values.len())?,
            kind,
            position,
        });
        Ok(())
    }

    fn write(&mut self, value: FieldValue<'_>) -> Kind {
        let values = &mut self.values;
        // Writing to a string never fails.
        let (written, kind) = match value {
            FieldValue::Null => (values.write_str("null"), Kind::Null),
            FieldValue::Bool(value) => (write!(values, "{value}"), Kind::Bool),
            FieldValue::Integer(value) => (write!(values, "{value}"), Kind::Number),
            FieldValue::Float(value) => (write!(values, "{value:e}"), Kind::Number),
            FieldValue::BeyondFloat(literal) => (values.write_str(literal), Kind::BeyondFloat),
            FieldValue::String(text) => (write!(values, "\"{text}\""), Kind::String),
        };
        debug_assert!(written.is_ok());
        kind
    }

    /// The start and the end of a name.
    fn name(&self, at: u32) -> (usize, usize) {
        let start = if at == 0 { 0 } else { self.ends[at as usize - 1] };
        (start as usize, self.ends[at as usize] as usize)
    }

    fn node(&self, trie: &PathTrie, field: &StoredField) -> u32 {
        let mut node = ROOT;
        for at in field.names.clone() {
            let (from, to) = self.name(at);
            node = trie.member(&trie.nodes[node as usize], &self.names, from, to);
            if node == NOWHERE {
                break;
            }
        }
        node
    }

    fn two_places(&self, field: &StoredField) -> EventError {
        let name = |at| {
            let (from, to) = self.name(at);
            String::from_utf8_lossy(&self.names[from..to])
        };
        let path: Vec<_> = field.names.clone().map(name).collect();
        EventError {
            code: EventCode::BadValue,
            offset: None,
            place: Some(encode_pointer(&path).into()),
            reason: "a flattener gave one path of one element two places; put repeated names in an array".into(),
        }
    }
}

fn checked(length: usize) -> Result<u32, EventError> {
    u32::try_from(length).map_err(|_| EventError {
        code: EventCode::TooLong,
        offset: None,
        place: None,
        reason: "a flattener gave fields of more than 4 GiB".into(),
    })
}

/// The values at a path in one scope, the root or an element: values in this array, or the one value itself. All of
/// them lie in one place, as in JSON, whose names are unique (semantics.md section 5 decides each array by itself for
/// that).
#[derive(Debug, Default)]
pub(super) struct FieldPlaces(HashMap<(Position, u32), u32>);

const ITSELF: u32 = u32::MAX;

impl FieldPlaces {
    /// Add a value at a node; return false if the other values at the node lie elsewhere.
    fn take(&mut self, elements: &[ArrayElement], node: u32, position: Position) -> bool {
        let mut inner = position;
        while inner != Position::NONE {
            let ArrayElement { outer, array, .. } = elements[inner.0 as usize];
            if *self.0.entry((outer, node)).or_insert(array) != array {
                return false;
            }
            inner = outer;
        }
        self.0.insert((position, node), ITSELF).is_none()
    }
}

impl EventFields {
    /// See [`Flattener::flatten_fields`](super::Flattener::flatten_fields).
    pub(super) fn flatten<'a>(
        &'a self,
        trie: &'a PathTrie,
        entries: &'a mut Entries,
        places: &mut FieldPlaces,
        tenant: &'a str,
    ) -> Result<Flat<'a>, EventError> {
        entries.begin(trie.nodes.len());
        entries.elements.clear();
        entries.elements.extend_from_slice(&self.elements);
        places.0.clear();
        for field in &self.fields {
            let node = self.node(trie, field);
            if node == NOWHERE {
                continue;
            }
            let flags = trie.nodes[node as usize].flags;
            if flags & LEAVES == 0 && (flags & VALUE == 0 || field.position != Position::NONE) {
                continue;
            }
            if !places.take(&self.elements, node, field.position) {
                return Err(self.two_places(field));
            }
            entries.push(Entry {
                node,
                next: NO_ENTRY,
                start: field.value.start,
                end: field.value.end,
                position: field.position,
                plain: 0,
                plain_length: 0,
                kind: field.kind,
            });
        }
        let parts = Parts {
            tenant,
            collection: None,
            event_type: None,
            topic: self.topic.as_deref(),
            ts_ns: None,
            has_unknown: false,
            is_known_after: false,
            is_bare: false,
        };
        Ok(Flat {
            trie,
            entries,
            event: b"{}",
            text: &self.values,
            plain: "",
            parts,
            data: ALWAYS,
            before: ALWAYS,
            record: ALWAYS,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flatten::Flattener;
    use crate::layout::EventLayout;
    use crate::subscriptions::normal_form::{Mode, Path, Root};
    use crate::value::{Number, ScalarRef};
    use std::sync::Arc;

    fn trie(paths: &[&[&str]]) -> PathTrie {
        let mut builder = PathTrie::builder(Arc::new(EventLayout::default().without_parts()));
        for path in paths {
            let names: Vec<Box<str>> = path.iter().map(|name| Box::from(*name)).collect();
            builder.want(&Path::new(Root::Raw, &names), Mode::AnyLeaf);
        }
        builder.build()
    }

    #[test]
    fn what_is_pushed_is_found_by_its_path() {
        let trie = trie(&[&["a", "b"], &["c"]]);
        let mut fields = EventFields::default();
        let mut flattener = Flattener::new();
        for _ in 0..2 {
            fields.clear();
            let (zero, one) = (fields.element(Position::NONE, 7, 0), fields.element(Position::NONE, 7, 1));
            assert_eq!(zero, fields.element(Position::NONE, 7, 0));
            fields.push(["a", "b"], FieldValue::String("é\"\\"), zero).unwrap();
            fields.push(["a", "b"], FieldValue::Float(-1.5e300), one).unwrap();
            fields.push(["a"], FieldValue::Null, one).unwrap();
            fields.push(["c"], FieldValue::Integer(i128::from(u64::MAX)), Position::NONE).unwrap();
            let flat = flattener.flatten_fields(&trie, &fields, "t").unwrap();
            let found = |path| flat.leaves(crate::flatten::PathId(path)).map(|leaf| leaf.scalar()).collect::<Vec<_>>();
            let number = ScalarRef::Number(Number::from_f64(-1.5e300).unwrap());
            assert_eq!(found(0), [Some(ScalarRef::String("é\"\\")), Some(number)]);
            assert_eq!(found(1), [Some(ScalarRef::Number(Number::from_u64(u64::MAX)))]);
            assert!(!flat.consistent(zero, one) && flat.has_arrays());
        }
    }

    #[test]
    fn values_at_one_path_of_one_element_lie_in_one_place() {
        let trie = trie(&[&["a"]]);
        // Each value is in an element of an array, or in none.
        let cases = [
            ([None, None], false),
            ([None, Some((0, 0))], false),
            ([Some((0, 0)), None], false),
            ([Some((0, 0)), Some((1, 0))], false),
            ([Some((0, 0)), Some((0, 1))], true),
        ];
        for (places, is_good) in cases {
            let mut fields = EventFields::default();
            for place in places {
                let position = place.map_or(Position::NONE, |(array, index)| fields.element(Position::NONE, array, index));
                fields.push(["a"], FieldValue::Bool(true), position).unwrap();
            }
            assert_eq!(Flattener::new().flatten_fields(&trie, &fields, "t").is_ok(), is_good);
        }
    }
}
