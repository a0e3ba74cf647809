//! Preflights: handled by the gateway, by the route of the requested method, and not charged.

use std::sync::{Arc, Mutex};

use ratewright_gateway::access_log::{AccessLog, AccessLogEntry};

use super::*;
use crate::harness::Setup;

const VARY: &str = "Origin, Access-Control-Request-Method, Access-Control-Request-Headers";

#[tokio::test]
async fn a_preflight_gets_a_response_and_is_neither_forwarded_nor_charged() {
    let (server, n_requests) = generous().await;
    let setup = Setup { policies: vec![bucket(1)], settings: settings(shared(&server)), ..Setup::default() };
    let gateway = TestGateway::start(setup).await;
    let mut client = gateway.connect().await;
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
    assert_eq!(see(&gateway, &get(APP)).await.status, 429);
    assert_eq!(
        see(&gateway, &preflight("/x", APP, "POST", "")).await.status,
        204,
        "also for a denied client"
    );
}

#[tokio::test]
async fn a_disallowed_preflight_gets_403_without_details() {
    let (server, n_requests) = generous().await;
    let gateway = TestGateway::with_route(shared(&server)).await;
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
        let seen = see(&gateway, &request).await;
        assert!(seen.status == 403 && seen.says_nothing(), "{request} {seen:?}");
        assert_eq!(seen.get("vary"), [VARY]);
    }
    assert_eq!(n_requests.load(Ordering::SeqCst), 0);
    let rejected = gateway.connect().await.exchange(&preflight("/", EVIL, "POST", "")).await;
    assert!(
        rejected.text().contains("preflight rejected: this origin is not in cors.origins"),
        "{rejected:?}"
    );
}

#[tokio::test]
async fn other_options_requests_go_on_and_are_charged() {
    let (server, n_requests) = generous().await;
    let setup = Setup { policies: vec![bucket(2)], settings: settings(shared(&server)), ..Setup::default() };
    let gateway = TestGateway::start(setup).await;
    let without_method = format!("OPTIONS / HTTP/1.1\r\nHost: a\r\nOrigin: {APP}\r\n\r\n");
    see(&gateway, &without_method).await.assert_readable(200, APP);
    let without_origin = "OPTIONS / HTTP/1.1\r\nHost: a\r\nAccess-Control-Request-Method: GET\r\n\r\n";
    assert_eq!(see(&gateway, without_origin).await.status, 200);
    assert_eq!(n_requests.load(Ordering::SeqCst), 2);
    assert_eq!(see(&gateway, &without_method).await.status, 429);
}

/// A route may match POST only; then OPTIONS has no route, or another one.
#[tokio::test]
async fn the_route_of_the_requested_method_decides() {
    let (server, n_requests) = generous().await;
    let to = |id: &str, cors| Route { id: id.into(), cors, ..route(&[server.address]) };
    let post_only = CorsRules { methods: vec![Method::POST], ..rules() };
    let gateway = TestGateway::start(Setup {
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
        let seen = see(&gateway, &preflight(path, APP, "POST", "")).await;
        assert_eq!((seen.status, seen.get(allow)), (204, vec!["POST"]), "{path}");
    }
    assert_eq!(n_requests.load(Ordering::SeqCst), 0);
    let seen = see(&gateway, &preflight("/plain", APP, "GET", "")).await;
    assert_eq!((seen.status, seen.get(allow)), (204, vec!["GET, POST, HEAD"]));
    for (path, method) in [("/plain", "POST"), ("/orders", "GET"), ("/orders", "HEAD"), ("/orders", "DELETE")]
    {
        let seen = see(&gateway, &preflight(path, APP, method, "")).await;
        assert_eq!(
            (seen.status, seen.get(allow)),
            (200, vec!["DELETE"]),
            "{method} {path} is the upstream's"
        );
        assert_eq!(seen.get("access-control-allow-origin"), ["*", EVIL], "and its words are not changed");
    }
    assert_eq!(n_requests.load(Ordering::SeqCst), 4);
    assert_eq!(see(&gateway, &preflight("/lone", APP, "PUT", "")).await.status, 405, "as without cors");
    assert_eq!(see(&gateway, &preflight("/nowhere", APP, "GET", "")).await.status, 404);
}

/// The script must see the 404 or 405 of the request itself.
#[tokio::test]
async fn preflights_without_a_route_follow_the_gateways_rules() {
    let (server, _) = generous().await;
    let gateway = TestGateway::start(Setup {
        settings: GatewaySettings {
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
        assert_eq!(see(&gateway, &preflight(path, APP, "POST", "")).await.status, 204, "{path}");
        let seen = see(&gateway, &preflight(path, EVIL, "POST", "")).await;
        assert!(seen.status == 403 && seen.says_nothing(), "{path} {seen:?}");
    }
    let seen = see(&gateway, &preflight("/off", APP, "POST", "")).await;
    assert_eq!(seen.get("access-control-allow-origin"), ["*", EVIL], "the route's OPTIONS has no cors");
}

/// Collects entries.
#[derive(Default)]
struct Lines(Mutex<Vec<String>>);

impl AccessLog for Lines {
    fn record(&self, entry: &AccessLogEntry<'_>) {
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
    let settings = GatewaySettings { has_access_log: true, ..settings(shared(&server)) };
    let setup = Setup { settings, access_log: Some(log), policies: vec![bucket(1)], ..Setup::default() };
    let gateway = TestGateway::start(setup).await;
    see(&gateway, &preflight("//a/../x?token=s3cret", APP, "POST", "")).await;
    see(&gateway, &preflight("/x", EVIL, "POST", "")).await;
    let expected = [r#"OPTIONS /x Some("all") None 204"#, r#"OPTIONS /x Some("all") None 403"#];
    assert_eq!(*lines.0.lock().unwrap(), expected);
    assert_eq!(gateway.metrics_text(), "/: 1 of 204, 1 of 403");
}
