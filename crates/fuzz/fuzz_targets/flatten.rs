#![no_main]
//! Events as bytes and events made of wanted names: the flattener finds what a full parse finds.

use libfuzzer_sys::fuzz_target;
use streamer_fuzz as checks;

fuzz_target!(|data: &[u8]| {
    checks::flatten(data);
    checks::flatten(&checks::event(&mut checks::Choices::new(data)));
});
