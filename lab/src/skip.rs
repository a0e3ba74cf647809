//! Which tests run: those whose tools are installed, and in `make test-all` those that take long, with another seed.

use std::ffi::OsStr;
use std::io::Write;

/// Prints why a test is skipped. The caller must then return.
///
/// # Panics
/// If `CI` is set: there, a skipped test is a failure.
pub fn skip(reason: &str) {
    let ci = std::env::var_os("CI");
    assert!(!is_ci(ci.as_deref()), "test cannot be skipped because CI is set: {reason}");
    print(reason);
}

/// Prints why a test is skipped, and does not fail if `CI` is set. For what cannot be installed (root, namespaces, open files, a
/// network address, a git checkout), and for tests that only `make test-all` runs. The caller must then return.
pub fn skip_here(reason: &str) {
    print(reason);
}

/// True in `make test-all`, which sets `FULL`: for more examples and larger bodies.
#[must_use]
pub fn is_full_run() -> bool {
    std::env::var_os("FULL").is_some()
}

/// The seed of property tests, for other programs that draw at random: fixed in the gate, new in `make test-all`.
#[must_use]
pub fn seed() -> String {
    std::env::var("PROPTEST_RNG_SEED").unwrap_or_else(|_| "17".to_owned())
}

/// A skipped test counts as passed, and the test harness shows nothing of it but what is written to standard error directly.
fn print(reason: &str) {
    let thread = std::thread::current(); // its name is the test's
    let test = thread.name().unwrap_or("a test");
    let _closed = writeln!(std::io::stderr(), "skipped: {test}: {reason}");
}

/// True unless `CI` is unset, empty, "0" or "false".
fn is_ci(variable: Option<&OsStr>) -> bool {
    variable.is_some_and(|value| !["", "0", "false"].map(OsStr::new).contains(&value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ci_is_on_unless_unset_empty_zero_or_false() {
        for (value, expected) in
            [("true", true), ("1", true), ("github", true), ("false", false), ("0", false), ("", false)]
        {
            assert_eq!(is_ci(Some(value.as_ref())), expected, "{value:?}");
        }
        assert!(!is_ci(None));
    }
}
