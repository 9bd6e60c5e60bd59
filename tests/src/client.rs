//! A small REST client, for the demonstration and the tests.

use std::time::Duration;

use serde_json::Value;

use crate::servers::Trouble;

/// Calls one api with one credential.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    url: String,
    token: Option<String>,
}

/// An answer, read whole.
#[derive(Debug, Clone)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// Its headers.
    pub headers: reqwest::header::HeaderMap,
    /// Its body; null when it has none, a string when it is not JSON.
    pub body: Value,
}

impl Answer {
    /// A header, or nothing when it is not there.
    pub fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    }
}

impl Client {
    /// A client of the api at `url`, such as `http://127.0.0.1:8080`.
    pub fn new(url: impl Into<String>, token: Option<&str>) -> Self {
        Self {
            http: reqwest::Client::new(),
            url: url.into(),
            token: token.map(str::to_owned),
        }
    }

    /// Its credential.
    pub fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// A request that is yet to be sent.
    pub fn request(&self, method: &str, path: &str) -> reqwest::RequestBuilder {
        let method = method.parse().unwrap_or(reqwest::Method::GET);
        let request = self.http.request(method, format!("{}{path}", self.url));
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    /// Sends a request and reads the answer.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn send(&self, request: reqwest::RequestBuilder) -> Result<Answer, Trouble> {
        let answer = request
            .send()
            .await
            .map_err(Trouble::because("the api does not answer"))?;
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        let text = answer
            .text()
            .await
            .map_err(Trouble::because("the api's answer broke off"))?;
        let body = if text.is_empty() {
            Value::Null
        } else {
            serde_json::from_str(&text).unwrap_or(Value::String(text))
        };
        Ok(Answer {
            status,
            headers,
            body,
        })
    }

    /// `GET path`
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn get(&self, path: &str) -> Result<Answer, Trouble> {
        self.send(self.request("GET", path)).await
    }

    /// `POST path` with a JSON body.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn post(&self, path: &str, body: &Value) -> Result<Answer, Trouble> {
        self.send(self.request("POST", path).json(body)).await
    }

    /// Polls a job until it has ended. `seen` is told each status.
    ///
    /// # Errors
    /// When there is no such job, or it does not end within `patience`.
    pub async fn finished(
        &self,
        job_id: &str,
        patience: Duration,
        seen: &dyn Fn(&str),
    ) -> Result<Value, Trouble> {
        let began = std::time::Instant::now();
        loop {
            let answer = self.get(&format!("/v1/jobs/{job_id}")).await?;
            let status = answer.body["status"].as_str().unwrap_or_default();
            seen(status);
            match status {
                "succeeded" | "failed" | "cancelled" => return Ok(answer.body),
                _ if answer.status != 200 || began.elapsed() > patience => {
                    return Err(Trouble::new(format!(
                        "the job {job_id} did not end: {}",
                        answer.body
                    )));
                }
                // The longer it takes, the less often: how often one may ask is limited.
                _ => {
                    tokio::time::sleep((began.elapsed() / 20).max(Duration::from_millis(10))).await;
                }
            }
        }
    }
}
