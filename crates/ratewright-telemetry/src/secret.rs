//! Which values are not to be shown.

use ratewright_core::query::AttributeName;

/// True if the value of an attribute may be a secret. Any header, cookie or parameter may carry one, whatever its name.
pub fn may_be_secret<S: AsRef<str>>(name: &AttributeName<S>) -> bool {
    match name {
        AttributeName::Header(_) | AttributeName::Cookie(_) | AttributeName::Param(_) => true,
        AttributeName::Claim(name) => sounds_secret(name.as_ref()),
        // `entries` is a whole descriptor as one text, for limits in the request itself.
        AttributeName::Named(name) => sounds_secret(name.as_ref()) || name.as_ref() == "entries",
        AttributeName::Ip
        | AttributeName::User
        | AttributeName::Method
        | AttributeName::Path
        | AttributeName::Host
        | AttributeName::Route
        | AttributeName::Key => false,
    }
}

/// True if a text has a url with a password, or with a query, which may have a token in it.
pub fn has_credentials(text: &str) -> bool {
    text.split_once("://").is_some_and(|(_, rest)| rest.contains(['@', '?']))
}

/// True for names that suggest a secret: a policy may count by any header, cookie or attribute. Logs, lists and keys
/// show a digest in place of the value.
pub fn sounds_secret(name: &str) -> bool {
    const WORDS: [&str; 14] = [
        "apikey",
        "api_key",
        "api-key",
        "token",
        "secret",
        "auth",
        "cookie",
        "passw",
        "pwd",
        "sess",
        "jwt",
        "bearer",
        "credential",
        "signature",
    ];
    // Words that are too short to be looked for within others.
    const SEGMENTS: [&str; 5] = ["sid", "key", "sig", "otp", "pin"];
    let name = name.to_ascii_lowercase();
    // Envoy's name for a text that the file gives, not the client.
    name != "generic_key"
        && (WORDS.iter().any(|word| name.contains(word))
            || name.split(['-', '_', '.']).any(|segment| SEGMENTS.contains(&segment)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_headers_and_of_telling_names_may_be_secrets() {
        let secrets = [
            AttributeName::Header("X-Tier"),
            AttributeName::Cookie("theme"),
            AttributeName::Param("page"),
            AttributeName::Claim("api_key"),
            AttributeName::Named("token"),
            AttributeName::Named("entries"),
        ];
        assert!(secrets.iter().all(may_be_secret));
        let plain = [
            AttributeName::Ip,
            AttributeName::User,
            AttributeName::Claim("plan"),
            AttributeName::Named("tenant"),
        ];
        assert!(!plain.iter().any(may_be_secret));
    }

    #[test]
    fn urls_with_a_password_or_a_query_have_credentials() {
        assert!(
            has_credentials("endpoint: http://user:pass@collector:4318")
                && has_credentials("http://a/?token=x")
        );
        assert!(!has_credentials("http://127.0.0.1:3000/a") && !has_credentials("a@b?"));
    }

    #[test]
    fn names_of_secrets_are_known() {
        for secret in
            ["X-Api-Key", "Authorization", "session_id", "sid", "connect.sid", "X-Key", "key", "otp"]
        {
            assert!(sounds_secret(secret), "{secret}");
        }
        for plain in ["remote_address", "path", "generic_key", "user", "shipping", "keyboard", "X-Tenant"] {
            assert!(!sounds_secret(plain), "{plain}");
        }
    }
}
