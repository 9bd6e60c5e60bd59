use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::Value;

use super::contribution::{Aggregate, Contribution, StoredItems};
use super::difference::Difference;
use super::mcnemar::{bonett_price, mcnemar};
use super::pairs::Pairs;
use super::permutation_test::PermutationTest;
use crate::metric::Metric;

fn stored(values: Vec<f64>) -> StoredItems {
    StoredItems {
        values,
        rights: Vec::new(),
    }
}

/// Compares two jobs with these stored values, in pieces with seven items.
fn compare(metric: Metric, a: &[f64], b: &[f64]) -> Difference {
    let mut pairs = Pairs::new(metric);
    let contribution = |values: &[f64]| {
        let mut aggregate = Aggregate::new(metric);
        values
            .chunks(7)
            .for_each(|values| aggregate.add(&stored(values.to_vec())));
        aggregate.contribution()
    };
    let contribution_a = contribution(a);
    let contribution_b = contribution(b);
    for (a, b) in a.chunks(7).zip(b.chunks(7)) {
        pairs.add(
            (&stored(a.to_vec()), &contribution_a),
            (&stored(b.to_vec()), &contribution_b),
            None,
        );
    }
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    pairs.finish(mean(a) - mean(b), 0.01, true)
}

#[test]
fn differences_agree_with_scipy_and_statsmodels() {
    let vectors: Vec<Value> =
        serde_json::from_str(include_str!("../../../../tests/vectors/comparisons.json")).unwrap();
    let mut random_cases = 0;
    for (at, case) in vectors.iter().enumerate() {
        let scores = |field: &str| -> Vec<f64> {
            case[field]
                .as_array()
                .unwrap()
                .iter()
                .map(|score| score.as_f64().unwrap())
                .collect()
        };
        let metric = case["metric"].as_str().unwrap().parse().unwrap();
        let a = scores("a");
        let b = scores("b");
        let found = compare(metric, &a, &b);
        let close = |one: f64, other: f64| (one - other).abs() < 1e-12;
        assert!(
            close(found.stderr.unwrap(), case["stderr"].as_f64().unwrap()),
            "case {at}"
        );
        if let Some(ci95) = case["ci95"].as_array() {
            assert!(
                found
                    .ci95
                    .unwrap()
                    .iter()
                    .zip(ci95)
                    .all(|(one, other)| close(*one, other.as_f64().unwrap())),
                "case {at}"
            );
        }
        assert_eq!(
            found.n_differ,
            Some(a.iter().zip(&b).filter(|(a, b)| a != b).count() as u64),
            "case {at}"
        );
        assert_eq!(found.n_needed, case["n_needed"].as_u64(), "case {at}");
        let ours = found.p_value;
        let theirs = case["p_value"].as_f64().unwrap();
        if case["exact"] == true {
            assert!(close(ours, theirs), "case {at}: {ours} {theirs}");
        } else {
            // Both p-values are random; ours has fewer draws.
            let stderr = (theirs * (1.0 - theirs) / 10_000.0).sqrt();
            assert!(
                (ours - theirs).abs() < 4.0 * stderr + 2e-4,
                "case {at}: {ours} {theirs}"
            );
            random_cases += 1;
        }
        // Swapping the jobs changes the sign only.
        let other = compare(metric, &b, &a);
        assert_eq!(
            (other.p_value, other.n_needed),
            (ours, found.n_needed),
            "case {at}"
        );
        assert!(
            close(other.ci95.unwrap()[0], -found.ci95.unwrap()[1]),
            "case {at}"
        );
    }
    assert!(
        random_cases > 5,
        "{random_cases} cases with random assignments"
    );
}

#[test]
fn job_does_not_differ_from_itself() {
    for metric in ["accuracy", "ndcg@10", "rmse", "auc"] {
        let scores = [0.0, 1.0, 1.0, 0.0];
        let metric: Metric = metric.parse().unwrap();
        let found = compare(metric, &scores, &scores);
        assert_eq!(
            (found.p_value, found.stderr, found.n_needed),
            (1.0, Some(0.0), None)
        );
        assert_eq!(found.n_differ, metric.has_item_scores().then_some(0));
        let one = compare(metric, &scores[..1], &scores[..1]);
        assert_eq!((one.p_value, one.stderr, one.ci95), (1.0, None, None));
    }
}

/// Measures the coverage: the random-sample share whose interval contains the true difference.
#[test]
fn interval_of_shares_keeps_its_coverage() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
    for (n, more, less) in [
        (20, 0.2, 0.1),
        (50, 0.05, 0.05),
        (50, 0.4, 0.1),
        (500, 0.02, 0.01),
    ] {
        let samples = 4000;
        let covered = (0..samples).filter(|_| {
            let drawn: Vec<f64> = (0..n).map(|_| random.random::<f64>()).collect();
            let count = |from: f64, to: f64| {
                drawn.iter().filter(|one| (from..to).contains(*one)).count() as u64
            };
            let [low, high] = bonett_price(count(0.0, more), count(more, more + less), n);
            (low..=high).contains(&(more - less))
        });
        let share = covered.count() as f64 / f64::from(samples);
        assert!(
            (0.935..=0.985).contains(&share),
            "{n} {more} {less}: {share}"
        );
    }
}

/// Returns the two-sided p-value for a standard normal sum.
fn normal_p_value(z: f64) -> f64 {
    use statrs::distribution::{ContinuousCDF as _, Normal};
    2.0 * Normal::standard().sf(z)
}

#[test]
fn small_differences_are_approximated() {
    for n in [5_000_u32, 9_000, 300_000] {
        let mut test = PermutationTest::default();
        let mut squares = 0.0;
        for at in 0..n {
            let size = f64::from(at.wrapping_mul(2_654_435_761) % n + 1);
            test.add(size);
            squares += size * size;
        }
        for z in [0.5, 1.96, 3.0] {
            let found = test.p_value(z * squares.sqrt());
            let expected = normal_p_value(z);
            assert!(
                (found - expected).abs() < 4.0 * (expected * (1.0 - expected) / 1e4).sqrt() + 2e-4,
                "{n} {z}: {found} {expected}"
            );
        }
    }
}

/// SciPy's `binomtest(more, more + less).pvalue`.
const MCNEMAR: [(u64, u64, f64); 11] = [
    (7, 0, 0.015625),
    (12, 5, 0.143463134765625),
    (40, 26, 0.108_856_964_409_716_1),
    (520, 480, 0.21744829320414094),
    (501, 500, 1.0),
    (600, 450, 4.111_890_930_721_226e-6),
    (5090, 4910, 0.0734486257455019),
    (10_000, 9_000, 4.194_037_144_140_787e-13),
    (500_100, 499_900, 0.8422627570516088),
    (5_000_100, 4_999_900, 0.9498227832109423),
    (5_010_000, 4_990_000, 2.544_800_491_155_173e-10),
];

#[test]
fn mcnemar_is_exact_for_any_n() {
    for (more, less, p_value) in MCNEMAR {
        let found = mcnemar(more, less);
        assert!(
            (found / p_value - 1.0).abs() < 1e-10,
            "{more} {less}: {found} {p_value}"
        );
        assert_eq!(mcnemar(less, more), found);
    }
    assert_eq!(
        (mcnemar(0, 0), mcnemar(1, 1), mcnemar(5_000_000, 5_000_000)),
        (1.0, 1.0, 1.0)
    );
    assert!(mcnemar(3, 5_000) < 1e-300);
}

/// A larger error at one item among many is no evidence, however large it is.
#[test]
fn one_differing_item_is_no_evidence() {
    let mut a = vec![1.0; 1000];
    let b = vec![1.0; 1000];
    a[7] = 100.0;
    for metric in [Metric::Rmse, Metric::Mae] {
        let found = compare(metric, &a, &b);
        assert_eq!(
            (found.p_value, found.n_differ, found.p_method),
            (1.0, Some(1), "permutation")
        );
    }
    // The contributions differ at every item, but the labels are right or wrong differently at one
    // item only.
    let job = |share: f64, right: bool| StoredItems {
        values: vec![share; 50],
        rights: (0..50).map(|item| item > 0 || right).collect(),
    };
    let mut pairs = Pairs::new(Metric::F1Macro);
    pairs.add(
        (&job(1.0, true), &Contribution::Stored),
        (&job(0.5, false), &Contribution::Stored),
        None,
    );
    assert_eq!(pairs.finish(0.5, 0.01, true).p_value, 1.0);
}

/// Of two equally good jobs, about one comparison in twenty has a p-value below 0.05.
#[test]
fn equal_jobs_rarely_differ() {
    use rand_distr::{Distribution as _, LogNormal};
    let mut random = Xoshiro256PlusPlus::seed_from_u64(5);
    let errors = LogNormal::new(0.0, 1.5).unwrap();
    for metric in [Metric::Rmse, Metric::Mae] {
        let mut draw = || -> Vec<f64> { (0..100).map(|_| errors.sample(&mut random)).collect() };
        let runs = 200;
        let found = (0..runs)
            .filter(|_| compare(metric, &draw(), &draw()).p_value < 0.05)
            .count();
        assert!(found <= 20, "{metric}: {found} of {runs}");
    }
}

#[test]
fn no_interval_without_estimates() {
    let mut pairs = Pairs::new(Metric::Auc);
    let [a, b] = [vec![0.9, 0.7, 0.9, 0.8], vec![0.5, 0.4, 0.6, 0.5]].map(stored);
    pairs.add(
        (&a, &Contribution::Stored),
        (&b, &Contribution::Stored),
        None,
    );
    let found = pairs.finish(0.4, 0.01, false);
    assert_eq!(
        (found.stderr, found.ci95, found.p_value, found.n_needed),
        (None, None, 1.0, None)
    );
}

#[test]
fn equal_sizes_agree_with_mcnemar() {
    // 10,000 differences with the same size: the permutation test is McNemar's test.
    let mut test = PermutationTest::default();
    let more = 5_090_u64;
    let less = 4_910;
    (0..more + less).for_each(|_| test.add(0.25));
    let found = test.p_value(0.25 * (more - less) as f64);
    let exact = mcnemar(more, less);
    assert!(
        (found - exact).abs() < 4.0 * (exact * (1.0 - exact) / 1e4).sqrt(),
        "{found} {exact}"
    );
}

#[test]
fn mean_of_contributions_is_the_metric() {
    let errors = [0.5, 0.0, 2.0, 1.5, 0.25];
    let mut aggregate = Aggregate::new(Metric::Rmse);
    aggregate.add(&stored(errors.to_vec()));
    let contribution = aggregate.contribution();
    let mean = (0..5)
        .map(|item| contribution.of(stored(errors.to_vec()).item(item)))
        .sum::<f64>()
        / 5.0;
    assert!(
        (mean - (errors.iter().map(|error| error * error).sum::<f64>() / 5.0).sqrt()).abs() < 1e-15
    );

    let confidences = || StoredItems {
        values: vec![0.9, 0.92, 0.5, 0.55, 0.31],
        rights: vec![true, false, true, true, false],
    };
    let mut aggregate = Aggregate::new(Metric::Ece);
    aggregate.add(&confidences());
    let contribution = aggregate.contribution();
    let gaps: f64 = [0.9_f64 - 1.0, 0.92, 0.5 - 1.0, 0.55 - 1.0, 0.31]
        .into_iter()
        .map(f64::abs)
        .sum();
    // 0.9 and 0.92 share a bin, where their gaps partly cancel; the others have a bin each.
    let together = (0.9_f64 - 1.0 + 0.92).abs() - (0.1 + 0.92);
    let mean = (0..5)
        .map(|item| contribution.of(confidences().item(item)))
        .sum::<f64>();
    assert!(
        (mean - (gaps + together)).abs() < 1e-12,
        "{mean} {gaps} {together}"
    );
    for metric in [Metric::Accuracy, Metric::Auc] {
        let contribution = Aggregate::new(metric).contribution();
        assert_eq!(contribution.of(stored(vec![0.25]).item(0)), 0.25);
    }
}
