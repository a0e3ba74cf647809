//! Which load balancers announce clients, and what they must not do.

use super::*;

/// A file with this listener for the gateway, and a route so that it opens.
fn gateway(listener: &str) -> String {
    format!(
        "listen: {{gateway: {listener}}}\nroutes: [{{id: r, match: {{path: /**}}, upstream: 'http://127.0.0.1:1'}}]\n"
    )
}

/// What the program would say of the PROXY protocol.
fn described(config: &Config) -> String {
    let words = explain(config);
    let lines = words.lines().filter(|line| line.contains("PROXY"));
    lines.map(|line| format!("{line}\n")).collect()
}

#[test]
fn listeners_that_require_the_proxy_protocol_are_described() {
    let check = |text: &str, expected| Files::of(text).check_as(described, expected);
    check(&gateway("127.0.0.1:1"), expect![""]);
    check(
        &gateway("{address: 0.0.0.0:1, proxy_protocol: {from: [10.0.0.0/8, 192.0.2.7, '2001:db8::/32']}}"),
        expect![[r#"
            listen.gateway requires a PROXY protocol header, and accepts connections from 10.0.0.0/8, 192.0.2.7, 2001:db8::/32 only
        "#]],
    );
    check(
        &gateway("{proxy_protocol: {from: 10.0.0.1}}"),
        expect![[r#"
            listen.gateway requires a PROXY protocol header, and accepts connections from 10.0.0.1 only
        "#]],
    );
    // Without routes it does not open.
    check("listen: {gateway: {proxy_protocol: {from: 10.0.0.1}}}", expect![""]);
}

#[test]
fn load_balancers_must_be_named() {
    let check = |text: &str, expected| Files::of(text).check_as(described, expected);
    check(
        &gateway("{proxy_protocol: {}}"),
        expect![[r#"
        t.yaml:1:36: listen.gateway.proxy_protocol.from is empty; name the networks of your load balancers, for example [10.0.0.0/8]
    "#]],
    );
    check(
        &gateway("{proxy_protocol: {from: []}}"),
        expect![[r#"
        t.yaml:1:43: listen.gateway.proxy_protocol.from is empty; name the networks of your load balancers, for example [10.0.0.0/8]
    "#]],
    );
    check(
        &gateway("{proxy_protocol: {from: [10.0.0.1/8, balancer, '::ffff:10.0.0.0/104']}}"),
        expect![[r#"
            t.yaml:1:44: listen.gateway.proxy_protocol.from is "10.0.0.1/8"; write 10.0.0.0/8 for the whole network, or 10.0.0.1 for this address only
            t.yaml:1:56: listen.gateway.proxy_protocol.from is "balancer"; use a network or an address, for example 10.0.0.0/8 or 192.0.2.7
            t.yaml:1:66: listen.gateway.proxy_protocol.from is "::ffff:10.0.0.0/104"; write it as an IPv4 network
        "#]],
    );
    check(
        &gateway("{proxy_protocol: true}"),
        expect![[r#"
        t.yaml:1:36: a section is expected here: lines of name: value, indented further than the line above
    "#]],
    );
    check(
        &gateway("{proxy_protocol: {form: 10.0.0.0/8}}"),
        expect![[r#"
        t.yaml:1:37: unknown setting "form"; did you mean from? Known: from
    "#]],
    );
    Files::of(&gateway("{proxy_protocol: {from: [0.0.0.0/0, '::/0', 10.0.0.0/8]}}"))
        .check_warnings(expect![[r#"
            warning: t.yaml:1:44: listen.gateway.proxy_protocol.from: 0.0.0.0/0 includes every address, so anyone who reaches this listener can forge a client's address; name the networks of your load balancers
            warning: t.yaml:1:55: listen.gateway.proxy_protocol.from: ::/0 includes every address, so anyone who reaches this listener can forge a client's address; name the networks of your load balancers
        "#]]);
    Files::of(&gateway("{proxy_protocol: {from: [10.0.0.0/8]}}")).check_warnings(expect![""]);
}

/// Through a load balancer everybody reaches a listener on loopback.
#[test]
fn a_listener_behind_a_load_balancer_needs_protection() {
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("r.yaml");
    std::fs::write(&rules, "domain: d\n").unwrap();
    let proxy = "proxy_protocol: {from: 127.0.0.1}";
    let check = |text: &str, expected| Files::of(text).check_as(described, expected);
    check(
        &format!("listen: {{api: {{{proxy}}}, admin: {{{proxy}}}, grpc: {{{proxy}}}}}"),
        expect![[r#"
        t.yaml:1:15: listen.api is reachable from other machines without protection (127.0.0.1:8080, with proxy_protocol); set api.tokens, or set tls with client_ca
        t.yaml:1:59: listen.admin is reachable from other machines without protection (127.0.0.1:8082, with proxy_protocol); set api.tokens, or set tls with client_ca
        t.yaml:1:102: listen.grpc is reachable from other machines without protection (127.0.0.1:8081, with proxy_protocol): every client could use up limits; set tls with client_ca, or set open: true if only your own Envoys can reach it
    "#]],
    );
    let envoy = format!("envoy: {{files: {}}}", rules.display());
    check(
        &format!(
            "listen: {{api: {{{proxy}}}, admin: {{{proxy}}}, grpc: {{{proxy}, open: true}}}}\napi: {{tokens: x}}\n{envoy}"
        ),
        expect![[r#"
            listen.api requires a PROXY protocol header, and accepts connections from 127.0.0.1 only
            listen.grpc requires a PROXY protocol header, and accepts connections from 127.0.0.1 only
            listen.admin requires a PROXY protocol header, and accepts connections from 127.0.0.1 only
        "#]],
    );
}

/// A profile may move each listener.
#[test]
fn a_profile_changes_listeners() {
    let grpc = |config: &Config| format!("{} {}", config.listen.grpc.address, config.listen.gateway.address);
    let files = Files::of("listen: {grpc: 127.0.0.1:1, gateway: 127.0.0.1:2}");
    files.profile("p.yaml", "listen: {grpc: 127.0.0.1:3}").check_as(grpc, expect!["127.0.0.1:3 127.0.0.1:2"]);
    let files = Files::of("listen: {api: 127.0.0.1:1}");
    files
        .profile("p.yaml", "listen: {grpc: 127.0.0.1:3}")
        .check_as(grpc, expect!["127.0.0.1:3 127.0.0.1:8000"]);
}
