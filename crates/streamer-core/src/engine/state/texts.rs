//! Texts of subscriptions that differ only in their values, stored without the common part.
//!
//! ```text
//!   text     {"id": "o-17", "filters": [{"field": "total", "op": ">", "value": 5}], "cel": "data.state == 'x5'"}
//!   shape    {"id": "·", "filters": [{"field": "total", "op": ">", "value": ·}], "cel": "data.state == '·'"}    once for all
//!   values   4 o-17  1 5  2 x5                                                 each with its length before it
//! ```
//!
//! Fields, operators and the parts of an expression other than its literals belong to a shape: few of them occur with
//! many values.
//!
//! A shape is shared from the second text on: the first one stays whole, so that texts with a shape of their own take
//! no more memory than their length, and single shapes never fill a table.
//!
//! Invariant: a text comes back byte by byte, whatever it is; a text that is not JSON has a shape, too, or none.
//!
//! Cost: a look at each byte when a subscription is added, 0.2 us; of a text of 142 bytes 43 are stored. It is joined
//! when it is read.
//!
//! Rejected: a general compression with a dictionary, which takes as much memory and ten times the time.

use crate::engine::state::record::{Rest, shared_size};
use crate::engine::verify::encoded::FastHash;
use hashbrown::HashTable;
use memchr::{memchr, memchr2};
use std::hash::BuildHasher;
use std::sync::Arc;

/// Stands for a value in a shape; a text that contains it is stored whole.
const HOLE: u8 = 0;
/// A text whose shape is longer stays whole: it is shared by few.
const LONGEST: usize = 1 << 16;
/// Unused shapes are dropped only above this many bytes.
const UNUSED: usize = 1 << 20;
/// How many shapes that occurred once are remembered, the last ones.
const ONCE: usize = 512;

/// A text as it is stored.
pub(in crate::engine) struct Split {
    /// Has its shape; None if *bytes* are all of it.
    pub rest: Option<Arc<Rest>>,
    /// Its values, or all of it.
    pub bytes: Box<[u8]>,
}

/// The shapes that are in use. Owned by the writer.
#[derive(Debug, Default)]
pub(in crate::engine) struct Shapes {
    known: HashTable<Arc<Rest>>,
    hasher: FastHash,
    /// Hashes of the shapes that occurred once, and how many there were.
    once: Vec<u32>,
    came: usize,
    /// Heap bytes of the shapes.
    bytes: usize,
    /// At this many shapes, or bytes of them, unused ones are dropped.
    purge_at: (usize, usize),
    /// Texts that were forgotten since then.
    forgotten: usize,
    shape: Vec<u8>,
    values: Vec<u8>,
}

impl Shapes {
    /// Split a text, if an earlier one had its shape.
    pub fn split(&mut self, text: Box<[u8]>) -> Split {
        let is_split = split(&text, &mut self.shape, &mut self.values);
        if !is_split || self.values.len() >= text.len() || self.shape.len() > LONGEST {
            return Split { rest: None, bytes: text };
        }
        let hash = self.hasher.hash_one(&*self.shape);
        let rest = match self.known.find(hash, |rest| *rest.shape == *self.shape).cloned() {
            Some(known) => known,
            None if self.is_first(hash) => return Split { rest: None, bytes: text },
            None => {
                if self.known.len() >= self.purge_at.0 || self.bytes >= self.purge_at.1 {
                    self.purge();
                }
                let rest = Arc::new(Rest::of(&self.shape));
                self.bytes += bytes(&rest);
                self.known.insert_unique(hash, rest.clone(), |rest| self.hasher.hash_one(&*rest.shape));
                rest
            }
        };
        Split { rest: Some(rest), bytes: self.values.as_slice().into() }
    }

    /// Whether no shape with such a hash came lately; now one has.
    fn is_first(&mut self, hash: u64) -> bool {
        let tag = (hash >> 32) as u32;
        let is_first = !self.once.contains(&tag);
        if is_first {
            self.once.resize(ONCE, tag);
            self.once[self.came % ONCE] = tag;
            self.came += 1;
        }
        is_first
    }

    /// Note that *texts* texts were dropped: after as many as there are shapes, drop unused shapes.
    pub fn forget(&mut self, texts: usize) {
        self.forgotten += texts;
        if self.bytes > UNUSED && self.forgotten >= self.known.len() {
            self.purge();
        }
    }

    /// Drop unused shapes.
    fn purge(&mut self) {
        self.known.retain(|rest| Arc::strong_count(&rest.shape) > 1 || Arc::strong_count(rest) > 1);
        self.bytes = self.known.iter().map(bytes).sum();
        self.purge_at = (1024.max(2 * self.known.len()), UNUSED.max(2 * self.bytes));
        self.forgotten = 0;
    }

    /// Heap bytes used.
    pub fn bytes(&self) -> usize {
        let buffers = self.shape.capacity() + self.values.capacity();
        self.known.allocation_size() + self.once.capacity() * size_of::<u32>() + self.bytes + buffers
    }
}

fn bytes(rest: &Arc<Rest>) -> usize {
    shared_size::<Rest>() + shared_size::<()>() + rest.shape.len()
}

/// Split a text; return false for one that stays whole.
fn split(text: &[u8], shape: &mut Vec<u8>, values: &mut Vec<u8>) -> bool {
    shape.clear();
    values.clear();
    if memchr(HOLE, text).is_some() {
        return false;
    }
    let mut name: &[u8] = b"";
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        if *byte != b'"' {
            at = plain(text, at, shape, values);
            continue;
        }
        let Some(end) = end_of_string(text, at + 1) else { return false };
        let string = &text[at + 1..end];
        shape.push(b'"');
        at = end + 1;
        if text[at..].iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b':') {
            name = string;
            shape.extend_from_slice(string);
        } else if matches!(name, b"field" | b"op") {
            shape.extend_from_slice(string);
        } else if name == b"cel" {
            expression(string, shape, values);
        } else {
            hole(string, shape, values);
        }
        shape.push(b'"');
    }
    true
}

/// Split an expression: its numbers and quoted texts are values.
fn expression(text: &[u8], shape: &mut Vec<u8>, values: &mut Vec<u8>) {
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        // Only from a quote on: a search from each byte would take the square of an expression without quotes.
        let quoted = if *byte == b'\'' { memchr(b'\'', &text[at + 1..]) } else { None };
        match quoted {
            Some(length) => {
                shape.push(b'\'');
                hole(&text[at + 1..][..length], shape, values);
                shape.push(b'\'');
                at += length + 2;
            }
            None => at = plain(text, at, shape, values),
        }
    }
}

/// Move a number to the values, or else a byte to the shape; return the next offset.
fn plain(text: &[u8], at: usize, shape: &mut Vec<u8>, values: &mut Vec<u8>) -> usize {
    if !text[at].is_ascii_digit() {
        shape.push(text[at]);
        return at + 1;
    }
    let is_part = |byte: &&u8| byte.is_ascii_digit() || matches!(byte, b'+' | b'-' | b'.' | b'e' | b'E');
    let length = text[at..].iter().take_while(is_part).count();
    hole(&text[at..][..length], shape, values);
    at + length
}

/// The offset of the quote that ends a string.
fn end_of_string(text: &[u8], mut at: usize) -> Option<usize> {
    loop {
        at += memchr2(b'"', b'\\', text.get(at..)?)?;
        if text[at] == b'"' {
            return Some(at);
        }
        at += 2;
    }
}

/// Put a value elsewhere, behind its length, seven bits a byte.
fn hole(value: &[u8], shape: &mut Vec<u8>, values: &mut Vec<u8>) {
    shape.push(HOLE);
    let mut length = value.len();
    while length > 0x7F {
        values.push(length as u8 | 0x80);
        length >>= 7;
    }
    values.push(length as u8);
    values.extend_from_slice(value);
}

/// The text of a shape and its values.
pub(super) fn join(shape: &[u8], mut values: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(shape.len() + values.len());
    let mut pieces = shape.split(|byte| *byte == HOLE);
    text.extend_from_slice(pieces.next().unwrap_or_default());
    for piece in pieces {
        let (mut length, mut shift) = (0, 0);
        while let Some((byte, rest)) = values.split_first() {
            values = rest;
            length |= usize::from(byte & 0x7F) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                break;
            }
        }
        let (value, rest) = values.split_at(length);
        values = rest;
        text.extend_from_slice(value);
        text.extend_from_slice(piece);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_that_nobody_uses_do_not_grow_and_long_ones_are_not_shared() {
        let mut shapes = Shapes::default();
        let text = |n: usize, long: usize| format!(r#"{{"id": "x", "k{n}{}": 1}}"#, "y".repeat(long)).into_bytes();
        for n in 0..500 {
            let of_first = shapes.split(text(n, 60_000).into());
            let of_second = shapes.split(text(n, 60_000).into());
            assert!(of_first.rest.is_none() && of_second.rest.is_some());
            assert!(shapes.bytes() < 2 * UNUSED, "{}", shapes.bytes());
        }
        assert!([(); 2].map(|()| shapes.split(text(0, 70_000).into())).iter().all(|split| split.rest.is_none()));
        // Shapes in use stay until they are dropped, and then many are searched.
        let held: Vec<Split> = (0..100).flat_map(|n| [(); 2].map(|()| shapes.split(text(n, 60_000).into()))).collect();
        assert!(shapes.bytes() > 50 * 60_000);
        drop(held);
        shapes.forget(200);
        assert!(shapes.bytes() < UNUSED, "{}", shapes.bytes());
    }

    #[test]
    fn a_text_comes_back_as_it_was_and_only_values_are_held_from_the_second_of_a_shape_on() {
        let long = format!(r#"{{"id": "long", "cel": "{}"}}"#, "x".repeat(20_000));
        let texts = [
            r#"{"id": "o-17", "filters": [{"field": "n", "op": ">", "value": -1.5e+3}], "on": true}"#,
            r#"{"id":"a\"b\\","name" : "é\u00e9", "empty": "", "n": [1,22 , 333]}"#,
            r#"{"id": "c", "cel": "data.total2 > 1e5 && data.s == 'it\\'s' || data.t == \"x\" + 'open"}"#,
            &long,
            "no JSON: 12 \"quoted\" -",
            "an open \"string",
            "an open escape \"\\",
            "a \0 byte \"x\"",
            "",
        ];
        let mut shapes = Shapes::default();
        for text in texts.iter().chain(&texts) {
            let Split { rest, bytes } = shapes.split(text.as_bytes().into());
            let joined = rest.map_or_else(|| bytes.to_vec(), |rest| join(&rest.shape, &bytes));
            assert_eq!(String::from_utf8(joined).as_deref(), Ok(*text));
        }
        let first = shapes.split(texts[0].as_bytes().into());
        let other = shapes.split(texts[0].replace("o-17", "another").into_bytes().into());
        assert!(Arc::ptr_eq(&first.rest.unwrap(), &other.rest.unwrap()));
        assert_eq!(*first.bytes, *b"\x04o-17\x061.5e+3");
        assert_eq!(shapes.known.len(), 5);
    }

    #[test]
    fn shapes_that_nobody_uses_are_forgotten_and_those_that_come_once_are_not_held() {
        let mut shapes = Shapes::default();
        let text = |n: usize| format!(r#"{{"id": "", "name-{n}": 1, "value": 2}}"#).into_bytes().into();
        for n in 0..5000 {
            assert!(shapes.split(text(n)).rest.is_none());
        }
        assert_eq!(shapes.known.len(), 0);
        let kept = [shapes.split(text(7)), shapes.split(text(7))];
        for n in 0..5000 {
            assert_eq!([shapes.split(text(n)), shapes.split(text(n))][1].bytes.len(), 5);
        }
        assert!(shapes.known.len() < 2048 && shapes.bytes() < 1 << 20);
        assert!(Arc::ptr_eq(&kept[1].rest.clone().unwrap(), &shapes.split(text(7)).rest.unwrap()));
    }
}
