//! Messages of PostgreSQL's own output plugin, pgoutput, protocol version 1: binary, whole transactions in order of their
//! commits.
//!
//! ```text
//!   Begin   Relation orders: id int4 (key), note text   Insert   Update   Commit
//!     │                     │                              │        │
//!     └── its time ─────────┴── how a column is read ─────►▼        ▼
//!                                                     a change   a change; delete and insert where the key changed
//! ```
//!
//! Invariant: a [`Stream`] has the descriptions of the tables that its messages named so far, and the transaction that they
//! are in, so a message is read after all of those before it. `streamer.cdc.pgoutput` states the same in Python.
//!
//! For each column, a message has a text, null, or a mark that a large value did not change (TOAST). An update has the whole
//! old row (REPLICA IDENTITY FULL), only the old key, or no old row. A value that the message does not have is unknown; a row
//! that is only the old key has nulls for all other columns, which are unknown, too.
//!
//! Cost: descriptions stay in memory, within [`MOST_TABLES`] and [`MOST_BYTES`]; the values of a row are not copied.

use super::changes::{Change, Changes, Row};
use super::pg_values::PgType;
use super::text::{What, below, thousands};
use crate::error::{EventCode, EventError};
use crate::json;
use rapidhash::fast::RandomState;
use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Write;

pub(super) const WHAT: What = What("pgoutput");
/// 2000-01-01, from which PostgreSQL counts microseconds, in milliseconds since the Unix epoch.
const EPOCH: i128 = 946_684_800_000;
/// The most tables and types of a stream, and the most bytes of the messages that describe them.
const MOST_TABLES: usize = 100_000;
const MOST_BYTES: usize = 64 << 20;
/// The kinds of message that other protocol versions add.
const STREAMED: &[u8] = b"SEcAbPKrp";

/// The messages of one stream so far, as far as later ones need them.
#[derive(Debug, Default)]
pub(super) struct Stream {
    tables: HashMap<u32, Table, RandomState>,
    types: HashMap<u32, (PgType, usize), RandomState>,
    transaction: Option<Transaction>,
    /// The bytes of the messages that describe tables and types.
    bytes: usize,
}

#[derive(Clone, Copy, Debug)]
struct Transaction {
    /// In milliseconds since the epoch.
    ts: i128,
    xid: u32,
    /// The position of its commit in the log.
    lsn: u64,
}

#[derive(Debug)]
struct Table {
    /// `schema.table`.
    collection: String,
    /// `"schema":…,"table":…`.
    named: String,
    columns: Vec<Column>,
    /// The places of its key columns.
    key: Vec<usize>,
    bytes: usize,
}

#[derive(Debug)]
struct Column {
    name: Box<str>,
    /// Whether it is a part of the replica identity.
    is_key: bool,
    of: PgType,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ColumnValue<'m> {
    Null,
    /// The message does not have it.
    Unchanged,
    Text(&'m str),
}

/// A message that is read from its beginning.
struct Reader<'m> {
    message: &'m [u8],
    at: usize,
}

impl<'m> Reader<'m> {
    fn take(&mut self, count: usize) -> Result<&'m [u8], EventError> {
        let end = self.at.saturating_add(count);
        let bytes = self.message.get(self.at..end).ok_or_else(|| self.cut_off())?;
        self.at = end;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], EventError> {
        // It has that many bytes.
        Ok(self.take(N)?.try_into().unwrap_or([0; N]))
    }

    fn byte(&mut self) -> Result<u8, EventError> {
        self.array().map(|[byte]: [u8; 1]| byte)
    }

    fn u16(&mut self) -> Result<u16, EventError> {
        self.array().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Result<u32, EventError> {
        self.array().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Result<u64, EventError> {
        self.array().map(u64::from_be_bytes)
    }

    /// A text that a null byte ends.
    fn text(&mut self) -> Result<&'m str, EventError> {
        let length = self.message[self.at..].iter().position(|byte| *byte == 0).ok_or_else(|| self.cut_off())?;
        let text = self.utf8(length)?;
        self.at += 1;
        Ok(text)
    }

    fn utf8(&mut self, length: usize) -> Result<&'m str, EventError> {
        let from = self.at;
        let bad = |error: std::str::Utf8Error| wrong(EventCode::BadUtf8, from + error.valid_up_to(), "invalid UTF-8");
        std::str::from_utf8(self.take(length)?).map_err(bad)
    }

    /// The row of a table.
    fn row(&mut self, table: &Table) -> Result<Vec<ColumnValue<'m>>, EventError> {
        let from = self.at;
        let count = usize::from(self.u16()?);
        if count != table.columns.len() {
            let reason = format!("a row of {count} columns, but its table was described with {}", table.columns.len());
            return Err(wrong(EventCode::BadValue, from, &reason));
        }
        let mut row = Vec::with_capacity(count);
        for _ in 0..count {
            let from = self.at;
            row.push(match self.byte()? {
                b't' => {
                    let length = self.u32()? as usize;
                    ColumnValue::Text(self.utf8(length)?)
                }
                b'n' => ColumnValue::Null,
                b'u' => ColumnValue::Unchanged,
                b'b' => return Err(wrong(EventCode::BadValue, from, "a value is binary, which was not requested")),
                kind => {
                    let reason = format!("a value is byte {kind}, and n, t or u was expected");
                    return Err(wrong(EventCode::BadValue, from, &reason));
                }
            });
        }
        Ok(row)
    }

    #[cold]
    fn cut_off(&self) -> EventError {
        wrong(EventCode::BadValue, self.message.len(), "the message is cut off")
    }
}

#[cold]
fn wrong(code: EventCode, offset: usize, reason: &str) -> EventError {
    EventError::at(code, offset, format!("{}: {reason}", WHAT.0))
}

/// The bytes of a message that is given as they are, or in hex as `\x…`, which is how psql prints them.
pub(super) fn bytes_of(record: &[u8]) -> Result<Cow<'_, [u8]>, EventError> {
    let Some(digits) = hex_of(record) else { return Ok(Cow::Borrowed(record)) };
    let digit = |at: usize| digits.get(at).and_then(|digit| char::from(*digit).to_digit(16)).ok_or(at);
    let byte = |at: usize| Ok(u8::try_from(digit(at)? << 4 | digit(at + 1)?).unwrap_or_default());
    let bytes: Result<Vec<u8>, usize> = (0..digits.len()).step_by(2).map(byte).collect();
    bytes.map(Cow::Owned).map_err(|at| wrong(EventCode::BadValue, 2 + at, "expected a pair of hex digits"))
}

/// The hex digits of a message that is given in hex. No message begins with a backslash.
fn hex_of(record: &[u8]) -> Option<&[u8]> {
    record.strip_prefix(b"\\x").map(<[u8]>::trim_ascii_end)
}

/// The error of a message as that of the record that it was given in.
pub(super) fn in_record(record: &[u8], error: EventError) -> EventError {
    match hex_of(record) {
        Some(_) => EventError { offset: error.offset.map(|at| 2 + 2 * at), ..error },
        None => error,
    }
}

impl Stream {
    /// Read the next message.
    pub fn read(&mut self, message: &[u8], changes: &mut Changes) -> Result<(), EventError> {
        let mut reader = Reader { message, at: 0 };
        let kind = reader.byte()?;
        match kind {
            b'I' | b'U' | b'D' => return self.change(kind, &mut reader, changes),
            b'B' => {
                let (lsn, us, xid) = (reader.u64()?, i64::from_be_bytes(reader.array()?), reader.u32()?);
                self.transaction = Some(Transaction { ts: i128::from(us.div_euclid(1000)) + EPOCH, xid, lsn });
                changes.ignore("the begin of a transaction");
            }
            b'C' => {
                reader.take(1 + 8 + 8 + 8)?;
                self.transaction = None;
                changes.ignore("the commit of a transaction");
            }
            b'R' | b'Y' => {
                match kind {
                    b'R' => self.describe_table(&mut reader)?,
                    _ => self.describe_type(&mut reader)?,
                }
                changes.ignore("a description of a table or a type");
            }
            b'O' => changes.ignore("the origin of a transaction"),
            b'T' => changes.ignore("a truncate"),
            b'M' => changes.ignore("a message"), // of pg_logical_emit_message
            _ => {
                let of = if STREAMED.contains(&kind) { "of another protocol version; request version 1" } else { "unknown" };
                return Err(wrong(EventCode::WrongType, 0, &format!("a message that begins with byte {kind} is {of}")));
            }
        }
        Ok(())
    }

    fn change<'m>(&'m self, kind: u8, reader: &mut Reader<'m>, changes: &mut Changes) -> Result<(), EventError> {
        let relation = reader.u32()?;
        let Some(table) = self.tables.get(&relation) else {
            let reason = format!("a change of table {relation}, which no message described: read the stream from its beginning");
            return Err(wrong(EventCode::BadValue, 1, &reason));
        };
        let Some(transaction) = self.transaction else {
            let reason = "a change outside of a transaction: read the stream from its beginning";
            return Err(wrong(EventCode::BadValue, 0, reason));
        };
        let of = Of { kind, table, transaction };
        let mut mark = reader.byte()?;
        let mut old = None;
        if kind != b'I' && matches!(mark, b'K' | b'O') {
            let row = reader.row(table)?;
            old = Some(if mark == b'K' { table.key_alone(row) } else { row });
            mark = if kind == b'U' { reader.byte()? } else { b'N' };
        }
        if mark != b'N' || (kind == b'D' && old.is_none()) {
            let expected = if kind == b'D' { "K or O" } else { "N" };
            let reason = format!("expected a row, marked {expected}, not byte {mark}");
            return Err(wrong(EventCode::BadValue, reader.at - 1, &reason));
        }
        match (kind, old) {
            (b'D', Some(old)) => of.delete(&old, changes),
            (b'I', _) => of.insert(&reader.row(table)?, changes),
            (_, old) => of.update(reader.row(table)?, old, changes),
        }
    }

    fn describe_table(&mut self, reader: &mut Reader<'_>) -> Result<(), EventError> {
        let relation = reader.u32()?;
        let (schema, name) = (reader.text()?, reader.text()?);
        let identity = reader.byte()?;
        let count = reader.u16()?;
        let mut columns = Vec::new();
        for _ in 0..count {
            let is_key = reader.byte()? & 1 == 1;
            let name = reader.text()?.into();
            let oid = reader.u32()?;
            reader.take(4)?;
            let of = self.types.get(&oid).map_or_else(|| PgType::of(oid), |(of, _)| *of);
            columns.push(Column { name, is_key, of });
        }
        // FULL marks all columns, and does not show which ones are the key.
        let is_full = identity == b'f';
        let key = columns.iter().enumerate().filter(|(_, column)| column.is_key && !is_full).map(|(at, _)| at).collect();
        let schema = if schema.is_empty() { "pg_catalog" } else { schema };
        let mut named = String::from("\"schema\":");
        json::write_string(&mut named, schema);
        named.push_str(",\"table\":");
        json::write_string(&mut named, name);
        let bytes = reader.message.len();
        self.remember(self.tables.get(&relation).map(|table| table.bytes), bytes)?;
        self.tables.insert(relation, Table { collection: format!("{schema}.{name}"), named, columns, key, bytes });
        Ok(())
    }

    /// A type that is not built in; of a domain, the message names its base type.
    fn describe_type(&mut self, reader: &mut Reader<'_>) -> Result<(), EventError> {
        let oid = reader.u32()?;
        let (schema, name) = (reader.text()?, reader.text()?);
        let bytes = reader.message.len();
        self.remember(self.types.get(&oid).map(|(_, bytes)| *bytes), bytes)?;
        self.types.insert(oid, (PgType::named(schema, name), bytes));
        Ok(())
    }

    /// Make room for a description, in place of a *former* one.
    fn remember(&mut self, former: Option<usize>, bytes: usize) -> Result<(), EventError> {
        let all = self.bytes - former.unwrap_or(0) + bytes;
        let most = match former {
            None if self.tables.len() + self.types.len() >= MOST_TABLES => {
                format!("more than {} tables and types", thousands(MOST_TABLES))
            }
            _ if all > MOST_BYTES => format!("descriptions of tables of more than {} bytes together", thousands(MOST_BYTES)),
            _ => {
                self.bytes = all;
                return Ok(());
            }
        };
        Err(wrong(EventCode::TooLong, 0, &format!("{most}: publish fewer tables")))
    }
}

impl Table {
    /// A row of which only the key is carried.
    fn key_alone<'m>(&self, row: Vec<ColumnValue<'m>>) -> Vec<ColumnValue<'m>> {
        let columns = self.columns.iter().zip(row);
        columns.map(|(column, value)| if column.is_key { value } else { ColumnValue::Unchanged }).collect()
    }

    /// The values of a row that the message has.
    fn row<'m>(&'m self, row: &[ColumnValue<'m>], document: &str) -> Result<Row<'m>, EventError> {
        let mut members = Vec::with_capacity(row.len());
        for (column, value) in self.columns.iter().zip(row) {
            let value = match value {
                ColumnValue::Unchanged => continue,
                ColumnValue::Null => Cow::Borrowed("null"),
                ColumnValue::Text(text) => {
                    column.of.json(text).map_err(|fault| WHAT.error(fault.code, below(document, &column.name), &fault.reason))?
                }
            };
            members.push((Cow::Borrowed(&*column.name), value));
        }
        Ok(members)
    }

    /// The value of one key column as PostgreSQL writes it; a JSON array of several.
    fn key_of(&self, row: &[ColumnValue<'_>]) -> Option<String> {
        let text = |at: &usize| match row.get(*at) {
            Some(ColumnValue::Text(text)) => Some(*text),
            _ => None,
        };
        match &self.key[..] {
            [] => None,
            [one] => text(one).map(str::to_owned),
            several => {
                let json = |at: &usize| self.columns[*at].of.json(text(at)?).ok();
                several.iter().map(json).collect::<Option<Vec<_>>>().map(|values| format!("[{}]", values.join(",")))
            }
        }
    }
}

/// The message of a change.
#[derive(Clone, Copy)]
struct Of<'s> {
    kind: u8,
    table: &'s Table,
    transaction: Transaction,
}

impl<'s> Of<'s> {
    fn begun(&self, kind: &str, changes: &Changes) -> Change {
        let mut change = Change::new(kind, &self.table.collection, changes.wanted);
        let Transaction { ts, xid, lsn } = self.transaction;
        change.ts(Some(ts));
        if changes.wanted.envelope {
            let mut envelope = String::new();
            let (action, named) = (char::from(self.kind), &self.table.named);
            // Writing to a string cannot fail.
            _ = write!(
                envelope,
                r#"{{"action":"{action}",{named},"xid":{xid},"lsn":"{:X}/{:X}"}}"#,
                lsn >> 32,
                lsn & 0xffff_ffff
            );
            change.value("envelope", &envelope);
        }
        change
    }

    fn insert(&self, row: &[ColumnValue<'s>], changes: &mut Changes) -> Result<(), EventError> {
        let mut change = self.begun("insert", changes);
        change.row("data", &self.table.row(row, "/data")?);
        self.unchanged(row, &mut change);
        changes.push(change, || self.table.key_of(row))
    }

    fn delete(&self, old: &[ColumnValue<'s>], changes: &mut Changes) -> Result<(), EventError> {
        let mut change = self.begun("delete", changes);
        change.row("before", &self.table.row(old, "/before")?);
        changes.push(change, || self.table.key_of(old))
    }

    /// A delete and an insert if the key changed. Without *old*, it did not.
    fn update(
        &self,
        mut row: Vec<ColumnValue<'s>>,
        old: Option<Vec<ColumnValue<'s>>>,
        changes: &mut Changes,
    ) -> Result<(), EventError> {
        let old = match old {
            None => self.table.key_alone(row.clone()),
            Some(old) => {
                // The old row has the values that the new one marks as unchanged.
                row.iter_mut()
                    .zip(&old)
                    .filter(|(value, _)| **value == ColumnValue::Unchanged)
                    .for_each(|(value, old)| *value = *old);
                old
            }
        };
        if self.table.key.iter().any(|at| old[*at] != row[*at]) {
            self.delete(&old, changes)?;
            return self.insert(&row, changes);
        }
        let mut change = self.begun("update", changes);
        change.row("before", &self.table.row(&old, "/before")?);
        change.row("data", &self.table.row(&row, "/data")?);
        self.unchanged(&row, &mut change);
        changes.push(change, || self.table.key_of(&row))
    }

    /// Mark the values that a row does not have.
    fn unchanged(&self, row: &[ColumnValue<'_>], change: &mut Change) {
        let columns = self.table.columns.iter().zip(row).filter(|(_, value)| **value == ColumnValue::Unchanged);
        columns.for_each(|(column, _)| change.unknown("/data", &column.name));
    }
}
