//! Which Redis, and how to reach it: one server, a Sentinel's master, or a Cluster.

use std::fmt;
use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster::ClusterClientBuilder;
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{RoutingInfo, SingleNodeRoutingInfo};
use redis::io::tcp::TcpSettings;
use redis::sentinel::{SentinelClientBuilder, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, Cmd, ConnectionAddr, ConnectionInfo, ErrorKind,
    IntoConnectionInfo, RedisResult, ServerErrorKind, TlsCertificates, Value,
};

use super::bounded_stream;
use super::error::{Endpoint, words};

/// The timeout of connecting.
const CONNECT_MAX: Duration = Duration::from_millis(1_000);

/// How many redirections a command follows, and the pause before a command is sent again because a node says so.
const REDIRECTS_MAX: usize = 8;
const TRY_AGAIN: Duration = Duration::from_millis(1);

/// Which Redis to use.
#[derive(Clone)]
pub struct Servers {
    topology: Topology,
    tls: Option<TlsCertificates>,
}

#[derive(Clone)]
enum Topology {
    Single(ConnectionInfo),
    Cluster(Vec<ConnectionInfo>),
    /// The master's name, the Sentinels, and how to log in to the master.
    Sentinel(String, Vec<ConnectionInfo>, Option<ConnectionInfo>),
}

/// Certificates in PEM.
#[derive(Clone, Default)]
pub struct Certificates {
    /// The certificate authority of the server; without it, those of the system.
    pub ca: Option<Vec<u8>>,
    /// Our certificate and key, for a server that requires one.
    pub client: Option<(Vec<u8>, Vec<u8>)>,
}

/// An invalid Redis address.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServersError {
    /// There is no address at all.
    #[error("no Redis address; use for example redis://127.0.0.1:6379")]
    None,
    /// An address is invalid. The error does not repeat it: it may hold a password.
    #[error(
        "address {n} is invalid ({cause}); use redis://[user:password@]host[:port][/db], rediss://… or unix:///path"
    )]
    Address {
        /// Its number, from 1.
        n: usize,
        /// What is wrong with it.
        cause: String,
    },
}

/// An open connection. Clones share it.
#[derive(Clone)]
pub(super) enum Connection {
    Node(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl Servers {
    /// One server: `redis://`, `rediss://` or `unix://`.
    ///
    /// # Errors
    /// If the address is invalid.
    pub fn single(url: &str) -> Result<Self, ServersError> {
        Ok(Self { topology: Topology::Single(address(1, url)?), tls: None })
    }

    /// A cluster, by some of its nodes.
    ///
    /// # Errors
    /// If an address is invalid, or there is no address.
    pub fn cluster(urls: &[impl AsRef<str>]) -> Result<Self, ServersError> {
        Ok(Self { topology: Topology::Cluster(addresses(urls)?), tls: None })
    }

    /// The master of this name, as the Sentinels report it. `login` is an address with the
    /// user and password for the master; its host does not matter.
    ///
    /// # Errors
    /// If an address is invalid, or there is no address.
    pub fn sentinel(
        master: &str,
        urls: &[impl AsRef<str>],
        login: Option<&str>,
    ) -> Result<Self, ServersError> {
        let login = login.map(|url| address(1, url)).transpose()?;
        Ok(Self { topology: Topology::Sentinel(master.to_owned(), addresses(urls)?, login), tls: None })
    }

    /// Uses these certificates where an address says `rediss://`.
    #[must_use]
    pub fn with_certificates(mut self, certificates: Certificates) -> Self {
        let client_tls =
            certificates.client.map(|(client_cert, client_key)| ClientTlsConfig { client_cert, client_key });
        self.tls = Some(TlsCertificates { client_tls, root_cert: certificates.ca });
        self
    }

    /// True for a cluster.
    pub(super) fn is_cluster(&self) -> bool {
        matches!(self.topology, Topology::Cluster(_))
    }

    /// Its address, without credentials.
    pub(super) fn endpoint(&self) -> Endpoint {
        match &self.topology {
            Topology::Single(info) => Endpoint::of([info.addr()].into_iter()),
            Topology::Cluster(nodes) => Endpoint::of(nodes.iter().map(ConnectionInfo::addr)),
            Topology::Sentinel(master, nodes, _) => {
                let nodes = Endpoint::of(nodes.iter().map(ConnectionInfo::addr));
                Endpoint(format!("{master} by sentinel {nodes}").into())
            }
        }
    }

    /// Opens a connection. Callers wait until the deadline; the connection itself times out a little later.
    pub(super) async fn connect(&self, deadline: Duration) -> RedisResult<Connection> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_MAX))
            .set_response_timeout(Some(CONNECT_MAX + deadline));
        match &self.topology {
            Topology::Single(info) => {
                let client = match (&self.tls, info.addr()) {
                    (Some(tls), ConnectionAddr::TcpTls { .. }) => {
                        Client::build_with_tls(info.clone(), tls.clone())?
                    }
                    _ => Client::open(info.clone())?,
                };
                Ok(Connection::Node(bounded_stream::connect(&client, config, CONNECT_MAX).await?))
            }
            Topology::Cluster(nodes) => {
                let mut builder = ClusterClientBuilder::new(nodes.clone())
                    .connection_timeout(CONNECT_MAX)
                    .response_timeout(CONNECT_MAX + deadline)
                    .tcp_settings(tcp())
                    // Its own retries would repeat calls that may have been applied.
                    .retries(0);
                if let Some(tls) = &self.tls {
                    builder = builder.certs(tls.clone());
                }
                Ok(Connection::Cluster(builder.build()?.get_async_connection().await?))
            }
            Topology::Sentinel(master, nodes, login) => {
                let mut client = sentinel(master, nodes, login.as_ref(), self.tls.as_ref())?;
                let master = client.async_get_client().await?;
                Ok(Connection::Node(bounded_stream::connect(&master, config, CONNECT_MAX).await?))
            }
        }
    }
}

impl Connection {
    /// Sends a command, and waits for the reply.
    pub(super) async fn send(&mut self, command: &Cmd) -> RedisResult<Value> {
        match self {
            Self::Node(connection) => connection.req_packed_command(command).await?.extract_error(),
            Self::Cluster(connection) => follow(connection, command).await,
        }
    }
}

/// Sends a command to its key's node, and follows redirections. A redirected command did not run; any other failed command is
/// not sent again.
async fn follow(connection: &mut ClusterConnection, command: &Cmd) -> RedisResult<Value> {
    let first = connection.req_packed_command(command).await;
    let mut answer = first.and_then(Value::extract_error);
    for _ in 0..REDIRECTS_MAX {
        let Err(error) = &answer else { break };
        let ErrorKind::Server(kind) = error.kind() else { break };
        let node = error.redirect_node().and_then(|(node, _)| {
            let (host, port) = node.rsplit_once(':')?;
            Some(SingleNodeRoutingInfo::ByAddress { host: host.to_owned(), port: port.parse().ok()? })
        });
        answer = match (kind, node) {
            (ServerErrorKind::Moved, Some(node)) => {
                let sent = connection.route_command(command.clone(), RoutingInfo::SingleNode(node)).await;
                sent.and_then(Value::extract_error)
            }
            (ServerErrorKind::Ask, Some(node)) => {
                // In one piece, so that no other command comes between.
                let mut pipeline = redis::pipe();
                pipeline.cmd("ASKING").add_command(command.clone());
                let sent = connection.route_pipeline(pipeline, 0, 2, node).await;
                sent.and_then(|mut values| values.pop().unwrap_or(Value::Nil).extract_error())
            }
            (ServerErrorKind::TryAgain, _) => {
                tokio::time::sleep(TRY_AGAIN).await;
                connection.req_packed_command(command).await.and_then(Value::extract_error)
            }
            _ => break,
        };
    }
    answer
}

/// A client that asks the Sentinels for the master at each connect.
fn sentinel(
    master: &str,
    nodes: &[ConnectionInfo],
    login: Option<&ConnectionInfo>,
    tls: Option<&TlsCertificates>,
) -> RedisResult<redis::sentinel::SentinelClient> {
    let addresses = nodes.iter().map(|node| node.addr().clone());
    let mut builder = SentinelClientBuilder::new(addresses, master, SentinelServerType::Master)?
        .set_client_to_redis_tcp_settings(tcp())
        .set_client_to_sentinel_tcp_settings(tcp());
    let sentinel = nodes.first().map(ConnectionInfo::redis_settings);
    if let Some(user) = sentinel.and_then(|info| info.username()) {
        builder = builder.set_client_to_sentinel_username(user);
    }
    if let Some(password) = sentinel.and_then(|info| info.password()) {
        builder = builder.set_client_to_sentinel_password(password);
    }
    if let Some(login) = login {
        let info = login.redis_settings();
        builder = builder.set_client_to_redis_db(info.db());
        if let Some(user) = info.username() {
            builder = builder.set_client_to_redis_username(user);
        }
        if let Some(password) = info.password() {
            builder = builder.set_client_to_redis_password(password);
        }
        if matches!(login.addr(), ConnectionAddr::TcpTls { .. }) {
            builder = builder.set_client_to_redis_tls_mode(redis::TlsMode::Secure);
        }
    }
    let is_secure = |info: &ConnectionInfo| matches!(info.addr(), ConnectionAddr::TcpTls { .. });
    if let Some(tls) = tls {
        if login.is_some_and(is_secure) {
            builder = builder.set_client_to_redis_certificates(tls.clone());
        }
        if nodes.iter().any(is_secure) {
            builder = builder.set_client_to_sentinel_certificates(tls.clone());
        }
    }
    builder.build()
}

fn addresses(urls: &[impl AsRef<str>]) -> Result<Vec<ConnectionInfo>, ServersError> {
    if urls.is_empty() {
        return Err(ServersError::None);
    }
    (1..).zip(urls).map(|(n, url)| address(n, url.as_ref())).collect()
}

fn address(n: usize, url: &str) -> Result<ConnectionInfo, ServersError> {
    let info = url.into_connection_info();
    let info = info.map_err(|error| ServersError::Address { n, cause: words(&error) })?;
    Ok(info.set_tcp_settings(tcp()))
}

/// Without `nodelay`, small calls would wait for each other; without the user timeout, a connection whose other
/// end has vanished would linger for a quarter of an hour.
fn tcp() -> TcpSettings {
    TcpSettings::default().set_nodelay(true).set_user_timeout(Duration::from_secs(5))
}

/// Shows the address, never the credentials.
impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Servers({})", self.endpoint())
    }
}

/// Shows only that certificates are set.
impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates")
            .field("ca", &self.ca.is_some())
            .field("client", &self.client.is_some())
            .finish()
    }
}
