//! Request targets: parameters survive a round trip, a path has one normal form, and the gateway forwards the path that
//! it matched.
//!
//! The input is a path, `?`, and a query, as in a request's first line. The path may be one that no HTTP parser accepts.
#![no_main]

use http::{Method, Uri};
use ratewright_gateway::Target;
use ratewright_http::parts::{self, Values};
use ratewright_http::path::{self, Case};

libfuzzer_sys::fuzz_target!(|text: &str| {
    let (path, query) = text.split_once('?').unwrap_or((text, ""));
    for case in [Case::Sensitive, Case::Insensitive] {
        check_path(path, case);
        check_target(text, case);
    }
    for reading in path::readings(path, Case::Sensitive) {
        assert!(!reading.contains('\0') && !reading.is_empty(), "{path:?}");
    }
    for name in ["key", "a", "é", ""] {
        let mut found = Values::default();
        parts::param(query, name, &mut found);
        for value in &found.readable {
            assert!(!value.is_empty() && !value.contains(char::is_control));
            let written = format!("{}={}", encoded(name), encoded(value));
            let mut again = Values::default();
            parts::param(&written, name, &mut again);
            assert_eq!(again.readable.as_slice(), [value.clone()], "{written}");
        }
    }
});

fn check_path(written: &str, case: Case) {
    let normal = path::normalise(written, case);
    assert_eq!(path::normalise(&normal, case), normal, "{written:?}");
    let segments = normal.strip_prefix('/').expect("it begins with a slash");
    assert!(
        segments.is_empty() || segments.split('/').all(|part| !matches!(part, "" | "." | "..")),
        "{normal:?}"
    );
    assert!(!normal.contains(['\\', '?', '#', ' ']), "{normal:?}");
    let twice = written.replace('%', "%25");
    assert_eq!(path::normalise(&twice, case), normal, "{written:?}, encoded once more");
    if path::is_plain(written) && case == Case::Sensitive {
        assert_eq!(written.strip_suffix('/').filter(|rest| !rest.is_empty()).unwrap_or(written), normal);
    }
}

fn check_target(written: &str, case: Case) {
    let Ok(uri) = written.parse::<Uri>() else { return };
    let Ok(target) = Target::of(&Method::GET, &uri, case) else { return };
    let forwarded = target.forwarded();
    assert_eq!(path::normalise(forwarded.path(), case), target.path(), "{written:?}");
    let again = Uri::from(forwarded.clone());
    let again = Target::of(&Method::GET, &again, case).expect("a forwarded path is a valid target");
    assert_eq!(
        (again.path(), again.forwarded().as_str()),
        (target.path(), forwarded.as_str()),
        "{written:?}"
    );
}

/// Every byte as `%XX`.
fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}
