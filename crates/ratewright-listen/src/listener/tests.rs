//! Listeners on real sockets, with handlers that echo.

use super::*;
use crate::proxy_protocol::ProxyProtocol;
use crate::shutdown::{ShutdownPhase, ShutdownTrigger};
use crate::tls::Tls;
use ratewright_lab::{free_port, within};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use std::net::Ipv4Addr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;
use tokio::task::JoinHandle;

const HOUR: Duration = Duration::from_secs(3_600);

/// Limits that a test changes.
#[derive(Clone)]
struct TestLimits {
    connections_max: Arc<AtomicUsize>,
    /// The most connections of each address.
    per_client: Option<u32>,
}

impl ConnectionLimits for TestLimits {
    fn connections_max(&self) -> usize {
        self.connections_max.load(Ordering::SeqCst)
    }

    fn handshake_timeout(&self) -> Duration {
        HOUR
    }

    fn client(&self, client: IpAddr) -> Option<ClientLimit> {
        self.per_client.map(|max| ClientLimit { client, max })
    }
}

/// A running listener.
struct TestListener {
    address: SocketAddr,
    trigger: ShutdownTrigger,
    served: JoinHandle<()>,
    limits: TestLimits,
    /// The most connections that were served at once.
    n_at_once_max: Arc<AtomicUsize>,
}

fn options(when_full: WhenFull) -> ListenerOptions {
    let setup = ConnectionSetup::default();
    ListenerOptions { setup, alpn: Alpn::Http1, when_full, write_timeout: HOUR, drain_timeout: HOUR }
}

fn limits(connections_max: usize) -> TestLimits {
    TestLimits { connections_max: Arc::new(AtomicUsize::new(connections_max)), per_client: None }
}

impl TestListener {
    /// A listener that echoes.
    async fn start(options: ListenerOptions, limits: TestLimits) -> Self {
        let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let (address, (trigger, stop)) = (socket.local_addr().unwrap(), ShutdownTrigger::new());
        let n_at_once_max = Arc::<AtomicUsize>::default();
        let (n, n_max) = (Arc::<AtomicUsize>::default(), Arc::clone(&n_at_once_max));
        let listener = Listener::new(options, limits.clone(), stop);
        let served = tokio::spawn(listener.serve(socket, move |accepted| {
            let (n, n_max) = (Arc::clone(&n), Arc::clone(&n_max));
            async move {
                n_max.fetch_max(n.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                echo(accepted).await;
                n.fetch_sub(1, Ordering::SeqCst);
            }
        }));
        Self { address, trigger, served, limits, n_at_once_max }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// A connection that was served. Others may have to close first.
    async fn connect_served(&self) -> TcpStream {
        let served = async {
            loop {
                let mut client = self.connect().await;
                if is_echoed(&mut client).await {
                    return client;
                }
            }
        };
        within("a slot is free", served).await
    }

    async fn stop(self) {
        within("it stops", self.drain()).await;
    }

    /// The same without a deadline, for a clock that is stopped.
    async fn drain(self) {
        self.trigger.advance_to(ShutdownPhase::Draining);
        self.served.await.unwrap();
    }
}

/// Echoes, and panics at `!`.
async fn echo(accepted: Accepted) {
    let Accepted { mut stream, .. } = accepted;
    while let Ok(byte) = stream.read_u8().await {
        assert_ne!(byte, b'!', "asked for");
        let _ = stream.write_u8(byte).await;
    }
}

/// False: the listener closed the connection.
async fn is_echoed(client: &mut TcpStream) -> bool {
    within("an echo, or the end", echoes(client)).await
}

/// The same without a deadline, for a clock that is stopped.
async fn echoes(client: &mut TcpStream) -> bool {
    let _ = client.write_u8(b'x').await;
    client.read_u8().await.is_ok()
}

#[tokio::test]
async fn connections_wait_for_a_slot() {
    let listener = TestListener::start(options(WhenFull::Wait), limits(2)).await;
    let mut clients = Vec::new();
    for _ in 0..10 {
        clients.push(listener.connect().await);
    }
    for mut client in clients {
        assert!(is_echoed(&mut client).await); // and closes
    }
    assert_eq!(listener.n_at_once_max.load(Ordering::SeqCst), 2);
    listener.stop().await;
}

#[tokio::test]
async fn connections_without_a_slot_are_closed() {
    let listener = TestListener::start(options(WhenFull::Close), limits(1)).await;
    let mut first = listener.connect_served().await;
    assert!(!is_echoed(&mut listener.connect().await).await);
    assert!(is_echoed(&mut first).await, "the first is not affected");
    listener.limits.connections_max.store(2, Ordering::SeqCst);
    assert!(is_echoed(&mut listener.connect().await).await, "new limits apply to the next connection");
    drop(first);
    drop(listener.connect_served().await);
    listener.stop().await;
}

#[tokio::test]
async fn a_client_is_limited_by_its_own_connections() {
    let limits = TestLimits { per_client: Some(1), ..limits(100) };
    let listener = TestListener::start(options(WhenFull::Close), limits).await;
    let first = listener.connect_served().await;
    assert!(!is_echoed(&mut listener.connect().await).await);
    let other = TcpSocket::new_v4().unwrap();
    other.bind((Ipv4Addr::new(127, 0, 0, 2), 0).into()).unwrap();
    assert!(is_echoed(&mut other.connect(listener.address).await.unwrap()).await, "another client");
    drop(first);
    drop(listener.connect_served().await);
    listener.stop().await;
}

#[tokio::test]
async fn behind_a_load_balancer_the_announced_client_is_limited() {
    let proxy = ProxyProtocol::new("test", vec!["127.0.0.0/8".parse().unwrap()]);
    let setup = ConnectionSetup { proxy_protocol: Some(proxy), tls: None };
    let limits = TestLimits { per_client: Some(1), ..limits(100) };
    let listener = TestListener::start(ListenerOptions { setup, ..options(WhenFull::Close) }, limits).await;
    let mut kept = Vec::new();
    for (client, is_served) in [("192.0.2.1", true), ("192.0.2.2", true), ("192.0.2.1", false)] {
        let mut stream = listener.connect().await;
        stream.write_all(format!("PROXY TCP4 {client} 10.0.0.9 1 2\r\n").as_bytes()).await.unwrap();
        assert_eq!(is_echoed(&mut stream).await, is_served, "{client}");
        kept.push(stream);
    }
    drop(kept);
    listener.stop().await;
}

#[tokio::test]
async fn a_panic_in_a_handler_releases_the_slot() {
    for when_full in [WhenFull::Wait, WhenFull::Close] {
        let listener = TestListener::start(options(when_full), limits(1)).await;
        let mut client = listener.connect_served().await;
        client.write_u8(b'!').await.unwrap();
        assert!(within("it is closed", client.read_u8()).await.is_err());
        drop(listener.connect_served().await);
        listener.stop().await;
    }
}

#[tokio::test]
async fn connections_go_to_the_queue_with_the_fewest() {
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let (address, (trigger, stop)) = (socket.local_addr().unwrap(), ShutdownTrigger::new());
    let mut listener = Listener::new(options(WhenFull::Close), limits(100), stop);
    let mut serving = tokio::task::JoinSet::new();
    for name in [b'a', b'b', b'c'] {
        serving.spawn(listener.queue().serve(move |mut accepted: Accepted| async move {
            let _ = accepted.stream.write_u8(name).await;
            let _ = accepted.stream.read_u8().await;
        }));
    }
    serving.spawn(listener.accept(socket));
    let (mut clients, mut names) = (Vec::new(), Vec::new());
    for _ in 0..9 {
        let mut client = TcpStream::connect(address).await.unwrap();
        names.push(within("a queue's name", client.read_u8()).await.unwrap());
        clients.push(client);
    }
    names.sort_unstable();
    assert_eq!(names, b"aaabbbccc");
    trigger.advance_to(ShutdownPhase::Draining);
    drop(clients);
    within("they stop", serving.join_all()).await;
}

/// The runtime does not run in between, so it cannot know of any connection.
#[tokio::test]
async fn queued_connections_are_served_after_a_stop() {
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, free_port())).await.unwrap();
    let (address, (trigger, stop)) = (socket.local_addr().unwrap(), ShutdownTrigger::new());
    let clients: Vec<_> = (0..100).map(|_| std::net::TcpStream::connect(address).unwrap()).collect();
    trigger.advance_to(ShutdownPhase::Draining);
    let n_served = Arc::<AtomicUsize>::default();
    let n = Arc::clone(&n_served);
    let listener = Listener::new(options(WhenFull::Wait), limits(1_000), stop);
    let count = move |_| {
        n.fetch_add(1, Ordering::SeqCst);
        std::future::ready(())
    };
    within("all are served", listener.serve(socket, count)).await;
    assert_eq!(n_served.load(Ordering::SeqCst), clients.len());
    assert!(std::net::TcpStream::connect(address).is_err());
}

/// The clock advances by itself while everybody waits.
#[tokio::test(start_paused = true)]
async fn connections_that_outlast_the_drain_timeout_are_cut_off() {
    let listener = TestListener::start(options(WhenFull::Wait), limits(10)).await;
    let mut client = listener.connect().await;
    assert!(echoes(&mut client).await);
    let begin = tokio::time::Instant::now();
    listener.drain().await;
    assert_eq!(begin.elapsed().as_secs(), HOUR.as_secs());
    assert!(client.read_u8().await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_unfinished_handshakes() {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let tls = Tls::new(cert.pem().as_bytes(), signing_key.serialize_pem().as_bytes(), None).unwrap();
    let proxy = ProxyProtocol::new("test", vec!["127.0.0.0/8".parse().unwrap()]);
    for (proxy_protocol, tls) in [(None, Some(tls)), (Some(proxy), None)] {
        let setup = ConnectionSetup { proxy_protocol, tls };
        let options = ListenerOptions { setup, ..options(WhenFull::Wait) };
        let listener = TestListener::start(options, limits(10)).await;
        let mut silent = listener.connect().await;
        let begin = tokio::time::Instant::now();
        listener.drain().await;
        assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
        assert!(silent.read_u8().await.is_err());
    }
}
