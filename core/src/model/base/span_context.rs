//! A span's identity, as W3C Trace Context defines it.

pub use opentelemetry::trace::{SpanId, TraceId};

use crate::model::random;

/// A span's identity, which can be the parent for spans in any process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpanContext {
    /// The trace's id.
    pub trace_id: TraceId,
    /// The span's id.
    pub span_id: SpanId,
}

impl SpanContext {
    /// Creates the context for a new trace's root span.
    #[expect(
        clippy::new_without_default,
        reason = "each call returns another trace"
    )]
    pub fn new() -> Self {
        let [a, b] = random::words();
        // OpenTelemetry defines the id 0 as invalid.
        let trace_id = (u128::from(a) << 64 | u128::from(b)).max(1);
        Self {
            trace_id: TraceId::from_bytes(trace_id.to_be_bytes()),
            span_id: SpanId::INVALID,
        }
        .child()
    }

    /// Creates the context for another span in the same trace.
    #[must_use]
    pub fn child(self) -> Self {
        let [span_id] = random::words::<1>();
        Self {
            span_id: SpanId::from_bytes(span_id.max(1).to_be_bytes()),
            ..self
        }
    }

    /// Parses a trace id with 32 and a span id with 16 hex digits.
    pub fn read(trace_id: &str, span_id: &str) -> Option<Self> {
        Some(Self {
            trace_id: TraceId::from_hex(trace_id).ok()?,
            span_id: SpanId::from_hex(span_id).ok()?,
        })
    }
}
