//! The meaning of the names of character classes in RE2.

/// `\p{..}` by its name, or the opposite.
pub(super) fn property(plain: &str, negated: bool) -> Result<String, String> {
    // RE2 accepts general categories by one or two letters, and scripts by their full names.
    let is_name = plain.len() != 2 && !plain.is_empty() && plain.starts_with(|first: char| first.is_ascii_uppercase());
    let is_name = is_name && plain.chars().all(|letter| letter.is_ascii_alphabetic() || letter == '_');
    let sign = if negated { "^" } else { "" };
    match plain {
        "Any" => Ok(format!("[{sign}\\x{{0}}-\\x{{10FFFF}}]")),
        // Without unassigned code points, and no text has a surrogate.
        "C" => Ok(format!("[{sign}\\p{{Cc}}\\p{{Cf}}\\p{{Co}}]")),
        "Cs" => Ok(format!("[{}\\x{{0}}-\\x{{10FFFF}}]", if negated { "" } else { "^" })),
        "Cn" | "LC" => Err(format!("invalid character class range: \\p{{{plain}}}")),
        plain if plain.len() <= 2 && is_category(plain) => Ok(format!("[{sign}\\p{{{plain}}}]")),
        plain if plain.len() > 2 && is_name => Ok(format!("[{sign}\\p{{Script={plain}}}]")),
        plain => Err(format!("invalid character class range: \\p{{{plain}}}")),
    }
}

/// The class of `[:alpha:]` and the like, by the name between the colons.
pub(super) fn posix(name: &str) -> Option<&'static str> {
    const CLASSES: [&str; 14] = [
        "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper", "word",
        "xdigit",
    ];
    const ITEMS: [(&str, &str); 14] = [
        ("[[:alnum:]]", "[[:^alnum:]]"),
        ("[[:alpha:]]", "[[:^alpha:]]"),
        ("[[:ascii:]]", "[[:^ascii:]]"),
        ("[[:blank:]]", "[[:^blank:]]"),
        ("[[:cntrl:]]", "[[:^cntrl:]]"),
        ("[[:digit:]]", "[[:^digit:]]"),
        ("[[:graph:]]", "[[:^graph:]]"),
        ("[[:lower:]]", "[[:^lower:]]"),
        ("[[:print:]]", "[[:^print:]]"),
        ("[[:punct:]]", "[[:^punct:]]"),
        ("[[:space:]]", "[[:^space:]]"),
        ("[[:upper:]]", "[[:^upper:]]"),
        ("[[:word:]]", "[[:^word:]]"),
        ("[[:xdigit:]]", "[[:^xdigit:]]"),
    ];
    let (plain, negated) = match name.strip_prefix('^') {
        Some(plain) => (plain, true),
        None => (name, false),
    };
    let (is, is_not) = ITEMS[CLASSES.iter().position(|class| *class == plain)?];
    Some(if negated { is_not } else { is })
}

fn is_category(name: &str) -> bool {
    const DETAILS: [(char, &str); 7] =
        [('L', "lmotu"), ('M', "cen"), ('N', "dlo"), ('P', "cdefios"), ('S', "ckmo"), ('Z', "lps"), ('C', "cfo")];
    let mut letters = name.chars();
    let details = letters.next().and_then(|first| DETAILS.iter().find(|(initial, _)| *initial == first));
    details.is_some_and(|(_, details)| letters.next().is_none_or(|detail| details.contains(detail)))
}
