//! A request's memory: charged to the budget before the request is processed, until its
//! response has been read. The body is charged as it arrives, and must arrive at a minimum rate.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use assay_core::{Code, Error, Result};
use assay_proto::codec::{CHARGE_DECODED, ChargeDecoded};
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::Extensions;
use http_body::{Body as _, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};

use super::response_size;
use crate::app::App;
use crate::http::connections::activity::ConnectionActivity;
use crate::http::error_response::Failure;
use crate::http::request_context::RequestContext;
use crate::http::response_markers::{NoRoom, SharedBody};
use crate::limits::Allowance;
use crate::limits::request_memory::{self, SharedReservation};

/// Charge for a request without its body, in bytes: its headers and its handler's state.
const REQUEST_BYTES: u64 = 24 * 1024;
/// Longest time in which nothing from a body arrives.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Average rate at which a body must arrive, in bytes per second.
const RATE_MIN: u64 = 1024;
/// Time that a body may take before its rate is checked.
const RATE_GRACE: Duration = Duration::from_secs(5);

/// Charges a request's memory to the client's address, or returns 503. After authentication,
/// the charge moves to the organization.
pub async fn reserve(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let Some(context) = request.extensions().get::<RequestContext>() else {
        return Failure::from(Error::internal("a request has no context")).into_response();
    };
    let reservation = match app
        .limits
        .memory
        .reserve(&format!("address {}", context.address), REQUEST_BYTES)
        .await
    {
        Ok(reservation) => Arc::new(reservation),
        Err(error) => {
            let mut response = Failure::from(error).into_response();
            response.extensions_mut().insert(NoRoom);
            return response;
        }
    };
    // This wait comes after the charge, because waiting requests hold memory too.
    let activity = request.extensions().get::<Arc<ConnectionActivity>>();
    if let Some(activity) = activity.cloned() {
        activity.wait_until_read().await;
    }
    let refusal = Refusal::default();
    let may_be_silent = may_be_silent(request.uri().path());
    request.extensions_mut().insert(Arc::clone(&reservation));
    let request = request.map(|body| {
        Body::new(RequestBody::new(
            body,
            Arc::clone(&reservation),
            refusal.clone(),
            may_be_silent,
        ))
    });
    let charge_decoded: ChargeDecoded = {
        let reservation = Arc::clone(&reservation);
        Arc::new(move |bytes| reservation.try_grow(bytes))
    };
    let mut response = CHARGE_DECODED
        .scope(charge_decoded, next.run(request))
        .await;
    // The handler only sees that the body ended early, so the refusal replaces its response.
    if let Some(error) = refusal.take() {
        let allowance = response.extensions_mut().remove::<Allowance>();
        response = Failure::from(error).into_response();
        allowance.map(|allowance| response.extensions_mut().insert(allowance));
    }
    // The handler has dropped the request's body by now. A streamed response has no length, so it
    // keeps what was reserved for it.
    let is_shared = response.extensions().get::<SharedBody>().is_some();
    match response.body().size_hint().exact() {
        _ if is_shared => reservation.set_response(0),
        Some(bytes) => {
            reservation.check_response(bytes);
            reservation.set_response(bytes);
        }
        None => {}
    }
    reservation.set(REQUEST_BYTES);
    response.extensions_mut().insert(reservation);
    response
}

/// Charges a request's response by its route, and runs the request; or returns 503. Every route
/// passes here before its handler, and a response that is larger than its charge is reported.
pub async fn run_reserved(request: Request, next: Next) -> Response {
    let reserved = match reservation(request.extensions()) {
        Ok(reservation) => {
            let bytes = response_size::of(&request);
            reservation.reserve_response(bytes).await
        }
        Err(error) => Err(error),
    };
    match reserved {
        Ok(()) => next.run(request).await,
        Err(error) => Failure::from(error).into_response(),
    }
}

/// Returns a request's memory reservation.
pub fn reservation(extensions: &Extensions) -> Result<SharedReservation> {
    extensions
        .get::<SharedReservation>()
        .cloned()
        .ok_or_else(|| Error::internal("a request has no memory reservation"))
}

/// Returns `true` if this method's client may be silent between messages, so that no minimum
/// rate applies.
fn may_be_silent(path: &str) -> bool {
    path.starts_with("/grpc.reflection.")
}

/// The error for which a request's body was refused, if any. Clones share it.
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

/// A request's body. It is charged as it arrives, and ends with an error if it arrives too
/// slowly or finds no memory.
struct RequestBody {
    body: Body,
    reservation: SharedReservation,
    refusal: Refusal,
    may_be_silent: bool,
    /// Bytes that have arrived.
    bytes: u64,
    /// The time that the server has spent waiting for these bytes.
    waited: Duration,
    /// The time since which the server waits for the next frame.
    waiting_since: Option<Instant>,
    /// A frame that waits for memory, and when its wait ends.
    arrived: Option<(Frame<Bytes>, Instant)>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl RequestBody {
    fn new(
        body: Body,
        reservation: SharedReservation,
        refusal: Refusal,
        may_be_silent: bool,
    ) -> Self {
        Self {
            body,
            reservation,
            refusal,
            may_be_silent,
            bytes: 0,
            waited: Duration::ZERO,
            waiting_since: None,
            arrived: None,
            timer: None,
        }
    }

    /// Returns the time after which the next frame is too late.
    fn frame_deadline(&self, waiting_since: Instant) -> Instant {
        let silence = waiting_since + SILENCE_MAX;
        if self.may_be_silent {
            return silence;
        }
        let allowed = RATE_GRACE + Duration::from_secs(self.bytes / RATE_MIN);
        silence.min(waiting_since + allowed.saturating_sub(self.waited))
    }

    /// Returns `Ready` once `time` is reached.
    fn poll_until(&mut self, time: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(sleep_until(time)));
        timer.as_mut().reset(time);
        timer.as_mut().poll(cx)
    }

    fn refuse(&self, error: Error) -> Poll<Option<std::result::Result<Frame<Bytes>, axum::Error>>> {
        let body_error = axum::Error::new(error.message.to_string());
        self.refusal.set(error);
        Poll::Ready(Some(Err(body_error)))
    }
}

impl http_body::Body for RequestBody {
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
                if this.reservation.try_grow(bytes) {
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
                        .waiting_since
                        .take()
                        .map_or(Duration::ZERO, |since| since.elapsed());
                    this.arrived = Some((frame, Instant::now() + request_memory::ACQUIRE_TIMEOUT));
                }
                Poll::Ready(ended) => return Poll::Ready(ended),
                Poll::Pending => {
                    let since = *this.waiting_since.get_or_insert_with(Instant::now);
                    ready!(this.poll_until(this.frame_deadline(since), cx));
                    let message = format!(
                        "The request body arrives too slowly. Send at least {RATE_MIN} bytes per second, without a pause of {} s.",
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
        // A frame that waits for memory has left the inner body already.
        if self.arrived.is_some() {
            SizeHint::default()
        } else {
            self.body.size_hint()
        }
    }
}
