//! Filters: conditions on one field of `data` or of the envelope (semantics.md section 3). The operands and meanings of
//! operators: [`operators`](super::operators); groups of filters: [`groups`](super::groups).

use super::groups::GROUPS;
use super::normal_form::{Path, Root};
use super::operators::{Filter, OPERATORS, Operand, Operator, folded};
use super::wording::unknown_name;
use crate::error::SubscriptionError;
use crate::json::Tree;
use crate::layout::decode_pointer;
use crate::limits::{Limits, Size};
use crate::regexps::{Regexp, re2, size, too_large};
use crate::value::{Scalar, Value};
use std::fmt;

const MEMBERS: [&str; 5] = ["field", "op", "value", "root", "ignore_case"];
/// Also the members of a group, for errors.
const KNOWN: [&str; 8] = ["field", "op", "value", "root", "ignore_case", GROUPS[0], GROUPS[1], GROUPS[2]];

/// Where a field's path may begin; the first is the default.
const ROOTS: [(&str, Root); 2] = [("data", Root::Data), ("envelope", Root::Envelope)];

/// Lists and objects in a value may be nested so deep.
const MAX_VALUE_DEPTH: usize = 32;

/// A filter on a path prints as CEL that names each step again for every step below it: quadratic in the steps.
const MAX_FIELD_BYTES: usize = 4096;
const MAX_FIELD_STEPS: usize = 512;

/// As long as a CEL expression may be, so that a filter may be written as one.
const MAX_REGEXP_BYTES: usize = 16 * 1024;

type Result<T> = std::result::Result<T, SubscriptionError>;

#[cold]
pub(super) fn error<T>(place: FilterPlace<'_>, reason: impl Into<String>) -> Result<T> {
    Err(SubscriptionError::new(place.to_string(), reason))
}

/// A place in a filter, linked from its end: it is spelled only for an error.
#[derive(Clone, Copy)]
pub(super) enum FilterPlace<'p> {
    Filter(usize),
    Member(&'p FilterPlace<'p>, &'p str),
    Element(&'p FilterPlace<'p>, usize),
}

impl fmt::Display for FilterPlace<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FilterPlace::Filter(at) => write!(f, "filters[{at}]"),
            FilterPlace::Member(outer, name) => write!(f, "{outer}.{name}"),
            FilterPlace::Element(outer, at) => write!(f, "{outer}[{at}]"),
        }
    }
}

/// The members of a filter, with their types checked.
pub(super) struct FilterMembers<'t> {
    field: &'t str,
    root: Root,
    op: Operator,
    value: Option<&'t Tree>,
    ignore_case: bool,
}

impl<'t> FilterMembers<'t> {
    /// Check the members of a filter.
    pub(super) fn read(members: &'t [(Box<str>, Tree)], place: FilterPlace<'_>) -> Result<FilterMembers<'t>> {
        for (name, _) in members {
            if !MEMBERS.contains(&&**name) {
                return error(FilterPlace::Member(&place, name), unknown_name(name, &KNOWN, "member"));
            }
        }
        let member = |wanted: &str| members.iter().find(|(name, _)| **name == *wanted).map(|(_, value)| value);
        let text = |name: &str| match member(name) {
            None => error(FilterPlace::Member(&place, name), format!("expected a member '{name}'")),
            Some(Tree::Scalar(Scalar::String(text))) => Ok(&**text),
            Some(other) => error(FilterPlace::Member(&place, name), format!("expected a string, not {}", other.json_type())),
        };
        let (field, word) = (text("field")?, text("op")?);
        let Some(row) = OPERATORS.iter().find(|row| row.name == word) else {
            return error(FilterPlace::Member(&place, "op"), unknown_name(word, &OPERATORS.map(|row| row.name), "operator"));
        };
        let root = match member("root") {
            None => Root::Data,
            Some(_) => root_of(text("root")?, row.op, word, FilterPlace::Member(&place, "root"))?,
        };
        let value = member("value");
        match (row.operand, value) {
            (Operand::Nothing, Some(_)) => {
                return error(FilterPlace::Member(&place, "value"), format!("'{word}' takes no value"));
            }
            (Operand::Nothing, None) | (_, Some(_)) => {}
            (_, None) => return error(FilterPlace::Member(&place, "value"), format!("'{word}' needs a value")),
        }
        let ignore_case = match member("ignore_case") {
            None => false,
            Some(flag) => ignore_case(flag, row.op, word, FilterPlace::Member(&place, "ignore_case"))?,
        };
        Ok(FilterMembers { field, root, op: row.op, value, ignore_case })
    }

    /// Count the alternatives.
    pub(super) fn measure(&self, place: FilterPlace<'_>, size: &mut Size, limits: &Limits) -> Result<()> {
        match (self.op.row().operand, self.value) {
            (Operand::Scalars, Some(Tree::List(items))) => {
                size.add_alternatives(items.len(), limits).or_else(|reason| error(FilterPlace::Member(&place, "value"), reason))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn parse(&self, filter: FilterPlace<'_>, limits: &Limits) -> Result<Filter> {
        let path = Path { root: self.root, names: parse_path(self.field, FilterPlace::Member(&filter, "field"))? };
        let place = FilterPlace::Member(&filter, "value");
        let tree = self.value.unwrap_or(&Tree::Scalar(Scalar::Null));
        let value = json_value(tree, place, 0)?;
        let operand = match self.op.row().operand {
            Operand::Anything | Operand::Scalar if self.ignore_case => Operand::Folded,
            operand => operand,
        };
        check(operand, tree, place)?;
        let regexp = match value.as_str() {
            Some(source) if operand == Operand::Regexp => {
                let flags = if self.ignore_case { "(?i)" } else { "" };
                Some(regexp(&format!("{flags}{source}"), place, limits)?)
            }
            _ => None,
        };
        let value = if self.ignore_case { folded(&value) } else { value };
        Ok(Filter { path, op: self.op, value, regexp, ignore_case: self.ignore_case })
    }
}

/// The root of this name, unless the operator has another one.
fn root_of(name: &str, op: Operator, word: &str, place: FilterPlace<'_>) -> Result<Root> {
    match ROOTS.iter().find(|(known, _)| *known == name) {
        None => error(place, unknown_name(name, &ROOTS.map(|(known, _)| known), "root")),
        Some((_, root)) if op.mentions_before() && *root != Root::Data => {
            error(place, format!("'{word}' compares 'before' with 'data'; expected the root 'data'"))
        }
        Some((_, root)) => Ok(*root),
    }
}

/// Whether the operator is to ignore case.
fn ignore_case(value: &Tree, op: Operator, word: &str, place: FilterPlace<'_>) -> Result<bool> {
    let Tree::Scalar(Scalar::Bool(value)) = value else {
        return error(place, format!("expected true or false, not {}", value.json_type()));
    };
    if *value && !op.may_ignore_case() {
        let may = OPERATORS.iter().filter(|row| row.op.may_ignore_case()).map(|row| format!("'{}'", row.name));
        let expected = may.collect::<Vec<_>>().join(", ");
        return error(place, format!("'{word}' compares with case; expected one of {expected}"));
    }
    Ok(*value)
}

/// Refuse an operand that the operator does not accept.
fn check(operand: Operand, tree: &Tree, place: FilterPlace<'_>) -> Result<()> {
    if !operand.allows(tree) {
        return error(place, format!("expected {}, not {}", operand.expected(), tree.json_type()));
    }
    match (operand, tree) {
        (Operand::Scalars, Tree::List(items)) => {
            items.iter().enumerate().try_for_each(|(at, item)| check(Operand::Scalar, item, FilterPlace::Element(&place, at)))
        }
        _ => Ok(()),
    }
}

fn regexp(source: &str, place: FilterPlace<'_>, limits: &Limits) -> Result<Regexp> {
    let length = source.len();
    if length > MAX_REGEXP_BYTES {
        return error(place, format!("a regular expression of {length} bytes; at most {MAX_REGEXP_BYTES} are allowed"));
    }
    let (size, most) = (size::size(source), limits.max_regexp_size);
    if size > most {
        return error(place, too_large(size, most));
    }
    re2::translate(source).or_else(|reason| error(place, format!("expected a regular expression of RE2: {reason}")))
}

/// Split a dotted path (`user.country`) or a JSON Pointer (`/a.b/c`) into member names.
fn parse_path(text: &str, place: FilterPlace<'_>) -> Result<Box<[Box<str>]>> {
    if text.len() > MAX_FIELD_BYTES {
        return error(place, format!("a path of {} bytes; at most {MAX_FIELD_BYTES} are allowed", text.len()));
    }
    let names = if text.starts_with('/') {
        decode_pointer(text).or_else(|reason| error(place, reason))?
    } else {
        let names: Box<[Box<str>]> = text.split('.').map(Box::from).collect();
        if names.iter().any(|name| name.is_empty()) {
            let what = if text.is_empty() { "the path is empty".to_owned() } else { format!("an empty step in '{text}'") };
            return error(place, format!("{what}; expected member names with dots between them, or a JSON Pointer"));
        }
        names
    };
    if names.len() > MAX_FIELD_STEPS {
        return error(place, format!("a path of {} steps; at most {MAX_FIELD_STEPS} are allowed", names.len()));
    }
    Ok(names)
}

/// Check a value, at most [`MAX_VALUE_DEPTH`] deep.
fn json_value(tree: &Tree, place: FilterPlace<'_>, depth: usize) -> Result<Value> {
    if depth == MAX_VALUE_DEPTH && matches!(tree, Tree::List(_) | Tree::Object(_)) {
        return error(place, format!("nested deeper than {MAX_VALUE_DEPTH} levels"));
    }
    match tree {
        Tree::Scalar(scalar) => Ok(Value::Scalar(scalar.clone())),
        Tree::BeyondFloat(literal) => {
            let shown = if literal.len() <= 40 { literal.to_string() } else { format!("{}...", &literal[..40]) };
            error(place, format!("expected a number within float64, not {shown}"))
        }
        Tree::List(elements) => {
            let elements =
                elements.iter().enumerate().map(|(at, element)| json_value(element, FilterPlace::Element(&place, at), depth + 1));
            Ok(Value::List(elements.collect::<Result<_>>()?))
        }
        Tree::Object(members) => {
            let members = members
                .iter()
                .map(|(name, member)| Ok((name.clone(), json_value(member, FilterPlace::Member(&place, name), depth + 1)?)));
            Ok(crate::json::Build::object(members.collect::<Result<_>>()?))
        }
    }
}
