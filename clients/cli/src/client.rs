//! Requests to the API, with retries.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rustls::crypto::ring;
use serde_json::Value;
use ureq::http::{HeaderMap, Method, Request as HttpRequest};
use ureq::tls::{RootCerts, TlsConfig};
use ureq::{Agent, Error as HttpError, Proxy, Timeout};
use url::Url;

use crate::failure::{Exit, Failure, Result};
use crate::messages::Messages;
use crate::operations::{self, Operation};
use crate::proxy::proxy_for;
use crate::retries::{self, Cause, RequestTimeouts, Retries};

/// One installation's client.
pub struct Client {
    /// For operations that respond within the usual time.
    agent: Agent,
    /// For operations that take longer, such as upload parts.
    long_request_agent: Agent,
    base_url: String,
    /// An API key or a session token.
    credential: Option<String>,
    /// The organization that a session acts for.
    org: Option<String>,
    messages: Messages,
    state: Mutex<State>,
}

/// The facts from earlier responses.
#[derive(Default)]
struct State {
    /// The time at which the rate limit allows the next request, if it is reached.
    full_until: Option<Instant>,
    has_warned_of_expiry: bool,
}

/// A response with its whole body.
pub struct Response {
    /// The body.
    pub body: Vec<u8>,
}

impl Response {
    /// Returns the body as JSON.
    pub fn json(&self) -> Result<Value> {
        serde_json::from_slice(&self.body).map_err(|error| {
            Failure::new(Exit::Other, format!("the response is not JSON: {error}"))
        })
    }
}

/// A request before it is sent.
pub struct Request<'c> {
    client: &'c Client,
    operation: Operation,
    path: String,
    query: Vec<(String, String)>,
    headers: Vec<(String, String)>,
    body: Option<Body>,
    slot_wait: Option<Duration>,
}

struct Body {
    content_type: &'static str,
    bytes: Vec<u8>,
}

impl Client {
    /// Creates a client. Nothing is sent before the first request.
    ///
    /// # Errors
    /// If the environment names a proxy that cannot be used.
    pub fn new(
        base_url: String,
        credential: Option<String>,
        org: Option<String>,
        messages: Messages,
    ) -> Result<Self> {
        let proxy = match Url::parse(&base_url) {
            Ok(address) => proxy_for(&address, |name| std::env::var(name).ok())?,
            // Its first request says so.
            Err(_) => None,
        };
        Ok(Self {
            agent: agent(retries::timeouts(false), proxy.clone()),
            long_request_agent: agent(retries::timeouts(true), proxy),
            base_url,
            credential,
            org,
            messages,
            state: Mutex::default(),
        })
    }

    /// Returns the installation's address, without a slash at the end.
    pub fn base_url(&self) -> &str {
        &self.base_url
    }

    /// Returns the program's messages.
    pub fn messages(&self) -> Messages {
        self.messages
    }

    /// Creates an operation's request.
    pub fn request(&self, operation: &Operation) -> Request<'_> {
        Request {
            client: self,
            operation: *operation,
            path: operation.path.to_owned(),
            query: Vec::new(),
            headers: Vec::new(),
            body: None,
            slot_wait: None,
        }
    }

    /// Creates a request for any path.
    pub fn raw_request(&self, method: &'static str, path: &str) -> Request<'_> {
        let mut request = self.request(&operations::find(method, path));
        path.clone_into(&mut request.path);
        request
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        // The state is valid after each statement.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Request<'_> {
    /// Sets a path parameter.
    #[must_use]
    pub fn path(mut self, name: &str, value: &str) -> Self {
        // Such a segment would name another path.
        let value = if matches!(value, "." | ".." | "") {
            "unknown"
        } else {
            value
        };
        let encoded: String = url::form_urlencoded::byte_serialize(value.as_bytes())
            .collect::<String>()
            .replace('+', "%20");
        self.path = self.path.replace(&format!("{{{name}}}"), &encoded);
        self
    }

    /// Adds a query parameter.
    #[must_use]
    pub fn query(mut self, name: &str, value: impl ToString) -> Self {
        self.query.push((name.into(), value.to_string()));
        self
    }

    /// Adds a query parameter if it has a value.
    #[must_use]
    pub fn query_if(self, name: &str, value: Option<impl ToString>) -> Self {
        match value {
            Some(value) => self.query(name, value),
            None => self,
        }
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Sets a JSON body.
    #[must_use]
    pub fn json(self, value: &Value) -> Self {
        self.json_bytes(value.to_string().into_bytes())
    }

    /// Sets a JSON body that is already encoded.
    #[must_use]
    pub fn json_bytes(mut self, bytes: Vec<u8>) -> Self {
        self.body = Some(Body {
            content_type: "application/json",
            bytes,
        });
        self
    }

    /// Sets a byte body.
    #[must_use]
    pub fn bytes(mut self, bytes: Vec<u8>) -> Self {
        self.body = Some(Body {
            content_type: "application/octet-stream",
            bytes,
        });
        self
    }

    /// Sets the longest wait while all concurrent jobs are in use; `None` for no wait.
    #[must_use]
    pub fn wait_for_slot(mut self, longest: Option<Duration>) -> Self {
        self.slot_wait = longest;
        self
    }

    /// Sends the request, and repeats it as the retry table says.
    pub fn send(self) -> Result<Response> {
        let url = self.url()?;
        let has_key = self.has_header("idempotency-key");
        let mut retries = Retries::new(&self.operation, has_key, self.slot_wait);
        loop {
            self.wait_for_rate_limit();
            let (failure, error) = match self.attempt(&url) {
                Ok(response) => return Ok(response),
                Err(attempt) => attempt,
            };
            let cause = Cause {
                error: &error,
                retry_after: failure.retry_after,
                limit: failure.limit.as_deref(),
            };
            let Some(delay) = retries.next(cause) else {
                return Err(failure);
            };
            let seconds = delay.as_secs_f64();
            if failure.limit.is_some() {
                let message = format!("all concurrent jobs are in use, retrying in {seconds:.0} s");
                self.client.messages.progress(&message);
            } else {
                let message = format!("{error}, retrying in {seconds:.1} s");
                self.client.messages.verbose(&message);
            }
            thread::sleep(delay);
        }
    }

    /// Sends the request and returns the body as JSON.
    pub fn send_json(self) -> Result<Value> {
        self.send()?.json()
    }

    fn has_header(&self, wanted: &str) -> bool {
        let mut names = self.headers.iter().map(|(name, _)| name);
        names.any(|name| name.eq_ignore_ascii_case(wanted))
    }

    fn url(&self) -> Result<Url> {
        let text = format!("{}{}", self.client.base_url, self.path);
        let mut url = Url::parse(&text)
            .map_err(|error| Failure::new(Exit::Usage, format!("{text} is not a URL: {error}")))?;
        if !self.query.is_empty() {
            url.query_pairs_mut().extend_pairs(&self.query);
        }
        Ok(url)
    }

    fn wait_for_rate_limit(&self) {
        let full_until = self.client.state().full_until;
        let left = full_until.map(|time| time.saturating_duration_since(Instant::now()));
        if let Some(delay) = left.filter(|delay| !delay.is_zero()) {
            let seconds = delay.as_secs_f64();
            let message = format!("the rate limit is reached, waiting {seconds:.1} s");
            self.client.messages.verbose(&message);
            thread::sleep(delay);
        }
    }

    /// Sends the request once. An error has the name with which the retry table knows it.
    fn attempt(&self, url: &Url) -> Result<Response, (Box<Failure>, String)> {
        let started = Instant::now();
        let result = self.exchange(url);
        let elapsed = started.elapsed().as_secs_f64();
        // The query can have text that is not for logs.
        let path = self.path.split('?').next().unwrap_or_default();
        let line = format!("{} {path}", self.operation.method);
        let (status, headers, body) = match result {
            Ok(response) => response,
            Err(error) => {
                let name = error_name(&error);
                self.client
                    .messages
                    .verbose(&format!("{line}: {error} after {elapsed:.3} s"));
                let base_url = &self.client.base_url;
                let failure = if name == NOT_SENT {
                    Failure::new(Exit::Other, format!("the request cannot be sent: {error}"))
                        .with_advice("Check the address, its certificate, and the credential.")
                } else {
                    Failure::new(
                        Exit::Unavailable,
                        format!("no response from {base_url}: {error}"),
                    )
                    .with_advice("Check the address and the network, and try again.")
                };
                return Err((failure, name.into()));
            }
        };
        let request_id = text_of(&headers, "x-request-id");
        self.client.messages.verbose(&format!(
            "{line}: {status} after {elapsed:.3} s, request {}",
            request_id.as_deref().unwrap_or("unknown")
        ));
        self.observe(status, &headers);
        if status < 300 {
            return Ok(Response { body });
        }
        if status < 400 {
            let location = text_of(&headers, "location").unwrap_or_default();
            let message = format!("the address redirects to {location}");
            let failure = Failure::new(Exit::Usage, message).with_advice("Use that address.");
            return Err((failure, "redirect".into()));
        }
        let retry_after = text_of(&headers, "retry-after")
            .and_then(|text| text.parse().ok())
            .filter(|seconds: &f64| seconds.is_finite() && *seconds >= 0.0);
        let failure = Failure::from_response(status, &body, request_id, retry_after);
        let name = failure.code.clone().unwrap_or_default();
        Err((failure, name))
    }

    fn exchange(&self, url: &Url) -> Result<(u16, HeaderMap, Vec<u8>), HttpError> {
        let client = self.client;
        let agent = if retries::is_long(&self.operation) {
            &client.long_request_agent
        } else {
            &client.agent
        };
        let mut request = HttpRequest::builder()
            .method(Method::from_bytes(self.operation.method.as_bytes()).map_err(other)?)
            .uri(url.as_str());
        if let Some(credential) = &client.credential {
            request = request.header("Authorization", format!("Bearer {credential}"));
        }
        if let Some(org) = &client.org {
            request = request.header("X-Org-Id", org);
        }
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        if let Some(body) = &self.body
            && !self.has_header("content-type")
        {
            request = request.header("Content-Type", body.content_type);
        }
        let bytes = self.body.as_ref().map_or(&[][..], |body| &body.bytes);
        let mut response = agent.run(request.body(bytes)?)?;
        let body = response
            .body_mut()
            .with_config()
            .limit(u64::MAX)
            .read_to_vec()?;
        let (parts, _) = response.into_parts();
        Ok((parts.status.as_u16(), parts.headers, body))
    }

    /// Remembers the rate limit, and warns about a key that expires soon.
    fn observe(&self, status: u16, headers: &HeaderMap) {
        let mut state = self.client.state();
        // Without a valid credential, the headers describe the network address's limit.
        if status != 401 && text_of(headers, "x-ratelimit-remaining").as_deref() == Some("0") {
            state.full_until = Some(Instant::now() + time_to_reset(headers));
        }
        if let Some(expires_at) = text_of(headers, "x-key-expires-at")
            && !state.has_warned_of_expiry
        {
            state.has_warned_of_expiry = true;
            let message = format!("The API key expires at {expires_at}.");
            self.client.messages.warn(&message);
        }
    }
}

/// Creates an agent. Redirects are not followed, so that a credential is sent to its address only.
fn agent(timeouts: RequestTimeouts, proxy: Option<Proxy>) -> Agent {
    let tls = TlsConfig::builder()
        .root_certs(RootCerts::PlatformVerifier)
        .unversioned_rustls_crypto_provider(Arc::new(ring::default_provider()))
        .build();
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .max_idle_connections_per_host(retries::TABLE.upload.concurrent_parts)
        .user_agent(concat!("assay-cli/", env!("CARGO_PKG_VERSION")))
        .tls_config(tls)
        .proxy(proxy)
        .timeout_resolve(Some(timeouts.connect))
        .timeout_connect(Some(timeouts.connect))
        .timeout_send_body(Some(timeouts.request))
        .timeout_recv_response(Some(timeouts.request))
        .timeout_per_read(Some(timeouts.request))
        .build();
    config.into()
}

fn other(error: impl std::error::Error + Send + Sync + 'static) -> HttpError {
    HttpError::Other(Box::new(error))
}

fn text_of(headers: &HeaderMap, name: &str) -> Option<String> {
    Some(headers.get(name)?.to_str().ok()?.to_owned())
}

/// Returns the time until `X-RateLimit-Reset`, by the server's clock if it sends its time.
#[expect(clippy::disallowed_methods, reason = "a client has no database")]
fn time_to_reset(headers: &HeaderMap) -> Duration {
    let date = text_of(headers, "date").and_then(|date| httpdate::parse_http_date(&date).ok());
    let now = date.unwrap_or_else(SystemTime::now);
    let reset = text_of(headers, "x-ratelimit-reset").and_then(|text| text.parse().ok());
    let reset = SystemTime::UNIX_EPOCH + Duration::from_secs(reset.unwrap_or(0));
    let left = reset.duration_since(now).unwrap_or_default();
    left.min(retries::rate_limit_window())
}

/// An error's name after which repeating does not help: the table has no rule for it.
const NOT_SENT: &str = "not_sent";

/// Returns a connection error's name in the retry table.
fn error_name(error: &HttpError) -> &'static str {
    use std::io::ErrorKind;
    match error {
        HttpError::HostNotFound
        | HttpError::ConnectionFailed
        | HttpError::ConnectProxyFailed(_)
        | HttpError::Timeout(Timeout::Resolve | Timeout::Connect) => "connection_not_established",
        HttpError::Io(error)
            if matches!(
                error.kind(),
                ErrorKind::ConnectionRefused
                    | ErrorKind::HostUnreachable
                    | ErrorKind::NetworkUnreachable
            ) =>
        {
            "connection_not_established"
        }
        // A certificate that is not valid arrives as a connection error.
        HttpError::Io(error)
            if error
                .get_ref()
                .and_then(<dyn std::error::Error + Send + Sync>::downcast_ref::<rustls::Error>)
                .is_some() =>
        {
            NOT_SENT
        }
        HttpError::Timeout(_) => "timeout",
        HttpError::Io(_) | HttpError::Protocol(_) | HttpError::BodyStalled => "connection_broken",
        _ => NOT_SENT,
    }
}
