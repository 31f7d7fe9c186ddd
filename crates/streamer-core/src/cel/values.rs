//! CEL values as the evaluation stores them, and the errors and unknowns that an expression may have instead of a
//! value.
//!
//! ```text
//!   arena of the event     [ "abc" ] [ 1, 2, 3 ] [ {a: .., l: ..} ]     parsed values, for all programs of the event
//!   arena of a run         [ "abcdef" ] [ [1, 2, 3, 4] ]                values that one program made; emptied after it
//!   Value                  24 bytes, Copy: a scalar, or a reference into an arena, the event or the program
//! ```
//!
//! Values are passed on without a copy, and dropping one is free, however deep it is. The budget of a run bounds the
//! size of its arena: large values are charged before they are made.
//!
//! Errors and unknowns are values too, since `||`, `&&` and the macros absorb them. A list or map of the event may
//! contain the error of a number beyond float64, which appears when the element is read.
//!
//! Rejected: counted references (`Rc`): every step of a chain counts up and down, and a deep value needs a loop to be dropped.

use super::ast::TypeName;
use super::outcome::Reason;
use super::times::Timestamp;
use crate::subscriptions::wording::shortened;
use std::cmp::Ordering;
use std::fmt;

/// A CEL value, an error or an unknown.
///
/// The tag takes a word, so that a value is copied by words. With a tag of one byte it is copied in other pieces than it was
/// written in, which takes a fifth more time.
#[derive(Clone, Copy, Debug)]
#[repr(u64)]
pub(super) enum Value<'r> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(&'r str),
    Bytes(&'r [u8]),
    List(&'r [Value<'r>]),
    Map(&'r Map<'r>),
    Timestamp(Timestamp),
    /// Nanoseconds.
    Duration(i64),
    Type(TypeName),
    /// A value or none.
    Optional(Option<&'r Value<'r>>),
    /// A value of the event with unknown values somewhere below.
    Partial(&'r Partial<'r>),
    /// The event does not carry it (semantics.md section 8).
    Unknown,
    Failure(&'r Failure<'r>),
}

/// A value with unknown values somewhere below: a map or list, unless the event contradicts itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Partial<'r> {
    pub(super) value: Value<'r>,
    pub(super) unknown: UnknownPaths<'r>,
}

/// The unknown pointers below a value: sorted, all with the same first *depth* tokens, which lead to the value.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnknownPaths<'r> {
    pub(super) pointers: &'r [&'r [&'r str]],
    pub(super) depth: usize,
    /// The sorted names of the known members, if every other member is an unknown value.
    pub(super) names: Option<&'r [&'r str]>,
}

/// The state of a member, given the unknown values.
pub(super) enum Below<'r> {
    /// It is known.
    Known,
    /// It is an unknown value itself.
    Unknown,
    /// It has unknown values.
    Partial(UnknownPaths<'r>),
}

impl<'r> UnknownPaths<'r> {
    /// The state of the member *name*.
    pub(super) fn below(self, name: &str) -> Below<'r> {
        if self.names.is_some_and(|names| names.binary_search(&name).is_err()) {
            return Below::Unknown;
        }
        let token = |pointer: &&'r [&'r str]| pointer[self.depth].cmp(name);
        let first = self.pointers.partition_point(|pointer| token(pointer) == Ordering::Less);
        let pointers = &self.pointers[first..];
        let pointers = &pointers[..pointers.partition_point(|pointer| token(pointer) == Ordering::Equal)];
        match pointers.first() {
            None => Below::Known,
            // The shortest comes first.
            Some(pointer) if pointer.len() == self.depth + 1 => Below::Unknown,
            Some(_) => Below::Partial(UnknownPaths { pointers, depth: self.depth + 1, names: None }),
        }
    }
}

/// A map, in the order of its text; no two keys are equal.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Map<'r> {
    pub(super) entries: &'r [(Key<'r>, Value<'r>)],
    /// The positions of the entries in the order of their keys, if they are more than [`FEW`].
    sorted: &'r [u32],
}

/// Up to this many entries are searched one by one.
pub(super) const FEW: usize = 16;

/// A key of a map. A number equals the number of the same value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Key<'r> {
    Bool(bool),
    Int(i64),
    Uint(u64),
    String(&'r str),
}

impl<'r> Key<'r> {
    /// The key that a value is; none of a type that can be none.
    pub(super) fn of(value: Value<'r>) -> Option<Key<'r>> {
        match value {
            Value::Bool(truth) => Some(Key::Bool(truth)),
            Value::Int(number) => Some(Key::Int(number)),
            Value::Uint(number) => Some(Key::Uint(number)),
            Value::String(text) => Some(Key::String(text)),
            _ => None,
        }
    }

    pub(super) fn value(self) -> Value<'r> {
        match self {
            Key::Bool(truth) => Value::Bool(truth),
            Key::Int(number) => Value::Int(number),
            Key::Uint(number) => Value::Uint(number),
            Key::String(text) => Value::String(text),
        }
    }

    fn number(self) -> Option<i128> {
        match self {
            Key::Int(number) => Some(number.into()),
            Key::Uint(number) => Some(number.into()),
            Key::Bool(_) | Key::String(_) => None,
        }
    }
}

impl Ord for Key<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        let rank = |key: &Key<'_>| match key {
            Key::Bool(_) => 0,
            Key::Int(_) | Key::Uint(_) => 1,
            Key::String(_) => 2,
        };
        match (self, other) {
            (Key::String(one), Key::String(other)) => one.cmp(other),
            (Key::Bool(one), Key::Bool(other)) => one.cmp(other),
            _ => rank(self).cmp(&rank(other)).then_with(|| self.number().cmp(&other.number())),
        }
    }
}

impl PartialOrd for Key<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Eq for Key<'_> {}

impl PartialEq for Key<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Key::String(one), Key::String(other)) => one == other,
            _ => self.cmp(other) == Ordering::Equal,
        }
    }
}

impl<'r> Map<'r> {
    /// A map of entries, whose keys should differ.
    pub(super) fn new(arena: &'r bumpalo::Bump, entries: &'r [(Key<'r>, Value<'r>)]) -> Map<'r> {
        let mut sorted: &'r mut [u32] = &mut [];
        if entries.len() > FEW {
            sorted = arena.alloc_slice_fill_with(entries.len(), |at| at as u32);
            sorted.sort_unstable_by(|one, other| entries[*one as usize].0.cmp(&entries[*other as usize].0));
        }
        Map { entries, sorted }
    }

    /// Whether two of the keys that it was made of are equal.
    pub(super) fn has_repeated_keys(&self) -> bool {
        let key = |at: u32| &self.entries[at as usize].0;
        if self.sorted.is_empty() {
            return (1..self.entries.len()).any(|at| self.entries[..at].iter().any(|(known, _)| *known == self.entries[at].0));
        }
        self.sorted.windows(2).any(|pair| key(pair[0]) == key(pair[1]))
    }

    /// The value of a key.
    pub(super) fn get(&self, key: Key<'_>) -> Option<Value<'r>> {
        if let Key::String(name) = key {
            return self.field(name);
        }
        if self.sorted.is_empty() {
            return self.entries.iter().find(|(known, _)| *known == key).map(|(_, value)| *value);
        }
        let position = self.sorted.binary_search_by(|at| self.entries[*at as usize].0.cmp(&key)).ok()?;
        Some(self.entries[self.sorted[position] as usize].1)
    }

    /// The value of a string key.
    #[inline]
    pub(super) fn field(&self, name: &str) -> Option<Value<'r>> {
        if self.sorted.is_empty() {
            let is_it = |key: &Key<'_>| matches!(key, Key::String(known) if *known == name);
            return self.entries.iter().find(|(key, _)| is_it(key)).map(|(_, value)| *value);
        }
        let position = self.sorted.binary_search_by(|at| self.entries[*at as usize].0.cmp(&Key::String(name))).ok()?;
        Some(self.entries[self.sorted[position] as usize].1)
    }
}

/// The position of the first key that repeats an earlier one, if any. It sorts, so it is not quadratic.
pub(super) fn first_repeated(keys: &[Key<'_>]) -> Option<usize> {
    if keys.len() <= FEW {
        return (1..keys.len()).find(|at| keys[..*at].contains(&keys[*at]));
    }
    let mut sorted: Vec<usize> = (0..keys.len()).collect();
    sorted.sort_unstable_by(|one, other| keys[*one].cmp(&keys[*other]).then(one.cmp(other)));
    sorted.windows(2).filter(|pair| keys[pair[0]] == keys[pair[1]]).map(|pair| pair[1]).min()
}

/// An error: its reason and details, which become words only if they are read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Failure<'r> {
    pub(super) reason: Reason,
    pub(super) detail: Detail<'r>,
}

/// The details.
#[derive(Clone, Copy, Debug)]
pub(super) enum Detail<'r> {
    Words(&'static str),
    /// A missing field or key.
    Field(Value<'r>),
    /// An index, and the length of the list.
    Index(i64, usize),
    /// An index, what it is into, and the size of that.
    IndexOf(i64, &'static str, usize),
    /// An operator or function, the types of its arguments, and their number.
    Overload(&'static str, [TypeName; 4], usize),
    /// `.name` or `has(.name)` of a value that is not a map.
    Member(&'static str, &'r str, &'static str, TypeName),
    /// A value past the range of a type.
    Range(Value<'r>, &'static str),
    /// A text that does not spell a value of a type.
    Spelling(&'r str, &'static str),
    /// A duplicate key.
    Twice(Value<'r>),
    /// A number of the event.
    BeyondFloat(&'r str),
    /// The error in a regular expression.
    Regexp(&'r str),
}

/// Most characters of a value of the event that are shown.
const SHOWN: usize = 60;

fn shown(text: &str) -> String {
    format!("{:?}", shortened(text, SHOWN))
}

impl fmt::Display for Detail<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scalar = |value: &Value<'_>| match value {
            Value::Bool(truth) => truth.to_string(),
            Value::Int(number) => number.to_string(),
            Value::Uint(number) => number.to_string(),
            Value::Double(number) => format!("{number:?}"),
            Value::String(text) => shown(text),
            other => other.type_name().to_owned(),
        };
        match self {
            Detail::Words(words) => f.write_str(words),
            Detail::Field(key) => write!(f, "no such field: {}", scalar(key)),
            Detail::Index(index, length) => write!(f, "index {index} of a list of {length}"),
            Detail::IndexOf(index, what, size) => write!(f, "index {index} of a {what} of {size}"),
            Detail::Overload(name, types, count) => {
                write!(f, "{name} does not take ")?;
                for (at, kind) in types[..*count].iter().enumerate() {
                    write!(f, "{}{}", if at == 0 { "" } else { ", " }, kind.name())?;
                }
                f.write_str(if *count == 0 { "no arguments" } else { "" })
            }
            Detail::Member(before, name, after, kind) => {
                write!(f, "{before}{}{after} does not take {}", shown(name).trim_matches('"'), kind.name())
            }
            Detail::Range(value, name) => write!(f, "{} is out of the range of {name}", scalar(value)),
            Detail::Spelling(text, name) => write!(f, "{} does not spell a value of type {name}", shown(text)),
            Detail::Twice(key) => write!(f, "a map has the key {} twice", scalar(key)),
            Detail::BeyondFloat(literal) => write!(f, "{} is beyond float64", shown(literal).trim_matches('"')),
            Detail::Regexp(what) => write!(f, "expected a regular expression of RE2: {what}"),
        }
    }
}

impl<'r> Value<'r> {
    /// The type of a value; for an unknown or an error that of null.
    pub(super) fn type_of(self) -> TypeName {
        match self {
            Value::Bool(_) => TypeName::Bool,
            Value::Int(_) => TypeName::Int,
            Value::Uint(_) => TypeName::Uint,
            Value::Double(_) => TypeName::Double,
            Value::String(_) => TypeName::String,
            Value::Bytes(_) => TypeName::Bytes,
            Value::List(_) => TypeName::List,
            Value::Map(_) => TypeName::Map,
            Value::Timestamp(_) => TypeName::Timestamp,
            Value::Duration(_) => TypeName::Duration,
            Value::Type(_) => TypeName::Type,
            Value::Optional(_) => TypeName::Optional,
            Value::Partial(partial) => partial.value.type_of(),
            Value::Null | Value::Unknown | Value::Failure(_) => TypeName::Null,
        }
    }

    pub(super) fn type_name(self) -> &'static str {
        self.type_of().name()
    }

    /// The order of two values of one ordered type; all numbers are one type. `None` if they have no order.
    /// `Some(None)` are numbers of which one is NaN.
    pub(super) fn order(self, other: Value<'_>) -> Option<Option<Ordering>> {
        Some(match (self, other) {
            (Value::Bool(one), Value::Bool(other)) => Some(one.cmp(&other)),
            (Value::String(one), Value::String(other)) => Some(one.cmp(other)),
            (Value::Bytes(one), Value::Bytes(other)) => Some(one.cmp(other)),
            (Value::Timestamp(one), Value::Timestamp(other)) => Some(one.cmp(&other)),
            (Value::Duration(one), Value::Duration(other)) => Some(one.cmp(&other)),
            _ => return self.compare_numbers(other),
        })
    }

    /// The order of two numbers, by mathematical value.
    #[inline]
    pub(super) fn compare_numbers(self, other: Value<'_>) -> Option<Option<Ordering>> {
        Some(match (self, other) {
            (Value::Int(one), Value::Int(other)) => Some(one.cmp(&other)),
            (Value::Uint(one), Value::Uint(other)) => Some(one.cmp(&other)),
            (Value::Double(one), Value::Double(other)) => one.partial_cmp(&other),
            (Value::Int(one), Value::Uint(other)) => Some(i128::from(one).cmp(&i128::from(other))),
            (Value::Uint(one), Value::Int(other)) => Some(i128::from(one).cmp(&i128::from(other))),
            (Value::Int(one), Value::Double(other)) => integer_with(one.into(), other),
            (Value::Uint(one), Value::Double(other)) => integer_with(one.into(), other),
            (Value::Double(one), Value::Int(other)) => integer_with(other.into(), one).map(Ordering::reverse),
            (Value::Double(one), Value::Uint(other)) => integer_with(other.into(), one).map(Ordering::reverse),
            _ => return None,
        })
    }
}

/// Compare an integer of 64 bits with a double, exactly.
fn integer_with(integer: i128, double: f64) -> Option<Ordering> {
    if double.is_nan() {
        return None;
    }
    // The fraction that is cut off is less than one; beyond i128 the cast stops at its ends, which are beyond 64 bits.
    let whole = double.trunc();
    Some(integer.cmp(&(whole as i128)).then_with(|| 0.0_f64.partial_cmp(&(double - whole)).unwrap_or(Ordering::Equal)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_compare_by_mathematical_value_across_their_types() {
        let big = Value::Int(9_007_199_254_740_993);
        let cases = [
            (big, Value::Double(9_007_199_254_740_992.0), Some(Ordering::Greater)),
            (Value::Int(i64::MAX), Value::Double(9_223_372_036_854_775_808.0), Some(Ordering::Less)),
            (Value::Uint(u64::MAX), Value::Double(18_446_744_073_709_551_616.0), Some(Ordering::Less)),
            (Value::Int(i64::MIN), Value::Double(-9_223_372_036_854_775_808.0), Some(Ordering::Equal)),
            (Value::Int(-1), Value::Uint(u64::MAX), Some(Ordering::Less)),
            (Value::Int(0), Value::Double(-0.0), Some(Ordering::Equal)),
            (Value::Int(-1), Value::Double(-0.5), Some(Ordering::Less)),
            (Value::Int(0), Value::Double(-0.5), Some(Ordering::Greater)),
            (Value::Int(1), Value::Double(f64::INFINITY), Some(Ordering::Less)),
            (Value::Int(1), Value::Double(f64::NEG_INFINITY), Some(Ordering::Greater)),
            (Value::Int(1), Value::Double(f64::NAN), None),
        ];
        for (one, other, order) in cases {
            assert_eq!(one.order(other), Some(order), "{one:?} {other:?}");
            assert_eq!(other.order(one), Some(order.map(Ordering::reverse)), "{other:?} {one:?}");
        }
        assert_eq!(big.order(Value::String("")), None);
    }

    #[test]
    fn a_map_finds_its_keys_however_many_it_has() {
        let arena = bumpalo::Bump::new();
        for count in [0, 1, FEW, FEW + 1, 1000] {
            let keys = (0..count).map(|at| match at % 3 {
                0 => Key::Int(at as i64 - 300),
                1 => Key::Uint(at as u64 + 1000),
                _ => Key::String(arena.alloc_str(&at.to_string())),
            });
            let entries: Vec<(Key<'_>, Value<'_>)> = keys.enumerate().map(|(at, key)| (key, Value::Int(at as i64))).collect();
            let map = Map::new(&arena, arena.alloc_slice_copy(&entries));
            for (key, value) in &entries {
                assert_eq!(map.get(*key).and_then(|found| found.order(*value)), Some(Some(Ordering::Equal)), "{key:?}");
            }
            for absent in [Key::Bool(true), Key::Int(500), Key::String("x"), Key::Uint(u64::MAX)] {
                assert!(map.get(absent).is_none(), "{absent:?}");
            }
            let mut keys: Vec<Key<'_>> = entries.iter().map(|(key, _)| *key).collect();
            assert_eq!(first_repeated(&keys), None);
            keys.push(Key::Uint(7));
            keys.push(Key::Int(7));
            keys.push(Key::Uint(7));
            assert_eq!(first_repeated(&keys), Some(keys.len() - 2));
        }
    }

    #[test]
    fn unknown_values_are_followed_token_by_token() {
        let pointers: Vec<Vec<&str>> = ["a/b", "a", "c/d/e", "c/d/f"].iter().map(|text| text.split('/').collect()).collect();
        let mut pointers: Vec<&[&str]> = pointers.iter().map(Vec::as_slice).collect();
        pointers.sort_unstable();
        let unknown = UnknownPaths { pointers: &pointers, depth: 0, names: None };
        assert!(matches!(unknown.below("a"), Below::Unknown));
        assert!(matches!(unknown.below("b"), Below::Known));
        let Below::Partial(inner) = unknown.below("c") else { panic!("c has unknown values") };
        let Below::Partial(inner) = inner.below("d") else { panic!("d has unknown values") };
        assert!(matches!((inner.below("e"), inner.below("f"), inner.below("g")), (Below::Unknown, Below::Unknown, Below::Known)));
        let rest = UnknownPaths { names: Some(&["a", "c", "x"]), ..unknown };
        assert!(matches!((rest.below("a"), rest.below("b"), rest.below("x")), (Below::Unknown, Below::Unknown, Below::Known)));
        let Below::Partial(inner) = rest.below("c") else { panic!("c has unknown values") };
        assert!(matches!(inner.below("b"), Below::Known));
    }
}
