//! A program becomes clauses, as far as it can: conditions that an index decides are not evaluated (semantics.md
//! section 4).
//!
//! ```text
//!   data.a == 1 && !(data.b > 2)             TRUE of it: { a = 1, b <= 2 }                          exact: never evaluated
//!   data.a == 1 && data.b - data.c > 50      TRUE of it: { a = 1, b is number, c is number }        not exact: evaluated, too
//! ```
//!
//! An expression is true, false, or neither (an error, a value that is not a bool), so there are two questions: for
//! which events is it TRUE, for which FALSE? Never "not TRUE": `!(data.a == 1)` is not true if `a` is missing. `&&` and
//! `||` absorb errors, which makes them simple: TRUE of `a || b` is TRUE of a or TRUE of b, FALSE of it is FALSE of a
//! and FALSE of b.
//!
//! Invariant: an answer contains every event with the wanted result; if it is exact, no other. An answer that is not
//! exact is still a set that an index can use, and the program is evaluated on candidates.
//!
//! An unknown `&&` an error is unknown, but the clauses would be false. So of an event with unknown values only some
//! clauses tell anything ([`Unknowns`]), and the program decides.
//!
//! Cost: a ternary needs both answers for its condition, and alternatives multiply; past a number of clauses the rest is left
//! to the program.

mod atoms;
mod elements;
mod operators;
mod reads;
mod sets;
mod strict;
mod texts;
mod times;

use crate::cel::ast::{BinaryOp, Function, LogicOp, MacroKind, Node, NodeId, UnaryOp};
use crate::cel::program::Program;
use crate::subscriptions::normal_form::{Clause, Path, Relation, Unknowns};
use crate::subscriptions::simplify::simplify;
use atoms::ComparedPaths;
use reads::{Scope, flatten};
pub(crate) use sets::{EventSet, Work, joined};

/// A program as clauses.
#[derive(Clone, Debug, PartialEq)]
pub struct Lowered {
    /// The alternatives, each an AND; at most as many as allowed.
    pub alternatives: Vec<Vec<Clause>>,
    /// Pairs of paths whose values must also differ, in all alternatives.
    pub changed: Vec<(Path, Path)>,
    /// Pairs of paths whose values must also compare in this way, in all alternatives.
    pub compared: Vec<(Path, Relation, Path)>,
    /// Whether this is all of it: the program need not be evaluated.
    pub is_exact: bool,
    /// What the alternatives tell of an event with unknown values.
    pub unknowns: Unknowns,
}

/// Lower a program into at most *limit* alternatives.
pub fn lower(program: &Program, limit: usize) -> Lowered {
    let mut lowering = Lowering { scope: Scope { program, variable: None }, work: Work::new(limit) };
    let mut operands = Vec::new();
    flatten(&program.ast, program.ast.root(), &mut operands);
    let (mut changed, mut compared) = (Vec::new(), Vec::new());
    let mut all = EventSet::all();
    for operand in operands {
        let truth = match atoms::pair(&lowering.scope, operand, true) {
            Some(ComparedPaths { one, relation, other, clauses }) => {
                match relation {
                    None => changed.push((one, other)),
                    Some(relation) => compared.push((one, relation, other)),
                }
                EventSet { any_of: vec![clauses], ..EventSet::all() }
            }
            None => lowering.set(operand, true),
        };
        all = all.and(truth, limit);
    }
    let before = all.any_of.len();
    all.any_of.retain_mut(simplify);
    let unknowns = if all.any_of.len() < before { Unknowns::Hidden } else { all.unknowns };
    // An empty set is always exact.
    let is_exact = all.is_exact || all.any_of.is_empty();
    Lowered { alternatives: all.any_of, changed, compared, is_exact, unknowns }
}

struct Lowering<'p> {
    scope: Scope<'p>,
    work: Work,
}

impl AsMut<Work> for Lowering<'_> {
    fn as_mut(&mut self) -> &mut Work {
        &mut self.work
    }
}

impl Lowering<'_> {
    /// The events of which an expression is *wanted*. Recursive: the parser limits the depth of the tree.
    fn set(&mut self, id: NodeId, wanted: bool) -> EventSet {
        if self.work.is_spent() {
            return EventSet::within(Vec::new());
        }
        let set = self.set_of(id, wanted);
        self.work.count(set)
    }

    fn set_of(&mut self, id: NodeId, wanted: bool) -> EventSet {
        let limit = self.work.limit;
        match &self.scope.program.ast[id] {
            Node::Paren(inner) => self.set(*inner, wanted),
            Node::Call { function: Function::Dyn, args } if args.len() == 1 => self.set(args[0], wanted),
            Node::Unary { op: UnaryOp::Not, count, operand } => self.set(*operand, wanted ^ (count % 2 == 1)),
            Node::Logic { op, operands } => {
                // All operands must have the result, or any.
                let all = wanted == (*op == LogicOp::And);
                joined(self, all, operands, |lowering, operand| lowering.set(*operand, wanted))
            }
            Node::Ternary { branches, otherwise } => {
                let mut whole = self.set(*otherwise, wanted);
                for branch in branches.iter().rev() {
                    let then = self.set(branch.condition, true).and(self.set(branch.then, wanted), limit);
                    let not = self.set(branch.condition, false).and(whole, limit);
                    whole = then.or(not, limit);
                }
                // An unknown condition decides, even if both branches are false.
                EventSet { unknowns: Unknowns::Hidden, ..whole }
            }
            Node::Operation { first, rest } => match &rest[..] {
                [one] => self.comparison(one.op, *first, one.operand, wanted, id),
                _ => strict::value_of(&self.scope, id),
            },
            _ => self.any_element(id, wanted).unwrap_or_else(|| atoms::condition(&self.scope, id, wanted)),
        }
    }

    fn comparison(&mut self, op: BinaryOp, left: NodeId, right: NodeId, wanted: bool, id: NodeId) -> EventSet {
        match op {
            BinaryOp::NotEqual => atoms::comparison(&self.scope, BinaryOp::Equal, left, right, !wanted),
            op => atoms::comparison(&self.scope, op, left, right, wanted),
        }
        .unwrap_or_else(|| strict::value_of(&self.scope, id))
    }

    /// The events of which a macro over the elements of a list is *wanted*.
    fn any_element(&mut self, id: NodeId, wanted: bool) -> Option<EventSet> {
        let (step, path) = elements::find(&self.scope, id)?;
        // A list in a list has no clause that names its elements.
        let Some((condition, wanted)) = elements::condition_of(step, wanted).filter(|_| self.scope.variable.is_none()) else {
            return Some(elements::over(path));
        };
        self.scope.variable = Some(step.slot);
        let elements = self.set(condition, wanted);
        self.scope.variable = None;
        let set = elements::some(&path, elements);
        Some(EventSet { is_exact: set.is_exact && step.kind != MacroKind::ExistsOne, ..set })
    }
}
