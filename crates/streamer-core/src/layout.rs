//! The places of the parts of a change event (semantics.md section 1).
//!
//! The Python package checks a layout and hands its `to_dict()` form over; the same words mean the same here.

use crate::json;
use crate::value::{Scalar, Value};

/// A JSON Pointer (RFC 6901), split into its unescaped tokens; without tokens it is the whole document.
pub type Pointer = Box<[Box<str>]>;

/// The place of one part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Never there.
    Never,
    /// The first of these that is present and not null.
    Pointers(Vec<Pointer>),
    /// Made of texts and of values at pointers: the first template whose values are all present. Then the pointers of
    /// all.
    Made(Vec<Template>, Vec<Pointer>),
    /// One value for every event: a string, or for `id` and `ts` also an integer.
    Constant(Scalar),
}

/// The pieces of a part.
pub type Template = Box<[Piece]>;

/// A piece of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// A literal text.
    Text(Box<str>),
    /// The string that it leads to.
    Pointer(Pointer),
}

impl Part {
    /// The pointers to try, in order; empty for a constant.
    pub fn pointers(&self) -> &[Pointer] {
        match self {
            Part::Pointers(pointers) | Part::Made(_, pointers) => pointers,
            Part::Never | Part::Constant(_) => &[],
        }
    }

    /// The constant it is.
    pub fn constant(&self) -> Option<&Scalar> {
        match self {
            Part::Constant(scalar) => Some(scalar),
            Part::Never | Part::Pointers(_) | Part::Made(..) => None,
        }
    }
}

/// The change of the document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EventType {
    /// It is new.
    Insert,
    /// It was changed.
    Update,
    /// It is gone.
    Delete,
}

impl EventType {
    /// All types.
    pub const ALL: [EventType; 3] = [EventType::Insert, EventType::Update, EventType::Delete];

    /// The word of it.
    pub const fn as_str(self) -> &'static str {
        match self {
            EventType::Insert => "insert",
            EventType::Update => "update",
            EventType::Delete => "delete",
        }
    }

    /// The type of that word.
    pub fn of(word: &str) -> Option<EventType> {
        EventType::ALL.into_iter().find(|kind| kind.as_str() == word)
    }
}

/// The meaning of an event's word for its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TypeMeaning {
    /// That type.
    Type(EventType),
    /// The event is ignored.
    Ignore,
    /// The event has no type.
    Untyped,
}

impl TypeMeaning {
    /// The meaning of that word in a `type_map`.
    fn of(word: &str) -> Option<TypeMeaning> {
        match word {
            "ignore" => Some(TypeMeaning::Ignore),
            "none" => Some(TypeMeaning::Untyped),
            word => EventType::of(word).map(TypeMeaning::Type),
        }
    }
}

/// The unit or format of `ts`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimestampFormat {
    /// Integer seconds since the epoch.
    Seconds,
    /// Integer milliseconds.
    Milliseconds,
    /// Integer microseconds.
    Microseconds,
    /// Integer nanoseconds.
    Nanoseconds,
    /// Text by RFC 3339.
    Rfc3339,
}

/// How much of the document before the change `before` contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BeforeHolds {
    /// The whole document.
    #[default]
    All,
    /// An unknown part of it: a member that `data` has and `before` lacks is unknown.
    Partial,
    /// The changed members: the others are as in `data`.
    Changed,
}

/// A wire format with rules for values that a record does not carry although it has no mark in their place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Debezium's change events.
    Debezium,
    /// Maxwell's rows.
    Maxwell,
    /// Records of AWS DMS.
    Dms,
    /// Supabase's webhooks, and the changes of its Realtime.
    Supabase,
    /// CloudEvents, whose data may be any JSON value.
    CloudEvents,
    /// Canal's flat messages.
    Canal,
    /// Records of Amazon DynamoDB Streams.
    DynamoDb,
    /// Events of MongoDB's change streams.
    MongoDb,
    /// Messages of wal2json.
    Wal2json,
    /// Messages of pgoutput: a reader makes arrays of their changes.
    Pgoutput,
    /// Rows of Debezium, as its transform ExtractNewRecordState leaves them.
    DebeziumUnwrapped,
    /// Events that a decoder made of records.
    Cdc,
}

impl Format {
    /// The format of that name.
    fn of(name: &str) -> Option<Format> {
        Some(match name {
            "debezium" => Format::Debezium,
            "maxwell" => Format::Maxwell,
            "dms" => Format::Dms,
            "supabase" => Format::Supabase,
            "cloudevents" => Format::CloudEvents,
            "canal" => Format::Canal,
            "dynamodb" => Format::DynamoDb,
            "mongodb" => Format::MongoDb,
            "wal2json" => Format::Wal2json,
            "pgoutput" => Format::Pgoutput,
            "debezium_unwrapped" => Format::DebeziumUnwrapped,
            "cdc" => Format::Cdc,
            _ => return None,
        })
    }

    /// Whether its records are changes of rows, as they stand.
    pub(crate) fn has_rows(self) -> bool {
        !matches!(self, Format::CloudEvents | Format::Cdc) && !self.has_changes()
    }

    /// Whether a change may say by its member `partial` that it lacks columns.
    pub(crate) fn may_be_partial(self) -> bool {
        self.has_changes() || self == Format::Cdc
    }

    /// Whether a record has change events in it, which are what the layout describes.
    pub(crate) fn has_changes(self) -> bool {
        matches!(
            self,
            Format::Canal | Format::DynamoDb | Format::MongoDb | Format::Wal2json | Format::Pgoutput | Format::DebeziumUnwrapped
        )
    }
}

/// The places of the parts of an event. See `streamer.EventLayout`, which documents each member.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the parts are the table of semantics.md section 1")]
pub struct EventLayout {
    pub id: Part,
    pub tenant: Part,
    pub collection: Part,
    pub event_type: Part,
    pub ts: Part,
    pub topic: Part,
    pub data: Part,
    pub before: Part,
    pub unknown: Part,
    /// The places of the record; the first that leads to an object counts.
    pub envelope: Vec<Pointer>,
    /// The meanings of the event's own words for `type`; `None`: they are `insert`, `update` and `delete`.
    pub type_map: Option<Vec<(Box<str>, TypeMeaning)>>,
    pub ts_format: TimestampFormat,
    pub before_holds: BeforeHolds,
    /// The texts that the source writes for a value that it does not carry.
    pub unknown_value: Box<[Box<str>]>,
    /// Whether `data` and `before` may be JSON in a string.
    pub encoded: bool,
    /// Whether an event is ignored if it has no type, no documents and no `unknown`.
    pub ignores_no_change: bool,
    /// The wire format whose rules define the values that a record does not carry.
    pub format: Option<Format>,
    /// The tables whose records have whole rows, so that these rules and `before_holds: partial` do not apply, in order;
    /// `*` for all.
    pub whole_rows: Box<[Box<str>]>,
    /// The prefix of the members that a transform added to a row of `debezium_unwrapped`.
    pub added_prefix: Box<str>,
}

/// The prefix of the members that Debezium's transform adds to a row, unless its `add.fields.prefix` is another one.
pub const ADDED: &str = "__";

impl Default for EventLayout {
    /// The layout `change`.
    fn default() -> EventLayout {
        let at = |name: &str| Part::Pointers(vec![Box::new([Box::from(name)])]);
        EventLayout {
            id: at("id"),
            tenant: at("tenant"),
            collection: at("collection"),
            event_type: at("type"),
            ts: at("ts"),
            topic: at("topic"),
            data: at("data"),
            before: at("before"),
            unknown: at("unknown"),
            envelope: vec![Pointer::default()],
            type_map: None,
            ts_format: TimestampFormat::Milliseconds,
            before_holds: BeforeHolds::All,
            unknown_value: Box::default(),
            encoded: false,
            ignores_no_change: false,
            format: None,
            whole_rows: Box::default(),
            added_prefix: ADDED.into(),
        }
    }
}

impl EventLayout {
    /// This layout, for events that are read by their paths only.
    pub fn without_parts(&self) -> EventLayout {
        EventLayout {
            id: Part::Never,
            tenant: Part::Never,
            collection: Part::Never,
            event_type: Part::Never,
            ts: Part::Never,
            topic: Part::Never,
            data: Part::Never,
            before: Part::Never,
            unknown: Part::Never,
            envelope: Vec::new(),
            ..self.clone()
        }
    }

    /// Read the JSON of `EventLayout.to_dict()`, with every member present.
    ///
    /// Errors name the member and its fault. The Python package has checked more than this function.
    pub fn from_json(text: &[u8]) -> Result<EventLayout, String> {
        let value: Value = json::parse(text, json::ParseOptions::default()).map_err(|error| error.to_string())?;
        let part = |name: &str| -> Result<Part, String> {
            let shown = || format!("{name}: expected a JSON Pointer, a list of them, a constant or null");
            match value.get(name) {
                None => Err(format!("{name}: missing")),
                Some(Value::Scalar(Scalar::Null)) => Ok(Part::Never),
                Some(Value::Scalar(Scalar::String(text))) => made_of(&[&**text]).map_err(|error| format!("{name}: {error}")),
                Some(Value::List(texts)) => {
                    let texts = texts.iter().map(|text| text.as_str().ok_or_else(shown)).collect::<Result<Vec<_>, _>>()?;
                    made_of(&texts).map_err(|error| format!("{name}: {error}"))
                }
                Some(constant) => match constant.get("constant") {
                    Some(Value::Scalar(scalar @ (Scalar::String(_) | Scalar::Number(_)))) => Ok(Part::Constant(scalar.clone())),
                    _ => Err(shown()),
                },
            }
        };
        let layout = EventLayout {
            id: part("id")?,
            tenant: part("tenant")?,
            collection: part("collection")?,
            event_type: part("type")?,
            ts: part("ts")?,
            topic: part("topic")?,
            data: part("data")?,
            before: part("before")?,
            unknown: part("unknown")?,
            envelope: match part("envelope")? {
                Part::Never => Vec::new(),
                Part::Pointers(pointers) => pointers,
                _ => return Err("envelope: expected a JSON Pointer, a list of them or null".into()),
            },
            type_map: match value.get("type_map") {
                None | Some(Value::Scalar(Scalar::Null)) => None,
                Some(Value::Map(words)) => Some(
                    words
                        .iter()
                        .map(|(word, meaning)| {
                            let meaning = meaning.as_str().and_then(TypeMeaning::of);
                            let expected = "type_map: expected insert, update, delete, ignore or none";
                            meaning.map(|meaning| (word.clone(), meaning)).ok_or(expected)
                        })
                        .collect::<Result<_, _>>()?,
                ),
                Some(_) => return Err("type_map: expected an object of words".into()),
            },
            ts_format: match value.get("ts_format").and_then(Value::as_str) {
                Some("s") => TimestampFormat::Seconds,
                Some("ms") | None => TimestampFormat::Milliseconds,
                Some("us") => TimestampFormat::Microseconds,
                Some("ns") => TimestampFormat::Nanoseconds,
                Some("rfc3339") => TimestampFormat::Rfc3339,
                Some(other) => return Err(format!("ts_format: unknown {other:?}")),
            },
            before_holds: match value.get("before_holds").and_then(Value::as_str) {
                Some("all") | None => BeforeHolds::All,
                Some("partial") => BeforeHolds::Partial,
                Some("changed") => BeforeHolds::Changed,
                Some(other) => return Err(format!("before_holds: unknown {other:?}")),
            },
            unknown_value: texts(&value, "unknown_value")?,
            whole_rows: {
                let mut tables = texts(&value, "whole_rows")?;
                tables.sort_unstable();
                tables
            },
            added_prefix: value.get("added_prefix").and_then(Value::as_str).unwrap_or(ADDED).into(),
            encoded: match value.get("encoded") {
                None | Some(Value::Scalar(Scalar::Null)) => false,
                Some(Value::Scalar(Scalar::String(format))) if **format == *"json" => true,
                Some(_) => return Err("encoded: expected json".into()),
            },
            ignores_no_change: match value.get("no_change").and_then(Value::as_str) {
                Some("ignore") => true,
                Some("match") | None => false,
                Some(other) => return Err(format!("no_change: unknown {other:?}")),
            },
            format: match value.get("format").and_then(Value::as_str) {
                None => None,
                Some(name) => Some(Format::of(name).ok_or_else(|| format!("format: unknown {name:?}"))?),
            },
        };
        for pointer in layout.parts().into_iter().flat_map(|(_, part)| part.pointers()).chain(&layout.envelope) {
            if pointer.iter().filter(|token| index(token).is_some()).count() > MAX_INDEXES {
                return Err(format!("{}: more than {MAX_INDEXES} array indexes", encode_pointer(pointer)));
            }
        }
        Ok(layout)
    }

    /// All parts by name, in the order of semantics.md section 1.
    pub fn parts(&self) -> [(&'static str, &Part); 9] {
        [
            ("id", &self.id),
            ("tenant", &self.tenant),
            ("collection", &self.collection),
            ("type", &self.event_type),
            ("ts", &self.ts),
            ("topic", &self.topic),
            ("data", &self.data),
            ("before", &self.before),
            ("unknown", &self.unknown),
        ]
    }

    /// The pointers to places of `data` and `before`.
    pub(crate) fn documents(&self) -> impl Iterator<Item = &Pointer> {
        self.data.pointers().iter().chain(self.before.pointers())
    }

    /// The pointers in `envelope` that lead neither to a document nor into one.
    pub(crate) fn records(&self) -> impl Iterator<Item = &Pointer> {
        self.envelope.iter().filter(|at| !self.documents().any(|document| at.starts_with(document)))
    }

    /// The names of the members of the record at a pointer that contain a document.
    pub(crate) fn documents_in(&self, record: &Pointer) -> Vec<&str> {
        self.documents().filter_map(|document| document.strip_prefix(&**record)?.first()).map(|name| &**name).collect()
    }

    /// Translate the event's word for its type.
    pub fn event_type(&self, word: &str) -> Option<TypeMeaning> {
        match &self.type_map {
            None => EventType::of(word).map(TypeMeaning::Type),
            Some(words) => words.iter().find(|(known, _)| **known == *word).map(|(_, meaning)| *meaning),
        }
    }

    /// Whether `before` is apart: no other part is in it or contains it, and it is not in an array, through which a
    /// pattern passes without naming an element.
    pub(crate) fn before_is_apart(&self) -> bool {
        let parts = self.parts();
        let others = || parts.iter().filter(|(name, _)| *name != "before").flat_map(|(_, part)| part.pointers());
        let overlaps = |one: &Pointer, other: &Pointer| one.starts_with(other) || other.starts_with(one);
        let is_apart =
            |at: &Pointer| !at.iter().any(|token| index(token).is_some()) && !others().any(|other| overlaps(at, other));
        self.before.pointers().iter().all(is_apart)
    }

    /// Whether any object is ignored.
    pub fn ignores_any(&self) -> bool {
        let ignores = |words: &Vec<(Box<str>, TypeMeaning)>| words.iter().any(|(_, meaning)| *meaning == TypeMeaning::Ignore);
        self.ignores_no_change || self.type_map.as_ref().is_some_and(ignores)
    }
}

/// A member that is a text or several.
fn texts(layout: &Value, name: &str) -> Result<Box<[Box<str>]>, String> {
    let expected = || format!("{name}: expected a text or a list of them");
    match layout.get(name) {
        None | Some(Value::Scalar(Scalar::Null)) => Ok(Box::default()),
        Some(Value::Scalar(Scalar::String(text))) => Ok(Box::new([text.clone()])),
        Some(Value::List(texts)) => texts.iter().map(|text| text.as_str().map(Box::from).ok_or_else(expected)).collect(),
        Some(_) => Err(expected()),
    }
}

/// The part that is made of the first of these pointers and templates.
fn made_of(texts: &[&str]) -> Result<Part, &'static str> {
    let templates = texts.iter().map(|text| template(text)).collect::<Result<Vec<_>, _>>()?;
    let pointers = templates.iter().flat_map(|template| template.iter()).filter_map(|piece| match piece {
        Piece::Pointer(pointer) => Some(pointer.clone()),
        Piece::Text(_) => None,
    });
    let pointers: Vec<Pointer> = pointers.collect();
    let is_plain = templates.iter().all(|template| matches!(&**template, [Piece::Pointer(_)]));
    Ok(if is_plain { Part::Pointers(pointers) } else { Part::Made(templates, pointers) })
}

/// Split a pointer or a template: pointers are in braces, and a literal brace is doubled.
fn template(text: &str) -> Result<Template, &'static str> {
    const BRACES: &str = "a template has pointers in pairs of braces, and others doubled";
    if text.is_empty() || text.starts_with('/') {
        return Ok(Box::new([Piece::Pointer(decode_pointer(text)?)]));
    }
    let (mut pieces, mut plain, mut rest) = (Vec::new(), String::new(), text);
    while let Some(at) = rest.find(['{', '}']) {
        plain.push_str(&rest[..at]);
        let brace = &rest[at..=at];
        rest = &rest[at + 1..];
        if let Some(behind) = rest.strip_prefix(brace) {
            plain.push_str(brace);
            rest = behind;
        } else {
            let (pointer, behind) =
                rest.split_once('}').filter(|(inside, _)| brace == "{" && !inside.contains('{')).ok_or(BRACES)?;
            if !plain.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut plain).into()));
            }
            pieces.push(Piece::Pointer(decode_pointer(pointer)?));
            rest = behind;
        }
    }
    plain.push_str(rest);
    if pieces.is_empty() {
        return Err("a JSON Pointer is empty or begins with '/'");
    }
    if !plain.is_empty() {
        pieces.push(Piece::Text(plain.into()));
    }
    Ok(pieces.into())
}

/// A token that may be an array index doubles the places that a pointer can lead to, so at most this many are used.
pub const MAX_INDEXES: usize = 8;

/// Split a JSON Pointer into its unescaped tokens.
pub fn decode_pointer(text: &str) -> Result<Pointer, &'static str> {
    if text.is_empty() {
        return Ok(Box::default());
    }
    let Some(tokens) = text.strip_prefix('/') else {
        return Err("a JSON Pointer is empty or begins with '/'");
    };
    tokens.split('/').map(|token| json::unescape_token(token).ok_or("in a JSON Pointer '~' is followed by '0' or '1'")).collect()
}

/// Write a pointer as RFC 6901 does.
pub fn encode_pointer(pointer: &[impl AsRef<str>]) -> String {
    pointer.iter().fold(String::new(), |text, token| text + "/" + &token.as_ref().replace('~', "~0").replace('/', "~1"))
}

/// The array index that a token is, by RFC 6901: digits without a leading zero.
pub fn index(token: &str) -> Option<usize> {
    let plain = (1..10).contains(&token.len())
        && token.bytes().all(|byte| byte.is_ascii_digit())
        && (token == "0" || !token.starts_with('0'));
    plain.then(|| token.parse().ok()).flatten()
}
