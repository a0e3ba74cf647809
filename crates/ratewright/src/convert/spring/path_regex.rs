//! Regular expressions for paths, as patterns of a policy file: `^(/api|/v2)/.*$` is `/api/**` and `/v2/**`.

/// More alternatives than anybody writes.
const PATTERNS_MAX: usize = 32;

/// Longer than any expression that somebody writes by hand.
const LENGTH_MAX: usize = 2_048;

/// The patterns that match what a regular expression matches, or a little more. None if it has parts that patterns lack.
pub(super) fn patterns(regex: &str) -> Option<Vec<String>> {
    if regex.len() > LENGTH_MAX {
        return None;
    }
    let regex = regex.trim().trim_start_matches('^').trim_end_matches('$');
    let mut patterns = vec![String::new()];
    let mut rest = regex;
    while !rest.is_empty() {
        let (parts, after) = part(rest)?;
        patterns = patterns
            .iter()
            .flat_map(|before| parts.iter().map(move |part| format!("{before}{part}")))
            .collect();
        if patterns.len() > PATTERNS_MAX {
            return None;
        }
        rest = after;
    }
    let is_path = |pattern: &String| pattern.starts_with('/') || pattern.starts_with("**");
    patterns.iter().all(is_path).then_some(patterns)
}

/// The first part of an expression as alternatives, and the rest.
fn part(regex: &str) -> Option<(Vec<String>, &str)> {
    for (known, pattern) in
        [(".*", "**"), (".+", "**"), ("[^/]*", "*"), ("[^/]+", "*"), ("\\d+", "*"), ("\\w+", "*")]
    {
        if let Some(rest) = regex.strip_prefix(known) {
            let rest = rest.strip_prefix('?').unwrap_or(rest); // lazy
            return Some((vec![pattern.to_owned()], rest));
        }
    }
    if let Some(inside) = regex.strip_prefix('(') {
        let (inside, rest) = inside.split_once(')')?;
        let inside = inside.strip_prefix("?:").unwrap_or(inside);
        if inside.contains(['(', '?']) || rest.starts_with(['*', '+', '?', '{']) {
            return None;
        }
        let mut all = Vec::new();
        for alternative in inside.split('|') {
            let mut text = String::new();
            let mut left = alternative;
            while !left.is_empty() {
                let (parts, after) = part(left)?;
                text.push_str(parts.first()?);
                left = after;
            }
            all.push(text);
        }
        return Some((all, rest));
    }
    let (c, rest) = match regex.strip_prefix('\\') {
        Some(escaped) => {
            let c = escaped.chars().next().filter(|c| !c.is_alphanumeric())?;
            (c, escaped.strip_prefix(c)?)
        }
        None => {
            let c = regex.chars().next().filter(|c| c.is_ascii_alphanumeric() || "/_-~.%".contains(*c))?;
            (c, regex.strip_prefix(c)?)
        }
    };
    if rest.starts_with(['*', '+', '?', '{']) {
        return None;
    }
    // A dot is any character; a star is a little more.
    let text = if c == '.' && !regex.starts_with('\\') { "*".to_owned() } else { c.to_string() };
    Some((vec![text], rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simple_expressions_become_patterns() {
        for (regex, expected) in [
            (".*", Some(vec!["**"])),
            ("/api/.*", Some(vec!["/api/**"])),
            ("^(/hello).*$", Some(vec!["/hello**"])),
            ("/(a|b)/[^/]+/c", Some(vec!["/a/*/c", "/b/*/c"])),
            (r"/files/\d+\.txt", Some(vec!["/files/*.txt"])),
            ("^(/(?!actuator).*)$", None),
            ("/a*", None),
            ("/a[bc]", None),
            ("login", None),
            ("", None),
            ("(", None),
            ("\\", None),
            ("/ä", None),
        ] {
            let found = patterns(regex);
            assert_eq!(
                found.as_ref().map(|all| all.iter().map(String::as_str).collect()),
                expected,
                "{regex}"
            );
        }
        assert_eq!(patterns(&format!("/{}", "(a|b)".repeat(10))), None);
    }
}
