//! The levels at which a suite's predictions have quantiles.

use std::fmt;
use std::sync::Arc;

use crate::error::Corrupt;
use crate::metric::{Family, Metric};

/// The most levels of a suite.
pub(crate) const LEVELS_MAX: usize = 99;

/// The most decimals of a level. A level is then an integer number of [`UNITS`] in 64 bits.
const DECIMALS_MAX: usize = 18;

/// The level 1 in units of the last possible decimal.
const UNITS: u64 = 1_000_000_000_000_000_000;

/// The most levels that a message names.
const NAMED_MAX: usize = 10;

/// The quantile levels of a suite: 1 to 99 different numbers between 0 and 1, ascending.
#[derive(Clone, PartialEq)]
pub struct QuantileLevels(Arc<[Level]>);

/// One level.
#[derive(Debug, PartialEq)]
struct Level {
    value: f64,
    /// The level as a prediction writes it: the shortest decimal number, without an exponent.
    name: String,
    /// The level in units of 1e-18. Sums and differences of levels are exact.
    units: u64,
}

impl Level {
    fn new(value: f64) -> Result<Self, String> {
        if !(0.0 < value && value < 1.0) {
            return Err(format!("{value} must be above 0 and below 1"));
        }
        let name = value.to_string();
        let decimals = name.strip_prefix("0.").unwrap_or_default();
        let units = format!("{decimals:0<DECIMALS_MAX$}").parse().ok();
        match units.filter(|_| decimals.len() <= DECIMALS_MAX) {
            Some(units) => Ok(Self { value, name, units }),
            None => Err(format!("{name} must have at most {DECIMALS_MAX} decimals")),
        }
    }
}

/// Two levels around the middle, such as 0.1 and 0.9.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CentralPair {
    /// The place of the lower level.
    pub(crate) lower: usize,
    /// The place of the upper level.
    pub(crate) upper: usize,
    /// The upper minus the lower level, without trailing zeros: `0.8`.
    pub(crate) coverage: String,
}

impl QuantileLevels {
    /// Returns the levels.
    ///
    /// # Errors
    /// Returns the reason unless there are 1 to 99 levels between 0 and 1, ascending, with at most 18
    /// decimals each.
    pub fn new(values: &[f64]) -> Result<Self, String> {
        if !(1..=LEVELS_MAX).contains(&values.len()) {
            return Err(format!(
                "there must be 1 to {LEVELS_MAX} levels, not {}",
                values.len()
            ));
        }
        let levels = values.iter().map(|value| Level::new(*value));
        let levels: Arc<[Level]> = levels.collect::<Result<_, _>>()?;
        match levels
            .windows(2)
            .find(|pair| pair[0].units >= pair[1].units)
        {
            Some(pair) => Err(format!(
                "the levels must be ascending, but {} follows {}",
                pair[1].name, pair[0].name
            )),
            None => Ok(Self(levels)),
        }
    }

    /// Reads a published suite's levels, which were checked when it was published.
    pub fn published(values: &[f64]) -> Result<Self, Corrupt> {
        Self::new(values)
            .map_err(|reason| Corrupt::new(format!("a published suite's quantiles: {reason}")))
    }

    /// Checks that a suite with this metric can have these levels: its predictions are quantiles, and
    /// `wis` needs levels that are symmetric around 0.5 and include it.
    pub fn check_metric(&self, metric: Metric) -> Result<(), String> {
        if metric.family() != Family::Quantiles {
            let metrics = Metric::listed(|metric| metric.family() == Family::Quantiles);
            return Err(format!("levels are for {metrics}, not for {metric}"));
        }
        if !metric.needs_symmetric_levels() {
            return Ok(());
        }
        if self.median().is_none() {
            return Err(format!("{metric} needs the level 0.5"));
        }
        let one_sided = self
            .0
            .iter()
            .find(|level| self.place_of(UNITS - level.units).is_none());
        one_sided.map_or(Ok(()), |level| {
            let units = UNITS - level.units;
            let other = decimal(units);
            Err(format!(
                "{metric} needs symmetric levels: {} is one, and {other} is not",
                level.name
            ))
        })
    }

    /// Returns how many levels there are: at least one.
    #[expect(clippy::len_without_is_empty, reason = "there is at least one level")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the levels, ascending.
    pub fn values(&self) -> impl ExactSizeIterator<Item = f64> + Clone {
        self.0.iter().map(|level| level.value)
    }

    /// Returns the levels as predictions write them, ascending. This is also their byte order.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> + Clone {
        self.0.iter().map(|level| level.name.as_str())
    }

    /// Returns a level as predictions write it.
    pub(crate) fn name(&self, place: usize) -> &str {
        &self.0[place].name
    }

    /// Returns the place of a level that is written like this.
    pub(crate) fn place(&self, name: &str) -> Option<usize> {
        // All levels begin with `0.`, and none ends with 0, so byte order is their order.
        self.0
            .binary_search_by(|level| level.name.as_str().cmp(name))
            .ok()
    }

    fn place_of(&self, units: u64) -> Option<usize> {
        self.0
            .binary_search_by_key(&units, |level| level.units)
            .ok()
    }

    /// Returns the place of the level 0.5, if it is one.
    pub(crate) fn median(&self) -> Option<usize> {
        self.place_of(UNITS / 2)
    }

    /// Returns the pairs of levels at the same distance from 0.5, the innermost first.
    pub(crate) fn central_pairs(&self) -> Vec<CentralPair> {
        let pair = |(lower, level): (usize, &Level)| {
            let opposite = UNITS - level.units;
            let upper = self.place_of(opposite).filter(|upper| *upper > lower)?;
            Some(CentralPair {
                lower,
                upper,
                coverage: decimal(opposite - level.units),
            })
        };
        self.0.iter().enumerate().rev().filter_map(pair).collect()
    }
}

/// Returns a number of units, below 1, as a decimal number without trailing zeros.
fn decimal(units: u64) -> String {
    format!("0.{units:0>DECIMALS_MAX$}")
        .trim_end_matches('0')
        .to_owned()
}

impl fmt::Debug for QuantileLevels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.values()).finish()
    }
}

/// The levels with commas between them, of many the first ones: for messages.
impl fmt::Display for QuantileLevels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: Vec<&str> = self.names().take(NAMED_MAX).collect();
        f.write_str(&shown.join(", "))?;
        if self.len() > NAMED_MAX {
            write!(f, " and {} more", self.len() - NAMED_MAX)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn levels(values: &[f64]) -> QuantileLevels {
        QuantileLevels::new(values).unwrap()
    }

    #[test]
    fn levels_are_written_as_short_decimals() {
        let found = levels(&[1e-7, 0.025, 0.1, 0.1 + 0.2, 0.5, 1.0 / 1.5]);
        let names: Vec<&str> = found.names().collect();
        let expected = [
            "0.0000001",
            "0.025",
            "0.1",
            "0.30000000000000004",
            "0.5",
            "0.6666666666666666",
        ];
        assert_eq!(names, expected);
        for (place, name) in names.into_iter().enumerate() {
            assert_eq!((found.place(name), found.name(place)), (Some(place), name));
        }
        for name in ["", "0", "0.10", "0.2", ".1", "1e-7", "0.5 ", "0.9"] {
            assert_eq!(found.place(name), None, "{name}");
        }
        let all: Vec<f64> = (1..100).map(|at| f64::from(at) / 100.0).collect();
        let all = levels(&all);
        let mut names: Vec<&str> = all.names().collect();
        names.sort_unstable();
        assert!(all.names().eq(names), "byte order is the order of levels");
        assert_eq!(
            all.to_string(),
            "0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.08, 0.09, 0.1 and 89 more"
        );
    }

    #[test]
    fn bad_levels_are_rejected_with_reason() {
        for (values, reason) in [
            (&[][..], "there must be 1 to 99 levels, not 0"),
            (&[0.5; 100][..], "there must be 1 to 99 levels, not 100"),
            (&[0.0, 0.5], "0 must be above 0 and below 1"),
            (&[0.5, 1.0], "1 must be above 0 and below 1"),
            (&[f64::NAN], "NaN must be above 0 and below 1"),
            (&[f64::INFINITY], "inf must be above 0 and below 1"),
            (
                &[0.5, 0.5],
                "the levels must be ascending, but 0.5 follows 0.5",
            ),
            (
                &[0.9, 0.1],
                "the levels must be ascending, but 0.1 follows 0.9",
            ),
            (
                &[1e-19],
                "0.0000000000000000001 must have at most 18 decimals",
            ),
        ] {
            assert_eq!(QuantileLevels::new(values).unwrap_err(), reason);
        }
        assert!(QuantileLevels::published(&[0.5, 0.1]).is_err());
    }

    #[test]
    fn wis_needs_symmetric_levels_with_the_median() {
        let check = |values: &[f64], metric: Metric| levels(values).check_metric(metric);
        for values in [&[0.5][..], &[0.1, 0.5, 0.9], &[0.025, 0.3, 0.5, 0.7, 0.975]] {
            assert_eq!(check(values, Metric::Wis), Ok(()));
        }
        assert_eq!(check(&[0.1, 0.2], Metric::Pinball), Ok(()));
        for (values, reason) in [
            (&[0.1, 0.9][..], "wis needs the level 0.5"),
            (
                &[0.1, 0.5, 0.8],
                "wis needs symmetric levels: 0.1 is one, and 0.9 is not",
            ),
            (
                &[0.5, 0.975],
                "wis needs symmetric levels: 0.975 is one, and 0.025 is not",
            ),
        ] {
            assert_eq!(check(values, Metric::Wis).unwrap_err(), reason);
        }
        assert_eq!(
            check(&[0.5], Metric::Mae).unwrap_err(),
            "levels are for pinball and wis, not for mae"
        );
    }

    #[test]
    fn central_pairs_have_exact_coverage() {
        let pairs = |values: &[f64]| {
            let levels = levels(values);
            let pairs = levels.central_pairs().into_iter();
            let pair = |pair: CentralPair| (pair.lower, pair.upper, pair.coverage);
            pairs.map(pair).collect::<Vec<_>>()
        };
        // 0.95 − 0.05 is 0.8999999999999999 in doubles.
        assert_eq!(
            pairs(&[0.005, 0.05, 0.25, 0.3, 0.5, 0.75, 0.95, 0.995]),
            [
                (2, 5, "0.5".to_owned()),
                (1, 6, "0.9".to_owned()),
                (0, 7, "0.99".to_owned()),
            ]
        );
        assert_eq!(pairs(&[0.1, 0.5]), []);
        assert_eq!(levels(&[0.1, 0.5]).median(), Some(1));
        assert_eq!(levels(&[0.1, 0.6]).median(), None);
    }
}
