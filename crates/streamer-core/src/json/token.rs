//! The tokens of JSON: the end of each, or its error and the offset of it. Offsets of errors are those of
//! `testdata/README.md`.

use super::block::{self, Block16, Block64};
use crate::error::{EventCode, EventError};
use std::borrow::Cow;

/// The error in a text, without allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JsonFault {
    /// Which kind of fault.
    pub code: EventCode,
    /// Byte offset of the error.
    pub offset: usize,
    /// The expectation.
    pub reason: &'static str,
    /// Whether the text ends there.
    is_at_end: bool,
    /// How many levels are allowed, if it is too deep.
    levels: u32,
}

impl JsonFault {
    #[cold]
    pub(crate) fn new(code: EventCode, offset: usize, reason: &'static str) -> JsonFault {
        JsonFault { code, offset, reason, is_at_end: false, levels: 0 }
    }

    #[cold]
    pub(crate) fn malformed(text: &[u8], offset: usize, reason: &'static str) -> JsonFault {
        JsonFault { is_at_end: offset >= text.len(), ..JsonFault::new(EventCode::MalformedJson, offset, reason) }
    }

    #[cold]
    pub(crate) fn too_deep(offset: usize, max_depth: usize) -> JsonFault {
        let levels = u32::try_from(max_depth).unwrap_or(u32::MAX);
        JsonFault { levels, ..JsonFault::new(EventCode::TooDeep, offset, "nested deeper than") }
    }
}

impl From<JsonFault> for EventError {
    fn from(fault: JsonFault) -> EventError {
        let JsonFault { code, offset, reason, is_at_end, levels } = fault;
        match code {
            EventCode::TooDeep => EventError::at(code, offset, format!("{reason} {levels} levels")),
            _ if is_at_end => EventError::at(code, offset, format!("{reason}, but the text ends")),
            _ => EventError::at(code, offset, reason),
        }
    }
}

pub(crate) type Result<T> = std::result::Result<T, JsonFault>;

/// Skip white space. Most often there is none, and one comparison is enough.
#[inline(always)]
pub(crate) fn space(text: &[u8], mut at: usize) -> usize {
    if peek(text, at) > b' ' {
        return at;
    }
    while let Some(b' ' | b'\n' | b'\t' | b'\r') = text.get(at) {
        at += 1;
    }
    at
}

/// The byte at *at*; at the end of the text 0, which is not a token.
#[inline(always)]
pub(crate) fn peek(text: &[u8], at: usize) -> u8 {
    text.get(at).copied().unwrap_or(0)
}

/// Read a string whose opening quote is at *at*. Returns the offset after its closing quote, and whether it has escapes.
#[inline(always)]
pub(crate) fn string(text: &[u8], at: usize) -> Result<(usize, bool)> {
    let at = plain(text, at + 1);
    if peek(text, at) == b'"' { Ok((at + 1, false)) } else { string_with_escapes(text, at).map(|end| (end, true)) }
}

/// Reads one string of a text after the other. It searches 64 bytes at once for the end of a string, for all strings in
/// them.
///
/// The start of the next token is found by a shift and a count, in a third of the time of reading the string's bytes.
#[derive(Debug, Default)]
pub(crate) struct Strings {
    from: usize,
    special: u64,
}

impl Strings {
    /// Do what [`string`] does. The text is the same each time.
    #[inline(always)]
    pub(crate) fn read(&mut self, text: &[u8], at: usize) -> Result<(usize, bool)> {
        let at = self.plain(text, at + 1);
        if peek(text, at) == b'"' { Ok((at + 1, false)) } else { string_with_escapes(text, at).map(|end| (end, true)) }
    }

    #[inline(always)]
    fn plain(&mut self, text: &[u8], at: usize) -> usize {
        let offset = at.wrapping_sub(self.from);
        if offset < 64 && self.special >> offset != 0 {
            return at + (self.special >> offset).trailing_zeros() as usize;
        }
        self.look(text, at)
    }

    #[inline(never)]
    fn look(&mut self, text: &[u8], at: usize) -> usize {
        block::run(Look { strings: self, text, at })
    }
}

struct Look<'s, 't> {
    strings: &'s mut Strings,
    text: &'t [u8],
    at: usize,
}

impl block::Loop for Look<'_, '_> {
    type Output = usize;

    #[inline(always)]
    fn run<B: Block64>(self) -> usize {
        let Look { strings, text, mut at } = self;
        while let Some(bytes) = text.get(at..at + 64) {
            let special = B::new(bytes.try_into().expect("64 bytes")).special();
            (strings.from, strings.special) = (at, special);
            if special != 0 {
                return at + special.trailing_zeros() as usize;
            }
            at += 64;
        }
        plain(text, at)
    }
}

/// The first quote, backslash or control character from *at* on, or the end of the text.
#[inline(always)]
fn plain(text: &[u8], mut at: usize) -> usize {
    while let Some(block) = text.get(at..at + 16) {
        let special = Block16::new(block.try_into().expect("16 bytes")).special();
        if special != 0 {
            return at + special.trailing_zeros() as usize;
        }
        at += 16;
    }
    while at < text.len() && text[at] != b'"' && text[at] != b'\\' && text[at] >= 0x20 {
        at += 1;
    }
    at
}

#[cold]
fn string_with_escapes(text: &[u8], mut at: usize) -> Result<usize> {
    loop {
        match text.get(at) {
            None => return Err(JsonFault::malformed(text, at, "the string does not end")),
            Some(b'"') => return Ok(at + 1),
            Some(b'\\') => at = plain(text, escape(text, at)?),
            Some(_) => return Err(JsonFault::malformed(text, at, "a control character in a string must be escaped")),
        }
    }
}

/// Check the escape that begins at *at*; returns the offset after it.
fn escape(text: &[u8], at: usize) -> Result<usize> {
    match text.get(at + 1) {
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(at + 2),
        Some(b'u') => {
            let unit = four_digits(text, at + 2)
                .map_err(|offset| JsonFault::malformed(text, offset, "expected four hexadecimal digits"))?;
            if !(0xd800..0xe000).contains(&unit) {
                return Ok(at + 6);
            }
            match low_surrogate(text, at + 6) {
                Some(_) if unit < 0xdc00 => Ok(at + 12),
                _ => Err(JsonFault::new(EventCode::LoneSurrogate, at, "half of a surrogate pair")),
            }
        }
        _ => Err(JsonFault::malformed(text, at + 1, "unknown escape in a string")),
    }
}

/// The value of four hexadecimal digits at *at*, or the offset of a character that is not a digit.
fn four_digits(text: &[u8], at: usize) -> std::result::Result<u32, usize> {
    (at..at + 4).try_fold(0, |unit, at| match text.get(at).and_then(|byte| (*byte as char).to_digit(16)) {
        Some(digit) => Ok(unit << 4 | digit),
        None => Err(at),
    })
}

fn low_surrogate(text: &[u8], at: usize) -> Option<u32> {
    if text.get(at..at + 2)? != b"\\u" {
        return None;
    }
    four_digits(text, at + 2).ok().filter(|unit| (0xdc00..0xe000).contains(unit))
}

/// The plain text of the inside of a string that [`string`] has accepted.
pub(crate) fn unescaped(inside: &[u8]) -> Cow<'_, [u8]> {
    if memchr::memchr(b'\\', inside).is_none() {
        return Cow::Borrowed(inside);
    }
    let mut plain = Vec::with_capacity(inside.len());
    unescape(inside, &mut plain);
    Cow::Owned(plain)
}

/// Append the plain text of the inside of a string that [`string`] has accepted.
pub(crate) fn unescape(inside: &[u8], plain: &mut Vec<u8>) {
    let mut rest = inside;
    while let Some(at) = rest.iter().position(|byte| *byte == b'\\') {
        plain.extend_from_slice(&rest[..at]);
        let (char, length) = match rest[at + 1] {
            b'b' => ('\u{8}', 2),
            b'f' => ('\u{c}', 2),
            b'n' => ('\n', 2),
            b'r' => ('\r', 2),
            b't' => ('\t', 2),
            b'u' => {
                let unit = four_digits(rest, at + 2).unwrap_or(0xfffd);
                match low_surrogate(rest, at + 6) {
                    Some(low) if (0xd800..0xdc00).contains(&unit) => {
                        (char::from_u32(0x1_0000 + ((unit - 0xd800) << 10) + (low - 0xdc00)).unwrap_or('\u{fffd}'), 12)
                    }
                    _ => (char::from_u32(unit).unwrap_or('\u{fffd}'), 6),
                }
            }
            other => (other as char, 2),
        };
        plain.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
        rest = &rest[at + length..];
    }
    plain.extend_from_slice(rest);
}

/// Skip the short elements of a list that repeat the one before, each with its comma: that one begins at *start*, and the
/// next one at *at*. Returns the offset of the last repetition, which may end differently, and how many were skipped.
#[inline(always)]
pub(crate) fn repetitions(text: &[u8], start: usize, mut at: usize) -> (usize, usize) {
    let word = |at: usize| text.get(at..at + 8).map(|bytes| u64::from_le_bytes(bytes.try_into().expect("8 bytes")));
    let length = at - start;
    let Some(first) = (length <= 8).then(|| word(start)).flatten() else { return (at, 0) };
    let (mask, from) = (u64::MAX >> (64 - 8 * length), at);
    while word(at).is_some_and(|next| (next ^ first) & mask == 0) {
        at += length;
    }
    let count = (at - from) / length;
    // The next one may follow other spaces than those before did.
    (space(text, at), count)
}

/// Read a number that begins at *at*. Returns the offset after it, and whether it may be beyond float64.
#[inline(always)]
pub(crate) fn number(text: &[u8], start: usize) -> Result<(usize, bool)> {
    let digit = |at: usize| peek(text, at).wrapping_sub(b'0') < 10;
    let mut at = start + usize::from(peek(text, start) == b'-');
    if peek(text, at) == b'0' {
        at += 1;
    } else {
        if !digit(at) {
            return Err(expected_digit(text, at));
        }
        at = digits(text, at + 1);
    }
    let mut beyond = at - start > 300;
    if peek(text, at) == b'.' {
        if !digit(at + 1) {
            return Err(expected_digit(text, at + 1));
        }
        at = digits(text, at + 2);
    }
    if let b'e' | b'E' = peek(text, at) {
        beyond = true;
        at += 1;
        if let b'+' | b'-' = peek(text, at) {
            at += 1;
        }
        if !digit(at) {
            return Err(expected_digit(text, at));
        }
        at = digits(text, at + 1);
    }
    Ok((at, beyond))
}

#[inline(always)]
fn digits(text: &[u8], mut at: usize) -> usize {
    while peek(text, at).wrapping_sub(b'0') < 10 {
        at += 1;
    }
    at
}

#[cold]
fn expected_digit(text: &[u8], at: usize) -> JsonFault {
    JsonFault::malformed(text, at, "expected a digit")
}

/// Read `true`, `false` or `null`; any other text at *at* is an error.
#[inline(always)]
pub(crate) fn literal(text: &[u8], at: usize) -> Result<usize> {
    let (word, reason): (&[u8], _) = match peek(text, at) {
        b't' => (b"true", "expected 'true'"),
        b'f' => (b"false", "expected 'false'"),
        b'n' => (b"null", "expected 'null'"),
        _ => return Err(JsonFault::malformed(text, at, "expected a value")),
    };
    if text[at..].starts_with(word) {
        return Ok(at + word.len());
    }
    let same = text[at..].iter().zip(word).take_while(|(one, other)| one == other).count();
    Err(JsonFault::malformed(text, at + same, reason))
}

#[cold]
pub(crate) fn expected_name(text: &[u8], at: usize) -> JsonFault {
    JsonFault::malformed(text, at, "expected a member name in double quotes")
}

#[cold]
pub(crate) fn expected_colon(text: &[u8], at: usize) -> JsonFault {
    JsonFault::malformed(text, at, "expected ':'")
}

#[cold]
pub(crate) fn expected_more(text: &[u8], at: usize, in_object: bool) -> JsonFault {
    JsonFault::malformed(text, at, if in_object { "expected ',' or '}'" } else { "expected ',' or ']'" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::automaton::testing::Dice;

    #[test]
    fn strings_are_read_one_after_the_other_as_by_themselves() {
        let mut dice = Dice::new(31);
        for _ in 0..500 {
            let mut text = String::new();
            while text.len() < 300 {
                text.push_str(dice.pick::<&str>(&[
                    "a",
                    "\"",
                    "\\n",
                    "\\u00e9",
                    "é",
                    " ",
                    "\u{1}",
                    "0123456789abcdef",
                    "\":\"",
                    "\",\"",
                ]));
            }
            let text = text.as_bytes();
            let mut strings = Strings::default();
            // A pass may go back: an element of an array may be read twice.
            let mut at = 0;
            while at < text.len() {
                assert_eq!(strings.read(text, at), string(text, at), "{at} of {}", String::from_utf8_lossy(text));
                at = if dice.chance(2) { dice.below(at as u64 + 1) as usize } else { at + 1 + dice.below(9) as usize };
            }
        }
    }
}
