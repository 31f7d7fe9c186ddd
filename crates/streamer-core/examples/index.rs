//! Measures the index: `cargo run --release -p streamer-core --example index [what] [subscriptions]`.
//!
//! *what* is `sets` (five sets of mixed subscriptions in 50 collections, recursive buckets and flat), `partitions` (300,000
//! of them, mostly plain lists), or `FILE.jsonl EVENTS.jsonl` (patterns as `{"id": .., "pattern": ..}`, one line each, in one
//! partition). Each event is matched in several passes and counts with its fastest; `PASSES` says how many. Figures of
//! different runs compare only on the same quiet machine.

use std::time::{Duration, Instant};
use streamer_core::engine::{Addition, Depth, Draft, Engine, Options, Scratch, WriteMode};
use streamer_core::layout::{EventLayout, Part};
use streamer_core::limits::Limits;
use streamer_core::subscriptions::parse::Defaults;
use streamer_core::subscriptions::{Subscription, normal_form};

/// That of the binding.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Repeatable choices (SplitMix64).
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Below *bound*, small numbers far more often.
    fn skewed(&mut self, bound: u64) -> u64 {
        (((self.unit() * (bound as f64 + 1.0).ln()).exp() - 1.0) as u64).min(bound - 1)
    }
}

const STATUSES: [&str; 8] = ["paid", "pending", "shipped", "cancelled", "refunded", "failed", "draft", "archived"];
const TIERS: [&str; 4] = ["free", "silver", "gold", "platinum"];

fn user(dice: &mut Dice) -> String {
    format!("u{}", 100_000 + dice.below(200_000))
}

fn country(dice: &mut Dice) -> String {
    format!("C{}", dice.skewed(30))
}

/// Ends of a range that holds a log-uniform share of the amounts.
fn amounts(dice: &mut Dice, least: f64, most: f64) -> (f64, f64) {
    let width = (least.ln() + dice.unit() * (most.ln() - least.ln())).exp();
    let start = dice.unit() * (1.0 - width);
    ((start * 1e6).round() / 100.0, ((start + width) * 1e6).round() / 100.0)
}

fn eq(field: &str, value: &str) -> String {
    format!(r#"{{"field":"{field}","op":"==","value":"{value}"}}"#)
}

fn within(field: &str, (low, high): (f64, f64)) -> String {
    format!(r#"{{"field":"{field}","op":">","value":{low}}},{{"field":"{field}","op":"<","value":{high}}}"#)
}

/// A condition that few events meet, and in half of the subscriptions one that many do.
fn selective(dice: &mut Dice, least: f64, most: f64) -> String {
    let mut data = match dice.below(10) {
        0..6 => {
            let users: Vec<String> = (0..1 + dice.below(3)).map(|_| format!("\"{}\"", user(dice))).collect();
            format!(r#""user":{{"id":[{}]}}"#, users.join(","))
        }
        6 | 7 => format!(r#""user":{{"id":[{{"prefix":"{}"}}]}}"#, &user(dice)[..5]),
        _ => {
            let (low, high) = amounts(dice, least, most);
            format!(r#""amount":[{{"numeric":[">",{low},"<",{high}]}}]"#)
        }
    };
    match dice.below(6) {
        0 => {
            let at = dice.skewed(8) as usize;
            data += &format!(r#","status":["{}","{}"]"#, STATUSES[at], STATUSES[(at + 1) % 8]);
        }
        1 => data += &format!(r#","country":[{{"anything-but":["{}","{}x"]}}]"#, country(dice), country(dice)),
        2 => data += r#","coupon":[{"exists":true}]"#,
        _ => {}
    }
    format!(r#""pattern":{{"data":{{{data}}}}}"#)
}

/// The conditions of one subscription of a set that is named after the matches that it gives an event, about.
fn conditions(dice: &mut Dice, set: &str) -> String {
    let filters = |all: &[String]| format!(r#""filters":[{}]"#, all.join(","));
    match (set, dice.below(10)) {
        ("none", _) => filters(&[eq("user.id", &format!("x{}", dice.below(1 << 40)))]),
        ("2", _) => selective(dice, 1e-5, 1e-3),
        ("17", _) => {
            // Conditions that many share: only together they are rare.
            let mut all = vec![
                eq("status", STATUSES[dice.below(8) as usize]),
                eq("country", &format!("C{}", dice.below(30))),
                eq("user.tier", TIERS[dice.below(4) as usize]),
            ];
            if dice.below(3) == 0 {
                all.push(within("amount", amounts(dice, 0.1, 0.5)));
            }
            filters(&all)
        }
        ("200", 0..6) | ("2000", 0..5) => selective(dice, 1e-3, 2e-1),
        ("200", 6..8) | ("2000", 5) => filters(&[eq("country", &country(dice)), within("amount", amounts(dice, 0.05, 0.3))]),
        ("200", _) => filters(&[
            eq("status", STATUSES[dice.below(8) as usize]),
            eq("user.tier", TIERS[dice.below(4) as usize]),
            within("amount", amounts(dice, 0.05, 0.5)),
        ]),
        (_, 6) => format!(r#""filters":[{{"field":"amount","op":">=","value":{}}}]"#, amounts(dice, 0.1, 0.2).0),
        (_, 7 | 8) => filters(&[eq("status", STATUSES[dice.below(8) as usize])]),
        _ => filters(&[eq("country", &country(dice))]),
    }
}

fn event(dice: &mut Dice, collections: u64) -> String {
    let coupon = if dice.below(10) == 0 { format!(r#""coupon":"C{}","#, dice.below(9999)) } else { String::new() };
    let item = |dice: &mut Dice| format!(r#"{{"sku":"SKU-{}","qty":{}}}"#, dice.below(1_000_000), dice.below(9));
    let items: Vec<String> = (0..1 + dice.below(3)).map(|_| item(dice)).collect();
    format!(
        r#"{{"id":"{:016x}","collection":"c{}","type":"update","data":{{"status":"{}","country":"{}","amount":{},"user":{{"id":"{}","tier":"{}"}},{coupon}"tags":["tag{}","tag{}"],"items":[{}]}}}}"#,
        dice.next(),
        dice.below(collections),
        STATUSES[dice.below(8) as usize],
        country(dice),
        (dice.unit() * 1e6).round() / 100.0,
        user(dice),
        TIERS[dice.below(4) as usize],
        dice.below(20),
        dice.below(20),
        items.join(",")
    )
}

fn addition(text: String, limits: &Limits) -> Addition {
    let subscription = Subscription::parse(text.as_bytes(), Defaults::of("default"), limits).expect("a good subscription");
    let form = normal_form(&subscription, limits);
    let Subscription { id, gateway_id, tenant, collection, .. } = subscription;
    Addition { gateway_id, tenant, collection, ..Addition::new(id, form, text.as_bytes()) }
}

/// Bytes of memory that the process holds.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    status.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or(0) * 4096
}

/// Add *texts* in batches, and say how long parsing and indexing took.
fn load(engine: &Engine, texts: Vec<String>) -> (Duration, Duration) {
    let limits = Limits::default();
    let start = Instant::now();
    let draft: Draft = texts.into_iter().map(|text| Ok(addition(text, &limits))).collect();
    let parsed = start.elapsed();
    engine.write(draft, WriteMode::Add, false).expect("good subscriptions");
    (parsed, start.elapsed() - parsed)
}

/// Match all events several times, and print what the fastest pass of each took.
fn measure(name: &str, engine: &Engine, events: &[String]) {
    let passes: usize = std::env::var("PASSES").ok().and_then(|passes| passes.parse().ok()).unwrap_or(20);
    let mut scratch = Scratch::default();
    let mut fastest = vec![u64::MAX; events.len()];
    let before = engine.counters();
    for _ in 0..passes {
        for (event, fastest) in events.iter().zip(&mut fastest) {
            let start = Instant::now();
            let matched = engine.match_event(event.as_bytes(), &mut scratch);
            std::hint::black_box(&matched);
            *fastest = (*fastest).min(start.elapsed().as_nanos() as u64);
        }
    }
    let after = engine.counters();
    fastest.sort_unstable();
    let at = |share: usize| fastest[fastest.len() * share / 100];
    let each = |after: u64, before: u64| (after - before) as f64 / (passes * events.len()) as f64;
    println!(
        "{name:<28} p50 {:>8} ns  p99 {:>8} ns  mean {:>8} ns   {:>7.1} matches  {:>7.1} candidates  {:>5.1} listed",
        at(50),
        at(99),
        fastest.iter().sum::<u64>() / fastest.len() as u64,
        each(after.matches.sum, before.matches.sum),
        each(after.indexed(), before.indexed()),
        each(after.listed, before.listed)
    );
}

fn sets(counts: &[usize]) {
    for &count in counts {
        for set in ["none", "2", "17", "200", "2000"] {
            for (depth, name) in [(Depth::RECURSIVE, "recursive"), (Depth::FLAT, "flat")] {
                let engine = Engine::new(Options { depth, ..Options::default() });
                let collections = if count < 50 { 1 } else { 50 };
                let mut dice = Dice(42);
                let texts: Vec<String> = (0..count)
                    .map(|n| {
                        let conditions = conditions(&mut dice, set);
                        format!(r#"{{"id":"s{n}","collection":"c{}",{conditions}}}"#, n as u64 % collections)
                    })
                    .collect();
                let (parsed, indexed) = load(&engine, texts);
                engine.merge();
                let events: Vec<String> = (0..4000).map(|_| event(&mut dice, collections)).collect();
                measure(&format!("{count} {set} {name}"), &engine, &events);
                let (stores, indexes) = engine.bytes();
                println!(
                    "{:>28} parsed {:.2} s, indexed {:.2} s, {:.0} a second; bytes a subscription: conditions {:.0}, index {:.0}",
                    "",
                    parsed.as_secs_f64(),
                    indexed.as_secs_f64(),
                    count as f64 / (parsed + indexed).as_secs_f64(),
                    stores as f64 / count as f64,
                    indexes as f64 / count as f64
                );
            }
        }
    }
}

fn partitions(count: usize) {
    let before = resident();
    let engine = Engine::new(Options::default());
    let mut dice = Dice(7);
    let (partitions, batch) = (count as u64 * 3 / 10, 100_000);
    let mut took = (Duration::ZERO, Duration::ZERO);
    for first in (0..count).step_by(batch) {
        let texts = (first..count.min(first + batch))
            .map(|n| {
                let conditions = selective(&mut dice, 1e-3, 1e-1);
                format!(r#"{{"id":"s{n}","tenant":"t{}","collection":"c{}",{conditions}}}"#, n as u64 % partitions / 10, n % 10)
            })
            .collect();
        let (parsed, indexed) = load(&engine, texts);
        took = (took.0 + parsed, took.1 + indexed);
    }
    let (stores, indexes) = engine.bytes();
    println!(
        "{count} over {:?} partitions and segments: parsed {:.2} s, indexed {:.2} s; conditions {} MB, indexes {} MB, process {} MB",
        engine.shape(),
        took.0.as_secs_f64(),
        took.1.as_secs_f64(),
        stores >> 20,
        indexes >> 20,
        (resident() - before) >> 20
    );
    let events: Vec<String> = (0..20_000)
        .map(|_| {
            let tenant = dice.below(partitions / 10);
            event(&mut dice, 10).replacen('{', &format!("{{\"tenant\":\"t{tenant}\","), 1)
        })
        .collect();
    measure("many partitions", &engine, &events);
}

fn files(patterns: &str, events: &str) {
    // The whole event is the document: patterns see it as it is.
    let (data, none) = (Part::Pointers(vec![Box::default()]), || Part::Never);
    let layout = EventLayout {
        data,
        id: none(),
        tenant: none(),
        collection: none(),
        event_type: none(),
        ts: none(),
        topic: none(),
        before: none(),
        unknown: none(),
        ..EventLayout::default()
    };
    let engine = Engine::new(Options { layout: layout.into(), ..Options::default() });
    let read = |path: &str| std::fs::read_to_string(path).expect("a file that can be read");
    let patterns_text = read(patterns);
    let texts = patterns_text.lines().enumerate().map(|(n, line)| {
        let at = line.find("\"pattern\":").expect("a pattern");
        format!("{{\"id\":\"p{n}\",\"tenant\":\"*\",\"dialect\":\"eventbridge\",{}", &line[at..])
    });
    let (parsed, indexed) = load(&engine, texts.collect());
    engine.merge();
    let events: Vec<String> = read(events).lines().map(str::to_owned).collect();
    let mut scratch = Scratch::default();
    let matches: usize =
        events.iter().map(|event| engine.match_event(event.as_bytes(), &mut scratch).expect("a good event").certain.len()).sum();
    println!(
        "{patterns}: {matches} matches of {} events; parsed {:.2} s, indexed {:.2} s",
        events.len(),
        parsed.as_secs_f64(),
        indexed.as_secs_f64()
    );
    measure(patterns.rsplit('/').next().unwrap_or(patterns), &engine, &events);
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let count = |or: usize| arguments.get(1).and_then(|count| count.parse().ok()).unwrap_or(or);
    match arguments.first().map(String::as_str) {
        Some("sets") if arguments.len() > 1 => sets(&[count(0)]),
        Some("sets") | None => sets(&[1, 1000, 100_000, 1_000_000]),
        Some("partitions") => partitions(count(1_000_000)),
        Some(patterns) => files(patterns, arguments.get(1).expect("a file of events")),
    }
}
