//! The keys that a condition requires and that a value carries, for each kind of key that is more than an equality.
//!
//! ```text
//!   amount > 100            requires     range48 12889…  range52 805…  …           amount 5000      carries one of them
//!   name begins "ab-cde"    requires     prefix4 "ab-c"                            "ab-cxy"         carries it, too
//! ```
//!
//! `streamer/subscriptions/keys.py` and `buckets.py` define the kinds, the keys of each, its rank, the buckets of
//! numbers, and the tag and value with which a key is written. They give the reasons; this file repeats the rules.
//!
//! Invariant: if [`of_atom`] visits probes for an atom, a value that satisfies the atom carries one of them.
//!
//! Cost: for each value one probe for each kind with keys at its place, for `gram` up to 62, for `element` one for each
//! scalar in the list.

use crate::automaton::cidr::parse_address;
use crate::automaton::folding::fold;
use crate::automaton::ranges::NumberCut;
use crate::engine::verify::encoded::AtomView;
use crate::subscriptions::normal_form::Cidr;
use crate::subscriptions::topics::{TopicDialect, TopicWord, words};
use crate::value::{Number, ScalarRef, Seed, repr};
use std::borrow::Cow;
use std::fmt;
use std::io::Write;
use std::net::IpAddr;

/// Lengths of the beginnings and ends of texts.
const LENGTHS: [u8; 5] = [16, 8, 4, 2, 1];
/// Lengths of the beginnings and ends of topics, in words.
const MOST_WORDS: usize = 4;
const NETS4: [u8; 4] = [32, 24, 16, 8];
const NETS6: [u8; 5] = [128, 64, 48, 32, 16];
/// Characters of a gram.
const GRAM: usize = 3;
/// A longer text, in characters, carries too many grams to look up each: it may contain anything.
const LONGEST_FOR_GRAMS: usize = 64;
/// Sizes of buckets of numbers, as how many of the 64 bits are cut off.
const SHIFTS: [u8; 7] = [36, 40, 44, 48, 52, 56, 60];
const COARSEST_EDGE: usize = 3;
const PARTS: u64 = 16;
const STEP: u64 = 16;

/// A kind of place: how keys are made of an event's value there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KeyKind {
    /// The value.
    Equal,
    /// The text, case folded.
    Fold,
    /// Three characters of the text, anywhere in it.
    Gram,
    /// A scalar in the list.
    Element,
    /// The bucket of this size that the number lies in.
    Range(u8),
    /// This many characters at an end of the text, folded or not.
    End {
        /// The end, not the beginning.
        last: bool,
        /// Case folded.
        folded: bool,
        /// Characters.
        length: u8,
    },
    /// This many words at an end of the topic.
    Words {
        /// Levels of MQTT, which `/` separates; else words of AMQP or tokens of NATS.
        levels: bool,
        /// The end, not the beginning.
        last: bool,
        /// Words.
        length: u8,
    },
    /// This many bits of the IPv4 address.
    Net4(u8),
    /// This many bits of the IPv6 address.
    Net6(u8),
}

impl KeyKind {
    /// The kind with this name; None if the name is unknown.
    pub fn parse(name: &str) -> Option<KeyKind> {
        let plain = match name {
            "equal" => Some(KeyKind::Equal),
            "fold" => Some(KeyKind::Fold),
            "gram" => Some(KeyKind::Gram),
            "element" => Some(KeyKind::Element),
            _ => None,
        };
        let number = |digits: &str| digits.parse::<u8>().ok();
        let kind = plain.or_else(|| {
            if let Some((net, length)) = name.split_once('-') {
                return match net {
                    "net4" => number(length).map(KeyKind::Net4),
                    "net6" => number(length).map(KeyKind::Net6),
                    _ => None,
                };
            }
            let (word, length) = name.split_at(name.find(|char: char| char.is_ascii_digit())?);
            let length = number(length)?;
            let end = |last, folded| Some(KeyKind::End { last, folded, length });
            match word {
                "range" => Some(KeyKind::Range(length)),
                "prefix" => end(false, false),
                "suffix" => end(true, false),
                "iprefix" => end(false, true),
                "isuffix" => end(true, true),
                "words" => Some(KeyKind::Words { levels: false, last: false, length }),
                "lastwords" => Some(KeyKind::Words { levels: false, last: true, length }),
                "levels" => Some(KeyKind::Words { levels: true, last: false, length }),
                "lastlevels" => Some(KeyKind::Words { levels: true, last: true, length }),
                _ => None,
            }
        })?;
        let is_known = match kind {
            KeyKind::Range(shift) => SHIFTS.contains(&shift),
            KeyKind::End { length, .. } => LENGTHS.contains(&length),
            KeyKind::Words { length, .. } => (1..=MOST_WORDS).contains(&length.into()),
            KeyKind::Net4(length) => NETS4.contains(&length),
            KeyKind::Net6(length) => NETS6.contains(&length),
            KeyKind::Equal | KeyKind::Fold | KeyKind::Gram | KeyKind::Element => true,
        };
        // Leading zeros and signs are refused, so that each kind has one name.
        (is_known && kind.name() == name).then_some(kind)
    }

    /// Its name.
    pub fn name(self) -> String {
        self.to_string()
    }
}

impl fmt::Display for KeyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyKind::Equal => f.write_str("equal"),
            KeyKind::Fold => f.write_str("fold"),
            KeyKind::Gram => f.write_str("gram"),
            KeyKind::Element => f.write_str("element"),
            KeyKind::Range(shift) => write!(f, "range{shift}"),
            KeyKind::End { last, folded, length } => {
                write!(f, "{}{}{length}", if *folded { "i" } else { "" }, if *last { "suffix" } else { "prefix" })
            }
            KeyKind::Words { levels, last, length } => {
                write!(f, "{}{}{length}", if *last { "last" } else { "" }, if *levels { "levels" } else { "words" })
            }
            KeyKind::Net4(length) => write!(f, "net4-{length}"),
            KeyKind::Net6(length) => write!(f, "net6-{length}"),
        }
    }
}

/// A key without its place: one that a condition requires, or that a value carries.
#[derive(Clone, Debug, PartialEq)]
pub enum KeyProbe<'a> {
    /// This scalar, of kind `equal`.
    Equal(ScalarRef<'a>),
    /// This scalar in a list, of kind `element`.
    Element(ScalarRef<'a>),
    /// A text of this kind; of kind `equal` a whole one.
    Text(KeyKind, Cow<'a, str>),
    /// A bucket, or a net.
    Number(KeyKind, u128),
}

impl KeyProbe<'_> {
    /// The kind of place that has this probe.
    pub fn kind(&self) -> KeyKind {
        match self {
            KeyProbe::Equal(_) => KeyKind::Equal,
            KeyProbe::Element(_) => KeyKind::Element,
            KeyProbe::Text(kind, _) | KeyProbe::Number(kind, _) => *kind,
        }
    }

    /// Hash by value; a text has the hash of the same string as a scalar.
    pub fn hash(&self, seed: &Seed) -> u64 {
        match self {
            KeyProbe::Equal(scalar) | KeyProbe::Element(scalar) => scalar.hash(seed),
            KeyProbe::Text(_, text) => ScalarRef::String(text).hash(seed),
            KeyProbe::Number(_, number) => seed.hash_words(*number as u64, (*number >> 64) as u64),
        }
    }

    /// Write the last two members of a key, `"tag",value`, as Python's `json.dumps` does without spaces.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            KeyProbe::Equal(scalar) => write_scalar(out, "\"", *scalar),
            KeyProbe::Element(scalar) => write_scalar(out, "\"element-", *scalar),
            KeyProbe::Text(KeyKind::Equal, text) => write_scalar(out, "\"", ScalarRef::String(text)),
            KeyProbe::Text(kind, text) => {
                write_kind(out, *kind);
                write_quoted(out, text);
            }
            KeyProbe::Number(kind, number) => {
                write_kind(out, *kind);
                put(out, format_args!("\"{number}\""));
            }
        }
    }
}

fn put(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    // A vector takes everything.
    let _ = out.write_fmt(text);
}

fn write_kind(out: &mut Vec<u8>, kind: KeyKind) {
    put(out, format_args!("\"{kind}\","));
}

fn write_scalar(out: &mut Vec<u8>, before: &str, scalar: ScalarRef<'_>) {
    out.extend_from_slice(before.as_bytes());
    match scalar {
        ScalarRef::Null => out.extend_from_slice(b"null\",null"),
        ScalarRef::Bool(true) => out.extend_from_slice(b"bool\",true"),
        ScalarRef::Bool(false) => out.extend_from_slice(b"bool\",false"),
        ScalarRef::Number(number) => {
            out.extend_from_slice(b"number\",\"");
            write_number(out, number);
            out.push(b'"');
        }
        ScalarRef::String(text) => {
            out.extend_from_slice(b"string\",");
            write_quoted(out, text);
        }
    }
}

/// A JSON string as Python's `json.dumps(text, ensure_ascii=False)` writes it.
pub(super) fn write_quoted(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let mut rest = text;
    while let Some(at) = rest.bytes().position(|byte| byte < b' ' || byte == b'"' || byte == b'\\') {
        out.extend_from_slice(&rest.as_bytes()[..at]);
        match rest.as_bytes()[at] {
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0x8 => out.extend_from_slice(b"\\b"),
            0xc => out.extend_from_slice(b"\\f"),
            byte @ (b'"' | b'\\') => out.extend_from_slice(&[b'\\', byte]),
            byte => put(out, format_args!("\\u{byte:04x}")),
        }
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest.as_bytes());
    out.push(b'"');
}

/// All digits of an integer; any other number as Python's `repr`, the shortest text that reads back as the same
/// float64.
fn write_number(out: &mut Vec<u8>, number: Number) {
    if let Some(whole) = number.as_integer() {
        return put(out, format_args!("{whole}"));
    }
    let value = number.floor();
    if value.fract() == 0.0 {
        return put(out, format_args!("{value:.0}"));
    }
    out.extend_from_slice(repr(value).as_bytes());
}

/// Call *visit* with the probes of a kind that a scalar carries; return false if they are too many to visit.
#[inline]
pub fn of_scalar<'a>(kind: KeyKind, scalar: ScalarRef<'a>, visit: &mut impl FnMut(KeyProbe<'a>)) -> bool {
    match (kind, scalar) {
        (KeyKind::Equal, scalar) => visit(KeyProbe::Equal(scalar)),
        (KeyKind::Range(shift), ScalarRef::Number(number)) => visit(KeyProbe::Number(kind, (code(number) >> shift).into())),
        (_, ScalarRef::String(text)) => return of_text(kind, text, visit),
        _ => {}
    }
    true
}

fn of_text<'a>(kind: KeyKind, text: &'a str, visit: &mut impl FnMut(KeyProbe<'a>)) -> bool {
    match kind {
        KeyKind::Fold => visit(KeyProbe::Text(kind, fold(text))),
        KeyKind::Gram => {
            // A character is at most four bytes.
            if text.len() > LONGEST_FOR_GRAMS && text.chars().nth(LONGEST_FOR_GRAMS).is_some() {
                return false;
            }
            let ends = text.char_indices().map(|(at, _)| at).chain([text.len()]).skip(GRAM);
            text.char_indices().zip(ends).for_each(|((start, _), end)| visit(KeyProbe::Text(kind, text[start..end].into())));
        }
        KeyKind::End { last, folded, length } => {
            if let Some(part) = end_of(text, last, length.into()) {
                visit(KeyProbe::Text(kind, if folded { fold(part) } else { part.into() }));
            }
        }
        KeyKind::Words { levels, last, length } => {
            if let Some(part) = words_of(text, separator(levels), last, length.into()) {
                visit(KeyProbe::Text(kind, part.into()));
            }
        }
        KeyKind::Net4(length) => {
            if let Some(IpAddr::V4(address)) = parse_address(text) {
                visit(KeyProbe::Number(kind, (u32::from(address) >> (32 - length)).into()));
            }
        }
        KeyKind::Net6(length) => {
            if let Some(IpAddr::V6(address)) = parse_address(text) {
                visit(KeyProbe::Number(kind, u128::from(address) >> (128 - length)));
            }
        }
        KeyKind::Equal | KeyKind::Element | KeyKind::Range(_) => {}
    }
    true
}

/// The first or last *length* characters; None if there are fewer.
fn end_of(text: &str, last: bool, length: usize) -> Option<&str> {
    if last {
        let (start, _) = text.char_indices().rev().nth(length - 1)?;
        Some(&text[start..])
    } else {
        let (start, char) = text.char_indices().nth(length - 1)?;
        Some(&text[..start + char.len_utf8()])
    }
}

/// The first or last *length* words of a topic; None if there are fewer.
fn words_of(topic: &str, separator: char, last: bool, length: usize) -> Option<&str> {
    let count = words(topic, separator).count();
    if count < length {
        return None;
    }
    if count == length {
        return Some(topic);
    }
    let mut ends = topic.match_indices(separator).map(|(at, _)| at);
    if last { Some(&topic[ends.nth(count - length - 1)? + 1..]) } else { Some(&topic[..ends.nth(length - 1)?]) }
}

fn separator(levels: bool) -> char {
    if levels { TopicDialect::Mqtt.separator() } else { TopicDialect::Amqp.separator() }
}

/// How selective a condition is, the smaller the better.
pub mod rank {
    /// One value of many.
    pub const EXACT: u8 = 0;
    /// A good part of a text.
    pub const NARROW: u8 = 1;
    /// A range, or little of a text.
    pub const WIDE: u8 = 2;
    /// Half of all events carry it, as `active: true`.
    pub const HALF: u8 = 3;
    /// The type: nearly every event has the type `update`.
    pub const TYPE: u8 = 4;
}

/// How selective an equality with a scalar is.
pub fn rank_of(scalar: ScalarRef<'_>) -> u8 {
    if matches!(scalar, ScalarRef::Null | ScalarRef::Bool(_)) { rank::HALF } else { rank::EXACT }
}

/// Call *visit* with the probes of an atom: every value that satisfies the atom carries one of them. Return its
/// [`rank`], or None if it has no probes; then *visit* was not called.
pub fn of_atom<'a>(atom: &AtomView<'a>, visit: &mut dyn FnMut(KeyProbe<'a>)) -> Option<u8> {
    match *atom {
        AtomView::Equal(scalar) => {
            visit(KeyProbe::Equal(scalar));
            Some(rank_of(scalar))
        }
        AtomView::EqualIgnoreCase(text) => {
            visit(KeyProbe::Text(KeyKind::Fold, fold(text)));
            Some(rank::EXACT)
        }
        AtomView::Numbers(from, to) => {
            let bound = |cut: NumberCut| code(cut.number());
            buckets(from.map_or(0, bound), to.map_or(u64::MAX, bound), |shift, bucket| {
                visit(KeyProbe::Number(KeyKind::Range(shift), bucket.into()));
            });
            Some(rank::WIDE)
        }
        AtomView::Prefix(text) => ask_end(text, false, false, visit),
        AtomView::Suffix(text) => ask_end(text, true, false, visit),
        AtomView::PrefixIgnoreCase(text) => ask_end(text, false, true, visit),
        AtomView::SuffixIgnoreCase(text) => ask_end(text, true, true, visit),
        AtomView::Substring(text) => ask_gram(text, visit),
        AtomView::Wildcard(mut pieces) => {
            let first = pieces.next()?;
            let Some(last) = pieces.next_back() else {
                visit(KeyProbe::Equal(ScalarRef::String(first)));
                return Some(rank::EXACT);
            };
            let characters = |text: &str| text.chars().count();
            if !first.is_empty() || !last.is_empty() {
                let is_first = characters(first) >= characters(last);
                return ask_end(if is_first { first } else { last }, !is_first, false, visit);
            }
            // The first of the longest pieces.
            let longest = pieces.rev().max_by_key(|piece| characters(piece))?;
            ask_gram(longest, visit)
        }
        AtomView::Element(mut equal) => {
            let AtomView::Equal(scalar) = equal.next()?.view else { return None };
            visit(KeyProbe::Element(scalar));
            Some(rank_of(scalar).max(rank::NARROW))
        }
        AtomView::Topic(dialect, words) => {
            let (rank, probe) = topic(dialect == TopicDialect::Mqtt, &words.to_vec())?;
            visit(probe);
            Some(rank)
        }
        AtomView::Cidr(net) => {
            let longest = |lengths: &[u8], most: u8| lengths.iter().copied().find(|length| *length <= most);
            match net {
                Cidr::V4(bits, length) => {
                    let length = longest(&NETS4, length)?;
                    visit(KeyProbe::Number(KeyKind::Net4(length), (bits >> (32 - length)).into()));
                }
                Cidr::V6(bits, length) => {
                    let length = longest(&NETS6, length)?;
                    visit(KeyProbe::Number(KeyKind::Net6(length), bits >> (128 - length)));
                }
            }
            Some(rank::NARROW)
        }
        AtomView::EqualTree(_)
        | AtomView::Strings(..)
        | AtomView::Times(..)
        | AtomView::Size(..)
        | AtomView::Regexp(_)
        | AtomView::Kinds(_)
        | AtomView::Other(..)
        // A gram of a folded text would need a kind of its own.
        | AtomView::SubstringIgnoreCase(_) => None,
    }
}

fn ask_end<'a>(text: &'a str, last: bool, folded: bool, visit: &mut dyn FnMut(KeyProbe<'a>)) -> Option<u8> {
    let (length, part) = LENGTHS.iter().find_map(|length| Some((*length, end_of(text, last, (*length).into())?)))?;
    visit(KeyProbe::Text(KeyKind::End { last, folded, length }, if folded { fold(part) } else { part.into() }));
    Some(if length < 4 { rank::WIDE } else { rank::NARROW })
}

fn ask_gram<'a>(text: &'a str, visit: &mut dyn FnMut(KeyProbe<'a>)) -> Option<u8> {
    visit(KeyProbe::Text(KeyKind::Gram, end_of(text, false, GRAM)?.into()));
    Some(rank::WIDE)
}

fn topic(levels: bool, words: &[TopicWord]) -> Option<(u8, KeyProbe<'static>)> {
    let is_wild = |word: &TopicWord| matches!(word, TopicWord::One | TopicWord::Many);
    let text = |words: &[TopicWord]| {
        let literal = |word: &TopicWord| match word {
            TopicWord::Word(word) => word.to_string(),
            TopicWord::One | TopicWord::Many => String::new(),
        };
        let separator = separator(levels).to_string();
        Cow::Owned(words.iter().map(literal).collect::<Vec<_>>().join(&separator))
    };
    let first = words.iter().position(is_wild)?;
    let last = words.iter().rev().position(is_wild).unwrap_or_default();
    let length = first.max(last).min(MOST_WORDS);
    if length == 0 {
        return None;
    }
    let is_last = first < last;
    let part = if is_last { &words[words.len() - length..] } else { &words[..length] };
    Some((rank::NARROW, KeyProbe::Text(KeyKind::Words { levels, last: is_last, length: length as u8 }, text(part))))
}

/// 64 bits that order numbers as their values do: an integer goes to the nearest float64.
fn code(number: Number) -> u64 {
    let value = number.as_integer().map_or(number.floor(), |whole| whole as f64);
    Number::from_f64(value).map_or(u64::MAX, |near| near.order_key().0)
}

/// Call *visit* with the shift and the number of buckets that together cover every number from *first* to *last*, both
/// as [`code`].
fn buckets(first: u64, last: u64, mut visit: impl FnMut(u8, u64)) {
    if first > last {
        return;
    }
    let is_fine = |shift: &u8| (last >> shift) - (first >> shift) < PARTS;
    let start = SHIFTS[..COARSEST_EDGE].iter().position(is_fine).unwrap_or(COARSEST_EDGE);
    let (mut first, mut last) = (first >> SHIFTS[start], last >> SHIFTS[start]);
    for shift in &SHIFTS[start..] {
        let is_largest = *shift == SHIFTS[SHIFTS.len() - 1];
        // Whole buckets of the next size are left to it; the rest at either end is visited here.
        while first <= last && (first % STEP != 0 || is_largest) {
            visit(*shift, first);
            first += 1;
        }
        while first <= last && last % STEP != STEP - 1 {
            visit(*shift, last);
            // Below zero there is none: then it was the last one.
            let Some(before) = last.checked_sub(1) else { return };
            last = before;
        }
        if first > last {
            return;
        }
        (first, last) = (first / STEP, last / STEP);
    }
}
