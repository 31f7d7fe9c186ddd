//! How one subscription is found and evaluated, in words: the text of `plan`.
//!
//! Cost: building a segment of one subscription. It does not make or change an engine.

use crate::bloom::keys::{Access, KeyScope, key_to_bytes};
use crate::engine::index::access::{CostClass, access_of};
use crate::engine::verify::paths::PathSets;
use crate::engine::verify::store::StoreBuilder;
use crate::subscriptions::normal_form::{Clause, NormalForm, Verify};
use std::collections::BTreeSet;

/// How a subscription is found, and what remains to evaluate.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The conjunctions, each as its clauses and the values that are compared with one another.
    pub alternatives: Vec<Vec<String>>,
    /// The part of a pattern that clauses cannot express.
    pub pattern: Option<&'static str>,
    /// The equality that finds each alternative; None if one of them has none.
    pub access: Option<Vec<String>>,
    /// The keys that it puts into a filter, which may be one to ship.
    pub keys: BTreeSet<Vec<u8>>,
    /// How quickly it is found.
    pub cost: CostClass,
}

/// The most conditions of all alternatives together that a plan has in words, and by which effort is estimated.
const MOST_CONDITIONS: usize = 10_000;

/// How many of them one alternative has at most.
pub(super) fn most_conditions(form: &NormalForm) -> usize {
    (MOST_CONDITIONS / form.conjunctions.len().max(1)).max(1)
}

/// Plan a subscription by its normal form.
pub fn plan(form: &NormalForm) -> Plan {
    let pairs: Vec<String> = form.verify.iter().flat_map(|verify| pairs(verify)).collect();
    let most = most_conditions(form);
    let in_words = |clauses: &[Clause]| {
        let more = clauses.len().saturating_sub(most);
        let more_in_words = (more > 0).then(|| format!("not evaluated: too costly: {more} more conditions"));
        let clauses = clauses[..clauses.len() - more].iter().map(ToString::to_string);
        clauses.chain(more_in_words).chain(pairs.iter().cloned()).collect()
    };
    let accesses: Vec<_> = form.conjunctions.iter().map(access_of).collect();
    let access = form.conjunctions.iter().zip(&accesses).map(|(conjunction, accesses)| match accesses {
        // A conjunction that cannot be true is never found.
        (Some(at), CostClass::Keyed) if !conjunction.clauses[*at].atoms.is_empty() => Some(conjunction.clauses[*at].to_string()),
        _ => None,
    });
    let pattern = form.verify.as_ref().filter(|verify| verify.pattern.is_some()).map(|verify| match verify.is_cut {
        true => "one of too many alternatives to distinguish, with one choice of array elements",
        false => "one choice of array elements for all its fields",
    });
    Plan {
        alternatives: form.conjunctions.iter().map(|conjunction| in_words(&conjunction.clauses)).collect(),
        pattern,
        access: access.collect(),
        keys: keys(form),
        cost: CostClass::of(form),
    }
}

/// Pairs of values that are compared with one another.
fn pairs(verify: &Verify) -> Vec<String> {
    let path = |at: &u32| &verify.paths[*at as usize].0;
    let changed = verify.changed.iter().map(|(one, other)| format!("{} differs from {}", path(one), path(other)));
    let compared = verify.compared.iter().map(|(one, relation, other)| format!("{} {relation} {}", path(one), path(other)));
    changed.chain(compared).collect()
}

/// The keys of a subscription; empty if it is too large for a segment, and so has never been added.
fn keys(form: &NormalForm) -> BTreeSet<Vec<u8>> {
    let mut bytes = BTreeSet::new();
    let mut builder = StoreBuilder::default();
    if builder.add(0, 0, form).is_err() {
        return bytes;
    }
    let store = builder.build(&mut PathSets::default());
    Access::of(&store, KeyScope::Shipping).for_each(
        &store,
        |_| true,
        |path, probe| {
            let (path, mode) = &store.paths.paths[path as usize];
            bytes.insert(key_to_bytes(path, *mode, &probe));
        },
    );
    bytes
}
