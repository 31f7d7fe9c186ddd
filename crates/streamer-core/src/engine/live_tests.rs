//! Adding, replacing and removing during matching; sizes; refusals.

use crate::engine::{Addition, Counters, Draft, Engine, Event, MANY, Options, Scratch, Selection, WriteMode};
use crate::error::{SubscriptionError, SubscriptionErrorKind};
use crate::regexps::Regexp;
use crate::subscriptions::normal_form::{Atom, Clause, Conjunction, Mode, NormalForm, Path, Range, Root};
use crate::value::{Kinds, Number, Scalar};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

fn clause(names: &[&str], atoms: Vec<Atom>) -> Clause {
    Clause { path: Path::new(Root::Data, names), mode: Mode::Scalar, atoms }
}

fn text(value: &str) -> Atom {
    Atom::Equal(Scalar::String(value.into()))
}

fn number(value: u64) -> Number {
    Number::from_u64(value)
}

fn all(clauses: Vec<Clause>) -> NormalForm {
    NormalForm { conjunctions: vec![Conjunction { clauses }], verify: None, ..NormalForm::default() }
}

fn addition(id: &str, tenant: &str, collection: &str, form: NormalForm) -> Addition {
    Addition {
        gateway_id: Some("g".into()),
        tenant: tenant.into(),
        collection: Some(collection.into()),
        ..Addition::new(id, form, id.as_bytes())
    }
}

fn add(engine: &Engine, additions: impl IntoIterator<Item = Addition>) {
    engine.write(additions.into_iter().map(Ok).collect(), WriteMode::Add, false).unwrap();
}

fn remove(engine: &Engine, id: &str) -> bool {
    !engine.remove(&Selection { ids: Some(&[id]), ..Selection::default() }).removed.is_empty()
}

fn ids(engine: &Engine, event: &str, scratch: &mut Scratch) -> Vec<String> {
    // Others write meanwhile: the version keeps the slots.
    let version = engine.version();
    let matched = engine.match_event_on(&version, Event::new(event.as_bytes(), Some("t"), Some("c")), scratch).unwrap();
    let mut ids: Vec<String> = matched.certain.iter().map(|slot| engine.record(*slot).unwrap().id().to_owned()).collect();
    ids.sort();
    ids
}

const EVENT: &str = r#"{"data":{"a":"x"}}"#;

#[test]
fn what_many_small_changes_leave_free_is_given_back() {
    static IS_GIVEN_BACK: AtomicBool = AtomicBool::new(false);
    let engine = Engine::new(Options { give_back: Some(|| IS_GIVEN_BACK.store(true, Ordering::Relaxed)), ..Options::default() });
    for _ in 0..MANY / 2 {
        assert!(!IS_GIVEN_BACK.load(Ordering::Relaxed));
        add(&engine, [addition("s", "t", "c", all(vec![clause(&["a"], vec![text("x")])]))]);
        assert!(remove(&engine, "s"));
    }
    let begun = Instant::now();
    while !IS_GIVEN_BACK.load(Ordering::Relaxed) {
        assert!(begun.elapsed() < Duration::from_secs(30));
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn what_a_huge_event_leaves_free_is_given_back() {
    static IS_GIVEN_BACK: AtomicBool = AtomicBool::new(false);
    let engine = Engine::new(Options { give_back: Some(|| IS_GIVEN_BACK.store(true, Ordering::Relaxed)), ..Options::default() });
    add(&engine, [addition("s", "t", "c", all(vec![clause(&["a"], vec![text("x")])]))]);
    let mut scratch = Scratch::default();
    for (bytes, is_given_back) in [(1 << 20, false), (5 << 20, true)] {
        let event = format!(r#"{{"data":{{"a":"x","b":"{}"}}}}"#, "y".repeat(bytes));
        assert_eq!(ids(&engine, &event, &mut scratch), ["s"]);
        assert_eq!(IS_GIVEN_BACK.load(Ordering::Relaxed), is_given_back);
    }
}

#[test]
fn matching_and_scrapes_go_on_while_a_writer_is_stopped_inside_a_write() {
    let (entered, has_entered) = channel();
    let (release, may_go_on) = channel::<()>();
    let armed = Arc::new(AtomicBool::new(false));
    let gate = (armed.clone(), Mutex::new((entered, may_go_on)));
    let before_publish = move || {
        if gate.0.load(Ordering::SeqCst) {
            let both = gate.1.lock().unwrap();
            both.0.send(()).unwrap();
            both.1.recv().unwrap();
        }
    };
    let engine = Engine::new(Options { before_publish: Some(Arc::new(before_publish)), ..Options::default() });
    add(&engine, [addition("old", "t", "c", all(vec![clause(&["a"], vec![text("x")])]))]);
    armed.store(true, Ordering::SeqCst);
    thread::scope(|scope| {
        scope.spawn(|| add(&engine, [addition("new", "t", "c", all(vec![clause(&["a"], vec![text("x")])]))]));
        has_entered.recv().unwrap();
        let mut scratch = Scratch::default();
        for _ in 0..100_000 {
            let matched = engine.match_event(Event::new(EVENT.as_bytes(), Some("t"), Some("c")), &mut scratch).unwrap();
            assert_eq!(matched.certain.len(), 1);
        }
        let (stores, _) = engine.bytes();
        assert!(stores > 0 && engine.bytes_of_records().records > 0 && engine.bytes_of_records().texts > 0);
        release.send(()).unwrap();
    });
    assert_eq!(ids(&engine, EVENT, &mut Scratch::default()), ["new", "old"]);
}

#[test]
fn a_replace_across_partitions_is_seen_whole_and_a_sibling_always() {
    let engine = Engine::new(Options::default());
    let form = || all(vec![clause(&["a"], vec![text("x")])]);
    add(&engine, [addition("moving", "t", "c", form()), addition("sibling", "t", "c", form())]);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut scratch = Scratch::default();
                while !done.load(Ordering::Relaxed) {
                    assert_eq!(ids(&engine, EVENT, &mut scratch), ["moving", "sibling"]);
                }
            });
        }
        for round in 0..3000 {
            let (tenant, collection) = [("*", "c"), ("t", "*"), ("*", "*"), ("t", "c")][round % 4];
            engine
                .write(Draft::from_iter([Ok(addition("moving", tenant, collection, form()))]), WriteMode::Replace, false)
                .unwrap();
            let other = format!("other{}", round % 200);
            if !remove(&engine, &other) {
                add(&engine, [addition(&other, "t", "c", all(vec![clause(&["a"], vec![text("y")])]))]);
            }
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn memory_returns_after_rounds_of_add_and_remove_without_matching() {
    let engine = Engine::new(Options::default());
    add(&engine, [addition("stays", "t", "c", all(vec![clause(&["a"], vec![text("x")])]))]);
    let mut most = 0;
    for round in 0..30_000_u32 {
        let id = format!("s{round}");
        let form = all(vec![clause(&["a"], vec![text(&id)]), clause(&[&id], vec![Atom::Kinds(Kinds::PRESENT)])]);
        add(&engine, [addition(&id, "t", if round % 2 == 0 { "c" } else { &id }, form)]);
        most = most.max(engine.get(&id).unwrap().0);
        assert!(remove(&engine, &id));
    }
    assert!(most < 4096, "slot {most}");
    assert_eq!(engine.len(), 1);
    let (stores, indexes) = engine.bytes();
    assert!(stores + indexes < 20_000, "{stores} {indexes}");
    let held = engine.bytes_of_records();
    assert!(held.records < 500_000 && held.texts < 1_000, "{held:?}");
    assert_eq!(engine.shape().0, 1);
    assert_eq!(ids(&engine, EVENT, &mut Scratch::default()), ["stays"]);
}

#[test]
fn a_slot_is_not_given_away_while_a_match_holds_it() {
    let engine = Engine::new(Options::default());
    add(&engine, [addition("held", "t", "c", all(vec![clause(&["a"], vec![text("x")])]))]);
    let mut scratch = Scratch::default();
    let version = engine.version();
    let slot =
        engine.match_event_on(&version, Event::new(EVENT.as_bytes(), Some("t"), Some("c")), &mut scratch).unwrap().certain[0];
    let pin = version.pin();
    drop(version);
    assert!(remove(&engine, "held"));
    for round in 0..3000 {
        let id = format!("s{round}");
        add(&engine, [addition(&id, "t", "c", all(vec![clause(&["a"], vec![text("y")])]))]);
        assert_ne!(engine.get(&id).unwrap().0, slot);
        assert!(remove(&engine, &id));
    }
    assert_eq!(engine.record(slot).unwrap().id(), "held");
    drop(pin);
    for round in 0..10 {
        let id = format!("t{round}");
        add(&engine, [addition(&id, "t", "c", all(vec![clause(&["a"], vec![text("y")])]))]);
    }
    assert!(engine.record(slot).is_none_or(|record| record.id() != "held"));
}

#[test]
fn a_match_that_is_kept_keeps_nothing_of_what_comes_and_goes_after_it() {
    let engine = Engine::new(Options::default());
    let form = || all(vec![clause(&["a"], vec![text("x")])]);
    let mut scratch = Scratch::default();
    let mut pinned = |id: &str| {
        add(&engine, [addition(id, "t", "c", form())]);
        let version = engine.version();
        let slot =
            engine.match_event_on(&version, Event::new(EVENT.as_bytes(), Some("t"), Some("c")), &mut scratch).unwrap().certain[0];
        (slot, version.pin())
    };
    let (old, first) = pinned("old");
    assert!(remove(&engine, "old"));
    let churn = |from: usize| {
        let mut most = 0;
        for round in from..from + 20_000 {
            let id = format!("s{round}");
            add(&engine, [addition(&id, "t", "d", form())]);
            let (slot, _) = engine.get(&id).unwrap();
            assert_ne!(slot, old);
            most = most.max(slot);
            assert!(remove(&engine, &id));
        }
        most
    };
    assert!(churn(0) < 4096);
    let (new, second) = pinned("new");
    assert!(remove(&engine, "new"));
    let most = churn(20_000);
    assert!(most < 8192, "{most}");
    let held = |slot: u32, id: &str| engine.record(slot).is_some_and(|record| record.id() == id);
    assert!(held(old, "old") && held(new, "new"));
    drop(second);
    assert!(churn(40_000) < 8192 && held(old, "old") && !held(new, "new"));
    drop(first);
    for round in 0..3000 {
        add(&engine, [addition(&format!("t{round}"), "t", "d", form())]);
    }
    assert!(!held(old, "old"));
}

#[test]
fn what_is_removed_never_matches_again_while_segments_merge_behind() {
    let engine = Engine::new(Options::default());
    let mut scratch = Scratch::default();
    let of = |n: usize| format!("s{n:05}");
    let mut held: Vec<bool> = vec![false; 6000];
    for round in 0..60 {
        let from = round * 100;
        let additions = (from..from + 100).map(|n| {
            let value = (n % 7).to_string();
            addition(&of(n), "t", "c", all(vec![clause(&["a"], vec![text(&value)]), clause(&["b"], vec![text("z")])]))
        });
        add(&engine, additions);
        held[from..from + 100].fill(true);
        for at in (round % 3..from + 100).step_by(3 + round % 5) {
            assert_eq!(remove(&engine, &of(at)), held[at]);
            held[at] = false;
        }
        for value in 0..7 {
            let found = ids(&engine, &format!(r#"{{"data":{{"a":"{value}","b":"z"}}}}"#), &mut scratch);
            let expected: Vec<String> = (0..held.len()).filter(|n| held[*n] && n % 7 == value).map(of).collect();
            assert_eq!(found, expected, "round {round}");
        }
    }
    engine.merge();
    assert_eq!(engine.shape(), (1, 1));
    assert_eq!(engine.len(), held.iter().filter(|held| **held).count());
}

#[test]
fn nothing_is_limited_to_255_or_65_535_of_anything() {
    let engine = Engine::new(Options::default());
    let mut additions: Vec<Addition> = (0..70_000)
        .map(|n| addition(&format!("v{n}"), "t", "c", all(vec![clause(&["a"], vec![text(&format!("v{n}"))])])))
        .collect();
    additions.extend((0..3000).map(|n| {
        let name = format!("n{n}");
        addition(&format!("p{n}"), "t", "c", all(vec![clause(&[&name], vec![text("x")])]))
    }));
    let conjunctions = (0..3000).map(|n| Conjunction { clauses: vec![clause(&["b"], vec![text(&n.to_string())])] }).collect();
    additions.push(addition("or", "t", "c", NormalForm { conjunctions, verify: None, ..NormalForm::default() }));
    let fields = (0..300).map(|n| clause(&["f", &n.to_string()], vec![text("x")])).collect();
    additions.push(addition("and", "t", "c", all(fields)));
    let values = (0..70_000).map(|n| Atom::Equal(Scalar::Number(number(n)))).collect();
    additions.push(addition("in", "t", "c", all(vec![clause(&["c"], values)])));
    add(&engine, additions);
    let mut scratch = Scratch::default();
    let fields: Vec<String> = (0..300).map(|n| format!("\"{n}\":\"x\"")).collect();
    let event =
        format!(r#"{{"data":{{"a":"v69999","n2999":"x","n17":"x","b":"2999","f":{{{}}},"c":69999.0}}}}"#, fields.join(","));
    assert_eq!(ids(&engine, &event, &mut scratch), ["and", "in", "or", "p17", "p2999", "v69999"]);
    let event = event.replace("\"299\":\"x\"", "\"299\":\"y\"").replace("69999.0", "70000");
    assert_eq!(ids(&engine, &event, &mut scratch), ["or", "p17", "p2999", "v69999"]);
}

#[test]
fn candidates_follow_matches_and_events_that_share_nothing_bring_up_none() {
    let engine = Engine::new(Options { background: false, ..Options::default() });
    let additions = (0..20_000_u64).map(|n| {
        let mut clauses = match n % 4 {
            0 => vec![clause(&["user"], vec![text(&format!("u{}", n % 3000))])],
            1 => vec![clause(&["user"], vec![Atom::Prefix(format!("u{}", n % 500).into())])],
            2 => vec![
                clause(&["status"], vec![text(["paid", "draft", "sent"][n as usize / 4 % 3])]),
                clause(&["country"], vec![text(&format!("c{}", n / 4 % 30))]),
            ],
            _ => vec![clause(
                &["amount"],
                vec![Atom::Numbers(Range { low: Some((number(n), true)), high: Some((number(n + 30), true)) })],
            )],
        };
        if n % 8 < 4 {
            clauses.push(clause(&["tier"], vec![text(["free", "gold"][n as usize / 8 % 2])]));
        }
        addition(&format!("s{n}"), "t", "c", all(clauses))
    });
    add(&engine, additions);
    engine.merge();
    let mut scratch = Scratch::default();
    let counted = |event: &str, scratch: &mut Scratch| -> [u64; 4] {
        let before = engine.counters();
        engine.match_event(Event::new(event.as_bytes(), Some("t"), Some("c")), scratch).unwrap();
        let after = engine.counters();
        let read = |counters: &Counters| [counters.events, counters.candidates.sum, counters.listed, counters.matches.sum];
        std::array::from_fn(|at| read(&after)[at] - read(&before)[at])
    };
    for n in 0..500 {
        let event = format!(
            r#"{{"data":{{"user":"u{}","status":"{}","country":"c{}","amount":{},"tier":"gold"}}}}"#,
            n * 13 % 4000,
            ["paid", "draft", "sent", "none"][n % 4],
            n % 33,
            n * 41
        );
        let [events, candidates, listed, matches] = counted(&event, &mut scratch);
        assert!(candidates <= 4 * matches + 64, "{event}: {candidates} candidates, {matches} matches");
        assert_eq!((events, listed), (1, 0));
    }
    let [_, candidates, _, matches] =
        counted(r#"{"data":{"user":"x","status":"x","country":"x","amount":-5,"tier":"gold"}}"#, &mut scratch);
    assert_eq!((candidates, matches), (0, 0));
}

/// A subscription to one of *wanted* values, and to none of as many others, in one list or a clause each.
fn asks_and_excludes(id: &str, wanted: u64, excluded: u64, in_one: bool) -> Addition {
    let none_of = |range: std::ops::Range<u64>| Atom::Other {
        kinds: Kinds::PRESENT,
        none_of: range.map(|n| text(&format!("w{n}"))).collect(),
    };
    let mut clauses = vec![clause(&["a"], (0..wanted).map(|n| text(&format!("v{n}"))).collect())];
    if in_one {
        clauses.push(clause(&["b"], vec![none_of(0..excluded)]));
    } else {
        clauses.extend((0..excluded).map(|n| clause(&["b"], vec![none_of(n..n + 1)])));
    }
    addition(id, "t", "c", all(clauses))
}

#[test]
fn lists_of_one_subscription_take_their_sum_and_not_their_product() {
    for in_one in [true, false] {
        for (wanted, excluded) in [(2, 3000), (70, 100), (300, 300), (3000, 3000), (20_000, 40)] {
            let engine = Engine::new(Options::default());
            // Two subscriptions with the same values meet at each.
            add(&engine, ["s", "u"].map(|id| asks_and_excludes(id, wanted, excluded - u64::from(id == "u"), in_one)));
            let (conditions, index) = engine.bytes();
            let most = 1_000_000 + 100 * (wanted + excluded) as usize;
            assert!(index < most, "{wanted} and {excluded} take {index} bytes, and {conditions}");
            let mut scratch = Scratch::default();
            let mut found = |a: u64, b: u64| ids(&engine, &format!(r#"{{"data":{{"a":"v{a}","b":"w{b}"}}}}"#), &mut scratch);
            assert_eq!(found(wanted - 1, excluded), ["s", "u"]);
            assert_eq!(found(0, excluded - 1), ["u"]);
            assert!(found(0, 0).is_empty() && found(wanted - 1, excluded - 2).is_empty() && found(wanted, excluded).is_empty());
        }
    }
}

#[test]
fn a_write_leaves_large_segments_alone() {
    let engine = Engine::new(Options { background: false, ..Options::default() });
    // More than 16 MiB of conditions.
    let long = "x".repeat(1 << 20);
    let values = (0..20).map(|n| text(&format!("{n}{long}"))).collect();
    add(&engine, [addition("large", "t", "c", all(vec![clause(&["a"], values)]))]);
    (0..100).for_each(|n| add(&engine, [addition(&format!("s{n}"), "t", "c", all(vec![clause(&["a"], vec![text("x")])]))]));
    // The large one, and at most seven of each of three levels.
    assert!((2..=22).contains(&engine.shape().1), "{}", engine.shape().1);
    assert!(remove(&engine, "large"));
    assert_eq!(ids(&engine, EVENT, &mut Scratch::default()).len(), 100);
    engine.merge();
    assert_eq!(engine.shape().1, 1);
}

#[test]
fn a_write_is_all_or_nothing_and_names_everything_that_is_wrong() {
    let engine = Engine::new(Options { allow_unindexed: false, ..Options::default() });
    let good = || all(vec![clause(&["a"], vec![text("x")])]);
    add(&engine, [addition("held", "t", "c", good())]);
    let huge = Atom::Regexp(Regexp { expression: r"(\pL{1,99}){99}".into(), size: 1 });
    let items = || {
        let additions = [
            addition("good", "t", "c", good()),
            addition("held", "t", "c", good()),
            addition("good", "t", "c", good()),
            addition("huge", "t", "c", all(vec![clause(&["a"], vec![huge.clone()])])),
            addition("any", "t", "c", all(vec![clause(&["a"], vec![Atom::Kinds(Kinds::PRESENT)])])),
        ];
        Draft::from_iter(additions.map(Ok))
    };
    let errors = engine.write(items(), WriteMode::Add, false).unwrap_err();
    assert_eq!(errors.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert_eq!(errors[0].1.kind, SubscriptionErrorKind::Duplicate);
    assert_eq!(engine.len(), 1);
    let changes = engine.write(items(), WriteMode::Add, true).unwrap();
    assert_eq!((changes.added.len(), changes.errors.len(), engine.len()), (1, 4, 2));
    let apply = Draft::from_iter([addition("held", "t", "c", good()), addition("third", "u", "c", good())].map(Ok));
    let changes = engine.write(apply, WriteMode::Apply, false).unwrap();
    assert_eq!((changes.unchanged.len(), changes.added.len(), changes.removed.len()), (1, 1, 1));
    let order: Vec<String> = engine.select(&Selection::default()).into_iter().map(|(_, record)| record.id().to_owned()).collect();
    assert_eq!(order, ["held", "third"]);
    assert_eq!(engine.select(&Selection { tenant: Some("u"), ..Selection::default() }).len(), 1);
}

#[test]
fn of_a_draft_those_are_held_that_are_accepted_each_with_its_own_conditions() {
    let engine = Engine::new(Options::default());
    let wants = |value: &str| all(vec![clause(&["a"], vec![text(value)])]);
    let of = |id: &str, collection: &str| addition(id, "t", collection, wants(id));
    let waits = |id: &str, collection: &str| Addition { external_cel: true, ..addition(id, "t", collection, all(vec![])) };
    add(&engine, [of("held", "c")]);
    // The first of a partition wait in any case.
    let few: Vec<String> = (0..10).map(|n| format!("few{n}")).collect();
    let others = [
        waits("first", "c"),
        of("held", "c"),
        of("second", "c"),
        waits("refused", "c"),
        of("alone", "d"),
        of("second", "e"),
        of("third", "c"),
        waits("fourth", "c"),
        of("fifth", "*"),
    ];
    let mut draft = Draft::from_iter(few.iter().map(|id| of(id, "c")).chain(others).map(Ok));
    for (at, id) in [(10, "first"), (13, "refused"), (17, "fourth")] {
        draft.explain(at, false, |form| *form = wants(id));
    }
    draft.refuse(13, SubscriptionError::new("", "by the host"));
    let changes = engine.write(draft, WriteMode::Add, true).unwrap();
    assert_eq!(changes.errors.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [11, 13, 15]);
    let added: Vec<usize> = changes.added.iter().map(|(at, _)| *at).collect();
    assert_eq!(added, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 17, 18]);
    let mut scratch = Scratch::default();
    for id in few.iter().map(String::as_str).chain(["held", "first", "second", "third", "fourth", "fifth"]) {
        assert_eq!(ids(&engine, &format!(r#"{{"data":{{"a":"{id}"}}}}"#), &mut scratch), [id]);
    }
    for id in ["refused", "alone"] {
        assert!(ids(&engine, &format!(r#"{{"data":{{"a":"{id}"}}}}"#), &mut scratch).is_empty());
    }
    let event = Event::new(br#"{"data":{"a":"alone"}}"#, Some("t"), Some("d"));
    assert_eq!(engine.match_event_on(&engine.version(), event, &mut scratch).unwrap().certain.len(), 1);
}
