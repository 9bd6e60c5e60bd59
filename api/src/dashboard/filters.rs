//! Value formats in templates.

use std::fmt::Display;

use askama::Values;
use assay_core::Timestamp;
use assay_core::model::job::{Job, JobStatus};
use assay_core::model::suite::SuiteId;
use assay_eval::Metric;
use assay_eval::compare::direction;
pub use assay_eval::text::{count as count_text, figure as figure_text};

/// Shows a timestamp in UTC, to the second: `2026-11-22 06:41:07 UTC`.
#[askama::filter_fn]
pub fn utc(at: &Timestamp, _: &dyn Values) -> askama::Result<String> {
    Ok(utc_text(*at))
}

/// Returns a timestamp in UTC, to the second.
pub fn utc_text(at: Timestamp) -> String {
    let text = at.to_string();
    let date = text.get(..10).unwrap_or(&text);
    let time = text.get(11..19).unwrap_or_default();
    format!("{date} {time} UTC")
}

/// Shows a timestamp's day in UTC: `2026-12-01`.
#[askama::filter_fn]
pub fn day(at: &Timestamp, _: &dyn Values) -> askama::Result<String> {
    let text = at.to_string();
    Ok(text.get(..10).unwrap_or(&text).to_owned())
}

/// Shows how long ago a time was, or in how long it will be.
#[askama::filter_fn]
pub fn relative(at: &Timestamp, _: &dyn Values, now: &Timestamp) -> askama::Result<String> {
    let micros = now.unix_micros() - at.unix_micros();
    let span = span_text(micros.unsigned_abs() / 1_000_000);
    Ok(if micros >= 0 {
        format!("{span} ago")
    } else {
        format!("in {span}")
    })
}

/// Returns a time span in its largest unit.
pub fn span_text(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min", seconds / 60),
        3_600..86_400 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// Shows an integer with commas between thousands.
#[askama::filter_fn]
pub fn count(value: impl Display, _: &dyn Values) -> askama::Result<String> {
    Ok(count_text(value))
}

/// Shows a metric's value with four significant digits.
#[askama::filter_fn]
pub fn figure(value: &f64, _: &dyn Values) -> askama::Result<String> {
    Ok(figure_text(*value))
}

/// Shows a metric's name with its direction: `rmse (smaller is better)`.
#[askama::filter_fn]
pub fn with_direction(metric: impl Display, _: &dyn Values) -> askama::Result<String> {
    let name = metric.to_string();
    Ok(match name.parse::<Metric>() {
        Ok(metric) => format!("{name} ({})", direction(metric.lower_is_better())),
        Err(_) => name,
    })
}

/// Shows a share as whole percents.
#[askama::filter_fn]
pub fn percent(share: &f64, _: &dyn Values) -> askama::Result<String> {
    Ok(format!("{:.0} %", share * 100.0))
}

/// Shows a byte count in its largest binary unit.
#[askama::filter_fn]
pub fn bytes(value: &i64, _: &dyn Values) -> askama::Result<String> {
    let mut amount = *value as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if amount < 1024.0 {
            return Ok(format!(
                "{} {unit}",
                figure_text((amount * 10.0).round() / 10.0)
            ));
        }
        amount /= 1024.0;
    }
    Ok(format!("{amount:.1} TiB"))
}

/// Shows a job state's shape, which differs also without colours.
#[askama::filter_fn]
pub fn shape(status: &JobStatus, _: &dyn Values) -> askama::Result<&'static str> {
    Ok(match status {
        JobStatus::Queued => "○",
        JobStatus::Running => "◐",
        JobStatus::Succeeded => "●",
        JobStatus::Failed => "✕",
        JobStatus::Cancelled => "–",
    })
}

/// Shows what a job is about: its suite, its model, or both.
#[askama::filter_fn]
pub fn subject(job: &Job, _: &dyn Values) -> askama::Result<String> {
    let suite = job.versions.suite_id.as_ref().map(SuiteId::as_str);
    let parts = [job.versions.model_id.as_deref(), suite];
    let parts: Vec<&str> = parts.into_iter().flatten().collect();
    Ok(parts.join(", "))
}

/// Shows the time from the start of a finished job's last attempt to its end.
#[askama::filter_fn]
pub fn duration(job: &Job, _: &dyn Values) -> askama::Result<String> {
    Ok(match (job.started_at, job.finished_at) {
        (Some(from), Some(to)) => duration_text(to.unix_micros() - from.unix_micros()),
        _ => String::new(),
    })
}

/// Returns a program's time span: milliseconds below a second.
pub fn duration_text(micros: i64) -> String {
    match micros.max(0).unsigned_abs() {
        micros @ 0..10_000 => format!("{:.1} ms", micros as f64 / 1e3),
        micros @ 10_000..1_000_000 => format!("{} ms", micros / 1_000),
        micros @ 1_000_000..60_000_000 => format!("{:.1} s", micros as f64 / 1e6),
        micros => span_text(micros / 1_000_000),
    }
}

/// Shows a disclosure policy in words.
#[askama::filter_fn]
pub fn policy(release: &str, _: &dyn Values) -> askama::Result<String> {
    Ok(match release.split_once('(') {
        Some(("rounded", rest)) => {
            format!(
                "Shows every figure with {} decimals.",
                rest.trim_end_matches(')')
            )
        }
        Some(("ladder", rest)) => format!(
            "Shows your best score only, in steps of {}.",
            rest.trim_end_matches(')')
        ),
        Some(("sealed", rest)) => format!(
            "Shows every figure of the open items. A share of {} of the items stays sealed until the suite closes.",
            rest.trim_end_matches(')')
        ),
        _ => String::from("Shows every figure."),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_four_digits() {
        for (value, text) in [
            (0.0, "0"),
            (0.412_345, "0.4123"),
            (0.5, "0.5"),
            (-0.0131, "−0.0131"),
            (12.345_67, "12.346"),
            (1234.56, "1234.6"),
            (98_765.4, "98765"),
            (0.000_012, "1.200e−5"),
        ] {
            assert_eq!(figure_text(value), text);
        }
    }

    #[test]
    fn thousands_are_separated() {
        for (value, text) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (-1_234_567, "−1,234,567"),
        ] {
            assert_eq!(count_text(value), text);
        }
    }

    #[test]
    fn spans_have_one_unit() {
        for (seconds, text) in [(5, "5 s"), (61, "1 min"), (7_300, "2 h"), (200_000, "2 d")] {
            assert_eq!(span_text(seconds), text);
        }
    }
}
