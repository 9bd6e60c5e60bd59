//! A call's deadline, from the header `grpc-timeout`.
//!
//! Tonic's server has a timer for this header too, but ends the call with `CANCELLED`, which
//! callers do not retry. This deadline is a little earlier, so that its response arrives first.

use std::time::{Duration, Instant};

use tonic::{Request, Status};

/// Longest time by which a response comes before the caller's own timer.
const MARGIN_MAX: Duration = Duration::from_millis(5);

/// The time at which nobody waits for the response any more.
#[derive(Debug, Clone, Copy)]
pub struct Deadline(pub Instant);

/// Adds the deadline to a request, before its body is read.
pub fn read_deadline(mut request: Request<()>) -> Result<Request<()>, Status> {
    if let Some(value) = request.metadata().get("grpc-timeout") {
        let timeout = value.to_str().ok().and_then(parse_timeout).ok_or_else(|| {
            Status::invalid_argument(
                "The header `grpc-timeout` must be up to 8 digits and a unit: H, M, S, m, u or n.",
            )
        })?;
        let margin = MARGIN_MAX.min(timeout / 4);
        if let Some(deadline) = Instant::now().checked_add(timeout.saturating_sub(margin)) {
            request.extensions_mut().insert(Deadline(deadline));
        }
    }
    Ok(request)
}

/// Reads a value such as `5000m`, as the gRPC specification defines it.
fn parse_timeout(text: &str) -> Option<Duration> {
    let unit = text.chars().next_back()?;
    let digits = text.strip_suffix(unit)?;
    if digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    match unit {
        'H' => Some(Duration::from_secs(count * 60 * 60)),
        'M' => Some(Duration::from_secs(count * 60)),
        'S' => Some(Duration::from_secs(count)),
        'm' => Some(Duration::from_millis(count)),
        'u' => Some(Duration::from_micros(count)),
        'n' => Some(Duration::from_nanos(count)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_read_in_all_units() {
        for (text, expected) in [
            ("2H", Duration::from_secs(7200)),
            ("2M", Duration::from_secs(120)),
            ("2S", Duration::from_secs(2)),
            ("99999999m", Duration::from_millis(99_999_999)),
            ("2u", Duration::from_micros(2)),
            ("0n", Duration::ZERO),
        ] {
            assert_eq!(parse_timeout(text), Some(expected), "{text}");
        }
        for text in [
            "",
            "S",
            "1",
            "1s",
            "-1S",
            "+1S",
            "100000000m",
            "1.5S",
            "1 S",
            "1é",
        ] {
            assert_eq!(parse_timeout(text), None, "{text}");
        }
    }

    #[test]
    fn deadline_is_before_the_timeout() {
        let mut request = Request::new(());
        request.set_timeout(Duration::from_secs(10));
        let before = Instant::now();
        let request = read_deadline(request).unwrap();
        let Deadline(deadline) = *request.extensions().get().unwrap();
        assert!(deadline >= before + Duration::from_millis(9_995));
        let request = read_deadline(Request::new(())).unwrap();
        assert!(request.extensions().get::<Deadline>().is_none());
        let mut request = Request::new(());
        request
            .metadata_mut()
            .insert("grpc-timeout", "soon".parse().unwrap());
        assert!(read_deadline(request).is_err());
    }
}
