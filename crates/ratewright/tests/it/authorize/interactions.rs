//! Forward authentication together with other settings.

use ratewright_lab::{Redis, wait_until};

use super::{call, request, start, traefik};
use crate::process::{Ratewright, http};

/// The program with these policies, behind a proxy with `auth-request` on loopback.
fn with(settings: &str, policies: &str) -> Ratewright {
    let api = "clients: {trusted_proxies: [127.0.0.1], user: {jwt: {secret: 'a secret for tests, long enough for HS256'}}}\n\
               api: {authorize: auth-request}";
    Ratewright::start(&format!("{api}\n{settings}\npolicies:\n{policies}"))
}

/// The status, and the real one, of a request from `client`.
fn ask(ratewright: &Ratewright, client: &str, path: &str, more: &str) -> (u16, Option<String>) {
    let headers = format!(
        "X-Original-Method: GET\r\nX-Original-URL: http://shop.example{path}\r\nX-Forwarded-For: {client}\r\n{more}"
    );
    let answer = call(ratewright, "GET", "/api/v1/authorize?status=403", &headers);
    (answer.status, answer.headers.get("x-ratewright-status").cloned())
}

fn denied(real: &str) -> (u16, Option<String>) {
    (403, Some(real.to_owned()))
}

const ALLOWED: (u16, Option<String>) = (200, None);

#[test]
fn addresses_of_one_ipv6_network_are_one_client() {
    let ratewright = with("", "- {name: per-ip, by: ip, quota: {rate: 1/h}}");
    assert_eq!(ask(&ratewright, "2001:db8::1", "/", ""), ALLOWED);
    assert_eq!(ask(&ratewright, "[2001:db8::2]:4711", "/", ""), denied("429"));
    assert_eq!(ask(&ratewright, "2001:db8:0:1::1", "/", ""), ALLOWED);
}

#[test]
fn exempt_paths_and_policies_in_shadow_mode_deny_nothing() {
    let ratewright = with(
        "exempt: {paths: [/free/**]}",
        "- {name: trial, mode: shadow, by: ip, quota: {rate: 1/h}}\n- {name: per-ip, when: {path: /free/**}, by: ip, quota: {rate: 1/h}}",
    );
    for _ in 0..3 {
        assert_eq!(ask(&ratewright, "192.0.2.7", "/", ""), ALLOWED);
        assert_eq!(ask(&ratewright, "192.0.2.7", "/free/x", ""), ALLOWED);
    }
}

/// The users of both tokens are in `sub`; they are signed with the secret above.
#[test]
fn the_clients_token_names_its_user() {
    let ratewright = with("", "- {name: per-user, by: user, missing: deny, quota: {rate: 1/h}}");
    let token = |user: &str| {
        let key = jsonwebtoken::EncodingKey::from_secret(b"a secret for tests, long enough for HS256");
        let claims = serde_json::json!({ "sub": user, "exp": 4_000_000_000_u64 });
        let token = jsonwebtoken::encode(&jsonwebtoken::Header::default(), &claims, &key).unwrap();
        format!("Authorization: Bearer {token}\r\n")
    };
    let (anna, ben) = (token("anna"), token("ben"));
    assert_eq!(ask(&ratewright, "192.0.2.7", "/", &anna), ALLOWED);
    assert_eq!(
        ask(&ratewright, "192.0.2.8", "/", &anna),
        denied("429"),
        "the same user from another address"
    );
    assert_eq!(ask(&ratewright, "192.0.2.7", "/", &ben), ALLOWED);
    assert_eq!(ask(&ratewright, "192.0.2.7", "/", ""), denied("403"), "without a user");
    assert_eq!(ask(&ratewright, "192.0.2.7", "/", &format!("{ben}{anna}")), denied("400"), "two tokens");
}

#[test]
fn count_by_status_counts_every_request() {
    let ratewright = with("", "- {name: login, by: ip, quota: {rate: 2/h}, count: {status: [401]}}");
    let statuses = [0; 3].map(|_| ask(&ratewright, "192.0.2.7", "/", ""));
    assert_eq!(statuses, [ALLOWED, ALLOWED, denied("429")]);
}

#[test]
fn a_policy_by_bytes_denies_every_request() {
    let ratewright = with("", "- {name: upload, by: ip, quota: {rate: 1000000/h}, cost: {bytes: request}}");
    let (status, real) = ask(&ratewright, "192.0.2.7", "/", "");
    assert_eq!(status, 403, "{real:?}");
}

#[test]
fn an_ambiguous_path_is_rejected_if_the_file_says_so() {
    let ratewright = Ratewright::start(
        "clients: {trusted_proxies: [127.0.0.1], ambiguous_paths: reject}\napi: {authorize: auth-request}",
    );
    assert_eq!(ask(&ratewright, "192.0.2.7", "/a%2Fb", ""), denied("400"));
    assert_eq!(ask(&ratewright, "192.0.2.7", "/a/b", ""), ALLOWED);
}

#[test]
fn a_lower_case_method_and_an_alias_of_a_header_are_rejected() {
    let ratewright = with("", "- {name: per-key, by: 'header:X-Api-Key', quota: {rate: 1/h}}");
    assert_eq!(ask(&ratewright, "192.0.2.7", "/", "X_Api_Key: k\r\n"), denied("400"));
    let headers = "X-Original-Method: get\r\nX-Original-URL: http://a/\r\nX-Forwarded-For: 192.0.2.7\r\n";
    assert_eq!(call(&ratewright, "GET", "/api/v1/authorize", headers).status, 400);
}

#[test]
fn without_redis_a_closed_policy_denies() {
    let mut redis = Redis::start();
    let settings = format!("store: {{redis: {{url: '{}'}}, on_failure: closed}}", redis.url());
    let ratewright = with(&settings, "- {name: per-ip, by: ip, quota: {rate: 100/h}}");
    wait_until("Redis is used", || ask(&ratewright, "192.0.2.7", "/", "") == ALLOWED);
    redis.kill();
    wait_until("Redis is gone", || ask(&ratewright, "192.0.2.7", "/", "") == denied("429"));
}

/// nginx reads the head of a response into a buffer; with many limits the problem would not fit.
#[test]
fn the_head_of_a_denial_stays_below_four_kib() {
    let policies: String = (0..16)
        .map(|n| format!("- {{name: a-policy-with-a-name-that-is-as-long-as-it-may-be-{n:08}, by: ip, quota: {{rate: 1/h}}}}\n"))
        .collect();
    let ratewright = with("", &policies);
    let path = format!("/{}", "%C3%BC".repeat(80));
    assert_eq!(ask(&ratewright, "192.0.2.7", &path, ""), ALLOWED);
    let headers = format!(
        "X-Original-Method: GET\r\nX-Original-URL: http://a{path}\r\nX-Forwarded-For: 192.0.2.7\r\nX-Request-Id: {}\r\n",
        "i".repeat(128)
    );
    let answer = call(&ratewright, "GET", "/api/v1/authorize?status=403", &headers);
    let length: usize = answer.headers.iter().map(|(name, value)| name.len() + value.len() + 4).sum();
    assert_eq!((answer.status, &*answer.headers["x-ratewright-status"]), (403, "429"), "{answer:?}");
    assert!(length < 4_000, "{length} bytes: {answer:?}");
}

/// A balancer may forward connections that it does not announce, so its address is not a proxy's.
#[test]
fn behind_a_load_balancer_a_proxy_needs_a_token() {
    let config = "listen: {gateway: '127.0.0.1:0', api: {address: '127.0.0.1:0', proxy_protocol: {from: [127.0.0.1]}}, grpc: '127.0.0.1:0', admin: 'off'}
clients: {trusted_proxies: [127.0.0.1, 192.0.2.1]}
api: {authorize: forward-auth, tokens: [s3cret-token-1]}
policies: [{name: per-ip, by: ip, quota: {rate: 9/h}}]
";
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("ratewright.yaml");
    std::fs::write(&file, config).unwrap();
    let ratewright = Ratewright::serve(&["-c".as_ref(), file.as_path()]);
    let ask = |announced: &str, more: &str| {
        let headers = format!("{}{more}", traefik("192.0.2.7", "/"));
        http(
            &ratewright.address,
            &format!("{announced}\r\n{}", request("GET", "/api/v1/authorize", &headers)),
        )
        .status
    };
    for announced in ["PROXY TCP4 192.0.2.1 192.0.2.2 1 2", "PROXY UNKNOWN"] {
        assert_eq!(ask(announced, ""), 401, "{announced}");
        assert_eq!(ask(announced, "X-Ratewright-Token: s3cret-token-1\r\n"), 200, "{announced}");
    }
}

#[test]
fn a_head_request_of_envoy_gets_no_body() {
    let ratewright = start("ext-authz", "");
    let from = "X-Forwarded-For: 192.0.2.7\r\n";
    for status in [200, 200, 200, 429] {
        let answer = call(&ratewright, "HEAD", "/api/v1/authorize/login", from);
        assert_eq!((answer.status, &*answer.body), (status, ""));
    }
}

#[test]
fn a_client_without_a_host_gets_400() {
    let ratewright = start("forward-auth", "");
    let headers =
        traefik("192.0.2.7", "/login").replace("X-Forwarded-Host: api.example.com", "X-Forwarded-Host:");
    assert_eq!(call(&ratewright, "GET", "/api/v1/authorize", &headers).status, 400);
    let old = format!("GET /api/v1/authorize HTTP/1.0\r\n{}\r\n", traefik("192.0.2.7", "/login"));
    assert_eq!(
        http(&ratewright.address, &old).status,
        200,
        "the call itself may be HTTP/1.0, as nginx's is by default"
    );
}
