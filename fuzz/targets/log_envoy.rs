//! Lines of Envoy and Istio, as text.
#![no_main]

use ratewright_sim::Format;

#[path = "../log_law.rs"]
mod log_law;

libfuzzer_sys::fuzz_target!(|log: &[u8]| log_law::check(&Format::Envoy, false, log));
