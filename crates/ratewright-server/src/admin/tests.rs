//! The admin API as its callers see it.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use expect_test::{Expect, expect};
use http::Method;
use parking_lot::Mutex;
use ratewright_core::query::{Ask, Attribute, AttributeName, Entrypoint, Select};
use ratewright_core::quota::{Algorithm, Refill};
use ratewright_core::{Limiter, ManualClock, Micros, Policies, Policy, Query, Quota, Timestamp, Verdict};
use ratewright_store::MemoryStore;
use ratewright_telemetry::Histogram;
use serde_json::Value;
use tower::ServiceExt;

use super::*;
use crate::settings::ServerSettings;
use crate::telemetry::{TelemetryObserver, Warnings};

/// The `Accept` header of Prometheus.
const OPEN_METRICS: &str = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";

/// The API after two queries of one client under a limit of one.
async fn admin_api(readiness: Readiness, labels: &[(&str, &str)]) -> Router {
    let clock = ManualClock::at(Timestamp::from_micros(1_700_000_000_250_000));
    let telemetry = Arc::new(Telemetry::new(Warnings::default(), clock.clone(), Arc::new(clock.clone())));
    let quota = Quota::new(Algorithm::TokenBucket(Refill::Smooth), "1/h".parse().unwrap()).unwrap();
    let policy = Policy::new("login", quota).unwrap().by(&[AttributeName::Ip]);
    let store = MemoryStore::new(clock, 1_000);
    let limiter = Limiter::observed(
        Policies::new(vec![policy]).unwrap(),
        store,
        TelemetryObserver::Rates(telemetry.clone()),
    );
    let attributes = [
        Attribute { name: AttributeName::Ip, value: "192.0.2.1" },
        Attribute { name: AttributeName::Method, value: "POST" },
        Attribute { name: AttributeName::Path, value: "/login" },
    ];
    let ask = Ask::Spend(NonZeroU32::MIN);
    let (select, patience) = (Select::Covering(&[]), Micros::ZERO);
    let query = Query {
        select,
        attributes: &attributes,
        address: None,
        ask,
        patience,
        id: None,
        entrypoint: Entrypoint::Tower,
    };
    for _ in 0..2 {
        limiter.decide(&query).await;
    }
    telemetry.checks().observe(Algorithm::SlidingWindow, Verdict::Deny, Micros::from_millis(3));
    let calls = Histogram::default();
    calls.observe(Micros::from_millis(3));
    let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let metrics = Metrics::new(Labels::new(labels.collect()).unwrap(), telemetry.clone()).with(move || {
        vec![
            Figure::gauge("ratewright_store_up", "Whether the shared store is in reach").of(1.0),
            Figure::counter("ratewright_standings", "Standings").labelled("basis", "local", 2.0),
            Figure::durations("ratewright_store_call", "How long calls took").took([], calls.read()),
        ]
    });
    let settings = ServerSettings::default().shared();
    let instance = Arc::new(TestInstance { readiness, ..TestInstance::default() });
    let admin = Arc::new(Admin { telemetry, metrics, settings, instance });
    open(admin.clone()).merge(guarded(admin))
}

/// A program without listeners and store.
#[derive(Debug)]
pub(super) struct TestInstance {
    pub(super) readiness: Readiness,
    pub(super) is_stopping: AtomicBool,
    pub(super) simulated: Mutex<Vec<SimulateRequest>>,
}

impl Default for TestInstance {
    fn default() -> Self {
        Self { readiness: Readiness::Ready, is_stopping: AtomicBool::new(false), simulated: Mutex::default() }
    }
}

impl Instance for TestInstance {
    fn has_policy(&self, name: &str) -> bool {
        ["login", "idle"].contains(&name)
    }

    fn info(&self) -> Info {
        Info { version: "1.2.3", generation: 4, uptime: Micros::from_millis(5_999) }
    }

    fn readiness(&self) -> Readiness {
        self.readiness.clone()
    }

    fn is_stopping(&self) -> bool {
        self.is_stopping.load(Relaxed)
    }

    fn reload(&self, _: bool) -> InstanceFuture<'_, Reloaded> {
        Box::pin(async { Reloaded::Rejected { errors: vec!["it is empty".to_owned()] } })
    }

    fn status(&self) -> LiveStatus {
        LiveStatus::default()
    }

    fn policies(&self) -> PolicyList {
        PolicyList { generation: 4, ..PolicyList::default() }
    }

    fn policy_file(&self) -> InstanceFuture<'_, PolicyFileText> {
        Box::pin(async { PolicyFileText { text: Some("policies: []".to_owned()), reason: None } })
    }

    fn simulate(&self, request: SimulateRequest) -> InstanceFuture<'_, Result<Value, SimulationError>> {
        let result = match request.policy_text.as_str() {
            "bad" => Err(SimulationError::Policies(vec!["1:1: bad".to_owned(), "1:2: worse".to_owned()])),
            "log" => Err(SimulationError::Log("format not recognised".to_owned())),
            _ => Ok(serde_json::json!({ "report": {}, "warnings": [] })),
        };
        self.simulated.lock().push(request);
        Box::pin(async { result })
    }
}

async fn ask(admin_api: Router, method: Method, path: &str, accept: &str) -> (u16, String, String) {
    let request = http::Request::builder().method(method).uri(path).header(header::ACCEPT, accept);
    let response = admin_api.oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    let status = response.status().as_u16();
    let kind = response.headers()[header::CONTENT_TYPE].to_str().unwrap().to_owned();
    let body = axum::body::to_bytes(response.into_body(), 100_000).await.unwrap();
    (status, kind, String::from_utf8(body.into()).unwrap())
}

async fn check(path: &str, expected: Expect) {
    let (status, kind, body) = ask(admin_api(Readiness::Ready, &[]).await, Method::GET, path, "*/*").await;
    expected.assert_eq(&format!("{status} {kind} {body}"));
}

#[tokio::test]
async fn c8_health_is_up_at_both_paths() {
    for path in ["/health", "/actuator/health", "/ready"] {
        check(path, expect![[r#"200 application/json {"status":"UP"}"#]]).await;
    }
}

#[tokio::test]
async fn a_program_that_is_not_ready_says_why_and_is_still_healthy() {
    let admin_api = admin_api(Readiness::NotReady { reason: "it is stopping" }, &[]).await;
    let (status, _, body) = ask(admin_api.clone(), Method::GET, "/ready", "").await;
    assert_eq!((status, body.as_str()), (503, r#"{"status":"OUT_OF_SERVICE","reason":"it is stopping"}"#));
    assert_eq!(ask(admin_api, Method::GET, "/health", "").await.0, 200);
}

#[tokio::test]
async fn c8_info_has_version_generation_and_uptime() {
    let expected = expect![[
        r#"200 application/json {"name":"ratewright","version":"1.2.3","generation":4,"uptimeSeconds":5}"#
    ]];
    check("/actuator/info", expected).await;
}

#[tokio::test]
async fn denied_clients_and_denials_are_listed() {
    let expected = expect![[
        r#"200 application/json {"windowSeconds":300,"top":[{"policy":"login","client":"192.0.2.1","atLeast":1,"atMost":1,"mode":"enforce"}]}"#
    ]];
    check("/api/v1/admin/top", expected).await;
    let expected = expect![[r#"200 application/json {"windowSeconds":300,"top":[]}"#]];
    check("/api/v1/admin/top?policy=idle&n=5", expected).await;
    let expected = expect![[
        r#"404 application/problem+json {"type":"about:blank","title":"Not Found","status":404,"detail":"unknown policy \"nope\"; see the policy file","parameter":"policy"}"#
    ]];
    check("/api/v1/admin/top?policy=nope", expected).await;
    let expected = expect![[
        r#"200 application/json {"denials":[{"atUnixMs":1700000000250,"policy":"login","client":"192.0.2.1","method":"POST","path":"/login","retryAfterSeconds":3600,"basis":"local","mode":"enforce","correlationId":""}]}"#
    ]];
    check("/api/v1/admin/denials?n=1", expected).await;
    let list = async |path| ask(admin_api(Readiness::Ready, &[]).await, Method::GET, path, "").await.2;
    assert_eq!(list("/api/v1/admin/denials").await, list("/api/v1/admin/denials?policy=login").await);
    check("/api/v1/admin/denials?policy=idle", expect![[r#"200 application/json {"denials":[]}"#]]).await;
    let (status, ..) =
        ask(admin_api(Readiness::Ready, &[]).await, Method::GET, "/api/v1/admin/denials?policy=nope", "")
            .await;
    assert_eq!(status, 404);
}

#[tokio::test]
async fn a_simulation_gets_the_policies_and_the_log_apart() {
    let simulate = async |query: &str, body: &'static str| {
        let request = http::Request::post(format!("/api/v1/admin/simulate?{query}"));
        let admin_api = admin_api(Readiness::Ready, &[]).await;
        let response = admin_api.oneshot(request.body(Body::from(body)).unwrap()).await.unwrap();
        let status = response.status().as_u16();
        let body = axum::body::to_bytes(response.into_body(), 100_000).await.unwrap();
        format!("{status} {}", String::from_utf8(body.into()).unwrap())
    };
    let ok = r#"200 {"report":{},"warnings":[]}"#;
    assert_eq!(simulate("policyBytes=2", "okGET / HTTP/1.1").await, ok);
    assert_eq!(simulate("policyBytes=0", "").await, ok);
    expect![[r#"422 {"status":422,"title":"Invalid policies","detail":"the policies are invalid: 1:1: bad; 1:2: worse","errors":["1:1: bad","1:2: worse"]}"#]]
        .assert_eq(&simulate("policyBytes=3", "badlog").await);
    expect![[r#"422 {"type":"about:blank","title":"Unprocessable Entity","status":422,"detail":"format not recognised"}"#]]
        .assert_eq(&simulate("policyBytes=3", "loglog").await);
    expect![[r#"400 {"type":"about:blank","title":"Bad Request","status":400,"detail":"policyBytes is 4, but the body has 3 bytes; send the whole policy file, then the log","parameter":"policyBytes"}"#]]
        .assert_eq(&simulate("policyBytes=4", "log").await);
    assert!(simulate("policyBytes=2", "\u{fc}").await.starts_with("200"));
    assert!(simulate("policyBytes=1", "\u{fc}").await.contains("policy file is not UTF-8; convert it"));
}

#[tokio::test]
async fn errors_are_problems() {
    check(
        "/nowhere",
        expect![[
            r#"404 application/problem+json {"type":"about:blank","title":"Not Found","status":404,"detail":"path /nowhere not found; use / (a page), /metrics, /health, /ready, /actuator/info or /api/v1/admin/top"}"#
        ]],
    )
    .await;
    check(
        "/api/v1/admin/top?n=0",
        expect![[
            r#"400 application/problem+json {"type":"about:blank","title":"Bad Request","status":400,"detail":"n is \"0\"; use a whole number from 1 to 1000","parameter":"n"}"#
        ]],
    )
    .await;
    for path in ["/metrics", "/health"] {
        let admin_api = admin_api(Readiness::Ready, &[]).await;
        let (status, kind, _) = ask(admin_api, Method::POST, path, "").await;
        assert_eq!((status, kind.as_str()), (405, "application/problem+json"));
    }
}

#[tokio::test]
async fn c8_metrics_have_the_required_names_and_labels() {
    let (_, _, page) =
        ask(admin_api(Readiness::Ready, &[]).await, Method::GET, "/actuator/prometheus", OPEN_METRICS).await;
    let shown = |line: &&str| {
        let series = line.contains("SLIDING_WINDOW\"") && line.contains("\"false\"");
        line.starts_with('#') || series || line.starts_with("ratewright")
    };
    expect![[r##"
        # HELP rate_limiter_requests Decisions of all entrypoints, under the algorithm of the deciding policy
        # TYPE rate_limiter_requests counter
        rate_limiter_requests_total{algorithm="SLIDING_WINDOW",allowed="false"} 1
        # HELP rate_limiter_check_seconds How long decisions took, from the query to the verdict
        # TYPE rate_limiter_check_seconds histogram
        # UNIT rate_limiter_check_seconds seconds
        rate_limiter_check_seconds_sum{algorithm="SLIDING_WINDOW",allowed="false"} 0.003
        rate_limiter_check_seconds_count{algorithm="SLIDING_WINDOW",allowed="false"} 1
        rate_limiter_check_seconds_bucket{le="0.00001",algorithm="SLIDING_WINDOW",allowed="false"} 0
        rate_limiter_check_seconds_bucket{le="0.000025",algorithm="SLIDING_WINDOW",allowed="false"} 0
        rate_limiter_check_seconds_bucket{le="0.00005",algorithm="SLIDING_WINDOW",allowed="false"} 0
        rate_limiter_check_seconds_bucket{le="0.0001",algorithm="SLIDING_WINDOW",allowed="false"} 0
        rate_limiter_check_seconds_bucket{le="0.00025",algorithm="SLIDING_WINDOW",allowed="false"} 0
        rate_limiter_check_seconds_bucket{le="0.0005",algorithm="SLIDING_WINDOW",allowed="false"} 0
        rate_limiter_check_seconds_bucket{le="0.001",algorithm="SLIDING_WINDOW",allowed="false"} 0
        rate_limiter_check_seconds_bucket{le="0.0025",algorithm="SLIDING_WINDOW",allowed="false"} 0
        rate_limiter_check_seconds_bucket{le="0.005",algorithm="SLIDING_WINDOW",allowed="false"} 1
        rate_limiter_check_seconds_bucket{le="0.01",algorithm="SLIDING_WINDOW",allowed="false"} 1
        rate_limiter_check_seconds_bucket{le="0.025",algorithm="SLIDING_WINDOW",allowed="false"} 1
        rate_limiter_check_seconds_bucket{le="0.05",algorithm="SLIDING_WINDOW",allowed="false"} 1
        rate_limiter_check_seconds_bucket{le="0.1",algorithm="SLIDING_WINDOW",allowed="false"} 1
        rate_limiter_check_seconds_bucket{le="0.25",algorithm="SLIDING_WINDOW",allowed="false"} 1
        rate_limiter_check_seconds_bucket{le="1.0",algorithm="SLIDING_WINDOW",allowed="false"} 1
        rate_limiter_check_seconds_bucket{le="+Inf",algorithm="SLIDING_WINDOW",allowed="false"} 1
        # HELP ratewright_decisions What each policy said of each query, by entrypoint
        # TYPE ratewright_decisions counter
        ratewright_decisions_total{policy="login",entrypoint="tower",verdict="allowed",basis="local",mode="enforce"} 1
        ratewright_decisions_total{policy="login",entrypoint="tower",verdict="denied",basis="local",mode="enforce"} 1
        # HELP ratewright_near_limit Allowed decisions after which a policy had less than 20 % of a limit left
        # TYPE ratewright_near_limit counter
        ratewright_near_limit_total{policy="login",entrypoint="tower"} 1
        # HELP ratewright_store_up Whether the shared store is in reach
        # TYPE ratewright_store_up gauge
        ratewright_store_up 1.0
        # HELP ratewright_standings Standings
        # TYPE ratewright_standings counter
        ratewright_standings_total{basis="local"} 2.0
        # HELP ratewright_store_call_seconds How long calls took
        # TYPE ratewright_store_call_seconds histogram
        # UNIT ratewright_store_call_seconds seconds
        ratewright_store_call_seconds_sum 0.003
        ratewright_store_call_seconds_count 1
        ratewright_store_call_seconds_bucket{le="0.00001"} 0
        ratewright_store_call_seconds_bucket{le="0.000025"} 0
        ratewright_store_call_seconds_bucket{le="0.00005"} 0
        ratewright_store_call_seconds_bucket{le="0.0001"} 0
        ratewright_store_call_seconds_bucket{le="0.00025"} 0
        ratewright_store_call_seconds_bucket{le="0.0005"} 0
        ratewright_store_call_seconds_bucket{le="0.001"} 0
        ratewright_store_call_seconds_bucket{le="0.0025"} 0
        ratewright_store_call_seconds_bucket{le="0.005"} 1
        ratewright_store_call_seconds_bucket{le="0.01"} 1
        ratewright_store_call_seconds_bucket{le="0.025"} 1
        ratewright_store_call_seconds_bucket{le="0.05"} 1
        ratewright_store_call_seconds_bucket{le="0.1"} 1
        ratewright_store_call_seconds_bucket{le="0.25"} 1
        ratewright_store_call_seconds_bucket{le="1.0"} 1
        ratewright_store_call_seconds_bucket{le="+Inf"} 1
        # EOF
    "##]]
    .assert_eq(&page.lines().filter(shown).map(|line| format!("{line}\n")).collect::<String>());
}

#[tokio::test]
async fn every_series_carries_the_configured_labels() {
    let labels = [("application", "shop \"eu\"")];
    let (_, _, page) = ask(admin_api(Readiness::Ready, &labels).await, Method::GET, "/metrics", "").await;
    let series: Vec<_> = page.lines().filter(|line| !line.starts_with('#')).collect();
    assert!(series.len() > 180, "{}", series.len());
    for line in series {
        assert!(line.contains(r#"{application="shop \"eu\""#), "{line}");
    }
}

#[tokio::test]
async fn no_client_is_in_a_label() {
    let (_, _, page) = ask(admin_api(Readiness::Ready, &[]).await, Method::GET, "/metrics", "").await;
    assert!(!page.contains("192.0.2.1") && !page.contains("/login"), "{page}");
}

#[tokio::test]
async fn the_content_type_is_one_that_the_scraper_accepts() {
    let kind =
        async |accept| ask(admin_api(Readiness::Ready, &[]).await, Method::GET, "/metrics", accept).await.1;
    assert_eq!(kind(OPEN_METRICS).await, "application/openmetrics-text; version=1.0.0; charset=utf-8");
    assert_eq!(kind("*/*").await, "text/plain; version=0.0.4; charset=utf-8");
}

#[tokio::test]
async fn in_the_older_format_counters_are_described_by_the_names_of_their_series() {
    let (_, _, page) =
        ask(admin_api(Readiness::Ready, &[]).await, Method::GET, "/metrics", "text/plain").await;
    let heads = page.lines().filter(|line| line.starts_with("# HELP") || line.starts_with("# TYPE"));
    expect![[r#"
        # HELP rate_limiter_requests_total Decisions of all entrypoints, under the algorithm of the deciding policy
        # TYPE rate_limiter_requests_total counter
        # HELP rate_limiter_check_seconds How long decisions took, from the query to the verdict
        # TYPE rate_limiter_check_seconds histogram
        # HELP ratewright_decisions_total What each policy said of each query, by entrypoint
        # TYPE ratewright_decisions_total counter
        # HELP ratewright_near_limit_total Allowed decisions after which a policy had less than 20 % of a limit left
        # TYPE ratewright_near_limit_total counter
        # HELP ratewright_store_up Whether the shared store is in reach
        # TYPE ratewright_store_up gauge
        # HELP ratewright_standings_total Standings
        # TYPE ratewright_standings_total counter
        # HELP ratewright_store_call_seconds How long calls took
        # TYPE ratewright_store_call_seconds histogram
    "#]]
    .assert_eq(&heads.map(|line| format!("{line}\n")).collect::<String>());
}
