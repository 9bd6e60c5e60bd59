//! Connections: taken, watched, and ended. A client that is slow, or silent, or does not read its answers, is cut off; one
//! that only waits for the next thing to ask may do so for longer than a load balancer keeps a connection.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use assay_core::{CanFail as _, Error, Result, process};
use axum::Router;
use axum::body::{Body, Bytes};
use http::Request;
use http_body::{Frame, SizeHint};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, sleep, timeout};
use tower::ServiceExt as _;

use crate::layers::Peer;

/// How long a request's head may take to arrive once it has begun.
const HEAD_PATIENCE: Duration = Duration::from_secs(10);
/// How long a connection may be open without a request: longer than the minute for which load balancers keep one, so that
/// it is they who close.
const IDLE_PATIENCE: Duration = Duration::from_secs(75);
/// How long a client may leave an answer unread.
const READ_PATIENCE: Duration = Duration::from_secs(30);
/// How long a connection that was told to end may take for it.
const PARTING: Duration = Duration::from_secs(5);
/// How often an idle HTTP/2 connection is asked whether it is still there, and how long it may take to say so.
const PING: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(10));
/// How many requests one HTTP/2 connection may have open.
const STREAMS: u32 = 250;
/// How many headers a request may have, and how long they may be together.
const HEADERS: (usize, usize) = (100, 16 * 1024);
/// How many connections there may be at once.
const CONNECTIONS: u64 = 10_000;
/// Files that are not connections of callers: of the database, of Redis, parts of uploads.
const FILES: u64 = 256;

/// All connections of a process.
pub struct Connections {
    room: Arc<Semaphore>,
    all: u32,
    builder: auto::Builder<TokioExecutor>,
    stop: watch::Sender<bool>,
}

impl Connections {
    /// None yet. There may be so many as there can be files.
    pub fn new() -> Result<Self> {
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).map_err(Error::internal)?;
        let files = hard.min(CONNECTIONS + FILES);
        setrlimit(Resource::RLIMIT_NOFILE, files, hard).can_fail("asking for more open files");
        let (soft, _) = getrlimit(Resource::RLIMIT_NOFILE).map_err(Error::internal)?;
        let all = u32::try_from(soft.saturating_sub(FILES).clamp(16, CONNECTIONS)).map_err(Error::internal)?;
        let mut builder = auto::Builder::new(TokioExecutor::new());
        let (headers, bytes) = HEADERS;
        // An idle connection counts as one whose head is being waited for; how long a head takes is watched here.
        builder.http1().timer(TokioTimer::new()).header_read_timeout(IDLE_PATIENCE).max_headers(headers).keep_alive(true);
        builder.http2().timer(TokioTimer::new()).keep_alive_interval(PING.0).keep_alive_timeout(PING.1);
        builder.http2().max_concurrent_streams(STREAMS).max_header_list_size(bytes as u32);
        Ok(Self { room: Arc::new(Semaphore::new(all as usize)), all, builder, stop: watch::Sender::new(false) })
    }

    /// Takes connections until the process is told to end.
    pub async fn accept(&self, listener: TcpListener, router: Router) -> Result<()> {
        let mut end = std::pin::pin!(process::told_to_end());
        loop {
            let next = async {
                // Where there is no room, callers wait before the door.
                let room = Arc::clone(&self.room).acquire_owned().await.map_err(io::Error::other)?;
                listener.accept().await.map(|(stream, peer)| (room, stream, peer))
            };
            tokio::select! {
                accepted = next => match accepted {
                    Ok((room, stream, peer)) => self.serve(room, stream, peer, router.clone()),
                    Err(error) => {
                        // Too many open files, most likely: what is open must first end.
                        tracing::warn!(%error, "cannot accept a connection");
                        sleep(Duration::from_millis(100)).await;
                    }
                },
                ended = &mut end => return ended,
            }
        }
    }

    /// Tells all connections to end after what they have begun, and returns when they have.
    pub async fn end(&self) {
        self.stop.send_replace(true);
        self.room.acquire_many(self.all).await.map(drop).can_fail("waiting for connections to end");
    }

    fn serve(&self, room: OwnedSemaphorePermit, stream: TcpStream, peer: SocketAddr, router: Router) {
        stream.set_nodelay(true).can_fail("sending small answers at once");
        let (builder, stopped) = (self.builder.clone(), self.stop.subscribe());
        tokio::spawn(async move {
            serve(&builder, stream, peer, router, stopped).await;
            drop(room);
        });
    }
}

async fn serve(
    builder: &auto::Builder<TokioExecutor>,
    stream: TcpStream,
    peer: SocketAddr,
    router: Router,
    mut stopped: watch::Receiver<bool>,
) {
    let spoken = tokio::select! {
        spoken = speaks(&stream) => spoken,
        _ = stopped.wait_for(|stopped| *stopped) => None,
    };
    let Some(http) = spoken else { return };
    let account = Arc::new(Account::new(http));
    let stream = Heard { stream, account: Arc::clone(&account) };
    let service = hyper::service::service_fn({
        let account = Arc::clone(&account);
        move |request: Request<hyper::body::Incoming>| {
            let open = Open::new(&account);
            let account = Arc::clone(&account);
            let look = move |step: &Step<hyper::Error>| {
                if step.is_ready() {
                    account.moved();
                }
            };
            let mut request = request.map(|body| Body::new(Watched { body, look }));
            request.extensions_mut().insert(Peer(peer.ip()));
            let answered = router.clone().oneshot(request);
            // An answer is asked for its next piece when there is room for it: one that has given a piece and is not asked again
            // waits for the client, one that was asked and has nothing yet waits for us.
            let look = move |step: &Step<axum::Error>| open.unread(matches!(step, Poll::Ready(Some(Ok(_)))));
            async move { answered.await.map(|response| response.map(|body| Watched { body, look })) }
        }
    });
    let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
    let parting = tokio::select! {
        ended = &mut connection => return noted(ended),
        // How long it may take then is for the one to say who told the process to end.
        _ = stopped.wait_for(|stopped| *stopped) => Duration::MAX,
        overdue = account.overdue() => {
            tracing::debug!(?overdue, "a connection is closed");
            match overdue {
                Overdue::Question => PARTING,
                // Nothing is owed to such a client.
                Overdue::Head | Overdue::Reading => return,
            }
        }
    };
    connection.as_mut().graceful_shutdown();
    timeout(parting, connection).await.map(noted).unwrap_or_default();
}

fn noted(ended: std::result::Result<(), Box<dyn std::error::Error + Send + Sync>>) {
    if let Err(error) = ended {
        tracing::debug!(error, "a connection ended");
    }
}

/// Which HTTP a connection speaks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Http {
    One,
    Two,
}

/// How HTTP/2 begins.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Waits until a connection has shown which HTTP it speaks. The server's own patience begins only after that.
async fn speaks(stream: &TcpStream) -> Option<Http> {
    let shown = async {
        let mut head = [0; PREFACE.len()];
        loop {
            match stream.peek(&mut head).await {
                Ok(0) | Err(_) => return None,
                Ok(n) if !PREFACE.starts_with(&head[..n]) => return Some(Http::One),
                Ok(n) if n == PREFACE.len() => return Some(Http::Two),
                Ok(_) => sleep(Duration::from_millis(20)).await,
            }
        }
    };
    timeout(HEAD_PATIENCE, shown).await.ok().flatten()
}

/// What a client has let a time pass for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Overdue {
    /// To ask for anything. It is told that the connection ends.
    Question,
    /// To send the head of a request that it had begun.
    Head,
    /// To read an answer.
    Reading,
}

/// What is under way on a connection, and since when nothing has moved. Moments are milliseconds since it began.
struct Account {
    http: Http,
    began: Instant,
    /// Requests that were begun and whose answers have not been taken whole.
    open: AtomicUsize,
    /// Answers of which a piece was given and not taken yet.
    unread: AtomicUsize,
    /// When the last of these changed.
    moved: AtomicU64,
    /// Since when something comes that is not a request yet; 0: nothing does. Of HTTP/1 only, where it must be a head.
    heard: AtomicU64,
}

impl Account {
    fn new(http: Http) -> Self {
        // Its first bytes are there.
        let heard = AtomicU64::new(u64::from(http == Http::One));
        Self { http, began: Instant::now(), open: AtomicUsize::new(0), unread: AtomicUsize::new(0), moved: AtomicU64::new(0), heard }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn moved(&self) {
        self.moved.store(self.now(), Ordering::Relaxed);
    }

    fn heard(&self) {
        if self.http == Http::One && self.open.load(Ordering::Relaxed) == 0 {
            // The first of them counts.
            let _ = self.heard.compare_exchange(0, self.now().max(1), Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// What the client must do next, and until when. Nothing: it waits for us, and a request's own time is the business of its
    /// deadline.
    fn due(&self) -> Option<(Instant, Overdue)> {
        let after = |moment: u64, patience: Duration| self.began + Duration::from_millis(moment) + patience;
        let (moved, heard) = (self.moved.load(Ordering::Relaxed), self.heard.load(Ordering::Relaxed));
        if self.open.load(Ordering::Relaxed) > 0 {
            let is_unread = self.unread.load(Ordering::Relaxed) > 0;
            return is_unread.then(|| (after(moved, READ_PATIENCE), Overdue::Reading));
        }
        let question = (after(moved, IDLE_PATIENCE), Overdue::Question);
        Some(if heard > 0 { question.min((after(heard, HEAD_PATIENCE), Overdue::Head)) } else { question })
    }

    /// Returns when the client has let a time pass.
    async fn overdue(&self) -> Overdue {
        loop {
            // What is due may come to be due earlier while this sleeps, as when a head begins: so not for long.
            let mut wake = Instant::now() + HEAD_PATIENCE / 2;
            if let Some((due, overdue)) = self.due() {
                if due <= Instant::now() {
                    return overdue;
                }
                wake = wake.min(due);
            }
            tokio::time::sleep_until(wake).await;
        }
    }
}

/// A request that is under way.
struct Open {
    account: Arc<Account>,
    is_unread: AtomicBool,
}

impl Open {
    fn new(account: &Arc<Account>) -> Self {
        account.open.fetch_add(1, Ordering::Relaxed);
        account.heard.store(0, Ordering::Relaxed);
        account.moved();
        Self { account: Arc::clone(account), is_unread: AtomicBool::new(false) }
    }

    /// Whether a piece of its answer waits to be taken.
    fn unread(&self, is_unread: bool) {
        match (self.is_unread.swap(is_unread, Ordering::Relaxed), is_unread) {
            (false, true) => drop(self.account.unread.fetch_add(1, Ordering::Relaxed)),
            (true, false) => drop(self.account.unread.fetch_sub(1, Ordering::Relaxed)),
            _ => {}
        }
        self.account.moved();
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.unread(false);
        self.account.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A body, and what looks at each step of it.
struct Watched<B, F> {
    body: B,
    look: F,
}

/// What a body says when it is asked for its next piece.
type Step<E> = Poll<Option<std::result::Result<Frame<Bytes>, E>>>;

impl<B, F> http_body::Body for Watched<B, F>
where
    B: http_body::Body<Data = Bytes> + Unpin,
    F: FnMut(&Step<B::Error>) + Unpin,
{
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Step<B::Error> {
        let step = Pin::new(&mut self.body).poll_frame(cx);
        (self.look)(&step);
        step
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A stream that notes when something comes.
struct Heard {
    stream: TcpStream,
    account: Arc<Account>,
}

impl AsyncRead for Heard {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.account.heard();
        }
        read
    }
}

impl AsyncWrite for Heard {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
