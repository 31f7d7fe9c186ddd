//! Bounds on the cost of a user or an event.

/// Bounds on the cost of a user or an event; each is checked before the cost is paid. Words and defaults are those of
/// `streamer.model.Limits`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Nesting of an event's arrays and objects; the event itself is level 1.
    pub max_depth: usize,
    /// Length of an event.
    pub max_event_bytes: usize,
    /// Length of the JSON text of a subscription.
    pub max_subscription_bytes: usize,
    /// Filters and fields of the pattern of one subscription.
    pub max_conditions: usize,
    /// Values in lists of its filters `in` and `not in`, in arrays of its pattern, and in lists of `anything-but`.
    pub max_alternatives: usize,
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

impl Limits {
    /// These limits without bounds on the size of a subscription: for one that was accepted, perhaps under larger
    /// limits.
    pub fn of_any_size(&self) -> Limits {
        let most = usize::MAX;
        let conditions = Limits { max_conditions: most, max_alternatives: most, ..self.clone() };
        Limits { max_subscription_bytes: most, max_cel_bytes: most, ..conditions }
    }
}

/// The counts of a subscription that the limits bound, as far as it was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Size {
    conditions: usize,
    alternatives: usize,
}

impl Size {
    /// Note *more* conditions.
    ///
    /// # Errors
    ///
    /// They are too many. The error has the count and the limit.
    pub fn add_conditions(&mut self, more: usize, limits: &Limits) -> Result<(), String> {
        add(&mut self.conditions, more, limits.max_conditions, "conditions")
    }

    /// Add alternatives.
    ///
    /// # Errors
    ///
    /// They are too many. The error has the count and the limit.
    pub fn add_alternatives(&mut self, more: usize, limits: &Limits) -> Result<(), String> {
        add(&mut self.alternatives, more, limits.max_alternatives, "alternatives")
    }
}

fn add(count: &mut usize, more: usize, most: usize, what: &str) -> Result<(), String> {
    *count += more;
    if *count <= most {
        return Ok(());
    }
    Err(format!("{count} {what}, with these; at most {most} are allowed (limits.max_{what})"))
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            max_depth: 512,
            max_event_bytes: 16 * 1024 * 1024,
            max_subscription_bytes: 4 * 1024 * 1024,
            max_conditions: 20_000,
            max_alternatives: 100_000,
            max_pattern_states: 1_000_000,
            max_regexp_size: 10_000,
            max_conjunctions: 64,
            max_cel_bytes: 16 * 1024,
            max_cel_depth: 64,
            cel_budget: 1_000_000,
        }
    }
}
