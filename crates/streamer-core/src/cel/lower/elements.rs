//! Macros over the elements of a list, as clauses.
//!
//! ```text
//!   data.tags.exists(t, t == 'vip' || t.startsWith('v-'))      data.tags, any element or name: = 'vip', begins with 'v-'
//!   data.lines.exists(l, l.sku == 'x' && l.qty > 2)            data.lines.sku, any leaf: = 'x'    data.lines.qty, any leaf: > 2
//! ```
//!
//! The condition on the variable is lowered as if the element were a document, and the clauses are then about any
//! element. If a macro has two conditions on one element, its clauses may be satisfied by two elements, which is a
//! larger set; so the program is evaluated on the events that satisfy all of them. Members of an element are treated
//! alike: any leaf there may be another element's.

use super::operators::{bounds, mirrored, opposite, text_atom};
use super::reads::{EventRead, LIST, MAP, MAX_STEPS, Scope, VARIABLE, constant, is, name_of, read, steps_from, text_of, unwrap};
use super::sets::EventSet;
use crate::cel::ast::{BinaryOp, Constant, Function, Macro, MacroKind, Node, NodeId, Step};
use crate::subscriptions::normal_form::{Atom, Clause, Mode, Path, Unknowns};
use crate::subscriptions::simplify::simplify;
use crate::value::Kinds;

/// The condition of a macro that requires one element: the element for which it is true, or, for `all`, false.
pub(super) fn condition_of(step: &Macro, wanted: bool) -> Option<(NodeId, bool)> {
    let is_one = match step.kind {
        MacroKind::Exists | MacroKind::ExistsOne => wanted,
        MacroKind::All => !wanted,
        _ => false,
    };
    let [_] = &step.names[..] else { return None };
    step.condition.filter(|_| is_one).map(|condition| (condition, wanted))
}

/// A macro over the value at a path.
pub(super) fn find<'p>(scope: &Scope<'p>, id: NodeId) -> Option<(&'p Macro, Path)> {
    let Node::Chain { base, steps } = &scope.program.ast[id] else { return None };
    let (Step::Macro(step), steps) = steps.split_last()? else { return None };
    match steps_from(read(scope, *base)?, scope, steps)? {
        EventRead::Path(path) => Some((step, path)),
        _ => None,
    }
}

/// The events that have a list or an object at *path*.
pub(super) fn over(path: Path) -> EventSet {
    EventSet::within(vec![is(path, LIST.or(MAP))])
}

/// The events of which an element of the list at *path*, or a name of the object there, is in *elements*: a set in which the
/// element is the document of [`VARIABLE`].
pub(super) fn some(path: &Path, elements: EventSet) -> EventSet {
    let mut whole = EventSet { any_of: Vec::new(), ..elements };
    for mut clauses in elements.any_of {
        // They are about one element.
        if !simplify(&mut clauses) {
            whole.unknowns = Unknowns::Hidden;
            continue;
        }
        let (mut any_clauses, mut conditions, mut is_bound) = (Vec::with_capacity(clauses.len()), 0, false);
        for clause in clauses {
            if clause.path.root != VARIABLE {
                // If it is false, the macro is false, too, but only over a list or an object.
                whole.unknowns = Unknowns::Hidden;
                any_clauses.push(clause);
                continue;
            }
            conditions += 1;
            let is_leaf = clause.atoms.iter().fold(Kinds::NONE, |kinds, atom| kinds.or(atom.kinds()));
            let is_leaf = is_leaf.and(Kinds::LEAVES) == is_leaf && matches!(clause.mode, Mode::Scalar | Mode::AnyLeaf);
            if clause.path.names.is_empty() && clause.mode == Mode::Scalar {
                any_clauses.push(any_of(path.clone(), clause.atoms));
            } else if is_leaf && path.names.len() + clause.path.names.len() <= MAX_STEPS {
                // A path through lists may find another element than the one that satisfies the rest.
                let names = path.names.iter().chain(&clause.path.names);
                any_clauses.push(Clause { path: Path::new(path.root, names), mode: Mode::AnyLeaf, atoms: clause.atoms });
                whole.is_exact = false;
            } else {
                whole.is_exact = false;
                continue;
            }
            is_bound = true;
        }
        if !is_bound {
            any_clauses.push(is(path.clone(), LIST.or(MAP)));
        }
        // The macro requires one element for all conditions, but each clause may find another one.
        whole.is_exact &= conditions == 1;
        whole.any_of.push(any_clauses);
    }
    whole
}

/// A list with an element that satisfies one of *atoms*, or an object with such a name.
pub(super) fn any_of(path: Path, atoms: Vec<Atom>) -> Clause {
    Clause { path, mode: Mode::Member, atoms }
}

/// The member names of a path through lists, such as `data.lines[0].sku`, whose steps by number are left out.
fn through_lists(ast: &Scope<'_>, base: NodeId, steps: &[Step]) -> Option<Path> {
    let is_by_name = |step: &&Step| match step {
        Step::Index { key, .. } => {
            !matches!(ast[*key], Node::Literal(Constant::Int(_) | Constant::Uint(_) | Constant::Double(_)))
        }
        _ => true,
    };
    let names = steps.iter().filter(is_by_name).map(|step| name_of(ast, step)).collect::<Option<Vec<_>>>()?;
    let path = match read(ast, base)? {
        EventRead::Document(root) => Path::new(root, names),
        EventRead::Path(path) => Path::new(path.root, path.names.iter().map(|name| &**name).chain(names)),
        EventRead::Text(_) => return None,
    };
    (1..=MAX_STEPS).contains(&path.names.len()).then_some(path)
}

/// `data.a[0] == 1` and the like: some leaf at `data.a`, through lists, satisfies it. The program checks which one.
pub(super) fn indexed(ast: &Scope<'_>, op: BinaryOp, left: NodeId, right: NodeId, wanted: bool) -> Option<EventSet> {
    let path = |id: NodeId| match &ast[unwrap(ast, id)] {
        Node::Chain { base, steps } if steps.iter().any(|step| name_of(ast, step).is_none()) => through_lists(ast, *base, steps),
        _ => None,
    };
    let (path, value, op) = match (path(left), path(right)) {
        (Some(path), None) => (path, constant(ast, right)?, op),
        (None, Some(path)) => (path, constant(ast, left)?, mirrored(op)),
        _ => return None,
    };
    value.as_scalar()?;
    let atoms = match (op, wanted) {
        (BinaryOp::Equal, true) => vec![Atom::equal(&value)],
        (BinaryOp::Equal, false) => return None, // a list is not equal, too
        (op, wanted) => {
            let (low, high) = bounds(if wanted { op } else { opposite(op)? })?;
            Atom::ordered(&value, low, high)
        }
    };
    Some(within_leaves(path, atoms))
}

/// `data.a[0].startsWith('x')` and the like: some leaf at `data.a`, through lists, satisfies it. The program checks
/// which one.
pub(super) fn indexed_test(scope: &Scope<'_>, id: NodeId, last: &Step) -> Option<EventSet> {
    let ast = scope;
    let (Node::Chain { base, steps }, Step::Method { function, args, .. }) = (&ast[id], last) else { return None };
    if *function == Function::Contains {
        return None; // a list may contain it too, in a list of its own
    }
    let path = through_lists(ast, *base, &steps[..steps.len() - 1])?;
    let (atom, _) = text_atom(scope, *function, text_of(ast, *args.first()?)?)?;
    Some(within_leaves(path, vec![atom]))
}

fn within_leaves(path: Path, atoms: Vec<Atom>) -> EventSet {
    if atoms.is_empty() {
        return EventSet::none();
    }
    EventSet { is_exact: false, ..EventSet::clause(Clause { path, mode: Mode::AnyLeaf, atoms }) }
}
