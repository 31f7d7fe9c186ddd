//! Static types of expressions, as far as the checker infers them, and the overloads of operators and functions.

use super::ast::{BinaryOp, Function, UnaryOp, Variable};
use std::fmt;

/// A type without its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Name {
    Dyn,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Null,
    Type,
    Timestamp,
    Duration,
    List,
    Map,
    Optional,
    /// A parameter of any type of number.
    Number,
}

/// A type; a list has one parameter, a map two. *nullable*: the value may also be null.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Type {
    pub name: Name,
    pub nullable: bool,
    pub params: Params,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Params {
    None,
    List(Box<Type>),
    Map(Box<(Type, Type)>),
}

/// The depth to which the type of a list in a list in a list... is inferred; the rest is `dyn`. A chain of macros is
/// one level of the source, however deep its result is, and types are compared by recursion.
const MAX_DEPTH: usize = 16;

pub(super) const DYN: Type = Type::of(Name::Dyn);
pub(super) const BOOL: Type = Type::of(Name::Bool);
pub(super) const OPTIONAL: Type = Type::of(Name::Optional);
pub(super) const INT: Type = Type::of(Name::Int);
pub(super) const NULL: Type = Type::of(Name::Null);

impl Type {
    pub(super) const fn of(name: Name) -> Type {
        Type { name, nullable: false, params: Params::None }
    }

    pub(super) fn list(element: Type) -> Type {
        Type { params: Params::List(Box::new(element.bounded())), ..Type::of(Name::List) }
    }

    pub(super) fn map(key: Type, value: Type) -> Type {
        Type { params: Params::Map(Box::new((key, value.bounded()))), ..Type::of(Name::Map) }
    }

    /// The type of a variable of the event.
    pub(super) fn of_variable(variable: Variable) -> Type {
        match variable {
            Variable::Data | Variable::Before | Variable::Envelope => {
                Type { nullable: true, ..Type::map(Type::of(Name::String), DYN) }
            }
            Variable::Ts => Type { nullable: true, ..Type::of(Name::Timestamp) },
            _ => Type::of(Name::String),
        }
    }

    fn bounded(self) -> Type {
        if self.depth() < MAX_DEPTH { self } else { DYN }
    }

    fn depth(&self) -> usize {
        1 + match &self.params {
            Params::None => 0,
            Params::List(element) => element.depth(),
            Params::Map(entry) => entry.0.depth().max(entry.1.depth()),
        }
    }

    /// The type that a step with a key leads to.
    pub(super) fn value(self) -> Type {
        match self.params {
            Params::None => DYN,
            Params::List(element) => *element,
            Params::Map(entry) => entry.1,
        }
    }

    /// The type that `in` compares with: the elements of a list, the keys of a map.
    pub(super) fn member(self) -> Type {
        match self.params {
            Params::None => DYN,
            Params::List(element) => *element,
            Params::Map(entry) => entry.0,
        }
    }

    pub(super) fn is_numeric(&self) -> bool {
        self.name.is_numeric() && !self.nullable
    }

    fn may_be_null(&self) -> bool {
        // cel-spec allows null for a timestamp or a duration, which are messages elsewhere.
        self.nullable || matches!(self.name, Name::Null | Name::Timestamp | Name::Duration)
    }
}

impl Name {
    pub(super) const fn is_numeric(self) -> bool {
        matches!(self, Name::Int | Name::Uint | Name::Double)
    }

    /// Whether its values have an order.
    pub(super) const fn is_ordered(self) -> bool {
        self.is_numeric() || matches!(self, Name::Bool | Name::String | Name::Bytes | Name::Timestamp | Name::Duration)
    }

    const fn as_str(self) -> &'static str {
        match self {
            Name::Dyn => "dyn",
            Name::Bool => "bool",
            Name::Int => "int",
            Name::Uint => "uint",
            Name::Double => "double",
            Name::String => "string",
            Name::Bytes => "bytes",
            Name::Null => "null_type",
            Name::Type => "type",
            Name::Timestamp => "google.protobuf.Timestamp",
            Name::Duration => "google.protobuf.Duration",
            Name::List => "list",
            Name::Map => "map",
            Name::Optional => "optional_type",
            Name::Number => "number",
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name.as_str())?;
        match &self.params {
            Params::None => {}
            Params::List(element) => write!(f, "({element})")?,
            Params::Map(entry) => write!(f, "({}, {})", entry.0, entry.1)?,
        }
        f.write_str(if self.nullable { " or null" } else { "" })
    }
}

/// The type that takes in both, if any: `1` and `'a'` have none, and neither have `1` and `1.0`.
pub(super) fn join(one: &Type, other: &Type) -> Option<Type> {
    if *one == DYN || *other == DYN {
        return Some(DYN);
    }
    if *one == NULL || *other == NULL {
        let kind = if *one == NULL { other } else { one };
        return kind.may_be_null().then(|| Type { nullable: *kind != NULL, ..kind.clone() });
    }
    let params = match (&one.params, &other.params) {
        _ if one.name != other.name => return None,
        (Params::List(one), Params::List(other)) => Params::List(Box::new(join(one, other)?)),
        (Params::Map(one), Params::Map(other)) => Params::Map(Box::new((join(&one.0, &other.0)?, join(&one.1, &other.1)?))),
        _ => Params::None,
    };
    Some(Type { name: one.name, nullable: one.nullable || other.nullable, params })
}

/// The type of the elements of a literal: `dyn` if they differ.
pub(super) fn join_elements(types: impl IntoIterator<Item = Type>) -> Type {
    types.into_iter().reduce(|one, other| join(&one, &other).unwrap_or(DYN)).unwrap_or(DYN)
}

/// Whether equality of the two is a sensible question: one type, or numbers of any kind, also inside containers.
pub(super) fn comparable(one: &Type, other: &Type) -> bool {
    if *one == DYN || *other == DYN || (one.is_numeric() && other.is_numeric()) {
        return true;
    }
    if *one == NULL || *other == NULL {
        return if *one == NULL { other } else { one }.may_be_null();
    }
    one.name == other.name
        && match (&one.params, &other.params) {
            (Params::List(one), Params::List(other)) => comparable(one, other),
            (Params::Map(one), Params::Map(other)) => comparable(&one.0, &other.0) && comparable(&one.1, &other.1),
            _ => true,
        }
}

// --- overloads

/// Parameters and result.
pub(super) type Overload = (&'static [Name], Name);

use Name::{Bool, Bytes, Double, Duration, Dyn, Int, List, Map, String, Timestamp, Uint};

pub(super) const fn of_binary(op: BinaryOp) -> &'static [Overload] {
    match op {
        BinaryOp::Add => &[
            (&[Int, Int], Int),
            (&[Uint, Uint], Uint),
            (&[Double, Double], Double),
            (&[String, String], String),
            (&[Bytes, Bytes], Bytes),
            (&[Duration, Duration], Duration),
            (&[Timestamp, Duration], Timestamp),
            (&[Duration, Timestamp], Timestamp),
            (&[List, List], List),
        ],
        BinaryOp::Subtract => &[
            (&[Int, Int], Int),
            (&[Uint, Uint], Uint),
            (&[Double, Double], Double),
            (&[Duration, Duration], Duration),
            (&[Timestamp, Timestamp], Duration),
            (&[Timestamp, Duration], Timestamp),
        ],
        BinaryOp::Multiply | BinaryOp::Divide => &[(&[Int, Int], Int), (&[Uint, Uint], Uint), (&[Double, Double], Double)],
        BinaryOp::Remainder => &[(&[Int, Int], Int), (&[Uint, Uint], Uint)],
        _ => &[],
    }
}

pub(super) const fn of_unary(op: UnaryOp) -> &'static [Overload] {
    match op {
        UnaryOp::Not => &[(&[Bool], Bool)],
        UnaryOp::Negate => &[(&[Int], Int), (&[Double], Double)],
    }
}

const SIZE: &[Overload] = &[(&[String], Int), (&[Bytes], Int), (&[List], Int), (&[Map], Int)];
const TEXTS: &[Overload] = &[(&[String, String], Bool)];

pub(super) fn of_function(function: Function) -> Option<&'static [Overload]> {
    Some(match function {
        Function::Size => SIZE,
        Function::Matches => TEXTS,
        Function::Int => &[(&[Int], Int), (&[Uint], Int), (&[Double], Int), (&[String], Int), (&[Timestamp], Int)],
        Function::Uint => &[(&[Uint], Uint), (&[Int], Uint), (&[Double], Uint), (&[String], Uint)],
        Function::Double => &[(&[Double], Double), (&[Int], Double), (&[Uint], Double), (&[String], Double)],
        Function::String => &[
            (&[String], String),
            (&[Bool], String),
            (&[Int], String),
            (&[Uint], String),
            (&[Double], String),
            (&[Bytes], String),
            (&[Timestamp], String),
            (&[Duration], String),
        ],
        Function::Bytes => &[(&[Bytes], Bytes), (&[String], Bytes)],
        Function::Bool => &[(&[Bool], Bool), (&[String], Bool)],
        Function::Timestamp => &[(&[Timestamp], Timestamp), (&[String], Timestamp), (&[Int], Timestamp)],
        Function::Duration => &[(&[Duration], Duration), (&[String], Duration)],
        Function::Type => &[(&[Dyn], Name::Type)],
        Function::Dyn => &[(&[Dyn], Dyn)],
        Function::Extension(extension) => extension.row().overloads_if(true)?,
        _ => return None,
    })
}

pub(super) fn of_method(function: Function) -> Option<&'static [Overload]> {
    use Function::*;
    Some(match function {
        Size => SIZE,
        Contains => &[(&[Name::String, Name::String], Name::Bool), (&[List, Name::Dyn], Name::Bool)],
        StartsWith | EndsWith | Matches => TEXTS,
        GetFullYear | GetMonth | GetDate | GetDayOfMonth | GetDayOfWeek | GetDayOfYear => {
            &[(&[Name::Timestamp], Name::Int), (&[Name::Timestamp, Name::String], Name::Int)]
        }
        GetHours | GetMinutes | GetSeconds | GetMilliseconds => {
            &[(&[Name::Timestamp], Name::Int), (&[Name::Timestamp, Name::String], Name::Int), (&[Name::Duration], Name::Int)]
        }
        Extension(extension) => extension.row().overloads_if(false)?,
        _ => return None,
    })
}

/// The type of the result: `None` if *args* fit no overload, `dyn` if it depends on the type of a `dyn`.
pub(super) fn resolve(overloads: &[Overload], args: &[Type]) -> Option<Type> {
    let takes = |param: &Name, arg: &Type| *param == Name::Dyn || arg.name == Name::Dyn || *param == arg.name;
    let mut results = overloads
        .iter()
        .filter(|(params, _)| params.len() == args.len() && params.iter().zip(args).all(|(param, arg)| takes(param, arg)))
        .map(|(_, result)| *result);
    let first = results.next()?;
    Some(match if results.all(|result| result == first) { first } else { Name::Dyn } {
        Name::List => Type::list(DYN),
        name => Type::of(name),
    })
}
