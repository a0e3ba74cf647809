//! The `listen` section: which doors are open, where, and to whom.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use ratewright_listen::{ConnectionSetup, ProxyProtocol, Tls};
use ratewright_server::is_exposed;

use super::file::{self, Listener};
use super::meaning::FileName;
use super::reader::Reader;
use super::written::{At, Place, Written};

/// The doors.
#[derive(Debug)]
pub(crate) struct ListenConfig {
    /// The reverse proxy.
    pub(crate) gateway: DoorConfig,
    /// REST decisions.
    pub(crate) api: DoorConfig,
    /// Envoy's rate limit service.
    pub(crate) grpc: DoorConfig,
    /// Metrics, health, inspection. None: there is no such door.
    pub(crate) admin: Option<DoorConfig>,
    /// The control socket's path.
    pub(crate) control: Option<PathBuf>,
}

/// One door.
#[derive(Clone, Debug)]
pub(crate) struct DoorConfig {
    pub(crate) address: SocketAddr,
    pub(crate) tls: Option<Tls>,
    pub(crate) proxy_protocol: Option<ProxyProtocol>,
}

impl DoorConfig {
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

/// Whom a door is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum For {
    /// Whoever asks: it only passes on what may be asked.
    Anybody,
    /// Those who may decide; off loopback, something must tell them from others. There are tokens, or there are none.
    Deciders { has_tokens: bool },
    /// Envoy, which uses up limits of others; off loopback it needs a certificate, unless the file says `open`.
    Envoy,
}

/// Whom a certificate admits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Admits {
    Anybody,
    ClientsOfTheCa,
}

/// What the rest of the file says of doors.
pub(super) struct Doors {
    /// There are tokens by which those who may decide are known.
    pub(super) has_tokens: bool,
    /// There are routes, and so the gateway's door.
    pub(super) has_routes: bool,
    /// There are rules for Envoy, and so its door.
    pub(super) has_envoy: bool,
}

/// True if one address takes the port of the other: it is the same, or stands for all of them.
fn clash(a: SocketAddr, b: SocketAddr) -> bool {
    let takes_all = |ip: IpAddr, other: IpAddr| ip.is_unspecified() && (ip.is_ipv6() || other.is_ipv4());
    let (x, y) = (a.ip(), b.ip());
    a.port() == b.port() && a.port() != 0 && (x == y || takes_all(x, y) || takes_all(y, x))
}

impl Reader<'_> {
    pub(super) fn listen(&mut self, written: file::Listen, doors: Doors) -> ListenConfig {
        let Doors { has_tokens, has_routes, has_envoy } = doors;
        let place = |door: &Option<At<Listener>>| door.as_ref().and_then(|door| door.place);
        let places = [&written.gateway, &written.api, &written.grpc, &written.admin].map(place);
        let shared = written.tls.map(|tls| self.tls("listen.tls", &tls));
        let gateway = self.door("listen.gateway", written.gateway.as_ref(), GATEWAY, &shared, For::Anybody);
        let deciders = For::Deciders { has_tokens };
        let api = self.door("listen.api", written.api.as_ref(), API, &shared, deciders);
        let grpc = self.door("listen.grpc", written.grpc.as_ref(), GRPC, &shared, For::Envoy);
        let is_off = match written.admin.as_ref() {
            Some(At { value: Listener::Address(text), .. }) => self.is_off(text),
            Some(At { value: Listener::Section(_), .. }) | None => false,
        };
        let admin = written.admin.as_ref();
        let admin = (!is_off).then(|| self.door("listen.admin", admin, ADMIN, &shared, deciders));
        let open = [has_routes.then_some(&gateway), Some(&api), has_envoy.then_some(&grpc), admin.as_ref()];
        let names = ["listen.gateway", "listen.api", "listen.grpc", "listen.admin"];
        let open = open.into_iter().zip(names).zip(places);
        let open: Vec<_> =
            open.filter_map(|((door, name), place)| Some((name, door?.address, place))).collect();
        self.keep_apart(&open);
        let control = self.control(written.control.as_ref());
        ListenConfig { gateway, api, grpc, admin, control }
    }

    /// The control socket's path. A service of systemd has a folder for it.
    fn control(&mut self, written: Option<&Written<FileName>>) -> Option<PathBuf> {
        match written {
            Some(written) if self.is_off(&written.text) => None,
            Some(written) => self.read("listen.control", written).map(|name| PathBuf::from(name.0)),
            None => {
                let folders = (self.environment)("RUNTIME_DIRECTORY")?;
                let first = folders.split(':').next().filter(|folder| !folder.is_empty())?;
                Some(Path::new(first).join("control.sock"))
            }
        }
    }

    /// Notes doors of which the second could not be opened.
    fn keep_apart(&mut self, open: &[(&str, SocketAddr, Option<Place>)]) {
        for (n, (name, address, place)) in open.iter().enumerate() {
            let earlier = open.iter().take(n).find(|(_, earlier, _)| clash(*earlier, *address));
            if let Some((other, taken, place_of_other)) = earlier {
                self.wrong(place.or(*place_of_other), format!(
                    "{name} is {address}, where {other} listens ({taken}); give each door a port of its own"
                ));
            }
        }
    }

    fn door(
        &mut self,
        path: &'static str,
        written: Option<&At<Listener>>,
        default: SocketAddr,
        shared: &Option<Option<(Tls, Admits)>>,
        whom: For,
    ) -> DoorConfig {
        let place = written.and_then(|written| written.place);
        let (address, own, proxy, is_open) = match written.map(|written| &written.value) {
            None => (None, None, None, false),
            Some(Listener::Address(text)) => (self.address(path, place, text), None, None, false),
            Some(Listener::Section(section)) => (
                self.read_if(&format!("{path}.address"), &section.address),
                section.tls.as_ref().map(|tls| self.tls(&format!("{path}.tls"), tls)),
                section.proxy_protocol.as_ref().map(|proxy| self.proxy_protocol(path, proxy)),
                self.is_open(path, section, whom),
            ),
        };
        let address = address.unwrap_or(default);
        let tls = own.or_else(|| shared.clone());
        // Of a certificate that cannot be read nobody knows whom it admits; that is told already.
        let is_broken = matches!(tls, Some(None));
        let tls = tls.flatten();
        let admits = tls.as_ref().map_or(Admits::Anybody, |(_, admits)| *admits);
        let door = DoorConfig { address, tls: tls.map(|(tls, _)| tls), proxy_protocol: proxy };
        if door.is_exposed() && admits == Admits::Anybody && !is_open && !is_broken {
            self.check_protection(path, &door, place, whom);
        }
        door
    }

    /// Which load balancers announce clients.
    fn proxy_protocol(
        &mut self,
        path: &'static str,
        written: &At<file::ListenProxyProtocol>,
    ) -> ProxyProtocol {
        let setting = format!("{path}.proxy_protocol.from");
        let networks = written.value.from.as_ref();
        let items = networks.map(|networks| networks.items.as_slice()).unwrap_or_default();
        if items.is_empty() {
            let place = networks.and_then(|networks| networks.place).or(written.place);
            let problem = "is empty; name the networks of your load balancers, for example [10.0.0.0/8]";
            self.wrong(place, format!("{setting} {problem}"));
        }
        let mut from: Vec<IpNet> = Vec::new();
        for item in items {
            let Some(network) = self.read(&setting, item) else { continue };
            if network.prefix_len() == 0 {
                let problem = "includes every address, so anyone who reaches this listener can forge a client's address; name the networks of your load balancers";
                self.warn(item.place, format!("{setting}: {network} {problem}"));
            }
            match network {
                IpNet::V6(mapped)
                    if mapped.addr().to_ipv4_mapped().is_some() && mapped.prefix_len() >= 96 =>
                {
                    self.wrong(
                        item.place,
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
    fn check_protection(&mut self, path: &str, door: &DoorConfig, place: Option<Place>, whom: For) {
        let address = door.address;
        let by_proxy = door.proxy_protocol.is_some();
        let how = if by_proxy { ", with proxy_protocol" } else { "" };
        let what_to_do = match whom {
            For::Anybody | For::Deciders { has_tokens: true } => return,
            For::Deciders { has_tokens: false } => {
                if by_proxy {
                    "; set api.tokens, or set tls with client_ca"
                } else {
                    "; set api.tokens, set tls with client_ca, or listen on 127.0.0.1"
                }
            }
            For::Envoy if by_proxy => {
                ": every client could use up limits; set tls with client_ca, or set open: true if only your own Envoys can reach it"
            }
            For::Envoy => {
                ": every client could use up limits; set tls with client_ca, listen on 127.0.0.1, or set open: true if only your own Envoys can reach it"
            }
        };
        self.wrong(
            place,
            format!(
                "{path} is reachable from other machines without protection ({address}{how}){what_to_do}"
            ),
        );
    }

    /// Whether the file says that a listener needs no protection. Only Envoy's may.
    fn is_open(&mut self, path: &str, section: &file::ListenerSection, whom: For) -> bool {
        if let Some(open) = section.open.as_ref().filter(|_| whom != For::Envoy) {
            let place = open.place;
            self.wrong(
                place,
                format!("{path}.open is not supported: open is for listen.grpc only; remove it"),
            );
        }
        self.read_if(&format!("{path}.open"), &section.open).unwrap_or(false)
    }

    fn address(&mut self, path: &str, place: Option<Place>, text: &str) -> Option<SocketAddr> {
        let mut written = Written::unwritten(text);
        written.place = place;
        self.read(path, &written)
    }

    /// A certificate, and whom it admits. Nothing, if something is wrong with it.
    fn tls(&mut self, path: &str, written: &file::ListenTls) -> Option<(Tls, Admits)> {
        let (Some(cert), Some(key)) = (&written.cert, &written.key) else {
            let place = [&written.cert, &written.key, &written.client_ca]
                .into_iter()
                .flatten()
                .find_map(|name| name.place);
            let lacks = if written.cert.is_none() { "cert" } else { "key" };
            self.wrong(place, format!("{path} has no {lacks}; give both cert and key"));
            return None;
        };
        let place = cert.place;
        let client_ca = match &written.client_ca {
            None => None,
            Some(name) => Some(self.content(&format!("{path}.client_ca"), name)?),
        };
        let cert = self.content(&format!("{path}.cert"), cert);
        let key = self.content(&format!("{path}.key"), key);
        let tls = Tls::new(&cert?, &key?, client_ca.as_deref());
        let admits = if client_ca.is_some() { Admits::ClientsOfTheCa } else { Admits::Anybody };
        let tls = tls.map_err(|error| self.wrong(place, format!("{path}: {error}"))).ok()?;
        Some((tls, admits))
    }
}
