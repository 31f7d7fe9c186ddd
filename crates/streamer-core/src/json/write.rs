//! A value back to JSON text, in one loop over an explicit stack.

use crate::value::{Scalar, Value};
use std::fmt::Write;

enum WriteStep<'v> {
    Value(&'v Value),
    Name(&'v str),
    Text(&'static str),
}

/// Write a value as JSON, by its meaning: numbers in their shortest spelling.
pub fn write(value: &Value) -> String {
    let mut text = String::new();
    let mut pending = vec![WriteStep::Value(value)];
    while let Some(step) = pending.pop() {
        match step {
            WriteStep::Text(piece) => text.push_str(piece),
            WriteStep::Name(name) => {
                write_string(&mut text, name);
                text.push(':');
            }
            WriteStep::Value(Value::BeyondFloat(literal)) => text.push_str(literal),
            WriteStep::Value(Value::Scalar(scalar)) => match scalar {
                Scalar::Null => text.push_str("null"),
                Scalar::Bool(value) => text.push_str(if *value { "true" } else { "false" }),
                // Writing to a string cannot fail.
                Scalar::Number(number) => _ = write!(text, "{number}"),
                Scalar::String(content) => write_string(&mut text, content),
            },
            WriteStep::Value(Value::List(elements)) => {
                text.push('[');
                pending.push(WriteStep::Text("]"));
                for (at, element) in elements.iter().enumerate().rev() {
                    pending.push(WriteStep::Value(element));
                    pending.extend((at > 0).then_some(WriteStep::Text(",")));
                }
            }
            WriteStep::Value(Value::Map(members)) => {
                text.push('{');
                pending.push(WriteStep::Text("}"));
                for (at, (name, member)) in members.iter().enumerate().rev() {
                    pending.extend([WriteStep::Value(member), WriteStep::Name(name)]);
                    pending.extend((at > 0).then_some(WriteStep::Text(",")));
                }
            }
        }
    }
    text
}

/// Write a text as a JSON string, as Python's `json` does with `ensure_ascii=False`.
pub fn write_string(text: &mut String, content: &str) {
    text.push('"');
    let mut rest = content;
    while let Some(at) = rest.bytes().position(|byte| byte < b' ' || byte == b'"' || byte == b'\\') {
        text.push_str(&rest[..at]);
        match rest.as_bytes()[at] {
            byte @ (b'"' | b'\\') => text.extend(['\\', char::from(byte)]),
            b'\n' => text.push_str("\\n"),
            b'\r' => text.push_str("\\r"),
            b'\t' => text.push_str("\\t"),
            8 => text.push_str("\\b"),
            12 => text.push_str("\\f"),
            // Writing to a string cannot fail.
            byte => _ = write!(text, "\\u{byte:04x}"),
        }
        rest = &rest[at + 1..];
    }
    text.push_str(rest);
    text.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::{self, ParseOptions};

    #[test]
    fn what_was_written_reads_as_it_was() {
        let text = r#"{"a":[1,-2.5,1e300,9007199254740993,1e400,[],{}],"b":{"\"\\\u0001é":null},"c":[true,false,"x\ny"]}"#;
        let value: Value = json::parse(text.as_bytes(), ParseOptions::default()).unwrap();
        let again: Value = json::parse(write(&value).as_bytes(), ParseOptions::default()).unwrap();
        assert_eq!(value, again);
    }
}
