//! Skip a value that is not wanted: checked to the letter, or only as far as to find its end.

use super::block::{self, Block64};
use super::numbers;
use super::token::{self, JsonFault, Result, Strings, peek, space};

/// Skip the value that begins at *at*, checking all of it. Returns the offset after it.
///
/// *depth* is how many containers enclose it, *open* is scratch. Accepts and rejects exactly as a full parse, in one loop.
pub(crate) fn checked(text: &[u8], mut at: usize, depth: usize, max_depth: usize, open: &mut Vec<u64>) -> Result<usize> {
    open.clear();
    let mut nesting = 0_usize;
    // One bit for each open container, the innermost lowest: whether it is an object. Further bits are in *open*.
    let mut objects = 0_u64;
    // Up to here lists are not tried as lists of numbers.
    let mut untried = 0;
    let mut strings = Strings::default();
    loop {
        // Here a value begins.
        match peek(text, at) {
            b'[' if at >= untried && numbers::is_likely(text, at) => {
                let room = max_depth.saturating_sub(depth + nesting);
                let read = numbers::checked(text, at, room);
                at = read.at;
                if !read.is_complete {
                    // From there on one by one, in as many lists as are open.
                    (0..read.open).for_each(|_| push(&mut objects, &mut nesting, open, false));
                    untried = read.untried;
                    continue;
                }
            }
            b'"' => at = strings.read(text, at)?.0,
            b'-' | b'0'..=b'9' => at = token::number(text, at)?.0,
            bracket @ (b'{' | b'[') => {
                if depth + nesting >= max_depth {
                    return Err(JsonFault::too_deep(at, max_depth));
                }
                at = space(text, at + 1);
                if peek(text, at) != bracket + 2 {
                    push(&mut objects, &mut nesting, open, bracket == b'{');
                    if bracket == b'{' {
                        at = name(&mut strings, text, at)?;
                    }
                    continue;
                }
                at += 1;
            }
            _ => at = token::literal(text, at)?,
        }
        // A value is complete: close each container that ends with it.
        loop {
            if nesting == 0 {
                return Ok(at);
            }
            at = space(text, at);
            let in_object = objects & 1 != 0;
            match peek(text, at) {
                b',' => {
                    at = space(text, at + 1);
                    if in_object {
                        at = name(&mut strings, text, at)?;
                    }
                    break;
                }
                b'}' if in_object => {}
                b']' if !in_object => {}
                _ => return Err(token::expected_more(text, at, in_object)),
            }
            at += 1;
            nesting -= 1;
            objects = if nesting.is_multiple_of(64) && nesting > 0 { open.pop().unwrap_or(0) } else { objects >> 1 };
        }
    }
}

/// Open one container more.
#[inline(always)]
fn push(objects: &mut u64, nesting: &mut usize, open: &mut Vec<u64>, is_object: bool) {
    if nesting.is_multiple_of(64) && *nesting > 0 {
        open.push(*objects);
    }
    *nesting += 1;
    *objects = *objects << 1 | u64::from(is_object);
}

/// Skip a member's name, its colon and white space.
#[inline(always)]
fn name(strings: &mut Strings, text: &[u8], at: usize) -> Result<usize> {
    if peek(text, at) != b'"' {
        return Err(token::expected_name(text, at));
    }
    let at = space(text, strings.read(text, at)?.0);
    if peek(text, at) != b':' {
        return Err(token::expected_colon(text, at));
    }
    Ok(space(text, at + 1))
}

/// Skip the value that begins at *at*, trusting it to be JSON. Returns the offset after it; never reads past the text.
///
/// A container is skipped 64 bytes a step: brackets of its own kind are counted outside of strings. For valid JSON the
/// result is its end, and for any other text some offset or an error.
pub(crate) fn trusted(text: &[u8], at: usize) -> Result<usize> {
    match peek(text, at) {
        b'"' => Ok(token::string(text, at)?.0),
        b'-' | b'0'..=b'9' => Ok(token::number(text, at)?.0),
        b'{' => container(text, at + 1, b'{', b'}'),
        b'[' => container(text, at + 1, b'[', b']'),
        _ => token::literal(text, at),
    }
}

/// Skip the rest of an object, from the end of a member's value on, trusting it to be JSON. Returns the offset after
/// it.
pub(crate) fn rest_of_object(text: &[u8], at: usize) -> Result<usize> {
    container(text, at, b'{', b'}')
}

const EVEN: u64 = 0x5555_5555_5555_5555;

fn container(text: &[u8], at: usize, open: u8, close: u8) -> Result<usize> {
    block::run(Container { text, at, open, close })
}

struct Container<'t> {
    text: &'t [u8],
    at: usize,
    open: u8,
    close: u8,
}

impl block::Loop for Container<'_> {
    type Output = Result<usize>;

    #[inline(always)]
    fn run<B: Block64>(self) -> Result<usize> {
        container_of::<B>(self.text, self.at, self.open, self.close)
    }
}

#[inline(always)]
fn container_of<B: Block64>(text: &[u8], mut at: usize, open: u8, close: u8) -> Result<usize> {
    let mut depth: usize = 1;
    let mut quotes = Quotes::default();
    loop {
        let Some(block) = block_at::<B>(text, at) else {
            return Err(JsonFault::malformed(text, text.len(), "a container does not end"));
        };
        let strings = quotes.strings(block);
        let closes = block.equal(close) & !strings;
        let opens = block.equal(open) & !strings;
        let mut rest = closes;
        while rest != 0 {
            let up_to = rest ^ (rest - 1); // up to and with the lowest close left
            if (closes & up_to).count_ones() as usize == depth + (opens & up_to).count_ones() as usize {
                return Ok(at + rest.trailing_zeros() as usize + 1);
            }
            rest &= rest - 1;
        }
        depth = depth + opens.count_ones() as usize - closes.count_ones() as usize;
        at += 64;
    }
}

/// Sixty-four bytes, at the end of the text with spaces behind it; None behind the end.
#[inline(always)]
fn block_at<B: Block64>(text: &[u8], at: usize) -> Option<B> {
    if let Some(bytes) = text.get(at..at + 64) {
        return Some(B::new(bytes.try_into().expect("64 bytes")));
    }
    let rest = text.get(at..).filter(|rest| !rest.is_empty())?;
    let mut padded = [b' '; 64];
    padded[..rest.len()].copy_from_slice(rest);
    Some(B::new(&padded))
}

/// Finds the strings of a text, block by block, from a place outside of strings on.
#[derive(Default)]
struct Quotes {
    /// All ones if the next block begins inside a string.
    in_string: u64,
    /// 1 if its first byte is escaped.
    escaped: u64,
}

impl Quotes {
    /// The bytes of a block that are inside strings.
    #[inline(always)]
    fn strings<B: Block64>(&mut self, block: B) -> u64 {
        let mut quotes = block.equal(b'"');
        let backslashes = block.equal(b'\\');
        if backslashes | self.escaped != 0 {
            quotes &= !escapes(backslashes, &mut self.escaped);
        }
        let strings = B::parity(quotes) ^ self.in_string;
        self.in_string = ((strings as i64) >> 63) as u64;
        strings
    }
}

/// The last member of an object that begins before *end*: the offset of the comma before it, or *at*, where the brace or
/// a comma of that object is. Trusts the text to be JSON.
pub(crate) fn last_member(text: &[u8], at: usize, end: usize) -> usize {
    block::run(LastMember { text: &text[..end], at })
}

struct LastMember<'t> {
    text: &'t [u8],
    at: usize,
}

impl block::Loop for LastMember<'_> {
    type Output = usize;

    #[inline(always)]
    fn run<B: Block64>(self) -> usize {
        let (mut last, mut at) = (self.at, self.at + 1);
        let mut depth: usize = 0;
        let mut quotes = Quotes::default();
        while let Some(block) = block_at::<B>(self.text, at) {
            let plain = !quotes.strings(block);
            let opens = (block.equal(b'{') | block.equal(b'[')) & plain;
            let closes = (block.equal(b'}') | block.equal(b']')) & plain;
            let mut marks = block.equal(b',') & plain;
            if opens | closes == 0 {
                // Of commas in a row only the last counts.
                marks = if depth == 0 { marks & 1_u64.rotate_right(1 + marks.leading_zeros()) } else { 0 };
            }
            marks |= opens | closes;
            while marks != 0 {
                let mark = marks & marks.wrapping_neg();
                if opens & mark != 0 {
                    depth += 1;
                } else if closes & mark == 0 {
                    last = if depth == 0 { at + marks.trailing_zeros() as usize } else { last };
                } else if depth == 0 {
                    return last;
                } else {
                    depth -= 1;
                }
                marks ^= mark;
            }
            at += 64;
        }
        last
    }
}

/// The bytes that a backslash escapes. *escaped* carries over from block to block. As simdjson finds them.
fn escapes(backslashes: u64, escaped: &mut u64) -> u64 {
    let backslashes = backslashes & !*escaped;
    let follows = backslashes << 1 | *escaped;
    let odd_starts = backslashes & !EVEN & !follows;
    let (even_ends, carry) = odd_starts.overflowing_add(backslashes);
    *escaped = u64::from(carry);
    (EVEN ^ (even_ends << 1)) & follows
}
