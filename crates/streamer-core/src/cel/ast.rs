//! The syntax tree of a CEL expression, as written: macros are nodes of their own, never expanded.
//!
//! ```text
//!  data.a > 1 && !has(data.b)      nodes:  0 Ident data   1 Chain(0, [.a])   2 Literal 1   3 Operation(1, [> 2])
//!                                          4 Ident data   5 Has(4, b)        6 Unary(! 5)  7 Logic(&&, [3, 6])   root: 7
//! ```
//!
//! Chains are flat: `a && b && c` is one [`Node::Logic`], `1 + 2 - 3` one [`Node::Operation`], `a.b[0].c()` one
//! [`Node::Chain`], `a ? b : c ? d : e` one [`Node::Ternary`]. So a tree is only as deep as its brackets, calls, unary
//! operators and ternaries, which the parser limits, and every walk over a parsed tree may recurse.
//!
//! Nodes are numbers into one arena, so to drop a tree of any depth is a loop. Each node is inside one other at most; the
//! variables of macros, read as names, are nodes inside none.
//!
//! The nodes are those of the reference (`streamer/cel_eval/tree.py`), one to one: cost is counted by node, and both
//! sides count alike. After the check every [`Ident`](Node::Ident) has its meaning and no function is [`Function::Unknown`].

use super::extensions::Extension;
use std::ops::Index;

/// A node of an [`Ast`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

/// A syntax tree.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ast {
    nodes: Vec<Node>,
    /// The byte offset in the source at which errors show each node.
    at: Vec<u32>,
    root: u32,
}

impl Ast {
    /// Put in a node, all of whose parts are in.
    pub fn push(&mut self, at: u32, node: Node) -> NodeId {
        // A source has at most 2^32 bytes, and each node takes one.
        self.nodes.push(node);
        self.at.push(at);
        NodeId(self.nodes.len() as u32 - 1)
    }

    /// The outermost node.
    pub fn root(&self) -> NodeId {
        NodeId(self.root)
    }

    /// The byte offset in the source at which errors show a node: that of the first operator of an operation, of the
    /// `?` of a ternary, of the base of a chain, and of the beginning of any other node.
    pub fn at(&self, id: NodeId) -> u32 {
        self.at[id.0 as usize]
    }

    /// How many nodes there are.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// All nodes, each after all of its parts.
    pub(super) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    pub(super) fn set_root(&mut self, root: NodeId) {
        self.root = root.0;
    }

    pub(super) fn get_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id.0 as usize]
    }
}

impl Index<NodeId> for Ast {
    type Output = Node;

    fn index(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }
}

/// One node.
#[derive(Clone, Debug, PartialEq)]
pub enum Node {
    /// A literal; the sign next to a number belongs to it.
    Literal(Constant),
    /// A name.
    Ident {
        /// As written.
        name: Box<str>,
        /// With a leading dot: never the variable of a macro.
        rooted: bool,
        /// Its meaning.
        meaning: Meaning,
    },
    /// `( )`: free of cost.
    Paren(NodeId),
    /// `?value` in a list, or after the key of a map: left out if the optional has no value.
    OptionalItem(NodeId),
    /// `cel.bind(name, value, result)`.
    Bind {
        /// The variable.
        name: Box<str>,
        /// Its [`Meaning::Local`].
        slot: u32,
        /// Its value.
        value: NodeId,
        /// The expression over it.
        result: NodeId,
    },
    /// `[..]`.
    List(Box<[NodeId]>),
    /// `{..}`: keys and values.
    Map(Box<[(NodeId, NodeId)]>),
    /// `!` or `-`, written *count* times, at least once.
    Unary {
        /// Which.
        op: UnaryOp,
        /// How often.
        count: u32,
        /// The operand.
        operand: NodeId,
    },
    /// Operators of one precedence, from left to right: relations, `+ -`, or `* / %`.
    Operation {
        /// The leftmost operand.
        first: NodeId,
        /// The operators, at least one, each with its right operand.
        rest: Box<[Operation]>,
    },
    /// `&&` or `||` of two operands or more.
    Logic {
        /// Which.
        op: LogicOp,
        /// From left to right.
        operands: Box<[NodeId]>,
    },
    /// `condition ? then : ...`, the branches in order, then the result if every condition is false.
    Ternary {
        /// At least one.
        branches: Box<[Branch]>,
        /// The result if every condition is false.
        otherwise: NodeId,
    },
    /// `f(..)`.
    Call {
        /// The function; its name is at the node's offset.
        function: Function,
        /// The arguments.
        args: Box<[NodeId]>,
    },
    /// `has(target.name)`.
    Has {
        /// The message or map.
        target: NodeId,
        /// Which field.
        name: Box<str>,
    },
    /// A value and the steps applied to it, in order.
    Chain {
        /// The value.
        base: NodeId,
        /// From left to right. Empty only if the steps were the name of a type, such as `google.protobuf.Timestamp`.
        steps: Vec<Step>,
    },
}

impl Node {
    /// Whether the children of the node are one level deeper.
    pub fn is_level(&self) -> bool {
        !matches!(self, Node::Literal(_) | Node::Ident { .. } | Node::Operation { .. } | Node::Logic { .. } | Node::Chain { .. })
    }

    /// Visit the direct children, in order of the text; for a chain only the base, its steps have their own.
    pub fn each_child(&self, mut visit: impl FnMut(NodeId)) {
        match self {
            Node::Literal(_) | Node::Ident { .. } => {}
            Node::Paren(inner) | Node::OptionalItem(inner) => visit(*inner),
            Node::Bind { value, result, .. } => {
                visit(*value);
                visit(*result);
            }
            Node::List(items) => items.iter().copied().for_each(visit),
            Node::Map(entries) => entries.iter().for_each(|(key, value)| {
                visit(*key);
                visit(*value);
            }),
            Node::Unary { operand, .. } => visit(*operand),
            Node::Operation { first, rest } => {
                visit(*first);
                rest.iter().for_each(|operation| visit(operation.operand));
            }
            Node::Logic { operands, .. } => operands.iter().copied().for_each(visit),
            Node::Ternary { branches, otherwise } => {
                for branch in branches {
                    visit(branch.condition);
                    visit(branch.then);
                }
                visit(*otherwise);
            }
            Node::Call { args, .. } => args.iter().copied().for_each(visit),
            Node::Has { target, .. } => visit(*target),
            Node::Chain { base, .. } => visit(*base),
        }
    }
}

/// A literal value.
#[derive(Clone, Debug, PartialEq)]
pub enum Constant {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// `1`, `-1`, `0xF`.
    Int(i64),
    /// `1u`.
    Uint(u64),
    /// `1.0`; finite.
    Double(f64),
    /// `"a"`, unescaped.
    String(Box<str>),
    /// `b"a"`, unescaped.
    Bytes(Box<[u8]>),
}

/// The meaning of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Meaning {
    /// Unresolved so far.
    Unresolved,
    /// A part of the event.
    Variable(Variable),
    /// The variable of a macro, by the number of macro variables around it.
    Local(u32),
    /// A type as a value.
    Type(TypeName),
}

/// A part of the event, as an expression sees it (semantics.md section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Variable {
    /// The document: a map or null.
    Data,
    /// The document before the change: a map or null.
    Before,
    /// A string.
    Collection,
    /// A string.
    Tenant,
    /// A string.
    Type,
    /// A string.
    Topic,
    /// A timestamp or null.
    Ts,
    /// The record without its documents: a map or null.
    Envelope,
}

impl Variable {
    /// All, in the order in which they are listed.
    pub const ALL: [Variable; 8] = [
        Variable::Data,
        Variable::Before,
        Variable::Collection,
        Variable::Tenant,
        Variable::Type,
        Variable::Topic,
        Variable::Ts,
        Variable::Envelope,
    ];

    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Variable::Data => "data",
            Variable::Before => "before",
            Variable::Collection => "collection",
            Variable::Tenant => "tenant",
            Variable::Type => "type",
            Variable::Topic => "topic",
            Variable::Ts => "ts",
            Variable::Envelope => "envelope",
        }
    }
}

/// A type as a value, such as `int` or the result of `type(data.a)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TypeName {
    /// `bool`.
    Bool,
    /// `int`.
    Int,
    /// `uint`.
    Uint,
    /// `double`.
    Double,
    /// `string`.
    String,
    /// `bytes`.
    Bytes,
    /// `list`.
    List,
    /// `map`.
    Map,
    /// `null_type`.
    Null,
    /// `type`.
    Type,
    /// `google.protobuf.Timestamp`.
    Timestamp,
    /// `google.protobuf.Duration`.
    Duration,
    /// `optional_type`.
    Optional,
}

impl TypeName {
    /// All of them.
    pub const ALL: [TypeName; 13] = [
        TypeName::Bool,
        TypeName::Int,
        TypeName::Uint,
        TypeName::Double,
        TypeName::String,
        TypeName::Bytes,
        TypeName::List,
        TypeName::Map,
        TypeName::Null,
        TypeName::Type,
        TypeName::Timestamp,
        TypeName::Duration,
        TypeName::Optional,
    ];

    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            TypeName::Bool => "bool",
            TypeName::Int => "int",
            TypeName::Uint => "uint",
            TypeName::Double => "double",
            TypeName::String => "string",
            TypeName::Bytes => "bytes",
            TypeName::List => "list",
            TypeName::Map => "map",
            TypeName::Null => "null_type",
            TypeName::Type => "type",
            TypeName::Timestamp => "google.protobuf.Timestamp",
            TypeName::Duration => "google.protobuf.Duration",
            TypeName::Optional => "optional_type",
        }
    }
}

/// `!` or `-`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnaryOp {
    /// `!`.
    Not,
    /// `-`.
    Negate,
}

/// `&&` or `||`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LogicOp {
    /// `&&`.
    And,
    /// `||`.
    Or,
}

/// An operator between two values that evaluates both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BinaryOp {
    /// `==`.
    Equal,
    /// `!=`.
    NotEqual,
    /// `<`.
    Less,
    /// `<=`.
    LessOrEqual,
    /// `>`.
    Greater,
    /// `>=`.
    GreaterOrEqual,
    /// `in`.
    In,
    /// `+`.
    Add,
    /// `-`.
    Subtract,
    /// `*`.
    Multiply,
    /// `/`.
    Divide,
    /// `%`.
    Remainder,
}

impl BinaryOp {
    /// As it is written.
    pub const fn symbol(self) -> &'static str {
        match self {
            BinaryOp::Equal => "==",
            BinaryOp::NotEqual => "!=",
            BinaryOp::Less => "<",
            BinaryOp::LessOrEqual => "<=",
            BinaryOp::Greater => ">",
            BinaryOp::GreaterOrEqual => ">=",
            BinaryOp::In => "in",
            BinaryOp::Add => "+",
            BinaryOp::Subtract => "-",
            BinaryOp::Multiply => "*",
            BinaryOp::Divide => "/",
            BinaryOp::Remainder => "%",
        }
    }
}

/// One operator of an [`Node::Operation`] and its right operand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Operation {
    /// The offset of the operator.
    pub at: u32,
    /// Which.
    pub op: BinaryOp,
    /// The right operand.
    pub operand: NodeId,
}

/// One branch of a [`Node::Ternary`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Branch {
    /// The offset of its `?`.
    pub at: u32,
    /// Before the `?`.
    pub condition: NodeId,
    /// After it.
    pub then: NodeId,
}

/// One step of a [`Node::Chain`].
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// `.name`, also quoted.
    Select {
        /// The offset of the name.
        at: u32,
        /// Which field.
        name: Box<str>,
    },
    /// `[key]`.
    Index {
        /// The offset of the bracket.
        at: u32,
        /// The index or key.
        key: NodeId,
    },
    /// `.?name`.
    OptionalSelect {
        /// The offset of the name.
        at: u32,
        /// Which field.
        name: Box<str>,
    },
    /// `[?key]`.
    OptionalIndex {
        /// The offset of the bracket.
        at: u32,
        /// The index or key.
        key: NodeId,
    },
    /// `.f(..)`.
    Method {
        /// The offset of the name.
        at: u32,
        /// Which.
        function: Function,
        /// The arguments, without the value before the dot.
        args: Box<[NodeId]>,
    },
    /// `.all(x, ..)` and the like.
    Macro(Box<Macro>),
}

impl Step {
    /// The byte offset in the source at which errors show the step.
    pub fn at(&self) -> u32 {
        match self {
            Step::Select { at, .. } | Step::Index { at, .. } | Step::Method { at, .. } => *at,
            Step::OptionalSelect { at, .. } | Step::OptionalIndex { at, .. } => *at,
            Step::Macro(step) => step.at,
        }
    }

    /// Visit the direct children, in order of the text.
    pub fn each_child(&self, mut visit: impl FnMut(NodeId)) {
        match self {
            Step::Select { .. } | Step::OptionalSelect { .. } => {}
            Step::Index { key, .. } | Step::OptionalIndex { key, .. } => visit(*key),
            Step::Method { args, .. } => args.iter().copied().for_each(visit),
            Step::Macro(step) => step.condition.into_iter().chain(step.result).for_each(visit),
        }
    }
}

/// A macro over the value before it.
#[derive(Clone, Debug, PartialEq)]
pub struct Macro {
    /// The offset of its name.
    pub at: u32,
    /// Which.
    pub kind: MacroKind,
    /// One variable (element of a list, key of a map) or two (index and element, key and value), each with its offset.
    pub names: Box<[(u32, Box<str>)]>,
    /// Filters elements before the result is computed; `None`: every element passes.
    pub condition: Option<NodeId>,
    /// Computed from an element; `None`: the macro has no result.
    pub result: Option<NodeId>,
    /// The [`Meaning::Local`] of the first variable; the second, if any, is the next.
    pub slot: u32,
}

/// Which macro.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MacroKind {
    /// `all`.
    All,
    /// `exists`.
    Exists,
    /// `exists_one`, also written `existsOne`.
    ExistsOne,
    /// `filter`.
    Filter,
    /// `map`.
    Map,
    /// `transformList`.
    TransformList,
    /// `transformMap`.
    TransformMap,
    /// `sortBy`.
    SortBy,
    /// `optMap`.
    OptMap,
    /// `optFlatMap`.
    OptFlatMap,
}

/// A function or method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "each is the function of its name")]
pub enum Function {
    Size,
    Contains,
    StartsWith,
    EndsWith,
    Matches,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Bool,
    Timestamp,
    Duration,
    Type,
    Dyn,
    GetFullYear,
    GetMonth,
    GetDate,
    GetDayOfMonth,
    GetDayOfWeek,
    GetDayOfYear,
    GetHours,
    GetMinutes,
    GetSeconds,
    GetMilliseconds,
    Extension(Extension),
    /// Any other name: the checker refuses it.
    Unknown,
}

impl Function {
    /// Look up a name; [`Function::Unknown`] if there is none such.
    pub fn of(name: &str) -> Function {
        match name {
            "size" => Function::Size,
            "contains" => Function::Contains,
            "startsWith" => Function::StartsWith,
            "endsWith" => Function::EndsWith,
            "matches" => Function::Matches,
            "int" => Function::Int,
            "uint" => Function::Uint,
            "double" => Function::Double,
            "string" => Function::String,
            "bytes" => Function::Bytes,
            "bool" => Function::Bool,
            "timestamp" => Function::Timestamp,
            "duration" => Function::Duration,
            "type" => Function::Type,
            "dyn" => Function::Dyn,
            "getFullYear" => Function::GetFullYear,
            "getMonth" => Function::GetMonth,
            "getDate" => Function::GetDate,
            "getDayOfMonth" => Function::GetDayOfMonth,
            "getDayOfWeek" => Function::GetDayOfWeek,
            "getDayOfYear" => Function::GetDayOfYear,
            "getHours" => Function::GetHours,
            "getMinutes" => Function::GetMinutes,
            "getSeconds" => Function::GetSeconds,
            "getMilliseconds" => Function::GetMilliseconds,
            _ => Extension::of(name).map_or(Function::Unknown, Function::Extension),
        }
    }
}
