//! Sections of a file: the place of the subscriptions of each tenant and collection, and the meaning of one line.
//!
//! Invariant: the checksum of a section is compared before its content is read.

use crate::bloom::portable::murmur3_x64_128;
use crate::engine::state::addition::Addition;
use crate::engine::state::name::PartitionName;
use crate::engine::state::record::{Filed, Filing, Record};
use crate::engine::state::texts::Split;
use crate::error::SubscriptionError;
use crate::fork;
use crate::json::token;
use crate::map::Bytes;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// Reads a subscription's JSON text.
pub type ReadSubscription = Arc<dyn Fn(&[u8]) -> Result<Addition, SubscriptionError> + Send + Sync>;

/// The fault in a file, and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotFault {
    /// The file.
    pub path: Arc<str>,
    /// The part of the file: `directory`, or `section acme/orders`.
    pub place: Box<str>,
    /// The fault itself.
    pub reason: Box<str>,
}

impl SnapshotFault {
    pub(in crate::engine) fn new(path: &Arc<str>, place: &str, reason: impl Into<Box<str>>) -> SnapshotFault {
        SnapshotFault { path: path.clone(), place: place.into(), reason: reason.into() }
    }

    /// Leave for the edge.
    pub(in crate::engine) fn throw(&self) -> ! {
        // Unwind without the hook that prints a panic: the fault is in the file, not in the program.
        std::panic::resume_unwind(Box::new(self.clone()))
    }
}

impl fmt::Display for SnapshotFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.path, self.place, self.reason)
    }
}

impl std::error::Error for SnapshotFault {}

pub(in crate::engine) const HEADER: usize = 128;
pub(in crate::engine) const ROW: usize = 96;
pub(in crate::engine) const MAGIC: &[u8] = b"\x89STRM\r\n\x1a";

pub(in crate::engine) fn word(bytes: &[u8], at: usize) -> Option<u64> {
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
pub(in crate::engine) struct FilePart {
    pub range: Range<usize>,
    checksum: [u8; 16],
}

impl FilePart {
    /// The place of a part according to the row; None outside of the file.
    fn read(row: &[u8], at: usize, file: usize) -> Option<FilePart> {
        let start = usize::try_from(word(row, at)?).ok()?;
        let end = start.checked_add(usize::try_from(word(row, at + 8)?).ok()?)?;
        (end <= file).then_some(FilePart { range: start..end, checksum: row.get(at + 16..at + 32)?.try_into().ok()? })
    }
}

/// The subscriptions of one tenant and collection in a file.
pub struct Section {
    pub(in crate::engine) name: Arc<PartitionName>,
    path: Arc<str>,
    pub(in crate::engine) bytes: Bytes,
    pub(in crate::engine) base: u32,
    pub(in crate::engine) count: u32,
    lines: FilePart,
    /// The compiled lines, if this core can use them.
    pub(in crate::engine) image: Option<FilePart>,
    /// The start of each line, and the end of the last one; found once their checksum was compared.
    offsets: OnceLock<Result<Box<[u64]>, SnapshotFault>>,
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

    pub(in crate::engine) fn fault(&self, reason: impl Into<Box<str>>) -> SnapshotFault {
        SnapshotFault::new(&self.path, &format!("section {}/{}", self.name.tenant, self.name.collection), reason)
    }

    pub(in crate::engine) fn part(&self, part: &FilePart) -> Result<&[u8], SnapshotFault> {
        let bytes = self.bytes.get(part.range.clone()).ok_or_else(|| self.fault("damaged: the file is cut off"))?;
        if checksum(bytes) != part.checksum {
            return Err(self.fault("damaged: the checksum differs"));
        }
        Ok(bytes)
    }

    pub(in crate::engine) fn lines(&self) -> Result<&[u64], SnapshotFault> {
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
        fork::once(&self.offsets, find).as_deref().map_err(SnapshotFault::clone)
    }

    /// The order of adding and the text of a line.
    fn line(&self, at: u32) -> Result<(u64, &[u8]), SnapshotFault> {
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
    pub(in crate::engine) fn addition(&self, at: u32, read: &ReadSubscription) -> Result<(u64, Addition), SnapshotFault> {
        let (order, text) = self.line(at)?;
        let addition = read(text).map_err(|error| self.fault(format!("a subscription that this version refuses: {error}")))?;
        if addition.tenant != self.name.tenant || addition.collection.as_deref().unwrap_or("*") != &*self.name.collection {
            return Err(self.fault("damaged: a subscription of another section"));
        }
        Ok((order, addition))
    }

    fn record(&self, at: u32, read: &ReadSubscription) -> Result<Record, SnapshotFault> {
        let (order, mut addition) = self.addition(at, read)?;
        let filed = Filed {
            filing: Arc::new(Filing { partition: self.name.clone(), gateway_id: addition.gateway_id.clone() }),
            order,
            text: Split { rest: None, bytes: std::mem::take(&mut addition.text) },
        };
        Record::of(addition, filed).ok_or_else(|| self.fault("damaged: a line of more than 2^32 bytes"))
    }
}

/// The sections of a file that an engine has loaded.
pub struct Mapped {
    pub(in crate::engine) sections: Box<[Arc<Section>]>,
    pub(in crate::engine) read: ReadSubscription,
    pub(in crate::engine) ids: OnceLock<Result<(), SnapshotFault>>,
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

    /// Make the record of a slot; None for a slot that is in no section. A [`SnapshotFault`] is thrown.
    pub(super) fn record(&self, slot: u32) -> Option<Record> {
        let (section, line) = self.place(slot)?;
        Some(section.record(line, &self.read).unwrap_or_else(|fault| fault.throw()))
    }

    /// Call *visit* with the id of a slot; false for a slot that is in no section.
    pub(in crate::engine) fn id_of(&self, slot: u32, visit: impl FnOnce(&[u8])) -> Result<bool, SnapshotFault> {
        let Some((section, line)) = self.place(slot) else { return Ok(false) };
        let (_, text) = section.line(line)?;
        // Canonical text begins with the id.
        let quote = ID.len() - 1;
        match text.starts_with(ID).then(|| token::string(text, quote)) {
            Some(Ok((end, _))) => visit(&token::unescaped(&text[quote + 1..end - 1])),
            _ => visit(section.addition(line, &self.read)?.1.id.as_bytes()),
        }
        Ok(true)
    }
}

/// How a canonical text begins, up to the quote of its id.
const ID: &[u8] = b"{\"id\":\"";

/// The sections that *wanted* names, each with its slots.
pub(in crate::engine) fn sections(
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
    let mut before: Option<Arc<PartitionName>> = None;
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
                FilePart::read(row, 24, file.len())?,
                FilePart::read(row, 56, file.len())?,
            ))
        };
        let (tenant, collection, count, lines, image) = read().ok_or(outside)?;
        if !wanted(tenant, collection) {
            continue;
        }
        let name = Arc::new(PartitionName { tenant: tenant.into(), collection: collection.into() });
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
            offsets: OnceLock::new(),
        }));
        base = base.checked_add(count).filter(|end| *end < u32::MAX).ok_or("more than 2^32 subscriptions")?;
    }
    Ok(sections)
}
