//! A body that holds a permit until it has been taken.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::permits::Permit;

pin_project! {
    /// A body that holds a permit until its end, or until it is dropped.
    #[derive(Debug)]
    pub struct Held<R> {
        #[pin]
        body: R,
        permit: Option<Permit>,
    }
}

impl<R> Held<R> {
    pub(crate) fn new(body: R, permit: Option<Permit>) -> Self {
        Self { body, permit }
    }

    /// The body itself.
    pub fn get_ref(&self) -> &R {
        &self.body
    }
}

impl<R: From<String>> From<String> for Held<R> {
    fn from(text: String) -> Self {
        Self { body: text.into(), permit: None }
    }
}

impl<R: Body> Body for Held<R> {
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
