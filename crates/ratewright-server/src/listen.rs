//! Accepts HTTP connections until the program stops.
//!
//! Everything is bounded: the number of connections, the size of a request's head and the time to send it, the time
//! for the client to read a response, and the time to finish after a stop. A TLS handshake has the time of a head, and
//! runs in the connection's own task, so that a slow one delays no other client.
//!
//! ```text
//!   accept ─ slot? ─► task:  [PROXY protocol] ─► [TLS handshake] ─► head ─► response ─┐
//!                             head_within         head_within       ▲  head_within   │ read_within
//!                                                                   └────────────────┘
//! ```

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use http::header::CONNECTION;
use http::{HeaderValue, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use ratewright_http::Problem;
use ratewright_http::correlation::given_id;
use ratewright_listen::{
    Alpn, ConnectionSetup, LazyTimer, ParseErrorLog, ParseErrors, ProxyProtocol, RenderParseError, Shutdown,
    Tls, WriteTimeout, accept_queued,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower::{Service, ServiceExt};

use crate::access::{BehindLoadBalancer, ClientCertified};
use crate::response::add_request_id;

/// Limits and timeouts of connections.
#[derive(Clone, Copy, Debug)]
pub struct Listening {
    /// The most connections; more wait in the operating system's queue.
    pub connections_max: usize,
    /// The most bytes of a request's head, and of a connection's buffers. At least 8 KiB.
    pub head_bytes_max: usize,
    /// Time for the TLS handshake, and for a request's head.
    pub head_within: Duration,
    /// Time in which a client must read some of a response.
    pub read_within: Duration,
    /// Time for requests in flight to finish after a stop.
    pub drain_timeout: Duration,
}

impl Default for Listening {
    fn default() -> Self {
        Self {
            connections_max: 10_000,
            head_bytes_max: 16 * 1024,
            head_within: Duration::from_secs(10),
            read_within: Duration::from_secs(10),
            drain_timeout: Duration::from_secs(10),
        }
    }
}

/// An accepted connection.
struct ClientConnection {
    peer: SocketAddr,
    router: Router,
    listening: Listening,
    /// Signals a graceful shutdown, and is dropped with the connection.
    watcher: Watcher,
    stop: Shutdown,
    client_certified: Option<ClientCertified>,
    /// Set if the listener requires the PROXY protocol.
    behind_load_balancer: Option<BehindLoadBalancer>,
}

/// Serves until `stop`. Then no more connections are accepted, handshakes end, and requests in flight finish.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    listening: Listening,
    setup: impl Into<ConnectionSetup>,
    stop: Shutdown,
) {
    let ConnectionSetup { proxy_protocol, tls } = setup.into();
    let behind_load_balancer = proxy_protocol.as_ref().map(|_| BehindLoadBalancer);
    let slots = Arc::new(Semaphore::new(listening.connections_max));
    let graceful = GracefulShutdown::new();
    let admit = |(mut stream, peer): (TcpStream, SocketAddr), slot: Option<OwnedSemaphorePermit>| {
        // Responses are small, so waiting to fill a packet only adds latency. An error here does no harm.
        let _ = stream.set_nodelay(true);
        let (router, watcher, stop) = (router.clone(), graceful.watcher(), stop.clone());
        let mut connection = ClientConnection {
            peer,
            router,
            listening,
            watcher,
            stop,
            client_certified: None,
            behind_load_balancer,
        };
        let (proxy_protocol, tls) = (proxy_protocol.clone(), tls.clone());
        tokio::spawn(async move {
            // Boxed, so that connections without it stay small.
            if let Some(proxy) = proxy_protocol
                && !Box::pin(connection.read_proxy_header(&mut stream, proxy)).await
            {
                return;
            }
            let stream = WriteTimeout::new(stream, listening.read_within);
            match tls {
                None => connection.serve(stream).await,
                // Boxed, so that connections without TLS stay small.
                Some(tls) => Box::pin(connection.serve_tls(stream, tls)).await,
            }
            drop(slot);
        });
    };
    let accepting = async {
        loop {
            let slot = Arc::clone(&slots).acquire_owned().await.ok();
            admit(accept(&listener).await, slot);
        }
    };
    tokio::select! {
        () = accepting => {}
        () = stop.accepting_ended() => {}
    }
    for accepted in accept_queued(listener) {
        let Ok(slot) = Arc::clone(&slots).try_acquire_owned() else { break };
        admit(accepted, Some(slot));
    }
    let finished = async {
        while graceful.count() > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        () = finished => {}
        () = stop.first_request_timeout() => {}
    }
    let _ = tokio::time::timeout(listening.drain_timeout, graceful.shutdown()).await;
}

/// The next connection. Running out of file descriptors passes; trying without a pause would not help.
async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

impl ClientConnection {
    /// Reads the client's address from the PROXY protocol header. False: the header is invalid, or the listener stops.
    async fn read_proxy_header(&mut self, stream: &mut TcpStream, proxy: ProxyProtocol) -> bool {
        let client = tokio::select! {
            client = proxy.client(stream, self.peer, self.listening.head_within) => client,
            () = self.stop.first_request_timeout() => None,
        };
        self.peer = client.unwrap_or(self.peer);
        client.is_some()
    }

    /// Does the TLS handshake, then serves. A stop ends an unfinished handshake.
    async fn serve_tls(mut self, stream: WriteTimeout, tls: Tls) {
        let stop = self.stop.clone();
        let stream = tokio::select! {
            stream = tls.accept(stream, self.peer.ip(), Alpn::Http1, self.listening.head_within) => stream,
            () = stop.first_request_timeout() => None,
        };
        if let Some(stream) = stream {
            // A presented certificate is verified: TLS requests one only if a client CA is configured.
            self.client_certified = stream.get_ref().1.peer_certificates().map(|_| ClientCertified);
            self.serve(stream).await;
        }
    }

    /// Serves requests until the client closes the connection or the listener stops.
    async fn serve(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let Self { peer, router, listening, watcher, stop, client_certified, behind_load_balancer } = self;
        let stop = Arc::new(stop); // cheaper to clone for each request
        let router = router.into_service::<Incoming>();
        let service = hyper::service::service_fn(move |mut request: http::Request<Incoming>| {
            request.extensions_mut().insert(ConnectInfo(peer));
            if let Some(client_certified) = client_certified {
                request.extensions_mut().insert(client_certified);
            }
            if let Some(behind_load_balancer) = behind_load_balancer {
                request.extensions_mut().insert(behind_load_balancer);
            }
            let (mut router, stop) = (router.clone(), Arc::clone(&stop));
            async move {
                // Cloning a URI shares its text.
                let (uri, given) = (request.uri().clone(), given_id(request.headers()).map(str::to_owned));
                let mut response = router.ready().await?.call(request).await?;
                if stop.has_begun() {
                    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                }
                let status = response.status();
                if !status.is_client_error() && !status.is_server_error() {
                    return Ok::<_, Infallible>(response);
                }
                Ok(add_request_id(response, uri.path(), &given.unwrap_or_else(new_id)))
            }
        });
        let stream = ParseErrors::new(stream, ParseErrorResponder { peer: peer.ip() });
        let http = http1::Builder::new()
            .timer(LazyTimer::default())
            .header_read_timeout(listening.head_within)
            .max_buf_size(listening.head_bytes_max.max(8 * 1024))
            .serve_connection(TokioIo::new(stream), service);
        // Connection errors concern the client only.
        let _ = watcher.watch(http).await;
    }
}

/// Responds to requests that hyper cannot parse.
struct ParseErrorResponder {
    peer: IpAddr,
}

impl RenderParseError for ParseErrorResponder {
    fn render(&mut self, status: u16) -> Option<Vec<u8>> {
        let id = new_id();
        ParseErrorLog::report(self.peer, status, &id);
        let status = StatusCode::from_u16(status).ok()?;
        Some(Problem::unparsed(status).of_request(None, &id).render_http1())
    }
}

/// An id for a request without one.
fn new_id() -> String {
    format!("{:032x}", fastrand::u128(..))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::get;
    use tokio::io::AsyncWriteExt;

    /// A client that never reads loses its connection, which frees the slot for the next client.
    #[tokio::test]
    async fn a_client_that_never_reads_loses_its_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().route("/", get(|| async { "x".repeat(10_000) }));
        let read_within = Duration::from_millis(100);
        let listening = Listening { connections_max: 1, read_within, ..Listening::default() };
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let served = tokio::spawn(serve(
            listener,
            router,
            listening,
            None,
            Shutdown::when(async { drop(stopped.await) }),
        ));

        let mut unread = TcpStream::connect(address).await.unwrap();
        let asks_until_it_is_cut_off =
            async { while unread.write_all(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n").await.is_ok() {} };
        let within = Duration::from_secs(30);
        tokio::time::timeout(within, asks_until_it_is_cut_off).await.expect("it is cut off");
        let mut next = TcpStream::connect(address).await.unwrap();
        next.write_all(b"GET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        let reads = tokio::io::AsyncReadExt::read_to_string(&mut next, &mut answer);
        tokio::time::timeout(within, reads).await.expect("the next is served").unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
        stop.send(()).unwrap();
        served.await.unwrap();
    }
}
