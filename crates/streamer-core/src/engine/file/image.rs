//! A compiled section as bytes, read in place.
//!
//! ```text
//!   head      subscriptions, flags, always, unkeyed; then the place of each array
//!   arrays    words  starts  ...  targets │ lines  flags  texts │ pack │ dictionary  values  equalities  buckets ... │ recipe
//!             └─ mapped: Store ───────────┘                     │      └─ mapped: Index ────────────────────────┘
//!                     paths, expressions, trees, verifications ─┘          matchers are made again of their recipe
//! ```
//!
//! Each type has the code to write and to read it next to its definition (`write`, `read`, with `stored.rs`). This file
//! has the head, the order of all types, and the conditions between them.
//!
//! An image is for the version of the core that wrote it, on a processor with that order of bytes. [`KIND`] is in the
//! file's header. A core with another one builds the section from its lines.
//!
//! Invariant: the result of [`decode`] can be searched for any event without reading outside of an array, and every
//! search ends. Numbers are below the count that bounds them, buckets are a tree of bounded depth, tables have an empty
//! slot. Only the checksum proves that it is the index of those lines.
//!
//! Cost of decoding: one visit to each word, about 1 ns, and the matchers are sorted again. The process itself
//! allocates 4 bytes a subscription for slots, and the small parts. The rest is the file's memory.
//!
//! Rejected: matchers as arrays in the file, too (eleven formats more, for a tenth of the memory); trusting only the
//! checksum (a file that was forged could make a search run for ever).

use crate::engine::index::buckets::{ANSWER, Bucket, CANDIDATE, EQUALITIES, Index, NO_BUCKET, Next};
use crate::engine::verify::check_records::sound_records;
use crate::engine::verify::matchers::{Matcher, Recipe};
use crate::engine::verify::paths::PathSets;
use crate::engine::verify::store::Store;
use crate::map::Bytes;
use crate::stored::{ImageReader, ImageWriter};
use crate::value::Seed;
use std::ops::Range;

/// The form of this core's images: its version in the low half, and in the high half a mark that reads alike only with
/// the same order of bytes.
pub const KIND: u64 = u64::from_ne_bytes(*b"\x0c\0\0\0Imge");

/// The numbers of the head, the arrays after it, and which of those is the pack.
const NUMBERS: usize = 4;
const ARRAYS: usize = 20;
const PACK: usize = 10;
/// Buckets nest as deep as the builder makes them, and one more.
const DEEPEST: u32 = 13;
const NOTHING: u64 = u64::MAX;

/// The bytes of a compiled section, whose slots are the lines that its subscriptions are on.
pub(super) fn encode(store: &Store, index: &Index, recipe: &Recipe) -> Vec<u8> {
    let mut out = ImageWriter::default();
    store.write(&mut out);
    out.write_pack();
    index.write(&mut out);
    recipe.write(&mut out);
    let always = index.always.map_or(NOTHING, u64::from);
    out.finish(&[store.len() as u64, u64::from(store.any_flags), always, u64::from(index.unkeyed)])
}

/// Read the image at *image* in *file*, of *count* subscriptions whose slots begin at *base*; None if it is not one, or
/// damaged.
pub(super) fn decode(
    file: &Bytes,
    image: Range<usize>,
    count: u32,
    base: u32,
    seed: &Seed,
    sets: &mut PathSets,
) -> Option<(Store, Index)> {
    let mut from = ImageReader::new(file, image, NUMBERS, ARRAYS, PACK)?;
    let [subscriptions, flags, always, unkeyed] = [0, 1, 2, 3].map(|at| from.number(at));
    if subscriptions != u64::from(count) {
        return None;
    }
    let store = Store::read(&mut from, count, base, sets)?;
    if u64::from(store.any_flags) != flags || !from.pack.is_empty() {
        return None;
    }
    from.skip_pack()?;
    let always = if always == NOTHING { None } else { Some(u32::try_from(always).ok()?) };
    let index = Index::read(&mut from, seed, always, u32::try_from(unkeyed).ok()?)?;
    let recipe = Recipe::read(&mut from)?;
    let matchers = matchers(&store, &index, &recipe, seed)?;
    Some((store, Index { matchers, ..index }))
}

/// The bucket that leads to each bucket: at most one, which comes before it.
struct Transitions<'i> {
    index: &'i Index,
    subscriptions: usize,
    /// The start of the records of candidates, a bit each.
    starts: Vec<u64>,
    above: Vec<u32>,
}

impl Transitions<'_> {
    fn is_start(&self, at: u32) -> bool {
        self.starts.get(at as usize / 64).is_some_and(|word| word >> (at % 64) & 1 != 0)
    }

    /// Note the target of the bucket *from*; None if it is invalid, or already has another source.
    fn lead(&mut self, from: u32, next: Next) -> Option<()> {
        if next.0 & CANDIDATE != 0 {
            let at = next.0 & !CANDIDATE;
            return (self.is_start(at) && (at as usize) < self.index.checks.len()).then_some(());
        }
        if next.0 & ANSWER != 0 {
            return (((next.0 & !ANSWER) as usize) < self.subscriptions).then_some(());
        }
        let entry = self.above.get_mut(next.0 as usize)?;
        (std::mem::replace(entry, from) == NO_BUCKET && from < next.0 && Some(next.0) != self.index.always).then_some(())
    }

    /// Whether no bucket lies deeper than a search may go.
    fn is_shallow(&self) -> bool {
        let mut depth: Vec<u32> = Vec::with_capacity(self.above.len());
        self.above.iter().all(|above| {
            let level = if *above == NO_BUCKET { Some(0) } else { depth.get(*above as usize).map(|above| above + 1) };
            depth.extend(level);
            level.is_some_and(|level| level <= DEEPEST)
        })
    }
}

/// The matchers of an index by their recipe; None if its parts do not fit one another.
fn matchers(store: &Store, index: &Index, recipe: &Recipe, seed: &Seed) -> Option<Box<[Matcher]>> {
    let counts = store.counts();
    let starts = sound_records(&index.checks, counts)?;
    let above = vec![NO_BUCKET; index.buckets.len()];
    let mut transitions = Transitions { index, subscriptions: counts.subscriptions, starts, above };
    let is_subscription = |number: &u32| (*number as usize) < counts.subscriptions;
    let is_whole = !index.buckets.is_empty()
        && index.always.is_none_or(|bucket| (bucket as usize) < index.buckets.len())
        && index.dictionary.is_below(index.values.len())
        && index.lists.iter().all(is_subscription)
        && index.values.iter().all(|value| (value.path as usize) < counts.paths && store.encoded.is_atom(value.atom));
    if !is_whole {
        return None;
    }
    for value in index.values.iter().filter(|value| value.first != Next::NOWHERE) {
        transitions.lead(0, value.first)?;
    }
    for equality in index.equalities.slots.iter().filter(|equality| equality.bucket != NO_BUCKET) {
        transitions.lead(equality.bucket, equality.next)?;
    }
    let owners = owners(index, recipe, counts.paths, &transitions)?;
    let mut matchers = Vec::with_capacity(owners.len());
    for ([class, start, middle, end], owner) in recipe.heads.iter().zip(&owners) {
        let answers = recipe.atoms.get(*start as usize..*middle as usize)?;
        let others = recipe.atoms.get(*middle as usize..*end as usize)?;
        if !answers.iter().all(|[_, subscription]| is_subscription(subscription)) {
            return None;
        }
        let own = others.iter().map(|[_, next]| Next(*next));
        own.filter(|_| *owner != NO_BUCKET).try_for_each(|next| transitions.lead(*owner, next))?;
        matchers.push(Matcher::of_bucket(store, seed, *class, answers, others)?);
    }
    transitions.is_shallow().then(|| matchers.into())
}

/// The one bucket that owns each matcher, after the ranges of all buckets were checked.
fn owners(index: &Index, recipe: &Recipe, paths: usize, transitions: &Transitions<'_>) -> Option<Vec<u32>> {
    let mut owners = vec![NO_BUCKET; recipe.heads.len()];
    for (bucket, number) in index.buckets.iter().zip(0..) {
        let Bucket { answers, several, lists_end, candidates, candidates_end, probes: from, probes_end: to } = *bucket;
        let is_sound = answers <= several
            && several <= lists_end
            && lists_end as usize <= index.lists.len()
            && candidates <= candidates_end
            && transitions.is_start(candidates)
            && transitions.is_start(candidates_end);
        if !is_sound {
            return None;
        }
        for probe in index.probes.get(from as usize..to as usize)? {
            if probe.path as usize >= paths {
                return None;
            }
            if probe.matcher != EQUALITIES && std::mem::replace(owners.get_mut(probe.matcher as usize)?, number) != NO_BUCKET {
                return None;
            }
        }
    }
    Some(owners)
}
