//! The form of every condition: an OR of conjunctions of clauses, each about one path.
//!
//! ```text
//!  subscription ─► NormalForm ─┬─ conjunctions: [ clause(path, mode, atoms) AND clause AND .. ]  OR  [ .. ]
//!                              └─ verify: conditions beyond clauses, checked on a candidate
//! ```
//!
//! Invariant: a subscription (without the rest of its `cel` part) wants an event without unknown values if and only if
//! one of the conjunctions is true and `verify` is absent or true. So the conjunctions by themselves never lose a
//! match: an index may use them.
//!
//! A clause is an OR of atoms about one path in one [`Mode`]. After an error of CEL (a missing field, an ordering
//! between types that have none) every atom is false: `!=` is [`Atom::Other`], which names the kinds of value that it
//! is about.
//!
//! Rejected: atoms as a tree with NOT. `!(a < 5)` is not `a >= 5` if `a` is missing or a string, so each negation would
//! carry a condition on the kind of value anyway; here it is written down.

use std::fmt;
use std::sync::Arc;

use super::topics::TopicPattern;
use crate::cel::Times;
use crate::regexps::Regexp;
use crate::value::{Kind, Kinds, Number, Scalar, Value, within};

/// The start of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Root {
    /// The original event, as patterns see it.
    Raw,
    /// The document, found through the layout, as filters see it.
    Data,
    /// The document before the change.
    Before,
    /// The event's type, a string part; here and in the parts below, the path has no names.
    Type,
    /// The routing key.
    Topic,
    /// The collection.
    Collection,
    /// The tenant.
    Tenant,
    /// The record without its documents, found through the layout.
    Envelope,
}

impl Root {
    /// All, in the order in which images number them.
    pub(crate) const ALL: [Root; 8] =
        [Root::Raw, Root::Data, Root::Before, Root::Type, Root::Topic, Root::Collection, Root::Tenant, Root::Envelope];
}

/// Member names from a root. Paths have no array indexes.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Path {
    /// The part of the event at which it begins.
    pub root: Root,
    /// The names, outermost first.
    pub names: Box<[Box<str>]>,
}

impl Path {
    /// A path of *names* from *root*.
    pub fn new<S: AsRef<str>>(root: Root, names: impl IntoIterator<Item = S>) -> Path {
        Path { root, names: names.into_iter().map(|name| name.as_ref().into()).collect() }
    }

    /// The path of an event's part, such as [`Root::Type`].
    pub fn part(root: Root) -> Path {
        Path { root, names: Box::default() }
    }
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.root)?;
        self.names.iter().try_for_each(|name| write!(f, "/{name}"))
    }
}

/// The part of a path's values that a clause is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mode {
    /// The one value at the path as CEL sees it: every step is a member of an object; a list is a list. Below a number beyond
    /// float64 no clause is true, not even one of [`Kind::Missing`].
    Scalar,
    /// Any leaf at the path as patterns see it: a pattern goes through arrays along the path and at its end, and
    /// objects and empty arrays have no leaf. A clause is true if an atom is true for some leaf; [`Kind::Missing`]
    /// stands for the absence of leaves.
    AnyLeaf,
    /// Any element of the list at the path, as `contains` and an index by number see it. A value that is not a list has
    /// no elements.
    Element,
    /// Any value that CEL's `in` and its macros iterate over: the elements of the list at the path, or the names of the
    /// object there.
    Member,
    /// `true` if the document and the one before differ at the path, which begins at [`Root::Data`]. They differ if one
    /// side lacks the value, or if both can be compared and are unequal by [`Value::equals`], unless one of them is below a
    /// number beyond float64. There is one value, or none.
    Changed,
}

impl Mode {
    /// All, in the order in which images number them.
    pub(crate) const ALL: [Mode; 5] = [Mode::Scalar, Mode::AnyLeaf, Mode::Element, Mode::Member, Mode::Changed];
}

/// One OR of atoms about one path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Clause {
    /// Which path.
    pub path: Path,
    /// The part of its values.
    pub mode: Mode,
    /// The alternatives; without any the clause is never true.
    pub atoms: Vec<Atom>,
}

impl Clause {
    /// The document and the one before differ at *path*.
    pub fn changed(path: Path) -> Clause {
        Clause { path, mode: Mode::Changed, atoms: vec![Atom::Equal(Scalar::Bool(true))] }
    }
}

/// One AND of clauses; without any it is always true.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Conjunction {
    /// All of these must be true.
    pub clauses: Vec<Clause>,
}

/// See the head of this file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NormalForm {
    /// The alternatives; none: the subscription never matches.
    pub conjunctions: Vec<Conjunction>,
    /// The further conditions on a candidate. Share it, it may be large.
    pub verify: Option<Arc<Verify>>,
    /// What the conjunctions tell of an event with unknown values.
    pub unknowns: Unknowns,
}

/// What clauses tell of an event with unknown values. A clause is false for certain if it is false for all of them, and not by
/// an error. What tells less comes later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Unknowns {
    /// A condition is unknown only if it has a conjunction with a clause about an unknown value, of which none is false for
    /// certain.
    #[default]
    InClauses,
    /// It may also read unknown values that no clause is about. If each conjunction has a clause that is false for certain, the
    /// condition is false.
    Anywhere,
    /// Nothing: it may be unknown whatever its clauses are.
    Hidden,
}

/// A condition on one value. Every atom but [`Atom::Kinds`] with [`Kind::Missing`] is false without a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Atom {
    /// The value is this scalar.
    Equal(Scalar),
    /// The value is this list or object, deeply and by value: [`Value::equals`]. If that is an error, neither this nor
    /// an [`Atom::Other`] of this is true.
    EqualTree(Arc<Value>),
    /// A number within bounds.
    Numbers(Range<Number>),
    /// A string within bounds, in order of code points.
    Strings(Range<Box<str>>),
    /// The value as CEL's `timestamp(x)` or `duration(x)` is within bounds, in nanoseconds; false if CEL refuses it.
    Times(Times, Range<Number>),
    /// The size of a string in characters, of a list in elements, or of an object in members: both bounds inclusive.
    Size(u32, u32),
    /// A string that begins so; not empty in patterns.
    Prefix(Box<str>),
    /// A string that ends so.
    Suffix(Box<str>),
    /// A string that contains this one.
    Substring(Box<str>),
    /// A string whose simple case folding begins so; the operand is folded.
    PrefixIgnoreCase(Box<str>),
    /// A string whose simple case folding ends so; the operand is folded.
    SuffixIgnoreCase(Box<str>),
    /// A string whose simple case folding is this; the operand is folded.
    EqualIgnoreCase(Box<str>),
    /// A string whose simple case folding contains this; the operand is folded, and not empty.
    SubstringIgnoreCase(Box<str>),
    /// A string made of these pieces in order with anything between: `a*b` is `["a", "b"]`, `*` is `["", ""]`. At least two.
    Wildcard(Box<[Box<str>]>),
    /// A string that the regular expression matches. The expression itself is anchored if it must match the whole.
    Regexp(Regexp),
    /// A string that is an address in the net.
    Cidr(Cidr),
    /// A list that has an element equal to this, deeply and by value.
    Element(Arc<Value>),
    /// A list that has a string whose simple case folding is this; the operand is folded.
    ElementIgnoreCase(Box<str>),
    /// The kind of the value is one of these; `Kinds::MISSING` is 'absent', `Kinds::PRESENT` is 'exists'.
    Kinds(Kinds),
    /// A value of one of *kinds* for which each of *none_of* is false: `!=`, `not in`, `anything-but`.
    Other {
        /// The value is of these kinds; never [`Kind::Missing`].
        kinds: Kinds,
        /// These atoms must be false.
        none_of: Box<[Atom]>,
    },
    /// The topic matches a pattern, which has a wildcard. Only at [`Root::Topic`].
    Topic(TopicPattern),
}

/// Bounds on a value; none of both: any value of the type.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Range<T> {
    /// The lower bound and whether it is inclusive.
    pub low: Option<(T, bool)>,
    /// The upper bound and whether it is inclusive.
    pub high: Option<(T, bool)>,
}

impl<T: Ord> Range<T> {
    /// Whether *value* lies within the bounds.
    pub fn contains<Q: Ord + ?Sized>(&self, value: &Q) -> bool
    where
        T: std::borrow::Borrow<Q>,
    {
        let low = self.low.as_ref().map(|(bound, inclusive)| (bound.borrow(), *inclusive));
        let high = self.high.as_ref().map(|(bound, inclusive)| (bound.borrow(), *inclusive));
        crate::value::within(value, low, high)
    }
}

/// A net of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cidr {
    /// IPv4: the net's bits, host bits zero, and how many of them count.
    V4(u32, u8),
    /// IPv6: the net's bits, host bits zero, and how many of them count.
    V6(u128, u8),
}

/// The checks on a candidate: all must pass.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Verify {
    /// The paths that the checks below name by their index.
    pub paths: Box<[(Path, Mode)]>,
    /// `before` and `data` at these paths differ: present on one side only, or unequal by [`Value::equals`].
    pub changed: Box<[(u32, u32)]>,
    /// The values at these paths compare so.
    pub compared: Box<[(u32, Relation, u32)]>,
    /// A pattern whose leaves must be consistent: one choice of elements for all of its fields.
    pub pattern: Option<PatternTree>,
    /// Whether the conjunctions leave more of the pattern open than that: there were too many alternatives.
    pub is_cut: bool,
}

/// How two values of an event compare, as in CEL. If one is missing or beyond float64, or for an ordering of different
/// types or of a type without order, no relation is true.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Relation {
    /// `==`, deeply and by value.
    Equal,
    /// `<`.
    Less,
    /// `<=`.
    LessOrEqual,
}

impl Relation {
    /// All, in the order in which images number them.
    pub(crate) const ALL: [Relation; 3] = [Relation::Equal, Relation::Less, Relation::LessOrEqual];
}

/// A pattern with its paths by index into [`Verify::paths`]: all fields, and of each OR one alternative.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PatternTree {
    /// The fields, each a path and its matchers: one of them must be true for its leaf.
    pub fields: Box<[(u32, Box<[Atom]>)]>,
    /// The `$or`s next to them.
    pub any_of: Box<[Box<[PatternTree]>]>,
}

impl Atom {
    /// The atom for values that equal *value*.
    pub fn equal(value: &Value) -> Atom {
        match value {
            Value::Scalar(scalar) => Atom::Equal(scalar.clone()),
            value => Atom::EqualTree(Arc::new(value.clone())),
        }
    }

    /// The values of the bound's own type above *low* or below *high*, each with whether the bound is inclusive.
    pub fn ordered(bound: &Value, low: Option<bool>, high: Option<bool>) -> Vec<Atom> {
        match bound {
            Value::Scalar(Scalar::Number(number)) => {
                let at = |closed| (*number, closed);
                vec![Atom::Numbers(Range { low: low.map(at), high: high.map(at) })]
            }
            Value::Scalar(Scalar::String(text)) => {
                let at = |closed| (text.clone(), closed);
                vec![Atom::Strings(Range { low: low.map(at), high: high.map(at) })]
            }
            Value::Scalar(Scalar::Bool(bound)) => [false, true]
                .into_iter()
                .filter(|value| within(value, low.map(|closed| (bound, closed)), high.map(|closed| (bound, closed))))
                .map(|value| Atom::Equal(Scalar::Bool(value)))
                .collect(),
            _ => Vec::new(),
        }
    }

    /// The atom for any value of one of *kinds*.
    pub fn kind(kind: Kind) -> Atom {
        Atom::Kinds(Kinds::of(kind))
    }

    /// The kinds of value for which the atom can be true.
    pub fn kinds(&self) -> Kinds {
        match self {
            Atom::Equal(scalar) => Kinds::of(scalar.kind()),
            Atom::EqualTree(value) => Kinds::of(value.kind()),
            Atom::Numbers(_) => Kinds::of(Kind::Number),
            Atom::Times(Times::Timestamps, _) => Kinds::of(Kind::Number).or(Kinds::of(Kind::String)),
            Atom::Size(..) => Kinds::of(Kind::String).or(Kinds::of(Kind::List)).or(Kinds::of(Kind::Map)),
            Atom::Element(_) | Atom::ElementIgnoreCase(_) => Kinds::of(Kind::List),
            Atom::Kinds(kinds) | Atom::Other { kinds, .. } => *kinds,
            _ => Kinds::of(Kind::String),
        }
    }
}
