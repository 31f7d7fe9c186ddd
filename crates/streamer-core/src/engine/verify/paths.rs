//! The paths that a segment reads, and one trie of them for each view of the engine.
//!
//! ```text
//!   event of (acme, orders) sees   (acme, orders)   (acme, *)   (*, orders)   (*, *)
//!   segments' path sets                #7 #9           #7                        #3
//!   view {7 9 7 3} ─► one trie of all their paths, and for each set: its path n is path id m of the trie
//! ```
//!
//! Invariant: a set's number always stands for the same paths, so a view never goes stale; it only falls out of use. A
//! guessed view counts once the event's own names lead to the same sets.
//!
//! Cost: a view is made when a thread first sees the combination, then found by a hash of a few numbers.
//!
//! Rejected: views in the version, made by the writer: a change in (\*, \*) would make one for each of 300,000 partitions.

use crate::engine::verify::encoded::FastHash;
use crate::flatten::{PathId, PathTrie};
use crate::layout::EventLayout;
use crate::stored::{Packer, Unpacker};
use crate::subscriptions::normal_form::{Mode, Path, Root};
use hashbrown::HashTable;
use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::{Arc, Weak};

/// A set of more paths than this, a bucket that reads more, and a filter of more places iterate over the paths that the
/// event has, not over their own.
pub(crate) const MANY_PATHS: usize = 24;

/// The distinct paths of a segment; a path has one number for each mode. Equal sets of an engine are one.
#[derive(Debug)]
pub struct PathSet {
    /// The number of the set, never used again for another.
    pub number: u64,
    /// The paths; a segment names them by position.
    pub paths: Box<[(Path, Mode)]>,
}

impl PathSet {
    /// Pack the paths for an image.
    pub(super) fn pack(&self, pack: &mut Packer) {
        pack.several(self.paths.iter(), |pack, (path, mode)| {
            pack.number(Root::ALL.iter().position(|root| *root == path.root).unwrap_or(Root::ALL.len()));
            pack.number(*mode as usize);
            pack.several(path.names.iter(), |pack, name| pack.text(name));
        });
    }

    /// The paths that were packed.
    pub(super) fn unpack(pack: &mut Unpacker<'_>) -> Option<Vec<(Path, Mode)>> {
        pack.several(|path| {
            let root = Root::ALL[path.below(Root::ALL.len())? as usize];
            let mode = Mode::ALL[path.below(Mode::ALL.len())? as usize];
            Some((Path { root, names: path.several(|name| name.text().map(Box::from))?.into() }, mode))
        })
    }
}

/// Makes equal sets one. Owned by the writer.
#[derive(Debug, Default)]
pub struct PathSets {
    next: u64,
    known: HashTable<(u64, Weak<PathSet>)>,
    hasher: FastHash,
    purge_at: usize,
}

impl PathSets {
    /// The set of *paths*, in this order.
    pub fn get(&mut self, paths: Vec<(Path, Mode)>) -> Arc<PathSet> {
        let hash = self.hasher.hash_one(&paths);
        let is_it = |set: &Weak<PathSet>| set.upgrade().filter(|set| *set.paths == *paths);
        if let Some(set) = self.known.iter_hash(hash).find_map(|(_, set)| is_it(set)) {
            return set;
        }
        if self.known.len() >= self.purge_at.max(256) {
            self.known.retain(|(_, set)| set.strong_count() > 0);
            self.purge_at = self.known.len() * 2;
        }
        self.next += 1;
        let set = Arc::new(PathSet { number: self.next, paths: paths.into() });
        self.known.insert_unique(hash, (hash, Arc::downgrade(&set)), |(hash, _)| *hash);
        set
    }
}

/// One trie for several path sets.
#[derive(Debug)]
pub struct View {
    /// The paths that the flattener looks for.
    pub trie: PathTrie,
    /// For each requested set, in order: the ids of its paths.
    pub maps: Box<[PathMap]>,
    /// The field that flags a document as deleted.
    pub flag: Option<PathId>,
}

/// How the paths of a set are named in a trie.
#[derive(Debug)]
pub struct PathMap {
    /// For each path of the set its path id.
    pub ids: Box<[PathId]>,
    /// For each path id the paths of the set that it stands for, or `u32::MAX`; empty for a set of few paths, which are
    /// all read anyway.
    pub positions: Box<[Positions]>,
}

/// The paths of a set for a path id: one for each mode, and last the path for which it is the side before.
pub type Positions = [u32; Mode::ALL.len() + 1];

impl PathMap {
    fn new(set: &PathSet, ids: Box<[PathId]>, trie: &PathTrie) -> PathMap {
        let mut positions = Vec::new();
        if set.paths.len() > MANY_PATHS {
            positions.resize(trie.paths(), [u32::MAX; Mode::ALL.len() + 1]);
            for (at, (id, (_, mode))) in ids.iter().zip(&set.paths).enumerate() {
                positions[id.0 as usize][*mode as usize] = at as u32;
                if let (Mode::Changed, Some(before)) = (mode, trie.lookups[id.0 as usize].before) {
                    positions[before.0 as usize][Mode::ALL.len()] = at as u32;
                }
            }
        }
        PathMap { ids, positions: positions.into() }
    }
}

/// The views that a thread has used.
#[derive(Debug, Default)]
pub struct Views {
    known: HashMap<Box<[u64]>, Arc<View>>,
    key: Vec<u64>,
    weight: usize,
    /// The last requested view, whose sets are `key`: most often it is requested again.
    last: Option<Arc<View>>,
    /// The luck of these guesses.
    luck: Luck,
}

/// Whether a guess is worth its price, by how those before it came out.
#[derive(Clone, Copy, Debug)]
pub struct Luck {
    credit: i8,
    pause: u8,
}

/// Right guesses that make up for a wrong one.
const PRICE: i8 = 4;
const MOST_CREDIT: i8 = 16;
/// After too many wrong guesses, this many events are not guessed.
const PAUSE: u8 = 32;

impl Default for Luck {
    fn default() -> Luck {
        Luck { credit: MOST_CREDIT, pause: 0 }
    }
}

impl Luck {
    /// Whether to guess now.
    pub fn guesses(&mut self) -> bool {
        let guesses = self.pause == 0;
        self.pause = self.pause.saturating_sub(1);
        guesses
    }

    /// Take whether a guess was right, and return it.
    pub fn settle(&mut self, is_right: bool) -> bool {
        if is_right {
            self.credit = (self.credit + 1).min(MOST_CREDIT);
        } else {
            self.credit -= PRICE;
            if self.credit < 0 {
                (self.credit, self.pause) = (PRICE, PAUSE);
            }
        }
        is_right
    }
}

/// The most paths of a thread's views together; beyond it all views are dropped.
const MOST: usize = 1 << 18;

impl Views {
    /// The last view, for the next event before its partitions are known; the caller returns it. Events of many
    /// collections have one view if they read the same paths.
    pub fn guess(&mut self) -> Option<Arc<View>> {
        if self.last.is_some() && self.luck.guesses() { self.last.take() } else { None }
    }

    /// The numbers of the sets of the last view.
    pub fn key(&self) -> &[u64] {
        &self.key
    }

    /// Take whether the guess was right, and return it.
    pub fn is_right(&mut self, is_right: bool) -> bool {
        self.luck.settle(is_right)
    }

    /// Take back the view that was guessed.
    pub fn give_back(&mut self, view: Arc<View>) {
        self.last = Some(view);
    }

    /// The view of *sets*, which are those of the last one if *is_last*; *flag* is the soft-delete field of the engine whose views these are.
    pub fn get<'a>(
        &mut self,
        is_last: bool,
        sets: impl Iterator<Item = &'a PathSet> + Clone,
        layout: &Arc<EventLayout>,
        flag: Option<&Path>,
    ) -> &Arc<View> {
        if self.last.is_none() || !is_last {
            self.key.clear();
            self.key.extend(sets.clone().map(|set| set.number));
            let view = match self.known.get(self.key.as_slice()) {
                Some(view) => view.clone(),
                None => self.make(sets, layout, flag),
            };
            self.last = Some(view);
        }
        self.last.as_ref().expect("set above")
    }

    fn make<'a>(
        &mut self,
        sets: impl Iterator<Item = &'a PathSet> + Clone,
        layout: &Arc<EventLayout>,
        flag: Option<&Path>,
    ) -> Arc<View> {
        let mut builder = PathTrie::builder(layout.clone());
        let ids: Vec<Box<[PathId]>> =
            sets.clone().map(|set| set.paths.iter().map(|(path, mode)| builder.want(path, *mode)).collect()).collect();
        let flag = flag.map(|path| builder.want(path, Mode::Scalar));
        let all = builder.len();
        let weight = 16 + all + ids.iter().map(|ids| ids.len()).sum::<usize>();
        let trie = builder.build();
        let maps = sets.zip(ids).map(|(set, ids)| PathMap::new(set, ids, &trie)).collect();
        let view = Arc::new(View { trie, maps, flag });
        if self.weight + weight > MOST {
            self.known.clear();
            self.weight = 0;
        }
        self.weight += weight;
        self.known.insert(self.key.as_slice().into(), view.clone());
        view
    }
}
