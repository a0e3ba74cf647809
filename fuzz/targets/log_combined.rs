//! Lines of nginx and Apache, in the formats `combined` and `common`.
#![no_main]

use ratewright_sim::Format;

#[path = "../log_law.rs"]
mod log_law;

libfuzzer_sys::fuzz_target!(|log: &[u8]| log_law::check(&Format::Combined, false, log));
