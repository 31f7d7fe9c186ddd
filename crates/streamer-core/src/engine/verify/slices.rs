//! Rule out many conjunctions together, with a bit each, if none of their clauses is selective.
//!
//! ```text
//!   block of 512 rows     price   cell 0  1101…   cell 1  0111…   …   missing  0001…      a line of 64 bytes each
//!                         height  cell 0  0111…   cell 1  0100…   …
//!   event price 7, height 3       line of price's cell  &  line of height's cell  &  …    ─► the other rows are verified
//! ```
//!
//! A row is a conjunction. A field is a path that rows test; [`Cells`] divide its values. A line has a set bit for each row of a block
//! that a value in the cell can satisfy, and for each row that does not test the field. A block has lines of the fields that its rows
//! test. Rows are sorted by their fields and ranges, so the rows of a block are alike, and a few lines rule out most blocks.
//!
//! Cells that no row of a field accepts share one line. Cells that all rows accept have no line.
//!
//! Invariant: a row that is ruled out does not match. A remaining row is still verified by the clauses that cells do not decide.
//!
//! Cost: at most [`LINES`] lines a block, so 80 bytes a row, and 4 for its target. An event reads at most a line of each field and block.
//!
//! docs/performance.md has the rejected alternatives and their measurements.

use crate::engine::verify::cells::{Cells, Cuts};
use crate::engine::verify::encoded::FastHash;
use crate::engine::verify::store::Store;
use crate::engine::verify::values::Values;
use crate::prefetch::prefetch;
use crate::subscriptions::normal_form::Mode;
use crate::value::Kind;
use std::collections::HashMap;
use std::ops::Range;

/// Rows of a block: their bits are one line of the cache.
const BLOCK: usize = 512;
/// The most lines of a block.
const LINES: usize = 640;
/// The fewest and the most lines of a field: an event's values there are a bit for each.
const FEWEST: usize = 8;
const MOST: usize = 64;
/// The line of cells that no row accepts.
const NONE: u8 = 0;
/// Stands for the line of cells that all rows accept.
const ALL: u8 = u8::MAX;
/// The number of blocks to prefetch ahead.
const AHEAD: usize = 2;

/// Rows of a block, a bit each.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Line([u64; BLOCK / 64]);

/// A path that rows test.
#[derive(Debug)]
struct Field {
    path: u32,
    cells: Cells,
    /// The line of each cell, or [`ALL`].
    line_of: Box<[u8]>,
    lines: usize,
}

/// The fields and their lines. It depends on the rows but not on their order.
#[derive(Debug)]
pub(in crate::engine) struct Layout {
    /// Fields that rule out most come first.
    fields: Box<[Field]>,
    field_of: HashMap<u32, usize, FastHash>,
}

/// A field that a row tests, and those of its lines that the row accepts.
type Tested = (usize, u64);

/// A field of a block, and the begin of its lines.
#[derive(Clone, Copy, Debug)]
struct SlicePart {
    field: u32,
    lines: u32,
}

/// See the head of this file.
#[derive(Debug)]
pub(in crate::engine) struct Slices {
    fields: Box<[Field]>,
    /// The target of each row.
    rows: Box<[u32]>,
    /// The begin of each block's parts, then the end of the last block's.
    blocks: Box<[u32]>,
    /// The fields that most rows of a block test come first in it.
    parts: Box<[SlicePart]>,
    lines: Box<[Line]>,
}

impl Field {
    /// Make a field of a path's *clauses* with at most *most* lines; return it with the share of rows that a value rules out, in 1024ths.
    /// None if each value accepts all rows.
    fn new(store: &Store, path: u32, clauses: &[u32], most: usize) -> Option<(Field, u64)> {
        let mut room = most - 2;
        loop {
            let mut cuts = Cuts::default();
            clauses.iter().for_each(|clause| cuts.add(store.clause(*clause).atoms));
            let cells = cuts.cells(room);
            let (mut any, mut all) = (0, u64::MAX);
            let mut counts = vec![0_u32; cells.len()];
            for clause in clauses {
                let may = cells.verdicts(&store.clause(*clause)).may;
                (any, all) = (any | may, all & may);
                bits_of(may).for_each(|cell| counts[cell] += 1);
            }
            let some = any & !all;
            let lines = 1 + some.count_ones() as usize;
            if lines > most && room > 1 {
                // Cells of other values than numbers and texts take some.
                room = room.saturating_sub(lines - most).max(1);
                continue;
            }
            if all.count_ones() as usize >= cells.len() {
                return None;
            }
            let mut next = NONE;
            let line_of = (0..cells.len()).map(|cell| match (any >> cell & 1, all >> cell & 1) {
                (0, _) => NONE,
                (_, 1) => ALL,
                _ => {
                    next += 1;
                    next
                }
            });
            let line_of = line_of.collect();
            let may: u64 = bits_of(some).map(|cell| u64::from(counts[cell])).sum();
            let decided = some.count_ones() as u64;
            let ruled_out = 1024 * (clauses.len() as u64 * decided - may) / decided.max(1);
            return Some((Field { path, cells, line_of, lines }, ruled_out));
        }
    }

    /// Return the lines of the cells that a row accepts.
    fn lines_of_cells(&self, may: u64) -> u64 {
        let lines = bits_of(may & u64::MAX >> (64 - self.cells.len())).map(|cell| self.line_of[cell]);
        lines.filter(|line| *line != ALL).fold(0, |all, line| all | 1 << line)
    }

    /// Return a bit for each line that an event's values at positions *at* are in; no bit if they rule out no row.
    fn lines_of(&self, values: &Values<'_>, at: Range<usize>) -> u64 {
        let mut lines = 0;
        let line_of = |cell: Option<usize>| cell.map_or(ALL, |cell| self.line_of[cell]);
        let mut add = |line: u8| {
            lines |= if line == ALL { 0 } else { 1 << line };
            line != ALL
        };
        let goes_on = if at.is_empty() {
            add(line_of(Some(Cells::MISSING)))
        } else {
            at.into_iter().all(|at| {
                let value = values.get(at);
                add(if value.kind == Kind::Unreadable { NONE } else { line_of(self.cells.of(value.kind, value.scalar)) })
            })
        };
        // A line that accepts no row adds no bits to the line of another value.
        match lines {
            _ if !goes_on => 0,
            1 => 1,
            several => several & !1,
        }
    }
}

impl Layout {
    /// The most fields: other paths that rows test are verified.
    pub(in crate::engine) const MOST_FIELDS: usize = LINES / FEWEST;

    /// Lay out rows, each given as its clauses; None if no field rules out any.
    pub(in crate::engine) fn of<'r>(store: &Store, rows: impl Iterator<Item = &'r [u32]>) -> Option<Layout> {
        let mut said: HashMap<u32, Vec<u32>, FastHash> = HashMap::default();
        rows.flatten().for_each(|clause| said.entry(store.clause(*clause).path).or_default().push(*clause));
        let mut said: Vec<(u32, Vec<u32>)> = said.into_iter().collect();
        said.sort_unstable_by_key(|(path, clauses)| (usize::MAX - clauses.len(), *path));
        said.truncate(Layout::MOST_FIELDS);
        let most = (LINES / said.len().max(1)).min(MOST);
        let fields = said.iter().filter_map(|(path, clauses)| Field::new(store, *path, clauses, most));
        let mut fields: Vec<(Field, u64)> = fields.collect();
        fields.sort_unstable_by_key(|(field, ruled_out)| (u64::MAX - ruled_out, field.path));
        let fields: Box<[Field]> = fields.into_iter().map(|(field, _)| field).collect();
        let field_of = fields.iter().enumerate().map(|(at, field)| (field.path, at)).collect();
        (!fields.is_empty()).then_some(Layout { fields, field_of })
    }

    /// Return the fields that a row's clauses test, in order; call *decided* with the position of each clause that cells decide.
    fn tested(&self, store: &Store, clauses: &[u32], mut decided: impl FnMut(usize)) -> Vec<Tested> {
        let mut tested: Vec<Tested> = Vec::with_capacity(clauses.len());
        for (position, clause) in clauses.iter().enumerate() {
            let clause = store.clause(*clause);
            let Some(&at) = self.field_of.get(&clause.path) else { continue };
            let verdicts = self.fields[at].cells.verdicts(&clause);
            let lines = self.fields[at].lines_of_cells(verdicts.may);
            match tested.iter_mut().find(|(field, _)| *field == at) {
                // One value meets both; of several, each may meet one.
                Some((_, known)) if store.mode(clause.path) == Mode::Scalar => *known &= lines,
                Some(_) => continue,
                None => tested.push((at, lines)),
            }
            if verdicts.is_exact() {
                decided(position);
            }
        }
        tested.sort_unstable_by_key(|(field, _)| *field);
        tested
    }

    /// Return the sort key of a row, and the share of its fields' values that it accepts. Call *decided* with the position of each clause
    /// that cells decide.
    pub(in crate::engine) fn row(&self, store: &Store, clauses: &[u32], decided: impl FnMut(usize)) -> (u128, f64) {
        let tested = self.tested(store, clauses, decided);
        let mut key = 0;
        for at in 0..8 {
            let place = tested.get(at).map_or(0xffff, |(field, lines)| {
                let count = self.fields[*field].lines;
                // The begin of a range or of an exclusion.
                let first = if lines & 2 == 0 { lines.trailing_zeros() } else { (lines >> 1).trailing_ones() };
                (*field as u128) << 4 | (first as u128 * 8 / count as u128).min(15)
            });
            key = key << 16 | place;
        }
        let share = |(field, lines): &Tested| {
            let others = (self.fields[*field].lines - 1).max(1);
            f64::from((lines >> 1).count_ones()) / others as f64
        };
        (key, tested.iter().map(share).product())
    }

    /// Return the most lines of a block that an event reads.
    pub(in crate::engine) fn fields(&self) -> usize {
        self.fields.len()
    }
}

impl Slices {
    /// Slice *rows* in their order; each row is pairs of a clause and the row's target.
    pub(in crate::engine) fn new(store: &Store, layout: Layout, rows: &[[u32; 2]]) -> Slices {
        let (mut blocks, mut parts, mut lines) = (vec![0], Vec::new(), Vec::new());
        let mut leads = Vec::new();
        let mut tested: Vec<Vec<Tested>> = Vec::with_capacity(BLOCK);
        let mut clauses = Vec::new();
        let mut rows = rows.chunk_by(|one, other| one[1] == other[1]).peekable();
        while rows.peek().is_some() {
            tested.clear();
            for row in rows.by_ref().take(BLOCK) {
                clauses.clear();
                clauses.extend(row.iter().map(|[clause, _]| *clause));
                tested.push(layout.tested(store, &clauses, |_| {}));
                leads.push(row[0][1]);
            }
            let mut counts = vec![(0_u32, 0); layout.fields.len()];
            (0..).zip(&mut counts).for_each(|(field, count)| count.1 = field);
            tested.iter().flatten().for_each(|(field, _)| counts[*field].0 += 1);
            counts.retain(|(count, _)| *count > 0);
            counts.sort_unstable_by_key(|(count, field)| (u32::MAX - count, *field));
            let mut place = vec![0; layout.fields.len()];
            for (_, field) in counts {
                place[field] = lines.len();
                parts.push(SlicePart { field: field as u32, lines: lines.len() as u32 });
                lines.resize(lines.len() + layout.fields[field].lines, Line([u64::MAX; BLOCK / 64]));
            }
            for (row, tested) in tested.iter().enumerate() {
                for (field, may) in tested {
                    let all = u64::MAX >> (64 - layout.fields[*field].lines);
                    bits_of(all & !may).for_each(|line| lines[place[*field] + line].0[row / 64] &= !(1 << (row % 64)));
                }
            }
            blocks.push(parts.len() as u32);
        }
        let Layout { fields, .. } = layout;
        Slices { fields, rows: leads.into(), blocks: blocks.into(), parts: parts.into(), lines: lines.into() }
    }

    /// Lay out *rows* and slice them; None if their clauses have no layout.
    pub(super) fn of(store: &Store, rows: &[[u32; 2]]) -> Option<Slices> {
        let clauses: Vec<u32> = rows.iter().map(|[clause, _]| *clause).collect();
        let layout = Layout::of(store, std::iter::once(&clauses[..]))?;
        Some(Slices::new(store, layout, rows))
    }

    /// The paths of its fields.
    pub(in crate::engine) fn paths(&self) -> impl Iterator<Item = u32> {
        self.fields.iter().map(|field| field.path)
    }

    /// Return the lines of a field that an event's values at positions *at* select.
    pub(in crate::engine) fn lines_of(&self, field: usize, values: &Values<'_>, at: Range<usize>) -> u64 {
        self.fields[field].lines_of(values, at)
    }

    /// Call *visit* with the target of each remaining row.
    #[inline]
    pub(in crate::engine) fn find(&self, query: &[u64], mut visit: impl FnMut(u32)) {
        let mut read = 1;
        for (block, rows) in self.rows.chunks(BLOCK).enumerate() {
            // Neighbours are alike, so a later block reads about as many lines.
            self.prefetch(block + AHEAD, read + 1, query);
            let mut all = Line([u64::MAX; BLOCK / 64]);
            let parts = &self.parts[self.blocks[block] as usize..self.blocks[block + 1] as usize];
            let last = parts.iter().position(|part| !self.narrow(&mut all, *part, query[part.field as usize]));
            read = last.map_or(parts.len(), |last| last + 1);
            if last.is_some() {
                continue;
            }
            for (word, rows) in all.0.iter().zip(rows.chunks(64)) {
                let word = if rows.len() < 64 { word & ((1 << rows.len()) - 1) } else { *word };
                bits_of(word).for_each(|row| visit(rows[row]));
            }
        }
    }

    /// Rule out rows of a block by a field; return false if no row remains.
    #[inline(always)]
    fn narrow(&self, all: &mut Line, part: SlicePart, lines: u64) -> bool {
        if lines == 0 {
            return true;
        }
        let start = part.lines as usize;
        let mut line = self.lines[start + lines.trailing_zeros() as usize];
        if lines & (lines - 1) != 0 {
            for other in bits_of(lines & (lines - 1)) {
                let other = &self.lines[start + other];
                line.0.iter_mut().zip(other.0).for_each(|(word, other)| *word |= other);
            }
        }
        let mut any = 0;
        for (word, line) in all.0.iter_mut().zip(line.0) {
            *word &= line;
            any |= *word;
        }
        any != 0
    }

    /// Prefetch a block's lines of its first *count* fields.
    #[inline]
    fn prefetch(&self, block: usize, count: usize, query: &[u64]) {
        let Some([start, end]) = self.blocks.get(block..block + 2) else { return };
        for part in self.parts[*start as usize..*end as usize].iter().take(count) {
            let line = query[part.field as usize].trailing_zeros() as usize;
            prefetch(&self.lines, part.lines as usize + line);
        }
    }

    /// Return the number of blocks.
    pub(in crate::engine) fn blocks(&self) -> usize {
        self.blocks.len() - 1
    }

    /// Return the heap bytes, without the texts of cuts.
    pub(super) fn bytes(&self) -> usize {
        let fields: usize = self.fields.iter().map(|field| field.cells.bytes() + field.line_of.len()).sum();
        size_of_val(&*self.fields)
            + fields
            + size_of_val(&*self.rows)
            + size_of_val(&*self.blocks)
            + size_of_val(&*self.parts)
            + size_of_val(&*self.lines)
    }
}

/// Return the positions of set bits.
fn bits_of(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = word.trailing_zeros() as usize;
        (word != 0).then(|| {
            word &= word - 1;
            bit
        })
    })
}
