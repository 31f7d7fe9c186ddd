//! Which regular expressions match a string? Required literals first, then each [`CompiledRegexp`].
//!
//! ```text
//!   \Aab[0-9]+shipped(,.*)?\z      required: "shipped"  ─► Aho-Corasick over all required literals ─► candidates
//!   \A[a-z]{1,50}\z                required: none, 1 to 50 bytes long ─► tried on every text of that length
//! ```
//!
//! Invariant: a text that an expression matches contains its required literal and has a length within its bounds. So an
//! expression is not tried on a text that the literal rules out.
//!
//! Rejected: all expressions in one automaton (its lazy DFA is rebuilt for nearly every text it has not seen: 4 to 50 ms).

use crate::automaton::literals::{Literals, SeenLiterals};
use crate::regexps::CompiledRegexp;
use std::sync::Arc;

/// An immutable set of regular expressions. See the head of this file.
#[derive(Debug)]
pub struct Regexps {
    literals: Literals,
    of_literal: Box<[u32]>,
    programs: Box<[(Arc<CompiledRegexp>, u32)]>, // those without required literal last
}

impl Regexps {
    /// Build from pairs of a program and the id to report for it.
    pub fn new(programs: impl IntoIterator<Item = (Arc<CompiledRegexp>, u32)>) -> Regexps {
        let mut programs: Vec<_> = programs.into_iter().collect();
        programs.sort_by(|(left, _), (right, _)| {
            (left.required().is_empty(), left.required()).cmp(&(right.required().is_empty(), right.required()))
        });
        let mut literals: Vec<&[u8]> = Vec::new();
        let mut of_literal = Vec::new();
        for (at, (program, _)) in programs.iter().enumerate() {
            if program.required().is_empty() {
                of_literal.push(at as u32);
                break;
            }
            if literals.last() != Some(&program.required()) {
                literals.push(program.required());
                of_literal.push(at as u32);
            }
        }
        if of_literal.len() == literals.len() {
            of_literal.push(programs.len() as u32);
        }
        Regexps { literals: Literals::new(&literals), of_literal: of_literal.into(), programs: programs.into() }
    }

    /// Hand the ids of all expressions that match *text* to *hit*, each once.
    pub fn query(&self, text: &str, seen: &mut SeenLiterals, mut hit: impl FnMut(&[u32])) {
        let mut try_all = |programs: &[(Arc<CompiledRegexp>, u32)]| {
            for (program, id) in programs {
                if program.search(text) {
                    hit(&[*id]);
                }
            }
        };
        self.literals.query(text.as_bytes(), seen, |literal| {
            let (start, end) = (self.of_literal[literal as usize], self.of_literal[literal as usize + 1]);
            try_all(&self.programs[start as usize..end as usize]);
        });
        let without = self.of_literal.last().map_or(0, |start| *start as usize);
        try_all(&self.programs[without..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::automaton::testing::Dice;
    use crate::regexps::Regexp;
    use regex_automata::meta::Regex;

    fn program(expression: &str) -> Arc<CompiledRegexp> {
        CompiledRegexp::compile(&Regexp { expression: expression.into(), size: 100 }).unwrap()
    }

    #[test]
    fn expressions_answer_together_as_each_does_alone() {
        let expressions = [
            r"\Aab[0-9]*\z",
            r"ab",
            r"\Aa?b?c?\z",
            r"(ab|ba)c+",
            r"\A[abc]{2,4}\z",
            r"",
            r"\A\z",
            r"c{3}",
            r"(abc)+\z",
            r"\A(a(b(c)))",
        ];
        let mut dice = Dice::new(7);
        let mut seen = SeenLiterals::default();
        let built = Regexps::new(expressions.iter().zip(0..).map(|(expression, id)| (program(expression), id)));
        for _ in 0..2000 {
            let text = dice.text("abc1", 8);
            let mut found = Vec::new();
            built.query(&text, &mut seen, |ids| found.extend_from_slice(ids));
            found.sort_unstable();
            let expected: Vec<u32> = (0..expressions.len() as u32)
                .filter(|at| Regex::new(expressions[*at as usize]).unwrap().is_match(text.as_str()))
                .collect();
            assert_eq!(found, expected, "{text}");
        }
    }
}
