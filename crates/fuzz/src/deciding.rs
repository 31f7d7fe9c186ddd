//! One subscription and one event: the normal form compared with the naive evaluation.

use super::events::{Choices, event};
use super::flattening::{WATCHED, given, read_whole};
use super::subscriptions::subscription;
use std::collections::HashMap;
use std::sync::Arc;
use streamer_core::flatten::{Flattener, Leaf, PathTrie, Validation};
use streamer_core::limits::Limits;
use streamer_core::naive;
use streamer_core::subscriptions::normal_form::{Atom, Mode, NormalForm, Path, Root};
use streamer_core::subscriptions::parse::Defaults;
use streamer_core::subscriptions::{Subscription, normal_form};
use streamer_core::value::{Kind, Value};

/// The normal form and the naive evaluation agree on an event, for a few subscriptions. Return how many match, and out
/// of how many.
pub fn decides(choices: &mut Choices<'_>) -> (usize, usize) {
    let event = event(choices);
    let verdicts: Vec<bool> = (0..8).filter_map(|_| decides_one(choices, &event)).collect();
    (verdicts.iter().filter(|wanted| **wanted).count(), verdicts.len())
}

fn decides_one(choices: &mut Choices<'_>, event: &[u8]) -> Option<bool> {
    // Few conjunctions at most, so that both a distributed pattern and a tree are met.
    let limits = Limits { max_conjunctions: [1, 3, 64][choices.below(3)], max_pattern_states: 500, ..Limits::default() };
    let watched = &WATCHED[3 * choices.below(3)];
    let text = subscription(choices);
    let subscription = match Subscription::parse(text.as_bytes(), Defaults::of("default"), &limits) {
        Ok(subscription) => subscription,
        // An ordering or a membership of a value that has none, or a pattern too large for the naive evaluation.
        Err(error) if error.place.contains(".value") || error.reason.contains("states") => return None,
        Err(error) => panic!("{error}: {text}"),
    };
    let form = normal_form(&subscription, &limits);
    let mut builder = PathTrie::builder(Arc::clone(&watched.layout));
    for clause in form.conjunctions.iter().flat_map(|conjunction| &conjunction.clauses) {
        builder.want(&clause.path, clause.mode);
    }
    for (path, mode) in form.verify.iter().flat_map(|verify| &verify.paths) {
        builder.want(path, *mode);
    }
    let mut paths = HashMap::new();
    for (path, mode) in form.conjunctions.iter().flat_map(|c| &c.clauses).map(|c| (&c.path, c.mode)).chain(verified(&form)) {
        paths.insert(path.clone(), builder.want(path, mode));
        let before = Path { root: Root::Before, names: path.names.clone() };
        if mode == Mode::Changed && !paths.contains_key(&before) {
            paths.insert(before.clone(), builder.want(&before, Mode::Scalar));
        }
    }
    let trie = builder.build();
    let mut flattener = Flattener::new();
    let flat = flattener.flatten(&trie, event, Validation::Full, &given(), &limits).ok()?;
    let read = naive::NaiveEvent::read(event, &watched.layout, &limits).unwrap();
    let expected = naive::wants(&subscription, &read);
    let clauses = form.conjunctions.iter().any(|conjunction| {
        conjunction.clauses.iter().all(|clause| {
            let path = paths[&clause.path];
            match clause.mode {
                Mode::Scalar => {
                    let value = flat.value(path).or_else(|| flat.unreadable(path));
                    clause.atoms.iter().any(|atom| holds(atom, value))
                }
                Mode::AnyLeaf if flat.leaves(path).next().is_none() => clause.atoms.iter().any(|atom| holds(atom, None)),
                Mode::AnyLeaf => flat.leaves(path).any(|leaf| clause.atoms.iter().any(|atom| holds(atom, Some(leaf)))),
                Mode::Changed => {
                    let before = Path { root: Root::Before, names: clause.path.names.clone() };
                    match (flat.value(paths[&before]), flat.value(path)) {
                        _ if flat.unreadable(paths[&before]).or_else(|| flat.unreadable(path)).is_some() => false,
                        (Some(one), Some(other)) => whole(one).equals(&whole(other)) == Some(false),
                        (one, other) => one.is_some() != other.is_some(),
                    }
                }
                Mode::Element | Mode::Member => unreachable!("filters never have one"),
            }
        })
    });
    let shown = || format!("{text} on {}", String::from_utf8_lossy(event));
    assert!(clauses || !expected, "the conjunctions lose {}", shown());
    // Without a verification only the conjunctions decide, and a pattern has no verification if its values lie outside
    // of arrays.
    let exact = form.verify.as_ref().is_none_or(|verify| {
        let is_distributed = !verify.is_cut && !flat.has_arrays();
        verify.changed.is_empty() && (verify.pattern.is_none() || is_distributed)
    });
    assert!(!exact || clauses == expected, "the conjunctions are not exact for {}", shown());
    Some(expected)
}

/// A value as a tree.
fn whole(leaf: Leaf<'_>) -> Value {
    leaf.scalar().map_or_else(|| read_whole(leaf.raw().as_bytes()).unwrap(), |scalar| Value::Scalar(scalar.to_scalar()))
}

fn verified(form: &NormalForm) -> impl Iterator<Item = (&Path, Mode)> {
    form.verify.iter().flat_map(|verify| &verify.paths).map(|(path, mode)| (path, *mode))
}

/// Whether an atom is true for the value at a path, by the words of its documentation.
fn holds(atom: &Atom, leaf: Option<Leaf<'_>>) -> bool {
    use streamer_core::automaton::{folding::fold, places, wildcards::wildcard_matches};
    use streamer_core::regexps::CompiledRegexp;
    let Some(leaf) = leaf else {
        return matches!(atom, Atom::Kinds(kinds) if kinds.has(Kind::Missing));
    };
    let tree = || read_whole(leaf.raw().as_bytes()).unwrap();
    let is_container = matches!(leaf.kind(), Kind::List | Kind::Map);
    let is_false = |atom: &Atom| match atom {
        Atom::EqualTree(value) if is_container => value.equals(&tree()) == Some(false),
        atom => !holds(atom, Some(leaf)),
    };
    match atom {
        Atom::Equal(scalar) => leaf.scalar().is_some_and(|seen| *scalar == seen),
        Atom::EqualTree(value) => is_container && value.equals(&tree()) == Some(true),
        Atom::Element(value) => {
            matches!(leaf.kind(), Kind::List)
                && matches!(tree(), Value::List(ref elements) if elements.iter().any(|e| e.equals(value) == Some(true)))
        }
        Atom::Numbers(range) => leaf.number().is_some_and(|number| range.contains(&number)),
        Atom::Kinds(kinds) => kinds.has(leaf.kind()),
        Atom::Other { kinds, none_of } => kinds.has(leaf.kind()) && none_of.iter().all(is_false),
        atom => leaf.text().is_some_and(|text| match atom {
            Atom::Strings(range) => range.contains(text),
            Atom::Prefix(operand) => text.starts_with(&**operand),
            Atom::Suffix(operand) => text.ends_with(&**operand),
            Atom::Substring(operand) => text.contains(&**operand),
            Atom::PrefixIgnoreCase(operand) => fold(text).starts_with(&**operand),
            Atom::SuffixIgnoreCase(operand) => fold(text).ends_with(&**operand),
            Atom::EqualIgnoreCase(operand) => fold(text) == **operand,
            Atom::Wildcard(pieces) => wildcard_matches(pieces.iter().map(|piece| &**piece), text),
            Atom::Regexp(regexp) => CompiledRegexp::compile(regexp).unwrap().is_match(text),
            Atom::Topic(pattern) => places::topic_matches(pattern.dialect, pattern.words.iter().map(places::Symbol::from), text),
            _ => false,
        }),
    }
}
