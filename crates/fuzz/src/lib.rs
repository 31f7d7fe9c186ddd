//! What fuzz targets check, apart from how they get their input: `cargo test` replays the corpus through the same functions,
//! and feeds them random choices.

pub mod expressions;

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use streamer_core::engine::mapped;
use streamer_core::engine::{Addition, Engine, Fault, Mode as Write, Options as EngineOptions, Scratch, Selection};
use streamer_core::error::EventCode;
use streamer_core::flatten::{Flat, Flattener, Given, PathId, PathTrie, Position, Validation};
use streamer_core::json::{self, Options, Tree};
use streamer_core::layout::EventLayout;
use streamer_core::limits::Limits;
use streamer_core::map::Bytes;
use streamer_core::naive;
use streamer_core::subscriptions::normal_form::{Atom, Mode, NormalForm, Path, Root};
use streamer_core::subscriptions::{Subscription, normal_form};
use streamer_core::value::{Kind, Number, Value};

/// Choices that bytes stand for; when they are used up, always the first.
pub struct Choices<'d> {
    data: &'d [u8],
}

impl<'d> Choices<'d> {
    pub fn new(data: &'d [u8]) -> Choices<'d> {
        Choices { data }
    }

    /// A number below *bound*, which is at most 256.
    pub fn below(&mut self, bound: usize) -> usize {
        let Some((first, rest)) = self.data.split_first() else { return 0 };
        self.data = rest;
        usize::from(*first) % bound
    }

    fn pick(&mut self, from: &[&'static str]) -> &'static str {
        from[self.below(from.len())]
    }
}

const NAMES: [&str; 12] = ["a", "b", "c", "data", "before", "type", "tenant", "topic", "0", "a.b", "\\u0061", "naïve"];
const SCALARS: [&str; 24] = [
    "1",
    "\"x\"",
    "null",
    "true",
    "false",
    "0",
    "-0",
    "1.0",
    "10e-1",
    "2",
    "1.5",
    "-1",
    "1e400",
    "9007199254740993",
    "9007199254740992",
    "18446744073709551615",
    "\"\"",
    "\"y\"",
    "\"xy\"",
    "\"\\u0078\"",
    "\"insert\"",
    "\"delete\"",
    "\"\\ud83d\\ude00\"",
    "\"é\\n\"",
];
const SPACES: [&str; 6] = ["", "", "", " ", "\n\t ", "\r"];

/// An event made of names that are wanted, with duplicates, arrays, odd spellings and now and then a fault.
pub fn event(choices: &mut Choices<'_>) -> Vec<u8> {
    let mut text = String::new();
    object(choices, 0, &mut text);
    if choices.below(32) == 31 {
        let at = choices.below(text.len().clamp(1, 256));
        let mut bytes = text.into_bytes();
        let byte = choices.below(256) as u8;
        if let Some(place) = bytes.get_mut(at) {
            *place = byte;
        }
        return bytes;
    }
    text.into_bytes()
}

fn object(choices: &mut Choices<'_>, depth: usize, text: &mut String) {
    text.push('{');
    for index in 0..choices.below(if depth < 2 { 7 } else { 4 }) {
        if index > 0 {
            text.push(',');
        }
        text.push_str(choices.pick(&SPACES));
        let name = match (depth, choices.below(4)) {
            (0, 0 | 1) => choices.pick(&["data", "before", "type", "a"]),
            (_, 3) => choices.pick(&NAMES),
            _ => choices.pick(&["a", "a", "b", "c"]),
        };
        text.push_str(&format!("\"{name}\"{}:", choices.pick(&SPACES)));
        match (depth, name, choices.below(8)) {
            (0, "data" | "before", 1..) => object(choices, depth + 1, text),
            (0, "type", 1..) => text.push_str(choices.pick(&["\"insert\"", "\"update\"", "\"delete\""])),
            (0, "topic" | "tenant", 1..) => text.push_str(choices.pick(&["\"x\"", "\"x.y\"", "\"\""])),
            _ => value(choices, depth + 1, text),
        }
    }
    text.push('}');
}

fn value(choices: &mut Choices<'_>, depth: usize, text: &mut String) {
    text.push_str(choices.pick(&SPACES));
    match choices.below(if depth < 7 { 5 } else { 3 }) {
        0..=2 => text.push_str(choices.pick(&SCALARS)),
        3 => object(choices, depth, text),
        _ => {
            text.push('[');
            for index in 0..choices.below(4) {
                if index > 0 {
                    text.push(',');
                }
                value(choices, depth + 1, text);
            }
            text.push(']');
        }
    }
    text.push_str(choices.pick(&SPACES));
}

struct Watched {
    layout: Arc<EventLayout>,
    trie: PathTrie,
    paths: Vec<(Path, PathId)>,
}

static WATCHED: LazyLock<Vec<Watched>> = LazyLock::new(|| {
    let document = r#"{"id":null,"tenant":null,"collection":null,"type":null,"ts":null,"topic":null,"data":"","before":null,
        "unknown":null,"type_map":null,"ts_format":"ms"}"#;
    let several = r#"{"id":"/b/0","tenant":"/a/c","collection":null,"type":["/type","/a/type"],"ts":"/b/1/c","topic":"/a/0/0",
        "data":["/data/a","/b/0/a","/data"],"before":["/before/0","/before"],"unknown":null,"type_map":null,"ts_format":"ms"}"#;
    let layouts = [EventLayout::default(), EventLayout::from_json(document.as_bytes()).unwrap()];
    let all = layouts.into_iter().chain([EventLayout::from_json(several.as_bytes()).unwrap()]);
    let names: [&[&str]; 9] =
        [&["a"], &["b"], &["a", "b"], &["a", "b", "c"], &["b", "a"], &["0"], &["a.b"], &["naïve", "a"], &["c", "data"]];
    let raw: [&[&str]; 8] =
        [&["data", "a"], &["data", "a", "b"], &["a"], &["a", "b"], &["b", "a", "c"], &["type"], &["before", "b"], &["data", "0"]];
    // With few paths and with many, so that both ways to look up a name are taken; with and without wants below `before`.
    all.flat_map(|layout| [(layout.clone(), 0), (layout.clone(), 3), (layout, 40)])
        .map(|(layout, more)| {
            let layout = Arc::new(layout);
            let mut builder = PathTrie::builder(Arc::clone(&layout));
            let mut paths = Vec::new();
            let mut want = |path: Path, mode| {
                let id = builder.want(&path, mode);
                paths.push((path, id));
            };
            for names in names {
                want(Path::new(Root::Data, names), Mode::Scalar);
                if more > 0 {
                    want(Path::new(Root::Before, names), Mode::Scalar);
                }
            }
            for names in raw.iter().filter(|names| more > 0 || names[0] != "before") {
                want(Path::new(Root::Raw, *names), Mode::AnyLeaf);
            }
            for extra in 0..more {
                want(Path::new(Root::Raw, [format!("other{extra}")]), Mode::AnyLeaf);
                want(Path::new(Root::Raw, ["a".to_owned(), format!("other{extra}")]), Mode::AnyLeaf);
            }
            Watched { layout, trie: builder.build(), paths }
        })
        .collect()
});

fn given() -> Given<'static> {
    Given { default_tenant: Some("default"), ..Given::default() }
}

fn read_whole(text: &[u8]) -> Result<Value, streamer_core::error::EventError> {
    json::parse(text, Options::default())
}

/// Whether a name stands twice in any object.
fn has_twice(tree: &Tree) -> bool {
    match tree {
        Tree::List(elements) => elements.iter().any(has_twice),
        Tree::Object(members) => {
            let mut names = std::collections::HashSet::new();
            members.iter().any(|(name, member)| !names.insert(name) || has_twice(member))
        }
        Tree::Scalar(_) | Tree::BeyondFloat(_) => false,
    }
}

/// The flattener accepts, rejects and places errors as a full parse does, and finds the same values; lazily it accepts all that
/// it accepts in full, and finds the same, but where a name stands twice: which of the two it finds then is not said.
pub fn flatten(text: &[u8]) {
    let limits = Limits::default();
    let parsed = read_whole(text);
    // Another full parser, for what both can tell: it stops at 128 levels, and takes no number for too large.
    if let (Ok(_), Err(other)) = (&parsed, serde_json::from_slice::<serde_json::Value>(text)) {
        assert!(other.to_string().contains("recursion limit"), "{other}");
    }
    if let (Err(error), Ok(_)) = (&parsed, serde_json::from_slice::<serde_json::Value>(text)) {
        panic!("{error}");
    }
    let mut flattener = Flattener::new();
    let mut again = Flattener::new();
    for watched in WATCHED.iter() {
        let full = flattener.flatten(&watched.trie, text, Validation::Full, &given(), &limits);
        let lazy = again.flatten(&watched.trie, text, Validation::Lazy, &given(), &limits);
        match (&parsed, &full) {
            (Err(expected), Err(error)) => assert_eq!((expected.code, expected.offset), (error.code, error.offset)),
            (Err(expected), Ok(_)) => panic!("accepted: {expected}"),
            (Ok(Value::Map(_)), Err(error)) => {
                let of_text = [EventCode::MalformedJson, EventCode::BadUtf8, EventCode::LoneSurrogate, EventCode::TooDeep];
                assert!(!of_text.contains(&error.code) && error.code != EventCode::NotAnObject, "{error}");
            }
            (Ok(_), Err(error)) => assert_eq!(error.code, EventCode::NotAnObject),
            (Ok(raw), Ok(full)) => {
                let lazy = lazy.unwrap_or_else(|error| panic!("lazily refused: {error}"));
                let event = naive::Event::read(text, &watched.layout, &limits).unwrap();
                finds(full, watched, raw, &event);
                present(full, watched);
                assert_eq!(full.parts().tenant, lazy.parts().tenant);
                assert_eq!(full.parts().topic, lazy.parts().topic);
                assert_eq!(full.parts().event_type, lazy.parts().event_type);
                if json::parse::<Tree>(text, Options::default()).is_ok_and(|tree| has_twice(&tree)) {
                    let once = json::write(raw);
                    let event = naive::Event::read(once.as_bytes(), &watched.layout, &limits).unwrap();
                    let mut flattener = Flattener::new();
                    let lazy = flattener.flatten(&watched.trie, once.as_bytes(), Validation::Lazy, &given(), &limits);
                    finds(&lazy.unwrap(), watched, raw, &event);
                } else {
                    finds(&lazy, watched, raw, &event);
                }
            }
        }
    }
}

/// A leaf of a parsed event: its value and, for each array around it, which one and which element.
type NaiveLeaf<'v> = (&'v Value, Vec<(*const Value, usize)>);

fn naive_leaves<'v>(
    value: &'v Value,
    path: &[Box<str>],
    arrays: &mut Vec<(*const Value, usize)>,
    found: &mut Vec<NaiveLeaf<'v>>,
) {
    match (value, path) {
        (Value::List(elements), _) => {
            for (index, element) in elements.iter().enumerate() {
                arrays.push((value, index));
                naive_leaves(element, path, arrays, found);
                arrays.pop();
            }
        }
        (Value::Map(_), [name, rest @ ..]) => {
            if let Some(member) = value.get(name) {
                naive_leaves(member, rest, arrays, found);
            }
        }
        (Value::Map(_), []) => {}
        (leaf, []) => found.push((leaf, arrays.clone())),
        _ => {}
    }
}

fn same(leaf: &streamer_core::flatten::Leaf<'_>, value: &Value) {
    assert_eq!(leaf.kind(), value.kind());
    match value {
        Value::Scalar(scalar) => assert_eq!(leaf.scalar(), Some(scalar.as_ref())),
        Value::BeyondFloat(literal) => assert_eq!(leaf.raw(), &**literal),
        container => assert_eq!(&read_whole(leaf.raw().as_bytes()).unwrap(), container),
    }
}

fn finds(flat: &Flat<'_>, watched: &Watched, raw: &Value, event: &naive::Event) {
    let mut positions: Vec<(Position, Vec<(*const Value, usize)>)> = Vec::new();
    for (path, id) in &watched.paths {
        let document = match path.root {
            Root::Data => event.data.as_ref(),
            Root::Before => event.before.as_ref(),
            _ => {
                let mut expected = Vec::new();
                naive_leaves(raw, &path.names, &mut Vec::new(), &mut expected);
                let found: Vec<_> = flat.leaves(*id).collect();
                assert_eq!(found.len(), expected.len(), "{path:?}");
                for (leaf, (value, arrays)) in found.iter().zip(expected) {
                    same(leaf, value);
                    assert_eq!(flat.depth(leaf.position()) as usize, arrays.len(), "{path:?}");
                    positions.push((leaf.position(), arrays));
                }
                continue;
            }
        };
        let expected = document.and_then(|document| path.names.iter().try_fold(document, |value, name| value.get(name)));
        match (flat.value(*id), expected) {
            (None, None) => {}
            (Some(leaf), Some(value)) => same(&leaf, value),
            (found, expected) => panic!("{path:?}: {:?} but {expected:?}", found.map(|leaf| leaf.raw().to_owned())),
        }
    }
    positions.truncate(40);
    for (one, arrays) in &positions {
        for (other, others) in &positions {
            let apart = arrays.iter().zip(others).any(|(a, b)| a.0 == b.0 && a.1 != b.1);
            assert_eq!(flat.consistent(*one, *other), !apart);
        }
    }
}

fn present(flat: &Flat<'_>, watched: &Watched) {
    let mut counts: HashMap<PathId, usize> = HashMap::new();
    flat.present(|path| *counts.entry(path).or_default() += 1);
    for (path, id) in &watched.paths {
        let expected = if path.root == Root::Raw { flat.leaves(*id).next().is_some() } else { flat.value(*id).is_some() };
        let count = counts.get(id).copied().unwrap_or(0);
        // A path may also be named for what only another mode or path sees there.
        assert!(count <= 1 && (count == 1 || !expected), "{path:?}");
    }
}

/// No text makes a parser of what users write panic, and what is accepted can be lowered.
pub fn parsers(text: &[u8]) {
    let limits = Limits::default();
    if let Ok(subscription) = Subscription::parse(text, Some("default"), &limits) {
        normal_form(&subscription, &limits);
    }
    let Ok(text) = std::str::from_utf8(text) else { return };
    let quoted = serde_json::to_string(text).unwrap();
    for (before, after) in [
        (r#"{"id":"s","filters":[{"field":"a","op":"matches","value":"#, "}]}"),
        (r#"{"id":"s","filters":[{"field":"#, r#","op":"exists","value":true}]}"#),
        (r#"{"id":"s","pattern":{"a":[{"regexp":"#, "}]}}"),
        (r#"{"id":"s","dialect":"strict","pattern":{"a":[{"regexp":"#, "}]}}"),
        (r#"{"id":"s","pattern":{"a":[{"wildcard":"#, "}]}}"),
        (r#"{"id":"s","pattern":{"a":[{"cidr":"#, "}]}}"),
        (r#"{"id":"s","topic":"#, "}"),
        (r#"{"id":"s","pattern":"#, "}"),
    ] {
        if let Ok(subscription) = Subscription::parse(format!("{before}{quoted}{after}").as_bytes(), Some("default"), &limits) {
            normal_form(&subscription, &limits);
        }
    }
    let number = text.as_bytes();
    if let Ok(Value::Scalar(_)) = read_whole(number)
        && number.first().is_some_and(|first| *first == b'-' || first.is_ascii_digit())
        && let Some(parsed) = Number::parse(text.trim().as_bytes())
    {
        assert_eq!(Number::parse(parsed.to_string().as_bytes()), Some(parsed));
    }
}

const VALUES: [&str; 14] =
    ["1", "\"x\"", "null", "true", "false", "1.5", "9007199254740993", "\"\"", "\"y\"", "[1]", "{\"a\":1}", "[]", "\"xy\"", "-1"];

/// A subscription over the names and values that [`event`] has.
pub fn subscription(choices: &mut Choices<'_>) -> String {
    let mut parts = vec![r#""id":"s""#.to_owned()];
    for _ in 0..[0, 1, 1, 2][choices.below(4)] {
        let field = choices.pick(&["a", "a", "b", "b", "c", "a.b", "a.b.c", "/a.b", "data", "b.a"]);
        let op = choices.pick(&[
            "==",
            "!=",
            "<",
            "<=",
            ">",
            ">=",
            "contains",
            "changed_to",
            "changed_from",
            "in",
            "not in",
            "exists",
            "changed",
            "starts_with",
            "ends_with",
            "matches",
        ]);
        let value = match op {
            "in" | "not in" => format!(",\"value\":[{},{}]", choices.pick(&VALUES), choices.pick(&VALUES)),
            "exists" => format!(",\"value\":{}", choices.pick(&["true", "false"])),
            "changed" => String::new(),
            "starts_with" | "ends_with" | "matches" => format!(",\"value\":{}", choices.pick(&["\"x\"", "\"\"", "\"y$\""])),
            _ => format!(",\"value\":{}", choices.pick(&VALUES)),
        };
        let filter = format!(r#"{{"field":"{field}","op":"{op}"{value}}}"#);
        match parts.iter_mut().find(|part| part.starts_with("\"filters\"")) {
            Some(filters) => *filters = filters.replace("]$", &format!(",{filter}]$")),
            None => parts.push(format!("\"filters\":[{filter}]$")),
        }
    }
    for part in &mut parts {
        *part = part.replace("]$", "]");
    }
    if choices.below(4) == 3 || parts.len() == 1 {
        let mut pattern = String::new();
        pattern_object(choices, 0, &mut pattern);
        parts.push(format!("\"pattern\":{pattern}"));
    }
    if choices.below(8) == 7 {
        parts.push(r#""types":["insert","delete"]"#.into());
    }
    if choices.below(8) == 7 {
        parts.push(format!("\"topic\":{}", choices.pick(&["\"#\"", "\"x\"", "\"*\"", "\"x.#\""])));
    }
    format!("{{{}}}", parts.join(","))
}

fn pattern_object(choices: &mut Choices<'_>, depth: usize, text: &mut String) {
    text.push('{');
    let mut names = if depth == 0 { vec!["data", "a", "before", "$or"] } else { vec!["a", "b", "c", "$or", "0", "data"] };
    for index in 0..1 + choices.below(2) {
        let name = names.swap_remove(choices.below(names.len()));
        if index > 0 {
            text.push(',');
        }
        text.push_str(&format!("\"{name}\":"));
        if name == "$or" {
            text.push('[');
            for index in 0..2 + choices.below(2) {
                if index > 0 {
                    text.push(',');
                }
                if depth < 2 {
                    pattern_object(choices, depth + 1, text);
                } else {
                    text.push_str(r#"{"a":[1]}"#);
                }
            }
            text.push(']');
        } else if depth < 2 && choices.below(3) > 0 {
            pattern_object(choices, depth + 1, text);
        } else {
            text.push('[');
            for index in 0..1 + choices.below(3) {
                if index > 0 {
                    text.push(',');
                }
                text.push_str(choices.pick(&[
                    "1",
                    "\"x\"",
                    "null",
                    "true",
                    "1.5",
                    "\"\"",
                    "9007199254740993",
                    "1e400",
                    r#"{"prefix":"x"}"#,
                    r#"{"suffix":"y"}"#,
                    r#"{"exists":true}"#,
                    r#"{"exists":true}"#,
                    r#"{"exists":false}"#,
                    r#"{"exists":false}"#,
                    r#"{"anything-but":["x"]}"#,
                    r#"{"anything-but":[1,2]}"#,
                    r#"{"numeric":[">",0,"<=",2]}"#,
                    r#"{"wildcard":"*x*"}"#,
                    r#"{"equals-ignore-case":"X"}"#,
                    r#"{"regexp":"[xy]+"}"#,
                    r#"{"anything-but":{"prefix":"x"}}"#,
                    r#"{"prefix":{"equals-ignore-case":"X"}}"#,
                ]));
            }
            text.push(']');
        }
    }
    text.push('}');
}

/// What the normal form says of an event is what the naive evaluation says, for a few subscriptions; returns how many of how
/// many match.
pub fn decides(choices: &mut Choices<'_>) -> (usize, usize) {
    let event = event(choices);
    let verdicts: Vec<bool> = (0..8).filter_map(|_| decides_one(choices, &event)).collect();
    (verdicts.iter().filter(|wanted| **wanted).count(), verdicts.len())
}

fn decides_one(choices: &mut Choices<'_>, event: &[u8]) -> Option<bool> {
    // Few conjunctions at most, so that both a distributed pattern and a tree are met.
    let limits = Limits { max_conjunctions: [1, 3, 64][choices.below(3)], max_pattern_states: 500, ..Limits::default() };
    let watched = &WATCHED[3 * choices.below(3)];
    let text = subscription(choices);
    let subscription = match Subscription::parse(text.as_bytes(), Some("default"), &limits) {
        Ok(subscription) => subscription,
        // An ordering or a membership of what has none, or a pattern too large for the naive evaluation.
        Err(error) if error.place.contains(".value") || error.reason.contains("states") => return None,
        Err(error) => panic!("{error}: {text}"),
    };
    let form = normal_form(&subscription, &limits);
    let mut builder = PathTrie::builder(Arc::clone(&watched.layout));
    for clause in form.conjunctions.iter().flat_map(|conjunction| &conjunction.clauses) {
        builder.want(&clause.path, clause.mode);
    }
    for (path, mode) in form.verify.iter().flat_map(|verify| &verify.paths) {
        builder.want(path, *mode);
    }
    let mut paths = HashMap::new();
    for (path, mode) in form.conjunctions.iter().flat_map(|c| &c.clauses).map(|c| (&c.path, c.mode)).chain(verified(&form)) {
        paths.insert(path.clone(), builder.want(path, mode));
    }
    let trie = builder.build();
    let mut flattener = Flattener::new();
    let flat = flattener.flatten(&trie, event, Validation::Full, &given(), &limits).ok()?;
    let read = naive::Event::read(event, &watched.layout, &limits).unwrap();
    let expected = naive::wants(&subscription, &read);
    let clauses = form.conjunctions.iter().any(|conjunction| {
        conjunction.clauses.iter().all(|clause| {
            let path = paths[&clause.path];
            match clause.mode {
                Mode::Scalar => clause.atoms.iter().any(|atom| holds(atom, flat.value(path))),
                Mode::AnyLeaf if flat.leaves(path).next().is_none() => clause.atoms.iter().any(|atom| holds(atom, None)),
                Mode::AnyLeaf => flat.leaves(path).any(|leaf| clause.atoms.iter().any(|atom| holds(atom, Some(leaf)))),
            }
        })
    });
    let shown = || format!("{text} on {}", String::from_utf8_lossy(event));
    assert!(clauses || !expected, "the conjunctions lose {}", shown());
    // Without anything to verify the conjunctions alone decide, and where no value lies in an array a pattern needs none.
    let exact = form.verify.as_ref().is_none_or(|verify| {
        let distributed = limits.max_conjunctions == 64 && !flat.has_arrays();
        verify.changed.is_empty() && (verify.pattern.is_none() || distributed)
    });
    assert!(!exact || clauses == expected, "the conjunctions are not exact for {}", shown());
    Some(expected)
}

fn verified(form: &NormalForm) -> impl Iterator<Item = (&Path, Mode)> {
    form.verify.iter().flat_map(|verify| &verify.paths).map(|(path, mode)| (path, *mode))
}

/// The engine finds what the naive evaluation wants, while subscriptions come, change and go and segments are merged; returns how
/// many of how many pairs match.
pub fn engine(choices: &mut Choices<'_>) -> (usize, usize) {
    let limits = Limits { max_conjunctions: [1, 64][choices.below(2)], max_pattern_states: 500, ..Limits::default() };
    let layout = Arc::clone(&WATCHED[3 * choices.below(3)].layout);
    let engine = Engine::new(EngineOptions {
        layout: Arc::clone(&layout),
        limits: limits.clone(),
        background: false,
        validation: [Validation::Full, Validation::Lazy][choices.below(2)],
        ..EngineOptions::default()
    });
    let mut scratch = Scratch::default();
    let mut held: Vec<Subscription> = Vec::new();
    let (mut matched, mut pairs) = (0, 0);
    for round in 0..4 {
        let mut items = Vec::new();
        for number in 0..[4, 24, 90][choices.below(3)] {
            let id = format!("s{number}");
            let text = subscription(choices).replacen("\"s\"", &format!("\"{id}\""), 1);
            let Ok(parsed) = Subscription::parse(text.as_bytes(), Some("default"), &limits) else { continue };
            if round > 0 && choices.below(3) > 0 {
                continue;
            }
            items.push(Ok(Addition::new(id.as_str(), normal_form(&parsed, &limits), text.as_bytes())));
            held.retain(|other| *other.id != *id);
            held.push(parsed);
        }
        engine.write(items, Write::Replace, false).expect("good subscriptions");
        match choices.below(5) {
            0 => engine.merge(),
            2 => {
                for filter in engine.filters() {
                    assert!(engine.rebuild_filter(&filter.name, choices.below(200), [0.5, 0.01, 0.0001][choices.below(3)]));
                }
            }
            1 if !held.is_empty() => {
                let gone = held.swap_remove(choices.below(held.len().min(256)));
                engine.remove(&Selection { ids: Some(&[&gone.id]), ..Selection::default() });
            }
            _ => {}
        }
        for _ in 0..3 {
            let event = event(choices);
            // Lazily some bad events are taken, for which nothing is promised.
            let Ok(read) = naive::Event::read(&event, &layout, &limits) else { continue };
            let stopped = |engine: &Engine| engine.filters().first().map(|filter| (filter.state.no, filter.keyed.1));
            let before = stopped(&engine);
            let Ok(found) = engine.match_event(&event, None, None, &mut scratch) else { continue };
            if !found.told.is_empty() {
                continue; // an event with holes
            }
            let mut ids: Vec<Box<str>> =
                found.certain.iter().map(|slot| engine.record(*slot).expect("a subscription").id.clone()).collect();
            let mut expected: Vec<Box<str>> =
                held.iter().filter(|subscription| naive::wants(subscription, &read)).map(|found| found.id.clone()).collect();
            ids.sort_unstable();
            expected.sort_unstable();
            let shown = || {
                let of: Vec<_> = held.iter().filter(|s| ids.contains(&s.id) != expected.contains(&s.id)).collect();
                format!("{} for {of:?}", String::from_utf8_lossy(&event))
            };
            assert_eq!(ids, expected, "{}", shown());
            // All subscriptions are of one partition. A NO says that no keyed one wants the event.
            if let (Some((before, _)), Some((after, unkeyed))) = (before, stopped(&engine))
                && after > before
            {
                assert!(expected.len() <= unkeyed, "a NO, and {} matches of {unkeyed} unkeyed ones: {}", expected.len(), shown());
            }
            matched += expected.len();
            pairs += held.len();
        }
    }
    (matched, pairs)
}

/// Whether an atom holds for what stands at a path, by the words of its documentation.
fn holds(atom: &Atom, leaf: Option<streamer_core::flatten::Leaf<'_>>) -> bool {
    use streamer_core::automaton::{folding::fold, regexps::Program, topics::topic_matches, wildcards::wildcard_matches};
    let Some(leaf) = leaf else {
        return matches!(atom, Atom::Kinds(kinds) if kinds.has(Kind::Missing));
    };
    let tree = || read_whole(leaf.raw().as_bytes()).unwrap();
    let is_container = matches!(leaf.kind(), Kind::List | Kind::Map);
    let is_false = |atom: &Atom| match atom {
        Atom::EqualTree(value) if is_container => value.equals(&tree()) == Some(false),
        atom => !holds(atom, Some(leaf)),
    };
    match atom {
        Atom::Equal(scalar) => leaf.scalar().is_some_and(|seen| *scalar == seen),
        Atom::EqualTree(value) => is_container && value.equals(&tree()) == Some(true),
        Atom::Element(value) => {
            matches!(leaf.kind(), Kind::List)
                && matches!(tree(), Value::List(ref elements) if elements.iter().any(|e| e.equals(value) == Some(true)))
        }
        Atom::Numbers(range) => leaf.number().is_some_and(|number| range.contains(&number)),
        Atom::Kinds(kinds) => kinds.has(leaf.kind()),
        Atom::Other { kinds, none_of } => kinds.has(leaf.kind()) && none_of.iter().all(is_false),
        atom => leaf.text().is_some_and(|text| match atom {
            Atom::Strings(range) => range.contains(text),
            Atom::Prefix(operand) => text.starts_with(&**operand),
            Atom::Suffix(operand) => text.ends_with(&**operand),
            Atom::Substring(operand) => text.contains(&**operand),
            Atom::PrefixIgnoreCase(operand) => fold(text).starts_with(&**operand),
            Atom::SuffixIgnoreCase(operand) => fold(text).ends_with(&**operand),
            Atom::EqualIgnoreCase(operand) => fold(text) == **operand,
            Atom::Wildcard(pieces) => wildcard_matches(pieces.iter().map(|piece| &**piece), text),
            Atom::Regexp(regexp) => Program::compile(regexp).unwrap().is_match(text),
            Atom::Topic(words) => topic_matches(words, text),
            _ => false,
        }),
    }
}

/// A section of many subscriptions of all kinds: how many, their lines, their image, and what they are.
struct Compiled {
    lines: Vec<u8>,
    image: Vec<u8>,
    held: Vec<Subscription>,
}

const SEED: u64 = 4711;

fn reader(limits: Limits) -> mapped::Reader {
    Arc::new(move |text: &[u8]| {
        let parsed = Subscription::parse(text, Some("default"), &limits)?;
        let form = normal_form(&parsed, &limits);
        Ok(Addition::new(parsed.id, form, text))
    })
}

fn compiled(choices: &mut Choices<'_>, count: usize) -> Option<Compiled> {
    let limits = Limits { max_pattern_states: 500, ..Limits::default() };
    let (mut lines, mut held) = (Vec::new(), Vec::new());
    for number in 0..count {
        let text = subscription(choices).replacen("\"s\"", &format!("\"s{number}\""), 1);
        let Ok(parsed) = Subscription::parse(text.as_bytes(), Some("default"), &limits) else { continue };
        lines.extend(format!("[{},{text}]\n", held.len()).into_bytes());
        held.push(parsed);
    }
    let image = mapped::image(&lines, &reader(limits), SEED)?;
    Some(Compiled { lines, image, held })
}

fn opened(compiled: &Compiled, image: &[u8], layout: &Arc<EventLayout>) -> Engine {
    let limits = Limits { max_pattern_states: 500, ..Limits::default() };
    let engine = Engine::new(EngineOptions {
        layout: layout.clone(),
        limits: limits.clone(),
        background: false,
        seed: Some(SEED),
        ..EngineOptions::default()
    });
    let file = mapped::assemble(SEED, &[("*", "*", compiled.held.len() as u32, &compiled.lines, image)]);
    let expected = file[112..128].to_vec();
    engine.open("made.snap", Bytes::own(&file), &expected, reader(limits), |_, _| true).expect("a good directory");
    engine
}

/// What an image, good or changed, does to an engine: it is used, or refused as a fault. Whether it was used.
///
/// The first byte says whether the others are a set of subscriptions, whose image must find what the naive evaluation wants; an
/// image; or changes to a good one.
pub fn image(data: &[u8]) -> bool {
    static GOOD: LazyLock<Compiled> = LazyLock::new(|| {
        let words = (0..6000_u64)
            .map(|n| (n + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29).wrapping_mul(0xBF58_476D_1CE4_E5B9));
        let bytes: Vec<u8> = words.flat_map(|word| (word >> 16).to_le_bytes()).collect();
        compiled(&mut Choices::new(&bytes), 300).expect("an image")
    });
    let Some((kind, rest)) = data.split_first() else { return false };
    let layout = Arc::clone(&WATCHED[0].layout);
    let mut choices = Choices::new(rest);
    let own;
    let (good, changed) = match kind % 4 {
        0 => {
            let Some(made) = compiled(&mut choices, 150) else { return false };
            own = made;
            (&own, None)
        }
        1 => (&*GOOD, Some(rest.to_vec())),
        _ => {
            let mut image = GOOD.image.clone();
            for edit in rest.chunks_exact(8) {
                let number = |at: usize| u32::from_le_bytes([edit[at], edit[at + 1], edit[at + 2], 0]) as usize;
                let (at, other) = (number(1) % (image.len() / 4) * 4, number(5) % (image.len() / 4) * 4);
                let word = match edit[0] % 4 {
                    0 => [edit[4], edit[5], edit[6], edit[7]],
                    1 => [edit[4], 0, 0, 0],
                    2 => [image[other], image[other + 1], image[other + 2], image[other + 3]],
                    _ => [image[at].wrapping_add(edit[4]), image[at + 1], image[at + 2], image[at + 3]],
                };
                image[at..at + 4].copy_from_slice(&word);
            }
            (&*GOOD, Some(image).filter(|image| *image != GOOD.image))
        }
    };
    let is_good = changed.is_none();
    let engine = opened(good, changed.as_deref().unwrap_or(&good.image), &layout);
    let mut scratch = Scratch::default();
    let limits = Limits::default();
    let mut events: Vec<Vec<u8>> = (0..3).map(|_| event(&mut choices)).collect();
    events.push(br#"{"a":[1,"x",{"b":2}],"b":"xy","data":{"a":1,"b":["x"]},"type":"insert","topic":"a.b"}"#.to_vec());
    let run = || {
        for event in &events {
            let Ok(read) = naive::Event::read(event, &layout, &limits) else { continue };
            let Ok(found) = engine.match_event(event, None, None, &mut scratch) else { continue };
            let (is_told, slots) = (!found.told.is_empty(), found.certain.to_vec());
            let mut ids: Vec<Box<str>> =
                slots.iter().map(|slot| engine.record(*slot).expect("a subscription").id.clone()).collect();
            if is_good && !is_told {
                let mut expected: Vec<Box<str>> =
                    good.held.iter().filter(|one| naive::wants(one, &read)).map(|one| one.id.clone()).collect();
                ids.sort_unstable();
                expected.sort_unstable();
                assert_eq!(ids, expected, "{}", String::from_utf8_lossy(event));
            }
        }
        let gone = &good.held[0].id;
        assert_eq!(engine.remove(&Selection { ids: Some(&[gone]), ..Selection::default() }).removed.len(), 1);
        assert_eq!(engine.len(), good.held.len() - 1);
    };
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)) {
        Ok(()) => true,
        Err(thrown) if thrown.is::<Fault>() && !is_good => false,
        Err(thrown) => std::panic::resume_unwind(thrown),
    }
}
