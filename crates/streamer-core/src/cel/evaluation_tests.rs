//! The results and costs of programs, and the documents that they read. The table of cases is compared with the
//! reference in Python (`tests/native/test_cel_evaluation.py`); these tests are for the native side only.

use super::{Arena, Document, Evaluation, EvaluationScratch, Executable, Reason, Verdict, compile};
use crate::error::{EventCode, EventError, Unread};
use crate::flatten::{CallerParts, Flattener, PathTrie, Validation};
use crate::layout::EventLayout;
use crate::limits::Limits;
use crate::subscriptions::normal_form::{Mode, Path, Root};
use std::sync::Arc;

const BUDGET: u64 = 1_000_000;

fn executable(source: &str) -> Executable {
    Executable::new(Arc::new(compile(source, &Limits::default()).unwrap())).unwrap()
}

/// Evaluate each of *sources* for one event.
fn evaluate(sources: &[&str], event: &str, validation: Validation, old_side: bool) -> Result<Vec<Evaluation>, EventError> {
    let trie = PathTrie::builder(Arc::new(EventLayout::default())).build();
    let (limits, mut flattener, arena) = (Limits::default(), Flattener::new(), Arena::default());
    let given = CallerParts { default_tenant: Some("default"), ..CallerParts::default() };
    let flat = flattener.flatten(&trie, event.as_bytes(), validation, &given, &limits).map_err(Unread::into_error)?;
    let document = Document::new(&flat, &arena, &limits)?;
    let document = if old_side { document.as_before() } else { document };
    let mut scratch = EvaluationScratch::default();
    sources.iter().map(|source| executable(source).evaluate(&document, BUDGET, &mut scratch)).collect()
}

fn all_true(sources: &[&str], event: &str) {
    let outcomes = evaluate(sources, event, Validation::Full, false).unwrap();
    for (source, outcome) in sources.iter().zip(outcomes) {
        assert_eq!(outcome.verdict, Verdict::True, "{source} of {event}: {:?}", outcome.reason);
    }
}

#[test]
fn the_examples_of_the_documentation_cost_what_it_says() {
    for (source, event, cost) in [
        ("data.amount > 100", r#"{"data": {"amount": 150}}"#, 4),
        ("data.country in ['DE', 'FR']", r#"{"data": {"country": "FR"}}"#, 10),
        ("data.l.all(x, x > 0)", r#"{"data": {"l": [1, 2, 3]}}"#, 15),
        ("data.s + 'x' == data.t", r#"{"data": {"s": "0123456789abcdef", "t": ""}}"#, 9),
    ] {
        assert_eq!(evaluate(&[source], event, Validation::Full, false).unwrap()[0].cost, cost, "{source}");
    }
}

#[test]
fn a_document_is_what_its_text_says() {
    let event = r#"{"data": {"i": -0, "u": 18446744073709551615, "d": 1.50, "big": 123456789012345678901, "n": null,
        "escaped\u00e9": "a\n\ud83d\ude00\"", "l": [ [], {}, [true, false] ], "x": 1, "x": {"y": 2},
        "m": {"1":1,"2":2,"3":3,"4":4,"5":5,"6":6,"7":7,"8":8,"9":9,"10":10,"11":11,"12":12,"13":13,"14":14,"15":15,"16":16,
              "17":17,"18":18,"3":"three","18":"eighteen"}}}"#;
    let sources = [
        "type(data.i) == int && data.i == 0",
        "type(data.u) == uint && data.u == 18446744073709551615u",
        "type(data.d) == double && data.d == 1.5",
        "type(data.big) == double && data.big > 1e20",
        "data.n == null && before == null && ts == null && topic == '' && tenant == 'default'",
        "data.`escapedé` == 'a\\n\\U0001F600\"'",
        "data.l == [[], {}, [true, false]]",
        "data.x.y == 2 && data.size() == 9",
        // The last of duplicate names wins, in the place of the first.
        "data.m.size() == 18 && data.m.map(k, k)[2] == '3' && data.m['3'] == 'three' && data.m['18'] == 'eighteen'",
    ];
    all_true(&sources, event);
}

#[test]
fn members_alone_come_to_what_the_whole_document_does() {
    let sources = [
        "data.a - data.b > 1",
        "has(data.a) && !has(data.none)",
        "data.none == 1 || data.a == 3",
        "data.a.b.c == 1",
        "data.l.exists(x, x == data.a)",
        "data.`a\u{e9}` == 1 || data.a < before.a",
        "type(data.a) == int && data.a != before.b",
        "data.m == data.l",
        "data.big > 1.0",
        "data.a + data.b + data.c + data.d + data.e + data.f + data.g + data.h + data.i == 9",
    ];
    let documents = [
        r#"{"a": 3, "b": 1, "c": {"b": 2}, "l": [1, 3], "m": [1, 3]}"#,
        r#"{"a": {"b": {"c": 1}}, "x": "}\"", "a\u00e9": 1, "b": null}"#,
        r#"{"a": 1, "\u0061": 3, "b": 1, "b": 0.5, "l": [], "m": {}}"#,
        r#"{"big": 1e999, "a": 18446744073709551615, "b": -0, "l": [{"a": [1]}, {"b": {}}]}"#,
        r#"{"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"h":1,"i":1}"#,
        "{ }",
        "null",
    ];
    let (limits, given) = (Limits::default(), CallerParts { default_tenant: Some("default"), ..CallerParts::default() });
    let layout = Arc::new(EventLayout::default());
    let mut wanting = PathTrie::builder(layout.clone());
    for name in ["a", "b", "a\u{e9}", "l", "m", "none", "big"] {
        for root in [Root::Data, Root::Before] {
            wanting.want(&Path::new(root, [name]), Mode::Scalar);
        }
    }
    let tries = [PathTrie::builder(layout).build(), wanting.build()];
    let mut scratch = EvaluationScratch::default();
    for (data, before) in documents.iter().flat_map(|one| documents.iter().map(move |other| (one, other))) {
        for kind in ["insert", "update", "delete"] {
            let event = format!(r#"{{"type": "{kind}", "data": {data}, "before": {before}}}"#);
            for (trie, source) in tries.iter().flat_map(|trie| sources.iter().map(move |source| (trie, source))) {
                let (mut flattener, arenas) = (Flattener::new(), [Arena::default(), Arena::default()]);
                let flat = flattener.flatten(trie, event.as_bytes(), Validation::Full, &given, &limits).unwrap();
                let [by_members, whole] = arenas.each_ref().map(|arena| Document::new(&flat, arena, &limits).unwrap());
                let sides = [(by_members, whole), (by_members.as_before(), whole.as_before())];
                for (by_members, whole) in sides {
                    // A program that compares a document sees all of it.
                    executable("data == before").evaluate(&whole, BUDGET, &mut scratch).unwrap();
                    let program = executable(source);
                    let (one, words) = program.evaluate_in_words(&by_members, BUDGET, &mut scratch).unwrap();
                    assert!(!by_members.is_parsed() || source.contains("data.i"), "{source}");
                    let expected = program.evaluate_in_words(&whole, BUDGET, &mut scratch).unwrap();
                    assert_eq!((one, words), expected, "{source} of {event}");
                }
            }
            // Programs that select the same members share the parsed values, also after other selections.
            for trie in &tries {
                let (mut flattener, arenas) = (Flattener::new(), [Arena::default(), Arena::default()]);
                let flat = flattener.flatten(trie, event.as_bytes(), Validation::Full, &given, &limits).unwrap();
                let [shared, whole] = arenas.each_ref().map(|arena| Document::new(&flat, arena, &limits).unwrap());
                executable("data == before").evaluate(&whole, BUDGET, &mut scratch).unwrap();
                for source in [&sources[..2], &sources[..2], &sources[4..8], &sources[4..8], &sources[..]].concat() {
                    let program = executable(source);
                    let [one, expected] =
                        [&shared, &whole].map(|document| program.evaluate_in_words(document, BUDGET, &mut scratch).unwrap());
                    assert_eq!(one, expected, "{source} of {event}");
                }
            }
        }
    }
}

#[test]
fn the_old_side_is_what_before_was() {
    let event =
        r#"{"type": "update", "topic": "t", "data": {"a": 1}, "before": {"a": 2, "b": 3}, "unknown": ["/before/b", "/data/a"]}"#;
    let sources = ["data.a == 2 && topic == 't' && type == 'update'", "data.b == 3", "before == null"];
    let old = evaluate(&sources, event, Validation::Full, true).unwrap();
    assert_eq!(old.iter().map(|outcome| outcome.verdict).collect::<Vec<_>>(), [Verdict::True, Verdict::Unknown, Verdict::True]);
}

#[test]
fn what_only_a_lazy_reading_let_through_is_an_error_of_the_event() {
    let event = r#"{"type": "insert", "data": {"a": tru}}"#;
    let read = |source| evaluate(&[source], event, Validation::Lazy, false);
    assert_eq!(read("type == 'insert'").unwrap()[0].verdict, Verdict::True);
    let error = read("data.b == 1").unwrap_err();
    assert_eq!((error.code, error.offset), (EventCode::MalformedJson, Some(event.find("tru}").unwrap() + 3)));
}

#[test]
fn nested_macros_are_stopped_and_what_is_absorbed_is_not_the_end_of_the_budget() {
    let list: Vec<String> = (0..60).map(|n| n.to_string()).collect();
    let event = format!(r#"{{"data": {{"l": [{}]}}}}"#, list.join(","));
    for source in [
        "data.l.all(x, data.l.all(y, data.l.all(z, x + y + z >= 0)))",
        "data.l.all(x, data.l.all(y, data.l.all(z, x + y + z >= 0))) || true",
        "data.l.map(x, data.l.map(y, data.l.map(z, [x, y, z]))).size() == 60",
    ] {
        let outcome = evaluate(&[source], &event, Validation::Full, false).unwrap()[0];
        assert_eq!((outcome.verdict, outcome.reason), (Verdict::Error, Some(Reason::Budget)), "{source}");
        assert!(outcome.cost <= BUDGET + 3, "{source}: {}", outcome.cost);
    }
}

#[test]
fn the_deepest_expression_and_the_deepest_event_take_little_stack() {
    let mut source = "data.a".to_owned();
    while source.len() < 700 {
        source = format!("!(false || true && 1 + 2 * -[{source}].size() in [data.a, 1].map(x, x) ? true : false)");
    }
    let (levels, deep) = (510, 60);
    let mut nested = "data.a".to_owned();
    for _ in 0..deep {
        nested = format!("[{nested}]");
    }
    let event = format!(r#"{{"data": {{"a": {}{}}}}}"#, "[".repeat(levels), "]".repeat(levels));
    let run = move || {
        let sources = [&*source, &*format!("{nested} == {nested}"), "data.a == data.a", "data.a in [data.a]"];
        evaluate(&sources, &event, Validation::Full, false).unwrap().len()
    };
    let thread = std::thread::Builder::new().stack_size(512 << 10).spawn(run).unwrap();
    assert_eq!(thread.join().unwrap(), 4);
}

#[test]
fn what_a_run_keeps_is_given_back() {
    let event = format!(r#"{{"data": {{"s": "{}", "l": [{}]}}}}"#, "x".repeat(100_000), ["1"; 60].join(","));
    let trie = PathTrie::builder(Arc::new(EventLayout::default())).build();
    let (limits, mut flattener, arena) = (Limits::default(), Flattener::new(), Arena::default());
    let given = CallerParts { default_tenant: Some("default"), ..CallerParts::default() };
    let flat = flattener.flatten(&trie, event.as_bytes(), Validation::Full, &given, &limits).unwrap();
    let document = Document::new(&flat, &arena, &limits).unwrap();
    let mut scratch = EvaluationScratch::default();
    let large = executable("data.l.map(x, data.s + string(x)).size() == 60");
    assert_eq!(large.evaluate(&document, BUDGET, &mut scratch).unwrap().verdict, Verdict::True);
    assert!(scratch.bytes() > 6_000_000);
    let (outcome, words) = executable("data.missing == 1").evaluate_in_words(&document, BUDGET, &mut scratch).unwrap();
    assert_eq!((outcome.reason, &*words), (Some(Reason::NoSuchField), "no such field: \"missing\""));
    assert!(scratch.bytes() < 100_000);
}

#[test]
fn a_regexp_of_the_event_is_compiled_once_in_a_run_and_refused_where_it_is_long() {
    let long = "a?".repeat(513);
    let event = format!(r#"{{"data": {{"l": ["a", "b", "a", "a"], "s": "a", "r": "a+", "long": "{long}"}}}}"#);
    let sources = [
        "data.l.exists(x, x.matches(data.r)) && data.s.matches(data.r)",
        "data.s.matches(data.long)",
        "data.s.matches('(' + data.s)",
        // The text of a constant costs no units, also if an event supplies it.
        "data.s.matches('a+') && data.s.matches(data.r)",
    ];
    let [once, too_long, bad, constant] = evaluate(&sources, &event, Validation::Full, false).unwrap()[..] else { panic!() };
    assert_eq!(once.verdict, Verdict::True);
    assert!((4096..2 * 4096).contains(&once.cost), "{once:?}");
    assert_eq!((too_long.reason, bad.reason), (Some(Reason::BadRegexp), Some(Reason::BadRegexp)));
    assert!(constant.verdict == Verdict::True && constant.cost < 20, "{constant:?}");
}
