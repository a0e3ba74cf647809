//! Lookup by example, and compared with a linear search.

use super::*;
use crate::route::{HostPolicy, Timeouts};
use crate::upstream::UpstreamServer;
use crate::upstream::{Balance, Health, Protocol, Tried, Upstream};
use proptest::prelude::*;
use ratewright_core::Timestamp;
use ratewright_http::path::Case;

fn route(id: &str) -> Route {
    let servers = vec![UpstreamServer::parse("http://127.0.0.1:3000").unwrap()];
    let upstream = Upstream::new(servers, Balance::default(), Protocol::default(), Health::default());
    Route {
        id: id.into(),
        label: "/".into(),
        policies: Vec::new(),
        upstream: Arc::new(upstream),
        timeouts: Timeouts::default(),
        body_max: 0,
        body_rate_min: None,
        host: HostPolicy::default(),
        retries_max: 0,
        cors: None,
    }
}

/// A match as `GET,POST a.example,*.example /a,/b`; `-` is any.
fn matched(text: &str) -> Match {
    let words: Vec<_> = text.split(' ').map(|word| if word == "-" { "" } else { word }).collect();
    let list = |at: usize| words[at].split(',').filter(|item| !item.is_empty());
    Match {
        methods: list(0).map(|method| method.parse().unwrap()).collect(),
        hosts: list(1).map(|host| Pattern::new(host, Some(b'.')).unwrap()).collect(),
        paths: list(2).map(|path| PathPattern::new(path, Case::Sensitive).unwrap()).collect(),
    }
}

/// Routes whose ids are their matches.
fn routes(texts: &[&str]) -> Result<RouteTable, RouteError> {
    RouteTable::new(texts.iter().map(|text| (matched(text), route(text))).collect())
}

/// The result of a lookup as text.
fn found(routes: &RouteTable, host: Option<&str>, path: &str, method: &str) -> String {
    match routes.find(host, path, &method.parse().unwrap()) {
        RouteLookup::Route(route, _) => route.id.to_string(),
        RouteLookup::MethodNotAllowed(allowed) => {
            format!("only {}", allowed.iter().map(Method::as_str).collect::<Vec<_>>().join(", "))
        }
        RouteLookup::NoRoute => "no route".to_owned(),
    }
}

#[track_caller]
fn check(texts: &[&str], host: &str, path: &str, method: &str, expected: &str) {
    let mut texts = texts.to_vec();
    for _ in 0..texts.len() {
        texts.rotate_left(1);
        let found = found(&routes(&texts).unwrap(), Some(host), path, method);
        assert_eq!(found, expected, "{method} {host} {path} in {texts:?}");
    }
}

#[test]
fn the_most_specific_path_wins_whatever_the_order() {
    let texts = ["- - /users/me", "- - /users/{id}", "- - /users/*/orders", "- - /users/**", "- - /**"];
    for (path, expected) in [
        ("/users/me", "- - /users/me"),
        ("/users/7", "- - /users/{id}"),
        ("/users/7/orders", "- - /users/*/orders"),
        ("/users/7/orders/1", "- - /users/**"),
        ("/users", "- - /users/**"),
        ("/usersx", "- - /**"),
        ("/", "- - /**"),
    ] {
        check(&texts, "h", path, "GET", expected);
    }
}

/// A name matches no empty segment, a star does.
#[test]
fn a_star_matches_the_root_and_a_name_does_not() {
    check(&["- - /{x},/*"], "h", "/", "GET", "- - /{x},/*");
    check(&["- - /{x}", "- - /*"], "h", "/", "GET", "- - /*");
    check(&["- - /{x}", "- - /*"], "h", "/a", "GET", "- - /{x}");
}

#[test]
fn the_host_precedes_the_path_and_misses_fall_through() {
    let texts = ["- a.example /**", "- *.example /x", "- **.example -", "- - /x/y", "- - -"];
    check(&texts, "a.example", "/x/y", "GET", "- a.example /**");
    check(&texts, "b.example", "/x", "GET", "- *.example /x");
    check(&texts, "b.example", "/x/y", "GET", "- **.example -");
    check(&texts, "c.b.example", "/x", "GET", "- **.example -");
    check(&texts, "other", "/x/y", "GET", "- - /x/y");
    check(&texts, "other", "/x", "GET", "- - -");
    let routes = routes(&texts).unwrap();
    assert_eq!(found(&routes, None, "/x/y", "GET"), "- - /x/y");
}

#[test]
fn a_route_that_names_the_method_wins_and_misses_list_the_allowed_methods() {
    let texts = ["GET - /a", "POST,PUT - /a", "- - /b", "DELETE - /b", "GET - /c", "HEAD - /c"];
    check(&texts, "h", "/a", "GET", "GET - /a");
    check(&texts, "h", "/a", "HEAD", "GET - /a");
    check(&texts, "h", "/a", "PUT", "POST,PUT - /a");
    check(&texts, "h", "/a", "DELETE", "only GET, HEAD, POST, PUT");
    check(&texts, "h", "/b", "DELETE", "DELETE - /b");
    check(&texts, "h", "/b", "GET", "- - /b");
    check(&texts, "h", "/c", "HEAD", "HEAD - /c");
    check(&texts, "h", "/d", "GET", "no route");
    check(&["GET - /a", "- - /**"], "h", "/a", "POST", "- - /**");
    check(&["GET a /x", "POST - /**"], "a", "/x", "PUT", "only GET, HEAD, POST");
}

#[test]
fn ties_are_broken_by_file_order() {
    let texts = ["- - /**/b/**", "- - /**/a/**"];
    assert_eq!(found(&routes(&texts).unwrap(), None, "/a/b", "GET"), "- - /**/b/**");
    let texts = ["- - /**/a/**", "- - /**/b/**"];
    assert_eq!(found(&routes(&texts).unwrap(), None, "/a/b", "GET"), "- - /**/a/**");
}

#[test]
fn conflicting_routes_are_rejected() {
    let problem = |texts: &[&str]| routes(texts).err().map(|error| error.to_string());
    for (texts, what) in [
        (["- - /a/{id}", "- - /a/{x}"], "/a/{x}"),
        (["- - /a/{id}", "- - /b,/a/*"], "/a/*"),
        (["- a,b /**", "- b -"], "b /**"),
        (["GET,POST - /a", "PUT,POST - /a"], "POST /a"),
    ] {
        let expected = format!(
            "routes {:?} and {:?} both match {what}; leave it out of one of them",
            texts[0], texts[1]
        );
        assert_eq!(problem(&texts), Some(expected), "{texts:?}");
    }
    assert_eq!(problem(&["GET - /a", "- - /a"]), None);
    assert_eq!(problem(&["- - /a,/a,/a/{x},/a/*"]), None, "a route may say the same twice");
    let twice = vec![(matched("- - /a"), route("x")), (matched("- - /b"), route("x"))];
    assert_eq!(RouteTable::new(twice).err(), Some(RouteError::DuplicateId { id: "x".to_owned() }));
}

#[test]
fn servers_keep_their_state_over_a_reload() {
    let old = routes(&["- - /a", "- - /b"]).unwrap();
    let RouteLookup::Route(route, _) = old.find(None, "/a", &Method::GET) else { panic!("a route") };
    let lease = route.upstream.pick(Timestamp::default(), &Tried::default()).unwrap();
    let new = routes(&["- - /a", "- - /c"]).unwrap().inheriting(&old);
    let n_in_flight = |path: &str| match new.find(None, path, &Method::GET) {
        RouteLookup::Route(route, _) => route.upstream.states().map(|state| state.n_in_flight).sum::<u32>(),
        RouteLookup::MethodNotAllowed(_) | RouteLookup::NoRoute => panic!("a route"),
    };
    assert_eq!((n_in_flight("/a"), n_in_flight("/c")), (1, 0));
    drop(lease);
    assert_eq!(n_in_flight("/a"), 0);
}

/// Lookup time does not grow with the number of routes, and is bounded for long paths.
#[test]
fn lookup_visits_few_of_many_routes() {
    let texts: Vec<_> = (0..10_000).map(|n| format!("- - /p{n}/x/**,/p{n}/{{id}}")).collect();
    let routes = routes(&texts.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
    let mut n_seen = 0;
    routes.any.each("/p7777/x", |_, _| n_seen += 1);
    assert_eq!(n_seen, 2);
    let node = &routes.any.root;
    assert_eq!((node.open.len(), node.exact.len(), node.children.len()), (0, 0, 10_000));
    assert_eq!(found(&routes, None, &"/p1".repeat(20_000), "GET"), "no route");
    assert_eq!(found(&routes, None, "/p7777/x/y", "GET"), texts[7777]);
}

#[test]
fn nothing_is_allocated_to_find_a_route() {
    let routes = routes(&["GET a.example /users/{id}", "- *.example /**", "- - /a/b"]).unwrap();
    for (host, path) in [("a.example", "/users/7"), ("b.example", "/x/y/z"), ("other", "/a/b")] {
        let made = allocation_counter::measure(|| {
            assert!(matches!(routes.find(Some(host), path, &Method::GET), RouteLookup::Route(..)));
        });
        assert_eq!(made.count_total, 0, "{path}");
    }
}

/// A linear search: tries all routes and takes the best match.
fn plainly(texts: &[String], host: Option<&str>, path: &str, method: &Method) -> Option<usize> {
    let all_hosts: Vec<_> = texts.iter().flat_map(|text| matched(text).hosts).collect();
    let mut best = None;
    for (number, text) in texts.iter().enumerate() {
        let Match { hosts, paths, methods } = matched(text);
        let hosts = if hosts.is_empty() { vec![None] } else { hosts.into_iter().map(Some).collect() };
        let paths = if paths.is_empty() { vec![PathPattern::anything()] } else { paths };
        for known in &hosts {
            for pattern in &paths {
                let fits_host =
                    known.as_ref().is_none_or(|known| host.is_some_and(|host| known.matches(host)));
                let fits_method = methods.is_empty()
                    || methods.contains(method)
                    || (method == Method::HEAD && methods.contains(&Method::GET));
                if !(fits_host && fits_method && pattern.matches(path)) {
                    continue;
                }
                let host_rank = match known {
                    Some(known) if known.is_exact() => (0, 0, 0, None),
                    Some(known) => {
                        let n_stars = known.as_str().matches('*').count();
                        let first = all_hosts.iter().position(|other| other == known);
                        (1, 255 - (known.as_str().len() - n_stars), n_stars, first)
                    }
                    None => (2, 0, 0, None),
                };
                // A route that names HEAD precedes one that only names GET.
                let method_rank = (methods.is_empty(), !methods.contains(method));
                let rank = (host_rank, pattern.specificity(), method_rank, number);
                if best.as_ref().is_none_or(|best| rank < *best) {
                    best = Some(rank);
                }
            }
        }
    }
    best.map(|(_, _, _, number)| number)
}

/// Lists of some of these, or `-`.
fn some(of: &'static [&'static str]) -> impl Strategy<Value = String> {
    let lists = prop::collection::vec(prop::sample::select(of), 0..3);
    lists.prop_map(|items| if items.is_empty() { "-".to_owned() } else { items.join(",") })
}

/// Patterns of few segments.
fn paths() -> impl Strategy<Value = String> {
    let segments = prop::sample::select(vec!["a", "b", "ab", "*", "{x}", "**", "a*", "b**"]);
    let paths = prop::collection::vec(segments, 0..4).prop_map(|segments| format!("/{}", segments.join("/")));
    prop::collection::vec(paths, 1..3).prop_map(|paths| paths.join(","))
}

proptest! {
    /// The tree finds the same route as a linear search.
    #[test]
    fn the_tree_finds_the_same_route_as_a_linear_search(
        texts in prop::collection::vec((some(&["GET", "POST", "HEAD"]), some(&["a.b", "*.b", "**", "c.*"]), paths()), 1..12),
        asked in prop::collection::vec((prop::option::of(prop::sample::select(vec!["a.b", "c.b", "c", "x.y.b"])), "(/(a|b|ab|c)){0,4}", prop::sample::select(vec!["GET", "POST", "HEAD", "PUT"])), 20),
    ) {
        // Of conflicting routes, only the first is kept.
        let mut kept: Vec<String> = Vec::new();
        for (methods, hosts, paths) in texts {
            kept.push(format!("{methods} {hosts} {paths}"));
            if routes(&kept.iter().map(String::as_str).collect::<Vec<_>>()).is_err() {
                kept.pop();
            }
        }
        let routes = routes(&kept.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
        for (host, path, method) in asked {
            let path = if path.is_empty() { "/" } else { &path };
            let expected = plainly(&kept, host, path, &method.parse().unwrap());
            let found = found(&routes, host, path, method);
            match expected {
                Some(number) => prop_assert_eq!(&found, &kept[number], "{} {:?} {} {:?}", method, host, path, kept),
                None => prop_assert!(found == "no route" || found.starts_with("only "), "{} {:?} {}", found, host, path),
            }
        }
    }
}
