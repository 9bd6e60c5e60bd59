//! Charts as SVG, rendered by the server. Each is drawn for a narrow and for a wide page, so that
//! its text has the same size on both.

pub mod days;
pub mod history;
pub mod interval;
pub mod spark;

use std::fmt::Write as _;

/// The widths for which charts are drawn, narrow and wide, in CSS pixels.
pub const WIDTHS: [f64; 2] = [320.0, 640.0];

/// A linear scale from values to positions.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    from: [f64; 2],
    to: [f64; 2],
}

impl Scale {
    /// Returns the scale that maps the range `from` to the range `to`.
    pub fn new(from: [f64; 2], to: [f64; 2]) -> Self {
        Self { from, to }
    }

    /// Returns a value's position.
    pub fn at(&self, value: f64) -> f64 {
        let [low, high] = self.from;
        let [start, end] = self.to;
        if high > low {
            start + (value - low) / (high - low) * (end - start)
        } else {
            f64::midpoint(start, end)
        }
    }
}

/// Returns three to eight round values within a range.
pub fn ticks([low, high]: [f64; 2]) -> Vec<f64> {
    let span = high - low;
    if !span.is_finite() || span <= 0.0 {
        return vec![low];
    }
    let power = 10_f64.powf((span / 4.0).log10().floor());
    let multiples = |step: f64| {
        let first = (low / step - 1e-9).ceil();
        let last = (high / step + 1e-9).floor();
        let mut ticks = Vec::new();
        let mut at = first;
        while at <= last {
            ticks.push((at * step).clamp(low, high));
            at += 1.0;
        }
        ticks
    };
    // A step that is at most a quarter of the range has at least three multiples within it.
    [10.0, 5.0, 2.0, 1.0]
        .map(|factor| factor * power)
        .into_iter()
        .map(multiples)
        .find(|ticks| ticks.len() >= 3)
        .unwrap_or_else(|| vec![low, high])
}

/// Escapes text for SVG.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

/// Starts a chart that screen readers name by `title` and describe by `description`. `id` must be
/// unique on the page.
pub fn start(id: &str, title: &str, description: &str, width: f64, height: f64) -> String {
    let mut svg = String::new();
    let (title, description) = (escape(title), escape(description));
    let _ = write!(
        svg,
        "<svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-labelledby=\"{id}-title {id}-text\"><title id=\"{id}-title\">{title}</title><desc id=\"{id}-text\">{description}</desc>"
    );
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        assert_eq!(ticks([0.0, 1.0]), [0.0, 0.5, 1.0]);
        for range in [
            [0.412, 0.455],
            [0.001, 0.0019],
            [-3.0, 4.0],
            [0.0, 12_345.0],
        ] {
            let ticks = ticks(range);
            assert!((3..=8).contains(&ticks.len()), "{range:?}: {ticks:?}");
            assert!(ticks.iter().all(|at| (range[0]..=range[1]).contains(at)));
        }
    }

    #[test]
    fn text_is_escaped() {
        assert_eq!(
            escape("<a href=\"'&\">"),
            "&lt;a href=&quot;&#39;&amp;&quot;&gt;"
        );
    }

    #[test]
    fn scale_maps_ends() {
        let scale = Scale::new([10.0, 20.0], [100.0, 0.0]);
        assert_eq!(
            [scale.at(10.0), scale.at(20.0), scale.at(15.0)],
            [100.0, 0.0, 50.0]
        );
        assert_eq!(Scale::new([1.0, 1.0], [0.0, 10.0]).at(1.0), 5.0);
    }
}
