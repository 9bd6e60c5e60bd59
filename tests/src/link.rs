//! A TCP link between two parties that can be disturbed: delayed, stalled, cut, refused, made half-open, and cut between a
//! request and its response.

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

/// How much is forwarded at once.
const CHUNK: usize = 64 * 1024;

/// The far end of a link.
#[derive(Debug, Clone)]
enum Target {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// What the two ends of a link say to each other, as far as the link must know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protocol {
    /// Whatever comes back is a response.
    Opaque,
    /// A response to a statement that may have written ends with `ReadyForQuery`, outside of a transaction: then it is committed.
    Postgres,
}

/// How a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Both ends see it.
    Closed,
    /// Neither end sees it: both wait for the other. Packets are not delivered any more, and nobody says so.
    HalfOpen,
}

#[derive(Debug, Clone, Copy, Default)]
struct Condition {
    /// How long each chunk takes, in each direction.
    delay: Duration,
    /// Nothing is delivered, for now: it is later.
    stalled: bool,
    /// How connections end that are made now.
    refused: Option<Ending>,
    /// How often all connections were ended, in each way.
    closed: u64,
    half_open: u64,
}

struct Shared {
    target: Target,
    protocol: Protocol,
    condition: watch::Receiver<Condition>,
    /// How the next response is lost, if it is to be.
    lose: Mutex<Option<Ending>>,
}

/// See the module. When it is dropped, connections go on and no new ones are made.
pub struct Link {
    address: SocketAddr,
    condition: watch::Sender<Condition>,
    shared: Arc<Shared>,
    listening: tokio::task::JoinHandle<()>,
}

impl Link {
    /// A link to the private Redis.
    ///
    /// # Errors
    /// When the server is not private, or there is no port.
    pub fn to_redis(servers: &Servers) -> Result<Self, Trouble> {
        Self::new(
            Target::Unix(servers.redis_socket()?.to_path_buf()),
            Protocol::Opaque,
        )
    }

    /// A link to the private PostgreSQL.
    ///
    /// # Errors
    /// When the server is not private, or there is no port.
    pub fn to_postgres(servers: &Servers) -> Result<Self, Trouble> {
        Self::new(
            Target::Unix(servers.postgres_socket()?.to_path_buf()),
            Protocol::Postgres,
        )
    }

    /// A link to an api.
    ///
    /// # Errors
    /// When there is no port.
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

    /// The address of Redis through this link.
    pub fn redis_url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// The address of an api through this link.
    pub fn http_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The address of a database through this link, with the role of this address of the database itself.
    pub fn postgres_url(&self, url: &str, database: &str) -> String {
        let (_, rest) = url.split_once("://").unwrap_or_default();
        let (role, _) = rest.split_once('@').unwrap_or_default();
        format!(
            "postgres://{role}@{}/{database}?sslmode=disable",
            self.address
        )
    }

    /// Ends all connections. New ones work.
    pub fn end(&self, ending: Ending) {
        self.condition.send_modify(|condition| match ending {
            Ending::Closed => condition.closed += 1,
            Ending::HalfOpen => condition.half_open += 1,
        });
    }

    /// Ends all connections, and from now on new ones in the same way.
    pub fn refuse(&self, ending: Ending) {
        self.condition
            .send_modify(|condition| condition.refused = Some(ending));
        self.end(ending);
    }

    /// Stops delivering; what is sent meanwhile is delivered later.
    pub fn stall(&self) {
        self.condition
            .send_modify(|condition| condition.stalled = true);
    }

    /// Takes this long to deliver a chunk.
    pub fn delay(&self, delay: Duration) {
        self.condition
            .send_modify(|condition| condition.delay = delay);
    }

    /// Loses the next response, and ends its connection: what was asked for was done. Of PostgreSQL's responses, the next one
    /// after which something is committed.
    pub fn lose_response(&self, ending: Ending) {
        *self
            .shared
            .lose
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(ending);
    }

    /// Works as it should from now on. Connections that are half-open stay so.
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
    // The other end may just be away.
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

/// Holds what belongs to a connection for good.
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
        // Without the link nobody ends its connections any more.
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
        let (mut chunk, mut held) = (vec![0; CHUNK], Vec::new());
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
                // The caller may still send; nobody reads it.
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

/// Waits until a chunk is to be delivered.
async fn deliver(shared: &Shared) {
    let mut condition = shared.condition.clone();
    let delay = condition.borrow().delay;
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
    // Without the link nothing stalls.
    let _ = condition.wait_for(|now| !now.stalled).await;
}

/// What a client of PostgreSQL asks for, read as it passes.
struct Requests {
    /// Prepared statements by name, and whether they may write.
    statements: HashMap<Vec<u8>, bool>,
    /// Whether the first message was seen, which has another form.
    started: bool,
    /// The beginning of a message of which the rest is to come.
    rest: Vec<u8>,
}

impl Requests {
    /// Whether a statement that may write is executed by the messages that end in these bytes.
    fn write(&mut self, bytes: &[u8]) -> bool {
        self.rest.extend_from_slice(bytes);
        let (mut at, mut writes) = (0, false);
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
                // Parse has name and text of a statement, Bind the names of a portal and of a statement, Query a text.
                let mut fields = body.split(|byte| *byte == 0);
                match self.rest.get(at) {
                    Some(b'P') => {
                        let (name, text) = (
                            fields.next().unwrap_or_default().to_vec(),
                            fields.next().unwrap_or_default(),
                        );
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

/// Whether the text of a statement has a word with which something is written, or committed.
fn may_write(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text).to_lowercase();
    ["insert", "update", "delete", "commit"]
        .iter()
        .any(|word| text.contains(word))
}

/// How many of these bytes are whole messages of PostgreSQL's, and whether the last response among them says that something
/// was committed.
fn whole_responses(bytes: &[u8], writes: &AtomicBool) -> (usize, bool) {
    let (mut at, mut commits) = (0, false);
    while let (Some(kind), Some(length)) = (bytes.get(at), bytes.get(at + 1..at + 5)) {
        let length = length
            .iter()
            .fold(0, |length, byte| length << 8 | usize::from(*byte));
        let Some(body) = bytes.get(at + 5..at + 1 + length) else {
            break;
        };
        if *kind == b'Z' {
            // In a transaction nothing is committed, and in a failed one nothing ever is.
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
    fn statements_that_write_are_seen_however_the_bytes_are_cut() {
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
    fn only_the_end_of_a_transaction_that_wrote_is_a_commit() {
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
            "nothing was asked for meanwhile"
        );
    }
}
