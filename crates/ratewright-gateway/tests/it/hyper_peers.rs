//! Clients and servers by hyper, for HTTP/2, TLS and trailers.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use ratewright_lab::{PATIENCE, skip_here, within};
use ratewright_listen::{Alpn, Tls};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};

/// A body that is sent frame by frame. It ends when its sender is dropped.
pub(crate) struct ChannelBody(mpsc::UnboundedReceiver<Frame<Bytes>>);

/// The sender of a body.
#[derive(Clone)]
pub(crate) struct Sender(mpsc::UnboundedSender<Frame<Bytes>>);

pub(crate) fn pieces() -> (Sender, ChannelBody) {
    let (sender, pieces) = mpsc::unbounded_channel();
    (Sender(sender), ChannelBody(pieces))
}

/// A body with this text.
pub(crate) fn body(text: &str) -> ChannelBody {
    let (sender, pieces) = pieces();
    if !text.is_empty() {
        sender.send(text);
    }
    pieces
}

impl Sender {
    pub(crate) fn send(&self, text: &str) {
        let _ = self.0.send(Frame::data(Bytes::copy_from_slice(text.as_bytes())));
    }

    pub(crate) fn send_trailer(&self, name: &'static str, value: &'static str) {
        let trailers = HeaderMap::from_iter([(name.parse().unwrap(), value.parse().unwrap())]);
        let _ = self.0.send(Frame::trailers(trailers));
    }
}

impl Body for ChannelBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|frame| frame.map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_closed() && self.0.is_empty()
    }
}

/// An HTTP/2 client with one connection.
pub(crate) async fn connect(address: SocketAddr) -> SendRequest<ChannelBody> {
    connect_over(TcpStream::connect(address).await.unwrap()).await
}

/// The same on an open connection.
pub(crate) async fn connect_over<I>(stream: I) -> SendRequest<ChannelBody>
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

/// A request without a body.
pub(crate) fn get(path: &str) -> Request<ChannelBody> {
    Request::get(format!("http://a{path}")).body(body("")).unwrap()
}

/// Sends a request, and waits for the response head.
pub(crate) async fn send(
    client: &SendRequest<ChannelBody>,
    request: Request<ChannelBody>,
) -> Response<Incoming> {
    within("a response", client.clone().send_request(request)).await.unwrap()
}

/// Sends a request, and reads status and body of the response.
pub(crate) async fn exchange(
    client: &SendRequest<ChannelBody>,
    request: Request<ChannelBody>,
) -> (u16, String) {
    let response = send(client, request).await;
    (response.status().as_u16(), whole(response.into_body()).await.0)
}

/// The next frame of a body.
pub(crate) async fn piece(body: &mut Incoming) -> String {
    let frame = within("a piece", body.frame()).await.expect("a piece").unwrap();
    String::from_utf8(frame.into_data().expect("data").to_vec()).unwrap()
}

/// A complete body, and its trailers.
pub(crate) async fn whole(body: Incoming) -> (String, HeaderMap) {
    let collected = within("the whole body", body.collect()).await.unwrap();
    let trailers = collected.trailers().cloned().unwrap_or_default();
    (String::from_utf8(collected.to_bytes().to_vec()).unwrap(), trailers)
}

/// What a server responds. Boxed, so that a server is compiled once and not for each handler.
type Handler = Arc<
    dyn Fn(Request<Incoming>) -> Pin<Box<dyn Future<Output = Response<ChannelBody>> + Send>> + Send + Sync,
>;

fn boxed<F>(response: impl Fn(Request<Incoming>) -> F + Send + Sync + 'static) -> Handler
where
    F: Future<Output = Response<ChannelBody>> + Send + 'static,
{
    Arc::new(move |request| Box::pin(response(request)))
}

/// A server for HTTP/1.1 and HTTP/2 with a handler.
pub(crate) struct HyperServer {
    pub(crate) address: SocketAddr,
    /// Connections so far.
    pub(crate) n_connections: Arc<AtomicUsize>,
    n_open: Arc<AtomicUsize>,
    /// The last connection.
    last: Arc<Mutex<Option<std::net::TcpStream>>>,
    /// A change closes connections after their requests in flight.
    farewell: watch::Sender<()>,
}

impl HyperServer {
    pub(crate) async fn start<F>(response: impl Fn(Request<Incoming>) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Response<ChannelBody>> + Send + 'static,
    {
        Self::with(None, None, boxed(response)).await
    }

    /// A server with a limit on concurrent streams.
    pub(crate) async fn narrow<F>(
        streams_max: u32,
        response: impl Fn(Request<Incoming>) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Response<ChannelBody>> + Send + 'static,
    {
        Self::with(None, Some(streams_max), boxed(response)).await
    }

    /// A server with a certificate.
    pub(crate) async fn secret<F>(
        tls: Tls,
        response: impl Fn(Request<Incoming>) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Response<ChannelBody>> + Send + 'static,
    {
        Self::with(Some(tls), None, boxed(response)).await
    }

    async fn with(tls: Option<Tls>, streams_max: Option<u32>, response: Handler) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let n_connections = Arc::new(AtomicUsize::new(0));
        let (farewell, leaving) = watch::channel(());
        let n_open = Arc::new(AtomicUsize::new(0));
        let last = Arc::new(Mutex::new(None));
        let latest = Arc::clone(&last);
        let (counting, open) = (Arc::clone(&n_connections), Arc::clone(&n_open));
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                counting.fetch_add(1, Ordering::SeqCst);
                *latest.lock().unwrap() =
                    Some(std::net::TcpStream::from(stream.as_fd().try_clone_to_owned().unwrap()));
                let (tls, response, mut leaving) = (tls.clone(), Arc::clone(&response), leaving.clone());
                leaving.mark_unchanged();
                let open = InFlightCount::new(&open);
                tokio::spawn(async move {
                    let _open = open;
                    match tls {
                        None => serve(stream, streams_max, response, leaving).await,
                        Some(tls) => {
                            let Some(stream) = tls
                                .accept(stream, std::net::Ipv4Addr::LOCALHOST.into(), Alpn::Http2, PATIENCE)
                                .await
                            else {
                                return;
                            };
                            serve(stream, streams_max, response, leaving).await;
                        }
                    }
                });
            }
        });
        Self { address, n_connections, n_open, last, farewell }
    }

    /// Accepts no more requests on open connections.
    pub(crate) fn leave(&self) {
        self.farewell.send_replace(());
    }

    /// Drops all packets of the last connection from now on, as if the host were dead. Returns the peer's port; `None` where only
    /// root may filter packets.
    #[cfg(target_os = "linux")]
    pub(crate) fn go_away(&self) -> Option<u16> {
        let last = self.last.lock().unwrap().take().unwrap();
        let nothing = socket2::SockFilter::new(6, 0, 0, 0); // keep no byte of any packet
        let attached = socket2::SockRef::from(&last).attach_filter(&[nothing]);
        if attached.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied) {
            skip_here("only root may filter a socket's packets here");
            return None;
        }
        attached.unwrap();
        Some(last.peer_addr().unwrap().port())
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn n_connections(&self) -> usize {
        self.n_connections.load(Ordering::SeqCst)
    }

    /// Open connections.
    pub(crate) fn n_open(&self) -> usize {
        self.n_open.load(Ordering::SeqCst)
    }
}

async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    streams_max: Option<u32>,
    response: Handler,
    mut leaving: watch::Receiver<()>,
) {
    let service = service_fn(move |request| {
        let response = response(request);
        async move { Ok::<_, Infallible>(response.await) }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http2().max_concurrent_streams(streams_max.unwrap_or(200));
    let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        _ = connection.as_mut() => {}
        _ = leaving.changed() => {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
}

/// Counts requests in flight.
pub(crate) struct InFlightCount(Arc<AtomicUsize>);

impl InFlightCount {
    pub(crate) fn new(n: &Arc<AtomicUsize>) -> Self {
        n.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(n))
    }
}

impl Drop for InFlightCount {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
