//! AMQP topic patterns (semantics.md section 6).

use super::normal_form::TopicWord;

/// Of a pattern, and of a key that a pattern with `#` may match. In AMQP each has at most 255 bytes, so at most 256 words.
pub const MAX_WORDS: usize = 1024;

/// Split a topic pattern into its words. Words may be empty (`a.` has two), the empty pattern has none; `a*` is a literal word.
///
/// # Errors
///
/// The reason why it is refused: too many words.
pub fn parse_topic(text: &str) -> Result<Box<[TopicWord]>, String> {
    if text.is_empty() {
        return Ok(Box::default());
    }
    let count = text.split('.').count();
    if count > MAX_WORDS {
        return Err(format!("a topic pattern of {count} words; at most {MAX_WORDS} are allowed"));
    }
    Ok(text
        .split('.')
        .map(|word| match word {
            "*" => TopicWord::One,
            "#" => TopicWord::Many,
            word => TopicWord::Word(word.into()),
        })
        .collect())
}
