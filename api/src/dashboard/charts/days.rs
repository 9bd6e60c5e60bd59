//! Usage by day: charged predictions as bars, whose refunded part is hatched.

use std::fmt::Write as _;

use assay_core::model::usage::UsageDay;

use super::{Scale, WIDTHS, start, ticks};
use crate::dashboard::filters::count_text;

const HEIGHT: f64 = 200.0;
const LEFT: f64 = 56.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 24.0;

/// Draws the chart for a narrow and for a wide page. Returns `None` if nothing was charged.
pub fn draw(days: &[UsageDay]) -> Option<[String; 2]> {
    let highest = days.iter().map(|day| day.eval_items).max()?;
    (highest > 0).then(|| WIDTHS.map(|width| draw_for(days, highest, width)))
}

fn draw_for(days: &[UsageDay], highest: i64, width: f64) -> String {
    let range = [0.0, highest as f64];
    let y = Scale::new(range, [HEIGHT - BOTTOM, TOP]);
    let step = (width - LEFT - 8.0) / days.len() as f64;
    let total: i64 = days.iter().map(|day| day.eval_items).sum();
    let refunded: i64 = days.iter().map(|day| day.eval_items_refunded).sum();
    let description = format!(
        "{} predictions in {} days, of which {} were refunded. The most on one day: {}.",
        count_text(total),
        days.len(),
        count_text(refunded),
        count_text(highest)
    );
    let id = format!("days-{width}");
    let mut svg = start(&id, "Predictions by day", &description, width, HEIGHT);
    svg.push_str("<defs><pattern id=\"hatch\" width=\"4\" height=\"4\" patternUnits=\"userSpaceOnUse\"><path class=\"hatch\" d=\"M0 4L4 0\"/></pattern></defs>");
    for tick in ticks(range) {
        let at = y.at(tick);
        let _ = write!(
            svg,
            "<line class=\"rule\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            width - 8.0,
            LEFT - 6.0,
            at + 4.0,
            count_text(tick as i64)
        );
    }
    for (at, day) in days.iter().enumerate() {
        let left = LEFT + step * at as f64 + step * 0.1;
        let kept = day.eval_items - day.eval_items_refunded;
        let (top, middle, base) = (y.at(day.eval_items as f64), y.at(kept as f64), y.at(0.0));
        let bar = step * 0.8;
        if kept > 0 {
            let _ = write!(
                svg,
                "<rect class=\"bar-charged\" x=\"{left:.1}\" y=\"{middle:.1}\" width=\"{bar:.1}\" height=\"{:.1}\"/>",
                base - middle
            );
        }
        if day.eval_items_refunded > 0 {
            let _ = write!(
                svg,
                "<rect class=\"bar-refunded\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{bar:.1}\" height=\"{:.1}\"/>",
                middle - top
            );
        }
    }
    if let (Some(first), Some(last)) = (days.first(), days.last()) {
        let _ = write!(
            svg,
            "<text x=\"{LEFT}\" y=\"{:.1}\">{}</text><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            HEIGHT - 6.0,
            first.date,
            width - 8.0,
            HEIGHT - 6.0,
            last.date
        );
    }
    svg.push_str("</svg>");
    svg
}
