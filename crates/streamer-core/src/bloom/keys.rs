//! Access keys: values that an event must carry, or a subscription cannot match it.
//!
//! ```text
//!   status in ["paid", "open"] and amount > 5      keys data.status = "paid", data.status = "open"
//!   {"data": {"status": "paid", "amount": 3}}      carries the first: MAYBE
//!   {"data": {"status": "sent", "amount": 9}}      carries none: NO
//! ```
//!
//! Of each conjunction one clause is chosen all of whose atoms are equalities, and each of its values is a key. Where a
//! conjunction has no such clause, its subscription is *unkeyed*: it is looked for in every event. The Python package makes
//! keys of ranges, prefixes and the like too, for filters that are shipped; here the index answers those.
//!
//! Invariant (semantics.md section 9): an event that makes a conjunction hold carries one of its keys. The choice among
//! equalities, and the bytes of a key, are those of `streamer/subscriptions/keys.py`; a filter of the engine itself hashes the value instead, by
//! value: `1` and `1.0` are one key.
//!
//! Cost: a look at each distinct clause of a store, and one comparison for each clause of a conjunction.

use crate::bloom::kinds::{Probe, write_quoted};
use crate::engine::store::Store;
use crate::engine::words::AtomView;
use crate::subscriptions::normal_form::{Mode, Path, Root, TopicWord};
use crate::value::{ScalarRef, Seed};
use std::cmp::Ordering;

/// A key: an equality at a path, which its holder knows.
#[derive(Clone, Debug, PartialEq)]
pub enum Key<'a> {
    /// The value is this scalar.
    Equal(ScalarRef<'a>),
    /// The routing key is this one: a topic without `*` and `#`.
    Topic(Box<str>),
}

impl Key<'_> {
    /// The key that an atom is; None if it has none.
    fn of<'a>(atom: &AtomView<'a>) -> Option<Key<'a>> {
        match atom {
            AtomView::Equal(scalar) => Some(Key::Equal(*scalar)),
            AtomView::Topic(words) => {
                let words = words.to_vec();
                let literal = |word: &TopicWord| match word {
                    TopicWord::Word(word) => Some(word.to_string()),
                    TopicWord::One | TopicWord::Many => None,
                };
                let words: Option<Vec<String>> = words.iter().map(literal).collect();
                Some(Key::Topic(words?.join(".").into()))
            }
            _ => None,
        }
    }

    /// What it is hashed as; at one place equal keys hash equally.
    pub fn hash(&self, seed: &Seed) -> u64 {
        self.scalar().hash(seed)
    }

    fn scalar(&self) -> ScalarRef<'_> {
        match self {
            Key::Equal(scalar) => *scalar,
            Key::Topic(text) => ScalarRef::String(text),
        }
    }

    /// `Key.to_bytes()` of `streamer/subscriptions/keys.py`: UTF-8 JSON of root, mode, names, kind and value.
    pub fn to_bytes(&self, path: &Path, mode: Mode) -> Vec<u8> {
        let mut out = Vec::new();
        begin_key(&mut out, path, mode);
        Probe::Equal(self.scalar()).write(&mut out);
        out.push(b']');
        out
    }
}

/// Begin the bytes of a key: what comes before its tag.
pub fn begin_key(out: &mut Vec<u8>, path: &Path, mode: Mode) {
    out.extend_from_slice(&place_to_bytes(path, mode));
    out.pop();
    out.push(b',');
}

/// A place, as the first three members of the JSON of its keys.
pub fn place_to_bytes(path: &Path, mode: Mode) -> Vec<u8> {
    let mut out = format!("[\"{}\",\"{}\",[", root_name(path.root), mode_name(mode)).into_bytes();
    for (at, name) in path.names.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write_quoted(&mut out, name);
    }
    out.extend_from_slice(b"]]");
    out
}

fn root_name(root: Root) -> &'static str {
    match root {
        Root::Raw => "event",
        Root::Data => "data",
        Root::Before => "before",
        Root::Type => "type",
        Root::Topic => "topic",
        Root::Collection => "collection",
        Root::Tenant => "tenant",
    }
}

fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Scalar => "value",
        Mode::AnyLeaf => "leaf",
    }
}

/// Rather a field of the document than a part of the envelope: nearly every event has the type `update`.
fn preference(root: Root) -> u8 {
    match root {
        Root::Data | Root::Raw => 0,
        Root::Before => 1,
        Root::Topic => 2,
        Root::Type => 3,
        Root::Collection | Root::Tenant => 4,
    }
}

/// No clause.
const NONE: u32 = u32::MAX;

/// Which keys the subscriptions of a store have.
#[derive(Debug)]
pub struct Access {
    /// Of each conjunction the clause whose atoms are its keys, or NONE.
    clauses: Box<[u32]>,
    /// Of each conjunction whether it is looked for whatever the filter says: a subscription that has it is unkeyed.
    always: Box<[bool]>,
    /// Of each conjunction whether it has no access clause.
    bare: Box<[bool]>,
    keyed: usize,
    unkeyed: usize,
}

/// What a clause is worth as access clause, the less the better; see `streamer/subscriptions/keys.py`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    /// 0 for what tells much, 3 where half of all events carry it, as `active: true`, 4 for the type.
    coarse: u8,
    preference: u8,
    keys: u32,
}

impl Access {
    /// Choose the access clauses of a store.
    pub fn of(store: &Store) -> Access {
        let ranks: Vec<Option<Rank>> = (0..store.distinct_clauses() as u32).map(|clause| rank(store, clause)).collect();
        let mut is_unkeyed = vec![false; store.len()];
        let mut clauses = vec![NONE; store.conjunctions()];
        for (conjunction, chosen) in clauses.iter_mut().enumerate() {
            let usable = store.clauses(conjunction as u32).iter().filter(|clause| ranks[**clause as usize].is_some());
            match usable.min_by(|one, other| better(store, &ranks, **one, **other)) {
                Some(clause) => *chosen = *clause,
                None => store.targets(conjunction as u32).iter().for_each(|at| is_unkeyed[*at as usize] = true),
            }
        }
        let bare: Box<[bool]> = clauses.iter().map(|clause| *clause == NONE).collect();
        let mut always = vec![false; store.conjunctions()];
        for (conjunction, chosen) in clauses.iter_mut().enumerate() {
            let targets = store.targets(conjunction as u32);
            always[conjunction] = targets.iter().any(|at| is_unkeyed[*at as usize]);
            if targets.iter().all(|at| is_unkeyed[*at as usize]) {
                *chosen = NONE;
            }
        }
        let unkeyed = is_unkeyed.iter().filter(|is_unkeyed| **is_unkeyed).count();
        Access { clauses: clauses.into(), always: always.into(), bare, keyed: store.len() - unkeyed, unkeyed }
    }

    /// How many subscriptions have keys, and how many have none.
    pub fn counts(&self) -> (usize, usize) {
        (self.keyed, self.unkeyed)
    }

    /// Likewise of those that *is_live* holds for.
    pub fn live(&self, store: &Store, is_live: impl Fn(u32) -> bool) -> (usize, usize) {
        let mut is_unkeyed = vec![false; store.len()];
        let bare = (0..store.conjunctions() as u32).filter(|conjunction| self.is_unkeyed(*conjunction));
        let lacking = bare.flat_map(|conjunction| store.targets(conjunction));
        lacking.for_each(|at| is_unkeyed[*at as usize] = true);
        let live = |wanted: bool| (0..store.len() as u32).filter(|at| is_live(*at) && is_unkeyed[*at as usize] == wanted).count();
        (live(false), live(true))
    }

    /// Whether a conjunction is looked for whatever the filter says.
    pub fn is_always(&self, conjunction: u32) -> bool {
        self.always[conjunction as usize]
    }

    /// Whether a conjunction has no key; a subscription that has it is unkeyed.
    pub fn is_unkeyed(&self, conjunction: u32) -> bool {
        self.bare[conjunction as usize]
    }

    /// How many keys the keyed subscriptions have, each its own.
    pub fn keys(&self, store: &Store) -> u64 {
        let keys = |(conjunction, clause): (usize, &u32)| {
            let targets = store.targets(conjunction as u32).len() as u64;
            if *clause == NONE { 0 } else { u64::from(store.clause(*clause).count) * targets }
        };
        self.clauses.iter().enumerate().map(keys).sum()
    }

    /// Call *visit* with the path, by position in the store's path set, and the key, of each key of the subscriptions that
    /// *is_live* holds for, by position in *store*: the one that this was made of, renumbered or not.
    pub fn for_each<'s>(&self, store: &'s Store, is_live: impl Fn(u32) -> bool, mut visit: impl FnMut(u32, Key<'s>)) {
        for (conjunction, clause) in self.clauses.iter().enumerate() {
            if *clause != NONE && store.targets(conjunction as u32).iter().any(|at| is_live(*at)) {
                let clause = store.clause(*clause);
                clause.atoms.filter_map(|atom| Key::of(&atom.view)).for_each(|key| visit(clause.path, key));
            }
        }
    }
}

fn rank(store: &Store, clause: u32) -> Option<Rank> {
    let clause = store.clause(clause);
    if clause.count == 0 {
        return None;
    }
    let root = store.paths.paths[clause.path as usize].0.root;
    let mut coarse = if root == Root::Type { 4 } else { 0 };
    let mut distinct = Vec::new();
    for atom in clause.atoms {
        let key = Key::of(&atom.view)?;
        if matches!(key, Key::Equal(ScalarRef::Null | ScalarRef::Bool(_))) {
            coarse = coarse.max(3);
        }
        distinct.push(atom.words);
    }
    if distinct.len() > 1 {
        distinct.sort_unstable();
        distinct.dedup();
    }
    Some(Rank { coarse, preference: preference(root), keys: distinct.len() as u32 })
}

fn better(store: &Store, ranks: &[Option<Rank>], one: u32, other: u32) -> Ordering {
    ranks[one as usize].cmp(&ranks[other as usize]).then_with(|| {
        let path_of = |clause: u32| &store.paths.paths[store.clause(clause).path as usize];
        let ((left, left_mode), (right, right_mode)) = (path_of(one), path_of(other));
        let by_place = (root_name(left.root), mode_name(*left_mode), &left.names).cmp(&(
            root_name(right.root),
            mode_name(*right_mode),
            &right.names,
        ));
        by_place.then_with(|| bytes_of(store, one).cmp(&bytes_of(store, other)))
    })
}

/// The sorted bytes of all keys of a clause.
fn bytes_of(store: &Store, clause: u32) -> Vec<Vec<u8>> {
    let clause = store.clause(clause);
    let (path, mode) = &store.paths.paths[clause.path as usize];
    let mut all: Vec<Vec<u8>> =
        clause.atoms.filter_map(|atom| Key::of(&atom.view)).map(|key| key.to_bytes(path, *mode)).collect();
    all.sort_unstable();
    all.dedup();
    all
}
