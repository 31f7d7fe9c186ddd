//! JSON text of plain Python values: equal to the text of the standard library's encoder, for values that JSON has.
//!
//! A value is plain if its types are exactly `dict`, `list`, `tuple`, `str`, `int`, `float`, `bool` and None. A
//! subclass may mean anything, so it is left to Python, as are all values that JSON does not have: Python finds the
//! fault, and its place.
//!
//! Cost: one pass, some 20 ns a value and its bytes. It does not run Python code, so other threads cannot change the
//! value meanwhile: an event's `default` is called afterwards, with the values that were left out.

use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyMapping, PyString, PyTuple};

/// A value nested deeper is left to Python: this recurses.
const MAX_DEPTH: usize = 128;

/// Why a value was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Python has to check it.
    NotPlain,
    /// All of it so far is plain, and too long.
    TooLong,
}

/// A value of a type that JSON does not have, and the place of its text.
struct Odd<'py> {
    value: Bound<'py, PyAny>,
    at: usize,
    depth: usize,
}

struct Writer<'py> {
    out: Vec<u8>,
    most: usize,
    /// Whether a tuple is written as a list.
    tuples: bool,
    /// In order, if *default* is called with them.
    odd: Option<Vec<Odd<'py>>>,
}

/// An argument of *default*, and its result or exception.
pub type Answer<'py> = (Bound<'py, PyAny>, Option<Bound<'py, PyAny>>, Option<Bound<'py, PyAny>>);

/// Write a plain value as compact JSON of at most *most* bytes.
pub fn write(value: &Bound<'_, PyAny>, most: usize) -> Result<Vec<u8>, Refused> {
    let mut writer = Writer { out: Vec::with_capacity(512), most, tuples: false, odd: None };
    writer.whole(value, 0)?;
    Ok(writer.out)
}

/// Write an event, in which a tuple is a list, and *default*, if there is one, converts values that JSON does not have.
///
/// *default* is called after all other values were found to be plain, with each value once, in their order. If Python
/// has to continue, *answers* has the calls that need not be repeated.
pub fn write_event<'py>(
    event: &Bound<'py, PyAny>,
    most: usize,
    default: impl FnOnce() -> PyResult<Bound<'py, PyAny>>,
    answers: &mut Vec<Answer<'py>>,
) -> PyResult<Result<Vec<u8>, Refused>> {
    let mut writer = Writer::of_event(Vec::with_capacity(512), most);
    let written = writer.whole(event, 0);
    Ok(match (written, &writer.odd) {
        (written, Some(odd)) if odd.is_empty() => written.map(|()| writer.out),
        (Ok(()), _) => {
            let default = default()?;
            if default.is_none() { Err(Refused::NotPlain) } else { writer.filled(&default, answers).ok_or(Refused::NotPlain) }
        }
        // *default* may refuse an earlier value.
        (Err(_), _) => Err(Refused::NotPlain),
    })
}

impl<'py> Writer<'py> {
    fn of_event(out: Vec<u8>, most: usize) -> Writer<'py> {
        Writer { out, most, tuples: true, odd: Some(Vec::new()) }
    }

    fn whole(&mut self, value: &Bound<'py, PyAny>, depth: usize) -> Result<(), Refused> {
        self.value(value, depth)?;
        self.within()
    }

    /// The text with that of odd values in it; None if Python has to continue. Recursive, at most [`MAX_DEPTH`] deep:
    /// an odd value whose result contains other odd values is a container.
    fn filled(self, default: &Bound<'py, PyAny>, answers: &mut Vec<Answer<'py>>) -> Option<Vec<u8>> {
        let Writer { out, most, odd, .. } = self;
        let odd = odd.unwrap_or_default();
        // A mapping is an object. This check may run Python code, so it comes when no container is walked.
        if odd.iter().any(|odd| odd.value.cast::<PyMapping>().is_ok()) {
            return None;
        }
        let mut whole = Writer::of_event(Vec::with_capacity(out.len() + 64 * odd.len()), most);
        let mut written = 0;
        for Odd { value, at, depth } in odd {
            whole.out.extend(&out[written..at]);
            written = at;
            let made = match default.call1((&value,)) {
                Ok(made) => made,
                Err(error) => {
                    answers.push((value, None, Some(error.into_value(default.py()).into_bound(default.py()).into_any())));
                    return None;
                }
            };
            answers.push((value, Some(made.clone()), None));
            let begin = whole.out.len();
            whole.value(&made, depth).ok()?;
            if let Some(inner) = whole.split_off(begin) {
                // Odd again: Python counts how often *default* may be called with its own result.
                let text = if inner.out.is_empty() { None } else { inner.filled(default, answers) }?;
                whole.out.extend(text);
            }
            if whole.out.len() + out.len() - written > most {
                return None;
            }
        }
        whole.out.extend(&out[written..]);
        Some(whole.out)
    }

    /// Split off the text from *begin* on, if there are odd values in it.
    fn split_off(&mut self, begin: usize) -> Option<Writer<'py>> {
        let mut odd = self.odd.as_mut().filter(|odd| !odd.is_empty()).map(std::mem::take)?;
        odd.iter_mut().for_each(|odd| odd.at -= begin);
        Some(Writer { out: self.out.split_off(begin), odd: Some(odd), ..*self })
    }

    fn within(&self) -> Result<(), Refused> {
        if self.out.len() <= self.most { Ok(()) } else { Err(Refused::TooLong) }
    }

    /// Recursive, at most [`MAX_DEPTH`] deep.
    fn value(&mut self, value: &Bound<'py, PyAny>, depth: usize) -> Result<(), Refused> {
        if let Ok(text) = value.cast_exact::<PyString>() {
            return self.text(text);
        }
        if let Ok(number) = value.cast_exact::<PyInt>() {
            return self.integer(number);
        }
        if let Ok(members) = value.cast_exact::<PyDict>() {
            return self.object(members, depth);
        }
        if let Ok(items) = value.cast_exact::<PyList>() {
            return self.array(items.iter(), depth);
        }
        if value.is_none() {
            self.out.extend(b"null");
        } else if let Ok(truth) = value.cast_exact::<PyBool>() {
            self.out.extend(if truth.is_true() { &b"true"[..] } else { b"false" });
        } else if let Ok(number) = value.cast_exact::<PyFloat>() {
            return self.float(number);
        } else if let Ok(items) = value.cast_exact::<PyTuple>()
            && self.tuples
        {
            return self.array(items.iter(), depth);
        } else {
            return self.odd(value, depth);
        }
        Ok(())
    }

    /// Leave room for a value of none of the types that JSON has; a subclass of one is Python's to read.
    fn odd(&mut self, value: &Bound<'py, PyAny>, depth: usize) -> Result<(), Refused> {
        let is_of_json = value.is_instance_of::<PyString>()
            || value.is_instance_of::<PyInt>()
            || value.is_instance_of::<PyFloat>()
            || value.is_instance_of::<PyDict>()
            || value.is_instance_of::<PyList>()
            || value.is_instance_of::<PyTuple>();
        match &mut self.odd {
            Some(odd) if !is_of_json && depth < MAX_DEPTH => {
                odd.push(Odd { value: value.clone(), at: self.out.len(), depth });
                Ok(())
            }
            _ => Err(Refused::NotPlain),
        }
    }

    fn object(&mut self, members: &Bound<'py, PyDict>, depth: usize) -> Result<(), Refused> {
        self.enter(b'{', depth)?;
        let begin = self.out.len();
        for (name, member) in members {
            if self.out.len() > begin {
                self.out.push(b',');
            }
            self.text(name.cast_exact().map_err(|_| Refused::NotPlain)?)?;
            // Check before its value is written, too: that may contain the value itself, under this name again.
            self.within()?;
            self.out.push(b':');
            self.value(&member, depth + 1)?;
            self.within()?;
        }
        self.out.push(b'}');
        Ok(())
    }

    fn array(&mut self, items: impl Iterator<Item = Bound<'py, PyAny>>, depth: usize) -> Result<(), Refused> {
        self.enter(b'[', depth)?;
        for (at, item) in items.enumerate() {
            if at > 0 {
                self.out.push(b',');
            }
            self.value(&item, depth + 1)?;
            self.within()?;
        }
        self.out.push(b']');
        Ok(())
    }

    fn enter(&mut self, bracket: u8, depth: usize) -> Result<(), Refused> {
        self.out.push(bracket);
        if depth < MAX_DEPTH { Ok(()) } else { Err(Refused::NotPlain) }
    }

    fn text(&mut self, text: &Bound<'_, PyString>) -> Result<(), Refused> {
        // Half a surrogate pair is not plain.
        let text = text.to_str().map_err(|_| Refused::NotPlain)?.as_bytes();
        if text.len() > self.most {
            return Err(Refused::TooLong);
        }
        self.out.push(b'"');
        let mut written = 0;
        for (at, byte) in text.iter().enumerate() {
            let short = match byte {
                b'"' | b'\\' => *byte,
                b'\n' => b'n',
                b'\r' => b'r',
                b'\t' => b't',
                8 => b'b',
                12 => b'f',
                0..0x20 => b'u',
                _ => continue,
            };
            self.out.extend(&text[written..at]);
            self.out.extend([b'\\', short]);
            if short == b'u' && *byte < 0x20 {
                self.out.extend(format!("{byte:04x}").as_bytes());
            }
            written = at + 1;
        }
        self.out.extend(&text[written..]);
        self.out.push(b'"');
        Ok(())
    }

    fn integer(&mut self, number: &Bound<'_, PyInt>) -> Result<(), Refused> {
        match number.extract::<i64>() {
            Ok(number) => self.digits(number.unsigned_abs(), number < 0),
            Err(error) if error.is_instance_of::<PyOverflowError>(number.py()) => {
                self.digits(number.extract::<u64>().map_err(|_| Refused::NotPlain)?, false);
            }
            Err(_) => return Err(Refused::NotPlain),
        }
        Ok(())
    }

    fn digits(&mut self, mut number: u64, is_negative: bool) {
        let mut digits = [0; 20];
        let mut at = digits.len();
        loop {
            at -= 1;
            digits[at] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                break;
            }
        }
        if is_negative {
            self.out.push(b'-');
        }
        self.out.extend(&digits[at..]);
    }

    /// As Python writes it: subscriptions with equal text are one.
    fn float(&mut self, number: &Bound<'_, PyFloat>) -> Result<(), Refused> {
        if !number.value().is_finite() {
            return Err(Refused::NotPlain);
        }
        let text = number.repr().map_err(|_| Refused::NotPlain)?;
        self.out.extend(text.to_str().map_err(|_| Refused::NotPlain)?.as_bytes());
        Ok(())
    }
}

/// Return the compact JSON text of a value that is made of `dict`, `list`, `str`, `int`, `float`, `bool` and None themselves.
///
/// Return None for a value of another type, one that JSON does not have or that is nested deep, and one of more than
/// *max_bytes*.
#[pyfunction]
pub fn plain_json<'py>(value: &Bound<'py, PyAny>, max_bytes: usize) -> Option<Bound<'py, PyBytes>> {
    write(value, max_bytes).ok().map(|text| PyBytes::new(value.py(), &text))
}
