use std::time::Instant;
use streamer_core::engine::*;
use streamer_core::subscriptions::normal_form::{Atom, Clause, Conjunction, Mode as PathMode, NormalForm, Path, Range, Root};
use streamer_core::value::{Kinds, Number, Scalar};

struct Dice(u64);
impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
    fn zipf(&mut self, n: u64) -> u64 {
        // inverse of the harmonic sum, approximately
        let h = (n as f64 + 1.0).ln();
        (((self.unit() * h).exp() - 1.0) as u64).min(n - 1)
    }
}
fn amount(d: &mut Dice) -> f64 {
    (d.unit() * 1_000_000.0).round() / 100.0
}
fn data(names: &[&str], atoms: Vec<Atom>) -> Clause {
    Clause { path: Path::new(Root::Data, names), mode: PathMode::Scalar, atoms }
}
fn raw(names: &[&str], atoms: Vec<Atom>) -> Clause {
    Clause { path: Path::new(Root::Raw, names), mode: PathMode::AnyLeaf, atoms }
}
fn s(t: String) -> Atom {
    Atom::Equal(Scalar::String(t.into()))
}
fn status(n: u64) -> String {
    ["paid", "pending", "shipped", "cancelled", "refunded", "failed", "draft", "archived"][n as usize].into()
}
fn country(n: u64) -> String {
    format!("C{n}")
}
fn tier(n: u64) -> String {
    ["free", "silver", "gold", "platinum"][n as usize].into()
}
fn num(lo: f64, hi: f64) -> Atom {
    Atom::Numbers(Range { low: Some((Number::from_f64(lo).unwrap(), false)), high: Some((Number::from_f64(hi).unwrap(), false)) })
}

fn rng(d: &mut Dice, lo: f64, hi: f64) -> Atom {
    let w = (lo.ln() + d.unit() * (hi.ln() - lo.ln())).exp();
    let a = d.unit() * (1.0 - w);
    num((a * 1e6).round() / 100.0, ((a + w) * 1e6).round() / 100.0)
}
fn uid(d: &mut Dice) -> String {
    format!("u{}", 100_000 + d.below(200_000))
}

fn form(d: &mut Dice, set: &str) -> NormalForm {
    let mut c = Vec::new();
    let selective = |d: &mut Dice, c: &mut Vec<Clause>, lo, hi| match d.below(10) {
        0..6 => {
            let n = 1 + d.below(3);
            c.push(raw(&["data", "user", "id"], (0..n).map(|_| s(uid(d))).collect()))
        }
        6 | 7 => c.push(raw(&["data", "user", "id"], vec![Atom::Prefix(uid(d)[..5].into())])),
        _ => c.push(raw(&["data", "amount"], vec![rng(d, lo, hi)])),
    };
    let other = |d: &mut Dice, c: &mut Vec<Clause>| match d.below(3) {
        0 => {
            let a = d.zipf(8);
            c.push(raw(&["data", "status"], vec![s(status(a)), s(status((a + 1) % 8))]))
        }
        1 => {
            let n = 1 + d.below(3);
            c.push(raw(
                &["data", "user", "country"],
                vec![Atom::Other { kinds: Kinds::LEAVES, none_of: (0..n).map(|_| s(country(d.zipf(30)))).collect() }],
            ))
        }
        _ => c.push(raw(&["data", "coupon"], vec![Atom::Kinds(Kinds::LEAVES)])),
    };
    match set {
        "1.7" => {
            selective(d, &mut c, 1e-5, 5e-3);
            if d.below(2) == 0 {
                other(d, &mut c)
            }
        }
        "17" => {
            // three or four weak conditions
            let n = 1 + d.below(2);
            let a = d.zipf(8);
            c.push(data(&["status"], (0..n).map(|i| s(status((a + i) % 8))).collect()));
            let b = d.below(30);
            c.push(data(&["user", "country"], (0..n).map(|i| s(country((b + i) % 30))).collect()));
            c.push(data(&["user", "tier"], vec![s(tier(d.below(4)))]));
            if d.below(2) == 0 {
                c.push(data(&["amount"], vec![rng(d, 0.1, 0.5)]))
            }
        }
        "200" => match d.below(10) {
            0..7 => {
                selective(d, &mut c, 1e-3, 2e-1);
                if d.below(2) == 0 {
                    other(d, &mut c)
                }
            }
            7 | 8 => {
                c.push(data(&["user", "country"], vec![s(country(d.zipf(30)))]));
                c.push(data(&["amount"], vec![rng(d, 0.05, 0.3)]))
            }
            _ => {
                c.push(data(&["status"], vec![s(status(d.below(8)))]));
                c.push(data(&["user", "tier"], vec![s(tier(d.below(4)))]));
                c.push(data(&["amount"], vec![rng(d, 0.05, 0.3)]))
            }
        },
        "2000" => match d.below(10) {
            0..5 => {
                selective(d, &mut c, 1e-3, 2e-1);
                if d.below(2) == 0 {
                    other(d, &mut c)
                }
            }
            5 => c.push(data(&["status"], vec![s(status(d.below(8)))])),
            6 => c.push(data(
                &["amount"],
                vec![Atom::Numbers(Range { low: Some((Number::from_f64(amount(d)).unwrap(), true)), high: None })],
            )),
            7 => {
                c.push(data(&["status"], vec![s(status(d.below(8)))]));
                c.push(data(&["user", "tier"], vec![s(tier(d.below(4)))]))
            }
            8 => {
                c.push(data(&["user", "country"], vec![s(country(d.zipf(30)))]));
                c.push(data(&["amount"], vec![rng(d, 0.05, 0.3)]))
            }
            _ => c.push(data(&["user", "country"], vec![s(country(d.zipf(30)))])),
        },
        _ => c.push(data(&["user", "id"], vec![s(format!("x{}", d.below(1 << 40)))])),
    }
    NormalForm { conjunctions: vec![Conjunction { clauses: c }], verify: None }
}

fn event(d: &mut Dice, collections: u64) -> (String, String) {
    let collection = format!("c{}", d.below(collections));
    let coupon = if d.below(10) == 0 { format!("\"coupon\":\"C{}\",", d.below(9999)) } else { String::new() };
    let items: Vec<String> =
        (0..1 + d.below(3)).map(|_| format!("{{\"sku\":\"SKU-{}\",\"qty\":{}}}", d.below(999999), d.below(9))).collect();
    let e = format!(
        "{{\"id\":\"{:016x}\",\"tenant\":\"t\",\"collection\":\"{collection}\",\"type\":\"update\",\"data\":{{\"status\":\"{}\",\"amount\":{},\"user\":{{\"id\":\"{}\",\"country\":\"{}\",\"tier\":\"{}\"}},{coupon}\"tags\":[\"tag{}\",\"tag{}\"],\"items\":[{}]}}}}",
        d.next(),
        status(d.below(8)),
        amount(d),
        uid(d),
        country(d.zipf(30)),
        tier(d.below(4)),
        d.below(20),
        d.below(20),
        items.join(",")
    );
    (e, collection)
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let n: usize = args.get(1).map_or(1_000_000, |a| a.parse().unwrap());
    let depth = if args.get(3).is_some_and(|a| a == "flat") { Depth::FLAT } else { Depth::RECURSIVE };
    let sets: Vec<&str> = match args.get(2).map(String::as_str) {
        Some("all") | None => vec!["none", "1.7", "17", "200", "2000"],
        Some(one) => vec![one],
    };
    let collections = if n >= 50 { 50 } else { 1 };
    for set in sets {
        let mut d = Dice(42);
        let engine = Engine::new(Options { depth, background: false, ..Options::default() });
        let items: Vec<_> = (0..n)
            .map(|i| {
                Ok(Addition {
                    id: format!("s{i}").into(),
                    gateway_id: None,
                    tenant: "t".into(),
                    collection: Some(format!("c{}", i as u64 % collections).into()),
                    form: form(&mut d, set),
                    flags: 0,
                    text: Box::default(),
                    host: None,
                })
            })
            .collect();
        let start = Instant::now();
        engine.write(items, Mode::Add, false).unwrap();
        let load = start.elapsed();
        let events: Vec<(String, String)> = (0..4000).map(|_| event(&mut d, collections)).collect();
        let mut scratch = Scratch::default();
        for (e, _) in &events {
            engine.match_event(e.as_bytes(), None, None, &mut scratch).unwrap();
        }
        let mut best: Vec<u64> = vec![u64::MAX; events.len()];
        let before = engine.counters();
        let mut total = 0;
        for _ in 0..std::env::var("PASSES").map_or(5, |p| p.parse().unwrap()) {
            for (i, (e, _)) in events.iter().enumerate() {
                let t = Instant::now();
                let m = engine.match_event(e.as_bytes(), None, None, &mut scratch).unwrap();
                total += m.certain.len();
                best[i] = best[i].min(t.elapsed().as_nanos() as u64);
            }
        }
        let after = engine.counters();
        best.sort_unstable();
        let mean: u64 = best.iter().sum::<u64>() / best.len() as u64;
        let (stores, indexes) = engine.bytes();
        let ev = (after.events - before.events) as f64;
        println!(
            "{n:>8} {set:>5} p50 {:>7} p99 {:>7} mean {mean:>7} ns  matches {:>7.1} candidates {:>7.1}  load {:>7.0}/s ({:.2}s)  store {:.0} index {:.0} B/sub  {:?}",
            best[best.len() / 2],
            best[best.len() * 99 / 100],
            total as f64 / std::env::var("PASSES").map_or(5.0, |p| p.parse().unwrap()) / events.len() as f64,
            (after.candidates - before.candidates) as f64 / ev,
            n as f64 / load.as_secs_f64(),
            load.as_secs_f64(),
            stores as f64 / n as f64,
            indexes as f64 / n as f64,
            engine.shape()
        );
    }
}
