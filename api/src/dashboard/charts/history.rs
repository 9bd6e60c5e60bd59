//! Scores over time: each submission's value with its interval, and the best value so far.

use std::fmt::Write as _;

use assay_core::model::job::Job;
use assay_core::model::suite::Suite;

use super::{Scale, WIDTHS, escape, start, ticks};
use crate::dashboard::filters::figure_text;
use crate::dashboard::score::{Score, eval_result};

const HEIGHT: f64 = 220.0;
const LEFT: f64 = 48.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 16.0;
const BOTTOM: f64 = 28.0;

/// A suite's chart.
pub struct History {
    /// The chart for a narrow page.
    pub narrow: String,
    /// The chart for a wide page.
    pub wide: String,
    /// The chart's caption.
    pub caption: String,
}

/// A submission in the chart.
struct Point {
    score: Score,
    /// The version's best value so far.
    best: f64,
    /// `true` if the submission is a suite version's first.
    starts_version: bool,
}

/// A line at a baseline's value.
struct Line<'s> {
    name: &'s str,
    value: f64,
}

impl History {
    /// Returns the job with the best score on the suite's present version.
    pub fn best<'a>(suite: &Suite, jobs: &'a [Job]) -> Option<&'a Job> {
        let is_in_version = |job: &&Job| {
            eval_result(job).is_some_and(|result| result.suite_version == suite.version)
        };
        let scored = jobs.iter().filter(is_in_version);
        scored
            .filter_map(|job| Some((Score::of(job)?.value, job)))
            .reduce(|best, other| {
                if is_better(suite.lower_is_better, other.0, best.0) {
                    other
                } else {
                    best
                }
            })
            .map(|(_, job)| job)
    }

    /// Draws the jobs, the newest first, with a line at each suite baseline and one at `chosen`,
    /// the value that the chosen job has. Returns `None` for fewer than two scores.
    pub fn new(suite: &Suite, jobs: &[Job], chosen: Option<f64>) -> Option<Self> {
        let mut points: Vec<Point> = Vec::with_capacity(jobs.len());
        let mut version = None;
        for job in jobs.iter().rev() {
            let (Some(result), Some(score)) = (eval_result(job), Score::of(job)) else {
                continue;
            };
            let starts_version = version != Some(&result.suite_version);
            version = Some(&result.suite_version);
            let before = points.last().filter(|_| !starts_version);
            let best = match before {
                Some(before) if !is_better(suite.lower_is_better, score.value, before.best) => {
                    before.best
                }
                _ => score.value,
            };
            points.push(Point {
                score,
                best,
                starts_version,
            });
        }
        if points.len() < 2 {
            return None;
        }
        // A ladder discloses the best value only.
        let shows_values = !suite.release.starts_with("ladder");
        let chosen = chosen.filter(|_| shows_values);
        let pinned = suite.baselines.iter();
        let lines: Vec<Line> = pinned
            .map(|baseline| Line {
                name: &baseline.name,
                value: baseline.value,
            })
            .chain(chosen.map(|value| Line {
                name: "baseline",
                value,
            }))
            .collect();
        let [narrow, wide] = WIDTHS.map(|width| draw(suite, &points, width, shows_values, &lines));
        let caption = if shows_values {
            format!(
                "{} of each submission in their order, with its 95 % interval. The line shows the best value so far; a vertical rule marks a new version of the suite.",
                suite.metric
            )
        } else {
            format!("The best disclosed {} so far.", suite.metric)
        };
        Some(Self {
            narrow,
            wide,
            caption,
        })
    }
}

/// Returns `true` if a value is better than another one.
fn is_better(lower_is_better: bool, value: f64, other: f64) -> bool {
    if lower_is_better {
        value < other
    } else {
        value > other
    }
}

fn draw(
    suite: &Suite,
    points: &[Point],
    width: f64,
    shows_values: bool,
    lines: &[Line<'_>],
) -> String {
    let ends = |point: &Point| match point.score.ci95.filter(|_| shows_values) {
        Some(ends) => ends,
        None => [
            point.score.value.min(point.best),
            point.score.value.max(point.best),
        ],
    };
    let low = points
        .iter()
        .map(|point| ends(point)[0])
        .chain(lines.iter().map(|line| line.value))
        .fold(f64::INFINITY, f64::min);
    let high = points
        .iter()
        .map(|point| ends(point)[1])
        .chain(lines.iter().map(|line| line.value))
        .fold(f64::NEG_INFINITY, f64::max);
    let margin = ((high - low) * 0.08).max(high.abs() * 1e-3).max(1e-9);
    let range = [low - margin, high + margin];
    let y = Scale::new(range, [HEIGHT - BOTTOM, TOP]);
    let x = Scale::new(
        [0.0, (points.len() - 1) as f64],
        [LEFT + 8.0, width - RIGHT - 8.0],
    );
    let first = points.first().map_or(0.0, |point| point.best);
    let last = points.last().map_or(0.0, |point| point.best);
    let description = format!(
        "{} submissions. The best value went from {} to {}.",
        points.len(),
        figure_text(first),
        figure_text(last)
    );
    let id = format!("history-{width}");
    let title = format!("{} of {} over time", suite.metric, suite.suite_id);
    let mut svg = start(&id, &title, &description, width, HEIGHT);
    for tick in ticks(range) {
        let at = y.at(tick);
        let text = figure_text(tick);
        let _ = write!(
            svg,
            "<line class=\"rule\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>",
            width - RIGHT,
            LEFT - 6.0,
            at + 4.0
        );
    }
    for line in lines {
        let at = y.at(line.value);
        let _ = write!(
            svg,
            "<line class=\"baseline\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            width - RIGHT,
            width - RIGHT,
            at - 4.0,
            escape(line.name)
        );
    }
    let mut path = String::new();
    for (at, point) in points.iter().enumerate() {
        let (left, best) = (x.at(at as f64), y.at(point.best));
        if point.starts_version {
            let _ = write!(path, "M{left:.1} {best:.1}");
            if at > 0 {
                let rule = x.at(at as f64 - 0.5);
                let _ = write!(
                    svg,
                    "<line class=\"axis\" x1=\"{rule:.1}\" x2=\"{rule:.1}\" y1=\"{TOP}\" y2=\"{:.1}\"/>",
                    HEIGHT - BOTTOM
                );
            }
        } else {
            let _ = write!(path, "H{left:.1}V{best:.1}");
        }
    }
    let _ = write!(svg, "<path class=\"best\" d=\"{path}\"/>");
    if shows_values {
        for (at, point) in points.iter().enumerate() {
            let left = x.at(at as f64);
            if let Some([low, high]) = point.score.ci95 {
                let _ = write!(
                    svg,
                    "<line class=\"whisker\" x1=\"{left:.1}\" x2=\"{left:.1}\" y1=\"{:.1}\" y2=\"{:.1}\"/>",
                    y.at(low),
                    y.at(high)
                );
            }
            let _ = write!(
                svg,
                "<circle class=\"mark\" cx=\"{left:.1}\" cy=\"{:.1}\" r=\"3.5\"/>",
                y.at(point.score.value)
            );
        }
    }
    let _ = write!(
        svg,
        "<text x=\"{LEFT}\" y=\"{:.1}\">first</text><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">newest of {}</text></svg>",
        HEIGHT - 8.0,
        width - RIGHT,
        HEIGHT - 8.0,
        points.len()
    );
    svg
}
