//! A response body that holds a permit until it ends.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::permits::Permit;

pin_project! {
    /// A response body that holds a permit until it ends or is dropped.
    #[derive(Debug)]
    pub struct PermitBody<R> {
        #[pin]
        body: R,
        permit: Option<Permit>,
    }
}

impl<R> PermitBody<R> {
    pub(crate) fn new(body: R, permit: Option<Permit>) -> Self {
        Self { body, permit }
    }

    /// The inner body.
    pub fn get_ref(&self) -> &R {
        &self.body
    }
}

impl<R: From<String>> From<String> for PermitBody<R> {
    fn from(text: String) -> Self {
        Self { body: text.into(), permit: None }
    }
}

impl<R: Body> Body for PermitBody<R> {
    type Data = R::Data;
    type Error = R::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<R::Data>, R::Error>>> {
        let this = self.project();
        let frame = ready!(this.body.poll_frame(context));
        if !matches!(frame, Some(Ok(_))) {
            *this.permit = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
