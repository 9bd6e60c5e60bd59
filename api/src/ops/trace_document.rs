//! A job's trace as OTLP/JSON, which any OpenTelemetry collector takes as it is.
//!
//! It is made from the job's rows when it is asked for: nothing has to be written when a job ends, so there is a trace
//! also of a job whose every worker died. It holds no prediction and no answer. Field names and the spelling of ids and
//! times are those of the OTLP specification, JSON protobuf encoding; `gen_ai.evaluation.*` are OpenTelemetry's
//! semantic conventions for generative AI.

use assay_core::Timestamp;
use assay_core::model::job::{Job, JobStatus};
use assay_core::store::trace::{AttemptRow, TraceRow};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// The document: `{"resourceSpans": […]}`.
pub type TraceDocument = serde_json::Map<String, Value>;

const OK: u8 = 1;
const ERROR: u8 = 2;

struct Spans<'a> {
    job: &'a Job,
    head: &'a TraceRow,
    spans: Vec<Value>,
}

struct Span<'a> {
    name: &'a str,
    /// Tells spans of one name apart.
    key: String,
    parent: Option<String>,
    kind: u8,
    from: Timestamp,
    to: Timestamp,
    attributes: Vec<Value>,
    status: Option<u8>,
}

/// The trace of a job that has run.
pub fn of(job: &Job, head: &TraceRow, attempts: &[AttemptRow]) -> TraceDocument {
    let mut spans = Spans {
        job,
        head,
        spans: Vec::new(),
    };
    let end = job.finished_at.unwrap_or(job.created_at);
    let attributes = vec![
        text("assay.job.id", job.id.as_str()),
        text("assay.request.id", &job.request_id),
        text("assay.suite.id", job.versions.suite_id.as_str()),
        text(
            "assay.suite.version",
            job.versions.suite_version.as_deref().unwrap_or_default(),
        ),
        integer("assay.job.attempts", i64::from(job.attempts)),
    ];
    let status = Some(if job.status == JobStatus::Succeeded {
        OK
    } else {
        ERROR
    });
    let root = spans.add(Span {
        name: "eval",
        key: String::new(),
        parent: head.parent_span_id.clone(),
        kind: 1,
        from: head.requested_at,
        to: end,
        attributes,
        status,
    });
    spans.child("request", "", &root, 2, head.requested_at, job.created_at);
    let mut waiting_since = job.created_at;
    for attempt in attempts {
        spans.child(
            "queue wait",
            &attempt.attempt.to_string(),
            &root,
            1,
            waiting_since,
            attempt.started_at,
        );
        let ended = attempt.ended_at.unwrap_or(end);
        spans.attempt(attempt, &root, ended);
        waiting_since = ended;
    }
    let resource = json!({"attributes": [text("service.name", "assay"), text("service.version", &job.versions.hfm_sha)]});
    let document = json!({"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": {"name": "assay"}, "spans": spans.spans}]}]});
    match document {
        Value::Object(document) => document,
        _ => TraceDocument::new(),
    }
}

impl Spans<'_> {
    fn add(&mut self, span: Span<'_>) -> String {
        // The same span has the same id each time that the document is made.
        let digest = Sha256::digest(format!("{} {} {}", self.job.id, span.name, span.key));
        let id: String = digest
            .iter()
            .take(8)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let Span {
            name,
            key: _,
            parent,
            kind,
            from,
            to,
            attributes,
            status,
        } = span;
        self.spans.push(json!({
            "traceId": self.head.trace_id,
            "spanId": id,
            "parentSpanId": parent.unwrap_or_default(),
            "name": name,
            "kind": kind,
            "startTimeUnixNano": from.unix_nanos().to_string(),
            "endTimeUnixNano": to.max(from).unix_nanos().to_string(),
            "attributes": attributes,
            "status": status.map_or_else(|| json!({}), |code| json!({"code": code})),
        }));
        id
    }

    fn child(
        &mut self,
        name: &str,
        key: &str,
        parent: &str,
        kind: u8,
        from: Timestamp,
        to: Timestamp,
    ) {
        self.add(Span {
            name,
            key: key.to_owned(),
            parent: Some(parent.to_owned()),
            kind,
            from,
            to,
            attributes: Vec::new(),
            status: None,
        });
    }

    fn attempt(&mut self, row: &AttemptRow, root: &str, ended: Timestamp) {
        let AttemptRow {
            attempt,
            started_at,
            ended_at: _,
            outcome,
            phases,
        } = row;
        let outcome = outcome.as_deref().unwrap_or("unknown");
        let attributes = vec![
            integer("assay.attempt", i64::from(*attempt)),
            text("assay.attempt.outcome", outcome),
        ];
        let status = Some(if outcome == "succeeded" { OK } else { ERROR });
        let key = attempt.to_string();
        let id = self.add(Span {
            name: "attempt",
            key: key.clone(),
            parent: Some(root.to_owned()),
            kind: 5,
            from: *started_at,
            to: ended,
            attributes,
            status,
        });
        let phases = phases
            .as_ref()
            .map(|phases| phases.0.as_slice())
            .unwrap_or_default();
        for phase in phases {
            self.child(
                &phase.name,
                &key,
                &id,
                1,
                started_at.plus_micros(phase.start_us),
                started_at.plus_micros(phase.end_us),
            );
        }
        let scored = phases
            .iter()
            .find(|phase| phase.name == "score")
            .map_or(ended, |phase| started_at.plus_micros(phase.end_us));
        if let Some(measured) = phases.iter().map(|phase| phase.end_us).max() {
            self.child(
                "persist",
                &key,
                &id,
                3,
                started_at.plus_micros(measured),
                ended,
            );
        }
        if let (Some(result), "succeeded") = (&self.job.result, outcome) {
            let attributes = vec![
                text("gen_ai.evaluation.name", &result.metric),
                json!({"key": "gen_ai.evaluation.score.value", "value": {"doubleValue": result.value}}),
                integer("assay.eval.n", result.n),
                integer("assay.eval.n_submitted", result.n_submitted),
                integer("assay.eval.n_unmatched", result.n_unmatched),
                integer("assay.eval.n_missing", result.n_missing),
            ];
            let parent = Some(id);
            self.add(Span {
                name: "gen_ai.evaluation.result",
                key,
                parent,
                kind: 1,
                from: scored,
                to: scored,
                attributes,
                status: Some(OK),
            });
        }
    }
}

fn text(key: &str, value: &str) -> Value {
    json!({"key": key, "value": {"stringValue": value}})
}

fn integer(key: &str, value: i64) -> Value {
    // 64-bit integers are strings in the JSON encoding of protobuf.
    json!({"key": key, "value": {"intValue": value.to_string()}})
}
