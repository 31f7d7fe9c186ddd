//! Many subscriptions that come, change and go: the engine compared with the naive evaluation.

use super::events::{Choices, event};
use super::flattening::{WATCHED, has_twice};
use super::subscriptions::subscription;
use std::sync::Arc;
use streamer_core::engine::{Addition, Draft, Engine, Options as EngineOptions, Scratch, Selection, WriteMode};
use streamer_core::flatten::Validation;
use streamer_core::json::{self, ParseOptions, Tree};
use streamer_core::limits::Limits;
use streamer_core::naive;
use streamer_core::subscriptions::parse::Defaults;
use streamer_core::subscriptions::{Subscription, normal_form};

/// The engine finds what the naive evaluation wants, while subscriptions come, change and go and segments are merged; returns how
/// many of how many pairs match.
pub fn engine(choices: &mut Choices<'_>) -> (usize, usize) {
    let limits = Limits { max_conjunctions: [1, 64][choices.below(2)], max_pattern_states: 500, ..Limits::default() };
    let layout = Arc::clone(&WATCHED[3 * choices.below(3)].layout);
    let validation = [Validation::Full, Validation::Lazy][choices.below(2)];
    let engine = Engine::new(EngineOptions {
        layout: Arc::clone(&layout),
        limits: limits.clone(),
        background: false,
        validation,
        ..EngineOptions::default()
    });
    let mut scratch = Scratch::default();
    let mut held: Vec<Subscription> = Vec::new();
    let (mut matched, mut pairs) = (0, 0);
    for round in 0..4 {
        let mut draft = Draft::default();
        for number in 0..[4, 24, 90][choices.below(3)] {
            let id = format!("s{number}");
            let text = subscription(choices).replacen("\"s\"", &format!("\"{id}\""), 1);
            let Ok(parsed) = Subscription::parse(text.as_bytes(), Defaults::of("default"), &limits) else { continue };
            if round > 0 && choices.below(3) > 0 {
                continue;
            }
            draft.push(Ok(Addition::new(id.as_str(), normal_form(&parsed, &limits), text.as_bytes())));
            held.retain(|other| *other.id != *id);
            held.push(parsed);
        }
        engine.write(draft, WriteMode::Replace, false).expect("good subscriptions");
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
            // Lazily some bad events are accepted, with unspecified results.
            let Ok(read) = naive::NaiveEvent::read(&event, &layout, &limits) else { continue };
            // Which of two members with one name counts is unspecified, too.
            if validation == Validation::Lazy
                && json::parse::<Tree>(&event, ParseOptions::default()).is_ok_and(|tree| has_twice(&tree))
            {
                continue;
            }
            let stopped = |engine: &Engine| engine.filters().first().map(|filter| (filter.state.no, filter.keyed.1));
            let before = stopped(&engine);
            let Ok(found) = engine.match_event(&event, &mut scratch) else { continue };
            if !found.others.is_empty() {
                continue; // an event with unknown values
            }
            let mut ids: Vec<Box<str>> =
                found.certain.iter().map(|slot| engine.record(*slot).expect("a subscription").id().into()).collect();
            let mut expected: Vec<Box<str>> =
                held.iter().filter(|subscription| naive::wants(subscription, &read)).map(|found| found.id.clone()).collect();
            ids.sort_unstable();
            expected.sort_unstable();
            let shown = || {
                let of: Vec<_> = held.iter().filter(|s| ids.contains(&s.id) != expected.contains(&s.id)).collect();
                format!("{} for {of:?}", String::from_utf8_lossy(&event))
            };
            assert_eq!(ids, expected, "{}", shown());
            // All subscriptions are in one partition. A NO means that no keyed one wants the event.
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
