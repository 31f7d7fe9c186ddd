//! What one pass over an event found: for each wanted path its values, where they stand and in which elements of arrays.
//!
//! The wrong match that this prevents. For the pattern `{"a": {"b": [1], "c": [4]}}` the event
//!
//! ```json
//! {"a": [{"b": 1, "c": 2}, {"b": 3, "c": 4}]}
//! ```
//!
//! has a leaf `a.b` = 1 and a leaf `a.c` = 4, yet no element of `a` has both. So each value keeps its *position*: the
//! elements it lies in, a chain from the innermost element outwards.
//!
//! ```text
//!   entries    [ a.b=1 @1 ][ a.c=2 @1 ][ a.b=3 @2 ][ a.c=4 @2 ]        linked by node: a.b: 0 -> 2, a.c: 1 -> 3
//!   positions  0: no array   1: {outer: 0, array: 7, element: 0}   2: {outer: 0, array: 7, element: 1}
//! ```
//!
//! Invariant: the entries of a node are linked in the order of the text, and those that a later duplicate replaced are
//! marked dead. A value without an array on the way is unique among the living entries of its node and comes before those
//! inside it, as a list comes before its elements. A position is made once for each element, so two values lie in the same
//! element if and only if they share the position.
//!
//! Cost: 28 bytes a value found. Nothing is cleared between events: what is older than the event's stamp is not there.
//!
//! Rejected: a map from path to values for each event (allocates), and a fixed slot for each path (an array may put any
//! number of values at a path).

use super::trie::{ALWAYS, PathTrie};
use crate::cel::Times;
use crate::layout::{EventType, Pointer};
use crate::subscriptions::normal_form::Root;
use crate::value::{Kind, Number, ScalarRef};

/// A wanted path of a [`PathTrie`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PathId(pub u32);

/// In which element of which arrays a value lies; [`Position::NONE`] is in no array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Position(pub(crate) u32);

impl Position {
    /// In no array.
    pub const NONE: Position = Position(0);
}

/// One element of one array.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Element {
    pub(crate) outer: Position,
    /// Which array of the event, a serial number.
    pub(crate) array: u32,
    pub(crate) depth: u32,
}

pub(crate) const NO_ENTRY: u32 = u32::MAX;
pub(crate) const DEAD: u32 = u32::MAX;

/// A value that was found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// Its node of the trie, or DEAD.
    pub(crate) node: u32,
    pub(crate) next: u32,
    pub(crate) start: u32,
    pub(crate) end: u32,
    pub(crate) position: Position,
    /// Of a string with escapes: where its plain text begins, plus one, and its length; else 0.
    pub(crate) plain: u32,
    pub(crate) plain_length: u32,
    pub(crate) kind: Kind,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Head {
    pub(crate) stamp: u64,
    pub(crate) first: u32,
    pub(crate) last: u32,
}

/// The scratch of one flattening after another. One for each thread; it grows to the largest event and trie it has seen.
#[derive(Debug, Default)]
pub struct Entries {
    pub(crate) all: Vec<Entry>,
    pub(crate) heads: Vec<Head>,
    pub(crate) elements: Vec<Element>,
    /// Unescaped strings, one after the other.
    pub(crate) plain: Vec<u8>,
    pub(crate) stamp: u64,
    /// Unknown values that the layout tells of; whether it is an update without `before` that may have had one, or a delete of whose
    /// document no more is known than `before` holds; whether nothing else than `before` has unknown values.
    pub(crate) unknown: Vec<Pointer>,
    pub(crate) untold: bool,
    pub(crate) is_partial_delete: bool,
    pub(crate) only_before: bool,
    /// Where `before` ended in the event, of a layout that completes it.
    pub(crate) before_end: u32,
}

impl Entries {
    pub(crate) fn begin(&mut self, nodes: usize) {
        self.all.clear();
        self.elements.clear();
        self.elements.push(Element { outer: Position::NONE, array: u32::MAX, depth: 0 });
        self.plain.clear();
        self.unknown.clear();
        (self.untold, self.is_partial_delete, self.only_before, self.before_end) = (false, false, false, 0);
        self.stamp += 1;
        if self.heads.len() < nodes {
            self.heads.resize(nodes, Head::default());
        }
    }

    /// Add an entry at the end of its node's list.
    #[inline]
    pub(crate) fn push(&mut self, entry: Entry) -> u32 {
        let index = self.all.len() as u32;
        let head = &mut self.heads[entry.node as usize];
        if head.stamp == self.stamp {
            self.all[head.last as usize].next = index;
            head.last = index;
        } else {
            *head = Head { stamp: self.stamp, first: index, last: index };
        }
        self.all.push(entry);
        index
    }

    /// The first living entry of a node.
    #[inline]
    pub(crate) fn first(&self, node: u32) -> Option<&Entry> {
        let head = &self.heads[node as usize];
        if head.stamp != self.stamp {
            return None;
        }
        let entry = &self.all[head.first as usize];
        if entry.node == DEAD { self.living(entry.next) } else { Some(entry) }
    }

    fn living(&self, mut index: u32) -> Option<&Entry> {
        while index != NO_ENTRY {
            let entry = &self.all[index as usize];
            if entry.node != DEAD {
                return Some(entry);
            }
            index = entry.next;
        }
        None
    }

    /// The living value of a node that stands in no array.
    #[inline]
    pub(crate) fn value(&self, node: u32) -> Option<&Entry> {
        self.first(node).filter(|entry| entry.position == Position::NONE)
    }
}

/// What names an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventId<'a> {
    /// A string.
    Text(&'a str),
    /// An integer of 64 bits, with a sign or without.
    Integer(i128),
}

/// The parts of an event, resolved through its layout.
#[derive(Clone, Copy, Debug)]
pub struct Parts<'a> {
    /// Whose event it is: the argument, else the event's, else the default.
    pub tenant: &'a str,
    /// Which collection: the argument, else the event's.
    pub collection: Option<&'a str>,
    /// What happened.
    pub event_type: Option<EventType>,
    /// The routing key.
    pub topic: Option<&'a str>,
    /// Source time, nanoseconds since the epoch. None also under lazy validation.
    pub ts_ns: Option<i128>,
    /// Whether the event names values that its source did not carry (semantics.md section 8). Such an event is not for
    /// the index.
    pub has_unknown: bool,
    /// Whether all of those are `before` or below it: what the index finds of the document after the change is certain.
    pub is_known_after: bool,
    /// Whether the layout finds no type and no document in the event, and no collection of its own.
    pub is_bare: bool,
}

/// A flattened event: what [`Entries`] hold of it, by path.
#[derive(Clone, Copy, Debug)]
pub struct Flat<'a> {
    pub(crate) trie: &'a PathTrie,
    pub(crate) entries: &'a Entries,
    /// The event, as it is read: with encoded parts decoded, and `before` completed.
    pub(crate) event: &'a [u8],
    /// That, as far as it was read.
    pub(crate) text: &'a str,
    pub(crate) plain: &'a str,
    pub(crate) parts: Parts<'a>,
    /// Which base of `data` and of `before` counts; `ALWAYS` where there is no document.
    pub(crate) data: u16,
    pub(crate) before: u16,
}

/// A value at a path.
#[derive(Clone, Copy, Debug)]
pub struct Leaf<'f> {
    flat: &'f Flat<'f>,
    found: Found<'f>,
}

#[derive(Clone, Copy, Debug)]
enum Found<'f> {
    Entry(&'f Entry),
    Text(&'f str),
}

impl<'a> Flat<'a> {
    /// The parts of the event.
    pub fn parts(&self) -> &Parts<'a> {
        &self.parts
    }

    /// The event as it is read: that which was given, save where the layout has encoded parts, or a `before` to be completed.
    pub fn event(&self) -> &'a [u8] {
        self.event
    }

    /// Whether there is a document.
    pub fn has_data(&self) -> bool {
        self.data != ALWAYS
    }

    /// What was wanted of the event.
    pub fn trie(&self) -> &'a PathTrie {
        self.trie
    }

    /// Whether the event carries the document before the change.
    pub fn has_before(&self) -> bool {
        self.before != ALWAYS
    }

    /// How many paths there are; ids are below it.
    pub fn paths(&self) -> usize {
        self.trie.paths()
    }

    /// The one value at a path as CEL sees it; `None` is [`Kind::Missing`].
    #[inline]
    pub fn value(&self, path: PathId) -> Option<Leaf<'_>> {
        let found = match self.node(path) {
            Ok(node) => Found::Entry(self.entries.value(node)?),
            Err(text) => Found::Text(text?),
        };
        Some(Leaf { flat: self, found })
    }

    /// Every leaf at a path as patterns see it, in the order of the text.
    #[inline]
    pub fn leaves(&self, path: PathId) -> Leaves<'_> {
        match self.node(path) {
            Ok(node) => Leaves { flat: self, entry: self.entries.first(node), text: None },
            Err(text) => Leaves { flat: self, entry: None, text },
        }
    }

    /// Whether any value lies in an array. If none does, leaves are always consistent.
    pub fn has_arrays(&self) -> bool {
        self.entries.elements.len() > 1
    }

    /// Call *visit* with each path at which there is anything, once each: a value, a list, an object or a leaf. Paths that
    /// share a place are all named, also where only another mode than theirs sees something there.
    pub fn present(&self, mut visit: impl FnMut(PathId)) {
        for (index, entry) in self.entries.all.iter().enumerate() {
            if entry.node == DEAD || self.entries.heads[entry.node as usize].first != index as u32 && !self.is_first(entry) {
                continue;
            }
            for output in self.trie.outputs_of(entry.node) {
                let counts = match output.base {
                    ALWAYS => true,
                    base => match self.trie.lookups[output.path.0 as usize].root {
                        Root::Before => base == self.before,
                        _ => base == self.data,
                    },
                };
                if counts {
                    visit(output.path);
                }
            }
        }
        let parts = &self.parts;
        let texts = [parts.event_type.is_some(), parts.topic.is_some(), parts.collection.is_some(), true];
        for (path, is_there) in self.trie.part_paths.into_iter().zip(texts) {
            if let (Some(path), true) = (path, is_there) {
                visit(path);
            }
        }
    }

    /// Whether it is its node's first living entry.
    fn is_first(&self, entry: &Entry) -> bool {
        self.entries.first(entry.node).is_some_and(|first| std::ptr::eq(first, entry))
    }

    /// The node of a path for this event, or the text of a part.
    #[inline]
    fn node(&self, path: PathId) -> Result<u32, Option<&'a str>> {
        let lookup = self.trie.lookups[path.0 as usize];
        let base = match lookup.root {
            Root::Raw => 0,
            Root::Data if self.data != ALWAYS => u32::from(self.data),
            Root::Before if self.before != ALWAYS => u32::from(self.before) - self.trie.places[super::trie::DATA].len() as u32,
            Root::Data | Root::Before => return Err(None),
            Root::Type => return Err(self.parts.event_type.map(EventType::as_str)),
            Root::Topic => return Err(self.parts.topic),
            Root::Collection => return Err(self.parts.collection),
            Root::Tenant => return Err(Some(self.parts.tenant)),
        };
        Ok(self.trie.nodes_of[(lookup.nodes + base) as usize])
    }

    /// The element that encloses the element at *position*.
    pub fn outer(&self, position: Position) -> Position {
        self.entries.elements[position.0 as usize].outer
    }

    /// Which array the element at *position* belongs to, a number of its own for each array of the event.
    pub fn array(&self, position: Position) -> u32 {
        self.entries.elements[position.0 as usize].array
    }

    /// In how many arrays *position* lies.
    pub fn depth(&self, position: Position) -> u32 {
        self.entries.elements[position.0 as usize].depth
    }

    /// Whether two values can be chosen together: no array holds both in different elements.
    pub fn consistent(&self, one: Position, other: Position) -> bool {
        let (mut one, mut other) = (one, other);
        while self.depth(one) > self.depth(other) {
            one = self.outer(one);
        }
        while self.depth(other) > self.depth(one) {
            other = self.outer(other);
        }
        let mut apart = false;
        while one != other {
            apart = self.array(one) == self.array(other);
            one = self.outer(one);
            other = self.outer(other);
        }
        !apart
    }
}

/// Iterator of [`Flat::leaves`].
#[derive(Clone, Copy, Debug)]
pub struct Leaves<'f> {
    flat: &'f Flat<'f>,
    entry: Option<&'f Entry>,
    text: Option<&'f str>,
}

impl<'f> Iterator for Leaves<'f> {
    type Item = Leaf<'f>;

    #[inline]
    fn next(&mut self) -> Option<Leaf<'f>> {
        while let Some(entry) = self.entry {
            self.entry = self.flat.entries.living(entry.next);
            if !matches!(entry.kind, Kind::List | Kind::Map) {
                return Some(Leaf { flat: self.flat, found: Found::Entry(entry) });
            }
        }
        self.text.take().map(|text| Leaf { flat: self.flat, found: Found::Text(text) })
    }
}

impl<'f> Leaf<'f> {
    /// What kind of value it is; never [`Kind::Missing`].
    #[inline]
    pub fn kind(&self) -> Kind {
        match self.found {
            Found::Entry(entry) => entry.kind,
            Found::Text(_) => Kind::String,
        }
    }

    /// Where it lies in arrays.
    #[inline]
    pub fn position(&self) -> Position {
        match self.found {
            Found::Entry(entry) => entry.position,
            Found::Text(_) => Position::NONE,
        }
    }

    /// The value as it is written in the event; of a part, its text.
    pub fn raw(&self) -> &'f str {
        match self.found {
            Found::Entry(entry) => &self.flat.text[entry.start as usize..entry.end as usize],
            Found::Text(text) => text,
        }
    }

    /// The text of a string, unescaped.
    #[inline]
    pub fn text(&self) -> Option<&'f str> {
        match self.found {
            Found::Text(text) => Some(text),
            Found::Entry(entry) if entry.kind != Kind::String => None,
            Found::Entry(entry) if entry.plain != 0 => {
                Some(&self.flat.plain[entry.plain as usize - 1..][..entry.plain_length as usize])
            }
            Found::Entry(entry) => Some(&self.flat.text[entry.start as usize + 1..entry.end as usize - 1]),
        }
    }

    /// The number, parsed anew each time.
    #[inline]
    pub fn number(&self) -> Option<Number> {
        if self.kind() == Kind::Number { Number::parse(self.raw().as_bytes()) } else { None }
    }

    /// What CEL's `timestamp(x)` or `duration(x)` makes of the value, in nanoseconds; None where that is an error.
    pub fn time(&self, of: Times) -> Option<Number> {
        let text = self.text();
        of.read(self.kind(), text.unwrap_or_else(|| self.raw()))
    }

    /// The scalar it is; `None` for lists, objects and numbers beyond float64.
    #[inline]
    pub fn scalar(&self) -> Option<ScalarRef<'f>> {
        match self.kind() {
            Kind::Null => Some(ScalarRef::Null),
            Kind::Bool => Some(ScalarRef::Bool(self.raw() == "true")),
            Kind::Number => self.number().map(ScalarRef::Number),
            Kind::String => self.text().map(ScalarRef::String),
            Kind::Missing | Kind::BeyondFloat | Kind::List | Kind::Map => None,
        }
    }
}
