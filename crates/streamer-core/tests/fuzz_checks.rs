//! The checks of `crates/fuzz`, on its stored corpus and on random choices, without a fuzzer.

#[path = "../../fuzz/src/lib.rs"]
mod checks;

use checks::Choices;
use std::path::Path;

/// Bytes that repeat from run to run (SplitMix64).
fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    std::iter::repeat_with(|| {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)).to_le_bytes()
    })
    .flatten()
    .take(length)
    .collect()
}

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target);
    let mut files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "no corpus in {}", folder.display());
    files.iter().map(|file| std::fs::read(file).unwrap()).collect()
}

#[test]
fn the_flattener_finds_what_a_full_parse_finds() {
    for text in corpus("flatten") {
        checks::flatten(&text);
        checks::flatten(&checks::event(&mut Choices::new(&text)));
    }
    for seed in 0..3000 {
        checks::flatten(&checks::event(&mut Choices::new(&bytes(seed, 400))));
    }
}

#[test]
fn every_prefix_and_every_changed_byte_of_an_event_is_judged_alike() {
    let event =
        r#" {"data":{"a":[1.5e3,{"b":"x\u0041\ud83d\ude00é"}],"c":true},"type":"insert","n":[null,-0,[],{}]} "#.as_bytes();
    for length in 0..event.len() {
        checks::flatten(&event[..length]);
        for byte in [b'"', b'\\', b'{', b'}', b'[', b']', b',', b':', b'0', b'e', b'u', b' ', 0, 0x1f, 0x80, 0xc3, 0xed, 0xff] {
            let mut changed = event.to_vec();
            changed[length] = byte;
            checks::flatten(&changed);
        }
    }
}

#[test]
fn parsers_never_panic() {
    for text in corpus("parsers") {
        checks::parsers(&text);
        checks::decides(&mut Choices::new(&text));
    }
}

#[test]
fn expressions_keep_their_budget_to_the_unit() {
    let verdicts: usize = corpus("cel").iter().map(|data| checks::expressions::expression(data)).sum();
    assert!(verdicts > 100, "{verdicts}");
    // Every prefix, and pieces of one put into another.
    let texts = corpus("cel");
    for (text, other) in texts.iter().zip(texts.iter().rev()) {
        for at in 0..text.len().min(120) {
            checks::expressions::expression(&text[at..]);
            let mixed = [&text[..at], &other[at.min(other.len())..]].concat();
            checks::expressions::expression(&mixed);
        }
    }
}

#[test]
fn the_normal_form_decides_as_the_naive_evaluation_does() {
    let (mut good, mut matched) = (0, 0);
    for seed in 0..1500 {
        let (wanted, decided) = checks::decides(&mut Choices::new(&bytes(seed, 800)));
        matched += wanted;
        good += decided;
    }
    assert!(good > 5_000 && matched * 30 > good, "{matched} of {good} matched");
}

#[test]
fn the_engine_finds_what_the_naive_evaluation_wants() {
    for data in corpus("engine") {
        checks::engine(&mut Choices::new(&data));
    }
    let (mut pairs, mut matched) = (0, 0);
    for seed in 0..150 {
        let (wanted, all) = checks::engine(&mut Choices::new(&bytes(seed, 8_000)));
        matched += wanted;
        pairs += all;
    }
    assert!(pairs > 20_000 && matched * 50 > pairs, "{matched} of {pairs} matched");
}

#[test]
fn an_image_finds_the_same_and_a_changed_one_never_crashes_or_hangs() {
    for data in corpus("image") {
        checks::image(&data);
    }
    for seed in 0..60 {
        checks::image(&[&[0], &*bytes(seed, 8_000)].concat());
    }
    let (mut used, mut refused) = (0, 0);
    for seed in 0..3000 {
        let edits = 8 * (1 + seed as usize % 3);
        if checks::image(&[&[2], &*bytes(seed, edits)].concat()) { used += 1 } else { refused += 1 }
    }
    assert!(used > 100 && refused > 300, "{used} used, {refused} refused");
}
