//! Exports spans to operators by OTLP. The spans for a request and its job's attempts are one
//! trace.
//!
//! A span is exported when it has ended, under an id that was assigned before. It can therefore be
//! the parent for other processes' spans, and a process that crashes exports no incomplete spans.
//! Names and attributes follow OpenTelemetry's semantic conventions, where there are any.
//! `docs/decisions/0006-spans-are-exported-when-they-end.md` gives the reasons.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use opentelemetry::InstrumentationScope;
use opentelemetry::trace::{Link, Status, TraceFlags, TraceState};
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, SpanData, SpanEvents, SpanLinks, SpanProcessor as _,
};

use sha2::{Digest as _, Sha256};

pub use opentelemetry::KeyValue;
pub use opentelemetry::trace::SpanKind;

use crate::model::error::{BestEffort as _, Error, Result};
use crate::model::ids::JobId;
use crate::model::random;
use crate::model::span_context::{SpanContext, SpanId, TraceId};
use crate::model::timestamp::Timestamp;
use crate::runtime::settings::Common;

/// The most spans that wait to be sent: some seconds in a busy process. Further spans are
/// dropped.
const QUEUE_MAX: usize = 16_384;

/// The most spans that are sent at once.
const BATCH_MAX: usize = 1_024;

/// Longest time for sending the last spans at the process's end.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

/// An operation that has ended. Its name, kind and attributes follow the semantic conventions.
pub struct Span {
    /// The trace's and the span's ids.
    pub span_context: SpanContext,
    /// The parent span's id. `None` for a root span.
    pub parent: Option<SpanId>,
    /// The name, from a closed set.
    pub name: Cow<'static, str>,
    /// The kind: server, client, producer, consumer or internal.
    pub kind: SpanKind,
    /// The time at which the operation started.
    pub started_at: Timestamp,
    /// The time at which the operation ended.
    pub ended_at: Timestamp,
    /// The attributes. They never contain secrets.
    pub attributes: Vec<KeyValue>,
    /// The error's code, if the server failed.
    pub error_type: Option<Cow<'static, str>>,
    /// Another trace's related span.
    pub link: Option<SpanContext>,
}

/// The messaging operation on a job, by the semantic conventions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessagingOperation {
    /// The API stores the job for a worker.
    Send,
    /// A worker runs an attempt.
    Process,
}

impl Span {
    /// Creates the span for sending or processing a job.
    pub fn for_job(
        operation: MessagingOperation,
        span_context: SpanContext,
        parent: Option<SpanId>,
        job_id: &JobId,
        started_at: Timestamp,
        ended_at: Timestamp,
    ) -> Self {
        let (operation, name, kind) = match operation {
            MessagingOperation::Send => ("send", "send jobs", SpanKind::Producer),
            MessagingOperation::Process => ("process", "process jobs", SpanKind::Consumer),
        };
        let attributes = vec![
            KeyValue::new("messaging.system", "assay"),
            KeyValue::new("messaging.destination.name", "jobs"),
            KeyValue::new("messaging.operation.name", operation),
            KeyValue::new("messaging.operation.type", operation),
            KeyValue::new("messaging.message.id", job_id.to_string()),
        ];
        Self {
            span_context,
            parent,
            name: name.into(),
            kind,
            started_at,
            ended_at,
            attributes,
            error_type: None,
            link: None,
        }
    }

    /// Creates the span of a step within another span.
    pub fn internal(
        span_context: SpanContext,
        parent: SpanId,
        name: &'static str,
        started_at: Timestamp,
        ended_at: Timestamp,
    ) -> Self {
        Self {
            span_context,
            parent: Some(parent),
            name: name.into(),
            kind: SpanKind::Internal,
            started_at,
            ended_at,
            attributes: Vec::new(),
            error_type: None,
            link: None,
        }
    }

    /// Adds an attempt's number and result.
    #[must_use]
    pub fn with_attempt(mut self, attempt: i32, result: &'static str) -> Self {
        self.attributes
            .push(KeyValue::new("assay.attempt", i64::from(attempt)));
        self.attributes
            .push(KeyValue::new("assay.attempt.result", result));
        // Invalid predictions are the client's error, not the attempt's.
        if !["succeeded", "failed"].contains(&result) {
            self.attributes.push(KeyValue::new("error.type", result));
            self.error_type = Some(result.into());
        }
        self
    }
}

/// A span exporter. Clones share it.
#[derive(Clone)]
pub struct Spans(Option<Arc<Exporter>>);

struct Exporter {
    processor: BatchSpanProcessor,
    scope: InstrumentationScope,
    sampling: Sampling,
}

/// The traces that a process exports.
#[derive(Debug, Clone, Copy)]
pub enum Sampling {
    /// All traces that reach the process: the API has sampled them. A job's row names the span that
    /// stored it only if its trace is exported.
    Upstream,
    /// A share among all traces, selected by a keyed hash over the trace id. Callers choose their
    /// trace ids, but must not influence the selection.
    Share {
        /// The key, which all API processes share and callers do not know.
        key: [u8; 32],
        /// An exported trace's largest hash.
        max_hash: u64,
    },
}

impl Sampling {
    /// Returns the settings' sampling. The key is derived from the database's address,
    /// which contains a password and is the same for all API processes.
    pub fn from_settings(settings: &Common) -> Self {
        let key = Sha256::new()
            .chain_update("assay trace sampling")
            .chain_update(&settings.database_url)
            .finalize()
            .into();
        Self::Share {
            key,
            max_hash: (settings.trace_share * u64::MAX as f64) as u64,
        }
    }

    fn is_sampled(&self, trace_id: TraceId) -> bool {
        match self {
            Self::Upstream => true,
            Self::Share { key, max_hash } => {
                let hash: [u8; 32] = Sha256::new()
                    .chain_update(key)
                    .chain_update(trace_id.to_bytes())
                    .finalize()
                    .into();
                let [a, b, c, d, e, f, g, h, ..] = hash;
                u64::from_be_bytes([a, b, c, d, e, f, g, h]) <= *max_hash
            }
        }
    }
}

impl Spans {
    /// Creates an exporter for this name's service. Without `ASSAY_OTLP_ENDPOINT`, it discards
    /// all spans. Call it within a Tokio runtime.
    pub fn open(service: &'static str, settings: &Common, sampling: Sampling) -> Result<Self> {
        if settings.otlp_endpoint.is_empty() {
            return Ok(Self(None));
        }
        let exporter = SpanExporter::builder()
            .with_tonic()
            .with_endpoint(&settings.otlp_endpoint)
            .build();
        let exporter = exporter.map_err(|_| {
            Error::internal("ASSAY_OTLP_ENDPOINT must be an address such as http://collector:4317")
        })?;
        let config = BatchConfigBuilder::default()
            .with_max_queue_size(QUEUE_MAX)
            .with_max_export_batch_size(BATCH_MAX)
            .build();
        let mut processor = BatchSpanProcessor::builder(exporter)
            .with_batch_config(config)
            .build();
        let attributes = [
            ("service.version", env!("CARGO_PKG_VERSION").to_owned()),
            (
                "service.instance.id",
                format!("{:016x}", random::words::<1>()[0]),
            ),
        ];
        let attributes = attributes.map(|(key, value)| KeyValue::new(key, value));
        processor.set_resource(
            &Resource::builder()
                .with_service_name(service)
                .with_attributes(attributes)
                .build(),
        );
        Ok(Self(Some(Arc::new(Exporter {
            processor,
            scope: InstrumentationScope::builder("assay").build(),
            sampling,
        }))))
    }

    /// Returns `true` if this trace's spans are exported.
    pub fn is_sampled(&self, trace_id: TraceId) -> bool {
        self.0
            .as_ref()
            .is_some_and(|exporter| exporter.sampling.is_sampled(trace_id))
    }

    /// Exports a span in this trace that has ended, if the trace is sampled. It never waits.
    pub fn export(&self, trace_id: TraceId, span: impl FnOnce() -> Span) {
        let Some(exporter) = self.0.as_ref().filter(|_| self.is_sampled(trace_id)) else {
            return;
        };
        let Span {
            span_context,
            parent,
            name,
            kind,
            started_at,
            ended_at,
            attributes,
            error_type,
            link,
        } = span();
        let to_otel = |span_context: SpanContext| {
            opentelemetry::trace::SpanContext::new(
                span_context.trace_id,
                span_context.span_id,
                TraceFlags::SAMPLED,
                false,
                TraceState::NONE,
            )
        };
        let mut links = SpanLinks::default();
        links
            .links
            .extend(link.map(|link| Link::with_context(to_otel(link))));
        exporter.processor.on_end(SpanData {
            span_context: to_otel(span_context),
            parent_span_id: parent.unwrap_or(SpanId::INVALID),
            parent_span_is_remote: matches!(kind, SpanKind::Server | SpanKind::Consumer),
            span_kind: kind,
            name,
            start_time: started_at.into(),
            end_time: ended_at.max(started_at).into(),
            attributes,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links,
            status: error_type.map_or(Status::Unset, |description| Status::Error { description }),
            instrumentation_scope: exporter.scope.clone(),
        });
    }

    /// Sends the waiting spans. An unresponsive collector delays the process by at most
    /// `SHUTDOWN_TIMEOUT`.
    pub async fn close(self) {
        let closing = tokio::task::spawn_blocking(move || {
            self.0
                .map(|exporter| exporter.processor.shutdown_with_timeout(SHUTDOWN_TIMEOUT))
        });
        match tokio::time::timeout(SHUTDOWN_TIMEOUT, closing).await {
            Ok(Ok(Some(sent))) => sent.best_effort("sending the last spans"),
            Ok(_) => {}
            Err(_) => tracing::warn!("last spans not sent in time"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trace_ids_do_not_decide_sampling() {
        let share = |key, share: f64| Sampling::Share {
            key,
            max_hash: (share * u64::MAX as f64) as u64,
        };
        // Sampling by the last 64 bits of the trace id would export all these.
        let trace_ids: Vec<_> = (1..=1000_u128)
            .map(|high| TraceId::from_bytes((high << 64).to_be_bytes()))
            .collect();
        let sampled = |sampling: Sampling| {
            trace_ids
                .iter()
                .map(|trace_id| sampling.is_sampled(*trace_id))
                .collect::<Vec<_>>()
        };
        let tenth = sampled(share([1; 32], 0.1));
        assert!((50..200).contains(&tenth.iter().filter(|is_sampled| **is_sampled).count()));
        assert_eq!(
            tenth,
            sampled(share([1; 32], 0.1)),
            "all processes select the same traces"
        );
        assert_ne!(
            tenth,
            sampled(share([2; 32], 0.1)),
            "the selection depends on the key"
        );
        assert!(
            sampled(share([1; 32], 1.0))
                .iter()
                .all(|is_sampled| *is_sampled)
        );
    }
}
