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

/// Each is more specific than those after it.
#[test]
fn patterns_have_an_order() {
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
fn what_no_path_fits_is_told() {
    for (text, problem) in [
        ("", "no path fits \"\"; begin with / or **"),
        ("a", "no path fits \"a\"; begin with / or **"),
        ("*/a", "no path fits \"*/a\"; begin with / or **"),
        (
            "/a/",
            "no path fits \"/a/\", since paths are compared without empty segments and without a / at the end; leave it out",
        ),
        (
            "/a//b",
            "no path fits \"/a//b\", since paths are compared without empty segments and without a / at the end; leave it out",
        ),
        ("/a/../b", "no path fits \"..\", since paths are compared in their normal form; write \"\""),
        ("/%61", "no path fits \"%61\", since paths are compared in their normal form; write \"a\""),
        ("/a b", "no path fits \"a b\", since paths are compared in their normal form; write \"a%20b\""),
        ("/x{id}", "\"x{id}\" has braces that are not one name around a whole segment; write {id}, or use *"),
        ("/{}", "\"{}\" has braces that are not one name around a whole segment; write {id}, or use *"),
        (
            "/{a}{b}",
            "\"{a}{b}\" has braces that are not one name around a whole segment; write {id}, or use *",
        ),
        ("/{a", "\"{a\" has braces that are not one name around a whole segment; write {id}, or use *"),
        ("/***", "\"/***\" has more than two stars in a row; * stays in a segment, ** crosses segments"),
    ] {
        assert_eq!(PathPattern::new(text, Case::Sensitive).unwrap_err().to_string(), problem);
    }
}

#[test]
fn case_is_folded_only_if_asked_to_and_not_in_escapes() {
    let folded = PathPattern::new("/Login/%3Cb/{Id}", Case::Insensitive).unwrap();
    assert!(folded.matches("/login/%3Cb/x") && folded.as_str() == "/Login/%3Cb/{Id}");
    assert!(!pattern("/Login").matches("/login"));
}
