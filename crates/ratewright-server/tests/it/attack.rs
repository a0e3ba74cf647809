//! Hostile clients do not affect others.

use std::time::Duration;

use ratewright_lab::within;
use ratewright_server::HttpListenerSettings;
use rustix::process::{Resource, getrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::test_server::{CHECK, LAST_CHECK, TestServer, is_served, read_to_end, send};

/// One connection at a time, with a short timeout for its head.
fn one_connection() -> HttpListenerSettings {
    HttpListenerSettings {
        connections_max: 1,
        head_within: Duration::from_secs(1),
        ..HttpListenerSettings::default()
    }
}

#[tokio::test]
async fn a_head_that_arrives_byte_by_byte_times_out() {
    let server = TestServer::start(one_connection(), None).await;
    let mut slow = server.connect().await;
    let trickle = async {
        slow.write_all(b"GET / HTTP/1.1\r\nHost: ").await?;
        while slow.write_all(b"t").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        std::io::Result::Ok(())
    };
    within("it is cut off", trickle).await.unwrap();
    assert!(is_served(&server.request_once().await));
    server.stop().await;
}

#[tokio::test]
async fn a_silent_client_times_out_also_after_a_request() {
    let server = TestServer::start(one_connection(), None).await;
    let mut silent = server.connect().await;
    assert_eq!(read_to_end(&mut silent).await.unwrap(), "");
    let mut idle = server.connect().await;
    let response = send(&mut idle, CHECK.as_bytes()).await.unwrap();
    assert!(is_served(&response), "{response}");
    assert!(is_served(&server.request_once().await));
    server.stop().await;
}

#[tokio::test]
async fn a_megabyte_of_headers_is_rejected() {
    let server = TestServer::start(HttpListenerSettings::default(), None).await;
    for field in [format!("X-Long: {}\r\n", "x".repeat(10_000)), "X: y\r\n".to_owned()] {
        let (mut reader, mut writer) = server.connect().await.into_split();
        let talk = async {
            let _ = writer.write_all(b"GET /api/v1/rate-limit/check HTTP/1.1\r\n").await;
            let fields = field.repeat(1_000_000 / field.len());
            let _ = writer.write_all(fields.as_bytes()).await;
            let _ = writer.write_all(b"\r\n").await;
        };
        // A client that is cut off while sending may lose the response.
        let (_, response) =
            within("it is rejected", async { tokio::join!(talk, read_to_end(&mut reader)) }).await;
        let response = response.unwrap_or_default();
        assert!(response.is_empty() || response.starts_with("HTTP/1.1 431 "), "{response}");
        assert!(is_served(&server.request_once().await));
    }
    server.stop().await;
}

/// The response comes before the body, and then the connection ends: the body is never read.
#[tokio::test]
async fn a_huge_body_is_rejected_unread() {
    const HUGE: usize = 100_000_000;
    let server = TestServer::start(HttpListenerSettings::default(), None).await;
    for coding in [format!("Content-Length: {HUGE}"), "Transfer-Encoding: chunked".to_owned()] {
        let mut stream = server.connect().await;
        let head = format!("POST /api/v1/rate-limit/check HTTP/1.1\r\nHost: localhost\r\n{coding}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut response = [0; 12];
        within("a response", stream.read_exact(&mut response)).await.unwrap();
        assert_eq!(&response, b"HTTP/1.1 400");
        let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
        let mut said = 0;
        let body = async {
            while said < HUGE && stream.write_all(chunk.as_bytes()).await.is_ok() {
                said += chunk.len();
            }
        };
        within("it is cut off, or all is sent", body).await;
        assert!(said < HUGE, "it is cut off: {coding}");
        assert!(is_served(&server.request_once().await));
    }
    server.stop().await;
}

#[tokio::test]
async fn ten_thousand_pipelined_requests_get_responses_in_order() {
    const N: u64 = 10_000;
    let server = TestServer::start(HttpListenerSettings::default(), None).await;
    let (mut reader, mut writer) = server.connect().await.into_split();
    let talk = async {
        let requests = CHECK.repeat(usize::try_from(N).unwrap() - 1) + LAST_CHECK;
        writer.write_all(requests.as_bytes()).await.unwrap();
    };
    let (_, responses) =
        within("all responses", async { tokio::join!(talk, read_to_end(&mut reader)) }).await;
    let responses = responses.unwrap();
    let remaining = responses.split(r#""remaining":"#).skip(1).map(|rest| rest.split(',').next().unwrap());
    let remaining: Vec<u64> = remaining.map(|number| number.parse().unwrap()).collect();
    let expected: Vec<u64> = (1..=N).map(|n| 1_000_000 - n).collect();
    assert_eq!(remaining, expected);
    server.stop().await;
}

#[tokio::test]
async fn idle_connections_do_not_block_another() {
    let server = TestServer::start(HttpListenerSettings::default(), None).await;
    // Both ends of each connection are in this process, and other tests need file descriptors too.
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let n = (files / 2).saturating_sub(300).clamp(10, 2_000);
    let mut idle = Vec::new();
    for _ in 0..n {
        idle.push(server.connect().await);
    }
    assert!(is_served(&server.request_once().await));
    let mut last = idle.pop().unwrap();
    assert!(is_served(&send(&mut last, LAST_CHECK.as_bytes()).await.unwrap()));
    drop(idle);
    server.stop().await;
}
