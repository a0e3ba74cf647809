//! HTTP/1.1 requests: hyper reads only requests that the gateway found, with the same bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ratewright_gateway::fuzzing::request_framing(bytes));
