//! Hints for expressions that are written as another language would have them: the expression that was probably meant.
//!
//! A hint ends an error of syntax or of a name. streamer/cel_eval/hints.py gives the same; the table of cases compares them.

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
            && let Some(hint) = of_library(word, word)
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
        "?" if before.ends_with(['.', '[', '{']) => of_library("?", "optional"),
        ">" if before.ends_with('<') => written("<>", "!="),
        "&" => written(sign, "&&"),
        "|" => written(sign, "||"),
        "~" => Some(SEARCHED.into()),
        _ => None,
    }
}

const SEARCHED: &str = "a regular expression is searched for by matches";

/// CEL's extension libraries, which are not available here, and the replacement for each.
const LIBRARIES: [(&str, &str); 9] = [
    ("math", "the greater of two values is `a > b ? a : b`"),
    ("base64", "compare the text as it is encoded, as in data.a == 'aGk='"),
    ("cel", "write the value in each place that uses it"),
    ("optional", "a field that may be missing is tested by has(data.a)"),
    ("sets", "write it with `in`, all and exists, as in data.a.all(x, x in [1, 2])"),
    ("lists", "a list is tested by `in`, size, all and exists"),
    ("strings", "a text is tested by contains, startsWith, endsWith and matches"),
    ("regex", "a regular expression is searched for by matches"),
    ("proto", "a field of the document is written `data.a`"),
];

/// The library that has a method of this name.
fn method(name: &str) -> Option<&'static str> {
    Some(match name {
        "charAt" | "format" | "indexOf" | "join" | "lastIndexOf" | "lowerAscii" | "quote" | "replace" | "reverse" | "split"
        | "substring" | "trim" | "upperAscii" => "strings",
        "distinct" | "first" | "flatten" | "last" | "range" | "slice" | "sort" | "sortBy" => "lists",
        "hasValue" | "optFlatMap" | "optMap" | "or" | "orValue" | "unwrap" | "unwrapOpt" | "value" => "optional",
        "extract" | "extractAll" | "find" | "findAll" => "regex",
        _ => return None,
    })
}

fn of_library(what: &str, library: &str) -> Option<String> {
    let (_, instead) = LIBRARIES.into_iter().find(|(name, _)| *name == library)?;
    // Two libraries have another name than their functions.
    let library = match library {
        "base64" => "encoders",
        "cel" => "bindings",
        library => library,
    };
    Some(format!("`{what}` is of CEL's extension library {library}, which is not available here; {instead}"))
}

/// The hint for a word that CEL writes otherwise, or not at all.
fn meant(word: &str) -> Option<String> {
    let told = match word {
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
        "now" => "an expression means the same whenever it is evaluated; the event's time is `ts`",
        "old" => "the document before the change is `before`",
        "new" => "the document after the change is `data`",
        _ => return None,
    };
    Some(told.into())
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
