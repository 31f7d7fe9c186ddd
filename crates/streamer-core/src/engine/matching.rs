//! Matching: the partitions that an event sees, one flattening for all of them, their segments one after the other.

use crate::engine::engine::{Inner, Matched, Pin, Root, Scratch};
use crate::engine::partitions::{Partition, join};
use crate::engine::values::Values;
use crate::error::EventError;
use crate::flatten::Given;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Inner {
    /// The partitions that an event of *tenant* and *collection* sees: its own, and those for all collections or tenants.
    fn seen_by<'r>(&self, root: &'r Root, tenant: &str, collection: Option<&str>) -> [Option<&'r Arc<Partition>>; 4] {
        let all = self.seed.hash_bytes(b"*");
        let tenant_hash = self.seed.hash_bytes(tenant.as_bytes());
        let find = |hash, tenant, collection| root.partitions.get(hash, tenant, collection);
        let mut seen = [None; 4];
        if let Some(name) = collection {
            let hash = self.seed.hash_bytes(name.as_bytes());
            seen[0] = find(join(&self.seed, tenant_hash, hash), tenant, name);
            if root.any_tenant > 0 {
                seen[1] = find(join(&self.seed, all, hash), "*", name);
            }
        }
        if root.any_collection > 0 {
            seen[2] = find(join(&self.seed, tenant_hash, all), tenant, "*");
            if root.any_tenant > 0 {
                seen[3] = find(join(&self.seed, all, all), "*", "*");
            }
        }
        seen
    }

    pub(super) fn match_event<'s>(
        &self,
        root: &Arc<Root>,
        event: &[u8],
        tenant: Option<&str>,
        collection: Option<&str>,
        scratch: &'s mut Scratch,
    ) -> Result<Matched<'s>, EventError> {
        let Scratch { flattener, views, values, segment, output } = scratch;
        output.certain.clear();
        output.pending.clear();
        (output.candidates, output.listed) = (0, 0);
        let options = &self.options;
        let given = Given { tenant, collection, default_tenant: options.default_tenant.as_deref() };
        let (located, name) = flattener.locate(&self.locator, event, &given, &options.limits);
        let mut seen = self.seen_by(root, located.unwrap_or_default(), name);
        let mut is_settled = false;
        let (event_type, has_before) = loop {
            let segments = || seen.iter().flatten().flat_map(|partition| &partition.segments);
            let view = views.get(segments().map(|segment| &*segment.store.paths), &options.layout);
            let flat = match flattener.flatten(&view.trie, event, options.validation, &given, &options.limits) {
                Ok(flat) => flat,
                Err(error) => {
                    self.counters.events.fetch_add(1, Ordering::Relaxed);
                    return Err(error);
                }
            };
            let parts = flat.parts();
            let found = (parts.event_type, flat.has_before());
            if parts.has_unknown {
                for segment in self.seen_by(root, parts.tenant, parts.collection).iter().flatten().flat_map(|seen| &seen.segments)
                {
                    segment.everything(root.version, output);
                }
                break found;
            }
            if !is_settled {
                // What was located is a guess: an event with duplicates, say, may belong elsewhere.
                is_settled = true;
                let settled = self.seen_by(root, parts.tenant, parts.collection);
                let is_same = |(one, other): (&Option<&Arc<Partition>>, &Option<&Arc<Partition>>)| match (one, other) {
                    (None, None) => true,
                    (Some(one), Some(other)) => Arc::ptr_eq(one, other),
                    _ => false,
                };
                if !seen.iter().zip(&settled).all(is_same) {
                    seen = settled;
                    continue;
                }
            }
            let mut read = Values::begin(&flat, &self.seed, values);
            for (segment_seen, map) in segments().zip(&view.maps) {
                segment_seen.find(root.version, map, &mut read, &self.seed, segment, output);
            }
            read.end(values);
            break found;
        };
        self.counters.events.fetch_add(1, Ordering::Relaxed);
        self.counters.candidates.fetch_add(output.candidates, Ordering::Relaxed);
        self.counters.listed.fetch_add(output.listed, Ordering::Relaxed);
        self.counters.matches.fetch_add((output.certain.len() + output.pending.len()) as u64, Ordering::Relaxed);
        Ok(Matched {
            certain: &output.certain,
            pending: &output.pending,
            event_type,
            has_before,
            work: output.candidates + output.listed,
            pin: Pin(root.generation.clone()),
        })
    }
}
