//! The door's parameters.

use ratewright_core::Policy;
use ratewright_http::Problem;

use crate::url::{bad, decode, once, pairs, quoted, unknown};

/// Rows in an answer, unless another number is asked for.
const N_DEFAULT: usize = 20;

/// The most rows in an answer.
const N_MAX: usize = 1_000;

/// Which parameters a call takes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Accepts {
    /// `n`.
    Number,
    /// `policy` too.
    Policy,
}

/// What was asked for.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Params {
    pub(super) policy: Option<String>,
    pub(super) n: usize,
}

impl Params {
    /// Reads a URL's query. Every parameter at most once, and no others. An empty policy means all.
    pub(super) fn parse(query: &str, accepts: Accepts) -> Result<Self, Problem> {
        let (mut policy, mut n) = (None, None);
        for (name, value) in pairs(query) {
            match name {
                "n" => once(&mut n, parse_n(&decode("n", value)?)?, "n")?,
                "policy" if accepts == Accepts::Policy => {
                    once(&mut policy, parse_policy(decode("policy", value)?.into_owned())?, "policy")?;
                }
                _ => return Err(unknown(name, accepts.known())),
            }
        }
        Ok(Self { policy: policy.flatten(), n: n.unwrap_or(N_DEFAULT) })
    }
}

impl Accepts {
    fn known(self) -> &'static str {
        match self {
            Self::Number => "n",
            Self::Policy => "policy and n",
        }
    }
}

/// Reads whether a reload is to be forced.
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
        return Err(bad("policy", format!("{} is longer than a policy's name can be", quoted(&text))));
    }
    Ok((!text.is_empty()).then_some(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read_or_refused() {
        let all = Params { policy: None, n: N_DEFAULT };
        assert_eq!(Params::parse("", Accepts::Policy), Ok(all));
        assert_eq!(Params::parse("policy=&n=5", Accepts::Policy), Ok(Params { policy: None, n: 5 }));
        let login = Params { policy: Some("login".to_owned()), n: N_DEFAULT };
        assert_eq!(Params::parse("policy=log%69n", Accepts::Policy), Ok(login));
        let long = format!("policy={}", "x".repeat(65));
        for bad in ["n=0", "n=-1", "n=1001", "n=", "n=1&n=1", "m=1", &long] {
            assert!(Params::parse(bad, Accepts::Policy).is_err(), "{bad}");
        }
        assert!(Params::parse("policy=login", Accepts::Number).is_err());
    }

    #[test]
    fn a_reload_is_forced_only_by_a_clear_word() {
        assert_eq!((parse_force(""), parse_force("force=false")), (Ok(false), Ok(false)));
        assert_eq!(parse_force("force=true"), Ok(true));
        for bad in ["force", "force=", "force=1", "force=TRUE", "force=true&force=true", "n=1"] {
            assert!(parse_force(bad).is_err(), "{bad}");
        }
    }
}
