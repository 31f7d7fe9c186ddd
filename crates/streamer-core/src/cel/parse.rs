//! Text -> syntax tree, with errors that state line, column and expectation.
//!
//! ```text
//!   a + b * (c        operands: a b c      ops: + * | (empty yet)        frames: Top  Paren
//!            ^ then `)`: c is done, Paren becomes a node; then the end: `*` takes b and (c), `+` takes a and that
//! ```
//!
//! Operator precedence with stacks of its own: no text makes it recurse. A run of operators of one precedence becomes one
//! flat node when an operator that binds weaker, or the end of the brackets, arrives. Time and memory are linear in the text.
//!
//! The choice among several errors follows the reference, an LALR(1) parser. An error in a name, literal or call is
//! reported once the token after it could follow some value.

use super::ast::UnaryOp;
use super::ast::{Ast, BinaryOp, Branch, Constant, Function, LogicOp, Macro, MacroKind, Meaning, Node, NodeId, Operation, Step};
use super::depth::check_tree;
use super::error::{Error, shown};
use super::extensions::Extension;
use super::frames::{Ending, Frame, Op, Pending, spelled};
use super::hints::hint;
use super::lexer::{Lexeme, Lexer, Place, Token, Unreadable};
use super::literals;
use crate::limits::Limits;

type Result<T> = std::result::Result<T, Error>;

const RESERVED: [&str; 17] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// Parse an expression.
///
/// # Errors
///
/// The text is not CEL, is longer than `limits.max_cel_bytes`, or is deeper than `limits.max_cel_depth` levels of
/// brackets, calls, unary operators and ternaries.
pub fn parse(source: &str, limits: &Limits) -> Result<Ast> {
    let (length, limit) = (source.len(), limits.max_cel_bytes);
    if length > limit || u32::try_from(length).is_err() {
        return Err(Error::at(source, 0, format!("an expression of {length} bytes; at most {limit} are allowed")));
    }
    let mut parser = Parser {
        source,
        lexer: Lexer::new(source),
        ahead: None,
        ast: Ast::default(),
        operands: Vec::new(),
        pending: Vec::new(),
        frames: vec![Frame::Top],
        ending: Ending::Nothing,
        beyond_int: Vec::new(),
    };
    parser.expression()?;
    let root = parser.pop();
    parser.ast.set_root(root);
    check_tree(&parser.ast, &parser.beyond_int, limits.max_cel_depth).or_else(|(at, reason)| parser.error(at, reason))?;
    Ok(parser.ast)
}

struct Parser<'s> {
    source: &'s str,
    lexer: Lexer<'s>,
    /// A token that was looked at after a value.
    ahead: Option<Lexeme>,
    ast: Ast,
    operands: Vec<NodeId>,
    pending: Vec<Pending>,
    frames: Vec<Frame>,
    ending: Ending,
    /// Int literals out of range, which are reported once the whole text is known to be CEL.
    beyond_int: Vec<NodeId>,
}

impl<'s> Parser<'s> {
    fn error<T>(&self, at: u32, reason: impl Into<String>) -> Result<T> {
        Err(Error::at(self.source, at, reason))
    }

    fn text(&self, lexeme: Lexeme) -> &'s str {
        &self.source[lexeme.start as usize..lexeme.end as usize]
    }

    fn pop(&mut self) -> NodeId {
        // Every operator and bracket finds its operands: each operand is pushed before its operator.
        self.operands.pop().unwrap_or(NodeId(0))
    }

    fn pop_many(&mut self, count: usize) -> Box<[NodeId]> {
        self.operands.split_off(self.operands.len().saturating_sub(count)).into()
    }

    fn push(&mut self, at: u32, node: Node) -> NodeId {
        let id = self.ast.push(at, node);
        self.operands.push(id);
        id
    }

    // --- tokens

    fn next(&mut self, place: Place, expected: impl FnOnce(&Self) -> String) -> Result<Lexeme> {
        if let Some(lexeme) = self.ahead.take() {
            return Ok(lexeme);
        }
        match self.lexer.next(place) {
            Ok(lexeme) => Ok(lexeme),
            Err(Unreadable::NotClosed(error)) => Err(error),
            Err(Unreadable::Character { at, shown }) => {
                let meant = hint(self.source, at).unwrap_or_else(|| format!("expected {}", expected(self)));
                self.error(at, format!("unexpected `{shown}`; {meant}"))
            }
        }
    }

    fn unexpected<T>(&self, lexeme: Lexeme, expected: &str) -> Result<T> {
        match lexeme.token {
            Token::End => self.error(self.source.len() as u32, format!("the expression ends too early; expected {expected}")),
            _ => {
                let meant = hint(self.source, lexeme.start).unwrap_or_else(|| format!("expected {expected}"));
                self.error(lexeme.start, format!("unexpected `{}`; {meant}", shown(self.text(lexeme))))
            }
        }
    }

    /// The tokens that could close, or continue, the innermost brackets.
    fn closers(&self) -> &'static str {
        let open = self.frames.iter().rev().find(|frame| !matches!(frame, Frame::Else { .. }));
        match open {
            Some(Frame::Paren { .. }) => "`)`",
            Some(Frame::List { .. }) => "`,` or `]`",
            Some(Frame::Map { count, .. }) if count % 2 == 0 => "`:`",
            Some(Frame::Map { .. }) => "`,` or `}`",
            Some(Frame::Index { .. }) => "`]`",
            Some(Frame::Args { .. }) => "`)` or `,`",
            Some(Frame::Then { .. }) => "`:`",
            _ => "the end",
        }
    }

    /// The tokens that can follow a value here.
    fn after_value(&self) -> String {
        format!("an operator or {}", self.closers())
    }

    /// Read the token after a value: it must be one that can follow some value.
    fn follow(&mut self) -> Result<Lexeme> {
        let lexeme = self.next(Place::Operator, Parser::after_value)?;
        match lexeme.token {
            Token::Binary(_) | Token::And | Token::Or | Token::Question | Token::Colon | Token::Comma | Token::Dot => {}
            Token::CloseParen | Token::OpenBracket | Token::CloseBracket | Token::CloseBrace | Token::End => {}
            _ => return self.unexpected(lexeme, &self.after_value()),
        }
        self.ahead = Some(lexeme);
        Ok(lexeme)
    }

    // --- the machine

    fn expression(&mut self) -> Result<()> {
        while !self.frames.is_empty() {
            self.operand()?;
            while !self.frames.is_empty() && !self.operator()? {}
        }
        Ok(())
    }

    /// Read up to and with a value, signs and opening brackets before it. Brackets that close at once are one.
    fn operand(&mut self) -> Result<()> {
        let mut sign = None;
        loop {
            let place = if sign == Some(UnaryOp::Negate) { Place::Negated } else { Place::Operand };
            let lexeme = self.next(place, Parser::value)?;
            let at = lexeme.start;
            match lexeme.token {
                Token::Not if sign != Some(UnaryOp::Negate) => {
                    self.sign(UnaryOp::Not, sign.is_some(), at);
                    sign = Some(UnaryOp::Not);
                    continue;
                }
                Token::Binary(BinaryOp::Subtract) if sign != Some(UnaryOp::Not) => {
                    self.sign(UnaryOp::Negate, sign.is_some(), at);
                    sign = Some(UnaryOp::Negate);
                    continue;
                }
                Token::Question if sign.is_none() && self.starts_optional(at) => {
                    self.ending = Ending::Nothing;
                    continue;
                }
                Token::OpenParen => self.open(Frame::Paren { at }, Ending::Nothing),
                Token::OpenBracket => {
                    self.open(Frame::List { at, count: 0, optional: None }, Ending::CommaOr(Token::CloseBracket))
                }
                Token::OpenBrace => self.open(Frame::Map { at, count: 0, optional: None }, Ending::CommaOr(Token::CloseBrace)),
                Token::Ident => {
                    if !self.name(lexeme, false)? {
                        return Ok(());
                    }
                }
                Token::Dot => {
                    let name = self.next(Place::Name, |_| "a name".into())?;
                    if name.token != Token::Ident {
                        return self.unexpected(name, "a name");
                    }
                    if !self.name(name, true)? {
                        return Ok(());
                    }
                }
                Token::Comma if matches!(self.ending, Ending::CommaOr(_)) => {
                    // `[,]` and `{,}`.
                    if let Ending::CommaOr(closer) = self.ending {
                        let lexeme = self.next(Place::Operator, |_| spelled(closer).into())?;
                        if lexeme.token != closer {
                            return self.unexpected(lexeme, spelled(closer));
                        }
                    }
                    return self.finish();
                }
                token if self.ending == Ending::CommaOr(token) || self.ending == Ending::Only(token) => {
                    return self.finish();
                }
                _ => return if self.literal(lexeme)? { Ok(()) } else { self.unexpected(lexeme, &self.value()) },
            }
            sign = None;
        }
    }

    /// Note a `?` before an item, an entry or a key, if one may stand here.
    fn starts_optional(&mut self, at: u32) -> bool {
        let is_first = self.pending.last().is_some_and(|last| last.op == Op::Fence);
        match self.frames.last_mut() {
            Some(Frame::Map { count, .. }) if *count % 2 == 1 => false,
            Some(Frame::List { optional, .. } | Frame::Map { optional, .. } | Frame::Index { optional, .. })
                if is_first && optional.is_none() =>
            {
                *optional = Some(at);
                true
            }
            _ => false,
        }
    }

    /// Complete an item or entry, which may begin with `?`.
    fn end_item(&mut self) {
        if let Some(Frame::List { optional, .. } | Frame::Map { optional, .. }) = self.frames.last_mut()
            && let Some(at) = optional.take()
        {
            let inner = self.pop();
            self.push(at, Node::OptionalItem(inner));
        }
    }

    /// The tokens that are expected at the place of a value.
    fn value(&self) -> String {
        match self.ending {
            Ending::Nothing => "a value".into(),
            Ending::Only(closer) => format!("a value or {}", spelled(closer)),
            Ending::CommaOr(closer) => format!("a value or `,` or {}", spelled(closer)),
        }
    }

    fn open(&mut self, frame: Frame, ending: Ending) {
        self.ending = ending;
        self.frames.push(frame);
        self.pending.push(Pending { op: Op::Fence, at: 0 });
    }

    fn sign(&mut self, op: UnaryOp, again: bool, at: u32) {
        self.ending = Ending::Nothing;
        if let Some(Pending { op: Op::Unary(_, count, last), .. }) = self.pending.last_mut().filter(|_| again) {
            *count += 1;
            *last = at;
        } else {
            self.pending.push(Pending { op: Op::Unary(op, 1, at), at });
        }
    }

    /// Read a name; return true if it is a call, whose arguments follow.
    fn name(&mut self, name: Lexeme, rooted: bool) -> Result<bool> {
        let ahead = self.next(Place::Operator, Parser::after_value)?;
        if ahead.token == Token::OpenParen {
            self.open(Frame::Args { name, method: false, count: 0 }, Ending::Only(Token::CloseParen));
            return Ok(true);
        }
        self.ahead = Some(ahead);
        self.follow()?;
        let text = self.text(name);
        if RESERVED.contains(&text) {
            return self.error(name.start, format!("`{text}` is a reserved word"));
        }
        self.push(name.start, Node::Ident { name: text.into(), rooted, meaning: Meaning::Unresolved });
        Ok(false)
    }

    /// Read a literal; return false if the token is another one.
    fn literal(&mut self, lexeme: Lexeme) -> Result<bool> {
        let (text, at) = (self.text(lexeme), lexeme.start);
        if !matches!(
            lexeme.token,
            Token::Int | Token::Uint | Token::Double | Token::String(_) | Token::True | Token::False | Token::Null
        ) {
            return Ok(false);
        }
        self.follow()?;
        let constant = match lexeme.token {
            Token::Int => {
                let (negative, at) = self.take_minus().map_or((false, at), |at| (true, at));
                let value = literals::magnitude(text).map(i128::from).map(|value| if negative { -value } else { value });
                let in_range = value.and_then(|value| i64::try_from(value).ok());
                let id = self.push(at, Node::Literal(Constant::Int(in_range.unwrap_or(0))));
                if in_range.is_none() {
                    self.beyond_int.push(id);
                }
                return Ok(true);
            }
            Token::Double => {
                let value: f64 = text.parse().unwrap_or(f64::INFINITY);
                if value.is_infinite() {
                    return self.error(at, "the number is beyond double");
                }
                let (value, at) = self.take_minus().map_or((value, at), |at| (-value, at));
                self.push(at, Node::Literal(Constant::Double(value)));
                return Ok(true);
            }
            Token::Uint => match literals::magnitude(&text[..text.len() - 1]) {
                Some(value) => Constant::Uint(value),
                None => return self.error(at, "a uint is at most 18446744073709551615"),
            },
            Token::String(quotes) => literals::string(self.source, at, text, quotes)?,
            Token::Null => Constant::Null,
            token => Constant::Bool(token == Token::True),
        };
        self.push(at, Node::Literal(constant));
        Ok(true)
    }

    /// Remove the minus before a number, which belongs to it: otherwise the smallest int could not be written. Return
    /// its offset.
    fn take_minus(&mut self) -> Option<u32> {
        let Some(Pending { op: Op::Unary(UnaryOp::Negate, count, last), .. }) = self.pending.last_mut() else { return None };
        let at = *last;
        *count -= 1;
        if *count == 0 {
            self.pending.pop();
        }
        Some(at)
    }

    /// Read the token after a value; return true if an operand must come next.
    fn operator(&mut self) -> Result<bool> {
        let lexeme = self.next(Place::Operator, Parser::after_value)?;
        let at = lexeme.start;
        let op = match lexeme.token {
            Token::Dot => return self.member(),
            Token::OpenBracket => {
                self.open(Frame::Index { at, optional: None }, Ending::Nothing);
                return Ok(true);
            }
            Token::And => Op::Logic(LogicOp::And),
            Token::Or => Op::Logic(LogicOp::Or),
            Token::Binary(op) => Op::Binary(op),
            Token::Question | Token::Colon | Token::Comma => return self.divide(lexeme),
            Token::CloseParen | Token::CloseBracket | Token::CloseBrace | Token::End => {
                self.close(lexeme)?;
                return Ok(false);
            }
            _ => return self.unexpected(lexeme, &self.after_value()),
        };
        self.reduce(op.binds());
        self.pending.push(Pending { op, at });
        self.ending = Ending::Nothing;
        Ok(true)
    }

    /// Read a field or a method, after the dot behind a value; return true if arguments follow.
    fn member(&mut self) -> Result<bool> {
        let mut name = self.next(Place::Name, |_| "the name of a field".into())?;
        let is_optional = name.token == Token::Question;
        if is_optional {
            name = self.next(Place::Name, |_| "the name of a field".into())?;
        }
        let text = match name.token {
            Token::Ident if is_optional => self.text(name),
            Token::Ident => {
                let ahead = self.next(Place::Operator, Parser::after_value)?;
                if ahead.token == Token::OpenParen {
                    self.open(Frame::Args { name, method: true, count: 0 }, Ending::Only(Token::CloseParen));
                    return Ok(true);
                }
                self.ahead = Some(ahead);
                self.text(name)
            }
            Token::Quoted => &self.text(name)[1..(name.end - name.start) as usize - 1],
            _ => return self.unexpected(name, "the name of a field"),
        };
        self.follow()?;
        let (at, name) = (name.start, text.into());
        self.step(if is_optional { Step::OptionalSelect { at, name } } else { Step::Select { at, name } });
        Ok(false)
    }

    /// Make nodes of the operators that bind stronger than *binds*, down to the brackets.
    fn reduce(&mut self, binds: u8) {
        while let Some(last) = self.pending.last().copied().filter(|last| last.op.binds() > binds) {
            if let Op::Unary(op, count, _) = last.op {
                self.pending.pop();
                let operand = self.pop();
                self.push(last.at, Node::Unary { op, count, operand });
                continue;
            }
            let run = self.pending.iter().rev().take_while(|other| other.op.binds() == last.op.binds()).count();
            let run = self.pending.split_off(self.pending.len() - run);
            let operands = self.pop_many(run.len() + 1);
            let node = match last.op {
                Op::Logic(op) => Node::Logic { op, operands },
                _ => Node::Operation {
                    first: operands[0],
                    rest: run
                        .iter()
                        .zip(&operands[1..])
                        .filter_map(|(pending, operand)| match pending.op {
                            Op::Binary(op) => Some(Operation { at: pending.at, op, operand: *operand }),
                            _ => None,
                        })
                        .collect(),
                },
            };
            self.push(run[0].at, node);
        }
    }

    /// `?`, `:` or `,`: a value is done and another follows, or brackets close after a comma.
    fn divide(&mut self, lexeme: Lexeme) -> Result<bool> {
        self.reduce(0);
        self.ending = Ending::Nothing;
        let at = lexeme.start;
        match (lexeme.token, self.frames.last()) {
            (Token::Question | Token::Comma, Some(Frame::Then { .. })) => return self.unexpected(lexeme, "`:`"),
            (Token::Question, _) => {
                self.open(Frame::Then { at }, Ending::Nothing);
                return Ok(true);
            }
            (Token::Colon, Some(Frame::Then { at })) => {
                let at = *at;
                self.leave();
                let then = self.pop();
                let branch = Branch { at, condition: self.pop(), then };
                match self.frames.last_mut() {
                    Some(Frame::Else { branches }) => branches.push(branch),
                    _ => self.open(Frame::Else { branches: vec![branch] }, Ending::Nothing),
                }
                return Ok(true);
            }
            _ => self.end_ternary(),
        }
        match (lexeme.token, self.frames.last_mut()) {
            (Token::Colon, Some(Frame::Map { count, .. })) if *count % 2 == 0 => *count += 1,
            (Token::Comma, Some(Frame::Args { count, .. })) => *count += 1,
            (Token::Comma, Some(Frame::List { count, .. })) => {
                *count += 1;
                self.end_item();
                self.ending = Ending::Only(Token::CloseBracket);
            }
            (Token::Comma, Some(Frame::Map { count, .. })) if *count % 2 == 1 => {
                *count += 1;
                self.end_item();
                self.ending = Ending::Only(Token::CloseBrace);
            }
            _ => return self.unexpected(lexeme, self.closers()),
        }
        Ok(true)
    }

    /// A closing bracket or the end, after a value.
    fn close(&mut self, lexeme: Lexeme) -> Result<()> {
        self.reduce(0);
        self.end_ternary();
        match (lexeme.token, self.frames.last_mut()) {
            (Token::End, Some(Frame::Top)) => {}
            (Token::CloseParen, Some(Frame::Paren { .. })) | (Token::CloseBracket, Some(Frame::Index { .. })) => {}
            (Token::CloseParen, Some(Frame::Args { count, .. })) | (Token::CloseBracket, Some(Frame::List { count, .. })) => {
                *count += 1;
            }
            (Token::CloseBrace, Some(Frame::Map { count, .. })) if *count % 2 == 1 => *count += 1,
            _ => return self.unexpected(lexeme, self.closers()),
        }
        self.end_item();
        self.finish()
    }

    /// If a ternary ends here, make its node.
    fn end_ternary(&mut self) {
        if let Some(Frame::Else { branches }) = self.frames.last_mut() {
            let branches = std::mem::take(branches);
            self.leave();
            let otherwise = self.pop();
            self.push(branches[0].at, Node::Ternary { branches: branches.into(), otherwise });
        }
    }

    fn leave(&mut self) -> Option<Frame> {
        self.pending.pop();
        self.frames.pop()
    }

    /// Make a node of the innermost brackets, all of whose operands are done.
    fn finish(&mut self) -> Result<()> {
        match self.leave() {
            Some(Frame::Paren { at }) => {
                let inner = self.pop();
                self.push(at, Node::Paren(inner));
            }
            Some(Frame::List { at, count, .. }) => {
                let items = self.pop_many(count);
                self.push(at, Node::List(items));
            }
            Some(Frame::Map { at, count, .. }) => {
                let parts = self.pop_many(count);
                let entries = parts.chunks_exact(2).map(|entry| (entry[0], entry[1])).collect();
                self.push(at, Node::Map(entries));
            }
            Some(Frame::Index { at, optional }) => {
                let key = self.pop();
                self.step(if optional.is_some() { Step::OptionalIndex { at, key } } else { Step::Index { at, key } });
            }
            Some(Frame::Args { name, method, count }) => {
                self.follow()?;
                let args = self.pop_many(count);
                if let Some(extension) = self.namespaced(name).filter(|_| method) {
                    let namespace = self.pop();
                    let function = Function::Extension(extension);
                    self.push(self.ast.at(namespace), Node::Call { function, args });
                } else if method && self.is_bind(name) {
                    self.bind(&args)?;
                } else if method {
                    let step = match self.macro_step(name, &args)? {
                        Some(step) => Step::Macro(Box::new(step)),
                        None => Step::Method { at: name.start, function: Function::of(self.text(name)), args },
                    };
                    self.step(step);
                } else {
                    self.call(name, args)?;
                }
            }
            Some(Frame::Top | Frame::Then { .. } | Frame::Else { .. }) | None => {}
        }
        Ok(())
    }

    /// The extension that a name means after the last value, which may be its namespace: `math.abs`.
    fn namespaced(&self, name: Lexeme) -> Option<Extension> {
        let Node::Ident { name: namespace, .. } = &self.ast[*self.operands.last()?] else { return None };
        Extension::of_namespace(namespace, self.text(name))
    }

    fn is_bind(&self, name: Lexeme) -> bool {
        let last = self.operands.last().map(|last| &self.ast[*last]);
        self.text(name) == "bind" && matches!(last, Some(Node::Ident { name, .. }) if &**name == "cel")
    }

    fn bind(&mut self, args: &[NodeId]) -> Result<()> {
        let namespace = self.pop();
        let at = self.ast.at(namespace);
        let [name, value, result] = *args else {
            return self.error(at, "cel.bind() takes a name, its value and an expression, as in cel.bind(x, data.a, x > 1)");
        };
        let Node::Ident { name, rooted: false, .. } = &self.ast[name] else {
            let words = "cel.bind() takes the name of a variable here, as in cel.bind(x, data.a, x > 1)";
            return self.error(self.ast.at(name), words);
        };
        let name = name.clone();
        self.push(at, Node::Bind { name, slot: 0, value, result });
        Ok(())
    }

    // --- nodes

    /// Put a step behind the last value.
    fn step(&mut self, step: Step) {
        let target = self.pop();
        if let Node::Chain { steps, .. } = self.ast.get_mut(target) {
            steps.push(step);
            self.operands.push(target);
        } else {
            let at = self.ast.at(target);
            self.push(at, Node::Chain { base: target, steps: vec![step] });
        }
    }

    fn call(&mut self, name: Lexeme, args: Box<[NodeId]>) -> Result<()> {
        let text = self.text(name);
        let ("has", [target]) = (text, &args[..]) else {
            self.push(name.start, Node::Call { function: Function::of(text), args });
            return Ok(());
        };
        let mut target = *target;
        let Node::Chain { base, steps } = self.ast.get_mut(target) else { return self.no_field(target) };
        let Some(Step::Select { name: field, .. }) = steps.pop_if(|step| matches!(step, Step::Select { .. })) else {
            return self.no_field(target);
        };
        if steps.is_empty() {
            target = *base;
        }
        self.push(name.start, Node::Has { target, name: field });
        Ok(())
    }

    fn no_field<T>(&self, target: NodeId) -> Result<T> {
        self.error(self.ast.at(target), "has() tests a field of something, as in has(data.a)")
    }

    /// The macro with this name and number of arguments, if it exists.
    fn macro_step(&self, name: Lexeme, args: &[NodeId]) -> Result<Option<Macro>> {
        let text = self.text(name);
        let (kind, variables) = match (text, args.len()) {
            ("all", 2 | 3) => (MacroKind::All, args.len() - 1),
            ("exists", 2 | 3) => (MacroKind::Exists, args.len() - 1),
            ("exists_one" | "existsOne", 2 | 3) => (MacroKind::ExistsOne, args.len() - 1),
            ("filter", 2) => (MacroKind::Filter, 1),
            ("map", 2 | 3) => (MacroKind::Map, 1),
            ("transformList", 3 | 4) => (MacroKind::TransformList, 2),
            ("transformMap", 3 | 4) => (MacroKind::TransformMap, 2),
            ("sortBy", 2) => (MacroKind::SortBy, 1),
            ("optMap", 2) => (MacroKind::OptMap, 1),
            ("optFlatMap", 2) => (MacroKind::OptFlatMap, 1),
            _ => return Ok(None),
        };
        let (variables, parts) = args.split_at(variables);
        let mut names: Vec<(u32, Box<str>)> = Vec::with_capacity(variables.len());
        for variable in variables {
            let at = self.ast.at(*variable);
            let Node::Ident { name: variable, rooted: false, .. } = &self.ast[*variable] else {
                return self.error(at, format!("{text}() takes the name of a variable here, as in list.{text}(x, ...)"));
            };
            names.push((at, variable.clone()));
        }
        if let [(_, one), (at, other)] = &names[..]
            && one == other
        {
            return self.error(*at, format!("the two variables of {text}() need different names"));
        }
        let tests = matches!(kind, MacroKind::All | MacroKind::Exists | MacroKind::ExistsOne | MacroKind::Filter);
        let (condition, result) = match parts {
            [condition, result] => (Some(*condition), Some(*result)),
            [result] if !tests => (None, Some(*result)),
            [condition] => (Some(*condition), None),
            _ => (None, None),
        };
        Ok(Some(Macro { at: name.start, kind, names: names.into(), condition, result, slot: 0 }))
    }
}
