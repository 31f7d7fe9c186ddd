//! One pass over the bytes of an event, down the trie of wanted paths.
//!
//! A loop over an explicit stack of open containers. A frame is opened only for a container below which something is wanted;
//! every other value is skipped whole. An element of an array may have to be read twice: once for a pointer of the layout that
//! leads into it, once for the leaves of patterns. It is never read more often, as no leaves are wanted below such a pointer.
//!
//! A list of millions of elements has few that differ in what is wanted, or its event is as much larger. From [`MANY`] elements on
//! an element that has the same wanted values in the same places as one before it in its list is left out: no pattern can tell
//! the two apart (semantics.md section 5: of each list one element is chosen). Scalars from there on are recorded as runs, which
//! take no room of their own.

use super::entries::{ArrayElement, DEAD, Entries, Entry, IS_RUN, NO_ENTRY, Position, Run};
use super::trie::{ENVELOPE, FALLBACK, INDEXES, LEAVES, NOWHERE, OPTIONAL, PathTrie, ROOT, THROUGH, TrieNode, VALUE};
use crate::json::skip;
use crate::json::token::{self, JsonFault, Result, Strings, peek, space};
use crate::value::{Kind, Number};

/// The bytes of a run that is left out if it repeats another one of its list.
const SHORT_RUN: usize = 256;
/// The positions after the last one of a run have other meanings.
const MOST_IN_RUNS: u32 = u32::MAX - 8;
/// Elements of a list that are kept whether they repeat others or not.
const MANY: u32 = 256;
/// How many elements are remembered, to find those that repeat one: at first, and at most if that many are in use.
const REMEMBERED: [usize; 2] = [1 << 10, 1 << 16];
/// At most one element is remembered for this many bytes of the event.
const BYTES_OF_ONE: usize = 64;

/// Buffers that are kept between events, so that a pass does not allocate after warm-up.
#[derive(Debug, Default)]
pub(crate) struct ScanScratch {
    /// Elements of long lists, by the hash of the values found in them; of several only the last.
    elements: Vec<Remembered>,
    remembered_count: usize,
    before: Vec<u32>,
    frames: Vec<ScanFrame>,
    /// For each node: the last object that had it as a member, and the entries below it.
    last_objects: Vec<LastObject>,
    serial: u64,
    open: Vec<u64>,
    name: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default)]
struct LastObject {
    object: u64,
    from: u32,
    to: u32,
}

/// The start of a list element: in the text, among entries and elements, in the plain texts, and the next serial
/// number.
#[derive(Clone, Copy, Debug, Default)]
struct Begun {
    at: u32,
    entries: u32,
    elements: u32,
    plain: u32,
    runs: u32,
    serial: u32,
}

impl ScanScratch {
    /// The element of a long list that is remembered under a hash. *bytes*: the length of the event.
    fn remembered(&mut self, hash: u64, bytes: usize) -> &mut Remembered {
        let size = if self.remembered_count < REMEMBERED[0] {
            REMEMBERED[0]
        } else {
            (bytes / BYTES_OF_ONE).next_power_of_two().clamp(REMEMBERED[0], REMEMBERED[1])
        };
        if self.elements.len() < size {
            self.elements.clear();
            self.elements.resize(size, Remembered::default());
        }
        &mut self.elements[hash as usize & (size - 1)]
    }
}

/// An element of a long list, or a short run of scalars in it.
#[derive(Clone, Copy, Debug, Default)]
struct Remembered {
    /// Its list; 0 is none.
    array: u32,
    /// Of what was found in it.
    hash: u64,
    is_run: bool,
    begun: Begun,
    entries_end: u32,
    elements_end: u32,
}

#[derive(Clone, Copy, Debug)]
struct ScanFrame {
    node: u32,
    /// The entry of the container itself, whose end is set when it is closed.
    entry: u32,
    position: Position,
    in_object: bool,
    /// For an object: the member that is being read, how many wanted members are still missing, and the object's serial
    /// number.
    child: u32,
    unseen: u32,
    object: u64,
    /// For an array: its serial number, the index of the element being read, and the node for which to read that
    /// element again.
    array: u32,
    index: u32,
    again: u32,
    /// How many names lead to the outermost array, and the start of the element being read.
    names: u32,
    begun: Begun,
}

/// The results of a pass, without the entries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scanned {
    /// How far the text was read.
    pub(crate) end: usize,
    /// The offset of the value, if the event is not an object.
    pub(crate) not_an_object: Option<usize>,
    /// The first duplicate member of the envelope: its node and the offset of its name.
    pub(crate) duplicate: Option<(u32, usize)>,
}

/// A pass. With `CHECKED` all of the event is checked, otherwise only the parts that are walked.
pub(crate) struct Scan<'s, const CHECKED: bool> {
    text: &'s [u8],
    trie: &'s PathTrie,
    entries: &'s mut Entries,
    scratch: &'s mut ScanScratch,
    strings: Strings,
    max_depth: usize,
    /// Members of the root that a lazy reading still needs.
    missing: u32,
}

impl<'s, const CHECKED: bool> Scan<'s, CHECKED> {
    pub(crate) fn new(
        text: &'s [u8],
        trie: &'s PathTrie,
        entries: &'s mut Entries,
        scratch: &'s mut ScanScratch,
        max_depth: usize,
    ) -> Self {
        Scan { text, trie, entries, scratch, strings: Strings::default(), max_depth, missing: trie.needed }
    }

    /// Read an event.
    pub(crate) fn event(&mut self) -> Result<Scanned> {
        self.entries.begin(self.trie.nodes.len());
        self.scratch.elements.clear();
        self.scratch.remembered_count = 0;
        let nodes = self.trie.nodes.len();
        if self.scratch.last_objects.len() < nodes {
            self.scratch.last_objects.resize(nodes, LastObject::default());
        }
        let start = space(self.text, 0);
        if peek(self.text, start) != b'{' {
            let end = skip::checked(self.text, start, 0, self.max_depth, &mut self.scratch.open)?;
            let end = self.nothing_after(end)?;
            return Ok(Scanned { end, not_an_object: Some(start), duplicate: None });
        }
        self.walk(start, ROOT, false)
    }

    /// Read the value at *start* again, now for the paths wanted below *node*.
    pub(crate) fn fallback(&mut self, start: usize, node: u32) -> Result<()> {
        self.missing = 0;
        self.walk(start, node, true).map(|_| ())
    }

    fn nothing_after(&self, end: usize) -> Result<usize> {
        let at = space(self.text, end);
        if at < self.text.len() {
            return Err(JsonFault::malformed(self.text, at, "expected the text to end after the value"));
        }
        Ok(at)
    }

    fn skip(&mut self, at: usize) -> Result<usize> {
        if CHECKED {
            // Scalars first: most skipped values are scalars.
            match peek(self.text, at) {
                b'"' => Ok(self.strings.read(self.text, at)?.0),
                b'-' | b'0'..=b'9' => Ok(token::number(self.text, at)?.0),
                b'{' | b'[' => {
                    let depth = self.scratch.frames.len();
                    skip::checked(self.text, at, depth, self.max_depth, &mut self.scratch.open)
                }
                _ => token::literal(self.text, at),
            }
        } else {
            skip::trusted(self.text, at)
        }
    }

    /// Record a value of *node*; its end is known or will be patched.
    fn record(&mut self, node: u32, kind: Kind, start: usize, end: usize, position: Position) -> u32 {
        self.entries.push(Entry {
            node,
            next: NO_ENTRY,
            start: start as u32,
            end: end as u32,
            position,
            plain: 0,
            plain_length: 0,
            kind,
        })
    }

    fn walk(&mut self, start: usize, root: u32, again: bool) -> Result<Scanned> {
        let (text, trie) = (self.text, self.trie);
        let mut duplicate = None;
        let mut at = start;
        let mut node = root;
        let mut position = Position::NONE;
        self.scratch.frames.clear();
        'value: loop {
            // Here a value begins that may be wanted: `node`, `position`.
            let wanted: &TrieNode = &trie.nodes[node as usize];
            let first = peek(text, at);
            let here = position == Position::NONE;
            if first != b'{' && first != b'[' {
                at = if wanted.flags & LEAVES != 0 || (here && wanted.flags & VALUE != 0) {
                    self.scalar(node, first, at, position)?
                } else if here && wanted.children != 0 {
                    self.parent(node, first, at)?
                } else {
                    self.skip(at)?
                };
            } else {
                let in_object = first == b'{';
                let mut entry = NO_ENTRY;
                if here && wanted.flags & VALUE != 0 && !(again && self.scratch.frames.is_empty()) {
                    let kind = if in_object { Kind::Map } else { Kind::List };
                    entry = self.record(node, kind, at, at, position);
                }
                let enter = if in_object {
                    wanted.children != 0 && (here || wanted.flags & THROUGH != 0) && (again || wanted.flags & FALLBACK == 0)
                } else {
                    wanted.flags & THROUGH != 0 || (here && wanted.flags & INDEXES != 0)
                };
                if !enter {
                    at = self.skip(at)?;
                } else {
                    if self.scratch.frames.len() >= self.max_depth {
                        return Err(JsonFault::too_deep(at, self.max_depth));
                    }
                    at = space(text, at + 1);
                    if peek(text, at) == first + 2 {
                        at += 1;
                    } else {
                        let frame = self.open(node, entry, position, in_object);
                        self.scratch.frames.push(frame);
                        if !in_object {
                            (node, position) = self.element(at);
                            continue 'value;
                        }
                        (at, node) = self.member(at, &mut duplicate)?;
                        if node != NOWHERE {
                            continue 'value;
                        }
                        entry = NO_ENTRY;
                    }
                }
                if entry != NO_ENTRY {
                    self.entries.all[entry as usize].end = at as u32;
                }
            }
            // A value is complete: continue in its container, or close it.
            while let Some(frame) = self.scratch.frames.last_mut() {
                if frame.in_object {
                    let is_done = !CHECKED && frame.child != NOWHERE && frame.unseen == 0;
                    if frame.child != NOWHERE {
                        self.scratch.last_objects[frame.child as usize].to = self.entries.all.len() as u32;
                        if !CHECKED && !again && self.missing == 0 && self.has_all() {
                            return Ok(Scanned { end: at, not_an_object: None, duplicate });
                        }
                    }
                    if is_done {
                        at = skip::rest_of_object(text, at)? - 1;
                    } else {
                        at = space(text, at);
                        if peek(text, at) == b',' {
                            (at, node) = self.member(space(text, at + 1), &mut duplicate)?;
                            let frame = &self.scratch.frames[self.scratch.frames.len() - 1];
                            if node != NOWHERE {
                                position = frame.position;
                                continue 'value;
                            }
                            if !CHECKED && frame.child != NOWHERE {
                                continue;
                            }
                        }
                        if peek(text, at) != b'}' {
                            return Err(token::expected_more(text, at, true));
                        }
                    }
                } else {
                    if frame.again != 0 {
                        at = frame.again as usize;
                        frame.again = 0;
                        (node, position) = self.element_again(at);
                        continue 'value;
                    }
                    let is_long = frame.index >= MANY && frame.begun.elements != 0;
                    if is_long {
                        at = self.repeated(at);
                        at = self.run(space(text, at))?;
                    }
                    at = space(text, at);
                    if peek(text, at) == b',' {
                        let top = self.scratch.frames.len() - 1;
                        self.scratch.frames[top].index += 1;
                        at = space(text, at + 1);
                        (node, position) = self.element(at);
                        continue 'value;
                    }
                    if peek(text, at) != b']' {
                        return Err(token::expected_more(text, at, false));
                    }
                }
                at += 1;
                if let Some(ScanFrame { entry, .. }) = self.scratch.frames.pop()
                    && entry != NO_ENTRY
                {
                    self.entries.all[entry as usize].end = at as u32;
                }
            }
            let end = if again { at } else { self.nothing_after(at)? };
            return Ok(Scanned { end, not_an_object: None, duplicate });
        }
    }

    fn open(&mut self, node: u32, entry: u32, position: Position, in_object: bool) -> ScanFrame {
        self.scratch.serial += 1;
        // Only the elements of an array use the names.
        let names = if in_object { 0 } else { self.names(position) };
        ScanFrame {
            node,
            entry,
            position,
            in_object,
            child: NOWHERE,
            unseen: self.trie.nodes[node as usize].children,
            object: self.scratch.serial,
            array: self.scratch.serial as u32,
            index: 0,
            again: 0,
            names,
            begun: Begun::default(),
        }
    }

    /// How many names lead to the outermost array around the elements of an array that is about to be opened.
    fn names(&self, position: Position) -> u32 {
        match self.entries.element(position).names {
            // In no array yet: the names are those of the objects around it.
            u32::MAX => self.scratch.frames.iter().filter(|frame| frame.in_object).count() as u32,
            names => names,
        }
    }

    /// Whether the rest of the event cannot contain a wanted value, if all needed members of the root have been read.
    /// The end of a container that is wanted as a value is needed too, except for the root's.
    fn has_all(&self) -> bool {
        let inner = self.scratch.frames.iter().skip(1);
        inner.into_iter().all(|frame| frame.in_object && frame.unseen == 0 && frame.entry == NO_ENTRY)
    }

    /// Read members of the object on top, from the first one's name at *at*, up to a container that is wanted. Return
    /// the offset and the node of this container. If there is none, return the offset after the last member and
    /// [`NOWHERE`]. If a lazy pass may stop after a wanted scalar, return the end of the scalar and [`NOWHERE`]; the
    /// scalar is then the frame's child.
    ///
    /// Most members of most events are passed over or recorded in this loop, which touches little else.
    fn member(&mut self, mut at: usize, duplicate: &mut Option<(u32, usize)>) -> Result<(usize, u32)> {
        let (text, trie) = (self.text, self.trie);
        let top = self.scratch.frames.len() - 1;
        let frame = &self.scratch.frames[top];
        let wanted = &trie.nodes[frame.node as usize];
        let position = frame.position;
        let in_array = position != Position::NONE;
        loop {
            if peek(text, at) != b'"' {
                return Err(token::expected_name(text, at));
            }
            let (end, escaped) = self.strings.read(text, at)?;
            let colon = space(text, end);
            if peek(text, colon) != b':' {
                return Err(token::expected_colon(text, colon));
            }
            let value = space(text, colon + 1);
            let child = if escaped { self.escaped(wanted, at, end) } else { trie.member(wanted, text, at + 1, end - 1) };
            let first = peek(text, value);
            let flags = if child == NOWHERE { 0 } else { trie.nodes[child as usize].flags };
            if child != NOWHERE && (!in_array || flags & THROUGH != 0) {
                self.want(top, child, flags, at, duplicate);
                if first == b'{' || first == b'[' {
                    return Ok((value, child));
                }
                let recorded = if in_array { LEAVES } else { LEAVES | VALUE };
                at = if flags & recorded != 0 {
                    self.scalar(child, first, value, position)?
                } else if !in_array && trie.nodes[child as usize].children != 0 {
                    self.parent(child, first, value)?
                } else {
                    self.skip(value)?
                };
                if !CHECKED && (self.missing == 0 || self.scratch.frames[top].unseen == 0) {
                    return Ok((at, NOWHERE));
                }
                self.scratch.last_objects[child as usize].to = self.entries.all.len() as u32;
            } else {
                // Strings are most of the skipped values, so skip them without a call.
                at = if first == b'"' { self.strings.read(text, value)?.0 } else { self.skip(value)? };
            }
            at = space(text, at);
            if peek(text, at) != b',' {
                self.scratch.frames[top].child = NOWHERE;
                return Ok((at, NOWHERE));
            }
            at = space(text, at + 1);
        }
    }

    /// The node of a member whose name has escapes.
    #[cold]
    fn escaped(&mut self, wanted: &TrieNode, at: usize, end: usize) -> u32 {
        let name = &mut self.scratch.name;
        name.clear();
        token::unescape(&self.text[at + 1..end - 1], name);
        self.trie.member(wanted, name, 0, name.len())
    }

    /// Begin a member of the object on *top* that is wanted; its name is at *at*, its node has *flags*.
    #[inline(always)]
    fn want(&mut self, top: usize, child: u32, flags: u8, at: usize, duplicate: &mut Option<(u32, usize)>) {
        let frame = &mut self.scratch.frames[top];
        frame.child = child;
        let last = &mut self.scratch.last_objects[child as usize];
        let from = self.entries.all.len() as u32;
        if last.object == frame.object {
            if flags & ENVELOPE != 0 && frame.position == Position::NONE && duplicate.is_none() {
                *duplicate = Some((child, at));
            }
            for entry in &mut self.entries.all[last.from as usize..last.to as usize] {
                entry.node = DEAD;
            }
            last.from = from;
        } else {
            *last = LastObject { object: frame.object, from, to: from };
            frame.unseen -= 1;
            if !CHECKED && top == 0 && flags & OPTIONAL == 0 {
                self.missing = self.missing.wrapping_sub(1); // wraps only below a fallback, which does not read it
            }
        }
    }

    /// Begin the next element of the array on top; returns its node and position.
    fn element(&mut self, at: usize) -> (u32, Position) {
        let top = self.scratch.frames.len() - 1;
        let frame = &mut self.scratch.frames[top];
        let flags = self.trie.nodes[frame.node as usize].flags;
        if flags & INDEXES != 0 && frame.position == Position::NONE {
            let element = self.trie.element(frame.node, frame.index);
            if element != NOWHERE {
                frame.begun = Begun::default();
                if flags & THROUGH != 0 {
                    frame.again = at as u32;
                }
                return (element, Position::NONE);
            }
        }
        self.element_again(at)
    }

    /// Begin an element of the array on top, at *at*, for its leaves.
    fn element_again(&mut self, at: usize) -> (u32, Position) {
        let top = self.scratch.frames.len() - 1;
        let frame = &mut self.scratch.frames[top];
        let outer = frame.position;
        let depth = self.entries.elements[outer.0 as usize].depth + 1;
        let position = Position(self.entries.elements.len() as u32);
        frame.begun = Begun {
            at: at as u32,
            entries: self.entries.all.len() as u32,
            elements: position.0,
            plain: self.entries.plain.len() as u32,
            runs: self.entries.runs.len() as u32,
            serial: self.scratch.serial as u32,
        };
        self.entries.elements.push(ArrayElement { outer, array: frame.array, depth, names: frame.names });
        (frame.node, position)
    }

    /// Process the end of an element of a long list, whose text ends at *at*: drop its entries if it repeats another
    /// one, and pass over the following elements that are written alike. Return the end of the last of them.
    #[cold]
    fn repeated(&mut self, mut at: usize) -> usize {
        let top = self.scratch.frames.len() - 1;
        let ScanFrame { begun, array, node, position, .. } = self.scratch.frames[top];
        self.forget_repeated(array, begun);
        if position == Position::NONE && self.trie.nodes[node as usize].flags & INDEXES != 0 {
            // Each has to be counted.
            return at;
        }
        let text = self.text;
        let written = &text[begun.at as usize..at];
        while let (b',', Some(next)) = (peek(text, at), text.get(at + 1..at + 1 + written.len())) {
            let end = at + 1 + written.len();
            if next != written || !matches!(peek(text, end), b',' | b']') {
                break;
            }
            at = end;
        }
        at
    }

    /// Read the scalars that follow in a long list, from the comma at *at* on, as one entry. Strings with escapes are not among them.
    /// Returns where what follows the last one stands.
    #[cold]
    fn run(&mut self, mut at: usize) -> Result<usize> {
        let top = self.scratch.frames.len() - 1;
        let ScanFrame { node, position: outer, array, names, .. } = self.scratch.frames[top];
        let (text, flags) = (self.text, self.trie.nodes[node as usize].flags);
        if flags & LEAVES == 0 || (outer == Position::NONE && flags & INDEXES != 0) {
            return Ok(at);
        }
        let (mut start, mut end, mut count) = (at, at, 0);
        let first = self.entries.next_in_run;
        while peek(text, at) == b',' && first + count < MOST_IN_RUNS {
            let from = space(text, at + 1);
            let to = match peek(text, from) {
                b'"' => {
                    let (to, escaped) = self.strings.read(text, from)?;
                    if escaped {
                        break;
                    }
                    to
                }
                b'-' | b'0'..=b'9' => token::number(text, from)?.0,
                b'{' | b'[' => break,
                _ => token::literal(text, from)?,
            };
            if count == 0 {
                start = from;
            }
            (end, at) = (to, space(text, to));
            count += 1;
        }
        let is_new = count > 0 && !(end - start <= SHORT_RUN && self.is_repeated_run(node, array, start, end));
        if is_new {
            let depth = self.entries.element(outer).depth + 1;
            let entry = self.record(node, Kind::Null, start, end, Position(first));
            let entry = &mut self.entries.all[entry as usize];
            (entry.plain, entry.plain_length) = (IS_RUN, count);
            self.entries.runs.push(Run { first, element: ArrayElement { outer, array, depth, names } });
            self.entries.next_in_run += count;
        }
        let frame = &mut self.scratch.frames[top];
        frame.index = frame.index.saturating_add(count);
        Ok(at)
    }

    /// Whether a run, which is about to be recorded, has the text of an earlier run of its list; else remember it.
    fn is_repeated_run(&mut self, node: u32, array: u32, start: usize, end: usize) -> bool {
        let Scan { text, trie, entries, scratch, .. } = self;
        let raw = &text[start..end];
        let hash = trie.hash(u64::from(array) ^ u64::from(node), raw);
        let entry = entries.all.len() as u32;
        let place = scratch.remembered(hash, text.len());
        if (place.array, place.hash, place.is_run) == (array, hash, true) {
            let other = &entries.all[place.begun.entries as usize];
            if other.node == node && text[other.start as usize..other.end as usize] == *raw {
                return true;
            }
        }
        *place = Remembered {
            array,
            hash,
            is_run: true,
            begun: Begun { entries: entry, ..Begun::default() },
            ..Remembered::default()
        };
        scratch.remembered_count += 1;
        false
    }

    /// Drop the entries of an element if it repeats one that is remembered; else remember it.
    fn forget_repeated(&mut self, array: u32, begun: Begun) {
        let Scan { text, trie, entries, scratch, .. } = self;
        let (entries_end, elements_end) = (entries.all.len() as u32, entries.elements.len() as u32);
        let own = &entries.all[begun.entries as usize..];
        if own.is_empty() {
            return entries.elements.truncate(begun.elements as usize);
        }
        let mut hash = u64::from(array);
        for entry in own {
            if entry.node == DEAD {
                return;
            }
            let raw = &text[entry.start as usize..entry.end as usize];
            hash = trie.hash(hash ^ u64::from(entry.node), raw);
        }
        let run = Remembered { array, hash, is_run: false, begun, entries_end, elements_end };
        let place = *scratch.remembered(hash, text.len());
        if (place.array, place.hash, place.is_run) == (array, hash, false)
            && is_repeated(text, entries, &place, &run)
            && entries.take_back(begun.entries, &mut scratch.before)
        {
            entries.elements.truncate(begun.elements as usize);
            entries.plain.truncate(begun.plain as usize);
            entries.runs.truncate(begun.runs as usize);
        } else {
            *scratch.remembered(hash, text.len()) = run;
            scratch.remembered_count += 1;
        }
    }

    /// Read a scalar outside of arrays at a node that only the nodes below want: a number beyond float64 makes them unreadable.
    #[cold]
    fn parent(&mut self, node: u32, first: u8, at: usize) -> Result<usize> {
        if matches!(first, b'-' | b'0'..=b'9') && token::number(self.text, at)?.1 {
            return self.scalar(node, first, at, Position::NONE);
        }
        self.skip(at)
    }

    /// Read a scalar and record it.
    fn scalar(&mut self, node: u32, first: u8, at: usize, position: Position) -> Result<usize> {
        let text = self.text;
        match first {
            b'"' => {
                let (end, escaped) = self.strings.read(text, at)?;
                let entry = self.record(node, Kind::String, at, end, position);
                if escaped {
                    let from = self.entries.plain.len();
                    token::unescape(&text[at + 1..end - 1], &mut self.entries.plain);
                    let entry = &mut self.entries.all[entry as usize];
                    entry.plain = from as u32 + 1;
                    entry.plain_length = (self.entries.plain.len() - from) as u32;
                }
                Ok(end)
            }
            b'-' | b'0'..=b'9' => {
                let (end, beyond) = token::number(text, at)?;
                let is_beyond = beyond && Number::parse(&text[at..end]).is_none();
                self.entries.has_beyond |= is_beyond;
                self.record(node, if is_beyond { Kind::BeyondFloat } else { Kind::Number }, at, end, position);
                Ok(end)
            }
            _ => {
                let end = token::literal(text, at)?;
                self.record(node, if first == b'n' { Kind::Null } else { Kind::Bool }, at, end, position);
                Ok(end)
            }
        }
    }
}

/// Whether two elements of one list have the same values in the same places.
fn is_repeated(text: &[u8], entries: &Entries, one: &Remembered, other: &Remembered) -> bool {
    let values = |of: &Remembered| &entries.all[of.begun.entries as usize..of.entries_end as usize];
    let elements = |of: &Remembered| &entries.elements[of.begun.elements as usize..of.elements_end as usize];
    let raw = |entry: &Entry| &text[entry.start as usize..entry.end as usize];
    let position = |position: Position, of: &Remembered| position.0.wrapping_sub(of.begun.elements);
    let array = |array: u32, of: &Remembered| array.wrapping_sub(of.begun.serial);
    let place = |entry: &Entry, of: &Remembered| match entry.plain {
        IS_RUN => {
            let element = entries.run(entry.position).element;
            (position(element.outer, of), Some(array(element.array, of)))
        }
        _ => (position(entry.position, of), None),
    };
    let same_values = values(one).len() == values(other).len()
        && values(one)
            .iter()
            .zip(values(other))
            .all(|(left, right)| left.node == right.node && place(left, one) == place(right, other) && raw(left) == raw(right));
    same_values
        && elements(one).len() == elements(other).len()
        // The first is the element itself, of the same list.
        && elements(one).iter().zip(elements(other)).skip(1).all(|(left, right)| {
            position(left.outer, one) == position(right.outer, other) && array(left.array, one) == array(right.array, other)
        })
}
