//! Clauses of many alternatives, asked by value instead of one alternative after the other.
//!
//! ```text
//!   tags in ["t0", "t1", ... "t9999"]     an array of 20,000 strings: a look into a table each, not 10,000 comparisons
//! ```
//!
//! The index asks the clause under which a conjunction is filed by value. All others are verified on candidates, leaf by leaf; here
//! that costs the leaves plus the alternatives, not their product.
//!
//! What a clause excludes (`anything-but`, `not in`) are alternatives too, of which none may hold; they are asked in the same way.
//!
//! Invariant: a value passes here if and only if one of the clause's atoms holds for it.
//!
//! Cost: 12 bytes an equality, for other atoms what their matchers take; nothing for clauses of up to [`WIDE`] words.

use crate::automaton::table::Table;
use crate::engine::atoms::{atom_fails, atom_holds};
use crate::engine::encoded::{AtomView, Atoms, EncodedAtom, EncodedClauses};
use crate::engine::matchers::{Class, Matcher, class_of};
use crate::engine::values::Values;
use crate::value::{Kinds, Seed};

/// A clause of more words than this, some 64 alternatives, is asked by value.
pub(super) const WIDE: u32 = 128;

/// See the head of this file.
#[derive(Debug)]
pub(super) struct Wide {
    /// Where the words of an equality are, by the hash of its value.
    equal: Table,
    matchers: Box<[Matcher]>,
    /// What holds for each value of some kinds of which none of these hold.
    excluding: Box<[(Kinds, Wide)]>,
    /// Where the words of all other atoms are, which are asked one by one.
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
                // Recursive, but no deeper: nothing but plain atoms stands in there.
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

    /// Whether any of the alternatives holds for a value that is there.
    pub fn holds(&self, clauses: &EncodedClauses, values: &mut Values<'_>, at: usize) -> bool {
        self.knows(clauses, values, at)
            || self.excluding.iter().any(|(kinds, none_of)| kinds.has(values.get(at).kind) && none_of.fails(clauses, values, at))
            || self.others(clauses).any(|atom| atom_holds(&atom.view, values, at))
    }

    /// Whether each of the alternatives, none of which excludes anything, is known not to hold.
    fn fails(&self, clauses: &EncodedClauses, values: &mut Values<'_>, at: usize) -> bool {
        !self.knows(clauses, values, at) && self.others(clauses).all(|atom| atom_fails(&atom.view, values, at))
    }

    /// Whether one of those alternatives holds that are looked up.
    fn knows(&self, clauses: &EncodedClauses, values: &mut Values<'_>, at: usize) -> bool {
        let seen = values.get(at);
        let Some(scalar) = seen.scalar else { return false };
        self.equal.find(seen.hash, |position| clauses.is_equality(position, scalar)).is_some()
            || self.matchers.iter().any(|matcher| matcher.holds(scalar, &mut values.literals))
    }

    fn others<'s>(&self, clauses: &'s EncodedClauses) -> impl Iterator<Item = EncodedAtom<'s>> {
        self.others.iter().flat_map(|position| clauses.atom_at(*position))
    }

    /// Heap bytes held, those of matchers left out.
    pub fn bytes(&self) -> usize {
        let excluding: usize = self.excluding.iter().map(|(_, wide)| size_of::<(Kinds, Wide)>() + wide.bytes()).sum();
        self.equal.bytes() + self.others.len() * 4 + self.matchers.len() * size_of::<Matcher>() + excluding
    }
}
