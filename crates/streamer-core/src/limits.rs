//! Bounds on what a user or an event may cost.

/// Bounds on what a user or an event may cost; every one is checked before the cost is paid. The same words and defaults as
/// `streamer.model.Limits`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Nesting of an event's arrays and objects; the event itself is level 1.
    pub max_depth: usize,
    /// Length of an event.
    pub max_event_bytes: usize,
    /// States that all matchers of one pattern may take.
    pub max_pattern_states: usize,
    /// Size of a regexp of a filter or a pattern (docs/cel-cost.md).
    pub max_regexp_size: usize,
    /// Conjunctions that one subscription may be distributed into; past it its tree is verified on the candidate.
    pub max_conjunctions: usize,
    /// Length of a CEL expression.
    pub max_cel_bytes: usize,
    /// Levels of brackets, calls, unary operators and ternaries in a CEL expression.
    pub max_cel_depth: usize,
    /// Cost units that one evaluation of a CEL program may use.
    pub cel_budget: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            max_depth: 512,
            max_event_bytes: 16 * 1024 * 1024,
            max_pattern_states: 1_000_000,
            max_regexp_size: 10_000,
            max_conjunctions: 64,
            max_cel_bytes: 16 * 1024,
            max_cel_depth: 64,
            cel_budget: 1_000_000,
        }
    }
}
