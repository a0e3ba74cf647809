//! Whose negative hits give units back, over real connections.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use ratewright_lab::within;
use ratewright_listen::{ConnectionSetup, ProxyProtocol, Shutdown, Tls};
use ratewright_rls::wire::{RateLimitDescriptor, RateLimitRequest, RateLimitResponse};
use ratewright_rls::{GrpcListenerSettings, GrpcService, Refunds, RlsSettings, serve};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::world::{World, costing, limit, of};

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A certificate and its key, in PEM.
struct Pair {
    cert: String,
    key: String,
}

impl Pair {
    fn new() -> Self {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        Self { cert: cert.pem(), key: signing_key.serialize_pem() }
    }

    fn der(&self) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(self.cert.as_bytes()).unwrap()
    }
}

/// An address of this machine that is not loopback. Nothing is sent. Without such an address the test is skipped.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().unwrap().ip();
    (!address.is_loopback() && !address.is_unspecified()).then_some(address)
}

/// Opens the service at an address and connects to it from there.
async fn connect(address: IpAddr, setup: impl Into<ConnectionSetup>) -> TcpStream {
    let world = World::new(&[limit("client", "", 5, "minute")], RlsSettings::default());
    let listener = TcpListener::bind((address, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (service, _health) = GrpcService::new(world.rls);
    let stop = Shutdown::when(std::future::pending());
    tokio::spawn(serve(listener, service, GrpcListenerSettings::default(), setup.into(), stop));
    let stream = TcpStream::connect(address).await.unwrap();
    assert_eq!(stream.local_addr().unwrap().ip(), address.ip());
    stream
}

/// The client's side of TLS, which shows a certificate or none.
async fn shake_hands(stream: TcpStream, server: &Pair, shows: Option<&Pair>) -> TlsStream<TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(server.der()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots);
    let mut config = match shows {
        None => builder.with_no_client_auth(),
        Some(pair) => {
            let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
            builder.with_client_auth_cert(vec![pair.der()], key).unwrap()
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    let name = ServerName::try_from("localhost").unwrap();
    within("a handshake", TlsConnector::from(Arc::new(config)).connect(name, stream)).await.unwrap()
}

/// How many of five units are left after four were spent and three given back, as the status tells it and as a look finds it.
async fn left_after_giving_back(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> [u32; 2] {
    let shaken = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (mut sender, connection) = shaken.unwrap();
    tokio::spawn(connection);
    let mut left = async |descriptor| {
        let request =
            RateLimitRequest { domain: "shop".to_owned(), descriptors: vec![descriptor], hits_addend: 0 };
        let message = request.encode_to_vec();
        let length = u32::try_from(message.len()).unwrap().to_be_bytes();
        let body = Full::new(Bytes::from([&[0], &length[..], &message].concat()));
        let call = "http://a/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
        let request = http::Request::post(call).body(body).unwrap();
        let answer = within("an answer", sender.send_request(request)).await.unwrap();
        let body = within("the whole answer", answer.into_body().collect()).await.unwrap();
        assert_eq!(body.trailers().unwrap()["grpc-status"], "0", "an error would let Envoy's request pass");
        let answer = RateLimitResponse::decode(body.to_bytes().slice(5..)).unwrap();
        answer.statuses[0].limit_remaining
    };
    let red = || of(&[("client", "red")]);
    assert_eq!(left(costing(4, red())).await, 1);
    let outcomes = left(RateLimitDescriptor { is_negative_hits: true, ..costing(3, red()) }).await;
    [outcomes, left(costing(0, red())).await]
}

/// A load balancer on this machine speaks for clients elsewhere, or for itself; neither gets its privileges.
#[tokio::test]
async fn an_announced_client_is_not_on_this_machine() {
    let from = vec!["127.0.0.1/32".parse().unwrap()];
    let setup = || ConnectionSetup {
        proxy_protocol: Some(ProxyProtocol::new("listen.grpc", from.clone())),
        tls: None,
    };
    for header in ["PROXY TCP4 192.0.2.7 10.0.0.9 40000 8081\r\n", "PROXY UNKNOWN\r\n"] {
        let mut stream = connect(LOOPBACK, setup()).await;
        stream.write_all(header.as_bytes()).await.unwrap();
        assert_eq!(left_after_giving_back(stream).await, [1, 1], "{header}");
    }
    for refused in ["", "PROXY TCP4 127.0.0.1 10.0.0.9 40000 8081\r\n"] {
        let mut stream = connect(LOOPBACK, setup()).await;
        stream.write_all(format!("{refused}PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").as_bytes()).await.unwrap();
        let mut preface_timeout = Vec::new();
        let _closed_or_reset = within("it is cut off", stream.read_to_end(&mut preface_timeout)).await;
        assert_eq!(preface_timeout, b"", "{refused}");
    }
}

#[tokio::test]
async fn a_client_on_this_machine_gives_units_back() {
    let stream = connect(LOOPBACK, None).await;
    assert_eq!(left_after_giving_back(stream).await, [4, 4]);
}

#[tokio::test]
async fn a_client_on_another_machine_without_a_certificate_gives_nothing_back() {
    let Some(address) = own_address() else { return };
    let stream = connect(address, None).await;
    assert_eq!(left_after_giving_back(stream).await, [1, 1]);
    // TLS alone says nothing of the client.
    let server = Pair::new();
    let tls = Tls::new(server.cert.as_bytes(), server.key.as_bytes(), None).unwrap();
    let stream = shake_hands(connect(address, Some(tls)).await, &server, None).await;
    assert_eq!(left_after_giving_back(stream).await, [1, 1]);
}

/// The same without a second address of this machine, so that it is checked everywhere: a door that knows nothing of its client.
#[tokio::test]
async fn a_client_of_whom_nothing_is_known_gives_nothing_back() {
    let world = World::new(&[limit("client", "", 5, "minute")], RlsSettings::default());
    let (service, _health) = GrpcService::new(world.rls);
    let (client, server) = tokio::io::duplex(65_536);
    let serving = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    tokio::spawn(serving.serve_connection(TokioIo::new(server), service));
    assert_eq!(left_after_giving_back(client).await, [1, 1]);
}

/// Negative hits that are ignored look at the limit and change nothing, alone, in great numbers, and beside hits that count.
/// `src/refund_access.rs` says whose refunds are accepted.
#[tokio::test]
async fn ignored_negative_hits_change_nothing() {
    let world =
        World::new(&[limit("client", "", 5, "minute"), limit("all", "", 9, "hour")], RlsSettings::default());
    let stranger = Refunds::Ignored { peer: Ipv4Addr::new(192, 0, 2, 7).into() };
    let ask = async |descriptors| {
        let request = RateLimitRequest { domain: "shop".to_owned(), descriptors, hits_addend: 0 };
        let answer = world.rls.answer(&request, stranger).await.unwrap();
        answer.statuses.iter().map(|status| status.limit_remaining).collect::<Vec<_>>()
    };
    let red = || of(&[("client", "red")]);
    let all = || of(&[("all", "")]);
    let back = |hits, descriptor| RateLimitDescriptor { is_negative_hits: true, ..costing(hits, descriptor) };
    assert_eq!(ask(vec![costing(4, red()), costing(4, all())]).await, [1, 5]);
    for hits in [1, 4, 5, 1_000, u64::from(u32::MAX)] {
        assert_eq!(ask(vec![back(hits, red())]).await, [1], "{hits}");
        assert_eq!(ask(vec![back(hits, red()), back(hits, all())]).await, [1, 5], "{hits}");
    }
    assert_eq!(ask(vec![back(4, red()), costing(1, all())]).await, [1, 4], "what counts, counts");
    assert_eq!(ask(vec![costing(1, red()), back(4, all())]).await, [0, 4]);
    assert_eq!(ask(vec![costing(0, red()), costing(0, all())]).await, [0, 4]);
}

#[tokio::test]
async fn a_client_on_another_machine_with_a_certificate_gives_units_back() {
    let (server, client) = (Pair::new(), Pair::new());
    for address in own_address().into_iter().chain([LOOPBACK]) {
        let client_ca = Some(client.cert.as_bytes());
        let tls = Tls::new(server.cert.as_bytes(), server.key.as_bytes(), client_ca).unwrap();
        let stream = shake_hands(connect(address, Some(tls)).await, &server, Some(&client)).await;
        assert_eq!(left_after_giving_back(stream).await, [4, 4], "{address}");
    }
}
