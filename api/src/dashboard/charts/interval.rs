//! A value with its 95 % interval on an axis.

use std::fmt::Write as _;

use super::{Scale, start, ticks};
use crate::dashboard::filters::figure_text;

const WIDTH: f64 = 240.0;
const HEIGHT: f64 = 56.0;

/// Draws a value with its interval. `zero` adds a rule at zero, for a difference.
pub fn draw(id: &str, title: &str, value: f64, [low, high]: [f64; 2], zero: bool) -> String {
    let mut ends = [low.min(value), high.max(value)];
    if zero {
        ends = [ends[0].min(0.0), ends[1].max(0.0)];
    }
    let margin = ((ends[1] - ends[0]) * 0.25).max(1e-9);
    let range = [ends[0] - margin, ends[1] + margin];
    let x = Scale::new(range, [8.0, WIDTH - 8.0]);
    let description = format!(
        "{}, 95 %: {} to {}",
        figure_text(value),
        figure_text(low),
        figure_text(high)
    );
    let mut svg = start(id, title, &description, WIDTH, HEIGHT);
    let _ = write!(
        svg,
        "<line class=\"axis\" x1=\"8\" x2=\"{:.1}\" y1=\"34\" y2=\"34\"/>",
        WIDTH - 8.0
    );
    for tick in ticks(range) {
        let at = x.at(tick);
        let _ = write!(
            svg,
            "<line class=\"axis\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"34\" y2=\"38\"/><text x=\"{at:.1}\" y=\"52\" text-anchor=\"middle\">{}</text>",
            figure_text(tick)
        );
    }
    if zero {
        let at = x.at(0.0);
        let _ = write!(
            svg,
            "<line class=\"limit\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"2\" y2=\"38\"/>"
        );
    }
    let (left, right, middle) = (x.at(low), x.at(high), x.at(value));
    let _ = write!(
        svg,
        "<path class=\"whisker\" fill=\"none\" d=\"M{left:.1} 12V24M{left:.1} 18H{right:.1}M{right:.1} 12V24\"/><circle class=\"mark\" cx=\"{middle:.1}\" cy=\"18\" r=\"5\"/></svg>"
    );
    svg
}
