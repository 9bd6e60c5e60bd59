//! Ranking and drawing items by a bare network's logits with one code level.

use std::cmp::Ordering;
use std::collections::HashSet;

use assay_engine::{ItemTable, draw};

use crate::checks::{check_finite, invalid};
use crate::failure::Failure;

/// The next items that a continuation step needs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Wanted<'w> {
    /// The most probable ones, at most this many.
    Best(usize),
    /// One for each number; they are uniform from 0 to 1.
    Drawn {
        /// Divides the log-probabilities.
        temperature: f64,
        /// The random numbers.
        numbers: &'w [f64],
    },
}

/// All codes' log-probabilities.
pub struct Scores<'l> {
    logits: &'l [f32],
    normalizer: f64,
}

impl<'l> Scores<'l> {
    /// Normalizes logits: their exponentials are proportional to the probabilities.
    pub fn new(logits: &'l [f32]) -> Result<Self, Failure> {
        check_finite(logits)?;
        let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = logits
            .iter()
            .map(|logit| (f64::from(*logit) - f64::from(max)).exp())
            .sum();
        Ok(Self {
            logits,
            normalizer: f64::from(max) + sum.ln(),
        })
    }

    /// Returns a code's log-probability. Returns `None` for a code that does not exist.
    pub fn of(&self, code: u32) -> Option<f64> {
        let logit = self.logits.get(usize::try_from(code).ok()?)?;
        Some(f64::from(*logit) - self.normalizer)
    }

    /// Returns the catalog's wanted items, as positions, with their log-probabilities. Items
    /// with equal scores have their codes' order. Excluded items are named by their codes.
    pub fn choose(
        &self,
        items: &ItemTable,
        excluded: &HashSet<u32>,
        wanted: Wanted<'_>,
    ) -> Result<Vec<(usize, f64)>, Failure> {
        let allowed = (0..items.len()).filter_map(|position| {
            let code = *items.code_at(position)?.first()?;
            let score = self.of(code)?;
            (!excluded.contains(&code)).then_some((position, score))
        });
        let mut allowed: Vec<_> = allowed.collect();
        match wanted {
            Wanted::Best(n) => {
                if n < allowed.len() {
                    allowed.select_nth_unstable_by(n, by_score);
                    allowed.truncate(n);
                }
                allowed.sort_unstable_by(by_score);
                Ok(allowed)
            }
            Wanted::Drawn {
                temperature,
                numbers,
            } => draw_from(&allowed, temperature, numbers),
        }
    }
}

/// Draws one item for each number, or none if there are no items.
pub fn draw_from<T: Clone>(
    items: &[(T, f64)],
    temperature: f64,
    numbers: &[f64],
) -> Result<Vec<(T, f64)>, Failure> {
    if items.is_empty() {
        return Ok(Vec::new());
    }
    let scores = items.iter().map(|(_, score)| *score as f32);
    let drawn = numbers
        .iter()
        .map(|number| draw(scores.clone(), temperature as f32, *number));
    drawn
        .map(|at| at.and_then(|at| items.get(at)).cloned())
        .collect::<Option<_>>()
        .ok_or_else(|| invalid("no item can be drawn by the scores of a row"))
}

/// A ranking's order: descending scores, equal ones by position.
fn by_score(one: &(usize, f64), other: &(usize, f64)) -> Ordering {
    other.1.total_cmp(&one.1).then(one.0.cmp(&other.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> ItemTable {
        let lines: String = ["d", "b", "a", "c"]
            .iter()
            .zip([6, 2, 1, 4])
            .map(|(item, code)| format!("{{\"item_id\": \"{item}\", \"code\": \"{code}\"}}\n"))
            .collect();
        ItemTable::parse(lines.as_bytes(), &[8]).unwrap()
    }

    const LOGITS: [f32; 8] = [9.0, 1.0, 3.0, 0.0, 3.0, 0.0, 2.0, 0.0];

    #[test]
    fn scores_are_log_softmax_of_all_codes() {
        let scores = Scores::new(&LOGITS).unwrap();
        let sum: f64 = (0..8).map(|code| scores.of(code).unwrap().exp()).sum();
        assert!((sum - 1.0).abs() < 1e-12, "{sum}");
        assert!((scores.of(2).unwrap() - scores.of(1).unwrap() - 2.0).abs() < 1e-12);
        assert_eq!(scores.of(8), None);
        // Large logits' exponentials would overflow.
        let scores = [1000.0, 0.0];
        assert_eq!(Scores::new(&scores).unwrap().of(0), Some(0.0));
        assert!(Scores::new(&[0.0, f32::NAN]).is_err());
        assert!(Scores::new(&[0.0, f32::INFINITY]).is_err());
    }

    #[test]
    fn best_items_have_ties_in_order_of_codes() {
        let (table, scores) = (table(), Scores::new(&LOGITS).unwrap());
        let best = |n, excluded: &[u32]| -> String {
            let excluded = excluded.iter().copied().collect();
            let chosen = scores.choose(&table, &excluded, Wanted::Best(n)).unwrap();
            chosen
                .iter()
                .filter_map(|(position, _)| table.item_at(*position))
                .collect()
        };
        assert_eq!(best(4, &[]), "bcda");
        assert_eq!(best(500, &[]), "bcda");
        assert_eq!(best(1, &[]), "b");
        assert_eq!(best(2, &[2]), "cd");
        assert_eq!(best(2, &[1, 2, 4, 6]), "");
    }

    #[test]
    fn drawn_items_follow_numbers() {
        let (table, scores) = (table(), Scores::new(&LOGITS).unwrap());
        let excluded = HashSet::from([2]);
        let wanted = Wanted::Drawn {
            temperature: 0.01,
            numbers: &[0.1, 0.999],
        };
        // At a low temperature only the most probable item, c, is drawn.
        let chosen = scores.choose(&table, &excluded, wanted).unwrap();
        assert_eq!(chosen.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [2, 2]);
        assert_eq!(
            chosen[0].1,
            scores.of(4).unwrap(),
            "the temperature is not applied"
        );
        let all = HashSet::from([1, 2, 4, 6]);
        assert_eq!(scores.choose(&table, &all, wanted).unwrap(), []);
    }
}
