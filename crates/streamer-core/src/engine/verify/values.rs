//! The values of one event at the paths that the index asks for, each read, parsed and hashed once.
//!
//! A value takes some hundred bytes here. Where a path has thousands, as in a long list, only the place of each is kept, and its
//! hash: most are compared with a hash and never looked at again. A value that is needed again is read again.
//!
//! ```text
//!   position 0 .. 2^30      LeafValue: kind, scalar, hash, leaf
//!   position 2^30 .. 2^31   OneElement: offset, hash               12 bytes
//!   position 2^31 ..        OneLeaf: place, half a hash            12 bytes
//! ```

use crate::automaton::literals;
use crate::automaton::trees::hash_of_text;
use crate::engine::verify::element_choice::ChoiceScratch;
use crate::engine::verify::encoded::FastHash;
use crate::engine::verify::whole_subscriptions::differ;
use crate::flatten::{Flat, Leaf, LeafPlace, PathId, Position};
use crate::json;
use crate::subscriptions::normal_form::Mode;
use crate::value::{Kind, ScalarRef, Seed, Value};
use crate::watch::spend;
use hashbrown::HashTable;
use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

/// A value that was read.
#[derive(Clone, Copy, Debug)]
pub struct LeafValue<'f> {
    /// The kind of value.
    pub kind: Kind,
    /// The scalar it is; None for lists, objects and numbers beyond float64.
    pub scalar: Option<ScalarRef<'f>>,
    /// The scalar's hash under the engine's seed; of a list or an object 0 until [`Values::tree_hash`] has read it.
    pub hash: u64,
    /// Its leaf in the event.
    pub leaf: Leaf<'f>,
}

/// A leaf at a path that has thousands.
#[derive(Clone, Copy, Debug)]
struct OneLeaf {
    place: LeafPlace,
    hash: u32,
}

/// An element of a list of thousands.
#[derive(Clone, Copy, Debug)]
struct OneElement {
    /// Where it stands; from the end of the numbers down, its place in [`Rare::apart`].
    at: u32,
    /// The two halves of its hash, see [`LeafValue::hash`].
    hash: [u32; 2],
}

impl OneElement {
    fn hash(self) -> u64 {
        u64::from(self.hash[1]) << 32 | u64::from(self.hash[0])
    }
}

/// The position of the first leaf, and of the first element, of these.
const LEAVES: usize = 1 << 31;
const ELEMENTS: usize = 1 << 30;
/// So many are read as any.
const FEW_VALUES: usize = 1 << 12;
/// The elements of a list whose text is shorter are as few.
const LONG_LIST: usize = 1 << 13;

/// All of these. They are never copied to make room for more.
#[derive(Debug)]
struct Many<T> {
    chunks: Vec<Vec<T>>,
    length: usize,
}

impl<T> Default for Many<T> {
    fn default() -> Many<T> {
        Many { chunks: Vec::new(), length: 0 }
    }
}

const CHUNK: usize = 1 << 12;

impl<T: Copy> Many<T> {
    fn push(&mut self, one: T) {
        if self.length.is_multiple_of(CHUNK) {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        self.chunks[self.length / CHUNK].push(one);
        self.length += 1;
    }

    #[inline]
    fn get(&self, number: usize) -> T {
        self.chunks[number / CHUNK][number % CHUNK]
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct ValuesAt {
    stamp: u64,
    start: u32,
    end: u32,
    /// See [`Values::names_to_array`], or [`UNREAD`].
    names_to_array: u32,
}

/// More names than any value has.
const UNREAD: u32 = u32::MAX - 1;

/// Buffers that are kept between events to save allocations.
#[derive(Debug, Default)]
pub struct ValuesScratch {
    values: Vec<LeafValue<'static>>,
    ranges: Vec<ValuesAt>,
    stamp: u64,
    buffers: Option<Box<Buffers>>,
}

/// The buffers that few events use: a pointer to them is moved between the scratch and the event.
#[derive(Debug, Default)]
struct Buffers {
    present: Vec<PathId>,
    literals: literals::SeenLiterals,
    choice: ChoiceScratch,
}

/// The rest of the values of an event: what few events have, and few subscriptions compare.
#[derive(Debug, Default)]
struct Rare<'f> {
    leaves: Many<OneLeaf>,
    elements: Many<OneElement>,
    /// Those of them whose text is not in the event.
    apart: Vec<Leaf<'f>>,
    trees: HashMap<usize, Option<Rc<Value>>, FastHash>,
    sizes: HashMap<usize, Option<u32>, FastHash>,
}

/// The values of one event. See the head of this file.
#[derive(Debug)]
pub struct Values<'f> {
    flat: &'f Flat<'f>,
    seed: &'f Seed,
    values: Vec<LeafValue<'f>>,
    ranges: Vec<ValuesAt>,
    stamp: u64,
    present_is_known: bool,
    /// Most events have none of it.
    rare: Option<Box<Rare<'f>>>,
    buffers: Option<Box<Buffers>>,
}

impl<'f> LeafValue<'f> {
    fn new(leaf: Leaf<'f>, seed: &Seed) -> LeafValue<'f> {
        let scalar = leaf.scalar();
        LeafValue { kind: leaf.kind(), scalar, hash: scalar.map_or(0, |scalar| scalar.hash(seed)), leaf }
    }
}

impl<'f> Values<'f> {
    /// Begin with an event; give the scratch back with [`Values::end`].
    pub fn begin(flat: &'f Flat<'f>, seed: &'f Seed, scratch: &mut ValuesScratch) -> Values<'f> {
        let mut ranges = std::mem::take(&mut scratch.ranges);
        if ranges.len() < flat.paths() * Mode::ALL.len() {
            ranges.resize(flat.paths() * Mode::ALL.len(), ValuesAt::default());
        }
        scratch.stamp += 1;
        Values {
            flat,
            seed,
            values: recycle(std::mem::take(&mut scratch.values)),
            ranges,
            stamp: scratch.stamp,
            present_is_known: false,
            rare: None,
            buffers: scratch.buffers.take(),
        }
    }

    /// Give the scratch back.
    pub fn end(self, scratch: &mut ValuesScratch) {
        scratch.values = recycle(self.values);
        scratch.ranges = self.ranges;
        scratch.buffers = self.buffers;
    }

    /// Scratch of automata over texts.
    pub(super) fn literals(&mut self) -> &mut literals::SeenLiterals {
        &mut self.buffers.get_or_insert_default().literals
    }

    /// Scratch of patterns over arrays.
    pub(super) fn choice(&mut self) -> &mut ChoiceScratch {
        &mut self.buffers.get_or_insert_default().choice
    }

    /// The seed of the scalars' hashes.
    pub fn seed(&self) -> &'f Seed {
        self.seed
    }

    /// The event.
    pub fn flat(&self) -> &'f Flat<'f> {
        self.flat
    }

    /// The values at a path, as positions for [`Values::get`]: at most one as a scalar, any number of leaves or elements.
    #[inline]
    pub fn at(&mut self, path: PathId, mode: Mode) -> Range<usize> {
        let range = self.ranges[place(path, mode)];
        if range.stamp == self.stamp { range.start as usize..range.end as usize } else { self.read(path, mode) }
    }

    /// The fewest names that lead to an array around a leaf at a path; `u32::MAX` if none lies in an array.
    #[inline]
    pub fn names_to_array(&mut self, path: PathId) -> u32 {
        let at = self.at(path, Mode::AnyLeaf);
        let place = place(path, Mode::AnyLeaf);
        if self.ranges[place].names_to_array == UNREAD {
            let names = |at| self.flat.names_to_array(self.array_position(at));
            self.ranges[place].names_to_array = at.map(names).min().unwrap_or(u32::MAX);
        }
        self.ranges[place].names_to_array
    }

    fn read(&mut self, path: PathId, mode: Mode) -> Range<usize> {
        let (flat, seed) = (self.flat, self.seed);
        // Check this first, since it reads other paths.
        let is_changed = mode == Mode::Changed && self.has_changed(path);
        let start = self.values.len();
        let value_of = |leaf| LeafValue::new(leaf, seed);
        let mut at = None;
        match mode {
            Mode::Scalar => self.values.extend(flat.value(path).or_else(|| flat.unreadable(path)).map(value_of)),
            Mode::AnyLeaf => match flat.may_have_many_leaves() {
                true => at = self.read_many(LEAVES, |visit| flat.leaves(path).for_each(visit)),
                false => self.values.extend(flat.leaves(path).map(value_of)),
            },
            Mode::Element | Mode::Member => match flat.value(path) {
                Some(leaf) if leaf.raw().len() < LONG_LIST => {
                    read_elements(leaf, mode == Mode::Member, &mut self.values, seed, value_of);
                }
                Some(list) => {
                    let is_member = mode == Mode::Member;
                    let mut is_whole = true;
                    at = self.read_many(ELEMENTS, |visit| is_whole = list.for_each_element(is_member, visit).is_some());
                    if !is_whole {
                        self.values.truncate(start);
                        at = None;
                    }
                }
                None => {}
            },
            Mode::Changed => {
                if is_changed {
                    self.values.push(value_of(flat.yes()));
                }
            }
        }
        let at = at.unwrap_or(start..self.values.len());
        self.ranges[place(path, mode)] =
            ValuesAt { stamp: self.stamp, start: at.start as u32, end: at.end as u32, names_to_array: UNREAD };
        at
    }

    /// Read what *each* visits: leaves of one path, or elements of one list. Of thousands only the places are kept, which
    /// are returned, from *list* on; None if they are fewer, which are then behind those that were read before.
    #[cold]
    fn read_many(&mut self, list: usize, each: impl FnOnce(&mut dyn FnMut(Leaf<'f>))) -> Option<Range<usize>> {
        let (flat, seed) = (self.flat, self.seed);
        let Values { values, rare, .. } = self;
        let rare = &mut **rare.get_or_insert_default();
        let (first, start) = (values.len(), rare.many(list));
        let mut repeats = Repeats::default();
        let mut count = 0;
        let mut are_many = false;
        each(&mut |leaf| {
            count += 1;
            if repeats.has_short(leaf) {
                return;
            }
            let value = LeafValue::new(leaf, seed);
            if are_many {
                return rare.add(flat, seed, list, &mut repeats, &value);
            }
            values.push(value);
            if values.len() - first == FEW_VALUES {
                are_many = true;
                values.drain(first..).for_each(|value| rare.add(flat, seed, list, &mut repeats, &value));
            }
        });
        spend(count / 16);
        are_many.then(|| start..rare.many(list))
    }

    /// Of an event with a position of one of many.
    fn rare(&self) -> &Rare<'f> {
        self.rare.as_deref().expect("one of many was read")
    }

    /// Whether the document and the one before differ at a path in the mode [`Mode::Changed`].
    fn has_changed(&mut self, path: PathId) -> bool {
        let Some(before) = self.flat.before_of(path) else { return false };
        let (before, now) = (self.at(before, Mode::Scalar), self.at(path, Mode::Scalar));
        differ(before, now, self)
    }

    /// A value by its position.
    #[inline]
    pub fn get(&self, position: usize) -> LeafValue<'f> {
        match self.values.get(position) {
            Some(value) => *value,
            None => self.rare().read(position, self.flat, self.seed),
        }
    }

    /// The hash of a value by its position, if it is a scalar.
    #[inline]
    pub fn scalar_hash(&self, position: usize) -> Option<u64> {
        if self.values.len() <= position && position < LEAVES {
            let hash = self.rare().elements.get(position - ELEMENTS).hash();
            if hash != 0 {
                return Some(hash);
            }
        }
        let LeafValue { scalar, hash, .. } = self.get(position);
        scalar.map(|_| hash)
    }

    /// What kind of value there is at a position.
    #[inline]
    pub fn kind(&self, position: usize) -> Kind {
        self.values.get(position).map_or_else(|| self.rare().kind(position, self.flat), |value| value.kind)
    }

    /// Whether a value, by its position, may be the scalar of a hash. If not, it is another one.
    #[inline]
    pub fn may_be(&self, position: usize, hash: u64) -> bool {
        match self.values.get(position) {
            Some(value) => value.hash == hash,
            None if position < LEAVES => self.rare().elements.get(position - ELEMENTS).hash() == hash,
            None => self.rare().leaves.get(position - LEAVES).hash == hash as u32,
        }
    }

    /// In which element a value lies, by its position.
    fn array_position(&self, position: usize) -> Position {
        match self.values.get(position) {
            Some(value) => value.leaf.position(),
            None => self.rare().leaf(position, self.flat).position(),
        }
    }

    /// A list or an object by its position, as a tree; None if it is neither, or lazily read and malformed.
    pub fn tree(&mut self, position: usize) -> Option<&Value> {
        self.tree_of(position).as_deref()
    }

    /// The result of [`Values::tree`], to keep while another one is read.
    pub fn shared_tree(&mut self, position: usize) -> Option<Rc<Value>> {
        self.tree_of(position).clone()
    }

    fn tree_of(&mut self, position: usize) -> &Option<Rc<Value>> {
        let value = self.get(position);
        let read = || {
            let options = json::ParseOptions { max_depth: usize::MAX, max_bytes: usize::MAX };
            matches!(value.kind, Kind::List | Kind::Map)
                .then(|| json::parse(value.leaf.raw().as_bytes(), options).ok().map(Rc::new))?
        };
        self.rare.get_or_insert_default().trees.entry(position).or_insert_with(read)
    }

    /// The hash of a list or an object by its position, see [`trees`](crate::automaton::trees); None if it is lazily read and
    /// malformed.
    pub fn tree_hash(&mut self, position: usize) -> Option<u64> {
        let LeafValue { hash, leaf, .. } = self.get(position);
        if hash != 0 {
            return Some(hash);
        }
        let hash = hash_of_text(leaf.raw(), self.seed)?;
        // Of one of thousands it is read again by each segment.
        if let Some(value) = self.values.get_mut(position) {
            value.hash = hash;
        }
        Some(hash)
    }

    /// How many characters, elements or members a value has; None if it has no size, or is lazily read and malformed.
    pub fn size(&mut self, position: usize) -> Option<u32> {
        if let Some(known) = self.rare.as_ref().and_then(|rare| rare.sizes.get(&position)) {
            return *known;
        }
        let LeafValue { kind, scalar, leaf, .. } = self.get(position);
        let size = match (kind, scalar) {
            (Kind::String, Some(ScalarRef::String(text))) => {
                spend(text.len() >> 10);
                Some(text.chars().count())
            }
            (Kind::List, _) => leaf.for_each_element(false, |_| {}),
            // Names may repeat.
            (Kind::Map, _) => {
                self.tree(position).and_then(|tree| if let Value::Map(members) = tree { Some(members.len()) } else { None })
            }
            _ => None,
        };
        let size = size.and_then(|size| u32::try_from(size).ok());
        self.rare.get_or_insert_default().sizes.insert(position, size);
        size
    }

    /// Find the paths at which there is anything, for [`Values::present`].
    pub fn find_present(&mut self) {
        if !self.present_is_known {
            self.present_is_known = true;
            let Buffers { present, .. } = &mut **self.buffers.get_or_insert_default();
            present.clear();
            self.flat.present(|path| present.push(path));
        }
    }

    /// The paths at which there is anything.
    pub fn present(&self) -> &[PathId] {
        self.buffers.as_ref().map_or(&[], |buffers| buffers.present.as_slice())
    }
}

/// The index of the values at a path in a mode.
#[inline]
fn place(path: PathId, mode: Mode) -> usize {
    path.0 as usize * Mode::ALL.len() + mode as usize
}

impl<'f> Rare<'f> {
    /// The position of the next leaf or element, by the first one's.
    fn many(&self, list: usize) -> usize {
        list + if list == LEAVES { self.leaves.length } else { self.elements.length }
    }

    /// The leaf of one of many.
    fn leaf(&self, position: usize, flat: &'f Flat<'f>) -> Leaf<'f> {
        let place = if position < LEAVES {
            let at = self.elements.get(position - ELEMENTS).at;
            LeafPlace::in_list(at, flat)
        } else {
            self.leaves.get(position - LEAVES).place
        };
        place.as_apart().map_or_else(|| flat.leaf(place), |number| self.apart[number])
    }

    fn kind(&self, position: usize, flat: &'f Flat<'f>) -> Kind {
        if position < LEAVES {
            let one = self.elements.get(position - ELEMENTS);
            match flat.text.as_bytes().get(one.at as usize) {
                None | Some(b'"') => return Kind::String,
                Some(b'-' | b'0'..=b'9') if one.hash() != 0 => return Kind::Number,
                _ => {}
            }
        }
        self.leaf(position, flat).kind()
    }

    /// Read one of many again.
    #[cold]
    fn read(&self, position: usize, flat: &'f Flat<'f>, seed: &Seed) -> LeafValue<'f> {
        let leaf = self.leaf(position, flat);
        if position >= LEAVES {
            return LeafValue::new(leaf, seed);
        }
        let hash = self.elements.get(position - ELEMENTS).hash();
        LeafValue { kind: leaf.kind(), scalar: leaf.scalar(), hash, leaf }
    }

    /// Keep the place of a value, unless an equal one of the same list was added lately.
    fn add(&mut self, flat: &'f Flat<'f>, seed: &Seed, which: usize, repeats: &mut Repeats, value: &LeafValue<'f>) {
        let leaf = value.leaf;
        let hash = if value.scalar.is_some() { value.hash } else { seed.hash_bytes(leaf.raw().as_bytes()) };
        if let Some(list) = leaf.list().filter(|_| leaf.short_text().is_none()) {
            let position = self.many(which);
            let is_same = |other| {
                let other = self.leaf(other as usize, flat);
                other.kind() == value.kind && other.raw() == leaf.raw() && other.list() == Some(list)
            };
            if repeats.has_long(hash as u32, position as u32, is_same) {
                return;
            }
        }
        let place = leaf.place().unwrap_or_else(|| {
            self.apart.push(leaf);
            LeafPlace::apart(self.apart.len() as u32 - 1)
        });
        if which == LEAVES {
            self.leaves.push(OneLeaf { place, hash: hash as u32 });
        } else {
            let hash = [value.hash as u32, (value.hash >> 32) as u32];
            self.elements.push(OneElement { at: place.at_in_list(flat), hash });
        }
    }
}

/// The elements of long lists that were read lately, to leave out those that repeat one.
#[derive(Default)]
struct Repeats {
    /// Short texts, each with its list.
    short: Vec<(u64, u32)>,
    /// The hash and the position of each.
    long: Vec<(u32, u32)>,
}

/// The most of each that are remembered.
const SHORT: usize = 1 << 12;
const LONG: usize = 1 << 14;

impl Repeats {
    /// Whether a leaf repeats another one of its list; remember it if it is short.
    #[inline]
    fn has_short(&mut self, leaf: Leaf<'_>) -> bool {
        let Some(list) = leaf.list() else { return false };
        let Some(word) = leaf.short_text() else { return false };
        if self.short.is_empty() {
            self.short.resize(SHORT, (0, 0));
        }
        let known = &mut self.short[(word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52) as usize];
        std::mem::replace(known, (word, list)) == (word, list)
    }

    /// Whether the latest value of a hash is the same one; remember its position.
    fn has_long(&mut self, hash: u32, position: u32, is_same: impl Fn(u32) -> bool) -> bool {
        if self.long.is_empty() {
            self.long.resize(LONG, (0, 0));
        }
        let known = &mut self.long[hash as usize % LONG];
        if known.0 == hash && known.1 != 0 && is_same(known.1) {
            return true;
        }
        *known = (hash, position);
        false
    }
}

/// Append the elements of a list to *all*; if there are many, equal ones only once.
fn read_elements<'f>(
    list: Leaf<'f>,
    names: bool,
    all: &mut Vec<LeafValue<'f>>,
    seed: &Seed,
    read: impl Fn(Leaf<'f>) -> LeafValue<'f>,
) {
    let start = all.len();
    let (mut known, mut last) = (KnownElements::default(), None);
    let count = list.for_each_element(names, |element| {
        // As it was written just before.
        let written = Some((element.kind(), element.raw()));
        if written == last {
            return;
        }
        last = written;
        let element = read(element);
        if known.is_new(&element, &all[start..], seed) {
            all.push(element);
        }
    });
    match count {
        Some(count) => spend(count / 16),
        None => all.truncate(start),
    }
}

/// The elements of a list that were seen: of thousands that are equal one is looked for.
#[derive(Default)]
struct KnownElements(HashTable<(u64, u32)>);

/// A list with fewer elements is not deduplicated.
const FEW_ELEMENTS: usize = 32;

impl KnownElements {
    /// Whether *element* equals none of those before, which are *others*.
    fn is_new(&mut self, element: &LeafValue<'_>, others: &[LeafValue<'_>], seed: &Seed) -> bool {
        if others.len() < FEW_ELEMENTS {
            return true;
        }
        let hash = |one: &LeafValue<'_>| match one.scalar {
            Some(_) => one.hash,
            None => seed.hash_bytes(one.leaf.raw().as_bytes()),
        };
        let is_same = |other: &LeafValue<'_>| match (element.scalar, other.scalar) {
            (None, None) => element.leaf.raw() == other.leaf.raw(),
            (one, other) => one == other,
        };
        if self.0.is_empty() {
            for (at, other) in (0..).zip(others) {
                self.0.insert_unique(hash(other), (hash(other), at), |(hash, _)| *hash);
            }
        }
        let wanted = hash(element);
        let is_new = self.0.find(wanted, |(_, at)| is_same(&others[*at as usize])).is_none();
        if is_new {
            self.0.insert_unique(wanted, (wanted, others.len() as u32), |(hash, _)| *hash);
        }
        is_new
    }
}

/// The allocation of an emptied vector, for values that borrow from something else.
fn recycle<'b>(mut values: Vec<LeafValue<'_>>) -> Vec<LeafValue<'b>> {
    values.clear();
    // Collecting in place keeps the allocation; the closure is never called.
    values.into_iter().map_while(|_| None).collect()
}
