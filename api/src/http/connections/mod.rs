//! Connections: taken, watched, and ended. A client that is slow, or silent, or does not read its answers, is cut off; one
//! that only waits for the next thing to ask may do so for longer than a load balancer keeps a connection.

pub mod account;
mod response;

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use assay_core::runtime::process;
use assay_core::{BestEffort as _, Error, Result};
use axum::Router;
use axum::body::Body;
use http::Request;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use ipnet::IpNet;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Sleep, sleep, sleep_until, timeout};
use tower::ServiceExt as _;

use self::account::{Account, Open, Overdue};
use self::response::{Flow, Sent, Streams};
use crate::http::client_address;
use crate::http::header_limits::{MAX_HEADERS, MAX_HEADERS_BYTES};
use crate::http::request_context::Peer;
use crate::http::response_markers::NoRoom;
use crate::limits::request_memory::{Budget, Held};
use crate::settings::Settings;

/// The longest time in which the headers of a request arrive once they have begun.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest time that a connection is open without a request: longer than the minute for which load balancers keep one, so
/// that it is they who close.
const IDLE_TIMEOUT: Duration = Duration::from_secs(75);
/// The time that an idle connection has to end once it was told to.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// The interval at which an idle HTTP/2 connection is pinged, and the longest time until it responds.
const PING: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(10));
/// The number of requests that one HTTP/2 connection may have under way.
const STREAMS_MAX: u32 = 100;
/// The number of headers of a request that are read, and their bytes in all: more than a request may have, so that a layer rejects
/// it with an error body where hyper would with none.
const HEADERS_READ: (usize, usize) = (2 * MAX_HEADERS, 2 * MAX_HEADERS_BYTES);
/// The bytes that a client may send before they are read: on one stream of HTTP/2, and on a connection.
const WINDOWS: (u32, u32) = (256 * 1024, 512 * 1024);
/// The bytes that are read from or written to a connection of HTTP/1 at once; headers must fit in.
const BUFFER_MAX: usize = 64 * 1024;
/// The number of connections at once.
const CONNECTIONS_MAX: u64 = 10_000;
/// Files that are not connections of callers: of the database, of Redis, parts of uploads.
const FILES: u64 = 256;

/// All connections of a process.
pub struct Connections {
    room: Arc<Semaphore>,
    all: u32,
    addresses: Addresses,
    memory: Budget,
    stop: watch::Sender<bool>,
}

impl Connections {
    /// None yet. There may be so many as there can be files.
    pub fn new(settings: &Settings, memory: Budget) -> Result<Self> {
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).map_err(Error::internal)?;
        let files = hard.min(CONNECTIONS_MAX + FILES);
        setrlimit(Resource::RLIMIT_NOFILE, files, hard).best_effort("asking for more open files");
        let (soft, _) = getrlimit(Resource::RLIMIT_NOFILE).map_err(Error::internal)?;
        let all = u32::try_from(soft.saturating_sub(FILES).clamp(16, CONNECTIONS_MAX))
            .map_err(Error::internal)?;
        let addresses = Addresses::new(
            settings.connections_per_address,
            settings.trusted_proxies.clone(),
        );
        Ok(Self {
            room: Arc::new(Semaphore::new(all as usize)),
            all,
            addresses,
            memory,
            stop: watch::Sender::new(false),
        })
    }

    /// Takes connections until the process is told to end.
    pub async fn accept(&self, listener: TcpListener, router: Router) -> Result<()> {
        let mut end = std::pin::pin!(process::shutdown_signal());
        loop {
            let next = async {
                // Where there is no room, callers wait before the door.
                let room = Arc::clone(&self.room)
                    .acquire_owned()
                    .await
                    .map_err(io::Error::other)?;
                listener
                    .accept()
                    .await
                    .map(|(stream, peer)| (room, stream, peer))
            };
            tokio::select! {
                accepted = next => match accepted {
                    Ok((room, stream, peer)) => match self.addresses.enter(peer.ip()) {
                        Some(place) => self.serve((room, place), stream, peer, router.clone()),
                        None => tracing::debug!(address = %peer.ip(), "too many connections of one address"),
                    },
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
        self.room
            .acquire_many(self.all)
            .await
            .map(drop)
            .best_effort("waiting for connections to end");
    }

    fn serve(
        &self,
        room: (OwnedSemaphorePermit, Place),
        stream: TcpStream,
        peer: SocketAddr,
        router: Router,
    ) {
        stream
            .set_nodelay(true)
            .best_effort("sending small answers at once");
        let (memory, stopped) = (self.memory.clone(), self.stop.subscribe());
        tokio::spawn(async move {
            serve(memory, stream, peer, &room.1, router, stopped).await;
            drop(room);
        });
    }
}

/// The number of connections of each client address; of IPv6 the first 64 bits. Trusted proxies carry those of many clients,
/// and are not counted.
struct Addresses {
    max: u32,
    trusted: Vec<IpNet>,
    open: Arc<Mutex<HashMap<Arc<str>, u32>>>,
}

/// A connection among those of its address.
struct Place {
    address: Option<Arc<str>>,
    open: Arc<Mutex<HashMap<Arc<str>, u32>>>,
}

impl Addresses {
    fn new(max: u32, trusted: Vec<IpNet>) -> Self {
        Self {
            max,
            trusted,
            open: Arc::default(),
        }
    }

    /// `None` if the address has as many connections as it may.
    fn enter(&self, peer: IpAddr) -> Option<Place> {
        let open = Arc::clone(&self.open);
        if client_address::is_within(&self.trusted, peer) {
            return Some(Place {
                address: None,
                open,
            });
        }
        let address = client_address::counting_address(peer);
        let mut counts = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(Arc::clone(&address)).or_default();
        if *count >= self.max {
            return None;
        }
        *count += 1;
        Some(Place {
            address: Some(address),
            open,
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(address) = &self.address else { return };
        let mut counts = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(address);
            }
        }
    }
}

/// How both versions of HTTP are served on a connection.
fn builder(streams: Streams) -> auto::Builder<Streams> {
    let mut builder = auto::Builder::new(streams);
    let (headers, bytes) = HEADERS_READ;
    let (of_stream, of_connection) = WINDOWS;
    // An idle connection counts as one whose headers are being waited for; how long they take is watched here.
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE_TIMEOUT)
        .max_headers(headers)
        .keep_alive(true);
    builder.http1().max_buf_size(BUFFER_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING.0)
        .keep_alive_timeout(PING.1);
    builder
        .http2()
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(bytes as u32);
    builder
        .http2()
        .initial_stream_window_size(of_stream)
        .initial_connection_window_size(of_connection);
    builder
}

async fn serve(
    memory: Budget,
    stream: TcpStream,
    peer: SocketAddr,
    place: &Place,
    router: Router,
    mut stopped: watch::Receiver<bool>,
) {
    let spoken = tokio::select! {
        spoken = speaks(&stream) => spoken,
        _ = stopped.wait_for(|stopped| *stopped) => None,
    };
    let Some(http) = spoken else { return };
    let account = Arc::new(Account::new(http, place.address.is_some()));
    let streams = Streams {
        memory,
        holder: format!("address {}", client_address::counting_address(peer.ip())).into(),
        account: Arc::clone(&account),
    };
    let builder = builder(streams);
    let stream = Heard {
        stream,
        account: Arc::clone(&account),
        pause: None,
    };
    let service = hyper::service::service_fn({
        let account = Arc::clone(&account);
        move |request: Request<hyper::body::Incoming>| {
            let (open, router) = (Open::new(&account), router.clone());
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(Peer(peer.ip()));
            request.extensions_mut().insert(Arc::clone(&account));
            async move {
                if response::is_refused() {
                    return Err(h2::Error::from(h2::Reason::REFUSED_STREAM));
                }
                let Ok(mut response) = router.oneshot(request).await;
                if response.extensions().get::<NoRoom>().is_some() && open.account.resets_refused()
                {
                    // Clients may send such a request again: nothing was done for it.
                    open.account.pause();
                    return Err(h2::Error::from(h2::Reason::REFUSED_STREAM));
                }
                let held = response.extensions_mut().remove::<Held>();
                Ok(response.map(|body| Sent::new(body, Flow::of_stream(), open, held)))
            }
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
                Overdue::Request => CLOSE_TIMEOUT,
                // Nothing is owed to such a client.
                Overdue::Headers | Overdue::Reading => return,
            }
        }
    };
    connection.as_mut().graceful_shutdown();
    timeout(parting, connection)
        .await
        .map(noted)
        .unwrap_or_default();
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
    timeout(HEAD_TIMEOUT, shown).await.ok().flatten()
}

/// A stream that notes when something comes.
struct Heard {
    stream: TcpStream,
    account: Arc<Account>,
    pause: Option<Pin<Box<Sleep>>>,
}

impl AsyncRead for Heard {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(until) = self.account.paused() {
            let pause = self
                .pause
                .get_or_insert_with(|| Box::pin(sleep_until(until)));
            pause.as_mut().reset(until);
            ready!(pause.as_mut().poll(cx));
        }
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.account.heard();
        }
        read
    }
}

impl AsyncWrite for Heard {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
