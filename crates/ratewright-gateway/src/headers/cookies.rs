//! Joins cookies, which HTTP/2 clients may send in separate headers.
//!
//! Browsers do so because it compresses better. HTTP/1.1 has one header for all cookies: of several, some upstreams
//! read the first, and some join them by commas.

use http::header::COOKIE;
use http::{HeaderMap, HeaderValue};

/// Joins all cookies into one header.
pub fn join_cookies(headers: &mut HeaderMap) {
    let lines = headers.get_all(COOKIE);
    if lines.iter().nth(1).is_none() {
        return;
    }
    let lines: Vec<&[u8]> = lines.iter().map(HeaderValue::as_bytes).collect();
    // Always valid: the parts were.
    if let Ok(joined) = HeaderValue::from_bytes(&lines.join(&b"; "[..])) {
        headers.insert(COOKIE, joined);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_are_joined_as_one_client_would_write_them() {
        for (lines, expected) in [(&["a=1"][..], "a=1"), (&["a=1", "sid=x; b=2", "c"], "a=1; sid=x; b=2; c")]
        {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(COOKIE, HeaderValue::from_static(line));
            }
            join_cookies(&mut headers);
            let joined: Vec<_> = headers.get_all(COOKIE).iter().collect();
            assert_eq!(joined, [expected]);
        }
    }
}
