//! A pattern on an event with unknown values: true, false or unknown (semantics.md sections 5 and 8).
//!
//! Leaves are kept in *scopes*: the root is one, each element of each array is one, and a leaf lies in the scope of the
//! innermost element around it. An unknown value is a leaf of unknown value, at each path at, above or below it, in the
//! scope that is known up to there. Being monotone, a pattern is true if the known leaves satisfy it; else unknown if
//! known and unknown leaves together do; else false.
//!
//! Invariant: within a scope all leaves at one path lie either in the scope itself or all in one array of it. So the fields
//! that a choice of elements can satisfy are found as in `scopes.rs`, once for the known leaves and once with the others.
//!
//! Cost: one visit to each value at or below a path of the pattern, then the choice, under the budget of `scopes.rs`.

use super::tree::UnknownTree;
use crate::automaton::cidr::{net_holds, parse_address};
use crate::automaton::folding::fold;
use crate::automaton::wildcards::wildcard_matches;
use crate::cel::Verdict;
use crate::engine::verify::encoded::FastHash;
use crate::engine::verify::scopes::{Fields, Scopes, Spent};
use crate::engine::verify::verification_table::VerifiedTree;
use crate::regexps::CompiledRegexp;
use crate::subscriptions::normal_form::Atom;
use crate::subscriptions::patterns::{AllOf, Field};
use crate::value::{Kind, Kinds, Scalar, Value};
use crate::watch::spend;
use std::collections::{BTreeMap, HashMap, HashSet};

/// A name in the trie of a pattern's paths.
#[derive(Debug, Default)]
struct NameNode<'p> {
    children: BTreeMap<&'p str, usize>,
    /// Fields whose path ends here.
    ends: Fields,
    /// These fields, and those further down.
    through: Fields,
    /// The alternatives of each of those fields.
    matchers: Vec<(u32, Alternatives<'p>)>,
}

/// The alternatives at the path of a field. Equalities are looked up, also those that are excluded: a field may have
/// many, and its path many leaves.
#[derive(Debug, Default)]
struct Alternatives<'p> {
    equal: HashSet<&'p Scalar, FastHash>,
    excluding: Vec<(Kinds, Alternatives<'p>)>,
    others: Vec<&'p Atom>,
}

impl<'p> Alternatives<'p> {
    fn new(atoms: &'p [Atom]) -> Alternatives<'p> {
        let mut all = Alternatives::default();
        for atom in atoms {
            match atom {
                Atom::Equal(scalar) => _ = all.equal.insert(scalar),
                // Recursive, but only one level: `none_of` has only plain atoms.
                Atom::Other { kinds, none_of } => all.excluding.push((*kinds, Alternatives::new(none_of))),
                atom => all.others.push(atom),
            }
        }
        all
    }

    fn any_holds(&self, leaf: &Value) -> bool {
        matches!(leaf, Value::Scalar(scalar) if self.equal.contains(scalar))
            || self.excluding.iter().any(|(kinds, none_of)| kinds.has(leaf.kind()) && !none_of.any_holds(leaf))
            || self.others.iter().any(|atom| leaf_holds(atom, leaf))
    }
}

/// Data derived from a pattern.
#[derive(Debug, Default)]
struct Plan<'p> {
    nodes: Vec<NameNode<'p>>,
    count: u32,
    /// Fields that are also true without a leaf.
    absent: Fields,
    /// Fields without matchers, which are false for every leaf, known or unknown.
    never: Fields,
}

impl<'p> Plan<'p> {
    fn new(pattern: &'p AllOf) -> (Plan<'p>, VerifiedTree) {
        let mut plan = Plan { nodes: vec![NameNode::default()], ..Plan::default() };
        let tree = plan.number(pattern);
        (plan, tree)
    }

    /// Recursive over `$or`, which nests to a bounded depth.
    fn number(&mut self, pattern: &'p AllOf) -> VerifiedTree {
        let start = self.count;
        pattern.fields.iter().for_each(|field| self.field(field));
        let fields = start..self.count;
        let any_of =
            pattern.any_of.iter().map(|alternatives| alternatives.iter().map(|one| self.number(one)).collect()).collect();
        VerifiedTree { fields, any_of }
    }

    fn field(&mut self, field: &'p Field) {
        let number = self.count;
        self.count += 1;
        if field.atoms.iter().any(|atom| matches!(atom, Atom::Kinds(kinds) if kinds.has(Kind::Missing))) {
            self.absent.insert(number);
        }
        if field.atoms.is_empty() {
            self.never.insert(number);
        }
        let mut at = 0;
        self.nodes[at].through.insert(number);
        for name in &field.path {
            let new = self.nodes.len();
            let next = *self.nodes[at].children.entry(name).or_insert(new);
            if next == new {
                self.nodes.push(NameNode::default());
            }
            at = next;
            self.nodes[at].through.insert(number);
        }
        self.nodes[at].ends.insert(number);
        self.nodes[at].matchers.push((number, Alternatives::new(&field.atoms)));
    }
}

/// An element of an array: identified by its index, by its token in a pointer to an unknown value, or by the fields
/// that it satisfies, as scalars that satisfy the same share a scope.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum PatternElement {
    Index(usize),
    Token(Box<str>),
    Satisfies(Fields),
}

/// An event as one pattern sees it.
struct View<'v> {
    plan: &'v Plan<'v>,
    pointers: &'v UnknownTree,
    scopes: Scopes,
    elements: HashMap<(usize, u32, PatternElement), usize>,
    arrays: u32,
    /// Fields at whose path there is a known leaf, or an unknown one.
    known: Fields,
    unknown: Fields,
}

/// The verdict of a pattern.
pub(super) fn pattern(pattern: &AllOf, raw: &Value, unknown: &UnknownTree) -> Result<Verdict, Spent> {
    let (plan, tree) = Plan::new(pattern);
    let mut view = View {
        plan: &plan,
        pointers: unknown,
        scopes: Scopes::new(),
        elements: HashMap::new(),
        arrays: 0,
        known: Fields::default(),
        unknown: Fields::default(),
    };
    view.read(raw);
    view.verdict(&tree)
}

impl<'v> View<'v> {
    fn read(&mut self, raw: &Value) {
        let plan = self.plan;
        let mut pending: Vec<(&Value, usize, usize, Option<u32>)> = vec![(raw, 0, 0, self.pointers.root())];
        while let Some((value, at, scope, unknown)) = pending.pop() {
            spend(1);
            let node = &plan.nodes[at];
            if unknown.is_some_and(|unknown| self.pointers.node(unknown).is_end) {
                self.mark_unknown(scope, &node.through);
                continue;
            }
            match value {
                Value::Map(_) => {
                    for (name, child) in &node.children {
                        let below = unknown.and_then(|unknown| self.pointers.step(unknown, name));
                        match (value.get(name), below) {
                            (Some(member), _) => pending.push((member, *child, scope, below)),
                            (None, Some(below)) => self.read_unknown(below, *child, scope),
                            (None, None) => {}
                        }
                    }
                    if unknown.is_some() {
                        self.mark_unknown(scope, &node.ends);
                    }
                }
                Value::List(elements) => {
                    let array = self.arrays;
                    self.arrays += 1;
                    spend(elements.len());
                    for (index, element) in elements.iter().enumerate() {
                        let below = unknown.and_then(|unknown| self.pointers.step(unknown, &index.to_string()));
                        match element {
                            Value::Scalar(_) | Value::BeyondFloat(_) if below.is_none() => {
                                self.add_scalar(element, at, scope, array);
                            }
                            _ => {
                                let inner = self.enter(scope, array, PatternElement::Index(index));
                                pending.push((element, at, inner, below));
                            }
                        }
                    }
                    // An element is found by its index as a pointer spells it: "01" is none.
                    let names = unknown.map(|unknown| &self.pointers.node(unknown).below);
                    spend(names.map_or(0, HashMap::len));
                    let beyond = names.into_iter().flatten().filter(|(token, _)| {
                        !token.parse::<usize>().is_ok_and(|index| index < elements.len() && index.to_string() == ***token)
                    });
                    let beyond: Vec<(Box<str>, u32)> = beyond.map(|(token, below)| (token.clone(), *below)).collect();
                    for (token, below) in beyond {
                        let inner = self.enter(scope, array, PatternElement::Token(token));
                        self.read_unknown(below, at, inner);
                    }
                }
                scalar => {
                    if let Some(unknown) = unknown {
                        self.read_unknown(unknown, at, scope);
                    }
                    if !node.ends.is_empty() {
                        let satisfied = self.satisfied(scalar, at);
                        self.known.join(&node.ends);
                        self.scopes.add(scope, &satisfied);
                    }
                }
            }
        }
    }

    /// The fields that end at a node and that a leaf of this value satisfies.
    fn satisfied(&self, value: &Value, at: usize) -> Fields {
        let mut fields = Fields::default();
        let matchers = &self.plan.nodes[at].matchers;
        matchers.iter().filter(|(_, matcher)| matcher.any_holds(value)).for_each(|(field, _)| fields.insert(*field));
        fields
    }

    fn add_scalar(&mut self, value: &Value, at: usize, scope: usize, array: u32) {
        let node = &self.plan.nodes[at];
        if node.ends.is_empty() {
            return;
        }
        self.known.join(&node.ends);
        let satisfied = self.satisfied(value, at);
        if !satisfied.is_empty() {
            let inner = self.enter(scope, array, PatternElement::Satisfies(satisfied.clone()));
            self.scopes.add(inner, &satisfied);
        }
    }

    /// Add an unknown value at a place that the event lacks, so that a number may be a name or an index.
    fn read_unknown(&mut self, unknown: u32, at: usize, scope: usize) {
        let plan = self.plan;
        let mut pending = vec![(unknown, at)];
        let mut seen = HashSet::new();
        while let Some((unknown, at)) = pending.pop() {
            if !seen.insert((unknown, at)) {
                continue;
            }
            let (node, tokens) = (&plan.nodes[at], self.pointers.node(unknown));
            spend(tokens.below.len() / 8 + 1);
            let hidden = if tokens.is_end { &node.through } else { &node.ends };
            self.mark_unknown(scope, hidden);
            for (token, beyond) in &tokens.below {
                if let Some(child) = node.children.get(&**token) {
                    pending.push((*beyond, *child));
                }
                if !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_digit()) {
                    pending.push((*beyond, at));
                }
            }
        }
    }

    fn mark_unknown(&mut self, scope: usize, fields: &Fields) {
        self.unknown.join(fields);
        let mut may_hold = fields.clone();
        may_hold.remove(&self.plan.never);
        self.scopes.add_unknown(scope, &may_hold);
    }

    fn enter(&mut self, scope: usize, array: u32, element: PatternElement) -> usize {
        let scopes = &mut self.scopes;
        *self.elements.entry((scope, array, element)).or_insert_with(|| scopes.enter(scope, array))
    }

    fn verdict(&self, tree: &VerifiedTree) -> Result<Verdict, Spent> {
        let mut absent = self.plan.absent.clone();
        absent.remove(&self.known);
        let mut sure = absent.clone();
        sure.remove(&self.unknown);
        self.scopes.verdict(tree, &sure, &absent, !self.unknown.is_empty())
    }
}

/// Whether an atom that [`Alternatives`] does not look up is true for a leaf.
fn leaf_holds(atom: &Atom, leaf: &Value) -> bool {
    match atom {
        Atom::Numbers(range) => matches!(leaf, Value::Scalar(Scalar::Number(number)) if range.contains(number)),
        Atom::Kinds(kinds) => kinds.has(leaf.kind()),
        atom => leaf.as_str().is_some_and(|text| text_holds(atom, text)),
    }
}

fn text_holds(atom: &Atom, text: &str) -> bool {
    match atom {
        Atom::Prefix(operand) => text.starts_with(&**operand),
        Atom::Suffix(operand) => text.ends_with(&**operand),
        Atom::PrefixIgnoreCase(operand) => fold(text).starts_with(&**operand),
        Atom::SuffixIgnoreCase(operand) => fold(text).ends_with(&**operand),
        Atom::EqualIgnoreCase(operand) => fold(text) == **operand,
        Atom::Wildcard(pieces) => wildcard_matches(pieces.iter().map(|piece| &**piece), text),
        Atom::Regexp(regexp) => CompiledRegexp::compile(regexp).is_ok_and(|program| program.search(text)),
        Atom::Cidr(net) => parse_address(text).is_some_and(|address| net_holds(*net, address)),
        _ => false,
    }
}
