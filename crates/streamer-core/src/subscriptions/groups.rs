//! Groups of filters: any of them, all of them, or not one (semantics.md 3.28).
//!
//! ```text
//!   {"any": [a, {"not": b}]}      a || !(b)      true: { a }, { FALSE of b }
//! ```
//!
//! A group is lowered as the CEL that it means, with the two questions of [`lower`](crate::cel::lower): for which events
//! is it TRUE, for which FALSE? If clauses do not express all of it, and for an event with unknown values, its filters
//! are evaluated.

use super::filters::{FilterMembers, FilterPlace, error};
use super::normal_form::{Atom, Clause, Mode, NormalForm, Path, Root};
use super::operators::{Filter, Operator, became};
use super::{Subscription, lower};
use crate::cel::{EventSet, Work, joined};
use crate::error::SubscriptionError;
use crate::json::Tree;
use crate::limits::{Limits, Size};
use crate::subscriptions::simplify::simplify;
use crate::value::{Kind, Kinds, Scalar, Value};

/// The members of groups; a group has one.
pub(super) const GROUPS: [&str; 3] = ["any", "all", "not"];

/// Groups nest so deep: their CEL is then within its limits, too.
const MAX_GROUP_DEPTH: usize = 16;

type Result<T> = std::result::Result<T, SubscriptionError>;

/// A filter, or a group of filters and groups.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FilterNode {
    /// A filter in a group.
    Filter(Filter),
    /// At least one is true.
    Any(Box<[FilterNode]>),
    /// Each is true.
    All(Box<[FilterNode]>),
    /// It is false.
    Not(Box<FilterNode>),
}

/// The members of an entry of `filters`, with their types checked.
pub(super) enum NodeMembers<'t> {
    Filter(FilterMembers<'t>),
    Group(&'static str, Vec<NodeMembers<'t>>),
}

impl<'t> NodeMembers<'t> {
    /// Check the members of an entry; *depth* groups are around it.
    pub(super) fn read(tree: &'t Tree, place: FilterPlace<'_>, depth: usize) -> Result<NodeMembers<'t>> {
        let Tree::Object(members) = tree else {
            return error(place, format!("expected an object, not {}", tree.json_type()));
        };
        let named = |group: &&str| members.iter().any(|(name, _)| **name == **group);
        let Some(group) = GROUPS.into_iter().find(named) else {
            return FilterMembers::read(members, place).map(NodeMembers::Filter);
        };
        if let Some((other, _)) = members.iter().find(|(name, _)| **name != *group) {
            return error(FilterPlace::Member(&place, other), format!("a group has one member, here '{group}'"));
        }
        if depth == MAX_GROUP_DEPTH {
            return error(place, format!("groups nested deeper than {MAX_GROUP_DEPTH} levels"));
        }
        let (inner, value) = (FilterPlace::Member(&place, group), &members[0].1);
        let entries = match (group, value) {
            ("not", entry) => vec![NodeMembers::read(entry, inner, depth + 1)?],
            (_, Tree::List(entries)) if entries.is_empty() => return error(inner, "expected at least one filter"),
            (_, Tree::List(entries)) => {
                let entries = entries.iter().enumerate();
                entries
                    .map(|(at, entry)| NodeMembers::read(entry, FilterPlace::Element(&inner, at), depth + 1))
                    .collect::<Result<_>>()?
            }
            (_, other) => return error(inner, format!("expected a list, not {}", other.json_type())),
        };
        Ok(NodeMembers::Group(group, entries))
    }

    /// How many filters there are.
    pub(super) fn count(&self) -> usize {
        match self {
            NodeMembers::Filter(_) => 1,
            NodeMembers::Group(_, entries) => entries.iter().map(NodeMembers::count).sum(),
        }
    }

    /// Count the alternatives.
    pub(super) fn measure(&self, place: FilterPlace<'_>, size: &mut Size, limits: &Limits) -> Result<()> {
        match self {
            NodeMembers::Filter(filter) => filter.measure(place, size, limits),
            NodeMembers::Group(group, entries) => {
                each(group, entries, place, |entry, place| entry.measure(place, size, limits)).collect()
            }
        }
    }

    pub(super) fn parse(&self, place: FilterPlace<'_>, limits: &Limits) -> Result<FilterNode> {
        Ok(match self {
            NodeMembers::Filter(filter) => FilterNode::Filter(filter.parse(place, limits)?),
            NodeMembers::Group(group, entries) => {
                let parsed = each(group, entries, place, |entry, place| entry.parse(place, limits));
                let mut parsed = parsed.collect::<Result<Vec<_>>>()?;
                match (*group, parsed.pop()) {
                    ("not", Some(one)) => FilterNode::Not(one.into()),
                    (group, last) => {
                        parsed.extend(last);
                        if group == "any" { FilterNode::Any(parsed.into()) } else { FilterNode::All(parsed.into()) }
                    }
                }
            }
        })
    }
}

/// The result of *act* for each entry of a group and its place.
fn each<'n, 't, T>(
    group: &'n str,
    entries: &'n [NodeMembers<'t>],
    place: FilterPlace<'n>,
    mut act: impl FnMut(&'n NodeMembers<'t>, FilterPlace<'_>) -> T,
) -> impl Iterator<Item = T> {
    entries.iter().enumerate().map(move |(at, entry)| {
        let inner = FilterPlace::Member(&place, group);
        act(entry, if group == "not" { inner } else { FilterPlace::Element(&inner, at) })
    })
}

impl FilterNode {
    /// Whether one of its filters compares the document with the one before.
    #[must_use]
    pub fn mentions_before(&self) -> bool {
        match self {
            FilterNode::Filter(filter) => filter.op.mentions_before(),
            FilterNode::Any(nodes) | FilterNode::All(nodes) => nodes.iter().any(FilterNode::mentions_before),
            FilterNode::Not(node) => node.mentions_before(),
        }
    }

    /// The events for which it is *wanted*.
    fn set(&self, wanted: bool, work: &mut Work) -> EventSet {
        if work.is_spent() {
            return EventSet::within(Vec::new());
        }
        let set = match self {
            FilterNode::Filter(filter) if wanted => EventSet::of(vec![(filter.op.row().clauses)(filter)]),
            FilterNode::Filter(filter) => fails(filter),
            FilterNode::Not(node) => node.set(!wanted, work),
            FilterNode::Any(nodes) => joined(work, !wanted, nodes, |work, node| node.set(wanted, work)),
            FilterNode::All(nodes) => joined(work, wanted, nodes, |work, node| node.set(wanted, work)),
        };
        work.count(set)
    }
}

/// The events for which a filter is false: neither true nor an error.
fn fails(filter: &Filter) -> EventSet {
    let is = |op: Operator| EventSet::of(vec![(op.row().clauses)(filter)]);
    let at = |names: &[Box<str>], atoms| Clause { path: Path::new(filter.path.root, names), mode: Mode::Scalar, atoms };
    let names = &filter.path.names;
    match filter.op {
        Operator::Equal => is(Operator::NotEqual),
        Operator::NotEqual => is(Operator::Equal),
        Operator::Greater => is(Operator::LessOrEqual),
        Operator::GreaterOrEqual => is(Operator::Less),
        Operator::Less => is(Operator::GreaterOrEqual),
        Operator::LessOrEqual => is(Operator::Greater),
        Operator::In => is(Operator::NotIn),
        Operator::NotIn => is(Operator::In),
        Operator::StartsWith | Operator::EndsWith | Operator::Matches | Operator::Contains => {
            // Each atom has its own kinds: a list for an element, a text for all others.
            let is_not = |atom: Atom| Atom::Other { kinds: atom.kinds(), none_of: [atom].into() };
            let clauses = (filter.op.row().clauses)(filter);
            let atoms = clauses.into_iter().flat_map(|clause| clause.atoms).map(is_not).collect();
            EventSet::clause(at(names, atoms))
        }
        Operator::Exists if filter.value == Value::Scalar(Scalar::Bool(true)) => {
            let without = |length: usize| {
                let lacks = at(&names[..=length], vec![Atom::kind(Kind::Missing)]);
                vec![at(&names[..length], vec![Atom::kind(Kind::Map)]), lacks]
            };
            EventSet::of((0..names.len()).map(without).collect())
        }
        Operator::Exists => EventSet::clause(at(names, vec![Atom::Kinds(Kinds::PRESENT)])),
        // No clause expresses that two values are equal. These only name the values that it reads, for events with unknown ones.
        Operator::Changed => {
            let any_value = vec![Atom::Kinds(Kinds::READABLE.or(Kinds::MISSING))];
            let read = |root| Clause { path: Path::new(root, names), mode: Mode::Scalar, atoms: any_value.clone() };
            EventSet { is_exact: false, ..EventSet::of(vec![vec![read(Root::Data), read(Root::Before)]]) }
        }
        Operator::ChangedTo | Operator::ChangedFrom => {
            let (side, other) =
                if filter.op == Operator::ChangedTo { (Root::Data, Root::Before) } else { (Root::Before, Root::Data) };
            // The other side has the value, or this side has not.
            let mut was = became(filter, other, side);
            let is_not = was.split_off(1);
            EventSet::of(vec![was, is_not])
        }
    }
}

/// Add the clauses of its groups to the form of a subscription. Return whether they are all of them; if not, the groups
/// are evaluated on candidates.
pub fn and_groups(form: &mut NormalForm, subscription: &Subscription, limits: &Limits) -> bool {
    if subscription.groups.is_empty() {
        return true;
    }
    let mut work = Work::new((limits.max_conjunctions / form.conjunctions.len().max(1)).max(1));
    let mut all = joined(&mut work, true, &subscription.groups, |work, node| node.set(true, work));
    // Conjunctions that cannot be true stay, as those of filters do.
    all.any_of.iter_mut().for_each(|clauses| _ = simplify(clauses));
    lower::join(form, &all.any_of, all.unknowns);
    all.is_exact
}
