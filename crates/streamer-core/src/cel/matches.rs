//! The regexps of `matches`: those that stand in the program are compiled with it, others when they are met.
//!
//! A regexp that is met costs 4,096 units, and 224 for each of its size up to 4,096, the first time in a run
//! (docs/cel-cost.md). It may take 64 KiB of RE2's memory, which is about [`MAX_INSTRUCTIONS`]. It is refused unread where its
//! text is longer than 1 KiB. Texts are told apart by where they lie first. Nothing in a run's memory moves or ends, so one
//! place is one text. A text of many kilobytes is hashed once, and not for each element of a macro.
//!
//! A search is charged a step for each byte of the text and each state that may be alive. Measured: a regexp with 2,700 of them
//! took 43 s of processor for a budget of 100 ms while only the bytes were charged.

use super::evaluate::{Result, Run};
use super::outcome::Reason;
use super::values::{Detail, Value};
use crate::regexps::program::{CompiledRegexp, units_of_search};
use crate::regexps::{instructions, size};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Most bytes of the text of a regexp that does not stand in the program.
const MAX_BYTES: usize = 1024;
/// What RE2 makes of a regexp in 64 KiB.
const MAX_INSTRUCTIONS: usize = 5_400;
/// Most bytes of what is made of one here: enough for as many instructions.
const MAX_SIZE: usize = 2 << 20;
/// Most classes by name, such as `\pL`: each takes as long to read as 500 letters, and few leave room for more.
const MAX_NAMED_CLASSES: usize = 64;
/// What it costs to compile one, and for each unit of its size, up to a size that a whole budget of 100 ms is just enough for.
/// Measured, of 100 ms: four `\pL` took 26,000 units' time, 400 `\W` 48,000, so 110 to 130 for each of their size.
const UNITS: usize = 4_096;
const UNITS_OF_SIZE: usize = 224;
const MAX_CHARGED_SIZE: usize = 4_096;

/// A constant regexp: its text, and what was made of it.
pub(super) type Ready = (Box<str>, Arc<CompiledRegexp>);

/// A compiled regexp, or what is wrong with it, and its size.
type Compiled = (std::result::Result<Arc<CompiledRegexp>, Arc<str>>, usize);

/// The regexps of a run.
pub(super) struct RunRegexps<'r> {
    /// Those of the program, sorted by their texts.
    constants: &'r [Ready],
    /// That of a filter, whose searches have a budget of their own (semantics.md section 3).
    of_filter: Option<&'r CompiledRegexp>,
    by_text: BTreeMap<&'r str, Compiled>,
    by_place: BTreeMap<(*const u8, usize), Compiled>,
}

impl<'r> RunRegexps<'r> {
    pub(super) fn new(constants: &'r [Ready]) -> RunRegexps<'r> {
        RunRegexps { constants, of_filter: None, by_text: BTreeMap::new(), by_place: BTreeMap::new() }
    }

    pub(super) fn of_filter(regexp: Option<&'r CompiledRegexp>) -> RunRegexps<'r> {
        RunRegexps { of_filter: regexp, ..RunRegexps::new(&[]) }
    }
}

impl<'r> Run<'r> {
    /// Whether a regexp is found in *text*.
    pub(super) fn matches(&mut self, text: &'r str, source: &'r str) -> Result<Value<'r>> {
        if let Some(regexp) = self.regexps.of_filter {
            return Ok(Value::Bool(regexp.search(text)));
        }
        let constants = self.regexps.constants;
        if let Ok(found) = constants.binary_search_by(|(known, _)| (**known).cmp(source)) {
            let (_, regexp) = &constants[found];
            self.charge_search(text, regexp.size())?;
            return Ok(Value::Bool(regexp.is_match(text)));
        }
        let place = (source.as_ptr(), source.len());
        let known = match self.regexps.by_place.get(&place) {
            Some(known) => Some(known.clone()),
            None => self.regexps.by_text.get(source).cloned().inspect(|known| {
                self.regexps.by_place.insert(place, known.clone());
            }),
        };
        let (compiled, _) = match known {
            Some(known) => {
                self.charge_search(text, known.1)?;
                known
            }
            None => {
                // A text that is refused unread has no size, and what is larger than this is refused.
                let size = if source.len() > MAX_BYTES { 0 } else { size::size(source).min(MAX_INSTRUCTIONS) };
                self.charge_search(text, size)?;
                self.charge(UNITS + UNITS_OF_SIZE * size.min(MAX_CHARGED_SIZE))?;
                let made = (compile(source), size);
                self.regexps.by_text.insert(source, made.clone());
                self.regexps.by_place.insert(place, made.clone());
                made
            }
        };
        Ok(match compiled {
            Ok(regexp) => Value::Bool(regexp.is_match(text)),
            Err(what) => {
                let what = self.arena.alloc_str(&what);
                self.fail(Reason::BadRegexp, Detail::Regexp(what))
            }
        })
    }

    /// Count the search of *text*: a step for each of its bytes and each state that may be alive.
    fn charge_search(&mut self, text: &str, size: usize) -> Result<()> {
        self.charge(units_of_search(text, size))
    }
}

fn compile(source: &str) -> std::result::Result<Arc<CompiledRegexp>, Arc<str>> {
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
