//! Headers over real sockets: in one segment with the data after it, in two, byte by byte, late, or never.

use super::*;
use ratewright_lab::within;
use std::net::Ipv4Addr;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

const TEXT: &[u8] = b"PROXY TCP4 198.51.100.7 10.0.0.9 40000 8000\r\n";
const BINARY: &[u8] =
    b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x10\xc6\x33\x64\x07\x0a\0\0\x09\x9c\x40\x1f\x40\x04\0\x01x";
const AFTER: &[u8] = b"\x16\x03\x01 what follows, PROXY TCP4 and all\r\n";

/// A listener that accepts headers from these networks.
struct World {
    proxy: ProxyProtocol,
    listener: TcpListener,
}

impl World {
    async fn new(from: &str) -> Self {
        let from = from.split(' ').map(|network| network.parse().unwrap()).collect();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        Self { proxy: ProxyProtocol::new("test", from), listener }
    }

    async fn accept(&self) -> (TcpStream, SocketAddr) {
        within("a connection", self.listener.accept()).await.unwrap()
    }

    /// Sends these pieces, each as a segment, then closes. Returns the client, and the rest of the stream.
    async fn send(&self, pieces: &[&[u8]]) -> Option<(String, Vec<u8>)> {
        let mut client = TcpStream::connect(self.listener.local_addr().unwrap()).await.unwrap();
        client.set_nodelay(true).unwrap();
        let (mut stream, peer) = self.accept().await;
        let reading = async {
            let address = self.proxy.client(&mut stream, peer, Duration::from_secs(20)).await?;
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).await.unwrap();
            let client = if address == peer { "the peer".to_owned() } else { address.to_string() };
            Some((client, rest))
        };
        let writing = async {
            for piece in pieces {
                // Refused connections are closed while the rest is sent.
                let _ = client.write_all(piece).await;
                tokio::task::yield_now().await;
            }
            let _ = client.shutdown().await;
        };
        within("all is read, or refused", async { tokio::join!(reading, writing).0 }).await
    }

    /// The reasons of refused connections, with their counts.
    fn refused(&self) -> Vec<(&'static str, u64)> {
        self.proxy.n_refused().filter(|(_, n)| *n > 0).map(|(reason, n)| (reason.name(), n)).collect()
    }
}

fn announced(rest: &[u8]) -> Option<(String, Vec<u8>)> {
    Some(("198.51.100.7:40000".to_owned(), rest.to_vec()))
}

#[tokio::test]
async fn a_header_may_be_split_anywhere_and_nothing_after_it_is_read() {
    let world = World::new("127.0.0.0/8").await;
    for header in [TEXT, BINARY] {
        let whole = [header, AFTER].concat();
        assert_eq!(world.send(&[&whole]).await, announced(AFTER));
        for at in 1..whole.len() {
            let (first, second) = whole.split_at(at);
            assert_eq!(world.send(&[first, second]).await, announced(AFTER), "split at {at}");
        }
        let bytes: Vec<&[u8]> = whole.chunks(1).collect();
        assert_eq!(world.send(&bytes).await, announced(AFTER));
        assert_eq!(world.send(&[header]).await, announced(b""));
    }
    assert_eq!(world.refused(), []);
}

#[tokio::test]
async fn a_long_header_is_read_to_its_end() {
    let world = World::new("127.0.0.1/32").await;
    let mut header = BINARY.to_vec();
    header.truncate(28);
    header[14..16].copy_from_slice(&4_096_u16.to_be_bytes());
    header.extend([0x04, 0x0f, 0xf1]);
    header.resize(BINARY_MAX, b'x');
    for size in [1, 255, 256, 257, 4_000, 5_000] {
        let whole = [&header, AFTER].concat();
        let pieces: Vec<&[u8]> = whole.chunks(size).collect();
        assert_eq!(world.send(&pieces).await, announced(AFTER), "in pieces of {size}");
    }
}

#[tokio::test]
async fn a_header_without_a_client_means_the_peer() {
    let world = World::new("10.0.0.0/8 127.0.0.1/32").await;
    for header in [&b"PROXY UNKNOWN\r\n"[..], b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0"] {
        assert_eq!(world.send(&[header, AFTER]).await, Some(("the peer".to_owned(), AFTER.to_vec())));
    }
}

#[tokio::test]
async fn every_refusal_is_counted_by_its_reason() {
    let world = World::new("127.0.0.1/32").await;
    for (bytes, reason) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], "missing"),
        (b"PROXY TCP4 1.2.3.4\r\n", "malformed"),
        (b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff", "too_long"),
        (b"\r\n\r\n\0\r\nQUIT\n\x21\x31\0\x01x", "unsupported"),
        (
            b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x13\x01\x01\x01\x01\x01\x01\x01\x01\0\0\0\0\x03\0\x04abcd",
            "checksum",
        ),
        (b"PROXY TCP4 127.0.0.1 127.0.0.1 1 1\r\n", "address"),
        (b"PROXY TCP4 1.2", "closed"),
    ] {
        let before: Vec<_> = world.refused();
        assert_eq!(world.send(&[bytes]).await, None);
        let mut expected = before;
        expected.push((reason, 1));
        expected.sort_by_key(|(name, _)| RefusalReason::ALL.iter().position(|reason| reason.name() == *name));
        assert_eq!(world.refused(), expected);
    }
    // TCP health checks send nothing.
    let before = world.refused();
    assert_eq!(world.send(&[]).await, None);
    assert_eq!(world.refused(), before);
}

#[tokio::test]
async fn a_peer_outside_the_networks_is_refused_whatever_it_sends() {
    let world = World::new("10.0.0.0/8 127.0.0.2/32 ::1/128").await;
    assert_eq!(world.send(&[TEXT]).await, None);
    assert_eq!(world.refused(), [("peer", 1)]);
    // Without waiting for its header.
    let client = TcpStream::connect(world.listener.local_addr().unwrap()).await.unwrap();
    let (mut stream, peer) = world.accept().await;
    let refused = world.proxy.client(&mut stream, peer, Duration::from_secs(3_600));
    assert_eq!(within("it is refused", refused).await, None);
    assert_eq!(world.refused(), [("peer", 2)]);
    drop(client);
}

/// A dual-stack listener sees IPv4 peers as IPv4-mapped IPv6 addresses.
#[tokio::test]
async fn ipv4_networks_contain_ipv4_mapped_peers() {
    let proxy = ProxyProtocol::new("test", vec!["10.0.0.0/8".parse().unwrap()]);
    assert!(proxy.admits("::ffff:10.1.2.3".parse().unwrap()));
    assert!(!proxy.admits("::ffff:11.1.2.3".parse().unwrap()));
    assert!(!proxy.admits("::10.1.2.3".parse().unwrap()));
}

/// Requests from loopback have privileges, so no client may be announced with a loopback address.
#[test]
fn loopback_and_multicast_addresses_are_refused() {
    let peer: SocketAddr = "10.0.0.2:5000".parse().unwrap();
    for address in
        ["127.0.0.1", "127.9.9.9", "0.0.0.0", "224.0.0.1", "255.255.255.255", "[::1]", "[::]", "[ff02::1]"]
    {
        let announced = format!("{address}:5000").parse().unwrap();
        assert_eq!(client_address(Some(announced), peer), Err(RefusalReason::Address), "{address}");
    }
    for address in ["198.51.100.7:1", "10.0.0.2:1", "[2001:db8::7]:5000", "[fe80::1]:1"] {
        let announced = address.parse().unwrap();
        assert_eq!(client_address(Some(announced), peer), Ok(announced));
    }
    assert_eq!(client_address(None, peer), Ok(peer));
}

/// Health checks of HAProxy announce their own connection, also on loopback. A client cannot: it has another port.
#[test]
fn a_load_balancer_may_announce_its_own_connection() {
    for peer in ["127.0.0.1:5000", "[::ffff:127.0.0.1]:5000", "10.0.0.2:5000", "[::1]:5000"] {
        let peer: SocketAddr = peer.parse().unwrap();
        let own = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        assert_eq!(client_address(Some(own), peer), Ok(peer));
        let other = SocketAddr::new(own.ip(), 5001);
        assert_eq!(client_address(Some(other), peer).is_err(), own.ip().is_loopback(), "{peer}");
    }
    let peer = "127.0.0.1:5000".parse().unwrap();
    assert_eq!(client_address(Some("127.0.0.2:5000".parse().unwrap()), peer), Err(RefusalReason::Address));
}

#[tokio::test]
async fn a_slowly_sent_header_times_out() {
    let world = World::new("127.0.0.1/32").await;
    let mut client = TcpStream::connect(world.listener.local_addr().unwrap()).await.unwrap();
    let (mut stream, peer) = world.accept().await;
    let trickle = async {
        for byte in TEXT.chunks(1) {
            let _ = client.write_all(byte).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let reading = world.proxy.client(&mut stream, peer, Duration::from_millis(200));
    let (client, ()) = within("it times out", async { tokio::join!(reading, trickle) }).await;
    assert_eq!((client, world.refused()), (None, vec![("timeout", 1)]));
}
