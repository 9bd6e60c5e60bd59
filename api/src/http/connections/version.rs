//! Detects a connection's HTTP version.

use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::timeouts::HEADERS_TIMEOUT;

/// A connection's HTTP version.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum HttpVersion {
    Http1,
    Http2,
}

/// Every HTTP/2 connection's first bytes.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

impl HttpVersion {
    /// Waits for a connection's first bytes and returns its version. hyper's own timeouts
    /// start only after that. Returns `None` if the connection closes or sends too little within
    /// [`HEADERS_TIMEOUT`].
    pub(super) async fn detect(stream: &TcpStream) -> Option<Self> {
        let detected = async {
            let mut start = [0; PREFACE.len()];
            loop {
                match stream.peek(&mut start).await {
                    Ok(0) | Err(_) => return None,
                    Ok(n) if !PREFACE.starts_with(&start[..n]) => return Some(Self::Http1),
                    Ok(n) if n == PREFACE.len() => return Some(Self::Http2),
                    Ok(_) => sleep(Duration::from_millis(20)).await,
                }
            }
        };
        timeout(HEADERS_TIMEOUT, detected).await.ok().flatten()
    }
}
