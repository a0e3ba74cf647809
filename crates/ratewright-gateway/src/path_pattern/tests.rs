use super::*;

fn pattern(text: &str) -> PathPattern {
    PathPattern::new(text, Case::Sensitive).unwrap()
}

#[test]
fn a_name_in_braces_is_one_segment() {
    let orders = pattern("/users/{id}/orders");
    assert!(orders.matches("/users/7/orders"));
    for other in ["/users/orders", "/users/7/8/orders", "/users/7", "/users/7/orders/1"] {
        assert!(!orders.matches(other), "{other}");
    }
    assert!(pattern("/{page}").matches("/a") && !pattern("/{page}").matches("/"));
    assert!(pattern("/*").matches("/"));
    assert!(pattern("/{a}/**").matches("/x") && pattern("/{a}/**").matches("/x/y/z"));
}

/// Each pattern is more specific than those after it.
#[test]
fn patterns_are_ordered_by_specificity() {
    for texts in [
        &["/a/b", "/a/b*", "/a/b**", "/a/{id}", "/a/**", "/{x}/b", "/*/*", "/*/**", "/**/b", "/**"][..],
        &["/a", "/a/**"],
        &["/a/{id}", "/a/{id}/**"],
        &["/a/**/b", "/a/**"],
        &["/v10*", "/v1*", "/v*", "/*"],
        &["/{a}/b", "/{a}/**"],
        &["/{a}", "/*"],
        &["/**/login/**", "/**/in/**"],
    ] {
        for pair in texts.windows(2) {
            let [more, less] = [pair[0], pair[1]].map(|text| pattern(text).specificity());
            assert!(more < less, "{} before {}", pair[0], pair[1]);
        }
    }
    assert_eq!(pattern("/{a}/b").specificity(), pattern("/*/b").specificity());
}

#[test]
fn a12_a_label_has_no_stars_at_its_end() {
    for (text, label) in [
        ("/api/orders/**", "/api/orders"),
        ("/api/orders", "/api/orders"),
        ("/users/{id}", "/users/{id}"),
        ("/users/{id}/**", "/users/{id}"),
        ("/a/*", "/a"),
        ("/a/*/b", "/a/*/b"),
        ("/**", "/"),
        ("**", "/"),
        ("/", "/"),
        ("**/login**", "**/login"),
    ] {
        assert_eq!(pattern(text).label(), label, "{text}");
    }
}

#[test]
fn patterns_without_a_match_are_rejected() {
    for (text, problem) in [
        ("", "path pattern \"\" matches no path; start with / or **"),
        ("a", "path pattern \"a\" matches no path; start with / or **"),
        ("*/a", "path pattern \"*/a\" matches no path; start with / or **"),
        (
            "/a/",
            "path pattern \"/a/\" matches no path: paths are matched without empty segments and without a / at the end; leave it out",
        ),
        (
            "/a//b",
            "path pattern \"/a//b\" matches no path: paths are matched without empty segments and without a / at the end; leave it out",
        ),
        ("/a/../b", "path segment \"..\" matches no path: paths are matched in normalized form; write \"\""),
        ("/%61", "path segment \"%61\" matches no path: paths are matched in normalized form; write \"a\""),
        (
            "/a b",
            "path segment \"a b\" matches no path: paths are matched in normalized form; write \"a%20b\"",
        ),
        ("/x{id}", "path segment \"x{id}\" has invalid braces; write {id} for a whole segment, or use *"),
        ("/{}", "path segment \"{}\" has invalid braces; write {id} for a whole segment, or use *"),
        ("/{a}{b}", "path segment \"{a}{b}\" has invalid braces; write {id} for a whole segment, or use *"),
        ("/{a", "path segment \"{a\" has invalid braces; write {id} for a whole segment, or use *"),
        ("/***", "\"/***\" has more than two stars in a row; * stays in a segment, ** crosses segments"),
    ] {
        assert_eq!(PathPattern::new(text, Case::Sensitive).unwrap_err().to_string(), problem);
    }
}

#[test]
fn case_is_folded_only_on_request_and_not_in_escapes() {
    let folded = PathPattern::new("/Login/%3Cb/{Id}", Case::Insensitive).unwrap();
    assert!(folded.matches("/login/%3Cb/x") && folded.as_str() == "/Login/%3Cb/{Id}");
    assert!(!pattern("/Login").matches("/login"));
}
