//! The load generator: connections that each send a request, wait for the complete response, and
//! send the next one.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use assay_tests::servers::Trouble;
use bytes::Bytes;
use http::{HeaderMap, Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

/// A request that is sent again and again.
#[derive(Clone)]
pub struct Template {
    /// The HTTP method.
    pub method: Method,
    /// The path with its query.
    pub path: String,
    /// The headers, without `host` and `content-length`.
    pub headers: HeaderMap,
    /// The body; for gRPC the message with its prefix with five bytes.
    pub body: Bytes,
    /// `true` for gRPC over HTTP/2, `false` for HTTP/1.1.
    pub grpc: bool,
}

/// A load's requests and their latencies.
pub struct Load {
    /// Successful request count.
    pub requests: usize,
    /// Time from the first request to the last response.
    pub wall: Duration,
    /// Each request's latency, in ascending order.
    pub latencies: Vec<Duration>,
}

/// A load's end.
#[derive(Clone, Copy)]
pub enum Until {
    /// After this time.
    Elapsed(Duration),
    /// After this many requests, which is a multiple of the connection count.
    Sent(usize),
}

/// One connection for either protocol.
pub enum Connection {
    /// HTTP/1.1, for REST.
    Http1(http1::SendRequest<Full<Bytes>>),
    /// HTTP/2, for gRPC.
    Http2(http2::SendRequest<Full<Bytes>>),
}

/// Sends requests over `connections` connections, which are divided among the addresses. Each
/// connection sends all templates in turn, and each begins with another one.
///
/// It runs on its own thread, so that its cost is the same for every server.
///
/// # Errors
/// If a connection fails or a request is not successful.
pub async fn generate(
    addresses: Vec<SocketAddr>,
    templates: Arc<Vec<Template>>,
    connections: usize,
    until: Until,
) -> Result<Load, Trouble> {
    let generate = move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Trouble::because("no runtime for the load generator"))?;
        runtime.block_on(tokio::task::LocalSet::new().run_until(async move {
            let began = Instant::now();
            let (end, each) = match until {
                Until::Elapsed(length) => (Some(began + length), usize::MAX),
                Until::Sent(requests) => (None, requests / connections),
            };
            let clients: Vec<_> = (0..connections)
                .map(|number| {
                    let templates = Arc::clone(&templates);
                    let address = addresses[number % addresses.len()];
                    let client = repeat(address, templates, number, end, each);
                    tokio::task::spawn_local(client)
                })
                .collect();
            let mut latencies = Vec::new();
            for client in clients {
                let seen = client.await;
                latencies.extend(seen.map_err(Trouble::because("a client panicked"))??);
            }
            let wall = began.elapsed();
            latencies.sort_unstable();
            Ok(Load {
                requests: latencies.len(),
                wall,
                latencies,
            })
        }))
    };
    tokio::task::spawn_blocking(generate)
        .await
        .map_err(Trouble::because("the load generator panicked"))?
}

/// Sends one request on its own connection, and returns its response's body.
///
/// # Errors
/// If the connection fails or the request is not successful.
pub async fn send(address: SocketAddr, template: &Template) -> Result<Bytes, Trouble> {
    let mut connection = Connection::open(address, template.grpc).await?;
    connection.exchange(template).await
}

async fn repeat(
    address: SocketAddr,
    templates: Arc<Vec<Template>>,
    first: usize,
    end: Option<Instant>,
    requests: usize,
) -> Result<Vec<Duration>, Trouble> {
    let mut connection = Connection::open(address, templates[0].grpc).await?;
    let mut latencies = Vec::new();
    let mut turns = templates.iter().cycle().skip(first % templates.len());
    while latencies.len() < requests
        && end.is_none_or(|end| Instant::now() < end)
        && let Some(template) = turns.next()
    {
        let began = Instant::now();
        connection.exchange(template).await?;
        latencies.push(began.elapsed());
    }
    Ok(latencies)
}

impl Connection {
    /// Connects to `address`.
    ///
    /// # Errors
    /// If nothing listens there.
    pub async fn open(address: SocketAddr, grpc: bool) -> Result<Self, Trouble> {
        let refused = || Trouble::because(format!("cannot connect to {address}"));
        let stream = TcpStream::connect(address).await.map_err(refused())?;
        stream.set_nodelay(true).map_err(refused())?;
        let stream = TokioIo::new(stream);
        if grpc {
            let (sender, connection) = http2::handshake(TokioExecutor::new(), stream)
                .await
                .map_err(Trouble::because("no HTTP/2 handshake"))?;
            tokio::spawn(connection);
            return Ok(Self::Http2(sender));
        }
        let (sender, connection) = http1::handshake(stream)
            .await
            .map_err(Trouble::because("no HTTP/1.1 handshake"))?;
        tokio::spawn(connection);
        Ok(Self::Http1(sender))
    }

    /// Sends a request and returns its response's body.
    ///
    /// # Errors
    /// If the connection fails or the request is not successful.
    pub async fn exchange(&mut self, template: &Template) -> Result<Bytes, Trouble> {
        let uri = match self {
            Self::Http1(_) => template.path.clone(),
            Self::Http2(_) => format!("http://127.0.0.1{}", template.path),
        };
        let mut request = Request::builder()
            .method(template.method.clone())
            .uri(uri)
            .body(Full::new(template.body.clone()))
            .map_err(Trouble::because("the request is not valid"))?;
        *request.headers_mut() = template.headers.clone();
        let response = async {
            match self {
                Self::Http1(sender) => {
                    sender.ready().await?;
                    sender.send_request(request).await
                }
                Self::Http2(sender) => {
                    sender.ready().await?;
                    sender.send_request(request).await
                }
            }
        };
        let lost = Trouble::because(format!("no response to {}", template.path));
        read(response.await.map_err(lost)?, template).await
    }
}

/// Reads a response to its end; for gRPC the status is in its trailers or headers.
async fn read(response: http::Response<Incoming>, template: &Template) -> Result<Bytes, Trouble> {
    let (head, body) = response.into_parts();
    let truncated = Trouble::because(format!("the response to {} is truncated", template.path));
    let body = body.collect().await.map_err(truncated)?;
    let grpc_status = head
        .headers
        .get("grpc-status")
        .or_else(|| body.trailers()?.get("grpc-status"))
        .cloned();
    let succeeded = head.status.is_success()
        && (!template.grpc || grpc_status.as_ref().is_some_and(|status| status == "0"));
    let bytes = body.to_bytes();
    if succeeded {
        return Ok(bytes);
    }
    Err(Trouble::new(format!(
        "{} {}: {} {grpc_status:?} {}",
        template.method,
        template.path,
        head.status,
        String::from_utf8_lossy(&bytes)
    )))
}
