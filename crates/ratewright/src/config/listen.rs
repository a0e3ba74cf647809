//! The `listen` section: which listeners are open, where, and to which clients.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use ratewright_listen::{ConnectionSetup, ProxyProtocol, Tls};
use ratewright_server::is_exposed;

use super::SectionReader;
use ratewright_config::program_api::file::{self, Listener};
use ratewright_config::program_api::raw_value::{Located, Position, RawValue};
use ratewright_config::program_api::values::FileName;

/// The listeners.
#[derive(Debug)]
pub(crate) struct ListenConfig {
    /// The reverse proxy.
    pub(crate) gateway: ListenerConfig,
    /// REST decisions.
    pub(crate) api: ListenerConfig,
    /// Envoy's rate limit service.
    pub(crate) grpc: ListenerConfig,
    /// Metrics, health, inspection. None: disabled.
    pub(crate) admin: Option<ListenerConfig>,
    /// The control socket's path.
    pub(crate) control: Option<PathBuf>,
}

/// One listener.
#[derive(Clone, Debug)]
pub(crate) struct ListenerConfig {
    pub(crate) address: SocketAddr,
    pub(crate) tls: Option<Tls>,
    pub(crate) proxy_protocol: Option<ProxyProtocol>,
}

impl ListenerConfig {
    /// What happens on its connections before HTTP.
    pub(crate) fn connection_setup(self) -> ConnectionSetup {
        ConnectionSetup { proxy_protocol: self.proxy_protocol, tls: self.tls }
    }

    /// True if clients on other machines can reach it: by its address, or through a load balancer.
    pub(crate) fn is_exposed(&self) -> bool {
        is_exposed(self.address) || self.proxy_protocol.is_some()
    }
}

const GATEWAY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8000);
const API: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);
const GRPC: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8081);
const ADMIN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8082);

/// Which clients a listener is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Audience {
    /// Everybody: the gateway forwards only what its routes allow.
    Public,
    /// Callers of the decision API; off loopback they need a token or a certificate.
    DecisionCallers { has_tokens: bool },
    /// Envoy, which can use up limits; off loopback it needs a certificate, unless the file says `open`.
    Envoy,
}

/// How clients of a listener are authenticated by TLS.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ClientAuth {
    Anonymous,
    Certificate,
}

/// Which listeners other sections enable.
pub(super) struct EnabledListeners {
    /// `api.tokens` has tokens.
    pub(super) has_tokens: bool,
    /// There are routes, so the gateway listens.
    pub(super) has_routes: bool,
    /// There are rules for Envoy, so the gRPC listener opens.
    pub(super) has_envoy: bool,
}

/// True if two listeners need the same port: their addresses are equal, or one is unspecified.
fn clash(a: SocketAddr, b: SocketAddr) -> bool {
    let takes_all = |ip: IpAddr, other: IpAddr| ip.is_unspecified() && (ip.is_ipv6() || other.is_ipv4());
    let (x, y) = (a.ip(), b.ip());
    a.port() == b.port() && a.port() != 0 && (x == y || takes_all(x, y) || takes_all(y, x))
}

impl SectionReader<'_> {
    pub(super) fn listen(&mut self, raw: file::Listen, enabled: EnabledListeners) -> ListenConfig {
        let EnabledListeners { has_tokens, has_routes, has_envoy } = enabled;
        let position =
            |listener: &Option<Located<Listener>>| listener.as_ref().and_then(|listener| listener.position);
        let positions = [&raw.gateway, &raw.api, &raw.grpc, &raw.admin].map(position);
        let shared = raw.tls.map(|tls| self.tls("listen.tls", &tls));
        let gateway =
            self.listener("listen.gateway", raw.gateway.as_ref(), GATEWAY, &shared, Audience::Public);
        let callers = Audience::DecisionCallers { has_tokens };
        let api = self.listener("listen.api", raw.api.as_ref(), API, &shared, callers);
        let grpc = self.listener("listen.grpc", raw.grpc.as_ref(), GRPC, &shared, Audience::Envoy);
        let is_off = match raw.admin.as_ref() {
            Some(Located { value: Listener::Address(text), .. }) => self.is_off(text),
            Some(Located { value: Listener::Section(_), .. }) | None => false,
        };
        let admin = raw.admin.as_ref();
        let admin = (!is_off).then(|| self.listener("listen.admin", admin, ADMIN, &shared, callers));
        let open = [has_routes.then_some(&gateway), Some(&api), has_envoy.then_some(&grpc), admin.as_ref()];
        let names = ["listen.gateway", "listen.api", "listen.grpc", "listen.admin"];
        let open = open.into_iter().zip(names).zip(positions);
        let open: Vec<_> = open
            .filter_map(|((listener, name), position)| Some((name, listener?.address, position)))
            .collect();
        self.check_ports(&open);
        let control = self.control(raw.control.as_ref());
        ListenConfig { gateway, api, grpc, admin, control }
    }

    /// The control socket's path. A service of systemd has a folder for it.
    fn control(&mut self, raw: Option<&RawValue<FileName>>) -> Option<PathBuf> {
        match raw {
            Some(raw) if self.is_off(&raw.text) => None,
            Some(raw) => self.read("listen.control", raw).map(|name| PathBuf::from(name.0)),
            None => {
                let folders = (self.environment)("RUNTIME_DIRECTORY")?;
                let first = folders.split(':').next().filter(|folder| !folder.is_empty())?;
                Some(Path::new(first).join("control.sock"))
            }
        }
    }

    /// Reports listeners on the same port.
    fn check_ports(&mut self, open: &[(&str, SocketAddr, Option<Position>)]) {
        for (n, (name, address, position)) in open.iter().enumerate() {
            let earlier = open.iter().take(n).find(|(_, earlier, _)| clash(*earlier, *address));
            if let Some((other, taken, position_of_other)) = earlier {
                self.error(position.or(*position_of_other), format!(
                    "{name} is {address}, which is already used by {other} ({taken}); give each listener its own port"
                ));
            }
        }
    }

    fn listener(
        &mut self,
        path: &'static str,
        raw: Option<&Located<Listener>>,
        default: SocketAddr,
        shared: &Option<Option<(Tls, ClientAuth)>>,
        audience: Audience,
    ) -> ListenerConfig {
        let position = raw.and_then(|raw| raw.position);
        let (address, own, proxy, is_open) = match raw.map(|raw| &raw.value) {
            None => (None, None, None, false),
            Some(Listener::Address(text)) => (self.address(path, position, text), None, None, false),
            Some(Listener::Section(section)) => (
                self.read_if(&format!("{path}.address"), &section.address),
                section.tls.as_ref().map(|tls| self.tls(&format!("{path}.tls"), tls)),
                section.proxy_protocol.as_ref().map(|proxy| self.proxy_protocol(path, proxy)),
                self.is_open(path, section, audience),
            ),
        };
        let address = address.unwrap_or(default);
        let tls = own.or_else(|| shared.clone());
        // An unreadable certificate is reported already; its client_ca is unknown.
        let is_broken = matches!(tls, Some(None));
        let tls = tls.flatten();
        let client_auth = tls.as_ref().map_or(ClientAuth::Anonymous, |(_, client_auth)| *client_auth);
        let listener = ListenerConfig { address, tls: tls.map(|(tls, _)| tls), proxy_protocol: proxy };
        if listener.is_exposed() && client_auth == ClientAuth::Anonymous && !is_open && !is_broken {
            self.check_protection(path, &listener, position, audience);
        }
        listener
    }

    /// Which load balancers announce clients.
    fn proxy_protocol(
        &mut self,
        path: &'static str,
        raw: &Located<file::ListenProxyProtocol>,
    ) -> ProxyProtocol {
        let setting = format!("{path}.proxy_protocol.from");
        let networks = raw.value.from.as_ref();
        let items = networks.map(|networks| networks.items.as_slice()).unwrap_or_default();
        if items.is_empty() {
            let position = networks.and_then(|networks| networks.position).or(raw.position);
            let problem = "is empty; name the networks of your load balancers, for example [10.0.0.0/8]";
            self.error(position, format!("{setting} {problem}"));
        }
        let mut from: Vec<IpNet> = Vec::new();
        for item in items {
            let Some(network) = self.read(&setting, item) else { continue };
            if network.prefix_len() == 0 {
                let problem = "includes every address, so anyone who reaches this listener can forge a client's address; name the networks of your load balancers";
                self.warn(item.position, format!("{setting}: {network} {problem}"));
            }
            match network {
                IpNet::V6(mapped)
                    if mapped.addr().to_ipv4_mapped().is_some() && mapped.prefix_len() >= 96 =>
                {
                    self.error(
                        item.position,
                        format!("{setting} is \"{network}\"; write it as an IPv4 network"),
                    );
                }
                IpNet::V4(_) | IpNet::V6(_) => from.push(network),
            }
        }
        // In the log as in metrics: `gateway`.
        ProxyProtocol::new(path.trim_start_matches("listen."), from)
    }

    /// Notes a listener that other machines can reach, if it asks for no certificate and needs something to protect it.
    fn check_protection(
        &mut self,
        path: &str,
        listener: &ListenerConfig,
        position: Option<Position>,
        audience: Audience,
    ) {
        let address = listener.address;
        let by_proxy = listener.proxy_protocol.is_some();
        let how = if by_proxy { ", with proxy_protocol" } else { "" };
        let what_to_do = match audience {
            Audience::Public | Audience::DecisionCallers { has_tokens: true } => return,
            Audience::DecisionCallers { has_tokens: false } => {
                if by_proxy {
                    "; set api.tokens, or set tls with client_ca"
                } else {
                    "; set api.tokens, set tls with client_ca, or listen on 127.0.0.1"
                }
            }
            Audience::Envoy if by_proxy => {
                ": every client could use up limits; set tls with client_ca, or set open: true if only your own Envoys can reach it"
            }
            Audience::Envoy => {
                ": every client could use up limits; set tls with client_ca, listen on 127.0.0.1, or set open: true if only your own Envoys can reach it"
            }
        };
        self.error(
            position,
            format!(
                "{path} is reachable from other machines without protection ({address}{how}){what_to_do}"
            ),
        );
    }

    /// Whether the file says that a listener needs no protection. Only Envoy's may.
    fn is_open(&mut self, path: &str, section: &file::ListenerSection, audience: Audience) -> bool {
        if let Some(open) = section.open.as_ref().filter(|_| audience != Audience::Envoy) {
            let position = open.position;
            self.error(
                position,
                format!("{path}.open is not supported: open is for listen.grpc only; remove it"),
            );
        }
        self.read_if(&format!("{path}.open"), &section.open).unwrap_or(false)
    }

    fn address(&mut self, path: &str, position: Option<Position>, text: &str) -> Option<SocketAddr> {
        let mut raw = RawValue::without_position(text);
        raw.position = position;
        self.read(path, &raw)
    }

    /// A certificate, and whom it admits. Nothing, if something is wrong with it.
    fn tls(&mut self, path: &str, raw: &file::ListenTls) -> Option<(Tls, ClientAuth)> {
        let (Some(cert), Some(key)) = (&raw.cert, &raw.key) else {
            let position =
                [&raw.cert, &raw.key, &raw.client_ca].into_iter().flatten().find_map(|name| name.position);
            let lacks = if raw.cert.is_none() { "cert" } else { "key" };
            self.error(position, format!("{path} has no {lacks}; set both cert and key"));
            return None;
        };
        let position = cert.position;
        let client_ca = match &raw.client_ca {
            None => None,
            Some(name) => Some(self.content(&format!("{path}.client_ca"), name)?),
        };
        let cert = self.content(&format!("{path}.cert"), cert);
        let key = self.content(&format!("{path}.key"), key);
        let tls = Tls::new(&cert?, &key?, client_ca.as_deref());
        let client_auth = if client_ca.is_some() { ClientAuth::Certificate } else { ClientAuth::Anonymous };
        let tls = tls.map_err(|error| self.error(position, format!("{path}: {error}"))).ok()?;
        Some((tls, client_auth))
    }
}
