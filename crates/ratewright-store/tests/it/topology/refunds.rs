//! What a Cluster gives back: receipts that are brought back twice, and what was charged before a denial.

use ratewright_core::policy::Part;
use ratewright_core::query::{Attribute, AttributeName};
use ratewright_core::store::{Act, Basis, BucketName, Key, Outcome, Receipt, Refund};
use ratewright_core::{Quota, Store, Timestamp};
use ratewright_lab::{Cluster, Redis, wait_until};
use ratewright_store::{RedisStore, Servers};

use super::{CLUSTER, TOKEN, ask, cluster_store, left};
use crate::redis::{connected, quota, settings};
use crate::world::{block_on, take};

/// What was paid for the charges of [`ask`]: how much, and when.
type Paid = [(u32, Timestamp); 3];

/// Brings a receipt for all buckets of [`ask`] back to one instance, and tells for how many of them it was good.
fn bring_back(store: &RedisStore, client: &str, quota: &Quota, paid: Paid, id: u64) -> usize {
    let ip = || vec![Part::one(AttributeName::Ip)];
    let names = [("mine", ip()), ("mine-too", ip()), ("everybody", Vec::new())]
        .map(|(name, partition)| BucketName::new(name, None, quota, partition));
    let attributes = [Attribute { name: AttributeName::Ip, value: client }];
    // The bucket of everybody lies between those of the client, on another node.
    let refunds = [0, 2, 1].map(|n| {
        let (cost, paid_at) = paid[n];
        let receipt = Receipt { cost, paid_at, is_past: false };
        let key = Key::new(&names[n], &attributes).unwrap();
        Refund { key, quota, receipt, basis: Basis::Shared, share: None, id: Some(id) }
    });
    block_on(store.refund(&refunds)).unwrap()
}

/// Spends five units of each bucket.
fn spend(store: &RedisStore, client: &str, quota: &Quota) -> Paid {
    let told = ask(store, client, [(quota, take(5)), (quota, take(5)), (quota, take(5))]).unwrap();
    let paid: Vec<_> = told
        .into_iter()
        .map(|(outcome, _)| match outcome {
            Outcome::Charged(receipt) => (receipt.cost, receipt.paid_at),
            Outcome::WouldPass | Outcome::Denied { .. } | Outcome::Never | Outcome::Unknown => {
                panic!("{outcome:?}")
            }
        })
        .collect();
    paid.try_into().unwrap()
}

fn look(store: &RedisStore, client: &str, quota: &Quota) -> Vec<u32> {
    let look = (quota, Act::Look(0));
    left(&ask(store, client, [look, look, look]).unwrap())
}

/// A client of the node that serves this number of the three masters.
fn clients_on_each_master(prefix: &str) -> [String; 3] {
    let mut clients: Vec<(usize, String)> = Vec::new();
    for n in 0.. {
        let client = format!("10.0.0.{n}");
        let master = CLUSTER.master_of(&format!("{prefix}:mine:{{{client}}}")).unwrap();
        if !clients.iter().any(|(known, _)| *known == master) {
            clients.push((master, client));
        }
        if clients.len() == 3 {
            break;
        }
    }
    let clients: Vec<_> = clients.into_iter().map(|(_, client)| client).collect();
    clients.try_into().unwrap()
}

/// A receipt for buckets on two nodes gives each of them back once, whichever instances it is brought to, also at one time.
#[test]
fn a_receipt_is_good_once_for_all_instances_of_a_cluster() {
    let stores = [cluster_store("receipts"), cluster_store("receipts")];
    let quota = quota(TOKEN, "100/1000d");
    for (id, client) in (1..).zip(&clients_on_each_master("receipts")) {
        let paid = spend(&stores[0], client, &quota);
        spend(&stores[0], client, &quota);
        assert_eq!(look(&stores[1], client, &quota), [90, 90, 90], "{client}");
        let barrier = &std::sync::Barrier::new(4);
        let n_refunded: usize = std::thread::scope(|scope| {
            let bringing = [0, 1, 0, 1].map(|n| {
                let (store, quota) = (&stores[n], &quota);
                scope.spawn(move || {
                    barrier.wait();
                    bring_back(store, client, quota, paid, id)
                })
            });
            bringing.into_iter().map(|bringing| bringing.join().unwrap()).sum()
        });
        assert_eq!(n_refunded, 3, "each bucket once: {client}");
        for store in stores.iter().cycle().take(4) {
            assert_eq!(bring_back(store, client, &quota, paid, id), 0, "{client}");
        }
        assert_eq!(look(&stores[0], client, &quota), [95, 95, 95], "{client}");
        let other = spend(&stores[1], client, &quota);
        assert_eq!(bring_back(&stores[0], client, &quota, other, 100 + id), 3, "another receipt");
        drop_bucket("receipts:everybody"); // the next client finds it full
    }
}

/// The mark of a receipt is written in the same call as the refund, so it must lie in the slot of its bucket.
#[test]
fn the_mark_of_a_receipt_lies_in_the_slot_of_its_bucket() {
    let store = cluster_store("marks");
    let quota = quota(TOKEN, "100/1000d");
    let client = &clients_on_each_master("marks")[0];
    let paid = spend(&store, client, &quota);
    assert_eq!(bring_back(&store, client, &quota, paid, 0xabc), 3);
    let mut marks: Vec<_> = masters().iter().flat_map(|node| scan(node, "marks:@used:*")).collect();
    marks.sort_unstable();
    let (tag, id) = (format!("{{{client}}}"), "0000000000000abc");
    let expected = [
        format!("marks:@used:{tag}:marks:mine-too:{id}"),
        format!("marks:@used:{tag}:marks:mine:{id}"),
        format!("marks:@used:{{marks:everybody}}:{id}"),
    ];
    assert_eq!(marks, expected);
    let slot = |key: &str| CLUSTER.nodes[0].cli(&["CLUSTER", "KEYSLOT", key]);
    assert_eq!(slot(&marks[0]), slot(&format!("marks:mine:{tag}")));
    assert_eq!(slot(&marks[2]), slot("marks:everybody"));
}

fn masters() -> Vec<&'static Redis> {
    CLUSTER.nodes.iter().filter(|node| node.cli(&["ROLE"]).starts_with("master")).collect()
}

fn scan(node: &Redis, pattern: &str) -> Vec<String> {
    node.cli(&["--scan", "--pattern", pattern]).lines().map(str::to_owned).collect()
}

fn drop_bucket(key: &str) {
    CLUSTER.nodes[CLUSTER.master_of(key).unwrap()].cli(&["UNLINK", key]);
}

/// A denied client does not wait for the refund: the denial arrives while the node with its buckets accepts no writes.
#[test]
fn a_denial_does_not_wait_for_the_refund() {
    let cluster = Cluster::start();
    // Longer than this test waits for anything.
    let deadline = std::time::Duration::from_secs(90);
    let servers = Servers::cluster(&cluster.urls()).unwrap();
    let store = connected(servers, settings("order").deadline(deadline));
    let (wide, one) = (quota(TOKEN, "100/1000d"), quota(TOKEN, "1/1000d"));
    let of = |key: &str| cluster.master_of(key).unwrap();
    let everybody = of("order:everybody");
    let client = (0..).map(|n| format!("10.0.0.{n}")).find(|client| of(&mine(client)) != everybody).unwrap();
    let (its_own, everybody) = (&cluster.nodes[of(&mine(&client))], &cluster.nodes[everybody]);
    let query = [(&wide, take(1)), (&wide, take(1)), (&one, take(1))];
    assert_eq!(left(&ask(&store, &client, query).unwrap()), [99, 99, 0]);

    let pause = |node: &Redis| assert_eq!(node.cli(&["CLIENT", "PAUSE", "600000", "WRITE"]), "OK");
    let go_on = |node: &Redis| assert_eq!(node.cli(&["CLIENT", "UNPAUSE"]), "OK");
    let full_at = || its_own.cli(&["HGET", &mine(&client), "full_at of 100 86400000000000"]);
    let before = full_at();
    assert_ne!(before, "");
    pause(everybody);
    let (denied, charged) = std::thread::scope(|scope| {
        let asking = scope.spawn(|| ask(&store, &client, query).unwrap());
        wait_until("its own buckets are charged", || full_at() != before);
        // Redis answers what it did before it takes the next command.
        assert_eq!(its_own.cli(&["PING"]), "PONG");
        pause(its_own);
        let charged = full_at();
        go_on(everybody);
        wait_until("it is answered", || asking.is_finished());
        (asking.join().unwrap(), charged)
    });
    assert!(matches!(denied[2].0, Outcome::Denied { .. }), "{denied:?}");
    assert_eq!(left(&denied), [99, 99, 0], "as if nothing had been charged");
    assert_eq!(full_at(), charged, "nothing has been given back yet");
    go_on(its_own);
    wait_until("the refund arrives", || look(&store, &client, &wide)[..2] == [99, 99]);
}

fn mine(client: &str) -> String {
    format!("order:mine:{{{client}}}")
}
