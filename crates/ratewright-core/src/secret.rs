//! Which values are not to be shown.

/// True for names that people give to secrets: whoever asks can put any header field under any name. What stands under such a name is told
/// from others in logs and lists, and not shown.
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
        "session",
        "jwt",
        "bearer",
        "credential",
        "signature",
    ];
    let name = name.to_ascii_lowercase();
    WORDS.iter().any(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_secrets_are_known() {
        let names =
            ["X-Api-Key", "Authorization", "session_id", "remote_address", "path", "generic_key", "user"];
        assert_eq!(names.map(sounds_secret), [true, true, true, false, false, false, false]);
    }
}
