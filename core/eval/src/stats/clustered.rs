//! Standard errors and confidence intervals of figures over items in clusters.

use statrs::distribution::{ContinuousCDF as _, Normal, StudentsT};

use crate::clusters::{ClusterSizes, Clusters};
use crate::stats::compensated_sum::Sum;
use crate::stats::confidence::{Estimate, Z, wilson_ends};

/// With the rarer outcome in fewer clusters, the variance of a share is unreliable.
const OUTCOME_CLUSTERS_MIN: usize = 10;

/// The degrees of freedom from which Student's t is computed from the normal distribution. The
/// incomplete beta function loses digits there: the quantile for 1e7 degrees would be 7 % too large.
const EXPANSION_MIN: f64 = 1_000.0;

/// Returns the 97.5 % quantile of Student's t with these degrees of freedom: the half width of a
/// 95 % confidence interval, in standard errors.
pub(crate) fn half_width(degrees: f64) -> f64 {
    quantile(0.975, Z, degrees)
}

/// Returns the half width of each of `n` simultaneous 95 % confidence intervals, in standard errors
/// with these degrees of freedom (O. J. Dunn 1961).
pub(crate) fn simultaneous_half_width(n: usize, degrees: f64) -> f64 {
    let probability = 1.0 - 0.025 / n as f64;
    quantile(
        probability,
        Normal::standard().inverse_cdf(probability),
        degrees,
    )
}

/// Returns the quantile of Student's t. `normal` is the quantile of the normal distribution.
fn quantile(probability: f64, normal: f64, degrees: f64) -> f64 {
    if degrees < EXPANSION_MIN {
        let distribution = StudentsT::new(0.0, 1.0, degrees);
        return distribution.map_or(f64::INFINITY, |t| t.inverse_cdf(probability));
    }
    // M. Abramowitz and I. A. Stegun 1964, 26.7.5. The next term is below 1e-15.
    let terms = [
        [0.0, 0.0, 0.0, 1.0, 1.0].map(|factor| factor / 4.0),
        [0.0, 0.0, 5.0, 16.0, 3.0].map(|factor| factor / 96.0),
        [0.0, 3.0, 19.0, 17.0, -15.0].map(|factor| factor / 384.0),
        [79.0, 776.0, 1482.0, -1920.0, -945.0].map(|factor| factor / 92_160.0),
    ];
    let power_sum = |term: [f64; 5]| {
        normal
            * term
                .iter()
                .fold(0.0, |sum, factor| sum * normal * normal + factor)
    };
    let rest = terms
        .into_iter()
        .rev()
        .fold(0.0, |rest, term| (rest + power_sum(term)) / degrees);
    normal + rest
}

/// Returns the two-sided p-value of Student's t for a difference with this standard error.
pub(crate) fn p_value(difference: f64, stderr: f64, degrees: f64) -> f64 {
    if difference == 0.0 {
        return 1.0;
    }
    let t = difference.abs() / stderr;
    if degrees < EXPANSION_MIN || t.is_infinite() {
        let distribution = StudentsT::new(0.0, 1.0, degrees);
        return distribution.map_or(1.0, |distribution| 2.0 * distribution.sf(t));
    }
    // G. W. Hill, Algorithm 395, 1970.
    let a = degrees - 0.5;
    let b = 48.0 * a * a;
    let y = a * (t * t / degrees).ln_1p();
    let numerator = (((-0.4 * y - 3.3) * y - 24.0) * y - 85.5) / (0.8 * y * y + 100.0 + b);
    let z = ((numerator + y + 3.0) / b + 1.0) * y.sqrt();
    2.0 * Normal::standard().sf(z)
}

/// Returns the standard error of a figure over n items in G clusters: √(G/(G − 1) · Σ U²)/n (CR1:
/// K.-Y. Liang and S. L. Zeger 1986). `deviations` are the U: for each cluster, the sum of its
/// items' contributions minus the figure. `None` with fewer than
/// [`CLUSTERS_MIN`](crate::clusters::CLUSTERS_MIN) clusters.
pub(crate) fn stderr(
    clusters: &ClusterSizes,
    deviations: impl Iterator<Item = f64>,
) -> Option<f64> {
    if !clusters.are_enough() {
        return None;
    }
    let squares: Sum = deviations.map(|deviation| deviation * deviation).collect();
    let n_clusters = clusters.len() as f64;
    Some((n_clusters / (n_clusters - 1.0) * squares.total()).sqrt() / clusters.n_items())
}

/// Returns for each cluster the sum over its items' terms, which come in the suite's order.
pub(crate) fn sums(clusters: &Clusters, terms: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut sums = vec![Sum::default(); clusters.sizes().len()];
    terms
        .zip(clusters.item_clusters())
        .for_each(|(term, cluster)| sums[*cluster as usize].add(term));
    sums.into_iter().map(Sum::total).collect()
}

/// Returns the estimate for a figure whose items are in clusters. `independent` is the estimate that
/// would be right for independent items; its method selects the interval. The mean of the items'
/// contributions is `value`, and `range` is the figure's smallest and largest value. `None` with
/// fewer than [`CLUSTERS_MIN`](crate::clusters::CLUSTERS_MIN) clusters.
pub(crate) fn estimate(
    clusters: &Clusters,
    independent: &Estimate,
    value: f64,
    range: [f64; 2],
    contributions: impl Iterator<Item = f64> + Clone,
) -> Option<Estimate> {
    let deviations = sums(clusters, contributions.clone().map(|one| one - value));
    let sizes = clusters.sizes();
    let stderr = stderr(sizes, deviations.into_iter())?;
    if independent.method == "wilson" {
        let n = effective_items(clusters, value, stderr, contributions);
        return Some(Estimate {
            stderr,
            ci95: wilson_ends(value, n, half_width(sizes.degrees())),
            method: "cluster_wilson",
        });
    }
    Some(around(sizes, independent.method, value, stderr, range))
}

/// Returns the estimate for a figure with this standard error. The method for independent items
/// selects the scale of the interval.
pub(crate) fn around(
    clusters: &ClusterSizes,
    method_if_independent: &str,
    value: f64,
    stderr: f64,
    range: [f64; 2],
) -> Estimate {
    let q = half_width(clusters.degrees());
    let (ci95, method) = match method_if_independent {
        "fisher" | "fisher_delta" if value.abs() < 1.0 => {
            let half = q * stderr / (1.0 - value * value);
            let middle = value.atanh();
            (
                [middle - half, middle + half].map(f64::tanh),
                "cluster_fisher",
            )
        }
        "delong" if 0.0 < value && value < 1.0 => {
            let half = q * stderr / (value * (1.0 - value));
            let middle = (value / (1.0 - value)).ln();
            let share = |logit: f64| 1.0 / (1.0 + (-logit).exp());
            ([middle - half, middle + half].map(share), "cluster_logit")
        }
        other => {
            let half = q * stderr;
            let cut = |end: f64| end.clamp(range[0], range[1]);
            let method = if other == "bootstrap" {
                "cluster_bootstrap"
            } else {
                "cluster_t"
            };
            ([value - half, value + half].map(cut), method)
        }
    };
    Estimate {
        stderr,
        ci95,
        method,
    }
}

/// Returns the number of independent items with which a share would have this standard error (L.
/// Kish 1965; E. L. Korn and B. I. Graubard 1998): at most the item count. It is the effective number
/// of clusters if all items are alike, and at most twice that number if the rarer outcome occurs in
/// few clusters.
fn effective_items(
    clusters: &Clusters,
    share: f64,
    stderr: f64,
    contributions: impl Iterator<Item = f64>,
) -> f64 {
    let effective = clusters.sizes().effective();
    if share == 0.0 || share == 1.0 {
        return effective;
    }
    let rarer = if share <= 0.5 { 1.0 } else { 0.0 };
    let mut has_rarer = vec![false; clusters.sizes().len()];
    contributions
        .zip(clusters.item_clusters())
        .filter(|(score, _)| *score == rarer)
        .for_each(|(_, cluster)| has_rarer[*cluster as usize] = true);
    let n = (share * (1.0 - share) / (stderr * stderr)).min(clusters.sizes().n_items());
    if has_rarer.into_iter().filter(|has| *has).count() < OUTCOME_CLUSTERS_MIN {
        n.min(2.0 * effective)
    } else {
        n
    }
}
