//! The answers of phase 1.

/// The answer of a filter for an event. There is no YES.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A keyed subscription cannot match; this is the only conclusion.
    No,
    /// A keyed subscription may match.
    Maybe,
}
