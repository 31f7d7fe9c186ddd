//! The error in an expression, and its place.

use std::fmt;

/// An expression that cannot be accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// From 1.
    pub line: u32,
    /// From 1, in characters.
    pub column: u32,
    /// The fault and the expectation.
    pub reason: String,
}

impl Error {
    /// An error at a byte offset of *source*.
    pub(super) fn at(source: &str, offset: u32, reason: impl Into<String>) -> Error {
        let before = &source[..offset as usize];
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        Error {
            line: before.bytes().filter(|byte| *byte == b'\n').count() as u32 + 1,
            column: before[line_start..].chars().count() as u32 + 1,
            reason: reason.into(),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: {}", self.line, self.column, self.reason)
    }
}

impl std::error::Error for Error {}

/// A text of the source for an error: short, and without control characters for a terminal.
pub(super) fn shown(text: &str) -> String {
    let mut shown = String::new();
    for (count, letter) in text.chars().enumerate() {
        if count == 40 {
            shown += "...";
            break;
        }
        if is_printable(letter) {
            shown.push(letter);
        } else {
            shown += &format!("\\u{{{:x}}}", u32::from(letter));
        }
    }
    shown
}

/// Whether a character shows as itself, by its Unicode category.
pub(super) fn is_printable(letter: char) -> bool {
    // Debug output escapes unprintable characters, by category; it also escapes quotes, backslashes, and marks without
    // a letter before them.
    matches!(letter, '"' | '\'' | '\\') || ['a', letter].iter().collect::<String>().escape_debug().count() == 2
}
