//! A request's timeout, on every protocol: the client's own `grpc-timeout`, at most
//! [`REQUEST_TIMEOUT`], or [`LARGE_REQUEST_TIMEOUT`] for requests that send or read much. The time
//! in which the body arrives is included.

use std::time::Duration;

use assay_core::{Code, Error};
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::HeaderMap;

use super::traffic_class::{TrafficClass, traffic_class};
use crate::http::error_response::Failure;

/// An ordinary request's longest time. It exceeds the 30 s for which a request may wait for a job.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(40);

/// Longest time for a request that sends or reads much: an upload part may arrive over a slow
/// connection, and reading a large upload takes minutes.
const LARGE_REQUEST_TIMEOUT: Duration = Duration::from_secs(15 * 60);

/// Returns 503 (`DEADLINE_EXCEEDED` for gRPC) if a request takes longer than its timeout.
pub async fn deadline(request: Request, next: Next) -> Response {
    let max = if traffic_class(&request) == TrafficClass::Large {
        LARGE_REQUEST_TIMEOUT
    } else {
        REQUEST_TIMEOUT
    };
    let timeout = client_timeout(request.headers()).map_or(max, |requested| requested.min(max));
    match tokio::time::timeout(timeout, next.run(request)).await {
        Ok(response) => response,
        Err(_) => {
            let message = "The request took longer than its timeout. Retry with backoff.";
            let error = Error::new(Code::Unavailable, message).with_retry_after(1);
            Failure {
                grpc_status: Some(tonic::Code::DeadlineExceeded),
                ..error.into()
            }
            .into_response()
        }
    }
}

/// Parses the header `grpc-timeout`: one to eight digits and a unit.
pub fn client_timeout(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let is_number =
        (1..=8).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    let count: u64 = digits.parse().ok().filter(|_| is_number)?;
    match unit {
        "H" => Some(Duration::from_secs(count * 3600)),
        "M" => Some(Duration::from_secs(count * 60)),
        "S" => Some(Duration::from_secs(count)),
        "m" => Some(Duration::from_millis(count)),
        "u" => Some(Duration::from_micros(count)),
        "n" => Some(Duration::from_nanos(count)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grpc_timeout_is_digits_and_unit() {
        let read = |text: &str| {
            client_timeout(&HeaderMap::from_iter([(
                "grpc-timeout".parse().unwrap(),
                text.parse().unwrap(),
            )]))
        };
        assert_eq!(read("250m"), Some(Duration::from_millis(250)));
        assert_eq!(read("1H"), Some(Duration::from_secs(3600)));
        for bad in ["", "m", "5", "123456789S", "-1S", "+1S", "1X"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
