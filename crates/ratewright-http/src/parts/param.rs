//! The query parameters of a request.

use std::borrow::Cow;

use http::request::Parts;
use percent_encoding::percent_decode_str;

use super::Values;
use super::name::{NameMatch, unicode_decoded};
use crate::identify::METHOD_OVERRIDES;

/// Adds the values of all query parameters of this name, decoded. Some upstreams also separate parameters by `;`, and then
/// read less of a value that contains one.
pub fn param<'a>(query: &'a str, name: &str, values: &mut Values<'a>) {
    let mut add = |pair: &'a str| {
        let (found, value) = pair.split_once('=').unwrap_or((pair, ""));
        match NameMatch::of_param(found, name) {
            NameMatch::Same => {
                match form_decoded(value) {
                    Some(text) => values.add_with_trimmed(text),
                    None => values.add_lossy(&Cow::from(percent_decode_str(&value.replace('+', " ")))),
                }
                if let Some((start, _)) = value.split_once(';') {
                    values.add_candidate(form_decoded(start));
                }
            }
            NameMatch::Ambiguous => values.add_candidate(form_decoded(value)),
            NameMatch::Different => return,
        }
        if let Some(decoded) = unicode_decoded(value.as_bytes()) {
            values.add_candidate(Some(Cow::Owned(decoded)));
        }
    };
    for pair in query.split('&') {
        add(pair);
        pair.split(';').skip(1).for_each(&mut add);
    }
    // URLSearchParams in JavaScript drops a leading question mark.
    if let Some(first) = query.strip_prefix('?').and_then(|rest| rest.split('&').next()) {
        add(first);
    }
}

/// Adds the methods in the query parameter `_method`, which some upstreams use instead of the request's, in capitals.
pub fn method_param(query: &str, values: &mut Values<'_>) {
    let may_name_one = |bytes: &[u8]| bytes.eq_ignore_ascii_case(b"method");
    if !query.contains('%') && !query.as_bytes().windows(6).any(may_name_one) {
        return; // the usual case
    }
    for pair in query.strip_prefix('?').unwrap_or(query).split(['&', ';']) {
        let (found, value) = pair.split_once('=').unwrap_or((pair, ""));
        if NameMatch::of_param(found, "_method") != NameMatch::Different {
            let spaced = value.replace('+', " ");
            methods(&Cow::from(percent_decode_str(&spaced)), values);
            unicode_decoded(spaced.as_bytes()).iter().for_each(|method| methods(method.as_bytes(), values));
        }
    }
}

/// The methods with which the headers and the query of a request override its own: see [`METHOD_OVERRIDES`].
pub fn overriding_methods<'v>(request: &Parts) -> Values<'v> {
    let mut values = Values::default();
    let lines = METHOD_OVERRIDES.iter().flat_map(|name| request.headers.get_all(name));
    lines.for_each(|line| methods(line.as_bytes(), &mut values));
    method_param(request.uri.query().unwrap_or_default(), &mut values);
    values
}

/// Adds the methods of a list, in capitals, without other bytes, which upstreams trim.
pub fn methods(list: &[u8], values: &mut Values<'_>) {
    for method in list.split(|byte| *byte == b',') {
        let letters = method.iter().filter(|byte| byte.is_ascii_alphanumeric() || **byte == b'-');
        values.add(Some(letters.map(|byte| char::from(byte.to_ascii_uppercase())).collect()));
    }
}

/// A form value, with `%` and `+` decoded.
fn form_decoded(text: &str) -> Option<Cow<'_, str>> {
    if text.contains('+') {
        let spaced = text.replace('+', " ");
        return Some(Cow::Owned(percent_decode_str(&spaced).decode_utf8().ok()?.into_owned()));
    }
    percent_decode_str(text).decode_utf8().ok()
}
