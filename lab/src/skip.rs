//! Skips tests whose tools are not installed, and tests that this user or this machine cannot run.

use std::ffi::OsStr;

/// Prints why a test is skipped. The caller must then return.
///
/// # Panics
/// If `CI` is set: there, a skipped test is a failure.
#[expect(clippy::print_stderr, reason = "a skipped test counts as passed, so its reason must be seen")]
pub fn skip(reason: &str) {
    let ci = std::env::var_os("CI");
    assert!(!is_ci(ci.as_deref()), "test cannot be skipped because CI is set: {reason}");
    eprintln!("skipped: {reason}");
}

/// Prints why a test is skipped that this user or this machine cannot run, whatever is installed: it takes root, or a
/// network. It is skipped where `CI` is set, too. The caller must then return.
#[expect(clippy::print_stderr, reason = "a skipped test counts as passed, so its reason must be seen")]
pub fn skip_here(reason: &str) {
    eprintln!("skipped: {reason}");
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
            [("true", true), ("1", true), ("github", true), ("false", false), ("", false)]
        {
            assert_eq!(is_ci(Some(value.as_ref())), expected, "{value:?}");
        }
        assert!(!is_ci(None));
    }
}
