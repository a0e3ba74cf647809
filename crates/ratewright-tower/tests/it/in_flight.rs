//! Limits on requests under way.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use ratewright_core::{Algorithm, AttributeName, Condition, Limiter, Mode, Policies, Policy, WindowStart};
use ratewright_tower::{Held, InFlightLayer, Peer, Permits, RateLimitLayer};
use tokio::sync::mpsc;
use tower::{Layer, ServiceBuilder, ServiceExt};

use crate::world::{Body, bucket, door, field, limiter, quota, request, text};

/// At most so many at once from each address.
fn at_once(n: u32) -> Policy {
    let quota = quota(Algorithm::FixedWindow(WindowStart::default()), &format!("{n}/s"));
    Policy::new("at-once", quota).unwrap().by(&[AttributeName::Ip])
}

fn permits(policies: Vec<Policy>) -> (InFlightLayer, Arc<Permits>) {
    let permits = Arc::new(Permits::default());
    let limiter = Limiter::new(Policies::new(policies).unwrap(), permits.clone());
    (InFlightLayer::new(Arc::new(limiter), door()), permits)
}

async fn ask(layer: &InFlightLayer, client: u8) -> Response<Held<Body>> {
    let hello = tower::service_fn(|_: Request<Body>| async {
        Ok::<_, Infallible>(Response::new(Body::from("hello")))
    });
    layer.layer(hello).oneshot(request(client, "/")).await.unwrap()
}

#[tokio::test]
async fn a_permit_is_held_until_the_body_ends() {
    let (layer, permits) = permits(vec![at_once(2)]);
    let (first, second) = (ask(&layer, 1).await, ask(&layer, 1).await);
    let third = ask(&layer, 1).await;
    assert_eq!((third.status(), field(third.headers(), "retry-after")), (StatusCode::TOO_MANY_REQUESTS, "1"));
    assert_eq!(field(third.headers(), "ratelimit"), "-");
    assert!(text(third).await.contains(r#""limitType":"at-once""#));
    assert_eq!(ask(&layer, 2).await.status(), 200, "another client has its own");
    assert_eq!(text(first).await, "hello");
    assert_eq!(ask(&layer, 1).await.status(), 200, "one is done, and this one is dropped unread");
    drop(second);
    assert_eq!(permits.n_keys(), 0);
}

/// An override allows another number of the same requests.
#[tokio::test]
async fn an_override_counts_what_its_policy_has_under_way() {
    let six = vec!["192.0.2.6/32".parse().unwrap()];
    let other = at_once(3).limits()[0].quota().clone();
    let policy =
        at_once(1).by(&[]).overridden(None, Condition::default().and_within(six), vec![(None, other)], None);
    let (layer, _) = permits(vec![policy]);
    let mut held = Vec::new();
    for (client, status) in [(6, 200), (5, 429), (6, 200), (6, 200), (6, 429)] {
        let response = ask(&layer, client).await;
        assert_eq!(response.status(), status);
        held.push(response);
    }
}

/// Two sessions in one request are both busy, and neither is held twice.
#[tokio::test]
async fn a_cookie_that_comes_twice_holds_a_permit_for_each_value() {
    let (layer, permits) = permits(vec![at_once(1).by(&[AttributeName::Cookie("sid")])]);
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
async fn the_end_of_a_body_gives_back_before_the_body_is_dropped() {
    let (layer, permits) = permits(vec![at_once(1)]);
    let mut body = ask(&layer, 1).await.into_body();
    while body.frame().await.is_some() {}
    assert_eq!(permits.n_keys(), 0);
}

#[tokio::test]
async fn a_stream_holds_its_permit_until_its_last_frame() {
    let (layer, permits) = permits(vec![at_once(1)]);
    let (sender, receiver) = mpsc::channel::<Result<http_body::Frame<bytes::Bytes>, Infallible>>(1);
    let stream = std::sync::Mutex::new(Some(receiver));
    let service = tower::service_fn(move |_: Request<Body>| {
        let receiver = stream.lock().unwrap().take().unwrap();
        async move { Ok::<_, Infallible>(Response::new(Stream::from(receiver))) }
    });
    let answer = layer.layer(service).oneshot(request(1, "/")).await.unwrap();
    assert_eq!(ask(&layer, 1).await.status(), StatusCode::TOO_MANY_REQUESTS);
    sender.send(Ok(http_body::Frame::data(bytes::Bytes::from_static(b"tick")))).await.unwrap();
    drop(sender);
    assert_eq!(text(answer).await, "tick");
    assert_eq!((permits.n_keys(), ask(&layer, 1).await.status()), (0, StatusCode::OK));
}

#[tokio::test]
async fn who_goes_away_before_the_answer_gives_its_permit_back() {
    let (layer, permits) = permits(vec![at_once(1)]);
    let never =
        tower::service_fn(|_: Request<Body>| std::future::pending::<Result<Response<Body>, Infallible>>());
    let mut waiting = Box::pin(layer.layer(never).oneshot(request(1, "/")));
    assert!(futures_poll(&mut waiting).await.is_none());
    assert_eq!(permits.n_keys(), 1);
    drop(waiting);
    assert_eq!(permits.n_keys(), 0);
}

#[tokio::test]
async fn all_policies_give_a_permit_or_none_does_and_shadow_never_denies() {
    let all = Policy::new("all", quota(Algorithm::FixedWindow(WindowStart::default()), "1/s")).unwrap();
    let (layer, permits) = permits(vec![at_once(5), all]);
    let held = ask(&layer, 1).await;
    assert_eq!(ask(&layer, 2).await.status(), StatusCode::TOO_MANY_REQUESTS);
    drop(held);
    assert_eq!(permits.n_keys(), 0, "the second client has nothing under way");
    let (layer, _) = self::permits(vec![at_once(1).in_mode(Mode::Shadow)]);
    let answers = [ask(&layer, 1).await, ask(&layer, 1).await];
    assert!(answers.iter().all(|answer| answer.status() == 200));
}

#[tokio::test]
async fn a_rate_that_denies_gives_the_permit_back() {
    let (layer, permits) = permits(vec![at_once(10)]);
    let (rates, _) = limiter([bucket("api", "1/h")]);
    let hello = tower::service_fn(|_: Request<Body>| async {
        Ok::<_, Infallible>(Response::new(Body::from("hello")))
    });
    let service = ServiceBuilder::new().layer(layer).layer(RateLimitLayer::new(rates, door())).service(hello);
    for status in [200, 429] {
        let answer = service.clone().oneshot(request(1, "/")).await.unwrap();
        assert_eq!(answer.status(), status);
        text(answer).await;
        assert_eq!(permits.n_keys(), 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn under_real_concurrency_no_more_are_under_way_than_permitted() {
    use std::sync::atomic::{AtomicI32, Ordering};
    let (layer, permits) = permits(vec![at_once(3)]);
    let (now, most) = (Arc::new(AtomicI32::new(0)), Arc::new(AtomicI32::new(0)));
    let tasks: Vec<_> = (0..16)
        .map(|_| {
            let (layer, now, most) = (layer.clone(), now.clone(), most.clone());
            tokio::spawn(async move {
                let mut n_served = 0;
                while n_served < 50 {
                    let answer = ask(&layer, 1).await;
                    if answer.status() == 200 {
                        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        tokio::task::yield_now().await;
                        now.fetch_sub(1, Ordering::SeqCst);
                        n_served += 1;
                    }
                    drop(answer);
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!((permits.n_keys(), most.load(Ordering::SeqCst) <= 3), (0, true));
}

/// Polls once.
async fn futures_poll<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    std::future::poll_fn(|context| {
        let polled = std::pin::Pin::new(&mut *future).poll(context);
        std::task::Poll::Ready(match polled {
            std::task::Poll::Ready(value) => Some(value),
            std::task::Poll::Pending => None,
        })
    })
    .await
}

/// A body that comes frame by frame.
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

/// The client's address is found out once, by the first layer: the second neither asks for the peer nor reads the headers again,
/// though by then they say something else.
#[tokio::test]
async fn an_address_is_derived_once_for_all_layers() {
    use ratewright_http::address::Proxies;
    use ratewright_http::{Dialect, IdentityRules};
    let proxies = Proxies { trusted: vec!["192.0.2.0/24".parse().unwrap()], ..Proxies::default() };
    let dialect =
        Dialect { rules: IdentityRules { proxies, ..IdentityRules::default() }, ..Dialect::default() }
            .shared();
    let n_asked = Arc::new(AtomicUsize::new(0));
    let door = || {
        let n_asked = Arc::clone(&n_asked);
        door().speaking(Arc::clone(&dialect)).peer(move |request| {
            n_asked.fetch_add(1, Ordering::SeqCst);
            request.extensions.get::<Peer>().map(|Peer(address)| *address)
        })
    };
    let permitting = Limiter::new(Policies::new(vec![at_once(9)]).unwrap(), Arc::new(Permits::default()));
    let (permitting, (rating, _)) = (Arc::new(permitting), limiter([bucket("rate", "1/h")]));
    let forwarded = |mut request: Request<Body>, client: String| {
        request.headers_mut().insert("x-forwarded-for", client.parse().unwrap());
        request
    };
    for (n, client, status) in [(1, 7, 200), (2, 7, 429), (3, 8, 200), (4, 8, 429)] {
        let hello = ServiceBuilder::new()
            .layer(InFlightLayer::new(Arc::clone(&permitting), door()))
            .map_request(|request| forwarded(request, format!("203.0.113.{n}")))
            .layer(RateLimitLayer::new(Arc::clone(&rating), door()))
            .service(tower::service_fn(|_: Request<Body>| async {
                Ok::<_, Infallible>(Response::new(Body::from("hello")))
            }));
        let request = forwarded(request(1, "/"), format!("198.51.100.{client}"));
        assert_eq!(hello.oneshot(request).await.unwrap().status(), status, "request {n}");
        assert_eq!(n_asked.load(Ordering::SeqCst), n, "request {n}");
    }
}

/// Both layers count by user: the token is verified once, by whichever comes first, and another program's rules do not count.
#[tokio::test]
async fn a_token_is_verified_once_for_all_layers() {
    use ratewright_http::jwt::{KeySet, TokenRules, Verifier};
    use ratewright_http::{Dialect, IdentityRules, TokenUser};
    let by_user = |policy: Policy| policy.by(&[AttributeName::User]);
    let verifier = || {
        let keys = KeySet::secret(b"a secret of at least thirty-two bytes").unwrap();
        Arc::new(Verifier::new(keys, TokenRules::default()))
    };
    let speaking = |verifier: &Arc<Verifier>| {
        let token = Some(TokenUser { verifier: Arc::clone(verifier), claim: "sub".to_owned() });
        Dialect { rules: IdentityRules { token, ..IdentityRules::default() }, ..Dialect::default() }.shared()
    };
    for (same, expected) in [(true, [1, 0]), (false, [1, 1])] {
        let verifiers = [verifier(), verifier()];
        let dialect = speaking(&verifiers[0]);
        let other = if same { Arc::clone(&dialect) } else { speaking(&verifiers[1]) };
        let permits = Arc::new(Permits::default());
        let permitting = Limiter::new(Policies::new(vec![by_user(at_once(9))]).unwrap(), permits);
        let (rating, _) = limiter([by_user(bucket("rate", "9/s"))]);
        let hello = ServiceBuilder::new()
            .layer(InFlightLayer::new(Arc::new(permitting), door().speaking(dialect)))
            .layer(RateLimitLayer::new(rating, door().speaking(other)))
            .service(tower::service_fn(|_: Request<Body>| async {
                Ok::<_, Infallible>(Response::new(Body::from("hello")))
            }));
        let mut request = request(1, "/");
        request.headers_mut().insert("authorization", "Bearer a.b.c".parse().unwrap());
        assert_eq!(hello.oneshot(request).await.unwrap().status(), 200);
        assert_eq!(verifiers.map(|verifier| verifier.n_verified()), expected);
    }
}
