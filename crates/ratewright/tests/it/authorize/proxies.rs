//! Runs the recipes of docs/proxies.md in the real proxies, except Traefik.

use ratewright_lab::{Caddy, Envoy, Haproxy, Nginx, free_port, skip};
use tempfile::TempDir;

use super::{POLICIES, request};
use crate::envoy::has_envoy;
use crate::process::{Answer, Ratewright, http_from};

/// Headers that a client forges to be counted as another client, or not at all. `{n}` differs in each request.
const FORGED: &str = "X-Forwarded-For: 6.6.6.{n}\r\nX-Real-IP: 6.6.6.{n}\r\nForwarded: for=6.6.6.{n}\r\n\
     X-Forwarded-Uri: /free\r\nX-Forwarded-Method: OPTIONS\r\nX-Forwarded-Host: free.example\r\n\
     X-Original-URL: http://free.example/free\r\nX-Original-Method: OPTIONS\r\n\
     X-Ratewright-Token: forged\r\nX-Ratewright-Status: 200\r\n\
     Origin: https://evil.example\r\nSec-Fetch-Site: cross-site\r\nAuthorization: Bearer client-token\r\n";

/// A proxy in front of an application, which asks Ratewright.
struct ProxySetup<P> {
    proxy: P,
    address: String,
    ratewright: Ratewright,
    drops_underscores: bool,
    _application: Nginx,
}

/// Starts Ratewright, an application, and a proxy in front of the application. `start` gets the proxy's port, and a function that
/// replaces the addresses in a recipe.
fn start_proxy<P>(protocol: &str, start: impl FnOnce(u16, &dyn Fn(&str) -> String) -> P) -> ProxySetup<P> {
    let page = crate::docs::page("proxies.md");
    let settings =
        page.split("```yaml\n# ratewright.yaml\n").nth(1).unwrap().split("policies:").next().unwrap();
    let settings = settings.replace("auth-request", protocol);
    let ratewright = Ratewright::start(&format!("{settings}{POLICIES}"));
    let application = Nginx::start(1, "", "location / { return 200 'application'; }");
    let port = free_port();
    let (own, app) = (ratewright.address.clone(), application.address());
    let adapt = |recipe: &str| recipe.replace("127.0.0.1:8080", &own).replace("127.0.0.1:3000", &app);
    let proxy = start(port, &adapt);
    let drops_underscores = protocol == "auth-request"; // nginx
    let address = format!("127.0.0.1:{port}");
    ProxySetup { proxy, address, ratewright, drops_underscores, _application: application }
}

/// The n-th block of a language on the page.
fn recipe(language: &str, n: usize) -> String {
    let page = crate::docs::page("proxies.md");
    let block = page.split(&format!("```{language}\n")).nth(n + 1).expect("the block is on the page");
    block.split("```").next().unwrap().to_owned()
}

impl<P> ProxySetup<P> {
    /// A request of the client with the last byte of its address.
    fn ask(&self, client: u8, method: &str, path: &str, headers: &str) -> Answer {
        http_from([127, 0, 0, client], &self.address, &request(method, path, headers))
    }

    /// Checks what every recipe must do.
    fn assert_limits(&self) {
        let forged = |n: usize| FORGED.replace("{n}", &n.to_string());
        for n in 0..3 {
            let allowed = self.ask(2, "POST", "/login", &format!("{}Content-Length: 0\r\n", forged(n)));
            assert_eq!((allowed.status, &*allowed.body), (200, "application"), "{n}: {allowed:?}");
        }
        let denied = self.ask(2, "POST", "/login", &format!("{}Content-Length: 0\r\n", forged(3)));
        assert_eq!(denied.status, 429, "{denied:?}");
        assert_eq!(denied.headers["retry-after"], "1200", "{denied:?}");
        assert_eq!(denied.headers["content-type"], "application/problem+json", "{denied:?}");
        let body = denied.json();
        assert_eq!((&body["limitType"], &body["instance"]), (&"login".into(), &"/login".into()), "{body}");

        assert_eq!(self.ask(3, "GET", "/login", "").status, 200, "another client");
        assert_eq!(self.ask(2, "GET", "/other", "").status, 200, "another path");
        for (n, path) in ["//login", "/%6Cogin?a=b", "/x/../login", "/login"].iter().enumerate() {
            let answer = self.ask(4, "GET", path, &forged(n));
            assert_eq!(answer.status, if n < 3 { 200 } else { 429 }, "{path}: {answer:?}");
        }
        let by_key = [5, 6, 7].map(|client| self.ask(client, "GET", "/", "X-Api-Key: k\r\n").status);
        assert_eq!(by_key, [200, 200, 429], "the client's own headers are relayed");
        let twice = self.ask(8, "GET", "/", "X-Api-Key: other\r\nX-Api-Key: k\r\n");
        assert_eq!(twice.status, 400, "a second key is relayed too: {twice:?}");
        let many: String = (0..98).map(|n| format!("h{n}: 1\r\n")).collect();
        let answer = self.ask(8, "GET", "/", &many);
        assert!([200, 431].contains(&answer.status), "98 headers: {answer:?}");
        assert_eq!(self.ask(8, "GET", "/", "").status, 200, "the proxy is still there");
        for alias in ["X_Api_Key: k\r\n", "X_HTTP_Method_Override: POST\r\n"] {
            let answer = self.ask(8, "OPTIONS", "/aliased", alias);
            // nginx drops such headers, so its application cannot read them either.
            assert!(answer.status == 400 || self.drops_underscores, "{alias}: {answer:?}");
        }
        for target in ["x:http://a/openapi.json", "x:http://127.0.0.1/api/v1/rate-limit/check?key=victim"] {
            let strange = format!("GET {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
            let answer = http_from([127, 0, 0, 8], &self.address, &strange);
            assert!(answer.status >= 400, "{target} must not reach another path of Ratewright: {answer:?}");
        }
        let large = format!("X-Large: {}\r\nX-Larger: {}\r\n", "x".repeat(7_000), "x".repeat(7_000));
        let answer = self.ask(8, "GET", "/", &format!("{large}X-Largest: {}\r\n", "x".repeat(7_000)));
        assert!([200, 400, 431].contains(&answer.status), "21 kB of headers: {answer:?}");
        for host in ["x?", "x#", "free@x", "x/free"] {
            let strange = format!("GET /login HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
            let answer = http_from([127, 0, 0, 2], &self.address, &strange);
            assert!(answer.status >= 400, "Host: {host} must not hide the path: {answer:?}");
        }
    }

    /// What a client gets without Ratewright.
    fn status_without_ratewright(self) -> (P, u16) {
        let Self { proxy, address, ratewright, _application, .. } = self;
        ratewright.stop("KILL");
        let answer = http_from([127, 0, 0, 9], &address, &request("GET", "/login", ""));
        (proxy, answer.status)
    }
}

fn nginx(port: u16, recipe: &str) -> Nginx {
    Nginx::start(1, &recipe.replace("listen 80", &format!("listen 127.0.0.1:{port}")), "return 404;")
}

#[test]
fn nginx_denies_with_429_and_fails_closed() {
    let setup = start_proxy("auth-request", |port, adapt| nginx(port, &adapt(&recipe("nginx", 0))));
    setup.assert_limits();
    let allowed = setup.ask(10, "GET", "/login", "");
    assert!(allowed.headers["ratelimit"].starts_with("\"login\";r=2"), "{allowed:?}");
    assert_eq!(setup.ask(10, "GET", "/ratewright", "").status, 404, "clients cannot reach the endpoint");
    let long = setup.ask(2, "GET", &format!("/login?{}", "x".repeat(6_000)), "");
    assert_eq!(long.status, 429, "{long:?}");
    assert_eq!(setup.status_without_ratewright().1, 500);
}

#[test]
fn nginx_fails_open_with_the_optional_lines() {
    let (whole, open) = (recipe("nginx", 0), recipe("nginx", 1));
    let last = "        proxy_set_header        X-Ratewright-Token \"\";\n";
    let end = format!("{last}    }}\n");
    assert!(whole.contains(&end));
    let text = whole.replace(&end, &format!("{last}{open}"));
    let setup = start_proxy("auth-request", |port, adapt| nginx(port, &adapt(&text)));
    setup.assert_limits();
    assert_eq!(setup.status_without_ratewright().1, 200);
}

#[test]
fn caddy_denies_with_429_and_fails_closed() {
    if !Caddy::is_installed() {
        return skip("Caddy is not installed; `make deps` installs it");
    }
    let setup = start_proxy("forward-auth", |port, adapt| {
        let site = format!("http://:{port} {{\n\tbind 127.0.0.1");
        Caddy::serve(&adapt(&recipe("caddy", 0)).replace("example.com {", &site), port)
    });
    setup.assert_limits();
    assert_eq!(setup.status_without_ratewright().1, 502);
}

#[test]
fn haproxy_denies_with_429_and_fails_open() {
    let folder = TempDir::new().unwrap();
    let setup = start_proxy("forward-auth", |port, adapt| {
        let file = folder.path().join("ratewright.lua");
        std::fs::write(&file, adapt(&recipe("lua", 0))).unwrap();
        let text = adapt(&recipe("haproxy", 0)).replace("bind :80", &format!("bind 127.0.0.1:{port}"));
        Haproxy::serve(
            &text.replace("lua-load ratewright.lua", &format!("lua-load {}", file.display())),
            port,
        )
    });
    setup.assert_limits();
    let allowed = setup.ask(10, "GET", "/login", "");
    assert!(allowed.headers["ratelimit"].starts_with("\"login\";r=2"), "{allowed:?}");
    assert_eq!(setup.status_without_ratewright().1, 200);
}

#[test]
fn envoy_denies_with_429_and_fails_open() {
    if !has_envoy() {
        return;
    }
    let setup = start_proxy("ext-authz", |port, adapt| {
        let page = recipe("yaml", 1);
        let address = |from: &str| {
            let (host, port) = from.rsplit_once(':').unwrap();
            format!("address: {host}, port_value: {port}")
        };
        let text = page
            .replace("address: 0.0.0.0, port_value: 80 ", &format!("address: 127.0.0.1, port_value: {port} "))
            .replace("address: 127.0.0.1, port_value: 3000", &address(&adapt("127.0.0.1:3000")))
            .replace("address: 127.0.0.1, port_value: 8080", &address(&adapt("127.0.0.1:8080")));
        Envoy::serve(&text, port)
    });
    setup.assert_limits();
    let allowed = setup.ask(10, "GET", "/login", "");
    assert!(allowed.headers["ratelimit"].starts_with("\"login\";r=2"), "{allowed:?}");
    assert_eq!(setup.status_without_ratewright().1, 200);
}

/// Traefik is not run here: its recipe is only searched for the endpoint.
#[test]
fn the_policy_file_on_the_page_is_valid() {
    let page = crate::docs::page("proxies.md");
    let file = page.split("```yaml\n").nth(1).unwrap().split("```").next().unwrap();
    assert_eq!(ratewright::parse_policy_file(file), Ok(()), "{file}");
    for protocol in ["forward-auth", "ext-authz"] {
        assert_eq!(
            ratewright::parse_policy_file(&file.replace("auth-request", protocol)),
            Ok(()),
            "{protocol}"
        );
    }
    assert!(recipe("yaml", 2).contains("http://127.0.0.1:8080/api/v1/authorize"));
}
