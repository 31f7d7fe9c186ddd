//! CEL's extension libraries, as cel-go documents them: a file for each, with a table of its functions.
//!
//! A name with a dot is a function of a namespace, `math.abs(x)`; any other is called on a value, `x.trim()`. The tables of
//! `streamer/cel_eval/extensions` are the same.
//!
//! Invariant: an implementation gets only arguments whose types fit an overload of its row, neither errors nor unknown.
//! It charges its work, and the size of its result, before it does it.

mod encoders;
mod formatting;
mod lists;
mod numbers;
mod optionals;
mod sets;
mod strings;

use super::evaluate::{Result, Run};
use super::outcome::Reason;
use super::types::{Name, Overload};
use super::values::{Detail, Value};
pub(super) use optionals::{NONE, is_optional};

/// A function of an extension library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Extension {
    library: u8,
    row: u8,
}

/// What is known of one.
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) overloads: &'static [Overload],
    /// Whether it also takes two or more numbers.
    pub(super) takes_many: bool,
    call: Implementation,
}

type Implementation = for<'r> fn(&mut Run<'r>, &[Value<'r>]) -> Result<Value<'r>>;

const fn row(name: &'static str, overloads: &'static [Overload], call: Implementation) -> Row {
    Row { name, overloads, takes_many: false, call }
}

static LIBRARIES: [&[Row]; 6] = [strings::ROWS, encoders::ROWS, numbers::ROWS, sets::ROWS, lists::ROWS, optionals::ROWS];

impl Row {
    /// Whether it is a function of a namespace; a method otherwise.
    pub(super) fn is_function(&self) -> bool {
        self.name.contains('.')
    }

    /// Whether its arguments are evaluated only if the optional that it is called on has no value.
    pub(super) fn is_lazy(&self) -> bool {
        matches!(self.name, "or" | "orValue")
    }

    /// The overloads of methods or of functions.
    pub(super) fn overloads_if(&self, is_function: bool) -> Option<&'static [Overload]> {
        (self.is_function() == is_function).then_some(self.overloads)
    }
}

impl Extension {
    /// Look up a name.
    pub(super) fn of(name: &str) -> Option<Extension> {
        find(|known| known == name)
    }

    /// Look up the name of a function in a namespace.
    pub(super) fn of_namespace(namespace: &str, name: &str) -> Option<Extension> {
        find(|known| known.split_once('.') == Some((namespace, name)))
    }

    pub(super) fn row(self) -> &'static Row {
        &LIBRARIES[self.library as usize][self.row as usize]
    }
}

fn find(is_it: impl Fn(&str) -> bool) -> Option<Extension> {
    LIBRARIES.iter().enumerate().find_map(|(library, rows)| {
        let row = rows.iter().position(|row| is_it(row.name))?;
        Some(Extension { library: library as u8, row: row as u8 })
    })
}

/// The names of functions, or of methods.
pub(super) fn names(are_functions: bool) -> impl Iterator<Item = &'static str> {
    LIBRARIES.iter().copied().flatten().filter(move |row| row.is_function() == are_functions).map(|row| row.name)
}

impl<'r> Run<'r> {
    /// Call an extension with arguments that are neither errors nor unknown.
    pub(super) fn call_extension(&mut self, extension: Extension, args: &[Value<'r>]) -> Result<Value<'r>> {
        let row = extension.row();
        let fits =
            |params: &[Name]| params.len() == args.len() && params.iter().zip(args).all(|(param, arg)| takes(*param, *arg));
        let are_many = row.takes_many && args.len() > 1 && args.iter().all(|arg| takes(Name::Number, *arg));
        if are_many || row.overloads.iter().any(|(params, _)| fits(params)) {
            return (row.call)(self, args);
        }
        Ok(self.no_overload(row.name, args))
    }

    /// Count the work of sorting: a unit for each element, and the string work of all texts, for each bit of *count*.
    fn charge_sorting(&mut self, count: usize, bytes: usize) -> Result<()> {
        for _ in 0..usize::BITS - count.leading_zeros() {
            self.charge(count)?;
            self.charge_text(bytes)?;
        }
        Ok(())
    }

    fn bad_value(&self, words: &'static str) -> Value<'r> {
        self.fail(Reason::BadValue, Detail::Words(words))
    }

    fn out_of_range(&self, index: i64, size: usize, what: &'static str) -> Value<'r> {
        self.fail(Reason::IndexOutOfRange, Detail::IndexOf(index, what, size))
    }

    fn list_of(&self, items: &[Value<'r>]) -> Value<'r> {
        Value::List(self.arena.alloc_slice_copy(items))
    }
}

/// Arguments that fit no overload never reach an implementation.
fn unfit<'r>(run: &Run<'r>, args: &[Value<'r>]) -> Result<Value<'r>> {
    Ok(run.no_overload("a function", args))
}

/// Whether a parameter takes a value.
fn takes(param: Name, arg: Value<'_>) -> bool {
    matches!(
        (param, arg),
        (Name::Dyn, _)
            | (Name::Bool, Value::Bool(_))
            | (Name::Int, Value::Int(_))
            | (Name::Uint, Value::Uint(_))
            | (Name::Double, Value::Double(_))
            | (Name::Number, Value::Int(_) | Value::Uint(_) | Value::Double(_))
            | (Name::String, Value::String(_))
            | (Name::Bytes, Value::Bytes(_))
            | (Name::List, Value::List(_))
            | (Name::Map, Value::Map(_))
            | (Name::Optional, Value::Optional(_))
    )
}

/// The error of the first element that is unreadable.
fn unreadable<'r>(items: &[Value<'r>]) -> Option<Value<'r>> {
    items.iter().copied().find(|item| matches!(item, Value::Failure(_)))
}
