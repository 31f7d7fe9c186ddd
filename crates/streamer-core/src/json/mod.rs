//! JSON by RFC 8259, to the letter: tokens, skipping, and a reader that builds values in one loop, without recursion.

pub(crate) mod block;
mod elements;
mod numbers;
pub(crate) mod skip;
pub(crate) mod token;
mod write;

pub(crate) use elements::{Element, Elements};
pub use token::JsonFault;
pub use write::{write, write_string};

use crate::error::{EventCode, EventError};
use crate::limits::Limits;
use crate::value::{Kind, Number, Scalar, Value};
use token::{Result, peek, space};

/// Bounds on a text.
#[derive(Clone, Copy, Debug)]
pub struct ParseOptions {
    /// Nesting of arrays and objects.
    pub max_depth: usize,
    /// Length of the text.
    pub max_bytes: usize,
}

impl Default for ParseOptions {
    fn default() -> ParseOptions {
        let limits = Limits::default();
        ParseOptions { max_depth: limits.max_depth, max_bytes: limits.max_event_bytes }
    }
}

/// A JSON value as it is written: members in order, with all duplicates. For texts that users write, in which a
/// duplicate is an error.
#[derive(Clone, Debug, PartialEq)]
pub enum Tree {
    /// A scalar.
    Scalar(Scalar),
    /// A number literal beyond float64.
    BeyondFloat(Box<str>),
    /// An array.
    List(Vec<Tree>),
    /// An object.
    Object(Vec<(Box<str>, Tree)>),
}

impl Tree {
    /// The JSON type, for messages.
    pub(crate) fn json_type(&self) -> &'static str {
        let kind = match self {
            Tree::Scalar(scalar) => scalar.kind(),
            Tree::BeyondFloat(_) => Kind::BeyondFloat,
            Tree::List(_) => Kind::List,
            Tree::Object(_) => Kind::Map,
        };
        kind.json_type()
    }
}

/// The values that the reader builds.
pub trait Build: Sized {
    /// A scalar.
    fn scalar(scalar: Scalar) -> Self;
    /// A number literal beyond float64.
    fn beyond_float(literal: &str) -> Self;
    /// A number, and how it is spelled.
    fn number(number: Number, _literal: &[u8]) -> Self {
        Self::scalar(Scalar::Number(number))
    }
    /// An array.
    fn list(elements: Vec<Self>) -> Self;
    /// An object; members in order, with all duplicates.
    fn object(members: Vec<(Box<str>, Self)>) -> Self;
}

impl Build for Tree {
    fn scalar(scalar: Scalar) -> Tree {
        Tree::Scalar(scalar)
    }

    fn beyond_float(literal: &str) -> Tree {
        Tree::BeyondFloat(literal.into())
    }

    fn list(elements: Vec<Tree>) -> Tree {
        Tree::List(elements)
    }

    fn object(members: Vec<(Box<str>, Tree)>) -> Tree {
        Tree::Object(members)
    }
}

/// A value that [`write`] spells as it was spelled.
pub(crate) struct Spelled(pub(crate) Value);

impl Build for Spelled {
    fn scalar(scalar: Scalar) -> Spelled {
        Spelled(Value::Scalar(scalar))
    }

    fn beyond_float(literal: &str) -> Spelled {
        Spelled(Value::BeyondFloat(literal.into()))
    }

    fn number(_number: Number, literal: &[u8]) -> Spelled {
        Spelled::beyond_float(&String::from_utf8_lossy(literal))
    }

    fn list(elements: Vec<Spelled>) -> Spelled {
        Spelled(Value::list(elements.into_iter().map(|element| element.0).collect()))
    }

    fn object(members: Vec<(Box<str>, Spelled)>) -> Spelled {
        Spelled(Value::object(members.into_iter().map(|(name, member)| (name, member.0)).collect()))
    }
}

impl Build for Value {
    fn scalar(scalar: Scalar) -> Value {
        Value::Scalar(scalar)
    }

    fn beyond_float(literal: &str) -> Value {
        Value::BeyondFloat(literal.into())
    }

    fn list(elements: Vec<Value>) -> Value {
        Value::List(elements)
    }

    /// The last of duplicate names wins and replaces the whole earlier value.
    fn object(mut members: Vec<(Box<str>, Value)>) -> Value {
        members.reverse();
        members.sort_by(|(one, _), (other, _)| one.cmp(other)); // stable: of equal names the last comes first
        members.dedup_by(|(one, _), (other, _)| one == other);
        Value::Map(members)
    }
}

/// Read a JSON text.
///
/// # Errors
///
/// `malformed_json`, `bad_utf8`, `lone_surrogate`, `too_deep` or `too_long`, in order of offset.
pub fn parse<T: Build>(text: &[u8], options: ParseOptions) -> std::result::Result<T, EventError> {
    check_length(text.len(), options.max_bytes)?;
    let read = TreeReader::<T> { text, open: Vec::new(), plain: Vec::new() }.document(options.max_depth);
    Ok(utf8_first(text, read)?.1)
}

/// Refuse a text that is too long.
pub(crate) fn check_length(length: usize, max_bytes: usize) -> std::result::Result<(), EventError> {
    let most = max_bytes.min(u32::MAX as usize - 1); // offsets are u32
    if length > most {
        return Err(EventError::at(EventCode::TooLong, most, format!("{length} bytes, at most {most} are allowed")));
    }
    Ok(())
}

/// Check the text's UTF-8, and let the fault that comes first win: *read* is the result of reading it without that
/// check.
pub(crate) fn utf8_first<T>(text: &[u8], read: Result<T>) -> Result<(&str, T)> {
    match (simdutf8::compat::from_utf8(text), read) {
        (Ok(text), Ok(value)) => Ok((text, value)),
        (Ok(_), Err(fault)) => Err(fault),
        (Err(bad), Err(fault)) if fault.offset < bad.valid_up_to() => Err(fault),
        (Err(bad), _) => Err(JsonFault::new(EventCode::BadUtf8, bad.valid_up_to(), "invalid UTF-8")),
    }
}

/// A container that is still open.
enum OpenContainer<T> {
    List(Vec<T>),
    Object(Vec<(Box<str>, T)>, Box<str>),
}

struct TreeReader<'t, T> {
    text: &'t [u8],
    open: Vec<OpenContainer<T>>,
    plain: Vec<u8>,
}

impl<T: Build> TreeReader<'_, T> {
    fn document(mut self, max_depth: usize) -> Result<T> {
        let text = self.text;
        let mut at = space(text, 0);
        loop {
            // Here a value begins.
            let mut value = match peek(text, at) {
                bracket @ (b'{' | b'[') => {
                    if self.open.len() >= max_depth {
                        return Err(JsonFault::too_deep(at, max_depth));
                    }
                    at = space(text, at + 1);
                    let empty = peek(text, at) == bracket + 2;
                    if !empty {
                        self.open.push(OpenContainer::List(Vec::new()));
                        if bracket == b'{' {
                            let (name, after) = self.name(at)?;
                            at = after;
                            self.open.pop();
                            self.open.push(OpenContainer::Object(Vec::new(), name));
                        }
                        continue;
                    }
                    at += 1;
                    if bracket == b'{' { T::object(Vec::new()) } else { T::list(Vec::new()) }
                }
                b'"' => {
                    let (string, after) = self.string(at)?;
                    at = after;
                    T::scalar(Scalar::String(string))
                }
                b'-' | b'0'..=b'9' => {
                    let (end, _) = token::number(text, at)?;
                    let literal = &text[at..end];
                    at = end;
                    match Number::parse(literal) {
                        Some(number) => T::number(number, literal),
                        None => T::beyond_float(&String::from_utf8_lossy(literal)),
                    }
                }
                first => {
                    at = token::literal(text, at)?;
                    T::scalar(if first == b'n' { Scalar::Null } else { Scalar::Bool(first == b't') })
                }
            };
            // A value is complete: add it to its container, and close each container that ends with it.
            loop {
                at = space(text, at);
                let Some(container) = self.open.pop() else {
                    if at < text.len() {
                        return Err(JsonFault::malformed(text, at, "expected the text to end after the value"));
                    }
                    return Ok(value);
                };
                match container {
                    OpenContainer::List(mut elements) => {
                        elements.push(value);
                        match peek(text, at) {
                            b',' => {
                                at = space(text, at + 1);
                                self.open.push(OpenContainer::List(elements));
                                break;
                            }
                            b']' => value = T::list(elements),
                            _ => return Err(token::expected_more(text, at, false)),
                        }
                    }
                    OpenContainer::Object(mut members, name) => {
                        members.push((name, value));
                        match peek(text, at) {
                            b',' => {
                                let (name, after) = self.name(space(text, at + 1))?;
                                at = after;
                                self.open.push(OpenContainer::Object(members, name));
                                break;
                            }
                            b'}' => value = T::object(members),
                            _ => return Err(token::expected_more(text, at, true)),
                        }
                    }
                }
                at += 1;
            }
        }
    }

    fn name(&mut self, at: usize) -> Result<(Box<str>, usize)> {
        if peek(self.text, at) != b'"' {
            return Err(token::expected_name(self.text, at));
        }
        let (name, after) = self.string(at)?;
        let at = space(self.text, after);
        if peek(self.text, at) != b':' {
            return Err(token::expected_colon(self.text, at));
        }
        Ok((name, space(self.text, at + 1)))
    }

    fn string(&mut self, at: usize) -> Result<(Box<str>, usize)> {
        let (end, escaped) = token::string(self.text, at)?;
        let inside = &self.text[at + 1..end - 1];
        // Bad UTF-8 is found at the end of the read, and then this result is dropped.
        let string = if escaped {
            self.plain.clear();
            token::unescape(inside, &mut self.plain);
            String::from_utf8_lossy(&self.plain)
        } else {
            String::from_utf8_lossy(inside)
        };
        Ok((string.into(), end))
    }
}

/// The plain text of a token of a JSON Pointer; `None` if a `~` is not followed by `0` or `1`.
pub(crate) fn unescape_token(token: &str) -> Option<Box<str>> {
    let mut pieces = token.split('~');
    let mut plain = String::from(pieces.next().unwrap_or(""));
    for piece in pieces {
        plain.push(match piece.as_bytes().first() {
            Some(b'0') => '~',
            Some(b'1') => '/',
            _ => return None,
        });
        plain.push_str(&piece[1..]);
    }
    Some(plain.into())
}
