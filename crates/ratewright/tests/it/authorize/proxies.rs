//! Runs the recipes of docs/guides/proxies.md in the real proxies, except Traefik.

mod excluded_paths;
mod outages;

use std::path::Path;

use ratewright_lab::{Caddy, Envoy, Haproxy, Nginx, free_port, join, skip, wait_until};
use tempfile::TempDir;

use super::{POLICIES, request};
use crate::docs::replaced;
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
    expected: Expected,
    _application: Nginx,
}

/// What differs between the proxies.
#[derive(Clone, Copy)]
struct Expected {
    /// The status of a request with 98 headers.
    many_headers: u16,
    /// The status of a request with 21 kB of headers.
    large_head: u16,
    /// The status of a request with `X_Api_Key` in place of `X-Api-Key`.
    alias: u16,
    /// The status of a request whose `Connection` names forwarding headers.
    named_in_connection: u16,
}

/// nginx drops headers with underscores, so its application cannot read them either.
const NGINX: (&str, Expected) =
    ("auth-request", Expected { many_headers: 500, large_head: 200, alias: 200, named_in_connection: 200 });
const CADDY: (&str, Expected) =
    ("forward-auth", Expected { many_headers: 431, large_head: 200, alias: 400, named_in_connection: 200 });
/// HAProxy has buffers of 16 KiB.
const HAPROXY: (&str, Expected) =
    ("forward-auth", Expected { many_headers: 431, large_head: 400, alias: 400, named_in_connection: 200 });
const ENVOY: (&str, Expected) =
    ("ext-authz", Expected { many_headers: 431, large_head: 200, alias: 400, named_in_connection: 400 });

/// A busy machine must not look like an outage.
const PATIENT: &[(&str, &str)] = &[
    ("timeout = 5000", "timeout = 60000"),
    ("timeout connect 250ms", "timeout connect 20s"),
    ("timeout client 5s", "timeout client 60s"),
    ("timeout server 1s", "timeout server 20s"),
    ("timeout: 0.25s", "timeout: 20s"),
    (" 250ms;", " 20s;"),
    (" 1s;", " 20s;"),
    ("dial_timeout 250ms", "dial_timeout 20s"),
    ("response_header_timeout 1s", "response_header_timeout 20s"),
];

/// The recipes as they are.
const AS_WRITTEN: &[(&str, &str)] = &[];

/// Starts Ratewright, an application, and a proxy in front of the application. `start` gets the proxy's port, and a function that
/// replaces the addresses in a recipe.
fn start_proxy<P>(
    (protocol, expected): (&str, Expected),
    policies: &str,
    timeouts: &[(&str, &str)],
    start: impl FnOnce(u16, &dyn Fn(&str) -> String) -> P,
) -> ProxySetup<P> {
    let page = crate::docs::page("guides/proxies.md");
    let settings =
        page.split("```yaml\n# ratewright.yaml\n").nth(1).unwrap().split("policies:").next().unwrap();
    let settings = settings.replace("auth-request", protocol);
    let ratewright = Ratewright::start(&format!("{settings}{policies}"));
    let application = Nginx::start(1, "", "location / { return 200 'application'; }");
    let port = free_port();
    let (own, app) = (ratewright.address.clone(), application.address());
    let adapt = |recipe: &str| {
        let recipe = recipe.replace("127.0.0.1:8080", &own).replace("127.0.0.1:3000", &app);
        timeouts.iter().fold(recipe, |recipe, (short, long)| recipe.replace(short, long))
    };
    let proxy = start(port, &|recipe| {
        let adapted = adapt(recipe);
        let usual = [":3000", ":8080"].iter().find(|port| adapted.contains(*port));
        assert_eq!(usual, None, "this port would be asked: {adapted}");
        adapted
    });
    let address = format!("127.0.0.1:{port}");
    ProxySetup { proxy, address, ratewright, expected, _application: application }
}

/// The n-th block of a language on the page.
fn recipe(language: &str, n: usize) -> String {
    let page = crate::docs::page("guides/proxies.md");
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
        let wait: u32 = denied.headers["retry-after"].parse().unwrap();
        assert!((1_140..=1_200).contains(&wait), "{denied:?}"); // an hour for three, less what has passed
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
        assert_eq!(answer.status, self.expected.many_headers, "98 headers: {answer:?}");
        assert_eq!(self.ask(8, "GET", "/", "").status, 200, "the proxy is still there");
        for alias in ["X_Api_Key: k\r\n", "X_HTTP_Method_Override: POST\r\n"] {
            let answer = self.ask(8, "OPTIONS", "/aliased", alias);
            // nginx drops such headers, so its application cannot read them either.
            assert_eq!(answer.status, self.expected.alias, "{alias}: {answer:?}");
        }
        for target in ["x:http://a/openapi.json", "x:http://127.0.0.1/api/v1/rate-limit/check?key=victim"] {
            let strange = format!("GET {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
            let answer = http_from([127, 0, 0, 8], &self.address, &strange);
            assert!(answer.status >= 400, "{target} must not reach another path of Ratewright: {answer:?}");
        }
        let large: String = ["a", "b", "c"].map(|name| format!("{name}: {}\r\n", "x".repeat(7_000))).concat();
        let answer = self.ask(8, "GET", "/", &large);
        assert_eq!(answer.status, self.expected.large_head, "21 kB of headers: {answer:?}");

        // A body reaches the application, however it is framed.
        let body = "x".repeat(5_000);
        for (framing, body) in [
            ("Content-Length: 5000\r\n".to_owned(), body.clone()),
            ("Transfer-Encoding: chunked\r\n".to_owned(), format!("1388\r\n{body}\r\n0\r\n\r\n")),
        ] {
            let posted = format!("{}{body}", request("POST", "/upload", &framing));
            let answer = http_from([127, 0, 0, 8], &self.address, &posted);
            assert_eq!((answer.status, &*answer.body), (200, "application"), "{framing}: {answer:?}");
        }
        // A proxy that removes hop-by-hop headers must not remove its own.
        let named = "Connection: X-Forwarded-For, X-Forwarded-Uri, X-Forwarded-Method, X-Original-URL\r\n";
        for n in 0..4 {
            let twice =
                format!("{named}{0}{0}", forged(n).replace("Authorization: Bearer client-token\r\n", ""));
            let answer = self.ask(12, "GET", "/login", &twice);
            let denied = if self.expected.named_in_connection == 200 { 429 } else { 400 };
            assert_eq!(
                answer.status,
                if n < 3 { self.expected.named_in_connection } else { denied },
                "{n}: {answer:?}"
            );
        }
        for host in ["x?", "x#", "free@x", "x/free"] {
            let strange = format!("GET /login HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
            let answer = http_from([127, 0, 0, 2], &self.address, &strange);
            assert!(answer.status >= 400, "Host: {host} must not hide the path: {answer:?}");
        }
    }

    /// What a client gets while Ratewright accepts connections and does nothing else.
    fn status_if_ratewright_hangs(&self) -> u16 {
        self.halt();
        self.ask(9, "GET", "/login", "").status
    }

    /// Stops all threads of Ratewright, as a debugger would.
    fn halt(&self) {
        self.ratewright.signal("STOP");
        let threads = format!("/proc/{}/task", self.ratewright.id());
        let is_stopped = |thread: &Path| {
            let stat = std::fs::read_to_string(thread.join("stat")).unwrap();
            stat.rsplit(") ").next().unwrap().starts_with('T')
        };
        wait_until("all its threads have stopped", || {
            std::fs::read_dir(&threads).unwrap().all(|thread| is_stopped(&thread.unwrap().path()))
        });
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
    Nginx::start(1, &replaced(recipe, "listen 80;", &format!("listen 127.0.0.1:{port};")), "return 404;")
}

#[test]
fn nginx_denies_with_429_and_fails_closed() {
    let setup = start_proxy(NGINX, POLICIES, PATIENT, |port, adapt| nginx(port, &adapt(&recipe("nginx", 0))));
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
    let setup = start_proxy(NGINX, POLICIES, PATIENT, |port, adapt| nginx(port, &adapt(&open_nginx())));
    setup.assert_limits();
    assert_eq!(setup.status_without_ratewright().1, 200);
}

/// The recipe with the optional lines.
fn open_nginx() -> String {
    let last = "        proxy_set_header        X-Ratewright-Token \"\";\n";
    replaced(&recipe("nginx", 0), &format!("{last}    }}\n"), &format!("{last}{}", recipe("nginx", 1)))
}

#[test]
fn caddy_denies_with_429_and_fails_closed() {
    if !Caddy::is_installed() {
        return skip("Caddy is not installed; `make deps` installs it");
    }
    let setup = start_proxy(CADDY, POLICIES, PATIENT, caddy_as_written);
    setup.assert_limits();
    assert_eq!(setup.status_without_ratewright().1, 502);
}

fn caddy(recipe: &str, port: u16, adapt: &dyn Fn(&str) -> String) -> Caddy {
    let site = format!("http://:{port} {{\n\tbind 127.0.0.1");
    Caddy::serve(&replaced(&adapt(recipe), "example.com {", &site), port)
}

fn caddy_as_written(port: u16, adapt: &dyn Fn(&str) -> String) -> Caddy {
    caddy(&recipe("caddy", 0), port, adapt)
}

/// Before the recipe had timeouts, requests hung with Ratewright.
#[test]
fn requests_end_although_ratewright_hangs() {
    let setup =
        start_proxy(NGINX, POLICIES, AS_WRITTEN, |port, adapt| nginx(port, &adapt(&recipe("nginx", 0))));
    assert_eq!(setup.status_if_ratewright_hangs(), 500);
    if !Caddy::is_installed() {
        return skip("Caddy is not installed; `make deps` installs it");
    }
    assert_eq!(start_proxy(CADDY, POLICIES, AS_WRITTEN, caddy_as_written).status_if_ratewright_hangs(), 504);
    let (setup, _folder) = haproxy((&recipe("lua", 0), &recipe("haproxy", 0)), POLICIES, AS_WRITTEN);
    assert_eq!(setup.status_if_ratewright_hangs(), 503);
    if has_envoy() {
        assert_eq!(envoy(&recipe("yaml", 1), POLICIES, AS_WRITTEN).status_if_ratewright_hangs(), 503);
    }
}

/// HAProxy with this script and these rules, and the folder of the script.
fn haproxy(
    (script, rules): (&str, &str),
    policies: &str,
    timeouts: &[(&str, &str)],
) -> (ProxySetup<Haproxy>, TempDir) {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("ratewright.lua");
    let calls = format!("127.0.0.1:{}", free_port());
    let setup = start_proxy(HAPROXY, policies, timeouts, |port, adapt| {
        let adapt = |text: &str| adapt(&replaced(text, "127.0.0.1:8079", &calls));
        std::fs::write(&file, adapt(script)).unwrap();
        let text = replaced(&adapt(rules), "bind :80", &format!("bind 127.0.0.1:{port}"));
        let lua_load = format!("lua-load {}", file.display());
        Haproxy::serve(&replaced(&text, "lua-load ratewright.lua", &lua_load), port)
    });
    (setup, folder)
}

/// Envoy with this configuration.
fn envoy(text: &str, policies: &str, timeouts: &[(&str, &str)]) -> ProxySetup<Envoy> {
    start_proxy(ENVOY, policies, timeouts, |port, adapt| {
        let address = |from: &str| {
            let (host, port) = from.rsplit_once(':').unwrap();
            format!("address: {host}, port_value: {port}")
        };
        let own = format!("address: 127.0.0.1, port_value: {port} ");
        // It waits for a second before it closes a connection on which it has denied by itself.
        let prefix = "stat_prefix: ";
        let closing_soon = format!("delayed_close_timeout: 0.05s\n{:16}{prefix}", "");
        let text = [
            (prefix, closing_soon),
            ("address: 0.0.0.0, port_value: 80 ", own),
            ("address: 127.0.0.1, port_value: 3000", address(&adapt("127.0.0.1:3000"))),
            ("address: 127.0.0.1, port_value: 8080", address(&adapt("127.0.0.1:8080"))),
        ]
        .iter()
        .fold(adapt(text), |text, (written, real)| replaced(&text, written, real));
        Envoy::serve(&text, port)
    })
}

#[test]
fn haproxy_denies_with_429_and_fails_closed() {
    let (setup, _folder) = haproxy((&recipe("lua", 0), &recipe("haproxy", 0)), POLICIES, PATIENT);
    setup.assert_limits();
    let allowed = setup.ask(10, "GET", "/login", "");
    assert!(allowed.headers["ratelimit"].starts_with("\"login\";r=2"), "{allowed:?}");
    assert_eq!(setup.status_without_ratewright().1, 503);
}

/// The script with the optional lines.
fn open_haproxy() -> String {
    let end = "        return\n    end\n    if answer.status == 200";
    let open = recipe("lua", 1);
    replaced(&recipe("lua", 0), end, &format!("{open}    end\n    if answer.status == 200"))
}

#[test]
fn envoy_denies_with_429_and_fails_closed() {
    if !has_envoy() {
        return;
    }
    let setup = envoy(&recipe("yaml", 1), POLICIES, PATIENT);
    setup.assert_limits();
    let allowed = setup.ask(10, "GET", "/login", "");
    assert!(allowed.headers["ratelimit"].starts_with("\"login\";r=2"), "{allowed:?}");
    assert_eq!(setup.status_without_ratewright().1, 503);
}

/// Traefik is not run here: its recipe is only searched for the endpoint.
#[test]
fn the_policy_file_on_the_page_is_valid() {
    let page = crate::docs::page("guides/proxies.md");
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
