//! A job trace's spans as bars over time.

use std::collections::HashMap;
use std::fmt::Write as _;

use serde_json::Value;

use super::charts::{Scale, WIDTHS, escape, start};
use super::filters::duration_text;
use crate::ops::trace_document::TraceDocument;

const ROW: f64 = 22.0;

/// A trace's chart and table.
pub struct Waterfall {
    /// The chart for a narrow page.
    pub narrow: String,
    /// The chart for a wide page.
    pub wide: String,
    /// The spans, parents before their children.
    pub spans: Vec<Span>,
}

/// A trace's span.
pub struct Span {
    /// The span's name.
    pub name: String,
    /// Spans above it.
    pub depth: usize,
    /// The time from the trace's start to the span's, in microseconds.
    pub start: i64,
    /// The duration in microseconds.
    pub micros: i64,
}

impl Span {
    /// Returns the duration as a text.
    pub fn duration(&self) -> String {
        duration_text(self.micros)
    }
}

impl Waterfall {
    /// Returns a trace's chart, or `None` if it has no spans.
    pub fn of(document: &TraceDocument) -> Option<Self> {
        let spans = spans(document)?;
        let end = spans.iter().map(|span| span.start + span.micros).max()?;
        let [narrow, wide] = WIDTHS.map(|width| draw(&spans, end, width));
        Some(Self {
            narrow,
            wide,
            spans,
        })
    }
}

/// Reads a document's spans, in its order: parents come before their children.
fn spans(document: &TraceDocument) -> Option<Vec<Span>> {
    let spans = document
        .get("resourceSpans")?
        .pointer("/0/scopeSpans/0/spans")?
        .as_array()?;
    let nanos = |span: &Value, field: &str| span[field].as_str()?.parse::<i128>().ok();
    let origin = nanos(spans.first()?, "startTimeUnixNano")?;
    let mut depths: HashMap<&str, usize> = HashMap::new();
    let read = spans.iter().filter_map(|span| {
        let (from, to) = (
            nanos(span, "startTimeUnixNano")?,
            nanos(span, "endTimeUnixNano")?,
        );
        let parent = span["parentSpanId"].as_str();
        let depth = parent
            .and_then(|parent| depths.get(parent))
            .map_or(0, |depth| depth + 1);
        depths.insert(span["spanId"].as_str()?, depth);
        Some(Span {
            name: span["name"].as_str()?.to_owned(),
            depth,
            start: i64::try_from((from - origin) / 1000).ok()?,
            micros: i64::try_from((to - from) / 1000).ok()?.max(0),
        })
    });
    let read: Vec<Span> = read.collect();
    (!read.is_empty()).then_some(read)
}

fn draw(spans: &[Span], end: i64, width: f64) -> String {
    let left = if width < 400.0 { 96.0 } else { 140.0 };
    let height = ROW * spans.len() as f64 + 8.0;
    let x = Scale::new([0.0, end as f64], [left, width - 64.0]);
    let description = format!("{} spans in {}", spans.len(), duration_text(end));
    let id = format!("trace-{width}");
    let mut svg = start(&id, "Time of the job", &description, width, height);
    for (at, span) in spans.iter().enumerate() {
        let top = ROW * at as f64 + 4.0;
        let (from, to) = (
            x.at(span.start as f64),
            x.at((span.start + span.micros) as f64),
        );
        let _ = write!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\">{}</text><rect class=\"span-{}\" x=\"{from:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"12\"/><text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            8.0 * span.depth.min(3) as f64,
            top + 11.0,
            escape(&span.name),
            span.depth.min(3),
            top + 1.0,
            (to - from).max(1.5),
            (to + 6.0).min(width - 58.0),
            top + 11.0,
            span.duration(),
        );
    }
    svg.push_str("</svg>");
    svg
}
