//! A program made ready: its constant regexps compiled, and how it is run.

use super::ast::Variable;
use super::document::Document;
use super::evaluate::{Run, Spent};
use super::matches::{Ready, RunRegexps};
use super::members::{only_selects, selected};
use super::outcome::{Evaluation, Reason, Verdict};
use super::program::{Program, Variables};
use super::values::Value;
use crate::error::EventError;
use crate::regexps::CompiledRegexp;
use bumpalo::Bump;
use std::sync::Arc;

/// A checked expression, ready to be evaluated. Immutable: any number of threads may evaluate it.
#[derive(Clone, Debug)]
pub struct Executable {
    program: Arc<Program>,
    regexps: Box<[Ready]>,
    /// The documents of which it reads only members that it selects.
    selects: Variables,
}

/// Memory for one run after another. One for a thread.
#[derive(Debug, Default)]
pub struct EvaluationScratch {
    arena: Bump,
}

impl EvaluationScratch {
    /// The bytes that it has allocated.
    pub fn bytes(&self) -> usize {
        self.arena.allocated_bytes()
    }

    /// Memory for the next run.
    pub(super) fn emptied(&mut self) -> &Bump {
        if self.arena.allocated_bytes() > MOST_CACHED_BYTES {
            self.arena = Bump::new();
        }
        self.arena.reset();
        &self.arena
    }
}

/// A run may leave as much memory as its budget allows; memory beyond this is freed after it.
const MOST_CACHED_BYTES: usize = 1 << 20;

impl Executable {
    /// Make a program ready.
    ///
    /// # Errors
    ///
    /// A constant regexp is too large, in words.
    pub fn new(program: Arc<Program>) -> Result<Executable, String> {
        let compile = |(source, regexp): &(Box<str>, _)| Ok((source.clone(), CompiledRegexp::compile(regexp)?));
        let regexps = program.regexps.iter().map(compile).collect::<Result<_, String>>()?;
        let mut selects = Variables::default();
        for document in [Variable::Data, Variable::Before, Variable::Envelope] {
            if program.variables.has(document) && only_selects(&program.ast, document) {
                selects.insert(document);
            }
        }
        Ok(Executable { program, regexps, selects })
    }

    /// The program it was made of.
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// Evaluate it for an event, within *budget* cost units (docs/cel-cost.md).
    ///
    /// # Errors
    ///
    /// `data` or `before`, which the program reads, is not JSON; only possible if the event was not checked in full.
    pub fn evaluate(
        &self,
        document: &Document<'_>,
        budget: u64,
        scratch: &mut EvaluationScratch,
    ) -> Result<Evaluation, EventError> {
        self.run(document, budget, scratch, |_, _| ()).map(|(outcome, ())| outcome)
    }

    /// Evaluate it, and return an error in words, or an empty text.
    ///
    /// # Errors
    ///
    /// As those of [`Executable::evaluate`].
    pub fn evaluate_in_words(
        &self,
        document: &Document<'_>,
        budget: u64,
        scratch: &mut EvaluationScratch,
    ) -> Result<(Evaluation, String), EventError> {
        self.run(document, budget, scratch, |outcome, value| match (outcome.reason, value) {
            (None, _) => String::new(),
            (Some(Reason::Budget), _) => format!("stopped after {budget} cost units"),
            (Some(_), Value::Failure(failure)) => failure.detail.to_string(),
            (Some(_), value) => format!("the result is {}, not bool", value.type_name()),
        })
    }

    fn run<T>(
        &self,
        document: &Document<'_>,
        budget: u64,
        scratch: &mut EvaluationScratch,
        and: impl FnOnce(&Evaluation, Value<'_>) -> T,
    ) -> Result<(Evaluation, T), EventError> {
        let mut variables = [Value::Null; Variable::ALL.len()];
        for variable in Variable::ALL {
            if self.program.variables.has(variable) {
                variables[variable as usize] = match self.selects.has(variable) {
                    true => document.read_members(variable, selected(&self.program.ast, variable))?,
                    false => document.read(variable)?,
                };
            }
        }
        Ok(self.run_on(variables, budget, scratch, and))
    }

    /// Its result if it is the same for every event; `None` if it depends on the event, or is not proven.
    ///
    /// It is evaluated for an event of unknown values: a known result is then the result for every event, since true
    /// and false absorb unknown values, and any other result of them stays unknown.
    pub fn constant(&self, budget: u64) -> Option<Verdict> {
        let reads = |variable: &Variable| self.program.variables.has(*variable);
        let read: Vec<Variable> = Variable::ALL.into_iter().filter(reads).collect();
        if read.iter().any(|variable| !matches!(variable, Variable::Data | Variable::Before | Variable::Envelope)) {
            return None;
        }
        let variables = [Value::Unknown; Variable::ALL.len()];
        let (outcome, ()) = self.run_on(variables, budget, &mut EvaluationScratch::default(), |_, _| ());
        match outcome {
            Evaluation { verdict: Verdict::Unknown, .. } => None,
            // Another event may take a cheaper way through the expression.
            Evaluation { reason: Some(Reason::Budget), .. } if !read.is_empty() => None,
            Evaluation { verdict, .. } => Some(verdict),
        }
    }

    fn run_on<'r, T>(
        &'r self,
        variables: [Value<'r>; Variable::ALL.len()],
        budget: u64,
        scratch: &'r mut EvaluationScratch,
        and: impl FnOnce(&Evaluation, Value<'_>) -> T,
    ) -> (Evaluation, T) {
        let arena = scratch.emptied();
        let program = &*self.program;
        let locals = arena.alloc_slice_fill_copy(program.slots as usize, Value::Null);
        let regexps = RunRegexps::new(&self.regexps);
        let mut run = Run { ast: &program.ast, arena, variables, locals, regexps, budget, cost: 0 };
        let value = run.evaluate(program.ast.root());
        let outcome = evaluation(value, run.cost);
        let made = and(&outcome, value.unwrap_or(Value::Null));
        (outcome, made)
    }
}

/// The evaluation of a run, by its value.
pub(super) fn evaluation(value: Result<Value<'_>, Spent>, cost: u64) -> Evaluation {
    let (verdict, reason) = match value {
        Err(Spent) => (Verdict::Error, Some(Reason::Budget)),
        Ok(Value::Bool(truth)) => (Verdict::of(truth), None),
        Ok(Value::Unknown | Value::Partial(_)) => (Verdict::Unknown, None),
        Ok(Value::Failure(failure)) => (Verdict::Error, Some(failure.reason)),
        Ok(_) => (Verdict::Error, Some(Reason::NotBool)),
    };
    Evaluation { verdict, reason, cost }
}
