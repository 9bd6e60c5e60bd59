//! Medians over the rounds, and their ratios.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use crate::load::Load;

/// One program's figures from one measurement.
#[derive(Debug, Clone, Default)]
pub struct Sample {
    /// Requests or jobs per second.
    pub per_second: f64,
    /// Median latency in milliseconds; zero if there is none.
    pub p50_ms: f64,
    /// 99th latency percentile in milliseconds; zero if there is none.
    pub p99_ms: f64,
    /// Each part's CPU time per request in microseconds; empty if it was not measured.
    pub cpu_micros: BTreeMap<&'static str, f64>,
}

impl Sample {
    /// Combines a load with all parts' CPU times before and after it.
    pub fn new(
        load: &Load,
        before: &BTreeMap<&'static str, Duration>,
        after: &BTreeMap<&'static str, Duration>,
    ) -> Self {
        let requests = load.requests as f64;
        let percentile = |share: f64| {
            let at = ((load.latencies.len() as f64 - 1.0) * share).round() as usize;
            load.latencies
                .get(at)
                .map_or(0.0, |latency| latency.as_secs_f64() * 1e3)
        };
        let cpu = |(part, used): (&&'static str, &Duration)| {
            let used = used.saturating_sub(before.get(part).copied().unwrap_or_default());
            (*part, used.as_secs_f64() * 1e6 / requests)
        };
        Self {
            per_second: requests / load.wall.as_secs_f64(),
            p50_ms: percentile(0.5),
            p99_ms: percentile(0.99),
            cpu_micros: after.iter().map(cpu).collect(),
        }
    }
}

/// A sample's figure.
#[derive(Debug, Clone, Copy)]
pub enum Figure {
    /// Requests or jobs per second.
    PerSecond,
    /// CPU time per request in microseconds, over all parts.
    Cpu,
    /// CPU time per request in microseconds, for one part; compared with all parts in another
    /// program.
    CpuOf(&'static str),
    /// Median latency.
    P50,
    /// 99th latency percentile.
    P99,
}

impl Figure {
    fn of(self, sample: &Sample) -> f64 {
        match self {
            Self::PerSecond => sample.per_second,
            Self::Cpu => sample.cpu_micros.values().sum(),
            Self::CpuOf(part) => sample.cpu_micros.get(part).copied().unwrap_or_default(),
            Self::P50 => sample.p50_ms,
            Self::P99 => sample.p99_ms,
        }
    }

    /// Returns the figure for the program that another one is compared with.
    const fn of_other(self) -> Self {
        match self {
            Self::CpuOf(_) => Self::Cpu,
            figure => figure,
        }
    }

    fn name(self) -> String {
        match self {
            Self::PerSecond => "per second".to_owned(),
            Self::Cpu => "CPU".to_owned(),
            Self::CpuOf(part) => format!("CPU of the {part}"),
            Self::P50 => "p50".to_owned(),
            Self::P99 => "p99".to_owned(),
        }
    }
}

/// The limit that a ratio or figure should keep.
#[derive(Debug, Clone, Copy)]
pub enum Target {
    /// At least this value.
    AtLeast(f64),
    /// At most this value.
    AtMost(f64),
}

/// One program's figure divided by another's, or the figure itself.
pub struct Comparison {
    /// The name of the program.
    pub subject: String,
    /// The other program's name; the figure itself is compared if `None`.
    pub against: Option<String>,
    /// The figure.
    pub figure: Figure,
    /// The target.
    pub target: Target,
}

/// The samples from all rounds, by the program's name.
pub type Rounds = Vec<(String, Vec<Sample>)>;

/// Returns all figures' medians, and the median over each comparison's rounds.
pub fn summary(rounds: &Rounds, comparisons: &[Comparison]) -> Value {
    let subjects: Vec<Value> = rounds
        .iter()
        .filter(|(_, samples)| !samples.is_empty())
        .map(|(name, samples)| {
            let of = |figure: Figure| median(samples.iter().map(|sample| figure.of(sample)));
            let parts = samples.iter().flat_map(|sample| sample.cpu_micros.keys());
            let parts: BTreeMap<_, _> = parts
                .map(|part| (*part, rounded(of(Figure::CpuOf(part)))))
                .collect();
            json!({
                "name": name, "per_second": rounded(of(Figure::PerSecond)), "p50_ms": rounded(of(Figure::P50)),
                "p99_ms": rounded(of(Figure::P99)), "cpu_micros": rounded(of(Figure::Cpu)), "cpu_micros_of": parts,
            })
        })
        .collect();
    let comparisons: Vec<Value> = comparisons
        .iter()
        .filter_map(|comparison| compared(rounds, comparison))
        .collect();
    json!({"programs": subjects, "comparisons": comparisons})
}

/// Returns `None` if a program was not measured.
fn compared(rounds: &Rounds, comparison: &Comparison) -> Option<Value> {
    let samples = |name: &str| {
        let found = rounds.iter().find(|(subject, _)| subject == name);
        found
            .map(|(_, samples)| samples)
            .filter(|samples| !samples.is_empty())
    };
    let own = samples(&comparison.subject)?;
    let value = match &comparison.against {
        None => median(own.iter().map(|sample| comparison.figure.of(sample))),
        Some(against) => median(own.iter().zip(samples(against)?).map(|(own, other)| {
            comparison.figure.of(own) / comparison.figure.of_other().of(other)
        })),
    };
    let (met, target) = match comparison.target {
        Target::AtLeast(least) => (value >= least, format!("≥ {least}")),
        Target::AtMost(most) => (value <= most, format!("≤ {most}")),
    };
    Some(json!({
        "name": comparison.subject, "against": comparison.against, "figure": comparison.figure.name(),
        "value": rounded(value), "target": target, "met": met,
    }))
}

/// Rounds to three significant digits, as more would not be repeatable.
fn rounded(value: f64) -> f64 {
    format!("{value:.2e}").parse().unwrap_or(value)
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => 0.0,
        length if length.is_multiple_of(2) => f64::midpoint(values[middle - 1], values[middle]),
        _ => values[middle],
    }
}
