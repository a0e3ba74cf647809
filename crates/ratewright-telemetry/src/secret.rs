//! Which values are not to be shown.

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
