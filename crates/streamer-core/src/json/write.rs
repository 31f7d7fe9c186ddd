//! A value back to JSON text, in one loop over an explicit stack.

use crate::value::{Scalar, Value};
use std::fmt::Write;

enum WriteStep<'v> {
    Value(&'v Value),
    Name(&'v str),
    Text(&'static str),
}

/// Write a value as JSON, by what it means: numbers in their shortest spelling.
pub fn write(value: &Value) -> String {
    let mut text = String::new();
    let mut pending = vec![WriteStep::Value(value)];
    while let Some(step) = pending.pop() {
        match step {
            WriteStep::Text(piece) => text.push_str(piece),
            WriteStep::Name(name) => {
                string(&mut text, name);
                text.push(':');
            }
            WriteStep::Value(Value::BeyondFloat(literal)) => text.push_str(literal),
            WriteStep::Value(Value::Scalar(scalar)) => match scalar {
                Scalar::Null => text.push_str("null"),
                Scalar::Bool(value) => text.push_str(if *value { "true" } else { "false" }),
                // Writing to a string cannot fail.
                Scalar::Number(number) => _ = write!(text, "{number}"),
                Scalar::String(content) => string(&mut text, content),
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
