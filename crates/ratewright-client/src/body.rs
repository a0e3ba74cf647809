//! Bodies that can be sent again.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::{fmt, mem};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};

/// Makes a request's body, for each attempt anew. Put it into a request's extensions.
///
/// ```
/// use ratewright_client::call::BodyFactory;
/// # let file = bytes::Bytes::from_static(b"a large file");
/// let body = BodyFactory::new(move || http_body_util::Full::new(file.clone()));
/// ```
pub struct BodyFactory<B>(Arc<dyn Fn() -> B + Send + Sync>);

/// A request's body on its way: kept to be sent again, or the caller's own, which is sent once.
#[derive(Debug)]
pub enum ReplayBody<B> {
    /// What is still to be sent of a kept body.
    Kept {
        /// Its data.
        data: Bytes,
        /// Its trailers.
        trailers: Option<HeaderMap>,
    },
    /// The caller's own.
    Own(B),
}

impl<B> BodyFactory<B> {
    /// From a function.
    pub fn new(make: impl Fn() -> B + Send + Sync + 'static) -> Self {
        Self(Arc::new(make))
    }

    /// A body.
    pub fn make(&self) -> B {
        (self.0)()
    }
}

impl<B> Clone for BodyFactory<B> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<B> fmt::Debug for BodyFactory<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BodyFactory")
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for ReplayBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.get_mut() {
            Self::Kept { data, .. } if !data.is_empty() => {
                Poll::Ready(Some(Ok(Frame::data(mem::take(data)))))
            }
            Self::Kept { trailers, .. } => {
                Poll::Ready(trailers.take().map(|trailers| Ok(Frame::trailers(trailers))))
            }
            Self::Own(body) => Pin::new(body).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Kept { data, trailers } => data.is_empty() && trailers.is_none(),
            Self::Own(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Kept { data, .. } => SizeHint::with_exact(data.len() as u64),
            Self::Own(body) => body.size_hint(),
        }
    }
}
