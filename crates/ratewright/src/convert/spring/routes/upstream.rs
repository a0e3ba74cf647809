//! The uri of a route, as an upstream: scheme, host and port.

use super::super::placeholders::SpringText;
use super::super::properties::SpringProperty;
use super::super::reader::{A_URL, SpringReader};
use super::super::url_credentials;

/// A converted uri.
pub(super) struct ConvertedUri {
    pub(super) url: String,
    pub(super) comment: Option<String>,
}

/// A uri without what Ratewright does not need.
struct CleanUri {
    url: String,
    /// What was changed, and what to do.
    advice: Option<&'static str>,
}

/// Converts the uri of a route, or returns comments if that is impossible.
pub(super) fn convert(
    reader: &mut SpringReader<'_>,
    route: &SpringProperty,
) -> Result<ConvertedUri, Vec<String>> {
    let Some(property) = route.get("uri") else {
        reader.warn(route, "the route has no uri and is left out; its limits are policies for its paths");
        return Err(vec![format!("not converted: {}; the route has no uri", route.name)]);
    };
    let mut text = reader.text(property, A_URL).unwrap_or_default();
    let is_whole = text.written.starts_with("${") && text.written.ends_with('}');
    if url_credentials::default_has_login(&text) && !(is_whole && text.written.matches("${").count() == 1) {
        reader.warn(property, "the default of a variable has a login and was left out; set the variable");
        let (written, names) = url_credentials::without_defaults(&text.written);
        names.into_iter().for_each(|name| _ = reader.draft.variables.insert(name, "stand-in.invalid"));
        text = SpringText { written, value: None, ..text };
    }
    // A variable that is the whole uri: its default is converted.
    let default = text.written.strip_prefix("${").and_then(|rest| rest.strip_suffix('}')?.split_once(":-"));
    let converted = match (default, &text.value) {
        (Some((name, default)), Some(value)) if default == value => {
            clean(default, true).map(|uri| CleanUri { url: format!("${{{name}:-{}}}", uri.url), ..uri })
        }
        (None, None) if !text.written.contains("://") => {
            Some(CleanUri { url: text.written.clone(), advice: None })
        }
        _ => clean(&text.written, false),
    };
    let Some(CleanUri { url, advice }) = converted else {
        let advice = "routes need an upstream: http://host:port or https://host";
        let comment = reader.not_converted(property, advice);
        reader.warn(route, "the route is left out; its limits are policies for its paths");
        return Err(vec![comment]);
    };
    let comment = advice.map(|advice| {
        reader.warn(property, advice);
        format!("assumed: {advice}")
    });
    Ok(ConvertedUri { url, comment })
}

/// Cleans a uri. None if it is not one that a proxy can connect to.
fn clean(uri: &str, is_default: bool) -> Option<CleanUri> {
    let (scheme, rest) = uri.split_once("://")?;
    let authority = authority(rest);
    let had_login = authority.contains('@');
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    if host.is_empty() {
        return None;
    }
    let changed = if had_login {
        Some("the login in the uri was left out")
    } else {
        rest.strip_prefix(authority)
            .filter(|path| path.len() > 1)
            .map(|_| "the path in the uri was left out; Spring ignores it too")
    };
    match scheme.to_ascii_lowercase().as_str() {
        "http" | "ws" => Some(CleanUri { url: format!("http://{host}"), advice: changed }),
        "https" | "wss" => Some(CleanUri { url: format!("https://{host}"), advice: changed }),
        "lb" | "lb:ws" => {
            let url = format!("http://{}:8080", host.to_ascii_lowercase());
            let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
            let name: String = host.chars().map(letter).collect();
            let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic()) && !host.contains('$');
            let url = if is_default || !is_name { url } else { format!("${{{name}_URL:-{url}}}") };
            let advice =
                "Ratewright has no service discovery (lb://); set the variable, or write the address";
            Some(CleanUri { url, advice: Some(advice) })
        }
        _ => None,
    }
}

/// The part before the path. A slash within a variable is not a path.
fn authority(rest: &str) -> &str {
    let mut depth = 0_usize;
    let end = rest.char_indices().find(|(_, c)| {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0 && matches!(c, '/' | '?' | '#')
    });
    end.and_then(|(at, _)| rest.get(..at)).unwrap_or(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_become_upstreams() {
        for (uri, expected) in [
            ("http://localhost:3000", Some("http://localhost:3000")),
            ("https://example.org/path", Some("https://example.org")),
            ("ws://chat:80", Some("http://chat:80")),
            ("http://${HOST:-a/b}:80/x", Some("http://${HOST:-a/b}:80")),
            ("http://u:p@h", Some("http://h")),
            ("lb://Order-Service", Some("${ORDER_SERVICE_URL:-http://order-service:8080}")),
            ("no://op", None),
            ("forward:/fallback", None),
            ("http://", None),
        ] {
            assert_eq!(clean(uri, false).map(|uri| uri.url).as_deref(), expected, "{uri}");
        }
    }
}
