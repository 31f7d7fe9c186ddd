//! The values of literals.

use super::ast::Constant;
use super::error::{Error, is_printable};
use super::lexer::Quotes;

/// The distance of an int literal from 0; `None` if it is past 64 bits.
pub(super) fn magnitude(text: &str) -> Option<u64> {
    let (digits, radix) = text.strip_prefix("0x").map_or((text, 10), |digits| (digits, 16));
    u64::from_str_radix(digits, radix).ok()
}

/// The value of a string literal, whose text is *text* and which begins at *at* of *source*.
///
/// # Errors
///
/// An unknown escape, at its place.
pub(super) fn string(source: &str, at: u32, text: &str, quotes: Quotes) -> Result<Constant, Error> {
    let inner = &text[usize::from(quotes.opening)..text.len() - usize::from(quotes.closing)];
    if quotes.raw || !inner.contains('\\') {
        return Ok(if quotes.bytes { Constant::Bytes(inner.as_bytes().into()) } else { Constant::String(inner.into()) });
    }
    let mut octets = Vec::with_capacity(inner.len());
    let mut rest = inner;
    while let Some(backslash) = rest.find('\\') {
        octets.extend_from_slice(&rest.as_bytes()[..backslash]);
        rest = &rest[backslash..];
        let (length, meaning) = escape(rest, quotes.bytes);
        let Some(meaning) = meaning else {
            let offset = at + (usize::from(quotes.opening) + inner.len() - rest.len()) as u32;
            let kind = if quotes.bytes { "bytes" } else { "string" };
            let reason = format!("`{}` is not an escape sequence of a CEL {kind} literal", written(&rest[..length]));
            return Err(Error::at(source, offset, reason));
        };
        match meaning {
            Escaped::Octet(octet) => octets.push(octet),
            Escaped::Letter(letter) => octets.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes()),
        }
        rest = &rest[length..];
    }
    octets.extend_from_slice(rest.as_bytes());
    if quotes.bytes {
        return Ok(Constant::Bytes(octets.into()));
    }
    // It consists of whole characters, so it is UTF-8.
    Ok(Constant::String(String::from_utf8(octets).unwrap_or_default().into()))
}

enum Escaped {
    Octet(u8),
    Letter(char),
}

/// The length of the escape at the beginning of *text*, and its meaning, if any.
fn escape(text: &str, binary: bool) -> (usize, Option<Escaped>) {
    let bytes = text.as_bytes();
    let number = |from: usize, count: usize, radix: u32| {
        let digits = bytes.get(from..from + count)?;
        let digits = std::str::from_utf8(digits).ok().filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))?;
        u32::from_str_radix(digits, radix).ok()
    };
    let letter = text[1..].chars().next();
    let coded = match letter {
        Some('x' | 'X') => number(2, 2, 16).map(|code| (4, code)),
        Some('u') => number(2, 4, 16).map(|code| (6, code)),
        Some('U') => number(2, 8, 16).map(|code| (10, code)),
        Some('0'..='3') => number(1, 3, 8).map(|code| (4, code)),
        _ => None,
    };
    if let Some((length, code)) = coded {
        let meaning = match (binary, length) {
            (true, 4) => Some(Escaped::Octet(code as u8)),
            (true, _) => None,
            (false, _) => char::from_u32(code).map(Escaped::Letter),
        };
        return (length, meaning);
    }
    let meaning = match letter {
        Some('a') => Some('\x07'),
        Some('b') => Some('\x08'),
        Some('f') => Some('\x0c'),
        Some('n') => Some('\n'),
        Some('r') => Some('\r'),
        Some('t') => Some('\t'),
        Some('v') => Some('\x0b'),
        Some(itself @ ('\\' | '?' | '"' | '\'' | '`')) => Some(itself),
        _ => None,
    };
    (1 + letter.map_or(0, char::len_utf8), meaning.map(Escaped::Letter))
}

/// An escape as a message shows it.
fn written(escape: &str) -> String {
    if escape.chars().all(is_printable) { escape.to_owned() } else { escape.escape_default().to_string() }
}
