//! The library encoders: base64 (RFC 4648), whose padding may be missing when it is decoded.

use super::super::evaluate::{Result, Run};
use super::super::types::Name::{Bytes, String};
use super::super::values::Value;
use super::{Row, row, unfit};
use crate::flatten::base64;

pub(super) const ROWS: &[Row] =
    &[row("base64.decode", &[(&[String], Bytes)], decode), row("base64.encode", &[(&[Bytes], String)], encode)];

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn encode<'r>(run: &mut Run<'r>, args: &[Value<'r>]) -> Result<Value<'r>> {
    let [Value::Bytes(bytes)] = *args else { return unfit(run, args) };
    run.charge_text(2 * bytes.len())?;
    let mut text = std::string::String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let bits = group.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for place in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * place) & 63) as usize];
            text.push(if place > group.len() { '=' } else { digit.into() });
        }
    }
    Ok(run.text(&text))
}

fn decode<'r>(run: &mut Run<'r>, args: &[Value<'r>]) -> Result<Value<'r>> {
    let [Value::String(text)] = *args else { return unfit(run, args) };
    run.charge_text(text.len())?;
    Ok(match decoded(text) {
        Some(bytes) => Value::Bytes(run.arena.alloc_slice_copy(&bytes)),
        None => run.bad_value("the text is not base64"),
    })
}

fn decoded(text: &str) -> Option<Vec<u8>> {
    let mut digits: Vec<u8> = text.bytes().filter(|byte| !matches!(byte, b'\r' | b'\n')).collect();
    let missing = digits.len().wrapping_neg() % 4;
    if missing == 3 || (missing > 0 && digits.contains(&b'=')) {
        return None;
    }
    digits.resize(digits.len() + missing, b'=');
    base64(&digits)
}
