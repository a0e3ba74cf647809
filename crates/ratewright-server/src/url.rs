//! Parses URL parameters, each at most once, with clear errors.

use std::borrow::Cow;

use http::StatusCode;
use percent_encoding::percent_decode;
use ratewright_core::quota::Algorithm;
use ratewright_core::{Policies, Policy};
use ratewright_http::Problem;

/// The parameters of a URL's query, with their values as written.
pub(crate) fn pairs(query: &str) -> impl Iterator<Item = (&str, &str)> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

/// Decodes a parameter's value.
pub(crate) fn decode<'a>(name: &'static str, value: &'a str) -> Result<Cow<'a, str>, Problem> {
    if !value.bytes().any(|byte| matches!(byte, b'+' | b'%')) {
        return Ok(Cow::Borrowed(value));
    }
    let spaced: Vec<u8> = value.bytes().map(|byte| if byte == b'+' { b' ' } else { byte }).collect();
    let decoded = percent_decode(&spaced).decode_utf8();
    decoded.map(|text| Cow::Owned(text.into_owned())).map_err(|_| bad(name, format!("{name} is not UTF-8")))
}

/// Stores a parameter, unless it was given before.
pub(crate) fn once<T>(slot: &mut Option<T>, value: T, name: &'static str) -> Result<(), Problem> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(bad(name, format!("{name} is given twice; send it once"))),
    }
}

/// The problem of a parameter that the call does not take.
pub(crate) fn unknown(name: &str, known: &str) -> Problem {
    let detail = format!("unknown parameter {}; this call takes {known}", quoted(name));
    Problem::new(StatusCode::BAD_REQUEST, detail)
}

/// The problem of a parameter with an invalid value.
pub(crate) fn bad(parameter: &'static str, detail: impl Into<String>) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, detail).about(parameter)
}

/// The problem of a policy in the URL that does not exist. `policies`: those that do, if they are at hand.
pub(crate) fn unknown_policy(name: &str, policies: Option<&Policies>) -> Problem {
    Problem::new(StatusCode::NOT_FOUND, unknown_policy_detail(name, policies)).about("policy")
}

/// Names an unknown policy, and those that exist if they are few. Policies behind ad hoc keys and Envoy's rules are not in
/// the policy file, so they are left out.
pub(crate) fn unknown_policy_detail(name: &str, policies: Option<&Policies>) -> String {
    const NAMES_MAX: usize = 10;
    let is_listed = |name: &&str| Algorithm::named(name).is_none() && !name.starts_with("envoy.");
    let names = policies.into_iter().flat_map(Policies::iter).map(Policy::name).filter(is_listed);
    let names: Vec<&str> = names.take(NAMES_MAX + 1).collect();
    match names.len() {
        0 => format!("unknown policy {}; see the policy file", quoted(name)),
        1 => format!("unknown policy {}; the only policy is {}", quoted(name), names[0]),
        n if n > NAMES_MAX => format!("unknown policy {}; see the policy file", quoted(name)),
        _ => format!("unknown policy {}; the policies are {}", quoted(name), names.join(", ")),
    }
}

/// A value for an error message: escaped and shortened.
pub(crate) fn quoted(text: &str) -> String {
    const SHOWN: usize = 40;
    let mut shown: String = text.chars().take(SHOWN).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    format!("{shown:?}")
}
