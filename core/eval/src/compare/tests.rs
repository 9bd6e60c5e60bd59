use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::Value;

use super::*;

fn kept(values: Vec<f64>) -> StoredItems {
    StoredItems {
        values,
        rights: Vec::new(),
    }
}

/// The difference of two jobs that keep these, read in pieces.
fn compared(metric: Metric, a: &[f64], b: &[f64]) -> Difference {
    let mut pairs = Pairs::new(metric);
    let parts = |values: &[f64]| {
        let mut figure = Aggregate::new(metric);
        values
            .chunks(7)
            .for_each(|values| figure.add(&kept(values.to_vec())));
        figure.parts()
    };
    let (parts_a, parts_b) = (parts(a), parts(b));
    for (a, b) in a.chunks(7).zip(b.chunks(7)) {
        pairs.add((&kept(a.to_vec()), &parts_a), (&kept(b.to_vec()), &parts_b));
    }
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    pairs.finish(mean(a) - mean(b), 0.01, true)
}

#[test]
fn differences_are_those_of_scipy_and_statsmodels() {
    let vectors: Vec<Value> =
        serde_json::from_str(include_str!("../../../../tests/vectors/comparisons.json")).unwrap();
    let mut drawn = 0;
    for (at, case) in vectors.iter().enumerate() {
        let scores = |field: &str| -> Vec<f64> {
            case[field]
                .as_array()
                .unwrap()
                .iter()
                .map(|score| score.as_f64().unwrap())
                .collect()
        };
        let (metric, a, b) = (
            case["metric"].as_str().unwrap().parse().unwrap(),
            scores("a"),
            scores("b"),
        );
        let found = compared(metric, &a, &b);
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
        let (ours, theirs) = (found.p_value, case["p_value"].as_f64().unwrap());
        if case["exact"] == true {
            assert!(close(ours, theirs), "case {at}: {ours} {theirs}");
        } else {
            // Both were drawn: ours is the less sure.
            let chance = (theirs * (1.0 - theirs) / 10_000.0).sqrt();
            assert!(
                (ours - theirs).abs() < 4.0 * chance + 2e-4,
                "case {at}: {ours} {theirs}"
            );
            drawn += 1;
        }
        // The other way round it is the same, but for the side.
        let other = compared(metric, &b, &a);
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
    assert!(drawn > 5, "{drawn} cases of more than a few differences");
}

#[test]
fn one_who_is_compared_with_oneself_does_not_differ() {
    for metric in ["accuracy", "ndcg@10", "rmse", "auc"] {
        let scores = [0.0, 1.0, 1.0, 0.0];
        let metric: Metric = metric.parse().unwrap();
        let found = compared(metric, &scores, &scores);
        assert_eq!(
            (found.p_value, found.stderr, found.n_needed),
            (1.0, Some(0.0), None)
        );
        assert_eq!(found.n_differ, metric.has_item_scores().then_some(0));
        let one = compared(metric, &scores[..1], &scores[..1]);
        assert_eq!((one.p_value, one.stderr, one.ci95), (1.0, None, None));
    }
}

/// Of many shares of few items, in how many samples the interval holds the difference.
#[test]
fn the_interval_of_two_shares_holds_what_it_promises() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
    for (n, more, less) in [
        (20, 0.2, 0.1),
        (50, 0.05, 0.05),
        (50, 0.4, 0.1),
        (500, 0.02, 0.01),
    ] {
        let samples = 4000;
        let held = (0..samples).filter(|_| {
            let drawn: Vec<f64> = (0..n).map(|_| random.random::<f64>()).collect();
            let count = |from: f64, to: f64| {
                drawn.iter().filter(|one| (from..to).contains(*one)).count() as u64
            };
            let [low, high] = bonett_price(count(0.0, more), count(more, more + less), n);
            (low..=high).contains(&(more - less))
        });
        let share = held.count() as f64 / f64::from(samples);
        assert!(
            (0.935..=0.985).contains(&share),
            "{n} {more} {less}: {share}"
        );
    }
}

/// The p-value of a test whose sum is normal.
fn of_normal(z: f64) -> f64 {
    use statrs::distribution::{ContinuousCDF as _, Normal};
    2.0 * Normal::standard().sf(z)
}

#[test]
fn of_many_sizes_the_smaller_ones_are_taken_together() {
    for n in [5_000_u32, 9_000, 300_000] {
        let (mut flips, mut squares) = (PermutationTest::default(), 0.0);
        for at in 0..n {
            let size = f64::from(at.wrapping_mul(2_654_435_761) % n + 1);
            flips.add(size);
            squares += size * size;
        }
        for z in [0.5, 1.96, 3.0] {
            let (found, expected) = (flips.p_value(z * squares.sqrt()), of_normal(z));
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
fn of_however_many_items_mcnemars_test_is_exact() {
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

/// Who has the greater error at one item of many has shown nothing.
#[test]
fn one_item_is_no_evidence_whatever_the_metric_makes_of_it() {
    let (mut a, b) = (vec![1.0; 1000], vec![1.0; 1000]);
    a[7] = 100.0;
    for metric in [Metric::Rmse, Metric::Mae] {
        let found = compared(metric, &a, &b);
        assert_eq!(
            (found.p_value, found.n_differ, found.p_method),
            (1.0, Some(1), "permutation")
        );
    }
    // Their parts differ at each item, but what they are right about at one only.
    let job = |share: f64, right: bool| StoredItems {
        values: vec![share; 50],
        rights: (0..50).map(|item| item > 0 || right).collect(),
    };
    let mut pairs = Pairs::new(Metric::F1Macro);
    pairs.add(
        (&job(1.0, true), &Contribution::Themselves),
        (&job(0.5, false), &Contribution::Themselves),
    );
    assert_eq!(pairs.finish(0.5, 0.01, true).p_value, 1.0);
}

/// If two are equally good, about one in twenty comparisons says that they are not.
#[test]
fn who_are_equally_good_are_seldom_told_apart() {
    use rand_distr::{Distribution as _, LogNormal};
    let (mut random, errors) = (
        Xoshiro256PlusPlus::seed_from_u64(5),
        LogNormal::new(0.0, 1.5).unwrap(),
    );
    for metric in [Metric::Rmse, Metric::Mae] {
        let mut draw = || -> Vec<f64> { (0..100).map(|_| errors.sample(&mut random)).collect() };
        let runs = 200;
        let found = (0..runs)
            .filter(|_| compared(metric, &draw(), &draw()).p_value < 0.05)
            .count();
        assert!(found <= 20, "{metric}: {found} of {runs}");
    }
}

#[test]
fn where_of_one_of_two_nothing_can_be_said_nothing_is_said_of_both() {
    let mut pairs = Pairs::new(Metric::Auc);
    let [a, b] = [vec![0.9, 0.7, 0.9, 0.8], vec![0.5, 0.4, 0.6, 0.5]].map(kept);
    pairs.add(
        (&a, &Contribution::Themselves),
        (&b, &Contribution::Themselves),
    );
    let found = pairs.finish(0.4, 0.01, false);
    assert_eq!(
        (found.stderr, found.ci95, found.p_value, found.n_needed),
        (None, None, 1.0, None)
    );
}

#[test]
fn sizes_that_many_share_are_drawn_together() {
    // Of 10,000 items that differ by one, as McNemar has it.
    let (mut flips, more, less) = (PermutationTest::default(), 5_090_u64, 4_910);
    (0..more + less).for_each(|_| flips.add(0.25));
    let (found, exact) = (
        flips.p_value(0.25 * (more - less) as f64),
        mcnemar(more, less),
    );
    assert!(
        (found - exact).abs() < 4.0 * (exact * (1.0 - exact) / 1e4).sqrt(),
        "{found} {exact}"
    );
}

#[test]
fn a_metric_of_all_items_is_the_mean_of_their_parts() {
    let errors = [0.5, 0.0, 2.0, 1.5, 0.25];
    let mut figure = Aggregate::new(Metric::Rmse);
    figure.add(&kept(errors.to_vec()));
    let parts = figure.parts();
    let mean = (0..5)
        .map(|item| parts.of(&kept(errors.to_vec()), item))
        .sum::<f64>()
        / 5.0;
    assert!(
        (mean - (errors.iter().map(|error| error * error).sum::<f64>() / 5.0).sqrt()).abs() < 1e-15
    );

    let sure = || StoredItems {
        values: vec![0.9, 0.92, 0.5, 0.55, 0.31],
        rights: vec![true, false, true, true, false],
    };
    let mut figure = Aggregate::new(Metric::Ece);
    figure.add(&sure());
    let parts = figure.parts();
    let gaps: f64 = [0.9_f64 - 1.0, 0.92, 0.5 - 1.0, 0.55 - 1.0, 0.31]
        .into_iter()
        .map(f64::abs)
        .sum();
    // 0.9 and 0.92 are in one bin, each of the others in one of its own.
    let together = (0.9_f64 - 1.0 + 0.92).abs() - (0.1 + 0.92);
    let mean = (0..5).map(|item| parts.of(&sure(), item)).sum::<f64>();
    assert!(
        (mean - (gaps + together)).abs() < 1e-12,
        "{mean} {gaps} {together}"
    );
    for metric in [Metric::Accuracy, Metric::Auc] {
        let parts = Aggregate::new(metric).parts();
        assert_eq!(parts.of(&kept(vec![0.25]), 0), 0.25);
    }
}
