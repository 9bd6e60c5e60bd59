//! Accepts HTTP/1.1 and HTTP/2 connections on one port, and limits their number and their time.
//!
//! Closes a connection whose request headers are incomplete after 10 s, or that is idle for 75 s,
//! which is longer than load balancers keep an idle connection. If the client reads nothing from a
//! response for 30 s, closes the HTTP/1 connection or resets the HTTP/2 stream.
//!
//! Keeps HTTP/1 connections open for a shutdown's first 5 s. A request that a client sends
//! while the server closes its connection would fail. HTTP/2 has a message for this; HTTP/1 has the header `Connection: close` of a response.

pub mod activity;
mod addresses;
mod control_frames;
mod monitored_stream;
mod response;
mod timeouts;
mod version;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use assay_core::runtime::process;
use assay_core::{BestEffort as _, Error, Result};
use axum::Router;
use axum::body::Body;
use http::{HeaderValue, Request, header};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{sleep, timeout};
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

use self::activity::{ConnectionActivity, OpenRequest, Overdue};
use self::addresses::{AddressSlot, Addresses};
use self::monitored_stream::MonitoredStream;
use self::response::{ResponseBody, StreamExecutor, StreamProgress};
use self::timeouts::IDLE_TIMEOUT;
use self::version::HttpVersion;
use crate::http::header_limits::{MAX_HEADERS, MAX_HEADERS_BYTES};
use crate::http::request_context::Peer;
use crate::http::response_markers::{NoRoom, SharedBody};
use crate::limits::address::counting_address;
use crate::limits::request_memory::{Budget, SharedReservation};
use crate::settings::Settings;

/// Time that an idle connection has to close after a graceful shutdown was started.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time after a shutdown's start in which a client may send one more request on an HTTP/1
/// connection, or its first on one that is new. The response closes the connection.
const LAST_REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Silence after which an HTTP/2 connection is pinged.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// Longest time until the response to a ping.
const PING_TIMEOUT: Duration = Duration::from_secs(10);
/// The most open requests on one HTTP/2 connection.
const STREAMS_MAX: u32 = 100;
/// The most headers that hyper reads. It is more than a request may have, because hyper
/// refuses without an error body and a layer refuses with one.
const HEADERS_READ_MAX: usize = 2 * MAX_HEADERS;
/// Largest header size that hyper reads, in bytes, for the same reason.
const HEADERS_READ_BYTES_MAX: usize = 2 * MAX_HEADERS_BYTES;
/// Bytes that a client may send on one HTTP/2 stream before they are read.
const STREAM_WINDOW: u32 = 256 * 1024;
/// Bytes that a client may send on one HTTP/2 connection before they are read.
const CONNECTION_WINDOW: u32 = 512 * 1024;
/// An HTTP/1 connection's buffer size in bytes. A request's headers must fit in.
const BUFFER_MAX: usize = 64 * 1024;
/// A process's largest connection count.
const CONNECTIONS_MAX: u64 = 10_000;
/// Open files reserved for everything but client connections: PostgreSQL, Redis, upload parts.
const RESERVED_FILES: u64 = 256;

/// A process's connections.
pub struct Connections {
    permits: Arc<Semaphore>,
    addresses: Addresses,
    memory: Budget,
    /// The tasks for connections and HTTP/2 streams.
    tasks: TaskTracker,
    stop: watch::Sender<bool>,
}

impl Connections {
    /// Allows as many connections as the process may open files, at most [`CONNECTIONS_MAX`].
    pub fn new(settings: &Settings, memory: Budget) -> Result<Self> {
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).map_err(Error::internal)?;
        let files = hard.min(CONNECTIONS_MAX + RESERVED_FILES);
        setrlimit(Resource::RLIMIT_NOFILE, files, hard)
            .best_effort("raising the limit of open files");
        let (soft, _) = getrlimit(Resource::RLIMIT_NOFILE).map_err(Error::internal)?;
        let max = soft
            .saturating_sub(RESERVED_FILES)
            .clamp(16, CONNECTIONS_MAX);
        let addresses = Addresses::new(
            settings.connections_per_address,
            settings.trusted_proxies.clone(),
        );
        Ok(Self {
            permits: Arc::new(Semaphore::new(max as usize)),
            addresses,
            memory,
            tasks: TaskTracker::new(),
            stop: watch::Sender::new(false),
        })
    }

    /// Accepts connections until the shutdown signal.
    pub async fn accept(&self, listener: TcpListener, router: Router) -> Result<()> {
        let mut shutdown = std::pin::pin!(process::shutdown_signal());
        let result = loop {
            let next = async {
                // Without a permit, new connections wait in the socket's backlog.
                let permit = Arc::clone(&self.permits)
                    .acquire_owned()
                    .await
                    .map_err(io::Error::other)?;
                listener
                    .accept()
                    .await
                    .map(|(stream, peer)| (permit, stream, peer))
            };
            tokio::select! {
                accepted = next => match accepted {
                    Ok((permit, stream, peer)) => self.enter(permit, stream, peer, &router),
                    Err(error) => {
                        // The most likely cause is too many open files: other connections must
                        // close first.
                        tracing::warn!(%error, "connection not accepted");
                        sleep(Duration::from_millis(100)).await;
                    }
                },
                result = &mut shutdown => break result,
            }
        };
        self.accept_waiting(listener, &router)
            .best_effort("accepting the connections that waited");
        result
    }

    /// Accepts the connections that clients have opened before the listener closes: otherwise the
    /// operating system would reset them.
    fn accept_waiting(&self, listener: TcpListener, router: &Router) -> io::Result<()> {
        let listener = listener.into_std()?;
        while let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() {
            match listener.accept() {
                Ok((stream, peer)) => {
                    stream.set_nonblocking(true)?;
                    self.enter(permit, TcpStream::from_std(stream)?, peer, router);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Serves a connection, unless its address has too many.
    fn enter(
        &self,
        permit: OwnedSemaphorePermit,
        stream: TcpStream,
        peer: SocketAddr,
        router: &Router,
    ) {
        match self.addresses.enter(peer.ip()) {
            Some(slot) => self.spawn((permit, slot), stream, peer, router.clone()),
            None => {
                tracing::debug!(address = %peer.ip(), "too many connections from one address, connection closed");
            }
        }
    }

    /// Shuts all connections down gracefully, and waits until their open requests are finished.
    pub async fn drain(&self) {
        self.stop.send_replace(true);
        self.tasks.close();
        self.tasks.wait().await;
    }

    fn spawn(
        &self,
        permits: (OwnedSemaphorePermit, AddressSlot),
        stream: TcpStream,
        peer: SocketAddr,
        router: Router,
    ) {
        stream
            .set_nodelay(true)
            .best_effort("disabling the delay of small packets");
        let memory = self.memory.clone();
        let stopped = self.stop.subscribe();
        let tasks = self.tasks.clone();
        self.tasks.spawn(async move {
            serve(memory, stream, peer, &permits.1, router, tasks, stopped).await;
            drop(permits);
        });
    }
}

/// Returns hyper's configuration for both HTTP versions.
fn builder(executor: StreamExecutor) -> auto::Builder<StreamExecutor> {
    let mut builder = auto::Builder::new(executor);
    // hyper starts this timeout while the connection is idle, so it cannot be HEADERS_TIMEOUT,
    // which ConnectionActivity enforces.
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE_TIMEOUT)
        .max_headers(HEADERS_READ_MAX)
        .keep_alive(true);
    builder.http1().max_buf_size(BUFFER_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT);
    builder
        .http2()
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEADERS_READ_BYTES_MAX as u32);
    builder
        .http2()
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW);
    builder
}

/// Serves one connection until it closes, its client misses a deadline, or the process has drained
/// it.
async fn serve(
    memory: Budget,
    stream: TcpStream,
    peer: SocketAddr,
    slot: &AddressSlot,
    router: Router,
    tasks: TaskTracker,
    stopped: watch::Receiver<bool>,
) {
    let detected = tokio::select! {
        detected = HttpVersion::detect(&stream) => detected,
        () = stopped_for(LAST_REQUEST_TIMEOUT, stopped.clone()) => None,
    };
    let Some(version) = detected else { return };
    let activity = Arc::new(ConnectionActivity::new(version, slot.is_client()));
    let executor = StreamExecutor {
        memory,
        holder: format!("address {}", counting_address(peer.ip())).into(),
        activity: Arc::clone(&activity),
        tasks,
    };
    let builder = builder(executor);
    let stream = MonitoredStream::new(stream, Arc::clone(&activity));
    let service = hyper::service::service_fn({
        let activity = Arc::clone(&activity);
        let stopped = stopped.clone();
        move |request: Request<hyper::body::Incoming>| {
            let open = OpenRequest::new(&activity);
            let router = router.clone();
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(Peer(peer.ip()));
            request.extensions_mut().insert(Arc::clone(&activity));
            let stopped = stopped.clone();
            async move {
                if response::is_refused() {
                    return Err(h2::Error::from(h2::Reason::REFUSED_STREAM));
                }
                let Ok(mut response) = router.oneshot(request).await;
                if response.extensions().get::<NoRoom>().is_some() && open.activity.resets_refused()
                {
                    // The client may retry such a request: it was not processed.
                    open.activity.pause();
                    return Err(h2::Error::from(h2::Reason::REFUSED_STREAM));
                }
                if version == HttpVersion::Http1 && *stopped.borrow() {
                    let close = HeaderValue::from_static("close");
                    response.headers_mut().insert(header::CONNECTION, close);
                }
                let memory = response.extensions_mut().remove::<SharedReservation>();
                let is_shared = response.extensions().get::<SharedBody>().is_some();
                Ok(response.map(|body| {
                    ResponseBody::new(body, StreamProgress::current(), open, memory, is_shared)
                }))
            }
        }
    });
    let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
    let last_request_timeout = match version {
        HttpVersion::Http1 => LAST_REQUEST_TIMEOUT,
        HttpVersion::Http2 => Duration::ZERO,
    };
    let shutdown_timeout = tokio::select! {
        result = &mut connection => return log_error(result),
        // `drain`'s caller limits the shutdown time.
        () = stopped_for(last_request_timeout, stopped) => Duration::MAX,
        overdue = activity.overdue() => {
            tracing::debug!(?overdue, "client missed a deadline, connection closed");
            match overdue {
                Overdue::Request => CLOSE_TIMEOUT,
                // A graceful shutdown would wait for such a client.
                Overdue::Headers | Overdue::Reading => return,
            }
        }
    };
    connection.as_mut().graceful_shutdown();
    timeout(shutdown_timeout, connection)
        .await
        .map(log_error)
        .unwrap_or_default();
}

/// Waits until `duration` after the shutdown's start.
async fn stopped_for(duration: Duration, mut stopped: watch::Receiver<bool>) {
    // It fails only if the sender is dropped, which is the process's end.
    let _ = stopped.wait_for(|stopped| *stopped).await;
    sleep(duration).await;
}

fn log_error(result: std::result::Result<(), Box<dyn std::error::Error + Send + Sync>>) {
    if let Err(error) = result {
        tracing::debug!(error, "connection failed");
    }
}
