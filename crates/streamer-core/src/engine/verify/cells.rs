//! The cells that divide the values at a path, and a clause's verdict on each cell.
//!
//! ```text
//!   cuts        c0        c1            c2        of all ranges and values that clauses name here, the most frequent or every n-th
//!   cells    │ 0 │   1    │     2      │   3 │   null  true  false  a list  ...  nothing
//!   c0 < x <= c2 │ may    │ must       │ no      no    no    no     no           no
//! ```
//!
//! Invariant: a clause accepts a value only if it *may* in the value's cell, and accepts each value of a cell in which it *must*.
//!
//! Cost: 12 bytes a cut of numbers, a text a cut of texts; at most [`MOST`] cells.

use crate::automaton::ranges::{NumberCut, text_after};
use crate::engine::verify::encoded::{AtomView, Atoms, ClauseView};
use crate::value::{Kind, Kinds, ScalarRef};
use std::borrow::Borrow;

/// A bit for each cell is a word.
const MOST: usize = 64;
/// Cells of other kinds than ranges, two of them for booleans.
const MISSING: usize = 0;
const NULL: usize = 1;
const FALSE: usize = 2;
const BEYOND_FLOAT: usize = 4;
const LIST: usize = 5;
const MAP: usize = 6;
const NUMBERS: usize = 7;
/// Cuts that leave room for those, and for one more cell each of numbers and of texts.
const MOST_CUTS: usize = MOST - NUMBERS - 2;

/// A bit for each cell with values that a clause may accept, and for each cell with only such values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Verdicts {
    pub may: u64,
    pub must: u64,
}

impl Verdicts {
    /// Whether the cells decide the clause.
    pub(super) fn is_exact(self) -> bool {
        self.may == self.must
    }

    fn or(self, other: Verdicts) -> Verdicts {
        Verdicts { may: self.may | other.may, must: self.must | other.must }
    }

    fn exactly(cells: u64) -> Verdicts {
        Verdicts { may: cells, must: cells }
    }
}

/// See the head of this file.
#[derive(Debug)]
pub(super) struct Cells {
    numbers: Box<[NumberCut]>,
    texts: Box<[Box<str>]>,
}

/// The cuts that clauses name at one path, as often as they name them.
#[derive(Debug, Default)]
pub(super) struct Cuts {
    numbers: Vec<NumberCut>,
    texts: Vec<Box<str>>,
}

impl Cuts {
    /// Note what a clause names.
    pub(super) fn add(&mut self, atoms: Atoms<'_>) {
        for atom in atoms {
            match atom.view {
                AtomView::Numbers(from, to) => self.numbers.extend(from.into_iter().chain(to)),
                AtomView::Strings(from, to) => self.texts.extend(from.into_iter().chain(to).map(Box::from)),
                AtomView::Equal(ScalarRef::Number(number)) => {
                    self.numbers.extend([NumberCut::before(number), NumberCut::after(number)]);
                }
                AtomView::Equal(ScalarRef::String(text)) => self.texts.extend([text.into(), text_after(text)]),
                AtomView::Other(_, none_of) => self.add(none_of),
                _ => {}
            }
        }
    }

    /// Cells by at most *most* of them.
    pub(super) fn cells(self, most: usize) -> Cells {
        let most = most.min(MOST_CUTS);
        let (numbers, texts) = (self.numbers.len(), self.texts.len());
        let of_texts = if texts == 0 { 0 } else { (most * texts / (numbers + texts)).clamp(1, most) };
        Cells { numbers: some_cuts(self.numbers, most - of_texts), texts: some_cuts(self.texts, of_texts) }
    }
}

/// At most *most* of *cuts*, spread so that between two of them lie about equally many.
fn some_cuts<K: Ord + Clone>(mut cuts: Vec<K>, most: usize) -> Box<[K]> {
    cuts.sort_unstable();
    let distinct = cuts.chunk_by(|one, other| one == other).count();
    if distinct > most {
        let all = cuts.len();
        cuts = (1..=most).map(|at| cuts[at * all / (most + 1)].clone()).collect();
    }
    cuts.dedup();
    cuts.into()
}

impl Cells {
    /// Return the number of cells.
    pub(super) fn len(&self) -> usize {
        self.texts_at() + self.texts.len() + 1
    }

    fn texts_at(&self) -> usize {
        NUMBERS + self.numbers.len() + 1
    }

    /// Return the cell of a missing value.
    pub(super) const MISSING: usize = MISSING;

    /// The cell of a value that is there; None for a scalar that cannot be read.
    pub(super) fn of(&self, kind: Kind, scalar: Option<ScalarRef<'_>>) -> Option<usize> {
        Some(match (kind, scalar) {
            (_, Some(ScalarRef::Number(number))) => {
                let point = NumberCut::before(number);
                NUMBERS + self.numbers.partition_point(|cut| *cut <= point)
            }
            (_, Some(ScalarRef::String(text))) => self.texts_at() + self.texts.partition_point(|cut| **cut <= *text),
            (_, Some(ScalarRef::Bool(value))) => FALSE + usize::from(value),
            (_, Some(ScalarRef::Null)) => NULL,
            (Kind::BeyondFloat, None) => BEYOND_FLOAT,
            (Kind::List, None) => LIST,
            (Kind::Map, None) => MAP,
            (_, None) => return None,
        })
    }

    /// Return the verdicts of a clause.
    pub(super) fn verdicts(&self, clause: &ClauseView<'_>) -> Verdicts {
        self.any(clause.atoms)
    }

    fn any(&self, atoms: Atoms<'_>) -> Verdicts {
        atoms.map(|atom| self.atom(&atom.view)).fold(Verdicts::default(), Verdicts::or)
    }

    fn atom(&self, view: &AtomView<'_>) -> Verdicts {
        let texts = |from: Option<&str>, to: Option<&str>| between(&self.texts, from, to).at(self.texts_at());
        match *view {
            AtomView::Equal(ScalarRef::Null) => Verdicts::exactly(1 << NULL),
            AtomView::Equal(ScalarRef::Bool(value)) => Verdicts::exactly(1 << (FALSE + usize::from(value))),
            AtomView::Equal(ScalarRef::Number(number)) => {
                between(&self.numbers, Some(&NumberCut::before(number)), Some(&NumberCut::after(number))).at(NUMBERS)
            }
            AtomView::Equal(ScalarRef::String(text)) => texts(Some(text), Some(&text_after(text))),
            AtomView::Numbers(from, to) => between(&self.numbers, from.as_ref(), to.as_ref()).at(NUMBERS),
            AtomView::Strings(from, to) => texts(from, to),
            AtomView::Kinds(kinds) => Verdicts::exactly(self.kinds(kinds)),
            AtomView::Other(kinds, none_of) => {
                let (kinds, none_of) = (self.kinds(kinds) & !(1 << MISSING), self.any(none_of));
                Verdicts { may: kinds & !none_of.must, must: kinds & !none_of.may }
            }
            AtomView::EqualTree(tree) => Verdicts { may: self.kinds(Kinds::of(tree.kind())), must: 0 },
            AtomView::Element(_) => Verdicts { may: 1 << LIST, must: 0 },
            AtomView::Times(..) | AtomView::Size(..) => Verdicts { may: self.kinds(Kinds::PRESENT), must: 0 },
            // Each is about a text.
            _ => Verdicts { may: self.kinds(Kinds::of(Kind::String)), must: 0 },
        }
    }

    /// The cells of the values of some kinds.
    fn kinds(&self, kinds: Kinds) -> u64 {
        let cells = |kind: Kind, from: usize, to: usize| if kinds.has(kind) { cells(from..to) } else { 0 };
        cells(Kind::Missing, MISSING, NULL)
            | cells(Kind::Null, NULL, FALSE)
            | cells(Kind::Bool, FALSE, BEYOND_FLOAT)
            | cells(Kind::BeyondFloat, BEYOND_FLOAT, LIST)
            | cells(Kind::List, LIST, MAP)
            | cells(Kind::Map, MAP, NUMBERS)
            | cells(Kind::Number, NUMBERS, self.texts_at())
            | cells(Kind::String, self.texts_at(), self.len())
    }

    /// Return the heap bytes, without the texts of cuts.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.numbers) + size_of_val(&*self.texts)
    }
}

/// Bits for some cells.
fn cells(range: std::ops::Range<usize>) -> u64 {
    match range.end.saturating_sub(range.start) {
        0 => 0,
        count => (u64::MAX >> (MOST - count)) << range.start,
    }
}

/// The cells, from the first one between *cuts* on, of what lies between two cuts.
fn between<K: Borrow<Q>, Q: Ord + ?Sized>(cuts: &[K], from: Option<&Q>, to: Option<&Q>) -> Verdicts {
    let (mut first, mut last) = ((0, 0), (cuts.len() + 1, cuts.len() + 1));
    if let Some(from) = from {
        // Cell n begins at cut n - 1.
        let at = cuts.partition_point(|cut| cut.borrow() <= from);
        let is_cut = at > 0 && cuts[at - 1].borrow() == from;
        first = (at, if is_cut { at } else { at + 1 });
    }
    if let Some(to) = to {
        let at = cuts.partition_point(|cut| cut.borrow() < to);
        let is_cut = cuts.get(at).is_some_and(|cut| cut.borrow() == to);
        last = (at + 1, if is_cut { at + 1 } else { at });
    }
    Verdicts { may: cells(first.0..last.0), must: cells(first.1..last.1) }
}

impl Verdicts {
    /// Return the verdicts of the cells that begin at *start*.
    fn at(self, start: usize) -> Verdicts {
        Verdicts { may: self.may << start, must: self.must << start }
    }
}
