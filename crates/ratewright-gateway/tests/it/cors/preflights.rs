//! Preflights: answered by the gateway, for the route of the method that they ask for, and charged to nobody.

use std::sync::{Arc, Mutex};

use ratewright_gateway::{AccessLog, Entry};

use super::*;
use crate::world::Setup;

const VARY: &str = "Origin, Access-Control-Request-Method, Access-Control-Request-Headers";

#[tokio::test]
async fn a_preflight_is_answered_and_neither_forwarded_nor_charged() {
    let (server, n_requests) = generous().await;
    let setup = Setup { policies: vec![bucket(1)], settings: settings(shared(&server)), ..Setup::default() };
    let world = World::start(setup).await;
    let mut client = world.connect().await;
    for _ in 0..5 {
        let more = "Access-Control-Request-Headers: content-type\r\n";
        let seen = see_on(&mut client, &preflight("/x", APP, "POST", more)).await;
        assert_eq!(seen.status, 204);
        assert_eq!(seen.get("access-control-allow-origin"), [APP]);
        assert_eq!(seen.get("access-control-allow-credentials"), ["true"]);
        assert_eq!(seen.get("access-control-allow-methods"), ["GET, POST, HEAD"]);
        assert_eq!(seen.get("access-control-allow-headers"), ["content-type"]);
        assert_eq!(seen.get("access-control-max-age"), ["600"]);
        assert_eq!(seen.get("vary"), [VARY]);
        assert_eq!(seen.lines.len(), 6, "{seen:?}");
    }
    assert_eq!(n_requests.load(Ordering::SeqCst), 0);
    assert_eq!(see_on(&mut client, &get(APP)).await.status, 200, "nothing was spent");
    assert_eq!(see(&world, &get(APP)).await.status, 429);
    assert_eq!(see(&world, &preflight("/x", APP, "POST", "")).await.status, 204, "also for a denied client");
}

#[tokio::test]
async fn what_is_not_allowed_gets_403_without_a_word_of_what_is() {
    let (server, n_requests) = generous().await;
    let world = World::of(shared(&server)).await;
    let header = |name: &str| format!("Access-Control-Request-Headers: {name}\r\n");
    for request in [
        preflight("/", EVIL, "POST", ""),
        preflight("/", "null", "POST", ""),
        preflight("/", APP, "POST", &format!("Origin: {APP}\r\n")),
        preflight("/", APP, "DELETE", ""),
        preflight("/", APP, "post", ""),
        preflight("/", APP, "POST", "Access-Control-Request-Method: POST\r\n"),
        preflight("/", APP, "POST", &header("authorization")),
        preflight("/", APP, "POST", &(header("content-type") + &header("x-a"))),
    ] {
        let seen = see(&world, &request).await;
        assert!(seen.status == 403 && seen.says_nothing(), "{request} {seen:?}");
        assert_eq!(seen.get("vary"), [VARY]);
    }
    assert_eq!(n_requests.load(Ordering::SeqCst), 0);
    let rejected = world.connect().await.ask(&preflight("/", EVIL, "POST", "")).await;
    assert!(
        rejected.text().contains("preflight rejected: this origin is not in cors.origins"),
        "{rejected:?}"
    );
}

#[tokio::test]
async fn other_options_requests_go_on_and_are_charged() {
    let (server, n_requests) = generous().await;
    let setup = Setup { policies: vec![bucket(2)], settings: settings(shared(&server)), ..Setup::default() };
    let world = World::start(setup).await;
    let without_method = format!("OPTIONS / HTTP/1.1\r\nHost: a\r\nOrigin: {APP}\r\n\r\n");
    see(&world, &without_method).await.assert_readable(200, APP);
    let without_origin = "OPTIONS / HTTP/1.1\r\nHost: a\r\nAccess-Control-Request-Method: GET\r\n\r\n";
    assert_eq!(see(&world, without_origin).await.status, 200);
    assert_eq!(n_requests.load(Ordering::SeqCst), 2);
    assert_eq!(see(&world, &without_method).await.status, 429);
}

/// A route may take POST only, and then OPTIONS leads nowhere, or elsewhere.
#[tokio::test]
async fn the_route_of_the_requested_method_answers() {
    let (server, n_requests) = generous().await;
    let to = |id: &str, cors| Route { id: id.into(), cors, ..route(&[server.address]) };
    let post_only = CorsRules { methods: vec![Method::POST], ..rules() };
    let world = World::start(Setup {
        settings: routes(vec![
            (on("/orders", &[Method::POST]), to("orders", cors(post_only.clone()))),
            (on("/plain", &[Method::POST]), to("plain", None)),
            (on("/lone", &[Method::POST]), to("lone", cors(post_only))),
            (on("/plain", &[]), to("rest", cors(rules()))),
            (on("/orders", &[Method::GET, Method::OPTIONS]), to("read", None)),
        ]),
        ..Setup::default()
    })
    .await;
    let allow = "access-control-allow-methods";
    for path in ["/orders", "/lone"] {
        let seen = see(&world, &preflight(path, APP, "POST", "")).await;
        assert_eq!((seen.status, seen.get(allow)), (204, vec!["POST"]), "{path}");
    }
    assert_eq!(n_requests.load(Ordering::SeqCst), 0);
    let seen = see(&world, &preflight("/plain", APP, "GET", "")).await;
    assert_eq!((seen.status, seen.get(allow)), (204, vec!["GET, POST, HEAD"]));
    for (path, method) in [("/plain", "POST"), ("/orders", "GET"), ("/orders", "HEAD"), ("/orders", "DELETE")]
    {
        let seen = see(&world, &preflight(path, APP, method, "")).await;
        assert_eq!(
            (seen.status, seen.get(allow)),
            (200, vec!["DELETE"]),
            "{method} {path} is the upstream's"
        );
        assert_eq!(seen.get("access-control-allow-origin"), ["*", EVIL], "and its words are not changed");
    }
    assert_eq!(n_requests.load(Ordering::SeqCst), 4);
    assert_eq!(see(&world, &preflight("/lone", APP, "PUT", "")).await.status, 405, "as without cors");
    assert_eq!(see(&world, &preflight("/nowhere", APP, "GET", "")).await.status, 404);
}

/// The script is to see the 404 or 405 of the request itself.
#[tokio::test]
async fn the_gateways_own_rules_answer_where_there_is_no_route() {
    let (server, _) = generous().await;
    let world = World::start(Setup {
        settings: Settings {
            cors: cors(rules()),
            ..routes(vec![
                (on("/a", &[Method::GET]), shared(&server)),
                (
                    on("/off", &[Method::GET, Method::OPTIONS]),
                    Route { id: "off".into(), ..route(&[server.address]) },
                ),
            ])
        },
        ..Setup::default()
    })
    .await;
    for path in ["/nowhere", "/a"] {
        assert_eq!(see(&world, &preflight(path, APP, "POST", "")).await.status, 204, "{path}");
        let seen = see(&world, &preflight(path, EVIL, "POST", "")).await;
        assert!(seen.status == 403 && seen.says_nothing(), "{path} {seen:?}");
    }
    let seen = see(&world, &preflight("/off", APP, "POST", "")).await;
    assert_eq!(seen.get("access-control-allow-origin"), ["*", EVIL], "the route's OPTIONS has no cors");
}

/// Collects what it is told.
#[derive(Default)]
struct Lines(Mutex<Vec<String>>);

impl AccessLog for Lines {
    fn record(&self, entry: &Entry<'_>) {
        let status = entry.status.map_or(0, |status| status.as_u16());
        let line = format!("{} {} {:?} {:?} {status}", entry.method, entry.path, entry.route, entry.policy);
        self.0.lock().unwrap().push(line);
    }
}

#[tokio::test]
async fn preflights_are_logged_and_counted_under_their_route() {
    let (server, _) = generous().await;
    let lines = Arc::new(Lines::default());
    let log: Arc<dyn AccessLog> = lines.clone();
    let settings = Settings { has_access_log: true, ..settings(shared(&server)) };
    let setup = Setup { settings, access_log: Some(log), policies: vec![bucket(1)], ..Setup::default() };
    let world = World::start(setup).await;
    see(&world, &preflight("//a/../x?token=s3cret", APP, "POST", "")).await;
    see(&world, &preflight("/x", EVIL, "POST", "")).await;
    let expected = [r#"OPTIONS /x Some("all") None 204"#, r#"OPTIONS /x Some("all") None 403"#];
    assert_eq!(*lines.0.lock().unwrap(), expected);
    assert_eq!(world.counted(), "/: 1 of 204, 1 of 403");
}
