//! Normalises paths: one path for one resource.
//!
//! A path has many spellings, and upstreams differ in how they decode them. If each spelling had its own bucket, or
//! escaped the policy, a limit would be worthless: `/login`, `//login/`, `/%6Cogin` and `/x/..%2flogin` are one path
//! here.
//!
//! ```text
//!   /Shop//./cart%2f..;x%252Flogin/ decode, until nothing is left to decode
//!   /Shop//./cart/..;x/login/       split at / and \, remove parameters, drop empty and `.`, resolve `..`
//!   /Shop/login                     encode what is not allowed in a path; fold the case, if configured
//! ```
//!
//! Decoding repeats until the end, because an upstream may decode twice. Two resources may therefore share a bucket
//! (`/a%252Fb` and `/a/b`): the limit may be too strict, never too generous. Parameters (`;v=1`) are removed, because
//! some upstreams remove them before they resolve `..`, and each would be a new name of one resource. Unicode stays as
//! composed.
//!
//! # Laws
//! - Normalising a normal path changes and allocates nothing (unless it contains encoded bytes that are not UTF-8).
//! - A normal path begins with `/`, and ends with `/` only if it is `/`. No segment is empty, `.` or `..`.
//! - Another encoding of any of its characters is the same path.
//!
//! **Beware:** an upstream that decodes less sees another path than `/health` in `/login%2f..%2fhealth`. Exempt a path
//! only if it [`is_plain`].

use std::borrow::Cow;
use std::fmt::Write as _;

use percent_encoding::percent_decode_str;
use smallvec::SmallVec;

/// Whether `/Login` and `/login` are one path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Case {
    /// They are two paths.
    #[default]
    Sensitive,
    /// They are one path. Only the letters A to Z are folded.
    Insensitive,
}

/// The normal form of a path.
pub fn normalise(path: &str, case: Case) -> Cow<'_, str> {
    let shorter = match path.strip_suffix('/') {
        Some("") | None => path,
        Some(shorter) => shorter,
    };
    if is_normal(shorter, case) {
        return Cow::Borrowed(shorter);
    }
    let rewritten = rewrite(path, case);
    if rewritten == shorter { Cow::Borrowed(shorter) } else { Cow::Owned(rewritten) }
}

/// All ways in which an upstream may read a path that is not plain, each once:
///
/// - the normal form, which comes first; as written; and decoded once
/// - with dots resolved by other rules: encoded slashes do not separate, backslashes do not, empty segments count, parameters
///   belong to the segment
/// - cut off at its first `;`, and without a possible host at the start
/// - without control characters, and cut off at the first of them.
pub fn readings(path: &str, case: Case) -> SmallVec<[Cow<'_, str>; 3]> {
    let normal = normalise(path, case);
    let is_read_alike = match case {
        Case::Sensitive => matches!(normal, Cow::Borrowed(_)) && !has_odd_bytes(path),
        Case::Insensitive => is_plain(path),
    };
    let mut readings = SmallVec::from_iter([normal]);
    if is_read_alike || beyond_ascii_decoded(path).is_some_and(|decoded| is_plain(&decoded)) {
        return readings;
    }
    let decoded = percent_decode_str(path).decode_utf8_lossy();
    for reading in [Cow::Borrowed(path), decoded.clone()] {
        let shorter = match reading.strip_suffix('/') {
            Some("") | None => reading,
            Some(shorter) => Cow::Owned(shorter.to_owned()),
        };
        // A NUL has another meaning in attributes.
        let shorter = if shorter.contains('\0') { Cow::Owned(shorter.replace('\0', "%00")) } else { shorter };
        let shorter = match case {
            Case::Sensitive => shorter,
            Case::Insensitive => Cow::Owned(shorter.to_ascii_lowercase()),
        };
        if !shorter.is_empty() && !readings.contains(&shorter) {
            readings.push(shorter);
        }
    }
    let mut add = |reading: &str| {
        let reading = normalise(reading, case).into_owned();
        if !readings.iter().any(|known| *known == reading) {
            readings.push(Cow::Owned(reading));
        }
    };
    without_controls(path).into_iter().flatten().for_each(|reading| add(&reading));
    let rests = [&['/', '\\'][..], &['/']].map(|slashes| without_authority(path, slashes));
    let rests = rests.iter().flatten().map(String::as_str);
    for text in [path, &decoded].into_iter().chain(rests.clone()) {
        if has_dot_segment(text) {
            // Most paths have neither backslashes nor empty segments: then all of these are the same.
            let n_slashes = if text.contains('\\') { 2 } else { 1 };
            let has_empty = text.contains("//") || n_slashes == 2;
            for slashes in &[&['/'][..], &['/', '\\']][..n_slashes] {
                add(&with_dots_resolved(text, slashes, |_| true));
                if has_empty {
                    add(&with_dots_resolved(text, slashes, |segment| !segment.is_empty()));
                }
            }
        }
        if let Some((start, _)) = text.split_once(';') {
            add(start);
        }
    }
    rests.for_each(&mut add);
    readings
}

/// The rest of a path that begins with two slashes. An upstream that resolves it against a base URL (`new URL` in JavaScript)
/// reads the text after the slashes as a host: `//x/login` is `/login`.
fn without_authority(path: &str, slashes: &[char]) -> Option<String> {
    let rest = path.trim_start_matches(slashes);
    let has_two = path.len() - rest.len() >= 2;
    has_two.then(|| rest.find(slashes).map_or("/", |at| rest.split_at(at).1).to_owned())
}

/// A path with its dots resolved, where only these slashes separate segments, and only segments that are kept count. Browsers
/// and `new URL` in JavaScript keep empty ones; nginx does not.
fn with_dots_resolved(path: &str, slashes: &[char], is_kept: impl Fn(&str) -> bool) -> String {
    let mut segments: Vec<&str> = Vec::new();
    for segment in path.split(slashes).skip(1) {
        match n_dots(segment) {
            Some(1) => {}
            Some(2) => drop(segments.pop()),
            Some(_) | None if is_kept(segment) => segments.push(segment),
            Some(_) | None => {}
        }
    }
    format!("/{}", segments.join("/"))
}

/// True if a path has a segment of one or two dots.
fn has_dot_segment(path: &str) -> bool {
    path.split(['/', '\\']).skip(1).any(|segment| matches!(n_dots(segment), Some(1 | 2)))
}

/// The number of dots, plain or encoded, in a segment of dots only; `None` for any other segment.
fn n_dots(segment: &str) -> Option<usize> {
    let mut rest = segment.as_bytes();
    let mut n = 0;
    while let [b'.', after @ ..] | [b'%', b'2', b'e' | b'E', after @ ..] = rest {
        (n, rest) = (n + 1, after);
    }
    rest.is_empty().then_some(n)
}

/// True if a path contains an ASCII control character, plain or encoded any number of times. Some upstreams end the path
/// there or drop the character: `/static/..%00/login` may be `/login` to them.
pub fn has_control(path: &str) -> bool {
    let bytes = path.as_bytes();
    if !bytes.iter().any(|byte| *byte == b'%' || byte.is_ascii_control()) {
        return false; // the usual case
    }
    let mut is_layered = false;
    for (at, byte) in bytes.iter().enumerate() {
        let decoded = match (byte, bytes.get(at + 1..at + 3)) {
            (b'%', Some(&[high, low])) => from_hex(high, low),
            (b'%', _) => None,
            _ => Some(*byte),
        };
        match decoded {
            // A decoded `%` may begin another escape, unless the next byte is not a digit, or is an encoded `%` itself.
            Some(b'%') => match &bytes[at + 3..] {
                [b'%', b'2', b'5', ..] => {}
                [next, ..] => is_layered |= *next == b'%' || next.is_ascii_hexdigit(),
                [] => {}
            },
            None => is_layered = true,
            Some(decoded) if decoded.is_ascii_control() => return true,
            Some(_) => {}
        }
    }
    is_layered && decode(bytes).iter().any(u8::is_ascii_control)
}

/// The path with encoded non-ASCII characters decoded, which all upstreams read alike; `None` if the result is not UTF-8.
fn beyond_ascii_decoded(path: &str) -> Option<String> {
    let mut decoded = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let escaped = match after {
            [high, low, ..] if *first == b'%' => from_hex(*high, *low).filter(|byte| !byte.is_ascii()),
            _ => None,
        };
        decoded.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() { after.get(2..)? } else { after };
    }
    String::from_utf8(decoded).ok()
}

/// True if all upstreams read this path alike: normalising removes at most a slash at the end.
pub fn is_plain(path: &str) -> bool {
    matches!(normalise(path, Case::Sensitive), Cow::Borrowed(_)) && !has_odd_bytes(path)
}

/// True if a path has bytes that upstreams read differently: encoded non-ASCII bytes, and control characters.
fn has_odd_bytes(path: &str) -> bool {
    let is_odd = |escape: &[u8]| matches!(escape, [b'%', b'8'..=b'9' | b'a'..=b'f' | b'A'..=b'F', _]);
    path.as_bytes().windows(3).any(is_odd) || has_control(path)
}

/// The path without control characters, and the path cut off at the first of them.
fn without_controls(path: &str) -> Option<[String; 2]> {
    let decoded = decode(path.as_bytes());
    let first = decoded.iter().position(u8::is_ascii_control)?;
    let rest: Vec<u8> = decoded.iter().copied().filter(|byte| !byte.is_ascii_control()).collect();
    Some([&rest, &decoded[..first]].map(|bytes| String::from_utf8_lossy(bytes).into_owned()))
}

/// True only if the path is normal. May be false for a normal path with encoded non-ASCII bytes.
fn is_normal(path: &str, case: Case) -> bool {
    let Some(segments) = path.strip_prefix('/') else { return false };
    let whole = |segment: &str| !matches!(segment, "" | "." | "..") && is_normal_segment(segment, case);
    segments.is_empty() || segments.split('/').all(whole)
}

fn is_normal_segment(segment: &str, case: Case) -> bool {
    let mut rest = segment.chars();
    while let Some(char) = rest.next() {
        let normal = match char {
            '%' => is_normal_escape(rest.as_str().as_bytes()),
            'A'..='Z' => case == Case::Sensitive,
            ';' => false,
            _ => is_unescaped(char),
        };
        if !normal {
            return false;
        }
        if char == '%' {
            rest = rest.as_str().split_at(2).1.chars();
        }
    }
    true
}

/// True if the escape after a `%` is necessary and in capitals.
fn is_normal_escape(rest: &[u8]) -> bool {
    let Some(&[high, low]) = rest.first_chunk() else { return false };
    let Some(byte) = from_hex(high, low) else { return false };
    let in_capitals = !high.is_ascii_lowercase() && !low.is_ascii_lowercase();
    // An encoded `%` must not begin another escape.
    let ends_here = byte != b'%' || !matches!(rest[2..], [high, low, ..] if from_hex(high, low).is_some());
    in_capitals
        && byte.is_ascii()
        && byte != b'/'
        && byte != b'\\'
        && !is_unescaped(char::from(byte))
        && ends_here
}

fn rewrite(path: &str, case: Case) -> String {
    let decoded = decode(path.as_bytes());
    let mut normal = String::with_capacity(path.len());
    for segment in decoded.split(|byte| matches!(byte, b'/' | b'\\')) {
        let segment = segment.split(|byte| *byte == b';').next().unwrap_or_default();
        match segment {
            b"" | b"." => {}
            b".." => normal.truncate(normal.rfind('/').unwrap_or(0)),
            _ => {
                normal.push('/');
                encode(segment, case, &mut normal);
            }
        }
    }
    if normal.is_empty() {
        normal.push('/');
    }
    normal
}

/// Decodes until nothing is left to decode, in one pass: a decoded byte may complete an escape before it.
fn decode(path: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(path.len());
    for &byte in path {
        decoded.push(byte);
        while let &[.., b'%', high, low] = decoded.as_slice()
            && let Some(byte) = from_hex(high, low)
        {
            decoded.truncate(decoded.len() - 3);
            decoded.push(byte);
        }
    }
    decoded
}

fn encode(segment: &[u8], case: Case, normal: &mut String) {
    for chunk in segment.utf8_chunks() {
        for char in chunk.valid().chars() {
            match case {
                _ if !is_unescaped(char) => escape(char.encode_utf8(&mut [0; 4]).as_bytes(), normal),
                Case::Sensitive => normal.push(char),
                Case::Insensitive => normal.push(char.to_ascii_lowercase()),
            }
        }
        escape(chunk.invalid(), normal);
    }
}

fn escape(bytes: &[u8], normal: &mut String) {
    for byte in bytes {
        write!(normal, "%{byte:02X}").expect("a string takes all that is written");
    }
}

/// True if a character needs no escape in a segment: RFC 3986 allows it, or it is a non-ASCII character.
fn is_unescaped(char: char) -> bool {
    match char {
        'A'..='Z' | 'a'..='z' | '0'..='9' => true,
        '\0'..='\x7f' => "-._~!$&'()*+,;=:@".contains(char),
        _ => !char.is_control(),
    }
}

fn from_hex(high: u8, low: u8) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(high)? * 16 + digit(low)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(spellings: &[&str], normal: &str) {
        for spelling in spellings {
            assert_eq!(normalise(spelling, Case::Sensitive), normal, "{spelling}");
        }
    }

    #[test]
    fn one_resource_has_one_name() {
        check(
            &["/login", "/login/", "//login//", "/./login/.", "/%6cogin", "/a/../login", "login"],
            "/login",
        );
        check(
            &["/a%2Flogin", "/a%5clogin", "/a\\login", "/a%252flogin", "/a%25252Flogin", "/a/x/%2e%2E/login"],
            "/a/login",
        );
        check(&["", "/", "//", "/.", "/..", "/../..", "/a/..", "/a/%2e%2e/..", "/%2F"], "/");
        check(&["/../../etc/passwd", "/..%2f..%2Fetc/passwd", "/..\\etc/passwd"], "/etc/passwd");
        check(&["/%%34%31", "/%2541", "/%25%34%31", "/A"], "/A");
        check(
            &["/a;v=1/b", "/a%3Bv=1/b", "/a;/b;x;y", "/a/;/b", "/c;/..;x=1/a/b", "/static/..;/a/b"],
            "/a/b",
        );
    }

    #[test]
    fn what_names_another_resource_stays() {
        check(&["/...", "/%2e.."], "/...");
        check(&["/a/b."], "/a/b.");
        check(&["/caf%C3%A9", "/café"], "/café");
        check(&["/a%20b%3f%23", "/a b?#"], "/a%20b%3F%23");
        check(&["/100%25", "/100%", "/100%2525"], "/100%25");
        check(&["/a%00%0a%7f%c2%85", "/a%00%0A%7F%C2%85"], "/a%00%0A%7F%C2%85");
        check(&["/%c0%af%ff", "/%C0%AF%FF"], "/%C0%AF%FF");
        check(&["*"], "/*");
    }

    #[test]
    fn case_is_folded_only_if_asked_to() {
        assert_eq!(normalise("/Login", Case::Sensitive), "/Login");
        assert_eq!(normalise("/Login", Case::Insensitive), "/login");
        assert_eq!(normalise("/%4Cogin/%FF%c3%89", Case::Insensitive), "/login/%FF\u{c9}");
    }

    #[test]
    fn b4_a_path_that_upstreams_read_differently_is_not_plain() {
        for odd in [
            "/static/..;/login",
            "/orders;x=1",
            "/a%2fb",
            "/a//b",
            "/a/../b",
            "/%c0%af",
            "/%FF",
            "/a\\b",
            "/%61",
            "/static/..%00/login",
            "/static/.%09./login",
        ] {
            assert!(!is_plain(odd), "{odd}");
        }
    }

    #[test]
    fn a_control_character_is_found_however_it_is_encoded() {
        for path in [
            "/static/..%00/login",
            "/static/.%09./login",
            "/static/%2e%00%2e/login",
            "/a%2500b",
            "/a%25%30%30b",
            "/a%%30%30b",
            "/a%7f",
            "/a%7F/../b",
            "/a;%1fb",
            "/a\u{7f}",
            "/\t",
            "/%C2%85%1F",
        ] {
            assert!(has_control(path), "{path}");
        }
        for path in
            ["/", "/a%20b/100%25/caf\u{e9}", "/%C2%85", "/100%", "/a%2", "/%25zz", "/%2520%7e", "/%80%8f"]
        {
            assert!(!has_control(path), "{path}");
        }
    }

    #[test]
    fn a_normal_path_is_not_copied() {
        for path in ["/", "/login", "/login/", "/a%20b/100%25/caf\u{e9}", "/%25%25zz", "/a.b/..."] {
            let made = allocation_counter::measure(|| assert!(is_plain(path), "{path}"));
            assert_eq!(made.count_total, 0, "{path}");
        }
        for path in ["//a", "/a/../b", "/%61", "/a%2fb", "/a\\b", "/%2541", "/a%3f", "login"] {
            assert!(!is_plain(path), "{path}");
        }
    }

    #[test]
    fn a_path_that_is_not_plain_has_several_readings() {
        let readings = |path| super::readings(path, Case::Sensitive).join(" ");
        assert_eq!(readings("/login/"), "/login");
        assert_eq!(
            readings("/api/items/1%2f..%2f..%2fx"),
            "/api/x /api/items/1%2f..%2f..%2fx /api/items/1/../../x"
        );
        assert_eq!(readings("/a%252flogin/"), "/a/login /a%252flogin /a%2flogin");
        assert_eq!(readings("/static/..;/login"), "/login /static/..;/login /");
        assert_eq!(readings("/caf%C3%A9/%e4%bd%a0"), "/café/你");
        assert_eq!(readings("/caf%C3%A9/%2e"), "/café /caf%C3%A9/%2e /café/.");
        assert_eq!(readings("/static/..%00/login"), "/static/..%00/login /login /");
        assert_eq!(readings("/static/.%09./login"), "/static/.%09./login /static/.\t./login /login /static");
        assert_eq!(super::readings("/A//B", Case::Insensitive).join(" "), "/a/b /a//b");
    }

    #[test]
    fn every_way_to_resolve_dots_is_a_reading() {
        for path in [
            "/a%252fb/..%2flogin",
            "/a%252fb%2f..%2flogin",
            "/a\\b/../login",
            "/login/..;//..",
            "/login/..%3b//..",
            "/login;/x",
            "/login;%2Fx",
            "//x/login",
            "//a\\b/login",
            "/x//../../login",
        ] {
            let readings = readings(path, Case::Sensitive);
            assert!(readings.iter().any(|reading| reading == "/login"), "{path}: {readings:?}");
        }
    }

    /// A path of any length and content has no more readings than there are rules, and their cost is linear in its length: ten
    /// times the path, ten times the memory.
    #[test]
    fn a_hostile_path_has_few_readings_at_linear_cost() {
        for (start, unit) in [
            ("/", "%"),
            ("/", "%25"),
            ("/", "%2f"),
            ("/", "%252e%252e%252f"),
            ("/", ";"),
            ("/a", ";x=1/..;"),
            ("/", "/"),
            ("//a", "//.."),
            ("//a;", "//..;%2f..%5c"),
            ("/", "\\"),
            ("\\/a", "\\..%2f;"),
            ("/", "../"),
            ("/", "a/%2e./"),
            ("/a", "%00;/.%09./"),
            ("//\\%00;", "a%2f..;//\\..%5c%ff"),
            ("/", "%ff%C3"),
        ] {
            for case in [Case::Sensitive, Case::Insensitive] {
                let [short, long] = [200, 2_000].map(|n| {
                    let path = format!("{start}{}", unit.repeat(n));
                    let mut n_readings = 0;
                    let made = allocation_counter::measure(|| n_readings = readings(&path, case).len());
                    assert!((1..=READINGS_MAX).contains(&n_readings), "{start}{unit}: {n_readings} readings");
                    made.bytes_total
                });
                assert!(long <= 20 * short + 1_000, "{start}{unit}: {short} bytes, then {long}");
            }
        }
    }

    /// The most readings of a path: its normal form, as written, and decoded; two without control characters; two without a
    /// host; and for the path as written, decoded, and both without a host, four ways to resolve dots and one that is cut off.
    const READINGS_MAX: usize = 3 + 2 + 2 + 4 * (4 + 1);

    #[test]
    fn layers_of_encoding_are_undone_in_one_pass() {
        let deep = format!("/a%{}2flogin", "25".repeat(100_000));
        check(&[&deep], "/a/login");
    }

    /// Paths, often with special characters.
    fn paths() -> impl Strategy<Value = String> {
        let parts = prop::sample::select(vec![
            "/", "\\", ".", "..", "%", "25", "2f", "5C", "2e", "%41", "%c3%a9", "%ff", "%00", "a", "B", ";",
            "é", " ", "?",
        ]);
        let woven = prop::collection::vec(parts, 0..20).prop_map(|parts| parts.concat());
        prop_oneof![any::<String>(), woven]
    }

    fn cases() -> impl Strategy<Value = Case> {
        prop::sample::select(vec![Case::Sensitive, Case::Insensitive])
    }

    proptest! {
        #[test]
        fn a_normal_path_is_normal_already(path in paths(), case in cases()) {
            let normal = normalise(&path, case);
            prop_assert!(matches!(normalise(&normal, case), Cow::Borrowed(again) if again == normal), "{}", normal);
        }

        #[test]
        fn no_segment_is_empty_or_leads_elsewhere(path in paths(), case in cases()) {
            let normal = normalise(&path, case);
            let segments = normal.strip_prefix('/').unwrap();
            prop_assert!(segments.is_empty() || segments.split('/').all(|s| !matches!(s, "" | "." | "..")));
            prop_assert!(!normal.contains(['\\', '?', '#']) && !normal.contains(char::is_control));
        }

        /// `readings` leaves out what cannot differ.
        #[test]
        fn each_way_to_resolve_dots_is_a_reading(path in "[/.\\\\;%ab]{0,3}/[/.\\\\ab]{0,12}", case in cases()) {
            let readings = readings(&path, case);
            let ways: [fn(&str) -> bool; 2] = [|_| true, |segment| !segment.is_empty()];
            for (slashes, is_kept) in [(&['/'][..], ways[0]), (&['/'], ways[1]), (&['/', '\\'], ways[0]), (&['/', '\\'], ways[1])] {
                let resolved = with_dots_resolved(&path, slashes, is_kept);
                let reading = normalise(&resolved, case);
                prop_assert!(!has_dot_segment(&path) || readings.contains(&reading), "{}: {}", path, reading);
            }
        }

        #[test]
        fn another_encoding_is_the_same_path(path in paths(), case in cases(), picks: Vec<bool>, twice: bool) {
            let mut other = String::new();
            let percent = if twice { "%25" } else { "%" };
            for (at, byte) in path.bytes().enumerate() {
                match picks.get(at) {
                    Some(false) if byte.is_ascii() => other.push(char::from(byte)),
                    _ => write!(other, "{percent}{byte:02x}").unwrap(),
                }
            }
            prop_assert_eq!(normalise(&path, case), normalise(&other, case), "{}", other);
        }

        #[test]
        fn control_characters_are_those_of_the_decoded_path(path in paths()) {
            prop_assert_eq!(has_control(&path), decode(path.as_bytes()).iter().any(u8::is_ascii_control));
        }

        #[test]
        fn readings_are_few_and_distinct(start in paths(), unit in paths(), n in 0usize..60, case in cases()) {
            let path = format!("{start}{}", unit.repeat(n));
            let readings = readings(&path, case);
            prop_assert!((1..=READINGS_MAX).contains(&readings.len()), "{}", readings.len());
            let distinct: std::collections::HashSet<_> = readings.iter().collect();
            prop_assert_eq!(distinct.len(), readings.len(), "{:?}", readings);
            // An escape has three bytes, and a path without a slash gets one.
            prop_assert!(readings.iter().all(|reading| reading.len() <= 3 * path.len() + 1));
        }

        #[test]
        fn the_quick_check_agrees_with_rewriting(path in paths(), case in cases()) {
            if is_normal(&path, case) {
                prop_assert_eq!(rewrite(&path, case), path);
            }
        }
    }
}
