//! A small REST client for the demonstration and the tests.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::servers::Trouble;
use crate::wait::wait_timeout;

/// The time between a response of 503 and the next attempt. The API asks for a second, but tests wait
/// for most of what it refuses.
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// Maximum number of a request body's characters that a failed assertion prints.
const SUMMARY_CHARACTERS: usize = 300;

/// A REST client of one API with at most one credential.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    url: String,
    token: Option<String>,
    retries_unavailable: bool,
}

/// A response with its complete body.
#[derive(Debug, Clone)]
pub struct Response {
    /// Method, path and body of the request, for messages of failed assertions.
    pub request: String,
    /// The HTTP status code.
    pub status: u16,
    /// All response headers.
    pub headers: reqwest::header::HeaderMap,
    /// The body as JSON: null if it is empty, a string if it is not valid JSON.
    pub body: Value,
}

impl Response {
    /// Returns a header's value, or an empty string if it is missing or not visible ASCII.
    pub fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    }
}

/// Returns the builder of an HTTP client that trusts no authority. Otherwise each client reads and
/// parses the certificates of all authorities, which takes 20 ms, longer than a test's requests.
pub fn http_builder() -> reqwest::ClientBuilder {
    // An error means that a provider is selected already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().tls_certs_only([])
}

/// Returns method, path, query and the first characters of the body.
fn summarize(request: &reqwest::Request) -> String {
    let body = request.body().and_then(reqwest::Body::as_bytes);
    let body: String = String::from_utf8_lossy(body.unwrap_or_default())
        .chars()
        .take(SUMMARY_CHARACTERS)
        .collect();
    let url = request.url();
    let query = url.query().map(|query| format!("?{query}"));
    let path = format!("{}{}", url.path(), query.unwrap_or_default());
    format!("{} {path} {body}", request.method())
}

impl Client {
    /// Creates a client of the API at `url`, such as `http://127.0.0.1:8080`, that sends
    /// `token` as a bearer token. It sends a request again after 503, as clients should: a busy API may
    /// reject a request before it starts.
    pub fn new(url: impl Into<String>, token: Option<&str>) -> Self {
        Self {
            http: http_builder().build().unwrap_or_default(),
            url: url.into(),
            token: token.map(str::to_owned),
            retries_unavailable: true,
        }
    }

    /// Returns a client that returns the first response, even if it is 503.
    #[must_use]
    pub fn without_retries(&self) -> Self {
        Self {
            retries_unavailable: false,
            ..self.clone()
        }
    }

    /// Returns the bearer token that the client sends.
    pub fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// Builds a request with the client's credential. [`Client::send`] sends it.
    pub fn request(&self, method: &str, path: &str) -> reqwest::RequestBuilder {
        let method = method.parse().unwrap_or(reqwest::Method::GET);
        let request = self.http.request(method, format!("{}{path}", self.url));
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    /// Sends a request and reads the complete response. A client with retries returns 503 only if
    /// all responses are 503 during [`wait_timeout`], or if the body is a stream.
    ///
    /// # Errors
    /// If the response does not arrive within [`wait_timeout`], or if its body is truncated. An HTTP
    /// error status is not an error.
    pub async fn send(&self, request: reqwest::RequestBuilder) -> Result<Response, Trouble> {
        let began = Instant::now();
        while self.retries_unavailable
            && began.elapsed() < wait_timeout()
            && let Some(copy) = request.try_clone()
        {
            let response = Self::send_once(copy).await?;
            if response.status != 503 {
                return Ok(response);
            }
            tokio::time::sleep(RETRY_DELAY).await;
        }
        Self::send_once(request).await
    }

    async fn send_once(request: reqwest::RequestBuilder) -> Result<Response, Trouble> {
        tokio::time::timeout(wait_timeout(), Self::exchange(request))
            .await
            .unwrap_or_else(|_| {
                let seconds = wait_timeout().as_secs();
                Err(Trouble::new(format!(
                    "the API did not respond within {seconds} s"
                )))
            })
    }

    async fn exchange(request: reqwest::RequestBuilder) -> Result<Response, Trouble> {
        let (http, request) = request.build_split();
        let request = request.map_err(Trouble::because("the request is invalid"))?;
        let summary = summarize(&request);
        let response = http
            .execute(request)
            .await
            .map_err(|error| Trouble::new(format!("the API did not respond: {error:?}")))?;
        let status = response.status().as_u16();
        let headers = response.headers().clone();
        let text = response
            .text()
            .await
            .map_err(Trouble::because("the API's response is truncated"))?;
        let body = if text.is_empty() {
            Value::Null
        } else {
            serde_json::from_str(&text).unwrap_or(Value::String(text))
        };
        Ok(Response {
            request: summary,
            status,
            headers,
            body,
        })
    }

    /// Sends `GET path`.
    ///
    /// # Errors
    /// See [`Client::send`].
    pub async fn get(&self, path: &str) -> Result<Response, Trouble> {
        self.send(self.request("GET", path)).await
    }

    /// Sends `POST path` with a JSON body.
    ///
    /// # Errors
    /// See [`Client::send`].
    pub async fn post(&self, path: &str, body: &Value) -> Result<Response, Trouble> {
        self.send(self.request("POST", path).json(body)).await
    }

    /// Sends `PATCH path` with a JSON body.
    ///
    /// # Errors
    /// See [`Client::send`].
    pub async fn patch(&self, path: &str, body: &Value) -> Result<Response, Trouble> {
        self.send(self.request("PATCH", path).json(body)).await
    }

    /// Sends `DELETE path`.
    ///
    /// # Errors
    /// See [`Client::send`].
    pub async fn delete(&self, path: &str) -> Result<Response, Trouble> {
        self.send(self.request("DELETE", path)).await
    }

    /// Polls a job until it is in a terminal state, and returns it. Calls `on_status` with the
    /// status of each poll.
    ///
    /// # Errors
    /// If the job cannot be read, or if its status, attempts and progress stay the same for
    /// [`wait_timeout`].
    pub async fn wait_until_finished(
        &self,
        job_id: &str,
        on_status: &dyn Fn(&str),
    ) -> Result<Value, Trouble> {
        let start = Instant::now();
        let mut last_change = start;
        let mut known = None;
        loop {
            let response = self.get(&format!("/v1/jobs/{job_id}")).await?;
            let status = response.body["status"].as_str().unwrap_or_default();
            on_status(status);
            if response.status == 200 && ["succeeded", "failed", "cancelled"].contains(&status) {
                return Ok(response.body);
            }
            let state = ["status", "attempts", "progress"].map(|name| response.body[name].clone());
            if known.as_ref() != Some(&state) {
                known = Some(state);
                last_change = Instant::now();
            }
            if response.status != 200 || last_change.elapsed() > wait_timeout() {
                return Err(Trouble::new(format!(
                    "job {job_id} is not finished: {}",
                    response.body
                )));
            }
            // Polls less often the longer it takes, as polls count against the rate limit.
            tokio::time::sleep((start.elapsed() / 8).max(Duration::from_millis(10))).await;
        }
    }
}
