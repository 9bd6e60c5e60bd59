//! The trace that a request belongs to (W3C Trace Context, header `traceparent`).

use assay_core::spans::{Place, SpanId};
use http::HeaderMap;

/// A request's place in its trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceParent {
    /// The request's own place.
    pub place: Place,
    /// The client's span; none when the trace begins here.
    pub parent: Option<SpanId>,
}

impl TraceParent {
    /// In the client's trace, if it sent a well-formed one; otherwise in a new one.
    pub fn of(headers: &HeaderMap) -> Self {
        let given = headers.get("traceparent").and_then(|value| value.to_str().ok()).and_then(Self::read);
        match given {
            Some(client) => Self { place: client.child(), parent: Some(client.span_id) },
            None => Self { place: Place::new(), parent: None },
        }
    }

    /// The client's place.
    pub fn read(text: &str) -> Option<Place> {
        let mut parts = text.split('-');
        let (version, trace_id, span_id, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let hex =
            |text: &str, length| text.len() == length && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
        // All zeros is no id; version ff is forbidden, and 00 has no further parts.
        let some = |text: &str| text.bytes().any(|byte| byte != b'0');
        let well_formed =
            hex(version, 2) && version != "ff" && hex(trace_id, 32) && some(trace_id) && hex(span_id, 16) && some(span_id) && hex(flags, 2);
        if well_formed && (version != "00" || parts.next().is_none()) { Place::read(trace_id, span_id) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_well_formed_header_is_taken() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert_eq!(TraceParent::read(good).unwrap().trace_id.to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
        for bad in [
            "",
            "00",
            &good.to_uppercase(),
            &good.replace("00f067aa0ba902b7", "0000000000000000"),
            &format!("{good}-x"),
            &good.replacen("00", "ff", 1),
        ] {
            assert_eq!(TraceParent::read(bad), None, "{bad}");
        }
    }
}
