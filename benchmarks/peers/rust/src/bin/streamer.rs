//! Streamer's core on the patterns of a workload, beside its peers. usage: streamer WORKLOAD EVENTS PATTERNS
//!
//! `$MODE`: `streamer` checks the whole event, as by default; `streamer-lazy` reads only what the patterns ask for, and stops
//! once it has that, which is what quamina and a-tree (through sonic-rs) do.
//!
//! Each pattern is a subscription of one partition: the layout is that of a plain document.

use peers::{args, measure, skip};
use std::sync::Arc;
use std::time::Instant;
use streamer_core::engine::{Addition, Engine, Options, Scratch, WriteMode};
use streamer_core::flatten::Validation;
use streamer_core::layout::EventLayout;
use streamer_core::limits::Limits;
use streamer_core::subscriptions::parse::Defaults;
use streamer_core::subscriptions::{Subscription, normal_form};

const DOCUMENT: &str = r#"{"id":null,"tenant":null,"collection":null,"type":null,"ts":null,"topic":null,"data":"",
    "before":null,"unknown":null,"type_map":null,"ts_format":"ms"}"#;

fn addition(id: u32, pattern: &str) -> Addition {
    let text = format!(r#"{{"id":"{id}","pattern":{pattern}}}"#);
    let limits = Limits::default();
    let subscription = Subscription::parse(text.as_bytes(), Defaults::of("default"), &limits).expect("a pattern");
    let form = normal_form(&subscription, &limits);
    let Subscription { id, tenant, collection, .. } = subscription;
    Addition { tenant, collection, ..Addition::new(id, form, text.as_bytes()) }
}

fn main() {
    let peer = std::env::var("MODE").unwrap_or_else(|_| "streamer".into());
    let validation = if peer == "streamer-lazy" { Validation::Lazy } else { Validation::Full };
    let given = args();
    let started = Instant::now();
    let layout = Arc::new(EventLayout::from_json(DOCUMENT.as_bytes()).expect("a layout"));
    let engine = Engine::new(Options { layout, validation, background: false, ..Options::default() });
    let draft = given.patterns.iter().map(|(id, pattern)| Ok(addition(*id, pattern))).collect();
    let Ok(changes) = engine.write(draft, WriteMode::Add, false) else { skip(&peer, &given.workload, "a pattern was refused") };
    // What a caller gets is its own ids: the peers' ids are integers too.
    let mut ids = vec![0; given.patterns.len()];
    changes.added.iter().for_each(|(at, slot)| ids[*slot as usize] = given.patterns[*at].0);
    let mut scratch = Scratch::default();
    engine.match_event(&given.events[0], &mut scratch).expect("an event");
    let build_s = started.elapsed().as_secs_f64();
    let mut out: Vec<u32> = Vec::new();
    let mut scratch_of_check = Scratch::default();
    measure(
        &peer,
        &given,
        build_s,
        |event, found| {
            let matched = engine.match_event(event, &mut scratch_of_check).expect("an event");
            found.extend(matched.certain.iter().map(|slot| ids[*slot as usize]));
        },
        |event| {
            let matched = engine.match_event(event, &mut scratch).expect("an event");
            out.clear();
            out.extend(matched.certain.iter().map(|slot| ids[*slot as usize]));
            std::hint::black_box(&out).len()
        },
    );
    let counters = engine.counters();
    let (matches, work) = (counters.matches.sum, counters.candidates.sum);
    eprintln!(
        "work {:.1} conjunctions an event, {:.1} matches",
        work as f64 / counters.events as f64,
        matches as f64 / counters.events as f64
    );
}
