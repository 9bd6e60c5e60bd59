//! A value with its interval as a small bar, for lists with one suite's jobs.

use std::fmt::Write as _;

use super::Scale;
use crate::dashboard::score::Score;

const WIDTH: f64 = 60.0;
const HEIGHT: f64 = 14.0;

/// Returns the range over all scores with their intervals, or `None` without scores.
pub fn range(scores: impl Iterator<Item = Score>) -> Option<[f64; 2]> {
    scores
        .map(|score| ends(&score))
        .reduce(|[low, high], [a, b]| [low.min(a), high.max(b)])
}

/// Draws a score within its list's range. The text next to it has the figures.
pub fn draw(score: &Score, range: [f64; 2]) -> String {
    let x = Scale::new(range, [3.0, WIDTH - 3.0]);
    let [low, high] = ends(score).map(|end| x.at(end));
    let (value, middle) = (x.at(score.value), HEIGHT / 2.0);
    let mut svg = String::new();
    let _ = write!(
        svg,
        "<svg class=\"spark\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" aria-hidden=\"true\"><line class=\"whisker\" x1=\"{low:.1}\" x2=\"{high:.1}\" y1=\"{middle}\" y2=\"{middle}\"/><circle class=\"mark\" cx=\"{value:.1}\" cy=\"{middle}\" r=\"3\"/></svg>"
    );
    svg
}

fn ends(score: &Score) -> [f64; 2] {
    let [low, high] = score.ci95.unwrap_or([score.value; 2]);
    [low.min(score.value), high.max(score.value)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_of_a_list_share_a_range() {
        let score = |value, ci95| Score {
            value,
            stderr: None,
            ci95,
        };
        let scores = [score(0.4, Some([0.3, 0.5])), score(0.7, None)];
        let range = range(scores.into_iter()).unwrap();
        assert_eq!(range, [0.3, 0.7]);
        assert!(draw(&scores[0], range).contains("x1=\"3.0\" x2=\"30.0\""));
        assert!(draw(&scores[1], range).contains("cx=\"57.0\""));
    }
}
