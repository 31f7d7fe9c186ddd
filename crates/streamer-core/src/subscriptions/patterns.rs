//! Patterns, in the dialects of Quamina (`strict`) and EventBridge (semantics.md section 5).
//!
//! ```text
//!  {"data": {"tags": [{"prefix": "vip"}, "staff"]},        AllOf
//!   "$or": [{"type": ["insert"]},                           ├─ field data/tags   Prefix "vip" | Equal "staff"
//!           {"type": ["update"], "before": {..}}]}          └─ any of ─┬─ AllOf ── field type   Equal "insert"
//!                                                                      └─ AllOf ── ...
//! ```
//!
//! Objects of the pattern dissolve into paths from the root of the event. This module does not recurse over a user's
//! text, except over `$or`, which nests at most [`MAX_OR_DEPTH`] levels.
//!
//! The cost of a pattern, in *states*, is bounded by `limits.max_pattern_states`; it is counted as the Python package counts
//! it. Paths and places are linked from their ends and spelled out only once paid for, so that a million members below a deep
//! path share it.

use super::dialect::{Dialect, Rules};
use super::normal_form::{Atom, Range};
use super::wording::{is_identifier, quote};
use crate::automaton::cidr::parse_network;
use crate::automaton::folding::fold;
use crate::error::SubscriptionError;
use crate::json::{self, ParseOptions, Tree};
use crate::limits::{Limits, Size};
use crate::regexps::{i_regexp, too_large};
use crate::value::{Kinds, Number, Scalar};

/// `$or` nests at most so deep.
pub const MAX_OR_DEPTH: usize = 64;

/// A path, and the atoms of which one must be true for a leaf there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Field {
    /// Names from the root of the event.
    pub path: Box<[Box<str>]>,
    /// The alternatives; without any it never matches.
    pub atoms: Box<[Atom]>,
}

/// Conditions that must all be true, under one choice of array elements.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct AllOf {
    /// The fields named.
    pub fields: Vec<Field>,
    /// The `$or`s next to them, each with at least two alternatives.
    pub any_of: Vec<Vec<AllOf>>,
}

/// A pattern that can be accepted.
pub type Pattern = AllOf;

type Result<T> = std::result::Result<T, SubscriptionError>;

/// Read a pattern: an object, or a string that contains its JSON text.
///
/// *place* is the place of the pattern, a prefix of the paths in errors.
///
/// # Errors
///
/// With the path in the pattern, as `pattern.data.tags[0].prefix`.
pub fn parse(tree: &Tree, dialect: Dialect, limits: &Limits, place: &str) -> Result<Pattern> {
    parse_part(tree, dialect, limits, place, Size::default())
}

/// Read the pattern of a subscription, whose other parts are of this *size*.
pub(super) fn parse_part(tree: &Tree, dialect: Dialect, limits: &Limits, place: &str, size: Size) -> Result<Pattern> {
    let read;
    let tree = match tree {
        Tree::Scalar(Scalar::String(text)) => {
            read = read_text(text.as_bytes(), limits, place)?;
            &read
        }
        tree => tree,
    };
    PatternParser { size, ..PatternParser::new(dialect, limits, place) }.parse(tree)
}

/// Read the JSON text of a pattern.
///
/// # Errors
///
/// As [`parse`].
pub fn parse_text(text: &[u8], dialect: Dialect, limits: &Limits, place: &str) -> Result<Pattern> {
    PatternParser::new(dialect, limits, place).parse(&read_text(text, limits, place)?)
}

fn read_text(text: &[u8], limits: &Limits, place: &str) -> Result<Tree> {
    let options = ParseOptions { max_depth: limits.max_depth, max_bytes: limits.max_event_bytes };
    json::parse(text, options).map_err(|error| {
        let offset = error.offset.map(|offset| format!(" at byte {offset}")).unwrap_or_default();
        SubscriptionError::pattern(place, format!("{}{offset}: {}", error.code.as_str(), error.reason))
    })
}

/// Event Ruler's reserved words and the operators that it does not have: with one of them as a name, an object in `$or` is a
/// matcher and no alternative.
const OPERATOR_NAMES: [&str; 24] = [
    "exactly",
    "equals-ignore-case",
    "prefix",
    "suffix",
    "anything-but",
    "exists",
    "wildcard",
    "numeric",
    "cidr",
    "=",
    "<",
    "<=",
    ">",
    ">=",
    "regex",
    "not-wildcard",
    "not-equals-ignore-case",
    "date-after",
    "date-on-or-after",
    "date-before",
    "date-on-or-before",
    "in-date-range",
    "ip-address-in-range",
    "ip-address-not-in-range",
];
/// The operators of every dialect, then those that Quamina lacks.
const OPERATORS: [&str; 12] = [
    "prefix",
    "suffix",
    "equals-ignore-case",
    "wildcard",
    "shellstyle",
    "regexp",
    "numeric",
    "cidr",
    "exists",
    "anything-but",
    "exactly",
    "all",
];
/// The operators that `all` accepts: those before it.
const JOINABLE: usize = OPERATORS.len() - 1;
const EXCLUDABLE: [&str; 4] = ["prefix", "suffix", "equals-ignore-case", "wildcard"];

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
enum PatternStep<'t> {
    Name(&'t str),
    Index(usize),
}

#[derive(Clone, Copy)]
struct PathNode<'t> {
    outer: u32,
    name: &'t str,
    length: usize,
}

/// An AllOf while it is read.
#[derive(Default)]
struct OpenBranch {
    depth: usize,
    fields: Vec<Field>,
    any_of: Vec<Vec<usize>>,
    /// Fields and ORs in the order of the text, true for a field: the disjunctive form is counted in it.
    order: Vec<bool>,
}

/// A member that is still to be read.
#[derive(Clone, Copy)]
struct Task<'t> {
    value: &'t Tree,
    path: u32,
    place: u32,
    branch: usize,
    depth: usize,
}

struct PatternParser<'t> {
    rules: &'static Rules,
    limits: &'t Limits,
    base: &'t str,
    states: usize,
    size: Size,
    paths: Vec<PathNode<'t>>,
    places: Vec<(u32, PatternStep<'t>)>,
    branches: Vec<OpenBranch>,
}

impl<'t> PatternParser<'t> {
    fn new(dialect: Dialect, limits: &'t Limits, base: &'t str) -> PatternParser<'t> {
        let size = Size::default();
        PatternParser {
            rules: dialect.rules(),
            limits,
            base,
            states: 0,
            size,
            paths: Vec::new(),
            places: Vec::new(),
            branches: vec![OpenBranch::default()],
        }
    }

    fn parse(mut self, source: &'t Tree) -> Result<Pattern> {
        let mut tasks = Vec::new();
        self.members(Task { value: source, path: NONE, place: NONE, branch: 0, depth: 1 }, &mut tasks)?;
        tasks.reverse(); // so that members are read in the order of the text and the first error is reported
        while let Some(task) = tasks.pop() {
            let waiting = tasks.len();
            match task.value {
                Tree::List(values) => {
                    if !self.alternatives(task, values, &mut tasks)? {
                        self.fields(task, values)?;
                    }
                }
                Tree::Object(_) => self.members(task, &mut tasks)?,
                other => return self.fail(task.place, format!("expected an array of values or an object, not {}", kind(other))),
            }
            tasks[waiting..].reverse();
        }
        let (_, fields) = self.disjunctive_form(0);
        self.spend(fields, NONE)?;
        Ok(self.freeze(0))
    }

    /// How many conjunctions a branch has when distributed, and how many fields in all of them together. Recursive over `$or`.
    fn disjunctive_form(&self, branch: usize) -> (usize, usize) {
        let branch = &self.branches[branch];
        let (mut conjunctions, mut fields) = (1_usize, 0_usize);
        let mut any_of = branch.any_of.iter();
        for is_field in &branch.order {
            if *is_field {
                fields = fields.saturating_add(conjunctions);
                continue;
            }
            let forms = any_of.next().into_iter().flatten().map(|branch| self.disjunctive_form(*branch));
            let (inner, inner_fields) =
                forms.fold((0_usize, 0_usize), |sum, form| (sum.0.saturating_add(form.0), sum.1.saturating_add(form.1)));
            fields = fields.saturating_mul(inner).saturating_add(conjunctions.saturating_mul(inner_fields));
            conjunctions = conjunctions.saturating_mul(inner);
        }
        (conjunctions, fields)
    }

    fn freeze(&mut self, branch: usize) -> AllOf {
        let OpenBranch { fields, any_of, .. } = std::mem::take(&mut self.branches[branch]);
        let any_of = any_of.into_iter().map(|branches| branches.into_iter().map(|branch| self.freeze(branch)).collect());
        AllOf { fields, any_of: any_of.collect() }
    }

    /// Check an object that names fields, and add the conditions of its members.
    fn members(&mut self, task: Task<'t>, tasks: &mut Vec<Task<'t>>) -> Result<()> {
        let Tree::Object(members) = task.value else {
            return self.fail(task.place, format!("a pattern is a JSON object, not {}", kind(task.value)));
        };
        if task.depth > self.limits.max_depth {
            return self.fail(task.place, format!("nested deeper than {} levels", self.limits.max_depth));
        }
        self.check_names(members, task.place)?;
        if members.is_empty() {
            return self.fail(task.place, "an object must not be empty");
        }
        let length = if task.path == NONE { 1 } else { self.paths[task.path as usize].length + 1 };
        for (name, value) in members {
            let path = self.paths.len() as u32;
            self.paths.push(PathNode { outer: task.path, name, length });
            let place = self.at(task.place, PatternStep::Name(name));
            tasks.push(Task { value, path, place, branch: task.branch, depth: task.depth + 1 });
        }
        Ok(())
    }

    fn check_names(&mut self, members: &'t [(Box<str>, Tree)], place: u32) -> Result<()> {
        let mut sorted: Vec<(&str, usize)> = members.iter().enumerate().map(|(at, (name, _))| (&**name, at)).collect();
        sorted.sort_unstable();
        let second = sorted.windows(2).filter(|pair| pair[0].0 == pair[1].0).map(|pair| pair[1].1).min();
        let Some(second) = second else { return Ok(()) };
        let name = &members[second].0;
        let place = self.at(place, PatternStep::Name(name));
        self.fail(place, format!("the name {} stands here twice", quote(name)))
    }

    /// Add the conditions of the alternatives of a `$or`; return false if the array belongs to an ordinary field.
    fn alternatives(&mut self, task: Task<'t>, values: &'t [Tree], tasks: &mut Vec<Task<'t>>) -> Result<bool> {
        let node = self.paths[task.path as usize];
        if node.name != "$or" || !self.rules.has_or {
            return Ok(false);
        }
        let objects = || values.iter().filter_map(|value| if let Tree::Object(members) = value { Some(members) } else { None });
        let is_operator = |name: &str| OPERATOR_NAMES.contains(&name) || name == "shellstyle" || name == "regexp";
        if objects().count() < 2 || objects().flatten().any(|(name, _)| is_operator(name)) {
            return Ok(false);
        }
        let depth = self.branches[task.branch].depth;
        if depth == MAX_OR_DEPTH {
            return self.fail(task.place, format!("$or nested deeper than {MAX_OR_DEPTH} levels"));
        }
        let mut branches = Vec::new();
        for (at, value) in values.iter().enumerate() {
            let place = self.at(task.place, PatternStep::Index(at));
            if !matches!(value, Tree::Object(_)) {
                return self.fail(place, format!("an alternative of $or is an object, not {}", kind(value)));
            }
            let branch = self.branches.len();
            self.branches.push(OpenBranch { depth: depth + 1, ..OpenBranch::default() });
            branches.push(branch);
            self.members(Task { value, path: node.outer, place, branch, depth: task.depth + 1 }, tasks)?;
        }
        self.branches[task.branch].any_of.push(branches);
        self.branches[task.branch].order.push(false);
        Ok(true)
    }

    /// Add the conditions of an array of values: a field, those of an `all`, or as many alternatives as there are of both.
    fn fields(&mut self, task: Task<'t>, values: &'t [Tree]) -> Result<()> {
        if values.is_empty() && !self.rules.may_be_empty {
            return self.fail(task.place, "an array of values must not be empty");
        }
        self.size.add_conditions(1, self.limits).or_else(|reason| self.fail(task.place, reason))?;
        self.size.add_alternatives(values.len(), self.limits).or_else(|reason| self.fail(task.place, reason))?;
        self.spend(self.paths[task.path as usize].length, task.place)?;
        let mut atoms = Vec::with_capacity(values.len());
        let mut joined: Vec<Vec<Box<[Atom]>>> = Vec::new();
        for (at, value) in values.iter().enumerate() {
            let place = self.at(task.place, PatternStep::Index(at));
            if let Tree::Object(_) = value {
                let (name, operand) = self.only_member(value, place)?;
                let place = self.at(place, PatternStep::Name(name));
                let known = &OPERATORS[..if self.rules.has_all { OPERATORS.len() } else { OPERATORS.len() - 2 }];
                if !known.contains(&name) {
                    let expected = || format!("expected one of {}", known.join(", "));
                    let is_near = name == "allOf" && self.rules.has_all;
                    let hint = if is_near { "did you mean all?".into() } else { expected() };
                    return self.fail(place, format!("unknown operator, {hint}"));
                }
                if name == "all" {
                    joined.push(self.all(operand, place, self.paths[task.path as usize].length)?);
                    continue;
                }
                if self.rules.exclusive.contains(&name) && values.len() > 1 {
                    return self.fail(place, format!("{name} must be the only element of its array"));
                }
                atoms.push(self.operator(name, operand, place)?);
            } else {
                self.spend(1, place)?;
                // A number beyond float64 does not equal any value.
                atoms.extend(self.scalar(value, place)?.map(Atom::Equal));
            }
        }
        let mut names = Vec::new();
        let mut at = task.path;
        while at != NONE {
            names.push(Box::from(self.paths[at as usize].name));
            at = self.paths[at as usize].outer;
        }
        names.reverse();
        if joined.is_empty() {
            let branch = &mut self.branches[task.branch];
            branch.fields.push(Field { path: names.into(), atoms: atoms.into() });
            branch.order.push(true);
            return Ok(());
        }
        if values.len() > joined.len() {
            joined.push(vec![atoms.into()]);
        }
        let field = |atoms| Field { path: names.clone().into(), atoms };
        let mut either = joined.into_iter().map(|parts| parts.into_iter().map(field).collect::<Vec<_>>());
        if either.len() == 1 {
            let branch = &mut self.branches[task.branch];
            for field in either.next().into_iter().flatten() {
                branch.fields.push(field);
                branch.order.push(true);
            }
            return Ok(());
        }
        let depth = self.branches[task.branch].depth + 1;
        let first = self.branches.len();
        self.branches.extend(either.map(|fields| OpenBranch {
            depth,
            order: vec![true; fields.len()],
            fields,
            ..OpenBranch::default()
        }));
        let branches = (first..self.branches.len()).collect();
        self.branches[task.branch].any_of.push(branches);
        self.branches[task.branch].order.push(false);
        Ok(())
    }

    /// The conditions of an `all`, each of which counts as one of a field of its own, on a path of *length* names.
    fn all(&mut self, operand: &'t Tree, place: u32, length: usize) -> Result<Vec<Box<[Atom]>>> {
        let Tree::List(values) = operand else {
            return self.fail(place, format!("expected an array of conditions, not {}", kind(operand)));
        };
        if values.is_empty() {
            return self.fail(place, "an array of conditions must not be empty");
        }
        self.size.add_conditions(values.len(), self.limits).or_else(|reason| self.fail(place, reason))?;
        self.size.add_alternatives(values.len(), self.limits).or_else(|reason| self.fail(place, reason))?;
        self.spend(length.saturating_mul(values.len()), place)?;
        let mut conditions = Vec::with_capacity(values.len());
        for (at, value) in values.iter().enumerate() {
            let place = self.at(place, PatternStep::Index(at));
            let Tree::Object(_) = value else {
                self.spend(1, place)?;
                conditions.push(self.scalar(value, place)?.map(Atom::Equal).into_iter().collect());
                continue;
            };
            let (name, operand) = self.only_member(value, place)?;
            let place = self.at(place, PatternStep::Name(name));
            let known = &OPERATORS[..JOINABLE];
            if !known.contains(&name) {
                return self.fail(place, format!("unknown operator, expected one of {}", known.join(", ")));
            }
            let atom = self.operator(name, operand, place)?;
            if atom == Atom::Kinds(Kinds::MISSING) {
                return self.fail(place, "all conditions are on one value; expected true");
            }
            conditions.push([atom].into());
        }
        Ok(conditions)
    }

    fn only_member(&mut self, value: &'t Tree, place: u32) -> Result<(&'t str, &'t Tree)> {
        let Tree::Object(members) = value else {
            return self.fail(place, "expected an object");
        };
        self.check_names(members, place)?;
        match &members[..] {
            [(name, operand)] => Ok((name, operand)),
            [] => self.fail(place, "an object must not be empty"),
            members => self.fail(place, format!("expected one operator, found {} members", members.len())),
        }
    }

    fn operator(&mut self, name: &str, operand: &'t Tree, place: u32) -> Result<Atom> {
        match name {
            "prefix" | "suffix" => self.affix(name, operand, place),
            "equals-ignore-case" => {
                self.spend(1, place)?;
                Ok(Atom::EqualIgnoreCase(fold(self.text(operand, place)?).into()))
            }
            "wildcard" => self.wildcard(operand, place),
            "shellstyle" => {
                let text = self.text(operand, place)?;
                if text.contains("**") {
                    return self.fail(place, "two stars in a row");
                }
                self.pieces(text.split('*').map(str::to_owned).collect(), place)
            }
            "regexp" => self.regexp(operand, place),
            "exactly" => {
                self.spend(1, place)?;
                Ok(Atom::Equal(Scalar::String(self.text(operand, place)?.into())))
            }
            "numeric" => self.numeric(operand, place),
            "cidr" => {
                self.spend(1, place)?;
                match parse_network(self.text(operand, place)?) {
                    Some(net) => Ok(Atom::Cidr(net)),
                    None => self.fail(place, "expected an IPv4 or IPv6 network, as 10.0.0.0/24"),
                }
            }
            "exists" => {
                self.spend(1, place)?;
                match operand {
                    Tree::Scalar(Scalar::Bool(true)) => Ok(Atom::Kinds(Kinds::LEAVES)),
                    Tree::Scalar(Scalar::Bool(false)) => Ok(Atom::Kinds(Kinds::MISSING)),
                    other => self.fail(place, format!("expected true or false, not {}", kind(other))),
                }
            }
            _ => self.anything_but(operand, place),
        }
    }

    fn affix(&mut self, name: &str, operand: &'t Tree, place: u32) -> Result<Atom> {
        self.spend(1, place)?;
        if !matches!(operand, Tree::Object(_)) {
            let text = self.text(operand, place)?;
            return Ok(match name {
                _ if text.is_empty() => any_text(),
                "prefix" => Atom::Prefix(text.into()),
                _ => Atom::Suffix(text.into()),
            });
        }
        let (inner, operand) = self.only_member(operand, place)?;
        let place = self.at(place, PatternStep::Name(inner));
        if inner != "equals-ignore-case" {
            return self.fail(place, "unknown operator, expected equals-ignore-case");
        }
        let text = fold(self.text(operand, place)?);
        Ok(match name {
            _ if text.is_empty() => any_text(),
            "prefix" => Atom::PrefixIgnoreCase(text.into()),
            _ => Atom::SuffixIgnoreCase(text.into()),
        })
    }

    fn wildcard(&mut self, operand: &'t Tree, place: u32) -> Result<Atom> {
        let mut pieces = vec![String::new()];
        let mut after_star = false;
        let mut letters = self.text(operand, place)?.chars();
        while let Some(letter) = letters.next() {
            let last = pieces.len() - 1;
            match letter {
                '*' if after_star => return self.fail(place, "two stars in a row"),
                '*' => pieces.push(String::new()),
                '\\' => match letters.next() {
                    Some(escaped @ ('*' | '\\')) => pieces[last].push(escaped),
                    _ => return self.fail(place, "a backslash must be followed by '*' or a backslash"),
                },
                letter => pieces[last].push(letter),
            }
            after_star = letter == '*';
        }
        self.pieces(pieces, place)
    }

    fn pieces(&mut self, pieces: Vec<String>, place: u32) -> Result<Atom> {
        self.spend(pieces.len(), place)?;
        Ok(match &pieces[..] {
            [whole] => Atom::Equal(Scalar::String(whole.as_str().into())),
            pieces => Atom::Wildcard(pieces.iter().map(|piece| piece.as_str().into()).collect()),
        })
    }

    fn regexp(&mut self, operand: &'t Tree, place: u32) -> Result<Atom> {
        let text = self.text(operand, place)?;
        match i_regexp::translate(text, self.rules.regexps) {
            Ok(regexp) => {
                let (size, most) = (regexp.size, self.limits.max_regexp_size);
                if size > most {
                    return self.fail(place, too_large(size, most));
                }
                self.spend(size, place)?;
                Ok(Atom::Regexp(regexp))
            }
            Err(reason) => self.fail(place, reason),
        }
    }

    fn numeric(&mut self, operand: &'t Tree, place: u32) -> Result<Atom> {
        self.spend(1, place)?;
        let Tree::List(items) = operand else {
            return self.fail(place, format!("expected an array of comparisons and numbers, not {}", kind(operand)));
        };
        if items.len() != 2 && items.len() != 4 {
            return self.fail(place, "expected one or two comparisons, as in [\">\", 0, \"<=\", 5]");
        }
        let mut signs = Vec::new();
        for (at, sign) in items.iter().enumerate().step_by(2) {
            match sign {
                Tree::Scalar(Scalar::String(sign)) if ["=", "<", "<=", ">", ">="].contains(&&**sign) => signs.push(&**sign),
                _ => {
                    let place = self.at(place, PatternStep::Index(at));
                    return self.fail(place, "expected one of = < <= > >=");
                }
            }
        }
        let mut numbers = Vec::new();
        for (at, value) in items.iter().enumerate().skip(1).step_by(2) {
            let place = self.at(place, PatternStep::Index(at));
            numbers.push(self.bound(value, place)?);
        }
        let inclusive = |sign: &str| sign.len() == 2;
        let range = match (&signs[..], &numbers[..]) {
            (["="], [number]) => return Ok(Atom::Equal(Scalar::Number(*number))),
            ([sign], [number]) if sign.starts_with('>') => Range { low: Some((*number, inclusive(sign))), high: None },
            ([sign], [number]) => Range { low: None, high: Some((*number, inclusive(sign))) },
            ([first, second], [low, high]) => {
                if !first.starts_with('>') || !second.starts_with('<') {
                    return self.fail(place, "the first of two comparisons must be a lower bound, the second an upper bound");
                }
                if low >= high {
                    return self.fail(place, "the lower bound must be less than the upper bound");
                }
                Range { low: Some((*low, inclusive(first))), high: Some((*high, inclusive(second))) }
            }
            _ => return self.fail(place, "expected one or two comparisons"),
        };
        Ok(Atom::Numbers(range))
    }

    fn bound(&mut self, value: &Tree, place: u32) -> Result<Number> {
        match value {
            Tree::Scalar(Scalar::Number(number)) => Ok(*number),
            Tree::BeyondFloat(literal) => self.fail(place, format!("{literal} is beyond float64")),
            other => self.fail(place, format!("expected a number, not {}", kind(other))),
        }
    }

    fn anything_but(&mut self, operand: &'t Tree, place: u32) -> Result<Atom> {
        let mut none_of = Vec::new();
        if let Tree::Object(_) = operand {
            let (name, inner) = self.only_member(operand, place)?;
            let place = self.at(place, PatternStep::Name(name));
            if !EXCLUDABLE.contains(&name) {
                return self.fail(place, format!("unknown operator, expected one of {}", EXCLUDABLE.join(", ")));
            }
            let items = self.one_or_more(inner, place)?;
            for (item, at) in &items {
                // An empty affix would exclude every text.
                if self.text(item, *at)?.is_empty() && ["prefix", "suffix"].contains(&name) {
                    return self.fail(*at, "must not be empty");
                }
            }
            for (item, at) in items {
                none_of.push(self.operator(name, item, at)?);
            }
        } else {
            let mut first_is_text = None;
            for (item, at) in self.one_or_more(operand, place)? {
                self.spend(1, at)?;
                let is_text = match item {
                    Tree::Scalar(Scalar::String(_)) => true,
                    Tree::Scalar(Scalar::Number(_)) | Tree::BeyondFloat(_) => false,
                    other => return self.fail(at, format!("expected a string or a number, not {}", kind(other))),
                };
                none_of.extend(self.scalar(item, at)?.map(Atom::Equal));
                if *first_is_text.get_or_insert(is_text) != is_text {
                    return self.fail(at, "strings and numbers must not be mixed");
                }
            }
        }
        Ok(Atom::Other { kinds: Kinds::LEAVES, none_of: none_of.into() })
    }

    fn one_or_more(&mut self, operand: &'t Tree, place: u32) -> Result<Vec<(&'t Tree, u32)>> {
        match operand {
            Tree::List(items) if items.is_empty() => self.fail(place, "a list must not be empty"),
            Tree::List(items) => {
                // The operator itself is counted in its array.
                self.size.add_alternatives(items.len() - 1, self.limits).or_else(|reason| self.fail(place, reason))?;
                Ok(items.iter().enumerate().map(|(at, item)| (item, self.at(place, PatternStep::Index(at)))).collect())
            }
            operand => Ok(vec![(operand, place)]),
        }
    }

    /// The scalar that a leaf must equal; `None` for a number beyond float64, which does not equal any value.
    fn scalar(&mut self, value: &Tree, place: u32) -> Result<Option<Scalar>> {
        match value {
            Tree::Scalar(scalar) => Ok(Some(scalar.clone())),
            Tree::BeyondFloat(_) => Ok(None),
            other => {
                self.fail(place, format!("expected a string, number, true, false, null or an operator, not {}", kind(other)))
            }
        }
    }

    fn text(&mut self, value: &'t Tree, place: u32) -> Result<&'t str> {
        match value {
            Tree::Scalar(Scalar::String(text)) => Ok(text),
            other => self.fail(place, format!("expected a string, not {}", kind(other))),
        }
    }

    fn spend(&mut self, states: usize, place: u32) -> Result<()> {
        self.states = self.states.saturating_add(states);
        let most = self.limits.max_pattern_states;
        if self.states > most {
            return self.fail(place, format!("the pattern has more than {most} states (limits.max_pattern_states)"));
        }
        Ok(())
    }

    fn at(&mut self, outer: u32, step: PatternStep<'t>) -> u32 {
        self.places.push((outer, step));
        self.places.len() as u32 - 1
    }

    #[cold]
    fn fail<T>(&self, place: u32, reason: impl Into<String>) -> Result<T> {
        let mut steps = Vec::new();
        let mut at = place;
        while at != NONE {
            steps.push(self.places[at as usize].1);
            at = self.places[at as usize].0;
        }
        let mut text = self.base.to_owned();
        for step in steps.into_iter().rev() {
            match step {
                PatternStep::Index(index) => text += &format!("[{index}]"),
                PatternStep::Name(name) if is_identifier(name) => {
                    if !text.is_empty() {
                        text.push('.');
                    }
                    text += name;
                }
                PatternStep::Name(name) => text += &format!("[{}]", quote(name)),
            }
        }
        Err(SubscriptionError::pattern(text, reason))
    }
}

/// The atom of an empty affix.
fn any_text() -> Atom {
    Atom::Wildcard(["".into(), "".into()].into())
}

fn kind(value: &Tree) -> &'static str {
    match value {
        Tree::Scalar(Scalar::Null) => "null",
        Tree::Scalar(Scalar::Bool(true)) => "true",
        Tree::Scalar(Scalar::Bool(false)) => "false",
        Tree::Scalar(Scalar::Number(_)) | Tree::BeyondFloat(_) => "a number",
        Tree::Scalar(Scalar::String(_)) => "a string",
        Tree::List(_) => "an array",
        Tree::Object(_) => "an object",
    }
}
