#![no_main]
//! The engine against the naive evaluation.

use libfuzzer_sys::fuzz_target;
use streamer_fuzz as checks;

fuzz_target!(|data: &[u8]| {
    checks::engine(&mut checks::Choices::new(data));
});
