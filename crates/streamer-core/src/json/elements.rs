//! The elements of a list one after the other, each as its text: a list of millions is looked through without a tree of it.

use super::token::{self, peek, space};
use super::{ParseOptions, parse, skip};
use crate::automaton::folding::fold;
use crate::value::{Kind, Number, ScalarRef, Value};
use std::borrow::Cow;

/// The elements of a list, which is known to be JSON; it ends early if it is not.
#[derive(Debug)]
pub(crate) struct Elements<'t> {
    text: &'t [u8],
    /// The offset of the next element; None after the last one.
    at: Option<usize>,
    skips_repetitions: bool,
}

/// An element of a list: its text, its kind, and of a string whether it has escapes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Element<'t> {
    text: &'t [u8],
    kind: Kind,
    escaped: bool,
}

impl<'t> Elements<'t> {
    /// The elements of a list that is all of *text*.
    pub fn of(text: &'t str) -> Elements<'t> {
        let text = text.as_bytes();
        let first = space(text, 1);
        let at = (peek(text, 0) == b'[' && peek(text, first) != b']').then_some(first);
        Elements { text, at, skips_repetitions: false }
    }

    /// Most of those that repeat the one before are left out, if they are short.
    pub fn without_repetitions(self) -> Elements<'t> {
        Elements { skips_repetitions: true, ..self }
    }
}

impl<'t> Iterator for Elements<'t> {
    type Item = Element<'t>;

    #[inline]
    fn next(&mut self) -> Option<Element<'t>> {
        let start = self.at.take()?;
        let mut escaped = false;
        let (end, kind) = match peek(self.text, start) {
            b'"' => {
                let (end, has_escapes) = token::string(self.text, start).ok()?;
                escaped = has_escapes;
                (end, Kind::String)
            }
            b'-' | b'0'..=b'9' => {
                let (end, beyond) = token::number(self.text, start).ok()?;
                let is_beyond = beyond && Number::parse(&self.text[start..end]).is_none();
                (end, if is_beyond { Kind::BeyondFloat } else { Kind::Number })
            }
            b'[' => (skip::trusted(self.text, start).ok()?, Kind::List),
            b'{' => (skip::trusted(self.text, start).ok()?, Kind::Map),
            b'n' => (token::literal(self.text, start).ok()?, Kind::Null),
            _ => (token::literal(self.text, start).ok()?, Kind::Bool),
        };
        let at = space(self.text, end);
        self.at = (peek(self.text, at) == b',').then(|| {
            let next = space(self.text, at + 1);
            if self.skips_repetitions { token::repetitions(self.text, start, next).0 } else { next }
        });
        Some(Element { text: &self.text[start..end], kind, escaped })
    }
}

impl Element<'_> {
    /// How many bytes its text has.
    pub fn len(&self) -> usize {
        self.text.len()
    }

    /// Whether it certainly differs from another one.
    pub fn differs(&self, other: &Element<'_>) -> bool {
        let options = ParseOptions { max_depth: usize::MAX, max_bytes: usize::MAX };
        let differs = || parse::<Value>(other.text, options).is_ok_and(|other| self.equals(&other) == Some(false));
        self.text != other.text && differs()
    }

    /// Whether it is a string whose simple case folding is *folded*.
    pub fn equals_folded(&self, folded: &str) -> Option<bool> {
        let is = |string: &[u8]| str::from_utf8(string).is_ok_and(|string| fold(string) == folded);
        (self.kind != Kind::BeyondFloat).then(|| self.kind == Kind::String && is(&self.string()))
    }

    /// The bytes of the string that it is.
    fn string(&self) -> Cow<'_, [u8]> {
        let inside = &self.text[1..self.text.len() - 1];
        if !self.escaped {
            return Cow::Borrowed(inside);
        }
        let mut plain = Vec::new();
        token::unescape(inside, &mut plain);
        Cow::Owned(plain)
    }

    /// Whether it equals *value*, as [`Value::equals`] has it.
    #[inline]
    pub fn equals(&self, value: &Value) -> Option<bool> {
        let is_scalar = |scalar| Some(value.as_scalar() == Some(scalar));
        match self.kind {
            Kind::BeyondFloat => None,
            _ if value.kind() == Kind::BeyondFloat => None,
            kind if kind != value.kind() => Some(false),
            Kind::Null => is_scalar(ScalarRef::Null),
            Kind::Bool => is_scalar(ScalarRef::Bool(peek(self.text, 0) == b't')),
            Kind::Number => Number::parse(self.text).and_then(|number| is_scalar(ScalarRef::Number(number))),
            Kind::String => Some(value.as_str().is_some_and(|text| *self.string() == *text.as_bytes())),
            _ => {
                let options = ParseOptions { max_depth: usize::MAX, max_bytes: usize::MAX };
                parse::<Value>(self.text, options).ok()?.equals(value)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_equal_what_a_tree_of_them_equals() {
        let text = r#"[ 1, 1.0 ,"a","\u0061", true,false,null, [1 ,2],[], {"a":1, "a":2},1e400 ,"]" , -0]"#;
        let options = ParseOptions::default();
        let tree: Value = parse(text.as_bytes(), options).unwrap();
        let Value::List(trees) = &tree else { panic!() };
        let elements: Vec<Element<'_>> = Elements::of(text).collect();
        assert_eq!(elements.len(), trees.len());
        for operand in [r#""a""#, "1", "0", "true", "null", "[1,2]", "[]", r#"{"a":2}"#, "1e400", r#""]""#, "{}"] {
            let operand: Value = parse(operand.as_bytes(), options).unwrap();
            for (element, tree) in elements.iter().zip(trees) {
                assert_eq!(element.equals(&operand), tree.equals(&operand), "{tree:?} {operand:?}");
            }
        }
        for text in [
            r#"[1,1,1,1,1,2,2,2,2,2,2]"#,
            r#"["a", "a", "a", "a","a","ab"]"#,
            "[11,1,11,11,11,11,11,1]",
            "[1,1,1,1,1,1,1, 2.0 ,2.0,3]",
            "[1,1,1]",
        ] {
            let mut all: Vec<&[u8]> = Elements::of(text).map(|element| element.text).collect();
            let mut some: Vec<&[u8]> = Elements::of(text).without_repetitions().map(|element| element.text).collect();
            assert!(some.len() <= all.len() && (some.len() < all.len() || text.len() < 12), "{text}");
            all.dedup();
            some.dedup();
            assert_eq!(some, all);
        }
        assert_eq!(Elements::of("[]").count() + Elements::of("[ \n ]").count() + Elements::of("{}").count(), 0);
    }
}
