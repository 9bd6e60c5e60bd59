//! A TCP proxy that injects network faults: it can delay, stall, cut and refuse connections, make
//! them half-open, and cut them between a request and its response.

use std::collections::HashMap;
use std::future::pending;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;

use crate::servers::{Servers, Trouble};

/// The most bytes that are forwarded at once.
const CHUNK: usize = 64 * 1024;

/// The server behind a link.
#[derive(Debug, Clone)]
enum Target {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// The protocol on a link, as far as the link must understand it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protocol {
    /// Any bytes from the server are a response.
    Opaque,
    /// PostgreSQL's protocol. A writing statement is committed when its response ends with
    /// `ReadyForQuery` outside a transaction.
    Postgres,
}

/// The way in which a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Both peers see that the connection is closed.
    Closed,
    /// Packets are silently dropped, so each peer waits for the other.
    HalfOpen,
}

#[derive(Debug, Clone, Copy, Default)]
struct Condition {
    /// Delay of each chunk, in each direction.
    delay: Duration,
    /// Set while chunks are held back for later delivery.
    stalled: bool,
    /// The ending of new connections; `None` while they are accepted.
    refused: Option<Ending>,
    /// The number of times that all connections were ended, in each way.
    closed: u64,
    half_open: u64,
}

struct Shared {
    target: Target,
    protocol: Protocol,
    condition: watch::Receiver<Condition>,
    /// The ending of the connection that loses the next response; `None` if no loss is requested.
    lose: Mutex<Option<Ending>>,
}

/// A proxy to one server. Dropping it keeps existing connections and accepts no new ones.
pub struct Link {
    address: SocketAddr,
    condition: watch::Sender<Condition>,
    shared: Arc<Shared>,
    listening: tokio::task::JoinHandle<()>,
}

impl Link {
    /// Creates a link to the private Redis.
    ///
    /// # Errors
    /// If the server is not private, or no port is free.
    pub fn to_redis(servers: &Servers) -> Result<Self, Trouble> {
        Self::new(
            Target::Unix(servers.redis_socket()?.to_path_buf()),
            Protocol::Opaque,
        )
    }

    /// Creates a link to the private PostgreSQL.
    ///
    /// # Errors
    /// If the server is not private, or no port is free.
    pub fn to_postgres(servers: &Servers) -> Result<Self, Trouble> {
        Self::new(
            Target::Unix(servers.postgres_socket()?.to_path_buf()),
            Protocol::Postgres,
        )
    }

    /// Creates a link to an API process.
    ///
    /// # Errors
    /// If no port is free.
    pub fn to_api(address: SocketAddr) -> Result<Self, Trouble> {
        Self::new(Target::Tcp(address), Protocol::Opaque)
    }

    fn new(target: Target, protocol: Protocol) -> Result<Self, Trouble> {
        let trouble = || Trouble::because("cannot listen for a link");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").map_err(trouble())?;
        listener.set_nonblocking(true).map_err(trouble())?;
        let address = listener.local_addr().map_err(trouble())?;
        let listener = TcpListener::from_std(listener).map_err(trouble())?;
        let (condition, seen) = watch::channel(Condition::default());
        let shared = Arc::new(Shared {
            target,
            protocol,
            condition: seen,
            lose: Mutex::default(),
        });
        let accepted = Arc::clone(&shared);
        let listening = tokio::spawn(async move {
            while let Ok((caller, _)) = listener.accept().await {
                tokio::spawn(connection(caller, Arc::clone(&accepted)));
            }
        });
        Ok(Self {
            address,
            condition,
            shared,
            listening,
        })
    }

    /// Returns the URL of Redis over this link.
    pub fn redis_url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Returns the base URL of an API process over this link.
    pub fn http_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the URL of `database` over this link, with the role of `url`.
    pub fn postgres_url(&self, url: &str, database: &str) -> String {
        let (_, rest) = url.split_once("://").unwrap_or_default();
        let (role, _) = rest.split_once('@').unwrap_or_default();
        format!(
            "postgres://{role}@{}/{database}?sslmode=disable",
            self.address
        )
    }

    /// Ends all connections. New connections are accepted.
    pub fn end(&self, ending: Ending) {
        self.condition.send_modify(|condition| match ending {
            Ending::Closed => condition.closed += 1,
            Ending::HalfOpen => condition.half_open += 1,
        });
    }

    /// Ends all connections, and new ones in the same way until [`Link::mend`].
    pub fn refuse(&self, ending: Ending) {
        self.condition
            .send_modify(|condition| condition.refused = Some(ending));
        self.end(ending);
    }

    /// Stops delivery until [`Link::mend`], which delivers the bytes sent meanwhile.
    pub fn stall(&self) {
        self.condition
            .send_modify(|condition| condition.stalled = true);
    }

    /// Delays each chunk by `delay`, in each direction.
    pub fn delay(&self, delay: Duration) {
        self.condition
            .send_modify(|condition| condition.delay = delay);
    }

    /// Loses the next response and ends its connection, after the server executed the request. On a
    /// link to PostgreSQL, loses the next response that confirms a commit.
    pub fn lose_response(&self, ending: Ending) {
        *self
            .shared
            .lose
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(ending);
    }

    /// Ends delays, stalls and refusals. Half-open connections stay half-open.
    pub fn mend(&self) {
        self.condition.send_modify(|condition| {
            (condition.delay, condition.stalled, condition.refused) = (Duration::ZERO, false, None);
        });
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

async fn connection(caller: TcpStream, shared: Arc<Shared>) {
    let mut condition = shared.condition.clone();
    let born = *condition.borrow();
    match born.refused {
        Some(Ending::Closed) => return,
        Some(Ending::HalfOpen) => return half_open(caller).await,
        None => {}
    }
    // The server may be unavailable: its caller sees a closed connection.
    match &shared.target {
        Target::Tcp(address) => {
            let Ok(server) = TcpStream::connect(address).await else {
                return;
            };
            let _ = server.set_nodelay(true);
            forward(caller, server, &shared, &mut condition, born).await;
        }
        Target::Unix(path) => {
            let Ok(server) = UnixStream::connect(path).await else {
                return;
            };
            forward(caller, server, &shared, &mut condition, born).await;
        }
    }
}

/// Keeps the sockets of a connection open forever.
async fn half_open<T>(held: T) {
    pending::<()>().await;
    drop(held);
}

async fn forward(
    caller: TcpStream,
    server: impl AsyncRead + AsyncWrite + Unpin,
    shared: &Shared,
    condition: &mut watch::Receiver<Condition>,
    born: Condition,
) {
    let _ = caller.set_nodelay(true);
    let (mut from_caller, mut to_caller) = caller.into_split();
    let (mut from_server, mut to_server) = tokio::io::split(server);
    let writes = AtomicBool::new(false);
    let ended = async {
        let ended = condition
            .wait_for(|now| now.closed > born.closed || now.half_open > born.half_open)
            .await;
        // The link was dropped; its connections continue.
        let Ok(now) = ended.map(|now| *now) else {
            return pending().await;
        };
        if now.closed > born.closed {
            Ending::Closed
        } else {
            Ending::HalfOpen
        }
    };
    let requests = async {
        let mut watched = Requests {
            statements: HashMap::new(),
            started: shared.protocol == Protocol::Opaque,
            rest: Vec::new(),
        };
        let mut chunk = vec![0; CHUNK];
        while let Ok(length @ 1..) = from_caller.read(&mut chunk).await {
            if shared.protocol == Protocol::Postgres && watched.write(&chunk[..length]) {
                writes.store(true, Ordering::Relaxed);
            }
            deliver(shared).await;
            if to_server.write_all(&chunk[..length]).await.is_err() {
                break;
            }
        }
        let _ = to_server.shutdown().await;
    };
    let responses = async {
        let mut chunk = vec![0; CHUNK];
        let mut held = Vec::new();
        while let Ok(length @ 1..) = from_server.read(&mut chunk).await {
            held.extend_from_slice(&chunk[..length]);
            let (whole, commits) = match shared.protocol {
                Protocol::Opaque => (held.len(), true),
                Protocol::Postgres => whole_responses(&held, &writes),
            };
            if commits
                && let Some(ending) = shared
                    .lose
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .take()
            {
                return Some(ending);
            }
            deliver(shared).await;
            if to_caller.write_all(&held[..whole]).await.is_err() {
                break;
            }
            held.drain(..whole);
        }
        let _ = to_caller.shutdown().await;
        None
    };
    let both = async {
        let mut requests = std::pin::pin!(requests);
        let mut responses = std::pin::pin!(responses);
        tokio::select! {
            lost = &mut responses => match lost {
                Some(ending) => ending,
                // The server has closed; the caller's further bytes have no reader.
                None => Ending::Closed,
            },
            () = &mut requests => responses.await.unwrap_or(Ending::Closed),
        }
    };
    let ending = tokio::select! {
        biased;
        ending = ended => ending,
        ending = both => ending,
    };
    if ending == Ending::HalfOpen {
        half_open((from_caller, to_caller, from_server, to_server)).await;
    }
}

/// Waits for the link's delay, and until it is not stalled.
async fn deliver(shared: &Shared) {
    let mut condition = shared.condition.clone();
    let delay = condition.borrow().delay;
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
    // A dropped link does not stall.
    let _ = condition.wait_for(|now| !now.stalled).await;
}

/// A parser of the messages that a PostgreSQL client sends.
struct Requests {
    /// Prepared statements by name; `true` if the statement may write.
    statements: HashMap<Vec<u8>, bool>,
    /// Set after the first message, which has no type byte.
    started: bool,
    /// The start of an incomplete message.
    rest: Vec<u8>,
}

impl Requests {
    /// Returns `true` if a message that ends in these bytes executes a statement that may write.
    fn write(&mut self, bytes: &[u8]) -> bool {
        self.rest.extend_from_slice(bytes);
        let mut at = 0;
        let mut writes = false;
        loop {
            let header = if self.started { 1 } else { 0 };
            let Some(length) = self.rest.get(at + header..at + header + 4) else {
                break;
            };
            let length = length
                .iter()
                .fold(0, |length, byte| length << 8 | usize::from(*byte));
            let Some(body) = self.rest.get(at + header + 4..at + header + length) else {
                break;
            };
            if self.started {
                // Parse has the name and the text of a statement, Bind the names of a portal and of
                // a statement, Query a text.
                let mut fields = body.split(|byte| *byte == 0);
                match self.rest.get(at) {
                    Some(b'P') => {
                        let name = fields.next().unwrap_or_default().to_vec();
                        let text = fields.next().unwrap_or_default();
                        let may_write = may_write(text);
                        self.statements.insert(name, may_write);
                    }
                    Some(b'B') => {
                        let name = fields.nth(1).unwrap_or_default();
                        writes |= self.statements.get(name).copied().unwrap_or(false);
                    }
                    Some(b'Q') => writes |= may_write(body),
                    _ => {}
                }
            }
            at += header + length;
            self.started = true;
        }
        self.rest.drain(..at);
        writes
    }
}

/// Returns `true` if the statement contains a keyword that writes or commits.
fn may_write(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text).to_lowercase();
    ["insert", "update", "delete", "commit"]
        .iter()
        .any(|word| text.contains(word))
}

/// Returns the length of the complete PostgreSQL messages in `bytes`, and `true` if the last
/// response among them confirms a commit.
fn whole_responses(bytes: &[u8], writes: &AtomicBool) -> (usize, bool) {
    let mut at = 0;
    let mut commits = false;
    while let (Some(kind), Some(length)) = (bytes.get(at), bytes.get(at + 1..at + 5)) {
        let length = length
            .iter()
            .fold(0, |length, byte| length << 8 | usize::from(*byte));
        let Some(body) = bytes.get(at + 5..at + 1 + length) else {
            break;
        };
        if *kind == b'Z' {
            // Nothing is committed inside a transaction, or in a failed one.
            commits = writes.swap(false, Ordering::Relaxed) && body == b"I";
        }
        at += 1 + length;
    }
    (at, commits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::servers::handshake::tests::message;

    #[test]
    fn split_messages_still_reveal_writes() {
        let startup = [&12_u32.to_be_bytes()[..], &[0, 3, 0, 0, b'x', b'y', 0, 0]].concat();
        let prepare = [
            message(b'P', b"s1\0select 1\0\0\0"),
            message(b'P', b"s2\0Insert into x\0\0\0"),
        ]
        .concat();
        let reads = [message(b'B', b"\0s1\0\0\0"), message(b'S', b"")].concat();
        let talk = [startup, prepare, reads, message(b'B', b"\0s2\0\0\0")].concat();
        for cut in 1..talk.len() {
            let mut requests = Requests {
                statements: HashMap::new(),
                started: false,
                rest: Vec::new(),
            };
            let seen = [requests.write(&talk[..cut]), requests.write(&talk[cut..])];
            assert_eq!(seen, [false, true], "{cut}");
            assert!(
                !requests.write(&message(b'Q', b"BEGIN\0"))
                    && requests.write(&message(b'Q', b"COMMIT\0"))
            );
        }
    }

    #[test]
    fn commit_needs_write_and_idle_state() {
        let writes = AtomicBool::new(true);
        let done = message(b'C', b"INSERT 0 1\0");
        let within = [done.clone(), message(b'Z', b"T")].concat();
        assert_eq!(whole_responses(&within, &writes), (within.len(), false));
        writes.store(true, Ordering::Relaxed);
        let last = [done.clone(), message(b'Z', b"I")].concat();
        assert_eq!(
            whole_responses(&last[..done.len() + 2], &writes),
            (done.len(), false)
        );
        assert_eq!(whole_responses(&last, &writes), (last.len(), true));
        assert_eq!(
            whole_responses(&last, &writes),
            (last.len(), false),
            "no request in between"
        );
    }
}
