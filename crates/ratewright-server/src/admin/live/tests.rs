//! The data of the live page, line by line.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::Ordering::Relaxed;

use axum::extract::ConnectInfo;
use futures_util::StreamExt as _;
use ratewright_core::query::{Attribute, AttributeName};
use ratewright_core::{Limiter, ManualClock, Micros, Policies, Policy, Query, Quota, Timestamp};
use ratewright_lab::within;
use ratewright_store::MemoryStore;
use serde_json::{Value, json};

use super::*;
use crate::access_control::{Access, TokenDigest};
use crate::admin::tests::TestInstance;
use crate::admin::{Labels, Metrics};
use crate::settings::ServerSettings;
use crate::telemetry::{TelemetryObserver, Warnings};

type TestLimiter = Limiter<MemoryStore<ManualClock>, TelemetryObserver<ManualClock>>;

/// The admin API and a limiter of one a minute for each address.
struct Page {
    admin: Arc<Admin<ManualClock>>,
    instance: Arc<TestInstance>,
    limiter: TestLimiter,
    clock: ManualClock,
}

/// A response, read line by line.
struct Lines(axum::body::BodyDataStream);

impl Page {
    fn new() -> Self {
        let clock = ManualClock::at(Timestamp::from_micros(1_700_000_000_900_000));
        let telemetry = Arc::new(Telemetry::new(Warnings::All, clock.clone(), Arc::new(clock.clone())));
        let policy = Policy::new("login", Quota::per_minute(1)).unwrap().by(&[AttributeName::Ip]);
        let limiter = Limiter::observed(
            Policies::new(vec![policy]).unwrap(),
            MemoryStore::new(clock.clone(), 10_000),
            TelemetryObserver::Rates(telemetry.clone()),
        );
        let instance = Arc::new(TestInstance::default());
        let metrics = Metrics::new(Labels::default(), telemetry.clone());
        let settings = ServerSettings::default().shared();
        let admin = Admin { telemetry, metrics, settings, instance: instance.clone() };
        Self { admin: Arc::new(admin), instance, limiter, clock }
    }

    /// Sends a request from an address.
    async fn request(&self, ip: Ipv4Addr) {
        let text = ip.to_string();
        let attributes = [
            Attribute { name: AttributeName::Ip, value: &text },
            Attribute { name: AttributeName::Path, value: "/<b>\u{202e}" },
            Attribute { name: AttributeName::Header("x-api-key"), value: "secret" },
        ];
        let query = Query { address: Some(IpAddr::V4(ip)), ..Query::new(&attributes) };
        self.limiter.decide(&query).await;
    }

    fn open(&self, token: Option<&str>) -> Lines {
        let mut request = http::Request::builder().uri("/");
        if let Some(token) = token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let (mut head, ()) = request.body(()).unwrap().into_parts();
        let peer = if token.is_some() { [192, 0, 2, 1] } else { [127, 0, 0, 1] };
        head.extensions.insert(ConnectInfo(SocketAddr::from((peer, 1))));
        Lines(response(self.admin.clone(), head).unwrap().into_body().into_data_stream())
    }

    /// A second passes.
    fn tick(&self) {
        self.clock.advance(Micros::from_secs(1));
        self.admin.telemetry.sample();
    }
}

impl Lines {
    /// The next line, after a second if it is not the first.
    async fn next(&mut self, page: &Page) -> Option<Value> {
        let line = async {
            tokio::select! {
                biased;
                line = self.0.next() => line,
                () = async { tokio::task::yield_now().await; page.tick(); std::future::pending().await } => None,
            }
        };
        let line = within("a line", line).await?.unwrap();
        assert!(line.ends_with(b"\n") && line.iter().filter(|byte| **byte == b'\n').count() == 1);
        Some(serde_json::from_slice(&line).unwrap())
    }
}

#[tokio::test]
async fn a_page_gets_the_history_and_then_each_second() {
    let page = Page::new();
    for _ in 0..3 {
        page.request(Ipv4Addr::new(203, 0, 113, 7)).await;
    }
    page.tick();
    page.tick();
    let mut lines = page.open(None);
    let first = lines.next(&page).await.unwrap();
    assert_eq!(first["seconds"], json!([[1_700_000_001, 1, 2, 0]]));
    assert_eq!(first["status"]["version"], "1.2.3");
    assert_eq!(first["status"]["isReady"], true);
    assert_eq!(first["decisions"], json!([]), "the page was closed");

    page.request(Ipv4Addr::new(203, 0, 113, 8)).await;
    page.request(Ipv4Addr::new(203, 0, 113, 8)).await;
    let second = lines.next(&page).await.unwrap();
    assert_eq!(second["seconds"], json!([[1_700_000_003, 1, 1, 0]]));
    assert_eq!(second["policies"], json!({"login": [[1_700_000_000, 2, 3, 0, 2]]}));
    let decisions = second["decisions"].as_array().unwrap();
    assert_eq!(
        decisions[1],
        json!({"at": 1_700_000_002.9, "verdict": "denied", "policy": "login", "ip": "203.0.113.8",
               "path": "/<b>\u{202e}", "header:x-api-key": "#2bb80d537b1da3e3"})
    );
    assert_eq!((decisions.len(), &decisions[0]["verdict"]), (2, &json!("allowed")));

    let third = lines.next(&page).await.unwrap();
    assert_eq!((&third["seconds"], &third["policies"]), (&json!([]), &json!({})));
    assert_eq!(third["decisions"], json!([]));
}

#[tokio::test]
async fn two_pages_see_the_same_and_a_closed_one_costs_nothing() {
    let page = Page::new();
    let (mut one, mut two) = (page.open(None), page.open(None));
    one.next(&page).await.unwrap();
    two.next(&page).await.unwrap();
    page.request(Ipv4Addr::LOCALHOST).await;
    let (one_line, two_line) = (one.next(&page).await.unwrap(), two.next(&page).await.unwrap());
    assert_eq!(one_line["decisions"].as_array().unwrap().len(), 1);
    assert_eq!(two_line["decisions"].as_array().unwrap().len(), 1);
    drop(one);
    assert!(page.admin.telemetry.recorder().is_open());
    drop(two);
    assert!(!page.admin.telemetry.recorder().is_open());
    page.request(Ipv4Addr::LOCALHOST).await;
    assert!(page.admin.telemetry.recorder().read(0).decisions.is_empty(), "nothing is recorded");
}

#[tokio::test]
async fn the_number_of_open_pages_is_limited() {
    let page = Page::new();
    let mut open: Vec<_> = (0..PAGES_MAX).map(|_| page.open(None)).collect();
    let (head, ()) = http::Request::new(()).into_parts();
    let problem = response(page.admin.clone(), head).unwrap_err().render();
    assert_eq!(problem.status(), 503);
    open.pop();
    page.open(None).next(&page).await.unwrap();
}

#[tokio::test]
async fn a_page_ends_when_its_token_is_revoked_and_when_the_program_stops() {
    let page = Page::new();
    let access = Access::new(vec![TokenDigest::of("first")]);
    page.admin.settings.store(Arc::new(ServerSettings { access, ..ServerSettings::default() }));
    let mut lines = page.open(Some("first"));
    assert!(lines.next(&page).await.is_some());
    assert!(lines.next(&page).await.is_some());
    let access = Access::new(vec![TokenDigest::of("second")]);
    page.admin.settings.store(Arc::new(ServerSettings { access, ..ServerSettings::default() }));
    assert_eq!(lines.next(&page).await, None, "the token is no longer valid");

    let mut lines = page.open(None);
    assert!(lines.next(&page).await.is_some());
    page.instance.is_stopping.store(true, Relaxed);
    assert_eq!(lines.next(&page).await, None, "the program stops");
    drop(lines);
    assert!(!page.admin.telemetry.recorder().is_open());
}
