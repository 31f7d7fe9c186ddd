//! A value back to JSON text, in one loop over an explicit stack.

use crate::value::{Scalar, Value};
use std::fmt::Write;

enum Step<'v> {
    Value(&'v Value),
    Name(&'v str),
    Text(&'static str),
}

/// Write a value as JSON, by what it means: numbers in their shortest spelling.
pub fn write(value: &Value) -> String {
    let mut text = String::new();
    let mut pending = vec![Step::Value(value)];
    while let Some(step) = pending.pop() {
        match step {
            Step::Text(piece) => text.push_str(piece),
            Step::Name(name) => {
                string(&mut text, name);
                text.push(':');
            }
            Step::Value(Value::BeyondFloat(literal)) => text.push_str(literal),
            Step::Value(Value::Scalar(scalar)) => match scalar {
                Scalar::Null => text.push_str("null"),
                Scalar::Bool(value) => text.push_str(if *value { "true" } else { "false" }),
                // Writing to a string cannot fail.
                Scalar::Number(number) => _ = write!(text, "{number}"),
                Scalar::String(content) => string(&mut text, content),
            },
            Step::Value(Value::List(elements)) => {
                text.push('[');
                pending.push(Step::Text("]"));
                for (at, element) in elements.iter().enumerate().rev() {
                    pending.push(Step::Value(element));
                    pending.extend((at > 0).then_some(Step::Text(",")));
                }
            }
            Step::Value(Value::Map(members)) => {
                text.push('{');
                pending.push(Step::Text("}"));
                for (at, (name, member)) in members.iter().enumerate().rev() {
                    pending.extend([Step::Value(member), Step::Name(name)]);
                    pending.extend((at > 0).then_some(Step::Text(",")));
                }
            }
        }
    }
    text
}

fn string(text: &mut String, content: &str) {
    text.push('"');
    for char in content.chars() {
        match char {
            '"' | '\\' => text.extend(['\\', char]),
            '\0'..='\x1f' => _ = write!(text, "\\u{:04x}", char as u32),
            char => text.push(char),
        }
    }
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
