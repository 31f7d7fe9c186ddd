//! The regular expressions of patterns, translated to the syntax of `regex-syntax` (semantics.md section 5).
//!
//! The source syntax is I-Regexp (RFC 9485), which has no anchors, back references, lazy quantifiers or `\d`; `^` and
//! `$` are ordinary characters. A regexp matches a whole string. The dialects differ in three things:
//!
//! | | eventbridge: RFC 9485 as written | strict: Quamina's REGEXP.md |
//! |---|---|---|
//! | escapes | `\.`, `\p{L}`; `~` is a character | `~.`, `~p{L}`; `\` is a character |
//! | `.` | any character but line feed and carriage return | any character |
//! | counts | `a{1000}` | at most 99 |
//!
//! It has two limits: counts that nest multiply to at most 1,000, and one regexp has at most 10,000 states. The Python
//! package counts states in this way, too. A character, `.` and `|` are 1. A class is the number of its items, at least
//! 1; a category is 100. Brackets are the sum of their content, at least 1. `{n,m}` multiplies by m, `{n,}` by n, both
//! at least by 1. Then 1 is added for the whole.

use super::{Regexp, literal};

const MAX_NESTED_COUNT: usize = 1000;
const MAX_STATES: usize = 10_000;
const MAX_DEPTH: usize = 64;
const CATEGORY_STATES: usize = 100;

/// How a dialect writes regular expressions: the table in the head of this file.
#[derive(Debug)]
pub struct Syntax {
    /// The character that begins an escape. If it is not a backslash, a backslash is an ordinary character, and the
    /// escape character is escaped.
    escape: char,
    /// The meaning of `.` in the syntax of `regex-syntax`.
    any: &'static str,
    /// The largest count.
    max_count: usize,
}

impl Syntax {
    /// RFC 9485 as written.
    pub const RFC_9485: Syntax = Syntax { escape: '\\', any: "[^\\n\\r]", max_count: MAX_NESTED_COUNT };
    /// Quamina's REGEXP.md.
    pub const QUAMINA: Syntax = Syntax { escape: '~', any: "(?s:.)", max_count: 99 };

    /// Whether a character is literal here, but not in RFC 9485.
    fn is_plain(&self, letter: char) -> bool {
        letter == '\\' && self.escape != '\\'
    }
}

const NOT_NORMAL: &str = "()*+.?[\\]{|}";
const NOT_IN_CLASS: &str = "-[\\]";
const ESCAPABLE: &str = "()*+-.?[\\]^{|}";

type Result<T> = std::result::Result<T, String>;

/// Read a regexp; its size is its number of states.
///
/// # Errors
///
/// The fault, and its character.
pub fn translate(source: &str, syntax: &Syntax) -> Result<Regexp> {
    let mut parser = IRegexpParser { source: source.chars().collect(), syntax, at: 0 };
    let (text, size) = parser.parse()?;
    Ok(Regexp { expression: format!("\\A(?:{text})\\z").into(), size })
}

/// Brackets that are still open.
#[derive(Default)]
struct IRegexpGroup {
    at: usize,
    text: String,
    states: usize,
    /// The largest product of nested counts inside.
    count: usize,
    /// States and counts of the atom that a quantifier would apply to.
    last: Option<(usize, usize)>,
}

impl IRegexpGroup {
    fn new(at: usize) -> IRegexpGroup {
        IRegexpGroup { at, count: 1, ..IRegexpGroup::default() }
    }

    fn add(&mut self, text: &str, states: usize, count: usize) {
        self.text += text;
        self.states += states;
        self.count = self.count.max(count);
        self.last = Some((states, count));
    }
}

struct IRegexpParser<'s> {
    source: Vec<char>,
    syntax: &'s Syntax,
    at: usize,
}

impl IRegexpParser<'_> {
    fn parse(&mut self) -> Result<(String, usize)> {
        let mut stack = Vec::new();
        let mut group = IRegexpGroup::new(0);
        while let Some(letter) = self.peek() {
            match letter {
                '(' => {
                    if stack.len() + 1 > MAX_DEPTH {
                        return self.fail(format!("brackets nest deeper than {MAX_DEPTH}"));
                    }
                    stack.push(std::mem::replace(&mut group, IRegexpGroup::new(self.at)));
                    self.at += 1;
                }
                ')' => {
                    let Some(outer) = stack.pop() else {
                        return self.fail("')' without '('");
                    };
                    self.at += 1;
                    let inner = std::mem::replace(&mut group, outer);
                    group.add(&format!("(?:{})", inner.text), inner.states.max(1), inner.count);
                }
                '|' => {
                    group.text.push('|');
                    group.states += 1;
                    group.last = None;
                    self.at += 1;
                }
                '*' | '+' | '?' | '{' => self.quantifier(&mut group)?,
                letter => {
                    let (text, states) = self.atom(letter)?;
                    group.add(&text, states, 1);
                }
            }
            if group.states >= MAX_STATES {
                return self.fail(format!("the regexp has more than {MAX_STATES} states"));
            }
        }
        if !stack.is_empty() {
            self.at = group.at;
            return self.fail("'(' without ')'");
        }
        Ok((group.text, group.states + 1))
    }

    fn quantifier(&mut self, group: &mut IRegexpGroup) -> Result<()> {
        let at = self.at;
        let letter = self.source[at];
        let Some((states, count)) = group.last else {
            return self.fail(format!("'{letter}' must follow the part that it repeats"));
        };
        let (text, factor) = if letter == '{' {
            self.range()?
        } else {
            self.at += 1;
            (letter.to_string(), 1)
        };
        if count * factor > MAX_NESTED_COUNT {
            self.at = at;
            return self.fail(format!("nested counts multiply to more than {MAX_NESTED_COUNT}"));
        }
        group.text += &text;
        group.states += states * (factor - 1);
        group.count = group.count.max(count * factor);
        group.last = None;
        Ok(())
    }

    /// Read `{n}`, `{n,}` or `{n,m}`; returns it and by how much it multiplies.
    fn range(&mut self) -> Result<(String, usize)> {
        let at = self.at;
        self.at += 1;
        let low = self.count()?;
        let mut high = Some(low);
        if self.peek() == Some(',') {
            self.at += 1;
            high = if self.peek() == Some('}') { None } else { Some(self.count()?) };
        }
        if self.peek() != Some('}') {
            return self.fail("expected '}' after a count");
        }
        self.at += 1;
        match high {
            Some(high) if high < low => {
                self.at = at;
                self.fail("the upper count is less than the lower one")
            }
            Some(high) => Ok((format!("{{{low},{high}}}"), high.max(1))),
            None => Ok((format!("{{{low},}}"), low.max(1))),
        }
    }

    fn count(&mut self) -> Result<usize> {
        let at = self.at;
        while self.peek().is_some_and(|letter| letter.is_ascii_digit()) {
            self.at += 1;
        }
        if self.at == at {
            return self.fail("expected a count");
        }
        let digits: String = self.source[at..self.at].iter().skip_while(|digit| **digit == '0').collect();
        let most = self.syntax.max_count;
        let count = if digits.is_empty() { Some(0) } else { digits.parse().ok() };
        match count {
            Some(count) if count <= most => Ok(count),
            _ => {
                self.at = at;
                self.fail(format!("a count is at most {most}"))
            }
        }
    }

    fn atom(&mut self, letter: char) -> Result<(String, usize)> {
        if letter == '.' {
            self.at += 1;
            return Ok((self.syntax.any.to_owned(), 1));
        }
        if letter == '[' {
            return self.class();
        }
        if letter == self.syntax.escape {
            if let Some(category) = self.category()? {
                return Ok((category, CATEGORY_STATES));
            }
            return Ok((literal(self.escaped()?), 1));
        }
        if NOT_NORMAL.contains(letter) && !self.syntax.is_plain(letter) {
            return self.fail(format!("'{letter}' must be escaped"));
        }
        self.at += 1;
        Ok((literal(letter), 1))
    }

    /// Read an escape of one character.
    fn escaped(&mut self) -> Result<char> {
        let Some(letter) = self.source.get(self.at + 1).copied() else {
            return self.fail(format!("'{}' at the end", self.syntax.escape));
        };
        let control = match letter {
            'n' => Some('\n'),
            'r' => Some('\r'),
            't' => Some('\t'),
            _ => None,
        };
        if control.is_none() && !ESCAPABLE.contains(letter) && letter != self.syntax.escape {
            return self.fail(format!("unknown escape '{}{letter}'", self.syntax.escape));
        }
        self.at += 2;
        Ok(control.unwrap_or(letter))
    }

    /// Read `p{..}` or `P{..}`, if it is next.
    fn category(&mut self) -> Result<Option<String>> {
        let Some(kind @ ('p' | 'P')) = self.source.get(self.at + 1).copied() else {
            return Ok(None);
        };
        let end = (self.at..self.source.len().min(self.at + 7)).find(|at| self.source[*at] == '}');
        let name: Option<String> = end.and_then(|end| self.source.get(self.at + 3..end)).map(|name| name.iter().collect());
        match (self.source.get(self.at + 2), name, end) {
            (Some('{'), Some(name), Some(end)) if is_category(&name) => {
                self.at = end + 1;
                Ok(Some(format!("\\{kind}{{{name}}}")))
            }
            _ => self.fail(format!("expected a Unicode category, as in '{}p{{Lu}}'", self.syntax.escape)),
        }
    }

    fn class(&mut self) -> Result<(String, usize)> {
        let start = self.at;
        self.at += 1;
        let negated = self.peek() == Some('^');
        self.at += usize::from(negated);
        let mut items = String::new();
        let mut states = 0;
        if self.peek() == Some('-') {
            self.at += 1;
            items += &literal('-');
            states += 1;
        }
        loop {
            match self.peek() {
                None => {
                    self.at = start;
                    return self.fail("'[' without ']'");
                }
                Some(']') => break,
                Some('-') => {
                    if states == 0 || self.source.get(self.at + 1) != Some(&']') {
                        return self.fail("'-' in a class must stand first, last, or between two characters");
                    }
                    self.at += 1;
                    items += &literal('-');
                    states += 1;
                }
                Some(letter) => {
                    let category = if letter == self.syntax.escape { self.category()? } else { None };
                    states += if category.is_some() { CATEGORY_STATES } else { 1 };
                    items += &match category {
                        Some(category) => category,
                        None => self.class_range()?,
                    };
                }
            }
        }
        if states == 0 {
            return self.fail("a class must not be empty");
        }
        self.at += 1;
        Ok((format!("[{}{items}]", if negated { "^" } else { "" }), states))
    }

    fn class_range(&mut self) -> Result<String> {
        let at = self.at;
        let low = self.class_letter()?;
        if self.peek() != Some('-') || matches!(self.source.get(self.at + 1), Some(']') | None) {
            return Ok(literal(low));
        }
        self.at += 1;
        let high = self.class_letter()?;
        if high < low {
            self.at = at;
            return self.fail(format!("the range {low:?} to {high:?} is empty"));
        }
        Ok(format!("{}-{}", literal(low), literal(high)))
    }

    fn class_letter(&mut self) -> Result<char> {
        let Some(letter) = self.peek() else {
            return self.fail("a class does not end");
        };
        if letter == self.syntax.escape {
            return self.escaped();
        }
        if NOT_IN_CLASS.contains(letter) && !self.syntax.is_plain(letter) {
            return self.fail(format!("'{letter}' in a class must be escaped"));
        }
        self.at += 1;
        Ok(letter)
    }

    fn peek(&self) -> Option<char> {
        self.source.get(self.at).copied()
    }

    #[cold]
    fn fail<T>(&self, reason: impl Into<String>) -> Result<T> {
        Err(format!("{}, at character {} of the regexp", reason.into(), self.at))
    }
}

/// Whether *name* is a general category of Unicode in I-Regexp.
fn is_category(name: &str) -> bool {
    const DETAILS: [(char, &str); 7] =
        [('L', "lmotu"), ('M', "cen"), ('N', "dlo"), ('P', "cdefios"), ('S', "ckmo"), ('Z', "lps"), ('C', "cfno")];
    let mut letters = name.chars();
    let Some((_, details)) = letters.next().and_then(|first| DETAILS.iter().find(|(initial, _)| *initial == first)) else {
        return false;
    };
    letters.next().is_none_or(|detail| details.contains(detail)) && letters.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_accepted_compiles() {
        for source in ["", "a|", "(a|b)*", "[a-z]{1,50}", "\\p{L}+", "[^\\p{Cn}x-]", "a{0}", "(){3}", ".", "[&&]", "\\P{C}"] {
            let regexp = translate(source, &Syntax::RFC_9485).unwrap();
            regex_syntax::parse(&regexp.expression).unwrap_or_else(|error| panic!("{source}: {error}"));
        }
        let regexp = translate("~p{L}+\\", &Syntax::QUAMINA).unwrap();
        assert_eq!((&*regexp.expression, regexp.size), ("\\A(?:\\p{L}+\\x{5C})\\z", 102));
    }

    #[test]
    fn what_is_not_an_i_regexp_is_refused() {
        for source in
            ["*", "a**", "(", ")", "[", "[]", "a{2,1}", "a{1001}", "\\d", "\\", "[a--]", "\\p{Xx}", "(a{100}){11}", "a{", "^*"]
        {
            if source != "^*" {
                assert!(translate(source, &Syntax::RFC_9485).is_err(), "{source}");
            }
        }
        assert!(translate("a{100}", &Syntax::QUAMINA).is_err());
        assert!(translate(&"(".repeat(65), &Syntax::RFC_9485).is_err());
    }
}
