//! The library strings. Positions are in characters.

use super::super::evaluate::{Result, Run};
use super::super::outcome::Reason;
use super::super::types::Name::{Int, List, String};
use super::super::values::{Detail, Value};
use super::formatting::format;
use super::{Row, row, unfit, unreadable};
use memchr::memmem;

pub(super) const ROWS: &[Row] = &[
    row("charAt", &[(&[String, Int], String)], char_at),
    row("format", &[(&[String, List], String)], format),
    row("indexOf", INDEX, index_of),
    row("join", &[(&[List], String), (&[List, String], String)], join),
    row("lastIndexOf", INDEX, last_index_of),
    row("lowerAscii", TEXT, lower_ascii),
    row("replace", &[(&[String, String, String], String), (&[String, String, String, Int], String)], replace),
    row("reverse", &[(&[String], String), (&[List], List)], reverse),
    row("split", &[(&[String, String], List), (&[String, String, Int], List)], split),
    row("strings.quote", TEXT, quote),
    row("substring", &[(&[String, Int], String), (&[String, Int, Int], String)], substring),
    row("trim", TEXT, trim),
    row("upperAscii", TEXT, upper_ascii),
];

type Overloads = &'static [super::Overload];

const TEXT: Overloads = &[(&[String], String)];
const INDEX: Overloads = &[(&[String, String], Int), (&[String, String, Int], Int)];

fn lower_ascii<'r>(run: &mut Run<'r>, args: &[Value<'r>]) -> Result<Value<'r>> {
    let [Value::String(text)] = *args else { return unfit(run, args) };
    run.charge_text(text.len())?;
    Ok(run.text(&text.to_ascii_lowercase()))
}

fn upper_ascii<'r>(run: &mut Run<'r>, args: &[Value<'r>]) -> Result<Value<'r>> {
    let [Value::String(text)] = *args else { return unfit(run, args) };
    run.charge_text(text.len())?;
    Ok(run.text(&text.to_ascii_uppercase()))
}

/// Remove Unicode's White_Space at both ends.
fn trim<'r>(run: &mut Run<'r>, args: &[Value<'r>]) -> Result<Value<'r>> {
    let [Value::String(text)] = *args else { return unfit(run, args) };
    run.charge_text(text.len())?;
    Ok(Value::String(text.trim()))
}

fn reverse<'r>(run: &mut Run<'r>, args: &[Value<'r>]) -> Result<Value<'r>> {
    match *args {
        [Value::List(items)] => {
            run.charge(items.len())?;
            Ok(run.list_of(&items.iter().rev().copied().collect::<Vec<_>>()))
        }
        [Value::String(text)] => {
            run.charge_text(text.len())?;
            Ok(run.text(&text.chars().rev().collect::<std::string::String>()))
        }
        _ => unfit(run, args),
    }
}

fn quote<'r>(run: &mut Run<'r>, args: &[Value<'r>]) -> Result<Value<'r>> {
    let [Value::String(text)] = *args else { return unfit(run, args) };
    // Each character may become two.
    run.charge_text(2 * text.len())?;
    let mut quoted = std::string::String::with_capacity(text.len() + 2);
    quoted.push('"');
    for letter in text.chars() {
        let escaped = match letter {
            '\x07' => 'a',
            '\x08' => 'b',
            '\x0c' => 'f',
            '\n' => 'n',
            '\r' => 'r',
            '\t' => 't',
            '\x0b' => 'v',
            '\\' | '"' => letter,
            _ => {
                quoted.push(letter);
                continue;
            }
        };
        quoted.extend(['\\', escaped]);
    }
    quoted.push('"');
    Ok(run.text(&quoted))
}

fn char_at<'r>(run: &mut Run<'r>, args: &[Value<'r>]) -> Result<Value<'r>> {
    let [Value::String(text), Value::Int(index)] = *args else { return unfit(run, args) };
    run.charge_text(text.len())?;
    let Some(start) = offset(text, index) else { return Ok(run.out_of_range(index, length(text), "string")) };
    let end = start + text[start..].chars().next().map_or(0, char::len_utf8);
    Ok(Value::String(&text[start..end]))
}

fn substring<'r>(run: &mut Run<'r>, args: &[Value<'r>]) -> Result<Value<'r>> {
    let (text, start, end) = match *args {
        [Value::String(text), Value::Int(start)] => (text, start, None),
        [Value::String(text), Value::Int(start), Value::Int(end)] => (text, start, Some(end)),
        _ => return unfit(run, args),
    };
    run.charge_text(text.len())?;
    let Some(from) = offset(text, start) else { return Ok(run.out_of_range(start, length(text), "string")) };
    let Some(to) = end.map_or(Some(text.len()), |end| offset(text, end)) else {
        return Ok(run.out_of_range(end.unwrap_or(0), length(text), "string"));
    };
    Ok(match text.get(from..to) {
        Some(part) => Value::String(part),
        None => run.fail(Reason::IndexOutOfRange, Detail::Words("a part of a string that ends before it starts")),
    })
}

fn index_of<'r>(run: &mut Run<'r>, args: &[Value<'r>]) -> Result<Value<'r>> {
    let (text, part, first) = match *args {
        [Value::String(text), Value::String(part)] => (text, part, 0),
        [Value::String(text), Value::String(part), Value::Int(first)] => (text, part, first),
        _ => return unfit(run, args),
    };
    run.charge_text(text.len() + part.len())?;
    if part.is_empty() {
        return Ok(Value::Int(first));
    }
    let Some(start) = offset(text, first) else { return Ok(run.out_of_range(first, length(text), "string")) };
    let position = memmem::find(&text.as_bytes()[start..], part.as_bytes());
    Ok(Value::Int(position.map_or(-1, |position| length(&text[..start + position]) as i64)))
}

fn last_index_of<'r>(run: &mut Run<'r>, args: &[Value<'r>]) -> Result<Value<'r>> {
    let (text, part, last) = match *args {
        [Value::String(text), Value::String(part)] => (text, part, None),
        [Value::String(text), Value::String(part), Value::Int(last)] => (text, part, Some(last)),
        _ => return unfit(run, args),
    };
    run.charge_text(text.len() + part.len())?;
    if part.is_empty() {
        return Ok(Value::Int(last.unwrap_or_else(|| length(text) as i64)));
    }
    let Some(last) = last.map_or(Some(text.len()), |last| offset(text, last)) else {
        return Ok(run.out_of_range(last.unwrap_or(0), length(text), "string"));
    };
    let within = &text.as_bytes()[..text.len().min(last + part.len())];
    Ok(Value::Int(memmem::rfind(within, part.as_bytes()).map_or(-1, |position| length(&text[..position]) as i64)))
}

fn replace<'r>(run: &mut Run<'r>, args: &[Value<'r>]) -> Result<Value<'r>> {
    let (text, old, new, limit) = match *args {
        [Value::String(text), Value::String(old), Value::String(new)] => (text, old, new, -1),
        [Value::String(text), Value::String(old), Value::String(new), Value::Int(limit)] => (text, old, new, limit),
        _ => return unfit(run, args),
    };
    run.charge_text(text.len() + old.len())?;
    let count = match old.is_empty() {
        true => length(text) + 1,
        false => memmem::find_iter(text.as_bytes(), old.as_bytes()).count(),
    };
    let count = usize::try_from(limit).map_or(count, |limit| count.min(limit));
    run.charge_text(text.len() + count * new.len() - count * old.len())?;
    Ok(run.text(&text.replacen(old, new, count)))
}

fn split<'r>(run: &mut Run<'r>, args: &[Value<'r>]) -> Result<Value<'r>> {
    let (text, separator, limit) = match *args {
        [Value::String(text), Value::String(separator)] => (text, separator, -1),
        [Value::String(text), Value::String(separator), Value::Int(limit)] => (text, separator, limit),
        _ => return unfit(run, args),
    };
    run.charge_text(text.len() + separator.len())?;
    let count = match separator.is_empty() {
        true => length(text),
        false => memmem::find_iter(text.as_bytes(), separator.as_bytes()).count() + 1,
    };
    let count = usize::try_from(limit).map_or(count, |limit| count.min(limit));
    run.charge(count)?;
    let mut parts = Vec::with_capacity(count);
    if !separator.is_empty() {
        parts.extend(text.splitn(count, separator).map(Value::String));
    } else if count > 0 {
        let last = offset(text, count as i64 - 1).unwrap_or(text.len());
        parts.extend(text[..last].char_indices().map(|(at, letter)| Value::String(&text[at..at + letter.len_utf8()])));
        parts.push(Value::String(&text[last..]));
    }
    Ok(run.list_of(&parts))
}

fn join<'r>(run: &mut Run<'r>, args: &[Value<'r>]) -> Result<Value<'r>> {
    let (items, separator) = match *args {
        [Value::List(items)] => (items, ""),
        [Value::List(items), Value::String(separator)] => (items, separator),
        _ => return unfit(run, args),
    };
    run.charge(items.len())?;
    if let Some(failure) = unreadable(items) {
        return Ok(failure);
    }
    let mut texts = Vec::with_capacity(items.len());
    for item in items {
        let Value::String(text) = *item else { return Ok(run.no_overload("join", &[*item])) };
        texts.push(text);
    }
    let bytes: usize = texts.iter().map(|text| text.len()).sum();
    run.charge_text(bytes + separator.len() * texts.len().saturating_sub(1))?;
    Ok(run.text(&texts.join(separator)))
}

/// The number of characters.
fn length(text: &str) -> usize {
    text.chars().count()
}

/// The byte at which a character begins; the end follows the last one.
fn offset(text: &str, index: i64) -> Option<usize> {
    let index = usize::try_from(index).ok()?;
    if text.is_ascii() {
        return (index <= text.len()).then_some(index);
    }
    text.char_indices().map(|(at, _)| at).chain([text.len()]).nth(index)
}
