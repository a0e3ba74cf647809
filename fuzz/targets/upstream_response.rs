//! An upstream's HTTP/1.1: a response that the gateway passes on is the same response for hyper, to the byte.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ratewright_gateway::fuzzing::upstream_response(bytes));
