//! Accepts connections for a door, and knows when to stop.
//!
//! Everything is bounded: connections at once, the size of a request's head and the time to send it, the time
//! that an answer may wait for its reader, the time to finish after a stop. With TLS the handshake has the time
//! of a head, and happens in the connection's own task, so that a slow one keeps nobody else waiting.
//!
//! ```text
//!   accept ─place?─► task:  [PROXY protocol] ─► [TLS handshake] ─► head ─► answer ─┐
//!                            head_within         head_within       ▲  head_within │ read_within
//!                                                                  └──────────────┘
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
use ratewright_http::{Problem, given_id};
use ratewright_listen::{
    Alpn, ConnectionSetup, LazyTimer, ParseErrorLog, ParseErrors, ProxyProtocol, RenderParseError, Shutdown,
    Tls, WriteTimeout, accept_queued,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower::{Service, ServiceExt};

use crate::access::{Balanced, Certified};
use crate::answer::identify;

/// How a door listens.
#[derive(Clone, Copy, Debug)]
pub struct Listening {
    /// Connections at once; more wait in the operating system's queue.
    pub connections_max: usize,
    /// Bytes that a request's head may have; also the size up to which a connection's buffers grow. At least 8 KiB.
    pub head_bytes_max: usize,
    /// Time to shake hands, and to send a request's head.
    pub head_within: Duration,
    /// Time in which a client must take some of an answer.
    pub read_within: Duration,
    /// Time for requests in hand to finish after a stop.
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

/// One client's connection, before a word is said.
struct Guest {
    peer: SocketAddr,
    door: Router,
    listening: Listening,
    /// Says when to end, and is gone when the connection is.
    watcher: Watcher,
    stop: Shutdown,
    certified: Option<Certified>,
    /// A load balancer announces the clients of this listener.
    balanced: Option<Balanced>,
}

/// Serves a door until it is told to stop. Then no connection is accepted any more, handshakes end, and requests in flight
/// finish.
pub async fn serve(
    listener: TcpListener,
    door: Router,
    listening: Listening,
    setup: impl Into<ConnectionSetup>,
    stop: Shutdown,
) {
    let ConnectionSetup { proxy_protocol, tls } = setup.into();
    let balanced = proxy_protocol.as_ref().map(|_| Balanced);
    let places = Arc::new(Semaphore::new(listening.connections_max));
    let graceful = GracefulShutdown::new();
    let admit = |(mut stream, peer): (TcpStream, SocketAddr), place: Option<OwnedSemaphorePermit>| {
        // Answers are small; waiting to fill a packet only adds to the latency. Failing to say so is no harm.
        let _ = stream.set_nodelay(true);
        let (door, watcher, stop) = (door.clone(), graceful.watcher(), stop.clone());
        let mut guest = Guest { peer, door, listening, watcher, stop, certified: None, balanced };
        let (proxy_protocol, tls) = (proxy_protocol.clone(), tls.clone());
        tokio::spawn(async move {
            // Boxed, so that other connections need not have the room for it.
            if let Some(proxy) = proxy_protocol
                && !Box::pin(guest.is_announced(&mut stream, proxy)).await
            {
                return;
            }
            let stream = WriteTimeout::new(stream, listening.read_within);
            match tls {
                None => guest.serve(stream).await,
                // Boxed, so that plain connections need not have the room for it.
                Some(tls) => Box::pin(guest.serve_tls(stream, tls)).await,
            }
            drop(place);
        });
    };
    let accepting = async {
        loop {
            let place = Arc::clone(&places).acquire_owned().await.ok();
            admit(accept(&listener).await, place);
        }
    };
    tokio::select! {
        () = accepting => {}
        () = stop.accepting_ended() => {}
    }
    for accepted in accept_queued(listener) {
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else { break };
        admit(accepted, Some(place));
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

impl Guest {
    /// Takes the address that a load balancer announces. False: it announces none, or the door closes.
    async fn is_announced(&mut self, stream: &mut TcpStream, proxy: ProxyProtocol) -> bool {
        let client = tokio::select! {
            client = proxy.client(stream, self.peer, self.listening.head_within) => client,
            () = self.stop.first_request_timeout() => None,
        };
        self.peer = client.unwrap_or(self.peer);
        client.is_some()
    }

    /// Shakes hands, and serves. Who has not shaken hands when the door closes is sent away.
    async fn serve_tls(mut self, stream: WriteTimeout, tls: Tls) {
        let stop = self.stop.clone();
        let stream = tokio::select! {
            stream = tls.accept(stream, self.peer.ip(), Alpn::Http1, self.listening.head_within) => stream,
            () = stop.first_request_timeout() => None,
        };
        if let Some(stream) = stream {
            // One that was shown was checked: TLS asks for none unless it can.
            self.certified = stream.get_ref().1.peer_certificates().map(|_| Certified);
            self.serve(stream).await;
        }
    }

    /// Answers requests until the client or the door has enough.
    async fn serve(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let Self { peer, door, listening, watcher, stop, certified, balanced } = self;
        let stop = Arc::new(stop); // a clone of its own for each request would cost more
        let door = door.into_service::<Incoming>();
        let service = hyper::service::service_fn(move |mut request: http::Request<Incoming>| {
            request.extensions_mut().insert(ConnectInfo(peer));
            if let Some(certified) = certified {
                request.extensions_mut().insert(certified);
            }
            if let Some(balanced) = balanced {
                request.extensions_mut().insert(balanced);
            }
            let (mut door, stop) = (door.clone(), Arc::clone(&stop));
            async move {
                // A copy of a path shares its text.
                let (uri, given) = (request.uri().clone(), given_id(request.headers()).map(str::to_owned));
                let mut response = door.ready().await?.call(request).await?;
                if stop.has_begun() {
                    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                }
                let status = response.status();
                if !status.is_client_error() && !status.is_server_error() {
                    return Ok::<_, Infallible>(response);
                }
                Ok(identify(response, uri.path(), &given.unwrap_or_else(made_id)))
            }
        });
        let stream = ParseErrors::new(stream, Unparsed { peer: peer.ip() });
        let connection = http1::Builder::new()
            .timer(LazyTimer::default())
            .header_read_timeout(listening.head_within)
            .max_buf_size(listening.head_bytes_max.max(8 * 1024))
            .serve_connection(TokioIo::new(stream), service);
        // A connection that breaks is its client's affair.
        let _ = watcher.watch(connection).await;
    }
}

/// Answers requests that hyper cannot parse.
struct Unparsed {
    peer: IpAddr,
}

impl RenderParseError for Unparsed {
    fn render(&mut self, status: u16) -> Option<Vec<u8>> {
        let id = made_id();
        ParseErrorLog::report(self.peer, status, &id);
        let status = StatusCode::from_u16(status).ok()?;
        Some(Problem::unparsed(status).of_request(None, &id).render_http1())
    }
}

/// The id of a request that brought none.
fn made_id() -> String {
    format!("{:032x}", fastrand::u128(..))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::get;
    use tokio::io::AsyncWriteExt;

    /// A client that asks and never reads loses its connection, and its place goes to the next.
    #[tokio::test]
    async fn a_client_that_never_reads_does_not_keep_its_place() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let door = Router::new().route("/", get(|| async { "x".repeat(10_000) }));
        let read_within = Duration::from_millis(100);
        let listening = Listening { connections_max: 1, read_within, ..Listening::default() };
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let served = tokio::spawn(serve(
            listener,
            door,
            listening,
            None,
            Shutdown::when(async { drop(stopped.await) }),
        ));

        let mut deaf = TcpStream::connect(address).await.unwrap();
        let asks_until_it_is_cut_off =
            async { while deaf.write_all(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n").await.is_ok() {} };
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
