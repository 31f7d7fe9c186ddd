//! A subscription becomes its normal form: exactly, with the errors of CEL, or with a rest that must be verified.

use super::normal_form::{Atom, Clause, Conjunction, Mode, NormalForm, Path, PatternTree, Root, Unknowns, Verify};
use super::parse::Subscription;
use super::patterns::{AllOf, Field};
use super::simplify::simplify;
use crate::cel::{self, Program};
use crate::limits::Limits;
use crate::value::{Kind, Scalar};
use rapidhash::fast::RandomState;
use std::collections::HashMap;
use std::sync::Arc;

/// Lower all parts of a subscription but its tenant and collection, which choose its partition, its groups of filters
/// ([`and_groups`](super::and_groups)) and its `cel` ([`and_cel`]).
pub fn normal_form(subscription: &Subscription, limits: &Limits) -> NormalForm {
    // It lives until the write, so reserve no more than it needs: most filters are one clause each.
    let parts = usize::from(subscription.types.is_some()) + usize::from(subscription.topic.is_some());
    let mut clauses = Vec::with_capacity(parts + subscription.filters.len());
    let mut paths = Paths::default();
    if let Some(types) = &subscription.types {
        let atoms = types.iter().map(|kind| Atom::Equal(Scalar::String(kind.as_str().into()))).collect();
        clauses.push(Clause { path: Path::part(Root::Type), mode: Mode::Scalar, atoms });
    }
    if let Some(pattern) = &subscription.topic {
        // Without a wildcard it is an equality: a literal pattern is a topic of its dialect.
        let literal = pattern.literal().map(|text| Atom::Equal(Scalar::String(text.into())));
        let atoms = vec![literal.unwrap_or_else(|| Atom::Topic(pattern.clone()))];
        clauses.push(Clause { path: Path::part(Root::Topic), mode: Mode::Scalar, atoms });
    }
    for filter in &subscription.filters {
        clauses.append(&mut (filter.op.row().clauses)(filter));
    }
    // A conjunction that cannot be true stays: an event with unknown values may make it unknown.
    simplify(&mut clauses);
    let mut conjunctions = vec![Conjunction { clauses }];
    let (mut tree, mut is_cut) = (None, false);
    if let Some(pattern) = &subscription.pattern {
        let alternatives = distribute(pattern, limits.max_conjunctions);
        if alternatives.iter().flatten().any(|fields| may_share_an_array(fields)) || alternatives.is_none() {
            tree = Some(pattern_tree(pattern, &mut paths));
        }
        is_cut = alternatives.is_none();
        // Past the limit only the fields outside of every `$or` are certain to be required.
        let alternatives = alternatives.unwrap_or_else(|| vec![pattern.fields.iter().collect()]);
        let common = conjunctions.swap_remove(0).clauses;
        conjunctions = alternatives
            .iter()
            .map(|fields| {
                let fields = fields.iter().map(|field| Clause {
                    path: Path::new(Root::Raw, &field.path),
                    mode: Mode::AnyLeaf,
                    atoms: field.atoms.to_vec(),
                });
                let mut fields: Vec<Clause> = fields.collect();
                // Fields and `common` are about different modes, so they are never joined.
                simplify(&mut fields);
                let mut clauses = common.clone();
                clauses.append(&mut fields);
                Conjunction { clauses }
            })
            .collect();
    }
    let verify =
        tree.map(|tree| Arc::new(Verify { paths: paths.paths.into(), pattern: Some(tree), is_cut, ..Verify::default() }));
    // A pattern that was cut has fields that no clause is about.
    let unknowns = if is_cut { Unknowns::Anywhere } else { Unknowns::InClauses };
    NormalForm { conjunctions, verify, unknowns }
}

/// Add the clauses of its CEL expression to the form of a subscription. Return whether they are all of it; if not, it
/// is evaluated on candidates.
pub fn and_cel(form: &mut NormalForm, program: &Program, limits: &Limits) -> bool {
    let lowered = cel::lower(program, (limits.max_conjunctions / form.conjunctions.len().max(1)).max(1));
    if !lowered.changed.is_empty() || !lowered.compared.is_empty() {
        let mut verify = form.verify.take().map(Arc::unwrap_or_clone).unwrap_or_default();
        let mut paths = Paths::of(std::mem::take(&mut verify.paths).into());
        let changed =
            lowered.changed.into_iter().map(|(one, other)| (paths.index(one, Mode::Scalar), paths.index(other, Mode::Scalar)));
        verify.changed = verify.changed.into_iter().chain(changed).collect();
        let compared = lowered
            .compared
            .into_iter()
            .map(|(one, relation, other)| (paths.index(one, Mode::Scalar), relation, paths.index(other, Mode::Scalar)));
        verify.compared = verify.compared.into_iter().chain(compared).collect();
        verify.paths = paths.paths.into();
        form.verify = Some(Arc::new(verify));
    }
    join(form, &lowered.alternatives, lowered.unknowns);
    lowered.is_exact
}

/// Add to each conjunction each of some alternatives; *unknowns*: what these tell of an event with unknown values.
pub(super) fn join(form: &mut NormalForm, alternatives: &[Vec<Clause>], unknowns: Unknowns) {
    let both = |conjunction: Conjunction| {
        let with = move |alternative: &Vec<Clause>| {
            let mut clauses = [&conjunction.clauses[..], alternative].concat();
            simplify(&mut clauses);
            Conjunction { clauses }
        };
        alternatives.iter().map(with)
    };
    form.conjunctions = std::mem::take(&mut form.conjunctions).into_iter().flat_map(both).collect();
    form.unknowns = form.unknowns.max(unknowns);
}

#[derive(Default)]
struct Paths {
    paths: Vec<(Path, Mode)>,
    known: HashMap<(Path, Mode), u32, RandomState>,
}

impl Paths {
    fn of(paths: Vec<(Path, Mode)>) -> Paths {
        let known = paths.iter().cloned().zip(0..).collect();
        Paths { paths, known }
    }

    fn index(&mut self, path: Path, mode: Mode) -> u32 {
        let next = self.paths.len() as u32;
        let key = (path, mode);
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        self.paths.push(key.clone());
        self.known.insert(key, next);
        next
    }
}

/// Multiply out every `$or`; `None` if that makes more than *limit* alternatives. Recursive over `$or`.
fn distribute(pattern: &AllOf, limit: usize) -> Option<Vec<Vec<&Field>>> {
    let mut alternatives: Vec<Vec<&Field>> = vec![pattern.fields.iter().collect()];
    for any_of in &pattern.any_of {
        let mut options = Vec::new();
        for alternative in any_of {
            options.append(&mut distribute(alternative, limit)?);
            if alternatives.len() * options.len() > limit {
                return None;
            }
        }
        alternatives = alternatives
            .iter()
            .flat_map(|fields| options.iter().map(move |option| [&fields[..], &option[..]].concat()))
            .collect();
    }
    (alternatives.len() <= limit).then_some(alternatives)
}

/// Two chosen leaves are inconsistent only if they lie in one array, which is at or below a name that both paths begin
/// with.
fn may_share_an_array(fields: &[&Field]) -> bool {
    let needs_leaf = |field: &&&Field| field.atoms.iter().any(|atom| *atom != Atom::kind(Kind::Missing));
    let mut firsts: Vec<&str> =
        fields.iter().filter(needs_leaf).filter_map(|field| field.path.first()).map(|name| &**name).collect();
    let all = firsts.len();
    firsts.sort_unstable();
    firsts.dedup();
    firsts.len() < all
}

fn pattern_tree(pattern: &AllOf, paths: &mut Paths) -> PatternTree {
    let fields = pattern.fields.iter();
    PatternTree {
        fields: fields
            .map(|field| (paths.index(Path::new(Root::Raw, &field.path), Mode::AnyLeaf), field.atoms.clone()))
            .collect(),
        any_of: pattern
            .any_of
            .iter()
            .map(|alternatives| alternatives.iter().map(|alternative| pattern_tree(alternative, paths)).collect())
            .collect(),
    }
}
