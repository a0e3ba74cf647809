//! One Envoy, with the rate limit filter in front of an upstream.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::server_process::ServerProcess;

/// An Envoy of its own.
#[derive(Debug)]
pub struct Envoy {
    port: u16,
    /// Ends before its folder does.
    _running: ServerProcess,
    _folder: TempDir,
}

/// How the filter asks.
#[derive(Clone, Copy, Debug)]
pub struct Filter<'a> {
    /// Where the rate limit service is.
    pub service: &'a str,
    /// Where requests go that pass.
    pub upstream: &'a str,
    /// Whether requests are denied when the service gives no answer.
    pub failure_mode_deny: bool,
    /// How long it waits for an answer.
    pub timeout: &'a str,
    /// More settings of the connection manager, in YAML, each line by itself.
    pub connection_manager: &'a str,
    /// `rate_limits` of the route, in YAML, each line by itself.
    pub rate_limits: &'a str,
    /// The same of the route's section for the filter, which alone knows of hits. If there is one, the other does not count.
    pub counted_limits: &'a str,
    /// What the service and the filter show each other.
    pub trust: Trust<'a>,
}

/// What two show each other, from a folder of [`crate::write_certificates`].
#[derive(Clone, Copy, Debug)]
pub enum Trust<'a> {
    /// Nothing: there is no TLS.
    Blind,
    /// The service shows its certificate.
    OneSided(&'a Path),
    /// Both show theirs.
    Mutual(&'a Path),
}

const FILE: &str = "\
static_resources:
  listeners:
  - address: {socket_address: {address: 127.0.0.1, port_value: PORT}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          '@type': type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: edge
CONNECTION_MANAGER
          route_config:
            virtual_hosts:
            - name: all
              domains: ['*']
              routes:
              - match: {prefix: /}
                route:
                  cluster: upstream
                  rate_limits:
RATE_LIMITS
COUNTED_LIMITS
          http_filters:
          - name: envoy.filters.http.ratelimit
            typed_config:
              '@type': type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit
              domain: edge
              failure_mode_deny: DENY
              timeout: TIMEOUT
              enable_x_ratelimit_headers: DRAFT_VERSION_03
              rate_limit_service:
                transport_api_version: V3
                grpc_service: {envoy_grpc: {cluster_name: ratewright}}
          - name: envoy.filters.http.router
            typed_config:
              '@type': type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
  clusters:
  - name: upstream
    load_assignment:
      cluster_name: upstream
      endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: UPSTREAM}}}]}]
  - name: ratewright
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        '@type': type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {http2_protocol_options: {}}
    load_assignment:
      cluster_name: ratewright
      endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: SERVICE}}}]}]
TRUST
";

/// The route's section for the filter.
const PER_ROUTE: &str = "                typed_per_filter_config:
                  envoy.filters.http.ratelimit:
                    '@type': type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute
                    rate_limits:
";

impl Filter<'_> {
    /// One that waits for long and denies nothing for want of an answer.
    pub const PATIENT: Self = Self {
        service: "",
        upstream: "",
        failure_mode_deny: false,
        timeout: "2s",
        connection_manager: "",
        rate_limits: "",
        counted_limits: "",
        trust: Trust::Blind,
    };
}

impl Envoy {
    /// Where it is installed, if it is.
    pub fn program() -> Option<PathBuf> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?;
        Some(root.join("target/envoy/bin/envoy")).filter(|program| program.exists())
    }

    /// Starts one, and waits until it listens.
    ///
    /// # Panics
    /// If it is not installed, or does not start.
    pub fn start(filter: &Filter<'_>) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let rate_limits = indented(filter.rate_limits, 18);
        let counted_limits = match filter.counted_limits {
            "" => String::new(),
            limits => format!("{PER_ROUTE}{}", indented(limits, 20)),
        };
        let (port, running) = ServerProcess::on_free_port(|port| {
            let text = FILE
                .replace("PORT", &port.to_string())
                .replace("CONNECTION_MANAGER\n", &indented(filter.connection_manager, 10))
                .replace("COUNTED_LIMITS\n", &counted_limits)
                .replace("RATE_LIMITS\n", &rate_limits)
                .replace("TIMEOUT", filter.timeout)
                .replace("DENY", &filter.failure_mode_deny.to_string())
                .replace("UPSTREAM", &socket(filter.upstream))
                .replace("SERVICE", &socket(filter.service))
                .replace("TRUST\n", &filter.trust.transport_socket());
            Self::run_in(folder.path(), &text)
        });
        Self { port, _running: running, _folder: folder }
    }

    /// Starts one with this configuration, which listens on this port of loopback.
    ///
    /// # Panics
    /// If it is not installed, or does not start.
    pub fn serve(text: &str, port: u16) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let running = Self::run_in(folder.path(), text);
        running.wait_for_port(port);
        Self { port, _running: running, _folder: folder }
    }

    fn run_in(folder: &Path, text: &str) -> ServerProcess {
        let program = Self::program().expect("Envoy is missing; `make deps` installs it");
        let (file, log) = (folder.join("envoy.yaml"), folder.join("envoy.log"));
        std::fs::write(&file, text).expect("a file");
        let command = [program.as_os_str(), "-c".as_ref(), file.as_os_str(), "--concurrency".as_ref()];
        // It would keep the lines of an access log for ten seconds.
        let more = ["1", "--disable-hot-restart", "-l", "warn", "--file-flush-interval-msec", "50"];
        let command = command.into_iter().chain(more.map(AsRef::as_ref));
        ServerProcess::start(command, log)
    }

    /// Where it listens.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

impl Trust<'_> {
    /// What the cluster of the service needs for it.
    fn transport_socket(self) -> String {
        let (folder, own) = match self {
            Self::Blind => return String::new(),
            Self::OneSided(folder) => (folder.display(), String::new()),
            Self::Mutual(folder) => {
                let folder = folder.display();
                let [cert, key] = ["pem", "key"].map(|end| format!("{{filename: {folder}/client.{end}}}"));
                (
                    folder,
                    format!(
                        "\n          tls_certificates: [{{certificate_chain: {cert}, private_key: {key}}}]"
                    ),
                )
            }
        };
        format!(
            "    transport_socket:
      name: envoy.transport_sockets.tls
      typed_config:
        '@type': type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
        common_tls_context:
          validation_context: {{trusted_ca: {{filename: {folder}/ca.pem}}}}{own}
"
        )
    }
}

/// Lines, so far to the right.
fn indented(lines: &str, by: usize) -> String {
    lines.lines().map(|line| format!("{:by$}{line}\n", "")).collect()
}

/// An address as Envoy writes it.
fn socket(address: &str) -> String {
    let (host, port) = address.rsplit_once(':').expect("an address with a port");
    format!("{{address: {host}, port_value: {port}}}")
}
