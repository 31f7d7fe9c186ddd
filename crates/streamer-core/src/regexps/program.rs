//! A compiled regular expression: does a text match?
//!
//! Cost: a try is linear in the text (`regex-automata`: never exponential), whatever the expression. Programs are
//! compiled once for each distinct expression and shared by all indexes that use them; program and cache sizes are
//! bounded. A step for each byte and each state alive is still too much for a large expression in a long text. So a
//! search has a budget. A search that would exceed it does not match, and is counted. An expression whose automaton is
//! small takes one step a byte, and needs none.
//!
//! Rejected: leaving the size open (`(\pL{1,99}){99}` would take gigabytes).

use super::depth::with_stack_for;
use super::{Regexp, re2};
use crate::automaton::refused::RefusedSearches;
use crate::fork;
use crate::watch::spend;
use regex_automata::dfa::{StartKind, dense};
use regex_automata::meta::{self, Regex};
use regex_automata::nfa::thompson;
use regex_syntax::hir::{Hir, HirKind};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError, Weak};

/// Most bytes that the automaton of one expression may take.
const SIZE_LIMIT: usize = 4 << 20;
/// Bytes that the lazy automaton of a small expression may keep for each thread, and of a large one for each byte of
/// its program. With too little for a few of its states, it would be rebuilt all the time, or not be used at all. Its
/// replacement takes a step for each instruction and byte.
const CACHE: usize = 256 << 10;
const CACHE_PER_BYTE: usize = 4;
/// An automaton is small if all of its states take at most this many bytes, and building it as many again. Then the
/// lazy one is never rebuilt, and a byte of a text takes one step, whatever the text.
const SMALL: usize = CACHE / 2;

/// The most letters of an expression in a message.
const MOST_SHOWN: usize = 200;
/// Units that the search of a filter's or a pattern's expression in one text may cost.
const BUDGET: usize = 1_000_000;

/// The cost of searching for an expression of a size in a text (docs/cel-cost.md).
pub fn units_of_search(text: &str, size: usize) -> usize {
    text.len().div_ceil(16).saturating_mul(size)
}

thread_local! {
    static REFUSED: RefusedSearches = const { RefusedSearches::none() };
}

/// How many searches this thread has refused since the last call, and a text about the last of them.
#[inline]
pub fn take_refused() -> Option<(u32, String)> {
    REFUSED.with(RefusedSearches::take)
}

/// A compiled expression with the conditions that a text must satisfy before it is tried.
#[derive(Debug)]
pub struct CompiledRegexp {
    regex: Regex,
    required: Box<[u8]>,
    shortest: usize,
    longest: Option<usize>,
    expression: Box<str>,
    size: usize,
    small: OnceLock<bool>,
}

impl CompiledRegexp {
    /// Compile *regexp*, or return the program of an equal one. An error has the reason of a refusal.
    pub fn compile(regexp: &Regexp) -> Result<Arc<CompiledRegexp>, String> {
        static PROGRAMS: LazyLock<Mutex<HashMap<Regexp, Weak<CompiledRegexp>>>> = LazyLock::new(Mutex::default);
        let known = |programs: &HashMap<Regexp, Weak<CompiledRegexp>>| programs.get(regexp)?.upgrade();
        let cached = {
            let _inside = fork::inside();
            known(&PROGRAMS.lock().unwrap_or_else(PoisonError::into_inner))
        };
        if let Some(program) = cached {
            return Ok(program);
        }
        let program = Arc::new(CompiledRegexp::within(regexp, SIZE_LIMIT)?);
        let _inside = fork::inside();
        let mut programs = PROGRAMS.lock().unwrap_or_else(PoisonError::into_inner);
        if programs.len() >= 64 && programs.len().is_power_of_two() {
            programs.retain(|_, program| program.strong_count() > 0);
        }
        programs.insert(regexp.clone(), Arc::downgrade(&program));
        Ok(program)
    }

    /// Compile *regexp* into an automaton of at most *size_limit* bytes, for one use: the program is not shared. An
    /// error has the reason of a refusal.
    pub fn within(regexp: &Regexp, size_limit: usize) -> Result<CompiledRegexp, String> {
        with_stack_for(&regexp.expression, || CompiledRegexp::build(regexp, size_limit))
    }

    fn build(Regexp { expression, size }: &Regexp, size_limit: usize) -> Result<CompiledRegexp, String> {
        let hir = re2::hir(expression)?;
        let build = |cache: usize| {
            let config = meta::Config::new()
                .nfa_size_limit(Some(size_limit))
                .onepass_size_limit(Some(size_limit / 4))
                .hybrid_cache_capacity(cache)
                .utf8_empty(false) // as RE2, which finds `\B` also between the bytes of a character
                .which_captures(thompson::WhichCaptures::None);
            let built = meta::Builder::new().configure(config).build_from_hir(&hir);
            built.map_err(|error| error.size_limit().map_or_else(|| error.to_string(), |_| "the expression is too large".into()))
        };
        let mut regex = build(CACHE)?;
        if regex.memory_usage() * CACHE_PER_BYTE > CACHE {
            regex = build(regex.memory_usage() * CACHE_PER_BYTE)?;
        }
        let properties = hir.properties();
        let whole = properties.look_set_prefix().contains(regex_syntax::hir::Look::Start)
            && properties.look_set_suffix().contains(regex_syntax::hir::Look::End);
        Ok(CompiledRegexp {
            required: required(&hir).into(),
            shortest: properties.minimum_len().unwrap_or(0),
            longest: properties.maximum_len().filter(|_| whole),
            regex,
            expression: expression.clone(),
            size: *size,
            small: OnceLock::new(),
        })
    }

    /// Whether every text takes at most a step for each of its bytes: all states of its automaton fit the cache.
    /// `a.{240}c` keeps 240 alive in any combination, and takes hundreds of steps for a byte. Computed at the first
    /// call.
    pub fn is_small(&self) -> bool {
        let build = || {
            let hir = re2::hir(&self.expression)?;
            let nfa = thompson::Config::new().utf8(false).which_captures(thompson::WhichCaptures::None);
            let nfa = thompson::Compiler::new().configure(nfa.nfa_size_limit(Some(SMALL))).build_from_hir(&hir);
            let dfa = dense::Config::new().start_kind(StartKind::Unanchored);
            let mut builder = dense::Builder::new();
            builder.configure(dfa.dfa_size_limit(Some(SMALL)).determinize_size_limit(Some(SMALL)));
            Ok(nfa.is_ok_and(|nfa| builder.build_from_nfa(&nfa).is_ok()))
        };
        *fork::once(&self.small, || with_stack_for(&self.expression, build).unwrap_or(false))
    }

    /// Whether *text* (or a part of it, if the expression is not anchored) matches, at a cost within the budget of
    /// filters and patterns; [`take_refused`] reports searches that would cost more.
    pub fn search(&self, text: &str) -> bool {
        let units = units_of_search(text, self.size);
        if units > BUDGET && !self.is_small() {
            self.refuse(text);
            return false;
        }
        spend(units.min(text.len()) + 1);
        self.is_match(text)
    }

    #[cold]
    fn refuse(&self, text: &str) {
        let CompiledRegexp { expression, size, .. } = self;
        let mut letters = expression.chars();
        let start: String = letters.by_ref().take(MOST_SHOWN).collect();
        let more = if letters.next().is_some() { "..." } else { "" };
        let bytes = text.len();
        let message = format!("a text of {bytes} bytes is not searched for a regular expression of size {size}: {start}{more}");
        REFUSED.with(|refused| refused.add(1, message));
    }

    /// Whether *text* (or a part of it, if the expression is not anchored) matches, at any cost.
    pub fn is_match(&self, text: &str) -> bool {
        text.len() >= self.shortest && self.longest.is_none_or(|longest| text.len() <= longest) && self.regex.is_match(text)
    }

    /// The expression, in the syntax of `regex-syntax`.
    pub fn expression(&self) -> &str {
        &self.expression
    }

    /// Its size, see [`Regexp`].
    pub fn size(&self) -> usize {
        self.size
    }

    /// A literal that every matching text has; empty if none is known.
    pub fn required(&self) -> &[u8] {
        &self.required
    }
}

/// The longest literal that every match of *hir* contains. Recursive: see `depth.rs`.
fn required(hir: &Hir) -> &[u8] {
    match hir.kind() {
        HirKind::Literal(literal) => &literal.0,
        HirKind::Capture(capture) => required(&capture.sub),
        HirKind::Repetition(repetition) if repetition.min > 0 => required(&repetition.sub),
        HirKind::Concat(parts) => parts.iter().map(required).max_by_key(|literal| literal.len()).unwrap_or_default(),
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(expression: &str) -> Arc<CompiledRegexp> {
        CompiledRegexp::compile(&Regexp { expression: expression.into(), size: 100 }).unwrap()
    }

    #[test]
    fn an_expression_is_small_whose_automaton_has_few_states_in_all() {
        for small in
            ["", "a", r"\Aab[0-9]+\z", "(a|b)*c", r"\A[A-Z]{2}[0-9]{4}\z", "(?i-u)error|warning", r"(?-u:\b)x(?-u:\b)", "a.{3}c"]
        {
            assert!(program(small).is_small(), "{small}");
        }
        for large in ["a.{20}c", "a.{240}c", "(a|b)*a(a|b){60}c"] {
            assert!(!program(large).is_small(), "{large}");
        }
    }

    #[test]
    fn a_search_past_the_budget_is_refused_unless_the_automaton_is_small() {
        let of_size = |expression: &str, size| CompiledRegexp::compile(&Regexp { expression: expression.into(), size }).unwrap();
        let (large, small) = (of_size("a.{500}c", 503), of_size("a.*c", 503));
        for (length, fits) in [(BUDGET / 503 * 16, true), (BUDGET / 503 * 16 + 1, false)] {
            let text = "a".repeat(length - 1) + "c";
            assert_eq!((large.search(&text), small.search(&text)), (fits, true), "{length}");
            assert!(large.is_match(&text));
        }
        let (refused, detail) = take_refused().unwrap();
        let expected = "a text of 31809 bytes is not searched for a regular expression of size 503: a.{500}c";
        assert_eq!((refused, &*detail), (1, expected));
        assert_eq!(take_refused(), None);
    }

    #[test]
    fn equal_expressions_share_a_program_and_huge_ones_are_refused() {
        assert!(Arc::ptr_eq(&program("x+y"), &program("x+y")));
        assert!(CompiledRegexp::compile(&Regexp { expression: r"(\pL{1,99}){99}".into(), size: 1 }).is_err());
        assert_eq!(program(r"\Aab(c|d)longest[0-9]\z").required(), b"longest");
        assert!(program("[a-z]{1,50}").is_match("abc") && program(r"\pL+").is_match("é"));
    }
}
