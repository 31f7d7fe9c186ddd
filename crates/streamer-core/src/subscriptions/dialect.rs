//! The dialects of patterns: one struct of rules each.

use crate::regexps::i_regexp;

/// How a pattern is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// Quamina's.
    Strict,
    /// EventBridge's, the default of subscriptions.
    #[default]
    EventBridge,
}

/// The differences between dialects.
pub(super) struct Rules {
    /// Operators that must be the only item of their array.
    pub exclusive: &'static [&'static str],
    /// Whether an array of values may be empty: then it matches no value.
    pub may_be_empty: bool,
    /// Whether a `$or` of objects means any of them; else it is a name as any other.
    pub has_or: bool,
    /// Whether there are Event Ruler's `exactly`, and `all`.
    pub has_all: bool,
    /// How regular expressions are written.
    pub regexps: &'static i_regexp::Syntax,
}

impl Dialect {
    pub(super) fn rules(self) -> &'static Rules {
        match self {
            Dialect::Strict => &Rules {
                exclusive: &["exists", "anything-but", "regexp"],
                may_be_empty: true,
                has_or: false,
                has_all: false,
                regexps: &i_regexp::Syntax::QUAMINA,
            },
            Dialect::EventBridge => {
                &Rules { exclusive: &[], may_be_empty: false, has_or: true, has_all: true, regexps: &i_regexp::Syntax::RFC_9485 }
            }
        }
    }
}
