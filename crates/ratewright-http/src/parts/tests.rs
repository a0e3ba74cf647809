//! Reading headers, cookies, parameters and hosts.

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

fn described(values: &Values<'_>) -> String {
    let mut text: Vec<&str> = values.readable.iter().map(AsRef::as_ref).collect();
    text.extend(values.is_unreadable.then_some("?"));
    text.extend(values.is_repeated.then_some("twice"));
    text.extend(values.is_truncated.then_some("…"));
    text.join(" ")
}

#[test]
fn all_lines_of_a_header_are_values() {
    let name = HeaderName::from_static("x-api-key");
    let key = |lines: &[&[u8]]| {
        let lines: Vec<_> = lines.iter().map(|line| ("x-api-key", *line)).collect();
        described(&header(&headers(&lines), &name))
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

/// Only sent values are limited to four. Other spellings and candidates are not counted.
#[test]
fn spellings_do_not_make_a_request_send_too_many_values() {
    let cookie = |line: String| {
        let lines = headers(&[("cookie", line.as_bytes())]);
        let values = cookie(&lines, "sid");
        (values.readable.len(), values.is_truncated)
    };
    let signed = |n: usize| format!("sid=s%3A{n}.c2lnbmF0dXJl+c2lnbmF0dXJl/bmF0dXJl{n}");
    let lines = |n: usize| (0..n).map(signed).collect::<Vec<_>>().join("; ");
    assert_eq!(cookie(lines(3)), (6, false), "three signed values have two spellings each");
    assert_eq!(cookie(lines(4)), (8, false));
    assert!(cookie(lines(5)).1, "a fifth value is too many");
    assert_eq!(cookie("sid=0123456789abcdef.node0; sid=chunks-2".to_owned()), (3, false));
    assert_eq!(cookie("sid=a,b; sid=c,d".to_owned()), (4, false));
    assert_eq!(cookie("sid=a,b; sid=c,d; sid=e,f; sid=g,h; x=1 sid =i".to_owned()), (7, false));
    assert_eq!(cookie("sid=a,b; sid=c,d; sid=e,f; sid=g,h; sid=i,j".to_owned()), (7, true));
}

/// A suffix that session frameworks ignore, or read elsewhere, gives no client a new bucket.
#[test]
fn a_session_counts_without_its_node_and_chunks_count_by_address() {
    let cookie = |line: &str| described(&cookie(&headers(&[("cookie", line.as_bytes())]), "sid"));
    for (line, values) in [
        ("sid=0123456789abcdef.node0", "0123456789abcdef.node0 0123456789abcdef"),
        ("sid=0123456789abcdef!1!2", "0123456789abcdef!1!2 0123456789abcdef"),
        ("sid=0123456789abcdef:clone", "0123456789abcdef:clone 0123456789abcdef"),
        ("sid=0123456789abcdef.a.b", "0123456789abcdef.a.b"),
        ("sid=short.node0", "short.node0"),
        ("sid=chunks-2; sidC1=a", "chunks-2 ?"),
        ("sid=chunks:02", "chunks:02 ?"),
    ] {
        assert_eq!(cookie(line), values, "{line}");
    }
}

/// Rack 2 drops brackets in front of a name, and reads up to the next one.
#[test]
fn brackets_around_a_name_do_not_bypass_a_limit() {
    for name in [
        "api_key]",
        "]api_key",
        "[[api_key",
        "[[api_key]]",
        "api_key]]",
        "api_key%5D",
        "][api_key]",
        "[api_key",
    ] {
        let query = format!("{name}=REAL");
        let mut values = Values::default();
        param(&query, "api_key", &mut values);
        assert_eq!(described(&values), "REAL ?", "{name}");
    }
    let mut values = Values::default();
    param("x[api_key]=a&api_keys=b&[]=c", "api_key", &mut values);
    assert_eq!(described(&values), "", "other names");
}

#[test]
fn all_distinct_cookies_of_a_name_are_values() {
    let cookie = |line: &[u8], name: &str| described(&cookie(&headers(&[("cookie", line)]), name));
    assert_eq!(cookie(b"a=1; sid=x=y ;sid=z; sid=z", "sid"), "x x=y z ?");
    assert_eq!(cookie(b"sid=\"x\"", "sid"), "x");
    assert_eq!(cookie(b"\xff=1; sid=x", "sid"), "x");
    assert_eq!(cookie(b"sid=\xff; sid=REAL", "sid"), "REAL ?");
    assert_eq!(cookie(b"sid=\xff", "sid"), "?");
    for nothing in [&b"sidx=x"[..], b"xsid=x", b"sid", b"sid=", b"sid=\"\"", b"", b";;="] {
        assert_eq!(cookie(nothing, "sid"), "", "{nothing:?}");
    }
    let lines = headers(&[("cookie", b"a=1"), ("cookie", b"sid=x"), ("cookie", b"sid=y")]);
    assert_eq!(described(&super::cookie(&lines, "sid")), "x y", "the crumbs of HTTP/2 are one header");
    let many = "sid=1; sid=2; sid=3; sid=4; sid=5; sid=6; sid=7";
    assert_eq!(cookie(many.as_bytes(), "sid"), "1 2 3 4 …", "four values, and no more");
    assert_eq!(cookie(b"sid=%61bc", "sid"), "abc");
    assert_eq!(cookie(b"sid=%ff; sid=%00", "sid"), "%ff %00 ?");
    assert_eq!(cookie(br#"sid="\141b\c""#, "sid"), "abc");
    assert_eq!(cookie(b"x=1 sid=abc, sid=d", "sid"), "abc d ?");
    assert_eq!(cookie(b"sid=a b; x=1", "sid"), "a a b ?");
    for (line, values) in [
        (&b"x=1 sid =REAL"[..], "REAL ?"),
        (b"x=1 sid= REAL", "REAL ?"),
        (b"x=1\tsid\t=\tREAL", "REAL ?"),
        (b"sid= REAL x=7", "REAL REAL x=7 ?"),
        (b"[sid=REAL", "REAL ?"),
        (b"sid=REAL]7", "REAL REAL]7 ?"),
        (b"sid=\"REAL7", "\"REAL7 ?"),
        (b"SID=REAL; sid=b", "REAL b"),
        (b"\xa0sid=REAL", "REAL ?"),
        (b"sid\xa0=REAL", "REAL ?"),
        (b"x\xffsid=REAL", "REAL ?"),
        (b"\"sid=REAL", "REAL ?"),
        (b"\xe3\x80\x80sid=REAL", "REAL ?"),
        (b"sid=REAL\xc2\xa0", "REAL REAL\u{a0} ?"),
        (b"sid=j:\"REAL\"%20x", "j: j:\"REAL\" x ?"),
        (b"sid=signed=JN", "signed signed=JN ?"),
        (b"sid=YWJj==", "YWJj== YWJj"),
        (b"xsid=REAL; sidx=REAL; ga={\"sid\":\"REAL\"}", ""),
        (b"sid=REAL%09", "REAL%09 ?"),
        (b"sid=REAL%20", "REAL  REAL ?"),
        (b"sid=REAL++", "REAL++ REAL"),
        (b"sid=\xffREAL", "REAL ?"),
        (b"sid=RE%FFAL", "RE%FFAL ?"),
        (b"sid=REAL&7", "REAL REAL&7 ?"),
        (b"s%69d=REAL", "REAL ?"),
        (b"s%u0069d=REAL", "REAL ?"),
        (b"sid=RE%u0041L", "REAL RE%u0041L ?"),
        (
            b"sid=a.b.c2ln~bmF0dXJlLW9mLWFubmEtMTI",
            "a.b.c2ln~bmF0dXJlLW9mLWFubmEtMTI a.b.c2lnbmF0dXJlLW9mLWFubmEtMTI",
        ),
        (b"sid=a.c2lnbmF0dXJlLW9mLWFubmEtMTJ", "a.c2lnbmF0dXJlLW9mLWFubmEtMTJ a.c2lnbmF0dXJlLW9mLWFubmEtMTI"),
        // Ordinary sessions, which no parser splits: of Rails, Express, Flask, Java, and a cookie with JSON.
        (
            b"sid=c2Vzc2lvbg%3D%3D--d41d8cd98f00b204e9800998ecf8427e",
            "c2Vzc2lvbg==--d41d8cd98f00b204e9800998ecf8427e c2Vzc2lvbg--d41d8cd98f00b204e9800998ecf8427e",
        ),
        (b"sid=s%3Aabc.2f%2Bx", "s:abc.2f+x"),
        (
            b"sid=s%3Aabc.Q2%2FuYW1lIGlzIG5vdCBhIHNlY3JldCBvZi%2BbnlvbmQ",
            "s:abc.Q2/uYW1lIGlzIG5vdCBhIHNlY3JldCBvZi+bnlvbmQ s:abc.Q2_uYW1lIGlzIG5vdCBhIHNlY3JldCBvZi-bnlvbmQ",
        ),
        (
            b"sid=eyJ1IjoiYW5uYSJ9.Zm9v.c2lnbmF0dXJlLW9mLWFubmE",
            "eyJ1IjoiYW5uYSJ9.Zm9v.c2lnbmF0dXJlLW9mLWFubmE",
        ),
        (b"sid=8A2F!-1375!1699.node1", "8A2F!-1375!1699.node1"),
        (b"sid=%7B%22id%22%3A7%2C%22a%22%3A1%7D", "{\"id\":7,\"a\":1}"),
    ] {
        assert_eq!(cookie(line, "sid"), values, "{}", String::from_utf8_lossy(line));
    }
    assert_eq!(
        cookie(b"my.sid=a; my[sid=b; my_sid[0]=c; my_sid=d; my_sid[x]=e", "my_sid"),
        "a b c d e ?",
        "as PHP reads names"
    );
}

#[test]
fn all_distinct_parameters_of_a_name_are_values() {
    let param = |query: &str| {
        let mut values = Values::default();
        param(query, "key", &mut values);
        described(&values)
    };
    for (query, value) in [
        ("key=a&key=b", "a b"),
        ("x=1&key=a=b", "a=b"),
        ("k%65y=a+b%2Bc%C3%A9", "a b+cé"),
        ("?=&&key=%26", "&"),
        ("%ff=1&key=a", "a"),
        ("key=&key=a", "a"),
        ("key=%ff&key=a", "a ?"),
        ("key=%ffa", "a ?"),
        ("?key=a", "a"),
        ("?x=1&key=a", "a"),
        ("key=+a%C2%A0", "a  a\u{a0}"),
        ("x=1;key=a", "a"),
        ("key=a;b", "a;b a ?"),
        ("key=a;b;key=c", "a;b;key=c a c ?"),
        ("k%u0065y=a", "a ?"),
        ("key=%u0061", "%u0061 a ?"),
        ("key[]=1&key[]=2&key[]=3&key[]=4&key[]=5&key[]=6", "1 2 3 ?"),
    ] {
        assert_eq!(param(query), value, "{query}");
    }
    for nothing in
        ["", "key", "key=", "xkey=a", "keyx=a", "filter.key=a", "filter[key]=a", "filter%5Bkey%5D=a"]
    {
        assert_eq!(param(nothing), "", "{nothing}");
    }
    for unreadable in ["key=%ff", "key=+%ff", "key=%00", "key=a%0ab"] {
        assert_eq!(param(unreadable), "?", "{unreadable}");
    }
}

#[test]
fn names_are_matched_as_frameworks_read_them() {
    for query in [
        "api_key[]=R",
        "api_key%5B0%5D=R",
        "[api_key]=R",
        "%5Bapi_key%5Dx=R",
        "api_key%ff=R",
        "api+key[]=R",
        "api.key%5B%5D=R",
        "%u0061pi_key=R",
    ] {
        let mut values = Values::default();
        param(query, "api_key", &mut values);
        assert_eq!(described(&values), "R ?", "{query}");
    }
    assert_eq!(NameMatch::of(b"filter[key][]", "filter[key]"), NameMatch::Ambiguous);
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
        assert_eq!(described(&values), "R", "{query}");
    }
    for query in [
        "_method=PUT",
        ".method=PUT",
        "+_method=PUT",
        "%20.method=PUT",
        "_method%00=PUT",
        "_Method=put",
        "_method=PUT%FF",
        "_method[]=PUT&_method=+put",
    ] {
        let mut values = Values::default();
        method_param(query, &mut values);
        assert_eq!(described(&values), "PUT", "{query}");
    }
}

const JWE: &str = "Bearer eyJhbGciOiJkaXIiLCJlbmMiOiJBMjU2R0NNIn0.a2V5.aXY.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA.dGFn";
const JWE_CREDENTIALS: &str = "bearer eyJhbGciOiJkaXIiLCJlbmMiOiJBMjU2R0NNIn0.a2V5.aXY.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA.dGFn";
const SIGNATURE: &str = "c2lnbmF0dXJlLW9mLWFubmEtdGhhdC1pcy1sb25nLWVub3VnaA";

#[test]
fn credentials_have_a_canonical_spelling() {
    let credentials = |line: &str| {
        let mut values = Values::default();
        add_credentials(line, &mut values);
        described(&values)
    };
    for line in ["Basic YW5uYTpzM2NyZXQ=", "basic\tYW5u~YTpzM2NyZXQ", "BASIC YW5uYTpzM2NyZXR"] {
        assert_eq!(credentials(line), "basic YW5uYTpzM2NyZXQ", "{line}");
    }
    assert_eq!(
        credentials("Basic YW5uYTpzM2NyZXQ=AAAA"),
        "basic YW5uYTpzM2NyZXQ basic YW5uYTpzM2NyZXQAAAA ?"
    );
    let jwt = format!("bearer a.b.{SIGNATURE}");
    for line in ["Bearer a.b.", "bearer  a.b.~", "BEARER\ta.b."] {
        assert_eq!(credentials(&format!("{line}{SIGNATURE}")), jwt, "{line}");
    }
    assert_eq!(credentials(&format!("JWT a.b.{SIGNATURE}")), format!("{jwt} jwt a.b.{SIGNATURE}"));
    assert_eq!(credentials(&format!("Bearer a.b.{SIGNATURE},x")), format!("{jwt} ?"));
    assert_eq!(credentials(&format!("Bearer:a.b.{SIGNATURE}~")), format!("{jwt} a.b.{SIGNATURE} ?"));
    assert_eq!(credentials(&format!("Bearer a.b.{SIGNATURE}.x")), format!("bearer a.b.{SIGNATURE}.x ?"));
    for paseto in ["v4.public.", "v2.local."].map(|begin| format!("{begin}{SIGNATURE}")) {
        assert_eq!(credentials(&format!("Bearer {paseto}")), format!("bearer {paseto}"));
        assert_eq!(credentials(&format!("Bearer {paseto}.Zm9vdGVy")), format!("bearer {paseto}.Zm9vdGVy"));
    }
    for (line, expected) in [
        ("key ", "bearer key key"),
        ("Bearer acme.prod.10001", "bearer acme.prod.10001"),
        ("Bearer acme.prod.10002", "bearer acme.prod.10002"),
        ("Token abc", "bearer abc token abc"),
        ("Token token=\"abc\"", "bearer abc token abc"),
        ("Bearer \"abc\u{a0}", "bearer abc"),
        ("Bearer abc==", "bearer abc bearer abc=="),
        // An encrypted token, which has no signature.
        (JWE, JWE_CREDENTIALS),
        ("Bearer abc,x=1", "bearer abc ?"),
        ("Bearer abc;x=1", "bearer abc ?"),
        ("Bearer abc junk", "bearer abc ?"),
        ("Token token=\"abc\",nonce=\"1\"", "bearer abc token abc ?"),
        (
            "OAuth realm=\"P\", oauth_consumer_key=\"alice\"",
            "oauth realm=\"P\", oauth_consumer_key=\"alice\" ?",
        ),
        ("", ""),
    ] {
        assert_eq!(credentials(line), expected, "{line}");
    }
}

#[test]
fn patterns_of_credentials_have_the_same_spelling() {
    for (pattern, spelled) in [
        ("Bearer *", "bearer *"),
        ("Bearer*", "bearer*"),
        ("ApiKey demo", "apikey demo"),
        ("Basic YW5uYTpzM2NyZXQ=", "basic YW5uYTpzM2NyZXQ"),
        ("Basic YW5u*", "basic YW5u*"),
        ("AbC*", "AbC*"),
        ("AbC", "AbC"),
        ("*", "*"),
    ] {
        assert_eq!(credentials_pattern(pattern), spelled, "{pattern}");
    }
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
fn every_named_host_counts() {
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
    check(None, &["api.example:1@x"], &["api.example", "x"], true);
    check(None, &["%61pi.example"], &["api.example", "%61pi.example"], true);
    check(None, &["\0\0\0:x"], &[], true);
}

#[test]
fn an_invalid_host_is_none() {
    check_host("/", &[], None);
    check_host("/", &[b"a.example", b"a.example"], None);
    let names = ["", ":80", ".", "a b", "a/b", "a:b", "a:1:2", "user@", "a, b", "a.."];
    let brackets = ["[::1", "[::1]x", "[::1]80", "[]é", "[::1]é:80"];
    for odd in names.into_iter().chain(brackets) {
        check_host("/", &[odd.as_bytes()], None);
    }
}

proptest! {
    /// The values of any request are bounded, and contain no NUL.
    #[test]
    fn arbitrary_input_is_bounded(bytes in prop::collection::vec(prop_oneof![32u8..127, 128u8..=255], 0..60), name: String) {
        let headers = headers(&[("cookie", &bytes), ("host", &bytes), ("authorization", &bytes)]);
        let text = String::from_utf8_lossy(&bytes);
        let query = text.repeat(100);
        let mut params = Values::default();
        param(&query, &name, &mut params);
        let mut overriding = Values::default();
        method_param(&format!("_method={text}"), &mut overriding);
        let lines = [&bytes[..], query.as_bytes(), &bytes];
        let described = [
            cookie(&headers, &name),
            header(&headers, &field::HOST),
            header(&headers, &field::AUTHORIZATION),
            hosts(Some(&text), lines.into_iter()),
            params,
            overriding,
        ];
        for values in described {
            prop_assert!(values.readable.len() <= VALUES_MAX);
            let is_bounded = |value: &Cow<'_, str>| value.len() <= VALUE_MAX && !value.contains('\0');
            prop_assert!(values.readable.iter().all(is_bounded), "{:?}", values);
        }
        let _ = crate::jwt::bearer(std::iter::once(&bytes[..]));
        host_of(&query);
    }

    /// Short texts of the characters that separate a host; half of them like addresses in brackets.
    #[test]
    fn a_host_from_arbitrary_text_is_stable_or_none(
        text in prop_oneof![r"[\[\]:@.aZé0 /]{0,8}", r"\[[:a0]{0,2}\][:.aé0]{0,3}"],
    ) {
        if let Some(host) = host_of(&text) {
            let again = host_of(&host);
            prop_assert_eq!(again.as_deref(), Some(&*host), "{}", text);
        }
    }
}
