//! Compiled sections of snapshots, good and changed.

use super::events::{Choices, event};
use super::flattening::WATCHED;
use super::subscriptions::subscription;
use std::sync::{Arc, LazyLock};
use streamer_core::engine::file::mapped;
use streamer_core::engine::{Addition, Engine, Options as EngineOptions, ReadSubscription, Scratch, Selection, SnapshotFault};
use streamer_core::layout::EventLayout;
use streamer_core::limits::Limits;
use streamer_core::map::Bytes;
use streamer_core::naive;
use streamer_core::subscriptions::parse::Defaults;
use streamer_core::subscriptions::{Subscription, normal_form};

/// A section of many subscriptions of all kinds: how many, their lines, their image, and what they are.
struct Compiled {
    lines: Vec<u8>,
    image: Vec<u8>,
    held: Vec<Subscription>,
}

const SEED: u64 = 4711;

fn reader(limits: Limits) -> ReadSubscription {
    Arc::new(move |text: &[u8]| {
        let parsed = Subscription::parse(text, Defaults::of("default"), &limits)?;
        let form = normal_form(&parsed, &limits);
        Ok(Addition::new(parsed.id, form, text))
    })
}

fn compiled(choices: &mut Choices<'_>, count: usize) -> Option<Compiled> {
    let limits = Limits { max_pattern_states: 500, ..Limits::default() };
    let (mut lines, mut held) = (Vec::new(), Vec::new());
    for number in 0..count {
        let text = subscription(choices).replacen("\"s\"", &format!("\"s{number}\""), 1);
        let Ok(parsed) = Subscription::parse(text.as_bytes(), Defaults::of("default"), &limits) else { continue };
        lines.extend(format!("[{},{text}]\n", held.len()).into_bytes());
        held.push(parsed);
    }
    let image = mapped::image(&lines, &reader(limits), SEED).ok()??;
    Some(Compiled { lines, image, held })
}

fn opened(compiled: &Compiled, image: &[u8], layout: &Arc<EventLayout>) -> Engine {
    let limits = Limits { max_pattern_states: 500, ..Limits::default() };
    let engine = Engine::new(EngineOptions {
        layout: layout.clone(),
        limits: limits.clone(),
        background: false,
        seed: Some(SEED),
        ..EngineOptions::default()
    });
    let file = mapped::assemble(SEED, &[("*", "*", compiled.held.len() as u32, &compiled.lines, image)]);
    let expected = file[112..128].to_vec();
    engine.open("made.snap", Bytes::own(&file), &expected, reader(limits), |_, _| true).expect("a good directory");
    engine
}

/// Use an image, good or changed, in an engine: it works, or is refused as a fault. Return whether it was used.
///
/// The first byte selects the meaning of the others: a set of subscriptions, whose image must find the matches of the
/// naive evaluation; an image; or changes to a good one.
pub fn image(data: &[u8]) -> bool {
    static GOOD: LazyLock<Compiled> = LazyLock::new(|| {
        let words = (0..6000_u64)
            .map(|n| (n + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29).wrapping_mul(0xBF58_476D_1CE4_E5B9));
        let bytes: Vec<u8> = words.flat_map(|word| (word >> 16).to_le_bytes()).collect();
        compiled(&mut Choices::new(&bytes), 300).expect("an image")
    });
    let Some((kind, rest)) = data.split_first() else { return false };
    let layout = Arc::clone(&WATCHED[0].layout);
    let mut choices = Choices::new(rest);
    let own;
    let (good, changed) = match kind % 4 {
        0 => {
            let Some(made) = compiled(&mut choices, 150) else { return false };
            own = made;
            (&own, None)
        }
        1 => (&*GOOD, Some(rest.to_vec())),
        _ => {
            let mut image = GOOD.image.clone();
            for edit in rest.chunks_exact(8) {
                let number = |at: usize| u32::from_le_bytes([edit[at], edit[at + 1], edit[at + 2], 0]) as usize;
                let (at, other) = (number(1) % (image.len() / 4) * 4, number(5) % (image.len() / 4) * 4);
                let word = match edit[0] % 4 {
                    0 => [edit[4], edit[5], edit[6], edit[7]],
                    1 => [edit[4], 0, 0, 0],
                    2 => [image[other], image[other + 1], image[other + 2], image[other + 3]],
                    _ => [image[at].wrapping_add(edit[4]), image[at + 1], image[at + 2], image[at + 3]],
                };
                image[at..at + 4].copy_from_slice(&word);
            }
            (&*GOOD, Some(image).filter(|image| *image != GOOD.image))
        }
    };
    let is_good = changed.is_none();
    let engine = opened(good, changed.as_deref().unwrap_or(&good.image), &layout);
    let mut scratch = Scratch::default();
    let limits = Limits::default();
    let mut events: Vec<Vec<u8>> = (0..3).map(|_| event(&mut choices)).collect();
    events.push(br#"{"a":[1,"x",{"b":2}],"b":"xy","data":{"a":1,"b":["x"]},"type":"insert","topic":"a.b"}"#.to_vec());
    let run = || {
        for event in &events {
            let Ok(read) = naive::NaiveEvent::read(event, &layout, &limits) else { continue };
            let Ok(found) = engine.match_event(event, &mut scratch) else { continue };
            let (is_told, slots) = (!found.others.is_empty(), found.certain.to_vec());
            let mut ids: Vec<Box<str>> =
                slots.iter().map(|slot| engine.record(*slot).expect("a subscription").id().into()).collect();
            if is_good && !is_told {
                let mut expected: Vec<Box<str>> =
                    good.held.iter().filter(|one| naive::wants(one, &read)).map(|one| one.id.clone()).collect();
                ids.sort_unstable();
                expected.sort_unstable();
                assert_eq!(ids, expected, "{}", String::from_utf8_lossy(event));
            }
        }
        let gone = &good.held[0].id;
        assert_eq!(engine.remove(&Selection { ids: Some(&[gone]), ..Selection::default() }).removed.len(), 1);
        assert_eq!(engine.len(), good.held.len() - 1);
    };
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)) {
        Ok(()) => true,
        Err(thrown) if thrown.is::<SnapshotFault>() && !is_good => false,
        Err(thrown) => std::panic::resume_unwind(thrown),
    }
}
