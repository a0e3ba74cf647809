//! Logins in addresses: `redis://user:password@host`. Passwords are not printed, and neither are defaults that contain one.

use super::placeholders::SpringText;

/// An address, and the login that was in it.
#[derive(Debug, PartialEq)]
pub(super) struct SplitAddress<'a> {
    /// `redis://`, or nothing.
    pub(super) scheme: &'a str,
    pub(super) login: Option<&'a str>,
    pub(super) host: &'a str,
}

/// Splits an address at its last `@` outside of variables. A password may contain `@` and `/`.
pub(super) fn split(address: &str) -> SplitAddress<'_> {
    let scheme_end = address.find("://").map_or(0, |at| at + 3);
    // A scheme within a variable is part of a default.
    let scheme_end =
        if address.get(..scheme_end).is_some_and(|scheme| scheme.contains('$')) { 0 } else { scheme_end };
    let (scheme, rest) = address.split_at(scheme_end);
    let mut depth = 0_usize;
    let mut at = None;
    for (n, c) in rest.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            '@' if depth == 0 => at = Some(n),
            _ => {}
        }
    }
    let parts = at.and_then(|at| Some((rest.get(..at)?, rest.get(at + 1..)?)));
    match parts {
        Some((login, host)) => SplitAddress { scheme, login: Some(login), host },
        None => SplitAddress { scheme, login: None, host: rest },
    }
}

/// The user and the password of a login. A login without a colon is a password: Redis had no users before version 6.
pub(super) fn user_and_password(login: &str) -> (&str, &str) {
    let colon = login.find(':').filter(|at| !login.get(..*at).is_some_and(|user| user.contains("${")));
    colon.and_then(|at| Some((login.get(..at)?, login.get(at + 1..)?))).unwrap_or(("", login))
}

/// True if a text is one variable that shows nothing: without a default, or with an empty one.
pub(super) fn is_secret_variable(text: &str) -> bool {
    let inside = text.strip_prefix("${").and_then(|text| text.strip_suffix('}'));
    let name = inside.map(|inside| inside.strip_suffix(":-").unwrap_or(inside));
    name.is_some_and(|name| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'))
}

/// True if the default of a variable has a login.
pub(super) fn default_has_login(text: &SpringText) -> bool {
    text.written.split("${").skip(1).any(|rest| {
        let inside = rest.split('}').next().unwrap_or_default();
        inside.split_once(":-").is_some_and(|(_, default)| default.contains('@'))
    })
}

/// A text whose variables have no defaults, and the names of these variables.
pub(super) fn without_defaults(written: &str) -> (String, Vec<String>) {
    let mut parts = written.split("${");
    let mut text = parts.next().unwrap_or_default().to_owned();
    let mut names = Vec::new();
    for part in parts {
        let (inside, after) = part.split_once('}').unwrap_or((part, ""));
        let name = inside.split(":-").next().unwrap_or_default();
        text.push_str(&format!("${{{name}}}{after}"));
        names.push(name.to_owned());
    }
    (text, names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logins_are_found() {
        for (address, login, host) in [
            ("redis://h:1/2", None, "h:1/2"),
            ("redis://p@h", Some("p"), "h"),
            ("redis://u:p@${HOST}:1", Some("u:p"), "${HOST}:1"),
            ("redis://u:p/a@b@h", Some("u:p/a@b"), "h"),
            ("u:p@h:1", Some("u:p"), "h:1"),
            ("${URL:-redis://u:p@h}", None, "${URL:-redis://u:p@h}"),
        ] {
            let split = split(address);
            assert_eq!((split.login, split.host), (login, host), "{address}");
        }
        assert_eq!(user_and_password("u:p:q"), ("u", "p:q"));
        assert_eq!(user_and_password("p"), ("", "p"));
        assert_eq!(user_and_password("${L:-u:p}"), ("", "${L:-u:p}"));
        assert!(is_secret_variable("${A}") && is_secret_variable("${A:-}"));
        assert!(!is_secret_variable("${A:-x}") && !is_secret_variable("x") && !is_secret_variable("${A}x"));
        assert_eq!(
            without_defaults("a${B:-c}d${E}"),
            ("a${B}d${E}".to_owned(), vec!["B".to_owned(), "E".to_owned()])
        );
    }
}
