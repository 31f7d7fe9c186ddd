//! Clauses in words, for `plan`.

use super::normal_form::{Atom, Cidr, Clause, Mode, Path, Range, Relation, Root};
use crate::value::{Kind, Kinds, Number, Scalar, Value};
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Further values of a clause are counted.
const MOST_SHOWN: usize = 1_000;

impl fmt::Display for Clause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = match self.mode {
            Mode::Scalar => "",
            Mode::AnyLeaf => " any leaf",
            Mode::Element => " any element",
            Mode::Member => " any element or name",
            Mode::Changed => {
                let before = Path { root: Root::Before, names: self.path.names.clone() };
                return write!(f, "{before} differs from {}", self.path);
            }
        };
        write!(f, "{}{how} ", self.path)?;
        if self.atoms.is_empty() {
            return f.write_str("never");
        }
        alternatives(f, &self.atoms)
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.root {
            Root::Raw => "event",
            Root::Data => "data",
            Root::Before => "before",
            Root::Type => "type",
            Root::Topic => "topic",
            Root::Collection => "collection",
            Root::Tenant => "tenant",
            Root::Envelope => "envelope",
        })?;
        self.names.iter().try_for_each(|name| {
            let is_word = name.bytes().all(|byte| byte == b'_' || byte.is_ascii_alphanumeric());
            if is_word && !name.starts_with(|first: char| first.is_ascii_digit()) && !name.is_empty() {
                write!(f, ".{name}")
            } else {
                write!(f, "[{name:?}]")
            }
        })
    }
}

impl fmt::Display for Relation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Relation::Equal => "=",
            Relation::Less => "<",
            Relation::LessOrEqual => "<=",
        })
    }
}

impl fmt::Display for Atom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Atom::Equal(scalar) => write!(f, "= {scalar}"),
            Atom::EqualTree(value) => write!(f, "= {value}"),
            Atom::Numbers(range) => bounds(f, range, "any number"),
            Atom::Strings(range) => bounds(f, &quoted(range), "any string"),
            Atom::Times(of, range) => {
                let in_words = |(bound, closed): &(Number, bool)| (of.in_words(*bound), *closed);
                write!(f, "as {} ", of.as_str())?;
                bounds(f, &Range { low: range.low.as_ref().map(in_words), high: range.high.as_ref().map(in_words) }, "any")
            }
            Atom::Size(least, most) if least == most => write!(f, "has size {least}"),
            Atom::Size(least, u32::MAX) => write!(f, "has size >= {least}"),
            Atom::Size(0, most) => write!(f, "has size <= {most}"),
            Atom::Size(least, most) => write!(f, "has size >= {least} and <= {most}"),
            Atom::Prefix(text) => write!(f, "starts with {text:?}"),
            Atom::Suffix(text) => write!(f, "ends with {text:?}"),
            Atom::Substring(text) => write!(f, "contains {text:?}"),
            Atom::PrefixIgnoreCase(text) => write!(f, "starts with {text:?}, in any case"),
            Atom::SuffixIgnoreCase(text) => write!(f, "ends with {text:?}, in any case"),
            Atom::EqualIgnoreCase(text) => write!(f, "= {text:?}, in any case"),
            Atom::SubstringIgnoreCase(text) => write!(f, "contains {text:?}, in any case"),
            Atom::Wildcard(pieces) => write!(f, "like {:?}", pieces.join("*")),
            Atom::Regexp(regexp) => write!(f, "matches {:?}", regexp.expression),
            Atom::Cidr(Cidr::V4(bits, length)) => write!(f, "in {}/{length}", Ipv4Addr::from(*bits)),
            Atom::Cidr(Cidr::V6(bits, length)) => write!(f, "in {}/{length}", Ipv6Addr::from(*bits)),
            Atom::Element(value) => write!(f, "has an element {value}"),
            Atom::ElementIgnoreCase(text) => write!(f, "has an element {text:?}, in any case"),
            Atom::Kinds(kinds) => write_kinds(f, *kinds),
            Atom::Other { kinds, none_of } => {
                write_kinds(f, *kinds)?;
                f.write_str(" and not (")?;
                alternatives(f, none_of)?;
                f.write_str(")")
            }
            Atom::Topic(pattern) => write!(f, "like {pattern}"),
        }
    }
}

fn alternatives(f: &mut fmt::Formatter<'_>, atoms: &[Atom]) -> fmt::Result {
    let (shown, others) = atoms.split_at(atoms.len().min(MOST_SHOWN));
    joined(f, shown, " or ")?;
    if others.is_empty() { Ok(()) } else { write!(f, " (and {} more values)", others.len()) }
}

fn joined<T: fmt::Display>(f: &mut fmt::Formatter<'_>, parts: &[T], between: &str) -> fmt::Result {
    for (at, part) in parts.iter().enumerate() {
        write!(f, "{}{part}", if at > 0 { between } else { "" })?;
    }
    Ok(())
}

fn quoted(range: &Range<Box<str>>) -> Range<String> {
    let quoted = |(text, closed): &(Box<str>, bool)| (format!("{text:?}"), *closed);
    Range { low: range.low.as_ref().map(quoted), high: range.high.as_ref().map(quoted) }
}

fn bounds<T: fmt::Display>(f: &mut fmt::Formatter<'_>, range: &Range<T>, open: &str) -> fmt::Result {
    let low = range.low.as_ref().map(|(bound, closed)| format!("{} {bound}", if *closed { ">=" } else { ">" }));
    let high = range.high.as_ref().map(|(bound, closed)| format!("{} {bound}", if *closed { "<=" } else { "<" }));
    match (low, high) {
        (Some(low), Some(high)) => write!(f, "{low} and {high}"),
        (Some(one), None) | (None, Some(one)) => f.write_str(&one),
        (None, None) => f.write_str(open),
    }
}

fn write_kinds(f: &mut fmt::Formatter<'_>, kinds: Kinds) -> fmt::Result {
    const WORDS: [(Kind, &str); 7] = [
        (Kind::Missing, "missing"),
        (Kind::Null, "null"),
        (Kind::Bool, "a bool"),
        (Kind::Number, "a number"),
        (Kind::String, "a string"),
        (Kind::List, "a list"),
        (Kind::Map, "a map"),
    ];
    if kinds == Kinds::PRESENT || kinds == Kinds::READABLE {
        return f.write_str("present");
    }
    let words: Vec<&str> = WORDS.iter().filter(|(kind, _)| kinds.has(*kind)).map(|(_, word)| *word).collect();
    write!(f, "is {}", if words.is_empty() { "never".into() } else { words.join(" or ") })
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scalar::Null => f.write_str("null"),
            Scalar::Bool(value) => write!(f, "{value}"),
            Scalar::Number(value) => write!(f, "{value}"),
            Scalar::String(text) => write!(f, "{text:?}"),
        }
    }
}

/// Recursive: for values of subscriptions, whose depth is limited.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Scalar(scalar) => write!(f, "{scalar}"),
            Value::BeyondFloat(literal) => f.write_str(literal),
            Value::List(items) => {
                f.write_str("[")?;
                joined(f, items, ", ")?;
                f.write_str("]")
            }
            Value::Map(members) => {
                f.write_str("{")?;
                for (at, (name, value)) in members.iter().enumerate() {
                    write!(f, "{}{name:?}: {value}", if at > 0 { ", " } else { "" })?;
                }
                f.write_str("}")
            }
        }
    }
}
