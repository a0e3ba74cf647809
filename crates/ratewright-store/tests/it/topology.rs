//! Redis as a Cluster, behind a Sentinel, and behind TLS: real servers, started here.

mod refunds;

use std::collections::BTreeSet;
use std::sync::LazyLock;

use ratewright_core::policy::{LimitId, OnFailure, Part};
use ratewright_core::query::{Attribute, AttributeName};
use ratewright_core::quota::{Algorithm, Refill};
use ratewright_core::store::{Act, BucketName, Charge, Key, Outcome, Standings};
use ratewright_core::{Micros, Quota, Store};
use ratewright_lab::{Cluster, Redis, Sentinel, wait_until, write_certificates};
use ratewright_store::redis::Certificates;
use ratewright_store::{RedisStore, Servers, StoreError};

use crate::redis::{apply, connected, quota, settings};
use crate::world::{RUNTIME, block_on, take, trial};

const TOKEN: Algorithm = Algorithm::TokenBucket(Refill::Smooth);

static CLUSTER: LazyLock<Cluster> = LazyLock::new(Cluster::start);

fn cluster_store(prefix: &str) -> RedisStore {
    connected(Servers::cluster(&CLUSTER.urls()).unwrap(), settings(prefix))
}

/// A query of one client under a policy of its own, a second one, and one for everybody.
fn ask(
    store: &RedisStore,
    client: &str,
    quotas: [(&Quota, Act); 3],
) -> Result<Vec<(Outcome, u32)>, StoreError> {
    let attributes = [Attribute { name: AttributeName::Ip, value: client }];
    let ip = || vec![Part::one(AttributeName::Ip)];
    let names = [("mine", ip()), ("mine-too", ip()), ("everybody", Vec::new())];
    let names: Vec<_> = names
        .into_iter()
        .zip(&quotas)
        .map(|((name, partition), (quota, _))| BucketName::new(name, None, quota, partition))
        .collect();
    let charges: Vec<_> = names
        .iter()
        .zip(quotas)
        .rev() // the order of groups is not that of the charges
        .map(|(name, (quota, act))| {
            let (limit, patience, on_failure) = (LimitId::default(), Micros::ZERO, OnFailure::Local);
            Charge { limit, key: Key::new(name, &attributes).unwrap(), quota, act, patience, on_failure }
        })
        .collect();
    let mut standings = Standings::new();
    block_on(store.apply(&charges, &mut standings))?;
    Ok(standings.into_iter().rev().map(|standing| (standing.outcome, standing.remaining)).collect())
}

fn left(told: &[(Outcome, u32)]) -> Vec<u32> {
    told.iter().map(|(_, remaining)| *remaining).collect()
}

#[test]
fn c9_a_cluster_counts_each_client_on_its_own_node() {
    let store = cluster_store("each");
    let quota = quota(TOKEN, "3/h");
    for client in 0..60 {
        let client = format!("10.0.0.{client}");
        let paid = (0..5).filter(|_| {
            matches!(apply(&store, &quota, &client, take(1)).unwrap().outcome, Outcome::Charged(_))
        });
        assert_eq!(paid.count(), 3, "{client}");
    }
    let n_keys = |node: &Redis| node.cli(&["--scan", "--pattern", "each:*"]).lines().count();
    let per_node: Vec<_> = CLUSTER.nodes.iter().map(n_keys).filter(|n| *n > 0).collect();
    assert!(per_node.len() >= 3, "spread over all masters: {per_node:?}");
}

#[test]
fn all_buckets_of_a_client_lie_in_one_slot() {
    let store = cluster_store("slots");
    let quota = quota(TOKEN, "3/h");
    ask(&store, "10.0.0.1", [(&quota, take(1)), (&quota, take(1)), (&quota, take(1))]).unwrap();
    let keys: BTreeSet<_> = CLUSTER
        .nodes
        .iter()
        .flat_map(|node| {
            node.cli(&["--scan", "--pattern", "slots:*"]).lines().map(str::to_owned).collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(
        keys.iter().collect::<Vec<_>>(),
        ["slots:everybody", "slots:mine-too:{10.0.0.1}", "slots:mine:{10.0.0.1}"]
    );
    let slot = |key: &str| CLUSTER.nodes[0].cli(&["CLUSTER", "KEYSLOT", key]);
    assert_eq!(slot("slots:mine:{10.0.0.1}"), slot("slots:mine-too:{10.0.0.1}"));
}

#[test]
fn all_or_nothing_holds_across_nodes() {
    let store = cluster_store("all");
    let (wide, narrow) = (quota(TOKEN, "10/h"), quota(TOKEN, "2/h"));
    // The client's own are charged first; when the one for everybody denies, they are given back.
    let everybody = [(&wide, take(1)), (&wide, take(1)), (&narrow, take(1))];
    assert_eq!(left(&ask(&store, "a", everybody).unwrap()), [9, 9, 1]);
    assert_eq!(left(&ask(&store, "b", everybody).unwrap()), [9, 9, 0]);
    let peek = [(&wide, Act::Look(0)), (&wide, Act::Look(0)), (&narrow, Act::Look(0))];
    for _ in 0..3 {
        let told = ask(&store, "a", everybody).unwrap();
        assert!(matches!(told[2].0, Outcome::Denied { .. }), "{told:?}");
        assert_eq!((&told[0].0, &told[1].0), (&Outcome::WouldPass, &Outcome::WouldPass));
        assert_eq!(left(&told), [9, 9, 0], "nothing was charged");
        wait_until("the refund arrives", || left(&ask(&store, "a", peek).unwrap()) == [9, 9, 0]);
    }
    // The client's own deny: the one for everybody is only looked at.
    let store = cluster_store("all-again");
    let looks = [(&wide, Act::Look(0)), (&wide, Act::Look(0)), (&wide, Act::Look(0))];
    let mine = [(&wide, take(10)), (&wide, take(1)), (&wide, take(1))];
    let before = left(&ask(&store, "c", looks).unwrap());
    let told = ask(&store, "c", mine).unwrap();
    assert_eq!(left(&told)[..2], [0, 9]);
    assert!(matches!(ask(&store, "c", mine).unwrap()[0].0, Outcome::Denied { .. }));
    let after = left(&ask(&store, "c", looks).unwrap());
    assert_eq!(before[2] - after[2], 1, "charged by the one that passed");
}

#[test]
fn a_try_does_not_veto_across_nodes() {
    let store = cluster_store("try");
    let (wide, narrow) = (quota(TOKEN, "10/h"), quota(TOKEN, "1/h"));
    let query = [(&wide, take(1)), (&wide, take(1)), (&narrow, trial(1))];
    assert_eq!(left(&ask(&store, "a", query).unwrap()), [9, 9, 0]);
    assert_eq!(left(&ask(&store, "a", query).unwrap()), [8, 8, 0]);
}

/// An asker that goes away between two groups leaves nothing charged in part.
#[test]
fn who_goes_away_leaves_nothing_charged_in_part() {
    let store = cluster_store("away");
    let quota = quota(TOKEN, "1000/year");
    let ip = BucketName::new("mine", None, &quota, vec![Part::one(AttributeName::Ip)]);
    let all = BucketName::new("everybody", None, &quota, Vec::new());
    let attributes = [Attribute { name: AttributeName::Ip, value: "a" }];
    let charge = |name, act| {
        let (limit, patience, on_failure) = (LimitId::default(), Micros::ZERO, OnFailure::Local);
        Charge { limit, key: Key::new(name, &attributes).unwrap(), quota: &quota, act, patience, on_failure }
    };
    let spent = |name| {
        let mut standings = Standings::new();
        block_on(store.apply(&[charge(name, Act::Look(0))], &mut standings)).unwrap();
        1_000 - standings[0].remaining
    };
    for n_asked in 1..=20 {
        block_on(async {
            let charges = [charge(&ip, take(1)), charge(&all, take(1))];
            let mut standings = Standings::new();
            // Asks, and goes away at once.
            let _ = futures_util::poll!(Box::pin(store.apply(&charges, &mut standings)));
        });
        wait_until("both are charged", || spent(&ip) == n_asked && spent(&all) == n_asked);
    }
}

/// A denial stays one, and nothing is charged, also if the asker goes away.
#[test]
fn who_goes_away_before_a_veto_is_given_back() {
    let store = cluster_store("vetoed");
    let (wide, none) = (quota(TOKEN, "1000/year"), quota(TOKEN, "1/year"));
    ask(&store, "a", [(&wide, take(1)), (&wide, take(1)), (&none, take(1))]).unwrap();
    let left_of = || {
        left(
            &ask(&store, "a", [(&wide, Act::Look(0)), (&wide, Act::Look(0)), (&none, Act::Look(0))]).unwrap(),
        )
    };
    for _ in 0..10 {
        let told = ask(&store, "a", [(&wide, take(1)), (&wide, take(1)), (&none, take(1))]).unwrap();
        assert!(matches!(told[2].0, Outcome::Denied { .. }), "{told:?}");
        wait_until("the refund arrives", || left_of() == [999, 999, 0]);
    }
}

/// The refunds of a group travel in one call, after the answer: it has two charges, and one call gives both back.
#[test]
fn a_veto_of_another_node_is_refunded_in_one_call_for_each_group() {
    let store = cluster_store("calls");
    let (wide, none) = (quota(TOKEN, "1000/year"), quota(TOKEN, "1/year"));
    let query = [(&wide, take(1)), (&wide, take(1)), (&none, take(1))];
    ask(&store, "a", query).unwrap();
    let before = store.traffic().calls.n;
    for n in 1..=10 {
        assert!(matches!(ask(&store, "a", query).unwrap()[2].0, Outcome::Denied { .. }));
        let n_calls = || store.traffic().calls.n - before;
        wait_until("two groups are asked and one is given back", || n_calls() >= 3 * n);
    }
    // Idle links are tried once a second.
    assert!((30..35).contains(&(store.traffic().calls.n - before)), "three calls for each of ten denials");
}

/// A task that ends without an answer has checked nothing: that is a failure, and not a query without limits.
#[test]
fn a_lost_task_is_a_failure() {
    let store = cluster_store("lost");
    let quota = quota(TOKEN, "10/h");
    let ip = BucketName::new("mine", None, &quota, vec![Part::one(AttributeName::Ip)]);
    let all = BucketName::new("everybody", None, &quota, Vec::new());
    let attributes = [Attribute { name: AttributeName::Ip, value: "a" }];
    let charges = [&ip, &all].map(|name| Charge {
        limit: LimitId::default(),
        key: Key::new(name, &attributes).unwrap(),
        quota: &quota,
        act: take(1),
        patience: Micros::ZERO,
        on_failure: OnFailure::Closed,
    });
    let mut standings = Standings::new();
    let result = {
        // The task is made in a runtime that ends before it is run.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let mut apply = Box::pin(store.apply(&charges, &mut standings));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let entered = runtime.enter();
        assert!(apply.as_mut().poll(&mut context).is_pending());
        drop(entered);
        drop(runtime);
        block_on(apply)
    };
    assert!(matches!(result, Err(StoreError::Lost { .. })), "{result:?}");
    assert!(standings.is_empty());
}

#[test]
fn a_client_without_a_name_has_a_node_too() {
    let store = cluster_store("nameless");
    let quota = quota(TOKEN, "3/h");
    let query = [(&quota, take(1)), (&quota, take(1)), (&quota, take(1))];
    assert_eq!(left(&ask(&store, "", query).unwrap()), [2, 2, 2]);
    assert_eq!(left(&ask(&store, "", query).unwrap()), [1, 1, 1]);
}

#[test]
fn a_slot_may_move_while_it_is_used() {
    let store = cluster_store("moving");
    let quota = quota(TOKEN, "1000/h");
    let key = "moving:p:{wanderer}";
    assert_eq!(apply(&store, &quota, "wanderer", take(1)).unwrap().remaining, 999);
    let from = CLUSTER.master_of(key).unwrap();
    let to = (0..6)
        .find(|&node| node != from && CLUSTER.nodes[node].cli(&["ROLE"]).starts_with("master"))
        .unwrap();
    let (slot, from_id) = CLUSTER.slot_and_id(key, from);
    let (_, to_id) = CLUSTER.slot_and_id(key, to);
    let (source, target) = (&CLUSTER.nodes[from], &CLUSTER.nodes[to]);
    target.cli(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id]);
    source.cli(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id]);
    assert_eq!(apply(&store, &quota, "wanderer", take(1)).unwrap().remaining, 998, "not moved yet");
    let port = target.port().to_string();
    assert_eq!(source.cli(&["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]), "OK");
    assert_eq!(apply(&store, &quota, "wanderer", take(1)).unwrap().remaining, 997, "ASK leads there");
    for node in &CLUSTER.nodes {
        node.cli(&["CLUSTER", "SETSLOT", &slot, "NODE", &to_id]);
    }
    assert_eq!(apply(&store, &quota, "wanderer", take(1)).unwrap().remaining, 996, "MOVED leads there");
    assert_eq!(apply(&store, &quota, "wanderer", take(1)).unwrap().remaining, 995);
}

#[test]
fn a_sentinel_tells_who_the_master_is_and_who_it_becomes() {
    let mut group = Sentinel::start();
    let servers = Servers::sentinel(Sentinel::MASTER, &[group.sentinel.url()], None).unwrap();
    // Certificates are for addresses that say so; these do not.
    let folder = tempfile::TempDir::new().unwrap();
    write_certificates(folder.path());
    let ca = std::fs::read(folder.path().join("ca.pem")).unwrap();
    let servers = servers.with_certificates(Certificates { ca: Some(ca), client: None });
    let store = connected(servers, settings("ratelimit"));
    let quota = quota(TOKEN, "100/h");
    assert_eq!(apply(&store, &quota, "c", take(1)).unwrap().remaining, 99);
    wait_until("the replica has it", || group.servers[1].cli(&["DBSIZE"]) == "1");
    group.servers[0].kill();
    wait_until("the replica is the master", || group.master() == 1);
    wait_until("it is used", || apply(&store, &quota, "c", Act::Look(0)).is_ok());
    assert_eq!(apply(&store, &quota, "c", take(1)).unwrap().remaining, 98, "what was replicated stays spent");
}

/// C13: a server that speaks TLS only and asks for a certificate.
#[test]
fn c13_tls_with_an_authority_and_a_client_certificate() {
    let folder = tempfile::TempDir::new().unwrap();
    write_certificates(folder.path());
    let file = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let read = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
    let port = ratewright_lab::free_port().to_string();
    let _server = Redis::start_with(&[
        "--tls-port",
        &port,
        "--tls-cert-file",
        &file("server.pem"),
        "--tls-key-file",
        &file("server.key"),
        "--tls-ca-cert-file",
        &file("ca.pem"),
        "--tls-auth-clients",
        "yes",
    ]);
    let servers = || Servers::single(&format!("rediss://127.0.0.1:{port}")).unwrap();
    let client = Some((read("client.pem"), read("client.key")));
    let trusting = Certificates { ca: Some(read("ca.pem")), client: client.clone() };
    let store = connected(servers().with_certificates(trusting), settings("ratelimit"));
    assert_eq!(apply(&store, &quota(TOKEN, "10/h"), "c", take(1)).unwrap().remaining, 9);

    let _in_it = RUNTIME.enter();
    for (what, certificates) in [
        ("no client certificate", Certificates { ca: Some(read("ca.pem")), client: None }),
        ("an authority that nobody knows", Certificates { ca: None, client }),
    ] {
        let store = RedisStore::new(servers().with_certificates(certificates), settings("ratelimit"));
        wait_until(what, || store.status().cause.is_some_and(|cause| cause != "not connected yet"));
        assert!(!store.status().is_up, "{what}");
    }
}
