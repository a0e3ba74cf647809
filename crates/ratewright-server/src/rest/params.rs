//! The door's parameters: what is accepted, and a clear word for everything else.

use std::borrow::Cow;
use std::num::NonZeroU32;

use ratewright_http::Problem;

use crate::url::{bad, decode, once, pairs, quoted, unknown};

/// The longest key, in bytes after decoding.
pub(super) const KEY_MAX: usize = 1_024;

/// An algorithm, by its name here. In the model's order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Algorithm {
    #[default]
    TokenBucket,
    LeakyBucket,
    SlidingWindow,
    SlidingWindowCounter,
    FixedWindow,
}

/// Which parameters a call takes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Accepts {
    /// `algorithm` and `key`.
    Key,
    /// The same, but the key of the caller itself is never meant.
    NamedKey,
    /// `permits` too.
    Permits,
}

/// Which buckets are meant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Which<'a> {
    /// One of the algorithm's own, with any key.
    AdHoc(Algorithm),
    /// Those of a policy of the file.
    Policy(Cow<'a, str>),
}

/// What was asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Params<'a> {
    pub(super) which: Which<'a>,
    pub(super) key: Option<Cow<'a, str>>,
    pub(super) permits: NonZeroU32,
}

impl Algorithm {
    pub(super) const ALL: [Self; 5] = [
        Self::TokenBucket,
        Self::LeakyBucket,
        Self::SlidingWindow,
        Self::SlidingWindowCounter,
        Self::FixedWindow,
    ];

    /// The name, as this door writes it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::TokenBucket => "TOKEN_BUCKET",
            Self::LeakyBucket => "LEAKY_BUCKET",
            Self::SlidingWindow => "SLIDING_WINDOW",
            Self::SlidingWindowCounter => "SLIDING_WINDOW_COUNTER",
            Self::FixedWindow => "FIXED_WINDOW",
        }
    }

    /// The policy that ad hoc keys of this algorithm fall under: the one of the model's name for it.
    fn policy(self) -> &'static str {
        ratewright_core::Algorithm::NAMES[self as usize]
    }

    /// The name here of the model's algorithm.
    pub(super) fn of(algorithm: ratewright_core::Algorithm) -> Self {
        match algorithm {
            ratewright_core::Algorithm::TokenBucket(_) => Self::TokenBucket,
            ratewright_core::Algorithm::LeakyBucket(_) => Self::LeakyBucket,
            ratewright_core::Algorithm::SlidingWindow => Self::SlidingWindow,
            ratewright_core::Algorithm::SlidingWindowCounter => Self::SlidingWindowCounter,
            ratewright_core::Algorithm::FixedWindow(_) => Self::FixedWindow,
        }
    }

    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.name().eq_ignore_ascii_case(name))
    }
}

impl Which<'_> {
    /// The policy whose buckets are meant.
    pub(super) fn policy(&self) -> &str {
        match self {
            Self::AdHoc(algorithm) => algorithm.policy(),
            Self::Policy(name) => name,
        }
    }
}

impl Accepts {
    fn known(self) -> &'static str {
        match self {
            Self::Key | Self::NamedKey => "algorithm or policy, and key",
            Self::Permits => "algorithm or policy, key and permits",
        }
    }
}

impl<'a> Params<'a> {
    /// Reads a URL's query. Every parameter at most once, and no others.
    pub(super) fn parse(query: &'a str, accepts: Accepts) -> Result<Self, Problem> {
        let (mut algorithm, mut policy, mut key, mut permits) = (None, None, None, None);
        for (name, value) in pairs(query) {
            match name {
                "algorithm" => {
                    once(&mut algorithm, parse_algorithm(&decode("algorithm", value)?)?, "algorithm")?
                }
                "policy" => once(&mut policy, decode("policy", value)?, "policy")?,
                "key" => once(&mut key, parse_key(decode("key", value)?, accepts)?, "key")?,
                "permits" if accepts == Accepts::Permits => {
                    once(&mut permits, parse_permits(&decode("permits", value)?)?, "permits")?;
                }
                _ => return Err(unknown(name, accepts.known())),
            }
        }
        let which = match (algorithm, policy) {
            (Some(_), Some(_)) => {
                return Err(bad("policy", "give algorithm or policy, not both; a policy has its own"));
            }
            (None, Some(policy)) => Which::Policy(policy),
            (algorithm, None) => Which::AdHoc(algorithm.unwrap_or_default()),
        };
        Ok(Self { which, key, permits: permits.unwrap_or(NonZeroU32::MIN) })
    }
}

fn parse_algorithm(text: &str) -> Result<Algorithm, Problem> {
    Algorithm::named(text).ok_or_else(|| {
        let names = Algorithm::ALL.map(Algorithm::name).join(", ");
        bad("algorithm", format!("algorithm {} is not known; use one of {names}", quoted(text)))
    })
}

fn parse_key(text: Cow<'_, str>, accepts: Accepts) -> Result<Cow<'_, str>, Problem> {
    if text.is_empty() {
        return Err(bad(
            "key",
            "key is empty; use 1 to 1024 bytes, or leave it out to mean your own address",
        ));
    }
    // Where keys are asked for as they are shown, a byte may be written in three.
    let bytes_max = if accepts == Accepts::NamedKey { 3 * KEY_MAX } else { KEY_MAX };
    if text.len() > bytes_max {
        return Err(bad("key", format!("key has {} bytes; use 1 to {bytes_max}", text.len())));
    }
    let is_plain = text.bytes().all(|byte| (b' '..0x7f).contains(&byte));
    if !is_plain && let Some(control) = text.chars().find(|c| c.is_control()) {
        return Err(bad(
            "key",
            format!("key has the control character {control:?}; use printable characters"),
        ));
    }
    Ok(text)
}

fn parse_permits(text: &str) -> Result<NonZeroU32, Problem> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let permits = if digits { text.parse().ok() } else { None };
    permits.ok_or_else(|| {
        let detail = format!("permits is {}; use a whole number from 1 to {}", quoted(text), u32::MAX);
        bad("permits", detail)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused(query: &str, expected: &str) {
        let problem = Params::parse(query, Accepts::Permits).unwrap_err();
        let body = problem.render().into_body();
        assert!(body.contains(expected), "{query:?}: {body}");
    }

    #[test]
    fn parameters_are_read() {
        let params =
            Params::parse("algorithm=fixed_window&key=user%3A1+a%C3%A9&permits=7", Accepts::Permits).unwrap();
        assert_eq!(params.which, Which::AdHoc(Algorithm::FixedWindow));
        assert_eq!(params.key.as_deref(), Some("user:1 aé"));
        assert_eq!(params.permits.get(), 7);
        let none =
            Params { which: Which::AdHoc(Algorithm::TokenBucket), key: None, permits: NonZeroU32::MIN };
        assert_eq!(Params::parse("", Accepts::Permits), Ok(none));
    }

    /// C3, C4, C6: bad input is told what is accepted.
    #[test]
    fn c3_c4_c6_bad_parameters_are_named_with_what_is_accepted() {
        refused("algorithm=GCRA", r#"algorithm \"GCRA\" is not known; use one of TOKEN_BUCKET"#);
        refused("algorithm=", r#"algorithm \"\" is not known"#);
        refused("key=", "key is empty");
        refused(&format!("key={}", "x".repeat(1_025)), "key has 1025 bytes; use 1 to 1024");
        refused("key=a%0Ab", "control character");
        refused("key=a%00b", "control character");
        refused("key=%ff", "key is not UTF-8");
        refused("key=a&key=b", "key is given twice");
        for permits in
            ["0", "-1", "+1", "1.5", "", "abc", "4294967296", "99999999999999999999999", "1e3", "%31%00"]
        {
            refused(&format!("permits={permits}"), "use a whole number from 1 to 4294967295");
        }
        refused(
            "permit=1",
            r#"parameter \"permit\" is not known; this call takes algorithm or policy, key and permits"#,
        );
        assert!(Params::parse("permits=1", Accepts::Key).is_err());
    }

    #[test]
    fn the_names_here_are_the_models_in_capitals() {
        for algorithm in Algorithm::ALL {
            assert_eq!(algorithm.policy(), algorithm.name().to_lowercase());
            let model = ratewright_core::Algorithm::named(algorithm.policy()).unwrap();
            assert_eq!(Algorithm::of(model), algorithm);
        }
    }

    #[test]
    fn what_is_shown_of_a_bad_value_is_short() {
        refused(
            &format!("algorithm={}", "y".repeat(10_000)),
            &format!(r#"algorithm \"{}…\" is"#, "y".repeat(40)),
        );
    }
}
