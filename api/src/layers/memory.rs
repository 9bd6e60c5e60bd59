//! The memory of a request: charged before anything is done for it, until its response has been read. Its body is charged as
//! it arrives, and must arrive at a minimum rate.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use assay_core::{Code, Error, Result};
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::Extensions;
use http_body::{Body as _, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::app::App;
use crate::http::connections::account::Account;
use crate::http::error_response::Failure;
use crate::http::request_context::RequestContext;
use crate::http::response_markers::{NoRoom, SharedBody};
use crate::limits::Allowance;
use crate::limits::request_memory::{self, Held};

/// The charge for a request without its body: its headers and the state of its handler.
const REQUEST_BYTES: u64 = 24 * 1024;
/// The longest time in which nothing of a body arrives.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// The average rate at which a body must arrive, in bytes per second.
const RATE_MIN: u64 = 1024;
/// The time that a body may take before its rate is checked.
const RATE_GRACE: Duration = Duration::from_secs(5);

/// The layer. Until the caller is known, the client's address holds the memory.
pub async fn hold(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let Some(call) = request.extensions().get::<RequestContext>() else {
        return Failure::from(Error::internal("a request without an address")).into_response();
    };
    let held = match app
        .memory
        .reserve(&format!("address {}", call.address), REQUEST_BYTES)
        .await
    {
        Ok(held) => Arc::new(held),
        Err(error) => {
            let mut response = Failure::from(error).into_response();
            response.extensions_mut().insert(NoRoom);
            return response;
        }
    };
    // Charged first: requests that wait hold memory, too.
    if let Some(account) = request.extensions().get::<Arc<Account>>().cloned() {
        account.room().await;
    }
    let refusal = Refusal::default();
    let is_dialogue = is_dialogue(request.uri().path());
    request.extensions_mut().insert(Arc::clone(&held));
    let request = request.map(|body| {
        Body::new(Received::new(
            body,
            Arc::clone(&held),
            refusal.clone(),
            is_dialogue,
        ))
    });
    let mut response = next.run(request).await;
    // A handler sees no more than that the body broke off.
    if let Some(error) = refusal.take() {
        let allowance = response.extensions_mut().remove::<Allowance>();
        response = Failure::from(error).into_response();
        allowance.map(|allowance| response.extensions_mut().insert(allowance));
    }
    // The handler has dropped the request's body by now. A stream has no length: its connection holds at most 64 KiB and one message.
    let is_shared = response.extensions().get::<SharedBody>().is_some();
    let body = if is_shared {
        0
    } else {
        response.body().size_hint().exact().unwrap_or(0)
    };
    held.set(REQUEST_BYTES + body);
    response.extensions_mut().insert(held);
    response
}

/// The memory that a request holds.
pub fn held(extensions: &Extensions) -> Result<Held> {
    extensions
        .get::<Held>()
        .cloned()
        .ok_or_else(|| Error::internal("a request whose memory nobody holds"))
}

/// Whether this is a stream on which the client may be silent for a while.
fn is_dialogue(path: &str) -> bool {
    path.starts_with("/grpc.reflection.")
}

/// The error for which a request's body was not read on.
#[derive(Clone, Default)]
struct Refusal(Arc<Mutex<Option<Error>>>);

impl Refusal {
    fn set(&self, error: Error) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
    }

    fn take(&self) -> Option<Error> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A request's body. It is charged as it arrives, and ends with an error if it arrives too slowly or there is no room for it.
struct Received {
    body: Body,
    held: Held,
    refusal: Refusal,
    is_dialogue: bool,
    /// The number of bytes that have arrived, and the time that the server spent waiting for them.
    bytes: u64,
    waited: Duration,
    /// Since when the server waits for the next frame.
    waits_since: Option<Instant>,
    /// A frame that waits for room, and until when it may.
    arrived: Option<(Frame<Bytes>, Instant)>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Received {
    fn new(body: Body, held: Held, refusal: Refusal, is_dialogue: bool) -> Self {
        let waited = Duration::ZERO;
        Self {
            body,
            held,
            refusal,
            is_dialogue,
            bytes: 0,
            waited,
            waits_since: None,
            arrived: None,
            timer: None,
        }
    }

    /// When the next frame is too late.
    fn due(&self, waits_since: Instant) -> Instant {
        let silence = waits_since + SILENCE_MAX;
        if self.is_dialogue {
            return silence;
        }
        let allowed = RATE_GRACE + Duration::from_secs(self.bytes / RATE_MIN);
        silence.min(waits_since + allowed.saturating_sub(self.waited))
    }

    /// Returns `Ready` when this time has come.
    fn poll_until(&mut self, time: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(sleep_until(time)));
        timer.as_mut().reset(time);
        timer.as_mut().poll(cx)
    }

    fn refuse(&self, error: Error) -> Poll<Option<std::result::Result<Frame<Bytes>, axum::Error>>> {
        let told = axum::Error::new(error.message.to_string());
        self.refusal.set(error);
        Poll::Ready(Some(Err(told)))
    }
}

impl http_body::Body for Received {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        loop {
            if let Some((frame, until)) = this.arrived.take() {
                let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
                if this.held.try_grow(bytes) {
                    this.bytes += bytes;
                    return Poll::Ready(Some(Ok(frame)));
                }
                if Instant::now() >= until {
                    return this.refuse(request_memory::no_room());
                }
                this.arrived = Some((frame, until));
                ready!(this.poll_until(
                    (Instant::now() + request_memory::ACQUIRE_INTERVAL).min(until),
                    cx
                ));
                continue;
            }
            match Pin::new(&mut this.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    this.waited += this
                        .waits_since
                        .take()
                        .map_or(Duration::ZERO, |since| since.elapsed());
                    this.arrived = Some((frame, Instant::now() + request_memory::ACQUIRE_TIMEOUT));
                }
                Poll::Ready(ended) => return Poll::Ready(ended),
                Poll::Pending => {
                    let since = *this.waits_since.get_or_insert_with(Instant::now);
                    ready!(this.poll_until(this.due(since), cx));
                    let message = format!(
                        "The request body arrives too slowly: at least {RATE_MIN} bytes per second, and never nothing for {} s.",
                        SILENCE_MAX.as_secs()
                    );
                    return this.refuse(Error::new(Code::InvalidRequest, message));
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.arrived.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        // A frame that waits for room is not in the inner body any more.
        if self.arrived.is_some() {
            SizeHint::default()
        } else {
            self.body.size_hint()
        }
    }
}
