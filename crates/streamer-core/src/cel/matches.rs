//! The regexps of `matches`: constants are compiled with the program, others when they are evaluated.
//!
//! A regexp that is evaluated costs 4,096 units, and 224 for each of its size up to 4,096, the first time in a run
//! (docs/cel-cost.md). It may use 64 KiB of RE2's memory, which is about [`MAX_INSTRUCTIONS`]. It is refused unread if
//! its text is longer than 1 KiB. Texts are first compared by address. A run never moves or frees memory, so one
//! address is one text. A text of many kilobytes is hashed once, and not for each element of a macro.
//!
//! A search is charged a step for each byte of the text and each state that may be alive. Measured: a regexp with 2,700 of them
//! took 43 s of processor for a budget of 100 ms while only the bytes were charged.

use crate::regexps::program::CompiledRegexp;
use crate::regexps::{instructions, size};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Most bytes of the text of a regexp that is not a constant of the program.
const MAX_BYTES: usize = 1024;
/// The instructions of a regexp in RE2 within 64 KiB.
const MAX_INSTRUCTIONS: usize = 5_400;
/// Most bytes of a compiled regexp here: enough for this many instructions.
const MAX_SIZE: usize = 2 << 20;
/// Most classes by name, such as `\pL`: each takes as long to read as 500 letters, and few leave room for more.
const MAX_NAMED_CLASSES: usize = 64;
/// The cost of compiling one, and for each unit of its size, up to a size for which a whole budget of 100 ms is just
/// enough.
/// Measured, of 100 ms: four `\pL` took 26,000 units' time, 400 `\W` 48,000, so 110 to 130 for each of their size.
const UNITS: usize = 4_096;
const UNITS_OF_SIZE: usize = 224;
const MAX_CHARGED_SIZE: usize = 4_096;

/// A constant regexp: its text, and its compiled form.
pub(super) type Ready = (Box<str>, Arc<CompiledRegexp>);

/// The result for a text that was evaluated: a compiled regexp, or its error.
#[derive(Clone)]
pub(super) struct Met {
    pub(super) regexp: Result<Arc<CompiledRegexp>, Arc<str>>,
    pub(super) size: usize,
}

/// The regexps of a run.
pub(super) struct RunRegexps<'r> {
    /// The regexps of the program, sorted by their texts.
    constants: &'r [Ready],
    /// The regexp of a filter, whose searches have a budget of their own (semantics.md section 3).
    of_filter: Option<&'r CompiledRegexp>,
    by_text: BTreeMap<&'r str, Met>,
    by_place: BTreeMap<(*const u8, usize), Met>,
}

impl<'r> RunRegexps<'r> {
    pub(super) fn new(constants: &'r [Ready]) -> RunRegexps<'r> {
        RunRegexps { constants, of_filter: None, by_text: BTreeMap::new(), by_place: BTreeMap::new() }
    }

    pub(super) fn of_filter(regexp: Option<&'r CompiledRegexp>) -> RunRegexps<'r> {
        RunRegexps { of_filter: regexp, ..RunRegexps::new(&[]) }
    }

    /// The regexp of a filter, which replaces every other one.
    pub(super) fn filters(&self) -> Option<&'r CompiledRegexp> {
        self.of_filter
    }

    /// The constant of the program with this text.
    pub(super) fn constant(&self, source: &str) -> Option<&'r CompiledRegexp> {
        let position = self.constants.binary_search_by(|(known, _)| (**known).cmp(source)).ok()?;
        Some(&self.constants[position].1)
    }

    /// The result for a text that was evaluated before in this run.
    pub(super) fn met(&mut self, source: &'r str) -> Option<Met> {
        let place = (source.as_ptr(), source.len());
        if let Some(known) = self.by_place.get(&place) {
            return Some(known.clone());
        }
        let known = self.by_text.get(source)?.clone();
        self.by_place.insert(place, known.clone());
        Some(known)
    }

    /// Compile a text that is met the first time.
    pub(super) fn compile(&mut self, source: &'r str, size: usize) -> Met {
        let made = Met { regexp: compile(source), size };
        self.by_text.insert(source, made.clone());
        self.by_place.insert((source.as_ptr(), source.len()), made.clone());
        made
    }
}

/// The size that a text is charged for before it is compiled.
pub(super) fn size_before(source: &str) -> usize {
    // A text that is refused unread has size 0; a regexp larger than this is refused.
    if source.len() > MAX_BYTES { 0 } else { size::size(source).min(MAX_INSTRUCTIONS) }
}

/// The cost of compiling a regexp of a size.
pub(super) fn units_of_compiling(size: usize) -> usize {
    UNITS + UNITS_OF_SIZE * size.min(MAX_CHARGED_SIZE)
}

fn compile(source: &str) -> Result<Arc<CompiledRegexp>, Arc<str>> {
    if source.len() > MAX_BYTES {
        return Err(format!("more than {MAX_BYTES} bytes").into());
    }
    let named = source.matches("\\p").count() + source.matches("\\P").count();
    let made = if named > MAX_NAMED_CLASSES { Err(TOO_LARGE.to_owned()) } else { instructions::translate(source) };
    let made = made.and_then(|(regexp, instructions)| match instructions {
        0..=MAX_INSTRUCTIONS => CompiledRegexp::within(&regexp, MAX_SIZE),
        _ => Err(TOO_LARGE.to_owned()),
    });
    made.map(Arc::new).map_err(Arc::from)
}

const TOO_LARGE: &str = "pattern too large - compile failed";
