//! Events: the flattener compared with a full parse.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};
use streamer_core::error::{EventCode, Ignored, Unread};
use streamer_core::flatten::{CallerParts, Flat, Flattener, PathId, PathTrie, Position, Validation};
use streamer_core::json::{self, ParseOptions, Tree};
use streamer_core::layout::EventLayout;
use streamer_core::limits::Limits;
use streamer_core::naive;
use streamer_core::subscriptions::normal_form::{Mode, Path, Root};
use streamer_core::value::{Scalar, Value};

pub(super) struct Watched {
    pub(super) layout: Arc<EventLayout>,
    trie: PathTrie,
    paths: Vec<(Path, PathId)>,
}

pub(super) static WATCHED: LazyLock<Vec<Watched>> = LazyLock::new(|| {
    let document = r#"{"id":null,"tenant":null,"collection":null,"type":null,"ts":null,"topic":null,"data":"","before":null,
        "unknown":null,"envelope":"","type_map":null,"ts_format":"ms"}"#;
    let several = r#"{"id":"/b/0","tenant":"/a/c","collection":null,"type":["/type","/a/type"],"ts":"/b/1/c","topic":"/a/0/0",
        "data":["/data/a","/b/0/a","/data"],"before":["/before/0","/before"],"unknown":null,"envelope":["/b",""],"type_map":null,"ts_format":"ms"}"#;
    let layouts = [EventLayout::default(), EventLayout::from_json(document.as_bytes()).unwrap()];
    let all = layouts.into_iter().chain([EventLayout::from_json(several.as_bytes()).unwrap()]);
    let names: [&[&str]; 9] =
        [&["a"], &["b"], &["a", "b"], &["a", "b", "c"], &["b", "a"], &["0"], &["a.b"], &["naïve", "a"], &["c", "data"]];
    let raw: [&[&str]; 8] =
        [&["data", "a"], &["data", "a", "b"], &["a"], &["a", "b"], &["b", "a", "c"], &["type"], &["before", "b"], &["data", "0"]];
    // With few paths and with many, so that both ways to look up a name are used; with and without wants below
    // `before`.
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

pub(super) fn given() -> CallerParts<'static> {
    CallerParts { default_tenant: Some("default"), ..CallerParts::default() }
}

pub(super) fn read_whole(text: &[u8]) -> Result<Value, streamer_core::error::EventError> {
    json::parse(text, ParseOptions::default())
}

/// Whether a name stands twice in any object.
pub(super) fn has_twice(tree: &Tree) -> bool {
    match tree {
        Tree::List(elements) => elements.iter().any(has_twice),
        Tree::Object(members) => {
            let mut names = std::collections::HashSet::new();
            members.iter().any(|(name, member)| !names.insert(name) || has_twice(member))
        }
        Tree::Scalar(_) | Tree::BeyondFloat(_) => false,
    }
}

/// The flattener accepts, rejects and places errors as a full parse does, and finds the same values. Lazily it accepts
/// every event that it accepts in full, and finds the same values, except for duplicate names: either of the two may
/// count then.
pub fn flatten(text: &[u8]) {
    let limits = Limits::default();
    let parsed = read_whole(text);
    // Compare with another full parser, if both can judge the text: that one stops at 128 levels, and accepts any size
    // of number.
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
            (_, Err(Unread::Ignored(Ignored::Empty))) => assert!(text.trim_ascii().is_empty()),
            (parsed, Err(Unread::Ignored(Ignored::Null))) => assert_eq!(*parsed, Ok(Value::Scalar(Scalar::Null))),
            (parsed, Err(Unread::Ignored(_))) => assert!(matches!(parsed, Ok(Value::Map(_))) && watched.layout.ignores_any()),
            (Err(expected), Err(Unread::Bad(error))) => assert_eq!((expected.code, expected.offset), (error.code, error.offset)),
            (Err(expected), Ok(_)) => panic!("accepted: {expected}"),
            (Ok(Value::Map(_)), Err(Unread::Bad(error))) => {
                let of_text = [EventCode::MalformedJson, EventCode::BadUtf8, EventCode::LoneSurrogate, EventCode::TooDeep];
                assert!(!of_text.contains(&error.code) && error.code != EventCode::NotAnObject, "{error}");
            }
            (Ok(_), Err(Unread::Bad(error))) => assert_eq!(error.code, EventCode::NotAnObject),
            (Ok(raw), Ok(full)) => {
                let lazy = lazy.unwrap_or_else(|error| panic!("lazily refused: {error}"));
                let event = naive::NaiveEvent::read(text, &watched.layout, &limits).unwrap();
                finds(full, watched, raw, &event);
                present(full, watched);
                assert_eq!(full.parts().tenant, lazy.parts().tenant);
                assert_eq!(full.parts().topic, lazy.parts().topic);
                assert_eq!(full.parts().event_type, lazy.parts().event_type);
                if json::parse::<Tree>(text, ParseOptions::default()).is_ok_and(|tree| has_twice(&tree)) {
                    let once = json::write(raw);
                    let event = naive::NaiveEvent::read(once.as_bytes(), &watched.layout, &limits).unwrap();
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

/// Whether any list has more elements than are kept in any case.
fn has_long_list(value: &Value) -> bool {
    match value {
        Value::List(elements) => elements.len() > 256 || elements.iter().any(has_long_list),
        Value::Map(members) => members.iter().any(|(_, member)| has_long_list(member)),
        _ => false,
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

fn finds(flat: &Flat<'_>, watched: &Watched, raw: &Value, event: &naive::NaiveEvent) {
    let mut positions: Vec<(Position, Vec<(*const Value, usize)>)> = Vec::new();
    for (path, id) in &watched.paths {
        let document = match path.root {
            Root::Data => event.data.as_ref(),
            Root::Before => event.before.as_ref(),
            _ => {
                let mut expected = Vec::new();
                naive_leaves(raw, &path.names, &mut Vec::new(), &mut expected);
                let found: Vec<_> = flat.leaves(*id).collect();
                if has_long_list(raw) {
                    // Of its elements those that repeat another one may be left out.
                    assert!(found.len() <= expected.len() && found.is_empty() == expected.is_empty(), "{path:?}");
                    continue;
                }
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
