//! How long one event takes to flatten, beside two well-known JSON libraries in the same run.
//!
//! `cargo run --release --manifest-path benchmarks/peers/rust/Cargo.toml --bin flatten`
//!
//! Each figure is the best of many rounds, in nanoseconds an event. sonic-rs gets the same paths by `get_many`, unchecked as
//! it is meant; simd-json builds its tape, to which looking paths up would have to be added.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use streamer_core::flatten::{Flattener, GivenParts, Locator, PathTrie, Validation};
use streamer_core::layout::EventLayout;
use streamer_core::limits::Limits;
use streamer_core::subscriptions::normal_form::{Mode, Path, Root};

const DOCUMENT: &str = r#"{"id":null,"tenant":null,"collection":null,"type":null,"ts":null,"topic":null,"data":"",
    "before":null,"unknown":null,"type_map":null,"ts_format":"ms"}"#;

const GEOJSON: &str = r#"{"type":"Feature","properties":{"MAPBLKLOT":"0001001","BLKLOT":"0001001","BLOCK_NUM":"0001","LOT_NUM":"001","FROM_ST":"0","TO_ST":"0","STREET":"UNKNOWN","ST_TYPE":null,"ODD_EVEN":"E"},"geometry":{"type":"Polygon","coordinates":[[[-122.422003528252475,37.808480096967251,0.0],[-122.422076013325281,37.808835019815085,0.0],[-122.421102174348633,37.808803534992904,0.0],[-122.421062569067274,37.808601056818148,0.0],[-122.422003528252475,37.808480096967251,0.0],[-122.421940356781632,37.808519220000000,0.0],[-122.421891123456789,37.808560123456789,0.0],[-122.421842345678901,37.808601234567890,0.0],[-122.421793456789012,37.808642345678901,0.0],[-122.421744567890123,37.808683456789012,0.0]]]}}"#;

const CHANGE: &str = r#"{"id":"0190b3f2-7c1e","tenant":"acme","collection":"orders","type":"update","ts":1718040000123,"data":{"order_id":918273645,"status":"paid","amount":129.95,"currency":"EUR","customer":{"id":4711,"country":"DE","tier":"gold"},"items":[{"sku":"A-1","qty":2},{"sku":"B-7","qty":1}],"tags":["vip","web"],"paid":true}}"#;

fn best(mut run: impl FnMut()) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..200 {
        let start = Instant::now();
        for _ in 0..500 {
            run();
        }
        best = best.min(start.elapsed().as_nanos() as f64 / 500.0);
    }
    best
}

fn flatten(trie: &PathTrie, event: &str, validation: Validation) -> f64 {
    let (limits, given) = (Limits::default(), GivenParts { default_tenant: Some("default"), ..GivenParts::default() });
    let mut flattener = Flattener::new();
    best(|| {
        let flat = flattener.flatten(trie, black_box(event.as_bytes()), validation, &given, &limits);
        black_box(flat.expect("a good event").parts().tenant);
    })
}

fn main() {
    let change = Arc::new(EventLayout::default());
    let document = Arc::new(EventLayout::from_json(DOCUMENT.as_bytes()).expect("a good layout"));
    let geojson: &[&[&str]] = &[&["properties", "LOT_NUM"]];
    let orders: &[&[&str]] = &[
        &["order_id"],
        &["status"],
        &["amount"],
        &["currency"],
        &["customer", "country"],
        &["customer", "tier"],
        &["paid"],
        &["tags"],
    ];
    let trie = |layout: &Arc<EventLayout>, paths: &[&[&str]]| {
        let mut builder = PathTrie::builder(Arc::clone(layout));
        for names in paths {
            builder.want(&Path::new(Root::Data, *names), Mode::Scalar);
        }
        builder.build()
    };
    // A path that is not there: reading cannot stop early.
    let late: &[&[&str]] = &[&["properties", "LOT_NUM"], &["zzz"]];
    println!("{:<28} {:>6} {:>9} {:>9} {:>9}", "", "bytes", "lazy", "lazy, all", "full");
    for (name, event, layout, paths, more) in
        [("GeoJSON, 1 path", GEOJSON, &document, geojson, late), ("change event, 8 paths", CHANGE, &change, orders, orders)]
    {
        let early = flatten(&trie(layout, paths), event, Validation::Lazy);
        let all = flatten(&trie(layout, more), event, Validation::Lazy);
        let full = flatten(&trie(layout, paths), event, Validation::Full);
        println!("{name:<28} {:>6} {early:>9.0} {all:>9.0} {full:>9.0}", event.len());

        let mut tree = sonic_rs::PointerTree::new();
        let prefix: &[&str] = if std::ptr::eq(layout, &raw const change) { &["data"] } else { &[] };
        for names in paths {
            let pointer: Vec<sonic_rs::PointerNode> =
                prefix.iter().chain(*names).map(|name| sonic_rs::PointerNode::Key((*name).into())).collect();
            tree.add_path(&pointer);
        }
        let unchecked = best(|| {
            // SAFETY: the events above are well-formed JSON.
            black_box(unsafe { sonic_rs::get_many_unchecked(black_box(event), &tree) }).expect("all paths");
        });
        let checked = best(|| {
            black_box(sonic_rs::get_many(black_box(event), &tree)).expect("all paths");
        });
        println!("{:<28} {:>6} {unchecked:>9.0} {:>9} {checked:>9.0}", "  sonic-rs get_many", "", "");
        let mut buffers = simd_json::Buffers::default();
        let mut bytes = event.as_bytes().to_vec();
        let tape = best(|| {
            bytes.copy_from_slice(event.as_bytes());
            black_box(simd_json::to_tape_with_buffers(&mut bytes, &mut buffers)).expect("good JSON");
        });
        println!("{:<28} {:>6} {:>9} {:>9} {tape:>9.0}", "  simd-json tape", "", "", "");
    }
    let locator = Locator::new(&change);
    let (limits, given) = (Limits::default(), GivenParts::default());
    let mut flattener = Flattener::new();
    let located = best(|| {
        black_box(flattener.locate(&locator, black_box(CHANGE.as_bytes()), &given, &limits));
    });
    println!("{:<28} {:>6} {located:>9.0}", "tenant and collection", "");
}
