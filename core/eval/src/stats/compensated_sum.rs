//! Sums that do not depend on their terms' order.

/// A sum in twice `f64`'s precision: the total has one rounding's error, and the terms' order
/// changes it by no more (T. J. Dekker, A floating-point technique for extending the available
/// precision, 1971).
#[derive(Debug, Default, Clone, Copy)]
pub struct Sum {
    high: f64,
    low: f64,
}

impl Sum {
    /// Adds a term to the sum.
    #[inline]
    pub fn add(&mut self, term: f64) {
        let sum = self.high + term;
        // This addition's rounding error, exactly.
        let part = sum - self.high;
        let lost = (self.high - (sum - part)) + (term - part) + self.low;
        self.high = sum + lost;
        self.low = lost - (self.high - sum);
    }

    /// Returns the terms' sum, rounded once.
    pub fn total(self) -> f64 {
        self.high + self.low
    }
}

impl FromIterator<f64> for Sum {
    fn from_iter<I: IntoIterator<Item = f64>>(terms: I) -> Self {
        let mut sum = Self::default();
        terms.into_iter().for_each(|term| sum.add(term));
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_of_terms_does_not_change_total() {
        let total = |terms: &mut dyn Iterator<Item = f64>| terms.collect::<Sum>().total();
        assert_eq!(total(&mut [1.0, 1e20, 1.0, -1e20].into_iter()), 2.0);
        let terms: Vec<f64> = (1..100_000).map(|rank| 1.0 / f64::from(rank)).collect();
        assert_eq!(
            total(&mut terms.iter().copied()),
            total(&mut terms.iter().rev().copied())
        );
        let shuffled = (0..terms.len()).map(|at| terms[at * 7919 % terms.len()]);
        assert_eq!(
            total(&mut terms.iter().copied()),
            total(&mut shuffled.into_iter())
        );
    }
}
