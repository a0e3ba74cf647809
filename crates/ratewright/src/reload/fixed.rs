//! What waits for a restart, because it cannot be changed while it is in use.

use ipnet::IpNet;
use ratewright_listen::ProxyProtocol;
use ratewright_server::Tls;
use tracing::warn;

use crate::config::{Config, ListenerConfig};

/// What a program was started with, or would be.
pub(crate) struct Fixed {
    doors: Vec<FixedListener>,
    /// Settings by their names, in words.
    settings: [(&'static str, String); 8],
}

/// What a listener was opened with, or would be.
struct FixedListener {
    name: &'static str,
    address: String,
    tls: Option<Tls>,
    proxy_protocol: Option<ProxyProtocol>,
}

impl Fixed {
    /// That of a configuration.
    pub(crate) fn of(config: &Config) -> Self {
        let door = |name, door: &ListenerConfig| {
            let ListenerConfig { address, tls, proxy_protocol } = door.clone();
            FixedListener { name, address: address.to_string(), tls, proxy_protocol }
        };
        let admin = config.listen.admin.iter().map(|admin| door("listen.admin", admin));
        let gateway = (!config.gateway.routes.is_empty()).then_some(&config.listen.gateway);
        let gateway = gateway.into_iter().map(|gateway| door("listen.gateway", gateway));
        let api = door("listen.api", &config.listen.api);
        let grpc = config.envoy.iter().map(|_| door("listen.grpc", &config.listen.grpc));
        let listening = config.envoy.as_ref().map(|envoy| envoy.listening).unwrap_or_default();
        Self {
            doors: std::iter::once(api).chain(admin).chain(gateway).chain(grpc).collect(),
            settings: [
                ("store", config.store_digest.clone()),
                ("listen.control", format!("{:?}", config.listen.control)),
                ("stop_delay or drain_timeout", format!("{:?}", config.stop)),
                ("metrics.labels", format!("{:?}", config.labels)),
                ("log.format", format!("{:?}", config.log.format)),
                ("log.denials", format!("{:?}", config.log.denials)),
                ("how connections of Envoy are kept", format!("{listening:?}")),
                ("traces", format!("{:?}", config.traces)),
            ],
        }
    }

    /// Renews certificates, and tells what waits for a restart.
    pub(super) fn compare(&self, new: &Self) {
        for new in &new.doors {
            let name = new.name;
            let Some(old) = self.doors.iter().find(|old| old.name == name) else {
                warn!("{name} is new; restart to open it");
                continue;
            };
            if old.address != new.address {
                warn!("{name} is now {}, and stays {} until a restart", new.address, old.address);
            }
            match (&old.tls, &new.tls) {
                (Some(tls), Some(new)) => tls.replace(new),
                (None, None) => {}
                (Some(_), None) | (None, Some(_)) => warn!("{name} changes its TLS at a restart"),
            }
            if old.load_balancers() != new.load_balancers() {
                warn!("{name} changes its proxy_protocol at a restart");
            }
        }
        let is_gone = |old: &&FixedListener| new.doors.iter().all(|new| new.name != old.name);
        for FixedListener { name, .. } in self.doors.iter().filter(is_gone) {
            warn!("{name} is off, and stays open until a restart");
        }
        match self.changed(new).as_slice() {
            [] => {}
            [name] => warn!("{name} has changed, and stays as it was until a restart"),
            names => warn!("{} have changed, and stay as they were until a restart", names.join(", ")),
        }
    }

    /// The names of settings that are not the same.
    fn changed(&self, new: &Self) -> Vec<&'static str> {
        let pairs = self.settings.iter().zip(&new.settings);
        pairs.filter(|(old, new)| old != new).map(|((name, _), _)| *name).collect()
    }
}

impl FixedListener {
    /// The networks of load balancers that announce clients. None: nobody does.
    fn load_balancers(&self) -> Option<&[IpNet]> {
        self.proxy_protocol.as_ref().map(ProxyProtocol::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn changed(old: &str, new: &str, expected: &[&str]) {
        let [old, new] =
            [old, new].map(|text| Fixed::of(&Config::of_text(text).unwrap_or_else(|_| panic!("{text}"))));
        assert_eq!(old.changed(&new), expected);
    }

    #[test]
    fn settings_that_wait_for_a_restart_are_named_if_they_change() {
        changed("", "log: {level: debug}\nheaders: {limit: rate}\n", &[]);
        changed("", "log: {format: auto, denials: 10}\nmetrics: {labels: {}}\n", &[]);
        changed(
            "",
            "log: {format: json, denials: all}\nmetrics: {labels: {application: t}}\nstore: {local: {max_keys: 5}}\n",
            &["store", "metrics.labels", "log.format", "log.denials"],
        );
        let folder = tempfile::tempdir().unwrap();
        let rules = folder.path().join("r.yaml");
        std::fs::write(&rules, "domain: d\n").unwrap();
        let kept = |how: &str| format!("envoy: {{files: {}, {how}}}\n", rules.display());
        changed("", &kept("compat: strict"), &[]);
        changed(&kept("keep_alive: 5s"), &kept("keep_alive: 6s"), &["how connections of Envoy are kept"]);
    }

    #[test]
    fn a_login_of_redis_is_not_shown_and_its_change_is() {
        let store = |url: &str| format!("store: {{redis: {{url: '{url}'}}}}\n");
        let [old, new] = ["redis://u:s3cret@h", "redis://u:0ther@h"].map(store);
        changed(&old, &old, &[]);
        changed(&old, &new, &["store"]);
        let fixed = Fixed::of(&Config::of_text(&old).unwrap_or_else(|_| panic!("{old}")));
        assert!(fixed.settings.iter().all(|(_, words)| !words.contains("s3cret")));
    }
}
