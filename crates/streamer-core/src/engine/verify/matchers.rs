//! Value matchers: which of many atoms of one kind are true for one value? One for each path that a bucket reads, and
//! kind of atom.
//!
//! ```text
//!   bucket, path ─► Matcher ─┬─ answers: subscriptions without further conditions
//!                            └─ others:  a Next each
//! ```
//!
//! A matcher is made from the places of its atoms in the store, whether the index is built or read from an image, so
//! that there is one way to make it.

use crate::automaton::affixes::{Prefixes, Suffixes};
use crate::automaton::anything_but::AnythingBut;
use crate::automaton::cidr::Nets;
use crate::automaton::folding::IgnoreCase;
use crate::automaton::literals;
use crate::automaton::ranges::{CutRange, NumberCut, Ranges};
use crate::automaton::regexps::Regexps;
use crate::automaton::topics::Topics;
use crate::automaton::trees::Trees;
use crate::automaton::wildcards::Wildcards;
use crate::cel::Times;
use crate::engine::verify::encoded::{AtomView, EncodedClauses};
use crate::engine::verify::slices::Slices;
use crate::engine::verify::store::Store;
use crate::map::{Array, Packed};
use crate::stored::{ImageReader, ImageWriter};
use crate::subscriptions::topics::TopicDialect;
use crate::value::{Kind, Kinds, Number, Scalar, ScalarRef, Seed};
use bytemuck::CheckedBitPattern;
use std::sync::Arc;

/// The kind of matcher for an atom; the order is that of the probes of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, CheckedBitPattern)]
#[repr(u32)]
pub(in crate::engine) enum Class {
    /// Kinds that include a missing value come first: they are checked whether or not the event has the path.
    Missing,
    Equal,
    Numbers,
    Strings,
    Timestamps,
    Durations,
    Sizes,
    Prefix,
    Suffix,
    IgnoreCase,
    Wildcard,
    Regexp,
    Cidr,
    Topic,
    Tree,
    Other,
    Kinds,
    /// Whole conjunctions, checked together; it has no atoms.
    Slices,
}

impl Class {
    /// The class of a number in a recipe; None for one of no class.
    fn of(number: u32) -> Option<Class> {
        bytemuck::checked::try_cast(number).ok()
    }
}

/// The class of an atom, and whether a match in that class is equivalent to the atom.
pub(in crate::engine) fn class_of(view: &AtomView<'_>) -> (Class, bool) {
    let class = match view {
        AtomView::Equal(_) => Class::Equal,
        AtomView::Numbers(..) => Class::Numbers,
        AtomView::Strings(..) => Class::Strings,
        AtomView::Times(Times::Timestamps, ..) => Class::Timestamps,
        AtomView::Times(Times::Durations, ..) => Class::Durations,
        AtomView::Size(..) => Class::Sizes,
        AtomView::Prefix(_) => Class::Prefix,
        AtomView::Suffix(_) => Class::Suffix,
        AtomView::PrefixIgnoreCase(_)
        | AtomView::SuffixIgnoreCase(_)
        | AtomView::EqualIgnoreCase(_)
        | AtomView::SubstringIgnoreCase(_) => Class::IgnoreCase,
        AtomView::Wildcard(_) | AtomView::Substring(_) => Class::Wildcard,
        AtomView::Regexp(_) => Class::Regexp,
        AtomView::Cidr(_) => Class::Cidr,
        AtomView::Topic(..) => Class::Topic,
        AtomView::Other(_, none_of) => {
            let mut none_of = *none_of;
            if !none_of.all(|atom| matches!(atom.view, AtomView::Equal(_))) {
                return (Class::Kinds, false);
            }
            Class::Other
        }
        AtomView::Kinds(kinds) if kinds.has(Kind::Missing) => Class::Missing,
        AtomView::Kinds(_) => Class::Kinds,
        AtomView::EqualTree(_) => Class::Tree,
        AtomView::Element(_) => return (Class::Kinds, false),
    };
    (class, true)
}

/// The kinds of value that satisfy an atom without a matcher of its own.
fn kinds_of(view: &AtomView<'_>) -> Kinds {
    match view {
        AtomView::Kinds(kinds) | AtomView::Other(kinds, _) => *kinds,
        AtomView::Element(_) => Kinds::of(Kind::List),
        _ => Kinds::PRESENT,
    }
}

/// The value matcher of a bucket and path. The ids are the targets of matches, except for `answers`, whose ids are
/// subscriptions.
#[derive(Debug)]
pub(in crate::engine) enum Matcher {
    Numbers {
        answers: Ranges<NumberCut>,
        others: Ranges<NumberCut>,
    },
    Strings {
        answers: Ranges<Box<str>>,
        others: Ranges<Box<str>>,
    },
    Times {
        of: Times,
        answers: Ranges<NumberCut>,
        others: Ranges<NumberCut>,
    },
    /// How many characters, elements or members there are.
    Sizes {
        answers: Ranges<NumberCut>,
        others: Ranges<NumberCut>,
    },
    Prefixes(Prefixes),
    Suffixes(Suffixes),
    IgnoreCase(IgnoreCase),
    Wildcards(Wildcards),
    Regexps(Regexps),
    Nets(Nets),
    /// One for each dialect in use.
    Topics(Box<[Topics]>),
    Trees(Trees),
    Kinds(Box<[(Kinds, Box<[u32]>)]>),
    AnythingBut(Box<[(Kinds, AnythingBut)]>),
    /// Conditions on several paths.
    Slices(Slices),
}

impl Matcher {
    /// Make the matcher of a class from the places of its atoms in *clauses* and their targets: *answers* and *others*.
    /// Return None for a class without a matcher, and for an atom of another class.
    pub(in crate::engine) fn new(
        clauses: &EncodedClauses,
        seed: &Seed,
        class: u32,
        answers: &[[u32; 2]],
        others: &[[u32; 2]],
    ) -> Option<Matcher> {
        let class = Class::of(class)?;
        fn view(clauses: &EncodedClauses, at: u32) -> Option<AtomView<'_>> {
            clauses.atom_at(at).next().map(|atom| atom.view)
        }
        Some(match class {
            Class::Equal | Class::Slices => return None,
            Class::Numbers => {
                let range = |[at, id]: &[u32; 2]| match view(clauses, *at)? {
                    AtomView::Numbers(from, to) => Some(CutRange { from, to, id: *id }),
                    _ => None,
                };
                let ranges = |atoms: &[[u32; 2]]| Some(Ranges::new(atoms.iter().map(range).collect::<Option<Vec<_>>>()?));
                Matcher::Numbers { answers: ranges(answers)?, others: ranges(others)? }
            }
            Class::Timestamps | Class::Durations => {
                let of = if class == Class::Timestamps { Times::Timestamps } else { Times::Durations };
                let range = |[at, id]: &[u32; 2]| match view(clauses, *at)? {
                    AtomView::Times(_, from, to) => Some(CutRange { from, to, id: *id }),
                    _ => None,
                };
                let ranges = |atoms: &[[u32; 2]]| Some(Ranges::new(atoms.iter().map(range).collect::<Option<Vec<_>>>()?));
                Matcher::Times { of, answers: ranges(answers)?, others: ranges(others)? }
            }
            Class::Sizes => {
                let range = |[at, id]: &[u32; 2]| match view(clauses, *at)? {
                    AtomView::Size(least, most) => {
                        let (from, to) = size_cuts(least, most);
                        Some(CutRange { from, to, id: *id })
                    }
                    _ => None,
                };
                let ranges = |atoms: &[[u32; 2]]| Some(Ranges::new(atoms.iter().map(range).collect::<Option<Vec<_>>>()?));
                Matcher::Sizes { answers: ranges(answers)?, others: ranges(others)? }
            }
            Class::Strings => {
                let range = |[at, id]: &[u32; 2]| match view(clauses, *at)? {
                    AtomView::Strings(from, to) => Some(CutRange { from: from.map(Box::from), to: to.map(Box::from), id: *id }),
                    _ => None,
                };
                let ranges = |atoms: &[[u32; 2]]| Some(Ranges::new(atoms.iter().map(range).collect::<Option<Vec<_>>>()?));
                Matcher::Strings { answers: ranges(answers)?, others: ranges(others)? }
            }
            class => {
                of_texts(seed, class, others.iter().map(|[at, next]| Some((view(clauses, *at)?, *next))).collect::<Option<_>>()?)
            }
        })
    }

    /// Make the matcher of a bucket of *store*: see [`Matcher::new`], and of rows, which have a clause in place of an
    /// atom.
    pub(in crate::engine) fn of_bucket(
        store: &Store,
        seed: &Seed,
        class: u32,
        answers: &[[u32; 2]],
        others: &[[u32; 2]],
    ) -> Option<Matcher> {
        if Class::of(class) == Some(Class::Slices) {
            let is_row = |[clause, _]: &[u32; 2]| (*clause as usize) < store.distinct_clauses();
            return if others.iter().all(is_row) { Slices::of(store, others).map(Matcher::Slices) } else { None };
        }
        let is_atom = |[at, _]: &[u32; 2]| store.encoded.is_atom(*at);
        if !answers.iter().chain(others).all(is_atom) {
            return None;
        }
        Matcher::new(&store.encoded, seed, class, answers, others)
    }

    /// Whether [`Matcher::holds`] decides the atoms of a class completely.
    pub(super) fn tells(class: Class) -> bool {
        use Class::*;
        matches!(class, Numbers | Strings | Prefix | Suffix | IgnoreCase | Wildcard | Regexp | Cidr)
    }

    /// Whether any of its atoms is true for a scalar.
    pub(super) fn holds(&self, scalar: ScalarRef<'_>, literals: &mut literals::SeenLiterals) -> bool {
        let (mut is_hit, mut hits) = (false, Vec::new());
        let mut hit = |ids: &[u32]| is_hit |= !ids.is_empty();
        match (self, scalar) {
            (Matcher::Numbers { others, .. }, ScalarRef::Number(number)) => others.query_number(number, &mut hits),
            (Matcher::Strings { others, .. }, ScalarRef::String(text)) => others.query_text(text, &mut hits),
            (Matcher::Prefixes(prefixes), ScalarRef::String(text)) => prefixes.query(text, &mut hit),
            (Matcher::Suffixes(suffixes), ScalarRef::String(text)) => suffixes.query(text, &mut hit),
            (Matcher::IgnoreCase(operands), ScalarRef::String(text)) => operands.query(text, literals, &mut hit),
            (Matcher::Wildcards(wildcards), ScalarRef::String(text)) => wildcards.query(text, literals, &mut hit),
            (Matcher::Regexps(regexps), ScalarRef::String(text)) => regexps.query(text, literals, &mut hit),
            (Matcher::Nets(nets), ScalarRef::String(text)) => nets.query(text, &mut hit),
            _ => {}
        }
        is_hit || !hits.is_empty()
    }

    /// The arrays of those that may be large.
    pub(in crate::engine) fn each_array(&mut self, visit: &mut dyn FnMut(&mut dyn Packed)) {
        match self {
            Matcher::Numbers { answers, others }
            | Matcher::Times { answers, others, .. }
            | Matcher::Sizes { answers, others } => {
                answers.each_array(visit);
                others.each_array(visit);
            }
            Matcher::Strings { answers, others } => {
                answers.each_array(visit);
                others.each_array(visit);
            }
            Matcher::Prefixes(prefixes) => prefixes.each_array(visit),
            Matcher::Suffixes(suffixes) => suffixes.each_array(visit),
            Matcher::Topics(topics) => topics.iter_mut().for_each(|topics| topics.each_array(visit)),
            _ => {}
        }
    }

    /// Heap bytes used, those of automata over texts only in part.
    pub(in crate::engine) fn bytes(&self) -> usize {
        let inner = match self {
            Matcher::Numbers { answers, others } | Matcher::Sizes { answers, others } => answers.bytes() + others.bytes(),
            Matcher::Strings { answers, others } => answers.bytes() + others.bytes(),
            Matcher::Times { answers, others, .. } => answers.bytes() + others.bytes(),
            Matcher::Prefixes(prefixes) => prefixes.bytes(),
            Matcher::Suffixes(suffixes) => suffixes.bytes(),
            Matcher::Wildcards(wildcards) => wildcards.bytes(),
            Matcher::Topics(topics) => topics.iter().map(Topics::bytes).sum(),
            Matcher::Trees(trees) => trees.bytes(),
            Matcher::AnythingBut(sets) => sets.iter().map(|(_, sets)| sets.bytes()).sum(),
            Matcher::Slices(slices) => slices.bytes(),
            _ => 0,
        };
        size_of::<Matcher>() + inner
    }
}

/// The cuts of a range of sizes, whose greatest bound is none.
pub(in crate::engine) fn size_cuts(least: u32, most: u32) -> (Option<NumberCut>, Option<NumberCut>) {
    let number = |size: u32| Number::from_u64(size.into());
    ((least > 0).then(|| NumberCut::before(number(least))), (most < u32::MAX).then(|| NumberCut::after(number(most))))
}

/// The sources of an index's matchers: for each its class, the start of its answers, the start of its other atoms, and
/// the end; for each atom its place and its target.
#[derive(Debug)]
pub(in crate::engine) struct Recipe {
    pub heads: Array<[u32; 4]>,
    pub atoms: Array<[u32; 2]>,
}

impl Recipe {
    pub(in crate::engine) fn write(&self, out: &mut ImageWriter) {
        out.array(&self.heads);
        out.array(&self.atoms);
    }

    pub(in crate::engine) fn read(from: &mut ImageReader<'_>) -> Option<Recipe> {
        Some(Recipe { heads: from.array()?, atoms: from.array()? })
    }
}

/// A recipe that is being written.
#[derive(Debug, Default)]
pub(in crate::engine) struct RecipeBuilder {
    heads: Vec<[u32; 4]>,
    atoms: Vec<[u32; 2]>,
}

impl RecipeBuilder {
    pub(in crate::engine) fn push(&mut self, class: Class, answers: &[[u32; 2]], others: &[[u32; 2]]) {
        let start = self.atoms.len() as u32;
        let middle = start + answers.len() as u32;
        self.heads.push([class as u32, start, middle, middle + others.len() as u32]);
        self.atoms.extend_from_slice(answers);
        self.atoms.extend_from_slice(others);
    }

    pub(in crate::engine) fn build(self) -> Recipe {
        Recipe { heads: self.heads.into(), atoms: self.atoms.into() }
    }
}

/// Scalars, and the target for any other value.
type ScalarSet = (Vec<Scalar>, u32);

/// The matcher of a class whose atoms are looked up together, whatever their targets.
fn of_texts<'s>(seed: &Seed, class: Class, next: Vec<(AtomView<'s>, u32)>) -> Matcher {
    use AtomView::*;
    let texts = |pick: fn(&AtomView<'s>) -> Option<&'s str>| -> Vec<(&'s str, u32)> {
        next.iter().filter_map(|(view, next)| Some((pick(view)?, *next))).collect()
    };
    let seed = seed.clone();
    match class {
        Class::Prefix => {
            Matcher::Prefixes(Prefixes::new(texts(|view| if let Prefix(text) = view { Some(text) } else { None }), seed))
        }
        Class::Suffix => {
            Matcher::Suffixes(Suffixes::new(texts(|view| if let Suffix(text) = view { Some(text) } else { None }), seed))
        }
        Class::IgnoreCase => Matcher::IgnoreCase(IgnoreCase::new(
            texts(|view| if let EqualIgnoreCase(text) = view { Some(text) } else { None }),
            texts(|view| if let PrefixIgnoreCase(text) = view { Some(text) } else { None }),
            texts(|view| if let SuffixIgnoreCase(text) = view { Some(text) } else { None }),
            texts(|view| if let SubstringIgnoreCase(text) = view { Some(text) } else { None }),
            seed,
        )),
        Class::Wildcard => {
            let patterns: Vec<(Vec<Box<str>>, u32)> = next
                .iter()
                .map(|(view, next)| match view {
                    Wildcard(pieces) => (pieces.to_vec(), *next),
                    Substring(text) => (vec!["".into(), (*text).into(), "".into()], *next),
                    _ => (Vec::new(), *next),
                })
                .collect();
            Matcher::Wildcards(Wildcards::new(patterns.iter().map(|(pieces, next)| (&pieces[..], *next))))
        }
        Class::Regexp => Matcher::Regexps(Regexps::new(
            next.iter().filter_map(
                |(view, next)| {
                    if let Regexp(program) = view { Some((Arc::clone(program), *next)) } else { None }
                },
            ),
        )),
        Class::Cidr => Matcher::Nets(Nets::new(
            next.iter().filter_map(|(view, next)| if let Cidr(net) = view { Some((*net, *next)) } else { None }),
            seed,
        )),
        Class::Topic => {
            let topics = TopicDialect::ALL.into_iter().filter_map(|dialect| {
                let mut patterns = next
                    .iter()
                    .filter_map(|(view, next)| match view {
                        Topic(of, words) if *of == dialect => Some((words.symbols(), *next)),
                        _ => None,
                    })
                    .peekable();
                patterns.peek().is_some().then(|| Topics::new(dialect, patterns, seed.clone()))
            });
            Matcher::Topics(topics.collect())
        }
        Class::Tree => {
            let trees = next.iter().filter_map(
                |(view, next)| {
                    if let EqualTree(tree) = view { Some((Arc::clone(tree), *next)) } else { None }
                },
            );
            Matcher::Trees(Trees::new(trees, &seed))
        }
        Class::Other => {
            let mut by_kinds: Vec<(crate::value::Kinds, Vec<ScalarSet>)> = Vec::new();
            for (view, next) in &next {
                let Other(kinds, none_of) = view else { continue };
                let set = none_of
                    .filter_map(|atom| if let Equal(scalar) = atom.view { Some(scalar.to_scalar()) } else { None })
                    .collect();
                match by_kinds.iter_mut().find(|(other, _)| other == kinds) {
                    Some((_, sets)) => sets.push((set, *next)),
                    None => by_kinds.push((*kinds, vec![(set, *next)])),
                }
            }
            let built = by_kinds.iter().map(|(kinds, sets)| {
                (*kinds, AnythingBut::new(sets.iter().map(|(set, next)| (set.iter().collect(), *next)), seed.clone()))
            });
            Matcher::AnythingBut(built.collect())
        }
        _ => {
            let mut by_kinds: Vec<(crate::value::Kinds, Vec<u32>)> = Vec::new();
            for (view, next) in &next {
                let kinds = kinds_of(view);
                match by_kinds.iter_mut().find(|(other, _)| *other == kinds) {
                    Some((_, same)) => same.push(*next),
                    None => by_kinds.push((kinds, vec![*next])),
                }
            }
            Matcher::Kinds(by_kinds.into_iter().map(|(kinds, next)| (kinds, next.into())).collect())
        }
    }
}
