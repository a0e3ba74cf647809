//! Paths that a proxy excludes by itself: only plain targets, because applications read others differently.

use super::*;

/// All of these are below /static/ for some path rule, and /login for some application.
const ODD: [&str; 30] = [
    "/static/..;/login",
    "/static/%2e%2e;/login",
    "/static/..%5clogin",
    "/static/..%252flogin",
    "/static/%252e%252e/login",
    "/static/..%00/login",
    "/static/../login",
    "/static/%2e%2e/login",
    "/static/.%2e/login",
    "/static/..%2flogin",
    "/static/%2e%2e%2flogin",
    "/static/./../login",
    "/static//../login",
    "/static/a/../../login",
    "/static/..\\login",
    "/static/%5c..%5clogin",
    "/static/;/../login",
    "/static;/login",
    "/static;x=/../login",
    "/static/a;/../../login",
    "/static/%c0%ae%c0%ae/login",
    "/static/%u002e%u002e/login",
    "/static/..%09/login",
    "/static/..%23/login",
    "/static/..%3f/login",
    "/static/...%2e/login",
    "/static/%25%32%65%25%32%65/login",
    "/login/..%2fstatic/app.css",
    "/login/%2e%2e/static/app.css",
    "/login?/static/app.css",
];

/// Every client has one request.
const ONE_FOR_ALL: &str = "policies: [{name: all, by: ip, quota: {rate: 1/h}}]\nexempt: {paths: []}\n";

impl<P> ProxySetup<P> {
    /// Uses up a client's limit. Then only plain targets below /static/ must pass.
    #[track_caller]
    fn assert_excludes_plain_targets_only(&self) {
        let ask = |target: &str| self.ask(2, "GET", target, "").status;
        assert_eq!([ask("/"), ask("/")], [200, 429]);
        for plain in ["/static/app.css", "/static/a/b-c_d.min.js", "/static/app.css?v=1"] {
            assert_eq!(ask(plain), 200, "{plain}");
        }
        for odd in ODD {
            assert!(ask(odd) >= 400, "{odd} passes");
        }
    }
}

#[test]
fn nginx_excludes_plain_targets_only() {
    let first = "    location = /ratewright {\n        internal;\n";
    let text = replaced(&recipe("nginx", 0), first, &format!("{first}{}", recipe("nginx", 2)));
    start_proxy(NGINX, ONE_FOR_ALL, PATIENT, |port, adapt| nginx(port, &adapt(&text)))
        .assert_excludes_plain_targets_only();
}

#[test]
fn caddy_excludes_plain_targets_only() {
    if !Caddy::is_installed() {
        return skip("Caddy is not installed; `make deps` installs it");
    }
    let text = replaced(&recipe("caddy", 0), "\tforward_auth 127.0.0.1:8080 {\n", &recipe("caddy", 1));
    start_proxy(CADDY, ONE_FOR_ALL, PATIENT, |port, adapt| caddy(&text, port, adapt))
        .assert_excludes_plain_targets_only();
}

#[test]
fn haproxy_excludes_plain_targets_only() {
    let rules = replaced(&recipe("haproxy", 0), "    http-request  lua.ratewright\n", &recipe("haproxy", 1));
    let (setup, _folder) = haproxy((&recipe("lua", 0), &rules), ONE_FOR_ALL, PATIENT);
    setup.assert_excludes_plain_targets_only();
}

#[test]
fn envoy_excludes_plain_targets_only() {
    if has_envoy() {
        let routes =
            "                      routes: [{ match: { prefix: / }, route: { cluster: application } }]\n";
        let text = replaced(&recipe("yaml", 1), routes, &recipe("yaml", 3));
        envoy(&text, ONE_FOR_ALL, PATIENT).assert_excludes_plain_targets_only();
    }
}
