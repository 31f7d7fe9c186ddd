//! What a list in an event costs: no allocation for a match, about the event's own memory while it is read, and none after it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use streamer_core::engine::{Addition, Draft, Engine, Event, Options, Scratch, WriteMode};
use streamer_core::layout::{EventLayout, Part, Pointer};
use streamer_core::limits::Limits;
use streamer_core::subscriptions::parse::Defaults;
use streamer_core::subscriptions::{Subscription, normal_form};

/// Counts what each thread allocates: how often, how much, and how much of it is held now and was at most.
struct Counting;

#[derive(Clone, Copy, Default)]
struct Count {
    times: usize,
    bytes: usize,
    held: isize,
    most: isize,
}

thread_local! {
    static COUNT: Cell<Count> = const { Cell::new(Count { times: 0, bytes: 0, held: 0, most: 0 }) };
}

fn count(bytes: isize) {
    let mut count = COUNT.get();
    count.held += bytes;
    if bytes > 0 {
        count.times += 1;
        count.bytes += bytes as usize;
        count.most = count.most.max(count.held);
    }
    COUNT.set(count);
}

// SAFETY: every call is passed on to the system's allocator as it came; the counter is a plain cell that allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What *act* allocates; held is what it leaves.
fn counted(act: impl FnOnce()) -> Count {
    COUNT.set(Count::default());
    act();
    COUNT.get()
}

fn engine(layout: EventLayout, subscriptions: &[String]) -> Engine {
    let engine = Engine::new(Options { layout: layout.into(), ..Options::default() });
    let limits = Limits::default();
    let addition = |text: &String| {
        let source = Subscription::parse(text.as_bytes(), Defaults::of("default"), &limits).unwrap();
        let form = normal_form(&source, &limits);
        let Subscription { id, tenant, collection, .. } = source;
        Ok(Addition { tenant, collection, ..Addition::new(id, form, text.as_bytes()) })
    };
    engine.write(subscriptions.iter().map(addition).collect::<Draft>(), WriteMode::Add, false).unwrap();
    engine
}

fn matches(engine: &Engine, event: &str, scratch: &mut Scratch) -> usize {
    let event = Event::new(event.as_bytes(), Some("default"), None);
    engine.match_event(event, scratch).unwrap().certain.len()
}

fn subscription(at: usize, pattern: &str) -> String {
    format!(r#"{{"id":"s{at}","pattern":{pattern}}}"#)
}

/// Layouts by how a document stands in an event.
fn layouts() -> [(EventLayout, &'static str, &'static str); 2] {
    let document = EventLayout { data: Part::Pointers(vec![Pointer::default()]), ..EventLayout::default().without_parts() };
    [(EventLayout::default(), r#"{"data":"#, "}"), (document, "", "")]
}

#[test]
fn a_match_on_lists_allocates_nothing_however_many_there_are() {
    let list = |element: &dyn Fn(usize) -> String, length: usize| {
        format!("[{}]", (0..length).map(element).collect::<Vec<_>>().join(","))
    };
    for (layout, open, close) in layouts() {
        for number in [1, 10, 100, 1000] {
            let inside = [
                r#"{"number":["7"],"tags":["t0"]}"#,
                r#"{"labels":["l0"],"tags":["t0"]}"#,
                r#"{"number":["7"],"nested":["n0"]}"#,
                r#"{"items":{"a":[1],"b":[0]}}"#,
                r#"{"items":{"a":[1],"parts":{"c":[2]}},"number":["7"]}"#,
            ];
            for pattern in inside {
                let subscriptions: Vec<String> =
                    (0..number).map(|at| subscription(at, &format!("{open}{pattern}{close}"))).collect();
                let engine = engine(layout.clone(), &subscriptions);
                for length in [1, 10, 100] {
                    let document = format!(
                        r#"{{"number":"7","tags":{},"labels":{},"nested":{},"items":{}}}"#,
                        list(&|at| format!("\"t{at}\""), length),
                        list(&|at| format!("\"l{at}\""), length),
                        list(&|at| format!("[\"n{at}\",[\"m{at}\"]]"), length),
                        list(&|at| format!(r#"{{"a":1,"b":{at},"parts":[{{"c":{at}}},{{"c":2}}]}}"#), length),
                    );
                    let event = format!("{open}{document}{close}");
                    let mut scratch = Scratch::default();
                    for _ in 0..2 {
                        assert_eq!(matches(&engine, &event, &mut scratch), number, "{pattern}");
                    }
                    let count = counted(|| _ = matches(&engine, &event, &mut scratch));
                    assert_eq!(count.times, 0, "{number} matches of {pattern} on lists of {length}");
                }
            }
        }
    }
}

#[test]
fn a_long_list_takes_at_most_twice_the_memory_of_its_event_and_gives_it_back() {
    let repeated = |element: &str, bytes: usize| {
        let one = format!("{element},");
        format!("[{}{element}]", one.repeat(bytes / one.len()))
    };
    let alternating = format!("[{}0]", (0..70_000).map(|at| format!("{},", at % 1000)).collect::<String>());
    let objects = (0..40_000).map(|at| format!(r#"{{"x":1,"y":{},"id":{at}}},"#, at % 7)).collect::<String>();
    let different =
        |element: &dyn Fn(usize) -> String| format!("[{}]", (1_000_000..1_055_000).map(element).collect::<Vec<_>>().join(","));
    let lists = [
        different(&|at| at.to_string()),
        different(&|at| format!("\"v{at}\"")),
        different(&|at| format!("{at}.5")),
        repeated("1", 300_000),
        repeated(r#""\u0061""#, 300_000),
        repeated(r#"{"x":1,"y":2}"#, 300_000),
        repeated(r#"{ "x" : 1, "y": 2 } "#, 300_000),
        repeated("[1]", 300_000),
        repeated("[[1],[1,[1]],{}]", 300_000),
        repeated(r#"{"x":[1,1],"z":[{"y":1},{"y":1}]}"#, 300_000),
        repeated("[]", 300_000),
        repeated("1,{}", 300_000),
        repeated("1,\"\\n\"", 300_000),
        repeated("[1],2", 300_000),
        repeated("1,1,{},3,[2]", 300_000),
        alternating,
        format!(r#"[{objects}{{"x":2}}]"#),
    ];
    let all = [
        r#""pattern":{"data":{"a":[2]}}"#,
        r#""pattern":{"data":{"a":[{"anything-but":[1]}]}}"#,
        r#""pattern":{"data":{"a":{"x":[2],"y":[1]}}}"#,
        r#""pattern":{"data":{"a":{"x":[1],"y":[77]}}}"#,
        r#""pattern":{"data":{"a":{"x":[1],"z":{"y":[7]}}}}"#,
        r#""filters":[{"field":"a","op":"contains","value":2}]"#,
        r#""filters":[{"field":"a","op":"==","value":[1]}]"#,
        r#""filters":[{"field":"a","op":"!=","value":[1]}]"#,
        r#""filters":[{"field":"a","op":"changed"}]"#,
    ];
    let texts: Vec<String> = all.iter().enumerate().map(|(at, parts)| format!(r#"{{"id":"s{at}",{parts}}}"#)).collect();
    let mut alone: Vec<&[String]> = texts.chunks(1).collect();
    alone.push(&texts);
    for list in &lists {
        let event = format!(r#"{{"type":"update","data":{{"a":{list}}},"before":{{"a":{list}}}}}"#);
        for subscriptions in &alone {
            let engine = engine(EventLayout::default(), subscriptions);
            let mut scratch = Scratch::default();
            let short = r#"{"type":"update","data":{"a":[1,{"x":1}]},"before":{"a":[]}}"#;
            matches(&engine, short, &mut scratch);
            let count = counted(|| _ = matches(&engine, &event, &mut scratch));
            let what = format!("{} of {} bytes: {}", &event[..40], event.len(), subscriptions[0]);
            assert!(count.most < 2 * event.len() as isize, "{} bytes at once for {what}", count.most);
            assert!(count.held < 1 << 16, "{} bytes are left of {what}", count.held);
        }
    }
}

#[test]
fn a_dump_is_linear_in_the_values_of_a_subscription() {
    let dumped = |number: usize| {
        let values = |prefix: &str| (0..number).map(|at| format!("\"{prefix}{at}\"")).collect::<Vec<_>>().join(",");
        let filters = format!(
            r#"{{"field":"a","op":"in","value":[{}]}},{{"field":"b","op":"not in","value":[{}]}}"#,
            values("a"),
            values("b")
        );
        let engine = engine(EventLayout::default(), &[format!(r#"{{"id":"s","filters":[{filters}]}}"#)]);
        counted(|| assert!(engine.dump(10).contains("and ")))
    };
    let (few, many) = (dumped(1000), dumped(4000));
    assert!(many.bytes < 8 * few.bytes, "{} and {} bytes", few.bytes, many.bytes);
}
