//! How long tests may take.

/// True under `make test-all`, which sets `LONG_TESTS`: a test may then take a minute, where it takes a second in the gate.
#[expect(clippy::disallowed_methods, reason = "a setting of the tests themselves")]
pub fn is_long_run() -> bool {
    std::env::var_os("LONG_TESTS").is_some_and(|value| value != "0" && !value.is_empty())
}
