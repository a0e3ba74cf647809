//! Under attack: what a client does to its own connection does not matter to others.

use std::time::Duration;

use ratewright_server::Listening;
use rustix::process::{Resource, getrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::house::{CHECK, House, LAST_CHECK, hear, is_served, say, within};

/// One place, which is free again soon when nothing is said on it.
fn one_place() -> Listening {
    Listening { connections_max: 1, head_within: Duration::from_secs(1), ..Listening::default() }
}

#[tokio::test]
async fn a_head_that_comes_byte_by_byte_loses_its_place() {
    let house = House::open(one_place(), None).await;
    let mut slow = house.connect().await;
    let trickle = async {
        slow.write_all(b"GET / HTTP/1.1\r\nHost: ").await?;
        while slow.write_all(b"t").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        std::io::Result::Ok(())
    };
    within(trickle).await.unwrap();
    assert!(is_served(&house.ask().await));
    house.close().await;
}

#[tokio::test]
async fn a_client_that_says_nothing_loses_its_place_also_after_a_request() {
    let house = House::open(one_place(), None).await;
    let mut silent = house.connect().await;
    assert_eq!(within(hear(&mut silent)).await.unwrap(), "");
    let mut idle = house.connect().await;
    let answer = within(say(&mut idle, CHECK.as_bytes())).await.unwrap();
    assert!(is_served(&answer), "{answer}");
    assert!(is_served(&house.ask().await));
    house.close().await;
}

#[tokio::test]
async fn a_megabyte_of_header_fields_is_not_listened_to() {
    let house = House::open(Listening::default(), None).await;
    for field in [format!("X-Long: {}\r\n", "x".repeat(10_000)), "X: y\r\n".to_owned()] {
        let (mut reader, mut writer) = house.connect().await.into_split();
        let talk = async {
            let _ = writer.write_all(b"GET /api/v1/rate-limit/check HTTP/1.1\r\n").await;
            let fields = field.repeat(1_000_000 / field.len());
            let _ = writer.write_all(fields.as_bytes()).await;
            let _ = writer.write_all(b"\r\n").await;
        };
        // Who is cut off while still talking may not hear the answer.
        let (_, answer) = within(async { tokio::join!(talk, hear(&mut reader)) }).await;
        let answer = answer.unwrap_or_default();
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431 "), "{answer}");
        assert!(is_served(&house.ask().await));
    }
    house.close().await;
}

/// The answer comes before the body does, and then the connection ends: the body is read by nobody.
#[tokio::test]
async fn a_huge_body_is_refused_unread() {
    const HUGE: usize = 100_000_000;
    let house = House::open(Listening::default(), None).await;
    for coding in [format!("Content-Length: {HUGE}"), "Transfer-Encoding: chunked".to_owned()] {
        let mut stream = house.connect().await;
        let head = format!("POST /api/v1/rate-limit/check HTTP/1.1\r\nHost: localhost\r\n{coding}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = [0; 12];
        within(stream.read_exact(&mut answer)).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 400");
        let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
        let mut said = 0;
        let body = async {
            while said < HUGE && stream.write_all(chunk.as_bytes()).await.is_ok() {
                said += chunk.len();
            }
        };
        within(body).await;
        assert!(said < HUGE, "it is cut off: {coding}");
        assert!(is_served(&house.ask().await));
    }
    house.close().await;
}

#[tokio::test]
async fn ten_thousand_requests_on_one_connection_are_answered_in_order() {
    const N: u64 = 10_000;
    let house = House::open(Listening::default(), None).await;
    let (mut reader, mut writer) = house.connect().await.into_split();
    let talk = async {
        let requests = CHECK.repeat(usize::try_from(N).unwrap() - 1) + LAST_CHECK;
        writer.write_all(requests.as_bytes()).await.unwrap();
    };
    let (_, answers) = within(async { tokio::join!(talk, hear(&mut reader)) }).await;
    let answers = answers.unwrap();
    let remaining = answers.split(r#""remaining":"#).skip(1).map(|rest| rest.split(',').next().unwrap());
    let remaining: Vec<u64> = remaining.map(|number| number.parse().unwrap()).collect();
    let expected: Vec<u64> = (1..=N).map(|n| 1_000_000 - n).collect();
    assert_eq!(remaining, expected);
    house.close().await;
}

#[tokio::test]
async fn idle_connections_do_not_keep_another_from_being_answered() {
    let house = House::open(Listening::default(), None).await;
    // Both ends of each are in this process, and other tests need files too.
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let n = (files / 2).saturating_sub(300).clamp(10, 2_000);
    let mut idle = Vec::new();
    for _ in 0..n {
        idle.push(house.connect().await);
    }
    assert!(is_served(&house.ask().await));
    let mut last = idle.pop().unwrap();
    assert!(is_served(&within(say(&mut last, LAST_CHECK.as_bytes())).await.unwrap()));
    drop(idle);
    house.close().await;
}
