//! Which of many lists and objects does a value equal?
//!
//! ```text
//!   operands       [1, 2] ─► 0          [2, 1] ─► 1         {"a": [], "b": 1} ─► 2
//!   table          h([1, 2]) ─► 0       h([2, 1]) ─► 1      h({"a": [], "b": 1}) ─► 2
//!   an event has   [1.0, 2]  ─► the hash of [1, 2]  ─► compared with it  ─► 0
//! ```
//!
//! An operand is hashed as a tree, and a value of an event as its text, so that no tree is made of values that no operand
//! equals. The hash reads the first [`MOST`] elements of a list, the members of an object if they are at most as many, and
//! [`DEEPEST`] levels. So it reads little of a list of millions, and operands that differ only beyond these bounds are
//! compared one by one.
//!
//! Invariant: values that are equal ([`Value::equals`]) have the same hash: numbers count by their value, members in any order, and
//! of members with one name the last. [`Trees::find`] returns only an operand that the caller has compared.
//!
//! Cost: the value's text is read once, then one lookup. For each object that is being read, the hash keeps 24 bytes a
//! member.
//!
//! Rejected: an equality of an element or member as access predicate. Lists of few different elements, such as coordinates or
//! flags, would all be found by it.

use crate::automaton::table::Table;
use crate::json::skip;
use crate::json::token::{self, peek, space};
use crate::value::{Kind, Kinds, Number, ScalarRef, Seed, Value};
use crate::watch::spend;
use hashbrown::HashTable;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

/// So many elements of a list are hashed, and an object of more members is hashed as any such object.
const MOST: usize = 1 << 12;
/// A list or an object that is nested deeper is hashed as any other one there.
const DEEPEST: usize = 32;

/// An immutable set of lists and objects. See the head of this file.
#[derive(Debug)]
pub struct Trees {
    table: Table,
    operands: Box<[(Arc<Value>, u32)]>,
    kinds: Kinds,
}

impl Trees {
    /// Build from distinct operands and the id to report for each.
    pub fn new(operands: impl IntoIterator<Item = (Arc<Value>, u32)>, seed: &Seed) -> Trees {
        let operands: Box<[_]> = operands.into_iter().collect();
        let entries: Vec<(u64, u32)> = operands.iter().zip(0..).map(|((operand, _), at)| (hash_of(operand, seed), at)).collect();
        let kinds = operands.iter().fold(Kinds::NONE, |kinds, (operand, _)| kinds.or(Kinds::of(operand.kind())));
        Trees { table: Table::new(&entries), operands, kinds }
    }

    /// Whether an operand is of this kind.
    pub fn has(&self, kind: Kind) -> bool {
        self.kinds.has(kind)
    }

    /// The id of the operand under a hash that *equals* accepts.
    pub fn find(&self, hash: u64, mut equals: impl FnMut(&Arc<Value>) -> bool) -> Option<u32> {
        let at = self.table.find(hash, |at| equals(&self.operands[at as usize].0))?;
        Some(self.operands[at as usize].1)
    }

    /// Heap bytes used, without the operands, which a store shares.
    pub fn bytes(&self) -> usize {
        self.table.bytes() + size_of_val(&*self.operands)
    }
}

/// The hash of a number beyond float64: it equals no operand.
const BEYOND_FLOAT: u64 = 1;
/// The hash of a list before its first element.
const LIST: u64 = 2;
/// The hash of a list that is nested too deep.
const DEEP_LIST: u64 = 3;
/// Joined with the hash of all members.
const MAP: u64 = 4;
/// The hash of an object that is nested too deep, or has too many members.
const SOME_MAP: u64 = 5;

/// The hash of a value.
fn hash_of(value: &Value, seed: &Seed) -> u64 {
    fn at(value: &Value, seed: &Seed, depth: usize) -> u64 {
        match value {
            Value::Scalar(scalar) => scalar.as_ref().hash(seed),
            Value::BeyondFloat(_) => BEYOND_FLOAT,
            Value::List(_) if depth == DEEPEST => DEEP_LIST,
            Value::List(elements) => {
                elements.iter().take(MOST).fold(LIST, |all, element| seed.hash_words(all, at(element, seed, depth + 1)))
            }
            Value::Map(members) if depth == DEEPEST || members.len() > MOST => SOME_MAP,
            Value::Map(members) => {
                let member = |(name, value): &(Box<str>, Value)| {
                    seed.hash_words(seed.hash_bytes(name.as_bytes()), at(value, seed, depth + 1))
                };
                seed.hash_words(MAP, members.iter().map(member).fold(0, u64::wrapping_add))
            }
        }
    }
    at(value, seed, 0)
}

/// The hash of a value, given as its text; None if that is found to be malformed.
pub fn hash_of_text(text: &str, seed: &Seed) -> Option<u64> {
    TextHasher { text: text.as_bytes(), seed }.value(0, 0).map(|(hash, _)| hash)
}

struct TextHasher<'t, 's> {
    text: &'t [u8],
    seed: &'s Seed,
}

/// A member of an object: the hash of its name, where the name is, and the hash of its value.
#[derive(Clone)]
struct Member {
    hash: u64,
    name: Range<u32>,
    value: u64,
}

impl<'t> TextHasher<'t, '_> {
    /// The hash of the value that begins at *at*, and the offset after it. Recursion is [`DEEPEST`] levels deep at most.
    fn value(&self, at: usize, depth: usize) -> Option<(u64, usize)> {
        let TextHasher { text, seed } = *self;
        let skipped = |hash| Some((hash, skip::trusted(text, at).ok()?));
        match peek(text, at) {
            b'"' => {
                let (end, _) = token::string(text, at).ok()?;
                Some((seed.hash_bytes(&token::unescaped(&text[at + 1..end - 1])), end))
            }
            b'-' | b'0'..=b'9' => {
                let (end, _) = token::number(text, at).ok()?;
                let number = Number::parse(&text[at..end]);
                Some((number.map_or(BEYOND_FLOAT, |number| ScalarRef::Number(number).hash(seed)), end))
            }
            b'[' if depth == DEEPEST => skipped(DEEP_LIST),
            b'{' if depth == DEEPEST => skipped(SOME_MAP),
            b'[' => self.list(at, depth),
            b'{' => self.map(at, depth),
            first => {
                let end = token::literal(text, at).ok()?;
                let scalar = if first == b'n' { ScalarRef::Null } else { ScalarRef::Bool(first == b't') };
                Some((scalar.hash(seed), end))
            }
        }
    }

    fn list(&self, start: usize, depth: usize) -> Option<(u64, usize)> {
        let TextHasher { text, seed } = *self;
        let mut at = space(text, start + 1);
        if peek(text, at) == b']' {
            return Some((LIST, at + 1));
        }
        let mut hash = LIST;
        for count in 0.. {
            if count == MOST {
                return Some((hash, skip::trusted(text, start).ok()?));
            }
            let (element, end) = self.value(at, depth + 1)?;
            hash = seed.hash_words(hash, element);
            at = space(text, end);
            match peek(text, at) {
                b',' => at = space(text, at + 1),
                b']' => {
                    spend(count / 4);
                    return Some((hash, at + 1));
                }
                _ => break,
            }
        }
        None
    }

    fn map(&self, start: usize, depth: usize) -> Option<(u64, usize)> {
        let TextHasher { text, seed } = *self;
        let mut members: HashTable<Member> = HashTable::new();
        let mut at = space(text, start + 1);
        let mut is_done = peek(text, at) == b'}';
        while !is_done {
            let (name, value, end) = self.member(at, depth)?;
            let member = Member { hash: seed.hash_bytes(&self.name(&name)), name, value };
            let is_same = |other: &Member| self.name(&other.name) == self.name(&member.name);
            let is_full = members.len() == MOST;
            match members.find_mut(member.hash, is_same) {
                Some(earlier) => earlier.value = value,
                None if is_full => return Some((SOME_MAP, skip::trusted(text, start).ok()?)),
                None => _ = members.insert_unique(member.hash, member, |member| member.hash),
            }
            at = space(text, end);
            is_done = match peek(text, at) {
                b',' => false,
                b'}' => true,
                _ => return None,
            };
            if !is_done {
                at = space(text, at + 1);
            }
        }
        spend(members.len() / 2);
        let all = members.iter().map(|member| seed.hash_words(member.hash, member.value)).fold(0, u64::wrapping_add);
        Some((seed.hash_words(MAP, all), at + 1))
    }

    /// The inside of a member's name, the hash of its value, and the offset after it.
    fn member(&self, at: usize, depth: usize) -> Option<(Range<u32>, u64, usize)> {
        let text = self.text;
        if peek(text, at) != b'"' {
            return None;
        }
        let (after, _) = token::string(text, at).ok()?;
        let colon = space(text, after);
        if peek(text, colon) != b':' {
            return None;
        }
        let (value, end) = self.value(space(text, colon + 1), depth + 1)?;
        Some((at as u32 + 1..after as u32 - 1, value, end))
    }

    fn name(&self, inside: &Range<u32>) -> Cow<'t, [u8]> {
        token::unescaped(&self.text[inside.start as usize..inside.end as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::automaton::testing::Dice;
    use crate::json::{ParseOptions, parse};

    const OPTIONS: ParseOptions = ParseOptions { max_depth: usize::MAX, max_bytes: usize::MAX };

    fn tree(text: &str) -> Value {
        parse(text.as_bytes(), OPTIONS).unwrap()
    }

    /// A value in a random spelling, with members in any order and some of them twice.
    fn spelled(dice: &mut Dice, depth: u64) -> String {
        let space = if dice.chance(20) { " " } else { "" };
        match dice.below(if depth == 0 { 3 } else { 5 }) {
            0 => (*dice.pick(&["1", "1.0", "10e-1", "-0", "0", "2", "1e400", "9007199254740993"])).into(),
            1 => (*dice.pick(&[r#""a""#, r#""\u0061""#, r#""é""#, r#""\u00e9\n""#, r#""""#])).into(),
            2 => (*dice.pick(&["true", "false", "null"])).into(),
            3 => {
                let elements: Vec<_> = (0..dice.below(4)).map(|_| spelled(dice, depth - 1)).collect();
                format!("[{space}{}{space}]", elements.join(","))
            }
            _ => {
                let names = [r#""a""#, r#""\u0061""#, r#""b""#, r#""""#];
                let member = |dice: &mut Dice| format!("{}{space}:{space}{}", dice.pick(&names), spelled(dice, depth - 1));
                let members: Vec<_> = (0..dice.below(4)).map(|_| member(dice)).collect();
                format!("{{{space}{}{space}}}", members.join(&format!("{space},")))
            }
        }
    }

    #[test]
    fn a_text_has_the_hash_of_its_tree_and_equal_values_have_one_hash() {
        let (mut dice, seed) = (Dice::new(4), Seed::new(5));
        let mut all: Vec<(Value, u64)> = Vec::new();
        for _ in 0..2_000 {
            let text = spelled(&mut dice, 3);
            let tree = tree(&text);
            assert_eq!(hash_of_text(&text, &seed), Some(hash_of(&tree, &seed)), "{text}");
            all.push((tree, hash_of_text(&text, &seed).unwrap()));
        }
        for (one, hash) in &all[..200] {
            for (other, other_hash) in &all {
                match one.equals(other) {
                    Some(true) => assert_eq!(hash, other_hash, "{one:?} {other:?}"),
                    Some(false) => assert_ne!(hash, other_hash, "{one:?} {other:?}"),
                    None => {}
                }
            }
        }
    }

    #[test]
    fn what_is_not_hashed_is_left_out_of_the_text_and_the_tree() {
        let seed = Seed::new(6);
        let list = |count: usize, last: &str| format!("[{}{last}]", "1,".repeat(count));
        let object = |from: usize, to: usize| {
            let members: Vec<_> = (from..to).map(|n| format!(r#""{n}":1"#)).collect();
            format!("{{{}}}", members.join(","))
        };
        let deep = |inside: &str| format!("{}{inside}{}", "[".repeat(DEEPEST), "]".repeat(DEEPEST));
        let twice = format!(r#"{{{},"0":2}}"#, object(0, MOST).trim_matches(['{', '}']));
        for (text, other, is_same) in [
            (list(MOST - 1, "1"), list(MOST - 1, "2"), false),
            (list(MOST, "1"), list(MOST, "2"), true),
            (object(0, MOST), object(1, MOST + 1), false),
            (object(0, MOST + 1), object(1, MOST + 2), true),
            (object(0, MOST), twice, false),
            (deep("1"), deep("2"), false),
            (deep("[1]"), deep("[2]"), true),
            (deep(r#"{"a":1}"#), deep("{}"), true),
            (deep(r#"{"a":1}"#), deep("[]"), false),
        ] {
            let (one, two) = (hash_of_text(&text, &seed), hash_of_text(&other, &seed));
            assert_eq!(one == two, is_same);
            assert_eq!((one, two), (Some(hash_of(&tree(&text), &seed)), Some(hash_of(&tree(&other), &seed))));
        }
    }

    #[test]
    fn a_malformed_text_has_no_hash() {
        for text in ["[1", "[1 2]", "{\"a\" 1}", "{\"a\":1,}", "{1:2}", "[tru]", "[\"a]", "{\"a\":}", "[,]", ""] {
            assert_eq!(hash_of_text(text, &Seed::new(7)), None, "{text}");
        }
    }

    #[test]
    fn an_operand_is_found_by_its_hash_and_a_comparison() {
        let seed = Seed::new(8);
        let trees = Trees::new([("[1,2]", 3), ("[2,1]", 4), ("[]", 5)].map(|(text, id)| (Arc::new(tree(text)), id)), &seed);
        let found = |text: &str| trees.find(hash_of_text(text, &seed)?, |operand| operand.equals(&tree(text)) == Some(true));
        assert_eq!((found("[1.0,2]"), found("[2,1]"), found("[ ]"), found("[1]")), (Some(3), Some(4), Some(5), None));
        assert!(trees.has(Kind::List) && !trees.has(Kind::Map));
    }
}
