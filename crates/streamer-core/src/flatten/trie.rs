//! Which paths are wanted: one trie of member names for everything that a view of an engine needs.
//!
//! ```text
//!   wants   Data/amount (scalar)      Raw/data/tags (any leaf)      layout: data at /data, type at /type
//!
//!   root ─┬─ "data" ─┬─ "amount"   value ──► Data/amount when `data` was found at base 0
//!         │          └─ "tags"     leaves ─► Raw/data/tags
//!         ├─ "before" ── "amount"  value ──► Data/amount when a delete fell back to base 1
//!         └─ "type"                value, envelope
//! ```
//!
//! A path from the raw event is one node. A path from a part of the layout is one node for each *base*, a place at
//! which the part may be; the base that counts is known only when the event has been read. Several paths may share a
//! node.
//!
//! Names are looked up by length and their first 8 bytes: one multiplication finds the edge in a small table, if the
//! node has at most 16 edges. Larger nodes use a hash of the whole name under a secret seed, so that an attacker cannot
//! craft names that collide.
//!
//! Invariant: every node is wanted (has a flag or a child). `through` is set on every node at or below which leaves are
//! wanted: only there a pass goes through arrays.
//!
//! Cost: 52 bytes a node and 24 an edge, 8 to 16 for its place in a table. A lookup of a name is a mask test for most names that are not wanted.

use std::collections::HashMap;
use std::sync::Arc;

use super::unavailable::Unavailable;
use crate::layout::{self, EventLayout, Format, Pointer};
use crate::subscriptions::normal_form::{Mode, Path, Root};
use crate::value::Seed;

/// A wanted path of a [`PathTrie`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PathId(pub u32);

/// The root of the trie.
pub(crate) const ROOT: u32 = 0;
/// The node of a value that is not wanted.
pub(crate) const NOWHERE: u32 = u32::MAX;

/// Flags of a node.
pub(crate) const VALUE: u8 = 1; // record the one value outside of arrays
pub(crate) const LEAVES: u8 = 2; // record every scalar that stands there, through arrays
pub(crate) const THROUGH: u8 = 4; // go through arrays
pub(crate) const ENVELOPE: u8 = 8; // it must not stand twice
pub(crate) const INDEXES: u8 = 16; // a pointer of the layout leads to an element of an array here
pub(crate) const FALLBACK: u8 = 32; // only a delete needs the nodes below
pub(crate) const OPTIONAL: u8 = 64; // only `id` and `ts` want it, so a lazy pass can skip it

/// Up to this many edges are found by a multiplication.
const FEW: usize = 16;

/// The factors to try, until no two edges collide in a table; a few odd numbers without a pattern suffice.
const FACTORS: [u64; 8] = [
    0x9E37_79B9_7F4A_7C15,
    0xBF58_476D_1CE4_E5B9,
    0x94D0_49BB_1331_11EB,
    0xD6E8_FEB8_6659_FD93,
    0xA076_1D64_78BD_642F,
    0xE703_7ED1_A0B4_28DB,
    0x8EBC_6AF0_9C88_C6E3,
    0x5899_65CC_7537_4CC3,
];

#[derive(Clone, Debug)]
pub(crate) struct TrieNode {
    pub(crate) flags: u8,
    /// How many distinct members are wanted.
    pub(crate) children: u32,
    edges: u32,
    /// Bit `length % 64` for each wanted name.
    lengths: u64,
    /// The start of its table; its size is a power of two, at least twice the edges. It contains positions among the
    /// edges, plus one.
    table: u32,
    /// For the table of few edges: 64 less the bits of its size, and its factor.
    shift: u32,
    factor: u64,
    outputs: u32,
    output_count: u32,
}

#[derive(Clone, Debug)]
struct Edge {
    head: u64,
    length: u32,
    name: u32,
    node: u32,
}

/// A path that reads a node, and the base it does so for; `ALWAYS` for a raw path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathOutput {
    pub(crate) path: PathId,
    pub(crate) base: u16,
}

pub(crate) const ALWAYS: u16 = u16::MAX;

/// How to find the nodes of a path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lookup {
    pub(crate) root: Root,
    /// The first of its nodes in `PathTrie::nodes_of`, one for each base of its root.
    pub(crate) nodes: u32,
    /// For a path that is checked for a change, the path in the document before.
    pub(crate) before: Option<PathId>,
}

/// A place of a part: a pointer of the layout, with each token that may be an index resolved to either an index or a
/// name.
#[derive(Clone, Debug)]
pub(crate) struct PartPlace {
    pub(crate) node: u32,
    pub(crate) pointer: Pointer,
}

/// The wanted paths, ready to flatten events. Immutable; share it between threads.
#[derive(Debug)]
pub struct PathTrie {
    pub(crate) layout: Arc<EventLayout>,
    pub(crate) nodes: Vec<TrieNode>,
    /// For each node the one above it; for the root the root.
    pub(crate) parents: Vec<u32>,
    edges: Vec<Edge>,
    names: Vec<u8>,
    tables: Vec<u32>,
    seed: Seed,
    indexes: HashMap<(u32, u32), u32>,
    pub(crate) outputs: Vec<PathOutput>,
    pub(crate) lookups: Vec<Lookup>,
    pub(crate) nodes_of: Vec<u32>,
    /// The places of each part, in the order of `EventLayout::parts`.
    pub(crate) places: [Vec<PartPlace>; 9],
    /// The places of the record, see `EventLayout::envelope`.
    pub(crate) records: Vec<PartPlace>,
    /// Every node that a pointer of the layout leads to or through, with the tokens up to there.
    envelope: Vec<(u32, Vec<Box<str>>)>,
    /// Of Debezium: the places of the name of the source's connector.
    pub(crate) connectors: Vec<u32>,
    /// The paths of the string parts: type, topic, collection, tenant.
    pub(crate) part_paths: [Option<PathId>; 4],
    /// For each part, in the order of `EventLayout::parts`, whether an event can have it.
    pub(crate) has_part: [bool; 9],
    pub(crate) has_constants: bool,
    pub(crate) unavailable: Unavailable,
    pub(crate) ignores_any: bool,
    /// See `EventLayout::before_is_apart`.
    pub(crate) before_is_apart: bool,
    /// How many members of the root a lazy reading needs: all but those that only `id` and `ts` want.
    pub(crate) needed: u32,
}

/// Positions in `EventLayout::parts`.
pub(crate) const ID: usize = 0;
pub(crate) const TENANT: usize = 1;
pub(crate) const COLLECTION: usize = 2;
pub(crate) const TYPE: usize = 3;
pub(crate) const TS: usize = 4;
pub(crate) const TOPIC: usize = 5;
pub(crate) const DATA: usize = 6;
pub(crate) const BEFORE: usize = 7;
pub(crate) const UNKNOWN: usize = 8;

/// Collects wanted paths; see [`PathTrie::builder`].
#[derive(Debug)]
pub struct PathTrieBuilder {
    layout: Arc<EventLayout>,
    wants: Vec<(Path, u8)>,
    ids: HashMap<Path, PathId>,
    /// For each path that is checked for a change, the path in the document before.
    before: HashMap<PathId, PathId>,
}

impl PathTrieBuilder {
    /// Want a path in a mode. A path has one id for all modes.
    pub fn want(&mut self, path: &Path, mode: Mode) -> PathId {
        let flag = match mode {
            Mode::AnyLeaf => LEAVES,
            Mode::Scalar | Mode::Element | Mode::Member | Mode::Changed => VALUE,
        };
        if mode == Mode::Changed {
            let before = self.want(&Path { root: Root::Before, names: path.names.clone() }, Mode::Scalar);
            let now = self.want(path, Mode::Scalar);
            self.before.insert(now, before);
            return now;
        }
        if let Some(id) = self.ids.get(path) {
            self.wants[id.0 as usize].1 |= flag;
            return *id;
        }
        let id = PathId(u32::try_from(self.wants.len()).expect("fewer than 2^32 paths"));
        self.wants.push((path.clone(), flag));
        self.ids.insert(path.clone(), id);
        id
    }

    /// How many paths are wanted so far; ids are below it.
    pub fn len(&self) -> usize {
        self.wants.len()
    }

    /// Whether no path is wanted yet.
    pub fn is_empty(&self) -> bool {
        self.wants.is_empty()
    }

    /// Make the trie.
    pub fn build(self) -> PathTrie {
        let mut trie = Growing::new(self.layout).grow(&self.wants);
        self.before.iter().for_each(|(now, before)| trie.lookups[now.0 as usize].before = Some(*before));
        trie
    }
}

#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum PathStep {
    Name(Box<str>),
    Index(u32),
}

/// A trie that still grows: edges by parent and step.
struct Growing {
    layout: Arc<EventLayout>,
    flags: Vec<u8>,
    steps: HashMap<(u32, PathStep), u32>,
    outputs: Vec<(u32, PathOutput)>,
    envelope: Vec<(u32, Vec<Box<str>>)>,
    connectors: Vec<u32>,
}

impl Growing {
    fn new(layout: Arc<EventLayout>) -> Growing {
        let (steps, outputs, envelope, connectors) = Default::default();
        Growing { layout, flags: vec![0], steps, outputs, envelope, connectors }
    }

    fn step(&mut self, from: u32, step: PathStep) -> u32 {
        let next = self.flags.len() as u32;
        *self.steps.entry((from, step)).or_insert_with(|| {
            self.flags.push(0);
            next
        })
    }

    fn walk(&mut self, from: u32, names: &[Box<str>]) -> u32 {
        names.iter().fold(from, |node, name| self.step(node, PathStep::Name(name.clone())))
    }

    /// The places that a pointer can lead to, as a member of objects or through arrays.
    fn places(&mut self, pointer: &Pointer) -> Vec<PartPlace> {
        let mut nodes = vec![ROOT];
        for (length, token) in pointer.iter().enumerate() {
            let tokens = pointer[..=length].to_vec();
            let index = layout::index(token);
            let mut next = Vec::new();
            for node in nodes {
                let member = self.step(node, PathStep::Name(token.clone()));
                self.flags[member as usize] |= ENVELOPE;
                self.envelope.push((member, tokens.clone()));
                next.push(member);
                if let Some(index) = index {
                    self.flags[node as usize] |= INDEXES;
                    let element = self.step(node, PathStep::Index(index as u32));
                    self.flags[element as usize] |= ENVELOPE;
                    self.envelope.push((element, tokens.clone()));
                    next.push(element);
                }
            }
            nodes = next;
        }
        nodes.into_iter().map(|node| PartPlace { node, pointer: pointer.clone() }).collect()
    }

    /// The node of a path from the record at a place. No event has a value at the node of a path into a document.
    fn walk_record(&mut self, layout: &EventLayout, place: &PartPlace, names: &[Box<str>]) -> u32 {
        let is_document = names.first().is_some_and(|name| layout.documents_in(&place.pointer).contains(&&**name));
        // An event is an object, so it has no elements.
        if is_document { self.step(ROOT, PathStep::Index(u32::MAX)) } else { self.walk(place.node, names) }
    }

    fn grow(mut self, wants: &[(Path, u8)]) -> PathTrie {
        let layout = Arc::clone(&self.layout);
        let places = layout.parts().map(|(_, part)| part.pointers().iter().flat_map(|p| self.places(p)).collect::<Vec<_>>());
        for place in places.iter().flatten() {
            self.flags[place.node as usize] |= VALUE;
        }
        let before: Vec<u32> = places[BEFORE].iter().map(|place| place.node).collect();
        // A path from `data` is wanted below `before` too: a delete falls back to it.
        let data: Vec<u32> = places[DATA].iter().map(|place| place.node).chain(before.iter().copied()).collect();
        let records = layout.records().flat_map(|pointer| self.places(pointer)).collect::<Vec<_>>();
        let wants_record = wants.iter().any(|(path, _)| path.root == Root::Envelope);
        if wants_record {
            records.iter().filter(|place| place.node != ROOT).for_each(|place| self.flags[place.node as usize] |= VALUE);
        }
        self.mark_connectors(&layout);
        let mut lookups = Vec::with_capacity(wants.len());
        let mut nodes_of = Vec::new();
        let mut part_paths = [None; 4];
        let mut wanted_before = false;
        for (id, (path, flag)) in wants.iter().enumerate() {
            let id = PathId(id as u32);
            let mut walk = |bases: &[u32]| bases.iter().map(|base| self.walk(*base, &path.names)).collect::<Vec<_>>();
            let (nodes, offset) = match path.root {
                Root::Raw => (walk(&[ROOT]), ALWAYS),
                Root::Data => (walk(&data), 0),
                Root::Before => (walk(&before), places[DATA].len() as u16),
                Root::Envelope => (records.iter().map(|place| self.walk_record(&layout, place, &path.names)).collect(), 0),
                Root::Type | Root::Topic | Root::Collection | Root::Tenant => {
                    part_paths[part_index(path.root)] = Some(id);
                    (Vec::new(), 0)
                }
            };
            wanted_before |= path.root == Root::Before;
            lookups.push(Lookup { root: path.root, nodes: nodes_of.len() as u32, before: None });
            for (index, node) in nodes.into_iter().enumerate() {
                self.flags[node as usize] |= flag;
                nodes_of.push(node);
                let base = if offset == ALWAYS { ALWAYS } else { offset + index as u16 };
                self.outputs.push((node, PathOutput { path: id, base }));
            }
        }
        self.mark_through(wants);
        if !wanted_before {
            self.mark_fallback(wants, &before, &places);
        }
        self.freeze(layout, places, records, lookups, nodes_of, part_paths)
    }

    /// Want the name of the connector, in the record or the payload that has the documents.
    fn mark_connectors(&mut self, layout: &EventLayout) {
        if layout.format != Some(Format::Debezium) {
            return;
        }
        let mut roots: Vec<&[Box<str>]> = vec![&[]];
        for pointer in layout.documents() {
            match &pointer[..] {
                [_, _] if !roots.contains(&&pointer[..1]) => roots.push(&pointer[..1]),
                _ => {}
            }
        }
        let names = ["source", "connector"].map(Box::from);
        self.connectors = roots.into_iter().map(|root| self.walk(ROOT, &[root, &names].concat())).collect();
        self.connectors.iter().for_each(|node| self.flags[*node as usize] |= VALUE);
    }

    /// Set THROUGH on the nodes of every path whose leaves are wanted.
    fn mark_through(&mut self, wants: &[(Path, u8)]) {
        let parents = self.parents();
        let leaves: Vec<u32> = (0..self.flags.len() as u32).filter(|node| self.flags[*node as usize] & LEAVES != 0).collect();
        debug_assert!(leaves.is_empty() || wants.iter().any(|(_, flag)| flag & LEAVES != 0));
        for mut node in leaves {
            while self.flags[node as usize] & THROUGH == 0 {
                self.flags[node as usize] |= THROUGH;
                node = parents[node as usize];
            }
        }
    }

    /// Set FALLBACK on the places of `before` if only paths of `data` are wanted below them, for a delete.
    fn mark_fallback(&mut self, wants: &[(Path, u8)], before: &[u32], places: &[Vec<PartPlace>; 9]) {
        let parents = self.parents();
        let below = |mut node: u32| loop {
            if before.contains(&node) {
                break true;
            }
            if node == ROOT {
                break false;
            }
            node = parents[node as usize];
        };
        let data_places = places[DATA].len();
        // Also another place of `before`: which of the two counts is known only once both were looked for.
        let other_part = places.iter().enumerate().any(|(part, places)| {
            let from = |node: u32| if part == BEFORE { parents[node as usize] } else { node };
            places.iter().any(|place| below(from(place.node)))
        });
        let other_path = self.outputs.iter().any(|(node, output)| {
            let is_record = wants[output.path.0 as usize].0.root == Root::Envelope;
            let fallback = !is_record && output.base != ALWAYS && usize::from(output.base) >= data_places;
            !fallback && below(*node)
        });
        debug_assert!(self.outputs.len() >= wants.iter().filter(|(path, _)| path.root == Root::Raw).count());
        if !other_part && !other_path {
            for node in before {
                self.flags[*node as usize] |= FALLBACK;
            }
        }
    }

    fn parents(&self) -> Vec<u32> {
        let mut parents = vec![ROOT; self.flags.len()];
        for ((from, _), to) in &self.steps {
            parents[*to as usize] = *from;
        }
        parents
    }

    fn freeze(
        mut self,
        layout: Arc<EventLayout>,
        places: [Vec<PartPlace>; 9],
        records: Vec<PartPlace>,
        lookups: Vec<Lookup>,
        nodes_of: Vec<u32>,
        part_paths: [Option<PathId>; 4],
    ) -> PathTrie {
        let seed = Seed::random();
        let mut trie = PathTrie {
            nodes: Vec::with_capacity(self.flags.len()),
            parents: self.parents(),
            edges: Vec::with_capacity(self.steps.len()),
            names: Vec::new(),
            tables: Vec::new(),
            indexes: HashMap::new(),
            outputs: Vec::with_capacity(self.outputs.len()),
            needed: 0,
            envelope: std::mem::take(&mut self.envelope),
            has_part: layout.parts().map(|(_, part)| part.constant().is_some() || !part.pointers().is_empty()),
            unavailable: Unavailable::new(&layout),
            has_constants: layout.parts().iter().any(|(_, part)| part.constant().is_some()),
            ignores_any: layout.ignores_any(),
            before_is_apart: layout.before_is_apart(),
            layout,
            seed,
            lookups,
            nodes_of,
            places,
            records,
            connectors: std::mem::take(&mut self.connectors),
            part_paths,
        };
        let mut members: Vec<Vec<(Box<str>, u32)>> = vec![Vec::new(); self.flags.len()];
        for ((from, step), to) in self.steps.drain() {
            match step {
                PathStep::Name(name) => members[from as usize].push((name, to)),
                PathStep::Index(index) => {
                    trie.indexes.insert((from, index), to);
                }
            }
        }
        let mut outputs: Vec<Vec<PathOutput>> = vec![Vec::new(); self.flags.len()];
        for (node, output) in self.outputs {
            outputs[node as usize].push(output);
        }
        for ((flags, mut members), outputs) in self.flags.into_iter().zip(members).zip(outputs) {
            members.sort_unstable();
            trie.add_node(flags, &members, &outputs);
        }
        trie.mark_optional();
        trie
    }
}

fn part_index(root: Root) -> usize {
    match root {
        Root::Type => 0,
        Root::Topic => 1,
        Root::Collection => 2,
        _ => 3,
    }
}

impl PathTrie {
    /// Begin a trie for events of *layout*.
    pub fn builder(layout: Arc<EventLayout>) -> PathTrieBuilder {
        PathTrieBuilder { layout, wants: Vec::new(), ids: HashMap::new(), before: HashMap::new() }
    }

    /// How many paths there are; ids are below it.
    pub fn paths(&self) -> usize {
        self.lookups.len()
    }

    /// The layout of its events.
    pub fn layout(&self) -> &Arc<EventLayout> {
        &self.layout
    }

    fn add_node(&mut self, flags: u8, members: &[(Box<str>, u32)], outputs: &[PathOutput]) {
        let edges = self.edges.len();
        let mut lengths = 0;
        for (name, node) in members {
            lengths |= 1 << (name.len() % 64);
            self.edges.push(Edge {
                head: head(name.as_bytes(), 0, name.len()),
                length: name.len() as u32,
                name: self.names.len() as u32,
                node: *node,
            });
            self.names.extend_from_slice(name.as_bytes());
        }
        let table = self.tables.len();
        let size = if members.is_empty() { 0 } else { (members.len() * 2).next_power_of_two() };
        let (mut shift, mut factor) = (0, 0);
        self.tables.resize(table + size, 0);
        if members.len() > FEW {
            for (index, (name, _)) in members.iter().enumerate() {
                let mut slot = self.seed.hash_bytes(name.as_bytes()) as usize;
                while self.tables[table + (slot & (size - 1))] != 0 {
                    slot += 1;
                }
                self.tables[table + (slot & (size - 1))] = (index + 1) as u32;
            }
        } else if !members.is_empty() {
            shift = 64 - size.trailing_zeros();
            let place = |factor: u64, edge: &Edge| slot_of(edge.head, edge.length as usize, factor, shift);
            let meet = |factor: u64| {
                let bits = self.edges[edges..].iter().fold(0_u64, |bits, edge| bits | 1 << place(factor, edge));
                members.len() - bits.count_ones() as usize
            };
            factor = FACTORS.into_iter().min_by_key(|factor| meet(*factor)).unwrap_or_default();
            for (index, edge) in self.edges[edges..].iter().enumerate() {
                let mut slot = place(factor, edge);
                while self.tables[table + (slot & (size - 1))] != 0 {
                    slot += 1;
                }
                self.tables[table + (slot & (size - 1))] = (index + 1) as u32;
            }
        }
        self.nodes.push(TrieNode {
            flags,
            children: members.len() as u32,
            edges: edges as u32,
            lengths,
            table: table as u32,
            shift,
            factor,
            outputs: self.outputs.len() as u32,
            output_count: outputs.len() as u32,
        });
        self.outputs.extend_from_slice(outputs);
    }

    /// Mark the nodes that a lazy pass can skip, and count the members of the root that it needs.
    fn mark_optional(&mut self) {
        for part in [ID, TS] {
            for at in 0..self.places[part].len() {
                let node = self.places[part][at].node;
                let wanted = &mut self.nodes[node as usize];
                let other = |(other, places): (usize, &Vec<PartPlace>)| {
                    other != ID && other != TS && places.iter().any(|p| p.node == node)
                };
                if wanted.children == 0 && wanted.output_count == 0 && !self.places.iter().enumerate().any(other) {
                    wanted.flags |= OPTIONAL;
                }
            }
        }
        let root = &self.nodes[ROOT as usize];
        let edges = &self.edges[root.edges as usize..][..root.children as usize];
        self.needed = edges.iter().filter(|edge| self.nodes[edge.node as usize].flags & OPTIONAL == 0).count() as u32;
    }

    /// The pointer that leads to a node of the envelope, or through it.
    pub(crate) fn pointer_of(&self, node: u32) -> Option<Vec<Box<str>>> {
        self.envelope.iter().find(|(at, _)| *at == node).map(|(_, pointer)| pointer.clone())
    }

    pub(crate) fn outputs_of(&self, node: u32) -> &[PathOutput] {
        let node = &self.nodes[node as usize];
        &self.outputs[node.outputs as usize..][..node.output_count as usize]
    }

    /// The node of the member *name* = `text[from..to]` below *node*, or [`NOWHERE`].
    #[inline(always)]
    pub(crate) fn member(&self, node: &TrieNode, text: &[u8], from: usize, to: usize) -> u32 {
        if node.lengths & (1 << ((to - from) % 64)) == 0 {
            return NOWHERE;
        }
        self.member_of_length(node, text, from, to)
    }

    #[inline(always)]
    fn member_of_length(&self, node: &TrieNode, text: &[u8], from: usize, to: usize) -> u32 {
        let length = to - from;
        if node.children as usize > FEW {
            return self.member_of_many(node, &text[from..to]);
        }
        let edges = &self.edges[node.edges as usize..][..node.children as usize];
        let head = head(text, from, to);
        let mask = (1 << (64 - node.shift)) - 1;
        let mut slot = slot_of(head, length, node.factor, node.shift);
        loop {
            let number = self.tables[node.table as usize + (slot & mask)];
            let Some(edge) = edges.get((number as usize).wrapping_sub(1)) else { return NOWHERE };
            if edge.head == head && edge.length as usize == length && (length <= 8 || self.name(edge) == &text[from..to]) {
                return edge.node;
            }
            slot += 1; // ends, as half of the table is empty
        }
    }

    #[cold]
    fn member_of_many(&self, node: &TrieNode, name: &[u8]) -> u32 {
        let size = (node.children as usize * 2).next_power_of_two();
        let table = &self.tables[node.table as usize..][..size];
        let mut slot = self.seed.hash_bytes(name) as usize;
        loop {
            match table[slot & (size - 1)] {
                0 => return NOWHERE,
                number => {
                    let edge = &self.edges[node.edges as usize + number as usize - 1];
                    if self.name(edge) == name {
                        return edge.node;
                    }
                }
            }
            slot += 1;
        }
    }

    fn name(&self, edge: &Edge) -> &[u8] {
        &self.names[edge.name as usize..][..edge.length as usize]
    }

    /// Continue a hash with more bytes.
    pub(crate) fn hash(&self, before: u64, bytes: &[u8]) -> u64 {
        self.seed.hash_words(before, self.seed.hash_bytes(bytes))
    }

    /// The node of element *index* of an array at *node*, if a pointer of the layout leads there.
    pub(crate) fn element(&self, node: u32, index: u32) -> u32 {
        self.indexes.get(&(node, index)).copied().unwrap_or(NOWHERE)
    }
}

/// The slot of a name in a table of few edges, if no other edge is in it.
#[inline(always)]
fn slot_of(head: u64, length: usize, factor: u64, shift: u32) -> usize {
    ((head ^ length as u64).wrapping_mul(factor) >> shift) as usize
}

/// The first 8 bytes of `text[from..to]` as a word, zeros after its end.
#[inline]
fn head(text: &[u8], from: usize, to: usize) -> u64 {
    let length = to - from;
    if let Some(bytes) = text.get(from..from + 8) {
        let word = u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
        return if length >= 8 { word } else { word & ((1 << (8 * length)) - 1) };
    }
    let mut bytes = [0; 8];
    bytes[..length].copy_from_slice(&text[from..to]);
    u64::from_le_bytes(bytes)
}
