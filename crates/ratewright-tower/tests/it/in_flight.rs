//! Limits on requests in flight.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use ratewright_core::policy::{Condition, Mode};
use ratewright_core::query::AttributeName;
use ratewright_core::quota::{Algorithm, WindowStart};
use ratewright_core::{Policies, Policy};
use ratewright_lab::within;
use ratewright_tower::{InFlightLayer, Peer, PermitBody, PermitLimiter, Permits, RateLimitLayer};
use tokio::sync::mpsc;
use tower::{Layer, ServiceBuilder, ServiceExt};

use crate::world::{Body, bucket, header_text, limiter, quota, reader, request, text};

/// At most `n` at once from each address.
fn in_flight_max(n: u32) -> Policy {
    let quota = quota(Algorithm::FixedWindow(WindowStart::default()), &format!("{n}/s"));
    Policy::new("at-once", quota).unwrap().by(&[AttributeName::Ip])
}

fn permits(policies: Vec<Policy>) -> (InFlightLayer, Arc<Permits>) {
    let limiter = PermitLimiter::new(Policies::new(policies).unwrap());
    (InFlightLayer::new(&limiter, reader()), limiter.permits().clone())
}

async fn ask(layer: &InFlightLayer, client: u8) -> Response<PermitBody<Body>> {
    let hello = tower::service_fn(|_: Request<Body>| async {
        Ok::<_, Infallible>(Response::new(Body::from("hello")))
    });
    layer.layer(hello).oneshot(request(client, "/")).await.unwrap()
}

#[tokio::test]
async fn a_permit_is_held_until_the_body_ends() {
    let (layer, permits) = permits(vec![in_flight_max(2)]);
    let (first, second) = (ask(&layer, 1).await, ask(&layer, 1).await);
    let third = ask(&layer, 1).await;
    assert_eq!(
        (third.status(), header_text(third.headers(), "retry-after")),
        (StatusCode::TOO_MANY_REQUESTS, "1")
    );
    assert_eq!(header_text(third.headers(), "ratelimit"), "-");
    assert!(text(third).await.contains(r#""limitType":"at-once""#));
    assert_eq!(ask(&layer, 2).await.status(), 200, "another client has its own");
    assert_eq!(text(first).await, "hello");
    assert_eq!(ask(&layer, 1).await.status(), 200, "one is done, and this one is dropped unread");
    drop(second);
    assert_eq!(permits.n_keys(), 0);
}

/// An override only changes the maximum.
#[tokio::test]
async fn an_override_shares_the_count_of_its_policy() {
    let six = vec!["192.0.2.6/32".parse().unwrap()];
    let other = in_flight_max(3).limits()[0].quota().clone();
    let policy = in_flight_max(1).by(&[]).with_override(
        None,
        Condition::default().and_within(six),
        vec![(None, other)],
        None,
    );
    let (layer, _) = permits(vec![policy]);
    let mut held = Vec::new();
    for (client, status) in [(6, 200), (5, 429), (6, 200), (6, 200), (6, 429)] {
        let response = ask(&layer, client).await;
        assert_eq!(response.status(), status);
        held.push(response);
    }
}

/// A request with two sessions holds one permit of each.
#[tokio::test]
async fn a_repeated_cookie_holds_a_permit_for_each_value() {
    let (layer, permits) = permits(vec![in_flight_max(1).by(&[AttributeName::Cookie("sid")])]);
    let send = async |cookie: &'static str| {
        let mut request = request(1, "/");
        request.headers_mut().insert("cookie", cookie.parse().unwrap());
        let hello = tower::service_fn(|_: Request<Body>| async {
            Ok::<_, Infallible>(Response::new(Body::from("hello")))
        });
        layer.layer(hello).oneshot(request).await.unwrap()
    };
    let both = send("sid=a; sid=b; sid=a").await;
    assert_eq!((both.status(), permits.n_keys()), (StatusCode::OK, 2));
    for cookie in ["sid=a", "sid=b", "sid=b; sid=c"] {
        assert_eq!(send(cookie).await.status(), StatusCode::TOO_MANY_REQUESTS, "{cookie}");
    }
    assert_eq!(permits.n_keys(), 2, "a denied request holds nothing");
    drop(both);
    assert_eq!(permits.n_keys(), 0);
}

#[tokio::test]
async fn the_end_of_a_body_releases_its_permit_before_the_drop() {
    let (layer, permits) = permits(vec![in_flight_max(1)]);
    let mut body = ask(&layer, 1).await.into_body();
    within("the body ends", async { while body.frame().await.is_some() {} }).await;
    assert_eq!(permits.n_keys(), 0);
}

#[tokio::test]
async fn a_stream_holds_its_permit_until_its_last_frame() {
    let (layer, permits) = permits(vec![in_flight_max(1)]);
    let (sender, receiver) = mpsc::channel::<Result<http_body::Frame<bytes::Bytes>, Infallible>>(1);
    let stream = std::sync::Mutex::new(Some(receiver));
    let service = tower::service_fn(move |_: Request<Body>| {
        let receiver = stream.lock().unwrap().take().unwrap();
        async move { Ok::<_, Infallible>(Response::new(Stream::from(receiver))) }
    });
    let response = layer.layer(service).oneshot(request(1, "/")).await.unwrap();
    assert_eq!(ask(&layer, 1).await.status(), StatusCode::TOO_MANY_REQUESTS);
    sender.send(Ok(http_body::Frame::data(bytes::Bytes::from_static(b"tick")))).await.unwrap();
    drop(sender);
    assert_eq!(text(response).await, "tick");
    assert_eq!((permits.n_keys(), ask(&layer, 1).await.status()), (0, StatusCode::OK));
}

#[tokio::test]
async fn a_request_dropped_before_its_response_releases_its_permit() {
    let (layer, permits) = permits(vec![in_flight_max(1)]);
    let never =
        tower::service_fn(|_: Request<Body>| std::future::pending::<Result<Response<Body>, Infallible>>());
    let mut waiting = Box::pin(layer.layer(never).oneshot(request(1, "/")));
    assert!(poll_once(&mut waiting).await.is_none());
    assert_eq!(permits.n_keys(), 1);
    drop(waiting);
    assert_eq!(permits.n_keys(), 0);
}

#[tokio::test]
async fn all_policies_grant_a_permit_or_none_and_shadow_never_denies() {
    let all = Policy::new("all", quota(Algorithm::FixedWindow(WindowStart::default()), "1/s")).unwrap();
    let (layer, permits) = permits(vec![in_flight_max(5), all]);
    let held = ask(&layer, 1).await;
    assert_eq!(ask(&layer, 2).await.status(), StatusCode::TOO_MANY_REQUESTS);
    drop(held);
    assert_eq!(permits.n_keys(), 0, "the second client has no request in flight");
    let (layer, _) = self::permits(vec![in_flight_max(1).with_mode(Mode::Shadow)]);
    let responses = [ask(&layer, 1).await, ask(&layer, 1).await];
    assert!(responses.iter().all(|response| response.status() == 200));
}

#[tokio::test]
async fn a_denial_by_a_rate_limit_releases_the_permit() {
    let (layer, permits) = permits(vec![in_flight_max(10)]);
    let (rates, _) = limiter([bucket("api", "1/h")]);
    let hello = tower::service_fn(|_: Request<Body>| async {
        Ok::<_, Infallible>(Response::new(Body::from("hello")))
    });
    let service =
        ServiceBuilder::new().layer(layer).layer(RateLimitLayer::new(rates, reader())).service(hello);
    for status in [200, 429] {
        let response = service.clone().oneshot(request(1, "/")).await.unwrap();
        assert_eq!(response.status(), status);
        text(response).await;
        assert_eq!(permits.n_keys(), 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_requests_in_flight_never_exceed_the_permits() {
    use std::sync::atomic::{AtomicI32, Ordering};
    let (layer, permits) = permits(vec![in_flight_max(3)]);
    let (now, most) = (Arc::new(AtomicI32::new(0)), Arc::new(AtomicI32::new(0)));
    let tasks: Vec<_> = (0..16)
        .map(|_| {
            let (layer, now, most) = (layer.clone(), now.clone(), most.clone());
            tokio::spawn(async move {
                let mut n_served = 0;
                while n_served < 50 {
                    let response = ask(&layer, 1).await;
                    if response.status() == 200 {
                        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        tokio::task::yield_now().await;
                        now.fetch_sub(1, Ordering::SeqCst);
                        n_served += 1;
                    }
                    drop(response);
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    for task in tasks {
        within("each request gets a permit", task).await.unwrap();
    }
    assert_eq!((permits.n_keys(), most.load(Ordering::SeqCst) <= 3), (0, true));
}

/// Polls once.
async fn poll_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    std::future::poll_fn(|context| {
        let polled = std::pin::Pin::new(&mut *future).poll(context);
        std::task::Poll::Ready(match polled {
            std::task::Poll::Ready(value) => Some(value),
            std::task::Poll::Pending => None,
        })
    })
    .await
}

/// A body that arrives frame by frame.
struct Stream(mpsc::Receiver<Result<http_body::Frame<bytes::Bytes>, Infallible>>);

impl From<mpsc::Receiver<Result<http_body::Frame<bytes::Bytes>, Infallible>>> for Stream {
    fn from(receiver: mpsc::Receiver<Result<http_body::Frame<bytes::Bytes>, Infallible>>) -> Self {
        Self(receiver)
    }
}

impl From<String> for Stream {
    fn from(text: String) -> Self {
        let (sender, receiver) = mpsc::channel(1);
        sender.try_send(Ok(http_body::Frame::data(text.into()))).unwrap();
        Self(receiver)
    }
}

impl http_body::Body for Stream {
    type Data = bytes::Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<bytes::Bytes>, Infallible>>> {
        self.0.poll_recv(context)
    }
}

/// The first layer derives the client's address; the second neither asks for the peer nor reads the headers, which have
/// changed by then.
#[tokio::test]
async fn an_address_is_derived_once_for_all_layers() {
    use ratewright_http::address::Proxies;
    use ratewright_http::{HttpSettings, IdentityRules};
    let proxies = Proxies::default().trusted(vec!["192.0.2.0/24".parse().unwrap()]);
    let http_settings = HttpSettings::default().rules(IdentityRules::default().proxies(proxies)).shared();
    let n_asked = Arc::new(AtomicUsize::new(0));
    let reader = || {
        let n_asked = Arc::clone(&n_asked);
        reader().http_settings(Arc::clone(&http_settings)).peer(move |request| {
            n_asked.fetch_add(1, Ordering::SeqCst);
            request.extensions.get::<Peer>().map(|Peer(address)| *address)
        })
    };
    let permitting = PermitLimiter::new(Policies::new(vec![in_flight_max(9)]).unwrap());
    let (rating, _) = limiter([bucket("rate", "1/h")]);
    let forwarded = |mut request: Request<Body>, client: String| {
        request.headers_mut().insert("x-forwarded-for", client.parse().unwrap());
        request
    };
    for (n, client, status) in [(1, 7, 200), (2, 7, 429), (3, 8, 200), (4, 8, 429)] {
        let hello = ServiceBuilder::new()
            .layer(InFlightLayer::new(&permitting, reader()))
            .map_request(|request| forwarded(request, format!("203.0.113.{n}")))
            .layer(RateLimitLayer::new(Arc::clone(&rating), reader()))
            .service(tower::service_fn(|_: Request<Body>| async {
                Ok::<_, Infallible>(Response::new(Body::from("hello")))
            }));
        let request = forwarded(request(1, "/"), format!("198.51.100.{client}"));
        assert_eq!(hello.oneshot(request).await.unwrap().status(), status, "request {n}");
        assert_eq!(n_asked.load(Ordering::SeqCst), n, "request {n}");
    }
}

/// Both layers count by user: the first verifies the token for both, unless they have different rules.
#[tokio::test]
async fn a_token_is_verified_once_for_all_layers() {
    use ratewright_http::identify::TokenUser;
    use ratewright_http::jwt::{KeySet, TokenRules, Verifier};
    use ratewright_http::{HttpSettings, IdentityRules};
    let by_user = |policy: Policy| policy.by(&[AttributeName::User]);
    let verifier = || {
        let keys = KeySet::secret(b"a secret of at least thirty-two bytes").unwrap();
        Arc::new(Verifier::new(keys, TokenRules::default()))
    };
    let http_settings_of = |verifier: &Arc<Verifier>| {
        let token = Some(TokenUser { verifier: Arc::clone(verifier), claim: "sub".to_owned() });
        HttpSettings::default().rules(IdentityRules::default().token(token)).shared()
    };
    for (same, expected) in [(true, [1, 0]), (false, [1, 1])] {
        let verifiers = [verifier(), verifier()];
        let http_settings = http_settings_of(&verifiers[0]);
        let other = if same { Arc::clone(&http_settings) } else { http_settings_of(&verifiers[1]) };
        let permitting = PermitLimiter::new(Policies::new(vec![by_user(in_flight_max(9))]).unwrap());
        let (rating, _) = limiter([by_user(bucket("rate", "9/s"))]);
        let hello = ServiceBuilder::new()
            .layer(InFlightLayer::new(&permitting, reader().http_settings(http_settings)))
            .layer(RateLimitLayer::new(rating, reader().http_settings(other)))
            .service(tower::service_fn(|_: Request<Body>| async {
                Ok::<_, Infallible>(Response::new(Body::from("hello")))
            }));
        let mut request = request(1, "/");
        request.headers_mut().insert("authorization", "Bearer a.b.c".parse().unwrap());
        assert_eq!(hello.oneshot(request).await.unwrap().status(), 200);
        assert_eq!(verifiers.map(|verifier| verifier.n_verified()), expected);
    }
}
