//! A receiver of webhooks for tests, on the loopback interface. The path of a webhook's URL decides how
//! it responds.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::harness::wait_until;

/// A request that a receiver got.
#[derive(Debug, Clone)]
pub struct Received {
    /// The path and query of the URL.
    pub path: String,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

impl Received {
    /// Returns a header's value.
    pub fn header(&self, name: &str) -> &str {
        self.headers[name].to_str().unwrap()
    }

    /// Returns the body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// Returns the request as the client libraries verify it, with its webhook's secret.
    pub fn to_verify(&self, secret: &str) -> Value {
        let names = ["webhook-id", "webhook-timestamp", "webhook-signature"];
        let headers = names.map(|name| (name.to_owned(), json!(self.header(name))));
        let body = std::str::from_utf8(&self.body).unwrap();
        json!({
            "secret": secret,
            "headers": serde_json::Map::from_iter(headers),
            "body": body,
        })
    }
}

type Requests = Arc<Mutex<Vec<Received>>>;

/// A receiver. Dropping it stops it.
pub struct Receiver {
    /// The receiver's address.
    pub address: SocketAddr,
    requests: Requests,
    serving: JoinHandle<()>,
}

impl Receiver {
    /// Starts a receiver.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Requests::default();
        let routes = Router::new()
            .fallback(respond)
            .with_state(Arc::clone(&requests));
        let serving = tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        Self {
            address,
            requests,
            serving,
        }
    }

    /// Returns a path's URL.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Returns the requests with this path, the oldest first.
    pub fn received(&self, path: &str) -> Vec<Received> {
        let requests = self.requests.lock().unwrap();
        let path_requests = requests.iter().filter(|request| request.path == path);
        path_requests.cloned().collect()
    }

    /// Waits for this many requests with a path, and returns them.
    pub async fn wait_for(&self, path: &str, count: usize) -> Vec<Received> {
        wait_until("requests of webhooks", async || {
            let requests = self.requests.lock().unwrap();
            requests.iter().filter(|one| one.path == path).count() >= count
        })
        .await;
        self.received(path)
    }

    /// Returns the event ids in all requests.
    pub fn event_ids(&self) -> HashSet<String> {
        let requests = self.requests.lock().unwrap();
        let ids = requests.iter().map(|request| request.header("webhook-id"));
        ids.map(str::to_owned).collect()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Records a request, and responds as its path says. Other paths respond with 204.
async fn respond(State(requests): State<Requests>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let path = parts.uri.to_string();
    let id = parts.headers.get("webhook-id").cloned();
    let is_repeated = {
        let requests = requests.lock().unwrap();
        let mut earlier = requests.iter().filter(|one| one.path == path);
        earlier.any(|one| one.headers.get("webhook-id") == id.as_ref())
    };
    let received = Received {
        path: path.clone(),
        headers: parts.headers,
        body: body.collect().await.unwrap().to_bytes(),
    };
    requests.lock().unwrap().push(received);
    let response = |status: u16, header: Option<(&str, &str)>| {
        let status = StatusCode::from_u16(status).unwrap();
        let response = Response::builder().status(status);
        let response = match header {
            Some((name, value)) => response.header(name, value),
            None => response,
        };
        response
            .body(Body::from("a secret of the receiver"))
            .unwrap()
    };
    match path.as_str() {
        "/fails" => response(500, None),
        "/fails-once" if !is_repeated => response(500, None),
        "/redirects" => response(302, Some(("location", "/redirected"))),
        "/limits" => response(429, Some(("retry-after", "600"))),
        "/is-unavailable" => {
            let future = "Fri, 31 Dec 9999 23:59:59 GMT";
            response(503, Some(("retry-after", future)))
        }
        "/is-gone" => response(410, None),
        "/hangs" => {
            tokio::time::sleep(Duration::from_secs(3600)).await;
            response(200, None)
        }
        _ => Response::builder().status(204).body(Body::empty()).unwrap(),
    }
}
