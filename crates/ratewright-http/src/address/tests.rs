//! Client addresses: entries of trusted proxies count, entries of clients do not.

use super::*;
use proptest::prelude::*;

/// The client of a request with these header lines from this peer; trusted proxies are 10.0.0.0/8 and fd00::/8.
fn find(source: Forwarding, peer: &str, lines: &[(&'static str, &[u8])]) -> String {
    let trusted = vec!["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()];
    let mut headers = HeaderMap::new();
    for &(name, value) in lines {
        headers.append(name, HeaderValue::from_bytes(value).unwrap());
    }
    client_address(&headers, peer.parse().unwrap(), &Proxies { trusted, source }).to_string()
}

/// The client that these lines of `X-Forwarded-For` name, from the trusted peer 10.0.0.1.
fn x_forwarded_for(lines: &[&str]) -> String {
    let lines: Vec<_> = lines.iter().map(|line| ("x-forwarded-for", line.as_bytes())).collect();
    find(Forwarding::XForwardedFor, "10.0.0.1", &lines)
}

/// The client that these lines of `Forwarded` name, from the trusted peer 10.0.0.1.
fn forwarded(lines: &[&str]) -> String {
    let lines: Vec<_> = lines.iter().map(|line| ("forwarded", line.as_bytes())).collect();
    find(Forwarding::Forwarded, "10.0.0.1", &lines)
}

/// A11, C11
#[test]
fn the_client_is_the_first_untrusted_address_from_the_right() {
    assert_eq!(x_forwarded_for(&[]), "10.0.0.1");
    assert_eq!(x_forwarded_for(&["198.51.100.7"]), "198.51.100.7");
    assert_eq!(x_forwarded_for(&["6.6.6.6, 198.51.100.7, 10.0.0.2"]), "198.51.100.7");
    assert_eq!(x_forwarded_for(&["6.6.6.6", "198.51.100.7", "10.0.0.2, fd00::1"]), "198.51.100.7");
    assert_eq!(x_forwarded_for(&["::ffff:198.51.100.7, ::ffff:10.0.0.2"]), "198.51.100.7");
}

/// A11
#[test]
fn if_all_are_proxies_the_leftmost_is_the_client() {
    assert_eq!(x_forwarded_for(&["10.0.0.4, 10.0.0.3", "10.0.0.2"]), "10.0.0.4");
    assert_eq!(forwarded(&["for=10.0.0.4, for=10.0.0.3", "for=10.0.0.2"]), "10.0.0.4");
}

/// C11
#[test]
fn an_entry_without_an_address_ends_the_walk() {
    for odd in ["unknown", "_hidden", "", " ", "localhost", "1.2.3", "1.2.3.4.5", "1.2.3.4:99999", "1.2.3.4:"]
    {
        assert_eq!(x_forwarded_for(&[&format!("6.6.6.6, {odd}, 10.0.0.2")]), "10.0.0.2", "{odd}");
        assert_eq!(x_forwarded_for(&["6.6.6.6", odd]), "10.0.0.1", "{odd}");
    }
    for odd in ["[1.2.3.4]", "[::1", "[::1]x", "[::1]:", "fe80::1%eth0", "\"1.2.3.4\"", "1.2.3.4 5.6.7.8"] {
        assert_eq!(x_forwarded_for(&["6.6.6.6", odd]), "10.0.0.1", "{odd}");
    }
}

/// B5
#[test]
fn entries_may_have_ports_brackets_and_blanks() {
    for (entry, address) in [
        (" \t198.51.100.7 ", "198.51.100.7"),
        ("198.51.100.7:4711", "198.51.100.7"),
        ("198.51.100.7:_p-1", "198.51.100.7"),
        ("2001:DB8::1", "2001:db8::1"),
        ("[2001:db8::1]", "2001:db8::1"),
        ("[2001:db8::1]:4711", "2001:db8::1"),
        ("[::ffff:198.51.100.7]:80", "198.51.100.7"),
    ] {
        assert_eq!(x_forwarded_for(&[&format!("6.6.6.6,{entry},10.0.0.2")]), address, "{entry}");
    }
}

/// B5: X-Forwarded-For, then X-Real-IP, then the peer.
#[test]
fn x_real_ip_counts_only_where_there_is_no_x_forwarded_for() {
    let find = |peer: &str, lines: &[(&'static str, &[u8])]| find(Forwarding::XForwardedFor, peer, lines);
    let real = ("x-real-ip", &b"198.51.100.8"[..]);
    assert_eq!(find("10.0.0.1", &[real]), "198.51.100.8");
    assert_eq!(find("10.0.0.1", &[real, ("x-forwarded-for", b"198.51.100.7")]), "198.51.100.7");
    assert_eq!(find("10.0.0.1", &[real, ("x-forwarded-for", b"")]), "10.0.0.1");
    assert_eq!(find("10.0.0.1", &[real, real]), "10.0.0.1", "which of them?");
    assert_eq!(find("10.0.0.1", &[("x-real-ip", b"198.51.100.7, 6.6.6.6")]), "10.0.0.1");
    assert_eq!(find("192.0.2.9", &[real]), "192.0.2.9");
}

/// C11
#[test]
fn x_forwarded_for_and_forwarded_are_never_mixed() {
    let lines: [(&str, &[u8]); 3] =
        [("x-forwarded-for", b"198.51.100.7"), ("forwarded", b"for=198.51.100.8"), ("x-real-ip", b"6.6.6.6")];
    assert_eq!(find(Forwarding::XForwardedFor, "10.0.0.1", &lines), "198.51.100.7");
    assert_eq!(find(Forwarding::Forwarded, "10.0.0.1", &lines), "198.51.100.8");
    assert_eq!(find(Forwarding::XForwardedFor, "10.0.0.1", &lines[1..2]), "10.0.0.1");
    assert_eq!(find(Forwarding::Forwarded, "10.0.0.1", &[lines[0], lines[2]]), "10.0.0.1");
}

/// A11
#[test]
fn forwarded_elements_are_read_whatever_their_form() {
    for (line, address) in [
        ("for=198.51.100.7", "198.51.100.7"),
        ("proto=https;FOR=198.51.100.7;by=10.0.0.1", "198.51.100.7"),
        (r#"for="[2001:db8::1]:4711";proto=https"#, "2001:db8::1"),
        (r#"by="_a,b;for=6.6.6.6" ; for="198.51.100.7:80""#, "198.51.100.7"),
        (r#"for=6.6.6.6, for=198.51.100.7;host="a, for=\"6.6.6.7\"""#, "198.51.100.7"),
        (r#"for=198.51.100.7;host="ends in a backslash \\""#, "198.51.100.7"),
    ] {
        assert_eq!(forwarded(&[line]), address, "{line}");
        assert_eq!(forwarded(&[&format!("{line},for=10.0.0.2")]), address, "{line}");
    }
}

/// C11
#[test]
fn a_forwarded_element_without_exactly_one_address_ends_the_walk() {
    for odd in [
        "",
        "for",
        "for=",
        "proto=https",
        "for=unknown",
        "for=_hidden",
        "for=\"_hidden:80\"",
        "for=6.6.6.6;for=6.6.6.7",
        "for=6.6.6.6;",
        "for=\"6.6.6.6",
        "for=6.6.6.6\"",
        "for=\"6.6.\\6.6\"",
        "for = 6.6.6.6",
    ] {
        assert_eq!(forwarded(&["for=6.6.6.8", &format!("{odd}, for=10.0.0.2")]), "10.0.0.2", "{odd}");
    }
}

#[test]
fn the_walk_has_a_maximum_length() {
    let long = vec!["10.0.0.2"; 100_000].join(",");
    assert_eq!(x_forwarded_for(&["198.51.100.7", &long]), "10.0.0.2");
    let allowed = vec!["10.0.0.2"; HOPS_MAX - 1].join(",");
    assert_eq!(x_forwarded_for(&["198.51.100.7", &allowed]), "198.51.100.7");
    assert_eq!(x_forwarded_for(&["198.51.100.7", &allowed, "10.0.0.3"]), "10.0.0.2");
}

/// The cost of a very long header is that of the walk, without allocation.
#[test]
fn nothing_is_copied_however_long_the_header() {
    let mut headers = HeaderMap::new();
    for name in ["x-forwarded-for", "forwarded"] {
        let line =
            "for=6.6.6.6,".repeat(100_000) + if name == "forwarded" { "for=1.2.3.4" } else { "1.2.3.4" };
        headers.append(name, line.parse().unwrap());
    }
    let peer: IpAddr = "10.0.0.1".parse().unwrap();
    for source in [Forwarding::XForwardedFor, Forwarding::Forwarded] {
        let rules = Proxies { trusted: vec!["10.0.0.0/8".parse().unwrap()], source };
        let mut found = peer;
        let made = allocation_counter::measure(|| found = client_address(&headers, peer, &rules));
        assert_eq!((made.count_total, found.to_string().as_str()), (0, "1.2.3.4"));
    }
}

#[test]
fn addresses_of_one_client_share_a_name() {
    let client = |text: &str, prefix| client(text.parse().unwrap(), prefix);
    assert_eq!(client("192.0.2.1", 64), "192.0.2.1");
    assert_eq!(client("::ffff:192.0.2.1", 64), "192.0.2.1");
    for address in ["0.0.0.0", "255.255.255.255", "9.10.99.100", "101.200.109.5"] {
        assert_eq!(client(address, 64), address);
    }
    assert_eq!(client("::1", 64), "::1");
    assert_eq!(client("2001:db8::1", 64), "2001:db8::/64");
    assert_eq!(client("2001:db8::ffff:1:2:3", 64), "2001:db8::/64");
    assert_ne!(client("2001:db8:0:1::1", 64), client("2001:db8::1", 64));
    assert_eq!(client("2001:db8:0:1ff::1", 56), "2001:db8:0:100::/56");
    assert_eq!(client("2001:db8::1", 127), "2001:db8::/127");
    assert_eq!(client("2001:db8::1", 128), "2001:db8::1");
    assert_eq!(client("2001:db8::1", 255), "2001:db8::1");
    assert_eq!(client("2001:db8::1", 0), "::/0");
}

/// Any valid header line, often with the parts of a list.
fn line() -> impl Strategy<Value = Vec<u8>> {
    let bytes = prop::collection::vec(prop_oneof![32u8..127, 128u8..=255, Just(b'\t')], 0..80);
    let parts = prop::sample::select(vec![
        ",", ";", "\"", "\\", "for=", "FOR=", "[", "]", ":", " ", "6.6.6.6", "10.0.0.9", "unknown", "_x",
        "::1",
    ]);
    let lists = prop::collection::vec(parts, 0..30).prop_map(|parts| parts.concat().into_bytes());
    prop_oneof![bytes, lists]
}

fn source() -> impl Strategy<Value = Forwarding> {
    prop::sample::select(vec![Forwarding::XForwardedFor, Forwarding::Forwarded])
}

fn header_name() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["x-forwarded-for", "forwarded", "x-real-ip"])
}

proptest! {
    /// C11: from an untrusted peer, no header changes the result.
    #[test]
    fn headers_of_an_untrusted_peer_are_ignored(source in source(), lines in prop::collection::vec((header_name(), line()), 0..5)) {
        let lines: Vec<_> = lines.iter().map(|(name, value)| (*name, &value[..])).collect();
        prop_assert_eq!(find(source, "192.0.2.9", &lines), "192.0.2.9");
        prop_assert_eq!(find(source, "::ffff:192.0.2.9", &lines), "192.0.2.9");
    }

    /// C11: the client's entries are left of the first proxy's, in its line or in lines before.
    #[test]
    fn entries_from_the_client_are_never_read(
        before in prop::collection::vec(line(), 0..3),
        mut left in line(),
        hops in 0..4,
    ) {
        let proxies = |hop: &str| format!(", {hop}10.0.0.2").repeat(hops as usize);
        for (source, name, client, proxies) in [
            (Forwarding::XForwardedFor, "x-forwarded-for", ", 198.51.100.7", proxies("")),
            (Forwarding::Forwarded, "forwarded", ", for=198.51.100.7;host=\"a,\\\"b\\\\\"", proxies("for=")),
        ] {
            let length = left.len();
            left.extend_from_slice(client.as_bytes());
            left.extend_from_slice(proxies.as_bytes());
            let lines: Vec<_> = before.iter().chain([&left]).map(|line| (name, &line[..])).collect();
            prop_assert_eq!(find(source, "10.0.0.1", &lines), "198.51.100.7");
            left.truncate(length);
        }
    }

    /// Any headers give a result.
    #[test]
    fn arbitrary_headers_do_not_panic(source in source(), lines in prop::collection::vec((header_name(), line()), 0..5)) {
        let lines: Vec<_> = lines.iter().map(|(name, value)| (*name, &value[..])).collect();
        find(source, "10.0.0.1", &lines);
    }

    /// An address in any form parses back.
    #[test]
    fn written_addresses_parse_back(address: IpAddr, port: u16) {
        let forms = [address.to_string(), std::net::SocketAddr::new(address, port).to_string()];
        for form in forms {
            prop_assert_eq!(forwarded_hop::parse(form.as_bytes()), Some(address.to_canonical()), "{}", form);
        }
    }
}

proptest! {
    #[test]
    fn addresses_have_their_standard_text(bits: u32, bits_of_6: u128) {
        for address in [IpAddr::from(bits.to_be_bytes()), IpAddr::from(bits_of_6.to_be_bytes())] {
            let mut text = String::new();
            push(address, |piece| text.push_str(piece));
            prop_assert_eq!(&text, &address.to_string());
            prop_assert_eq!(client(IpAddr::from(bits.to_be_bytes()), 64), IpAddr::from(bits.to_be_bytes()).to_string());
        }
    }
}
