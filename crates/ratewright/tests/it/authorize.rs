//! Forward authentication: proxies ask whether a client's request may pass.

mod interactions;
mod proxies;

use ratewright_lab::{foreign, output, write_certificates};

use crate::process::{Answer, Ratewright, http, http_from, run};

/// Three requests for each address on `/login`, and two for each key.
const POLICIES: &str = "
policies:
- {name: login, when: {path: /login}, by: ip, quota: {rate: 3/h}}
- {name: per-key, by: 'header:X-Api-Key', quota: {rate: 2/h}}
";

/// Starts Ratewright with this protocol; 127.0.0.1 is trusted.
fn start(protocol: &str, more: &str) -> Ratewright {
    let settings =
        format!("clients: {{trusted_proxies: [127.0.0.1]}}\napi: {{authorize: {protocol}}}\n{more}");
    Ratewright::start(&format!("{settings}{POLICIES}"))
}

/// Sends an authorization request. Each header line ends with CRLF.
fn call(ratewright: &Ratewright, method: &str, path: &str, headers: &str) -> Answer {
    http(&ratewright.address, &request(method, path, headers))
}

fn request(method: &str, path: &str, headers: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nHost: t\r\n{headers}Connection: close\r\n\r\n")
}

/// The headers that Traefik documents for a POST to this path, and those it relays from the client.
fn traefik(client: &str, path: &str) -> String {
    format!(
        "X-Forwarded-Method: POST\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: api.example.com\r\n\
         X-Forwarded-Uri: {path}\r\nX-Forwarded-For: {client}\r\nX-Forwarded-Server: edge\r\nX-Real-Ip: {client}\r\n\
         Authorization: Bearer client-token\r\nOrigin: https://app.example.com\r\nSec-Fetch-Site: cross-site\r\n\
         Cookie: a=b\r\nUser-Agent: curl/8\r\n"
    )
}

/// Traefik is not installed on the test machines; these headers come from its documentation.
#[test]
fn with_traefiks_headers_the_fourth_request_gets_429() {
    let ratewright = start("forward-auth", "");
    let ask = |client: &str, path| call(&ratewright, "GET", "/api/v1/authorize", &traefik(client, path));
    for remaining in ["2", "1", "0"] {
        let allowed = ask("192.0.2.7", "/login?next=/");
        assert_eq!((allowed.status, &*allowed.body), (200, ""), "{allowed:?}");
        assert_eq!(allowed.headers["x-ratelimit-remaining"], remaining);
        assert_eq!(allowed.headers["cache-control"], "no-store");
        assert!(allowed.headers["ratelimit"].starts_with(&format!("\"login\";r={remaining}")));
    }
    let denied = ask("192.0.2.7", "/login");
    assert_eq!(denied.status, 429, "{denied:?}");
    assert!((1_140..=1_200).contains(&denied.headers["retry-after"].parse().unwrap()), "{denied:?}");
    assert_eq!(denied.headers["content-type"], "application/problem+json");
    let body = denied.json();
    assert_eq!((&body["limitType"], &body["instance"]), (&"login".into(), &"/login".into()));
    assert_eq!(body["correlationId"], denied.headers["x-correlation-id"]);
    assert!(!denied.headers.contains_key("x-ratewright-status"));
    assert_eq!(ask("192.0.2.8", "/login").status, 200, "another client");
    assert_eq!(ask("192.0.2.7", "/other").status, 200, "another path");
    let call = call(&ratewright, "GET", "/api/v1/authorize?status=403", &traefik("192.0.2.7", "/login"));
    assert_eq!(call.status, 429, "Caddy appends the client's query, which must not choose the status");
    let metrics =
        http(&ratewright.admin, &request("GET", "/metrics", "").replace("Host: t", "Host: localhost")).body;
    let counted = metrics.lines().find(|line| line.contains("entrypoint=\"authorize\""));
    assert!(counted.is_some(), "the metrics name the entrypoint: {metrics}");
}

#[test]
fn authorize_and_decide_share_buckets() {
    let ratewright = start("forward-auth", "");
    let decide = |path: &str| {
        let body = format!(
            r#"{{"attributes": {{"ip": "192.0.2.7", "method": "POST", "path": "{path}", "host": "api.example.com"}}}}"#
        );
        let head =
            format!("POST /api/v1/decide HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n", body.len());
        http(&ratewright.address, &format!("{head}Connection: close\r\n\r\n{body}")).status
    };
    assert_eq!([decide("/login"), decide("/login")], [200, 200]);
    let ask = || call(&ratewright, "GET", "/api/v1/authorize", &traefik("192.0.2.7", "/login")).status;
    assert_eq!([ask(), ask()], [200, 429]);
    assert_eq!(decide("/login"), 429);
}

/// Every spelling of a path that an upstream may read as `/login` counts as `/login`.
#[test]
fn equivalent_paths_share_one_limit() {
    let ratewright = start("forward-auth", "");
    for (n, path) in
        ["//login", "/%6Cogin", "/x/../login", "/login/", "/./login", "/login;x=1", "/login?x", "/login"]
            .iter()
            .enumerate()
    {
        let answer = call(&ratewright, "GET", "/api/v1/authorize", &traefik("192.0.2.7", path));
        assert_eq!(answer.status, if n < 3 { 200 } else { 429 }, "{path}");
    }
}

#[test]
fn the_status_parameter_overrides_the_status_of_rejections() {
    let ratewright = start("auth-request", "");
    let ask = |query: &str, client: &str, url: &str| {
        let headers = format!(
            "X-Original-Method: POST\r\nX-Original-URL: {url}\r\nX-Forwarded-For: {client}\r\nX-Request-Id: r-1\r\n"
        );
        call(&ratewright, "GET", &format!("/api/v1/authorize{query}"), &headers)
    };
    let login = "http://example.com/login";
    for status in [403, 401] {
        let (query, client) = (format!("?status={status}"), format!("192.0.2.{}", status % 100));
        (0..3).for_each(|_| assert_eq!(ask(&query, &client, login).status, 200));
        let denied = ask(&query, &client, login);
        assert_eq!((denied.status, &*denied.headers["x-ratewright-status"]), (status, "429"));
        assert!((1_140..=1_200).contains(&denied.headers["retry-after"].parse().unwrap()), "{denied:?}");
        assert_eq!(denied.headers["x-ratewright-problem"], denied.body);
        assert_eq!(denied.json()["status"], 429);
    }
    let long = format!("{login}?{}", "x".repeat(3_000));
    assert_eq!(ask("?status=403", "192.0.2.3", &long).json()["instance"], "/login");
    let spelled = ask("?status=403", "192.0.2.3", "http://example.com/%C3%BC/../login");
    assert!(spelled.headers["x-ratewright-problem"].is_ascii(), "{spelled:?}");
    let split = ask("?status=403", "192.0.2.9", "http://x?/login");
    assert_eq!((split.status, &*split.headers["x-ratewright-status"]), (403, "400"), "{split:?}");
    let relative = ask("?status=403", "192.0.2.9", "/login");
    assert_eq!(relative.status, 400, "an error of the proxy keeps its status: {relative:?}");
    for query in ["?status=200", "?status=429", "?status=403&status=403", "?x=1", "?status"] {
        assert_eq!(ask(query, "192.0.2.9", login).status, 400, "{query}");
    }
}

/// With `ext-authz` the query string is the client's, so it must not choose the status.
#[test]
fn ext_authz_takes_method_and_path_from_the_authorization_request() {
    let ratewright = start("ext-authz", "");
    let from = "X-Forwarded-For: 6.6.6.6, 192.0.2.7\r\n";
    let ask = |method: &str, path: &str| call(&ratewright, method, &format!("/api/v1/authorize{path}"), from);
    for method in ["GET", "DELETE", "OPTIONS", "PROPFIND"] {
        assert_eq!(ask(method, "/free?status=403").status, 200, "{method}");
    }
    assert_eq!([ask("POST", "/login").status, ask("PUT", "/login/").status], [200, 200]);
    assert_eq!(ask("GET", "//login").status, 200);
    let denied = ask("GET", "/login?status=403");
    assert_eq!((denied.status, denied.headers.get("x-ratewright-status")), (429, None));
    for none in ["", "?x", "x/login"] {
        let answer = ask("GET", none);
        assert_eq!(answer.status, if none.starts_with('x') { 404 } else { 400 }, "{none}: {answer:?}");
    }
    assert_eq!(ask("GET", "/").status, 200);
}

#[test]
fn a_missing_or_repeated_header_gets_400_and_charges_nothing() {
    let ratewright = start("forward-auth", "");
    let headers = traefik("192.0.2.7", "/login");
    for name in ["X-Forwarded-Method", "X-Forwarded-Uri", "X-Forwarded-Host", "X-Forwarded-For"] {
        let line = headers.split_inclusive("\r\n").find(|line| line.starts_with(name)).unwrap();
        for (headers, what) in
            [(headers.replace(line, ""), "missing or empty"), (format!("{headers}{line}"), "repeated")]
        {
            let answer = call(&ratewright, "GET", "/api/v1/authorize", &headers);
            assert_eq!(answer.status, 400, "{name} {what}");
            let detail = answer.json()["detail"].as_str().unwrap().to_owned();
            let begin = format!("header {} is {what}; the proxy must", name.to_lowercase());
            let no_host = what == "missing or empty" && detail == "the request has no Host; send one";
            assert!(detail.starts_with(&begin) || (name == "X-Forwarded-Host" && no_host), "{detail}");
        }
    }
    let left = call(&ratewright, "GET", "/api/v1/authorize", &headers);
    assert_eq!(left.headers["x-ratelimit-remaining"], "2", "nothing was charged before");
}

#[test]
fn untrusted_callers_get_401() {
    let config = format!("api: {{authorize: forward-auth, tokens: [s3cret-token-1]}}{POLICIES}");
    let ratewright = Ratewright::start(&config);
    let headers = traefik("192.0.2.7", "/login");
    let ask = |more: &str| call(&ratewright, "GET", "/api/v1/authorize", &format!("{headers}{more}"));
    for untrusted in [
        "",
        "X-Ratewright-Token: wrong\r\n",
        "X-Ratewright-Token: \r\n",
        "X-Ratewright-Token: s3cret-token-1\r\nX-Ratewright-Token: s3cret-token-1\r\n",
    ] {
        let answer = ask(untrusted);
        assert_eq!(answer.status, 401, "loopback is not trusted by itself: {untrusted:?}");
        assert!(!answer.body.contains("s3cret"), "{answer:?}");
    }
    let bearer = traefik("192.0.2.7", "/login").replace("client-token", "s3cret-token-1");
    assert_eq!(
        call(&ratewright, "GET", "/api/v1/authorize", &bearer).status,
        401,
        "Authorization is the client's"
    );
    assert_eq!(ask("X-Ratewright-Token: s3cret-token-1\r\n").headers["x-ratelimit-remaining"], "2");
    let log = ratewright.log();
    assert!(log.iter().any(|line| line.contains("authorization request rejected")), "{log:?}");

    let near = start("forward-auth", "");
    assert_eq!(call(&near, "GET", "/api/v1/authorize", &headers).status, 200);
    let far = http_from([127, 0, 0, 2], &near.address, &request("GET", "/api/v1/authorize", &headers));
    assert_eq!(far.status, 401, "trusted_proxies lists 127.0.0.1 only");
    assert!(far.json()["detail"].as_str().unwrap().contains("127.0.0.2"), "{far:?}");
}

#[test]
fn a_proxy_on_another_machine_needs_no_bearer_token() {
    let Some(own) = crate::process::own_address() else { return };
    let config = format!(
        "listen: {{gateway: '127.0.0.1:0', api: '{own}:0', grpc: '127.0.0.1:0', admin: 'off'}}\nclients: {{trusted_proxies: ['{own}']}}\n\
         api: {{authorize: forward-auth, tokens: [s3cret-token-1]}}{POLICIES}"
    );
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("ratewright.yaml");
    std::fs::write(&file, config).unwrap();
    let ratewright = Ratewright::serve(&["-c".as_ref(), file.as_path()]);
    let headers = traefik("192.0.2.7", "/login");
    assert_eq!(call(&ratewright, "GET", "/api/v1/authorize", &headers).status, 200);
    let check = call(&ratewright, "GET", "/api/v1/rate-limit/check", "");
    assert_eq!(check.status, 401, "other calls still need a token");
}

#[test]
fn a_client_certificate_authenticates_a_proxy() {
    let folder = tempfile::TempDir::new().unwrap();
    write_certificates(folder.path());
    let path = folder.path().display();
    let config = format!(
        "listen: {{gateway: '127.0.0.1:0', grpc: '127.0.0.1:0', admin: 'off', \
         api: {{address: '127.0.0.1:0', tls: {{cert: {path}/server.pem, key: {path}/server.key, client_ca: {path}/ca.pem}}}}}}\n\
         api: {{authorize: forward-auth}}{POLICIES}"
    );
    let file = folder.path().join("ratewright.yaml");
    std::fs::write(&file, config).unwrap();
    let ratewright = Ratewright::serve(&["-c".as_ref(), file.as_path()]);
    let mut curl = foreign("curl");
    curl.args(["-q", "-s", "-o", "/dev/null", "-w", "%{http_code}", "--cacert"])
        .arg(folder.path().join("ca.pem"));
    curl.arg("--cert")
        .arg(folder.path().join("client.pem"))
        .arg("--key")
        .arg(folder.path().join("client.key"));
    for line in traefik("192.0.2.7", "/login").lines() {
        curl.args(["-H", line]);
    }
    let port = ratewright.address.rsplit_once(':').unwrap().1;
    curl.arg(format!("https://localhost:{port}/api/v1/authorize"));
    let output = output(&mut curl);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "200", "{output:?}");
}

/// Any 200 means "allowed", and a client of Caddy can choose the path.
#[test]
fn an_authorization_request_to_another_path_gets_400() {
    let ratewright = start("forward-auth", "");
    for headers in [&*traefik("192.0.2.7", "/login"), "X-Original-URL: http://a/\r\n"] {
        for path in
            ["/openapi.json", "/api/v1/rate-limit/check", "/healthcheck", "http://a/openapi.json", "/nowhere"]
        {
            let answer = call(&ratewright, "GET", path, headers);
            assert_eq!(answer.status, 400, "{path}: {answer:?}");
        }
    }
    let host =
        format!("GET /openapi.json HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", ratewright.address);
    assert_eq!(http(&ratewright.address, &host).status, 200, "others are not concerned");
}

/// The header of `clients.user.header` counts from every caller that is trusted, also by a token.
#[test]
fn a_proxy_with_a_token_names_the_user() {
    let config = "clients: {trusted_proxies: [10.0.0.1], user: {header: X-User-Id}}
api: {authorize: forward-auth, tokens: [s3cret-token-1]}
policies: [{name: per-user, by: user, quota: {rate: 2/h}}]
";
    let ratewright = Ratewright::start(config);
    let headers =
        format!("{}X-Ratewright-Token: s3cret-token-1\r\nX-User-Id: anna\r\n", traefik("192.0.2.7", "/"));
    let statuses = [0; 3].map(|_| call(&ratewright, "GET", "/api/v1/authorize", &headers).status);
    assert_eq!(statuses, [200, 200, 429]);
}

/// A web page in a browser on the proxy's machine cannot spend limits: the preflight gets no permission.
#[test]
fn a_cors_preflight_is_rejected() {
    for protocol in ["forward-auth", "auth-request", "ext-authz"] {
        let ratewright = start(protocol, "");
        let headers = "Origin: https://evil.example\r\nAccess-Control-Request-Method: GET\r\n\
             Access-Control-Request-Headers: x-forwarded-for\r\n";
        let answer = call(&ratewright, "OPTIONS", "/api/v1/authorize/login", headers);
        assert_eq!(answer.status, 400, "{protocol}");
        let permission = answer.headers.keys().find(|name| name.starts_with("access-control-allow"));
        assert_eq!(permission, None, "{protocol}");
        let plain = call(&ratewright, "GET", "/api/v1/authorize/login", "Origin: https://evil.example\r\n");
        assert_eq!(plain.status, 400, "{protocol}: a simple request lacks the headers");
    }
}

#[test]
fn authorize_is_off_by_default_and_a_reload_turns_it_on_and_off() {
    let ratewright = Ratewright::start(&format!("clients: {{trusted_proxies: [127.0.0.1]}}{POLICIES}"));
    let ask = || call(&ratewright, "GET", "/api/v1/authorize", &traefik("192.0.2.7", "/login"));
    let off = ask();
    assert_eq!(off.status, 404);
    assert!(off.json()["detail"].as_str().unwrap().contains("set api.authorize"), "{off:?}");
    let file = |protocol: &str| {
        format!("clients: {{trusted_proxies: [127.0.0.1]}}\napi: {{authorize: {protocol}}}{POLICIES}")
    };
    ratewright.rewrite(&file("forward-auth"));
    ratewright_lab::wait_until("the reload takes effect", || ask().status == 200);
    ratewright.rewrite(&file("off"));
    ratewright_lab::wait_until("the reload takes effect", || ask().status == 404);
}

#[test]
fn policies_by_header_apply_and_a_repeated_key_header_gets_400() {
    let ratewright = start("forward-auth", "");
    let ask = |more: &str| {
        call(&ratewright, "GET", "/api/v1/authorize", &format!("{}{more}", traefik("192.0.2.7", "/")))
    };
    let statuses = ["X-Api-Key: k\r\n"; 3].map(|key| ask(key).status);
    assert_eq!(statuses, [200, 200, 429]);
    assert_eq!(ask("X-Api-Key: other\r\nX-Api-Key: k\r\n").status, 400, "a repeated key is ambiguous");
    assert_eq!(ask("X-Api-Key: new\r\n").status, 200);
}

#[test]
fn check_lists_policies_that_do_not_apply() {
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("ratewright.yaml");
    let config = "
clients: {trusted_proxies: [10.0.0.1], user: {header: X-User-Id}}
api: {authorize: auth-request}
routes: [{id: r, match: {path: /**}, upstream: 'http://127.0.0.1:1', policies: [on-route]}]
policies:
- {name: login, when: {path: /login}, by: ip, quota: {rate: 3/h}, count: {status: [401]}}
- {name: upload, by: ip, quota: {rate: 1000000/h}, cost: {bytes: request}}
- {name: busy, by: ip, in_flight: 5}
- {name: on-route, by: ip, quota: {rate: 3/h}}
";
    std::fs::write(&file, config).unwrap();
    let output = run(&["check", file.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    for expected in [
        "/api/v1/authorize reads the client's request from X-Original-Method, X-Original-URL and X-Forwarded-For",
        "count is ignored, because Ratewright does not see the response: login\n",
        "every request is denied, because the body length is unknown: upload\n",
        "in_flight is not applied, because Ratewright does not see when a request ends: busy\n",
        "not applied, because only routes use it: on-route\n",
        "configure the proxy to replace x-user-id",
    ] {
        assert!(said.contains(expected), "{expected:?} is missing: {said}");
    }
    std::fs::write(&file, "api: {authorize: ext-authz}\n").unwrap();
    let output = run(&["check", file.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("api.authorize: no proxy is trusted"), "{said}");
    let config = "
clients: {trusted_proxies: [0.0.0.0/0]}
api: {authorize: ext-authz}
policies:
- {name: slow, by: ip, quota: {algorithm: leaky_bucket, leak: queue, rate: 3/h}}
- {name: routed, by: [route, ip], quota: {rate: 3/h}}
";
    std::fs::write(&file, config).unwrap();
    let output = run(&["check", file.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    for expected in [
        "denies instead of delaying (leak: queue): slow\n",
        "without its route, because proxies send none (by: route): routed\n",
        "clients.trusted_proxies contains 0.0.0.0/0, so every caller is trusted",
    ] {
        assert!(said.contains(expected), "{expected:?} is missing: {said}");
    }
}
