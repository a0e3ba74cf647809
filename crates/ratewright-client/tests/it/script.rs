//! A server that answers by a script, on tokio's stopped clock.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{HeaderMap, Method, Response, StatusCode};
use ratewright_client::call::{CallError, RequestInfo};
use ratewright_client::retry_decision::BodyKind;
use ratewright_client::{EventKind, Retry, RetryBuilder, RetrySummary};
use tokio::time::Instant;

/// What the server does with an attempt.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    Status(u16, Vec<(&'static str, String)>),
    Error(io::ErrorKind),
}

/// What came of a call.
#[derive(Debug)]
pub(crate) struct Done {
    /// When each attempt was sent, since the beginning, in milliseconds.
    pub(crate) sent_at: Vec<u128>,
    pub(crate) result: Result<(StatusCode, RetrySummary), CallError<io::Error>>,
}

pub(crate) fn status(status: u16) -> Reply {
    Reply::Status(status, Vec::new())
}

pub(crate) fn with(status: u16, headers: &[(&'static str, &str)]) -> Reply {
    Reply::Status(status, headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect())
}

pub(crate) fn respond(reply: &Reply) -> Result<Response<String>, io::Error> {
    match reply {
        Reply::Status(status, headers) => {
            let mut response = Response::new(String::new());
            *response.status_mut() = StatusCode::from_u16(*status).unwrap();
            for (name, value) in headers {
                response.headers_mut().append(*name, value.parse().unwrap());
            }
            Ok(response)
        }
        Reply::Error(kind) => Err((*kind).into()),
    }
}

pub(crate) fn get(uri: &str) -> RequestInfo {
    request(Method::GET, uri, BodyKind::None)
}

pub(crate) fn request(method: Method, uri: &str, body: BodyKind) -> RequestInfo {
    RequestInfo::new(&method, &uri.parse().unwrap(), &HeaderMap::new(), body)
}

/// Calls with retries of chance 0.5; the last reply of the script is repeated.
pub(crate) async fn play(retry: RetryBuilder, request: RequestInfo, replies: &[Reply]) -> Done {
    let retry = retry.random(|| 0.5).build();
    call(&retry, request, replies).await
}

pub(crate) async fn call(retry: &Retry, request: RequestInfo, replies: &[Reply]) -> Done {
    let start = Instant::now();
    let mut sent_at = Vec::new();
    let result = retry
        .send(request, |attempt| {
            sent_at.push(start.elapsed().as_millis());
            let index = (attempt as usize - 1).min(replies.len() - 1);
            std::future::ready(respond(&replies[index]))
        })
        .await;
    let result = result.map(|response| {
        let summary = *response.extensions().get::<RetrySummary>().unwrap();
        (response.status(), summary)
    });
    Done { sent_at, result }
}

/// The kinds of all events, in order.
pub(crate) fn recorded(builder: RetryBuilder) -> (RetryBuilder, Arc<Mutex<Vec<EventKind>>>) {
    let events = Arc::new(Mutex::new(Vec::new()));
    let to = events.clone();
    (builder.on_event(move |event| to.lock().unwrap().push(event.kind)), events)
}

/// Lets every task run that can, without moving the clock.
pub(crate) async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

pub(crate) fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
