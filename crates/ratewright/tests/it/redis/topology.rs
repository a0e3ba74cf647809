//! The program with Redis Cluster, with Sentinel, and over TLS as a Redis user.

use std::collections::BTreeSet;

use ratewright_lab::{Cluster, Redis, Sentinel, free_port, wait_until, write_certificates};

use super::{SLOW, basis};
use crate::process::Ratewright;

/// Starts the program with these settings in `store.redis`.
fn start(redis: &str) -> Ratewright {
    let ratewright = Ratewright::start(&format!("store: {{redis: {{deadline: 10s, {redis}}}}}\n{SLOW}"));
    ratewright.wait_for_redis();
    ratewright
}

/// Spends one of a key's ten units, and returns what remains in Redis.
#[track_caller]
fn spend(ratewright: &Ratewright, key: &str) -> u64 {
    let answer = ratewright.get(&format!("check?key={key}")).json();
    assert_eq!(answer["basis"], "shared", "{answer}");
    answer["remaining"].as_u64().unwrap()
}

/// C9: two instances share limits on a Cluster, across all its masters, and keep them when a master dies.
#[test]
fn c9_instances_share_limits_on_a_cluster_and_keep_them_when_a_master_dies() {
    let mut cluster = Cluster::start();
    let urls = cluster.urls();
    // A Cluster is configured by several URLs, or by one URL and `cluster: true`.
    let one = start(&format!("url: [{}]", urls.join(", ")));
    let two = start(&format!("url: '{}', cluster: true", urls[0]));
    for n in 0..30 {
        let key = format!("user:{n}");
        assert_eq!([spend(&one, &key), spend(&two, &key), spend(&one, &key)], [9, 8, 7], "{key}");
    }
    let keys = |node: &Redis| {
        let keys = node.cli(&["--scan", "--pattern", "ratelimit:token_bucket:*"]);
        keys.lines().map(str::to_owned).collect::<BTreeSet<_>>()
    };
    let is_master = |node: &&Redis| node.cli(&["ROLE"]).starts_with("master");
    let masters: Vec<_> = cluster.nodes.iter().filter(is_master).map(keys).collect();
    assert_eq!(masters.len(), 3);
    assert!(masters.iter().all(|keys| !keys.is_empty()), "every master has keys: {masters:?}");
    assert_eq!(masters.iter().map(BTreeSet::len).sum::<usize>(), 30, "{masters:?}");

    let key = "ratelimit:token_bucket:{user:1}";
    let master = cluster.master_of(key).unwrap();
    wait_until("the replica has caught up", || cluster.nodes[master].is_replicated());
    cluster.nodes[master].kill();
    wait_until("the replica serves the slot", || cluster.master_of(key).is_some_and(|node| node != master));
    // Until a client of the Cluster has learned who serves the slot now, a decision may be local.
    let spend_again = |ratewright: &Ratewright| {
        let mut remaining = None;
        wait_until("the program uses the new master", || {
            let answer = ratewright.get("check?key=user:1").json();
            remaining = answer["remaining"].as_u64().filter(|_| answer["basis"] == "shared");
            remaining.is_some()
        });
        remaining.unwrap()
    };
    assert_eq!([spend_again(&one), spend_again(&two)], [6, 5], "replicated charges survive the failover");
}

/// C9: with Sentinel, the program finds the master, and the new master after a failover.
#[test]
fn c9_the_program_follows_a_sentinel_to_the_new_master() {
    let mut group = Sentinel::start();
    let (master, sentinel) = (group.master(), group.sentinel.url());
    let ratewright = start(&format!("sentinel: {{master: {}, nodes: ['{sentinel}']}}", Sentinel::MASTER));
    assert_eq!([spend(&ratewright, "c"), spend(&ratewright, "c")], [9, 8]);
    wait_until("the replica has caught up", || group.servers[master].is_replicated());
    group.servers[master].kill();
    wait_until("Sentinel has promoted the replica", || group.master() != master);
    wait_until("the program uses the new master", || basis(&ratewright, "c") == "shared");
    assert_eq!(spend(&ratewright, "c"), 7, "replicated charges survive the failover");
}

/// C13: Redis requires TLS, a client certificate and a user's password. The program prints neither the password nor the
/// private key.
#[test]
fn c13_the_program_uses_tls_a_client_certificate_and_a_user() {
    let folder = tempfile::TempDir::new().unwrap();
    write_certificates(folder.path());
    let file = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let tls_port = free_port().to_string();
    let [cert, key, ca] = ["server.pem", "server.key", "ca.pem"].map(file);
    let options = [
        ["--tls-port", &tls_port],
        ["--tls-cert-file", &cert],
        ["--tls-key-file", &key],
        ["--tls-ca-cert-file", &ca],
        ["--tls-auth-clients", "yes"],
    ];
    let user = "--user limiter on >s3cret ~ratelimit:* +@all --user default off";
    let options: Vec<_> = options.as_flattened().iter().copied().chain(user.split(' ')).collect();
    let server = Redis::start_with(&options);
    let with = |password: &str, client_cert: &str| {
        let url = format!("rediss://limiter:{password}@127.0.0.1:{tls_port}");
        format!("url: '{url}', tls: {{ca: '{ca}'{client_cert}}}")
    };
    let client_cert = format!(", cert: '{}', key: '{}'", file("client.pem"), file("client.key"));
    let [one, two] = [start(&with("s3cret", &client_cert)), start(&with("s3cret", &client_cert))];
    assert_eq!([spend(&one, "c"), spend(&two, "c")], [9, 8]);
    assert!(!one.banner.contains("s3cret"), "{}", one.banner);
    // Redis counts an attempt that fails, in one place or the other, before the program notes it. At the fourth one the program has
    // noted the first, also if one attempt makes two connections.
    let wrong_passwords = || {
        let log = server.cli(&["--user", "limiter", "--pass", "s3cret", "ACL", "LOG"]);
        log.lines().skip_while(|line| *line != "count").nth(1).map_or(0, |count| count.parse().unwrap())
    };
    let bad_handshakes = || {
        let log = std::fs::read_to_string(server.folder().join("redis.log")).unwrap();
        log.matches("Error accepting a client connection").count()
    };
    let cases: [(&str, String, &dyn Fn() -> usize); 2] = [
        ("a wrong password", with("wr0ng", &client_cert), &wrong_passwords),
        ("no client certificate", with("s3cret", ""), &bad_handshakes),
    ];
    for (what, redis, n_rejected) in cases {
        let ratewright = Ratewright::start(&format!("store: {{redis: {{deadline: 10s, {redis}}}}}\n{SLOW}"));
        wait_until(what, || n_rejected() > 3);
        assert_eq!(ratewright.get("check?key=c").json()["basis"], "local", "{what}");
        assert_eq!(ratewright.metric("ratewright_store_up"), 0.0, "{what}");
        let warning = ratewright.wait_for_line(&["WARN", "deciding without Redis"]);
        assert!(!warning.contains("not connected yet"), "{what}: {warning}");
        let shown = format!("{}{:?}", ratewright.banner.clone(), ratewright.log());
        for secret in ["s3cret", "wr0ng", "PRIVATE KEY"] {
            assert!(!shown.contains(secret), "{what}: {shown}");
        }
    }
    assert_eq!(spend(&one, "c"), 7, "rejected connections spent nothing");
}
