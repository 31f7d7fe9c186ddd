//! What the flattener promises beyond finding the right values: bounded stack, no allocation, linear time, stopping early.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};
use streamer_core::subscriptions::parse::Defaults;

use streamer_core::error::EventCode;
use streamer_core::flatten::{CallerParts, Flattener, Locator, PathId, PathTrie, Validation};
use streamer_core::layout::EventLayout;
use streamer_core::limits::Limits;
use streamer_core::subscriptions::Subscription;
use streamer_core::subscriptions::normal_form::{Mode, Path, Root};

/// Counts the allocations of each thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call is passed on to the system's allocator as it came; the counter is a plain cell that allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn given() -> CallerParts<'static> {
    CallerParts { default_tenant: Some("default"), ..CallerParts::default() }
}

fn trie(paths: &[(Root, &[&str], Mode)]) -> (PathTrie, Vec<PathId>) {
    let mut builder = PathTrie::builder(Arc::new(EventLayout::default()));
    let ids = paths.iter().map(|(root, names, mode)| builder.want(&Path::new(*root, *names), *mode)).collect();
    (builder.build(), ids)
}

const BOTH: [Validation; 2] = [Validation::Full, Validation::Lazy];

#[test]
fn after_warm_up_nothing_is_allocated() {
    let (trie, ids) = trie(&[
        (Root::Data, &["a"], Mode::Scalar),
        (Root::Data, &["b", "c"], Mode::Scalar),
        (Root::Raw, &["data", "list", "x"], Mode::AnyLeaf),
    ]);
    let event = r#"{"id":1,"tenant":"t\u0041","type":"delete","ts":5,"before":{"a":"\n","b":{"c":1.5},"list":[{"x":1},{"x":[2,[3]]}],
        "skipped":{"deep":[[[{}]]]}}}"#;
    let mut flattener = Flattener::new();
    let limits = Limits::default();
    let mut run = |expect_nothing: bool| {
        let before = ALLOCATIONS.get();
        for validation in BOTH {
            let flat = flattener.flatten(&trie, event.as_bytes(), validation, &given(), &limits).unwrap();
            assert_eq!(flat.value(ids[0]).unwrap().text(), Some("\n"));
            assert_eq!(flat.value(ids[1]).unwrap().number().unwrap().floor(), 1.5);
            assert_eq!(flat.parts().tenant, "tA");
        }
        assert!(!expect_nothing || ALLOCATIONS.get() == before, "{} allocations", ALLOCATIONS.get() - before);
    };
    run(false);
    run(true);
}

#[test]
fn the_way_is_written_only_to_what_is_unknown() {
    let layout = EventLayout { unknown_value: ["?".into()].into(), ..EventLayout::default() };
    let trie = PathTrie::builder(Arc::new(layout)).build();
    let deep = format!("{}1{}{}", "[".repeat(500), ",1".repeat(10_000), "]".repeat(500));
    let event = format!(r#"{{"data":{{"x":"?","d":{deep}}}}}"#);
    let mut flattener = Flattener::new();
    let before = ALLOCATIONS.get();
    assert!(
        flattener.flatten(&trie, event.as_bytes(), Validation::Full, &given(), &Limits::default()).unwrap().parts().has_unknown
    );
    // The value itself: a list grows a few times.
    let allocations = ALLOCATIONS.get() - before;
    assert!(allocations < 10_000, "{allocations} allocations");
}

#[test]
fn depth_takes_no_stack_and_has_a_limit() {
    let (trie, ids) = trie(&[(Root::Raw, &["data", "a"], Mode::AnyLeaf), (Root::Data, &["b"], Mode::Scalar)]);
    let deep = 200_000;
    let nested = |open: &str, close: &str| format!("{}1{}", open.repeat(deep), close.repeat(deep));
    let limits = Limits { max_depth: deep + 3, ..Limits::default() };
    let mut flattener = Flattener::new();
    for member in ["a", "skipped"] {
        for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
            let event = format!(r#"{{"data":{{"{member}":{}}}}}"#, nested(open, close));
            for validation in BOTH {
                let flat = flattener.flatten(&trie, event.as_bytes(), validation, &given(), &limits).unwrap();
                let found = usize::from(member == "a" && open == "[");
                assert_eq!(flat.leaves(ids[0]).count(), found);
            }
            let error = flattener
                .flatten(&trie, event.as_bytes(), Validation::Full, &given(), &Limits::default())
                .unwrap_err()
                .into_error();
            assert_eq!(error.code, EventCode::TooDeep);
            assert_eq!(error.offset, event.match_indices(['{', '[']).nth(512).map(|(at, _)| at));
        }
    }
}

#[test]
fn duplicates_and_wide_objects_take_linear_time() {
    let names: Vec<String> = (0..5_000).map(|at| format!("name{at}")).collect();
    let mut builder = PathTrie::builder(Arc::new(EventLayout::default()));
    let ids: Vec<PathId> = names.iter().map(|name| builder.want(&Path::new(Root::Raw, ["data", name]), Mode::AnyLeaf)).collect();
    let trie = builder.build();
    // Every name many times, each with a list that the next one replaces.
    let members: Vec<String> =
        (0..40).flat_map(|round| names.iter().map(move |name| format!("\"{name}\":[{round},1]"))).collect();
    let event = format!(r#"{{"data":{{{}}}}}"#, members.join(","));
    let mut flattener = Flattener::new();
    let start = Instant::now();
    let flat = flattener.flatten(&trie, event.as_bytes(), Validation::Full, &given(), &Limits::default()).unwrap();
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    for id in [ids[0], ids[4_999]] {
        assert_eq!(flat.leaves(id).map(|leaf| leaf.raw()).collect::<Vec<_>>(), ["39", "1"]);
    }
}

#[test]
fn a_lazy_reading_stops_when_it_has_all_and_checks_only_what_it_walks() {
    let mut layout = EventLayout::default();
    for part in [&mut layout.tenant, &mut layout.collection, &mut layout.topic, &mut layout.before, &mut layout.unknown] {
        *part = streamer_core::layout::Part::Never;
    }
    let mut builder = PathTrie::builder(Arc::new(layout));
    let id = builder.want(&Path::new(Root::Data, ["a"]), Mode::Scalar);
    let trie = builder.build();
    let (limits, mut flattener) = (Limits::default(), Flattener::new());
    let event = br#"{"type":"insert","data":{"x":[tru],"a":1},"later": nonsense"#;
    let flat = flattener.flatten(&trie, event, Validation::Lazy, &given(), &limits).unwrap();
    assert_eq!(flat.value(id).unwrap().raw(), "1");
    let error = flattener.flatten(&trie, event, Validation::Full, &given(), &limits).unwrap_err().into_error();
    assert_eq!((error.code, error.offset), (EventCode::MalformedJson, Some(33)));
}

#[test]
fn tenant_and_collection_are_found_first() {
    let locator = Locator::new(&EventLayout::default());
    let (limits, mut flattener) = (Limits::default(), Flattener::new());
    for (event, expected) in [
        (r#"{"tenant":"a","collection":"b","data": not looked at"#, (Some("a"), Some("b"))),
        (r#"{"data":{"tenant":"x","s":"}\\\""},"collection":"b"}"#, (Some("default"), Some("b"))),
        // Its plain text is not the event's.
        (r#"{"collection":"\u0062"}"#, (Some("default"), None)),
        (r#"{"tenant":null,"collection":7}"#, (Some("default"), None)),
        ("[]", (Some("default"), None)),
        ("{", (Some("default"), None)),
    ] {
        assert_eq!(flattener.locate(&locator, event.as_bytes(), &given(), &limits), expected, "{event}");
    }
    let arguments = CallerParts { tenant: Some("t"), collection: Some("c"), default_tenant: None };
    assert_eq!(flattener.locate(&locator, b"{}", &arguments, &limits), (Some("t"), Some("c")));
}

#[test]
fn subscriptions_that_are_made_to_hurt_are_read_in_linear_time() {
    let long = "x".repeat(1_000_000);
    let wide = |count: usize| (0..count).map(|at| format!("\"k{at}\":{{}}")).collect::<Vec<_>>().join(",");
    let nested = |count: usize| format!("{}[1]{}", r#"{"a":"#.repeat(count), "}".repeat(count));
    let alternatives = |count: usize| vec![r#"{"$or":[{"a":[1]},{"b":[1]}]}"#; count].join(",");
    let hostile = [
        format!(r#"{{"id":"s","labels":{{"{long}":{{{}}}}}}}"#, wide(100_000)),
        format!(r#"{{"id":"s","pattern":{{"{long}":{{{}}}}}}}"#, wide(100_000)),
        format!(r#"{{"id":"s","pattern":{}}}"#, nested(505)),
        format!(r#"{{"id":"s","pattern":{}}}"#, nested(100_000)),
        format!(r#"{{"id":"s","labels":{{"a":{}1{}}}}}"#, "[".repeat(509), "]".repeat(509)),
        format!(r#"{{"id":"s","pattern":{{"$or":[{}]}}}}"#, alternatives(1000)),
        format!(r#"{{"id":"s","pattern":{{"a":[{{"wildcard":"{}"}}]}}}}"#, "*a".repeat(400_000)),
        format!(r#"{{"id":"s","pattern":{{"a":[{{"regexp":"{}"}}]}}}}"#, "(".repeat(1_000_000)),
        format!(r#"{{"id":"s","pattern":{{"a":[{{"regexp":"{}"}}]}}}}"#, "a{100}".repeat(100_000)),
        format!(r#"{{"id":"s","filters":[{{"field":"a","op":"matches","value":"{}"}}]}}"#, "(".repeat(1_000_000)),
        format!(r#"{{"id":"s","filters":[{{"field":"a","op":"matches","value":"{}"}}]}}"#, "(a{1000}){2}".repeat(1000)),
        format!(r#"{{"id":"s","filters":[{{"field":"{}","op":"==","value":1}}]}}"#, "a.".repeat(500_000)),
        format!(r#"{{"id":"s","{long}":1}}"#),
        format!(r#"{{"id":"s","filters":[{{"field":"a","op":"{long}","value":1}}]}}"#),
        format!(r#"{{"id":"s","pattern":{{{}}}}}"#, [r#""$or":[{"a":[1]},{"b":[1]}]"#; 2].join(",")),
    ];
    for text in hostile {
        let start = Instant::now();
        let result = Subscription::parse(text.as_bytes(), Defaults::of("default"), &Limits::default());
        if let Ok(subscription) = &result {
            streamer_core::subscriptions::normal_form(subscription, &Limits::default());
        }
        let shown: String = text.chars().take(60).collect();
        assert!(start.elapsed() < Duration::from_secs(5), "{shown}: {:?}", start.elapsed());
    }
}

/// What a flattening found, or its error.
fn found(flattener: &mut Flattener, trie: &PathTrie, ids: &[PathId], event: &[u8], validation: Validation) -> String {
    match flattener.flatten(trie, event, validation, &given(), &Limits::default()) {
        Ok(flat) => {
            let leaves: Vec<_> =
                ids.iter().map(|id| flat.leaves(*id).map(|leaf| (leaf.raw(), leaf.position())).collect()).collect();
            let leaves: Vec<Vec<_>> = leaves;
            format!(
                "{:?} {leaves:?} {:?}",
                flat.parts(),
                ids.iter().map(|id| flat.value(*id).map(|it| it.raw())).collect::<Vec<_>>()
            )
        }
        Err(error) => format!("{error:?}"),
    }
}

#[test]
fn what_was_read_before_changes_nothing() {
    // A flattener keeps its memory from event to event, whatever their trie: here it is another one in most of them.
    let tries = [
        trie(&[
            (Root::Data, &["a"], Mode::Scalar),
            (Root::Data, &["o", "a"], Mode::Scalar),
            (Root::Raw, &["l", "a"], Mode::AnyLeaf),
        ]),
        trie(&[(Root::Data, &["o", "sixteen letters!"], Mode::AnyLeaf), (Root::Raw, &["data", "l", "o", "a"], Mode::AnyLeaf)]),
        trie(&[
            (Root::Before, &["a"], Mode::Scalar),
            (Root::Data, &["l", "l"], Mode::AnyLeaf),
            (Root::Raw, &["a"], Mode::Scalar),
        ]),
    ];
    let mut state = 7_u64;
    let mut below = move |end: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % end
    };
    fn object(below: &mut dyn FnMut(usize) -> usize, depth: usize, text: &mut String) {
        let names = [
            "a",
            "o",
            "l",
            "data",
            "before",
            "type",
            "id",
            "\\u0061",
            "sixteen letters!",
            "ab",
            "",
            "a\\\"",
            "é",
            "thirteen chars",
        ];
        text.push('{');
        for at in 0..below(6) {
            text.push_str(if at > 0 { [",", ",", " , "][below(3)] } else { "" });
            // The front ones more often, and mostly one after the other.
            let name = if below(3) == 0 { below(names.len()) } else { at };
            text.push_str(&format!("\"{}\"{}", names[name], [":", ":", ":", " : ", ": "][below(5)]));
            match (name, below(8)) {
                (1 | 3 | 4, 0..7) | (_, 0) if depth > 0 => object(below, depth - 1, text),
                (2, 0..7) if depth > 0 => {
                    text.push('[');
                    for at in 0..below(4) {
                        text.push_str(if at > 0 { "," } else { "" });
                        object(below, depth - 1, text);
                    }
                    text.push(']');
                }
                (5, _) => text.push_str("\"update\""),
                (_, 1) => text.push_str("null"),
                (_, 2) => text.push_str("\"te\\nxt\""),
                (_, 3) => text.push_str("\"a much longer text\""),
                (_, other) => text.push_str(&other.to_string()),
            }
        }
        text.push('}');
    }
    let mut reused = Flattener::new();
    let mut good = 0;
    for round in 0..20_000 {
        let mut text = String::new();
        object(&mut below, 3, &mut text);
        let mut event = text.into_bytes();
        if round % 4 == 0 {
            let at = below(event.len());
            event[at] = b"\"\\:,{}[]x0 "[below(11)];
        }
        for validation in BOTH {
            let (trie, ids) = &tries[below(3)];
            let fresh = found(&mut Flattener::new(), trie, ids, &event, validation);
            good += usize::from(fresh.starts_with("Parts"));
            assert_eq!(found(&mut reused, trie, ids, &event, validation), fresh, "{}", String::from_utf8_lossy(&event));
        }
    }
    assert!(good > 10_000, "{good}");
}
