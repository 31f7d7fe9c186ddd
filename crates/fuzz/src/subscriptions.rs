//! Subscriptions made of choices, over the names and values that events have.

use super::events::Choices;

const VALUES: [&str; 14] =
    ["1", "\"x\"", "null", "true", "false", "1.5", "9007199254740993", "\"\"", "\"y\"", "[1]", "{\"a\":1}", "[]", "\"xy\"", "-1"];

/// A subscription over the names and values that [`event`] has.
pub fn subscription(choices: &mut Choices<'_>) -> String {
    let mut parts = vec![r#""id":"s""#.to_owned()];
    for _ in 0..[0, 1, 1, 2][choices.below(4)] {
        let field = choices.pick(&["a", "a", "b", "b", "c", "a.b", "a.b.c", "/a.b", "data", "b.a"]);
        let op = choices.pick(&[
            "==",
            "!=",
            "<",
            "<=",
            ">",
            ">=",
            "contains",
            "changed_to",
            "changed_from",
            "in",
            "not in",
            "exists",
            "changed",
            "starts_with",
            "ends_with",
            "matches",
        ]);
        let value = match op {
            "in" | "not in" => format!(",\"value\":[{},{}]", choices.pick(&VALUES), choices.pick(&VALUES)),
            "exists" => format!(",\"value\":{}", choices.pick(&["true", "false"])),
            "changed" => String::new(),
            "starts_with" | "ends_with" | "matches" => format!(",\"value\":{}", choices.pick(&["\"x\"", "\"\"", "\"y$\""])),
            _ => format!(",\"value\":{}", choices.pick(&VALUES)),
        };
        let is_of_envelope = !op.starts_with("changed") && choices.below(8) == 7;
        let root = if is_of_envelope { r#","root":"envelope""# } else { "" };
        // Other operators and values are refused with it.
        let is_of_text =
            value.starts_with(",\"value\":\"") && !op.starts_with("changed") && !["<", "<=", ">", ">="].contains(&op);
        let case = if is_of_text && choices.below(8) == 7 { r#","ignore_case":true"# } else { "" };
        let filter = format!(r#"{{"field":"{field}","op":"{op}"{value}{root}{case}}}"#);
        match parts.iter_mut().find(|part| part.starts_with("\"filters\"")) {
            Some(filters) => *filters = filters.replace("]$", &format!(",{filter}]$")),
            None => parts.push(format!("\"filters\":[{filter}]$")),
        }
    }
    for part in &mut parts {
        *part = part.replace("]$", "]");
    }
    if choices.below(4) == 3 || parts.len() == 1 {
        let mut pattern = String::new();
        pattern_object(choices, 0, &mut pattern);
        parts.push(format!("\"pattern\":{pattern}"));
    }
    if choices.below(8) == 7 {
        parts.push(r#""types":["insert","delete"]"#.into());
    }
    if choices.below(8) == 7 {
        parts.push(format!("\"topic\":{}", choices.pick(&["\"#\"", "\"x\"", "\"*\"", "\"x.#\""])));
    }
    format!("{{{}}}", parts.join(","))
}

fn pattern_object(choices: &mut Choices<'_>, depth: usize, text: &mut String) {
    text.push('{');
    let mut names = if depth == 0 { vec!["data", "a", "before", "$or"] } else { vec!["a", "b", "c", "$or", "0", "data"] };
    for index in 0..1 + choices.below(2) {
        let name = names.swap_remove(choices.below(names.len()));
        if index > 0 {
            text.push(',');
        }
        text.push_str(&format!("\"{name}\":"));
        if name == "$or" {
            text.push('[');
            for index in 0..2 + choices.below(2) {
                if index > 0 {
                    text.push(',');
                }
                if depth < 2 {
                    pattern_object(choices, depth + 1, text);
                } else {
                    text.push_str(r#"{"a":[1]}"#);
                }
            }
            text.push(']');
        } else if depth < 2 && choices.below(3) > 0 {
            pattern_object(choices, depth + 1, text);
        } else {
            text.push('[');
            for index in 0..1 + choices.below(3) {
                if index > 0 {
                    text.push(',');
                }
                text.push_str(choices.pick(&[
                    "1",
                    "\"x\"",
                    "null",
                    "true",
                    "1.5",
                    "\"\"",
                    "9007199254740993",
                    "1e400",
                    r#"{"prefix":"x"}"#,
                    r#"{"suffix":"y"}"#,
                    r#"{"exists":true}"#,
                    r#"{"exists":true}"#,
                    r#"{"exists":false}"#,
                    r#"{"exists":false}"#,
                    r#"{"anything-but":["x"]}"#,
                    r#"{"anything-but":[1,2]}"#,
                    r#"{"numeric":[">",0,"<=",2]}"#,
                    r#"{"wildcard":"*x*"}"#,
                    r#"{"equals-ignore-case":"X"}"#,
                    r#"{"regexp":"[xy]+"}"#,
                    r#"{"anything-but":{"prefix":"x"}}"#,
                    r#"{"prefix":{"equals-ignore-case":"X"}}"#,
                    r#"{"all":[{"prefix":"x"},{"suffix":"y"}]}"#,
                    r#"{"all":["x",{"anything-but":"y"},{"exists":true}]}"#,
                ]));
            }
            text.push(']');
        }
    }
    text.push('}');
}
