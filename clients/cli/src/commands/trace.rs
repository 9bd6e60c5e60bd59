//! A job's trace: a waterfall for people, the OTLP document otherwise.

use serde_json::{Value, json};

use super::context::Context;
use crate::failure::Result;
use crate::operations;
use crate::output::{Format, View};

/// The waterfall's width, in characters.
const WIDTH: usize = 40;

const SPANS: View = View {
    columns: &["span", "waterfall", "start_ms", "duration_ms"],
    id: "span",
};

/// `assay trace`
pub fn show(context: &Context, id: &str) -> Result<()> {
    let client = context.client()?;
    let request = client.request(&operations::GET_JOB_TRACE);
    let trace = request.path("job_id", id).send_json()?;
    if matches!(context.output.format(), Format::Json | Format::Ndjson) {
        return context.output.object(SPANS, &trace);
    }
    context
        .output
        .list(SPANS, waterfall(&trace).into_iter().map(Ok))
}

/// A trace span. Times are in nanoseconds.
struct Span<'t> {
    id: &'t str,
    parent: &'t str,
    name: &'t str,
    start: u64,
    end: u64,
}

fn list(value: &Value) -> std::slice::Iter<'_, Value> {
    value.as_array().map_or(&[][..], Vec::as_slice).iter()
}

fn spans(trace: &Value) -> Vec<Span<'_>> {
    let mut found = Vec::new();
    for resource in list(&trace["resourceSpans"]) {
        for scope in list(&resource["scopeSpans"]) {
            for span in list(&scope["spans"]) {
                let time = |field: &str| span[field].as_str().and_then(|text| text.parse().ok());
                found.push(Span {
                    id: span["spanId"].as_str().unwrap_or_default(),
                    parent: span["parentSpanId"].as_str().unwrap_or_default(),
                    name: span["name"].as_str().unwrap_or_default(),
                    start: time("startTimeUnixNano").unwrap_or(0),
                    end: time("endTimeUnixNano").unwrap_or(0),
                });
            }
        }
    }
    found.sort_by_key(|span| span.start);
    found
}

/// Returns one row for each span, children below their parents.
fn waterfall(trace: &Value) -> Vec<Value> {
    let spans = spans(trace);
    let first = spans.iter().map(|span| span.start).min().unwrap_or(0);
    let last = spans.iter().map(|span| span.end).max().unwrap_or(first);
    let total = last.saturating_sub(first).max(1) as f64;
    let mut rows = Vec::new();
    let roots = spans
        .iter()
        .filter(|span| !spans.iter().any(|other| other.id == span.parent));
    let mut stack: Vec<(&Span<'_>, usize)> = roots.map(|root| (root, 0)).collect();
    stack.reverse();
    while let Some((span, depth)) = stack.pop() {
        let offset = span.start.saturating_sub(first) as f64;
        let duration = span.end.saturating_sub(span.start) as f64;
        let before = (offset / total * WIDTH as f64) as usize;
        let length = ((duration / total * WIDTH as f64) as usize).max(1);
        rows.push(json!({
            "span": format!("{}{}", "  ".repeat(depth), span.name),
            "waterfall": format!("{}{}", " ".repeat(before), "█".repeat(length)),
            "start_ms": offset / 1e6,
            "duration_ms": duration / 1e6,
        }));
        // A document with a parent cycle must not repeat forever.
        if depth < spans.len() {
            let children = spans.iter().filter(|child| child.parent == span.id);
            let mut children: Vec<_> = children.map(|child| (child, depth + 1)).collect();
            children.reverse();
            stack.extend(children);
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_follow_their_parents() {
        let span = |id: &str, parent: &str, start: u64, end: u64| {
            json!({"spanId": id, "parentSpanId": parent, "name": id,
                   "startTimeUnixNano": start.to_string(), "endTimeUnixNano": end.to_string()})
        };
        let trace = json!({"resourceSpans": [{"scopeSpans": [{"spans": [
            span("queue", "job", 0, 4_000_000), span("job", "", 0, 8_000_000),
            span("score", "work", 5_000_000, 8_000_000), span("work", "job", 4_000_000, 8_000_000),
        ]}]}]});
        let names: Vec<_> = waterfall(&trace)
            .iter()
            .map(|row| row["span"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(names, ["job", "  queue", "  work", "    score"]);
    }
}
