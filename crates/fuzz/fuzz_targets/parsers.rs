#![no_main]
//! What users write: no text makes a parser panic, and what is accepted can be lowered and evaluated.

use libfuzzer_sys::fuzz_target;
use streamer_fuzz as checks;

fuzz_target!(|data: &[u8]| {
    checks::parsers(data);
    checks::decides(&mut checks::Choices::new(data));
});
