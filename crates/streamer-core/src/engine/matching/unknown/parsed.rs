//! Subscriptions that one thread has parsed for an event with unknown values, kept for the next such event.
//!
//! The engine keeps clauses and texts, not parsed conditions. Parsing its text is most of the cost of such a candidate,
//! and the candidates of one event are often those of the next.
//!
//! Cost: a few megabytes a thread, if there are such events. If the candidates exceed the room, the others are parsed
//! again.
//!
//! Rejected: to drop the entry that was unused longest. Events go through their candidates in one order, so if they
//! exceed the room, each would push out the entry that is needed next.

use crate::cel::Executable;
use crate::engine::state::record::{Record, Saying};
use crate::engine::verify::encoded::FastHash;
use crate::subscriptions::Subscription;
use std::collections::HashMap;
use std::sync::Arc;

/// Bytes of texts whose subscriptions are kept.
const MOST_BYTES: usize = 256 << 10;
/// After the number of parsed subscriptions without room exceeds that of the stored ones by this factor, all are
/// dropped.
const PATIENCE: usize = 8;

/// The conditions of a subscription.
#[derive(Debug)]
pub(in crate::engine) struct Parsed {
    pub subscription: Subscription,
    /// Its CEL part, if the engine does not keep its program.
    pub program: Option<Executable>,
}

/// See the head of this file.
#[derive(Debug, Default)]
pub(in crate::engine) struct ParsedSubscriptions {
    /// By slot, which may be another record's by now.
    by_slot: HashMap<u32, (Saying, Arc<Parsed>), FastHash>,
    bytes: usize,
    passed: usize,
}

impl ParsedSubscriptions {
    /// The conditions of the *record* in a slot, or the result of *parse* on their text.
    pub fn get(&mut self, slot: u32, record: &Record, parse: impl FnOnce(&[u8]) -> Option<Parsed>) -> Option<Arc<Parsed>> {
        if let Some((saying, parsed)) = self.by_slot.get(&slot)
            && record.says(saying)
        {
            return Some(Arc::clone(parsed));
        }
        let text = record.conditions();
        let parsed = Arc::new(parse(&text)?);
        if self.passed > PATIENCE * self.by_slot.len() {
            *self = ParsedSubscriptions::default();
        }
        if self.bytes + text.len() <= MOST_BYTES {
            self.bytes += text.len();
            self.by_slot.insert(slot, (record.saying(), Arc::clone(&parsed)));
        } else {
            self.passed += 1;
        }
        Some(parsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Addition;
    use crate::engine::state::name::PartitionName;
    use crate::engine::state::record::{Filed, Filing, RecordRef};
    use crate::engine::state::texts::Split;
    use crate::limits::Limits;
    use crate::subscriptions::normal_form::NormalForm;
    use crate::subscriptions::parse::Defaults;

    fn record(id: usize, bytes: usize) -> RecordRef {
        let text = format!(r#"{{"id": "{id}", "topic": "{}"}}"#, "a".repeat(bytes));
        let text = text.as_bytes();
        let addition = Addition::new(id.to_string(), NormalForm::default(), text);
        let partition = Arc::new(PartitionName { tenant: "t".into(), collection: "*".into() });
        let filing = Arc::new(Filing { partition, gateway_id: None });
        let filed = Filed { filing, order: 0, text: Split { rest: None, bytes: text.into() } };
        RecordRef::new(Record::of(addition, filed).expect("a short text"))
    }

    /// Get each of *records*, by their places as slots; return how many were parsed.
    fn parsed(by_slot: &mut ParsedSubscriptions, records: &[RecordRef]) -> usize {
        let mut count = 0;
        for (slot, record) in records.iter().enumerate() {
            let found = by_slot.get(slot as u32, record, |text| {
                count += 1;
                let subscription = Subscription::parse(text, Defaults::of("t"), &Limits::default()).ok()?;
                Some(Parsed { subscription, program: None })
            });
            assert_eq!(found.as_ref().map(|found| &*found.subscription.id), Some(record.id()));
        }
        count
    }

    #[test]
    fn a_subscription_is_parsed_once_unless_another_has_its_slot() {
        let mut kept = ParsedSubscriptions::default();
        let mut records: Vec<_> = (0..10).map(|id| record(id, 100)).collect();
        assert_eq!((parsed(&mut kept, &records), parsed(&mut kept, &records)), (10, 0));
        records[3] = record(77, 100);
        assert_eq!((parsed(&mut kept, &records), parsed(&mut kept, &records)), (1, 0));
    }

    #[test]
    fn what_is_kept_is_bounded_and_gives_way_to_what_is_asked_for() {
        let mut kept = ParsedSubscriptions::default();
        let many: Vec<_> = (0..400).map(|id| record(id, 1000)).collect();
        parsed(&mut kept, &many);
        let again = parsed(&mut kept, &many);
        assert!((100..300).contains(&again), "{again}: some are kept, and those are not pushed out");
        let others: Vec<_> = (1000..1100).map(|id| record(id, 1000)).collect();
        let rounds = (0..100).take_while(|_| parsed(&mut kept, &others) > 0).count();
        assert!(rounds < 50 && kept.bytes <= MOST_BYTES, "{rounds}");
    }
}
