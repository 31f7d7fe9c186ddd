//! Subscriptions that lie in a file: which there are is known at once, the rest is made when it is needed.
//!
//! ```text
//!   file      header, directory │ lines (acme, orders)  image │ lines (acme, users) │ ...           see docs/snapshots.md
//!   root      (acme, orders) ─► section, not opened: 20,000 subscriptions, slots 0..20,000
//!   an event  ─► its sections are opened, each once: checksum, then a segment
//!   an id     ─► a slot's record is made of its line
//!   a write   ─► the table of ids, once, of all lines
//! ```
//!
//! Concurrency contract: opening takes no lock but that of the path sets, for a moment. Who needs a section that another thread
//! is opening waits for it; nobody else waits. A fork waits until nothing is being opened.
//!
//! Invariant: the slots of a section are its lines, in their order, from its base on. They are taken from the beginning.
//!
//! Cost: opening a file is a checksum of its directory and one allocation a section. The first event of a section pays for
//! its checksum (gigabytes a second) and for its segment. The first write, or look at an id, reads all lines: 0.3 µs a subscription.
//!
//! A section that is damaged is a [`Fault`], thrown to the edge as a panic is, without its message. Every event that needs the
//! section gets it. The hot path has no larger result for it.
//!
//! Rejected: compiling all when the file is opened (minutes of processor time in a cluster whose workers need a few
//! collections each); a copy of the file in memory (it would not be shared between processes).

use crate::bloom::keys::{Access, Scope};
use crate::bloom::portable::murmur3_x64_128;
use crate::engine::access::{CostClass, access_of};
use crate::engine::build::{Depth, build_with_recipe};
use crate::engine::engine::{Addition, Engine, Inner, Root};
use crate::engine::image::{KIND, decode, encode};
use crate::engine::partitions::{Name, Partition};
use crate::engine::paths::PathSets;
use crate::engine::programs::Heard;
use crate::engine::registry::{Record, Records};
use crate::engine::segment::{Segment, is_indexed};
use crate::engine::shares::Share;
use crate::engine::store::StoreBuilder;
use crate::error::SubscriptionError;
use crate::fork;
use crate::map::Bytes;
use crate::value::Seed;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock, PoisonError};

/// Reads a subscription's JSON text.
pub type Reader = Arc<dyn Fn(&[u8]) -> Result<Addition, SubscriptionError> + Send + Sync>;

/// What is wrong with a file, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The file.
    pub path: Arc<str>,
    /// The part of the file: `directory`, or `section acme/orders`.
    pub place: Box<str>,
    /// What is wrong with it.
    pub reason: Box<str>,
}

impl Fault {
    fn new(path: &Arc<str>, place: &str, reason: impl Into<Box<str>>) -> Fault {
        Fault { path: path.clone(), place: place.into(), reason: reason.into() }
    }

    /// Leave for the edge.
    pub(super) fn throw(&self) -> ! {
        // Unwinding without the hook that prints a panic: this is no defect of the program.
        std::panic::resume_unwind(Box::new(self.clone()))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.path, self.place, self.reason)
    }
}

impl std::error::Error for Fault {}

const HEADER: usize = 128;
const ROW: usize = 96;
const MAGIC: &[u8] = b"\x89STRM\r\n\x1a";

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

fn half(bytes: &[u8], at: usize) -> Option<usize> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?) as usize)
}

/// The checksum of a part of a file.
pub fn checksum(bytes: &[u8]) -> [u8; 16] {
    let (low, high) = murmur3_x64_128(bytes);
    let mut sum = [0; 16];
    sum[..8].copy_from_slice(&low.to_le_bytes());
    sum[8..].copy_from_slice(&high.to_le_bytes());
    sum
}

/// A part of a file, with its checksum.
#[derive(Clone, Debug)]
struct Part {
    range: Range<usize>,
    checksum: [u8; 16],
}

impl Part {
    /// Where the row says that a part is; None outside of the file.
    fn read(row: &[u8], at: usize, file: usize) -> Option<Part> {
        let start = usize::try_from(word(row, at)?).ok()?;
        let end = start.checked_add(usize::try_from(word(row, at + 8)?).ok()?)?;
        (end <= file).then_some(Part { range: start..end, checksum: row.get(at + 16..at + 32)?.try_into().ok()? })
    }
}

/// The subscriptions of one tenant and collection in a file.
pub struct Section {
    name: Arc<Name>,
    path: Arc<str>,
    bytes: Bytes,
    base: u32,
    count: u32,
    lines: Part,
    /// The lines compiled, where this core can use that.
    image: Option<Part>,
    /// Where its lines begin, and where the last one ends; found once their checksum was compared.
    found: OnceLock<Result<Box<[u64]>, Fault>>,
    opened: OnceLock<Result<Arc<Partition>, Fault>>,
}

impl fmt::Debug for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Section").field("name", &self.name).field("count", &self.count).finish_non_exhaustive()
    }
}

impl Section {
    /// How many subscriptions it has.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn fault(&self, reason: impl Into<Box<str>>) -> Fault {
        Fault::new(&self.path, &format!("section {}/{}", self.name.tenant, self.name.collection), reason)
    }

    fn part(&self, part: &Part) -> Result<&[u8], Fault> {
        let bytes = self.bytes.get(part.range.clone()).ok_or_else(|| self.fault("damaged: the file is cut off"))?;
        if checksum(bytes) != part.checksum {
            return Err(self.fault("damaged: the checksum differs"));
        }
        Ok(bytes)
    }

    fn lines(&self) -> Result<&[u64], Fault> {
        let find = || {
            let bytes = self.part(&self.lines)?;
            let mut at: Vec<u64> = Vec::with_capacity(self.len() + 1);
            at.push(0);
            at.extend(memchr::memchr_iter(b'\n', bytes).map(|end| end as u64 + 1));
            if at.len() != self.len() + 1 || at.last() != Some(&(bytes.len() as u64)) {
                return Err(self.fault(format!("damaged: {} lines, not {}", at.len() - 1, self.count)));
            }
            Ok(at.into())
        };
        fork::once(&self.found, find).as_deref().map_err(Fault::clone)
    }

    /// The order of adding and the text of a line.
    fn line(&self, at: u32) -> Result<(u64, &[u8]), Fault> {
        let lines = self.lines()?;
        let none = || self.fault("damaged: a line that is none");
        let (from, to) = (lines[at as usize] as usize, lines[at as usize + 1] as usize);
        let all = self.bytes.get(self.lines.range.clone()).ok_or_else(none)?;
        let line = all.get(from..to).ok_or_else(none)?;
        let line = line.strip_prefix(b"[").and_then(|line| line.strip_suffix(b"]\n")).ok_or_else(none)?;
        let comma = memchr::memchr(b',', line).ok_or_else(none)?;
        let order = std::str::from_utf8(&line[..comma]).ok().and_then(|order| order.parse().ok()).ok_or_else(none)?;
        Ok((order, &line[comma + 1..]))
    }

    /// Read a line.
    fn addition(&self, at: u32, read: &Reader) -> Result<(u64, Addition), Fault> {
        let (order, text) = self.line(at)?;
        let addition = read(text).map_err(|error| self.fault(format!("a subscription that this version refuses: {error}")))?;
        if addition.tenant != self.name.tenant || addition.collection.as_deref().unwrap_or("*") != &*self.name.collection {
            return Err(self.fault("damaged: a subscription of another section"));
        }
        Ok((order, addition))
    }

    fn record(&self, at: u32, read: &Reader) -> Result<Record, Fault> {
        let (order, addition) = self.addition(at, read)?;
        Ok(Record {
            id: addition.id,
            gateway_id: addition.gateway_id.map(Arc::from),
            partition: self.name.clone(),
            order,
            program: addition.program,
            portable: addition.portable,
            heard: Heard::default(),
            text: addition.text,
            conditions: addition.conditions,
            host: addition.host.map_or_else(OnceLock::new, OnceLock::from),
            cost_class: addition.form.conjunctions.iter().map(|one| access_of(one).1).fold(CostClass::Keyed, CostClass::max),
            flags: addition.flags,
        })
    }

    /// The partition that its lines make, if it was opened and is sound.
    pub(super) fn opened(&self) -> Option<&Arc<Partition>> {
        self.opened.get().and_then(|opened| opened.as_ref().ok())
    }

    /// The partition that its lines make. A [`Fault`] is thrown.
    #[inline]
    pub(super) fn open(&self, inner: &Inner) -> &Arc<Partition> {
        match self.opened() {
            Some(partition) => partition,
            None => self.open_slowly(inner),
        }
    }

    #[cold]
    fn open_slowly(&self, inner: &Inner) -> &Arc<Partition> {
        inner.let_go(|| _ = fork::once(&self.opened, || self.compile(inner)));
        match fork::once(&self.opened, || self.compile(inner)) {
            Ok(partition) => partition,
            Err(fault) => fault.throw(),
        }
    }

    fn compile(&self, inner: &Inner) -> Result<Arc<Partition>, Fault> {
        let Some(mapped) = inner.records.mapped() else { return Err(self.fault("no file")) };
        self.lines()?;
        let segment = match &self.image {
            Some(image) => {
                self.part(image)?;
                let decoded = decode(&self.bytes, image.range.clone(), self.count, self.base, &inner.seed, &mut inner.sets());
                let (store, index) = decoded.ok_or_else(|| self.fault("damaged: an image that is none"))?;
                let access = inner.access(&store);
                Segment::indexed(store, index, &inner.seed, Some(&access))
            }
            None => {
                let refused = |refused| self.fault(format!("conditions that this version refuses: {refused:?}"));
                let mut builder = StoreBuilder::default();
                for at in 0..self.count {
                    let (_, addition) = self.addition(at, &mapped.read)?;
                    builder.add(self.base + at, addition.flags, &addition.form).map_err(refused)?;
                }
                let store = builder.build(&mut inner.sets());
                let access = inner.access(&store);
                Segment::new(store, &inner.seed, inner.options.depth, Some(&access)).map_err(refused)?
            }
        };
        let segments = vec![Arc::new(segment)];
        let filter = inner.filter_with(None, &segments, None);
        Ok(Arc::new(Partition { name: self.name.clone(), segments, filter, share: Share::within(&inner.shares), section: None }))
    }
}

/// The sections of a file that an engine holds.
pub struct Mapped {
    sections: Box<[Arc<Section>]>,
    read: Reader,
    ids: OnceLock<Result<(), Fault>>,
}

impl fmt::Debug for Mapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.sections).finish()
    }
}

impl Mapped {
    /// The section of a slot, and the slot's line.
    fn place(&self, slot: u32) -> Option<(&Section, u32)> {
        let at = self.sections.partition_point(|section| section.base <= slot).checked_sub(1)?;
        let section = &*self.sections[at];
        let line = slot - section.base;
        (line < section.count).then_some((section, line))
    }

    /// Make the record of a slot; None for a slot that is in no section. A [`Fault`] is thrown.
    pub(super) fn record(&self, slot: u32) -> Option<Record> {
        let (section, line) = self.place(slot)?;
        Some(section.record(line, &self.read).unwrap_or_else(|fault| fault.throw()))
    }

    /// Call *visit* with the id of a slot; false for a slot that is in no section.
    fn id_of(&self, slot: u32, visit: impl FnOnce(&[u8])) -> Result<bool, Fault> {
        let Some((section, line)) = self.place(slot) else { return Ok(false) };
        let (_, text) = section.line(line)?;
        // Canonical text begins with the id, most of which are plain.
        if let Some(rest) = text.strip_prefix(b"{\"id\":\"")
            && let Some(end) = memchr::memchr2(b'"', b'\\', rest)
            && rest[end] == b'"'
        {
            visit(&rest[..end]);
        } else {
            visit(section.addition(line, &self.read)?.1.id.as_bytes());
        }
        Ok(true)
    }
}

impl Inner {
    /// What a partition holds, opened. A [`Fault`] is thrown.
    #[inline]
    pub(super) fn opened<'p>(&self, partition: &'p Arc<Partition>) -> &'p Arc<Partition> {
        match &partition.section {
            None => partition,
            Some(section) => section.open(self),
        }
    }

    /// Run *act*, which takes long, with the host's lock (Python's GIL) released.
    fn let_go(&self, act: impl Fn() + Send + Sync) {
        match &self.options.let_go {
            Some(let_go) if !fork::is_detached() => let_go(&mut || act()),
            _ => act(),
        }
    }

    /// The hash of a slot's id, whether or not its record was made.
    pub(super) fn id_hash(&self, slot: u32) -> u64 {
        if let Some(record) = self.records.made(slot).as_ref() {
            return self.seed.hash_bytes(record.id.as_bytes());
        }
        let mut hash = 0;
        if let Some(mapped) = self.records.mapped() {
            // Its line was read when the table of ids was made.
            let _ = mapped.id_of(slot, |id| hash = self.seed.hash_bytes(id));
        }
        hash
    }

    /// Have the table of ids, which a file's are put in when it is first needed. A [`Fault`] is thrown.
    #[inline]
    pub(super) fn have_ids(&self) {
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
            Ok(())
        };
        self.let_go(|| _ = fork::once(&mapped.ids, fill));
        if let Some(Err(fault)) = mapped.ids.get() {
            fault.throw();
        }
    }
}

impl Engine {
    /// Hold the subscriptions of a file, or of the sections that *wanted* names. The engine must hold nothing yet, and must never
    /// have held anything.
    ///
    /// # Errors
    ///
    /// The directory is damaged, or another one than that of which *expected* is the checksum.
    pub fn open(
        &self,
        path: &str,
        bytes: Bytes,
        expected: &[u8],
        read: Reader,
        wanted: impl Fn(&str, &str) -> bool,
    ) -> Result<(), Fault> {
        let file = &*bytes;
        let path: Arc<str> = path.into();
        let damaged = |reason: &str| Fault::new(&path, "directory", format!("damaged: {reason}"));
        let images = (KIND, self.seed());
        let sections = sections(file, expected, (&path, &bytes), images, wanted).map_err(damaged)?;
        let total: usize = sections.iter().map(|section| section.len()).sum();
        let _inside = fork::inside();
        let mut writer = self.inner.lock_writer();
        let root = self.inner.root.load_full();
        let mut next = Root { len: total, ..Root::after(&root) };
        for section in &sections {
            let partition = Partition {
                name: section.name.clone(),
                segments: Vec::new(),
                filter: None,
                share: None,
                section: Some(section.clone()),
            };
            self.inner.put(&mut next, partition);
        }
        let orders = word(file, 32).unwrap_or(0);
        if !writer.begin_after(total as u32, orders) {
            return Err(damaged("it is opened by an engine that holds something"));
        }
        self.inner.records.map(Mapped { sections: sections.into(), read, ids: OnceLock::new() });
        self.inner.publish(&mut writer, next);
        Ok(())
    }

    /// The seed of all hashes.
    pub fn seed(&self) -> u64 {
        self.inner.seed.seed()
    }
}

/// The sections that *wanted* names, each with its slots.
fn sections(
    file: &[u8],
    expected: &[u8],
    (path, bytes): (&Arc<str>, &Bytes),
    images: (u64, u64),
    wanted: impl Fn(&str, &str) -> bool,
) -> Result<Vec<Arc<Section>>, &'static str> {
    let cut = "the file is cut off";
    let length = |at| word(file, at).and_then(|length| usize::try_from(length).ok()).ok_or(cut);
    let (directory, count, options) = (length(24)?, length(40)?, length(48)?);
    let directory = file.get(HEADER..).and_then(|rest| rest.get(..directory)).ok_or(cut)?;
    let sum = file.get(HEADER - 16..HEADER).ok_or(cut)?;
    let head: Vec<u8> = file[..HEADER - 16].iter().chain(directory).copied().collect();
    if !file.starts_with(MAGIC) || sum != expected || checksum(&head) != sum {
        return Err("the checksum differs");
    }
    let has_images = (word(file, 88), word(file, 96)) == (Some(images.0), Some(images.1));
    let outside = "a place outside of the file";
    let rows_length = count.checked_mul(ROW).ok_or(outside)?;
    let rows = directory.get(options..).and_then(|rest| rest.get(..rows_length)).ok_or(outside)?;
    let names = &directory[options + rows_length..];
    let mut sections = Vec::new();
    let mut base = 0_u32;
    let mut before: Option<Arc<Name>> = None;
    for row in rows.chunks_exact(ROW) {
        let read = || {
            let at = usize::try_from(word(row, 0)?).ok()?;
            let middle = at.checked_add(half(row, 8)?)?;
            let end = middle.checked_add(half(row, 12)?)?;
            let text = |range: Range<usize>| std::str::from_utf8(names.get(range)?).ok();
            let count = u32::try_from(word(row, 16)?).ok()?;
            Some((
                text(at..middle)?,
                text(middle..end)?,
                count,
                Part::read(row, 24, file.len())?,
                Part::read(row, 56, file.len())?,
            ))
        };
        let (tenant, collection, count, lines, image) = read().ok_or(outside)?;
        if !wanted(tenant, collection) {
            continue;
        }
        let name = Arc::new(Name { tenant: tenant.into(), collection: collection.into() });
        if before.is_some_and(|before| before >= name) || count == 0 {
            return Err("sections out of order");
        }
        before = Some(name.clone());
        sections.push(Arc::new(Section {
            name,
            path: path.clone(),
            bytes: bytes.clone(),
            base,
            count,
            lines,
            image: Some(image).filter(|image| has_images && !image.range.is_empty()),
            found: OnceLock::new(),
            opened: OnceLock::new(),
        }));
        base = base.checked_add(count).filter(|end| *end < u32::MAX).ok_or("more than 2^32 subscriptions")?;
    }
    Ok(sections)
}

/// The image of a section's lines for a file whose images have *seed*; None where it has none: a small one is compiled as quickly.
pub fn image(lines: &[u8], read: &Reader, seed: u64) -> Option<Vec<u8>> {
    let mut builder = StoreBuilder::default();
    for (line, at) in lines.split_inclusive(|byte| *byte == b'\n').zip(0..) {
        let comma = memchr::memchr(b',', line)?;
        let addition = read(line[comma + 1..].strip_suffix(b"]\n")?).ok()?;
        builder.add(at, addition.flags, &addition.form).ok()?;
    }
    let mut store = builder.build(&mut PathSets::default());
    if !is_indexed(&store) {
        return None;
    }
    let seed = Seed::new(seed);
    let access = Access::of(&store, Scope::Guarding);
    let built = build_with_recipe(&mut store, &seed, Depth::RECURSIVE, |conjunction| access.is_always(conjunction));
    let (index, recipe) = built.ok()?;
    let bytes = encode(&store, &index, &recipe);
    // What would not be read back is not written: trees may be nested too deeply.
    let file = Bytes::own(&bytes);
    decode(&file, 0..bytes.len(), store.len() as u32, 0, &seed, &mut PathSets::default())?;
    Some(bytes)
}

/// A section for [`assemble`]: tenant, collection, number of subscriptions, lines, image.
pub type Made<'a> = (&'a str, &'a str, u32, &'a [u8], &'a [u8]);

/// A file of *sections*, which are sorted, with images of *seed*. `streamer.core.snapshot` writes those that last; this is for tests.
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

impl Records {
    /// The record of a slot whose line lies in a file; None for any other slot.
    #[cold]
    pub(super) fn make(&self, slot: u32) -> Option<Arc<Record>> {
        let record = Arc::new(self.mapped()?.record(slot)?);
        Some(self.set_first(slot, record))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::segment::INDEXED_FROM;
    use crate::engine::{Options, Scratch, Selection};
    use crate::limits::Limits;
    use crate::subscriptions::{Subscription, normal_form};
    use std::panic::{AssertUnwindSafe, catch_unwind};

    const SEED: u64 = 7;

    fn reader() -> Reader {
        let limits = Limits::default();
        Arc::new(move |text: &[u8]| {
            let parsed = Subscription::parse(text, Some("default"), &limits)?;
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

    /// What an event finds in an engine on a file with such an image, or that it was refused.
    fn found(lines: &[u8], image: &[u8]) -> Result<Vec<Box<str>>, Box<str>> {
        let engine = Engine::new(Options { background: false, seed: Some(SEED), ..Options::default() });
        let count = memchr::memchr_iter(b'\n', lines).count() as u32;
        let file = assemble(SEED, &[("*", "*", count, lines, image)]);
        engine.open("made", Bytes::own(&file), &file[112..128], reader(), |_, _| true).expect("a good directory");
        let event = br#"{"collection":"c","data":{"n":17,"s":"abc"}}"#;
        let run = || {
            let mut scratch = Scratch::default();
            let found = engine.match_event(event, None, None, &mut scratch).expect("a good event");
            let id = |slot: &u32| engine.record(*slot).expect("a subscription").id.clone();
            let mut ids: Vec<_> = found.certain.iter().map(id).collect();
            ids.sort_unstable();
            assert_eq!(engine.remove(&Selection { ids: Some(&["s5"]), ..Selection::default() }).removed.len(), 1);
            ids
        };
        catch_unwind(AssertUnwindSafe(run)).map_err(|thrown| match thrown.downcast::<Fault>() {
            Ok(fault) => fault.reason,
            Err(other) => std::panic::resume_unwind(other),
        })
    }

    #[test]
    fn an_image_is_matched_where_it_lies_and_a_changed_one_used_or_refused() {
        let lines = lines();
        let image = image(&lines, &reader(), SEED).expect("enough for an index");
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
