//! A subscription becomes its normal form: exactly, with the errors of CEL, or with what must be verified besides.
//!
//! | filter on `a.b` | clauses |
//! |---|---|
//! | `==`, `in` | `data.a.b` equals |
//! | `!=`, `not in` | `data.a.b` is readable and none of them |
//! | `<` and so on | `data.a.b` in a range of its own type |
//! | `exists` false | `data.a.b` is missing, and `data.a` is no number beyond float64 (to look into one is an error) |
//! | `changed_to` | `data.a.b` equals; `before.a.b` is missing or readable and not equal; `before.a` as above |
//! | `changed` | verified; `data.a` and `before.a` as above |

use super::filters::{Filter, Operator};
use super::normal_form::{Atom, Clause, Conjunction, Mode, NormalForm, Path, PatternTree, Range, Root, Verify};
use super::parse::Subscription;
use super::patterns::{AllOf, Field};
use super::tidy::tidy;
use crate::cel::{self, Program};
use crate::limits::Limits;
use crate::value::{Kind, Kinds, Scalar, Value};
use rapidhash::fast::RandomState;
use std::collections::HashMap;
use std::sync::Arc;

/// Lower all parts of a subscription but its tenant and collection, which choose its partition, and its `cel`, for [`and_cel`].
pub fn normal_form(subscription: &Subscription, limits: &Limits) -> NormalForm {
    let mut clauses = Vec::new();
    let mut paths = Paths::default();
    let mut changed = Vec::new();
    if let Some(types) = &subscription.types {
        let atoms = types.iter().map(|kind| Atom::Equal(Scalar::String(kind.as_str().into()))).collect();
        clauses.push(Clause { path: Path::part(Root::Type), mode: Mode::Scalar, atoms });
    }
    if let Some(words) = &subscription.topic {
        let atoms = vec![Atom::Topic(words.clone())];
        clauses.push(Clause { path: Path::part(Root::Topic), mode: Mode::Scalar, atoms });
    }
    for filter in &subscription.filters {
        lower_filter(filter, &mut clauses);
        if filter.op == Operator::Changed {
            let (before, data) = (Path::new(Root::Before, &filter.path), Path::new(Root::Data, &filter.path));
            changed.push((paths.index(before, Mode::Scalar), paths.index(data, Mode::Scalar)));
        }
    }
    // A conjunction that nothing meets stays: of an event with holes nobody knows.
    tidy(&mut clauses);
    let mut conjunctions = vec![Conjunction { clauses }];
    let (mut tree, mut is_cut) = (None, false);
    if let Some(pattern) = &subscription.pattern {
        let alternatives = distribute(pattern, limits.max_conjunctions);
        if alternatives.iter().flatten().any(|fields| may_share_an_array(fields)) || alternatives.is_none() {
            tree = Some(pattern_tree(pattern, &mut paths));
        }
        is_cut = alternatives.is_none();
        // Past the limit the fields outside of every `$or` are what a match cannot do without.
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
                // None of them is about the same as one of the others, which are about scalars.
                tidy(&mut fields);
                let mut clauses = common.clone();
                clauses.append(&mut fields);
                Conjunction { clauses }
            })
            .collect();
    }
    let verify = Verify { paths: paths.paths.into(), changed: changed.into(), compared: Box::default(), pattern: tree, is_cut };
    let verify = (!verify.changed.is_empty() || verify.pattern.is_some()).then(|| Arc::new(verify));
    NormalForm { conjunctions, verify }
}

/// Put into the form of a subscription what clauses say of its CEL expression. Returns whether that is all of it; if not, it is
/// evaluated on candidates.
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
    let both = |conjunction: Conjunction| {
        let with = move |alternative: &Vec<Clause>| {
            let mut clauses = [&conjunction.clauses[..], alternative].concat();
            tidy(&mut clauses);
            Conjunction { clauses }
        };
        lowered.alternatives.iter().map(with)
    };
    form.conjunctions = std::mem::take(&mut form.conjunctions).into_iter().flat_map(both).collect();
    lowered.is_exact
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

fn equal(value: &Value) -> Atom {
    match value {
        Value::Scalar(scalar) => Atom::Equal(scalar.clone()),
        value => Atom::EqualTree(Arc::new(value.clone())),
    }
}

fn none_of(values: &[Value]) -> Atom {
    Atom::Other { kinds: Kinds::READABLE, none_of: values.iter().map(equal).collect() }
}

fn lower_filter(filter: &Filter, clauses: &mut Vec<Clause>) {
    let value = &filter.value;
    let text = || Box::from(value.as_str().unwrap_or_default());
    let items = || if let Value::List(items) = value { &items[..] } else { &[] };
    let clause = |root: Root, atoms: Vec<Atom>| Clause { path: Path::new(root, &filter.path), mode: Mode::Scalar, atoms };
    let data = |atom: Atom| clause(Root::Data, vec![atom]);
    let is = |root: Root| clause(root, vec![equal(value)]);
    let is_not = |root: Root| clause(root, vec![Atom::Kinds(Kinds::MISSING), none_of(std::slice::from_ref(value))]);
    match filter.op {
        Operator::Equal => clauses.push(is(Root::Data)),
        Operator::NotEqual => clauses.push(data(none_of(std::slice::from_ref(value)))),
        Operator::Greater => clauses.push(clause(Root::Data, ordering(value, Some(false), None))),
        Operator::GreaterOrEqual => clauses.push(clause(Root::Data, ordering(value, Some(true), None))),
        Operator::Less => clauses.push(clause(Root::Data, ordering(value, None, Some(false)))),
        Operator::LessOrEqual => clauses.push(clause(Root::Data, ordering(value, None, Some(true)))),
        Operator::In => clauses.push(clause(Root::Data, items().iter().map(equal).collect())),
        Operator::NotIn => clauses.push(data(none_of(items()))),
        Operator::Contains => {
            let mut atoms = vec![Atom::Element(Arc::new(value.clone()))];
            atoms.extend(value.as_str().map(|text| Atom::Substring(text.into())));
            clauses.push(clause(Root::Data, atoms));
        }
        Operator::StartsWith => clauses.push(data(Atom::Prefix(text()))),
        Operator::EndsWith => clauses.push(data(Atom::Suffix(text()))),
        Operator::Matches => clauses.push(clause(Root::Data, filter.regexp.iter().cloned().map(Atom::Regexp).collect())),
        Operator::Exists if *value == Value::Scalar(Scalar::Bool(true)) => clauses.push(data(Atom::Kinds(Kinds::PRESENT))),
        Operator::Exists => {
            clauses.push(data(Atom::Kinds(Kinds::MISSING)));
            readable_way(filter, Root::Data, clauses);
        }
        Operator::Changed => {
            readable_way(filter, Root::Data, clauses);
            readable_way(filter, Root::Before, clauses);
        }
        Operator::ChangedTo => {
            clauses.extend([is(Root::Data), is_not(Root::Before)]);
            readable_way(filter, Root::Before, clauses);
        }
        Operator::ChangedFrom => {
            clauses.extend([is(Root::Before), is_not(Root::Data)]);
            readable_way(filter, Root::Data, clauses);
        }
    }
}

/// No step on the way is a number beyond float64: to look for a member there is an error.
fn readable_way(filter: &Filter, root: Root, clauses: &mut Vec<Clause>) {
    let kinds = Kinds::MISSING.or(Kinds::READABLE);
    clauses.extend((1..filter.path.len()).map(|length| Clause {
        path: Path::new(root, &filter.path[..length]),
        mode: Mode::Scalar,
        atoms: vec![Atom::Kinds(kinds)],
    }));
}

/// The values of the bound's own type above *low* or below *high*, each with whether the bound is inclusive.
pub(crate) fn ordering(bound: &Value, low: Option<bool>, high: Option<bool>) -> Vec<Atom> {
    match bound {
        Value::Scalar(Scalar::Number(number)) => {
            vec![Atom::Numbers(Range { low: low.map(|closed| (*number, closed)), high: high.map(|closed| (*number, closed)) })]
        }
        Value::Scalar(Scalar::String(text)) => {
            let at = |closed| (text.clone(), closed);
            vec![Atom::Strings(Range { low: low.map(at), high: high.map(at) })]
        }
        Value::Scalar(Scalar::Bool(bound)) => [false, true]
            .into_iter()
            .filter(|value| crate::value::within(value, low.map(|closed| (bound, closed)), high.map(|closed| (bound, closed))))
            .map(|value| Atom::Equal(Scalar::Bool(value)))
            .collect(),
        _ => Vec::new(),
    }
}

/// Multiply out every `$or`; `None` where more than *limit* alternatives would come of it. Recursive over `$or`.
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

/// Only an array that holds two chosen leaves can make them inconsistent, and it stands at or below a name that both paths
/// begin with.
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
