//! What matching costs: microseconds an event by the number of subscriptions and of matches, loading, memory.
//!
//! `cargo run --release -p streamer-core --example matching [-- --smoke] [SECTION...]`, SECTION one of `sizes`, `flat`,
//! `removed`, `repeated`, `partitions`, `crowd`, `churn`. It prints Markdown; `python -m benchmarks.core` keeps it as a dated
//! record. `[--smoke] write SET FOLDER` measures nothing: it writes the subscriptions and the events of a set, for others to measure.
//!
//! Subscriptions are JSON texts, read, lowered and added as `add_many` does it; 20,000 to a collection, each a partition of
//! one segment. An event counts with its fastest of several passes, for what the machine does besides only adds; p50 and p99
//! are over the events. Flattening and full validation are in it. The largest size is loaded several times and the best
//! counts, since where pages lie in a cache is luck.
//!
//! A million subscriptions are in no cache: an event waits for memory, a few lines one after the other. So what such a wait
//! costs on this machine is printed, too.
//!
//! It checks itself: on small sets the index finds what a plain evaluation finds; the flat index finds what the recursive one
//! does; candidates stay under 4 × matches + 64, and are none for events that share no value.

mod sets;

use sets::{Conditions, Dice, SETS, event};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use streamer_core::engine::{Addition, Depth, Draft, Engine, Options, Scratch, Selection, WriteMode};
use streamer_core::layout::EventLayout;
use streamer_core::limits::Limits;
use streamer_core::naive;
use streamer_core::subscriptions::parse::Defaults;
use streamer_core::subscriptions::{Subscription, normal_form};

/// That of the binding.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How much is run.
struct Scale {
    sizes: &'static [usize],
    most: usize,
    crowd: usize,
    partitions: usize,
    events: usize,
    passes: usize,
    loads: usize,
    /// Of each round of changes, and of each round without.
    round: Duration,
    rounds: usize,
}

const FULL: Scale = Scale {
    sizes: &[1, 1_000, 100_000],
    most: 1_000_000,
    crowd: 20_000,
    partitions: 300_000,
    events: 4_000,
    passes: 7,
    loads: 4,
    round: Duration::from_secs(2),
    rounds: 4,
};
const SMOKE: Scale = Scale {
    sizes: &[1, 300],
    most: 1_000,
    crowd: 500,
    partitions: 300,
    events: 60,
    passes: 1,
    loads: 2,
    round: Duration::from_millis(20),
    rounds: 1,
};

/// One set at one size.
#[derive(Clone, Copy)]
struct Run {
    set: &'static str,
    subscriptions: usize,
    collections: usize,
    depth: Depth,
    twice: bool,
    /// Whether a thread merges.
    background: bool,
    events: usize,
    passes: usize,
}

impl Run {
    fn new(set: &'static str, subscriptions: usize, scale: &Scale) -> Run {
        let (collections, depth) = (subscriptions.div_ceil(scale.crowd), Depth::RECURSIVE);
        Run {
            set,
            subscriptions,
            collections,
            depth,
            twice: false,
            background: false,
            events: scale.events,
            passes: scale.passes,
        }
    }

    fn texts(&self) -> Vec<String> {
        let mut dice = Dice(42);
        let one = |at: usize| Conditions::draw(&mut dice, self.set).text(at, at % self.collections, self.twice);
        (0..self.subscriptions).map(one).collect()
    }

    fn events(&self) -> Vec<String> {
        let mut dice = Dice(7);
        (0..self.events).map(|_| event(&mut dice, self.collections)).collect()
    }

    fn load(&self) -> Loaded {
        let limits = Limits::default();
        let texts = self.texts();
        let before = resident_bytes();
        let engine = Engine::new(Options { depth: self.depth, background: self.background, ..Options::default() });
        let started = Instant::now();
        let draft: Draft = texts.iter().map(|text| Ok(addition(text, &limits))).collect();
        let read_s = started.elapsed().as_secs_f64();
        let started = Instant::now();
        engine.write(draft, WriteMode::Add, false).expect("good subscriptions");
        Loaded { engine, read_s, build_s: started.elapsed().as_secs_f64(), resident: resident_bytes() - before }
    }

    /// Match all events, several times.
    fn measure(&self, engine: &Engine) -> Measured {
        let events = self.events();
        let mut scratch = Scratch::default();
        let mut fastest = vec![u128::MAX; events.len()];
        let mut matches = 0;
        let before = engine.counters();
        for _ in 0..self.passes {
            matches = 0;
            for (event, fastest) in events.iter().zip(&mut fastest) {
                let started = Instant::now();
                let matched = engine.match_event(event.as_bytes(), &mut scratch).expect("a good event");
                let found = matched.certain.len();
                *fastest = started.elapsed().as_nanos().min(*fastest);
                matches += found;
            }
        }
        let after = engine.counters();
        let candidates = (after.indexed() - before.indexed()) as f64 / (after.events - before.events) as f64;
        let each = matches as f64 / events.len() as f64;
        if self.depth == Depth::RECURSIVE {
            assert!(candidates <= 4.0 * each + 64.0, "{}: {candidates} candidates for {each} matches", self.set);
        }
        assert!(self.set != "none" || self.twice || candidates == 0.0, "{candidates} candidates for events that share no value");
        let (p50, p99) = percentiles(&mut fastest);
        Measured { p50, p99, matches, candidates, each }
    }
}

/// An engine with subscriptions, and what loading them took.
struct Loaded {
    engine: Engine,
    read_s: f64,
    build_s: f64,
    resident: f64,
}

impl Loaded {
    const HEAD: &str = "| set | subscriptions | read and lowered /s | built /s | together /s | conditions B | index B | resident B | segments |\n\
                        |---|--:|--:|--:|--:|--:|--:|--:|--:|";

    fn row(&self, set: &str) -> String {
        let count = self.engine.len() as f64;
        let (conditions, indexes) = self.engine.bytes();
        format!(
            "| {set} | {} | {:.0} | {:.0} | {:.0} | {:.0} | {:.0} | {:.0} | {} |",
            self.engine.len(),
            count / self.read_s,
            count / self.build_s,
            count / (self.read_s + self.build_s),
            conditions as f64 / count,
            indexes as f64 / count,
            self.resident / count,
            self.engine.shape().1
        )
    }
}

/// What matching gave: microseconds an event, matches of all events, candidates and matches of one.
struct Measured {
    p50: f64,
    p99: f64,
    matches: usize,
    candidates: f64,
    each: f64,
}

/// The p50 and p99, in microseconds, of some times in nanoseconds.
fn percentiles(times: &mut [u128]) -> (f64, f64) {
    times.sort_unstable();
    let at = |share: usize| times[times.len() * share / 100] as f64 / 1000.0;
    (at(50), at(99))
}

/// Nanoseconds of a load that waits for memory: a walk of random steps over 256 MiB.
fn wait_ns() -> f64 {
    const PLACES: usize = 1 << 26;
    let mut next: Vec<u32> = (0..PLACES as u32).collect();
    let mut dice = Dice(3);
    // One cycle through all places.
    (1..PLACES).rev().for_each(|at| next.swap(at, dice.below(at as u64) as usize));
    let (steps, mut at) = (1_000_000, 0);
    let started = Instant::now();
    (0..steps).for_each(|_| at = next[at as usize]);
    assert_ne!(std::hint::black_box(at), u32::MAX);
    started.elapsed().as_nanos() as f64 / f64::from(steps)
}

fn resident_bytes() -> f64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    pages.split(' ').nth(1).and_then(|pages| pages.parse::<f64>().ok()).unwrap_or(0.0) * 4096.0
}

fn addition(text: &str, limits: &Limits) -> Addition {
    let subscription = Subscription::parse(text.as_bytes(), Defaults::default(), limits).expect("a subscription");
    let form = normal_form(&subscription, limits);
    let Subscription { id, tenant, collection, .. } = subscription;
    Addition { tenant, collection, ..Addition::new(id, form, text.as_bytes()) }
}

fn sizes(scale: &Scale) {
    println!("### An event\n");
    if scale.most == FULL.most {
        println!("A load that waits for memory takes {:.0} ns here.\n", wait_ns());
    }
    println!("| subscriptions | set | matches | candidates | p50 µs | p99 µs | prototype p50 | p99 | ÷ prototype p50 | p99 |");
    println!("|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|");
    let mut rows = Vec::new();
    for subscriptions in scale.sizes.iter().copied().chain([scale.most]) {
        for set in &SETS {
            let run = Run::new(set.name, subscriptions, scale);
            let (mut p50, mut p99, mut fastest) = (f64::MAX, f64::MAX, (f64::MAX, String::new()));
            let (mut candidates, mut each) = (0.0, 0.0);
            for _ in 0..if subscriptions == scale.most { scale.loads } else { 1 } {
                let loaded = run.load();
                let measured = run.measure(&loaded.engine);
                (p50, p99) = (p50.min(measured.p50), p99.min(measured.p99));
                (candidates, each) = (measured.candidates, measured.each);
                let took = loaded.read_s + loaded.build_s;
                if took < fastest.0 {
                    fastest = (took, loaded.row(set.name));
                }
            }
            let beside = if subscriptions == FULL.most {
                format!("{} | {} | **{:.2}** | **{:.2}**", set.p50, set.p99, p50 / set.p50, p99 / set.p99)
            } else {
                "| | |".into()
            };
            println!("| {subscriptions} | {} | {each:.1} | {candidates:.1} | {p50:.2} | {p99:.2} | {beside} |", set.name);
            if subscriptions == scale.most {
                rows.push(fastest.1);
            }
        }
    }
    println!("\n### Loading and memory\n\n{}", Loaded::HEAD);
    rows.iter().for_each(|row| println!("{row}"));
    println!(
        "\nBytes are for one subscription; resident is what the process grew by: conditions, index, the id, the text and the"
    );
    println!("record of each, and what the allocator keeps.\n");
}

fn flat(scale: &Scale) {
    println!("### The flat index beside recursive buckets, {} subscriptions\n", scale.most);
    println!("| set | matches | flat p50 µs | p99 | recursive p50 µs | p99 | flat ÷ recursive, p50 |");
    println!("|---|--:|--:|--:|--:|--:|--:|");
    for set in &SETS {
        let recursive = Run::new(set.name, scale.most, scale);
        // A flat index takes long: fewer passes.
        let flat = Run { depth: Depth::FLAT, passes: recursive.passes.min(3), ..recursive };
        let deep = recursive.measure(&recursive.load().engine);
        let wide = flat.measure(&flat.load().engine);
        assert_eq!(wide.matches, deep.matches, "{}: the flat index finds other matches", set.name);
        let Measured { p50, p99, each, .. } = deep;
        println!(
            "| {} | {each:.1} | {:.2} | {:.2} | {p50:.2} | {p99:.2} | **{:.1}** |",
            set.name,
            wide.p50,
            wide.p99,
            wide.p50 / p50
        );
    }
    println!();
}

fn removed(scale: &Scale) {
    println!("### What tombstones add: a quarter of {} removed, not merged\n", scale.most);
    println!("| set | matches before | after | p50 µs before | after | more µs | p99 before | after |");
    println!("|---|--:|--:|--:|--:|--:|--:|--:|");
    for set in &SETS[1..] {
        let run = Run::new(set.name, scale.most, scale);
        let engine = run.load().engine;
        let before = run.measure(&engine);
        // Scattered evenly over the collections.
        let gone: Vec<String> =
            (0..run.subscriptions).filter(|at| (at / run.collections).is_multiple_of(4)).map(|at| format!("s{at}")).collect();
        let gone: Vec<&str> = gone.iter().map(String::as_str).collect();
        engine.remove(&Selection { ids: Some(&gone), ..Selection::default() });
        let after = run.measure(&engine);
        // Of a handful of matches none may be among the removed.
        assert!(after.matches < before.matches.max(20), "{}: the removed still match", set.name);
        let more = after.p50 - before.p50;
        println!(
            "| {} | {:.1} | {:.1} | {:.2} | {:.2} | **{more:+.2}** | {:.2} | {:.2} |",
            set.name, before.each, after.each, before.p50, after.p50, before.p99, after.p99
        );
    }
    println!();
}

fn repeated(scale: &Scale) {
    println!("### What deduplication adds: each of {} subscriptions found in two ways\n", scale.most);
    println!("| set | matches | candidates once | twice | p50 µs once | twice | more µs | p99 once | twice |");
    println!("|---|--:|--:|--:|--:|--:|--:|--:|--:|");
    for set in &SETS[1..] {
        let once = Run::new(set.name, scale.most, scale);
        let twice = Run { twice: true, ..once };
        let (one, two) = (once.measure(&once.load().engine), twice.measure(&twice.load().engine));
        assert_eq!(one.matches, two.matches, "{}: an OR finds other matches", set.name);
        let more = two.p50 - one.p50;
        println!(
            "| {} | {:.1} | {:.1} | {:.1} | {:.2} | {:.2} | **{more:+.2}** | {:.2} | {:.2} |",
            set.name, one.each, one.candidates, two.candidates, one.p50, two.p50, one.p99, two.p99
        );
    }
    println!("\nThe surplus holds twice the conjunctions and the conditions that make them, not the deduplication alone.\n");
}

fn partitions(scale: &Scale) {
    println!("### {} subscriptions over {} partitions\n\n{}", scale.most, scale.partitions, Loaded::HEAD);
    let run = Run { collections: scale.partitions, ..Run::new("2,000", scale.most, scale) };
    let loaded = run.load();
    println!("{}", loaded.row(run.set));
    let found = run.measure(&loaded.engine);
    println!("\nAn event: {:.2} matches, p50 {:.2} µs, p99 {:.2} µs.\n", found.each, found.p50, found.p99);
}

/// What no event of any set wants.
fn unwanted(dice: &mut Dice, number: usize, collections: usize) -> String {
    Conditions::draw(dice, "none").text(number, number % collections, false)
}

fn crowd(scale: &Scale) {
    let few = scale.sizes[1];
    println!(
        "### {few} subscriptions of a collection alone, and beside {} of it that want none of the events\n",
        scale.most - few
    );
    println!("| set, crowded | matches | alone p50 µs | p99 | beside p50 µs | p99 | beside ÷ alone, p50 | p99 |");
    println!("|---|--:|--:|--:|--:|--:|--:|--:|");
    for set in &SETS {
        let run = Run { collections: 1, ..Run::new(set.name, few, scale) };
        let engine = run.load().engine;
        let alone = run.measure(&engine);
        let (mut dice, limits) = (Dice(43), Limits::default());
        let items = (few..scale.most).map(|number| Ok(addition(&unwanted(&mut dice, number, run.collections), &limits)));
        engine.write(items.collect(), WriteMode::Add, false).expect("good subscriptions");
        let beside = run.measure(&engine);
        assert_eq!(alone.matches, beside.matches, "{}: those beside match", set.name);
        println!(
            "| {} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} | **{:.2}** | **{:.2}** |",
            set.name,
            alone.each,
            alone.p50,
            alone.p99,
            beside.p50,
            beside.p99,
            beside.p50 / alone.p50,
            beside.p99 / alone.p99
        );
    }
    println!();
}

/// Pairs of changes, one subscription added and one removed, that are made each second beside matching.
const CHANGES: u32 = 2_000;

/// Match events, one after the other, for so long: how long each took, and how many matched.
fn play(engine: &Engine, events: &[String], long: Duration) -> (Vec<u128>, Vec<usize>) {
    let (mut scratch, mut took, mut matches) = (Scratch::default(), Vec::new(), vec![0; events.len()]);
    let begun = Instant::now();
    for at in (0..events.len()).cycle() {
        let started = Instant::now();
        matches[at] = engine.match_event(events[at].as_bytes(), &mut scratch).expect("a good event").certain.len();
        took.push(started.elapsed().as_nanos());
        // Each event at least once.
        if begun.elapsed() > long && took.len() >= events.len() {
            break;
        }
    }
    (took, matches)
}

fn churn(scale: &Scale) {
    println!(
        "### {CHANGES} subscriptions added and as many removed a second, beside matching {} on another thread\n",
        scale.most
    );
    println!("| set, changing | matches | quiet p50 µs | p99 | churn p50 µs | p99 | changes/s | churn ÷ quiet, p50 | p99 |");
    println!("|---|--:|--:|--:|--:|--:|--:|--:|--:|");
    for set in &SETS {
        let run = Run { background: true, ..Run::new(set.name, scale.most, scale) };
        let (engine, events) = (run.load().engine, run.events());
        let (mut quiet, mut churned, mut changes, mut matches) = (Vec::new(), Vec::new(), 0, 0);
        let mut dice = Dice(44);
        let mut change = |number: usize| {
            let text = unwanted(&mut dice, scale.most + number, run.collections);
            engine.write(Draft::from_iter([Ok(addition(&text, &Limits::default()))]), WriteMode::Add, false).expect("a good one");
            // A hundred are held at any time.
            if let Some(number) = number.checked_sub(100) {
                let id = format!("s{}", scale.most + number);
                let gone = engine.remove(&Selection { ids: Some(&[&id]), ..Selection::default() });
                assert_eq!(gone.removed.len(), 1, "{id} was held");
            }
        };
        for _ in 0..scale.rounds {
            let (took, found) = play(&engine, &events, scale.round);
            quiet.extend(took);
            let is_over = AtomicBool::new(false);
            let (took, found_beside) = thread::scope(|scope| {
                scope.spawn(|| {
                    let (begun, before) = (Instant::now(), changes);
                    while !is_over.load(Ordering::Relaxed) {
                        change(changes);
                        changes += 1;
                        let due = begun + Duration::from_secs(1) / CHANGES * (changes - before) as u32;
                        thread::sleep(due.saturating_duration_since(Instant::now()));
                    }
                });
                let played = play(&engine, &events, scale.round);
                is_over.store(true, Ordering::Relaxed);
                played
            });
            churned.extend(took);
            assert_eq!(found, found_beside, "{}: changes that match nothing change what matches", set.name);
            matches = found.iter().sum();
        }
        let rate = changes as f64 / (scale.round * scale.rounds as u32).as_secs_f64();
        let each = matches as f64 / events.len() as f64;
        let ((quiet_p50, quiet_p99), (p50, p99)) = (percentiles(&mut quiet), percentiles(&mut churned));
        println!(
            "| {} | {each:.1} | {quiet_p50:.2} | {quiet_p99:.2} | {p50:.2} | {p99:.2} | {rate:.0} | **{:.2}** | **{:.2}** |",
            set.name,
            p50 / quiet_p50,
            p99 / quiet_p99
        );
    }
    println!("\nHere each event counts each time, with all that the machine does besides.\n");
}

/// Write the subscriptions and the events of a set, a line each.
fn write(set: &str, folder: &Path, scale: &Scale) {
    let set = SETS.iter().find(|other| other.name == set).expect("a set");
    let run = Run::new(set.name, scale.most, scale);
    for (name, lines) in [("subscriptions.jsonl", run.texts()), ("events.jsonl", run.events())] {
        std::fs::write(folder.join(name), lines.join("\n")).expect("a folder that can be written to");
    }
}

/// Every set, small, beside a plain evaluation.
fn check() {
    let (limits, layout) = (Limits::default(), EventLayout::default());
    for set in &SETS {
        for twice in [false, true] {
            let run = Run { twice, collections: 1, ..Run::new(set.name, 600, &SMOKE) };
            let read =
                |text: &String| Subscription::parse(text.as_bytes(), Defaults::default(), &limits).expect("a subscription");
            let held: Vec<Subscription> = run.texts().iter().map(read).collect();
            let engine = run.load().engine;
            let mut scratch = Scratch::default();
            for event in run.events() {
                let read = naive::NaiveEvent::read(event.as_bytes(), &layout, &limits).expect("a good event");
                let mut expected: Vec<&str> =
                    held.iter().filter(|subscription| naive::wants(subscription, &read)).map(|found| &*found.id).collect();
                let matched = engine.match_event(event.as_bytes(), &mut scratch).expect("a good event");
                let records: Vec<_> = matched.certain.iter().filter_map(|slot| engine.record(*slot)).collect();
                let mut found: Vec<&str> = records.iter().map(|record| record.id()).collect();
                expected.sort_unstable();
                found.sort_unstable();
                assert_eq!(found, expected, "{}: {event}", set.name);
            }
        }
    }
}

type Section = (&'static str, fn(&Scale));

const SECTIONS: [Section; 7] = [
    ("sizes", sizes),
    ("flat", flat),
    ("removed", removed),
    ("repeated", repeated),
    ("partitions", partitions),
    ("crowd", crowd),
    ("churn", churn),
];

fn main() {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let smoke = arguments.iter().position(|argument| argument == "--smoke").map(|at| arguments.remove(at)).is_some();
    let scale = if smoke { &SMOKE } else { &FULL };
    if let [first, set, folder] = &arguments[..]
        && first == "write"
    {
        return write(set, Path::new(folder), scale);
    }
    if let Some(name) = arguments.iter().find(|name| SECTIONS.iter().all(|(other, _)| name != other)) {
        eprintln!("no section {name}; there are: {}", SECTIONS.map(|(name, _)| name).join(", "));
        std::process::exit(2);
    }
    check();
    for (name, run) in SECTIONS {
        if arguments.is_empty() || arguments.iter().any(|wanted| wanted == name) {
            run(scale);
        }
    }
}

#[cfg(test)]
#[test]
fn every_section_runs_and_the_index_finds_what_it_must() {
    check();
    SECTIONS.iter().for_each(|(_, run)| run(&SMOKE));
}
