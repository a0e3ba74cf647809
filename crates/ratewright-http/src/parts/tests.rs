//! What is read of a request.

use super::*;
use proptest::prelude::*;

use http::HeaderValue;

fn headers(lines: &[(&'static str, &[u8])]) -> HeaderMap {
    let parsed = lines.iter().map(|&(name, value)| (name, HeaderValue::from_bytes(value).unwrap()));
    parsed.fold(HeaderMap::new(), |mut headers, (name, value)| {
        headers.append(name, value);
        headers
    })
}

fn told(values: &Values<'_>) -> String {
    let mut text: Vec<&str> = values.readable.iter().map(AsRef::as_ref).collect();
    text.extend(values.is_unreadable.then_some("?"));
    text.extend(values.is_repeated.then_some("twice"));
    text.extend(values.is_truncated.then_some("…"));
    text.join(" ")
}

#[test]
fn all_lines_of_a_header_are_told() {
    let name = HeaderName::from_static("x-api-key");
    let key = |lines: &[&[u8]]| {
        let lines: Vec<_> = lines.iter().map(|line| ("x-api-key", *line)).collect();
        told(&header(&headers(&lines), &name))
    };
    assert_eq!(key(&[b" a-b\t", b"c"]), "a-b c twice");
    assert_eq!(key(&["clé".as_bytes()]), "clé");
    assert_eq!(key(&[b"\xff", b"c"]), "c ? twice");
    assert_eq!(key(&[b"a", b"a"]), "a twice");
    for nothing in [&b""[..], b" "] {
        assert_eq!(key(&[nothing]), "", "{nothing:?}");
    }
    for unreadable in [&b"a\tb"[..], b"\xff", "k".repeat(VALUE_MAX + 1).as_bytes()] {
        assert_eq!(key(&[unreadable]), "?", "{unreadable:?}");
    }
    assert_eq!(key(&[]), "");
}

#[test]
fn all_cookies_of_a_name_are_told_each_once() {
    let cookie = |line: &[u8], name: &str| told(&cookie(&headers(&[("cookie", line)]), name));
    assert_eq!(cookie(b"a=1; sid=x=y ;sid=z; sid=z", "sid"), "x=y z ?");
    assert_eq!(cookie(b"sid=\"x\"", "sid"), "x");
    assert_eq!(cookie(b"\xff=1; sid=x", "sid"), "x");
    assert_eq!(cookie(b"sid=\xff; sid=REAL", "sid"), "REAL ?");
    assert_eq!(cookie(b"sid=\xff", "sid"), "?");
    for nothing in [&b"sidx=x"[..], b"xsid=x", b"sid", b"sid=", b"sid=\"\"", b"", b";;="] {
        assert_eq!(cookie(nothing, "sid"), "", "{nothing:?}");
    }
    let lines = headers(&[("cookie", b"a=1"), ("cookie", b"sid=x"), ("cookie", b"sid=y")]);
    assert_eq!(told(&super::cookie(&lines, "sid")), "x y", "the crumbs of HTTP/2 are one header");
    let many = "sid=1; sid=2; sid=3; sid=4; sid=5; sid=6; sid=7";
    assert_eq!(cookie(many.as_bytes(), "sid"), "1 2 3 4 5 …", "enough to see that there are too many");
    assert_eq!(cookie(b"sid=%61bc", "sid"), "abc");
    assert_eq!(cookie(b"sid=%ff; sid=%00", "sid"), "%ff %00");
    assert_eq!(cookie(br#"sid="\141b\c""#, "sid"), "abc");
    assert_eq!(cookie(b"x=1 sid=abc, sid=d", "sid"), "?");
    assert_eq!(cookie(b"sid=a b; x=1", "sid"), "a b ?");
    for (line, values) in [
        (&b"x=1 sid =REAL"[..], "?"),
        (b"x=1 sid= REAL", "?"),
        (b"x=1\tsid\t=\tREAL", "?"),
        (b"sid= REAL x=7", "REAL x=7 ?"),
        (b"[sid=REAL", "?"),
        (b"sid=REAL]7", "REAL]7 ?"),
        (b"sid=\"REAL7", "\"REAL7 ?"),
        (b"SID=REAL; sid=b", "REAL b"),
        (b"\xa0sid=REAL", "?"),
        (b"sid\xa0=REAL", "?"),
        (b"x\xffsid=REAL", "?"),
        (b"\"sid=REAL", "?"),
        (b"\xe3\x80\x80sid=REAL", "?"),
        (b"sid=REAL\xc2\xa0", "REAL\u{a0} ?"),
        (b"sid=j:\"REAL\"%20x", "j:\"REAL\" x ?"),
        (b"sid=signed=JN", "signed=JN ?"),
        (b"sid=YWJj==", "YWJj=="),
        (b"xsid=REAL; sidx=REAL; ga={\"sid\":\"REAL\"}", ""),
    ] {
        assert_eq!(cookie(line, "sid"), values, "{}", String::from_utf8_lossy(line));
    }
    assert_eq!(
        cookie(b"my.sid=a; my[sid=b; my_sid[0]=c; my_sid=d; my_sid[x]=e", "my_sid"),
        "a b d ?",
        "as PHP reads names"
    );
}

#[test]
fn all_parameters_of_a_name_are_told_each_once() {
    let param = |query: &str| {
        let mut values = Values::default();
        param(query, "key", &mut values);
        told(&values)
    };
    for (query, value) in [
        ("key=a&key=b", "a b"),
        ("x=1&key=a=b", "a=b"),
        ("k%65y=a+b%2Bc%C3%A9", "a b+cé"),
        ("?=&&key=%26", "&"),
        ("%ff=1&key=a", "a"),
        ("key=&key=a", "a"),
        ("key=%ff&key=a", "a ?"),
        ("x=1;key=a", "a"),
        ("key=a;b", "a;b ?"),
    ] {
        assert_eq!(param(query), value, "{query}");
    }
    for nothing in ["", "key", "key=", "xkey=a", "keyx=a", "filter.key=a"] {
        assert_eq!(param(nothing), "", "{nothing}");
    }
    for unreadable in ["key=%ff", "key=+%ff", "key=%00", "key=a%0ab"] {
        assert_eq!(param(unreadable), "?", "{unreadable}");
    }
}

#[test]
fn names_are_read_as_frameworks_read_them() {
    for query in ["api_key[]=R", "api_key%5B0%5D=R", "[api_key]=R", "%5Bapi_key%5Dx=R", "api_key%ff=R"] {
        let mut values = Values::default();
        param(query, "api_key", &mut values);
        assert_eq!(told(&values), "?", "{query}");
    }
    for query in [
        "Api_Key=R",
        "+api_key=R",
        "%20api_key=R",
        "api.key=R",
        "api%20key=R",
        "api[key=R",
        "api_key%00=R",
        "api_key%00x=R",
        "api_key%00%ff=R",
    ] {
        let mut values = Values::default();
        param(query, "api_key", &mut values);
        assert_eq!(told(&values), "R", "{query}");
    }
    for query in
        ["_method=PUT", ".method=PUT", "+_method=PUT", "%20.method=PUT", "_method%00=PUT", "_Method=put"]
    {
        let mut values = Values::default();
        method_param(query, &mut values);
        assert_eq!(told(&values), "PUT", "{query}");
    }
}

#[test]
fn credentials_have_one_spelling() {
    let credentials = |line| {
        let mut values = Values::default();
        add_credentials(line, &mut values);
        told(&values)
    };
    for line in ["Basic YW5uYTpzM2NyZXQ=", "basic\tYW5u~YTpzM2NyZXQ", "BASIC YW5uYTpzM2NyZXR"] {
        assert_eq!(credentials(line), "basic YW5uYTpzM2NyZXQ", "{line}");
    }
    assert_eq!(credentials("Basic YW5uYTpzM2NyZXQ=AAAA"), "basic YW5uYTpzM2NyZXQ basic YW5uYTpzM2NyZXQAAAA");
    for line in ["Bearer a.b.QQ", "bearer  a.b.QR", "BEARER a.b.Q~Q="] {
        assert_eq!(credentials(line), "bearer a.b.QQ", "{line}");
    }
    assert_eq!(credentials("key "), "key");
}

#[track_caller]
fn check_host(uri: &str, lines: &[&[u8]], expected: Option<&str>) {
    let mut request = http::Request::builder().uri(uri);
    for line in lines {
        request = request.header("host", *line);
    }
    let (parts, ()) = request.body(()).unwrap().into_parts();
    assert_eq!(host(&parts).as_deref(), expected, "{uri} {lines:?}");
}

#[test]
fn a_host_has_one_spelling() {
    check_host("/", &[b"Example.COM.:8080"], Some("example.com"));
    check_host("/", &[b" example.com "], Some("example.com"));
    check_host("/", &[b"user:word@example.com:80"], Some("example.com"));
    check_host("/", &[b"[2001:DB8::1]:443"], Some("[2001:db8::1]"));
    check_host("/", &[b"example.com:"], Some("example.com"));
    check_host("http://a.example/", &[b"b.example"], Some("a.example"));
    check_host("http://user@A.example:1/", &[], Some("a.example"));
}

#[test]
fn every_host_that_is_named_counts() {
    let check = |target, lines: &[&'static str], expected: &[&str], is_unreadable| {
        let values = hosts(target, lines.iter().map(|line| line.as_bytes()));
        assert_eq!(
            (&values.readable[..], values.is_unreadable),
            (&expected.iter().map(|host| Cow::Borrowed(*host)).collect::<Vec<_>>()[..], is_unreadable)
        );
    };
    check(None, &["A.example:80", "a.example", "b.example"], &["a.example", "b.example"], false);
    check(Some("a.example"), &["b.example"], &["a.example", "b.example"], false);
    check(Some("a.example:443"), &["a.example"], &["a.example"], false);
    check(None, &["a b", ""], &[], true);
    check(None, &["A.example:x"], &["a.example"], true);
    check(None, &["a.example, y"], &["a.example"], true);
    check(None, &["", " "], &[], false);
}

#[test]
fn what_is_no_host_is_none() {
    check_host("/", &[], None);
    check_host("/", &[b"a.example", b"a.example"], None);
    let names = ["", ":80", ".", "a b", "a/b", "a:b", "a:1:2", "user@", "a, b", "a.."];
    let brackets = ["[::1", "[::1]x", "[::1]80", "[]é", "[::1]é:80"];
    for odd in names.into_iter().chain(brackets) {
        check_host("/", &[odd.as_bytes()], None);
    }
}

proptest! {
    #[test]
    fn rubbish_is_survived(bytes in prop::collection::vec(prop_oneof![32u8..127, 128u8..=255], 0..60), name: String) {
        let headers = headers(&[("cookie", &bytes), ("host", &bytes)]);
        cookie(&headers, &name);
        header(&headers, &field::HOST);
        let query = String::from_utf8_lossy(&bytes);
        param(&query, &name, &mut Values::default());
        host_of(&query);
    }

    /// Short, and of what a host is cut at; half of them as if they were addresses in brackets.
    #[test]
    fn a_host_of_rubbish_is_a_host_or_none(
        text in prop_oneof![r"[\[\]:@.aZé0 /]{0,8}", r"\[[:a0]{0,2}\][:.aé0]{0,3}"],
    ) {
        if let Some(host) = host_of(&text) {
            let again = host_of(&host);
            prop_assert_eq!(again.as_deref(), Some(&*host), "{}", text);
        }
    }
}
