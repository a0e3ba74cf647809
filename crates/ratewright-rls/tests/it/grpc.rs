//! The door over real sockets, spoken to by gRPC.

use std::convert::Infallible;
use std::error::Error;
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, Stream, StreamExt};
use http::Response;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Body, Frame, Incoming};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use ratewright_lab::{free_port, within};
use ratewright_listen::Shutdown;
use ratewright_rls::wire::{Code, RateLimitDescriptor, RateLimitRequest, RateLimitResponse};
use ratewright_rls::{GrpcHealth, GrpcListenerSettings, GrpcService, RlsSettings, serve};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tonic::client::Grpc;
use tonic::transport::Channel;
use tonic::{Request, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use tonic_prost::ProstCodec;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1::{ServerReflectionRequest, ServerReflectionResponse};

use crate::world::{World, limit, of};

pub(crate) struct Open {
    pub(crate) address: SocketAddr,
    pub(crate) channel: Channel,
    pub(crate) health: GrpcHealth,
    pub(crate) stop: oneshot::Sender<()>,
    pub(crate) served: JoinHandle<()>,
}

async fn open(listening: GrpcListenerSettings) -> Open {
    let world = World::new(&[limit("client", "", 2, "minute")], RlsSettings::default());
    // Not an ephemeral port: after a stop, another test's `bind` could take that.
    let listener = TcpListener::bind(("127.0.0.1", free_port())).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (service, health) = GrpcService::new(world.rls);
    let (stop, stopped) = oneshot::channel::<()>();
    let stopped = Shutdown::when(async { stopped.await.unwrap_or_default() });
    let served = tokio::spawn(serve(listener, service, listening, None, stopped));
    let channel = Channel::from_shared(format!("http://{address}")).unwrap().connect_lazy();
    Open { address, channel, health, stop, served }
}

impl Open {
    async fn call<M, A>(&self, path: &'static str, message: M) -> Result<A, Status>
    where
        M: prost::Message + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        let mut client = Grpc::new(self.channel.clone());
        within("a connection", client.ready())
            .await
            .map_err(|error| Status::unavailable(error.to_string()))?;
        let (path, codec) = (http::uri::PathAndQuery::from_static(path), ProstCodec::<M, A>::default());
        let answer = within("an answer", client.unary(Request::new(message), path, codec)).await;
        answer.map(tonic::Response::into_inner)
    }

    async fn ask(&self, domain: &str) -> Result<RateLimitResponse, Status> {
        let (domain, descriptors) = (domain.to_owned(), vec![of(&[("client", "red")])]);
        self.call(PATH, RateLimitRequest { domain, descriptors, hits_addend: 0 }).await
    }

    pub(crate) async fn ask_for(
        &self,
        descriptors: Vec<RateLimitDescriptor>,
    ) -> Result<RateLimitResponse, Status> {
        self.call(PATH, RateLimitRequest { domain: "shop".to_owned(), descriptors, hits_addend: 0 }).await
    }

    async fn health(&self, service: &str) -> Result<ServingStatus, Status> {
        let request = HealthCheckRequest { service: service.to_owned() };
        let answer: HealthCheckResponse = self.call("/grpc.health.v1.Health/Check", request).await?;
        Ok(answer.status())
    }
}

const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const CALL: &str = "http://a/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
/// `RateLimitRequest { domain: "shop", descriptors: [{ entries: [{ key: "a" }] }] }`, with what goes before a message.
const MESSAGE: &[u8] = b"\0\0\0\0\x0d\x0a\x04shop\x12\x05\x0a\x03\x0a\x01a";

/// A body of which more may come.
type Pieces = StreamBody<Pin<Box<dyn Stream<Item = Result<Frame<Bytes>, Infallible>> + Send>>>;

/// A connection that speaks HTTP/2 without a gRPC client, which would take care of what is said.
async fn plain<B>(address: SocketAddr) -> http2::SendRequest<B>
where
    B: Body<Data: Send, Error: Error + Send + Sync> + Send + Unpin + 'static,
{
    let stream = TcpStream::connect(address).await.unwrap();
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

/// The `grpc-status` of an answer, which is among its headers if there is nothing but an error.
async fn status_of(answer: Response<Incoming>) -> String {
    let (head, body) = answer.into_parts();
    let read = within("the whole answer", body.collect()).await.unwrap();
    let outcomes = head.headers.get("grpc-status").or_else(|| read.trailers()?.get("grpc-status"));
    outcomes.unwrap().to_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_client_is_limited_over_grpc() {
    let open = open(GrpcListenerSettings::default()).await;
    for code in [Code::Ok, Code::Ok, Code::OverLimit, Code::OverLimit] {
        let answer = open.ask("shop").await.unwrap();
        assert_eq!((answer.overall_code(), answer.statuses.len()), (code, 1));
    }
    let refused = open.ask("").await.unwrap_err();
    assert_eq!(
        (refused.code(), refused.message()),
        (tonic::Code::Unknown, "rate limit domain must not be empty")
    );
    let nothing: Result<RateLimitResponse, _> = open.call("/no.such/Call", RateLimitRequest::default()).await;
    assert_eq!(nothing.unwrap_err().code(), tonic::Code::Unimplemented);
}

#[tokio::test]
async fn probes_are_told_whether_calls_should_come() {
    let open = open(GrpcListenerSettings::default()).await;
    open.health.serve().await;
    for name in ["", "ratelimit"] {
        assert_eq!(open.health(name).await.unwrap(), ServingStatus::Serving);
    }
    assert_eq!(open.health("other").await.unwrap_err().code(), tonic::Code::NotFound);
    open.health.leave().await;
    assert_eq!(open.health("ratelimit").await.unwrap(), ServingStatus::NotServing);
}

/// Tools ask what there is, the older ones by an older name.
#[tokio::test]
async fn reflection_tells_which_services_there_are() {
    let open = open(GrpcListenerSettings::default()).await;
    for path in [
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    ] {
        let question = ServerReflectionRequest {
            host: String::new(),
            message_request: Some(MessageRequest::ListServices(String::new())),
        };
        let answer: ServerReflectionResponse = open.call(path, question).await.unwrap();
        let Some(MessageResponse::ListServicesResponse(outcomes)) = answer.message_response else {
            panic!("{answer:?}");
        };
        let names: Vec<_> = outcomes.service.into_iter().map(|service| service.name).collect();
        assert!(names.contains(&"envoy.service.ratelimit.v3.RateLimitService".to_owned()), "{names:?}");
        assert!(names.contains(&"grpc.health.v1.Health".to_owned()), "{names:?}");
    }
}

/// Its client finds another, perhaps at another instance.
#[tokio::test]
async fn a_connection_that_is_old_is_told_to_go() {
    let age_max = Some(Duration::from_secs(1));
    let open = open(GrpcListenerSettings { age_max, ..GrpcListenerSettings::default() }).await;
    let stream = TcpStream::connect(open.address).await.unwrap();
    let shaken = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (_sender, connection): (http2::SendRequest<String>, _) = shaken.unwrap();
    within("it ends by itself", connection).await.unwrap();
    open.ask("shop").await.unwrap();
}

/// Nor does one that begins, and says no more.
#[tokio::test]
async fn who_says_nothing_does_not_keep_its_place() {
    let hands_within = Duration::from_secs(1);
    let open =
        open(GrpcListenerSettings { hands_within, connections_max: 1, ..GrpcListenerSettings::default() })
            .await;
    for beginning in ["", "PRI * HTTP"] {
        let mut silent = TcpStream::connect(open.address).await.unwrap();
        silent.write_all(beginning.as_bytes()).await.unwrap();
        let _closed_or_reset = within("it is cut off", silent.read_to_end(&mut Vec::new())).await;
    }
    open.ask("shop").await.unwrap();
}

/// Bodies that are no call: they get an answer, and the connection stays.
#[tokio::test]
async fn what_is_no_call_is_refused_and_the_connection_stays() {
    let open = open(GrpcListenerSettings::default()).await;
    let mut sender = plain::<Full<Bytes>>(open.address).await;
    let long = [&[0, 0xff, 0xff, 0xff, 0xff][..], &vec![0; 2 * 1024 * 1024]].concat();
    for (body, status) in [
        (b"".as_slice(), "13"),
        (b"\0\0\0", "13"),
        (b"\0\0\0\0\x01", "13"),
        (b"\0\0\0\0\x01\xff", "13"),
        (b"\x01\0\0\0\x01\0", "12"),
        (&[MESSAGE, MESSAGE].concat(), "13"),
        (&long, "8"),
        (MESSAGE, "0"),
    ] {
        let request = http::Request::post(CALL).body(Full::new(Bytes::copy_from_slice(body))).unwrap();
        let answer = within("an answer", sender.send_request(request)).await.unwrap();
        assert_eq!(answer.headers()["content-type"], "application/grpc");
        assert_eq!(status_of(answer).await, status, "{} bytes", body.len());
    }
}

/// Envoy copies headers of any bytes into descriptors. Rejected, such a request would pass uncounted.
#[tokio::test]
async fn a_value_that_is_not_utf8_is_counted() {
    let open = open(GrpcListenerSettings::default()).await;
    let mut sender = plain::<Full<Bytes>>(open.address).await;
    // `RateLimitRequest { domain: "shop", descriptors: [{ entries: [{ key: "client", value: … }] }] }`
    let call = |byte: u8| {
        let message =
            [b"\0\0\0\0\x15\x0a\x04shop\x12\x0d\x0a\x0b\x0a\x06client\x12\x01".as_slice(), &[byte]].concat();
        http::Request::post(CALL).body(Full::new(Bytes::from(message))).unwrap()
    };
    for (byte, code) in [
        (0xff, Code::Ok),
        (0xfe, Code::Ok),
        (0xff, Code::OverLimit),
        (0x80, Code::OverLimit),
        (b'a', Code::Ok),
    ] {
        let answer = within("an answer", sender.send_request(call(byte))).await.unwrap().into_body();
        let answer = within("the whole answer", answer.collect()).await.unwrap();
        assert_eq!(answer.trailers().unwrap()["grpc-status"], "0", "{byte:x}");
        let message = answer.to_bytes().split_off(5);
        let answer = <RateLimitResponse as prost::Message>::decode(message).unwrap();
        assert_eq!(answer.overall_code(), code, "{byte:x}");
    }
}

/// A message that does not come holds nothing for long; nor does one that comes in a thousand pieces cost more than another.
#[tokio::test]
async fn a_message_must_come_in_time_in_however_many_pieces() {
    let message_within = Duration::from_secs(1);
    let open = open(GrpcListenerSettings { message_within, ..GrpcListenerSettings::default() }).await;
    let mut sender = plain::<Pieces>(open.address).await;
    let pieces = || stream::iter(MESSAGE.chunks(1).map(|byte| Ok(Frame::data(Bytes::from_static(byte)))));
    let whole: Pieces = StreamBody::new(Box::pin(pieces()));
    let endless: Pieces = StreamBody::new(Box::pin(pieces().chain(stream::pending())));
    for (body, status) in [(whole, "0"), (endless, "4")] {
        let request = http::Request::post(CALL).body(body).unwrap();
        let answer = within("an answer", sender.send_request(request)).await.unwrap();
        assert_eq!(status_of(answer).await, status);
    }
}

/// A client that has vanished or stopped reading does not keep its connection slot.
#[tokio::test]
async fn a_client_that_does_not_answer_a_ping_is_disconnected() {
    let keep_alive_every = Some(Duration::from_millis(20));
    let keep_alive_within = Duration::from_millis(20);
    let open =
        open(GrpcListenerSettings { keep_alive_every, keep_alive_within, ..GrpcListenerSettings::default() })
            .await;
    let mut deaf = TcpStream::connect(open.address).await.unwrap();
    deaf.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    let mut said = Vec::new();
    within("it is cut off", deaf.read_to_end(&mut said)).await.unwrap();
    let ping = b"\0\0\x08\x06\0\0\0\0\0";
    assert!(said.windows(ping.len()).any(|frame| frame == ping), "it was asked: {said:?}");
}

/// InlineExecutor that come together are answered together, and each of them is answered.
#[tokio::test]
async fn calls_at_once_are_all_answered() {
    let open = open(GrpcListenerSettings::default()).await;
    let inline_executor = (0..200).map(|_| open.ask("shop"));
    let answers = futures_util::future::join_all(inline_executor).await;
    let n_allowed =
        answers.iter().filter(|answer| answer.as_ref().unwrap().overall_code() == Code::Ok).count();
    assert_eq!((answers.len(), n_allowed), (200, 2));
}

#[tokio::test]
async fn a_stop_ends_it() {
    let open = open(GrpcListenerSettings::default()).await;
    open.ask("shop").await.unwrap();
    let Open { stop, served, .. } = open;
    stop.send(()).unwrap();
    within("it stops", served).await.unwrap();
}

/// The door closes for new connections, and waits for a message of which half has come.
#[tokio::test]
async fn a_call_under_way_at_a_stop_is_answered() {
    let open = open(GrpcListenerSettings::default()).await;
    let mut sender = plain::<Pieces>(open.address).await;
    let (more, rest) = mpsc::unbounded_channel::<&'static [u8]>();
    let pieces = stream::unfold(rest, async |mut rest| {
        rest.recv().await.map(|piece| (Ok(Frame::data(Bytes::from_static(piece))), rest))
    });
    let call = |body: Pieces| http::Request::post(CALL).body(body).unwrap();
    let (half, other_half) = MESSAGE.split_at(7);
    more.send(half).unwrap();
    let under_way = sender.send_request(call(StreamBody::new(Box::pin(pieces))));
    // Frames of a connection come in order: with the answer to the second call the first has begun.
    let second = StreamBody::new(Box::pin(stream::iter([Ok(Frame::data(Bytes::from_static(MESSAGE)))])) as _);
    let answer = within("an answer", sender.send_request(call(second))).await.unwrap();
    assert_eq!(status_of(answer).await, "0");

    open.stop.send(()).unwrap();
    let closed = async { while TcpStream::connect(open.address).await.is_ok() {} };
    within("nobody is let in any more", closed).await;
    assert!(!open.served.is_finished());
    more.send(other_half).unwrap();
    drop(more);
    assert_eq!(status_of(within("an answer", under_way).await.unwrap()).await, "0");
    within("it stops", open.served).await.unwrap();
}
