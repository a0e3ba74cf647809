//! Tests that need what a machine may lack.

use std::ffi::OsStr;

/// Says that a test is skipped, and why. The caller returns.
///
/// # Panics
/// With `CI` set: a test that proves nothing must not pass there.
#[expect(clippy::print_stderr, reason = "a skipped test counts as passed, so its reason must be seen")]
pub fn skip(reason: &str) {
    let ci = std::env::var_os("CI");
    assert!(!is_ci(ci.as_deref()), "{reason}; with CI set that is a failure");
    eprintln!("skipped: {reason}");
}

/// True for every value but those that say no.
fn is_ci(variable: Option<&OsStr>) -> bool {
    variable.is_some_and(|value| !["", "0", "false"].map(OsStr::new).contains(&value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ci_is_set_by_any_value_that_does_not_say_no() {
        for (value, expected) in
            [("true", true), ("1", true), ("github", true), ("false", false), ("", false)]
        {
            assert_eq!(is_ci(Some(value.as_ref())), expected, "{value:?}");
        }
        assert!(!is_ci(None));
    }
}
