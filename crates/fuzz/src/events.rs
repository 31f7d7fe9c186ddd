//! Choices that bytes stand for, and events made of them.

/// Choices that bytes stand for; when they are used up, always the first.
pub struct Choices<'d> {
    data: &'d [u8],
}

impl<'d> Choices<'d> {
    pub fn new(data: &'d [u8]) -> Choices<'d> {
        Choices { data }
    }

    /// A number below *bound*, which is at most 256.
    pub fn below(&mut self, bound: usize) -> usize {
        let Some((first, rest)) = self.data.split_first() else { return 0 };
        self.data = rest;
        usize::from(*first) % bound
    }

    pub(super) fn pick(&mut self, from: &[&'static str]) -> &'static str {
        from[self.below(from.len())]
    }
}

pub(super) const NAMES: [&str; 12] = ["a", "b", "c", "data", "before", "type", "tenant", "topic", "0", "a.b", "\\u0061", "naïve"];
pub(super) const SCALARS: [&str; 24] = [
    "1",
    "\"x\"",
    "null",
    "true",
    "false",
    "0",
    "-0",
    "1.0",
    "10e-1",
    "2",
    "1.5",
    "-1",
    "1e400",
    "9007199254740993",
    "9007199254740992",
    "18446744073709551615",
    "\"\"",
    "\"y\"",
    "\"xy\"",
    "\"\\u0078\"",
    "\"insert\"",
    "\"delete\"",
    "\"\\ud83d\\ude00\"",
    "\"é\\n\"",
];
const SPACES: [&str; 6] = ["", "", "", " ", "\n\t ", "\r"];

/// An event made of names that are wanted, with duplicates, arrays, odd spellings and now and then a fault.
pub fn event(choices: &mut Choices<'_>) -> Vec<u8> {
    let mut text = String::new();
    object(choices, 0, &mut text);
    if choices.below(32) == 31 {
        let at = choices.below(text.len().clamp(1, 256));
        let mut bytes = text.into_bytes();
        let byte = choices.below(256) as u8;
        if let Some(place) = bytes.get_mut(at) {
            *place = byte;
        }
        return bytes;
    }
    text.into_bytes()
}

fn object(choices: &mut Choices<'_>, depth: usize, text: &mut String) {
    text.push('{');
    for index in 0..choices.below(if depth < 2 { 7 } else { 4 }) {
        if index > 0 {
            text.push(',');
        }
        text.push_str(choices.pick(&SPACES));
        let name = match (depth, choices.below(4)) {
            (0, 0 | 1) => choices.pick(&["data", "before", "type", "a"]),
            (_, 3) => choices.pick(&NAMES),
            _ => choices.pick(&["a", "a", "b", "c"]),
        };
        text.push_str(&format!("\"{name}\"{}:", choices.pick(&SPACES)));
        match (depth, name, choices.below(8)) {
            (0, "data" | "before", 1..) => object(choices, depth + 1, text),
            (0, "type", 1..) => text.push_str(choices.pick(&["\"insert\"", "\"update\"", "\"delete\""])),
            (0, "topic" | "tenant", 1..) => text.push_str(choices.pick(&["\"x\"", "\"x.y\"", "\"\""])),
            _ => value(choices, depth + 1, text),
        }
    }
    text.push('}');
}

fn value(choices: &mut Choices<'_>, depth: usize, text: &mut String) {
    text.push_str(choices.pick(&SPACES));
    match choices.below(if depth < 7 { 5 } else { 3 }) {
        0..=2 => text.push_str(choices.pick(&SCALARS)),
        3 => object(choices, depth, text),
        _ => {
            text.push('[');
            for index in 0..choices.below(4) {
                if index > 0 {
                    text.push(',');
                }
                value(choices, depth + 1, text);
            }
            text.push(']');
        }
    }
    text.push_str(choices.pick(&SPACES));
}
