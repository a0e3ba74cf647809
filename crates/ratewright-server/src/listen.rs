//! Serves HTTP/1.1 on the connections of a listener.
//!
//! Everything is bounded: the number of connections, the size of a request's head and the time to send it, the time
//! for the client to read a response, and the time to finish after a stop. A TLS handshake has the time of a head.
//!
//! ```text
//!   slot ─► [PROXY protocol] ─► [TLS handshake] ─► head ─► response ─┐
//!            head_within         head_within       ▲  head_within   │ read_within
//!                                                  └────────────────┘
//! ```

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::response::IntoResponse;
use http::header::CONNECTION;
use http::{HeaderMap, HeaderValue, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use ratewright_http::Problem;
use ratewright_http::correlation::given_id;
use ratewright_listen::listener::{Accepted, FixedLimits, Listener, ListenerOptions, WhenFull};
use ratewright_listen::{
    Alpn, ConnectionSetup, HyperTimer, ParseErrorLog, ParseErrors, RenderParseError, Shutdown,
};
use tokio::net::TcpListener;
use tower::{Service, ServiceExt};

use crate::access_control::{BehindLoadBalancer, ClientCertified};
use crate::response::{ProblemResponse, add_request_id};

/// Limits and timeouts of connections.
#[derive(Clone, Copy, Debug)]
pub struct HttpListenerSettings {
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

impl Default for HttpListenerSettings {
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

/// Serves until `stop`. Then no more connections are accepted, handshakes end, and requests in flight finish.
pub async fn serve(
    socket: TcpListener,
    router: Router,
    listening: HttpListenerSettings,
    setup: impl Into<ConnectionSetup>,
    stop: Shutdown,
) {
    serve_checked(socket, router, listening, setup, (stop, Arc::new(|_, _| None))).await;
}

/// Why a request is rejected before it is routed, by its path and headers. Cheaper than a layer of the router.
pub type RejectRequest = Arc<dyn Fn(&str, &HeaderMap) -> Option<Problem> + Send + Sync>;

/// Does the same, and rejects some requests before they are routed.
pub async fn serve_checked(
    socket: TcpListener,
    router: Router,
    listening: HttpListenerSettings,
    setup: impl Into<ConnectionSetup>,
    (stop, reject): (Shutdown, RejectRequest),
) {
    let options = ListenerOptions {
        setup: setup.into(),
        alpn: Alpn::Http1,
        when_full: WhenFull::Wait,
        write_timeout: listening.read_within,
        drain_timeout: listening.drain_timeout,
    };
    let HttpListenerSettings { connections_max, head_within: handshake_timeout, .. } = listening;
    let listener = Listener::new(options, FixedLimits { connections_max, handshake_timeout }, stop);
    listener
        .serve(socket, move |accepted| {
            serve_connection(accepted, (router.clone(), Arc::clone(&reject)), listening)
        })
        .await;
}

/// Serves requests until the client closes the connection or the listener stops.
async fn serve_connection(
    accepted: Accepted,
    (router, reject): (Router, RejectRequest),
    listening: HttpListenerSettings,
) {
    let Accepted { stream, client, is_announced, stop } = accepted;
    let client_certified = stream.has_client_certificate().then_some(ClientCertified);
    let behind_load_balancer = is_announced.then_some(BehindLoadBalancer);
    let stop = Arc::new(stop); // cheaper to clone for each request
    let of_request = Arc::clone(&stop);
    let router = router.into_service::<Incoming>();
    let service = hyper::service::service_fn(move |mut request: http::Request<Incoming>| {
        request.extensions_mut().insert(ConnectInfo(client));
        if let Some(client_certified) = client_certified {
            request.extensions_mut().insert(client_certified);
        }
        if let Some(behind_load_balancer) = behind_load_balancer {
            request.extensions_mut().insert(behind_load_balancer);
        }
        let (mut router, stop) = (router.clone(), Arc::clone(&of_request));
        let rejected = reject(request.uri().path(), request.headers());
        async move {
            // Cloning a URI shares its text.
            let (uri, given) = (request.uri().clone(), given_id(request.headers()).map(str::to_owned));
            let mut response = match rejected {
                None => router.ready().await?.call(request).await?,
                Some(problem) => ProblemResponse::from(problem).into_response(),
            };
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
    let stream = ParseErrors::new(stream, ProblemResponder { peer: client.ip() });
    let http = http1::Builder::new()
        .timer(HyperTimer::default())
        .header_read_timeout(listening.head_within)
        .max_buf_size(listening.head_bytes_max.max(8 * 1024))
        .serve_connection(TokioIo::new(stream), service);
    let mut http = std::pin::pin!(http);
    // Connection errors concern the client only.
    tokio::select! {
        _ = http.as_mut() => return,
        () = stop.first_request_timeout() => {}
    }
    http.as_mut().graceful_shutdown();
    let _ = http.await;
}

/// Responds to requests that hyper cannot parse.
struct ProblemResponder {
    peer: IpAddr,
}

impl RenderParseError for ProblemResponder {
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
    use ratewright_lab::within;
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpStream;

    /// A client that never reads loses its connection, which frees the slot for the next client.
    #[tokio::test]
    async fn a_client_that_never_reads_loses_its_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().route("/", get(|| async { "x".repeat(10_000) }));
        let read_within = Duration::from_millis(100);
        let listening =
            HttpListenerSettings { connections_max: 1, read_within, ..HttpListenerSettings::default() };
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
        within("it is cut off", asks_until_it_is_cut_off).await;
        let mut next = TcpStream::connect(address).await.unwrap();
        next.write_all(b"GET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        let reads = tokio::io::AsyncReadExt::read_to_string(&mut next, &mut answer);
        within("the next is served", reads).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
        stop.send(()).unwrap();
        within("it stops", served).await.unwrap();
    }
}
