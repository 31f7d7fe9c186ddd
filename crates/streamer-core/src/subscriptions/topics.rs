//! AMQP topic patterns (semantics.md section 6).

use super::normal_form::TopicWord;

/// Split a topic pattern into its words. Words may be empty (`a.` has two), the empty pattern has none; `a*` is a literal word.
pub fn parse_topic(text: &str) -> Box<[TopicWord]> {
    if text.is_empty() {
        return Box::default();
    }
    text.split('.')
        .map(|word| match word {
            "*" => TopicWord::One,
            "#" => TopicWord::Many,
            word => TopicWord::Word(word.into()),
        })
        .collect()
}
