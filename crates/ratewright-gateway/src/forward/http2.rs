//! Forwarding over HTTP/2: each request is a stream of a shared connection.

use http::header::HOST;
use http::request::Parts;
use http::uri::{Authority, Scheme};
use http::{Request, Response, Uri, Version};
use tokio::time::{Instant, timeout_at};

use super::{OutboundRequest, RouteForwarder};
use crate::body::{DownloadSource, Upload};
use crate::dial::{DialError, dial_http2};
use crate::forward_error::{ForwardError, is_connection_end};
use crate::h2::{Acquisition, NewStream};
use crate::idle_timer::IdleTimer;
use crate::upstream::Lease;

impl RouteForwarder {
    /// Sends a request to one server over HTTP/2.
    pub(super) async fn attempt_stream(
        &self,
        lease: &Lease,
        slot: usize,
        outbound: &mut OutboundRequest,
        failed_at: Option<Instant>,
    ) -> Result<(Response<()>, DownloadSource), ForwardError> {
        let (shared, timeouts) = (self.shared.pool.shared(slot), &self.route.timeouts);
        let wait_until = Instant::now() + timeouts.connect;
        let stream = loop {
            match shared.acquire(failed_at) {
                Acquisition::Stream(stream) => break stream,
                Acquisition::Dial(dialling) => {
                    break dialling.share(dial_http2(lease.server(), self.tls(), timeouts).await?);
                }
                Acquisition::Wait(soon) => {
                    let in_time = timeout_at(wait_until, soon).await;
                    in_time.map_err(|_| DialError::TimedOut(timeouts.connect))?;
                }
            }
        };
        let stream_slot = stream.slot.clone();
        let sent = self.exchange_stream(stream, lease, outbound).await;
        if let Err(ForwardError::HeaderTimeout(_)) = sent {
            shared.retire_if_silent(&stream_slot);
        }
        sent
    }

    async fn exchange_stream(
        &self,
        stream: NewStream,
        lease: &Lease,
        outbound: &mut OutboundRequest,
    ) -> Result<(Response<()>, DownloadSource), ForwardError> {
        let NewStream { mut sender, slot: stream_slot, is_old, was_idle } = stream;
        let head = stream_head(outbound, lease)?;
        let is_repeatable = outbound.is_repeatable();
        let mut upload = outbound.body.take().unwrap_or_else(Upload::empty);
        outbound.begin(&upload)?;
        let (is_empty, progress) = (upload.is_empty(), upload.begin(&stream_slot));
        let header = self.route.timeouts.header;
        let responded = tokio::select! {
            biased;
            responded = sender.try_send_request(Request::from_parts(head, upload)) => Some(responded),
            () = progress.upstream_timeout(header) => None,
        };
        if is_empty {
            outbound.body = Some(Upload::empty());
        }
        match responded {
            None => Err(ForwardError::HeaderTimeout(header)),
            Some(Ok(response)) => {
                stream_slot.responded();
                progress.responded();
                let (head, incoming) = response.into_parts();
                Ok((
                    Response::from_parts(head, ()),
                    DownloadSource::Http2(incoming, IdleTimer::default(), Some(stream_slot)),
                ))
            }
            Some(Err(mut error)) => match error.take_message() {
                Some(request) => {
                    outbound.body = Some(request.into_body());
                    Err(if is_old {
                        ForwardError::StaleConnection
                    } else {
                        ForwardError::NotSent(error.into_error().into())
                    })
                }
                None => Err(match (progress.stopped(), error.into_error()) {
                    (Some(stopped), _) => ForwardError::from_body_error(&stopped, self.route.body_max),
                    // The upstream closed an idle connection while we sent: not a failure of the upstream.
                    (None, error) if is_old && was_idle && is_connection_end(&error) => {
                        if is_repeatable {
                            ForwardError::StaleConnection
                        } else {
                            ForwardError::ClosedBeforeResponse(error.into())
                        }
                    }
                    (None, error) => ForwardError::from_stream_error(error),
                }),
            },
        }
    }
}

/// The head of an HTTP/2 request: the host becomes the authority of the target.
fn stream_head(outbound: &OutboundRequest, lease: &Lease) -> Result<Parts, ForwardError> {
    let (mut head, server) = (outbound.head.clone(), lease.server());
    outbound.forwarding.add_to(&mut head.headers);
    head.version = Version::HTTP_2;
    let host = head.headers.remove(HOST);
    let named = host.as_ref().and_then(|host| host.to_str().ok()?.parse().ok());
    let scheme = if server.is_tls() { Scheme::HTTPS } else { Scheme::HTTP };
    head.uri = with_authority(head.uri, scheme, named.unwrap_or_else(|| server.authority().clone()))?;
    Ok(head)
}

/// Adds scheme and authority to a target. A target without a path is invalid.
fn with_authority(target: Uri, scheme: Scheme, authority: Authority) -> Result<Uri, ForwardError> {
    let mut parts = target.into_parts();
    (parts.scheme, parts.authority) = (Some(scheme), Some(authority));
    Uri::from_parts(parts).map_err(|_| ForwardError::InvalidResponse)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_keeps_its_path_or_is_rejected() {
        let check = |target: &'static str| {
            let uri = with_authority(Uri::from_static(target), Scheme::HTTP, Authority::from_static("b:1"));
            uri.map(|uri| uri.to_string()).ok()
        };
        assert_eq!(check("/a/c?d=/e").as_deref(), Some("http://b:1/a/c?d=/e"));
        assert_eq!(check("http://a/c").as_deref(), Some("http://b:1/c"));
        assert_eq!(check("a:1"), None);
    }
}
