#![no_main]
//! An expression, a zero byte, an event: nothing panics, and the budget is kept to the unit.

use libfuzzer_sys::fuzz_target;
use streamer_fuzz as checks;

fuzz_target!(|data: &[u8]| {
    checks::expressions::expression(data);
});
