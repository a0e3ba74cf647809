//! gRPC messages: our parser and tonic read the same message, however the body is split.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ratewright_rls::fuzzing::grpc_message(bytes));
