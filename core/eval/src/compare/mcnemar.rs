//! Test and interval for two jobs whose item scores are 0 or 1.

use std::f64::consts::PI;

use statrs::distribution::{Binomial, DiscreteCDF as _};

use crate::stats::confidence::Z;

/// Returns the 95 % confidence interval for the difference between two shares over the same `n`
/// items. `more` and `less` count the items at which the first job and the second job is better.
/// (D. G. Bonett and R. M. Price, Adjusted Wald confidence interval for a difference between
/// binomial proportions based on paired data, 2012.)
pub(super) fn bonett_price(more: u64, less: u64, n: u64) -> [f64; 2] {
    let share = |count: u64| (count as f64 + 1.0) / (n as f64 + 2.0);
    let more = share(more);
    let less = share(less);
    let middle = more - less;
    let half = Z * ((more + less - (more - less).powi(2)) / (n as f64 + 2.0)).sqrt();
    [(middle - half).max(-1.0), (middle + half).min(1.0)]
}

/// Returns the p-value for the exact test by Q. McNemar (1947): at each item where the jobs differ,
/// each is as likely to be the better one.
pub fn mcnemar(more: u64, less: u64) -> f64 {
    (2.0 * heads_at_most(more.min(less), more + less)).min(1.0)
}

/// Returns the probability for at most `k` heads in `n` coin flips, where `k` is at most `n` / 2.
fn heads_at_most(k: u64, n: u64) -> f64 {
    // With more flips, the library's distribution function gives up before it converges.
    const FEW: u64 = 1000;

    if n <= FEW {
        return Binomial::new(0.5, n).map_or(1.0, |coins| coins.cdf(k));
    }
    // The sum starts with the largest term; each term is a known multiple of the one before.
    let mut term = heads_exactly(k, n);
    let mut sum = 0.0;
    for k in (0..=k).rev() {
        sum += term;
        term *= k as f64 / (n - k + 1) as f64;
        if term < sum * 1e-17 {
            break;
        }
    }
    sum
}

/// Returns the probability for exactly `k` heads in more than a thousand coin flips, by the
/// expansion due to C. Loader (2000), which does not cancel digits in large numbers.
fn heads_exactly(k: u64, n: u64) -> f64 {
    // The probability is below any p-value that matters.
    if k < 16 {
        return 0.0;
    }
    let stirling = |n: u64| {
        let n = n as f64;
        (1.0 / 12.0 - (1.0 / 360.0 - (1.0 / 1260.0 - 1.0 / (1680.0 * n * n)) / (n * n)) / (n * n))
            / n
    };
    let half = n as f64 / 2.0;
    let heads = k as f64;
    let tails = (n - k) as f64;
    let deviance = |count: f64| count * ((count - half) / half).ln_1p() - (count - half);
    let exponent = stirling(n) - stirling(k) - stirling(n - k) - deviance(heads) - deviance(tails);
    exponent.exp() * (n as f64 / (2.0 * PI * heads * tails)).sqrt()
}
