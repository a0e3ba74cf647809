//! A gRPC call: what we take for its message is what tonic takes for it, however it is cut.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ratewright_rls::fuzzing::call_message(bytes));
