//! The unknown values of one side of an event: JSON Pointers as a tree, at the end of each of which everything is unknown.

use crate::flatten::{Names, Rest, is_prefix};
use crate::layout::Pointer;
use crate::value::Value;
use std::collections::HashMap;

/// See the head of this file.
#[derive(Debug, Default)]
pub(super) struct UnknownTree {
    nodes: Vec<PointerNode>,
}

/// A pointer, or the beginning of one.
#[derive(Debug, Default)]
pub(super) struct PointerNode {
    /// The nodes of the next tokens.
    pub below: HashMap<Box<str>, u32>,
    /// Whether a pointer ends here.
    pub is_end: bool,
    /// If every other member is an unknown value: the names of the known ones, and the end node of the others.
    rest: Option<(Names, u32)>,
}

impl UnknownTree {
    pub fn new(pointers: &[Pointer], rests: &[Rest]) -> UnknownTree {
        let mut tree = UnknownTree::default();
        for pointer in pointers {
            let at = tree.walk(pointer);
            tree.nodes[at as usize].is_end = true;
        }
        for Rest { at, names } in rests {
            let at = tree.walk(at);
            let end = tree.nodes.len() as u32;
            tree.nodes[at as usize].rest = Some((names.clone(), end));
            tree.nodes.push(PointerNode { is_end: true, ..PointerNode::default() });
        }
        tree
    }

    /// Make the way that a pointer goes.
    fn walk(&mut self, pointer: &Pointer) -> u32 {
        let nodes = &mut self.nodes;
        if nodes.is_empty() {
            nodes.push(PointerNode::default());
        }
        let mut at = 0;
        for token in pointer {
            let new = nodes.len() as u32;
            let next = *nodes[at as usize].below.entry(token.clone()).or_insert(new);
            if next == new {
                nodes.push(PointerNode::default());
            }
            at = next;
        }
        at
    }

    /// The root of all pointers; None if there are none.
    pub fn root(&self) -> Option<u32> {
        (!self.nodes.is_empty()).then_some(0)
    }

    pub fn node(&self, at: u32) -> &PointerNode {
        &self.nodes[at as usize]
    }

    /// One step down.
    pub fn step(&self, at: u32, token: &str) -> Option<u32> {
        match &self.node(at).rest {
            Some((names, end)) if !names.has(token) => Some(*end),
            _ => self.node(at).below.get(token).copied(),
        }
    }

    /// Whether an unknown value may hide something at a path in *raw*: a part that the event lacks is unknown if an unknown value
    /// is below it, and from the first array on any token may stand for an element. As many steps as the path has, however many
    /// unknown values there are.
    pub fn may_meet<'p>(&self, raw: &Value, path: impl IntoIterator<Item = &'p Box<str>>) -> bool {
        let (Some(mut at), mut value) = (self.root(), raw) else { return false };
        for name in path {
            if self.node(at).is_end || !matches!(value, Value::Map(_)) {
                return true;
            }
            match (self.step(at, name), value.get(name)) {
                (None, _) => return false,
                (Some(_), None) => return true,
                (Some(next), Some(member)) => (at, value) = (next, member),
            }
        }
        true
    }
}

/// The unknown values of the old side of an event with these unknown values, which has its documents there.
pub(super) fn unknown_before(pointers: &[Pointer], data_at: &Pointer, before_at: &Pointer) -> Vec<Pointer> {
    let mut unknown: Vec<Pointer> = Vec::with_capacity(pointers.len());
    for pointer in pointers {
        if is_prefix(before_at, pointer) {
            unknown.push([data_at, &pointer[before_at.len()..]].concat().into());
        } else if is_prefix(pointer, before_at) {
            // It covers the whole of `before`, which is now `data`.
            unknown.push(pointer.clone());
            if !is_prefix(pointer, data_at) {
                unknown.push(data_at.clone());
            }
        } else if !is_prefix(data_at, pointer) {
            unknown.push(pointer.clone());
        }
    }
    unknown
}

/// The documents of the old side that are known only as far as the event has them.
pub(super) fn rests_before(rests: &[Rest], data_at: &Pointer, before_at: &Pointer) -> Vec<Rest> {
    // A delete with one document has both places at the same pointer.
    let of_before = rests.iter().filter(|rest| rest.at == *before_at);
    of_before.map(|rest| Rest { at: data_at.clone(), names: rest.names.clone() }).collect()
}
