//! The settings that a reload cannot change: listeners, the store and some others need a restart.

use ipnet::IpNet;
use ratewright_listen::ProxyProtocol;
use ratewright_server::Tls;
use tracing::warn;

use crate::config::{Config, ListenerConfig};

/// The restart-only settings of a configuration.
pub(crate) struct RestartOnly {
    listeners: Vec<RestartOnlyListener>,
    /// Names of settings, with their values as text.
    settings: [(&'static str, String); 8],
}

/// The restart-only settings of a listener.
struct RestartOnlyListener {
    name: &'static str,
    address: String,
    tls: Option<Tls>,
    proxy_protocol: Option<ProxyProtocol>,
}

impl RestartOnly {
    /// The restart-only settings of this configuration.
    pub(crate) fn of(config: &Config) -> Self {
        let listener = |name, listener: &ListenerConfig| {
            let ListenerConfig { address, tls, proxy_protocol } = listener.clone();
            RestartOnlyListener { name, address: address.to_string(), tls, proxy_protocol }
        };
        let admin = config.listen.admin.iter().map(|admin| listener("listen.admin", admin));
        let gateway = (!config.gateway.routes.is_empty()).then_some(&config.listen.gateway);
        let gateway = gateway.into_iter().map(|gateway| listener("listen.gateway", gateway));
        let api = listener("listen.api", &config.listen.api);
        let grpc = config.envoy.iter().map(|_| listener("listen.grpc", &config.listen.grpc));
        let listening = config.envoy.as_ref().map(|envoy| envoy.listening).unwrap_or_default();
        Self {
            listeners: std::iter::once(api).chain(admin).chain(gateway).chain(grpc).collect(),
            settings: [
                ("store", config.store_digest.clone()),
                ("listen.control", format!("{:?}", config.listen.control)),
                ("stop_delay or drain_timeout", format!("{:?}", config.stop)),
                ("metrics.labels", format!("{:?}", config.labels)),
                ("log.format", format!("{:?}", config.log.format)),
                ("log.denials", format!("{:?}", config.log.denials)),
                ("connection settings of envoy", format!("{listening:?}")),
                ("traces", format!("{:?}", config.traces)),
            ],
        }
    }

    /// Replaces certificates, and logs which changes need a restart.
    pub(super) fn compare(&self, new: &Self) {
        for new in &new.listeners {
            let name = new.name;
            let Some(old) = self.listeners.iter().find(|old| old.name == name) else {
                warn!("listener added: {name}; restart to open it");
                continue;
            };
            if old.address != new.address {
                warn!(
                    "listener address changed: {name} from {} to {}; restart to apply",
                    old.address, new.address
                );
            }
            match (&old.tls, &new.tls) {
                (Some(tls), Some(new)) => tls.replace(new),
                (None, None) => {}
                (Some(_), None) | (None, Some(_)) => warn!("listener TLS changed: {name}; restart to apply"),
            }
            if old.load_balancers() != new.load_balancers() {
                warn!("listener proxy_protocol changed: {name}; restart to apply");
            }
        }
        let is_gone = |old: &&RestartOnlyListener| new.listeners.iter().all(|new| new.name != old.name);
        for RestartOnlyListener { name, .. } in self.listeners.iter().filter(is_gone) {
            warn!("listener removed: {name}; it stays open until a restart");
        }
        match self.changed(new).as_slice() {
            [] => {}
            names => warn!("settings changed: {}; restart to apply", names.join(", ")),
        }
    }

    /// The names of the settings that differ.
    fn changed(&self, new: &Self) -> Vec<&'static str> {
        let pairs = self.settings.iter().zip(&new.settings);
        pairs.filter(|(old, new)| old != new).map(|((name, _), _)| *name).collect()
    }
}

impl RestartOnlyListener {
    /// The networks of the load balancers that send PROXY headers; `None` without `proxy_protocol`.
    fn load_balancers(&self) -> Option<&[IpNet]> {
        self.proxy_protocol.as_ref().map(ProxyProtocol::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn changed(old: &str, new: &str, expected: &[&str]) {
        let [old, new] = [old, new]
            .map(|text| RestartOnly::of(&Config::of_text(text).unwrap_or_else(|_| panic!("{text}"))));
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
        changed(&kept("keep_alive: 5s"), &kept("keep_alive: 6s"), &["connection settings of envoy"]);
    }

    #[test]
    fn a_login_of_redis_is_not_shown_and_its_change_is() {
        let store = |url: &str| format!("store: {{redis: {{url: '{url}'}}}}\n");
        let [old, new] = ["redis://u:s3cret@h", "redis://u:0ther@h"].map(store);
        changed(&old, &old, &[]);
        changed(&old, &new, &["store"]);
        let restart_only = RestartOnly::of(&Config::of_text(&old).unwrap_or_else(|_| panic!("{old}")));
        assert!(restart_only.settings.iter().all(|(_, words)| !words.contains("s3cret")));
    }
}
