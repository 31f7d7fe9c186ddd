//! Hints for expressions that are written as another language would have them: the expression that was probably meant.
//!
//! A hint ends an error of syntax or of a name. streamer/cel_eval/hints.py gives the same; the table of cases compares them.

use super::extensions;

/// Longer names are not repeated in a hint.
const LONGEST: usize = 40;

/// Return a hint for an error at a byte of the source.
pub(super) fn hint(source: &str, at: u32) -> Option<String> {
    let (before, rest) = source.split_at(at as usize);
    let word = &rest[..end_of_word(rest)];
    if !word.is_empty() {
        let name = before.strip_suffix('-').map(last_word).filter(|name| !name.is_empty() && name.len() <= LONGEST);
        if let Some(name) = name
            && word.len() <= LONGEST
        {
            return Some(format!("a name with a hyphen is written as in data['{name}-{word}']"));
        }
        if let Some(library) = method(word).filter(|_| before.ends_with('.')) {
            return of_library(word, library);
        }
        if rest[word.len()..].starts_with('.')
            && !before.ends_with('.')
            && let Some(hint) = of_namespace(word).or_else(|| of_library(word, word))
        {
            return Some(hint);
        }
        let lead = last_word(before.trim_end_matches([' ', '\t', '\r', '\n', '\x0c']));
        return meant(word).or_else(|| leads(lead));
    }
    let sign = rest.get(..1)?;
    match sign {
        "=" if rest[1..].starts_with('~') => Some(SEARCHED.into()),
        "=" if before.ends_with("==") => written("===", "=="),
        "=" => written("=", "=="),
        ">" if before.ends_with('<') => written("<>", "!="),
        "&" => written(sign, "&&"),
        "|" => written(sign, "||"),
        "~" => Some(SEARCHED.into()),
        _ => None,
    }
}

const SEARCHED: &str = "a regular expression is searched for by matches";

/// Why there is no clock, and an alternative.
pub(super) const NO_NOW: &str = "an event must have the same answer whenever it is evaluated, after a replay too; compare with \
                                 the event's own time, as in timestamp(data.at) < ts - duration('1h')";

/// CEL's extension libraries that are not available here, and the replacement for each.
const LIBRARIES: [(&str, &str); 2] =
    [("regex", "a regular expression is searched for by matches"), ("proto", "a field of the document is written `data.a`")];

/// The library that has a method of this name.
fn method(name: &str) -> Option<&'static str> {
    matches!(name, "extract" | "extractAll" | "find" | "findAll").then_some("regex")
}

/// The functions of a namespace, if it is one.
fn of_namespace(namespace: &str) -> Option<String> {
    let mut names: Vec<&str> =
        extensions::names(true).filter_map(|name| name.strip_prefix(namespace)?.strip_prefix('.')).collect();
    names.sort_unstable();
    if namespace == "cel" {
        names.push("bind");
    }
    (!names.is_empty()).then(|| format!("the functions of `{namespace}` are {}", names.join(", ")))
}

fn of_library(what: &str, library: &str) -> Option<String> {
    let (_, instead) = LIBRARIES.into_iter().find(|(name, _)| *name == library)?;
    Some(format!("`{what}` is of CEL's extension library {library}, which is not available here; {instead}"))
}

/// The hint for a word that CEL writes otherwise, or not at all.
fn meant(word: &str) -> Option<String> {
    let hint = match word {
        "None" | "NULL" | "Null" | "nil" | "undefined" => return written(word, "null"),
        "True" | "TRUE" => return written(word, "true"),
        "False" | "FALSE" => return written(word, "false"),
        "and" | "AND" => return written(word, "&&"),
        "or" | "OR" => return written(word, "||"),
        "not" | "NOT" => return written(word, "!"),
        "len" | "length" | "count" => return written(word, "size"),
        "is" | "IS" => "test for null with `==`, as in data.a == null",
        "like" | "LIKE" => "a part of a text is found by contains, startsWith, endsWith or matches",
        "between" | "BETWEEN" => "a range is two comparisons joined by `&&`",
        "includes" => "an element is found by `in`, a part of a text by contains",
        "now" => NO_NOW,
        "old" => "the document before the change is `before`",
        "new" => "the document after the change is `data`",
        _ => return None,
    };
    Some(hint.into())
}

/// The hint for a word after which an expression was expected to begin.
fn leads(word: &str) -> Option<String> {
    match word {
        "not" | "NOT" => written(word, "!"),
        "if" => Some("a choice is written `condition ? a : b`".into()),
        _ => None,
    }
}

fn written(word: &str, otherwise: &str) -> Option<String> {
    Some(format!("`{word}` is written `{otherwise}`"))
}

fn end_of_word(text: &str) -> usize {
    let begins = text.starts_with(|letter: char| letter == '_' || letter.is_ascii_alphabetic());
    if begins { text.find(|letter: char| !is_of_word(letter)).unwrap_or(text.len()) } else { 0 }
}

/// The word that ends a text; empty if the text does not end with one.
fn last_word(text: &str) -> &str {
    let start =
        text.rfind(|letter: char| !is_of_word(letter)).map_or(0, |at| at + text[at..].chars().next().map_or(1, char::len_utf8));
    let word = &text[start..];
    if end_of_word(word) == word.len() { word } else { "" }
}

fn is_of_word(letter: char) -> bool {
    letter == '_' || letter.is_ascii_alphanumeric()
}
