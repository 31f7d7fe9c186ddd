//! The regular expressions of the filter `matches`: RE2's syntax and meaning, translated to the syntax of
//! `regex-syntax`.
//!
//! If the two differ, RE2's meaning is spelled out: `\d`, `\s`, `\w`, `\b` and `[[:alpha:]]` are ASCII, classes have no
//! set operators, a `{` that does not begin a count is a character. Groups do not capture here and laziness is dropped,
//! since the only question is whether the expression is found. Everything that RE2 refuses is refused: `a**`, back
//! references, look-around, counts past 1,000 or whose product is. `\C` is a single byte, so that an expression may
//! match a part of a character.

use super::classes::{posix, property};
use super::depth::{MAX_LEVELS, with_stack_for};
use super::size::size;
use super::{Regexp, literal};

const MAX_COUNT: usize = 1000;

type Result<T> = std::result::Result<T, String>;

/// Read an expression of RE2.
///
/// # Errors
///
/// Its fault.
pub fn translate(source: &str) -> Result<Regexp> {
    let expression = Re2Parser { source: source.chars().collect(), at: 0, names: Vec::new(), text: String::new() }.parse()?;
    with_stack_for(&expression, || hir(&expression).map(drop))?; // finds the remaining errors: names of scripts
    Ok(Regexp { expression: expression.into(), size: size(source) })
}

/// Parse an expression of this module or of [`super::i_regexp`]; it may match single bytes. Use [`with_stack_for`] for
/// a function that recurses over it.
///
/// # Errors
///
/// Its fault.
pub fn hir(expression: &str) -> Result<regex_syntax::hir::Hir> {
    regex_syntax::ParserBuilder::new().utf8(false).nest_limit(MAX_LEVELS).build().parse(expression).map_err(|error| match error {
        regex_syntax::Error::Parse(error) => error.kind().to_string(),
        regex_syntax::Error::Translate(error) => error.kind().to_string(),
        _ => "cannot be compiled".to_owned(),
    })
}

struct Re2Parser {
    source: Vec<char>,
    at: usize,
    names: Vec<String>,
    /// The output so far, of all groups.
    text: String,
}

/// Brackets that are still open.
#[derive(Default)]
struct Re2Group {
    /// The offset of its opening bracket in the output.
    opening: usize,
    /// The product of nested counts of the last item, to which a quantifier would apply; None: there is no item to
    /// repeat.
    last: Option<usize>,
    /// The largest product of nested counts inside.
    count: usize,
    /// Whether the last item was a quantifier: another one right there is refused.
    quantified: bool,
    /// The offset of the last item in the output, and how many quantifiers it has.
    start: usize,
    quantifiers: usize,
    /// Flags set since the last item, for the next ones; a quantifier still applies to the item before them.
    flags: String,
}

impl Re2Group {
    fn new(opening: usize) -> Re2Group {
        Re2Group { opening, count: 1, ..Re2Group::default() }
    }

    /// Make the output from *start* on the last item.
    fn ends_with(&mut self, start: usize, count: usize) {
        self.start = start;
        self.quantifiers = 0;
        self.count = self.count.max(count);
        self.last = Some(count);
        self.quantified = false;
    }
}

impl Re2Parser {
    fn parse(mut self) -> Result<String> {
        let mut stack: Vec<Re2Group> = Vec::new();
        let mut group = Re2Group::new(0);
        while let Some(letter) = self.peek(0) {
            match letter {
                '(' => {
                    let flags = self.open()?;
                    match flags {
                        Opening::Flags(flags) => {
                            group.flags += &flags;
                            group.quantified = false;
                        }
                        Opening::Group(opening) => {
                            self.text += &std::mem::take(&mut group.flags);
                            let inner = Re2Group::new(self.text.len());
                            self.text += &opening;
                            stack.push(std::mem::replace(&mut group, inner));
                        }
                    }
                }
                ')' => {
                    let Some(outer) = stack.pop() else {
                        return Err("unexpected )".into());
                    };
                    self.at += 1;
                    self.text.push(')');
                    let inner = std::mem::replace(&mut group, outer);
                    group.ends_with(inner.opening, inner.count);
                }
                '|' => {
                    self.at += 1;
                    self.text += &std::mem::take(&mut group.flags);
                    self.text.push('|');
                    group.last = None;
                    group.quantified = false;
                }
                '*' | '+' | '?' => {
                    self.at += 1;
                    self.quantify(&mut group, &letter.to_string(), 1)?;
                }
                '{' => match self.count() {
                    Some((text, low, high)) => {
                        if low > MAX_COUNT || high.is_some_and(|high| high > MAX_COUNT || high < low) {
                            return Err("bad repetition operator".into());
                        }
                        self.quantify(&mut group, &text, high.unwrap_or(low).max(1))?;
                    }
                    None => {
                        self.at += 1;
                        self.add(&mut group, "\\{");
                    }
                },
                '[' => {
                    let class = self.class()?;
                    self.add(&mut group, &class);
                }
                '\\' if self.peek(1) == Some('Q') => self.quoted(&mut group),
                '\\' => {
                    let text = self.escape()?;
                    self.add(&mut group, &text);
                }
                '.' | '^' | '$' => {
                    self.at += 1;
                    self.add(&mut group, &letter.to_string());
                }
                letter => {
                    self.at += 1;
                    self.add(&mut group, &literal(letter));
                }
            }
        }
        if !stack.is_empty() {
            return Err("missing closing )".into());
        }
        Ok(self.text)
    }

    fn add(&mut self, group: &mut Re2Group, text: &str) {
        self.text += &std::mem::take(&mut group.flags);
        group.ends_with(self.text.len(), 1);
        self.text += text;
    }

    /// Read `\Q..\E`, in which every character is literal, or up to the end.
    fn quoted(&mut self, group: &mut Re2Group) {
        self.at += 2;
        group.quantified = false;
        while let Some(letter) = self.peek(0) {
            if letter == '\\' && self.peek(1) == Some('E') {
                self.at += 2;
                return;
            }
            self.at += 1;
            self.add(group, &literal(letter));
        }
    }

    fn quantify(&mut self, group: &mut Re2Group, operator: &str, factor: usize) -> Result<()> {
        let Some(count) = group.last else {
            return Err("no argument for repetition operator".into());
        };
        if group.quantified {
            return Err("bad repetition operator".into());
        }
        if self.peek(0) == Some('?') {
            self.at += 1; // lazy
        }
        let count = count * factor;
        if count > MAX_COUNT {
            return Err("bad repetition operator: counts multiply to more than 1000".into());
        }
        if group.quantifiers > 0 {
            // After flags. Side by side the two would mean something else.
            self.text.insert_str(group.start, "(?:");
            self.text.push(')');
        }
        group.quantifiers += 1;
        self.text += operator;
        group.count = group.count.max(count);
        group.last = Some(count);
        group.quantified = true;
        Ok(())
    }

    /// Read `{n}`, `{n,}` or `{n,m}`; any other text is not a count.
    fn count(&mut self) -> Option<(String, usize, Option<usize>)> {
        let end = (self.at + 1..self.source.len()).find(|at| !matches!(self.source[*at], '0'..='9' | ','))?;
        if self.source[end] != '}' {
            return None;
        }
        let inside: String = self.source[self.at + 1..end].iter().collect();
        // A count beyond any integer type is as bad as one past the limit.
        let number = |digits: &str| digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().unwrap_or(usize::MAX));
        let (low, high) = match inside.split_once(',') {
            None => (number(&inside)?, None),
            Some((low, "")) => (number(low)?, None),
            Some((low, high)) => (number(low)?, Some(number(high)?)),
        };
        if inside.starts_with(',') || inside.is_empty() {
            return None;
        }
        self.at = end + 1;
        let text = match (inside.contains(','), high) {
            (false, _) => format!("{{{low}}}"),
            (true, None) => format!("{{{low},}}"),
            (true, Some(high)) => format!("{{{low},{high}}}"),
        };
        Some((text, low, high))
    }

    /// Read the part after a `(`.
    fn open(&mut self) -> Result<Opening> {
        self.at += 1;
        if self.peek(0) != Some('?') {
            return Ok(Opening::Group("(?:".into()));
        }
        self.at += 1;
        if self.peek(0) == Some('P') || (self.peek(0) == Some('<') && !matches!(self.peek(1), Some('=' | '!'))) {
            self.at += usize::from(self.peek(0) == Some('P'));
            let end = (self.at..self.source.len()).find(|at| self.source[*at] == '>');
            let name: String = match (self.peek(0), end) {
                (Some('<'), Some(end)) => self.source[self.at + 1..end].iter().collect(),
                _ => return Err("invalid named capture group".into()),
            };
            let valid = !name.is_empty() && name.chars().all(|letter| letter == '_' || letter.is_alphanumeric());
            if !valid || self.names.contains(&name) {
                return Err(format!("invalid or duplicate capture group name: {name}"));
            }
            self.at += name.chars().count() + 2;
            self.names.push(name);
            return Ok(Opening::Group("(?:".into()));
        }
        // Flags: greed (U) does not matter, i, m and s mean the same.
        let (mut on, mut off) = (String::new(), String::new());
        let (mut negated, mut any) = (false, false);
        loop {
            let letter = self.peek(0);
            self.at += 1;
            match letter {
                Some(flag @ ('i' | 'm' | 's' | 'U')) => {
                    any = true;
                    if flag == 'U' {
                        continue;
                    }
                    let (to, other) = if negated { (&mut off, &mut on) } else { (&mut on, &mut off) };
                    other.retain(|letter| letter != flag);
                    if !to.contains(flag) {
                        to.push(flag);
                    }
                }
                Some('-') if !negated => {
                    negated = true;
                    any = false;
                }
                Some(end @ (':' | ')')) if any || !negated => {
                    let flags = if off.is_empty() { on } else { format!("{on}-{off}") };
                    return Ok(match (end, flags.is_empty()) {
                        (':', _) => Opening::Group(format!("(?{flags}:")),
                        (_, true) => Opening::Flags(String::new()),
                        _ => Opening::Flags(format!("(?{flags})")),
                    });
                }
                None => return Err("missing closing )".into()),
                Some(_) => return Err("invalid perl operator: (?".into()),
            }
        }
    }

    /// Read an escape outside of a class.
    fn escape(&mut self) -> Result<String> {
        match self.peek(1) {
            None => Err("trailing \\ at end of regexp".into()),
            Some('A') => self.consume("\\A"),
            Some('z') => self.consume("\\z"),
            Some('b') => self.consume("(?-u:\\b)"),
            Some('B') => self.consume("(?-u:\\B)"),
            Some('C') => self.consume("(?s-u:.)"),
            Some(_) => match self.group()? {
                Some(items) => Ok(format!("[{items}]")),
                None => Ok(literal(self.escaped()?)),
            },
        }
    }

    fn consume(&mut self, text: &str) -> Result<String> {
        self.at += 2;
        Ok(text.into())
    }

    /// Read `\d` and the like, or `\p`, if they are next; return items of a class.
    fn group(&mut self) -> Result<Option<String>> {
        let items = match self.peek(1) {
            Some('d') => "0-9",
            Some('D') => "[^0-9]",
            Some('s') => "\\t\\n\\x{C}\\r\\x{20}",
            Some('S') => "[^\\t\\n\\x{C}\\r\\x{20}]",
            Some('w') => "0-9A-Za-z_",
            Some('W') => "[^0-9A-Za-z_]",
            Some('p' | 'P') => return self.property().map(Some),
            _ => return Ok(None),
        };
        self.at += 2;
        Ok(Some(items.into()))
    }

    fn property(&mut self) -> Result<String> {
        let mut negated = self.peek(1) == Some('P');
        let name: String = if self.peek(2) == Some('{') {
            let Some(end) = (self.at + 3..self.source.len()).find(|at| self.source[*at] == '}') else {
                return Err("invalid character class range: \\p{".into());
            };
            let name = self.source[self.at + 3..end].iter().collect();
            self.at = end + 1;
            name
        } else {
            let Some(letter) = self.peek(2) else {
                return Err("invalid character class range: \\p".into());
            };
            self.at += 3;
            letter.into()
        };
        let plain = name.strip_prefix('^').inspect(|_| negated = !negated).unwrap_or(&name);
        property(plain, negated)
    }

    /// Read an escape of one character.
    fn escaped(&mut self) -> Result<char> {
        let Some(letter) = self.peek(1) else {
            return Err("trailing \\ at end of regexp".into());
        };
        let bad = || Err(format!("invalid escape sequence: \\{letter}"));
        self.at += 2;
        match letter {
            '1'..='7' if !matches!(self.peek(0), Some('0'..='7')) => bad(),
            '0'..='7' => {
                let mut code = letter.to_digit(8).unwrap_or_default();
                for _ in 0..2 {
                    let Some(digit) = self.peek(0).and_then(|letter| letter.to_digit(8)) else { break };
                    self.at += 1;
                    code = code * 8 + digit;
                }
                char::from_u32(code).map_or_else(bad, Ok)
            }
            'x' => {
                let digits: String = if self.peek(0) == Some('{') {
                    let Some(end) = (self.at..self.source.len()).find(|at| self.source[*at] == '}') else { return bad() };
                    let digits = self.source[self.at + 1..end].iter().collect();
                    self.at = end + 1;
                    digits
                } else {
                    let digits = self.source.get(self.at..self.at + 2).map(|digits| digits.iter().collect());
                    self.at += 2;
                    match digits {
                        Some(digits) => digits,
                        None => return bad(),
                    }
                };
                let hexadecimal = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
                let code = if hexadecimal { u32::from_str_radix(digits.trim_start_matches('0'), 16).ok() } else { None };
                let code = if hexadecimal && digits.bytes().all(|digit| digit == b'0') { Some(0) } else { code };
                code.and_then(char::from_u32).map_or_else(bad, Ok)
            }
            'a' => Ok('\u{7}'),
            'f' => Ok('\u{c}'),
            'n' => Ok('\n'),
            'r' => Ok('\r'),
            't' => Ok('\t'),
            'v' => Ok('\u{b}'),
            letter if letter.is_ascii() && !letter.is_ascii_alphanumeric() => Ok(letter),
            _ => bad(),
        }
    }

    fn class(&mut self) -> Result<String> {
        const MISSING: &str = "missing closing ]";
        self.at += 1;
        let negated = self.peek(0) == Some('^');
        self.at += usize::from(negated);
        let mut items = String::new();
        let mut first = true;
        loop {
            let Some(letter) = self.peek(0) else {
                return Err(MISSING.into());
            };
            if letter == ']' && !first {
                break;
            }
            first = false;
            if letter == '['
                && self.peek(1) == Some(':')
                && let Some(name) = self.posix()?
            {
                items += name;
                continue;
            }
            if letter == '\\'
                && let Some(group) = self.group()?
            {
                items += &group;
                continue;
            }
            let low = self.class_letter()?;
            if self.peek(0) == Some('-') && !matches!(self.peek(1), Some(']') | None) {
                self.at += 1;
                let high = self.class_letter()?;
                if high < low {
                    return Err("invalid character class range".into());
                }
                items += &format!("{}-{}", literal(low), literal(high));
            } else {
                items += &literal(low);
            }
        }
        self.at += 1;
        Ok(format!("[{}{items}]", if negated { "^" } else { "" }))
    }

    fn class_letter(&mut self) -> Result<char> {
        match self.peek(0) {
            Some('\\') => self.escaped(),
            Some(letter) => {
                self.at += 1;
                Ok(letter)
            }
            None => Err("missing closing ]".into()),
        }
    }

    /// Read `[:alpha:]` and the like, if it is next.
    fn posix(&mut self) -> Result<Option<&'static str>> {
        let Some(end) = (self.at + 2..self.source.len().saturating_sub(1)).find(|at| self.source[*at..*at + 2] == [':', ']'])
        else {
            return Ok(None);
        };
        let name: String = self.source[self.at + 2..end].iter().collect();
        let class = posix(&name).ok_or_else(|| format!("invalid character class range: [:{name}:]"))?;
        self.at = end + 2;
        Ok(Some(class))
    }

    fn peek(&self, ahead: usize) -> Option<char> {
        self.source.get(self.at + ahead).copied()
    }
}

enum Opening {
    /// A group that must be closed.
    Group(String),
    /// Flags for the rest of this group.
    Flags(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(expression: &str, text: &str) -> bool {
        let regexp = translate(expression).unwrap_or_else(|error| panic!("{expression}: {error}"));
        crate::regexps::CompiledRegexp::compile(&regexp).unwrap().is_match(text)
    }

    #[test]
    fn classes_are_ascii_and_have_no_operators() {
        for (expression, text, expected) in [
            (r"^\d$", "٣", false),
            (r"^\w$", "é", false),
            (r"^\W$", "é", true),
            (r"^\s$", "\u{b}", false),
            (r"^[[:space:]]$", "\u{b}", true),
            (r"^[a-z&&[aeiou]]$", "b]", true),
            (r"^[a-z&&[aeiou]]$", "&]", true),
            (r"^[]a]$", "]", true),
            (r"^[^]a]$", "]", false),
            (r"^[\D]$", "x", true),
            (r"^\pL$", "é", true),
            (r"^\p{Greek}$", "λ", true),
            (r"^\p{^Greek}$", "λ", false),
            (r"(?i)^k$", "\u{212a}", true),
            (r"a{,2}", "a{,2}", true),
            (r"^a{2}$", "aa", true),
            (r"\Q*[\E+", "*[[", true),
            (r"^\x{e9}\x41\101$", "éAA", true),
            (r"\bcafe\b", "cafeé", true),
            (r"^$", "\n", false),
            (r"a$", "a\n", false),
            (r"(?m)a$", "a\nb", true),
            (r"^.$", "\n", false),
            (r"(?s)^.$", "\n", true),
            (r"(?P<x>a)(?<y>b)", "ab", true),
            (r"^[a-]$", "-", true),
            (r"^[\d-z]$", "-", true),
            (r"^a(?i)*B$", "aab", true),
            (r"^a+(?i)?$", "", true),
            (r"^(?:ab){2}(?i)?$", "", true),
            (r"\ ", " ", true),
            (r"\B", "aλb", true),
            (r"^\Qab\E*$", "abb", true),
            (r"a*?b", "b", true),
            (r"^\C\C$", "é", true),
            (r"^a(?i)B$", "ab", true),
            (r"^(?i:A)b$", "aB", false),
            ("", "", true),
            ("|a", "", true),
        ] {
            assert_eq!(found(expression, text), expected, "{expression} {text}");
        }
    }

    #[test]
    fn what_nests_thousands_of_levels_deep_is_read_and_found() {
        let nested = |open: &str, inside: &str, close: &str, levels: usize| open.repeat(levels) + inside + &close.repeat(levels);
        for (expression, text, expected) in [
            (nested("(", "a", ")", 8000), "a", true),
            (nested("(", "a", "b)*", 3000) + "$", "c", true),
            (format!("^{}$", nested("(", "a", "|b)+", 3000)), "c", false),
            (format!("^{}$", nested("(a", "", ")?", 4000)), "aaaa", true),
            (format!("^a{}$", "*(?i)".repeat(3000)), "aaa", true),
        ] {
            assert_eq!(found(&expression, text), expected, "{}", &expression[..20]);
        }
    }

    #[test]
    fn what_re2_refuses_is_refused() {
        for expression in [
            "a**",
            "a*+",
            "(",
            ")",
            "[a",
            "[z-a]",
            r"\1",
            r"\8",
            r"\Z",
            "(?=a)",
            "(?<=a)",
            "(?<!a)",
            "a{1001}",
            "(a{100}){100}",
            r"\pX",
            r"\p{Nope}",
            r"\p{greek}",
            "(?P<a>x)(?P<a>y)",
            "(?z)",
            "\\",
            "*",
            "x{2,1}",
            r"[[:nope:]]",
            r"\i",
            r"[a-\d]",
            "(?i",
        ] {
            assert!(translate(expression).is_err(), "{expression}");
        }
    }
}
