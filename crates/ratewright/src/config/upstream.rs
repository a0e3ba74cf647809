//! A route's `upstream`: its servers, and how they are used.

use ratewright_gateway::Upstream;
use ratewright_gateway::upstream::{Balance, ClientTls, Health, Protocol, UpstreamServer};

use super::SectionReader;
use crate::fetch;
use ratewright_config::program_api::file;
use ratewright_config::program_api::raw_value::{Located, Position, RawValue};
use ratewright_config::program_api::values::{FileName, LoadBalancing, Ratio, UpstreamProtocol, UpstreamUrl};

impl SectionReader<'_> {
    pub(super) fn upstream(
        &mut self,
        path: &str,
        raw: Option<&Located<file::Upstream>>,
        position: Option<Position>,
    ) -> Option<Upstream> {
        let Some(Located { value: raw, position: at }) = raw else {
            self.error(position, format!("{path} is missing; write upstream: http://127.0.0.1:3000"));
            return None;
        };
        match raw {
            file::Upstream::Section(section) => self.upstream_section(path, section, *at),
            file::Upstream::Url(text) => {
                let servers = vec![self.server(path, text, *at)];
                self.distinct_servers(path, servers, *at).map(plain)
            }
            file::Upstream::All(all) => {
                let servers = all.iter().map(|one| self.listed_server(path, one)).collect();
                self.distinct_servers(path, servers, *at).map(plain)
            }
        }
    }

    fn upstream_section(
        &mut self,
        path: &str,
        section: &file::UpstreamSection,
        position: Option<Position>,
    ) -> Option<Upstream> {
        let items = section.servers.iter().flat_map(|servers| &servers.items);
        let servers: Vec<_> =
            items.map(|server| self.read_with(&format!("{path}.servers"), server, parse_server)).collect();
        let at = section.servers.as_ref().and_then(|servers| servers.position).or(position);
        let servers = self.distinct_servers(&format!("{path}.servers"), servers, at);
        let balance = match self.read_if(&format!("{path}.balance"), &section.balance) {
            Some(LoadBalancing::RoundRobin) => Balance::RoundRobin,
            Some(LoadBalancing::LeastConnections) => Balance::LeastConnections,
            None => Balance::default(),
        };
        let protocol = match self.read_if(&format!("{path}.protocol"), &section.protocol) {
            Some(UpstreamProtocol::Http1) => Protocol::Http1,
            Some(UpstreamProtocol::Http2) => Protocol::Http2,
            None => Protocol::default(),
        };
        let raw = section.health.clone().unwrap_or_default();
        let default = Health::default();
        let eject_for = self.read_if(&format!("{path}.health.eject"), &raw.eject);
        if eject_for.is_some_and(|time| time.is_zero()) {
            let position = raw.eject.as_ref().and_then(|eject| eject.position);
            self.error(position, format!("{path}.health.eject must be more than 0s; use for example 10s"));
        }
        let failures_max = self.read_if(&format!("{path}.health.failures"), &raw.failures);
        let ejected_max = self.read_if(&format!("{path}.health.ejected_max"), &raw.ejected_max);
        let health = Health {
            failures_max: failures_max.unwrap_or(default.failures_max),
            eject_for: eject_for.unwrap_or(default.eject_for),
            ejected_max: ejected_max.map_or(default.ejected_max, |Ratio(share)| share),
        };
        let raw = section.tls.as_ref().and_then(|tls| tls.ca.as_ref());
        let tls = raw.map(|ca| self.upstream_tls(&format!("{path}.tls.ca"), ca, servers.as_deref()));
        let upstream = Upstream::new(servers?, balance, protocol, health);
        Some(match tls {
            None => upstream,
            Some(None) if self.referenced.unavailable().is_some() => upstream,
            Some(tls) => upstream.with_tls(tls?),
        })
    }

    /// The certificate authorities of an upstream.
    fn upstream_tls(
        &mut self,
        path: &str,
        raw: &RawValue<FileName>,
        servers: Option<&[UpstreamServer]>,
    ) -> Option<ClientTls> {
        if servers.is_some_and(|servers| !servers.iter().any(UpstreamServer::is_tls)) {
            let problem = format!(
                "{path} is for https:// servers, but every server is http://; write https://, or remove it"
            );
            self.error(raw.position, problem);
            return None;
        }
        let ca = self.content(path, raw)?;
        let Ok(config) = fetch::trusting(&ca) else {
            let problem =
                format!("{path} contains no PEM certificate; it needs a line -----BEGIN CERTIFICATE-----");
            self.error(raw.position, problem);
            return None;
        };
        Some(ClientTls::with_ca(config, &ca))
    }

    fn listed_server(&mut self, path: &str, raw: &Located<file::Upstream>) -> Option<UpstreamServer> {
        match &raw.value {
            file::Upstream::Url(text) => self.server(path, text, raw.position),
            file::Upstream::All(_) | file::Upstream::Section(_) => {
                self.error(
                    raw.position,
                    format!("{path} has an item that is not a url; list only urls, or write {{servers: [http://127.0.0.1:3000], balance: round_robin}}"),
                );
                None
            }
        }
    }

    fn server(&mut self, path: &str, text: &str, position: Option<Position>) -> Option<UpstreamServer> {
        let mut raw = RawValue::<UpstreamUrl>::without_position(text);
        raw.position = position;
        self.read_with(path, &raw, parse_server)
    }

    /// At least one server, and each once.
    fn distinct_servers(
        &mut self,
        path: &str,
        servers: Vec<Option<UpstreamServer>>,
        position: Option<Position>,
    ) -> Option<Vec<UpstreamServer>> {
        if servers.is_empty() {
            self.error(position, format!("{path} has no servers; write http://127.0.0.1:3000"));
            return None;
        }
        let servers = servers.into_iter().collect::<Option<Vec<_>>>()?;
        let duplicates = servers.iter().enumerate().find(|(n, server)| servers[..*n].contains(server));
        if let Some((_, server)) = duplicates {
            self.error(position, format!("{path} has {server} twice; remove one"));
            return None;
        }
        Some(servers)
    }
}

/// Servers that are used as by default.
fn plain(servers: Vec<UpstreamServer>) -> Upstream {
    Upstream::new(servers, Balance::default(), Protocol::default(), Health::default())
}

fn parse_server(text: &str) -> Result<UpstreamServer, String> {
    UpstreamServer::parse(text).map_err(|error| error.to_string())
}
