//! Spans for operators, exported by OTLP: what a request and what an attempt at a job did, as one trace.
//!
//! A span is told when it has ended, under an id that was given before: it can be the parent of what another process
//! does, and a process that dies leaves nothing half told. Names and attributes are those of OpenTelemetry's semantic
//! conventions where there are some. `docs/decisions/0006-spans-are-exported-when-they-end.md` says why.

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
pub use opentelemetry::trace::{SpanId, SpanKind, TraceId};

use crate::model::error::{BestEffort as _, Error, Result};
use crate::model::ids::JobId;
use crate::model::random;
use crate::model::timestamp::Timestamp;
use crate::runtime::settings::Common;

/// How many spans may wait to be sent: some seconds of a busy process. What comes on top is dropped.
const QUEUE: usize = 16_384;

/// How many are sent at once.
const BATCH: usize = 1_024;

/// How long the spans of the last moments may take at the end of the process.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

/// A span_context in a trace: a span that may have children anywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpanContext {
    /// The trace.
    pub trace_id: TraceId,
    /// The span.
    pub span_id: SpanId,
}

impl SpanContext {
    /// The beginning of a new trace.
    #[expect(clippy::new_without_default, reason = "each is another one")]
    pub fn new() -> Self {
        let [a, b] = random::words();
        // Zero is no id.
        let trace_id = (u128::from(a) << 64 | u128::from(b)).max(1);
        Self {
            trace_id: TraceId::from_bytes(trace_id.to_be_bytes()),
            span_id: SpanId::INVALID,
        }
        .child()
    }

    /// A new span_context in the same trace.
    #[must_use]
    pub fn child(self) -> Self {
        let [span_id] = random::words::<1>();
        Self {
            span_id: SpanId::from_bytes(span_id.max(1).to_be_bytes()),
            ..self
        }
    }

    /// The span_context of this form, 32 and 16 hex digits.
    pub fn read(trace_id: &str, span_id: &str) -> Option<Self> {
        Some(Self {
            trace_id: TraceId::from_hex(trace_id).ok()?,
            span_id: SpanId::from_hex(span_id).ok()?,
        })
    }
}

/// What was done, from when to when.
pub struct Span {
    /// Its span_context.
    pub span_context: SpanContext,
    /// What it is a part of.
    pub parent: Option<SpanId>,
    /// By the conventions; from a closed set.
    pub name: Cow<'static, str>,
    /// By the conventions.
    pub kind: SpanKind,
    /// When it began.
    pub began: Timestamp,
    /// When it ended.
    pub ended: Timestamp,
    /// By the conventions; none of them a secret.
    pub attributes: Vec<KeyValue>,
    /// What failed, if something of ours did: a code.
    pub failed: Option<Cow<'static, str>>,
    /// A span of another trace that it belongs with.
    pub link: Option<SpanContext>,
}

/// What is done with a job as a message, by the conventions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessagingOperation {
    /// It is stored for a worker.
    Send,
    /// A worker tries it.
    Process,
}

impl Span {
    /// That of a job that is sent or processed.
    pub fn for_job(
        handling: MessagingOperation,
        span_context: SpanContext,
        parent: Option<SpanId>,
        job_id: &JobId,
        began: Timestamp,
        ended: Timestamp,
    ) -> Self {
        let (operation, name, kind) = match handling {
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
            began,
            ended,
            attributes,
            failed: None,
            link: None,
        }
    }

    /// That of a part of what was done.
    pub fn internal(
        span_context: SpanContext,
        parent: SpanId,
        name: &'static str,
        began: Timestamp,
        ended: Timestamp,
    ) -> Self {
        Self {
            span_context,
            parent: Some(parent),
            name: name.into(),
            kind: SpanKind::Internal,
            began,
            ended,
            attributes: Vec::new(),
            failed: None,
            link: None,
        }
    }

    /// The same of a try that ended with this result.
    #[must_use]
    pub fn with_attempt(mut self, attempt: i32, result: &'static str) -> Self {
        self.attributes
            .push(KeyValue::new("assay.attempt", i64::from(attempt)));
        self.attributes
            .push(KeyValue::new("assay.attempt.result", result));
        // What the predictions are at fault for is no error of the attempt's.
        if !["succeeded", "failed"].contains(&result) {
            self.attributes.push(KeyValue::new("error.type", result));
            self.failed = Some(result.into());
        }
        self
    }
}

/// Where spans go. Clones are the same.
#[derive(Clone)]
pub struct Spans(Option<Arc<Exporting>>);

struct Exporting {
    processor: BatchSpanProcessor,
    scope: InstrumentationScope,
    sampling: Sampling,
}

/// Which traces a process exports.
#[derive(Debug, Clone, Copy)]
pub enum Sampling {
    /// Those that another process has chosen: a job's row names the span that stored it only if its trace is exported.
    Chosen,
    /// A share of all, by a keyed hash of the trace's id. Callers choose their trace ids, and must not choose which are kept.
    Share {
        /// What callers do not know, and all processes that decide do.
        key: [u8; 32],
        /// The largest hash that is exported.
        last: u64,
    },
}

impl Sampling {
    /// The share that the settings name. The key comes from the database's address, which holds a password and is the same
    /// for all API processes.
    pub fn from_settings(settings: &Common) -> Self {
        let key = Sha256::new()
            .chain_update("assay trace sampling")
            .chain_update(&settings.database_url)
            .finalize()
            .into();
        Self::Share {
            key,
            last: (settings.trace_share * u64::MAX as f64) as u64,
        }
    }

    fn is_sampled(&self, trace_id: TraceId) -> bool {
        match self {
            Self::Chosen => true,
            Self::Share { key, last } => {
                let hash: [u8; 32] = Sha256::new()
                    .chain_update(key)
                    .chain_update(trace_id.to_bytes())
                    .finalize()
                    .into();
                let [a, b, c, d, e, f, g, h, ..] = hash;
                u64::from_be_bytes([a, b, c, d, e, f, g, h]) <= *last
            }
        }
    }
}

impl Spans {
    /// Spans of a service of this name. They go nowhere unless the settings say where. To be called in a runtime.
    pub fn open(service: &'static str, settings: &Common, sampling: Sampling) -> Result<Self> {
        if settings.otlp_endpoint.is_empty() {
            return Ok(Self(None));
        }
        let exporter = SpanExporter::builder()
            .with_tonic()
            .with_endpoint(&settings.otlp_endpoint)
            .build();
        let exporter = exporter.map_err(|_| {
            Error::internal("ASSAY_OTLP_ENDPOINT is not an address such as http://collector:4317")
        })?;
        let config = BatchConfigBuilder::default()
            .with_max_queue_size(QUEUE)
            .with_max_export_batch_size(BATCH)
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
        Ok(Self(Some(Arc::new(Exporting {
            processor,
            scope: InstrumentationScope::builder("assay").build(),
            sampling,
        }))))
    }

    /// Whether anybody is told of this trace.
    pub fn is_sampled(&self, trace_id: TraceId) -> bool {
        self.0
            .as_ref()
            .is_some_and(|exporting| exporting.sampling.is_sampled(trace_id))
    }

    /// Tells of a span of this trace that has ended, if anybody is told of it. Never waits.
    pub fn export(&self, trace_id: TraceId, span: impl FnOnce() -> Span) {
        let Some(exporting) = self.0.as_ref().filter(|_| self.is_sampled(trace_id)) else {
            return;
        };
        let Span {
            span_context,
            parent,
            name,
            kind,
            began,
            ended,
            attributes,
            failed,
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
        exporting.processor.on_end(SpanData {
            span_context: to_otel(span_context),
            parent_span_id: parent.unwrap_or(SpanId::INVALID),
            parent_span_is_remote: matches!(kind, SpanKind::Server | SpanKind::Consumer),
            span_kind: kind,
            name,
            start_time: began.into(),
            end_time: ended.max(began).into(),
            attributes,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links,
            status: failed.map_or(Status::Unset, |description| Status::Error { description }),
            instrumentation_scope: exporting.scope.clone(),
        });
    }

    /// Sends what waits. A collector that does not answer keeps the process for moments only.
    pub async fn close(self) {
        let closing = tokio::task::spawn_blocking(move || {
            self.0
                .map(|exporting| exporting.processor.shutdown_with_timeout(SHUTDOWN_TIMEOUT))
        });
        match tokio::time::timeout(SHUTDOWN_TIMEOUT, closing).await {
            Ok(Ok(Some(sent))) => sent.best_effort("sending the last spans"),
            Ok(_) => {}
            Err(_) => tracing::warn!("the last spans could not be sent in time"),
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
            last: (share * u64::MAX as f64) as u64,
        };
        // All of these were exported when the last 64 bits decided.
        let chosen: Vec<_> = (1..=1000_u128)
            .map(|high| TraceId::from_bytes((high << 64).to_be_bytes()))
            .collect();
        let taken = |sampling: Sampling| {
            chosen
                .iter()
                .map(|trace_id| sampling.is_sampled(*trace_id))
                .collect::<Vec<_>>()
        };
        let tenth = taken(share([1; 32], 0.1));
        assert!((50..200).contains(&tenth.iter().filter(|taken| **taken).count()));
        assert_eq!(
            tenth,
            taken(share([1; 32], 0.1)),
            "all processes decide alike"
        );
        assert_ne!(tenth, taken(share([2; 32], 0.1)), "nobody else knows how");
        assert!(taken(share([1; 32], 1.0)).iter().all(|taken| *taken));
    }
}
