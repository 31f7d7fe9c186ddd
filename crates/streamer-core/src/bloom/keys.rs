//! Access keys: values that an event must carry, or a subscription cannot match it.
//!
//! ```text
//!   status in ["paid", "open"] and amount > 5      keys data.status = "paid", data.status = "open"
//!   {"data": {"status": "paid", "amount": 3}}      carries the first: MAYBE
//!   {"data": {"status": "sent", "amount": 9}}      carries none: NO
//! ```
//!
//! Each conjunction uses one clause whose atoms all make keys; these are the keys of its subscriptions. If a
//! conjunction has no such clause, its subscription is *unkeyed*: every event is checked for it.
//!
//! ```text
//!   kind of key                                     shipped   engine     on ÷ off at 1 % interesting, 1 segment | 14
//!   equality, literal topic                         yes       yes        0.91 | 0.35
//!   prefix, suffix of 4 characters or more          yes       yes        0.98 | 0.37
//!   equality but for case                           yes       yes        0.97 | 0.35
//!   net, words of a topic                           yes       yes        0.99 | 0.30,  1.01 | 0.18
//!   numbers between two bounds                      yes       yes        1.00 | 0.42
//!   numbers beyond one bound; shorter ends          yes       no         most events carry them: a NO would become rare for all
//!   three characters within a text; `contains`      yes       no         up to 62 probes a text
//!   of an element of a list or a name of an object  yes       as above
//!   whether a value changed; sizes                  no        no         most updates carry some of them
//!   equality with a list or an object               no        no         the index hashes an event's value, up to all of its text
//! ```
//!
//! A filter that is shipped has all of them ([`KeyScope::Shipping`]). A filter of the engine itself
//! ([`KeyScope::Guarding`]) has only keys that events seldom carry by chance, since its NO is for a whole partition.
//! With a key of `amount > 10` next to a thousand equalities, every event would pass to all of them. Without it, every
//! event is checked for only that subscription. `python -m benchmarks.bloom` shows these ratios.
//!
//! Invariant (semantics.md section 9): an event that satisfies a conjunction carries one of its keys.
//! `streamer/subscriptions/keys.py` makes the same choice and the same bytes, except for CEL, which has become clauses
//! here. A filter of the engine itself hashes the value instead of bytes: `1` and `1.0` are one key.
//!
//! Cost: a look at each distinct clause of a store, and one comparison for each clause of a conjunction.

use crate::bloom::kinds::{KeyProbe, of_atom, rank, write_quoted};
use crate::engine::verify::encoded::AtomView;
use crate::engine::verify::store::Store;
use crate::subscriptions::normal_form::{Mode, Path, Root};
use std::cmp::Ordering;

/// The purpose of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyScope {
    /// A filter of the engine itself.
    Guarding,
    /// A filter that another program queries, which implements the kinds of `streamer/subscriptions/keys.py`.
    Shipping,
}

impl KeyScope {
    /// Call *visit* with the keys of an atom at a part of the event; see [`of_atom`].
    fn probes<'a>(self, (path, mode): &(Path, Mode), atom: &AtomView<'a>, visit: &mut dyn FnMut(KeyProbe<'a>)) -> Option<u8> {
        let root = path.root;
        let has_keys = match (self, atom) {
            // Every update has this.
            (_, _) if *mode == Mode::Changed => false,
            // The tenant and collection of an event are checked before a shipped filter is queried.
            (KeyScope::Shipping, _) => !matches!(root, Root::Collection | Root::Tenant),
            (KeyScope::Guarding, _) => is_guarded(atom),
        };
        if has_keys { of_atom(atom, visit) } else { None }
    }
}

/// Whether a filter of the engine itself has keys of an atom; the head of this file gives the reasons.
fn is_guarded(atom: &AtomView<'_>) -> bool {
    match atom {
        AtomView::Numbers(from, to) => from.is_some() && to.is_some(),
        AtomView::Prefix(_)
        | AtomView::Suffix(_)
        | AtomView::PrefixIgnoreCase(_)
        | AtomView::SuffixIgnoreCase(_)
        | AtomView::Wildcard(_) => of_atom(atom, &mut |_| ()).is_some_and(|coarse| coarse <= rank::NARROW),
        // A gram needs one probe for each character of a text. An element would need probes of its own, too.
        AtomView::Substring(_) | AtomView::Element(_) => false,
        // All its keys, if it has any.
        _ => true,
    }
}

/// `Key.to_bytes()` of `streamer/subscriptions/keys.py`: UTF-8 JSON of root, mode, names, tag and value.
pub fn key_to_bytes(path: &Path, mode: Mode, probe: &KeyProbe<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    begin_key(&mut out, path, mode);
    end_key(&mut out, probe);
    out
}

/// Write the bytes of a key up to its tag.
pub fn begin_key(out: &mut Vec<u8>, path: &Path, mode: Mode) {
    out.extend_from_slice(&place_to_bytes(path, mode));
    out.pop();
    out.push(b',');
}

/// End the bytes of a key that was begun.
pub fn end_key(out: &mut Vec<u8>, probe: &KeyProbe<'_>) {
    probe.write(out);
    out.push(b']');
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

/// The name of a root in the bytes of a key.
pub fn root_name(root: Root) -> &'static str {
    match root {
        Root::Raw => "event",
        Root::Data => "data",
        Root::Before => "before",
        Root::Type => "type",
        Root::Topic => "topic",
        Root::Collection => "collection",
        Root::Tenant => "tenant",
        Root::Envelope => "envelope",
    }
}

/// The name of a mode there.
pub fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Scalar => "value",
        Mode::AnyLeaf => "leaf",
        Mode::Element => "element",
        Mode::Member => "member",
        Mode::Changed => "changed",
    }
}

/// Rather a field of the document than a part of the envelope: nearly every event has the type `update`.
fn preference(root: Root) -> u8 {
    match root {
        Root::Data | Root::Raw => 0,
        Root::Before | Root::Envelope => 1,
        Root::Topic => 2,
        Root::Type => 3,
        Root::Collection | Root::Tenant => 4,
    }
}

/// Stands for an absent clause.
const NONE: u32 = u32::MAX;

/// Which keys the subscriptions of a store have.
#[derive(Debug)]
pub struct Access {
    /// For each conjunction, the clause whose atoms are its keys, or NONE.
    clauses: Box<[u32]>,
    /// For each conjunction, whether it is checked even after a NO of the filter: a subscription that has it is
    /// unkeyed.
    always: Box<[bool]>,
    /// For each conjunction, whether it has no access clause.
    bare: Box<[bool]>,
    keyed: usize,
    unkeyed: usize,
    scope: KeyScope,
}

/// The rank of a clause as access clause, the less the better; see `streamer/subscriptions/keys.py`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    /// See [`rank`].
    coarse: u8,
    preference: u8,
    keys: u32,
}

impl Access {
    /// Choose the access clauses of a store.
    pub fn of(store: &Store, scope: KeyScope) -> Access {
        let ranks: Vec<Option<Rank>> = (0..store.distinct_clauses() as u32).map(|clause| rank_of(store, scope, clause)).collect();
        let mut is_unkeyed = vec![false; store.len()];
        let mut clauses = vec![NONE; store.conjunctions()];
        for (conjunction, access) in clauses.iter_mut().enumerate() {
            let usable = store.clauses(conjunction as u32).iter().filter(|clause| ranks[**clause as usize].is_some());
            match usable.min_by(|one, other| better(store, scope, &ranks, **one, **other)) {
                Some(clause) => *access = *clause,
                None => store.targets(conjunction as u32).iter().for_each(|at| is_unkeyed[*at as usize] = true),
            }
        }
        let bare: Box<[bool]> = clauses.iter().map(|clause| *clause == NONE).collect();
        let mut always = vec![false; store.conjunctions()];
        for (conjunction, access) in clauses.iter_mut().enumerate() {
            let targets = store.targets(conjunction as u32);
            always[conjunction] = targets.iter().any(|at| is_unkeyed[*at as usize]);
            if targets.iter().all(|at| is_unkeyed[*at as usize]) {
                *access = NONE;
            }
        }
        let unkeyed = is_unkeyed.iter().filter(|is_unkeyed| **is_unkeyed).count();
        Access { clauses: clauses.into(), always: always.into(), bare, keyed: store.len() - unkeyed, unkeyed, scope }
    }

    /// How many subscriptions have keys, and how many have none.
    pub fn counts(&self) -> (usize, usize) {
        (self.keyed, self.unkeyed)
    }

    /// How many of the subscriptions that *is_live* accepts have keys, and how many have none.
    pub fn live(&self, store: &Store, is_live: impl Fn(u32) -> bool) -> (usize, usize) {
        let mut is_unkeyed = vec![false; store.len()];
        let bare = (0..store.conjunctions() as u32).filter(|conjunction| self.is_unkeyed(*conjunction));
        let lacking = bare.flat_map(|conjunction| store.targets(conjunction));
        lacking.for_each(|at| is_unkeyed[*at as usize] = true);
        let live = |wanted: bool| (0..store.len() as u32).filter(|at| is_live(*at) && is_unkeyed[*at as usize] == wanted).count();
        (live(false), live(true))
    }

    /// Whether a conjunction is checked even after a NO of the filter.
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
            let mut count = 0;
            if *clause != NONE {
                for_each_probe(store, self.scope, *clause, |_| count += 1);
            }
            count * targets
        };
        self.clauses.iter().enumerate().map(keys).sum()
    }

    /// Call *visit* with the path, by position in the store's path set, and the key, of each key of the subscriptions
    /// that *is_live* accepts, by position in *store*: the store that this was made from, renumbered or not.
    pub fn for_each<'s>(&self, store: &'s Store, is_live: impl Fn(u32) -> bool, mut visit: impl FnMut(u32, KeyProbe<'s>)) {
        for (conjunction, clause) in self.clauses.iter().enumerate() {
            if *clause != NONE && store.targets(conjunction as u32).iter().any(|at| is_live(*at)) {
                let path = store.clause(*clause).path;
                for_each_probe(store, self.scope, *clause, |probe| visit(path, probe));
            }
        }
    }
}

/// Call *visit* with each key of a clause. Return its rank, see [`rank`]; None if one of its atoms has no key.
fn for_each_probe<'s>(store: &'s Store, scope: KeyScope, clause: u32, mut visit: impl FnMut(KeyProbe<'s>)) -> Option<u8> {
    let clause = store.clause(clause);
    let place = &store.paths.paths[clause.path as usize];
    let root = place.0.root;
    let mut coarse = rank::EXACT;
    for atom in clause.atoms {
        coarse = coarse.max(scope.probes(place, &atom.view, &mut visit)?);
    }
    // A clause without atoms has no key that names its place; but an unknown value at the place makes the clause
    // unknown.
    (clause.count > 0).then_some(if root == Root::Type { rank::TYPE } else { coarse })
}

fn rank_of(store: &Store, scope: KeyScope, clause: u32) -> Option<Rank> {
    let mut keys = Vec::new();
    let coarse = for_each_probe(store, scope, clause, |probe| keys.push(probe))?;
    // All keys of one atom are different.
    let keys = if store.clause(clause).count > 1 { written(&keys).len() } else { keys.len() };
    let root = store.paths.paths[store.clause(clause).path as usize].0.root;
    Some(Rank { coarse, preference: preference(root), keys: keys as u32 })
}

/// The bytes of distinct keys of one clause, sorted.
fn written(keys: &[KeyProbe<'_>]) -> Vec<Vec<u8>> {
    let write = |probe: &KeyProbe<'_>| {
        let mut out = Vec::new();
        end_key(&mut out, probe);
        out
    };
    let mut all: Vec<Vec<u8>> = keys.iter().map(write).collect();
    all.sort_unstable();
    all.dedup();
    all
}

fn better(store: &Store, scope: KeyScope, ranks: &[Option<Rank>], one: u32, other: u32) -> Ordering {
    ranks[one as usize].cmp(&ranks[other as usize]).then_with(|| {
        let path_of = |clause: u32| &store.paths.paths[store.clause(clause).path as usize];
        let ((left, left_mode), (right, right_mode)) = (path_of(one), path_of(other));
        let by_place = (root_name(left.root), mode_name(*left_mode), &left.names).cmp(&(
            root_name(right.root),
            mode_name(*right_mode),
            &right.names,
        ));
        // Both clauses are at one place, so their bytes begin alike.
        let bytes_of = |clause: u32| {
            let mut keys = Vec::new();
            for_each_probe(store, scope, clause, |probe| keys.push(probe));
            written(&keys)
        };
        by_place.then_with(|| bytes_of(one).cmp(&bytes_of(other)))
    })
}
