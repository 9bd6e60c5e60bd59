//! The trace that a request belongs to (W3C Trace Context, header `traceparent`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use assay_core::runtime::trace_export::{SpanContext, SpanId, TraceId};
use http::HeaderMap;

/// A request's trace. Until the caller has shown a valid credential it is one of our own, which links to the caller's:
/// strangers add no spans to the traces of others. Clones are the same.
#[derive(Clone)]
pub struct Trace {
    claimed: TraceParent,
    own: TraceId,
    is_joined: Arc<AtomicBool>,
}

impl Trace {
    /// The trace of a request with these headers, whose caller is not known yet.
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

    /// Joins the caller's trace, because the caller has a valid credential.
    pub fn join(&self) {
        self.is_joined.store(true, Ordering::Relaxed);
    }

    /// The request's span_context, as it is now.
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

    /// The caller's span, if its trace is not joined.
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

/// A request's span_context in its trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceParent {
    /// The request's own span_context.
    pub span_context: SpanContext,
    /// The client's span; none when the trace begins here.
    pub parent: Option<SpanId>,
}

impl TraceParent {
    /// In the client's trace, if it sent a well-formed one; otherwise in a new one.
    pub fn of(headers: &HeaderMap) -> Self {
        let given = headers
            .get("traceparent")
            .and_then(|value| value.to_str().ok())
            .and_then(Self::read);
        match given {
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

    /// The client's span_context.
    pub fn read(text: &str) -> Option<SpanContext> {
        let mut parts = text.split('-');
        let (version, trace_id, span_id, flags) =
            (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let hex = |text: &str, length| {
            text.len() == length
                && text
                    .bytes()
                    .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
        };
        // All zeros is no id; version ff is forbidden, and 00 has no further parts.
        let some = |text: &str| text.bytes().any(|byte| byte != b'0');
        let well_formed = hex(version, 2)
            && version != "ff"
            && hex(trace_id, 32)
            && some(trace_id)
            && hex(span_id, 16)
            && some(span_id)
            && hex(flags, 2);
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
    fn callers_trace_is_joined_with_a_credential_only() {
        let header = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let trace = Trace::of(&HeaderMap::from_iter([(
            "traceparent".parse().unwrap(),
            header.parse().unwrap(),
        )]));
        let (client, before) = (TraceParent::read(header).unwrap(), trace.context());
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
    fn only_a_well_formed_header_is_taken() {
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
        ] {
            assert_eq!(TraceParent::read(bad), None, "{bad}");
        }
    }
}
