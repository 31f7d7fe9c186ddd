//! The outcome of evaluating a program. The words are those of `streamer.cel_eval`.

/// The result of a program for an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The event matches.
    True,
    /// The event does not match.
    False,
    /// The program failed, so the event does not match. [`Evaluation::reason`] is the cause.
    Error,
    /// The event does not carry what the program needs (semantics.md section 8).
    Unknown,
}

impl Verdict {
    /// All of them.
    pub const ALL: [Verdict; 4] = [Verdict::True, Verdict::False, Verdict::Error, Verdict::Unknown];

    /// The verdict of a known result.
    pub const fn of(truth: bool) -> Verdict {
        if truth { Verdict::True } else { Verdict::False }
    }

    /// Combine by `&&`: false absorbs, then unknown beats an error.
    #[must_use]
    pub const fn and(self, other: Verdict) -> Verdict {
        match (self, other) {
            (Verdict::False, _) | (_, Verdict::False) => Verdict::False,
            (Verdict::Unknown, _) | (_, Verdict::Unknown) => Verdict::Unknown,
            (Verdict::Error, _) | (_, Verdict::Error) => Verdict::Error,
            _ => Verdict::True,
        }
    }

    /// Combine by `||`: true absorbs, then unknown beats an error.
    #[must_use]
    pub const fn or(self, other: Verdict) -> Verdict {
        self.not().and(other.not()).not()
    }

    /// Negate: an error and an unknown stay as they are.
    #[must_use]
    pub const fn not(self) -> Verdict {
        match self {
            Verdict::True => Verdict::False,
            Verdict::False => Verdict::True,
            other => other,
        }
    }

    /// The word of it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Verdict::True => "true",
            Verdict::False => "false",
            Verdict::Error => "error",
            Verdict::Unknown => "unknown",
        }
    }
}

/// Why an evaluation ended in an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// A member or key that the map does not have.
    NoSuchField,
    /// An index below 0 or past the end of the list.
    IndexOutOfRange,
    /// An operator or function on types that it does not take.
    NoSuchOverload,
    /// `/` or `%` of ints or uints by zero.
    DivisionByZero,
    /// Arithmetic, or a conversion of a number, past the range of its type.
    Overflow,
    /// A conversion of a text that does not spell such a value; an unknown time zone.
    BadValue,
    /// `matches` with a regexp, not constant, that RE2 refuses.
    BadRegexp,
    /// A map with a key twice, or with a key that is not bool, int, uint or string.
    BadKey,
    /// It read a number of the event that is beyond float64.
    BeyondFloat64,
    /// The program's result is not bool.
    NotBool,
    /// The program used up its cost units and was stopped.
    Budget,
    /// From patterns, not from CEL: the choice of array elements for a pattern with `$or` exceeds its budget.
    PatternBudget,
    /// From regexps, not from CEL: the search of a filter's or a pattern's regexp in a text exceeds its budget.
    RegexpBudget,
    /// From topics, not from CEL: the topic patterns of an event exceed their budget, or its key is too long.
    TopicBudget,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Reason; 14] = [
        Reason::NoSuchField,
        Reason::IndexOutOfRange,
        Reason::NoSuchOverload,
        Reason::DivisionByZero,
        Reason::Overflow,
        Reason::BadValue,
        Reason::BadRegexp,
        Reason::BadKey,
        Reason::BeyondFloat64,
        Reason::NotBool,
        Reason::Budget,
        Reason::PatternBudget,
        Reason::RegexpBudget,
        Reason::TopicBudget,
    ];

    /// The word of it: the label of the metric that counts errors.
    pub const fn as_str(self) -> &'static str {
        match self {
            Reason::NoSuchField => "no_such_field",
            Reason::IndexOutOfRange => "index_out_of_range",
            Reason::NoSuchOverload => "no_such_overload",
            Reason::DivisionByZero => "division_by_zero",
            Reason::Overflow => "overflow",
            Reason::BadValue => "bad_value",
            Reason::BadRegexp => "bad_regexp",
            Reason::BadKey => "bad_key",
            Reason::BeyondFloat64 => "beyond_float64",
            Reason::NotBool => "not_bool",
            Reason::Budget => "budget",
            Reason::PatternBudget => "pattern_budget",
            Reason::RegexpBudget => "regexp_budget",
            Reason::TopicBudget => "topic_budget",
        }
    }
}

/// The outcome of a program for one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evaluation {
    /// The result.
    pub verdict: Verdict,
    /// Why it is an error; `None` otherwise.
    pub reason: Option<Reason>,
    /// Cost units used, also if that was more than the budget.
    pub cost: u64,
}
