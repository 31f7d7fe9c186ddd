//! Topic patterns in three dialects, and the definition of a topic in each (semantics.md section 6).
//!
//! ```text
//!   amqp   orders.*.paid.#    One Many     words at '.'      any text is a topic
//!   mqtt   orders/+/paid/#    One Many     levels at '/'     no topic: empty, or one with '+', '#' or U+0000
//!   nats   orders.*.paid.>    One One Many tokens at '.'     no topic: one with an empty token, white space, or a token '*' or '>'
//! ```
//!
//! All become one row of words, so that one automaton serves all three: the dialects differ in how a topic is split.

use memchr::memchr3;
use std::fmt;

/// The most words of a pattern as it is written, and of a topic that a pattern with [`TopicWord::Many`] may match. In
/// AMQP each has at most 255 bytes, so at most 256 words.
pub const MAX_WORDS: usize = 1024;

/// Whose rules a topic pattern follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TopicDialect {
    /// AMQP 0-9-1, as RabbitMQ has it.
    #[default]
    Amqp,
    /// MQTT 5.
    Mqtt,
    /// NATS.
    Nats,
}

/// How a dialect is written.
struct Syntax {
    name: &'static str,
    separator: char,
    /// The noun for the parts between separators.
    word: &'static str,
    one: &'static str,
    many: &'static str,
}

impl TopicDialect {
    /// All, in the order in which segments number them.
    pub const ALL: [TopicDialect; 3] = [TopicDialect::Amqp, TopicDialect::Mqtt, TopicDialect::Nats];
    /// Their names.
    pub const NAMES: [&str; 3] = ["amqp", "mqtt", "nats"];

    fn syntax(self) -> &'static Syntax {
        match self {
            TopicDialect::Amqp => &Syntax { name: "amqp", separator: '.', word: "word", one: "*", many: "#" },
            TopicDialect::Mqtt => &Syntax { name: "mqtt", separator: '/', word: "level", one: "+", many: "#" },
            TopicDialect::Nats => &Syntax { name: "nats", separator: '.', word: "token", one: "*", many: ">" },
        }
    }

    /// The dialect of this name.
    pub fn of(name: &str) -> Option<TopicDialect> {
        TopicDialect::ALL.into_iter().find(|dialect| dialect.syntax().name == name)
    }

    /// The character between two words.
    pub fn separator(self) -> char {
        self.syntax().separator
    }

    /// Whether a text is a topic in this dialect; none of its patterns matches one that is not.
    #[inline]
    pub fn is_topic(self, text: &str) -> bool {
        match self {
            TopicDialect::Amqp => true,
            TopicDialect::Mqtt => !text.is_empty() && memchr3(b'+', b'#', 0, text.as_bytes()).is_none(),
            TopicDialect::Nats => {
                // A token that is empty, or a wildcard so far.
                let (mut is_none, mut is_bad, mut before) = (true, false, b'.');
                for byte in text.bytes() {
                    is_bad |= is_reserved(byte) || (byte == b'.' && is_none);
                    is_none = byte == b'.' || (before == b'.' && matches!(byte, b'*' | b'>'));
                    before = byte;
                }
                !is_bad && !is_none
            }
        }
    }

    /// Whether patterns that begin with a wildcard never match the topic.
    #[inline]
    pub fn is_hidden(self, topic: &str) -> bool {
        self == TopicDialect::Mqtt && topic.starts_with('$')
    }
}

/// Whether a character cannot be in a token of NATS.
fn is_reserved(byte: u8) -> bool {
    matches!(byte, 0 | b'\t' | b'\n' | b'\x0c' | b'\r' | b' ')
}

/// The words of a topic or pattern; the empty text has none.
pub fn words(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let all = text.split(separator);
    all.take(if text.is_empty() { 0 } else { usize::MAX })
}

/// One word of a topic pattern.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TopicWord {
    /// Exactly this word, which may be empty.
    Word(Box<str>),
    /// `*` or `+`: exactly one word.
    One,
    /// `#`: zero or more words.
    Many,
}

/// A topic pattern.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TopicPattern {
    /// How a topic is split, and which texts are not topics.
    pub dialect: TopicDialect,
    /// Its words; the `>` of NATS is [`TopicWord::One`] and [`TopicWord::Many`].
    pub words: Box<[TopicWord]>,
}

impl TopicPattern {
    /// Read a pattern. In AMQP words may be empty (`a.` has two), the empty pattern has none, and `a*` is a literal word.
    ///
    /// # Errors
    ///
    /// The reason to refuse it: too many words, or a word that the dialect does not allow.
    pub fn parse(text: &str, dialect: TopicDialect) -> Result<TopicPattern, String> {
        let Syntax { separator, word: noun, one, many, .. } = dialect.syntax();
        let count = words(text, *separator).count();
        if count > MAX_WORDS {
            return Err(format!("a topic pattern of {count} {noun}s; at most {MAX_WORDS} are allowed"));
        }
        if count == 0 && dialect != TopicDialect::Amqp {
            return Err(format!("an empty topic pattern; expected at least one {noun}"));
        }
        if dialect == TopicDialect::Mqtt && text.starts_with("$share/") {
            return Err("a shared subscription; expected the topic filter that follows '$share/NAME/'".into());
        }
        let mut read = Vec::with_capacity(count + 1);
        for (number, word) in (1..).zip(words(text, *separator)) {
            if dialect != TopicDialect::Amqp {
                check(word, dialect).map_err(|reason| format!("{noun} {number}: {reason}"))?;
            }
            if word == *one {
                read.push(TopicWord::One);
            } else if word != *many {
                read.push(TopicWord::Word(word.into()));
            } else {
                if dialect != TopicDialect::Amqp && number < count {
                    return Err(format!("{noun} {number}: expected '{many}' to be the last {noun}"));
                }
                if dialect == TopicDialect::Nats {
                    read.push(TopicWord::One);
                }
                read.push(TopicWord::Many);
            }
        }
        Ok(TopicPattern { dialect, words: read.into() })
    }

    /// The one topic that it matches, if it has no wildcard.
    pub fn literal(&self) -> Option<String> {
        let mut text = String::new();
        for (at, word) in self.words.iter().enumerate() {
            let TopicWord::Word(word) = word else { return None };
            if at > 0 {
                text.push(self.dialect.separator());
            }
            text.push_str(word);
        }
        Some(text)
    }
}

/// Refuse a word that cannot be in a topic of MQTT or NATS and is not a wildcard.
fn check(word: &str, dialect: TopicDialect) -> Result<(), String> {
    let Syntax { word: noun, one, many, .. } = dialect.syntax();
    if word == *one || word == *many {
        return Ok(());
    }
    if dialect == TopicDialect::Nats && word.is_empty() {
        return Err("expected at least one character".into());
    }
    for wildcard in [one, many] {
        if dialect == TopicDialect::Mqtt && word.contains(wildcard) {
            return Err(format!("expected '{wildcard}' to be a whole {noun}"));
        }
    }
    if word.contains('\0') {
        return Err("expected no U+0000".into());
    }
    if dialect == TopicDialect::Nats && word.bytes().any(is_reserved) {
        return Err("expected no white space".into());
    }
    Ok(())
}

/// As it is written; of a dialect that is not AMQP's with the name.
impl fmt::Display for TopicPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Syntax { name, separator, one, many, .. } = self.dialect.syntax();
        let written = match &*self.words {
            [before @ .., TopicWord::One, TopicWord::Many] if self.dialect == TopicDialect::Nats => before,
            words => words,
        };
        let shown = written.iter().map(|word| match word {
            TopicWord::Word(word) => word,
            TopicWord::One => *one,
            TopicWord::Many => *many,
        });
        let rest = if written.len() < self.words.len() { Some(*many) } else { None };
        for (at, word) in shown.chain(rest).enumerate() {
            if at > 0 {
                write!(f, "{separator}")?;
            }
            f.write_str(word)?;
        }
        if self.dialect == TopicDialect::Amqp { Ok(()) } else { write!(f, " ({name})") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str, dialect: TopicDialect) -> String {
        TopicPattern::parse(text, dialect).unwrap_err()
    }

    #[test]
    fn a_pattern_prints_as_it_is_written() {
        for (dialect, texts) in TopicDialect::ALL.into_iter().zip([
            vec!["", "a.", "*.#.b*"],
            vec!["/", "+/a//#", "a.*", "$SYS/#", ">"],
            vec![">", "*.>", "a.*.>", "#", "a.b", "a.b*", ">>"],
        ]) {
            for text in texts {
                let pattern = TopicPattern::parse(text, dialect).unwrap();
                let expected =
                    if dialect == TopicDialect::Amqp { text.into() } else { format!("{text} ({})", dialect.syntax().name) };
                assert_eq!(pattern.to_string(), expected);
                let is_wild = pattern.words.iter().any(|word| !matches!(word, TopicWord::Word(_)));
                assert_eq!(pattern.literal(), (!is_wild).then(|| text.to_owned()));
            }
        }
    }

    #[test]
    fn what_a_dialect_does_not_know_is_refused_with_its_place() {
        use TopicDialect::{Mqtt, Nats};
        assert_eq!(refused("a/sport+", Mqtt), "level 2: expected '+' to be a whole level");
        assert_eq!(refused("a/#/b", Mqtt), "level 2: expected '#' to be the last level");
        assert_eq!(refused("", Mqtt), "an empty topic pattern; expected at least one level");
        assert_eq!(refused("a.>.b", Nats), "token 2: expected '>' to be the last token");
        assert_eq!(refused("a..b", Nats), "token 2: expected at least one character");
        assert_eq!(refused("a b", Nats), "token 1: expected no white space");
        assert_eq!(refused("a\0", Nats), "token 1: expected no U+0000");
    }

    #[test]
    fn no_pattern_of_a_dialect_matches_what_is_no_topic_in_it() {
        for text in ["", "a/+", "a#", "\0"] {
            assert!(!TopicDialect::Mqtt.is_topic(text) && TopicDialect::Amqp.is_topic(text), "{text:?}");
        }
        for text in ["", ".", ".a", "a.", "a..b", "a b", "a\t", "a.*", "*.a", "a.>.b", ">", "\0"] {
            assert!(!TopicDialect::Nats.is_topic(text) && TopicDialect::Amqp.is_topic(text), "{text:?}");
        }
        assert!(TopicDialect::Mqtt.is_topic("/") && TopicDialect::Mqtt.is_topic("a. *"));
        for text in ["a.b/#+", "é", "a>", "a.*-", "**.>>", "*a.b"] {
            assert!(TopicDialect::Nats.is_topic(text), "{text:?}");
        }
    }
}
