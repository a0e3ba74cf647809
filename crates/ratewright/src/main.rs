//! The program. Its code is in the library beside it, so that tests and fuzzers can call it.

/// A gateway request allocates dozens of times; the system's allocator took 4 % of its CPU time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    ratewright::main()
}
