//! What phase 1 concludes.

/// What a filter can say of an event. There is no YES.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// No keyed subscription matches; nothing else may be concluded.
    No,
    /// Nothing may be concluded.
    Maybe,
}
