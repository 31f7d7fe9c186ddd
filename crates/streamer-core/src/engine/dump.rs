//! An engine as text, for people who want to see the index of their subscriptions; as Quamina's pretty-printer does.
//!
//! ```text
//!   partition tenant "default", collection "orders": 70 subscriptions in 1 segment
//!     segment 1: 70 subscriptions, 1 removed; an index of 2 buckets, 71 values, 1 matcher
//!       bucket 0 reads data.status for equal values
//!         = "open" ─► "s3"
//!         = "paid" ─► bucket 1
//!       bucket 1 reads data.amount for ranges of numbers
//!         > 5 ─► "s7" if data.user = 4
//! ```
//!
//! A matcher does not keep its operands in a form that can be read back. They are found as in the image of an index:
//! the index is rebuilt from the same store, which makes the same buckets, with its recipe.
//!
//! Cost: rebuilding each segment that is shown; so the number of subscriptions that are shown is bounded, and so is the
//! printed part of each list and of each text. The host is called now and then to decide whether to continue
//! (`watch.rs`).
//!
//! Rejected: a method in each matcher that lists its operands (nine twins of their constructors, for one reader).

use crate::automaton::ranges::NumberCut;
use crate::bloom::keys::{Access, KeyScope};
use crate::engine::index::buckets::{Bucket, EQUALITIES, Index, NO_BUCKET, Next, Probe, Target};
use crate::engine::index::build::{Depth, rebuilt};
use crate::engine::index::segment::Segment;
use crate::engine::state::engine_version::Version;
use crate::engine::state::partitions::Partition;
use crate::engine::state::registry::Records;
use crate::engine::verify::check_records::{Check, CheckRecord as Candidate, UNNAMED, Wanted, next_check};
use crate::engine::verify::encoded::AtomView;
use crate::engine::verify::matchers::{Matcher, Recipe};
use crate::engine::verify::store::{Store, flags};
use crate::regexps::Regexp;
use crate::subscriptions::normal_form::{Atom, Clause, Mode, Range};
use crate::subscriptions::topics::TopicPattern;
use crate::value::{Kinds, Number, Seed, Value};
use crate::watch::spend;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

/// The most entries of one list that are printed.
const SHOWN: usize = 100;
/// The most bytes of a text.
const WIDEST: usize = 2000;
/// As many values fill such a text, and more are not written.
const VALUES: usize = WIDEST;

/// Print the content of *version*, partitions by name; segments only up to *most* subscriptions.
pub(super) fn dump(version: &Version, records: &Records, seed: &Seed, most: usize) -> String {
    let mut partitions: Vec<Arc<Partition>> = Vec::new();
    version.partitions.for_each(|partition| partitions.push(partition.present().clone()));
    partitions.sort_by(|one, other| one.name.cmp(&other.name));
    let mut dump = Dump { out: String::new(), records, seed, version: version.number, left: most, most };
    if partitions.is_empty() {
        dump.line(0, "no subscriptions");
    }
    partitions.iter().for_each(|partition| dump.partition(partition));
    dump.out
}

struct Dump<'e> {
    out: String,
    records: &'e Records,
    seed: &'e Seed,
    version: u64,
    /// The number of subscriptions that may still be shown.
    left: usize,
    most: usize,
}

/// A segment with its index as it is built again.
struct Indexed<'s> {
    segment: &'s Segment,
    index: Index,
    recipe: Recipe,
    /// By bucket and path: the position of each atom, and its target.
    equalities: HashMap<(u32, u32), Vec<(u32, Next)>>,
}

impl Dump<'_> {
    fn line(&mut self, depth: usize, text: &str) {
        let most = text.len().min(WIDEST);
        let end = (0..=most).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        let cut = if end < text.len() { " ..." } else { "" };
        let _ = writeln!(self.out, "{:1$}{2}{cut}", "", 2 * depth, &text[..end]);
    }

    fn partition(&mut self, partition: &Partition) {
        let live: usize = partition.segments.iter().map(|segment| segment.live()).sum();
        let mut head = format!("partition tenant {:?}, collection {:?}: ", partition.name.tenant, partition.name.collection);
        match &partition.section {
            Some(unopened) if partition.segments.is_empty() => {
                let _ = write!(head, "{}, in a file that is not read yet", count(unopened.section.len(), "subscription"));
            }
            _ => {
                let _ = write!(head, "{} in {}", count(live, "subscription"), count(partition.segments.len(), "segment"));
            }
        }
        if let Some(filter) = &partition.filter {
            let _ = write!(head, "; a filter of {}", count(filter.state().keys as usize, "key"));
        }
        self.line(0, &head);
        for (at, segment) in partition.segments.iter().enumerate() {
            self.segment(at + 1, segment);
        }
    }

    fn segment(&mut self, number: usize, segment: &Segment) {
        let (all, live) = (segment.store.len(), segment.live());
        let mut head = format!("segment {number}: {}", count(all, "subscription"));
        if live < all {
            let _ = write!(head, ", {} removed", all - live);
        }
        match segment.index() {
            None => head.push_str("; a list, of which each is compared"),
            Some(index) => {
                let parts = [(index.buckets.len(), "bucket"), (index.values.len(), "value"), (index.matchers.len(), "matcher")];
                let _ = write!(head, "; an index of {}", parts.map(|(number, what)| count(number, what)).join(", "));
            }
        }
        let Some(remaining) = self.left.checked_sub(all) else {
            let most = self.most;
            return self.line(1, &format!("{head}; not shown: more than {} in all", count(most, "subscription")));
        };
        self.left = remaining;
        self.line(1, &head);
        match segment.index() {
            None => self.list(segment),
            Some(index) => self.index(segment, index),
        }
        let mut is_live = vec![false; all];
        let targets = (0..segment.store.conjunctions() as u32).flat_map(|conjunction| segment.store.targets(conjunction));
        targets.for_each(|at| is_live[*at as usize] = true);
        let never: Vec<u32> = (0..all as u32).filter(|at| !is_live[*at as usize]).collect();
        if !never.is_empty() {
            let names = self.names(segment, &never);
            self.line(2, &format!("nothing ─► {names}"));
        }
    }

    fn list(&mut self, segment: &Segment) {
        for conjunction in 0..segment.store.conjunctions() as u32 {
            let clauses: Vec<String> =
                segment.store.clauses(conjunction).iter().map(|clause| clause_text(&segment.store, *clause)).collect();
            let clauses = if clauses.is_empty() { "everything".to_owned() } else { clauses.join(" and ") };
            let wanted = self.names(segment, segment.store.targets(conjunction));
            spend(1 + clauses.len() / 64);
            self.line(2, &format!("{clauses} ─► {wanted}"));
        }
    }

    fn index(&mut self, segment: &Segment, original: &Index) {
        let access = Access::of(&segment.store, KeyScope::Guarding);
        let is_always = |conjunction| original.always.is_some() && access.is_always(conjunction);
        let Some((index, recipe)) = rebuilt(&segment.store, self.seed, Depth::RECURSIVE, is_always) else {
            return self.line(2, "it cannot be built again");
        };
        if !same(&index, original) {
            return self.line(2, "it was built otherwise than it is built now, and cannot be shown");
        }
        let equalities = equalities(&index);
        let indexed = Indexed { segment, index, recipe, equalities };
        for number in 0..indexed.index.buckets.len() as u32 {
            self.bucket(&indexed, number);
        }
    }

    fn bucket(&mut self, indexed: &Indexed<'_>, number: u32) {
        let Indexed { segment, index, .. } = indexed;
        let bucket: Bucket = index.buckets[number as usize];
        let always = if index.always == Some(number) { ", without the filter" } else { "" };
        self.line(2, &format!("bucket {number}{always}"));
        let answers = &index.lists[bucket.answers as usize..bucket.lists_end as usize];
        if !answers.is_empty() {
            let names = self.names(segment, answers);
            self.line(3, &format!("─► {names}"));
        }
        let mut next = bucket.candidates;
        let starts = std::iter::from_fn(|| {
            let at = next;
            (at < bucket.candidates_end).then(|| {
                next = Candidate::read(&index.checks, at).1;
                at
            })
        });
        self.entries(3, starts, |dump, at| format!("─► {}", dump.candidate(indexed, at)));
        for probe in &index.probes[bucket.probes as usize..bucket.probes_end as usize] {
            self.probe(indexed, number, *probe);
        }
    }

    /// Write the first of *entries*, each as *text* has it, and how many more there are.
    fn entries<T>(&mut self, depth: usize, mut entries: impl Iterator<Item = T>, text: impl Fn(&Self, T) -> String) {
        for entry in entries.by_ref().take(SHOWN) {
            let text = text(self, entry);
            spend(1 + text.len() / 64);
            self.line(depth, &text);
        }
        let more = entries.inspect(|_| spend(1)).count();
        if more > 0 {
            self.line(depth, &format!("and {more} more"));
        }
    }

    fn probe(&mut self, indexed: &Indexed<'_>, bucket: u32, probe: Probe) {
        let Indexed { segment, index, recipe, .. } = indexed;
        let store = &segment.store;
        let (path, mode) = &store.paths.paths[probe.path as usize];
        let how = match mode {
            Mode::Scalar => "",
            Mode::AnyLeaf => " (any leaf)",
            Mode::Element => " (any element)",
            Mode::Member => " (any element or name)",
            Mode::Changed => " (whether it changed)",
        };
        let mut head = |what| self.line(3, &format!("looks up {path}{how} for {what}"));
        if probe.matcher == EQUALITIES {
            head("equal values");
            let entries = indexed.equalities.get(&(bucket, probe.path)).map_or(&[][..], |entries| entries);
            self.entries(4, entries.iter(), |dump, (atom, next)| {
                format!("{} ─► {}", atom_at(store, *atom), dump.next(indexed, *next))
            });
            return;
        }
        let matcher = &index.matchers[probe.matcher as usize];
        head(matcher.what());
        let [_, start, middle, end] = recipe.heads[probe.matcher as usize].map(|word| word as usize);
        if let Matcher::Slices(_) = matcher {
            let rows = recipe.atoms[start..end].chunk_by(|one, other| one[1] == other[1]);
            return self.entries(4, rows, |dump, row| {
                let clauses: Vec<String> = row.iter().map(|[clause, _]| clause_text(store, *clause)).collect();
                let next = match Next(row[0][1]).target() {
                    Target::Candidate(at) => dump.wanted(indexed, at),
                    _ => dump.next(indexed, Next(row[0][1])),
                };
                format!("{} ─► {next}", clauses.join(" and "))
            });
        }
        let entries = recipe.atoms[start..end].iter().zip(start..);
        self.entries(4, entries, |dump, ([atom, next], at)| {
            let next = if at < middle { dump.names(segment, &[*next]) } else { dump.next(indexed, Next(*next)) };
            format!("{} ─► {next}", atom_at(store, *atom))
        });
    }

    fn next(&self, indexed: &Indexed<'_>, next: Next) -> String {
        match next.target() {
            Target::Bucket(bucket) => format!("bucket {bucket}"),
            Target::Answer(subscription) => self.names(indexed.segment, &[subscription]),
            Target::Candidate(at) => self.candidate(indexed, at),
        }
    }

    /// A candidate with the checks that it has to pass.
    fn candidate(&self, indexed: &Indexed<'_>, at: u32) -> String {
        let Indexed { segment, index, .. } = indexed;
        let (candidate, _) = Candidate::read(&index.checks, at);
        let wanted = self.wanted(indexed, at);
        let (mut rest, mut checks) = (candidate.checks, Vec::new());
        while let Some(check) = next_check(&mut rest) {
            checks.push(check_text(&segment.store, index, check));
        }
        if checks.is_empty() { wanted } else { format!("{wanted} if {}", checks.join(" and ")) }
    }

    /// The subscriptions of a candidate.
    fn wanted(&self, indexed: &Indexed<'_>, at: u32) -> String {
        let Indexed { segment, index, .. } = indexed;
        match Candidate::read(&index.checks, at).0.wanted() {
            Wanted::One(subscription) => self.names(segment, &[subscription]),
            Wanted::All(conjunction) => self.names(segment, segment.store.targets(conjunction)),
        }
    }

    /// The ids of subscriptions, each with its further conditions.
    fn names(&self, segment: &Segment, subscriptions: &[u32]) -> String {
        let name = |at: &u32| {
            let record = self.records.get(segment.store.slots[*at as usize]);
            let mut name = record.as_ref().map_or_else(|| "?".to_owned(), |record| format!("{:?}", record.id()));
            let bits = segment.store.flags[*at as usize];
            if segment.is_gone(*at, self.version) {
                name = "a removed one".to_owned();
            }
            if bits & flags::VERIFY != 0 {
                name.push_str(" and its verification");
            }
            if bits & flags::ARRAYS != 0 {
                name.push_str(" and one choice of array elements");
            }
            if bits & flags::CEL != 0 {
                name.push_str(" and its CEL");
            }
            name
        };
        let mut names: Vec<String> = subscriptions.iter().take(SHOWN).map(name).collect();
        if subscriptions.len() > SHOWN {
            names.push(format!("{} more", subscriptions.len() - SHOWN));
        }
        names.join(", ")
    }
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// Whether two indexes have the same states and transitions.
fn same(one: &Index, other: &Index) -> bool {
    let words = |index: &Index| -> (Vec<u8>, Vec<u8>, Vec<u32>, Vec<u32>) {
        let (buckets, probes) = (bytemuck::cast_slice(&index.buckets[..]), bytemuck::cast_slice(&index.probes[..]));
        (buckets.to_vec(), probes.to_vec(), index.lists.to_vec(), index.checks.to_vec())
    };
    words(one) == words(other) && one.matchers.len() == other.matchers.len() && one.always == other.always
}

/// The equalities of each bucket at each path: the position of each atom, and its target.
fn equalities(index: &Index) -> HashMap<(u32, u32), Vec<(u32, Next)>> {
    let of_first = index.values.iter().zip(0..).filter(|(value, _)| value.first != Next::NOWHERE);
    let mut all: Vec<(u32, u32, Next)> = of_first.map(|(value, number)| (0, number, value.first)).collect();
    let edges = index.equalities.slots.iter().filter(|edge| edge.bucket != NO_BUCKET);
    all.extend(edges.map(|edge| (edge.bucket, edge.value, edge.next)));
    spend(all.len());
    all.sort_unstable_by_key(|(bucket, value, _)| (*bucket, *value));
    let mut by_probe: HashMap<(u32, u32), Vec<(u32, Next)>> = HashMap::new();
    for (bucket, value, next) in all {
        let value = &index.values[value as usize];
        by_probe.entry((bucket, value.path)).or_default().push((value.atom, next));
    }
    by_probe
}

fn atom_at(store: &Store, position: u32) -> String {
    store.encoded.atom_at(position).next().map_or_else(String::new, |atom| owned(&atom.view).to_string())
}

fn clause_text(store: &Store, number: u32) -> String {
    let clause = store.clause(number);
    let (path, mode) = &store.paths.paths[clause.path as usize];
    Clause { path: path.clone(), mode: *mode, atoms: clause.atoms.take(VALUES).map(|atom| owned(&atom.view)).collect() }
        .to_string()
}

fn check_text(store: &Store, index: &Index, check: Check<'_>) -> String {
    let at = |path: u32, atom: Atom| {
        let (path, mode) = &store.paths.paths[path as usize];
        Clause { path: path.clone(), mode: *mode, atoms: vec![atom] }.to_string()
    };
    let atoms = |numbers: &[u32]| -> Vec<Atom> {
        let named = numbers.iter().filter(|number| **number != UNNAMED).take(VALUES);
        named
            .flat_map(|number| store.encoded.atom_at(index.values[*number as usize].atom).map(|atom| owned(&atom.view)))
            .collect()
    };
    match check {
        Check::Values(path, numbers) => {
            let (path, mode) = &store.paths.paths[path as usize];
            Clause { path: path.clone(), mode: *mode, atoms: atoms(numbers) }.to_string()
        }
        Check::Other(path, kinds, none_of) => {
            at(path, Atom::Other { kinds: Kinds::from_bits(kinds), none_of: atoms(none_of).into() })
        }
        Check::Kinds(path, kinds) => at(path, Atom::Kinds(Kinds::from_bits(kinds))),
        Check::Numbers(path, from, to) => at(path, Atom::Numbers(numbers(from, to))),
        Check::Clause(clause) => clause_text(store, clause),
        Check::All(conjunction) => {
            let clauses: Vec<String> = store.clauses(conjunction).iter().map(|clause| clause_text(store, *clause)).collect();
            clauses.join(" and ")
        }
    }
}

/// A range of numbers by its cuts.
fn numbers(from: Option<NumberCut>, to: Option<NumberCut>) -> Range<Number> {
    Range { low: from.map(|cut| (cut.number(), !cut.is_above())), high: to.map(|cut| (cut.number(), cut.is_above())) }
}

/// An end of a range of strings: the cut above a text is the text and a NUL.
fn text_end(cut: &str) -> (Box<str>, bool) {
    match cut.strip_suffix('\0') {
        Some(text) => (text.into(), true),
        None => (cut.into(), false),
    }
}

/// An atom as the normal form has it.
fn owned(view: &AtomView<'_>) -> Atom {
    match view {
        AtomView::Equal(scalar) => Atom::Equal(scalar.to_scalar()),
        AtomView::EqualTree(tree) => Atom::EqualTree(Arc::clone(tree)),
        AtomView::Numbers(from, to) => Atom::Numbers(numbers(*from, *to)),
        AtomView::Strings(from, to) => {
            Atom::Strings(Range { low: from.map(text_end).map(|(text, is_above)| (text, !is_above)), high: to.map(text_end) })
        }
        AtomView::Times(of, from, to) => Atom::Times(*of, numbers(*from, *to)),
        AtomView::Size(least, most) => Atom::Size(*least, *most),
        AtomView::Prefix(text) => Atom::Prefix((*text).into()),
        AtomView::Suffix(text) => Atom::Suffix((*text).into()),
        AtomView::Substring(text) => Atom::Substring((*text).into()),
        AtomView::PrefixIgnoreCase(text) => Atom::PrefixIgnoreCase((*text).into()),
        AtomView::SuffixIgnoreCase(text) => Atom::SuffixIgnoreCase((*text).into()),
        AtomView::EqualIgnoreCase(text) => Atom::EqualIgnoreCase((*text).into()),
        AtomView::SubstringIgnoreCase(text) => Atom::SubstringIgnoreCase((*text).into()),
        AtomView::Wildcard(pieces) => Atom::Wildcard(pieces.to_vec().into()),
        AtomView::Regexp(program) => Atom::Regexp(Regexp { expression: program.expression().into(), size: program.size() }),
        AtomView::Cidr(net) => Atom::Cidr(*net),
        AtomView::Element(equal) => match equal.into_iter().next().map(|atom| owned(&atom.view)) {
            Some(Atom::Equal(scalar)) => Atom::Element(Arc::new(Value::Scalar(scalar))),
            Some(Atom::EqualTree(value)) => Atom::Element(value),
            Some(Atom::EqualIgnoreCase(text)) => Atom::ElementIgnoreCase(text),
            _ => unreachable!("an element equals a value"),
        },
        AtomView::Kinds(kinds) => Atom::Kinds(*kinds),
        AtomView::Other(kinds, none_of) => {
            Atom::Other { kinds: *kinds, none_of: none_of.take(VALUES).map(|atom| owned(&atom.view)).collect() }
        }
        AtomView::Topic(dialect, words) => Atom::Topic(TopicPattern { dialect: *dialect, words: words.to_vec().into() }),
    }
}

impl Matcher {
    /// The property of values that it checks.
    fn what(&self) -> &'static str {
        match self {
            Matcher::Numbers { .. } => "ranges of numbers",
            Matcher::Strings { .. } => "ranges of strings",
            Matcher::Times { .. } => "ranges of times",
            Matcher::Sizes { .. } => "ranges of sizes",
            Matcher::Prefixes(_) => "prefixes",
            Matcher::Suffixes(_) => "suffixes",
            Matcher::IgnoreCase(_) => "texts in any case",
            Matcher::Wildcards(_) => "wildcards",
            Matcher::Regexps(_) => "regexps",
            Matcher::Nets(_) => "nets",
            Matcher::Topics(_) => "topic patterns",
            Matcher::Trees(_) => "equal lists and objects",
            Matcher::Kinds(_) => "kinds of value",
            Matcher::AnythingBut(_) => "anything but",
            Matcher::Slices(_) => "many values at once",
        }
    }
}
