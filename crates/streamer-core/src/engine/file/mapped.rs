//! Subscriptions that lie in a file: they are counted at once, and read when they are needed.
//!
//! ```text
//!   file      header, directory │ lines (acme, orders)  image │ lines (acme, users) │ ...           see docs/snapshots.md
//!   version      (acme, orders) ─► section, not opened: 20,000 subscriptions, slots 0..20,000
//!   an event  ─► its sections are opened, each once: checksum, then a segment
//!   an id     ─► a slot's record is made of its line
//!   a write   ─► the table of ids, once, of all lines
//! ```
//!
//! Concurrency contract: opening locks only the path sets, for a moment. A thread that needs a section that another
//! thread is opening waits for it; the other threads do not wait. A fork waits until every opening is done.
//!
//! Invariant: the slots of a section are its lines, in their order, from its base on. They are reserved from the
//! beginning.
//!
//! Cost: opening a file is a checksum of its directory and one allocation a section. The first event of a section pays
//! for its checksum (gigabytes a second) and for its segment. The first write, or lookup of an id, reads all lines: 0.3
//! µs a subscription.
//!
//! A section that is damaged is a [`SnapshotFault`], thrown to the edge as a panic is, without its message. Every event that needs the
//! section gets it. The hot path has no larger result for it.
//!
//! Rejected: compiling all when the file is opened (minutes of processor time in a cluster whose workers need a few
//! collections each); a copy of the file in memory (it would not be shared between processes).

use crate::bloom::keys::{Access, KeyScope};
use crate::engine::file::image::{KIND, decode, encode};
use crate::engine::index::build::{Depth, build_with_recipe};
use crate::engine::index::segment::{Segment, is_indexed};
use crate::engine::state::engine_state::EngineState;
use crate::engine::state::engine_version::Version;
use crate::engine::state::partitions::{Partition, Unopened};
use crate::engine::state::shares::Share;
use crate::engine::state::snapshot_sections::{
    HEADER, MAGIC, Mapped, ROW, ReadSubscription, Section, SnapshotFault, checksum, sections, word,
};
use crate::engine::verify::paths::PathSets;
use crate::engine::verify::store::StoreBuilder;
use crate::error::SubscriptionError;
use crate::fork;
use crate::map::Bytes;
use crate::value::Seed;
use std::sync::{Arc, OnceLock, PoisonError};

impl EngineState {
    /// The content of a partition, opened. A [`SnapshotFault`] is thrown.
    #[inline]
    pub(in crate::engine) fn opened<'p>(&self, partition: &'p Arc<Partition>) -> &'p Arc<Partition> {
        match &partition.section {
            None => partition,
            Some(unopened) => unopened.opened().unwrap_or_else(|| self.open_slowly(unopened)),
        }
    }

    #[cold]
    fn open_slowly<'u>(&self, unopened: &'u Unopened) -> &'u Arc<Partition> {
        let compile = || self.compile(&unopened.section);
        self.with_gil_released(|| _ = fork::once(&unopened.opened, compile));
        match fork::once(&unopened.opened, compile) {
            Ok(partition) => partition,
            Err(fault) => fault.throw(),
        }
    }

    fn compile(&self, section: &Section) -> Result<Arc<Partition>, SnapshotFault> {
        let Some(mapped) = self.records.mapped() else { return Err(section.fault("no file")) };
        section.lines()?;
        let segment = match &section.image {
            Some(image) => {
                section.part(image)?;
                let decoded =
                    decode(&section.bytes, image.range.clone(), section.count, section.base, &self.seed, &mut self.sets());
                let (store, index) = decoded.ok_or_else(|| section.fault("damaged: an image that is none"))?;
                let access = self.access(&store);
                Segment::indexed(store, index, &self.seed, Some(&access))
            }
            None => {
                let refused = |refused| section.fault(format!("conditions that this version refuses: {refused:?}"));
                let mut builder = StoreBuilder::default();
                for at in 0..section.count {
                    let (_, addition) = section.addition(at, &mapped.read)?;
                    builder.add(section.base + at, addition.flags, &addition.form).map_err(refused)?;
                }
                let store = builder.build(&mut self.sets());
                let access = self.access(&store);
                Segment::new(store, &self.seed, self.options.depth, Some(&access)).map_err(refused)?
            }
        };
        let segments = vec![Arc::new(segment)];
        let filter = self.filter_with(None, &segments, None);
        Ok(Arc::new(Partition {
            name: section.name.clone(),
            segments,
            filter,
            share: Share::within(&self.shares),
            section: None,
        }))
    }

    /// Open all sections, and have the table of ids: no later event or write can find damage. A [`SnapshotFault`] is thrown.
    pub fn open_sections(&self) {
        let version = self.version.load_full();
        version.partitions.for_each(|partition| _ = self.opened(partition));
        self.have_ids();
    }

    /// Run *act*, which takes long, with the host's lock (Python's GIL) released.
    fn with_gil_released(&self, act: impl Fn() + Send + Sync) {
        match &self.options.release_gil {
            Some(release_gil) if !fork::is_detached() => release_gil(&mut || act()),
            _ => act(),
        }
    }

    /// The hash of a slot's id, whether or not its record was made.
    pub(in crate::engine) fn id_hash(&self, slot: u32) -> u64 {
        if let Some(record) = self.records.made(slot).as_ref() {
            return self.seed.hash_bytes(record.id().as_bytes());
        }
        let mut hash = 0;
        if let Some(mapped) = self.records.mapped() {
            // Its line was read when the table of ids was made.
            let _ = mapped.id_of(slot, |id| hash = self.seed.hash_bytes(id));
        }
        hash
    }

    /// Have the table of ids, which a file's are put in when it is first needed. A [`SnapshotFault`] is thrown.
    #[inline]
    pub(in crate::engine) fn have_ids(&self) {
        if let Some(mapped) = self.records.mapped() {
            self.have_mapped_ids(mapped);
        }
    }

    fn have_mapped_ids(&self, mapped: &Mapped) {
        if let Some(Ok(())) = mapped.ids.get() {
            return;
        }
        let fill = || {
            let mut hashes = Vec::new();
            for section in &mapped.sections {
                for slot in section.base..section.base + section.count {
                    mapped.id_of(slot, |id| hashes.push((self.seed.hash_bytes(id), slot)))?;
                }
            }
            let mut ids = self.ids.write().unwrap_or_else(PoisonError::into_inner);
            ids.reserve(hashes.len(), |slot| self.id_hash(*slot));
            for (hash, slot) in hashes {
                ids.insert_unique(hash, slot, |slot| self.id_hash(*slot));
            }
            self.count_ids(&ids);
            Ok(())
        };
        self.with_gil_released(|| _ = fork::once(&mapped.ids, fill));
        if let Some(Err(fault)) = mapped.ids.get() {
            fault.throw();
        }
    }

    /// Load the subscriptions of a file, or of the sections that *wanted* selects. The engine must be new and empty.
    ///
    /// # Errors
    ///
    /// The directory is damaged, or its checksum is not *expected*.
    pub fn open(
        &self,
        path: &str,
        bytes: Bytes,
        expected: &[u8],
        read: ReadSubscription,
        wanted: impl Fn(&str, &str) -> bool,
    ) -> Result<(), SnapshotFault> {
        let file = &*bytes;
        let path: Arc<str> = path.into();
        let damaged = |reason: &str| SnapshotFault::new(&path, "directory", format!("damaged: {reason}"));
        let images = (KIND, self.seed());
        let sections = sections(file, expected, (&path, &bytes), images, wanted).map_err(damaged)?;
        let total: usize = sections.iter().map(|section| section.len()).sum();
        let _inside = fork::inside();
        let mut writer = self.lock_writer();
        let version = self.version.load_full();
        let mut next = Version { len: total, ..Version::after(&version) };
        for section in &sections {
            let partition = Partition {
                name: section.name.clone(),
                segments: Vec::new(),
                filter: None,
                share: None,
                section: Some(Arc::new(Unopened::new(section.clone()))),
            };
            self.put(&mut next, partition);
        }
        let orders = word(file, 32).unwrap_or(0);
        if !writer.begin_after(total as u32, orders) {
            return Err(damaged("it is opened by an engine that is not empty"));
        }
        self.records.map(Mapped { sections: sections.into(), read, ids: OnceLock::new() });
        self.publish(&mut writer, next);
        Ok(())
    }
}

/// The image of a section's lines for a file whose images have *seed*; None for a small section, which is compiled as
/// quickly.
///
/// # Errors
///
/// A subscription is refused.
pub fn image(lines: &[u8], read: &ReadSubscription, seed: u64) -> Result<Option<Vec<u8>>, SubscriptionError> {
    let mut builder = StoreBuilder::default();
    for (line, at) in lines.split_inclusive(|byte| *byte == b'\n').zip(0..) {
        let Some(text) = memchr::memchr(b',', line).and_then(|comma| line[comma + 1..].strip_suffix(b"]\n")) else {
            return Ok(None);
        };
        let addition = read(text)?;
        let refused = |refused| SubscriptionError::of(&addition.id, format!("{refused:?}"));
        builder.add(at, addition.flags, &addition.form).map_err(refused)?;
    }
    Ok(image_of(builder, seed))
}

fn image_of(builder: StoreBuilder, seed: u64) -> Option<Vec<u8>> {
    let mut store = builder.build(&mut PathSets::default());
    if !is_indexed(&store) {
        return None;
    }
    let seed = Seed::new(seed);
    let access = Access::of(&store, KeyScope::Guarding);
    let built = build_with_recipe(&mut store, &seed, Depth::RECURSIVE, |conjunction| access.is_always(conjunction));
    let (index, recipe) = built.ok()?;
    let bytes = encode(&store, &index, &recipe);
    // Do not write an image that could not be read back: trees may be nested too deeply.
    let file = Bytes::own(&bytes);
    decode(&file, 0..bytes.len(), store.len() as u32, 0, &seed, &mut PathSets::default())?;
    Some(bytes)
}

/// A section for [`assemble`]: tenant, collection, number of subscriptions, lines, image.
pub type Made<'a> = (&'a str, &'a str, u32, &'a [u8], &'a [u8]);

/// A file of *sections*, which are sorted, with images of *seed*. `streamer.core.snapshot` writes the real ones; this
/// is for tests.
pub fn assemble(seed: u64, sections: &[Made<'_>]) -> Vec<u8> {
    let (mut rows, mut names, mut parts) = (Vec::new(), Vec::new(), Vec::new());
    let options = b"{}      ";
    let names_length: usize = sections.iter().map(|(tenant, collection, ..)| tenant.len() + collection.len()).sum();
    let directory = (options.len() + ROW * sections.len() + names_length).next_multiple_of(8);
    let start = (HEADER + directory).next_multiple_of(64);
    let mut total = 0;
    for (tenant, collection, count, lines, image) in sections {
        rows.extend((names.len() as u64).to_le_bytes());
        rows.extend([tenant.len() as u32, collection.len() as u32].map(u32::to_le_bytes).concat());
        rows.extend(u64::from(*count).to_le_bytes());
        for part in [lines, image] {
            parts.resize(parts.len().next_multiple_of(64), 0);
            rows.extend([(start + parts.len()) as u64, part.len() as u64].map(u64::to_le_bytes).concat());
            rows.extend(checksum(part));
            parts.extend_from_slice(part);
        }
        rows.extend([0; 8]);
        names.extend([tenant.as_bytes(), collection.as_bytes()].concat());
        total += u64::from(*count);
    }
    parts.resize(parts.len().next_multiple_of(64), 0);
    let mut all = [options, &rows[..], &names].concat();
    all.resize(directory, 0);
    let mut head = MAGIC.to_vec();
    head.extend([1, HEADER as u32].map(u32::to_le_bytes).concat());
    let numbers = [start + parts.len(), directory, total as usize, sections.len(), options.len()];
    head.extend(numbers.map(|number| (number as u64).to_le_bytes()).concat());
    head.extend([0; 32]);
    head.extend([KIND, seed, 0].map(u64::to_le_bytes).concat());
    let sum = checksum(&[&head[..], &all].concat());
    let mut file = [&head[..], &sum, &all].concat();
    file.resize(start, 0);
    file.append(&mut parts);
    file
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::index::segment::INDEXED_FROM;
    use crate::engine::{Addition, Engine, Options, Scratch, Selection};
    use crate::limits::Limits;
    use crate::subscriptions::parse::Defaults;
    use crate::subscriptions::{Subscription, normal_form};
    use std::panic::{AssertUnwindSafe, catch_unwind};

    const SEED: u64 = 7;

    fn reader() -> ReadSubscription {
        let limits = Limits::default();
        Arc::new(move |text: &[u8]| {
            let parsed = Subscription::parse(text, Defaults::of("default"), &limits)?;
            let form = normal_form(&parsed, &limits);
            Ok(Addition::new(parsed.id, form, text))
        })
    }

    /// As many as get an index, and one of each kind of array that an image has.
    fn lines() -> Vec<u8> {
        let kinds = [
            r#"{"field":"s","op":"starts_with","value":"ab"}"#,
            r#"{"field":"n","op":">","value":10}"#,
            r#"{"field":"s","op":"contains","value":"bc"}"#,
        ];
        let filters = |n: usize| match kinds.get(n) {
            Some(text) => (*text).to_owned(),
            None => format!(r#"{{"field":"n","op":"==","value":{n}}},{{"field":"s","op":"!=","value":"x"}}"#),
        };
        (0..INDEXED_FROM + 2)
            .flat_map(|n| format!("[{n},{{\"id\":\"s{n}\",\"filters\":[{}]}}]\n", filters(n)).into_bytes())
            .collect()
    }

    /// The matches of an event in an engine on a file with such an image, or that it was refused.
    fn found(lines: &[u8], image: &[u8]) -> Result<Vec<Box<str>>, Box<str>> {
        let engine = Engine::new(Options { background: false, seed: Some(SEED), ..Options::default() });
        let count = memchr::memchr_iter(b'\n', lines).count() as u32;
        let file = assemble(SEED, &[("*", "*", count, lines, image)]);
        engine.open("made", Bytes::own(&file), &file[112..128], reader(), |_, _| true).expect("a good directory");
        let event = br#"{"collection":"c","data":{"n":17,"s":"abc"}}"#;
        let run = || {
            let mut scratch = Scratch::default();
            let found = engine.match_event(event, &mut scratch).expect("a good event");
            let id = |slot: &u32| engine.record(*slot).expect("a subscription").id().into();
            let mut ids: Vec<_> = found.certain.iter().map(id).collect();
            ids.sort_unstable();
            assert_eq!(engine.remove(&Selection { ids: Some(&["s5"]), ..Selection::default() }).removed.len(), 1);
            ids
        };
        catch_unwind(AssertUnwindSafe(run)).map_err(|thrown| match thrown.downcast::<SnapshotFault>() {
            Ok(fault) => fault.reason,
            Err(other) => std::panic::resume_unwind(other),
        })
    }

    #[test]
    fn an_image_is_matched_where_it_lies_and_a_changed_one_used_or_refused() {
        let lines = lines();
        let image = image(&lines, &reader(), SEED).expect("good lines").expect("enough for an index");
        let expected: Vec<Box<str>> = ["s0", "s1", "s17", "s2"].map(Into::into).into();
        assert_eq!(found(&lines, &image), Ok(expected));
        let (mut used, mut refused) = (0, 0);
        let places = if cfg!(miri) { 4 } else { 400 };
        for place in 0..places {
            let mut changed = image.clone();
            let at = changed.len() * place / places;
            changed[at] = changed[at].wrapping_add(1 + place as u8 % 3);
            if found(&lines, &changed).is_ok() { used += 1 } else { refused += 1 }
        }
        assert!(used > 0 && refused > 0, "{used} used, {refused} refused");
    }
}
