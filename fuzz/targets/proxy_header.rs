//! PROXY protocol headers: what follows a header changes nothing, and no part of it is a whole one.
#![no_main]

use ratewright_listen::proxy_protocol::{BINARY_MAX, ProxyHeader, TEXT_MAX};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let parsed = ProxyHeader::parse(bytes);
    match parsed {
        ProxyHeader::Complete { client, len } => {
            let max = if bytes.starts_with(b"PROXY ") { TEXT_MAX } else { BINARY_MAX };
            assert!(len <= bytes.len() && len <= max);
            if let Some(ip) = client.map(|client| client.ip()) {
                assert_eq!(ip, ip.to_canonical());
            }
            assert_eq!(ProxyHeader::parse(&bytes[..len]), parsed);
            for end in 0..len {
                assert_eq!(ProxyHeader::parse(&bytes[..end]), ProxyHeader::Incomplete);
            }
        }
        ProxyHeader::Incomplete => assert!(bytes.len() < BINARY_MAX),
        ProxyHeader::Invalid(_) => {
            let more = [bytes, b"\r\nGET / HTTP/1.1\r\n\r\n"].concat();
            assert_eq!(ProxyHeader::parse(&more), parsed);
        }
    }
});
