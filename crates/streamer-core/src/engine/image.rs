//! A compiled section as bytes, read where it lies.
//!
//! ```text
//!   head      subscriptions, flags, always, unkeyed; then where each array is
//!   arrays    words  clause_at  ...  targets │ lines  flags  texts │ small │ dictionary  values  equalities  buckets ... │ recipe
//!             └─ mapped: Store ──────────────┘                     │       └─ mapped: Index ────────────────────────┘
//!                        paths, expressions, trees, verifications ─┘          matchers are made again of their recipe
//! ```
//!
//! An image is for the version of the core that wrote it, on a processor with that order of bytes. [`KIND`] stands in the
//! file's header. A core that has another one makes the section of its lines.
//!
//! Invariant: what [`decode`] returns can be searched for any event without looking outside of an array, and every search ends.
//! Numbers are below what they count, buckets are a tree of bounded depth, tables have an empty slot. Whether it is the index
//! of those lines is what the checksum stands for.
//!
//! Cost of decoding: one look at each word, about 1 ns, and the matchers are sorted anew. The process has of its own 4 bytes a
//! subscription for slots, and the small things. All else is the file's memory.
//!
//! Rejected: matchers as arrays in the file, too (eleven formats more, for a tenth of the memory); trusting the checksum alone (a
//! file that was written on purpose could make a search run for ever).

use crate::automaton::table::Table;
use crate::engine::buckets::{ANSWER, Bucket, CANDIDATE, EQUALITIES, Equalities, Index, NO_BUCKET, NamedValue, Next, Probe};
use crate::engine::build::Recipe;
use crate::engine::checks::{StoreCounts, sound_records};
use crate::engine::encoded::Pool;
use crate::engine::matchers::Matcher;
use crate::engine::paths::PathSets;
use crate::engine::store::{Store, Verification, VerifiedTree};
use crate::json;
use crate::map::{Array, Bytes, Text};
use crate::regexps::CompiledRegexp;
use crate::regexps::Regexp;
use crate::subscriptions::normal_form::{Mode, Path, Relation, Root};
use crate::value::{Seed, Value as Json};
use bytemuck::{AnyBitPattern, NoUninit};
use std::ops::Range;
use std::sync::Arc;

/// What images of this core are for: the version of their form in the low half, a mark that only the same order of bytes reads
/// alike in the high half.
pub const KIND: u64 = u64::from_ne_bytes(*b"\x03\0\0\0Imge");

const ARRAYS: usize = 20;
const HEAD: usize = 4 + 2 * ARRAYS;
/// Buckets nest as deep as the builder makes them, and one more.
const DEEPEST: u32 = 13;
/// A tree that is nested deeper, in a subscription, has no image.
const DEEPEST_TREE: usize = 2048;
const NOTHING: u64 = u64::MAX;

/// Bytes that arrays are appended to.
#[derive(Default)]
struct Encoder {
    head: Vec<u64>,
    bytes: Vec<u8>,
}

impl Encoder {
    fn put<T: NoUninit>(&mut self, array: &[T]) {
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        let bytes: &[u8] = bytemuck::cast_slice(array);
        self.head.extend([(HEAD * 8 + self.bytes.len()) as u64, bytes.len() as u64]);
        self.bytes.extend_from_slice(bytes);
    }
}

/// Small things one after the other: numbers, and texts with their lengths.
#[derive(Default)]
struct Packer(Vec<u8>);

impl Packer {
    fn number(&mut self, number: usize) {
        self.0.extend((number as u64).to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.number(text.len());
        self.0.extend_from_slice(text.as_bytes());
    }

    fn numbers(&mut self, numbers: impl ExactSizeIterator<Item = u32>) {
        self.number(numbers.len());
        numbers.for_each(|number| self.number(number as usize));
    }

    fn tree(&mut self, tree: &VerifiedTree) {
        self.number(tree.fields.start as usize);
        self.number(tree.fields.end as usize);
        self.number(tree.any_of.len());
        for all in &tree.any_of {
            self.number(all.len());
            all.iter().for_each(|one| self.tree(one));
        }
    }
}

struct Unpacker<'a>(&'a [u8]);

impl<'a> Unpacker<'a> {
    fn number(&mut self) -> Option<usize> {
        let (first, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        usize::try_from(u64::from_le_bytes(*first)).ok()
    }

    fn text(&mut self) -> Option<&'a str> {
        let length = self.number()?;
        let text = std::str::from_utf8(self.0.get(..length)?).ok()?;
        self.0 = &self.0[length..];
        Some(text)
    }

    /// Several of what *read* reads. Each takes a byte at least, so that no more is reserved than there is.
    fn several<T>(&mut self, mut read: impl FnMut(&mut Unpacker<'a>) -> Option<T>) -> Option<Vec<T>> {
        let count = self.number()?;
        let mut items = Vec::with_capacity(count.min(self.0.len()));
        for _ in 0..count {
            items.push(read(self)?);
        }
        Some(items)
    }

    /// A number below *end*.
    fn below(&mut self, end: usize) -> Option<u32> {
        self.number().filter(|number| *number < end).and_then(|number| u32::try_from(number).ok())
    }

    fn tree(&mut self, fields: usize, deeper: u32) -> Option<VerifiedTree> {
        let (start, end) = (self.below(fields + 1)?, self.below(fields + 1)?);
        let deeper = deeper.checked_sub(1)?;
        let any_of = self.several(|all| Some(all.several(|one| one.tree(fields, deeper))?.into_boxed_slice()))?;
        (start <= end).then(|| VerifiedTree { fields: start..end, any_of: any_of.into() })
    }
}

const ROOTS: [Root; 7] = [Root::Raw, Root::Data, Root::Before, Root::Type, Root::Topic, Root::Collection, Root::Tenant];

const RELATIONS: [Relation; 3] = [Relation::Equal, Relation::Less, Relation::LessOrEqual];

/// The bytes of a compiled section, whose slots are the lines that its subscriptions are on.
pub(super) fn encode(store: &Store, index: &Index, recipe: &Recipe) -> Vec<u8> {
    let mut small = Packer::default();
    small.number(store.paths.paths.len());
    for (path, mode) in &store.paths.paths {
        small.number(ROOTS.iter().position(|root| *root == path.root).unwrap_or(ROOTS.len()));
        small.number(usize::from(*mode == Mode::AnyLeaf));
        small.number(path.names.len());
        path.names.iter().for_each(|name| small.text(name));
    }
    small.number(store.pool.programs.len());
    store.pool.programs.iter().for_each(|program| {
        small.text(program.expression());
        small.number(program.size());
    });
    small.number(store.pool.trees.len());
    store.pool.trees.iter().for_each(|tree| small.text(&json::write(tree)));
    small.number(store.verify.len());
    for (subscription, Verification { changed, compared, fields, tree }) in &store.verify {
        small.number(*subscription as usize);
        small.numbers(changed.iter().flat_map(|(left, right)| [*left, *right]).collect::<Vec<_>>().into_iter());
        small.numbers(
            compared.iter().flat_map(|(left, relation, right)| [*left, *relation as u32, *right]).collect::<Vec<_>>().into_iter(),
        );
        small.numbers(fields.iter().copied());
        small.number(usize::from(tree.is_some()));
        tree.iter().for_each(|tree| small.tree(tree));
    }
    let mut out = Encoder {
        head: vec![
            store.len() as u64,
            u64::from(store.any_flags),
            index.always.map_or(NOTHING, u64::from),
            u64::from(index.unkeyed),
        ],
        ..Encoder::default()
    };
    for array in [&store.encoded, &store.clause_at, &store.conjunction_at, &store.clauses, &store.target_at, &store.targets] {
        out.put(array);
    }
    out.put(&store.slots);
    out.put(&store.flags);
    out.put(store.pool.texts.as_bytes());
    out.put(&store.pool.ends);
    out.put(&small.0);
    out.put(index.dictionary.slots());
    out.put(&index.values);
    out.put(&index.equalities.slots);
    out.put(&index.buckets);
    out.put(&index.lists);
    out.put(&index.checks);
    out.put(&index.probes);
    out.put(&recipe.heads);
    out.put(&recipe.atoms);
    let mut bytes: Vec<u8> = bytemuck::cast_slice(&out.head).to_vec();
    bytes.append(&mut out.bytes);
    bytes
}

/// The arrays of an image.
struct Decoder<'f> {
    file: &'f Bytes,
    image: Range<usize>,
    head: Array<u64>,
}

impl Decoder<'_> {
    fn range(&self, number: usize) -> Option<Range<usize>> {
        let (start, length) = (self.head[4 + 2 * number], self.head[5 + 2 * number]);
        let start = self.image.start.checked_add(usize::try_from(start).ok()?)?;
        let end = start.checked_add(usize::try_from(length).ok()?)?;
        (end <= self.image.end).then_some(start..end)
    }

    fn array<T: AnyBitPattern>(&self, number: usize) -> Option<Array<T>> {
        Array::at(self.file, self.range(number)?)
    }
}

/// Whether *at* says where each row of *length* words begins, and where the last one ends.
fn is_rows(at: &[u32], length: usize) -> bool {
    at.first() == Some(&0) && at.is_sorted() && at.last().is_some_and(|end| *end as usize == length)
}

/// Read an image that lies at *image* in *file*, of *count* subscriptions whose slots begin at *base*; None where it is none, or damaged.
pub(super) fn decode(
    file: &Bytes,
    image: Range<usize>,
    count: u32,
    base: u32,
    seed: &Seed,
    sets: &mut PathSets,
) -> Option<(Store, Index)> {
    let head: Array<u64> = Array::at(file, image.start..image.start.checked_add(HEAD * 8)?)?;
    let decoder = Decoder { file, image, head };
    let head = &decoder.head;
    if head[0] != u64::from(count) {
        return None;
    }
    let all = count as usize;
    let small_bytes: Array<u8> = decoder.array(10)?;
    let mut small = Unpacker(&small_bytes);
    let paths = small.several(|path| {
        let root = ROOTS[path.below(ROOTS.len())? as usize];
        let mode = if path.below(2)? == 1 { Mode::AnyLeaf } else { Mode::Scalar };
        Some((Path { root, names: path.several(|name| name.text().map(Box::from))?.into() }, mode))
    })?;
    let programs = small.several(|program| {
        let (expression, size) = (program.text()?.into(), program.number()?);
        CompiledRegexp::compile(&Regexp { expression, size }).ok()
    })?;
    let options = json::ParseOptions { max_depth: DEEPEST_TREE, max_bytes: usize::MAX };
    let trees = small.several(|tree| json::parse::<Json>(tree.text()?.as_bytes(), options).ok().map(Arc::new))?;
    let pool = Pool {
        texts: Text::at(file, decoder.range(8)?)?,
        ends: decoder.array(9)?,
        programs: programs.into(),
        trees: trees.into(),
    };
    let (words, clause_at): (Array<u32>, Array<u32>) = (decoder.array(0)?, decoder.array(1)?);
    let (conjunction_at, clauses): (Array<u32>, Array<u32>) = (decoder.array(2)?, decoder.array(3)?);
    let (target_at, targets): (Array<u32>, Array<u32>) = (decoder.array(4)?, decoder.array(5)?);
    let (lines, flags): (Array<u32>, Array<u8>) = (decoder.array(6)?, decoder.array(7)?);
    if !pool.is_sound()
        || !is_rows(&clause_at, words.len())
        || !is_rows(&conjunction_at, clauses.len())
        || !is_rows(&target_at, targets.len())
        || target_at.len() != conjunction_at.len()
        || lines.len() != all
        || flags.len() != all
    {
        return None;
    }
    let counts = StoreCounts {
        subscriptions: all,
        conjunctions: conjunction_at.len() - 1,
        clauses: clause_at.len() - 1,
        paths: paths.len(),
    };
    let is_clause = |row: &[u32]| match words[row[0] as usize..row[1] as usize] {
        [path, atoms, ref rest @ ..] => (path as usize) < counts.paths && pool.check(rest, atoms, false) == Some(rest.len()),
        _ => false,
    };
    let below = |array: &[u32], end: usize| array.iter().all(|number| (*number as usize) < end);
    if !clause_at.windows(2).all(is_clause) || !below(&clauses, counts.clauses) || !below(&targets, all) {
        return None;
    }
    let mut slots = Vec::with_capacity(all);
    let mut seen = vec![false; all];
    for &line in &*lines {
        if std::mem::replace(seen.get_mut(line as usize)?, true) {
            return None;
        }
        slots.push(base.checked_add(line)?);
    }
    let any_flags = flags.iter().fold(0, |all, flags| all | flags);
    let verify = small.several(|one| {
        let subscription = one.below(all)?;
        let changed = one.several(|path| path.below(counts.paths))?;
        let compared = one.several(|number| number.below(counts.paths.max(RELATIONS.len())))?;
        let compared: Option<Box<[_]>> = compared
            .chunks_exact(3)
            .map(|three| {
                let is_path = |path: u32| (path as usize) < counts.paths;
                let relation = *RELATIONS.get(three[1] as usize)?;
                (is_path(three[0]) && is_path(three[2])).then_some((three[0], relation, three[2]))
            })
            .collect();
        let fields = one.several(|clause| clause.below(counts.clauses))?;
        let tree = if one.below(2)? == 1 { Some(Arc::new(one.tree(fields.len(), 600)?)) } else { None };
        let changed = changed.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
        Some((subscription, Verification { changed, compared: compared?, fields: fields.into(), tree }))
    })?;
    if u64::from(any_flags) != head[1] || !verify.is_sorted_by(|(left, _), (right, _)| left < right) || !small.0.is_empty() {
        return None;
    }
    let store = Store {
        paths: sets.get(paths),
        pool,
        encoded: words,
        clause_at,
        conjunction_at,
        clauses,
        target_at,
        targets,
        slots: slots.into(),
        flags,
        any_flags,
        verify: verify.into(),
        wide: Default::default(),
    };
    let index = decode_index(&decoder, &store, counts, seed)?;
    Some((store, index))
}

fn decode_index(decoder: &Decoder<'_>, store: &Store, counts: StoreCounts, seed: &Seed) -> Option<Index> {
    let values: Array<NamedValue> = decoder.array(12)?;
    let dictionary = Table::from_slots(decoder.array(11)?, values.len())?;
    let equalities = Equalities::from_slots(decoder.array(13)?, seed)?;
    let buckets: Array<Bucket> = decoder.array(14)?;
    let (lists, checks): (Array<u32>, Array<u32>) = (decoder.array(15)?, decoder.array(16)?);
    let probes: Array<Probe> = decoder.array(17)?;
    let (heads, atoms): (Array<[u32; 4]>, Array<[u32; 2]>) = (decoder.array(18)?, decoder.array(19)?);
    let starts = sound_records(&checks, counts)?;
    let is_start = |at: u32| starts.get(at as usize / 64).is_some_and(|word| word >> (at % 64) & 1 != 0);
    let is_atom = |at: u32| store.encoded.get(at as usize..).is_some_and(|words| store.pool.check(words, 1, false).is_some());
    let first_always = match decoder.head[2] {
        NOTHING => None,
        bucket => Some(u32::try_from(bucket).ok().filter(|bucket| (*bucket as usize) < buckets.len())?),
    };
    // What leads to each bucket: no more than one other, which comes before it.
    let mut above: Vec<u32> = vec![NO_BUCKET; buckets.len()];
    let mut lead = |from: u32, next: Next| -> Option<()> {
        if next.0 & CANDIDATE != 0 {
            let at = next.0 & !CANDIDATE;
            return (is_start(at) && (at as usize) < checks.len()).then_some(());
        }
        if next.0 & ANSWER != 0 {
            return (((next.0 & !ANSWER) as usize) < counts.subscriptions).then_some(());
        }
        let entry = above.get_mut(next.0 as usize)?;
        (std::mem::replace(entry, from) == NO_BUCKET && from < next.0 && Some(next.0) != first_always).then_some(())
    };
    for value in &*values {
        if value.path as usize >= counts.paths || !is_atom(value.atom) {
            return None;
        }
        if value.first != Next::NOWHERE {
            lead(0, value.first)?;
        }
    }
    for equality in equalities.slots.iter().filter(|equality| equality.bucket != NO_BUCKET) {
        lead(equality.bucket, equality.next)?;
    }
    let mut owner: Vec<u32> = vec![NO_BUCKET; heads.len()];
    for (bucket, number) in buckets.iter().zip(0..) {
        let Bucket { answers, several, lists_end, candidates, candidates_end, probes: from, probes_end: to } = *bucket;
        let is_sound = answers <= several
            && several <= lists_end
            && lists_end as usize <= lists.len()
            && candidates <= candidates_end
            && is_start(candidates)
            && is_start(candidates_end);
        if !is_sound {
            return None;
        }
        for probe in probes.get(from as usize..to as usize)? {
            if probe.path as usize >= counts.paths {
                return None;
            }
            if probe.matcher != EQUALITIES && std::mem::replace(owner.get_mut(probe.matcher as usize)?, number) != NO_BUCKET {
                return None;
            }
        }
    }
    if buckets.is_empty() || !lists.iter().all(|subscription| (*subscription as usize) < counts.subscriptions) {
        return None;
    }
    let mut matchers = Vec::with_capacity(heads.len());
    for ([class, start, middle, end], owner) in heads.iter().zip(&owner) {
        let (answers, others) = (atoms.get(*start as usize..*middle as usize)?, atoms.get(*middle as usize..*end as usize)?);
        if !answers.iter().chain(others).all(|[at, _]| is_atom(*at))
            || !answers.iter().all(|[_, subscription]| (*subscription as usize) < counts.subscriptions)
        {
            return None;
        }
        let own = others.iter().map(|[_, next]| Next(*next));
        own.filter(|_| *owner != NO_BUCKET).try_for_each(|next| lead(*owner, next))?;
        matchers.push(Matcher::new(store, seed, *class, answers, others)?);
    }
    let mut depth: Vec<u32> = Vec::with_capacity(buckets.len());
    for above in &above {
        let level = if *above == NO_BUCKET { 0 } else { depth.get(*above as usize)? + 1 };
        if level > DEEPEST {
            return None;
        }
        depth.push(level);
    }
    Some(Index {
        dictionary,
        values,
        equalities,
        buckets,
        lists,
        checks,
        probes,
        matchers: matchers.into(),
        always: first_always,
        unkeyed: u32::try_from(decoder.head[3]).ok()?,
    })
}
