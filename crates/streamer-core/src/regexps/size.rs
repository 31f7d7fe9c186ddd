//! How large regexps are, as the base of cost units.

/// The size of a regexp that cost units are counted by (docs/cel-cost.md), computed from only its text, as in the
/// reference. About the states that a text may keep alive at once.
pub(crate) fn size(text: &str) -> usize {
    Sizes { text: text.chars().collect(), at: 0 }.size()
}

/// The largest size.
const MAX_SIZE: usize = 1_000_000;
const NAMED_CLASS: usize = 64;

struct Sizes {
    text: Vec<char>,
    at: usize,
}

impl Sizes {
    fn size(&mut self) -> usize {
        // For each open bracket the size of its content so far, and of the last item in it, which a count would repeat.
        let mut groups: Vec<(usize, usize)> = Vec::new();
        let mut inner = (0_usize, 0_usize);
        while let Some(letter) = self.peek(0) {
            match letter {
                '(' => {
                    self.at += 1;
                    groups.push(std::mem::take(&mut inner));
                    continue;
                }
                ')' if !groups.is_empty() => {
                    self.at += 1;
                    let once = inner.0.max(1);
                    inner = groups.pop().unwrap_or_default();
                    inner = ((inner.0 + once).min(MAX_SIZE), once);
                    continue;
                }
                '*' | '+' | '?' => {
                    self.at += 1;
                    continue;
                }
                '{' => {
                    if let Some(factor) = self.count() {
                        let (sum, last) = inner;
                        let repeated = (last * factor).min(MAX_SIZE);
                        inner = ((sum + repeated - last).min(MAX_SIZE), repeated);
                        continue;
                    }
                }
                '\\' if self.peek(1) == Some('Q') => {
                    self.quoted(&mut inner);
                    continue;
                }
                _ => {}
            }
            let one = match letter {
                '\\' => self.escape(),
                '[' => self.class(),
                _ => {
                    self.at += 1;
                    1
                }
            };
            inner = ((inner.0 + one).min(MAX_SIZE), if letter == '|' { 0 } else { one });
        }
        groups.iter().fold(inner.0, |sum, (once, _)| (sum + once).min(MAX_SIZE)) + 1
    }

    /// The factor of `{n}`, `{n,}` or `{n,m}`, if it is next.
    fn count(&mut self) -> Option<usize> {
        let mut at = self.at + 1;
        let number = |at: &mut usize| {
            let start = *at;
            let mut value = 0_usize;
            while let Some(digit) = self.text.get(*at).and_then(|letter| letter.to_digit(10)) {
                value = (value * 10 + digit as usize).min(MAX_SIZE);
                *at += 1;
            }
            (*at > start).then_some(value)
        };
        let mut factor = number(&mut at)?;
        if self.text.get(at) == Some(&',') {
            at += 1;
            factor = number(&mut at).unwrap_or(factor);
        }
        if self.text.get(at) != Some(&'}') {
            return None;
        }
        self.at = at + 1;
        Some(factor.max(1))
    }

    /// `\Q..\E`, or to the end: each character is one.
    fn quoted(&mut self, inner: &mut (usize, usize)) {
        self.at += 2;
        while let Some(letter) = self.peek(0) {
            if letter == '\\' && self.peek(1) == Some('E') {
                self.at += 2;
                return;
            }
            self.at += 1;
            *inner = ((inner.0 + 1).min(MAX_SIZE), 1);
        }
    }

    /// `\pL`, `\p{Greek}`, `\x{e9}`, or a backslash and the next character.
    fn escape(&mut self) -> usize {
        let letter = self.peek(1);
        let is_named = matches!(letter, Some('p' | 'P'));
        self.at += 2;
        if is_named || letter == Some('x') {
            if self.peek(0) == Some('{') {
                self.at = (self.at..self.text.len()).find(|at| self.text[*at] == '}').map_or(self.text.len(), |at| at + 1);
            } else if is_named {
                self.at += 1;
            }
        }
        if is_named { NAMED_CLASS } else { 1 }
    }

    /// `[..]`: each character, escape or class in it is one, by name 64; at least one.
    fn class(&mut self) -> usize {
        self.at += 1;
        if self.peek(0) == Some('^') {
            self.at += 1;
        }
        let mut size = 0;
        let start = self.at;
        while let Some(letter) = self.peek(0) {
            if letter == ']' && self.at > start {
                self.at += 1;
                break;
            }
            size += match letter {
                '\\' => self.escape(),
                '[' if self.peek(1) == Some(':') => {
                    let end = (self.at + 2..self.text.len().saturating_sub(1)).find(|at| self.text[*at..*at + 2] == [':', ']']);
                    self.at = end.map_or(self.at + 1, |end| end + 2);
                    1
                }
                _ => {
                    self.at += 1;
                    1
                }
            };
        }
        size.clamp(1, MAX_SIZE)
    }

    fn peek(&self, ahead: usize) -> Option<char> {
        self.text.get(self.at + ahead).copied()
    }
}
