//! Listeners with TLS, and listeners that other machines can reach.

use std::io::{Read, Write};
use std::net::{IpAddr, TcpStream};
use std::sync::Arc;

use ratewright_lab::{Stream, output, wait_until, write_certificates};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tempfile::TempDir;

use crate::process::{Answer, Ratewright, command, listen, on_free_ports, own_address, run};

const POLICIES: &str = "policies: [{name: api, by: ip, quota: {rate: 1/h, burst: 50}}]\n";

/// A folder with certificates, and a client that trusts their authority.
struct House {
    folder: TempDir,
}

/// A client's certificate.
#[derive(Clone, Copy, PartialEq)]
enum Shows {
    Nothing,
    Certificate,
}

impl House {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        write_certificates(folder.path());
        Self { folder }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// The `tls` section of a listener.
    fn tls(&self, shows: Shows) -> String {
        let [cert, key, ca] = ["server.pem", "server.key", "ca.pem"].map(|name| self.path(name));
        let client_ca =
            if shows == Shows::Certificate { format!(", client_ca: {ca}") } else { String::new() };
        format!("{{cert: {cert}, key: {key}{client_ca}}}")
    }

    /// Starts the program with this text as its file.
    fn start(&self, text: &str) -> Ratewright {
        let file = self.path("ratewright.yaml");
        std::fs::write(&file, format!("{text}{POLICIES}")).unwrap();
        Ratewright::serve(&["-c", &file])
    }

    /// Sends a request over TLS. Returns an error if the server rejects the connection.
    fn ask(&self, address: &str, request: &str, shows: Shows) -> std::io::Result<Answer> {
        let read = |name: &str| std::fs::read(self.folder.path().join(name)).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(&read("ca.pem")).unwrap()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots);
        let config = match shows {
            Shows::Nothing => builder.with_no_client_auth(),
            Shows::Certificate => {
                let chain = vec![CertificateDer::from_pem_slice(&read("client.pem")).unwrap()];
                let key = PrivateKeyDer::from_pem_slice(&read("client.key")).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        };
        let name = ServerName::try_from("localhost").unwrap();
        let connection = ClientConnection::new(Arc::new(config), name).unwrap();
        let mut stream = StreamOwned::new(connection, Stream::from(TcpStream::connect(address)?));
        stream.write_all(request.as_bytes())?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(Answer::parse(&text))
    }

    fn status(&self, address: &str, request: &str, shows: Shows) -> Option<u16> {
        self.ask(address, request, shows).ok().map(|answer| answer.status)
    }
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
}

const CHECK: &str = "/api/v1/rate-limit/check?key=somebody";

/// What a plain client hears.
fn plainly(address: &str, path: &str) -> String {
    let mut socket = Stream::connect(address);
    socket.write_all(get(path).as_bytes()).unwrap();
    let mut heard = Vec::new();
    let _ = socket.read_to_end(&mut heard);
    String::from_utf8_lossy(&heard).into_owned()
}

#[test]
fn one_certificate_serves_all_listeners() {
    let (house, other) = (House::new(), House::new());
    let tls = house.tls(Shows::Nothing);
    let ratewright = house.start(&listen(&[("tls", &tls)]));
    assert!(ratewright.banner.contains("decisions on https://127.0.0.1:"), "{}", ratewright.banner);
    assert!(ratewright.banner.contains("admin on https://127.0.0.1:"), "{}", ratewright.banner);
    for (address, path) in
        [(&ratewright.address, CHECK), (&ratewright.admin, "/metrics"), (&ratewright.admin, "/health")]
    {
        assert_eq!(house.status(address, &get(path), Shows::Nothing), Some(200), "{path}");
        assert_eq!(
            other.status(address, &get(path), Shows::Nothing),
            None,
            "who trusts another does not ask"
        );
        assert!(!plainly(address, path).starts_with("HTTP/1.1 200"), "{path}");
    }
    assert_eq!(ratewright.stop("TERM").code(), Some(0));
}

#[test]
fn each_listener_can_require_client_certificates() {
    let (house, other) = (House::new(), House::new());
    for (asks_api, asks_admin) in [(Shows::Certificate, Shows::Nothing), (Shows::Nothing, Shows::Certificate)]
    {
        let [api, admin] = [asks_api, asks_admin]
            .map(|asks| format!("{{address: '127.0.0.1:0', tls: {}}}", house.tls(asks)));
        let ratewright = house.start(&listen(&[("api", &api), ("admin", &admin)]));
        for (address, path, asks) in
            [(&ratewright.address, CHECK, asks_api), (&ratewright.admin, "/ready", asks_admin)]
        {
            assert_eq!(house.status(address, &get(path), Shows::Certificate), Some(200), "{path}");
            let without = house.status(address, &get(path), Shows::Nothing);
            assert_eq!(without, (asks == Shows::Nothing).then_some(200), "{path}");
        }
    }
    // The commands show one as well.
    let asking = format!("{{address: '127.0.0.1:0', tls: {}}}", house.tls(Shows::Certificate));
    let ratewright = house.start(&listen(&[("admin", &asking)]));
    let admin = format!("https://localhost:{}", ratewright.admin.rsplit(':').next().unwrap());
    let [ca, cert, key] = ["ca.pem", "client.pem", "client.key"].map(|name| house.path(name));
    let top = ["top", "--admin", &admin, "--ca", &ca];
    assert_eq!(run(&top).status.code(), Some(1));
    assert_eq!(run(&[&top[..], &["--cert", &cert, "--cert-key", &key]].concat()).status.code(), Some(0));
    drop(ratewright);
    // A certificate of an authority that is not asked for.
    let ratewright = house.start(&listen(&[("api", &asking)]));
    for name in ["client.pem", "client.key"] {
        std::fs::copy(other.path(name), house.path(name)).unwrap();
    }
    assert_eq!(house.status(&ratewright.address, &get(CHECK), Shows::Certificate), None);
}

/// Certificates can be renewed without a restart. Open connections stay open.
#[test]
fn a_renewed_certificate_is_used_without_a_restart() {
    let (house, renewed) = (House::new(), House::new());
    let tls = house.tls(Shows::Nothing);
    let ratewright = house.start(&listen(&[("tls", &tls)]));
    assert_eq!(house.status(&ratewright.address, &get(CHECK), Shows::Nothing), Some(200));
    for name in ["server.pem", "server.key"] {
        std::fs::copy(renewed.path(name), house.path(name)).unwrap();
    }
    for (address, path) in [(&ratewright.address, CHECK), (&ratewright.admin, "/health")] {
        wait_until("the new one is shown", || {
            renewed.status(address, &get(path), Shows::Nothing) == Some(200)
        });
        assert_eq!(house.status(address, &get(path), Shows::Nothing), None);
    }
    // An invalid key is reported, and the last valid one stays.
    std::fs::write(house.path("server.key"), "no key at all").unwrap();
    ratewright.wait_for_line(&["ERROR", "listen.tls: key contains no PEM private key"]);
    assert_eq!(renewed.status(&ratewright.address, &get(CHECK), Shows::Nothing), Some(200));
}

/// Listeners that other machines can reach at that address.
fn listen_on(address: IpAddr, more: &[(&str, &str)]) -> String {
    let reachable = format!("'{address}:0'");
    listen(&[&[("api", &*reachable), ("admin", &reachable)], more].concat())
}

#[test]
fn an_exposed_listener_without_protection_is_rejected() {
    let folder = TempDir::new().unwrap();
    let refused = |listen: &str, expected_error: &str| {
        let file = folder.path().join("ratewright.yaml");
        std::fs::write(&file, format!("{listen}{POLICIES}")).unwrap();
        let output = run(&["serve", "-c", file.to_str().unwrap()]);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{error}");
        let advice = "; set api.tokens, set tls with client_ca, or listen on 127.0.0.1";
        assert!(error.contains(&format!("{expected_error}{advice}")), "{error}");
    };
    refused(
        &listen(&[("api", "'0.0.0.0:0'")]),
        ":1:39: listen.api is reachable from other machines without protection (0.0.0.0:0)",
    );
    refused(
        &listen(&[("admin", "'[::]:0'")]),
        ":1:82: listen.admin is reachable from other machines without protection ([::]:0)",
    );
    let house = House::new();
    let tls = house.tls(Shows::Nothing);
    refused(
        &listen(&[("api", "'192.0.2.1:0'"), ("tls", &tls)]),
        ":1:39: listen.api is reachable from other machines without protection (192.0.2.1:0)",
    );
}

/// Probes need no token; all other requests do.
#[test]
fn an_exposed_admin_listener_serves_only_health_without_a_token() {
    let Some(address) = own_address() else { return };
    let house = House::new();
    let ratewright = house.start(&format!("{}api: {{tokens: [first, second]}}\n", listen_on(address, &[])));
    for path in ["/health", "/actuator/health", "/ready"] {
        assert_eq!(ratewright.admin(path).status, 200, "{path}");
    }
    for path in [
        "/metrics",
        "/actuator/prometheus",
        "/actuator/info",
        "/api/v1/admin/top",
        "/api/v1/admin/denials",
        "/api/v1/admin/key?policy=api&key=192.0.2.1",
        "/nowhere",
    ] {
        let refused = ratewright.admin(path);
        assert_eq!((refused.status, &*refused.headers["www-authenticate"]), (401, "Bearer"), "{path}");
        assert_eq!(
            refused.json()["detail"],
            "the token is missing; send one that is configured as \"Authorization: Bearer TOKEN\""
        );
        let admitted = ratewright.admin_with(path, "second");
        assert_eq!(admitted.status, if path == "/nowhere" { 404 } else { 200 }, "{path}");
        assert_eq!(ratewright.admin_with(path, "third").status, 401, "{path}");
    }
}

/// Without tokens, a client certificate authorises every request; with tokens, both are needed.
#[test]
fn a_client_certificate_authorises_unless_tokens_are_set() {
    let Some(address) = own_address() else { return };
    let house = House::new();
    let listen = listen_on(address, &[("tls", &house.tls(Shows::Certificate))]);
    let ratewright = house.start(&listen);
    let body = r#"{"attributes": {"ip": "192.0.2.1"}}"#;
    let decide = format!(
        "POST /api/v1/decide HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let calls = [
        (&ratewright.address, get(CHECK)),
        (&ratewright.address, decide.clone()),
        (&ratewright.admin, get("/metrics")),
        (&ratewright.admin, get("/health")),
    ];
    for (address, request) in &calls {
        assert_eq!(house.status(address, request, Shows::Certificate), Some(200), "{request}");
        assert_eq!(house.status(address, request, Shows::Nothing), None, "{request}");
    }
    let ratewright = house.start(&format!("{listen}api: {{tokens: [first]}}\n"));
    let with_token = decide.replace("Host: localhost", "Host: localhost\r\nAuthorization: Bearer first");
    assert_eq!(house.status(&ratewright.address, &decide, Shows::Certificate), Some(401));
    assert_eq!(house.status(&ratewright.address, &with_token, Shows::Certificate), Some(200));
    assert_eq!(house.status(&ratewright.address, &with_token, Shows::Nothing), None);
}

/// A reload adds the first https upstream. The machine's root certificates are loaded then, or the file is rejected.
#[test]
fn a_reload_may_add_an_https_upstream() {
    let house = House::new();
    let encrypted = format!("{{address: '127.0.0.1:0', tls: {}}}", house.tls(Shows::Nothing));
    let server = house.start(&listen(&[("admin", &encrypted)]));
    let route = |upstream: &str| {
        format!("routes: [{{id: r, match: {{path: /**}}, upstream: {upstream}}}]\n{POLICIES}")
    };
    let (before, ca) = (route("http://127.0.0.1:1"), house.path("ca.pem"));
    let url = format!("'https://{}'", server.admin);
    let trusting = Ratewright::start_profile(&before, None, &[("SSL_CERT_FILE", &ca)]);
    trusting.reload(&route(&url));
    assert_eq!(trusting.pass("/health", &[]).status, 200);
    let nowhere = house.path("nowhere");
    let variables = [("SSL_CERT_FILE", nowhere.as_str()), ("SSL_CERT_DIR", nowhere.as_str())];
    let stranger = Ratewright::start_profile(&before, None, &variables);
    stranger.rewrite(&route(&url));
    stranger.wait_for_line(&["ERROR", "policy file rejected: no root certificates found", "upstream.tls.ca"]);
    assert_eq!(stranger.metric("ratewright_reloads_total"), 0.0);
    stranger.reload(&route(&format!("{{servers: {url}, tls: {{ca: {ca}}}}}")));
    assert_eq!(stranger.pass("/health", &[]).status, 200);
}

/// The program must not start without its gateway.
#[test]
fn an_https_upstream_needs_root_certificates_at_the_start() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("ratewright.yaml");
    let route = "routes: [{id: all, match: {path: /**}, upstream: 'https://127.0.0.1:9'}]\n";
    std::fs::write(&file, on_free_ports(route)).unwrap();
    let mut serve = command(&["serve", "-c", file.to_str().unwrap()]);
    let ended = output(serve.env("SSL_CERT_FILE", "/nowhere").env("SSL_CERT_DIR", "/nowhere"));
    assert!(!ended.status.success() && ended.stdout.is_empty(), "{ended:?}");
    assert!(String::from_utf8_lossy(&ended.stderr).contains("install ca-certificates"), "{ended:?}");
}
