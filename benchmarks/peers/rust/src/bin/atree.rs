//! a-tree: boolean expressions over named attributes. It has no JSON reader of its own: sonic-rs
//! get_many picks the attributes that the patterns use, and that is inside the clock.

use a_tree::{ATree, AttributeDefinition, Event};
use peers::{BUILD_LIMIT_S, args, measure, peak_mb, skip};
use sonic_rs::{JsonContainerTrait, JsonValueTrait, PointerTree, Value};
use std::collections::BTreeMap;
use std::time::Instant;

const PEER: &str = "a-tree";

fn list(values: &[&Value]) -> Option<String> {
    let quoted: Option<Vec<String>> = values.iter().map(|v| v.as_str().map(|s| format!("'{s}'"))).collect();
    Some(format!("[{}]", quoted?.join(", ")))
}

/// One element of a leaf list that is an object, or None if a-tree cannot say it.
fn operator(name: &str, op: &Value) -> Option<String> {
    let (key, v) = op.as_object()?.iter().next()?;
    match key {
        "anything-but" => Some(format!("{name} not in {}", list(&v.as_array()?.iter().collect::<Vec<_>>())?)),
        "exists" => Some(format!("{name} is {}", if v.as_bool()? { "not null" } else { "null" })),
        "numeric" => {
            let parts: Vec<&Value> = v.as_array()?.iter().collect();
            let each: Option<Vec<String>> =
                parts.chunks(2).map(|c| Some(format!("{name} {} {:.2}", c[0].as_str()?, c[1].as_f64()?))).collect();
            Some(format!("({})", each?.join(" and ")))
        }
        _ => None,
    }
}

/// Appends the clauses of a pattern; `fields` gathers path -> is a number.
fn clauses(path: &[String], p: &Value, fields: &mut BTreeMap<Vec<String>, bool>, out: &mut Vec<String>) -> Option<()> {
    for (k, v) in p.as_object()?.iter() {
        let path = [path, &[k.to_owned()]].concat();
        let Some(leaf) = v.as_array() else {
            clauses(&path, v, fields, out)?;
            continue;
        };
        let name = path.join("_");
        let (plain, ops): (Vec<&Value>, Vec<&Value>) = leaf.iter().partition(|v| v.is_str());
        let mut any: Vec<String> = ops.iter().map(|o| operator(&name, o)).collect::<Option<_>>()?;
        match plain.as_slice() {
            [] => {}
            [one] => any.push(format!("{name} = '{}'", one.as_str()?)),
            many => any.push(format!("{name} in {}", list(many)?)),
        }
        let number = ops.iter().any(|o| o.get("numeric").is_some());
        *fields.entry(path).or_default() |= number;
        out.push(if any.len() == 1 { any.remove(0) } else { format!("({})", any.join(" or ")) });
    }
    Some(())
}

fn main() {
    let a = args();
    let t = Instant::now();
    let (mut fields, mut expressions) = (BTreeMap::new(), vec![]);
    for (id, pattern) in &a.patterns {
        let mut out = vec![];
        let v: Value = sonic_rs::from_str(pattern).expect("pattern");
        if clauses(&[], &v, &mut fields, &mut out).is_none() {
            skip(PEER, &a.workload, "it has no prefix, wildcard or ignore-case, and no numbers in arrays");
        }
        expressions.push((*id, out.join(" and ")));
    }
    let fields: Vec<(String, Vec<String>, bool)> = fields.into_iter().map(|(p, n)| (p.join("_"), p, n)).collect();
    let defs: Vec<_> = fields
        .iter()
        .map(|(name, _, number)| if *number { AttributeDefinition::float(name) } else { AttributeDefinition::string(name) })
        .collect();
    let mut atree = ATree::<u32>::new(&defs).expect("attributes");
    for (n, (id, x)) in expressions.iter().enumerate() {
        if let Err(e) = atree.insert(id, x) {
            skip(PEER, &a.workload, &format!("expression {x}: {e:?}"));
        }
        if n % 16 == 0 && t.elapsed().as_secs_f64() > BUILD_LIMIT_S {
            skip(PEER, &a.workload, &format!("build over 300 s at pattern {n}, rss {} MB", peak_mb()));
        }
    }
    drop(expressions);
    let mut tree = PointerTree::new();
    for (_, path, _) in &fields {
        tree.add_path(path);
    }
    let read = |e: &[u8]| -> Event {
        let values = sonic_rs::get_many(e, &tree).expect("event");
        let mut b = atree.make_event();
        for ((name, _, number), v) in fields.iter().zip(&values) {
            let Some(v) = v else { continue };
            if *number {
                let cents = (v.as_f64().expect("number") * 100.0).round() as i64;
                b.with_float(name, cents, 2).expect("float");
            } else if let Some(s) = v.as_str() {
                b.with_string(name, s).expect("string");
            }
        }
        b.build().expect("event")
    };
    atree.search(&read(&a.events[0])).expect("search");
    let build_s = t.elapsed().as_secs_f64();
    measure(
        PEER,
        &a,
        build_s,
        |e, out| out.extend(atree.search(&read(e)).expect("search").matches().iter().map(|x| **x)),
        |e| atree.search(&read(e)).expect("search").matches().len(),
    );
}
