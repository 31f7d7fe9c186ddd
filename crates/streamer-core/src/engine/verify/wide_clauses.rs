//! Clauses of many alternatives, looked up by value instead of compared one after the other.
//!
//! ```text
//!   tags in ["t0", "t1", ... "t9999"]     an array of 20,000 strings: a look into a table each, not 10,000 comparisons
//! ```
//!
//! The index looks up the clause under which a conjunction is filed by value. The other clauses are verified on
//! candidates, leaf by leaf; here that costs the leaves plus the alternatives, not their product.
//!
//! The values that a clause excludes (`anything-but`, `not in`) are alternatives too, which must all be false; they are
//! looked up in the same way.
//!
//! Invariant: a value passes here if and only if it satisfies one of the clause's atoms.
//!
//! Cost: 12 bytes an equality, for other atoms the size of their matchers; free for clauses of up to [`WIDE`] words.

use crate::automaton::table::Table;
use crate::engine::verify::atoms::{atom_fails, atom_holds};
use crate::engine::verify::encoded::{AtomView, Atoms, EncodedAtom, EncodedClauses};
use crate::engine::verify::matchers::{Class, Matcher, class_of};
use crate::engine::verify::values::Values;
use crate::value::{Kinds, Seed};

/// A clause of more words than this, some 64 alternatives, is looked up by value.
pub(super) const WIDE: u32 = 128;

/// See the head of this file.
#[derive(Debug)]
pub(super) struct Wide {
    /// The positions of the words of equalities, by the hash of the value.
    equal: Table,
    matchers: Box<[Matcher]>,
    /// For values of some kinds: true if all of these are false.
    excluding: Box<[(Kinds, Wide)]>,
    /// The positions of the words of all other atoms, which are compared one by one.
    others: Box<[u32]>,
}

impl Wide {
    /// For a row of atoms of *clauses*.
    pub fn new(clauses: &EncodedClauses, seed: &Seed, atoms: Atoms<'_>) -> Wide {
        let (mut equal, mut excluding, mut others) = (Vec::new(), Vec::new(), Vec::new());
        let mut by_class: Vec<(Class, Vec<[u32; 2]>)> = Vec::new();
        for atom in atoms {
            let position = clauses.position(atom.encoded);
            match (class_of(&atom.view), atom.view) {
                (_, AtomView::Equal(scalar)) => equal.push((scalar.hash(seed), position)),
                // Recursive, but only one level: `none_of` has only plain atoms.
                (_, AtomView::Other(kinds, none_of)) if atom.encoded.len() as u32 > WIDE => {
                    excluding.push((kinds, Wide::new(clauses, seed, none_of)));
                }
                ((class, true), _) if Matcher::tells(class) => match by_class.iter_mut().find(|(other, _)| *other == class) {
                    Some((_, atoms)) => atoms.push([position, 0]),
                    None => by_class.push((class, vec![[position, 0]])),
                },
                _ => others.push(position),
            }
        }
        let matchers = by_class.iter().filter_map(|(class, atoms)| Matcher::new(clauses, seed, *class as u32, &[], atoms));
        Wide { equal: Table::new(&equal), matchers: matchers.collect(), excluding: excluding.into(), others: others.into() }
    }

    /// Whether any of the alternatives is true for a present value.
    pub fn holds(&self, clauses: &EncodedClauses, values: &mut Values<'_>, at: usize) -> bool {
        self.knows(clauses, values, at)
            || self.excluding.iter().any(|(kinds, none_of)| kinds.has(values.get(at).kind) && none_of.fails(clauses, values, at))
            || self.others(clauses).any(|atom| atom_holds(&atom.view, values, at))
    }

    /// Whether each of the alternatives, which never exclude values, is certainly false.
    fn fails(&self, clauses: &EncodedClauses, values: &mut Values<'_>, at: usize) -> bool {
        !self.knows(clauses, values, at) && self.others(clauses).all(|atom| atom_fails(&atom.view, values, at))
    }

    /// Whether one of the alternatives that are looked up is true.
    fn knows(&self, clauses: &EncodedClauses, values: &mut Values<'_>, at: usize) -> bool {
        let value = values.get(at);
        let Some(scalar) = value.scalar else { return false };
        self.equal.find(value.hash, |position| clauses.is_equality(position, scalar)).is_some()
            || self.matchers.iter().any(|matcher| matcher.holds(scalar, values.literals()))
    }

    fn others<'s>(&self, clauses: &'s EncodedClauses) -> impl Iterator<Item = EncodedAtom<'s>> {
        self.others.iter().flat_map(|position| clauses.atom_at(*position))
    }

    /// Heap bytes used, without those of matchers.
    pub fn bytes(&self) -> usize {
        let excluding: usize = self.excluding.iter().map(|(_, wide)| size_of::<(Kinds, Wide)>() + wide.bytes()).sum();
        self.equal.bytes() + self.others.len() * 4 + self.matchers.len() * size_of::<Matcher>() + excluding
    }
}
