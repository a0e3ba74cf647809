//! Headers from the format's own examples, from load balancers, and at random.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

/// A parsed header as text.
fn summary(bytes: &[u8]) -> String {
    match ProxyHeader::parse(bytes) {
        ProxyHeader::Incomplete => "incomplete".to_owned(),
        ProxyHeader::Invalid(error) => format!("{error:?}"),
        ProxyHeader::Complete { client: Some(client), len } => {
            format!("{client}, {} left", bytes.len() - len)
        }
        ProxyHeader::Complete { client: None, len } => format!("the peer, {} left", bytes.len() - len),
    }
}

#[track_caller]
fn check(bytes: impl AsRef<[u8]>, expected: &str) {
    let bytes = bytes.as_ref();
    assert_eq!(summary(bytes), expected, "{}", bytes.escape_ascii());
}

/// A header of version 2.
fn binary(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let len = u16::try_from(rest.len()).unwrap().to_be_bytes();
    [&SIGNATURE[..], &[command, family], &len, rest].concat()
}

/// Addresses of IPv4: 198.51.100.7:40000 to 10.0.0.9:8000.
const IPV4: [u8; 12] = [198, 51, 100, 7, 10, 0, 0, 9, 0x9c, 0x40, 0x1f, 0x40];

/// Addresses of IPv6, from port 40000 to 8000.
fn ipv6(source: &str) -> Vec<u8> {
    let source: Ipv6Addr = source.parse().unwrap();
    [&source.octets()[..], &Ipv6Addr::LOCALHOST.octets(), &[0x9c, 0x40, 0x1f, 0x40]].concat()
}

fn tlv(kind: u8, value: &[u8]) -> Vec<u8> {
    [&[kind][..], &u16::try_from(value.len()).unwrap().to_be_bytes(), value].concat()
}

/// A header of TCP over IPv4 with a checksum between these TLVs.
fn with_checksum(before: &[u8], after: &[u8]) -> Vec<u8> {
    let at = FIXED + IPV4.len() + before.len() + 3;
    let mut header = binary(0x21, 0x11, &[&IPV4, before, &tlv(CRC32C, &[0; 4]), after].concat());
    let checksum = crc32c(header.iter().copied());
    header[at..at + 4].copy_from_slice(&checksum.to_be_bytes());
    header
}

#[test]
fn version_1_announces_tcp_over_ipv4_and_ipv6() {
    check("PROXY TCP4 198.51.100.7 10.0.0.9 40000 8000\r\n", "198.51.100.7:40000, 0 left");
    check("PROXY TCP4 198.51.100.7 10.0.0.9 0 65535\r\nGET / HTTP/1.1\r\n", "198.51.100.7:0, 16 left");
    check("PROXY TCP4 1.1.1.1 127.0.0.1 1 1\r\n\r\n", "1.1.1.1:1, 2 left");
    check("PROXY TCP6 2001:db8::7 ::1 40000 8000\r\n", "[2001:db8::7]:40000, 0 left");
    check("PROXY TCP6 2001:0DB8:0:0:0:0:0:0007 ::1 40000 8000\r\n", "[2001:db8::7]:40000, 0 left");
    check("PROXY TCP6 ::ffff:198.51.100.7 ::1 40000 8000\r\n", "198.51.100.7:40000, 0 left");
    let longest = "PROXY TCP6 fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n";
    assert_eq!(longest.len(), 104);
    check(longest, "[fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535, 0 left");
}

#[test]
fn version_1_with_unknown_means_the_peer() {
    check("PROXY UNKNOWN\r\n", "the peer, 0 left");
    check("PROXY UNKNOWN\r\nGET", "the peer, 3 left");
    check("PROXY UNKNOWN ffff:: ~anything 65535 65535\r\nGET", "the peer, 3 left");
    let longest = format!("PROXY UNKNOWN {}\r\n", "x".repeat(91));
    assert_eq!(longest.len(), TEXT_MAX);
    check(&longest, "the peer, 0 left");
    check(format!("{longest}PROXY"), "the peer, 5 left");
    check(longest.replace('\r', "x\r"), "TooLong");
    check("PROXY UNKNOWNX\r\n", "Syntax");
    check("PROXY UNKNOWN\nGET / HTTP/1.1\r\n", "Syntax");
    check("PROXY UNKNOWN \u{fc}\r\n", "Syntax");
}

#[test]
fn version_1_is_parsed_strictly() {
    for line in [
        "PROXY TCP4 198.51.100.7 10.0.0.9 40000 8000\n",
        "PROXY TCP4 198.51.100.7 10.0.0.9 40000 8000\rX",
        "PROXY TCP4 198.51.100.7 10.0.0.9 40000 8000 \r\n",
        "PROXY TCP4 198.51.100.7 10.0.0.9 40000 8000 1\r\n",
        "PROXY TCP4 198.51.100.7 10.0.0.9 40000\r\n",
        "PROXY TCP4 198.51.100.7 10.0.0.9 40000 \r\n",
        "PROXY  TCP4 198.51.100.7 10.0.0.9 40000 8000\r\n",
        "PROXY TCP4  198.51.100.7 10.0.0.9 40000 8000\r\n",
        "PROXY TCP4\t198.51.100.7 10.0.0.9 40000 8000\r\n",
        "PROXY tcp4 198.51.100.7 10.0.0.9 40000 8000\r\n",
        "PROXY TCP5 198.51.100.7 10.0.0.9 40000 8000\r\n",
        "PROXY UDP4 198.51.100.7 10.0.0.9 40000 8000\r\n",
        "PROXY TCP 198.51.100.7 10.0.0.9 40000 8000\r\n",
        "PROXY TCP4 198.51.100.07 10.0.0.9 40000 8000\r\n",
        "PROXY TCP4 198.51.100 10.0.0.9 40000 8000\r\n",
        "PROXY TCP4 198.51.100.256 10.0.0.9 40000 8000\r\n",
        "PROXY TCP4 198.51.100.7 10.0.0.09 40000 8000\r\n",
        "PROXY TCP4 0x1.1.1.1 10.0.0.9 40000 8000\r\n",
        "PROXY TCP4 2001:db8::7 ::1 40000 8000\r\n",
        "PROXY TCP4 198.51.100.7 ::1 40000 8000\r\n",
        "PROXY TCP6 198.51.100.7 10.0.0.9 40000 8000\r\n",
        "PROXY TCP6 2001:db8::7 10.0.0.9 40000 8000\r\n",
        "PROXY TCP6 [2001:db8::7] ::1 40000 8000\r\n",
        "PROXY TCP6 fe80::1%eth0 ::1 40000 8000\r\n",
        "PROXY TCP4 198.51.100.7 10.0.0.9 040000 8000\r\n",
        "PROXY TCP4 198.51.100.7 10.0.0.9 00 8000\r\n",
        "PROXY TCP4 198.51.100.7 10.0.0.9 +1 8000\r\n",
        "PROXY TCP4 198.51.100.7 10.0.0.9 -1 8000\r\n",
        "PROXY TCP4 198.51.100.7 10.0.0.9 65536 8000\r\n",
        "PROXY TCP4 198.51.100.7 10.0.0.9 40000 65536\r\n",
        "PROXY TCP4 198.51.100.7 10.0.0.9 40000 +8000\r\n",
        "PROXY TCP4 198.51.100.7 10.0.0.9 40000 0x50\r\n",
        "PROXY \r\n",
        "PROXY TCP4\r\n",
    ] {
        check(line, "Syntax");
    }
    check("PROXY TCP4 ".to_owned() + &"1".repeat(96), "TooLong");
    check("PROXY TCP4 ".to_owned() + &"1".repeat(95), "incomplete");
    check("PROXY TCP4 ".to_owned() + &"1".repeat(95) + "\r\n", "TooLong");
    check("PROXY TCP4 ".to_owned() + &"1".repeat(5_000), "TooLong");
}

#[test]
fn a_connection_that_begins_with_something_else_has_no_header() {
    for other in [
        "GET / HTTP/1.1\r\n",
        "P0",
        "PROXY\r\n",
        "proxy TCP4 ",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "\u{16}\u{3}\u{1}",
        " PROXY ",
        "\r\n\r\nGET",
        "\r\n\r\n\0\r\nQUIT\r",
        "\nPROXY TCP4 ",
        "PUT / HTTP/1.1",
    ] {
        check(other, "Missing");
    }
    for begun in ["", "P", "PROXY", "PROXY ", "\r", "\r\n\r\n\0\r\nQUIT", "\r\n\r\n\0\r\nQUIT\n"] {
        check(begun, "incomplete");
    }
}

#[test]
fn version_2_announces_tcp_over_ipv4_and_ipv6() {
    check(binary(0x21, 0x11, &IPV4), "198.51.100.7:40000, 0 left");
    check([&binary(0x21, 0x11, &IPV4)[..], b"GET"].concat(), "198.51.100.7:40000, 3 left");
    check(binary(0x21, 0x21, &ipv6("2001:db8::7")), "[2001:db8::7]:40000, 0 left");
    check(binary(0x21, 0x21, &ipv6("::ffff:198.51.100.7")), "198.51.100.7:40000, 0 left");
    check(binary(0x21, 0x11, &IPV4[..11]), "Syntax");
    check(binary(0x21, 0x11, &[]), "Syntax");
    check(binary(0x21, 0x21, &ipv6("2001:db8::7")[..35]), "Syntax");
    check(binary(0x21, 0x21, &IPV4), "Syntax");
}

#[test]
fn version_2_with_local_means_the_peer_whatever_follows() {
    check(binary(0x20, 0x00, &[]), "the peer, 0 left");
    check(binary(0x20, 0x11, &IPV4), "the peer, 0 left");
    check(binary(0x20, 0x11, &[127, 0, 0, 1]), "the peer, 0 left");
    check(binary(0x20, 0xff, b"rubbish"), "the peer, 0 left");
    check([&binary(0x20, 0x00, &[])[..], b"GET"].concat(), "the peer, 3 left");
}

#[test]
fn version_2_is_accepted_for_tcp_over_ip_only() {
    // Unspecified, UDP over IPv4 and IPv6, Unix streams and datagrams, and undefined families.
    for family in [0x00, 0x01, 0x10, 0x12, 0x20, 0x22, 0x30, 0x31, 0x32, 0x13, 0x41, 0xff] {
        check(binary(0x21, family, &[1; 216]), "Unsupported");
    }
    for command in [0x22, 0x2f, 0x01, 0x11, 0x31, 0x00, 0xff] {
        check(binary(command, 0x11, &IPV4), "Syntax");
    }
}

#[test]
fn version_2_has_a_maximum_length() {
    let with_tlv =
        |len: usize| binary(0x21, 0x11, &[&IPV4[..], &tlv(0x04, &vec![0; len - FIXED - 12 - 3])].concat());
    check(with_tlv(BINARY_MAX), "198.51.100.7:40000, 0 left");
    check(with_tlv(BINARY_MAX + 1), "TooLong");
    check(&with_tlv(BINARY_MAX + 1)[..FIXED], "TooLong"); // known before the rest arrives
    check(binary(0x20, 0x00, &[0; 4_097]), "TooLong");
    check([&SIGNATURE[..], &[0x21, 0x11, 0xff, 0xff]].concat(), "TooLong");
}

#[test]
fn tlvs_are_skipped_and_must_fill_the_header() {
    let with = |tlvs: &[u8]| binary(0x21, 0x11, &[&IPV4, tlvs].concat());
    check(with(&tlv(0xea, b"\x01vpce-08d2bf15fac5001c9")), "198.51.100.7:40000, 0 left");
    check(
        with(&[tlv(0x02, b"example.com"), tlv(0x04, &[]), tlv(0x04, &[0; 60])].concat()),
        "198.51.100.7:40000, 0 left",
    );
    check(with(&[0x04]), "Syntax");
    check(with(&[0x04, 0]), "Syntax");
    check(with(&[0x04, 0, 1]), "Syntax");
    check(with(&[&tlv(0x04, b"x")[..], &[0x04, 0xff, 0xff]].concat()), "Syntax");
}

#[test]
fn a_checksum_must_match() {
    assert_eq!(crc32c(b"123456789".iter().copied()), 0xe306_9283); // the standard check value
    let noop = tlv(0x04, &[0; 9]);
    for header in [with_checksum(&[], &[]), with_checksum(&noop, &noop)] {
        check(&header, "198.51.100.7:40000, 0 left");
        check([&header[..], b"GET / HTTP/1.1"].concat(), "198.51.100.7:40000, 14 left");
        for at in FIXED..header.len() {
            let mut flipped = header.clone();
            flipped[at] ^= 0x10;
            let summary = summary(&flipped);
            // A flipped type or length of a TLV hides the checksum, or breaks the format.
            let is_address = at < FIXED + IPV4.len();
            assert!(
                if is_address { summary == "Checksum" } else { summary != "incomplete" },
                "byte {at}: {summary}"
            );
        }
    }
    let with = |tlvs: &[u8]| binary(0x21, 0x11, &[&IPV4, tlvs].concat());
    check(with(&tlv(CRC32C, &[0; 4])), "Checksum");
    check(with(&tlv(CRC32C, &[0; 3])), "Syntax");
    check(with(&tlv(CRC32C, &[])), "Syntax");
    check(with_checksum(&[], &tlv(CRC32C, &[0; 4])), "Syntax");
}

/// A checksum, the endpoint's name, and padding.
#[test]
fn the_header_of_an_aws_network_load_balancer_is_accepted() {
    let more = [tlv(0xea, b"\x01vpce-08d2bf15fac5001c9"), tlv(0x04, &[0; 36])].concat();
    check(with_checksum(&[], &more), "198.51.100.7:40000, 0 left");
}

/// Clients with any address, as headers of either version.
fn headers() -> impl Strategy<Value = (Vec<u8>, SocketAddr)> {
    let (v4, v6) = (any::<([u8; 4], u16)>(), any::<([u8; 16], u16)>());
    let addresses = prop_oneof![
        v4.prop_map(|(ip, port)| SocketAddr::from((ip, port))),
        v6.prop_map(|(ip, port)| SocketAddr::from((ip, port)))
    ];
    let tlvs = vec((any::<u8>(), vec(any::<u8>(), 0..40)), 0..4);
    (addresses, tlvs, any::<bool>()).prop_map(|(client, tlvs, is_text)| {
        let tlvs: Vec<u8> = tlvs
            .into_iter()
            .filter(|(kind, _)| *kind != CRC32C)
            .flat_map(|(kind, value)| tlv(kind, &value))
            .collect();
        let (ip, port) = (client.ip(), client.port());
        let header = match ip {
            IpAddr::V4(_) if is_text => format!("PROXY TCP4 {ip} 10.0.0.9 {port} 8000\r\n").into_bytes(),
            IpAddr::V6(_) if is_text => format!("PROXY TCP6 {ip} ::1 {port} 8000\r\n").into_bytes(),
            IpAddr::V4(ip) => {
                let rest = [&ip.octets()[..], &IPV4[4..8], &port.to_be_bytes(), &[0, 80], &tlvs].concat();
                binary(0x21, 0x11, &rest)
            }
            IpAddr::V6(ip) => {
                let rest = [&ip.octets()[..], &[1; 16], &port.to_be_bytes(), &[0, 80], &tlvs].concat();
                binary(0x21, 0x21, &rest)
            }
        };
        (header, client)
    })
}

proptest! {
    /// Every proper prefix is incomplete, and bytes after the header change nothing.
    #[test]
    fn a_header_is_complete_at_its_last_byte_and_not_before(
        (header, client) in headers(),
        after in vec(any::<u8>(), 0..50),
    ) {
        let client = SocketAddr::new(client.ip().to_canonical(), client.port());
        let expected = ProxyHeader::Complete { client: Some(client), len: header.len() };
        prop_assert_eq!(ProxyHeader::parse(&[&header[..], &after].concat()), expected);
        for end in 0..header.len() {
            prop_assert_eq!(ProxyHeader::parse(&header[..end]), ProxyHeader::Incomplete);
        }
    }

    /// Another parser accepts every header that this one accepts, with the same client and length.
    #[test]
    fn another_parser_agrees(
        (mut header, _) in headers(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
        after in vec(any::<u8>(), 0..20),
    ) {
        for (at, byte) in changes {
            let at = at.index(header.len());
            header[at] = byte;
        }
        header.extend(after);
        if let ProxyHeader::Complete { client: Some(client), len } = ProxyHeader::parse(&header) {
            let (other, n) = proxy_header::ProxyHeader::parse(&header, Default::default()).unwrap();
            let source = other.proxied_address().unwrap().source;
            let source = SocketAddr::new(source.ip().to_canonical(), source.port());
            prop_assert_eq!((client, len), (source, n));
        }
    }

    /// The laws hold for all bytes.
    #[test]
    fn the_laws_hold_for_any_bytes(mark in 0..3, rest in vec(any::<u8>(), 0..300)) {
        let marks: [&[u8]; 3] = [b"", b"PROXY TCP4 1.2.3.4 ", b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0"];
        let bytes = [marks[mark as usize], &rest].concat();
        if let ProxyHeader::Complete { client, len } = ProxyHeader::parse(&bytes) {
            prop_assert!(len <= bytes.len() && len <= BINARY_MAX);
            prop_assert!(client.is_none_or(|client| client.ip() == client.ip().to_canonical()));
            prop_assert_eq!(ProxyHeader::parse(&bytes[..len]), ProxyHeader::parse(&bytes));
        }
    }
}
