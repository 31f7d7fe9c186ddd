//! Trees of a few expressions, and the places of errors; `tests/differential/test_cel_front_end.py` compares the rest with the
//! reference.

use super::ast::{BinaryOp, Constant, LogicOp, Meaning, Node, Step, UnaryOp, Variable};
use super::{Program, compile};
use crate::limits::Limits;

fn program(source: &str) -> Program {
    compile(source, &Limits::default()).unwrap_or_else(|error| panic!("{source}: {error}"))
}

fn refused(source: &str) -> String {
    compile(source, &Limits::default()).map_or_else(|error| error.to_string(), |_| panic!("{source} is accepted"))
}

#[test]
fn chains_are_flat_and_names_resolved() {
    let program = program("data.a.b[0] > 1 && !has(before.x) && !!true");
    let Node::Logic { op: LogicOp::And, operands } = &program.ast[program.ast.root()] else { panic!("{program:?}") };
    let [one, two, three] = operands[..] else { panic!("{operands:?}") };
    let Node::Operation { first, rest } = &program.ast[one] else { panic!("{one:?}") };
    assert_eq!(rest[0].op, BinaryOp::Greater);
    let Node::Chain { base, steps } = &program.ast[*first] else { panic!("{first:?}") };
    assert!(matches!(&program.ast[*base], Node::Ident { meaning: Meaning::Variable(Variable::Data), .. }));
    assert!(matches!(&steps[..], [Step::Select { .. }, Step::Select { name, .. }, Step::Index { .. }] if &**name == "b"));
    assert!(matches!(program.ast[two], Node::Unary { op: UnaryOp::Not, count: 1, .. }));
    assert!(matches!(program.ast[three], Node::Unary { op: UnaryOp::Not, count: 2, .. }));
    assert!(program.mentions_before());
}

#[test]
fn a_sign_belongs_to_the_number_next_to_it() {
    let program = program("--9223372036854775808 == -1.5");
    let Node::Operation { first, rest } = &program.ast[program.ast.root()] else { panic!("{program:?}") };
    let Node::Unary { op: UnaryOp::Negate, count: 1, operand } = program.ast[*first] else { panic!("{first:?}") };
    assert_eq!(program.ast[operand], Node::Literal(Constant::Int(i64::MIN)));
    assert_eq!(program.ast[rest[0].operand], Node::Literal(Constant::Double(-1.5)));
}

#[test]
fn variables_of_macros_have_slots() {
    let program = program("data.l.all(x, x.exists(i, y, y > i) && x != [])");
    assert_eq!(program.slots, 3);
    let Node::Chain { steps, .. } = &program.ast[program.ast.root()] else { panic!("{program:?}") };
    let [Step::Select { .. }, Step::Macro(all)] = &steps[..] else { panic!("{steps:?}") };
    assert_eq!(all.slot, 0);
}

#[test]
fn strings_mean_what_they_spell() {
    for (written, meant) in [
        (r#""a\tb""#, "a\tb"),
        (r#"r"a\tb""#, "a\\tb"),
        ("'''a\n'b'''", "a\n'b"),
        (r"'\x41\u00e9\U0001F600\101'", "A\u{e9}\u{1f600}A"),
    ] {
        let program = program(&format!("data.a == {written}"));
        let found = (0..program.ast.len() as u32)
            .any(|id| program.ast[super::ast::NodeId(id)] == Node::Literal(Constant::String(meant.into())));
        assert!(found, "{written}: {program:?}");
    }
    let program = program(r"data.a == b'\xff\101é'");
    let bytes = Node::Literal(Constant::Bytes([0xff, b'A', 0xc3, 0xa9].into()));
    assert!((0..program.ast.len() as u32).any(|id| program.ast[super::ast::NodeId(id)] == bytes));
}

#[test]
fn errors_say_where_and_what_was_expected() {
    for (source, error) in [
        ("data.a ==", "line 1, column 10: the expression ends too early; expected a value"),
        ("(data.a", "line 1, column 8: the expression ends too early; expected `)`"),
        ("é\n == 1", "line 1, column 1: unexpected `é`; expected a value"),
        ("data.a\n = 1", "line 2, column 2: unexpected `=`; `=` is written `==`"),
        ("data.a ? 1", "line 1, column 11: the expression ends too early; expected `:`"),
        ("[1, 2", "line 1, column 6: the expression ends too early; expected `,` or `]`"),
        ("for == 1", "line 1, column 1: `for` is a reserved word"),
        ("'\\q' == ''", "line 1, column 2: `\\q` is not an escape sequence of a CEL string literal"),
        ("dta.a == 1", "line 1, column 1: undeclared name `dta`; did you mean `data`?"),
        ("data.a.startWith('x')", "line 1, column 8: unknown function `startWith`; did you mean `startsWith`?"),
        ("1 + 'a' == 2", "line 1, column 3: + does not take int and string"),
        ("size(data.a)", "line 1, column 1: the result must be a bool; this is an int"),
        ("data.a.matches('(')", "line 1, column 16: expected a regular expression of RE2: missing closing )"),
    ] {
        assert_eq!(refused(source), error, "{source}");
    }
}

#[test]
fn no_text_makes_it_recurse() {
    for source in ["(".repeat(16_000), "[".repeat(16_000), "!".repeat(16_000), format!("{}1", "-".repeat(16_000))] {
        refused(&source);
    }
    assert!(refused(&format!("{}true{}", "(".repeat(65), ")".repeat(65))).contains("nested too deeply"));
    program(&format!("{}true{}", "(".repeat(64), ")".repeat(64)));
    program(&format!("true{}", " && true".repeat(1_900)));
}
