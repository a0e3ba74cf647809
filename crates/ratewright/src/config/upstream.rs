//! What stands under a route's `upstream`: its servers, and how they are used.

use ratewright_gateway::{Balance, ClientTls, Health, Protocol, Server, Upstream};

use super::file;
use super::meaning::FileName;
use super::reader::Reader;
use super::written::{At, Place, Written};
use crate::fetch;

impl Reader<'_> {
    pub(super) fn upstream(
        &mut self,
        path: &str,
        written: Option<&At<file::Upstream>>,
        place: Option<Place>,
    ) -> Option<Upstream> {
        let Some(At { value: written, place: at }) = written else {
            self.wrong(place, format!("{path} is missing; write upstream: http://127.0.0.1:3000"));
            return None;
        };
        match written {
            file::Upstream::Section(section) => self.upstream_section(path, section, *at),
            file::Upstream::Url(text) => {
                let servers = vec![self.server(path, text, *at)];
                self.some_servers(path, servers, *at).map(plain)
            }
            file::Upstream::All(all) => {
                let servers = all.iter().map(|one| self.server_of(path, one)).collect();
                self.some_servers(path, servers, *at).map(plain)
            }
        }
    }

    fn upstream_section(
        &mut self,
        path: &str,
        section: &file::UpstreamSection,
        place: Option<Place>,
    ) -> Option<Upstream> {
        let items = section.servers.iter().flat_map(|servers| &servers.items);
        let servers: Vec<_> = items.map(|server| self.read(&format!("{path}.servers"), server)).collect();
        let at = section.servers.as_ref().and_then(|servers| servers.place).or(place);
        let servers = self.some_servers(&format!("{path}.servers"), servers, at);
        let balance = self.read_if(&format!("{path}.balance"), &section.balance).unwrap_or_default();
        let protocol = self.read_if(&format!("{path}.protocol"), &section.protocol).unwrap_or_default();
        let written = section.health.clone().unwrap_or_default();
        let default = Health::default();
        let eject_for = self.read_if(&format!("{path}.health.eject"), &written.eject);
        if eject_for.is_some_and(|time| time.is_zero()) {
            let place = written.eject.as_ref().and_then(|eject| eject.place);
            self.wrong(place, format!("{path}.health.eject must be more than 0s; use for example 10s"));
        }
        let failures_max = self.read_if(&format!("{path}.health.failures"), &written.failures);
        let health = Health {
            failures_max: failures_max.unwrap_or(default.failures_max),
            eject_for: eject_for.unwrap_or(default.eject_for),
        };
        let written = section.tls.as_ref().and_then(|tls| tls.ca.as_ref());
        let tls = written.map(|ca| self.upstream_tls(&format!("{path}.tls.ca"), ca, servers.as_deref()));
        let upstream = Upstream::new(servers?, balance, protocol, health);
        Some(match tls {
            None => upstream,
            Some(None) if self.named.are_elsewhere() => upstream,
            Some(tls) => upstream.with_tls(tls?),
        })
    }

    /// Whom to trust, where that is said.
    fn upstream_tls(
        &mut self,
        path: &str,
        written: &Written<FileName>,
        servers: Option<&[Server]>,
    ) -> Option<ClientTls> {
        if servers.is_some_and(|servers| !servers.iter().any(Server::is_tls)) {
            let problem = format!(
                "{path} is for https:// servers, and there are none; write https://, or leave it out"
            );
            self.wrong(written.place, problem);
            return None;
        }
        let ca = self.content(path, written)?;
        let Ok(config) = fetch::trusting(&ca) else {
            let problem = format!(
                "{path} has no certificates that can be read; use PEM, with a line -----BEGIN CERTIFICATE-----"
            );
            self.wrong(written.place, problem);
            return None;
        };
        Some(ClientTls::with_ca(config, &ca))
    }

    fn server_of(&mut self, path: &str, written: &At<file::Upstream>) -> Option<Server> {
        match &written.value {
            file::Upstream::Url(text) => self.server(path, text, written.place),
            file::Upstream::All(_) | file::Upstream::Section(_) => {
                self.wrong(
                    written.place,
                    format!("{path} is a list of urls; for more write {{servers: […], balance: …}}"),
                );
                None
            }
        }
    }

    fn server(&mut self, path: &str, text: &str, place: Option<Place>) -> Option<Server> {
        let mut written = Written::unwritten(text);
        written.place = place;
        self.read(path, &written)
    }

    /// At least one server, and each once.
    fn some_servers(
        &mut self,
        path: &str,
        servers: Vec<Option<Server>>,
        place: Option<Place>,
    ) -> Option<Vec<Server>> {
        if servers.is_empty() {
            self.wrong(place, format!("{path} has no servers; write http://127.0.0.1:3000"));
            return None;
        }
        let servers = servers.into_iter().collect::<Option<Vec<_>>>()?;
        let twice = servers.iter().enumerate().find(|(n, server)| servers[..*n].contains(server));
        if let Some((_, server)) = twice {
            self.wrong(place, format!("{path} has {server} twice; leave one of the two out"));
            return None;
        }
        Some(servers)
    }
}

/// Servers that are used as by default.
fn plain(servers: Vec<Server>) -> Upstream {
    Upstream::new(servers, Balance::default(), Protocol::default(), Health::default())
}
