//! `POST /api/v1/decide`, by requirement id.

mod authorization;
mod batch;
mod canonical_keys;
mod invalid_bodies;
mod outage;
mod refund;

use serde_json::{Value, json};

use crate::process::{Answer, Ratewright};

/// A policy that counts by address, with this quota and these other lines.
fn policy(name: &str, quota: &str, more: &str) -> String {
    format!("policies: [{{name: {name}, by: ip, quota: {quota}, {more}}}]\n")
}

/// Asks with this body.
fn ask(ratewright: &Ratewright, body: &Value) -> Answer {
    ratewright.post("/api/v1/decide", &[], &body.to_string())
}

/// The names of the policies that apply.
fn policies(answer: &Answer) -> Vec<String> {
    let body = answer.json();
    let limits = body["limits"].as_array().unwrap().iter();
    limits.map(|limit| limit["policy"].as_str().unwrap().to_owned()).collect()
}

/// B2: the numbers of seed 001. A full bucket allows the whole burst; it is full again after the time in the headers, and a denied
/// client waits at least the configured minimum.
#[test]
fn b2_named_limits_have_their_figures() {
    for (name, quota, capacity, refill, retry_after) in [
        ("login", "rate: 1/6s, burst: 10", 10, 60, 60),
        ("recovery", "rate: 1/60s, burst: 5", 5, 300, 300),
        ("default", "rate: 10/s, burst: 100", 100, 10, 60),
        ("payment", "rate: 5/2s, burst: 30", 30, 12, 0),
        ("login", "rate: 1/12s, burst: 5", 5, 60, 60),
        ("recovery", "rate: 1/180s, burst: 3", 3, 540, 600),
        ("default", "rate: 10/s, burst: 60", 60, 6, 60),
    ] {
        for refill_by in ["smooth", "stepped"] {
            let quota = format!("{{{quota}, refill: {refill_by}}}");
            let ratewright =
                Ratewright::start(&policy(name, &quota, &format!("retry_after: {retry_after}s")));
            let all = json!({"attributes": {"ip": "192.0.2.1"}, "cost": capacity});
            let paid = ask(&ratewright, &all);
            assert_eq!((paid.status, paid.remaining(name)), (200, Some(0)), "{name} {quota}");
            assert_eq!(paid.headers["ratelimit-policy"], format!("\"{name}\";q={capacity};w={refill}"));
            let denied = ask(&ratewright, &all);
            assert_eq!(denied.status, 429, "{name} {quota}");
            let sent_wait: u64 = denied.headers["retry-after"].parse().unwrap();
            // The test takes some time itself, during which some of it comes back.
            let most: u64 = refill.max(retry_after);
            assert!(
                (most.saturating_sub(5).max(retry_after)..=most).contains(&sent_wait),
                "{name} {quota}: {sent_wait}"
            );
        }
    }
}

/// B2, B8: the window of seed 001 as a second quota. Either denies, and then neither is charged.
#[test]
fn b2_several_quotas_are_charged_together_or_not_at_all() {
    let quota = "[{rate: 1/6s, burst: 10}, {name: hour, algorithm: sliding_window, rate: 4/h}]";
    let ratewright = Ratewright::start(&policy("login", quota, ""));
    let left = |answer: &Answer| {
        let body = answer.json();
        [0, 1].map(|n| body["limits"][n]["remaining"].as_u64().unwrap())
    };
    let spend = |cost: u32| ask(&ratewright, &json!({"attributes": {"ip": "192.0.2.1"}, "cost": cost}));
    assert_eq!(left(&spend(3)), [7, 1]);
    let denied = spend(2);
    assert_eq!((denied.status, left(&denied)), (429, [7, 1]), "the bucket has room, and is not charged");
    let body = denied.json();
    assert_eq!(body["violated-policies"], json!(["login.hour"]));
    assert_eq!(
        (&body["limits"][1]["quota"], &body["limits"][1]["outcome"]),
        (&json!("hour"), &json!("denied"))
    );
    assert_eq!(left(&spend(1)), [6, 0]);
}

const ENDPOINTS: &str = r#"
policies:
- {name: login, group: endpoint, when: {path: ["**/login**", "**/auth**", "**/signin**"]}, by: ip, quota: {rate: 10/h}}
- {name: recovery, group: endpoint, when: {path: ["**/recovery**", "**/reset**", "**/forgot**"]}, by: ip, quota: {rate: 5/h}}
- {name: default, group: endpoint, by: ip, quota: {rate: 100/h}}
- {name: everybody, quota: {rate: 100000/h}}
"#;

/// B3, B4: the first match of a group applies, for every method; no policy covers an exempt path.
#[test]
fn b3_paths_choose_the_limit_for_every_method() {
    let ratewright = Ratewright::start(ENDPOINTS);
    let of = |method: &str, path: &str| {
        policies(&ratewright.decide(&json!({"ip": "192.0.2.1", "method": method, "path": path})))
    };
    for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "post", "PROPFIND"] {
        for (path, expected) in [
            ("/api/login", "login"),
            ("/login", "login"),
            ("/api/v1/auth/refresh", "login"),
            ("/signin?next=/forgot", "login"),
            ("/oauth2/authorize", "login"),
            ("/api/password/reset", "recovery"),
            ("/account/forgot-password/x", "recovery"),
            ("/recovery", "recovery"),
            ("/auth/reset", "login"),
            ("/api/orders/1", "default"),
            ("/?path=/login", "default"),
            ("/", "default"),
        ] {
            assert_eq!(of(method, path), [expected, "everybody"], "{method} {path}");
        }
    }
    for path in [
        "/actuator/info",
        "/health",
        "/healthz",
        "/metrics",
        "/static/a.css",
        "/css/x",
        "/js/x",
        "/images/x/y",
    ] {
        assert!(of("GET", path).is_empty(), "{path}");
    }
    assert!(of("OPTIONS", "/api/login").is_empty());
    assert_eq!(
        of("GET", "/static/../api/login"),
        ["login", "everybody"],
        "who only claims to be exempt is not"
    );
}

const SECRET: &str = "a secret that is long enough for HS256";

/// A token for that user, signed with that secret.
fn token(user: &str, secret: &str, expires: u64) -> String {
    let claims = json!({"sub": user, "exp": expires, "plan": "gold"});
    let key = jsonwebtoken::EncodingKey::from_secret(secret.as_bytes());
    jsonwebtoken::encode(&jsonwebtoken::Header::default(), &claims, &key).unwrap()
}

const YEAR_2100: u64 = 4_102_444_800;

fn by_user_or_address(more: &str) -> String {
    format!(
        "clients: {{user: {{jwt: {{secret: '{SECRET}'}}, header: X-User-Id}}, trusted_proxies: [{more}]}}\n\
         policies: [{{name: api, by: {{first_of: [user, ip]}}, quota: {{rate: 1/h, burst: 5}}}}]\n"
    )
}

/// B5: the key is `user:…` for a verified user, and `ip:…` otherwise. Callers of `/decide` are trusted, so they may name the user; a
/// token is still verified.
#[test]
fn b5_a_client_is_its_user_or_else_its_address() {
    let ratewright = Ratewright::start(&by_user_or_address("10.0.0.0/8"));
    let left =
        |key: &str| ratewright.get(&format!("remaining?policy=api&key={key}")).json()["remaining"].clone();
    let bearer = |token: &str| json!({"Authorization": format!("Bearer {token}")});
    let by_token = |token: &str| ratewright.decide(&json!({"ip": "192.0.2.1", "headers": bearer(token)}));
    assert_eq!(by_token(&token("anna", SECRET, YEAR_2100)).remaining("api"), Some(4));
    assert_eq!((left("user:anna"), left("ip:192.0.2.1")), (json!(4), json!(5)));
    for forged in [
        token("anna", "another secret, as long as the true one", YEAR_2100),
        token("anna", SECRET, 1),
        "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbm5hIn0.".to_owned(),
        "garbage".to_owned(),
    ] {
        by_token(&forged);
    }
    assert_eq!((left("user:anna"), left("ip:192.0.2.1")), (json!(4), json!(1)), "they count by address");
    ratewright.decide(&json!({"ip": "192.0.2.1", "user": "anna"}));
    assert_eq!(left("user:anna"), 3, "the caller's word");
    ratewright.decide(&json!({"user": "ip:192.0.2.1"}));
    assert_eq!(
        (left("ip:192.0.2.1"), left("user:ip:192.0.2.1")),
        (json!(1), json!(4)),
        "a name is not an address"
    );
}

/// B5, C11: a caller that asks about itself can name neither a user nor an address, unless it is a trusted proxy. Then the address
/// is the last one in X-Forwarded-For that is not a trusted proxy.
#[test]
fn b5_c11_headers_count_from_trusted_proxies_only() {
    let check = |ratewright: &Ratewright, headers: &[(&str, &str)]| {
        let answer = ratewright.post("/api/v1/rate-limit/check?policy=api", headers, "");
        answer.json()["key"].as_str().unwrap().to_owned()
    };
    let spoofed = [("X-Forwarded-For", "192.0.2.1"), ("X-Real-IP", "192.0.2.2"), ("X-User-Id", "anna")];
    let bearer = format!("Bearer {}", token("berta", SECRET, YEAR_2100));

    let nobody = Ratewright::start(&by_user_or_address("10.0.0.0/8"));
    assert_eq!(check(&nobody, &spoofed), "ip:127.0.0.1");
    assert_eq!(check(&nobody, &[("Authorization", &bearer)]), "user:berta");

    let proxy = Ratewright::start(&by_user_or_address("127.0.0.1, 10.0.0.0/8"));
    assert_eq!(check(&proxy, &spoofed), "user:anna");
    assert_eq!(check(&proxy, &spoofed[..2]), "ip:192.0.2.1", "X-Forwarded-For comes first");
    assert_eq!(check(&proxy, &spoofed[1..2]), "ip:192.0.2.2");
    assert_eq!(check(&proxy, &[("X-Forwarded-For", "198.51.100.9, 192.0.2.1, 10.1.1.1")]), "ip:192.0.2.1");
    assert_eq!(check(&proxy, &[]), "ip:127.0.0.1");
}

/// B6, A7: a denial has exactly these members.
#[test]
fn b6_a_denial_is_a_problem_with_these_members() {
    let problem = "problem: {type: 'https://example.org/problems/{name}'}\n";
    let ratewright = Ratewright::start(&format!(
        "{problem}{}",
        policy("login", "{rate: 1/h, burst: 2}", "retry_after: 2h")
    ));
    let body = json!({"attributes": {"ip": "192.0.2.1", "method": "POST", "path": "/api/login?next=%2F"}, "cost": 2});
    assert_eq!(ask(&ratewright, &body).status, 200);
    let denied = ratewright.post("/api/v1/decide", &[("X-Correlation-Id", "c-17")], &body.to_string());
    assert_eq!(denied.status, 429);
    assert_eq!(denied.headers["content-type"], "application/problem+json");
    assert_eq!(denied.headers["cache-control"], "no-store");
    assert_eq!(denied.headers["retry-after"], "7200");
    assert_eq!(denied.headers["x-ratelimit-limit"], "2");
    assert_eq!(denied.headers["x-ratelimit-remaining"], "0");
    assert_eq!(denied.headers["ratelimit-policy"], "\"login\";q=2;w=7200");
    assert!(denied.headers["ratelimit"].starts_with("\"login\";r=0;t="));
    let mut body = denied.json();
    let timestamp = body["timestamp"].take();
    let (timestamp, pattern) = (timestamp.as_str().unwrap(), "dddd-dd-ddTdd:dd:dd.dddZ");
    let fits = |(c, p): (char, char)| if p == 'd' { c.is_ascii_digit() } else { c == p };
    assert!(
        timestamp.len() == pattern.len() && timestamp.chars().zip(pattern.chars()).all(fits),
        "{timestamp}"
    );
    let reset_after = body["limits"][0]["resetAfterSeconds"].take();
    assert!((7_100..=7_200).contains(&reset_after.as_u64().unwrap()), "{reset_after}");
    let wait = body["limits"][0]["retryAfterSeconds"].take();
    assert!((7_100..=7_200).contains(&wait.as_u64().unwrap()), "{wait}");
    assert_eq!(
        body,
        json!({
            "type": "https://example.org/problems/login",
            "title": "Too Many Requests",
            "status": 429,
            "detail": "Rate limit \"login\" exceeded. Try again in 7200 seconds.",
            "instance": "/api/login",
            "correlationId": "c-17",
            "limitType": "login",
            "retryAfter": 7200,
            "timestamp": null,
            "violated-policies": ["login"],
            "allowed": false,
            "message": "Rate limit exceeded",
            "basis": "local",
            "retryAfterSeconds": 7200,
            "limits": [{
                "policy": "login", "mode": "enforce", "outcome": "denied", "limit": 2, "remaining": 0,
                "resetAfterSeconds": null, "retryAfterSeconds": null, "basis": "local",
            }],
        })
    );
}

/// B7: one warning for each denial, with all its details.
#[test]
fn b7_each_denial_is_one_warning() {
    let ratewright = Ratewright::start(&format!(
        "log: {{denials: all}}\n{}",
        policy("login", "{rate: 1/h, burst: 1}", "retry_after: 2h")
    ));
    let attributes = json!({"ip": "192.0.2.1", "method": "POST", "path": "/api/login"});
    let denied = (0..30).filter(|_| ratewright.decide(&attributes).status == 429).count();
    let log: Vec<Value> = ratewright.log().iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let warnings: Vec<_> = log.iter().filter(|line| line["level"] == "WARN").collect();
    assert_eq!((denied, warnings.len()), (29, 29), "{log:#?}");
    for warning in warnings {
        for (member, expected) in [
            ("message", json!("denied")),
            ("client", json!("192.0.2.1")),
            ("method", json!("POST")),
            ("path", json!("/api/login")),
            ("policy", json!("login")),
            ("retry_after", json!(7200)),
            ("status", json!(429)),
        ] {
            assert_eq!(warning[member], expected, "{warning}");
        }
    }
}

/// A6: both header families, one, or none; and which headers scripts of other origins may read.
#[test]
fn responses_have_the_configured_header_families() {
    let x_ratelimit = ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"];
    let ietf = ["ratelimit", "ratelimit-policy"];
    for (headers, has_x, has_ietf) in [
        ("", true, true),
        ("headers: {families: [x-ratelimit]}\n", true, false),
        ("headers: {families: [ietf]}\n", false, true),
        ("headers: {families: []}\n", false, false),
    ] {
        let ratewright =
            Ratewright::start(&format!("{headers}{}", policy("api", "{rate: 10/h, burst: 15}", "")));
        let body = json!({"attributes": {"ip": "192.0.2.1"}}).to_string();
        let answer = ratewright.post("/api/v1/decide", &[("origin", "http://localhost:3000")], &body);
        assert!(
            x_ratelimit.iter().all(|name| answer.headers.contains_key(*name) == has_x),
            "{headers}{answer:?}"
        );
        assert!(
            ietf.iter().all(|name| answer.headers.contains_key(*name) == has_ietf),
            "{headers}{answer:?}"
        );
        let exposed = &answer.headers["access-control-expose-headers"].to_lowercase();
        for name in x_ratelimit.iter().chain(&ietf).chain(&["retry-after", "x-correlation-id"]) {
            assert!(exposed.split(", ").any(|exposed| exposed == *name), "{name} is not in {exposed}");
        }
    }
    let rate = format!("headers: {{limit: rate}}\n{}", policy("api", "{rate: 10/h, burst: 15}", ""));
    let answer = Ratewright::start(&rate).decide(&json!({"ip": "192.0.2.1"}));
    assert_eq!(
        (&*answer.headers["x-ratelimit-limit"], &*answer.headers["x-ratelimit-remaining"]),
        ("10", "14")
    );
}

#[test]
fn a_response_has_the_id_of_its_request_or_a_new_one() {
    let ratewright = Ratewright::start(&policy("api", "{rate: 1/h, burst: 1}", ""));
    let id = |headers: &[(&str, &str)]| {
        let answer = ratewright.post("/api/v1/decide", headers, r#"{"attributes": {"ip": "192.0.2.1"}}"#);
        let id = answer.headers["x-correlation-id"].clone();
        if answer.status == 429 {
            assert_eq!(answer.json()["correlationId"], *id);
        }
        id
    };
    let trace = ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
    assert_eq!(id(&[trace, ("X-Request-Id", "r-1"), ("X-Correlation-Id", "c-1")]), "c-1");
    assert_eq!(id(&[trace, ("X-Request-Id", "r-1")]), "r-1");
    assert_eq!(id(&[trace]), "4bf92f3577b34da6a3ce929d0e0e4736");
    let made = [id(&[]), id(&[("X-Correlation-Id", "a'b")])];
    assert!(made.iter().all(|id| id.len() == 32) && made[0] != made[1], "{made:?}");
}

#[test]
fn overrides_change_the_quota_of_matching_requests() {
    let overrides = "overrides: [{match: {ip: 192.0.2.0/25}, quota: {rate: 1/h, burst: 9}}, {match: {header:X-Plan: free*}, mode: shadow}, {match: {ip: 203.0.113.7}, mode: off}]";
    let ratewright = Ratewright::start(&policy("api", "{rate: 1/h, burst: 2}", overrides));
    let limit = |attributes: Value| ratewright.decide(&attributes).json()["limits"][0].clone();
    assert_eq!(limit(json!({"ip": "192.0.2.200"}))["limit"], 2);
    assert_eq!(limit(json!({"ip": "192.0.2.1"}))["limit"], 9);
    let shadow = limit(json!({"ip": "192.0.2.201", "headers": {"x-plan": "freemium"}}));
    assert_eq!((&shadow["limit"], &shadow["mode"]), (&json!(2), &json!("shadow")));
    assert_eq!(limit(json!({"ip": "203.0.113.7"})), Value::Null);
}

#[test]
fn cost_is_set_by_the_policy_and_the_caller() {
    let by_header = Ratewright::start(&policy("api", "{rate: 1/h, burst: 100}", "cost: {header: X-Cost}"));
    let spent = |ratewright: &Ratewright, body: Value| {
        ratewright.ask("DELETE", "/api/v1/rate-limit/reset?policy=api&key=192.0.2.1");
        100 - ask(ratewright, &body).remaining("api").unwrap()
    };
    for (text, cost) in [("7", 7), ("0", 1), ("-7", 1), ("much", 1)] {
        let attributes = json!({"ip": "192.0.2.1", "headers": {"X-Cost": text}});
        assert_eq!(spent(&by_header, json!({"attributes": attributes})), cost, "{text}");
        assert_eq!(spent(&by_header, json!({"attributes": attributes, "cost": 3})), 3 * cost, "{text}");
    }
    let most = by_header.decide(&json!({"ip": "192.0.2.1", "headers": {"X-Cost": "99999999999"}}));
    assert_eq!(most.json()["limits"][0]["outcome"], "never", "more than can be counted is not one");
    let by_method =
        Ratewright::start(&policy("api", "{rate: 1/h, burst: 100}", "cost: {GET: 2, post: 5, default: 3}"));
    for (method, cost) in [("GET", 2), ("POST", 5), ("DELETE", 3)] {
        let attributes = json!({"ip": "192.0.2.1", "method": method});
        assert_eq!(spent(&by_method, json!({"attributes": attributes})), cost, "{method}");
    }
}

#[test]
fn a_missing_key_attribute_skips_falls_back_or_denies() {
    let with = |missing: &str| {
        Ratewright::start(&format!(
            "policies: [{{name: users, by: user, missing: {missing}, quota: {{rate: 1/h, burst: 5}}}}, \
             {{name: all, quota: {{rate: 1/h, burst: 5}}}}]"
        ))
    };
    let nameless = json!({"ip": "192.0.2.1", "path": "/x"});
    assert_eq!(policies(&with("skip").decide(&nameless)), ["all"]);
    assert_eq!(policies(&with("ip").decide(&nameless)), ["users", "all"]);
    let ratewright = with("deny");
    let refused = ratewright.decide(&nameless);
    assert_eq!((refused.status, &*refused.headers["content-type"]), (403, "application/problem+json"));
    let body = refused.json();
    assert_eq!(body["title"], "Forbidden");
    assert_eq!(body["detail"], "Rate limit \"users\" counts by user; the request has no valid value for it.");
    assert_eq!(
        (&body["limitType"], &body["message"]),
        (&json!("users"), &json!("Request cannot be counted"))
    );
    assert_eq!(body["limits"], json!([]));
    assert!(!refused.headers.contains_key("retry-after"), "waiting does not help");
    let named = ratewright.decide(&json!({"user": "anna"}));
    assert_eq!((named.status, named.remaining("all")), (200, Some(4)), "who was refused was not charged");
}

/// E6: a shadow policy is counted and shown, and never denies: neither alone nor beside an enforced policy.
#[test]
fn e6_shadow_never_denies() {
    let ratewright = Ratewright::start(
        "policies: [{name: trial, by: ip, mode: shadow, quota: {rate: 1/h, burst: 1}}, \
         {name: api, by: ip, quota: {rate: 1/h, burst: 3}}]",
    );
    let answers = [(); 4].map(|()| ratewright.decide(&json!({"ip": "192.0.2.1"})));
    assert_eq!(answers.each_ref().map(|answer| answer.status), [200, 200, 200, 429]);
    let outcomes = answers.each_ref().map(|answer| answer.json()["limits"][0]["outcome"].clone());
    assert_eq!(outcomes, ["charged", "denied", "denied", "denied"]);
    assert_eq!(answers[3].json()["violated-policies"], json!(["api"]));
    assert!(!answers[0].headers["ratelimit-policy"].contains("trial"), "responses do not name it");
    let series = |verdict: &str| {
        ratewright.metric(&format!(
            r#"ratewright_decisions_total{{policy="trial",entrypoint="rest",verdict="{verdict}",basis="local",mode="shadow"}}"#
        ))
    };
    assert_eq!((series("allowed"), series("denied")), (1.0, 3.0));
}

#[test]
fn policies_can_be_named_besides_those_that_cover_the_request() {
    let ratewright = Ratewright::start(
        "policies: [{name: api, by: ip, quota: {rate: 1/h, burst: 5}}, \
         {name: export, when: {path: /never}, by: ip, quota: {rate: 1/h, burst: 2}}]",
    );
    let with =
        |policies: Value| ask(&ratewright, &json!({"attributes": {"ip": "192.0.2.1"}, "policies": policies}));
    assert_eq!(policies(&with(json!([]))), ["api"]);
    assert_eq!(policies(&with(json!(["export"]))), ["api", "export"]);
    assert_eq!(policies(&with(json!(["api", "export", "api"]))), ["api", "export"], "each once");
    for unknown in ["nobody", "token_bucket"] {
        let refused = with(json!([unknown]));
        assert_eq!((refused.status, &refused.json()["parameter"]), (400, &json!("policies")));
    }
}

/// A look returns the decision, and changes nothing: no bucket, no metric, no log line.
#[test]
fn a_look_spends_nothing_and_is_not_counted() {
    let ratewright = Ratewright::start(&policy("api", "{rate: 1/h, burst: 2}", ""));
    let look =
        |cost: u32| ask(&ratewright, &json!({"attributes": {"ip": "192.0.2.1"}, "look": true, "cost": cost}));
    for _ in 0..5 {
        assert_eq!((look(2).status, look(2).remaining("api")), (200, Some(2)));
    }
    assert_eq!(ratewright.decide(&json!({"ip": "192.0.2.1"})).remaining("api"), Some(1));
    let short = look(2);
    assert_eq!((short.status, short.remaining("api")), (429, Some(1)));
    let denied = |name: &str| ratewright.metric(&format!("{name}=\"{}\"}}", "false"));
    assert_eq!(denied(r#"rate_limiter_requests_total{algorithm="TOKEN_BUCKET",allowed"#), 0.0);
    assert_eq!(ratewright.admin("/api/v1/admin/denials").json()["denials"], json!([]));
    let log = ratewright.log();
    assert!(!log.iter().any(|line| line.contains("denied")), "{log:#?}");
}
