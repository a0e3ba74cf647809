//! The program. All of it is in the library beside it, so that tests and fuzzers reach it.

/// A request through the gateway allocates dozens of times. With the system's allocator 4 % of its time went there.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    ratewright::main()
}
