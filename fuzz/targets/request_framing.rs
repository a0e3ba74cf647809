//! A client's HTTP/1.1: hyper reads those requests that the gateway has followed, to the byte, and no others.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ratewright_gateway::fuzzing::request_framing(bytes));
