//! What matching costs: nanoseconds an event by the number of subscriptions and of matches, loading, memory.
//!
//! `cargo run --release -p streamer-core --example index [-- --smoke] [SECTION...]`, SECTION one of `sizes`, `flat`,
//! `removed`, `repeated`, `partitions`. It prints Markdown; `python -m benchmarks.core` keeps it as a dated record.
//!
//! Subscriptions are JSON texts, read, lowered and added as `add_many` does it; 20,000 to a collection, a partition each
//! merged into one segment. A figure is that of an event: the fastest of several passes over it, for what the machine does
//! besides only adds; p50 and p99 are over the events. Flattening and full validation are in it.
//!
//! Each run counts: the recursive and the flat index must find the same matches, a small set the same as a plain evaluation,
//! and candidates must stay under 4 × matches + 64.

use std::time::Instant;
use streamer_core::engine::{Addition, Depth, Engine, Mode, Options, Scratch, Selection};
use streamer_core::layout::EventLayout;
use streamer_core::limits::Limits;
use streamer_core::naive;
use streamer_core::subscriptions::{Subscription, normal_form};

/// How many subscriptions share a collection.
const CROWD: usize = 20_000;

/// A set of subscriptions, named for how many of 20,000 match an event, with the p50 and p99 in microseconds that the
/// prototype of the design had on 1,000,000 of them (on another machine: an Intel Xeon of 2.5 GHz).
struct Set {
    name: &'static str,
    p50: f64,
    p99: f64,
}

const SETS: [Set; 5] = [
    Set { name: "none", p50: 0.59, p99: 0.75 },
    Set { name: "1.7", p50: 1.66, p99: 2.57 },
    Set { name: "17", p50: 1.35, p99: 1.75 },
    Set { name: "200", p50: 5.6, p99: 7.5 },
    Set { name: "2,000", p50: 10.5, p99: 14.0 },
];

const STATUSES: [&str; 8] = ["paid", "pending", "shipped", "cancelled", "refunded", "failed", "draft", "archived"];
const TIERS: [&str; 4] = ["free", "silver", "gold", "platinum"];

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn chance(&mut self) -> bool {
        self.below(2) == 0
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A number below *end*, small ones more often, about as 1/n.
    fn skewed(&mut self, end: u64) -> u64 {
        (((self.unit() * (end as f64 + 1.0).ln()).exp() - 1.0) as u64).min(end - 1)
    }

    fn status(&mut self) -> String {
        format!("\"{}\"", STATUSES[self.below(8) as usize])
    }

    fn tier(&mut self) -> String {
        format!("\"{}\"", TIERS[self.below(4) as usize])
    }

    fn country(&mut self) -> String {
        format!("\"C{}\"", self.skewed(30))
    }

    fn user(&mut self) -> String {
        format!("\"u{}\"", 100_000 + self.below(200_000))
    }

    fn amount(&mut self) -> f64 {
        (self.unit() * 1_000_000.0).round() / 100.0
    }

    /// Two bounds between which a log-uniform share of the amounts lies, *least* to *most*.
    fn range(&mut self, least: f64, most: f64) -> (f64, f64) {
        let share = (least.ln() + self.unit() * (most.ln() - least.ln())).exp();
        let start = self.unit() * (1.0 - share);
        ((start * 1e6).round() / 100.0, ((start + share) * 1e6).round() / 100.0)
    }
}

/// The conditions of one subscription: filters on the document and fields of a pattern on the event.
#[derive(Default)]
struct Conditions {
    filters: Vec<String>,
    data: Vec<String>,
    user: Vec<String>,
}

impl Conditions {
    fn filter(&mut self, field: &str, operator: &str, value: &str) {
        self.filters.push(format!(r#"{{"field":"{field}","op":"{operator}","value":{value}}}"#));
    }

    fn any_of(&mut self, field: &str, values: &[String]) {
        match values {
            [one] => self.filter(field, "==", one),
            _ => self.filter(field, "in", &format!("[{}]", values.join(","))),
        }
    }

    fn between(&mut self, dice: &mut Dice, least: f64, most: f64) {
        let (low, high) = dice.range(least, most);
        self.filter("amount", ">", &low.to_string());
        self.filter("amount", "<", &high.to_string());
    }

    /// A user or three, a prefix of them, or a range of amounts.
    fn selective(&mut self, dice: &mut Dice, least: f64, most: f64) {
        match dice.below(10) {
            0..6 => {
                let users: Vec<String> = (0..=dice.below(3)).map(|_| dice.user()).collect();
                self.user.push(format!(r#""id":[{}]"#, users.join(",")));
            }
            6 | 7 => self.user.push(format!(r#""id":[{{"prefix":{}"}}]"#, &dice.user()[..6])),
            _ => {
                let (low, high) = dice.range(least, most);
                self.data.push(format!(r#""amount":[{{"numeric":[">",{low},"<",{high}]}}]"#));
            }
        }
        if dice.chance() {
            self.weak(dice);
        }
    }

    fn weak(&mut self, dice: &mut Dice) {
        match dice.below(3) {
            0 => {
                let at = dice.skewed(8) as usize;
                self.data.push(format!(r#""status":["{}","{}"]"#, STATUSES[at], STATUSES[(at + 1) % 8]));
            }
            1 => {
                let countries: Vec<String> = (0..=dice.below(3)).map(|_| dice.country()).collect();
                self.user.push(format!(r#""country":[{{"anything-but":[{}]}}]"#, countries.join(",")));
            }
            _ => self.data.push(r#""coupon":[{"exists":true}]"#.into()),
        }
    }

    fn draw(dice: &mut Dice, set: &str) -> Conditions {
        let mut all = Conditions::default();
        match set {
            "none" => all.filter("user.id", "==", &format!("\"x{}\"", dice.below(1 << 40))),
            "1.7" => all.selective(dice, 1e-5, 5e-3),
            "17" => {
                let (some, status, country) = (1 + dice.below(2), dice.skewed(8), dice.below(30));
                let quoted = |text: &str| format!("\"{text}\"");
                all.any_of("status", &(0..some).map(|at| quoted(STATUSES[((status + at) % 8) as usize])).collect::<Vec<_>>());
                all.any_of("user.country", &(0..some).map(|at| format!("\"C{}\"", (country + at) % 30)).collect::<Vec<_>>());
                all.filter("user.tier", "==", &dice.tier());
                if dice.chance() {
                    all.between(dice, 0.1, 0.5);
                }
            }
            "200" => match dice.below(10) {
                0..7 => all.selective(dice, 1e-3, 2e-1),
                7 | 8 => {
                    all.filter("user.country", "==", &dice.country());
                    all.between(dice, 0.05, 0.3);
                }
                _ => {
                    all.filter("status", "==", &dice.status());
                    all.filter("user.tier", "==", &dice.tier());
                    all.between(dice, 0.05, 0.3);
                }
            },
            _ => match dice.below(10) {
                0..5 => all.selective(dice, 1e-3, 2e-1),
                5 => all.filter("status", "==", &dice.status()),
                6 => all.filter("amount", ">=", &dice.amount().to_string()),
                7 => {
                    all.filter("status", "==", &dice.status());
                    all.filter("user.tier", "==", &dice.tier());
                }
                8 => {
                    all.filter("user.country", "==", &dice.country());
                    all.between(dice, 0.05, 0.3);
                }
                _ => all.filter("user.country", "==", &dice.country()),
            },
        }
        all
    }

    fn fields(&self) -> String {
        let mut fields = self.data.clone();
        if !self.user.is_empty() {
            fields.push(format!(r#""user":{{{}}}"#, self.user.join(",")));
        }
        fields.join(",")
    }

    /// The subscription's text; *twice* states its pattern twice, as alternatives that both hold where either does.
    fn text(&self, number: usize, collection: usize, twice: bool) -> String {
        let fields = self.fields();
        let pattern = match (fields.is_empty(), twice) {
            (true, false) => String::new(),
            (true, true) => r#","pattern":{"$or":[{"type":["update"]},{"tenant":["t"]}]}"#.into(),
            (false, false) => format!(r#","pattern":{{"data":{{{fields}}}}}"#),
            (false, true) => {
                format!(r#","pattern":{{"data":{{{fields}}},"$or":[{{"type":["update"]}},{{"tenant":["t"]}}]}}"#)
            }
        };
        let filters = self.filters.join(",");
        format!(r#"{{"id":"s{number}","tenant":"t","collection":"c{collection}","filters":[{filters}]{pattern}}}"#)
    }
}

/// What a run is made of.
#[derive(Clone, Copy)]
struct Run {
    set: &'static str,
    subscriptions: usize,
    collections: usize,
    depth: Depth,
    twice: bool,
    events: usize,
    passes: usize,
}

impl Run {
    fn new(set: &'static str, subscriptions: usize, scale: &Scale) -> Run {
        let collections = subscriptions.div_ceil(scale.crowd);
        Run { set, subscriptions, collections, depth: Depth::RECURSIVE, twice: false, events: scale.events, passes: scale.passes }
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
}

fn event(dice: &mut Dice, collections: usize) -> String {
    let collection = dice.below(collections as u64);
    let coupon = if dice.below(10) == 0 { format!(r#""coupon":"C{}","#, dice.below(9999)) } else { String::new() };
    let item = |dice: &mut Dice| format!(r#"{{"sku":"SKU-{}","qty":{}}}"#, dice.below(999_999), dice.below(9));
    let items: Vec<String> = (0..=dice.below(3)).map(|_| item(dice)).collect();
    format!(
        r#"{{"id":"{:016x}","tenant":"t","collection":"c{collection}","type":"update","data":{{"status":{},"amount":{},"user":{{"id":{},"country":{},"tier":{}}},{coupon}"tags":["tag{}","tag{}"],"items":[{}]}}}}"#,
        dice.next(),
        dice.status(),
        dice.amount(),
        dice.user(),
        dice.country(),
        dice.tier(),
        dice.below(20),
        dice.below(20),
        items.join(",")
    )
}

/// An engine with subscriptions, and what loading them took.
struct Loaded {
    engine: Engine,
    read_s: f64,
    build_s: f64,
    resident: f64,
}

fn resident_bytes() -> f64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    pages.split(' ').nth(1).and_then(|pages| pages.parse::<f64>().ok()).unwrap_or(0.0) * 4096.0
}

fn addition(text: &str, limits: &Limits) -> Addition {
    let subscription = Subscription::parse(text.as_bytes(), None, limits).expect("a subscription");
    Addition {
        form: normal_form(&subscription, limits),
        id: subscription.id,
        gateway_id: None,
        tenant: subscription.tenant,
        collection: subscription.collection,
        flags: 0,
        text: text.as_bytes().into(),
        host: None,
    }
}

fn load(run: &Run) -> Loaded {
    let limits = Limits::default();
    let texts = run.texts();
    let before = resident_bytes();
    let engine = Engine::new(Options { depth: run.depth, background: false, ..Options::default() });
    let started = Instant::now();
    let items: Vec<_> = texts.iter().map(|text| Ok(addition(text, &limits))).collect();
    let read_s = started.elapsed().as_secs_f64();
    let started = Instant::now();
    engine.write(items, Mode::Add, false).expect("good subscriptions");
    let build_s = started.elapsed().as_secs_f64();
    Loaded { engine, read_s, build_s, resident: resident_bytes() - before }
}

/// What a pass over the events gave.
struct Measured {
    p50: f64,
    p99: f64,
    matches: usize,
    candidates: f64,
    per_event: f64,
}

fn measure(engine: &Engine, run: &Run) -> Measured {
    let events = run.events();
    let mut scratch = Scratch::default();
    let mut best = vec![u128::MAX; events.len()];
    let mut matches = 0;
    let before = engine.counters();
    for _ in 0..run.passes {
        matches = 0;
        for (event, best) in events.iter().zip(&mut best) {
            let started = Instant::now();
            let matched = engine.match_event(event.as_bytes(), None, None, &mut scratch).expect("a good event");
            let found = matched.certain.len();
            *best = started.elapsed().as_nanos().min(*best);
            matches += found;
        }
    }
    let after = engine.counters();
    let candidates = (after.candidates - before.candidates) as f64 / (after.events - before.events) as f64;
    let per_event = matches as f64 / events.len() as f64;
    assert!(candidates <= 4.0 * per_event + 64.0, "{}: {candidates} candidates for {per_event} matches", run.set);
    assert!(run.set != "none" || candidates == 0.0, "{candidates} candidates for events that share no value");
    best.sort_unstable();
    let at = |share: usize| best[(best.len() * share / 100).min(best.len() - 1)] as f64 / 1000.0;
    Measured { p50: at(50), p99: at(99), matches, candidates, per_event }
}

/// How much is run.
struct Scale {
    sizes: &'static [usize],
    most: usize,
    crowd: usize,
    partitions: usize,
    events: usize,
    passes: usize,
}

const FULL: Scale =
    Scale { sizes: &[1, 1_000, 100_000], most: 1_000_000, crowd: CROWD, partitions: 300_000, events: 4_000, passes: 7 };
const SMOKE: Scale = Scale { sizes: &[1, 300], most: 2_000, crowd: 1_000, partitions: 600, events: 60, passes: 1 };

fn sizes(scale: &Scale) {
    println!("### Nanoseconds an event\n");
    println!("| subscriptions | set | matches | candidates | p50 µs | p99 µs | design p50, p99 | ratio |");
    println!("|--:|---|--:|--:|--:|--:|---|---|");
    let mut loading = Vec::new();
    for subscriptions in scale.sizes.iter().copied().chain([scale.most]) {
        for set in &SETS {
            let run = Run::new(set.name, subscriptions, scale);
            let loaded = load(&run);
            let found = measure(&loaded.engine, &run);
            let design = if subscriptions == FULL.most {
                let (p50, p99) = (found.p50 / set.p50, found.p99 / set.p99);
                format!("{} / {} | **{p50:.2}** / **{p99:.2}**", set.p50, set.p99)
            } else {
                "– | –".into()
            };
            let Measured { p50, p99, candidates, per_event, .. } = found;
            println!("| {subscriptions} | {} | {per_event:.1} | {candidates:.1} | {p50:.2} | {p99:.2} | {design} |", set.name);
            if subscriptions == scale.most {
                loading.push((set.name, subscriptions, loaded));
            }
        }
    }
    println!("\n### Loading and memory\n");
    println!(
        "| set | subscriptions | read and lowered /s | built /s | together /s | conditions B | index B | resident B | segments |"
    );
    println!("|---|--:|--:|--:|--:|--:|--:|--:|--:|");
    for (set, subscriptions, loaded) in &loading {
        loading_row(set, *subscriptions, loaded);
    }
    println!(
        "\nBytes are for one subscription. Resident is what the process grew by: conditions, index, the id, the text and the\nrecord of each, and what the allocator keeps.\n"
    );
}

fn loading_row(set: &str, subscriptions: usize, loaded: &Loaded) {
    let Loaded { engine, read_s, build_s, resident } = loaded;
    let count = subscriptions as f64;
    let (stores, indexes) = engine.bytes();
    println!(
        "| {set} | {subscriptions} | {:.0} | {:.0} | {:.0} | {:.0} | {:.0} | {:.0} | {} |",
        count / read_s,
        count / build_s,
        count / (read_s + build_s),
        stores as f64 / count,
        indexes as f64 / count,
        resident / count,
        engine.shape().1
    );
}

fn flat(scale: &Scale) {
    println!("### The flat index beside recursive buckets, {} subscriptions\n", scale.most);
    println!("| set | matches | flat p50 µs | p99 | recursive p50 µs | p99 | flat ÷ recursive, p50 |");
    println!("|---|--:|--:|--:|--:|--:|--:|");
    for set in &SETS {
        let recursive = Run::new(set.name, scale.most, scale);
        // A flat index takes long where much matches: fewer passes.
        let flat = Run { depth: Depth::FLAT, passes: recursive.passes.min(3), ..recursive };
        let deep = measure(&load(&recursive).engine, &recursive);
        let wide = unchecked(&load(&flat).engine, &flat);
        assert_eq!(wide.2, deep.matches, "{}: the flat index finds other matches", set.name);
        println!(
            "| {} | {:.1} | {:.2} | {:.2} | {:.2} | {:.2} | **{:.1}** |",
            set.name,
            deep.per_event,
            wide.0,
            wide.1,
            deep.p50,
            deep.p99,
            wide.0 / deep.p50
        );
    }
    println!();
}

/// p50, p99 and matches, without a bound on candidates: a flat index has none.
fn unchecked(engine: &Engine, run: &Run) -> (f64, f64, usize) {
    let events = run.events();
    let mut scratch = Scratch::default();
    let mut best = vec![u128::MAX; events.len()];
    let mut matches = 0;
    for _ in 0..run.passes {
        matches = 0;
        for (event, best) in events.iter().zip(&mut best) {
            let started = Instant::now();
            matches += engine.match_event(event.as_bytes(), None, None, &mut scratch).expect("a good event").certain.len();
            *best = started.elapsed().as_nanos().min(*best);
        }
    }
    best.sort_unstable();
    let at = |share: usize| best[(best.len() * share / 100).min(best.len() - 1)] as f64 / 1000.0;
    (at(50), at(99), matches)
}

fn removed(scale: &Scale) {
    println!("### What tombstones add: a quarter removed, not merged\n");
    println!("| set | matches before | after | p50 µs before | after | more µs | p99 before | after |");
    println!("|---|--:|--:|--:|--:|--:|--:|--:|");
    for set in &SETS[1..] {
        let run = Run::new(set.name, scale.most, scale);
        let engine = load(&run).engine;
        let before = measure(&engine, &run);
        let ids: Vec<String> = (0..run.subscriptions).step_by(4).map(|at| format!("s{at}")).collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        engine.remove(&Selection { ids: Some(&ids), ..Selection::default() });
        let after = measure(&engine, &run);
        println!(
            "| {} | {:.1} | {:.1} | {:.2} | {:.2} | **{:+.2}** | {:.2} | {:.2} |",
            set.name,
            before.per_event,
            after.per_event,
            before.p50,
            after.p50,
            after.p50 - before.p50,
            before.p99,
            after.p99
        );
    }
    println!();
}

fn repeated(scale: &Scale) {
    println!("### What deduplication adds: every subscription in two ways that both hold\n");
    println!("| set | matches | p50 µs once | twice | more µs | p99 once | twice |");
    println!("|---|--:|--:|--:|--:|--:|--:|");
    for set in &SETS[1..] {
        let once = Run::new(set.name, scale.most, scale);
        let twice = Run { twice: true, ..once };
        let one = measure(&load(&once).engine, &once);
        let two = measure(&load(&twice).engine, &twice);
        assert_eq!(one.matches, two.matches, "{}: an OR finds other matches", set.name);
        println!(
            "| {} | {:.1} | {:.2} | {:.2} | **{:+.2}** | {:.2} | {:.2} |",
            set.name,
            one.per_event,
            one.p50,
            two.p50,
            two.p50 - one.p50,
            one.p99,
            two.p99
        );
    }
    println!("\nThe extra holds the two more conditions of each and twice the conjunctions, not the deduplication alone.\n");
}

fn partitions(scale: &Scale) {
    println!("### {} subscriptions over {} partitions\n", scale.most, scale.partitions);
    println!(
        "| set | subscriptions | read and lowered /s | built /s | together /s | conditions B | index B | resident B | segments |"
    );
    println!("|---|--:|--:|--:|--:|--:|--:|--:|--:|");
    let run = Run { collections: scale.partitions, ..Run::new("17", scale.most, scale) };
    let loaded = load(&run);
    loading_row(run.set, run.subscriptions, &loaded);
    let found = measure(&loaded.engine, &run);
    println!("\nAn event: {:.3} matches, p50 {:.2} µs, p99 {:.2} µs.\n", found.per_event, found.p50, found.p99);
}

/// Every set, small, beside a plain evaluation: expected matches that no index was asked for.
fn check(scale: &Scale) {
    let (limits, layout) = (Limits::default(), EventLayout::default());
    for set in &SETS {
        for twice in [false, true] {
            let run = Run { twice, events: 60, collections: 1, ..Run::new(set.name, 1_000, scale) };
            let held: Vec<Subscription> =
                run.texts().iter().map(|text| Subscription::parse(text.as_bytes(), None, &limits).expect("good")).collect();
            let engine = load(&run).engine;
            let mut scratch = Scratch::default();
            for event in run.events() {
                let read = naive::Event::read(event.as_bytes(), &layout, &limits).expect("a good event");
                let expected = held.iter().filter(|subscription| naive::wants(subscription, &read)).count();
                let found = engine.match_event(event.as_bytes(), None, None, &mut scratch).expect("a good event").certain.len();
                assert_eq!(found, expected, "{}: {event}", set.name);
            }
        }
    }
}

fn main() {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let smoke = arguments.iter().position(|argument| argument == "--smoke").map(|at| arguments.remove(at)).is_some();
    let scale = if smoke { &SMOKE } else { &FULL };
    type Section = (&'static str, fn(&Scale));
    let sections: [Section; 5] =
        [("sizes", sizes), ("flat", flat), ("removed", removed), ("repeated", repeated), ("partitions", partitions)];
    let unknown = arguments.iter().find(|name| sections.iter().all(|(other, _)| name != other));
    if let Some(name) = unknown {
        eprintln!("no section {name}; there are: {}", sections.map(|(name, _)| name).join(", "));
        std::process::exit(2);
    }
    check(scale);
    for (name, run) in sections {
        if arguments.is_empty() || arguments.iter().any(|wanted| wanted == name) {
            run(scale);
        }
    }
}

#[cfg(test)]
#[test]
fn every_section_runs_and_finds_the_matches_that_it_must() {
    check(&SMOKE);
    for section in [sizes, flat, removed, repeated, partitions] {
        section(&SMOKE);
    }
}
