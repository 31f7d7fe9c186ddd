//! Parsers of what users write.

use super::flattening::read_whole;
use streamer_core::limits::Limits;
use streamer_core::subscriptions::parse::Defaults;
use streamer_core::subscriptions::{Subscription, normal_form};
use streamer_core::value::{Number, Value};

/// A text of a user never makes a parser panic, and an accepted one can be lowered.
pub fn parsers(text: &[u8]) {
    let limits = Limits::default();
    if let Ok(subscription) = Subscription::parse(text, Defaults::of("default"), &limits) {
        normal_form(&subscription, &limits);
    }
    let Ok(text) = std::str::from_utf8(text) else { return };
    let quoted = serde_json::to_string(text).unwrap();
    for (before, after) in [
        (r#"{"id":"s","filters":[{"field":"a","op":"matches","value":"#, "}]}"),
        (r#"{"id":"s","filters":[{"field":"#, r#","op":"exists","value":true}]}"#),
        (r#"{"id":"s","pattern":{"a":[{"regexp":"#, "}]}}"),
        (r#"{"id":"s","dialect":"strict","pattern":{"a":[{"regexp":"#, "}]}}"),
        (r#"{"id":"s","pattern":{"a":[{"wildcard":"#, "}]}}"),
        (r#"{"id":"s","pattern":{"a":[{"cidr":"#, "}]}}"),
        (r#"{"id":"s","topic":"#, "}"),
        (r#"{"id":"s","pattern":"#, "}"),
    ] {
        if let Ok(subscription) =
            Subscription::parse(format!("{before}{quoted}{after}").as_bytes(), Defaults::of("default"), &limits)
        {
            normal_form(&subscription, &limits);
        }
    }
    let number = text.as_bytes();
    if let Ok(Value::Scalar(_)) = read_whole(number)
        && number.first().is_some_and(|first| *first == b'-' || first.is_ascii_digit())
        && let Some(parsed) = Number::parse(text.trim().as_bytes())
    {
        assert_eq!(Number::parse(parsed.to_string().as_bytes()), Some(parsed));
    }
}
