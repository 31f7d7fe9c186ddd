//! How errors show names and texts.

use std::borrow::Cow;

/// The message for an unknown name, with the nearest known name, or all of them.
pub(super) fn unknown_name(name: &str, known: &[&str], kind: &str) -> String {
    // Slips that are common and whose nearest word is another.
    let slip = [("=", "=="), ("===", "=="), ("<>", "!="), ("!==", "!=")].into_iter().find(|(slip, _)| *slip == name);
    let nearest = known.iter().map(|candidate| (likeness(candidate, name), *candidate)).filter(|(likeness, _)| *likeness >= 0.6);
    let nearest = nearest.max_by(|one, other| one.partial_cmp(other).unwrap_or(std::cmp::Ordering::Equal));
    let nearest = slip.filter(|(_, meant)| known.contains(meant)).map(|(_, meant)| meant).or(nearest.map(|(_, name)| name));
    let hint = match nearest {
        Some(nearest) => format!("did you mean '{nearest}'?"),
        None => format!("expected one of {}", known.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ")),
    };
    format!("unknown {kind} '{}'; {hint}", shortened(name, 60))
}

/// A text for an error, cut after *most* characters.
pub(crate) fn shortened(text: &str, most: usize) -> Cow<'_, str> {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}...", &text[..end]).into(),
        None => text.into(),
    }
}

/// How alike two words are, from 0 to 1: twice the characters in common over all of them, by longest common runs (Ratcliff and
/// Obershelp, as Python's `difflib`, so that both backends give the same hint).
pub(crate) fn likeness(one: &str, other: &str) -> f64 {
    const LONGEST: usize = 64; // a longer name is no typo; the search is cubic
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    if one.len() + other.len() == 0 || one.len() > LONGEST || other.len() > LONGEST {
        return 0.0;
    }
    let mut common = 0;
    let mut pending = vec![(&one[..], &other[..])];
    while let Some((left, right)) = pending.pop() {
        let mut best = (0, 0, 0); // length, and its start on either side
        for i in 0..left.len() {
            for j in 0..right.len() {
                let length = left[i..].iter().zip(&right[j..]).take_while(|(a, b)| a == b).count();
                if length > best.0 {
                    best = (length, i, j);
                }
            }
        }
        let (length, i, j) = best;
        if length > 0 {
            common += length;
            pending.push((&left[..i], &right[..j]));
            pending.push((&left[i + length..], &right[j + length..]));
        }
    }
    2.0 * common as f64 / (one.len() + other.len()) as f64
}

/// Whether a name can follow a dot.
pub(super) fn is_identifier(name: &str) -> bool {
    name.bytes().enumerate().all(|(at, byte)| byte == b'_' || byte.is_ascii_alphabetic() || (at > 0 && byte.is_ascii_digit()))
        && !name.is_empty()
}

/// A name as a JSON string.
pub(crate) fn quote(name: &str) -> String {
    let mut text = String::from('"');
    for letter in name.chars() {
        match letter {
            '"' => text += "\\\"",
            '\\' => text += "\\\\",
            '\n' => text += "\\n",
            '\r' => text += "\\r",
            '\t' => text += "\\t",
            '\u{8}' => text += "\\b",
            '\u{c}' => text += "\\f",
            control if control < ' ' => text += &format!("\\u{:04x}", control as u32),
            letter => text.push(letter),
        }
    }
    text.push('"');
    text
}
