//! The trace that a request belongs to (W3C Trace Context, header `traceparent`).
//!
//! The header is parsed here and not by OpenTelemetry's `TraceContextPropagator`, which is less
//! strict than the specification: it accepts ids and versions with any length, such as `0-1-1-1`,
//! and a trailing dash in version 00.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use assay_core::model::span_context::{SpanContext, SpanId, TraceId};
use http::HeaderMap;

/// A request's trace.
///
/// Until the caller has presented a valid credential, the request has its own trace, which
/// links to the caller's span. Otherwise anybody could add spans to others' traces. Clones
/// share the state.
#[derive(Clone)]
pub struct Trace {
    claimed: TraceParent,
    own: TraceId,
    is_joined: Arc<AtomicBool>,
}

impl Trace {
    /// Returns the trace for a request whose caller is not authenticated yet.
    pub fn of(headers: &HeaderMap) -> Self {
        let claimed = TraceParent::of(headers);
        let own = if claimed.parent.is_some() {
            SpanContext::new().trace_id
        } else {
            claimed.span_context.trace_id
        };
        Self {
            claimed,
            own,
            is_joined: Arc::default(),
        }
    }

    /// Joins the caller's trace. Call it once the caller's credential is known to be valid.
    pub fn join(&self) {
        self.is_joined.store(true, Ordering::Relaxed);
    }

    /// Returns the request's current span context and parent.
    pub fn context(&self) -> TraceParent {
        match self.is_joined.load(Ordering::Relaxed) {
            true => self.claimed,
            false => TraceParent {
                span_context: SpanContext {
                    trace_id: self.own,
                    ..self.claimed.span_context
                },
                parent: None,
            },
        }
    }

    /// Returns the caller's span to link to, unless its trace is joined.
    pub fn link(&self) -> Option<SpanContext> {
        let is_joined = self.is_joined.load(Ordering::Relaxed);
        self.claimed
            .parent
            .filter(|_| !is_joined)
            .map(|span_id| SpanContext {
                span_id,
                ..self.claimed.span_context
            })
    }
}

/// A request's span context, with its parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceParent {
    /// The request's own span context.
    pub span_context: SpanContext,
    /// The client's span; `None` if the trace starts with this request.
    pub parent: Option<SpanId>,
}

impl TraceParent {
    /// Returns a span in the client's trace if its header is well formed, otherwise in a new trace.
    pub fn of(headers: &HeaderMap) -> Self {
        let from_client = headers
            .get("traceparent")
            .and_then(|value| value.to_str().ok())
            .and_then(Self::read);
        match from_client {
            Some(client) => Self {
                span_context: client.child(),
                parent: Some(client.span_id),
            },
            None => Self {
                span_context: SpanContext::new(),
                parent: None,
            },
        }
    }

    /// Parses a `traceparent` header's value.
    pub fn read(text: &str) -> Option<SpanContext> {
        let mut parts = text.split('-');
        let version = parts.next()?;
        let trace_id = parts.next()?;
        let span_id = parts.next()?;
        let flags = parts.next()?;
        let is_hex = |text: &str, length| {
            text.len() == length
                && text
                    .bytes()
                    .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
        };
        // A zero id and version ff are invalid. Version 00 has four parts; later versions may
        // have more.
        let is_nonzero = |text: &str| text.bytes().any(|byte| byte != b'0');
        let well_formed = is_hex(version, 2)
            && version != "ff"
            && is_hex(trace_id, 32)
            && is_nonzero(trace_id)
            && is_hex(span_id, 16)
            && is_nonzero(span_id)
            && is_hex(flags, 2);
        if well_formed && (version != "00" || parts.next().is_none()) {
            SpanContext::read(trace_id, span_id)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trace_joins_callers_after_authentication() {
        let header = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let trace = Trace::of(&HeaderMap::from_iter([(
            "traceparent".parse().unwrap(),
            header.parse().unwrap(),
        )]));
        let client = TraceParent::read(header).unwrap();
        let before = trace.context();
        assert_eq!(
            (
                before.span_context.trace_id == client.trace_id,
                before.parent,
                trace.link()
            ),
            (false, None, Some(client))
        );
        trace.clone().join();
        let after = trace.context();
        assert_eq!(
            (after.span_context, after.parent),
            (
                SpanContext {
                    span_id: before.span_context.span_id,
                    ..client
                },
                Some(client.span_id)
            )
        );
        assert_eq!(trace.link(), None);
        assert_eq!(Trace::of(&HeaderMap::new()).link(), None);
    }

    #[test]
    fn malformed_traceparent_is_ignored() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert_eq!(
            TraceParent::read(good).unwrap().trace_id.to_string(),
            "4bf92f3577b34da6a3ce929d0e0e4736"
        );
        for bad in [
            "",
            "00",
            &good.to_uppercase(),
            &good.replace("00f067aa0ba902b7", "0000000000000000"),
            &format!("{good}-x"),
            &good.replacen("00", "ff", 1),
            &format!("{good}-"),
            "0-1-1-1",
        ] {
            assert_eq!(TraceParent::read(bad), None, "{bad}");
        }
    }
}
