//! Responses, as far as a call looks at them.

use bytes::Buf;
use http::{HeaderMap, Response, StatusCode};
use http_body::Body;
use http_body_util::BodyExt;

/// The most that is read of a response that nobody wants, in bytes.
pub(crate) const DRAIN_MAX: usize = 64 * 1024;

/// A response of any HTTP library. `http::Response` and `reqwest::Response` implement it.
pub trait ResponseHead {
    /// Its status.
    fn status(&self) -> StatusCode;
    /// Its headers.
    fn headers(&self) -> &HeaderMap;
    /// Where [`RetrySummary`](crate::RetrySummary) is left for the caller.
    fn extensions_mut(&mut self) -> &mut http::Extensions;
    /// Reads what is left of a small body, so that the connection can be used again.
    fn drain(self) -> impl Future<Output = ()> + Send;
}

impl<B: Body + Send> ResponseHead for Response<B>
where
    B::Data: Send,
{
    fn status(&self) -> StatusCode {
        Response::status(self)
    }

    fn headers(&self) -> &HeaderMap {
        Response::headers(self)
    }

    fn extensions_mut(&mut self) -> &mut http::Extensions {
        Response::extensions_mut(self)
    }

    async fn drain(self) {
        let mut body = std::pin::pin!(self.into_body());
        let mut read = 0;
        while let Some(Ok(frame)) = body.as_mut().frame().await {
            read += frame.data_ref().map_or(0, Buf::remaining);
            if read > DRAIN_MAX {
                return;
            }
        }
    }
}
