//! A flattened event: its parts, and its [`Entries`] by path.

use super::entries::{DEAD, Entries, Entry, IS_RUN, Position, RUNS};
use super::trie::{ALWAYS, DATA, FALLBACK, PathId, PathTrie, ROOT, VALUE};
use crate::cel::Times;
use crate::json::skip;
use crate::json::token::{self, JsonFault, Strings, peek, space};
use crate::layout::EventType;
use crate::subscriptions::normal_form::Root;
use crate::value::{Kind, Number, ScalarRef};

/// The id of an event.
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
    /// The change of the document.
    pub event_type: Option<EventType>,
    /// The routing key.
    pub topic: Option<&'a str>,
    /// Source time, nanoseconds since the epoch. Lazy validation leaves it out.
    pub ts_ns: Option<i128>,
    /// Whether the event names values that its source did not carry (semantics.md section 8). Such an event is not for
    /// the index.
    pub has_unknown: bool,
    /// Whether all of those are `before` or below it: then the matches of the document after the change are certain.
    pub is_known_after: bool,
    /// Whether the layout finds no type and no document in the event, and no collection of its own.
    pub is_bare: bool,
}

/// A flattened event: its [`Entries`], by path.
#[derive(Clone, Copy, Debug)]
pub struct Flat<'a> {
    pub(crate) trie: &'a PathTrie,
    pub(crate) entries: &'a Entries,
    /// The event, as it is read: with encoded parts decoded, and `before` completed.
    pub(crate) event: &'a [u8],
    /// Its text, as far as it was read.
    pub(crate) text: &'a str,
    pub(crate) plain: &'a str,
    pub(crate) parts: Parts<'a>,
    /// The base of `data` and of `before` that counts; `ALWAYS` if there is no document.
    pub(crate) data: u16,
    pub(crate) before: u16,
    /// The index of the record among its places; `ALWAYS` if the event has none.
    pub(crate) record: u16,
}

/// The members of `data`, as far as they were wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WantedMembers<'a> {
    trie: &'a PathTrie,
    entries: &'a Entries,
    node: u32,
}

impl WantedMembers<'_> {
    /// The start of the value of the member *name*, if there is such a member; None if the member is not wanted.
    pub(crate) fn start(&self, name: &str) -> Option<Option<usize>> {
        let parent = &self.trie.nodes[self.node as usize];
        let node = self.trie.member(parent, name.as_bytes(), 0, name.len());
        let wanted = self.trie.nodes.get(node as usize)?.flags;
        let is_known = wanted & VALUE != 0 && (wanted | parent.flags) & FALLBACK == 0;
        is_known.then(|| self.entries.value(node).map(|entry| entry.start as usize))
    }
}

/// A value at a path.
#[derive(Clone, Copy, Debug)]
pub struct Leaf<'f> {
    flat: &'f Flat<'f>,
    at: LeafAt<'f>,
}

#[derive(Clone, Copy, Debug)]
enum LeafAt<'f> {
    Entry(&'f Entry),
    Text(&'f str),
    /// An element of a list, as it is written. Strings are texts.
    Element(&'f str, Kind),
    /// A scalar of a run, a string without escapes.
    InRun {
        start: u32,
        end: u32,
        position: Position,
        kind: Kind,
    },
}

/// Where a leaf stands: what finds it again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeafPlace {
    at: u32,
    position: u32,
}

/// The position of an element of a list whose elements are no leaves, and of what is kept elsewhere.
const IN_LIST: u32 = u32::MAX;
const APART: u32 = u32::MAX - 1;

impl LeafPlace {
    /// Stand for a leaf that is kept elsewhere, by a number.
    pub(crate) fn apart(number: u32) -> LeafPlace {
        LeafPlace { at: number, position: APART }
    }

    pub(crate) fn as_apart(self) -> Option<usize> {
        (self.position == APART).then_some(self.at as usize)
    }

    /// The place of an element of a list by [`LeafPlace::at_in_list`].
    pub(crate) fn in_list(at: u32, flat: &Flat<'_>) -> LeafPlace {
        if (at as usize) < flat.text.len() { LeafPlace { at, position: IN_LIST } } else { LeafPlace::apart(u32::MAX - at) }
    }

    /// The offset of an element of a list; beyond the text, from the end of the numbers down, for one that is kept elsewhere.
    pub(crate) fn at_in_list(self, flat: &Flat<'_>) -> u32 {
        let Some(number) = self.as_apart() else { return self.at };
        let at = u32::MAX - number as u32;
        assert!(at as usize >= flat.text.len(), "an escaped text takes eight bytes");
        at
    }
}

impl<'a> Flat<'a> {
    /// The parts of the event.
    pub fn parts(&self) -> &Parts<'a> {
        &self.parts
    }

    /// The event as it is read: the original, unless the layout has encoded parts, or a `before` to be completed.
    pub fn event(&self) -> &'a [u8] {
        self.event
    }

    /// Whether there is a document.
    pub fn has_data(&self) -> bool {
        self.data != ALWAYS
    }

    /// The paths that were wanted of the event.
    pub fn trie(&self) -> &'a PathTrie {
        self.trie
    }

    /// The wanted members of the document; None if it lies at a place of `before`.
    pub(crate) fn wanted_members(&self) -> Option<WantedMembers<'a>> {
        let place = self.trie.places[DATA].get(usize::from(self.data))?;
        Some(WantedMembers { trie: self.trie, entries: self.entries, node: place.node })
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
        let leaf = match self.node(path) {
            Ok(node) => LeafAt::Entry(self.entries.value(node)?),
            Err(text) => LeafAt::Text(text?),
        };
        Some(Leaf { flat: self, at: leaf })
    }

    /// A value of the kind [`Kind::Unreadable`] if a path leads below a number beyond float64.
    #[inline]
    pub fn unreadable(&self, path: PathId) -> Option<Leaf<'_>> {
        (self.entries.has_beyond && self.is_unreadable(path))
            .then_some(Leaf { flat: self, at: LeafAt::Element("", Kind::Unreadable) })
    }

    #[cold]
    fn is_unreadable(&self, path: PathId) -> bool {
        let Ok(mut node) = self.node(path) else { return false };
        while node != ROOT {
            node = self.trie.parents[node as usize];
            if self.entries.value(node).is_some_and(|entry| entry.kind == Kind::BeyondFloat) {
                return true;
            }
        }
        false
    }

    /// Every leaf at a path as patterns see it, in the order of the text.
    #[inline]
    pub fn leaves(&self, path: PathId) -> Leaves<'_> {
        match self.node(path) {
            Ok(node) => Leaves { flat: self, entry: self.entries.first(node), text: None, run: InRun::default() },
            Err(text) => Leaves { flat: self, entry: None, text, run: InRun::default() },
        }
    }

    /// Whether a path may have thousands of leaves.
    #[inline]
    pub(crate) fn may_have_many_leaves(&self) -> bool {
        self.entries.all.len() + self.entries.in_runs() as usize > MANY_LEAVES
    }

    /// The leaf at a place.
    pub(crate) fn leaf(&self, place: LeafPlace) -> Leaf<'_> {
        if place.position < RUNS {
            return Leaf { flat: self, at: LeafAt::Entry(&self.entries.all[place.at as usize]) };
        }
        let (end, kind) = value_at(self.text.as_bytes(), place.at as usize);
        let (start, end, position) = (place.at, end as u32, Position(place.position));
        let leaf = match place.position {
            IN_LIST if kind == Kind::String => LeafAt::Text(&self.text[start as usize + 1..end as usize - 1]),
            IN_LIST => LeafAt::Element(&self.text[start as usize..end as usize], kind),
            _ => LeafAt::InRun { start, end, position, kind },
        };
        Leaf { flat: self, at: leaf }
    }

    /// For a path that is compared with the document before, its path there.
    pub(crate) fn before_of(&self, path: PathId) -> Option<PathId> {
        self.trie.lookups[path.0 as usize].before
    }

    /// A `true` that is not written in the event.
    pub(crate) fn yes(&self) -> Leaf<'_> {
        Leaf { flat: self, at: LeafAt::Element("true", Kind::Bool) }
    }

    /// Whether any value lies in an array. If none does, leaves are always consistent.
    pub fn has_arrays(&self) -> bool {
        self.entries.elements.len() > 1
    }

    /// Call *visit* once with each path that has a value, a list, an object or a leaf. Paths that share a place are all
    /// visited, even if only another mode than theirs has a value there.
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
                        Root::Envelope => base == self.record,
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
            Root::Before if self.before != ALWAYS => u32::from(self.before) - self.trie.places[DATA].len() as u32,
            Root::Envelope if self.record != ALWAYS => u32::from(self.record),
            Root::Data | Root::Before | Root::Envelope => return Err(None),
            Root::Type => return Err(self.parts.event_type.map(EventType::as_str)),
            Root::Topic => return Err(self.parts.topic),
            Root::Collection => return Err(self.parts.collection),
            Root::Tenant => return Err(Some(self.parts.tenant)),
        };
        Ok(self.trie.nodes_of[(lookup.nodes + base) as usize])
    }

    /// The element that encloses the element at *position*.
    pub fn outer(&self, position: Position) -> Position {
        self.entries.element(position).outer
    }

    /// Which array the element at *position* belongs to, a number of its own for each array of the event.
    pub fn array(&self, position: Position) -> u32 {
        self.entries.element(position).array
    }

    /// How many names lead to the outermost array that *position* lies in; 0 if that is unknown, `u32::MAX` without
    /// one.
    #[inline]
    pub fn names_to_array(&self, position: Position) -> u32 {
        self.entries.element(position).names
    }

    /// In how many arrays *position* lies.
    pub fn depth(&self, position: Position) -> u32 {
        self.entries.element(position).depth
    }

    /// Whether two values can be chosen together: they never lie in different elements of one array.
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

/// The number of values from which a path may have many leaves.
const MANY_LEAVES: usize = 4096;

/// Iterator of [`Flat::leaves`].
#[derive(Clone, Copy, Debug)]
pub struct Leaves<'f> {
    flat: &'f Flat<'f>,
    entry: Option<&'f Entry>,
    text: Option<&'f str>,
    run: InRun,
}

/// The rest of a run: how many values, where the next one begins, and its position.
#[derive(Clone, Copy, Debug, Default)]
struct InRun {
    left: u32,
    at: u32,
    position: u32,
}

impl InRun {
    /// The next value of the run.
    #[inline]
    fn next<'f>(&mut self, flat: &'f Flat<'f>) -> Leaf<'f> {
        let text = flat.text.as_bytes();
        let (start, position) = (self.at, Position(self.position));
        let (end, kind) = value_at(text, start as usize);
        self.left -= 1;
        self.position += 1;
        self.at = space(text, space(text, end) + 1) as u32;
        Leaf { flat, at: LeafAt::InRun { start, end: end as u32, position, kind } }
    }
}

impl<'f> Iterator for Leaves<'f> {
    type Item = Leaf<'f>;

    #[inline]
    fn next(&mut self) -> Option<Leaf<'f>> {
        if self.run.left != 0 {
            return Some(self.run.next(self.flat));
        }
        while let Some(entry) = self.entry {
            self.entry = self.flat.entries.living(entry.next);
            if entry.plain == IS_RUN {
                self.run = InRun { left: entry.plain_length, at: entry.start, position: entry.position.0 };
                return Some(self.run.next(self.flat));
            }
            if !matches!(entry.kind, Kind::List | Kind::Map) {
                return Some(Leaf { flat: self.flat, at: LeafAt::Entry(entry) });
            }
        }
        self.text.take().map(|text| Leaf { flat: self.flat, at: LeafAt::Text(text) })
    }
}

impl<'f> Leaf<'f> {
    /// What kind of value it is; never [`Kind::Missing`].
    #[inline]
    pub fn kind(&self) -> Kind {
        match self.at {
            LeafAt::Entry(entry) => entry.kind,
            LeafAt::Text(_) => Kind::String,
            LeafAt::Element(_, kind) | LeafAt::InRun { kind, .. } => kind,
        }
    }

    /// Its position in arrays.
    #[inline]
    pub fn position(&self) -> Position {
        match self.at {
            LeafAt::Entry(entry) => entry.position,
            LeafAt::InRun { position, .. } => position,
            LeafAt::Text(_) | LeafAt::Element(..) => Position::NONE,
        }
    }

    /// The list that it is an element of, if nothing else is in the element: then an equal one of the list does as well.
    #[inline]
    pub(crate) fn list(&self) -> Option<u32> {
        match self.at {
            LeafAt::Entry(entry) if entry.position.0 < RUNS => None,
            _ => Some(self.flat.array(self.position())),
        }
    }

    /// Its text and what it is, if it has less than eight bytes in the event.
    #[inline]
    pub(crate) fn short_text(&self) -> Option<u64> {
        let length = self.raw().len();
        if length > 7 {
            return None;
        }
        let at = (self.raw().as_ptr() as usize).wrapping_sub(self.flat.text.as_ptr() as usize);
        let bytes = self.flat.text.as_bytes().get(at..)?.first_chunk::<8>()?;
        let text = u64::from_le_bytes(*bytes) & ((1 << (8 * length)) - 1);
        Some(text | (1 + length as u64 + 8 * u64::from(self.kind() == Kind::String)) << 56)
    }

    /// Where it stands; None if its text is not in the event.
    pub(crate) fn place(&self) -> Option<LeafPlace> {
        let entries = &self.flat.entries.all;
        let inside = |text: &str| {
            let at = (text.as_ptr() as usize).wrapping_sub(self.flat.text.as_ptr() as usize);
            (at < self.flat.text.len()).then_some(at as u32)
        };
        Some(match self.at {
            LeafAt::Entry(entry) => {
                let at = (std::ptr::from_ref(entry) as usize - entries.as_ptr() as usize) / size_of::<Entry>();
                LeafPlace { at: at as u32, position: entry.position.0 }
            }
            LeafAt::InRun { start, position, .. } => LeafPlace { at: start, position: position.0 },
            // From the quote on.
            LeafAt::Text(text) => LeafPlace { at: inside(text)?.checked_sub(1)?, position: IN_LIST },
            LeafAt::Element(text, _) => LeafPlace { at: inside(text)?, position: IN_LIST },
        })
    }

    /// The value as it is written in the event; of a part, or a string in a list, its text.
    #[inline]
    pub fn raw(&self) -> &'f str {
        match self.at {
            LeafAt::Entry(entry) => &self.flat.text[entry.start as usize..entry.end as usize],
            LeafAt::InRun { start, end, .. } => &self.flat.text[start as usize..end as usize],
            LeafAt::Text(text) | LeafAt::Element(text, _) => text,
        }
    }

    /// The text of a string, unescaped.
    #[inline]
    pub fn text(&self) -> Option<&'f str> {
        match self.at {
            LeafAt::Text(text) => Some(text),
            LeafAt::Element(..) => None,
            LeafAt::InRun { start, end, kind, .. } => {
                (kind == Kind::String).then(|| &self.flat.text[start as usize + 1..end as usize - 1])
            }
            LeafAt::Entry(entry) if entry.kind != Kind::String => None,
            LeafAt::Entry(entry) if entry.plain != 0 => {
                Some(&self.flat.plain[entry.plain as usize - 1..][..entry.plain_length as usize])
            }
            LeafAt::Entry(entry) => Some(&self.flat.text[entry.start as usize + 1..entry.end as usize - 1]),
        }
    }

    /// The number, parsed at each call.
    #[inline]
    pub fn number(&self) -> Option<Number> {
        if self.kind() == Kind::Number { Number::parse(self.raw().as_bytes()) } else { None }
    }

    /// The value as CEL's `timestamp(x)` or `duration(x)`, in nanoseconds; None if that is an error.
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
            Kind::Missing | Kind::BeyondFloat | Kind::List | Kind::Map | Kind::Unreadable => None,
        }
    }
}

impl<'f> Leaf<'f> {
    /// Call *visit* with each element of the list that it is, in order, or with the name of each member of the object
    /// that it is, if *names*. Most short elements that repeat the one before are not visited again.
    ///
    /// Return the number of elements or members, or None if it was read lazily and is malformed: then the visited ones do
    /// not count.
    pub(crate) fn for_each_element(&self, names: bool, visit: impl FnMut(Leaf<'f>)) -> Option<usize> {
        match self.kind() {
            Kind::List => self.read_elements(false, visit).ok(),
            Kind::Map if names => self.read_elements(true, visit).ok(),
            _ => Some(0),
        }
    }

    fn read_elements(&self, names: bool, mut visit: impl FnMut(Leaf<'f>)) -> Result<usize, JsonFault> {
        let (flat, raw) = (self.flat, self.raw());
        let text = raw.as_bytes();
        let (mut strings, mut open) = (Strings::default(), Vec::new());
        let mut at = space(text, 1);
        let mut is_done = matches!(peek(text, at), b']' | b'}');
        let mut count = 0;
        while !is_done {
            let (start, first) = (at, peek(text, at));
            let leaf = if first == b'"' {
                let (end, escaped) = strings.read(text, at)?;
                at = end;
                LeafAt::Text(if escaped { self.unescaped(&text[start + 1..end - 1]) } else { &raw[start + 1..end - 1] })
            } else {
                let kind = skip_value(text, &mut at, &mut strings, &mut open)?;
                LeafAt::Element(&raw[start..at], kind)
            };
            visit(Leaf { flat, at: leaf });
            if names {
                at = space(text, at);
                at = space(text, at + 1);
                skip_value(text, &mut at, &mut strings, &mut open)?;
            }
            at = space(text, at);
            is_done = peek(text, at) != b',';
            at = space(text, at + 1);
            let (next, repetitions) = if is_done { (at, 0) } else { token::repetitions(text, start, at) };
            at = next;
            count += 1 + repetitions;
        }
        Ok(count)
    }

    /// The plain text of the inside of a string with escapes.
    #[cold]
    fn unescaped(&self, inside: &[u8]) -> &'f str {
        let mut plain = Vec::with_capacity(inside.len());
        token::unescape(inside, &mut plain);
        // Unescaped it is as well-formed as it was.
        self.flat.entries.texts.keep(String::from_utf8(plain).unwrap_or_default().into())
    }
}

/// Where the value at *at* ends, which was read once before, and its kind.
fn value_at(text: &[u8], at: usize) -> (usize, Kind) {
    let read = || match peek(text, at) {
        b'"' => Ok((token::string(text, at)?.0, Kind::String)),
        b'[' => Ok((skip::trusted(text, at)?, Kind::List)),
        b'{' => Ok((skip::trusted(text, at)?, Kind::Map)),
        b'-' | b'0'..=b'9' => {
            let (end, beyond) = token::number(text, at)?;
            let is_beyond = beyond && Number::parse(&text[at..end]).is_none();
            Ok((end, if is_beyond { Kind::BeyondFloat } else { Kind::Number }))
        }
        first => Ok::<_, JsonFault>((token::literal(text, at)?, if first == b'n' { Kind::Null } else { Kind::Bool })),
    };
    read().unwrap_or((at, Kind::BeyondFloat))
}

/// Pass over the value at *at*, and return its kind.
#[inline]
fn skip_value(text: &[u8], at: &mut usize, strings: &mut Strings, open: &mut Vec<u64>) -> Result<Kind, JsonFault> {
    let start = *at;
    let kind;
    (*at, kind) = match peek(text, start) {
        b'"' => (strings.read(text, start)?.0, Kind::String),
        b'[' => (skip::checked(text, start, 0, usize::MAX, open)?, Kind::List),
        b'{' => (skip::checked(text, start, 0, usize::MAX, open)?, Kind::Map),
        b'-' | b'0'..=b'9' => {
            let (end, beyond) = token::number(text, start)?;
            let is_beyond = beyond && Number::parse(&text[start..end]).is_none();
            (end, if is_beyond { Kind::BeyondFloat } else { Kind::Number })
        }
        first => (token::literal(text, start)?, if first == b'n' { Kind::Null } else { Kind::Bool }),
    };
    Ok(kind)
}
