//! How sure a figure is.

use crate::stats::compensated_sum::Sum;

/// Half the width of a 95 % interval, in standard errors.
pub const Z: f64 = 1.959_963_984_540_054;

/// What is said of a value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// Its standard error.
    pub stderr: f64,
    /// Its interval of 95 % confidence.
    pub ci95: [f64; 2],
    /// How these were found.
    pub method: &'static str,
}

impl Estimate {
    /// The same with each number changed.
    #[must_use]
    pub fn map(self, change: impl Fn(f64) -> f64) -> Self {
        Self {
            stderr: change(self.stderr),
            ci95: self.ci95.map(change),
            method: self.method,
        }
    }
}

/// A share of n: Wilson's interval, which holds what it promises also near 0 and 1 and for few items.
pub fn wilson(share: f64, n: usize) -> Option<Estimate> {
    if n == 0 {
        return None;
    }
    let n = n as f64;
    let spread = Z * Z / n;
    let middle = (share + spread / 2.0) / (1.0 + spread);
    let half = Z / (1.0 + spread) * (share * (1.0 - share) / n + spread / (4.0 * n)).sqrt();
    // At the ends it is exact; what is left there are roundings.
    let low = if share == 0.0 {
        0.0
    } else {
        (middle - half).max(0.0)
    };
    let high = if share == 1.0 {
        1.0
    } else {
        (middle + half).min(1.0)
    };
    Some(Estimate {
        stderr: (share * (1.0 - share) / n).sqrt(),
        ci95: [low, high],
        method: "wilson",
    })
}

/// Around a value, by its standard error, and within what the metric can be.
pub(crate) fn around(value: f64, stderr: f64, range: [f64; 2], method: &'static str) -> Estimate {
    let ci95 = [
        (value - Z * stderr).max(range[0]),
        (value + Z * stderr).min(range[1]),
    ];
    Estimate {
        stderr,
        ci95,
        method,
    }
}

/// The standard error of a mean: from how far its terms are from it, each at its place in the suite's order. One term says
/// nothing of that.
pub(crate) fn stderr_of_mean(mean: f64, n: usize, terms: impl Iterator<Item = f64>) -> Option<f64> {
    if n < 2 {
        return None;
    }
    let squares: Sum = terms.map(|term| (term - mean) * (term - mean)).collect();
    Some((squares.total() / (n as f64 - 1.0) / n as f64).sqrt())
}

/// The variance of a figure of n items whose influences, which sum to 0, have squares of this sum.
pub(crate) fn stderr_of_influences(squares: f64, n: usize) -> Option<f64> {
    (n >= 2).then(|| (squares * n as f64 / (n as f64 - 1.0)).sqrt())
}

/// A rank correlation of n pairs: Fisher's transformation with the standard error of Bonett and Wright (2000).
pub(crate) fn fisher(rho: f64, n: usize) -> Option<Estimate> {
    if n < 4 {
        return None;
    }
    let stderr = ((1.0 + rho * rho / 2.0) / (n as f64 - 3.0)).sqrt();
    let (z, method) = (rho.clamp(-1.0, 1.0).atanh(), "fisher");
    if z.is_infinite() {
        return Some(Estimate {
            stderr: 0.0,
            ci95: [rho, rho],
            method,
        });
    }
    let ci95 = [(z - Z * stderr).tanh(), (z + Z * stderr).tanh()];
    Some(Estimate {
        stderr: (1.0 - rho * rho) * stderr,
        ci95,
        method,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wilsons_interval_is_the_textbooks() {
        // SciPy's binomtest(15, 50).proportion_ci(method="wilson").
        let Estimate {
            stderr,
            ci95: [low, high],
            ..
        } = wilson(0.3, 50).unwrap();
        assert!(
            (low - 0.191_035_535_008_809_5).abs() < 1e-12
                && (high - 0.437_503_504_644_534).abs() < 1e-12,
            "{low} {high}"
        );
        assert!((stderr - (0.3_f64 * 0.7 / 50.0).sqrt()).abs() < 1e-15);
        let none = wilson(0.0, 10).unwrap().ci95;
        assert!(none[0] == 0.0 && (none[1] - 0.277_532_8).abs() < 1e-6);
        assert_eq!(wilson(1.0, 10).unwrap().ci95[1], 1.0);
    }

    #[test]
    fn an_interval_does_not_leave_the_metrics_range() {
        assert_eq!(around(0.99, 0.1, [0.0, 1.0], "normal").ci95[1], 1.0);
        assert_eq!(stderr_of_mean(1.0, 1, [1.0].into_iter()), None);
        assert_eq!(fisher(1.0, 10).unwrap().ci95, [1.0, 1.0]);
        assert_eq!(fisher(0.5, 3), None);
    }
}
