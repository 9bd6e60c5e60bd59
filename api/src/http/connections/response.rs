//! Response bodies in small chunks. hyper holds few chunks at once, so the chunk count that it has
//! requested shows how much the client has read.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use axum::body::{Body, Bytes};
use http_body::{Body as _, Frame, SizeHint};
use hyper::rt::Executor;
use tokio::time::{Instant, sleep};
use tokio_util::task::TaskTracker;

use super::activity::{ConnectionActivity, OpenRequest};
use super::timeouts::READ_TIMEOUT;
use crate::limits::request_memory::{Budget, SharedReservation};

/// Interval at which a stream is checked for [`READ_TIMEOUT`].
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Chunk size in bytes, an HTTP/2 frame's. A client must read one within
/// [`READ_TIMEOUT`].
const CHUNK_SIZE: usize = 16 * 1024;
/// One response's bytes that hyper may hold before the client reads on.
const UNSENT_MAX: u64 = 64 * 1024;

/// Charge for an HTTP/2 stream in bytes, whatever its request is: its task and hyper's state,
/// measured by a heap profile.
const STREAM_BYTES: u64 = 10 * 1024;

tokio::task_local! {
    /// The HTTP/2 stream's progress that the present task serves.
    static STREAM: Arc<StreamProgress>;
    /// Set while a stream for which there is no memory runs, so that its service refuses it.
    static REFUSED: ();
}

/// Returns `true` if the present stream is refused.
pub(super) fn is_refused() -> bool {
    REFUSED.try_with(|()| ()).is_ok()
}

/// Runs an HTTP/2 connection's streams, each charged to the connection's peer. Drops a stream
/// whose response is not read, which resets it.
#[derive(Clone)]
pub(super) struct StreamExecutor {
    pub(super) memory: Budget,
    pub(super) holder: Arc<str>,
    pub(super) activity: Arc<ConnectionActivity>,
    pub(super) tasks: TaskTracker,
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for StreamExecutor {
    fn execute(&self, stream: F) {
        let Some(reservation) = self.memory.try_reserve(&self.holder, STREAM_BYTES) else {
            self.activity.pause();
            // The service refuses it in one poll, without a task: a hundred thousand tasks would
            // take a gibibyte.
            let mut stream = std::pin::pin!(stream);
            let refused = REFUSED.sync_scope((), || {
                stream
                    .as_mut()
                    .poll(&mut Context::from_waker(Waker::noop()))
            });
            if refused.is_pending() {
                tracing::warn!("stream without memory not refused, cancelled");
            }
            return;
        };
        let progress = Arc::new(StreamProgress::new());
        self.tasks.spawn(async move {
            let _reservation = reservation;
            tokio::select! {
                () = STREAM.scope(Arc::clone(&progress), stream) => {}
                () = progress.stalled() => tracing::debug!("response not read, stream reset"),
            }
        });
    }
}

/// A response's progress: the bytes that hyper holds, and when they last changed.
pub(super) struct StreamProgress {
    started_at: Instant,
    unsent: AtomicU64,
    /// The time at which bytes were last sent, or at which the first unsent bytes came, in
    /// milliseconds since the start.
    last_change: AtomicU64,
    /// The body that waits until bytes are sent.
    waiting: Mutex<Option<Waker>>,
}

impl StreamProgress {
    fn new() -> Self {
        Self {
            started_at: Instant::now(),
            unsent: AtomicU64::new(0),
            last_change: AtomicU64::new(0),
            waiting: Mutex::default(),
        }
    }

    /// Returns the present HTTP/2 stream's progress, or a new one for HTTP/1.
    pub(super) fn current() -> Arc<Self> {
        STREAM
            .try_with(Arc::clone)
            .unwrap_or_else(|_| Arc::new(Self::new()))
    }

    fn record_change(&self) {
        self.last_change.store(
            u64::try_from(self.started_at.elapsed().as_millis()).unwrap_or(u64::MAX),
            Ordering::Relaxed,
        );
    }

    /// Waits until the client has read nothing for [`READ_TIMEOUT`].
    async fn stalled(&self) {
        loop {
            sleep(CHECK_INTERVAL).await;
            let last_change =
                self.started_at + Duration::from_millis(self.last_change.load(Ordering::Relaxed));
            if self.unsent.load(Ordering::Relaxed) > 0 && last_change.elapsed() >= READ_TIMEOUT {
                return;
            }
        }
    }

    /// Returns `Ready` when hyper holds less than `max` bytes.
    fn poll_below(&self, max: u64, cx: &Context<'_>) -> Poll<()> {
        if self.unsent.load(Ordering::Acquire) < max {
            return Poll::Ready(());
        }
        *self.waiting.lock().unwrap_or_else(PoisonError::into_inner) = Some(cx.waker().clone());
        // The bytes may have been sent before the waker was set.
        if self.unsent.load(Ordering::Acquire) < max {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

/// A chunk that hyper drops once it is written to the socket.
struct Chunk {
    data: Bytes,
    progress: Arc<StreamProgress>,
    unread: Arc<UnreadResponse>,
}

impl AsRef<[u8]> for Chunk {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        self.progress.record_change();
        self.progress
            .unsent
            .fetch_sub(self.data.len() as u64, Ordering::Release);
        self.unread.activity.record_sent(self.data.len());
        if let Some(waker) = self
            .progress
            .waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
        {
            waker.wake();
        }
    }
}

/// A response's memory, held until the response is dropped and its last chunk is sent.
struct UnreadResponse {
    activity: Arc<ConnectionActivity>,
    bytes: u64,
    /// `None` for a response that the router did not process.
    memory: Option<SharedReservation>,
}

impl Drop for UnreadResponse {
    fn drop(&mut self) {
        self.activity.remove_unread(self.bytes);
    }
}

/// A response's body, split into chunks.
///
/// It returns its next chunk only while hyper holds fewer than its [`UNSENT_MAX`] bytes.
pub(super) struct ResponseBody {
    body: Body,
    progress: Arc<StreamProgress>,
    unread: Arc<UnreadResponse>,
    /// Keeps the request open until its response is dropped.
    _open: OpenRequest,
    /// The remaining frame that is larger than a chunk.
    rest: Bytes,
    /// The trailers, the body's end or error. It is returned after the last chunk is sent,
    /// because a stream that has ended cannot be reset.
    last: Option<Option<Result<Frame<Bytes>, axum::Error>>>,
    has_sent: bool,
    /// `true` if all responses share the body, so that this one is not charged for it.
    is_shared: bool,
}

impl ResponseBody {
    pub(super) fn new(
        body: Body,
        progress: Arc<StreamProgress>,
        open: OpenRequest,
        memory: Option<SharedReservation>,
        is_shared: bool,
    ) -> Self {
        let activity = Arc::clone(&open.activity);
        let bytes = body.size_hint().exact().unwrap_or(0);
        activity.add_unread(bytes);
        let unread = Arc::new(UnreadResponse {
            activity,
            bytes,
            memory,
        });
        Self {
            body,
            progress,
            unread,
            _open: open,
            rest: Bytes::new(),
            last: None,
            has_sent: false,
            is_shared,
        }
    }

    /// Hands the present frame's next chunk to hyper.
    fn next_chunk(&mut self) -> Bytes {
        let data = self.rest.split_to(self.rest.len().min(CHUNK_SIZE));
        let bytes = data.len();
        self.has_sent = true;
        if self
            .progress
            .unsent
            .fetch_add(bytes as u64, Ordering::Relaxed)
            == 0
        {
            self.progress.record_change();
        }
        self.unread.activity.record_queued(bytes);
        Bytes::from_owner(Chunk {
            data,
            progress: Arc::clone(&self.progress),
            unread: Arc::clone(&self.unread),
        })
    }
}

impl http_body::Body for ResponseBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        if this.last.is_none() {
            if this.progress.poll_below(UNSENT_MAX, cx).is_pending() {
                return Poll::Pending;
            }
            if this.rest.is_empty() {
                match Pin::new(&mut this.body).poll_frame(cx) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                        Ok(data) => {
                            if let (false, Some(memory)) = (this.is_shared, &this.unread.memory) {
                                memory.check_response(data.len() as u64);
                            }
                            this.rest = data;
                        }
                        Err(trailers) => this.last = Some(Some(Ok(trailers))),
                    },
                    Poll::Ready(ended) => this.last = Some(ended),
                }
            }
            if this.last.is_none() {
                return Poll::Ready(Some(Ok(Frame::data(this.next_chunk()))));
            }
        }
        if this.progress.poll_below(1, cx).is_pending() {
            return Poll::Pending;
        }
        Poll::Ready(this.last.replace(None).flatten())
    }

    fn is_end_stream(&self) -> bool {
        !self.has_sent && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.has_sent {
            SizeHint::default()
        } else {
            self.body.size_hint()
        }
    }
}
