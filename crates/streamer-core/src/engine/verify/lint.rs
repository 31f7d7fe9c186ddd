//! Findings about one subscription: it never matches, or always matches.
//!
//! Every finding is proven from the normal form, without the clauses of CEL: for an expression, only a result that is
//! the same for every event counts. The converse is false: many a contradiction (between two regular expressions, for
//! example) is not detected.
//!
//! Cost: linear in the conditions, except that each scalar of a list is checked against each condition on its path that
//! is not a list, for example `startsWith`.

use crate::automaton::folding::fold;
use crate::bloom::keys::root_name;
use crate::cel::{Program, Verdict, may_fail};
use crate::subscriptions::Subscription;
use crate::subscriptions::normal_form::{Atom, Clause, Conjunction, Mode, NormalForm, Path, PatternTree, Root, Verify};
use crate::subscriptions::simplify::meet;
use crate::value::{Kind, Kinds, Scalar, Value};
use rapidhash::fast::RandomState;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Debug;

/// Something suspicious.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The code: a `FindingCode` of the Python package.
    pub code: &'static str,
    /// The finding, for people.
    pub reason: String,
}

/// Look at a subscription.
///
/// *form* is its normal form without CEL, and *constant* the verdict of its CEL if that is the same for every event.
pub fn lint(subscription: &Subscription, form: &NormalForm, constant: Option<Verdict>) -> Option<Finding> {
    let finding = |code, reason: &str| Some(Finding { code, reason: reason.into() });
    match constant {
        Some(Verdict::False) => return finding("never_matches", "cel: it is false for every event"),
        Some(Verdict::Error) => return finding("never_matches", "cel: it is an error for every event"),
        _ => {}
    }
    let contradictions: Option<BTreeSet<String>> = form.conjunctions.iter().map(contradiction).collect();
    if let Some(reasons) = contradictions {
        return finding("never_matches", &Vec::from_iter(reasons).join("; or "));
    }
    let cel_decides = !subscription.groups.is_empty() || subscription.cel.is_some() && constant != Some(Verdict::True);
    let verify = form.verify.as_deref();
    let is_always = asks_something(subscription)
        && !cel_decides
        && form.conjunctions.iter().any(|conjunction| is_tautology(conjunction, verify));
    if is_always { finding("always_matches", "its conditions are true for every event") } else { None }
}

/// Whether an expression, or a group of filters, may be true for no event at all. The Python package then finds the reason, or that it is not
/// proven.
///
/// *whole* is the normal form with their clauses.
pub fn is_suspect(subscription: &Subscription, whole: &NormalForm, program: Option<&Program>) -> bool {
    let one_of = |root, texts: Vec<&str>, others: Option<Atom>| Clause {
        path: Path::part(root),
        mode: Mode::Scalar,
        atoms: texts.into_iter().map(|text| Atom::Equal(Scalar::String(text.into()))).chain(others).collect(),
    };
    let Subscription { tenant, collection, types, .. } = subscription;
    let mut parts = Vec::new();
    if &**tenant != "*" {
        parts.push(one_of(Root::Tenant, vec![tenant], None));
    }
    if let Some(collection) = collection {
        parts.push(one_of(Root::Collection, vec![collection], None));
    }
    if types.is_none() {
        parts.push(one_of(Root::Type, vec!["insert", "update", "delete"], Some(Atom::kind(Kind::Missing))));
    }
    let is_impossible = |conjunction: &Conjunction| {
        contradiction(&Conjunction { clauses: [&conjunction.clauses[..], &parts].concat() }).is_some()
    };
    program.is_some_and(may_fail) || whole.conjunctions.iter().all(is_impossible)
}

fn asks_something(subscription: &Subscription) -> bool {
    let Subscription { types, filters, groups, pattern, topic, cel, .. } = subscription;
    types.is_some() || !groups.is_empty() || !filters.is_empty() || pattern.is_some() || topic.is_some() || cel.is_some()
}

/// Whether it is true for every event.
fn is_tautology(conjunction: &Conjunction, verify: Option<&Verify>) -> bool {
    let every = Kinds::MISSING.or(Kinds::LEAVES);
    let holds = |clause: &Clause| {
        let kinds = clause.atoms.iter().filter(|atom| matches!(atom, Atom::Kinds(_))).map(Atom::kinds);
        clause.mode == Mode::AnyLeaf && kinds.fold(Kinds::NONE, Kinds::or).and(every) == every
    };
    // Leaves are only inconsistent if two of them lie in one array: below a name that both paths begin with.
    let firsts: BTreeSet<_> = conjunction.clauses.iter().map(|clause| clause.path.names.first()).collect();
    let is_consistent = firsts.len() == conjunction.clauses.len();
    let is_all = verify.is_none_or(|verify| {
        verify.changed.is_empty() && verify.compared.is_empty() && !verify.is_cut && (verify.pattern.is_none() || is_consistent)
    });
    is_all && conjunction.clauses.iter().all(holds)
}

/// The reason why no event satisfies a conjunction; `None` if that is not proven.
fn contradiction(conjunction: &Conjunction) -> Option<String> {
    let mut by_place: BTreeMap<_, (&Path, Vec<&[Atom]>)> = BTreeMap::new();
    // All clauses of a pattern on one path are about one leaf, because a pattern makes one choice of array elements.
    let mut on_leaf: BTreeMap<_, (&Path, Vec<&[Atom]>)> = BTreeMap::new();
    let is_map = [Atom::kind(Kind::Map)];
    let has_members = [Atom::Kinds(Kinds::of(Kind::List).or(Kinds::of(Kind::Map)))];
    for clause in &conjunction.clauses {
        let known = by_place.entry(place(&clause.path)).or_insert((&clause.path, Vec::new()));
        if clause.mode == Mode::Scalar || clause.atoms.is_empty() {
            known.1.push(&clause.atoms);
        } else if clause.mode == Mode::AnyLeaf {
            on_leaf.entry(place(&clause.path)).or_insert((&clause.path, Vec::new())).1.push(&clause.atoms);
        } else if clause.mode == Mode::Member {
            known.1.push(&has_members);
        }
    }
    let mut on_path: Vec<_> = by_place.into_values().collect();
    for at in parents(&on_path) {
        on_path[at].1.push(&is_map);
    }
    on_path.extend(on_leaf.into_values());
    on_path.iter().find_map(|(path, clauses)| conflict(clauses).map(|reason| format!("{path}: {reason}")))
}

/// Which of some paths in order are objects, because a value lies below them. Each step of a path is visited once.
fn parents(on_path: &[(&Path, Vec<&[Atom]>)]) -> BTreeSet<usize> {
    let mut parents = BTreeSet::new();
    // The paths that the current one begins with, shortest first.
    let mut around: Vec<usize> = Vec::new();
    for (at, (path, clauses)) in on_path.iter().enumerate() {
        while around.pop_if(|other| !is_below(path, on_path[*other].0)).is_some() {}
        if clauses.iter().any(|atoms| !kinds_of(atoms).has(Kind::Missing)) {
            // What is around one that was found, was found with it.
            around.iter().rev().take_while(|other| parents.insert(**other)).for_each(drop);
        }
        if !path.names.is_empty() {
            around.push(at);
        }
    }
    parents
}

fn is_below(path: &Path, other: &Path) -> bool {
    path.root == other.root && path.names.starts_with(&other.names)
}

/// The sort key of a path in the search for contradictions.
fn place(path: &Path) -> (&'static str, &[Box<str>]) {
    (root_name(path.root), &path.names)
}

/// The reason why no value satisfies all clauses on one path; `None` if that is not proven.
fn conflict(clauses: &[&[Atom]]) -> Option<&'static str> {
    if clauses.is_empty() {
        return None;
    }
    if clauses.iter().any(|atoms| atoms.is_empty()) {
        return Some("its condition is false for every value");
    }
    let kinds = clauses.iter().fold(Kinds::MISSING.or(Kinds::PRESENT), |kinds, atoms| kinds.and(kinds_of(atoms)));
    if kinds.is_empty() {
        return Some("its conditions require different types");
    }
    let mut sizes = clauses.iter().filter_map(|atoms| sizes_of(atoms));
    if let Some(first) = sizes.next() {
        let (least, most) = sizes.fold(first, |all, one| (all.0.max(one.0), all.1.min(one.1)));
        if least > most {
            return Some("its sizes have no value in common");
        }
    }
    let single: Vec<&Atom> = clauses.iter().filter_map(|atoms| if let [atom] = atoms { Some(atom) } else { None }).collect();
    if !ranges_meet(&single) {
        return Some("its ranges have no value in common");
    }
    let starts: Vec<Affix<'_>> = single.iter().filter_map(|atom| start_of(atom)).collect();
    let ends: Vec<Affix<'_>> = single.iter().filter_map(|atom| end_of(atom)).collect();
    if !are_nested(&starts, |text, start| text.starts_with(start)) {
        return Some("its prefixes exclude one another");
    }
    if !are_nested(&ends, |text, end| text.ends_with(end)) {
        return Some("its suffixes exclude one another");
    }
    let length = |text: &str| text.chars().count();
    let equal = single.iter().filter_map(|atom| if let Atom::EqualIgnoreCase(text) = atom { Some(length(text)) } else { None });
    let longest = starts.iter().chain(&ends).map(|(text, _)| length(text)).max().unwrap_or_default();
    if equal.min().is_some_and(|shortest| shortest < longest) {
        return Some("its conditions exclude one another");
    }
    if !kinds.has(Kind::Missing) && has_no_scalar(clauses, kinds) {
        return Some("its conditions exclude one another");
    }
    None
}

/// The start or end of a text, and whether case is ignored.
type Affix<'a> = (&'a str, bool);

/// The start of every text for which an atom is true, if it has one.
fn start_of(atom: &Atom) -> Option<Affix<'_>> {
    match atom {
        Atom::Prefix(text) => Some((text, false)),
        Atom::PrefixIgnoreCase(text) | Atom::EqualIgnoreCase(text) => Some((text, true)),
        Atom::Wildcard(pieces) => Some((pieces.first()?, false)),
        _ => None,
    }
}

/// The end of every text for which an atom is true, if it has one.
fn end_of(atom: &Atom) -> Option<Affix<'_>> {
    match atom {
        Atom::Suffix(text) => Some((text, false)),
        Atom::SuffixIgnoreCase(text) | Atom::EqualIgnoreCase(text) => Some((text, true)),
        Atom::Wildcard(pieces) => Some((pieces.last()?, false)),
        _ => None,
    }
}

/// Whether a text can have all *affixes*.
fn are_nested(affixes: &[Affix<'_>], has: fn(&str, &str) -> bool) -> bool {
    let is_one = |texts: &[Cow<'_, str>]| {
        let longest = texts.iter().max_by_key(|text| text.len()).map_or("", |text| text);
        texts.iter().all(|text| has(longest, text))
    };
    let exact: Vec<_> = affixes.iter().filter(|(_, ignore_case)| !ignore_case).map(|(text, _)| Cow::Borrowed(*text)).collect();
    let folded: Vec<_> = affixes.iter().map(|(text, _)| fold(text)).collect();
    is_one(&exact) && is_one(&folded)
}

/// Whether one of the clauses on one path lists all its scalars, and none of these satisfies all clauses.
///
/// Such a scalar is in every list, so the shortest one suffices.
fn has_no_scalar(clauses: &[&[Atom]], kinds: Kinds) -> bool {
    let is_listed =
        |atom: &Atom| matches!(atom, Atom::Equal(_)) || matches!(atom, Atom::Kinds(kinds) if *kinds == Kinds::MISSING);
    let lists = clauses.iter().filter(|atoms| atoms.iter().all(is_listed));
    let Some(shortest) = lists.min_by_key(|atoms| atoms.len()) else { return false };
    let mut excluded: HashSet<&Scalar, RandomState> = HashSet::default();
    let mut others = Vec::new();
    for atoms in clauses {
        if let [Atom::Other { none_of, .. }] = atoms {
            excluded.extend(none_of.iter().filter_map(scalar_of));
        } else if atoms.iter().any(is_compared) {
            let equal: HashSet<&Scalar, RandomState> = atoms.iter().filter_map(scalar_of).collect();
            others.push((equal, atoms.iter().filter(|atom| scalar_of(atom).is_none()).collect::<Vec<_>>()));
        }
    }
    let may_be = |value: &Scalar| {
        kinds.has(value.kind())
            && !excluded.contains(value)
            && others.iter().all(|(equal, atoms)| equal.contains(value) || atoms.iter().any(|atom| may_hold(atom, value)))
    };
    !shortest.iter().filter_map(scalar_of).any(may_be)
}

fn scalar_of(atom: &Atom) -> Option<&Scalar> {
    if let Atom::Equal(value) = atom { Some(value) } else { None }
}

/// Whether [`may_hold`] compares an atom with the scalar, not only with its kind.
fn is_compared(atom: &Atom) -> bool {
    use Atom::{Equal, EqualIgnoreCase, Numbers, Other, Prefix, PrefixIgnoreCase, Size, Strings, Suffix, SuffixIgnoreCase};
    matches!(atom, Equal(_) | Numbers(_) | Strings(_) | Size(..) | Other { .. })
        || matches!(atom, Prefix(_) | Suffix(_) | PrefixIgnoreCase(_) | SuffixIgnoreCase(_) | EqualIgnoreCase(_))
}

/// The bounds on the size of a value for which some of *atoms* are true; `None` if they are not only about its size.
fn sizes_of(atoms: &[Atom]) -> Option<(u32, u32)> {
    let is_empty = |atom: &Atom| match atom {
        Atom::Equal(Scalar::String(text)) => text.is_empty(),
        Atom::EqualTree(tree) => match &**tree {
            Value::List(items) => items.is_empty(),
            Value::Map(members) => members.is_empty(),
            _ => false,
        },
        _ => false,
    };
    match atoms {
        [Atom::Size(least, most)] => Some((*least, *most)),
        [Atom::Other { none_of, .. }] if none_of.len() == 3 && none_of.iter().all(is_empty) => Some((1, u32::MAX)),
        atoms if !atoms.is_empty() && atoms.iter().all(is_empty) => Some((0, 0)),
        _ => None,
    }
}

/// Whether a value lies in all ranges among *atoms*.
fn ranges_meet(atoms: &[&Atom]) -> bool {
    let (mut numbers, mut strings) = (None, None);
    atoms.iter().all(|atom| match atom {
        Atom::Numbers(range) => meet(numbers.get_or_insert_with(|| range.clone()), range),
        Atom::Strings(range) => meet(strings.get_or_insert_with(|| range.clone()), range),
        _ => true,
    })
}

fn kinds_of(atoms: &[Atom]) -> Kinds {
    atoms.iter().map(Atom::kinds).fold(Kinds::NONE, Kinds::or)
}

/// Whether an atom may be true for a scalar; true if this function does not decide it.
fn may_hold(atom: &Atom, value: &Scalar) -> bool {
    match (atom, value) {
        (Atom::Equal(operand), value) => operand == value,
        (Atom::Numbers(range), Scalar::Number(number)) => range.contains(number),
        (Atom::Strings(range), Scalar::String(text)) => range.contains(text),
        (Atom::Prefix(operand), Scalar::String(text)) => text.starts_with(&**operand),
        (Atom::Suffix(operand), Scalar::String(text)) => text.ends_with(&**operand),
        (Atom::PrefixIgnoreCase(operand), Scalar::String(text)) => fold(text).starts_with(&**operand),
        (Atom::SuffixIgnoreCase(operand), Scalar::String(text)) => fold(text).ends_with(&**operand),
        (Atom::EqualIgnoreCase(operand), Scalar::String(text)) => *fold(text) == **operand,
        (Atom::Size(least, most), Scalar::String(text)) => (*least as usize..=*most as usize).contains(&text.chars().count()),
        (Atom::Other { kinds, none_of }, value) => {
            kinds.has(value.kind()) && !none_of.iter().any(|atom| matches!(atom, Atom::Equal(operand) if operand == value))
        }
        (atom, value) => atom.kinds().has(value.kind()),
    }
}

/// A text that is equal for two subscriptions with the same conditions, in whatever order they are written.
pub fn identity(subscription: &Subscription, form: &NormalForm) -> String {
    let Subscription { tenant, collection, gateway_id, on_unknown, transitions, cel, groups, .. } = subscription;
    let conjunctions = sorted(form.conjunctions.iter().map(|conjunction| sorted(conjunction.clauses.iter().map(in_order))));
    let verify = form.verify.as_ref().map(|verify| {
        let path = |at: u32| named(&verify.paths[at as usize].0);
        let changed = sorted(verify.changed.iter().map(|(one, other)| format!("{} {}", path(*one), path(*other))));
        (changed, verify.pattern.as_ref().map(|tree| tree_in_order(tree, verify)))
    });
    let groups = sorted(groups.iter().map(|group| format!("{group:?}")));
    format!("{:?}", (tenant, collection, gateway_id, on_unknown, transitions, cel, groups, conjunctions, verify))
}

fn in_order(clause: &Clause) -> String {
    format!("{} {:?} {}", named(&clause.path), clause.mode, sorted(clause.atoms.iter().map(atom_in_order)))
}

fn atom_in_order(atom: &Atom) -> String {
    match atom {
        Atom::Other { kinds, none_of } => format!("{kinds:?} not {}", sorted(none_of.iter().map(atom_in_order))),
        atom => format!("{atom:?}"),
    }
}

/// Recursive over `$or`, as its parser is.
fn tree_in_order(tree: &PatternTree, verify: &Verify) -> String {
    let field = |(at, atoms): &(u32, Box<[Atom]>)| {
        format!("{} {}", named(&verify.paths[*at as usize].0), sorted(atoms.iter().map(atom_in_order)))
    };
    let any_of = tree.any_of.iter().map(|trees| sorted(trees.iter().map(|tree| tree_in_order(tree, verify))));
    format!("{} {}", sorted(tree.fields.iter().map(field)), sorted(any_of))
}

fn named(path: &Path) -> String {
    format!("{:?}", place(path))
}

/// Texts in order, each once.
fn sorted<T: Debug + Ord>(texts: impl Iterator<Item = T>) -> String {
    format!("{:?}", texts.collect::<BTreeSet<T>>())
}
