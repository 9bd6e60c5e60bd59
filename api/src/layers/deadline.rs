//! How long a request may take on either protocol: no more than the caller will wait, as `grpc-timeout` says, and no more
//! than [`REQUEST_TIMEOUT`], or [`LARGE`] where much is sent or read. Bodies that do not arrive fall under it, too.

use std::time::Duration;

use assay_core::{Code, Error};
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::HeaderMap;

use super::traffic_class::TrafficClass;
use crate::http::error_response::Failure;

/// Waiting for a job may take 30 s; the rest is moments.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(40);

/// A part of an upload may come on a slow line, and a large upload takes its time to be read.
const LARGE: Duration = Duration::from_secs(15 * 60);

/// The layer.
pub async fn deadline(request: Request, next: Next) -> Response {
    let longest = if TrafficClass::of(&request) == TrafficClass::Large {
        LARGE
    } else {
        REQUEST_TIMEOUT
    };
    let allowed = client_timeout(request.headers()).map_or(longest, |asked| asked.min(longest));
    match tokio::time::timeout(allowed, next.run(request)).await {
        Ok(response) => response,
        Err(_) => {
            let error = Error {
                retry_after: Some(1),
                ..Error::new(
                    Code::Unavailable,
                    "The request took longer than it may. Retry with backoff.",
                )
            };
            Failure {
                grpc_status: Some(tonic::Code::DeadlineExceeded),
                ..error.into()
            }
            .into_response()
        }
    }
}

/// What `grpc-timeout` says: at most eight digits and a unit.
pub fn client_timeout(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let well_formed =
        (1..=8).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    let count: u64 = digits.parse().ok().filter(|_| well_formed)?;
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
    fn a_timeout_is_digits_and_a_unit() {
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
