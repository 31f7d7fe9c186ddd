//! Which subscriptions of a segment may want an event with unknown values.
//!
//! ```text
//!   a = 1 AND b = 2     event {a: 5}, b is unknown       a clause about b, but a = 1 is false for certain
//!                       event {a: "x"}, c is unknown     no clause about c, and the index does not find it
//! ```

use super::{PartialEvent, PartialSide};
use crate::automaton::places;
use crate::engine::index::output::Output;
use crate::engine::index::segment::{Segment, SegmentQuery, SegmentScratch};
use crate::engine::index::shapes::{Shape, Shapes};
use crate::engine::verify::clauses;
use crate::engine::verify::encoded::{AtomView, Atoms};
use crate::engine::verify::store::{Store, flags};
use crate::engine::verify::values::{LeafValue, Values};
use crate::flatten::PathId;
use crate::layout::{EventType, Pointer};
use crate::subscriptions::normal_form::{Mode, Path, Root};
use crate::value::{Kind, ScalarRef};
use crate::watch::spend;

/// With more values at a path, its hashes are not looked up.
const FEW_VALUES: usize = 64;

/// A search for subscriptions of a segment that may want an event.
pub(in crate::engine::matching) struct CandidateSearch<'a> {
    pub segment: &'a Segment,
    pub shapes: &'a Shapes,
    pub query: SegmentQuery<'a>,
    /// The flags of which each must have one.
    pub open: Option<u8>,
    pub scratch: &'a mut SegmentScratch,
    pub output: &'a mut Output,
}

impl PartialEvent {
    /// Whether a subscription may want the event because of its old side alone.
    pub fn asks_old(&self) -> bool {
        let is_same = |old: &PartialSide| self.unknown.data_at == self.unknown.before_at && old.raw == self.new.raw;
        self.old.as_ref().is_some_and(|old| match self.event_type {
            Some(EventType::Update) => true,
            // The flag hides one side of it.
            Some(EventType::Delete) => self.has_flag && !is_same(old),
            _ => false,
        })
    }

    /// Find the slots of subscriptions that may want the event, each once.
    ///
    /// *old* has the values of the old side. Without them, every subscription that may want it is a candidate.
    pub fn find(&self, search: &mut CandidateSearch<'_>, values: &mut Values<'_>, old: Option<&mut Values<'_>>) {
        let CandidateSearch { segment, shapes, open, .. } = *search;
        let store = &segment.store;
        let mut conjunctions = Vec::new();
        search.side(self, &self.new, values, &mut conjunctions);
        conjunctions.extend_from_slice(&shapes.hidden);
        if self.asks_old() {
            let needed = if self.event_type == Some(EventType::Update) { flags::TRANSITIONS } else { 0 };
            // One that reads `before` is evaluated once, on the new side.
            let is_of_sides = |at: &u32| store.flags[*at as usize] & (needed | flags::BEFORE) == needed;
            let start = conjunctions.len();
            match (old, &self.old) {
                _ if store.any_flags & needed != needed => {}
                (Some(values), Some(old)) => places::uncounted(|| search.side(self, old, values, &mut conjunctions)),
                _ => conjunctions.extend(0..store.len() as u32),
            }
            let leaves: Vec<u32> = conjunctions.drain(start..).filter(is_of_sides).collect();
            conjunctions.extend(leaves);
        }
        conjunctions.sort_unstable();
        conjunctions.dedup();
        conjunctions.retain(|at| store.is_open(*at, open) && !segment.is_gone(*at, search.query.version));
        search.output.evaluated += conjunctions.len() as u64;
        search.output.unknown.extend(conjunctions.iter().map(|at| store.slots[*at as usize]));
    }

    /// Whether an unknown value may hide anything at a path of a side.
    fn is_touched(&self, side: &PartialSide, (path, mode): &(Path, Mode)) -> bool {
        let unknown = &self.unknown;
        // A macro or an index reads all of the list through which a leaf is found.
        let names = if *mode == Mode::AnyLeaf { &path.names[..path.names.len().min(1)] } else { &path.names };
        let below = |at: &Option<Pointer>| at.as_ref().is_some_and(|at| side.tree.may_meet(&side.raw, at.iter().chain(names)));
        match path.root {
            Root::Data if *mode == Mode::Changed => below(&unknown.data_at) || below(&unknown.before_at),
            Root::Data => below(&unknown.data_at),
            Root::Before => below(&unknown.before_at),
            Root::Envelope => below(&unknown.record_at),
            Root::Type => unknown.event_type,
            Root::Topic => unknown.topic,
            Root::Collection | Root::Tenant => false,
            Root::Raw => side.tree.may_meet(&side.raw, &path.names),
        }
    }
}

impl CandidateSearch<'_> {
    /// Add the subscriptions, by position, that may want the document of a side.
    fn side(&mut self, event: &PartialEvent, side: &PartialSide, values: &mut Values<'_>, conjunctions: &mut Vec<u32>) {
        conjunctions.extend_from_slice(self.segment.satisfied(&self.query, values, self.scratch, self.output));
        // The search has counted the topics that it refused.
        places::uncounted(|| self.open_shapes(event, side, values, conjunctions));
    }

    /// Add the subscriptions with a conjunction that reads an unknown value, and may hold.
    fn open_shapes(&mut self, event: &PartialEvent, side: &PartialSide, values: &mut Values<'_>, conjunctions: &mut Vec<u32>) {
        let (store, map) = (&self.segment.store, &self.query.map.ids);
        let is_touched_path = |path| {
            spend(1);
            event.is_touched(side, path)
        };
        let touched: Vec<bool> = store.paths.paths.iter().map(is_touched_path).collect();
        // Whether each may hold, once it was looked at.
        let mut known_clauses = Vec::new();
        let is_open = |shape: &&Shape| {
            spend(1);
            shape.reads_more || shape.fields.iter().any(|field| touched[field.path as usize])
        };
        let mut looked = Vec::new();
        for shape in self.shapes.each.iter().filter(is_open) {
            looked.clear();
            let known = shape.fields.iter().filter(|field| field.has_hashes() && !touched[field.path as usize]);
            let mut known = known.filter_map(|field| Some((field, hashes(store, field.path, map, values)?)));
            match known.next() {
                Some((field, hashes)) => looked.extend(hashes.iter().flat_map(|hash| self.shapes.requiring(field, *hash))),
                None => looked.extend_from_slice(&shape.conjunctions),
            }
            spend(2 * looked.len());
            self.output.candidates += looked.len() as u64;
            if !looked.is_empty() {
                known_clauses.resize(store.distinct_clauses(), None);
            }
            for conjunction in &looked {
                let may_hold = |clause: &u32| {
                    let may_hold = &mut known_clauses[*clause as usize];
                    *may_hold.get_or_insert_with(|| !is_false_for_certain(store, *clause, &touched, map, values))
                };
                if places::uncounted(|| store.clauses(*conjunction).iter().all(may_hold)) {
                    conjunctions.extend_from_slice(store.targets(*conjunction));
                }
            }
        }
    }
}

/// The hashes of the few values at a path, if an equality there is certainly false for every other value.
fn hashes(store: &Store, path: u32, map: &[PathId], values: &mut Values<'_>) -> Option<Vec<u64>> {
    let at = values.at(map[path as usize], store.mode(path));
    let is_few = at.len() <= FEW_VALUES;
    (is_few && is_decided(store, path, map, values, |value| value.scalar.is_some()))
        .then(|| at.map(|at| values.get(at).hash).collect())
}

/// Whether a clause is false for all possible unknown values, and not by an error.
fn is_false_for_certain(store: &Store, clause: u32, touched: &[bool], map: &[PathId], values: &mut Values<'_>) -> bool {
    let view = store.clause(clause);
    if touched[view.path as usize] || clauses::clause_holds(store, clause, map, values) {
        return false;
    }
    // Without atoms it is an ordering beyond all bools, which is an error for other values.
    view.count > 0 && is_decided(store, view.path, map, values, |value| is_compared(view.atoms, value))
}

/// Whether a condition at a path that is not true is false, and not an error, if it *compares* with each value.
fn is_decided(
    store: &Store,
    path: u32,
    map: &[PathId],
    values: &mut Values<'_>,
    compares: impl Fn(LeafValue<'_>) -> bool,
) -> bool {
    let (mode, root, path) = (store.mode(path), store.paths.paths[path as usize].0.root, map[path as usize]);
    let kind = values.at(path, Mode::Scalar).next().map(|at| values.get(at).kind);
    let is_there = match mode {
        Mode::Scalar => kind.is_some(),
        Mode::Element => kind == Some(Kind::List),
        Mode::Member => matches!(kind, Some(Kind::List | Kind::Map)),
        // Patterns have no errors. In CEL a member that an element lacks is one.
        Mode::AnyLeaf => return root == Root::Raw,
        Mode::Changed => false,
    };
    is_there && values.at(path, mode).all(|at| compares(values.get(at)))
}

/// Whether all of these atoms compare with a value without an error.
fn is_compared(mut atoms: Atoms<'_>, value: LeafValue<'_>) -> bool {
    let (kind, scalar) = (value.kind, value.scalar);
    scalar.is_some()
        && atoms.all(|atom| match atom.view {
            // A value may be true without being compared.
            AtomView::Equal(operand) => operand.kind() != Kind::Bool || kind == Kind::Bool,
            AtomView::EqualTree(_) => true,
            AtomView::Other(kinds, _) => kinds.has(kind),
            AtomView::Numbers(..) => kind == Kind::Number,
            AtomView::Times(of, ..) => value.leaf.time(of).is_some(),
            // `contains` of a string is of a substring.
            AtomView::Element(mut operand) => {
                let is_text = |operand| matches!(operand, AtomView::Equal(ScalarRef::String(_)));
                kind == Kind::String && operand.next().is_some_and(|atom| is_text(atom.view))
            }
            AtomView::Kinds(kinds) => kinds.has(Kind::Missing) && !kinds.has(Kind::Null),
            _ => kind == Kind::String,
        })
}
