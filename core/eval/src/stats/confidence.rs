//! Standard errors and confidence intervals.

use crate::stats::compensated_sum::Sum;

/// A 95 % confidence interval's half width, in standard errors: the normal distribution's 97.5 %
/// quantile.
pub const Z: f64 = 1.959_963_984_540_054;

/// A value's uncertainty.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// The standard error, in value units.
    pub stderr: f64,
    /// The 95 % confidence interval: lower and upper end.
    pub ci95: [f64; 2],
    /// The method's name: `wilson`, `normal`, `delta`, `delong`, `fisher`,
    /// `fisher_delta` or `bootstrap`; with clusters `cluster_wilson`, `cluster_t`, `cluster_logit`,
    /// `cluster_fisher` or `cluster_bootstrap`.
    pub method: &'static str,
}

impl Estimate {
    /// Applies a function to each number, for example to round it.
    #[must_use]
    pub fn map(self, change: impl Fn(f64) -> f64) -> Self {
        Self {
            stderr: change(self.stderr),
            ci95: self.ci95.map(change),
            method: self.method,
        }
    }
}

/// Returns Wilson's interval for a share among `n` items, which keeps its coverage near 0 and 1 and
/// with few items. `None` without items.
pub fn wilson(share: f64, n: usize) -> Option<Estimate> {
    if n == 0 {
        return None;
    }
    let n = n as f64;
    Some(Estimate {
        stderr: (share * (1.0 - share) / n).sqrt(),
        ci95: wilson_ends(share, n, Z),
        method: "wilson",
    })
}

/// Returns the ends of Wilson's interval with a half width of `z` standard errors.
pub(crate) fn wilson_ends(share: f64, n: f64, z: f64) -> [f64; 2] {
    let spread = z * z / n;
    let middle = (share + spread / 2.0) / (1.0 + spread);
    let half = z / (1.0 + spread) * (share * (1.0 - share) / n + spread / (4.0 * n)).sqrt();
    // At 0 and 1 the end is exact; the formula would leave a rounding error.
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
    [low, high]
}

/// Returns the normal 95 % confidence interval for a value with this standard error.
pub(crate) fn around(value: f64, stderr: f64) -> [f64; 2] {
    [value - Z * stderr, value + Z * stderr]
}

/// Returns the estimate for a value with this standard error: a normal interval, cut to the
/// metric's range.
pub(crate) fn estimate_within(
    range: [f64; 2],
    value: f64,
    stderr: f64,
    method: &'static str,
) -> Estimate {
    let [low, high] = around(value, stderr);
    let ci95 = [low.max(range[0]), high.min(range[1])];
    Estimate {
        stderr,
        ci95,
        method,
    }
}

/// Returns the standard error for a mean over `n` terms. The terms come in the suite's order.
/// `None` with fewer than two terms.
pub(crate) fn stderr_of_mean(mean: f64, n: usize, terms: impl Iterator<Item = f64>) -> Option<f64> {
    if n < 2 {
        return None;
    }
    let squares: Sum = terms.map(|term| (term - mean) * (term - mean)).collect();
    Some((squares.total() / (n as f64 - 1.0) / n as f64).sqrt())
}

/// Returns the standard error for a figure over `n` items by the delta method. `squares` is the
/// summed squares of the items' influences on the figure, which sum to 0. `None` with fewer than
/// two items.
pub(crate) fn stderr_of_influences(squares: f64, n: usize) -> Option<f64> {
    (n >= 2).then(|| (squares * n as f64 / (n as f64 - 1.0)).sqrt())
}

/// Returns the estimate for a correlation with this standard error, from the influences of the items:
/// Fisher's transformation of the normal interval.
pub(crate) fn fisher_delta(value: f64, stderr: f64) -> Estimate {
    let method = "fisher_delta";
    if value.abs() >= 1.0 {
        return estimate_within([-1.0, 1.0], value, stderr, method);
    }
    let ends = around(value.atanh(), stderr / (1.0 - value * value));
    Estimate {
        stderr,
        ci95: ends.map(f64::tanh),
        method,
    }
}

/// Returns the estimate for a rank correlation over `n` pairs: Fisher's transformation with the
/// standard error by Bonett and Wright (2000). `None` with fewer than four pairs.
pub(crate) fn fisher(rho: f64, n: usize) -> Option<Estimate> {
    if n < 4 {
        return None;
    }
    let stderr = ((1.0 + rho * rho / 2.0) / (n as f64 - 3.0)).sqrt();
    let z = rho.clamp(-1.0, 1.0).atanh();
    let method = "fisher";
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
    fn wilson_interval_agrees_with_scipy() {
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
    fn interval_stays_within_range() {
        assert_eq!(
            estimate_within([0.0, 1.0], 0.99, 0.1, "normal").ci95[1],
            1.0
        );
        assert_eq!(stderr_of_mean(1.0, 1, [1.0].into_iter()), None);
        assert_eq!(fisher(1.0, 10).unwrap().ci95, [1.0, 1.0]);
        assert_eq!(fisher(0.5, 3), None);
    }
}
