//! A request by HTTP/2: a stream of a connection that many share.

use http::header::HOST;
use http::request::Parts;
use http::uri::{Authority, Scheme};
use http::{Request, Response, Uri, Version};
use tokio::time::{Instant, timeout_at};

use super::{Sending, Way};
use crate::body::{Source, Upload};
use crate::dial::{DialError, dial_http2};
use crate::h2::{Found, NewStream};
use crate::quiet::Quiet;
use crate::trouble::{Trouble, is_ended};
use crate::upstream::Lease;

impl Way {
    /// The same by HTTP/2, on a connection that is shared.
    pub(super) async fn attempt_stream(
        &self,
        lease: &Lease,
        slot: usize,
        sending: &mut Sending,
        failed_at: Option<Instant>,
    ) -> Result<(Response<()>, Source), Trouble> {
        let (shared, timeouts) = (self.shared.pool.shared(slot), &self.route.timeouts);
        let wait_until = Instant::now() + timeouts.connect;
        let stream = loop {
            match shared.find(failed_at) {
                Found::Place(stream) => break stream,
                Found::Nowhere(dialling) => {
                    break dialling.share(dial_http2(lease.server(), self.tls(), timeouts).await?);
                }
                Found::Soon(soon) => {
                    let in_time = timeout_at(wait_until, soon).await;
                    in_time.map_err(|_| DialError::TimedOut(timeouts.connect))?;
                }
            }
        };
        let place = stream.place.clone();
        let sent = self.exchange_stream(stream, lease, sending).await;
        if let Err(Trouble::NoAnswer(_)) = sent {
            shared.doubt(&place);
        }
        sent
    }

    async fn exchange_stream(
        &self,
        stream: NewStream,
        lease: &Lease,
        sending: &mut Sending,
    ) -> Result<(Response<()>, Source), Trouble> {
        let NewStream { mut sender, place, is_old, was_idle } = stream;
        let head = of_stream(sending, lease)?;
        let is_repeatable = sending.is_repeatable();
        let mut upload = sending.body.take().unwrap_or_else(Upload::nothing);
        let (is_empty, progress) = (upload.is_nothing(), upload.begin(&place));
        let header = self.route.timeouts.header;
        let answered = tokio::select! {
            biased;
            answered = sender.try_send_request(Request::from_parts(head, upload)) => Some(answered),
            () = progress.until_late(header) => None,
        };
        if is_empty {
            sending.body = Some(Upload::nothing());
        }
        match answered {
            None => Err(Trouble::NoAnswer(header)),
            Some(Ok(answer)) => {
                place.answered();
                progress.answered();
                let (head, incoming) = answer.into_parts();
                Ok((Response::from_parts(head, ()), Source::Http2(incoming, Quiet::default(), Some(place))))
            }
            Some(Err(mut error)) => match error.take_message() {
                Some(request) => {
                    sending.body = Some(request.into_body());
                    Err(if is_old { Trouble::Stale } else { Trouble::Unsent(error.into_error().into()) })
                }
                None => Err(match (progress.stopped(), error.into_error()) {
                    (Some(stopped), _) => Trouble::of_body(&stopped, self.route.body_max),
                    // Closed for having been idle, just as we sent: that says nothing of the server.
                    (None, error) if is_old && was_idle && is_ended(&error) => {
                        if is_repeatable {
                            Trouble::Stale
                        } else {
                            Trouble::Closed(error.into())
                        }
                    }
                    (None, error) => Trouble::of_sent_stream(error),
                }),
            },
        }
    }
}

/// A head as HTTP/2 has it: whom it is for stands in its target.
fn of_stream(sending: &Sending, lease: &Lease) -> Result<Parts, Trouble> {
    let (mut head, server) = (sending.head.clone(), lease.server());
    sending.told.add_to(&mut head.headers);
    head.version = Version::HTTP_2;
    let host = head.headers.remove(HOST);
    let named = host.as_ref().and_then(|host| host.to_str().ok()?.parse().ok());
    let scheme = if server.is_tls() { Scheme::HTTPS } else { Scheme::HTTP };
    head.uri = for_whom(head.uri, scheme, named.unwrap_or_else(|| server.authority().clone()))?;
    Ok(head)
}

/// A target with whom it is for. One that has no path is not given another.
fn for_whom(target: Uri, scheme: Scheme, authority: Authority) -> Result<Uri, Trouble> {
    let mut parts = target.into_parts();
    (parts.scheme, parts.authority) = (Some(scheme), Some(authority));
    Uri::from_parts(parts).map_err(|_| Trouble::Garbled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_keeps_its_path_or_is_none() {
        let check = |target: &'static str| {
            let told = for_whom(Uri::from_static(target), Scheme::HTTP, Authority::from_static("b:1"));
            told.map(|uri| uri.to_string()).ok()
        };
        assert_eq!(check("/a/c?d=/e").as_deref(), Some("http://b:1/a/c?d=/e"));
        assert_eq!(check("http://a/c").as_deref(), Some("http://b:1/c"));
        assert_eq!(check("a:1"), None);
    }
}
