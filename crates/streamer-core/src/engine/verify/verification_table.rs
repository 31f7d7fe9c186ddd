//! The verifications of candidates beyond their conjunctions, for each subscription of a segment that has one.
//!
//! ```text
//!   subscriptions with one    0 1 1 0 0 1 ...  bits, and before each 64 of them how many there were
//!   the n-th of them          n = 0 ─► 0    n = 1 ─► 0    n = 2 ─► 1
//!   distinct                  0: `status` differs from `before.status`     1: a pattern tree over three fields
//! ```
//!
//! Invariant: equal verifications are stored once. So if many wait for a change of the same field, as they do, all of
//! them read the same lines of memory.
//!
//! Cost: 4 bytes for each subscription that has one, 56 and its fields for each distinct one, 16 for each 64 subscriptions of a segment that has any; a look is a count of bits.
//!
//! Rejected: a list that is searched by number, which is 15 lines of memory one after the other at 20,000.

use crate::engine::verify::encoded::FastHash;
use crate::stored::{Packer, Unpacker};
use crate::subscriptions::normal_form::{Atom, PatternTree, Relation};
use hashbrown::HashTable;
use std::hash::BuildHasher;
use std::ops::Range;
use std::sync::Arc;

/// The checks of a candidate.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Verification {
    /// Pairs of paths, by position in the path set, whose values must differ.
    pub changed: Box<[(u32, u32)]>,
    /// Pairs of paths whose values must compare so.
    pub compared: Box<[(u32, Relation, u32)]>,
    /// The fields of the pattern: clauses.
    pub fields: Box<[u32]>,
    /// The pattern over them, whose choice of leaves must be consistent.
    pub pattern: Option<Arc<VerifiedPattern>>,
}

/// A pattern without the conditions of its fields: all patterns over the same paths share it.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct VerifiedPattern {
    pub tree: VerifiedTree,
    /// The path of each field.
    paths: Box<[u32]>,
    /// The paths of fields that begin like that of another field, each with the number of common names. An array
    /// further down does not contain a leaf of another field.
    pub shared: Box<[(u32, u32)]>,
}

/// [`VerifiedPattern::shared`] for fields at these *paths*, whose names are *name*; linear except for a sort.
fn shared_names<'n>(paths: &[u32], name: impl Fn(u32) -> &'n [Box<str>]) -> Box<[(u32, u32)]> {
    let mut sorted = paths.to_vec();
    sorted.sort_unstable_by_key(|path| name(*path));
    // The common part of a path with any other is also common with one of its neighbours.
    let common = |pair: &[u32]| name(pair[0]).iter().zip(name(pair[1])).take_while(|(one, other)| one == other).count() as u32;
    let mut shared: Vec<(u32, u32)> = Vec::new();
    let mut before = 0;
    for (at, path) in sorted.iter().enumerate() {
        let after = sorted.get(at..at + 2).map_or(0, common);
        let most = before.max(after);
        before = after;
        match shared.last_mut() {
            Some((last, names)) if last == path => *names = most.max(*names),
            _ if most > 0 => shared.push((*path, most)),
            _ => {}
        }
    }
    shared.into()
}

/// A pattern over fields that are numbered depth first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct VerifiedTree {
    /// The fields that must all be true.
    pub fields: Range<u32>,
    /// One alternative of each of these must be true.
    pub any_of: Box<[Box<[VerifiedTree]>]>,
}

impl VerifiedTree {
    /// Number the fields of *pattern*. Patterns nest `$or` to a bounded depth.
    pub(super) fn of<'a>(pattern: &'a PatternTree, fields: &mut Vec<&'a (u32, Box<[Atom]>)>) -> VerifiedTree {
        let start = fields.len() as u32;
        fields.extend(&pattern.fields);
        let end = fields.len() as u32;
        let any_of = pattern.any_of.iter().map(|all| all.iter().map(|one| VerifiedTree::of(one, fields)).collect()).collect();
        VerifiedTree { fields: start..end, any_of }
    }
}

/// Pattern trees in an image nest no deeper.
const DEEPEST_PATTERN: u32 = 600;

impl Verification {
    pub(super) fn pack(&self, pack: &mut Packer) {
        let numbers = |pack: &mut Packer, numbers: &[u32]| {
            pack.several(numbers.iter(), |pack, number| pack.number(*number as usize));
        };
        let changed: Vec<u32> = self.changed.iter().flat_map(|(left, right)| [*left, *right]).collect();
        let compared: Vec<u32> =
            self.compared.iter().flat_map(|(left, relation, right)| [*left, *relation as u32, *right]).collect();
        numbers(pack, &changed);
        numbers(pack, &compared);
        numbers(pack, &self.fields);
        pack.number(usize::from(self.pattern.is_some()));
        if let Some(pattern) = &self.pattern {
            pattern.tree.pack(pack);
        }
    }

    /// Read the packed data of a store with *paths* paths and *clauses* clauses. *pattern* makes a pattern of its tree and
    /// the clauses of its fields.
    pub(super) fn unpack(
        pack: &mut Unpacker<'_>,
        paths: usize,
        clauses: usize,
        pattern: &mut impl FnMut(VerifiedTree, &[u32]) -> Arc<VerifiedPattern>,
    ) -> Option<Verification> {
        let changed = pack.several(|path| path.below(paths))?;
        let compared = pack.several(|number| number.below(paths.max(Relation::ALL.len())))?;
        let compared: Option<Box<[_]>> = compared
            .chunks_exact(3)
            .map(|three| {
                let is_path = |path: u32| (path as usize) < paths;
                let relation = *Relation::ALL.get(three[1] as usize)?;
                (is_path(three[0]) && is_path(three[2])).then_some((three[0], relation, three[2]))
            })
            .collect();
        let fields = pack.several(|clause| clause.below(clauses))?;
        let pattern = match pack.below(2)? {
            1 => Some(pattern(VerifiedTree::unpack(pack, fields.len(), DEEPEST_PATTERN)?, &fields)),
            _ => None,
        };
        let changed = changed.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
        Some(Verification { changed, compared: compared?, fields: fields.into(), pattern })
    }
}

impl VerifiedTree {
    fn pack(&self, pack: &mut Packer) {
        pack.number(self.fields.start as usize);
        pack.number(self.fields.end as usize);
        pack.several(self.any_of.iter(), |pack, all| pack.several(all.iter(), |pack, one| one.pack(pack)));
    }

    /// Read the packed tree over *fields* fields.
    fn unpack(pack: &mut Unpacker<'_>, fields: usize, deeper: u32) -> Option<VerifiedTree> {
        let (start, end) = (pack.below(fields + 1)?, pack.below(fields + 1)?);
        let deeper = deeper.checked_sub(1)?;
        let any_of =
            pack.several(|all| Some(all.several(|one| VerifiedTree::unpack(one, fields, deeper))?.into_boxed_slice()))?;
        (start <= end).then(|| VerifiedTree { fields: start..end, any_of: any_of.into() })
    }
}

/// The verifications of a segment. See the head of this file.
#[derive(Debug, Default)]
pub struct Verifications {
    /// A bit for each subscription that has one, and how many have one before these.
    have: Box<[(u64, u32)]>,
    /// For each of these, in their order, its number among the distinct ones.
    numbers: Box<[u32]>,
    distinct: Box<[Verification]>,
}

impl Verifications {
    /// The verification of a subscription.
    #[inline]
    pub(super) fn get(&self, subscription: u32) -> Option<&Verification> {
        let (bits, before) = *self.have.get(subscription as usize / 64)?;
        let bit = 1_u64 << (subscription % 64);
        let at = before + (bits & (bit - 1)).count_ones();
        (bits & bit != 0).then(|| &self.distinct[self.numbers[at as usize] as usize])
    }

    /// All verifications with their subscriptions, in the order of these.
    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = (u32, &Verification)> {
        let numbered: Vec<(u32, u32)> = self.numbered().collect();
        numbered.into_iter().map(|(subscription, number)| (subscription, &self.distinct[number as usize]))
    }

    /// All subscriptions that have one, in order, with its number.
    fn numbered(&self) -> impl Iterator<Item = (u32, u32)> {
        let subscriptions = (0..)
            .zip(&self.have)
            .flat_map(|(block, (bits, _))| (0..64).filter(move |bit| bits >> bit & 1 != 0).map(move |bit| block * 64 + bit));
        subscriptions.zip(self.numbers.iter().copied())
    }

    /// Give subscription n the number `places[n]`.
    pub(super) fn renumber(&mut self, places: &[u32]) {
        let numbered = self.numbered().map(|(subscription, number)| (places[subscription as usize], number)).collect();
        *self = Verifications::of(numbered, std::mem::take(&mut self.distinct));
    }

    fn of(mut numbered: Vec<(u32, u32)>, distinct: Box<[Verification]>) -> Verifications {
        numbered.sort_unstable();
        let blocks = numbered.last().map_or(0, |(last, _)| *last as usize / 64 + 1);
        let mut have = vec![(0_u64, 0_u32); blocks];
        for (subscription, _) in &numbered {
            have[*subscription as usize / 64].0 |= 1 << (subscription % 64);
        }
        let mut before = 0;
        for (bits, earlier) in &mut have {
            *earlier = before;
            before += bits.count_ones();
        }
        Verifications { have: have.into(), numbers: numbered.into_iter().map(|(_, number)| number).collect(), distinct }
    }

    /// Heap bytes used, without those of shared patterns.
    pub(super) fn bytes(&self) -> usize {
        let distinct = self
            .distinct
            .iter()
            .map(|one| size_of::<Verification>() + one.changed.len() * 8 + one.compared.len() * 12 + one.fields.len() * 4);
        self.have.len() * 16 + self.numbers.len() * 4 + distinct.sum::<usize>()
    }
}

/// Fills [`Verifications`].
#[derive(Debug, Default)]
pub struct VerificationsBuilder {
    numbered: Vec<(u32, u32)>,
    distinct: Vec<Verification>,
    known: HashTable<u32>,
    patterns: HashTable<Arc<VerifiedPattern>>,
    hasher: FastHash,
}

impl VerificationsBuilder {
    /// The pattern of a tree over fields at these paths, whose names are *name*.
    pub(super) fn pattern<'n>(
        &mut self,
        tree: VerifiedTree,
        paths: Box<[u32]>,
        name: impl Fn(u32) -> &'n [Box<str>],
    ) -> Arc<VerifiedPattern> {
        let hash = self.hasher.hash_one((&tree, &paths));
        if let Some(known) = self.patterns.find(hash, |known| known.tree == tree && known.paths == paths) {
            return known.clone();
        }
        let shared = shared_names(&paths, name);
        let made = Arc::new(VerifiedPattern { tree, paths, shared });
        self.patterns.insert_unique(hash, made.clone(), |made| self.hasher.hash_one((&made.tree, &made.paths)));
        made
    }

    /// A pattern of another store, whose path n is `paths[n]` here.
    pub(super) fn copied<'n>(
        &mut self,
        pattern: &VerifiedPattern,
        paths: &[u32],
        name: impl Fn(u32) -> &'n [Box<str>],
    ) -> Arc<VerifiedPattern> {
        let here = pattern.paths.iter().map(|path| paths[*path as usize]).collect();
        self.pattern(pattern.tree.clone(), here, name)
    }

    /// Add the verification of a subscription, which has none yet.
    pub(super) fn add(&mut self, subscription: u32, verification: Verification) {
        let (distinct, hasher) = (&mut self.distinct, &self.hasher);
        let hash = hasher.hash_one(&verification);
        let number = match self.known.find(hash, |at| distinct[*at as usize] == verification) {
            Some(known) => *known,
            None => {
                let number = distinct.len() as u32;
                distinct.push(verification);
                self.known.insert_unique(hash, number, |at| hasher.hash_one(&distinct[*at as usize]));
                number
            }
        };
        self.numbered.push((subscription, number));
    }

    /// Make them.
    pub(super) fn build(self) -> Verifications {
        Verifications::of(self.numbered, self.distinct.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting_for(path: u32) -> Verification {
        Verification { changed: [(path, path + 1)].into(), compared: Box::default(), fields: Box::default(), pattern: None }
    }

    #[test]
    fn each_subscription_has_its_own_and_equal_ones_are_one_also_after_renumbering() {
        let mut builder = VerificationsBuilder::default();
        let have = |at: u32| at % 5 == 3 || (64..130).contains(&at);
        for at in (0..300).filter(|at| have(*at)) {
            builder.add(at, waiting_for(at % 7));
        }
        let mut made = builder.build();
        assert_eq!(made.distinct.len(), 7);
        let expected = |at: u32| have(at).then(|| waiting_for(at % 7));
        assert!((0..400).all(|at| made.get(at).cloned() == expected(at).filter(|_| at < 300)));
        let all: Vec<(u32, Verification)> = made.iter().map(|(at, one)| (at, one.clone())).collect();
        assert_eq!(all, (0..300).filter_map(|at| Some((at, expected(at)?))).collect::<Vec<_>>());
        let places: Vec<u32> = (0..300).map(|at| (at * 7 + 11) % 300).collect();
        made.renumber(&places);
        assert!((0..300).all(|at| made.get(places[at as usize]).cloned() == expected(at)));
        assert!(Verifications::default().get(0).is_none());
    }
}
