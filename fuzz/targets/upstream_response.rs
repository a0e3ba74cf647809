//! HTTP/1.1 responses: hyper reads each forwarded response the same as the gateway did.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ratewright_gateway::fuzzing::upstream_response(bytes));
