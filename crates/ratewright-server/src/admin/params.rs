//! The URL parameters of the admin API.

use ratewright_core::Policy;
use ratewright_http::Problem;

use crate::url::{bad, decode, once, pairs, quoted, unknown};

/// The default number of rows in a response.
const N_DEFAULT: usize = 20;

/// The most rows in a response.
const N_MAX: usize = 1_000;

/// The parameters of a call.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct AdminParams {
    pub(super) policy: Option<String>,
    pub(super) n: usize,
}

impl AdminParams {
    /// Parses a URL's query: every parameter at most once, and no others. An empty policy means all.
    pub(super) fn parse(query: &str) -> Result<Self, Problem> {
        let (mut policy, mut n) = (None, None);
        for (name, value) in pairs(query) {
            match name {
                "n" => once(&mut n, parse_n(&decode("n", value)?)?, "n")?,
                "policy" => {
                    once(&mut policy, parse_policy(decode("policy", value)?.into_owned())?, "policy")?;
                }
                _ => return Err(unknown(name, "policy and n")),
            }
        }
        Ok(Self { policy: policy.flatten(), n: n.unwrap_or(N_DEFAULT) })
    }
}

/// Parses `force`.
pub(super) fn parse_force(query: &str) -> Result<bool, Problem> {
    let mut force = None;
    for (name, value) in pairs(query) {
        match (name, decode("force", value)?.as_ref()) {
            ("force", "true") => once(&mut force, true, "force")?,
            ("force", "false") => once(&mut force, false, "force")?,
            ("force", other) => {
                return Err(bad("force", format!("force is {}; use true or false", quoted(other))));
            }
            _ => return Err(unknown(name, "force")),
        }
    }
    Ok(force.unwrap_or(false))
}

fn parse_n(text: &str) -> Result<usize, Problem> {
    let n = text.parse().ok().filter(|n| (1..=N_MAX).contains(n));
    n.ok_or_else(|| bad("n", format!("n is {}; use a whole number from 1 to {N_MAX}", quoted(text))))
}

fn parse_policy(text: String) -> Result<Option<String>, Problem> {
    if text.len() > Policy::NAME_MAX {
        return Err(bad(
            "policy",
            format!("policy {} is longer than {} bytes", quoted(&text), Policy::NAME_MAX),
        ));
    }
    Ok((!text.is_empty()).then_some(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_parsed_or_rejected() {
        let all = AdminParams { policy: None, n: N_DEFAULT };
        assert_eq!(AdminParams::parse(""), Ok(all));
        assert_eq!(AdminParams::parse("policy=&n=5"), Ok(AdminParams { policy: None, n: 5 }));
        let login = AdminParams { policy: Some("login".to_owned()), n: N_DEFAULT };
        assert_eq!(AdminParams::parse("policy=log%69n"), Ok(login));
        let long = format!("policy={}", "x".repeat(65));
        for bad in ["n=0", "n=-1", "n=1001", "n=", "n=1&n=1", "m=1", &long] {
            assert!(AdminParams::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_reload_is_forced_only_by_force_true() {
        assert_eq!((parse_force(""), parse_force("force=false")), (Ok(false), Ok(false)));
        assert_eq!(parse_force("force=true"), Ok(true));
        for bad in ["force", "force=", "force=1", "force=TRUE", "force=true&force=true", "n=1"] {
            assert!(parse_force(bad).is_err(), "{bad}");
        }
    }
}
