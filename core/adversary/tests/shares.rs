//! Attacks against metrics of distributions: suites of labels, and suites whose answers are
//! distributions.
#![expect(clippy::unwrap_used, reason = "these are tests")]

use std::borrow::Cow;

use assay_adversary::bench::{self, N};
use assay_adversary::{Caps, Item, Suite, attack, attacks, read_shares, submissions_until_known};
use assay_eval::{Answer, Clip, Metric, known_at_most};

/// Returns the metrics of distributions.
fn metrics() -> impl Iterator<Item = &'static str> {
    let all = bench::METRICS.into_iter();
    all.filter(|metric| metric.parse::<Metric>().unwrap().compares_distributions())
}

/// Returns caps with which comparisons are free, and without entries.
fn caps(submissions: u32, organizations: u32) -> Caps {
    Caps {
        submissions,
        organizations,
        comparisons_count: false,
        entries: 0,
    }
}

/// Returns a random suite of labels.
fn suite(metric: &str, policy: &str, n: usize, seed: u64) -> Suite {
    bench::suite(metric.parse().unwrap(), policy.parse().unwrap(), n, seed).unwrap()
}

/// Returns a suite with `n_options` options, whose shares are random multiples of 0.01.
fn distributions(metric: &str, policy: &str, n: usize, n_options: usize, is_named: bool) -> Suite {
    let mut state = 1_u64;
    let mut below = |limit: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) % limit
    };
    let labels: Vec<String> = (0..n_options).map(|at| format!("l{at}")).collect();
    let item = |at: usize| {
        let mut left = 100;
        let shares = labels.iter().enumerate().map(|(place, label)| {
            let share = if place + 1 == n_options {
                left
            } else {
                below(left + 1)
            };
            left -= share;
            (Cow::Owned(label.clone()), share as f64 / 100.0)
        });
        Item {
            item_id: Cow::Owned(format!("i{at}")),
            answer: Answer::Shares(shares.collect()),
            is_sealed: at.is_multiple_of(3),
        }
    };
    let items = (0..n).map(item).collect();
    let clip = (metric == "log_loss" && is_named).then(|| Clip::new(0.0, 3.0).unwrap());
    let options = if is_named { &labels[..] } else { &[] };
    let (metric, policy) = (metric.parse().unwrap(), policy.parse().unwrap());
    Suite::with_options(metric, clip, policy, options, items).unwrap()
}

#[test]
fn exact_figures_disclose_all_shares() {
    for metric in metrics().chain(["log_loss", "brier"]) {
        for (n_options, is_named) in [(2, false), (3, true), (5, false), (6, true)] {
            let suite = distributions(metric, "exact", 40, n_options, is_named);
            let needed = submissions_until_known(&suite, suite.n(), false).unwrap();
            let found = read_shares(&suite, needed).unwrap();
            let name = format!("{metric} {n_options}: {found:?}");
            assert_eq!(
                (found.known, found.submissions, found.n),
                (1.0, needed, 40),
                "{name}"
            );
            assert!(found.largest_error < 1e-9, "{name}");
            let half = read_shares(&suite, needed / 2).unwrap();
            assert!((0.4..0.6).contains(&half.known), "{half:?}");
            // One of two figures is bounded, so the other one discloses a share at a time.
            let per_item = if metric == "log_loss" && is_named {
                n_options - 1
            } else {
                n_options / 2
            };
            assert_eq!(needed as usize, 1 + 40 * per_item, "{name}");
        }
    }
}

#[test]
fn rounded_figures_disclose_shares_of_few_items() {
    let known = |policy: &str, n: usize| {
        let suite = distributions("tvd", policy, n, 4, true);
        let needed = submissions_until_known(&suite, suite.n(), false).unwrap();
        assert_eq!(needed as usize, 1 + 3 * n);
        read_shares(&suite, needed).unwrap().known
    };
    assert_eq!(known("rounded(4)", 50), 1.0);
    assert!(known("rounded(2)", 500) < 0.1);
}

#[test]
fn distributions_are_no_symbols_to_guess() {
    for policy in ["exact", "rounded(2)", "ladder(0.05)", "sealed(0.5)"] {
        let suite = distributions("tvd", policy, 60, 4, true);
        assert_eq!(attacks(&suite, caps(50, 1), 1), []);
        let outcome = attack(&suite, caps(50, 1), 1);
        assert_eq!((outcome.known, outcome.chance), (0.0, 0.0));
        assert_eq!(suite.bits(caps(50, 1)).is_some(), policy == "ladder(0.05)");
    }
    let ladder = distributions("tvd", "ladder(0.05)", 60, 4, true);
    assert_eq!(submissions_until_known(&ladder, 60, false), None);
    assert_eq!(read_shares(&ladder, 100), None);
    let sealed = distributions("tvd", "sealed(0.5)", 60, 4, true);
    assert_eq!(
        submissions_until_known(&sealed, 60, false),
        Some(1 + 40 * 2)
    );
    assert_eq!(read_shares(&suite("tvd", "exact", 20, 1), 100), None);
}

#[test]
fn labels_are_disclosed_by_metrics_of_distributions() {
    for metric in metrics() {
        let known = |policy: &str, submissions: u32| {
            let suite = suite(metric, policy, N, 1);
            attack(&suite, caps(submissions, 1), 1).known
        };
        assert_eq!(known("exact", 18), 1.0, "{metric}");
        assert_eq!(known("sealed(0.5)", 50), 1.0, "{metric}");
        assert!(known("rounded(2)", 500) > 0.88, "{metric}");
    }
}

#[test]
fn ladder_of_labels_discloses_less_than_its_bound() {
    for metric in metrics().chain(["kappa_quadratic"]) {
        for allowance in [caps(50, 1), caps(200, 3)] {
            let suite = suite(metric, "ladder(0.05)", N, 40);
            let bits = suite.bits(allowance).unwrap();
            // Three standard errors of a share that is known by chance.
            let bound = known_at_most(bits, N, 0.5) + 1.5 / (N as f64).sqrt();
            for outcome in attacks(&suite, allowance, 1) {
                assert!(
                    outcome.known <= bound,
                    "{metric}: {outcome:?}, bound {bound}"
                );
            }
        }
    }
    // A share of right modes reaches levels as accuracy does.
    let suite = suite("top@1", "ladder(0.05)", N, 1);
    assert!(attack(&suite, caps(500, 5), 1).known > 0.56);
}
