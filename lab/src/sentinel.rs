//! A master, its replica, and the Sentinel that watches them.

use crate::{Redis, wait_until};

/// Two servers and a Sentinel.
#[derive(Debug)]
pub struct Sentinel {
    /// The servers. Which of them is the master may change.
    pub servers: [Redis; 2],
    /// The Sentinel.
    pub sentinel: Redis,
}

impl Sentinel {
    /// What the master is called.
    pub const MASTER: &str = "mymaster";

    /// Starts all three, and waits until they know of each other.
    pub fn start() -> Self {
        let first = Redis::start();
        let port = first.port().to_string();
        let second = Redis::start_with(&["--replicaof", "127.0.0.1", &port]);
        // Before the Sentinel starts: what its first question does not find, it finds ten seconds later.
        wait_until("the replica follows", || {
            second.cli(&["INFO", "replication"]).contains("master_link_status:up")
        });
        let sentinel = Redis::start_sentinel(&format!(
            "sentinel monitor {master} 127.0.0.1 {port} 1\n\
             sentinel down-after-milliseconds {master} 2000\n\
             sentinel failover-timeout {master} 5000\n",
            master = Self::MASTER,
        ));
        let group = Self { servers: [first, second], sentinel };
        wait_until("the Sentinel knows the replica", || {
            group.sentinel.cli(&["SENTINEL", "replicas", Self::MASTER]).contains("127.0.0.1")
        });
        group
    }

    /// The number of the master, as the Sentinel says.
    pub fn master(&self) -> usize {
        let told = self.sentinel.cli(&["SENTINEL", "get-master-addr-by-name", Self::MASTER]);
        let port = told.lines().nth(1).and_then(|port| port.parse().ok()).unwrap_or(0);
        usize::from(self.servers[1].port() == port)
    }
}
