//! The errors of events and subscriptions. Each has its place; the words are those of `streamer.errors`.

use crate::cel;
use std::fmt;

/// Why an event was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventCode {
    /// The event is valid JSON but no object.
    NotAnObject,
    /// It is not JSON by RFC 8259.
    MalformedJson,
    /// It is not UTF-8.
    BadUtf8,
    /// An escaped surrogate without its other half.
    LoneSurrogate,
    /// Deeper than [`crate::limits::Limits::max_depth`].
    TooDeep,
    /// Longer than [`crate::limits::Limits::max_event_bytes`].
    TooLong,
    /// A part of the envelope of another JSON type than it must have.
    WrongType,
    /// A duplicate member of the envelope.
    DuplicateMember,
    /// A tenant or collection that is the string `*`.
    ReservedName,
    /// It has no tenant, and there is no default.
    NoTenant,
    /// A time that is not in the layout's format.
    BadTimestamp,
    /// A member of `unknown` that is not a JSON Pointer.
    BadPointer,
    /// A value that is not possible in JSON.
    BadValue,
}

impl EventCode {
    /// All codes, in order.
    pub const ALL: [EventCode; 13] = [
        EventCode::NotAnObject,
        EventCode::MalformedJson,
        EventCode::BadUtf8,
        EventCode::LoneSurrogate,
        EventCode::TooDeep,
        EventCode::TooLong,
        EventCode::WrongType,
        EventCode::DuplicateMember,
        EventCode::ReservedName,
        EventCode::NoTenant,
        EventCode::BadTimestamp,
        EventCode::BadPointer,
        EventCode::BadValue,
    ];

    /// The code of a word.
    pub fn from_word(word: &str) -> Option<EventCode> {
        EventCode::ALL.into_iter().find(|code| code.as_str() == word)
    }

    /// The word of it: the label of the metric that counts rejections.
    pub const fn as_str(self) -> &'static str {
        match self {
            EventCode::NotAnObject => "not_an_object",
            EventCode::MalformedJson => "malformed_json",
            EventCode::BadUtf8 => "bad_utf8",
            EventCode::LoneSurrogate => "lone_surrogate",
            EventCode::TooDeep => "too_deep",
            EventCode::TooLong => "too_long",
            EventCode::WrongType => "wrong_type",
            EventCode::DuplicateMember => "duplicate_member",
            EventCode::ReservedName => "reserved_name",
            EventCode::NoTenant => "no_tenant",
            EventCode::BadTimestamp => "bad_timestamp",
            EventCode::BadPointer => "bad_pointer",
            EventCode::BadValue => "bad_value",
        }
    }
}

/// Why an event was ignored, which is not an error (semantics.md section 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ignored {
    /// It is empty, or only white space.
    Empty,
    /// It is `null`, or has no value at all: a tombstone of Kafka.
    Null,
    /// The layout's `type_map` has `ignore` for its type.
    Type,
    /// It has neither type nor documents, and the layout ignores such events.
    NoChange,
}

impl Ignored {
    /// All reasons, in order.
    pub const ALL: [Ignored; 4] = [Ignored::Empty, Ignored::Null, Ignored::Type, Ignored::NoChange];

    /// The word of it: the label of the metric that counts such events.
    pub const fn as_str(self) -> &'static str {
        match self {
            Ignored::Empty => "empty",
            Ignored::Null => "null",
            Ignored::Type => "type",
            Ignored::NoChange => "no_change",
        }
    }
}

/// An event that is not matched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unread {
    /// It is skipped, without an error.
    Ignored(Ignored),
    /// It is bad.
    Bad(EventError),
}

impl Unread {
    /// As an error, for a caller that needs an object.
    pub fn into_error(self) -> EventError {
        match self {
            Unread::Bad(error) => error,
            Unread::Ignored(reason) => EventError {
                code: EventCode::NotAnObject,
                offset: None,
                place: None,
                reason: format!("the event is ignored ({})", reason.as_str()).into(),
            },
        }
    }
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unread::Ignored(reason) => write!(f, "ignored: {}", reason.as_str()),
            Unread::Bad(error) => error.fmt(f),
        }
    }
}

impl From<EventError> for Unread {
    fn from(error: EventError) -> Unread {
        Unread::Bad(error)
    }
}

/// An event that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventError {
    /// Why, one of a few fixed words.
    pub code: EventCode,
    /// Byte offset of the fault.
    pub offset: Option<usize>,
    /// JSON Pointer of the value at fault, if it is known.
    pub place: Option<Box<str>>,
    /// The fault and the expectation.
    pub reason: Box<str>,
}

impl EventError {
    /// An error that shows at *offset*.
    pub fn at(code: EventCode, offset: usize, reason: impl Into<Box<str>>) -> EventError {
        EventError { code, offset: Some(offset), place: None, reason: reason.into() }
    }
}

impl fmt::Display for EventError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code.as_str())?;
        if let Some(offset) = self.offset {
            write!(f, " at byte {offset}")?;
        }
        if let Some(place) = &self.place {
            write!(f, " at {place}")?;
        }
        write!(f, ": {}", self.reason)
    }
}

impl std::error::Error for EventError {}

/// Which class of `streamer.errors` a subscription's error is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SubscriptionErrorKind {
    /// `SubscriptionError`: the subscription itself or its filters, types or topic.
    Subscription,
    /// `PatternError`: its pattern.
    Pattern,
    /// `CelError`: its CEL expression.
    Cel,
    /// `DuplicateSubscriptionError`: an id that already exists.
    Duplicate,
}

/// A subscription that cannot be accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubscriptionError {
    /// Which class of error.
    pub kind: SubscriptionErrorKind,
    /// The member at fault, as `filters[0].op` or `pattern.data.tags[0].prefix`; empty for the whole.
    pub place: String,
    /// The fault and the expectation.
    pub reason: String,
    /// The id of the subscription, if it could be read.
    pub subscription_id: Option<String>,
    /// Line and column in its CEL expression, from 1.
    pub position: Option<(u32, u32)>,
}

impl SubscriptionError {
    /// An error of the subscription itself or its filters, types or topic.
    pub fn new(place: impl Into<String>, reason: impl Into<String>) -> SubscriptionError {
        SubscriptionError {
            kind: SubscriptionErrorKind::Subscription,
            place: place.into(),
            reason: reason.into(),
            subscription_id: None,
            position: None,
        }
    }

    /// An error of a subscription whose id is known, of the whole of it.
    pub fn of(id: &str, reason: impl Into<String>) -> SubscriptionError {
        SubscriptionError { subscription_id: Some(id.to_owned()), ..SubscriptionError::new("", reason) }
    }

    /// An error of the CEL expression.
    pub fn cel(error: cel::Error) -> SubscriptionError {
        SubscriptionError {
            kind: SubscriptionErrorKind::Cel,
            position: Some((error.line, error.column)),
            ..SubscriptionError::new("cel", error.reason)
        }
    }

    /// An error of the pattern.
    pub fn pattern(place: impl Into<String>, reason: impl Into<String>) -> SubscriptionError {
        SubscriptionError { kind: SubscriptionErrorKind::Pattern, ..SubscriptionError::new(place, reason) }
    }
}

impl fmt::Display for SubscriptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(id) = &self.subscription_id {
            write!(f, "subscription {id:?}: ")?;
        }
        if !self.place.is_empty() {
            write!(f, "{}: ", self.place)?;
        }
        f.write_str(&self.reason)
    }
}

impl std::error::Error for SubscriptionError {}
