//! The URL parameters of the REST entrypoint.

use std::borrow::Cow;
use std::num::NonZeroU32;

use ratewright_core::quota::{Algorithm, Leak, Refill, WindowStart};
use ratewright_http::Problem;

use crate::url::{bad, decode, once, pairs, quoted, unknown};

/// The longest key, in bytes after decoding.
pub(super) const KEY_MAX: usize = 1_024;

/// An algorithm, with its name in this API.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum ApiAlgorithm {
    #[default]
    TokenBucket,
    LeakyBucket,
    SlidingWindow,
    SlidingWindowCounter,
    FixedWindow,
}

/// The parameters that a call takes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum AcceptedParams {
    /// `algorithm` and `key`.
    Key,
    /// The same, but `key` is required.
    NamedKey,
    /// The same, and `permits`.
    Permits,
}

/// The policy whose buckets a call concerns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum PolicyRef<'a> {
    /// The policy behind the algorithm's ad hoc keys.
    AdHoc(ApiAlgorithm),
    /// A policy of the policy file.
    Policy(Cow<'a, str>),
}

/// The parameters of a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Params<'a> {
    pub(super) policy_ref: PolicyRef<'a>,
    pub(super) key: Option<Cow<'a, str>>,
    pub(super) permits: NonZeroU32,
}

impl ApiAlgorithm {
    pub(super) const ALL: [Self; Algorithm::NAMES.len()] = [
        Self::TokenBucket,
        Self::LeakyBucket,
        Self::SlidingWindow,
        Self::SlidingWindowCounter,
        Self::FixedWindow,
    ];

    /// The name in this API.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::TokenBucket => "TOKEN_BUCKET",
            Self::LeakyBucket => "LEAKY_BUCKET",
            Self::SlidingWindow => "SLIDING_WINDOW",
            Self::SlidingWindowCounter => "SLIDING_WINDOW_COUNTER",
            Self::FixedWindow => "FIXED_WINDOW",
        }
    }

    /// The policy behind ad hoc keys of this algorithm: it has the algorithm's name in the core.
    fn policy(self) -> &'static str {
        let algorithm = match self {
            Self::TokenBucket => Algorithm::TokenBucket(Refill::Smooth),
            Self::LeakyBucket => Algorithm::LeakyBucket(Leak::Meter),
            Self::SlidingWindow => Algorithm::SlidingWindow,
            Self::SlidingWindowCounter => Algorithm::SlidingWindowCounter,
            Self::FixedWindow => Algorithm::FixedWindow(WindowStart::Epoch),
        };
        algorithm.name()
    }

    /// This API's name of an algorithm.
    pub(super) fn of(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::TokenBucket(_) => Self::TokenBucket,
            Algorithm::LeakyBucket(_) => Self::LeakyBucket,
            Algorithm::SlidingWindow => Self::SlidingWindow,
            Algorithm::SlidingWindowCounter => Self::SlidingWindowCounter,
            Algorithm::FixedWindow(_) => Self::FixedWindow,
        }
    }

    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.name().eq_ignore_ascii_case(name))
    }
}

impl PolicyRef<'_> {
    /// The policy's name.
    pub(super) fn policy(&self) -> &str {
        match self {
            Self::AdHoc(algorithm) => algorithm.policy(),
            Self::Policy(name) => name,
        }
    }
}

impl AcceptedParams {
    fn known(self) -> &'static str {
        match self {
            Self::Key | Self::NamedKey => "algorithm or policy, and key",
            Self::Permits => "algorithm or policy, key and permits",
        }
    }
}

impl<'a> Params<'a> {
    /// Parses a URL's query: every parameter at most once, and no others.
    pub(super) fn parse(query: &'a str, accepted: AcceptedParams) -> Result<Self, Problem> {
        let (mut algorithm, mut policy, mut key, mut permits) = (None, None, None, None);
        for (name, value) in pairs(query) {
            match name {
                "algorithm" => {
                    once(&mut algorithm, parse_algorithm(&decode("algorithm", value)?)?, "algorithm")?
                }
                "policy" => once(&mut policy, decode("policy", value)?, "policy")?,
                "key" => once(&mut key, parse_key(decode("key", value)?, accepted)?, "key")?,
                "permits" if accepted == AcceptedParams::Permits => {
                    once(&mut permits, parse_permits(&decode("permits", value)?)?, "permits")?;
                }
                _ => return Err(unknown(name, accepted.known())),
            }
        }
        let policy_ref = match (algorithm, policy) {
            (Some(_), Some(_)) => {
                return Err(bad("policy", "give algorithm or policy, not both; a policy has its own"));
            }
            (None, Some(policy)) => PolicyRef::Policy(policy),
            (algorithm, None) => PolicyRef::AdHoc(algorithm.unwrap_or_default()),
        };
        Ok(Self { policy_ref, key, permits: permits.unwrap_or(NonZeroU32::MIN) })
    }
}

fn parse_algorithm(text: &str) -> Result<ApiAlgorithm, Problem> {
    ApiAlgorithm::named(text).ok_or_else(|| {
        let names = ApiAlgorithm::ALL.map(ApiAlgorithm::name).join(", ");
        bad("algorithm", format!("unknown algorithm {}; use one of {names}", quoted(text)))
    })
}

fn parse_key(text: Cow<'_, str>, accepted: AcceptedParams) -> Result<Cow<'_, str>, Problem> {
    if text.is_empty() {
        return Err(bad(
            "key",
            "key is empty; use 1 to 1024 bytes, or leave it out to mean your own address",
        ));
    }
    // A percent-encoded byte has three.
    let bytes_max = if accepted == AcceptedParams::NamedKey { 3 * KEY_MAX } else { KEY_MAX };
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
    fn rejected(query: &str, expected: &str) {
        let problem = Params::parse(query, AcceptedParams::Permits).unwrap_err();
        let body = problem.render().into_body();
        assert!(body.contains(expected), "{query:?}: {body}");
    }

    #[test]
    fn parameters_are_read() {
        let params =
            Params::parse("algorithm=fixed_window&key=user%3A1+a%C3%A9&permits=7", AcceptedParams::Permits)
                .unwrap();
        assert_eq!(params.policy_ref, PolicyRef::AdHoc(ApiAlgorithm::FixedWindow));
        assert_eq!(params.key.as_deref(), Some("user:1 aé"));
        assert_eq!(params.permits.get(), 7);
        let none = Params {
            policy_ref: PolicyRef::AdHoc(ApiAlgorithm::TokenBucket),
            key: None,
            permits: NonZeroU32::MIN,
        };
        assert_eq!(Params::parse("", AcceptedParams::Permits), Ok(none));
    }

    /// C3, C4, C6: an error says what is accepted.
    #[test]
    fn c3_c4_c6_errors_name_the_parameter_and_what_is_accepted() {
        rejected("algorithm=GCRA", r#"unknown algorithm \"GCRA\"; use one of TOKEN_BUCKET"#);
        rejected("algorithm=", r#"unknown algorithm \"\""#);
        rejected("key=", "key is empty");
        rejected(&format!("key={}", "x".repeat(1_025)), "key has 1025 bytes; use 1 to 1024");
        rejected("key=a%0Ab", "control character");
        rejected("key=a%00b", "control character");
        rejected("key=%ff", "key is not UTF-8");
        rejected("key=a&key=b", "key is given twice");
        for permits in
            ["0", "-1", "+1", "1.5", "", "abc", "4294967296", "99999999999999999999999", "1e3", "%31%00"]
        {
            rejected(&format!("permits={permits}"), "use a whole number from 1 to 4294967295");
        }
        rejected(
            "permit=1",
            r#"unknown parameter \"permit\"; this call takes algorithm or policy, key and permits"#,
        );
        assert!(Params::parse("permits=1", AcceptedParams::Key).is_err());
    }

    #[test]
    fn the_names_are_those_of_the_core_in_capitals() {
        for algorithm in ApiAlgorithm::ALL {
            assert_eq!(algorithm.policy(), algorithm.name().to_lowercase());
            let model = Algorithm::named(algorithm.policy()).unwrap();
            assert_eq!(ApiAlgorithm::of(model), algorithm);
        }
    }

    #[test]
    fn a_long_value_is_shortened_in_the_error() {
        rejected(
            &format!("algorithm={}", "y".repeat(10_000)),
            &format!(r#"unknown algorithm \"{}…\";"#, "y".repeat(40)),
        );
    }
}
