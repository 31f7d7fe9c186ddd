//! JSON values by their meaning, not by their spelling.
//!
//! ```text
//!   1   1.0   10e-1   ──►  Number { floor: bits(1.0), rest: 0 }
//!   9007199254740993  ──►  Number { floor: bits(9007199254740992.0), rest: 1 }
//! ```
//!
//! A [`Number`] is its own order key. It is the greatest float64 not above the value, with its bits arranged so that they sort
//! as integers, and the distance from there to the value. The distance is 0 for every float64, below 2048 for every 64-bit
//! integer, and below 2^16 for the nanoseconds of every timestamp.
//!
//! Invariant: two literals of one mathematical value make one `Number`, after rounding to float64 if the literal is
//! neither int64 nor uint64. So derived equality, ordering and hashing agree, across int64, uint64 and float64.
//!
//! Cost: 16 bytes; a comparison is two integer comparisons; no branch on the kind of number.
//!
//! Rejected: an enum of i64, u64 and f64. Each comparison takes nine cases, of which six are easy to get wrong near 2^53,
//! and hashing needs the canonical form anyway.

use std::cmp::Ordering;
use std::fmt;

/// The first eight bytes of a text, with zeros after a shorter one.
#[inline]
pub(crate) fn head_of(text: &[u8]) -> [u8; 8] {
    let mut head = [0; 8];
    let length = text.len().min(8);
    head[..length].copy_from_slice(&text[..length]);
    head
}

/// Python's `repr` of a finite float: the shortest text that reads back as it, of those the nearest, of two as near the one with
/// the even digit.
pub(crate) fn repr(value: f64) -> String {
    let decimals = |digits: &str| digits.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    // Writing this many digits chooses the even one, while writing the shortest text chooses either; but below a power
    // of two it may read back as another number.
    let even_or = |even: String, shortest: String| if even.parse() == Ok(value) { even } else { shortest };
    let shortest = format!("{value:e}");
    let (digits, exponent) = shortest.split_once('e').unwrap_or((&shortest, "0"));
    match exponent.parse().unwrap_or(0) {
        0..16 if value.fract() == 0.0 => format!("{value:.1}"),
        -4..16 => {
            let shortest = format!("{value}");
            even_or(format!("{value:.*}", decimals(&shortest)), shortest)
        }
        exponent => {
            let even = format!("{value:.*e}", decimals(digits));
            let text = even_or(even, shortest.clone());
            let digits = text.split_once('e').map_or(&*text, |(digits, _)| digits);
            format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, i32::abs(exponent))
        }
    }
}

/// The kind of a value at a path: a type of JSON, or missing.
///
/// [`Kind::BeyondFloat`] is a number literal beyond float64, as `1e400`: it exists and compares with no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// Absent: no such member, or a step of the path is not an object.
    Missing = 0,
    /// `null`.
    Null = 1,
    /// `true` or `false`.
    Bool = 2,
    /// A number within float64.
    Number = 3,
    /// A number literal beyond float64.
    BeyondFloat = 4,
    /// A string.
    String = 5,
    /// An array.
    List = 6,
    /// An object.
    Map = 7,
    /// Below a number beyond float64: to read it is an error. It is in no set of kinds.
    Unreadable = 8,
}

impl Kind {
    /// The JSON type, for messages.
    pub(crate) fn json_type(self) -> &'static str {
        match self {
            Kind::Missing => "nothing",
            Kind::Null => "null",
            Kind::Bool => "a boolean",
            Kind::Number | Kind::BeyondFloat | Kind::Unreadable => "a number",
            Kind::String => "a string",
            Kind::List => "a list",
            Kind::Map => "an object",
        }
    }
}

/// A set of [`Kind`]s.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Kinds(u8);

impl Kinds {
    /// The empty set.
    pub const NONE: Kinds = Kinds(0);
    /// The value is absent.
    pub const MISSING: Kinds = Kinds::of(Kind::Missing);
    /// Every kind but [`Kind::Missing`].
    pub const PRESENT: Kinds = Kinds(!1);
    /// The leaves of patterns: any scalar, also a number beyond float64.
    pub const LEAVES: Kinds = Kinds(0b0011_1110);
    /// The values that CEL can read: any value but a number beyond float64.
    pub const READABLE: Kinds = Kinds(0b1110_1110);

    /// The set of one kind.
    pub const fn of(kind: Kind) -> Kinds {
        Kinds((1_u16 << kind as u16) as u8)
    }

    /// The kinds in either set.
    pub const fn or(self, other: Kinds) -> Kinds {
        Kinds(self.0 | other.0)
    }

    /// The kinds in both sets.
    pub const fn and(self, other: Kinds) -> Kinds {
        Kinds(self.0 & other.0)
    }

    /// Whether *kind* is in the set.
    pub const fn has(self, kind: Kind) -> bool {
        self.0 as u16 & (1 << kind as u16) != 0
    }

    /// Whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The set of [`Kinds::bits`].
    pub const fn from_bits(bits: u8) -> Kinds {
        Kinds(bits)
    }

    /// The set as bits, bit `kind as u8` for each kind.
    pub const fn bits(self) -> u8 {
        self.0
    }
}

impl fmt::Debug for Kinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use Kind::*;
        let all = [Missing, Null, Bool, Number, BeyondFloat, String, List, Map];
        f.debug_set().entries(all.into_iter().filter(|kind| self.has(*kind))).finish()
    }
}

/// A number within float64, by value. See the head of this file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Number {
    floor: u64,
    rest: u16,
}

const SIGN: u64 = 1 << 63;
/// Integers below it are exact in a float64.
const EXACT: f64 = (1_u64 << 53) as f64;
/// Powers of ten, which are exact.
const TENS: [f64; 16] = [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];

/// Bits of a finite float64 such that unsigned order is the order of values.
fn sortable(value: f64) -> u64 {
    let bits = (value + 0.0).to_bits(); // + 0.0 makes one zero of two
    if bits & SIGN == 0 { bits | SIGN } else { !bits }
}

impl Number {
    /// The number of a signed integer.
    pub fn from_i64(value: i64) -> Number {
        Number::from_integer(i128::from(value), value as f64)
    }

    /// The number of an unsigned integer.
    pub fn from_u64(value: u64) -> Number {
        Number::from_integer(i128::from(value), value as f64)
    }

    /// The number of nanoseconds of a time: any below 2^68, which is beyond the year 9999.
    pub fn from_nanoseconds(value: i128) -> Number {
        Number::from_integer(value, value as f64)
    }

    /// The argument of [`Number::from_nanoseconds`].
    pub fn nanoseconds(self) -> i128 {
        self.floor() as i128 + i128::from(self.rest)
    }

    #[inline]
    fn from_integer(value: i128, near: f64) -> Number {
        if near.abs() < EXACT {
            return Number { floor: sortable(near), rest: 0 };
        }
        let mut floor = sortable(near);
        let mut low = near as i128; // exact: |near| <= 2^68
        if low > value {
            floor -= 1; // the float64 next below; 0 and the least float64 are never rounded up to
            low = unsortable(floor) as i128;
        }
        Number { floor, rest: (value - low) as u16 }
    }

    /// The number of a float64; `None` for NaN and the infinities.
    pub fn from_f64(value: f64) -> Option<Number> {
        value.is_finite().then(|| Number { floor: sortable(value), rest: 0 })
    }

    /// The number of a JSON number literal, which must be well-formed; `None` if it is beyond float64.
    pub fn parse(literal: &[u8]) -> Option<Number> {
        let negative = literal.first() == Some(&b'-');
        let digits = &literal[usize::from(negative)..];
        let digit = |byte: &u8| u64::from(byte.wrapping_sub(b'0'));
        let (mut whole, mut read) = (0_u64, 0);
        // 19 digits do not overflow.
        for byte in digits.iter().take(19) {
            let digit = digit(byte);
            if digit > 9 {
                break;
            }
            whole = whole * 10 + digit;
            read += 1;
        }
        let whole = match &digits[read..] {
            [] => Some(whole),
            [last] if read == 19 && digit(last) < 10 => whole.checked_mul(10).and_then(|tens| tens.checked_add(digit(last))),
            _ => None,
        };
        if let Some(whole) = whole {
            if !negative {
                return Some(Number::from_u64(whole));
            }
            if whole <= SIGN {
                return Some(Number::from_i64((whole as i64).wrapping_neg()));
            }
        }
        if let Some(value) = short_decimal(digits) {
            return Number::from_f64(if negative { -value } else { value });
        }
        // A literal is ASCII; another text is not a number.
        Number::from_f64(std::str::from_utf8(literal).ok()?.parse().ok()?)
    }

    /// The nearest float64 not above the number; equal to it unless it is an integer past 2^53.
    pub fn floor(self) -> f64 {
        unsortable(self.floor)
    }

    /// The integer that the number is, if it is one and in int64 or uint64.
    pub fn as_integer(self) -> Option<i128> {
        let floor = self.floor();
        let whole = floor as i128;
        (whole as f64 == floor && (-(SIGN as i128)..1 << 64).contains(&whole)).then_some(whole + i128::from(self.rest))
    }

    /// The two halves of the order key, for tables that store them separately: sortable bits of the floor, and the
    /// distance from it.
    pub fn order_key(self) -> (u64, u16) {
        (self.floor, self.rest)
    }

    /// The number of an order key made by [`Number::order_key`].
    pub fn from_order_key(key: (u64, u16)) -> Number {
        Number { floor: key.0, rest: key.1 }
    }
}

/// The value of up to 15 digits with a dot: the quotient of two exact numbers is rounded once, as the literal is.
fn short_decimal(digits: &[u8]) -> Option<f64> {
    let dot = digits.iter().position(|byte| *byte == b'.').filter(|_| digits.len() <= TENS.len())?;
    let mut whole = 0;
    for byte in digits[..dot].iter().chain(&digits[dot + 1..]) {
        whole = whole * 10 + u64::from(byte.is_ascii_digit().then(|| byte - b'0')?);
    }
    Some(whole as f64 / TENS[digits.len() - 1 - dot])
}

fn unsortable(key: u64) -> f64 {
    f64::from_bits(if key & SIGN != 0 { key & !SIGN } else { !key })
}

impl fmt::Debug for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The shortest JSON literal of the value: `1` for `1.0`.
impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.as_integer() {
            Some(whole) => write!(f, "{whole}"),
            None => write!(f, "{:?}", self.floor()),
        }
    }
}

/// A scalar that something can be equal to, owned: the operand of an equality.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scalar {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number within float64.
    Number(Number),
    /// A string, unescaped.
    String(Box<str>),
}

/// A borrowed [`Scalar`] of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ScalarRef<'a> {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number within float64.
    Number(Number),
    /// A string, unescaped.
    String(&'a str),
}

impl Scalar {
    /// Borrow it.
    pub fn as_ref(&self) -> ScalarRef<'_> {
        match self {
            Scalar::Null => ScalarRef::Null,
            Scalar::Bool(value) => ScalarRef::Bool(*value),
            Scalar::Number(value) => ScalarRef::Number(*value),
            Scalar::String(value) => ScalarRef::String(value),
        }
    }

    /// The kind of value.
    pub fn kind(&self) -> Kind {
        self.as_ref().kind()
    }
}

impl PartialEq<ScalarRef<'_>> for Scalar {
    fn eq(&self, other: &ScalarRef<'_>) -> bool {
        self.as_ref() == *other
    }
}

impl ScalarRef<'_> {
    /// The kind of value.
    pub fn kind(self) -> Kind {
        match self {
            ScalarRef::Null => Kind::Null,
            ScalarRef::Bool(_) => Kind::Bool,
            ScalarRef::Number(_) => Kind::Number,
            ScalarRef::String(_) => Kind::String,
        }
    }

    /// An owned copy.
    pub fn to_scalar(self) -> Scalar {
        match self {
            ScalarRef::Null => Scalar::Null,
            ScalarRef::Bool(value) => Scalar::Bool(value),
            ScalarRef::Number(value) => Scalar::Number(value),
            ScalarRef::String(value) => Scalar::String(value.into()),
        }
    }

    /// Hash by value under *seed*. Equal values hash equally; the function is the same on every machine, so that a
    /// table built on one can be read on another that has the seed.
    pub fn hash(self, seed: &Seed) -> u64 {
        match self {
            ScalarRef::Null => seed.hash_bytes(&[0]),
            ScalarRef::Bool(value) => seed.hash_bytes(&[1 + u8::from(value)]),
            ScalarRef::Number(Number { floor, rest: 0 }) => seed.hash_word(floor),
            ScalarRef::Number(Number { floor, rest }) => seed.hash_words(floor, u64::from(rest)),
            ScalarRef::String(text) => seed.hash_bytes(text.as_bytes()),
        }
    }
}

/// Any JSON value, owned: the operand of a deep equality, and the input of the naive evaluation.
///
/// Invariant: the members of an object are sorted by name and names are unique, so that derived equality is equality of
/// JSON values by value. Dropping a value does not recurse, however deep it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Value {
    /// A scalar.
    Scalar(Scalar),
    /// A number literal beyond float64, as written. Two of them are never compared: see semantics.md section 1.
    BeyondFloat(Box<str>),
    /// An array.
    List(Vec<Value>),
    /// An object, sorted by name.
    Map(Vec<(Box<str>, Value)>),
}

impl Value {
    /// The kind of value.
    pub fn kind(&self) -> Kind {
        match self {
            Value::Scalar(scalar) => scalar.kind(),
            Value::BeyondFloat(_) => Kind::BeyondFloat,
            Value::List(_) => Kind::List,
            Value::Map(_) => Kind::Map,
        }
    }

    /// The scalar it is, if it is one within float64.
    pub fn as_scalar(&self) -> Option<ScalarRef<'_>> {
        match self {
            Value::Scalar(scalar) => Some(scalar.as_ref()),
            _ => None,
        }
    }

    /// The text of a string.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::Scalar(Scalar::String(text)) => Some(text),
            _ => None,
        }
    }

    /// Whether two values are equal as CEL's `==` has it; `None` is its error: an element beyond float64 cannot be
    /// read, and the rest is equal.
    pub fn equals(&self, other: &Value) -> Option<bool> {
        let mut verdict = Some(true);
        let mut pending = vec![(self, other)];
        while let Some(pair) = pending.pop() {
            match pair {
                (Value::BeyondFloat(_), _) | (_, Value::BeyondFloat(_)) => verdict = None,
                (Value::List(one), Value::List(other)) if one.len() == other.len() => pending.extend(one.iter().zip(other)),
                (Value::Map(one), Value::Map(other))
                    if one.len() == other.len() && one.iter().zip(other).all(|((a, _), (b, _))| a == b) =>
                {
                    pending.extend(one.iter().zip(other).map(|((_, a), (_, b))| (a, b)));
                }
                (Value::Scalar(one), Value::Scalar(other)) if one == other => {}
                _ => return Some(false),
            }
        }
        verdict
    }

    /// The member *name* of an object.
    pub fn get(&self, name: &str) -> Option<&Value> {
        match self {
            Value::Map(members) => members.binary_search_by(|(key, _)| (**key).cmp(name)).ok().map(|at| &members[at].1),
            _ => None,
        }
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        let mut pending = Vec::new();
        let take = |value: &mut Value, pending: &mut Vec<Value>| match value {
            Value::List(elements) => pending.append(elements),
            Value::Map(members) => pending.extend(std::mem::take(members).into_iter().map(|(_, value)| value)),
            Value::Scalar(_) | Value::BeyondFloat(_) => {}
        };
        take(self, &mut pending);
        while let Some(mut value) = pending.pop() {
            take(&mut value, &mut pending);
        }
    }
}

/// The secret of a hash table that events reach; random for each build, so that an author of events cannot flood the
/// table.
#[derive(Clone, Debug)]
pub struct Seed {
    seed: u64,
    secrets: rapidhash::v3::RapidSecrets,
}

impl Seed {
    /// The secret that grows from *seed*. Store *seed* with the table.
    pub fn new(seed: u64) -> Seed {
        Seed { seed, secrets: rapidhash::v3::RapidSecrets::seed(seed) }
    }

    /// A secret from the operating system's randomness (through the standard library's hash keys).
    pub fn random() -> Seed {
        use std::hash::{BuildHasher, RandomState};
        Seed::new(RandomState::new().hash_one(0_u8))
    }

    /// The number from which it was made.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Hash bytes.
    #[inline]
    pub fn hash_bytes(&self, bytes: &[u8]) -> u64 {
        rapidhash::v3::rapidhash_v3_seeded(bytes, &self.secrets)
    }

    /// Hash one word.
    #[inline]
    pub fn hash_word(&self, word: u64) -> u64 {
        self.hash_bytes(&word.to_le_bytes())
    }

    /// Hash two words: to join the hash of a value with the state and the path that it is looked up under.
    #[inline]
    pub fn hash_words(&self, first: u64, second: u64) -> u64 {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&first.to_le_bytes());
        bytes[8..].copy_from_slice(&second.to_le_bytes());
        self.hash_bytes(&bytes)
    }
}

/// Compare a number with a bound on either side: whether *value* lies within.
pub(crate) fn within<T: Ord + ?Sized>(value: &T, low: Option<(&T, bool)>, high: Option<(&T, bool)>) -> bool {
    let above = low.is_none_or(|(bound, inclusive)| match value.cmp(bound) {
        Ordering::Greater => true,
        Ordering::Equal => inclusive,
        Ordering::Less => false,
    });
    let below = high.is_none_or(|(bound, inclusive)| match value.cmp(bound) {
        Ordering::Less => true,
        Ordering::Equal => inclusive,
        Ordering::Greater => false,
    });
    above && below
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(literal: &str) -> Number {
        Number::parse(literal.as_bytes()).unwrap()
    }

    #[test]
    fn a_number_is_its_value_and_not_its_spelling() {
        for (left, right) in [
            ("1", "1.0"),
            ("1", "10e-1"),
            ("0", "-0"),
            ("0", "-0.0"),
            ("0", "1e-400"),
            ("9007199254740992", "9007199254740992.0"),
            ("18446744073709551615", "18446744073709551615"),
            ("-9223372036854775808", "-9223372036854775808.0"),
            ("18446744073709551616", "18446744073709551616.0"),
            ("0.1", "0.10000000000000001"),
            ("1000", "1E3"),
        ] {
            assert_eq!(number(left), number(right), "{left} {right}");
        }
    }

    #[test]
    fn numbers_sort_exactly_across_integers_and_floats() {
        let sorted = [
            "-1.7976931348623157e308",
            "-9223372036854775809",
            "-9223372036854775807",
            "-9007199254740993",
            "-9007199254740992",
            "-1.5",
            "-1",
            "-5e-324",
            "0",
            "5e-324",
            "0.5",
            "1",
            "9007199254740991",
            "9007199254740992",
            "9007199254740993",
            "9007199254740994",
            "9223372036854775807",
            "9223372036854775808",
            "18446744073709551614",
            "18446744073709551615",
            "18446744073709551616",
            "1e300",
        ];
        for pair in sorted.windows(2) {
            assert!(number(pair[0]) < number(pair[1]), "{pair:?}");
        }
    }

    #[test]
    fn integers_survive_the_order_key() {
        for value in [0, 1, -1, i64::MAX, i64::MIN, i64::MAX - 1, (1 << 53) + 1, -(1 << 53) - 1] {
            assert_eq!(Number::from_i64(value).as_integer(), Some(i128::from(value)));
            assert_eq!(Number::from_i64(value).to_string(), value.to_string());
        }
        for value in [u64::MAX, u64::MAX - 1, 1 << 63, (1 << 63) + 1] {
            assert_eq!(Number::from_u64(value).as_integer(), Some(i128::from(value)));
        }
        assert_eq!(number("1.5").as_integer(), None);
        assert_eq!(number("18446744073709551616").as_integer(), None);
    }

    #[test]
    fn literals_are_read_as_the_standard_library_reads_them() {
        let mut dice = crate::automaton::testing::Dice::new(5);
        for _ in 0..20_000 {
            let digits: String = (0..=dice.below(19)).map(|_| char::from(b'0' + dice.below(10) as u8)).collect();
            let (whole, fraction) = digits.split_at(dice.below(digits.len() as u64) as usize);
            let sign = if dice.chance(2) { "-" } else { "" };
            let literal = format!("{sign}{}.{fraction}", if whole.is_empty() { "0" } else { whole });
            assert_eq!(number(&literal), Number::from_f64(literal.parse().unwrap()).unwrap(), "{literal}");
            let literal = format!("{sign}{digits}");
            let Ok(whole) = literal.parse::<i64>() else { continue };
            assert_eq!(number(&literal).as_integer(), Some(i128::from(whole)), "{literal}");
        }
        assert_eq!(number("99999999999999999999"), number("1e20"));
        assert_eq!(number("18446744073709551615").as_integer(), Some(i128::from(u64::MAX)));
    }

    #[test]
    fn a_literal_beyond_float64_is_no_number() {
        for literal in ["1e400", "-1e400", "1e309", "123456789e9999999999999"] {
            assert_eq!(Number::parse(literal.as_bytes()), None, "{literal}");
        }
        assert!(Number::parse(&[b'9'; 309]).is_none());
        assert!(Number::parse(&[b'9'; 308]).is_some());
    }

    #[test]
    fn equal_values_hash_equally_under_every_seed_and_seeds_differ() {
        let (one, two) = (Seed::new(1), Seed::new(2));
        let (left, right) = (ScalarRef::Number(number("1")), ScalarRef::Number(number("1.0")));
        assert_eq!(left.hash(&one), right.hash(&one));
        assert_ne!(left.hash(&one), left.hash(&two));
        assert_ne!(ScalarRef::String("1").hash(&one), left.hash(&one));
    }
}
