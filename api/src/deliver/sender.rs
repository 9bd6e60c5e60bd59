//! One attempt: resolves the receiver's name, checks its addresses, connects to one, and
//! sends the signed event.
//!
//! The steps are our own, because a library's HTTP client would resolve the name again, keep
//! connections, follow redirects or use the environment's proxy.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use assay_core::model::webhook::DeliveryError;
use assay_core::model::webhook_secret::WebhookKey;
use assay_core::model::webhook_target::TargetRules;
use assay_core::store::delivery::ClaimedDelivery;
use assay_core::{Error, Result, Timestamp};
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use url::{Host, Url};

use crate::background::dns::Dns;

/// An attempt's time limit.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(15);

/// Time limit for connecting to one address, if the host has several.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A response's maximum header size, in bytes.
const RESPONSE_HEADERS_MAX: usize = 16 * 1024;

/// The attempt sender.
pub struct Sender {
    dns: Dns,
    targets: TargetRules,
    key: WebhookKey,
    tls: TlsConnector,
}

/// A receiver's response. Its body is not read.
#[derive(Debug, PartialEq, Eq)]
pub struct Received {
    /// The status.
    pub status: u16,
    /// The time that the receiver asks to wait before the next attempt.
    pub retry_after: Option<Duration>,
}

impl Sender {
    /// Creates a sender that trusts the system's certificate authorities.
    ///
    /// # Errors
    /// When TLS cannot be configured.
    pub fn new(key: WebhookKey, targets: TargetRules, dns: Dns) -> Result<Self> {
        let found = rustls_native_certs::load_native_certs();
        let mut roots = RootCertStore::empty();
        let (trusted, _) = roots.add_parsable_certificates(found.certs);
        if trusted == 0 {
            tracing::warn!("no certificate authorities found, webhooks over https fail");
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(Error::internal)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self {
            dns,
            targets,
            key,
            tls: TlsConnector::from(Arc::new(config)),
        })
    }

    /// Makes an attempt.
    ///
    /// # Errors
    /// The reason why there is no response.
    pub async fn send(&self, claimed: &ClaimedDelivery) -> Result<Received, DeliveryError> {
        let deadline = Instant::now() + ATTEMPT_TIMEOUT;
        timeout_at(deadline, self.try_send(claimed))
            .await
            .unwrap_or(Err(DeliveryError::Timeout))
    }

    async fn try_send(&self, claimed: &ClaimedDelivery) -> Result<Received, DeliveryError> {
        // The rules can have changed since the URL was stored.
        let url = Url::parse(&claimed.url).map_err(|_| DeliveryError::Address)?;
        if url.scheme() != "https" && !self.targets.allows_http {
            return Err(DeliveryError::Address);
        }
        let addresses = self.addresses(&url).await?;
        let port = url.port_or_known_default().ok_or(DeliveryError::Address)?;
        let stream = connect(&addresses, port).await?;
        let request = self.request(&url, claimed).map_err(|error| {
            tracing::error!(
                error = error.log_text(),
                "request of a delivery cannot be built"
            );
            DeliveryError::Connect
        })?;
        let response = match url.scheme() {
            "https" => {
                let name = server_name(&url).ok_or(DeliveryError::Tls)?;
                let stream = self.tls.connect(name, stream).await;
                exchange(stream.map_err(|_| DeliveryError::Tls)?, request).await
            }
            _ => exchange(stream, request).await,
        };
        let response = response.map_err(|_| DeliveryError::Connect)?;
        Ok(Received {
            status: response.status().as_u16(),
            retry_after: retry_after(response.headers()),
        })
    }

    /// Returns the receiver's addresses, which are all allowed.
    async fn addresses(&self, url: &Url) -> Result<Vec<IpAddr>, DeliveryError> {
        let addresses = match url.host().ok_or(DeliveryError::Address)? {
            Host::Ipv4(address) => vec![IpAddr::V4(address)],
            Host::Ipv6(address) => vec![IpAddr::V6(address)],
            Host::Domain(name) => {
                let found = self.dns.addresses(name).await;
                found.map_err(|_| DeliveryError::Dns)?
            }
        };
        if addresses.is_empty() {
            return Err(DeliveryError::Dns);
        }
        match addresses.iter().all(|address| self.targets.allow(*address)) {
            true => Ok(addresses),
            false => Err(DeliveryError::Address),
        }
    }

    /// Returns the signed request, as Standard Webhooks describes it.
    fn request(&self, url: &Url, claimed: &ClaimedDelivery) -> Result<Request<Full<Bytes>>> {
        let ClaimedDelivery {
            webhook_id,
            event_id,
            body,
            secret_generation,
            has_previous_secret,
            ..
        } = claimed;
        let seconds = Timestamp::now().unix_seconds();
        let previous = has_previous_secret.then_some(secret_generation - 1);
        let generations = [Some(*secret_generation), previous];
        let signatures = generations.into_iter().flatten().map(|generation| {
            let secret = self.key.secret(webhook_id, generation)?;
            secret.sign(event_id, seconds, body.as_bytes())
        });
        let signatures: Vec<String> = signatures.collect::<Result<_>>()?;
        let authority = match (url.host_str(), url.port()) {
            (Some(host), Some(port)) => format!("{host}:{port}"),
            (host, _) => host.unwrap_or_default().to_owned(),
        };
        Request::post(&url[url::Position::BeforePath..url::Position::AfterQuery])
            .header(HOST, authority)
            .header(USER_AGENT, concat!("Assay/", env!("CARGO_PKG_VERSION")))
            .header(CONTENT_TYPE, "application/json")
            .header(CONTENT_LENGTH, body.len())
            .header("webhook-id", event_id.as_str())
            .header("webhook-timestamp", seconds)
            .header("webhook-signature", signatures.join(" "))
            .body(Full::from(Bytes::from(body.clone())))
            .map_err(Error::internal)
    }
}

/// Connects to the first address that accepts the connection.
async fn connect(addresses: &[IpAddr], port: u16) -> Result<TcpStream, DeliveryError> {
    for address in addresses {
        let connecting = TcpStream::connect(SocketAddr::new(*address, port));
        if let Ok(Ok(stream)) = tokio::time::timeout(CONNECT_TIMEOUT, connecting).await {
            return Ok(stream);
        }
    }
    Err(DeliveryError::Connect)
}

/// Returns the name that the receiver's certificate must have.
fn server_name(url: &Url) -> Option<ServerName<'static>> {
    match url.host()? {
        Host::Domain(name) => ServerName::try_from(name.to_owned()).ok(),
        Host::Ipv4(address) => Some(ServerName::from(IpAddr::V4(address))),
        Host::Ipv6(address) => Some(ServerName::from(IpAddr::V6(address))),
    }
}

/// Sends a request, and returns the response without its body. The connection is closed then.
async fn exchange<S>(
    stream: S,
    request: Request<Full<Bytes>>,
) -> Result<Response<Incoming>, hyper::Error>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut client, connection) = hyper::client::conn::http1::Builder::new()
        .max_buf_size(RESPONSE_HEADERS_MAX)
        .handshake(TokioIo::new(stream))
        .await?;
    tokio::pin! {
        let response = client.send_request(request);
    }
    tokio::select! {
        response = &mut response => response,
        // The response can be complete when the connection ends. If not, it is the error.
        _ = connection => response.await,
    }
}

/// Returns the delay that a receiver asks for, in seconds or until a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let at = httpdate::parse_http_date(text).ok()?;
    let now = Timestamp::now().unix_seconds();
    let at = at.duration_since(std::time::UNIX_EPOCH).ok()?.as_secs();
    let seconds = at.checked_sub(u64::try_from(now).ok()?)?;
    Some(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_of_a_receiver_is_seconds_or_a_date() {
        let delay = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, text.parse().unwrap());
            retry_after(&headers)
        };
        assert_eq!(delay("120"), Some(Duration::from_secs(120)));
        assert_eq!(delay("Wed, 21 Oct 2015 07:28:00 GMT"), None, "in the past");
        let future = delay("Fri, 31 Dec 9999 23:59:59 GMT").unwrap();
        assert!(future > Duration::from_secs(1_000_000));
        for bad in ["", "soon", "-5", "1.5"] {
            assert_eq!(delay(bad), None, "{bad}");
        }
    }
}
