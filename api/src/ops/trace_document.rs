//! The trace of a job in OTLP/JSON, which an OpenTelemetry collector accepts unchanged.
//!
//! The document is built from the rows of the job at each request. Nothing is written when a job
//! finishes, so that even a job whose workers all crashed has a trace. The document contains no
//! predictions and no answers. Field names, ids and times follow the JSON protobuf encoding of the
//! OTLP specification. `gen_ai.evaluation.*` are the semantic conventions of OpenTelemetry for
//! generative AI.

use assay_core::Timestamp;
use assay_core::model::job::{Job, JobResult, JobStatus};
use assay_core::model::suite::SuiteId;
use assay_core::store::trace::{AttemptRow, TraceRow};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// A trace in OTLP/JSON: an object with the field `resourceSpans`.
pub type TraceDocument = serde_json::Map<String, Value>;

/// The status codes of spans in OTLP.
const OK: u8 = 1;
const ERROR: u8 = 2;

/// The spans of a job, as they are added to the document.
struct Spans<'a> {
    job: &'a Job,
    row: &'a TraceRow,
    spans: Vec<Value>,
}

/// A span before it is encoded.
struct Span<'a> {
    name: &'a str,
    /// Distinguishes spans with the same name.
    key: String,
    parent: Option<String>,
    kind: u8,
    from: Timestamp,
    to: Timestamp,
    attributes: Vec<Value>,
    status: Option<u8>,
}

/// Builds the trace of a job that has succeeded or failed.
pub fn build(job: &Job, row: &TraceRow, attempts: &[AttemptRow]) -> TraceDocument {
    let mut spans = Spans {
        job,
        row,
        spans: Vec::new(),
    };
    let end = job.finished_at.unwrap_or(job.created_at);
    let mut attributes = vec![
        text("assay.job.id", job.id.as_str()),
        text("assay.request.id", &job.request_id),
    ];
    let versions = &job.versions;
    let job_versions = [
        (
            "assay.suite.id",
            versions.suite_id.as_ref().map(SuiteId::as_str),
        ),
        ("assay.suite.version", versions.suite_version.as_deref()),
        ("assay.model.id", versions.model_id.as_deref()),
        ("assay.model.version", versions.model_version.as_deref()),
    ];
    attributes.extend(
        job_versions
            .into_iter()
            .filter_map(|(key, value)| Some(text(key, value?))),
    );
    attributes.push(integer("assay.job.attempts", i64::from(job.attempts)));
    let status = Some(if job.status == JobStatus::Succeeded {
        OK
    } else {
        ERROR
    });
    let root = spans.add(Span {
        name: job.r#type.as_str(),
        key: String::new(),
        parent: row.parent_span_id.clone(),
        kind: 1,
        from: row.requested_at,
        to: end,
        attributes,
        status,
    });
    spans.child("request", "", &root, 2, row.requested_at, job.created_at);
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
    let document = json!({"resourceSpans": [{
        "resource": {"attributes": [
            text("service.name", "assay"),
            text("service.version", &job.versions.hfm_sha),
        ]},
        "scopeSpans": [{"scope": {"name": "assay"}, "spans": spans.spans}],
    }]});
    match document {
        Value::Object(document) => document,
        _ => TraceDocument::new(),
    }
}

impl Spans<'_> {
    /// Adds a span, and returns its id.
    fn add(&mut self, span: Span<'_>) -> String {
        // The id is a hash, so that a span has the same id in each document of the job.
        let digest = Sha256::digest(format!("{} {} {}", self.job.id, span.name, span.key));
        let id = hex::encode(&digest[..8]);
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
            "traceId": self.row.trace_id,
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

    /// Adds a child span without attributes and status.
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

    /// Adds the span of an attempt, with child spans for its phases and, if it succeeded, its
    /// result.
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
        if let Some(measured_until) = phases.iter().map(|phase| phase.end_us).max() {
            self.child(
                "persist",
                &key,
                &id,
                3,
                started_at.plus_micros(measured_until),
                ended,
            );
        }
        let computed = phases
            .iter()
            .find(|phase| ["score", "predict"].contains(&phase.name.as_str()))
            .map_or(ended, |phase| started_at.plus_micros(phase.end_us));
        if let (Some(result), "succeeded") = (&self.job.result, outcome) {
            let (name, attributes) = result_attributes(result);
            self.add(Span {
                name,
                key,
                parent: Some(id),
                kind: 1,
                from: computed,
                to: computed,
                attributes,
                status: Some(OK),
            });
        }
    }
}

/// Returns the name and the attributes of the span of a result.
fn result_attributes(result: &JobResult) -> (&'static str, Vec<Value>) {
    match result {
        JobResult::Eval(result) => {
            let attributes = vec![
                text("gen_ai.evaluation.name", &result.metric),
                json!({
                    "key": "gen_ai.evaluation.score.value",
                    "value": {"doubleValue": result.value},
                }),
                integer("assay.eval.n", result.n),
                integer("assay.eval.n_submitted", result.n_submitted),
                integer("assay.eval.n_unmatched", result.n_unmatched),
                integer("assay.eval.n_missing", result.n_missing),
            ];
            ("gen_ai.evaluation.result", attributes)
        }
        JobResult::Predict(result) => {
            let attributes = vec![
                text("assay.engine", &result.engine),
                integer("assay.predict.n", result.n),
                integer("assay.predict.n_failed", result.n_failed),
                integer("assay.predict.n_truncated", result.n_truncated),
                integer("assay.predict.n_unknown", result.n_unknown),
                integer("assay.predict.n_cold", result.n_cold),
            ];
            ("assay.predict.result", attributes)
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
