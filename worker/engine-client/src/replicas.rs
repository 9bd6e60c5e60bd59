//! One engine's addresses, and their connections.
//!
//! An engine's host can have several addresses, as a headless service has. Calls are
//! distributed round robin. An address that failed is skipped for a while if there are others.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use assay_core::model::engine_address::EngineAddress;
use assay_inference::v2::ServerReadyRequest;
use assay_inference::v2::grpc_inference_service_client::GrpcInferenceServiceClient;
use tokio::time::Instant;
use tonic::transport::{Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Request, Status};

use crate::breaker::{OPEN_TIME_MAX, OPEN_TIME_MIN};

/// Longest time for opening a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Longest time for resolving the host.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(2);

/// Longest wait for the response to a probe.
const PROBE_TIMEOUT: Duration = Duration::from_millis(500);

/// TCP keep-alive packet interval. HTTP/2 pings are not used: gRPC servers close connections
/// with frequent pings.
const TCP_KEEPALIVE: Duration = Duration::from_secs(15);

/// A host's maximum address count.
const REPLICAS_MAX: usize = 64;

/// HTTP/2 flow-control windows, in bytes. The default, 64 KiB, costs round trips for results with
/// many rows.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 4 << 20;

/// Maximum size of a response, in bytes: 64 rows with 500 items whose ids are long.
const RESPONSE_MAX: usize = 24 << 20;

/// A client for one replica.
pub type Client = GrpcInferenceServiceClient<Channel>;

/// One engine's replicas.
pub struct Replicas {
    address: EngineAddress,
    current: RwLock<Arc<[Arc<Replica>]>>,
    /// The call count so far, which selects the next replica.
    next: AtomicUsize,
}

/// One engine address.
pub struct Replica {
    address: SocketAddr,
    endpoint: Endpoint,
    channel: Mutex<Channel>,
    /// The consecutive failure count.
    failures: AtomicU32,
    /// `true` if the last probe failed, or the connection could not be opened.
    is_down: AtomicBool,
    /// The end of the time for which the replica is skipped.
    skipped_until: Mutex<Option<Instant>>,
}

impl Replicas {
    /// Creates an engine's replicas. Its host is resolved at the first call.
    pub fn new(address: EngineAddress) -> Self {
        Self {
            address,
            current: RwLock::new(Arc::new([])),
            next: AtomicUsize::new(0),
        }
    }

    /// Creates the replicas for an engine whose host has these addresses.
    #[cfg(test)]
    pub fn with_addresses(engine: &EngineAddress, addresses: &[SocketAddr]) -> Self {
        let replicas = Self::new(engine.clone());
        let known = addresses
            .iter()
            .map(|address| Replica::new(engine, *address).map(Arc::new));
        *replicas.current.write().unwrap() = known.collect::<Result<_, _>>().unwrap();
        replicas
    }

    /// Returns all replicas.
    pub fn all(&self) -> Arc<[Arc<Replica>]> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns `true` if the host's addresses can change.
    pub fn has_dns_name(&self) -> bool {
        self.address.host.parse::<IpAddr>().is_err()
    }

    /// Returns the replica for the next call.
    pub async fn pick(&self) -> Result<Arc<Replica>, Status> {
        let mut replicas = self.all();
        if replicas.is_empty() {
            self.resolve().await?;
            replicas = self.all();
        }
        let n = replicas.len();
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        let in_order = || (0..n).filter_map(|at| replicas.get(first.wrapping_add(at) % n));
        let picked = if n > 1 {
            let now = Instant::now();
            in_order()
                .find(|replica| !replica.is_skipped(now))
                .or_else(|| in_order().next())
        } else {
            replicas.first()
        };
        picked
            .cloned()
            .ok_or_else(|| Status::unavailable(format!("{} has no address", self.address.host)))
    }

    /// Resolves the host. Replicas whose address stays keep their connection. Returns `true` if the
    /// addresses have changed.
    pub async fn resolve(&self) -> Result<bool, Status> {
        let host = (self.address.host.as_str(), self.address.port);
        let failed = |reason: String| {
            Status::unavailable(format!("cannot resolve {}: {reason}", self.address.host))
        };
        let found = tokio::time::timeout(RESOLVE_TIMEOUT, tokio::net::lookup_host(host))
            .await
            .map_err(|elapsed| failed(elapsed.to_string()))?
            .map_err(|error| failed(error.to_string()))?;
        let mut found: Vec<SocketAddr> = found.collect();
        found.sort_unstable();
        found.dedup();
        found.truncate(REPLICAS_MAX);
        if found.is_empty() {
            return Err(failed(String::from("there is no address")));
        }
        let before = self.all();
        if found
            .iter()
            .eq(before.iter().map(|replica| &replica.address))
        {
            return Ok(false);
        }
        let replicas: Result<Arc<[_]>, Status> = found
            .into_iter()
            .map(
                |address| match before.iter().find(|known| known.address == address) {
                    Some(known) => Ok(Arc::clone(known)),
                    None => Replica::new(&self.address, address).map(Arc::new),
                },
            )
            .collect();
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = replicas?;
        Ok(true)
    }
}

impl Replica {
    fn new(engine: &EngineAddress, address: SocketAddr) -> Result<Self, Status> {
        let invalid = |error: tonic::transport::Error| Status::unavailable(error.to_string());
        let scheme = if engine.is_tls { "https" } else { "http" };
        let host = if engine.host.contains(':') {
            format!("[{}]", engine.host)
        } else {
            engine.host.clone()
        };
        let origin = format!("{scheme}://{host}:{}", engine.port)
            .parse()
            .map_err(|_| Status::unavailable("the address of the engine is not a URL"))?;
        let mut endpoint = Endpoint::from_shared(format!("{scheme}://{address}"))
            .map_err(invalid)?
            .origin(origin)
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_keepalive(Some(TCP_KEEPALIVE))
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW);
        if engine.is_tls {
            let tls = ClientTlsConfig::new()
                .with_native_roots()
                .domain_name(engine.host.as_str());
            endpoint = endpoint.tls_config(tls).map_err(invalid)?;
        }
        let channel = Mutex::new(endpoint.connect_lazy());
        Ok(Self {
            address,
            endpoint,
            channel,
            failures: AtomicU32::new(0),
            is_down: AtomicBool::new(false),
            skipped_until: Mutex::new(None),
        })
    }

    /// Returns the replica's address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns a client for the replica.
    pub fn client(&self) -> Client {
        GrpcInferenceServiceClient::new(locked(&self.channel).clone())
            .max_decoding_message_size(RESPONSE_MAX)
    }

    /// Records that the replica responded.
    pub fn succeed(&self) {
        if self.failures.swap(0, Ordering::Relaxed) > 0 {
            *locked(&self.skipped_until) = None;
        }
    }

    /// Records that the replica did not respond. It is skipped for a time that doubles with each
    /// failure. `is_down` if no connection could be opened.
    pub fn fail(&self, is_down: bool) {
        let failures = self.failures.fetch_add(1, Ordering::Relaxed);
        // A call that times out after a failed probe must not hide the recovery that follows.
        self.is_down.fetch_or(is_down, Ordering::Relaxed);
        let skipped = OPEN_TIME_MIN * (1 << failures.min(5));
        *locked(&self.skipped_until) = Some(Instant::now() + skipped.min(OPEN_TIME_MAX));
    }

    /// Replaces the connection. The network may have lost the address without closing the
    /// connection, which the operating system reports after a quarter of an hour only.
    pub fn reconnect(&self) {
        *locked(&self.channel) = self.endpoint.connect_lazy();
    }

    /// Returns `true` if the last call failed.
    pub fn is_failing(&self) -> bool {
        self.failures.load(Ordering::Relaxed) > 0
    }

    fn is_skipped(&self, now: Instant) -> bool {
        self.is_failing() && locked(&self.skipped_until).is_some_and(|until| now < until)
    }

    /// Asks the replica whether it is ready. Returns `true` if it is, and was not before.
    pub async fn probe(&self) -> bool {
        let ready = async {
            let mut client = self.client();
            let request = Request::new(ServerReadyRequest {});
            match client.server_ready(request).await {
                Ok(response) => response.into_inner().ready,
                // Any other response shows that the engine works, such as from an engine without
                // this call. A status with a source is not the engine's.
                Err(status) => {
                    status.code() != Code::Unavailable
                        && std::error::Error::source(&status).is_none()
                }
            }
        };
        let is_ready = tokio::time::timeout(PROBE_TIMEOUT, ready)
            .await
            .unwrap_or(false);
        let was_down = self.is_down.swap(!is_ready, Ordering::Relaxed);
        let has_recovered = is_ready && was_down;
        if has_recovered {
            self.succeed();
        }
        has_recovered
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
