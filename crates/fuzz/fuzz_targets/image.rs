#![no_main]
//! Images of compiled sections, good and changed: used or refused, never a crash, and every search ends.

use libfuzzer_sys::fuzz_target;
use streamer_fuzz as checks;

fuzz_target!(|data: &[u8]| {
    checks::image(data);
});
