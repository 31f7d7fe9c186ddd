//! Regular expressions: both dialects become one syntax, that of `regex-syntax`.

/// A regular expression in the syntax of `regex-syntax`, to be compiled by whoever runs it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Regexp {
    /// The expression. One that must match the whole string says so itself, with `\A` and `\z`.
    pub expression: Box<str>,
}
