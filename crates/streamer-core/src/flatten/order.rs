//! In which order members stand: as in the events before, most often. A name that is expected is compared, not looked for.
//!
//! ```text
//!   shape 1 (the event)   "type":   "data": ─┐   "before":     what stood there last, with quotes and colon, in 16 bytes
//!   shape 2               ┌──────────────────┘
//!                         "status":   "amount":   "user": ─►   an object's members have a shape of their own
//!   event  {"type":"insert","data":{"amount":1,..              at status stands amount: the next one is it, so go on there
//! ```
//!
//! Invariant: a name that is found here stands in the text byte by byte, so where its value begins is known to the letter; and
//! its node is that of the trie and the node it is asked for, or is looked up. Whatever is remembered, the outcome is the same.
//!
//! Cost: 30 instructions for a name where reading and looking it up takes 60 to 80; and where its value begins does not wait for
//! a search of its closing quote. A lazy reading takes 8 % less time, a full one 3 %. A wrong guess costs 15 instructions; objects
//! whose members come in no order are soon not guessed for a while. 64 bytes a name, of at most 24 names in each of at most 32
//! shapes.
//!
//! Rejected: one list of names for the whole event (an optional object shifts all that follows); shapes for each trie (views
//! of many partitions would learn them one by one).

use super::trie::NOWHERE;

/// Names of a shape, and shapes; what is beyond has none.
const NAMES: usize = 24;
const SHAPES: usize = 32;
/// Wrong guesses that an object may have, in the mean; with more, only one in some objects is guessed.
const FREE: i8 = 2;
const MOST_CREDIT: i8 = 16;
const LEAST_CREDIT: i8 = -64;

/// No shape: nothing is expected.
pub(super) const UNKNOWN: u16 = 0;
/// The shape of an event.
pub(super) const EVENT: u16 = 1;

/// A member that is expected.
#[derive(Clone, Copy, Debug)]
pub(super) struct Name {
    /// From quote to colon, and which of these bytes count; at first one bit more than count, which no text has.
    bytes: u128,
    mask: u128,
    pub(super) length: u32,
    /// For which trie and node this child was found.
    trie: u64,
    node: u32,
    child: u32,
    /// The shape of the object that is the value, if any was there.
    inside: u16,
}

const NOTHING: Name = Name { bytes: 1, mask: 0, length: 0, trie: 0, node: 0, child: NOWHERE, inside: UNKNOWN };

/// See the head of this file. One for each thread.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// NAMES for each shape, and one more.
    names: Vec<Name>,
    credit: Vec<i8>,
}

impl Order {
    pub(super) fn begin(&mut self) {
        if self.credit.is_empty() {
            self.credit.push(0);
            self.names.resize(NAMES + 1, NOTHING);
            self.shape();
        }
    }

    fn shape(&mut self) -> u16 {
        if self.credit.len() >= SHAPES {
            return UNKNOWN;
        }
        self.credit.push(MOST_CREDIT);
        self.names.resize(self.credit.len() * NAMES + 1, NOTHING);
        self.credit.len() as u16 - 1
    }

    /// Whether an object of *shape* is worth guessing: that shape, or none.
    #[inline(always)]
    pub(super) fn worth(&mut self, shape: u16) -> u16 {
        let credit = &mut self.credit[usize::from(shape)];
        if *credit < 0 {
            *credit += 1;
            return UNKNOWN;
        }
        *credit = (*credit + FREE).min(MOST_CREDIT);
        shape
    }

    /// The name at the 16 bytes of the text, if it is that of *step*, or the next.
    #[inline(always)]
    pub(super) fn find(&mut self, shape: u16, step: u32, text: &[u8], at: usize) -> Option<(&mut Name, u32)> {
        let text = u128::from_le_bytes(text.get(at..at + 16)?.try_into().expect("16 bytes"));
        if shape == UNKNOWN || step >= NAMES as u32 {
            return None;
        }
        let [name, next] = self.names.get_mut(usize::from(shape) * NAMES + step as usize..)?.first_chunk_mut()?;
        if text & name.mask == name.bytes {
            return Some((name, step + 1));
        }
        if text & next.mask == next.bytes {
            return Some((next, step + 2));
        }
        if name.length > 0 {
            let credit = &mut self.credit[usize::from(shape)];
            *credit = (*credit - 1).max(LEAST_CREDIT);
        }
        None
    }

    /// Remember that at *step* stood a name, `text[at..end]` with quotes and colon; None if it is nothing to remember.
    pub(super) fn learn(&mut self, shape: u16, step: u32, name: Option<&[u8]>) {
        if shape == UNKNOWN || step >= NAMES as u32 {
            return;
        }
        let place = &mut self.names[usize::from(shape) * NAMES + step as usize];
        let inside = place.inside;
        *place = Name { inside, ..NOTHING };
        if let Some(name) = name.filter(|name| name.len() <= 16) {
            let mut bytes = [0; 16];
            bytes[..name.len()].copy_from_slice(name);
            place.bytes = u128::from_le_bytes(bytes);
            place.mask = u128::MAX >> (128 - 8 * name.len());
            place.length = name.len() as u32;
        }
    }

    /// The shape of the object that the member before *step* is.
    pub(super) fn inside(&mut self, shape: u16, step: u32) -> u16 {
        if shape == UNKNOWN || step == 0 || step > NAMES as u32 {
            return UNKNOWN;
        }
        let at = usize::from(shape) * NAMES + step as usize - 1;
        if self.names[at].inside == UNKNOWN {
            self.names[at].inside = self.shape();
        }
        self.names[at].inside
    }
}

impl Name {
    /// Its node below *node*; *look* looks it up where that is not remembered.
    #[inline(always)]
    pub(super) fn child(&mut self, trie: u64, node: u32, look: impl FnOnce() -> u32) -> u32 {
        if self.trie != trie || self.node != node {
            (self.trie, self.node, self.child) = (trie, node, look());
        }
        self.child
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_never_learnt_is_found_in_no_text() {
        let mut order = Order::default();
        order.begin();
        for byte in 0..=255 {
            assert!(order.find(EVENT, 0, &[byte; 16], 0).is_none(), "{byte}");
        }
        let name = b"\"a\":";
        order.learn(EVENT, 0, Some(name));
        order.learn(EVENT, 1, None);
        let text = [&name[..], &[0; 16]].concat();
        assert!(order.find(EVENT, 0, &text, 0).is_some_and(|(name, next)| (name.length, next) == (4, 1)));
        assert!(order.find(EVENT, 1, &text, 4).is_none());
    }
}
