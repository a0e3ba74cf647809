//! Routes and the policies that they name are replaced together.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use ratewright_core::policy::Selector;
use ratewright_core::query::AttributeName;
use ratewright_core::quota::{Algorithm, Refill};
use ratewright_core::{Policies, Policy, Quota};
use ratewright_gateway::{GatewaySettings, Route, Snapshot};
use ratewright_lab::within;

use crate::harness::{RawResponse, ScriptedServer, Setup, TestGateway, route, settings, text, wait_until};

/// One policy file: a route to a server that responds with the file's name, under a policy of that name.
struct File {
    name: &'static str,
    server: ScriptedServer,
}

impl File {
    async fn new(name: &'static str) -> Self {
        let server = ScriptedServer::start(move |mut client, _| async move {
            while client.read_until(b"\r\n\r\n").await.is_some() {
                client.send(text(name)).await;
            }
        });
        Self { name, server: server.await }
    }

    fn settings(&self) -> GatewaySettings {
        let address: SocketAddr = self.server.address;
        settings(Route { policies: vec![self.name.to_owned()], ..route(&[address]) })
    }

    fn policies(&self) -> Vec<Policy> {
        let rate = "1000000/h".parse().unwrap();
        let quota = Quota::new(Algorithm::TokenBucket(Refill::Smooth), rate).unwrap();
        vec![Policy::new(self.name, quota).unwrap().by(&[AttributeName::Ip]).with_selector(Selector::Named)]
    }
}

/// Replaces the limiter's own policies, as a reload does before it replaces the gateway's snapshot.
fn swap(gateway: &TestGateway, file: &File) {
    gateway.limiter.swap(Policies::new(file.policies()).unwrap());
}

/// Replaces the snapshot.
fn store(gateway: &TestGateway, file: &File) {
    let before = Snapshot::clone(&gateway.snapshot.load());
    let settings = Arc::new(file.settings());
    gateway.snapshot.store(Arc::new(Snapshot { settings, policies: gateway.limiter.policies(), ..before }));
}

/// The file that routed a request, and the file that counted it.
fn routed_and_counted(response: &RawResponse) -> (String, String) {
    let counted =
        response.headers.get("ratelimit-policy").map(|field| field.split('"').nth(1).unwrap_or("?"));
    (response.text(), counted.unwrap_or("nothing").to_owned())
}

async fn start(file: &File) -> TestGateway {
    let (policies, settings) = (file.policies(), file.settings());
    TestGateway::start(Setup { policies, settings, ..Setup::default() }).await
}

fn both(name: &str) -> (String, String) {
    (name.to_owned(), name.to_owned())
}

#[tokio::test]
async fn a_request_is_decided_by_the_policies_of_the_file_that_routed_it() {
    let (a, b) = (File::new("a").await, File::new("b").await);
    let gateway = start(&a).await;
    assert_eq!(routed_and_counted(&gateway.get("/").await), both("a"));
    swap(&gateway, &b);
    assert_eq!(routed_and_counted(&gateway.get("/").await), both("a"), "halfway through a reload");
    store(&gateway, &b);
    assert_eq!(routed_and_counted(&gateway.get("/").await), both("b"));
}

#[tokio::test]
async fn no_request_meets_the_routes_of_one_file_and_the_policies_of_another() {
    let (a, b) = (File::new("a").await, File::new("b").await);
    let gateway = Arc::new(start(&a).await);
    let (is_over, n_answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let load = |_| {
        let (gateway, is_over, n_answered) = (gateway.clone(), is_over.clone(), n_answered.clone());
        tokio::spawn(async move {
            let mut client = gateway.connect().await;
            while !is_over.load(Ordering::Relaxed) {
                let response = client.exchange("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
                let (routed, counted) = routed_and_counted(&response);
                assert_eq!((routed.as_str(), response.status), (counted.as_str(), 200));
                n_answered.fetch_add(1, Ordering::Relaxed);
            }
        })
    };
    let clients: Vec<_> = (0..4).map(load).collect();
    for n in 0..200 {
        let file = if n % 2 == 0 { &b } else { &a };
        swap(&gateway, file);
        let before = n_answered.load(Ordering::Relaxed);
        let is_failed = || clients.iter().any(tokio::task::JoinHandle::is_finished);
        wait_until("requests come halfway through", || {
            n_answered.load(Ordering::Relaxed) > before || is_failed()
        })
        .await;
        store(&gateway, file);
    }
    is_over.store(true, Ordering::Relaxed);
    for client in clients {
        within("it ends", client).await.unwrap();
    }
}
