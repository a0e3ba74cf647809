//! A Redis Cluster: three masters and a replica of each.

use crate::{Redis, wait_until};

/// Six servers that share 16,384 slots.
#[derive(Debug)]
pub struct Cluster {
    /// The servers. Which of them are masters may change.
    pub nodes: Vec<Redis>,
}

impl Cluster {
    /// Starts it, and waits until every slot is served.
    pub fn start() -> Self {
        let options = [
            "--cluster-enabled",
            "yes",
            "--cluster-node-timeout",
            "3000",
            "--cluster-config-file",
            "nodes.conf",
        ];
        let nodes: Vec<_> = (0..6).map(|_| Redis::start_with(&options)).collect();
        let addresses: Vec<_> = nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
        let mut create: Vec<_> = ["--cluster", "create"].to_vec();
        create.extend(addresses.iter().map(String::as_str));
        create.extend(["--cluster-replicas", "1", "--cluster-yes"]);
        let told = nodes[0].cli(&create);
        assert!(told.contains("[OK] All 16384 slots covered"), "{told}");
        let cluster = Self { nodes };
        wait_until("the cluster is whole", || cluster.is_whole() && cluster.has_replicas());
        cluster
    }

    /// Addresses of all nodes.
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(Redis::url).collect()
    }

    /// True if all nodes that run say that every slot is served.
    pub fn is_whole(&self) -> bool {
        let state = |node: &Redis| node.cli(&["CLUSTER", "INFO"]).contains("cluster_state:ok");
        self.nodes.iter().filter(|node| node.is_running()).all(state)
    }

    fn has_replicas(&self) -> bool {
        let linked = |node: &&Redis| node.cli(&["INFO", "replication"]).contains("master_link_status:up");
        self.nodes.iter().filter(linked).count() == 3
    }

    /// The number of the master that serves a key, if one does.
    pub fn master_of(&self, key: &str) -> Option<usize> {
        let running = self.nodes.iter().find(|node| node.is_running()).expect("one runs");
        let slot = running.cli(&["CLUSTER", "KEYSLOT", key]);
        let slot: u32 = slot.parse().expect("a slot");
        let serves = |line: &str| {
            let mut words = line.split(' ');
            let address = words.nth(1)?;
            let flags = words.next()?;
            let ranges = words.skip(5).filter(|range| !range.starts_with('['));
            let mut ranges = ranges.filter_map(|range| {
                let (low, high) = range.split_once('-').unwrap_or((range, range));
                Some(low.parse::<u32>().ok()?..=high.parse::<u32>().ok()?)
            });
            let mine = flags.contains("master")
                && !flags.contains("fail")
                && ranges.any(|range| range.contains(&slot));
            let port = address.split(['@']).next()?.rsplit(':').next()?.parse::<u16>().ok()?;
            mine.then_some(port)
        };
        let port = running.cli(&["CLUSTER", "NODES"]).lines().find_map(serves)?;
        self.nodes.iter().position(|node| node.port() == port)
    }

    /// The slot of a key, and the cluster's name of a node.
    pub fn slot_and_id(&self, key: &str, node: usize) -> (String, String) {
        let node = &self.nodes[node];
        (node.cli(&["CLUSTER", "KEYSLOT", key]), node.cli(&["CLUSTER", "MYID"]))
    }
}
