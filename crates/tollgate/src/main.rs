//! The program. All of it is in the library beside it, so that tests and fuzzers reach it.

fn main() -> std::process::ExitCode {
    tollgate::main()
}
