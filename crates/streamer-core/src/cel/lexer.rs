//! Text -> tokens, each as the parser could accept it at its place.
//!
//! The meaning of a character depends on its place. `.5` after a value is a dot and a 5, elsewhere a number. `!=` after
//! a value is a relation, elsewhere two tokens. `b"x"` after a dot is a name and a string. [`Place`] is the kind of
//! place. A token that is not allowed there is still read as elsewhere, so that an error can show it whole.

use super::ast::BinaryOp;
use super::error::{Error, shown};

/// The tokens that the parser could accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A value, and before it signs.
    Operand,
    /// A value, after `-`: no `!` may come.
    Negated,
    /// An operator, or another token after a value.
    Operator,
    /// A name after a dot.
    Name,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    Int,
    Uint,
    Double,
    String(Quotes),
    True,
    False,
    Null,
    Ident,
    /// In backticks.
    Quoted,
    /// Relations, `in` and arithmetic, `-` among them.
    Binary(BinaryOp),
    And,
    Or,
    Not,
    Question,
    Colon,
    Comma,
    Dot,
    OpenParen,
    CloseParen,
    OpenBracket,
    CloseBracket,
    OpenBrace,
    CloseBrace,
    End,
}

/// How a string literal is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Quotes {
    pub bytes: bool,
    pub raw: bool,
    /// Length of prefix and opening quotes.
    pub opening: u8,
    /// Length of the closing quotes: 1 or 3.
    pub closing: u8,
}

/// A token and its place, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lexeme {
    pub token: Token,
    pub start: u32,
    pub end: u32,
}

/// Why there is no token.
pub(super) enum Unreadable {
    /// A bracket or quote is open at the end; a whole error.
    NotClosed(Error),
    /// This character cannot begin a token.
    Character { at: u32, shown: String },
}

pub(super) struct Lexer<'s> {
    source: &'s str,
    at: usize,
}

impl<'s> Lexer<'s> {
    pub(super) fn new(source: &'s str) -> Lexer<'s> {
        Lexer { source, at: 0 }
    }

    /// Read the next token.
    pub(super) fn next(&mut self, place: Place) -> Result<Lexeme, Unreadable> {
        self.skip();
        let start = self.at;
        let (token, length) = match self.token(place) {
            Some(next_token) => next_token,
            None => return Err(self.unreadable()),
        };
        self.at += length;
        Ok(Lexeme { token, start: start as u32, end: self.at as u32 })
    }

    fn rest(&self) -> &'s [u8] {
        &self.source.as_bytes()[self.at..]
    }

    /// Pass over white space and comments.
    fn skip(&mut self) {
        loop {
            let rest = self.rest();
            let count = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | b'\x0c')).count();
            self.at += count;
            let rest = &rest[count..];
            if !rest.starts_with(b"//") {
                return;
            }
            self.at += rest.iter().take_while(|byte| !matches!(byte, b'\n' | b'\r')).count();
        }
    }

    /// The token that begins here and its length.
    fn token(&self, place: Place) -> Option<(Token, usize)> {
        use BinaryOp::*;
        let rest = self.rest();
        let Some(first) = rest.first() else { return Some((Token::End, 0)) };
        let second = rest.get(1).copied();
        let token = match (first, second) {
            (b'0'..=b'9', _) => return Some(number(rest)),
            (b'.', Some(b'0'..=b'9')) if place != Place::Operator => return Some(number(rest)),
            (b'"' | b'\'', _) => return string(rest),
            (b'`', _) => return quoted(rest),
            (b'_' | b'a'..=b'z' | b'A'..=b'Z', _) => {
                let string = if place == Place::Name { None } else { string(rest) };
                return string.or_else(|| Some(word(rest)));
            }
            (b'=', Some(b'=')) => (Token::Binary(Equal), 2),
            (b'!', Some(b'=')) if place != Place::Operand => (Token::Binary(NotEqual), 2),
            (b'!', _) => (Token::Not, 1),
            (b'<', Some(b'=')) => (Token::Binary(LessOrEqual), 2),
            (b'<', _) => (Token::Binary(Less), 1),
            (b'>', Some(b'=')) => (Token::Binary(GreaterOrEqual), 2),
            (b'>', _) => (Token::Binary(Greater), 1),
            (b'&', Some(b'&')) => (Token::And, 2),
            (b'|', Some(b'|')) => (Token::Or, 2),
            (b'+', _) => (Token::Binary(Add), 1),
            (b'-', _) => (Token::Binary(Subtract), 1),
            (b'*', _) => (Token::Binary(Multiply), 1),
            (b'/', _) => (Token::Binary(Divide), 1),
            (b'%', _) => (Token::Binary(Remainder), 1),
            (b'?', _) => (Token::Question, 1),
            (b':', _) => (Token::Colon, 1),
            (b',', _) => (Token::Comma, 1),
            (b'.', _) => (Token::Dot, 1),
            (b'(', _) => (Token::OpenParen, 1),
            (b')', _) => (Token::CloseParen, 1),
            (b'[', _) => (Token::OpenBracket, 1),
            (b']', _) => (Token::CloseBracket, 1),
            (b'{', _) => (Token::OpenBrace, 1),
            (b'}', _) => (Token::CloseBrace, 1),
            _ => return None,
        };
        Some(token)
    }

    fn unreadable(&self) -> Unreadable {
        let at = self.at as u32;
        let rest = self.rest();
        let quote = match rest.first() {
            Some(quote @ (b'"' | b'\'')) if rest.starts_with(&[*quote; 3]) => &self.source[self.at..self.at + 3],
            Some(b'"' | b'\'' | b'`') => &self.source[self.at..self.at + 1],
            _ => {
                let letter = self.source[self.at..].chars().next().map(String::from);
                return Unreadable::Character { at, shown: shown(&letter.unwrap_or_default()) };
            }
        };
        let what = if quote == "`" { "name" } else { "string" };
        Unreadable::NotClosed(Error::at(self.source, at, format!("a {what} that is not closed; expected {quote}")))
    }
}

const fn is_word(byte: u8) -> bool {
    byte == b'_' || byte.is_ascii_alphanumeric()
}

fn word(rest: &[u8]) -> (Token, usize) {
    let length = rest.iter().take_while(|byte| is_word(**byte)).count();
    let token = match &rest[..length] {
        b"true" => Token::True,
        b"false" => Token::False,
        b"null" => Token::Null,
        b"in" => Token::Binary(BinaryOp::In),
        _ => Token::Ident,
    };
    (token, length)
}

fn digits(rest: &[u8]) -> usize {
    rest.iter().take_while(|byte| byte.is_ascii_digit()).count()
}

/// A number; *rest* begins with a digit, or with a dot and a digit.
fn number(rest: &[u8]) -> (Token, usize) {
    let whole = digits(rest);
    let mut length = whole;
    if rest.get(whole) == Some(&b'.') {
        let fraction = digits(&rest[whole + 1..]);
        if fraction > 0 {
            length += 1 + fraction;
        }
    }
    if matches!(rest.get(length), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(rest.get(length + 1), Some(b'+' | b'-')));
        let exponent = digits(rest.get(length + 1 + sign..).unwrap_or_default());
        if exponent > 0 {
            length += 1 + sign + exponent;
        }
    }
    if length > whole {
        return (Token::Double, length);
    }
    if rest.starts_with(b"0x") {
        let hex = rest[2..].iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        if hex > 0 {
            length = 2 + hex;
        }
    }
    if matches!(rest.get(length), Some(b'u' | b'U')) { (Token::Uint, length + 1) } else { (Token::Int, length) }
}

/// A string literal with its prefix, if one begins here and ends.
fn string(rest: &[u8]) -> Option<(Token, usize)> {
    let bytes = matches!(rest.first(), Some(b'b' | b'B'));
    let raw = matches!(rest.get(usize::from(bytes)), Some(b'r' | b'R'));
    let prefix = usize::from(bytes) + usize::from(raw);
    let quote = *rest.get(prefix).filter(|byte| matches!(byte, b'"' | b'\''))?;
    let triple = rest[prefix..].starts_with(&[quote; 3]);
    let closing = if triple { 3 } else { 1 };
    let opening = prefix + closing;
    let mut at = opening;
    loop {
        match *rest.get(at)? {
            b'\n' | b'\r' if !triple => return None,
            b'\\' if !raw => {
                if !triple && matches!(rest.get(at + 1)?, b'\n' | b'\r') {
                    return None;
                }
                at += 2;
            }
            byte if byte == quote && rest[at..].starts_with(&[quote; 3][..closing]) => break,
            _ => at += 1,
        }
    }
    let quotes = Quotes { bytes, raw, opening: opening as u8, closing: closing as u8 };
    Some((Token::String(quotes), at + closing))
}

/// A name in backticks.
fn quoted(rest: &[u8]) -> Option<(Token, usize)> {
    let length = rest[1..].iter().take_while(|byte| !matches!(byte, b'`' | b'\n' | b'\r')).count();
    (length > 0 && rest.get(1 + length) == Some(&b'`')).then_some((Token::Quoted, length + 2))
}
