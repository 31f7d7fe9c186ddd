//! How many instructions RE2 makes of a regexp: 16 KiB of source can contain hundreds of large ones, and each byte of a
//! text may take a step for each state of a regexp, in RE2 and here.

use super::depth::with_stack_for;
use super::{Regexp, re2};
use regex_syntax::hir::{Class, ClassUnicode, Hir, HirKind};
use regex_syntax::utf8::Utf8Sequences;
use std::collections::HashSet;

/// The instructions that all regexps of one expression may take together.
pub(crate) const MAX_INSTRUCTIONS: usize = 250_000;

/// Read a regexp of RE2; returns it and about how many instructions RE2 makes of it.
///
/// # Errors
///
/// Its fault.
pub(crate) fn translate(text: &str) -> Result<(Regexp, usize), String> {
    let regexp = re2::translate(text)?;
    // Without classes and counts a letter is an instruction for each of its bytes.
    let is_plain = !text.contains(['{', '[', '\\', '.']);
    let instructions = if is_plain { text.len() } else { counted(&regexp.expression)? };
    Ok((regexp, instructions.saturating_add(4)))
}

fn counted(expression: &str) -> Result<usize, String> {
    with_stack_for(expression, || re2::hir(expression).map(|hir| instructions(&hir)))
}

/// Recursive: see `depth.rs`.
fn instructions(hir: &Hir) -> usize {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => 1,
        HirKind::Literal(literal) => literal.0.len(),
        HirKind::Class(Class::Bytes(class)) => class.ranges().len(),
        HirKind::Class(Class::Unicode(class)) => in_utf8(class),
        HirKind::Repetition(repetition) => {
            let count = repetition.max.unwrap_or(repetition.min).max(1) as usize;
            instructions(&repetition.sub).saturating_mul(count)
        }
        HirKind::Capture(capture) => instructions(&capture.sub), // there are none: see `re2`
        HirKind::Concat(parts) | HirKind::Alternation(parts) => {
            let mut sum = 0usize;
            for part in parts {
                sum = sum.saturating_add(instructions(part));
                if sum > MAX_INSTRUCTIONS {
                    break; // to count the rest would take longer than its text is worth
                }
            }
            sum
        }
    }
}

/// The ranges of bytes of a class in UTF-8, in which equal beginnings are shared.
fn in_utf8(class: &ClassUnicode) -> usize {
    const BEYOND_ASCII: usize = 6; // RE2 has a short form for this
    let mut beginnings: HashSet<Vec<(u8, u8)>> = HashSet::new();
    let mut whole = 0;
    for range in class.ranges() {
        let mut end = range.end();
        if range.start() <= '\u{80}' && end == char::MAX {
            if range.start() == '\u{80}' {
                return beginnings.len() + BEYOND_ASCII;
            }
            (whole, end) = (BEYOND_ASCII, '\x7f');
        }
        for sequence in Utf8Sequences::new(range.start(), end) {
            let ranges: Vec<(u8, u8)> = sequence.as_slice().iter().map(|range| (range.start, range.end)).collect();
            beginnings.extend((0..ranges.len()).map(|to| ranges[..=to].to_vec()));
        }
    }
    beginnings.len() + whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn about_as_many_instructions_as_re2() {
        let counted = [
            ("abc", 7),
            (r"\pL", 1200),
            (r"\pL{100}", 119_604),
            (r".{1000}", 8004),
            (r"(?s).{1000}", 7004),
            (r"[a-z]{1000}", 1004),
            (r"\p{Han}", 84),
            (r"\p{Greek}", 66),
            (r"\pN", 237),
            (r"\pS", 446),
            (r"\PL", 1202),
            (r"(?:abc){100}", 304),
        ];
        for (text, theirs) in counted {
            let ours = translate(text).unwrap().1;
            // Their tables are of another version of Unicode.
            assert!(ours * 10 <= theirs * 13 && ours * 13 >= theirs * 10, "{text}: {ours}, RE2 {theirs}");
        }
    }
}
