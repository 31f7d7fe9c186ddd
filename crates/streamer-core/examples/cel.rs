//! How long CEL takes to add: 100,000 distinct expressions, parsed and checked.
//!
//! `cargo run --release -p streamer-core --example cel`
//!
//! The shapes are those of the mixed benchmarks; each figure is the best of a few rounds over all expressions of one shape.

use std::hint::black_box;
use std::time::Instant;

use streamer_core::cel::compile;
use streamer_core::limits::Limits;

const COUNT: usize = 100_000;

type Shape = (&'static str, fn(usize) -> String);

const SHAPES: [Shape; 5] = [
    ("one comparison", |n| format!("data.amount > {n}")),
    ("two and a list", |n| format!("data.carrier in ['UA', 'DL'] && (data.dep_delay > {n} || data.arr_delay > {})", n % 977)),
    ("strings", |n| format!("data.user.country == 'DE' && data.title.startsWith('item-{n}') && !data.done")),
    ("macro over a list", |n| format!("data.lines.exists(l, l.sku == 'sku-{n}' && l.quantity * 2 >= 10)")),
    ("regexp", |n| format!("data.code.matches('^[A-Z]{{2}}-{n}[0-9]*$')")),
];

fn main() {
    let limits = Limits::default();
    for (name, shape) in SHAPES {
        let sources: Vec<String> = (0..COUNT).map(shape).collect();
        let mut best = f64::MAX;
        for _ in 0..3 {
            let start = Instant::now();
            for source in &sources {
                black_box(compile(source, &limits).expect("a good expression"));
            }
            best = best.min(start.elapsed().as_secs_f64());
        }
        println!("{name:20} {COUNT} expressions in {best:.3} s, {:.2} µs each", best * 1e6 / COUNT as f64);
    }
}
