//! The body of a response on its way to the client: in small chunks, of which few are with the connection at once, and with an
//! account of those that the client has not read.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use axum::body::{Body, Bytes};
use http_body::{Body as _, Frame, SizeHint};
use hyper::rt::Executor;
use tokio::time::{Instant, sleep};

use super::account::{Account, Open};
use crate::limits::request_memory::{Budget, Held};

/// The longest time in which a client reads nothing of a response.
pub(super) const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// The interval at which a stream is checked for it.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// The size of a chunk, that of an HTTP/2 frame. A client must read one in [`READ_TIMEOUT`].
const CHUNK: usize = 16 * 1024;
/// The bytes of one response that may be with the connection before the client reads on.
const UNSENT_MAX: u64 = 64 * 1024;

/// The charge for an HTTP/2 stream, whatever its request is: its task and what hyper keeps of it, by a heap profile.
const STREAM_BYTES: u64 = 10 * 1024;

tokio::task_local! {
    /// The stream on which a request came, of HTTP/2.
    static STREAM: Arc<Flow>;
    /// Set while a stream for which there is no memory runs, so that its service refuses it.
    static REFUSED: ();
}

/// Whether the present stream is refused.
pub(super) fn is_refused() -> bool {
    REFUSED.try_with(|()| ()).is_ok()
}

/// Runs the streams of an HTTP/2 connection, each charged to the connection's peer. One whose response is not read is dropped,
/// which resets it.
#[derive(Clone)]
pub(super) struct Streams {
    pub(super) memory: Budget,
    pub(super) holder: Arc<str>,
    pub(super) account: Arc<Account>,
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Streams {
    fn execute(&self, stream: F) {
        let Some(held) = self.memory.try_reserve(&self.holder, STREAM_BYTES) else {
            self.account.pause();
            // It ends at once, without a task of its own: a hundred thousand tasks would take a gibibyte.
            let mut stream = std::pin::pin!(stream);
            let refused = REFUSED.sync_scope((), || {
                stream
                    .as_mut()
                    .poll(&mut Context::from_waker(Waker::noop()))
            });
            if refused.is_pending() {
                tracing::warn!("a stream without memory was not refused: it is cancelled");
            }
            return;
        };
        let flow = Arc::new(Flow::new());
        tokio::spawn(async move {
            let _held = held;
            tokio::select! {
                () = STREAM.scope(Arc::clone(&flow), stream) => {}
                () = flow.stalled() => tracing::debug!("a response is not read: its stream is reset"),
            }
        });
    }
}

/// The bytes of a response that are with the connection, and when the last of them left or came.
pub(super) struct Flow {
    began: Instant,
    unsent: AtomicU64,
    /// In milliseconds since it began.
    moved: AtomicU64,
    /// The body that waits for them to leave.
    waiting: Mutex<Option<Waker>>,
}

impl Flow {
    fn new() -> Self {
        Self {
            began: Instant::now(),
            unsent: AtomicU64::new(0),
            moved: AtomicU64::new(0),
            waiting: Mutex::default(),
        }
    }

    /// That of the present stream; a new one for HTTP/1.
    pub(super) fn of_stream() -> Arc<Self> {
        STREAM
            .try_with(Arc::clone)
            .unwrap_or_else(|_| Arc::new(Self::new()))
    }

    fn moved(&self) {
        self.moved.store(
            u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX),
            Ordering::Relaxed,
        );
    }

    /// Returns when the client has read nothing for [`READ_TIMEOUT`].
    async fn stalled(&self) {
        loop {
            sleep(CHECK_INTERVAL).await;
            let read = self.began + Duration::from_millis(self.moved.load(Ordering::Relaxed));
            if self.unsent.load(Ordering::Relaxed) > 0 && read.elapsed() >= READ_TIMEOUT {
                return;
            }
        }
    }

    /// Returns `Ready` when less than `max` bytes are with the connection.
    fn poll_below(&self, max: u64, cx: &Context<'_>) -> Poll<()> {
        if self.unsent.load(Ordering::Acquire) < max {
            return Poll::Ready(());
        }
        *self.waiting.lock().unwrap_or_else(PoisonError::into_inner) = Some(cx.waker().clone());
        // They may have left before the waker was there.
        if self.unsent.load(Ordering::Acquire) < max {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

/// A chunk that is with the connection until hyper drops it, when it has been written to the socket.
struct Chunk {
    data: Bytes,
    flow: Arc<Flow>,
    unread: Arc<Unread>,
}

impl AsRef<[u8]> for Chunk {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        self.flow.moved();
        self.flow
            .unsent
            .fetch_sub(self.data.len() as u64, Ordering::Release);
        self.unread.account.sent(self.data.len());
        if let Some(waker) = self
            .flow
            .waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
        {
            waker.wake();
        }
    }
}

/// What a response holds until it is dropped and its last chunk has left.
struct Unread {
    account: Arc<Account>,
    bytes: u64,
    _held: Option<Held>,
}

impl Drop for Unread {
    fn drop(&mut self) {
        self.account.unread_less(self.bytes);
    }
}

/// See the module.
pub(super) struct Sent {
    body: Body,
    flow: Arc<Flow>,
    unread: Arc<Unread>,
    /// The request is under way until its response is dropped.
    _open: Open,
    /// What is left of a frame that is larger than a chunk.
    rest: Bytes,
    /// What comes after the last chunk, when that has left: the end of the stream must not get ahead of it, because a stream that
    /// has ended cannot be reset.
    last: Option<Option<Result<Frame<Bytes>, axum::Error>>>,
    has_sent: bool,
}

impl Sent {
    pub(super) fn new(body: Body, flow: Arc<Flow>, open: Open, held: Option<Held>) -> Self {
        let account = Arc::clone(&open.account);
        let bytes = body.size_hint().exact().unwrap_or(0);
        account.unread_more(bytes);
        let unread = Arc::new(Unread {
            account,
            bytes,
            _held: held,
        });
        Self {
            body,
            flow,
            unread,
            _open: open,
            rest: Bytes::new(),
            last: None,
            has_sent: false,
        }
    }

    fn chunk(&mut self) -> Bytes {
        let data = self.rest.split_to(self.rest.len().min(CHUNK));
        let bytes = data.len();
        self.has_sent = true;
        if self.flow.unsent.fetch_add(bytes as u64, Ordering::Relaxed) == 0 {
            self.flow.moved();
        }
        self.unread.account.handed(bytes);
        Bytes::from_owner(Chunk {
            data,
            flow: Arc::clone(&self.flow),
            unread: Arc::clone(&self.unread),
        })
    }
}

impl http_body::Body for Sent {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        if this.last.is_none() {
            if this.flow.poll_below(UNSENT_MAX, cx).is_pending() {
                return Poll::Pending;
            }
            if this.rest.is_empty() {
                match Pin::new(&mut this.body).poll_frame(cx) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                        Ok(data) => this.rest = data,
                        Err(trailers) => this.last = Some(Some(Ok(trailers))),
                    },
                    Poll::Ready(ended) => this.last = Some(ended),
                }
            }
            if this.last.is_none() {
                return Poll::Ready(Some(Ok(Frame::data(this.chunk()))));
            }
        }
        if this.flow.poll_below(1, cx).is_pending() {
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
