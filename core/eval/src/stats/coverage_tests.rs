//! Simulated coverage of the intervals over items in clusters.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt as _, SeedableRng as _};
use rand_distr::{Beta, Distribution as _};

use super::clustered;
use super::confidence::wilson;
use crate::simulation::{Sizes, n_samples};

/// The correlation between two items of one cluster.
const CORRELATIONS: [f64; 4] = [0.0, 0.1, 0.3, 0.6];

/// Returns the shares of samples whose interval contains `p`: by cluster, and as if items were
/// independent.
fn coverage(
    random: &mut Xoshiro256PlusPlus,
    samples: u64,
    (n_clusters, sizes): (usize, Sizes),
    (correlation, p): (f64, f64),
) -> [f64; 2] {
    let sizes = sizes.draw(random, n_clusters);
    let clusters = Sizes::clusters(&sizes);
    let strength = (1.0 - correlation) / correlation;
    let shares = Beta::new(p * strength, (1.0 - p) * strength).ok();
    let mut covered = [0, 0];
    for _ in 0..samples {
        let mut scores = Vec::with_capacity(sizes.iter().sum());
        for size in &sizes {
            let share = match &shares {
                Some(shares) if correlation > 0.0 => shares.sample(random).clamp(0.0, 1.0),
                _ => p,
            };
            scores.extend((0..*size).map(|_| f64::from(u8::from(random.random_bool(share)))));
        }
        let value = scores.iter().sum::<f64>() / scores.len() as f64;
        let independent = wilson(value, scores.len()).unwrap();
        let terms = scores.iter().copied();
        let found = clustered::estimate(&clusters, &independent, value, [0.0, 1.0], terms);
        for (count, [low, high]) in covered
            .iter_mut()
            .zip([found.unwrap().ci95, independent.ci95])
        {
            *count += u64::from(low <= p && p <= high);
        }
    }
    covered.map(|count: u64| count as f64 / samples as f64)
}

/// Prints the smallest share, the 5th percentile and the median in percent, and returns the smallest
/// and the median.
fn summary(what: &str, shares: &[f64]) -> [f64; 2] {
    let mut sorted = shares.to_vec();
    sorted.sort_by(f64::total_cmp);
    let [smallest, low, median] =
        [0, sorted.len() / 20, sorted.len() / 2].map(|place| 100.0 * sorted[place]);
    println!("{what}: smallest {smallest:.1}, 5th percentile {low:.1}, median {median:.1}");
    [smallest, median]
}

/// With `TEST_SAMPLES` of at least 1,000 the grid has 288 cells, otherwise 144.
#[test]
fn intervals_of_shares_keep_their_coverage() {
    let samples = n_samples(300);
    let counts: &[usize] = if samples < 1_000 {
        &[10, 30, 100]
    } else {
        &[10, 20, 30, 50, 100, 500]
    };
    let mut random = Xoshiro256PlusPlus::seed_from_u64(23);
    let (mut by_cluster, mut by_item) = (Vec::new(), Vec::new());
    for n_clusters in counts {
        for sizes in [Sizes::Equal, Sizes::Unequal, Sizes::OneLarge] {
            let from = by_cluster.len();
            for correlation in CORRELATIONS {
                for p in [0.02, 0.1, 0.5, 0.9] {
                    let cell = (*n_clusters, sizes);
                    let [one, other] = coverage(&mut random, samples, cell, (correlation, p));
                    if one < 0.92 {
                        println!("{n_clusters}, {sizes:?}, {correlation}, {p}: {one:.3}");
                    }
                    by_cluster.push(one);
                    by_item.push(other);
                }
            }
            summary(
                &format!("{n_clusters} clusters, {sizes:?}"),
                &by_cluster[from..],
            );
        }
    }
    summary("items as independent", &by_item);
    let [smallest, median] = summary("by cluster", &by_cluster);
    // The smallest of many cells is up to three standard errors lower by chance.
    let chance = if samples < 1_000 {
        300.0 * (0.89 * 0.11 / samples as f64).sqrt()
    } else {
        0.0
    };
    assert!(smallest >= 89.0 - chance, "{smallest}");
    assert!((94.0..=98.0).contains(&median), "{median}");
}
