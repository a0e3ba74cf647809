//! The other sections: what they come to, and what is wrong with them.

use std::path::Path;

use super::*;

/// The listeners that a file opens.
fn enabled(config: &Config) -> String {
    let listener = |listener: &ListenerConfig| {
        let tls = if listener.tls.is_some() { " with a certificate" } else { "" };
        format!("{}{tls}", listener.address)
    };
    let admin = config.listen.admin.as_ref().map_or("none".to_owned(), listener);
    format!("api {}, admin {admin}", listener(&config.listen.api))
}

#[test]
fn listeners_open_on_loopback_by_default() {
    let check = |text, expected| Files::of(text).check_as(enabled, expected);
    check("", expect!["api 127.0.0.1:8080, admin 127.0.0.1:8082"]);
    check("listen: {api: '[::1]:9000', admin: off}", expect!["api [::1]:9000, admin none"]);
    check(
        "listen: {api: {address: 127.0.0.1:1}, admin: {}}",
        expect!["api 127.0.0.1:1, admin 127.0.0.1:8082"],
    );
    check(
        "listen: {api: 0.0.0.0:80, admin: '[::]:90'}",
        expect![[r#"
            t.yaml:1:15: listen.api is reachable from other machines without protection (0.0.0.0:80); set api.tokens, set tls with client_ca, or listen on 127.0.0.1
            t.yaml:1:34: listen.admin is reachable from other machines without protection ([::]:90); set api.tokens, set tls with client_ca, or listen on 127.0.0.1
        "#]],
    );
    check(
        "listen: {api: 0.0.0.0:80, admin: '[::]:90'}\napi: {tokens: x}",
        expect!["api 0.0.0.0:80, admin [::]:90"],
    );
    check(
        "listen: {api: off, admin: {address: 8082, port: 1}}",
        expect![[r#"
        t.yaml:1:43: unknown setting "port"; known: address, tls, proxy_protocol, open
    "#]],
    );
    check(
        "listen: {api: off, admin: {address: 8082}}",
        expect![[r#"
        t.yaml:1:15: listen.api is "off"; use an address and a port, for example 127.0.0.1:8080
        t.yaml:1:37: listen.admin.address is "8082"; use an address and a port, for example 127.0.0.1:8080
    "#]],
    );
    check(
        "listen: {api: localhost:80, admin: 127.0.0.1}",
        expect![[r#"
        t.yaml:1:15: listen.api is "localhost:80"; use an address and a port, for example 127.0.0.1:8080
        t.yaml:1:36: listen.admin is "127.0.0.1"; use an address and a port, for example 127.0.0.1:8080
    "#]],
    );
}

/// What the file says of stops.
fn stops(config: &Config) -> String {
    let StopConfig { delay, drain_timeout } = config.stop;
    format!("delay {delay:?}, drain {drain_timeout:?}, control {:?}", config.listen.control)
}

#[test]
fn a_stop_takes_less_than_kubernetes_allows_unless_somebody_says_otherwise() {
    let check = |text, expected| Files::of(text).check_as(stops, expected);
    check("", expect!["delay 5s, drain 20s, control None"]);
    check(
        "stop_delay: 0s\ndrain_timeout: 5min\nlisten: {control: /run/r.sock}",
        expect![[r#"delay 0ns, drain 300s, control Some("/run/r.sock")"#]],
    );
    check(
        "stop_delay: 2d\ndrain_timeout: soon\nlisten: {control: ''}",
        expect![[r#"
            t.yaml:1:13: stop_delay must be at most 1d; use for example 30s
            t.yaml:2:16: drain_timeout is "soon"; use a whole number and us, ms, s, min, h or d: 5ms, 60s
            t.yaml:3:19: listen.control is ""; use a file name
        "#]],
    );
}

/// A service whose packaged file was replaced can still be upgraded.
#[test]
fn a_service_of_systemd_has_its_control_socket_in_its_folder() {
    let control = |text: &str, folder: &str| {
        let file = SourceFile { path: "t.yaml".into(), text: text.to_owned(), is_profile: false };
        let mut texts = Fingerprint { files: vec![file], ..Fingerprint::default() };
        let environment = |name: &str| (name == "RUNTIME_DIRECTORY").then(|| folder.to_owned());
        let config = Config::of(&mut texts, &environment).unwrap_or_else(|_| panic!("{text}"));
        config.listen.control
    };
    assert_eq!(control("", "/run/ratewright:/run/b"), Some("/run/ratewright/control.sock".into()));
    assert_eq!(control("listen: {control: /x}", "/run/ratewright"), Some("/x".into()));
    assert_eq!(control("listen: {control: off}", "/run/ratewright"), None);
    assert_eq!(control("", ""), None);
}

/// A listener of a profile that was not laid over the file's would silently stay where it was.
#[test]
fn a_profile_moves_every_listener() {
    let listeners = |config: &Config| {
        let ListenConfig { gateway, api, grpc, admin, control } = &config.listen;
        let admin = admin.as_ref().map(|admin| admin.address);
        format!("{} {} {} {admin:?} {control:?}", gateway.address, api.address, grpc.address)
    };
    let listen = |port: u16| {
        let address = |n| format!("'127.0.0.1:{}'", port + n);
        let [gateway, api, grpc, admin] = [1, 2, 3, 4].map(address);
        format!(
            "listen: {{gateway: {gateway}, api: {api}, grpc: {grpc}, admin: {admin}, control: /run/{port}}}\n"
        )
    };
    Files::of(&listen(10)).profile("p.yaml", &listen(20)).check_as(
        listeners,
        expect![[r#"127.0.0.1:21 127.0.0.1:22 127.0.0.1:23 Some(127.0.0.1:24) Some("/run/20")"#]],
    );
}

/// Every client that reaches Envoy's listener can use up limits, so others reach it only if the file says so.
#[test]
fn envoys_listener_needs_certificates_off_loopback_unless_it_is_open() {
    let folder = tempfile::tempdir().unwrap();
    let (tls, ca) = (certificate(folder.path()), folder.path().join("cert.pem"));
    let with_ca = format!("tls: {{{tls}, client_ca: {}}}", ca.display());
    let grpc = |config: &Config| format!("grpc {}", config.listen.grpc.address);
    let check = |grpc_is: &str, expected| {
        Files::of(&format!("listen: {{grpc: {grpc_is}}}\napi: {{tokens: x}}")).check_as(grpc, expected);
    };
    check("127.0.0.1:1", expect!["grpc 127.0.0.1:1"]);
    check("'[::1]:1'", expect!["grpc [::1]:1"]);
    check(
        "0.0.0.0:1",
        expect![[r#"
            t.yaml:1:16: listen.grpc is reachable from other machines without protection (0.0.0.0:1): every client could use up limits; set tls with client_ca, listen on 127.0.0.1, or set open: true if only your own Envoys can reach it
        "#]],
    );
    check(
        "{address: '[::]:1'}",
        expect![[r#"
            t.yaml:1:16: listen.grpc is reachable from other machines without protection ([::]:1): every client could use up limits; set tls with client_ca, listen on 127.0.0.1, or set open: true if only your own Envoys can reach it
        "#]],
    );
    check(
        "{address: 192.0.2.7:1, open: false}",
        expect![[r#"
            t.yaml:1:16: listen.grpc is reachable from other machines without protection (192.0.2.7:1): every client could use up limits; set tls with client_ca, listen on 127.0.0.1, or set open: true if only your own Envoys can reach it
        "#]],
    );
    check(
        &format!("{{address: 192.0.2.7:1, tls: {{{tls}}}}}"),
        expect![[r#"
            t.yaml:1:16: listen.grpc is reachable from other machines without protection (192.0.2.7:1): every client could use up limits; set tls with client_ca, listen on 127.0.0.1, or set open: true if only your own Envoys can reach it
        "#]],
    );
    check(&format!("{{address: 192.0.2.7:1, {with_ca}}}"), expect!["grpc 192.0.2.7:1"]);
    check("{address: 192.0.2.7:1, open: true}", expect!["grpc 192.0.2.7:1"]);
    check(&format!("{{address: 192.0.2.7:1, tls: {{{tls}}}, open: true}}"), expect!["grpc 192.0.2.7:1"]);
    check(
        "{address: 192.0.2.7:1, open: maybe}",
        expect![[r#"
            t.yaml:1:16: listen.grpc is reachable from other machines without protection (192.0.2.7:1): every client could use up limits; set tls with client_ca, listen on 127.0.0.1, or set open: true if only your own Envoys can reach it
            t.yaml:1:45: listen.grpc.open is "maybe"; use true or false
        "#]],
    );
    let shared = format!("listen: {{grpc: 0.0.0.0:1, {with_ca}}}");
    Files::of(&shared).check_as(grpc, expect!["grpc 0.0.0.0:1"]);
    Files::of("listen: {api: {open: true}, gateway: {open: false}}").check_as(
        grpc,
        expect![[r#"
            t.yaml:1:22: listen.api.open is not supported: open is for listen.grpc only; remove it
            t.yaml:1:45: listen.gateway.open is not supported: open is for listen.grpc only; remove it
        "#]],
    );
}

/// The second of two listeners on one port would not open. Disabled listeners use no port.
#[test]
fn each_listener_has_its_own_port() {
    let check = |text, expected| Files::of(text).check_as(enabled, expected);
    check(
        "listen: {api: 127.0.0.1:1, admin: 127.0.0.1:1}",
        expect![[r#"
        t.yaml:1:35: listen.admin is 127.0.0.1:1, which is already used by listen.api (127.0.0.1:1); give each listener its own port
    "#]],
    );
    check(
        "listen: {api: 127.0.0.1:8082}",
        expect![[r#"
        t.yaml:1:15: listen.admin is 127.0.0.1:8082, which is already used by listen.api (127.0.0.1:8082); give each listener its own port
    "#]],
    );
    check(
        "listen: {api: 127.0.0.1:1, admin: 0.0.0.0:1}\napi: {tokens: x}",
        expect![[r#"
        t.yaml:1:35: listen.admin is 0.0.0.0:1, which is already used by listen.api (127.0.0.1:1); give each listener its own port
    "#]],
    );
    check(
        "listen: {api: 127.0.0.1:1, admin: '[::]:1'}\napi: {tokens: x}",
        expect![[r#"
        t.yaml:1:35: listen.admin is [::]:1, which is already used by listen.api (127.0.0.1:1); give each listener its own port
    "#]],
    );
    check(
        "listen: {api: 127.0.0.1:8081}\nenvoy: {}",
        expect![[r#"
        t.yaml: envoy has no files; write files: [ratelimit.yaml], or a folder
        t.yaml:1:15: listen.grpc is 127.0.0.1:8081, which is already used by listen.api (127.0.0.1:8081); give each listener its own port
    "#]],
    );
    check(
        "listen: {gateway: 127.0.0.1:8080}\nroutes: [{id: r, match: {path: /**}, upstream: http://h}]",
        expect![[r#"
        t.yaml:1:19: listen.api is 127.0.0.1:8080, which is already used by listen.gateway (127.0.0.1:8080); give each listener its own port
    "#]],
    );
    for apart in [
        "listen: {api: 127.0.0.1:1, admin: 127.0.0.2:1}",
        "listen: {api: 127.0.0.1:0, admin: 127.0.0.1:0}",
        "listen: {api: '[::1]:1', admin: 0.0.0.0:1}\napi: {tokens: x}",
        "listen: {api: 127.0.0.1:1, grpc: 127.0.0.1:1, gateway: 127.0.0.1:1}",
    ] {
        assert!(Config::of_text(apart).is_ok(), "{apart}");
    }
}

/// A certificate with its key, in a folder.
fn certificate(folder: &Path) -> String {
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let (cert_file, key_file) = (folder.join("cert.pem"), folder.join("key.pem"));
    std::fs::write(&cert_file, cert.pem()).unwrap();
    std::fs::write(&key_file, signing_key.serialize_pem()).unwrap();
    format!("cert: {}, key: {}", cert_file.display(), key_file.display())
}

#[test]
fn a_listener_may_be_open_to_clients_with_a_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let tls = certificate(folder.path());
    let ca = folder.path().join("cert.pem");
    let check = |text: &str, expected| Files::of(text).check_as(enabled, expected);
    check(
        &format!("listen: {{tls: {{{tls}}}}}"),
        expect!["api 127.0.0.1:8080 with a certificate, admin 127.0.0.1:8082 with a certificate"],
    );
    check(
        &format!("listen: {{api: {{address: 0.0.0.0:1, tls: {{{tls}}}}}}}"),
        expect![[r#"
            t.yaml:1:15: listen.api is reachable from other machines without protection (0.0.0.0:1); set api.tokens, set tls with client_ca, or listen on 127.0.0.1
        "#]],
    );
    check(
        &format!("listen: {{api: {{address: 0.0.0.0:1, tls: {{{tls}, client_ca: {}}}}}}}", ca.display()),
        expect!["api 0.0.0.0:1 with a certificate, admin 127.0.0.1:8082"],
    );
    check(
        "listen: {tls: {key: none.pem}}",
        expect![[r#"
        t.yaml:1:21: listen.tls has no cert; set both cert and key
    "#]],
    );
    check(
        "listen: {tls: {cert: none.pem, key: none.pem, client_ca: ''}}",
        expect![[r#"
            t.yaml:1:58: listen.tls.client_ca is ""; use a file name
        "#]],
    );
    std::fs::write(&ca, "no certificate").unwrap();
    let errors = Config::of_text(&format!("listen: {{tls: {{{tls}}}}}")).err().unwrap();
    let shown = errors[0].to_string().replace(&folder.path().display().to_string(), "FOLDER");
    expect!["t.yaml:1:22: listen.tls: cert contains no PEM certificate; expected a line -----BEGIN CERTIFICATE-----"]
        .assert_eq(&shown);
}

fn store(config: &Config) -> String {
    match &config.store {
        StoreConfig::Memory { n_keys_max } => format!("memory of {n_keys_max} keys"),
        StoreConfig::Redis(redis) => {
            format!("{:?}\n{:?}\n{:?}", redis.servers, redis.settings, redis.failover)
        }
    }
}

#[test]
fn the_store_is_memory_or_one_of_several_kinds_of_redis() {
    let check = |text, expected| Files::of(text).check_as(store, expected);
    check("store: {local: {max_keys: 10}}", expect!["memory of 10 keys"]);
    check(
        "store: {redis: }",
        expect![[r#"
        Servers(127.0.0.1:6379)
        RedisSettings { prefix: "ratelimit", deadline: 5ms, min_ttl: 0ns, readable: true, announces: false, clock: None }
        FailoverSettings { share: Fixed(Share { part: 1, of: 2 }), ttl: None, n_keys_max: 1000000 }"#]],
    );
    check(
        "store:
  redis: {url: 'rediss://u:p@h:1/2', prefix: rate_limiter, deadline: 20ms, min_ttl: 120s, readable: false}
  local: {share: auto, ttl: 5min, max_keys: 10}",
        expect![[r#"
            Servers(h:1)
            RedisSettings { prefix: "rate_limiter", deadline: 20ms, min_ttl: 120s, readable: false, announces: true, clock: None }
            FailoverSettings { share: Auto, ttl: Some(300s), n_keys_max: 10 }"#]],
    );
    check(
        "store: {redis: {url: [redis://a, redis://b]}}",
        expect![[r#"
        Servers(a:6379, b:6379)
        RedisSettings { prefix: "ratelimit", deadline: 5ms, min_ttl: 0ns, readable: true, announces: false, clock: None }
        FailoverSettings { share: Fixed(Share { part: 1, of: 2 }), ttl: None, n_keys_max: 1000000 }"#]],
    );
    check(
        "store: {redis: {url: redis://a, cluster: true}}",
        expect![[r#"
        Servers(a:6379)
        RedisSettings { prefix: "ratelimit", deadline: 5ms, min_ttl: 0ns, readable: true, announces: false, clock: None }
        FailoverSettings { share: Fixed(Share { part: 1, of: 2 }), ttl: None, n_keys_max: 1000000 }"#]],
    );
    check(
        "store: {redis: {url: 'redis://:p@x', sentinel: {master: m, nodes: [redis://a, redis://b]}}}",
        expect![[r#"
            Servers(m by sentinel a:6379, b:6379)
            RedisSettings { prefix: "ratelimit", deadline: 5ms, min_ttl: 0ns, readable: true, announces: false, clock: None }
            FailoverSettings { share: Fixed(Share { part: 1, of: 2 }), ttl: None, n_keys_max: 1000000 }"#]],
    );
}

#[test]
fn errors_of_the_store_are_reported() {
    let check = |text, expected| Files::of(text).check_as(store, expected);
    check(
        "store:
  on_failure: panic
  redis: {url: '', cluster: 1, prefix: '{a}', deadline: 0s, min_ttl: -1s, readable: yes}
  local: {share: 0, ttl: 1, max_keys: 0}",
        expect![[r#"
            t.yaml:2:15: store.on_failure is "panic"; use one of local, open, closed
            t.yaml:3:16: store.redis.url: address 1 is invalid (Redis URL did not parse - InvalidClientConfig); use redis://[user:password@]host[:port][/db], rediss://… or unix:///path
            t.yaml:3:29: store.redis.cluster is "1"; use true or false
            t.yaml:3:40: store.redis.prefix is "{a}"; use 1 to 64 visible characters without spaces and braces
            t.yaml:3:57: store.redis.deadline must be more than 0s and at most 10s; use for example 5ms
            t.yaml:3:70: store.redis.min_ttl is "-1s"; use a whole number and us, ms, s, min, h or d: 5ms, 60s
            t.yaml:3:85: store.redis.readable is "yes"; use true or false
            t.yaml:4:18: store.local.share is "0"; use a decimal above 0 and up to 1 such as 0.5, or `auto` for an equal part per instance
            t.yaml:4:26: store.local.ttl is "1"; use a whole number and us, ms, s, min, h or d: 5ms, 60s
            t.yaml:4:39: store.local.max_keys is "0"; use a whole number from 1 to 4294967295
        "#]],
    );
    check(
        "store: {redis: {url: []}}",
        expect![[r#"
        t.yaml:1:22: store.redis.url: no Redis address; use for example redis://127.0.0.1:6379
    "#]],
    );
    check(
        "store: {redis: {sentinel: {master: m}}}",
        expect![[r#"
        t.yaml:1:36: store.redis.sentinel needs both: master: NAME, and nodes: [redis://…]
    "#]],
    );
    check(
        "store: {redis: {cluster: true, sentinel: {master: m, nodes: redis://a}}}",
        expect![[r#"
        t.yaml: store.redis.sentinel cannot be combined with cluster: true or several urls; remove sentinel, or keep at most one url, with the master's login
    "#]],
    );
    check(
        "store: {redis: {deadline: 11s, tls: {cert: none.pem}}}",
        expect![[r#"
        t.yaml:1:27: store.redis.deadline must be more than 0s and at most 10s; use for example 5ms
        t.yaml:1:44: store.redis.tls has one of cert and key; set both, or none
    "#]],
    );
    check(
        "store: {redis: {tls: {ca: none.pem}}}",
        expect![[r#"
        t.yaml:1:27: store.redis.tls.ca: cannot read none.pem: No such file or directory (os error 2); use a file that Ratewright can read
    "#]],
    );
    check(
        "store: {memory: }",
        expect![[r#"
        t.yaml:1:9: unknown setting "memory"; known: redis, on_failure, local
    "#]],
    );
}

fn clients(config: &Config) -> String {
    let rules = &config.clients.rules;
    let token = rules.token.as_ref().map(|token| format!("claim {} {:?}", token.claim, token.verifier));
    let fetched = if config.clients.jwks.is_some() { "\nkeys are fetched" } else { "" };
    let token = token.map_or(String::new(), |token| format!("\n{token}"));
    format!(
        "{:?} /{} {:?} {:?}{token}{fetched}",
        rules.proxies, rules.ipv6_prefix, rules.case, rules.user_header
    )
}

#[test]
fn nobody_is_believed_unless_somebody_says_so() {
    let check = |text, expected| Files::of(text).check_as(clients, expected);
    check("", expect!["Proxies { trusted: [], source: XForwardedFor } /64 Sensitive None"]);
    check(
        "clients: {trusted_proxies: [10.0.0.0/8, 192.0.2.7], forwarded_by: forwarded, ipv6_prefix: 56, case: insensitive, user: {header: X-User-Id}}",
        expect![[
            r#"Proxies { trusted: [10.0.0.0/8, 192.0.2.7/32], source: Forwarded } /56 Insensitive Some("x-user-id")"#
        ]],
    );
    check(
        "clients: {user: {jwt: {secret: 0123456789abcdef0123456789abcdef, claim: realm.user, issuer: me, audience: [a, b], leeway: 5s, algorithms: HS256}}}",
        expect![[r#"
            Proxies { trusted: [], source: XForwardedFor } /64 Sensitive None
            claim realm.user Verifier { keys: ArcSwapAny([(Hs256, None)]), rules: TokenRules { algorithms: [Hs256], issuers: ["me"], audiences: ["a", "b"], expiry: Required, leeway: 5s }, n_verified: 0 }"#]],
    );
    check(
        "clients: {user: {jwt: {jwks: 'https://example.com/keys', refresh: 1min}}}",
        expect![[r#"
            Proxies { trusted: [], source: XForwardedFor } /64 Sensitive None
            claim sub Verifier { keys: ArcSwapAny([]), rules: TokenRules { algorithms: [Hs256, Rs256, Es256, EdDsa], issuers: [], audiences: [], expiry: Required, leeway: 60s }, n_verified: 0 }
            keys are fetched"#]],
    );
}

#[test]
fn errors_of_clients_are_reported() {
    let check = |text, expected| Files::of(text).check_as(clients, expected);
    check(
        "clients: {user: {header: X-User-Id}}",
        expect![[r#"
            t.yaml:1:26: clients.user.header is read only from trusted proxies, but clients.trusted_proxies is empty; set it
        "#]],
    );
    check(
        "clients: {user: {header: 'X User'}, trusted_proxies: [10/8], ipv6_prefix: 5, forwarded_by: xff, case: maybe}",
        expect![[r#"
            t.yaml:1:26: clients.user.header is "X User"; use a header name, for example X-User-Id
            t.yaml:1:55: clients.trusted_proxies is "10/8"; use a network or an address, for example 10.0.0.0/8 or 192.0.2.7
            t.yaml:1:75: clients.ipv6_prefix is 5; use 16 to 128, for example 64 or 56
            t.yaml:1:92: clients.forwarded_by is "xff"; use one of x-forwarded-for, forwarded
            t.yaml:1:103: clients.case is "maybe"; use one of sensitive, insensitive
        "#]],
    );
    check(
        "clients: {user: {jwt: {}}}",
        expect![[r#"
        t.yaml: clients.user.jwt has no key to verify tokens; set one of secret, public_key and jwks
    "#]],
    );
    check(
        "clients: {user: {jwt: {claim: sub}}}",
        expect![[r#"
        t.yaml:1:31: clients.user.jwt has no key to verify tokens; set one of secret, public_key and jwks
    "#]],
    );
    check(
        "clients:\n  user:\n    jwt:\n      secret: abc\n      public_key: key.pem\n",
        expect![[r#"
        t.yaml:5:19: clients.user.jwt has several keys to verify tokens; keep one of secret, public_key and jwks
    "#]],
    );
    check(
        "clients:\n  user:\n    jwt:\n      secret: 0123456789abcdef0123456789abcde\n",
        expect![[r#"
        t.yaml:4:15: clients.user.jwt.secret: the secret has fewer than 32 bytes, so it could be guessed from a token; use a longer one, for example what `openssl rand -base64 32` prints
    "#]],
    );
    check(
        "clients: {user: {jwt: {public_key: none.pem, algorithms: none, leeway: long}}}",
        expect![[r#"
        t.yaml:1:36: clients.user.jwt.public_key: cannot read none.pem: No such file or directory (os error 2); use a file that Ratewright can read
        t.yaml:1:58: clients.user.jwt.algorithms is "none"; use one of HS256, RS256, ES256, EdDSA
        t.yaml:1:72: clients.user.jwt.leeway is "long"; use a whole number and us, ms, s, min, h or d: 5ms, 60s
    "#]],
    );
    check(
        "clients: {user: {jwt: {jwks: none.json}}}",
        expect![[r#"
        t.yaml:1:30: clients.user.jwt.jwks: cannot read none.json: No such file or directory (os error 2); use a file that Ratewright can read
    "#]],
    );
    check(
        "clients: {user: {jwt: {jwks: 'ftp://example.com/keys'}}}",
        expect![[r#"
        t.yaml:1:30: clients.user.jwt.jwks: the URL of the key set must be http:// or https://, with a host and without a user
    "#]],
    );
}

fn others(config: &Config) -> String {
    format!("{:?}\n{:?}\n{:?}\n{}", config.answers, config.log, config.labels, config.access.has_tokens())
}

#[test]
fn answers_labels_logs_and_tokens() {
    let check = |text, expected| Files::of(text).check_as(others, expected);
    check(
        "",
        expect![[r#"
        AnswersConfig { fields: HeaderStyle { x_ratelimit: true, ietf: true, retry_after: true, limit: Capacity }, problem_type: "about:blank" }
        LogConfig { level: LevelFilter::INFO, modules: [], format: Auto, denials: PerSecond(10) }
        Labels({})
        false"#]],
    );
    check(
        "headers: {families: ietf, retry_after: false, limit: rate}
problem: {type: 'https://example.com/{name}'}
metrics: {labels: {application: shop, version: 2}}
log: {level: warn, modules: {ratewright_store: debug}, format: json, denials: all}
api: {tokens: [a, b]}
",
        expect![[r#"
            AnswersConfig { fields: HeaderStyle { x_ratelimit: false, ietf: true, retry_after: false, limit: Rate }, problem_type: "https://example.com/{name}" }
            LogConfig { level: LevelFilter::WARN, modules: [("ratewright_store", LevelFilter::DEBUG)], format: Json, denials: All }
            Labels({"application": "shop", "version": "2"})
            true"#]],
    );
    check(
        "log: {modules: {ratewright_stor: debug, store: debug, 'ratewright_server::telemetry': debug}}",
        expect![[r#"
            t.yaml:1:34: log.modules: unknown module "ratewright_stor"; did you mean ratewright_store? Known: ratewright, ratewright_gateway, ratewright_listen, ratewright_rls, ratewright_server, ratewright_store, ratewright_tower, h2
            t.yaml:1:48: log.modules: unknown module "store"; known: ratewright, ratewright_gateway, ratewright_listen, ratewright_rls, ratewright_server, ratewright_store, ratewright_tower, h2
        "#]],
    );
    check(
        "headers: {families: []}\nlog: {denials: 1}",
        expect![[r#"
        AnswersConfig { fields: HeaderStyle { x_ratelimit: false, ietf: false, retry_after: true, limit: Capacity }, problem_type: "about:blank" }
        LogConfig { level: LevelFilter::INFO, modules: [], format: Auto, denials: PerSecond(1) }
        Labels({})
        false"#]],
    );
    check(
        "headers: {families: [x], retry_after: maybe, limit: all}
metrics: {labels: {application: x, policy: y, a-b: z}}
log: {level: loud, modules: {x: y}, format: xml, denials: many}
api: {tokens: ['']}
",
        expect![[r#"
            t.yaml:1:22: headers.families is "x"; use one of x-ratelimit, ietf
            t.yaml:1:39: headers.retry_after is "maybe"; use true or false
            t.yaml:1:53: headers.limit is "all"; use one of capacity, rate
            t.yaml:2:44: metrics.labels: label "policy" is used by Ratewright itself; choose another name
            t.yaml:2:52: metrics.labels: label "a-b" is not a valid name; use letters, digits and _, not beginning with a digit or __
            t.yaml:3:14: log.level is "loud"; use one of off, error, warn, info, debug, trace
            t.yaml:3:33: log.modules: unknown module "x"; known: ratewright, ratewright_gateway, ratewright_listen, ratewright_rls, ratewright_server, ratewright_store, ratewright_tower, h2
            t.yaml:3:33: log.modules.x is "y"; use one of off, error, warn, info, debug, trace
            t.yaml:3:45: log.format is "xml"; use one of auto, text, json
            t.yaml:3:59: log.denials is "many"; use `all`, or a maximum number of lines per second, for example 10
            t.yaml:4:16: api.tokens: invalid token; use 1 to 1024 visible ASCII characters without spaces
        "#]],
    );
}
