//! Attacks against random suites: the cases in which they must succeed, and in which they must
//! fail.
#![expect(clippy::unwrap_used, reason = "these are tests")]

mod suites;

use std::borrow::Cow;

use assay_adversary::bench::{self, CAPS, METRICS, N};
use assay_adversary::{
    Caps, Item, Outcome, Suite, SuiteError, attack, attacks, submissions_until_known,
};
use assay_eval::{Answer, Clip, DisclosurePolicy, Metric, QuantileLevels, known_at_most};
use suites::{caps, has_grid, labelled, lists, many_numbers, suite, three_standard_errors};

/// Returns the mean known open-item share over three random suites.
fn known(metric: &str, policy: &str, caps: Caps) -> f64 {
    let trials = 3;
    (0..trials)
        .map(|seed| attack(&suite(metric, policy, N, seed).unwrap(), caps, seed).known)
        .sum::<f64>()
        / trials as f64
}

#[test]
fn exact_figures_disclose_every_answer() {
    for metric in ["accuracy", "ndcg@10", "hit_rate@10", "mrr@10"] {
        assert_eq!(known(metric, "exact", caps(18, 1)), 1.0, "{metric}");
    }
    for metric in [
        "log_loss", "brier", "auc", "ece@15", "rmse", "mae", "spearman", "pearson", "kendall",
        "ccc", "r2", "pinball", "wis",
    ] {
        assert_eq!(known(metric, "exact", caps(12, 1)), 1.0, "{metric}");
    }
    for metric in ["exact_match", "f1_macro"] {
        assert_eq!(known(metric, "exact", caps(32, 1)), 1.0, "{metric}");
        assert!(known(metric, "exact", caps(18, 1)) > 0.73, "{metric}");
    }
}

#[test]
fn zero_submissions_leave_chance() {
    for metric in METRICS {
        for policy in ["exact", "rounded(2)", "ladder(0.05)", "sealed(0.5)"] {
            let Ok(suite) = suite(metric, policy, N, 5) else {
                continue;
            };
            for Outcome {
                known,
                known_sealed,
                submissions,
                chance,
                strategy,
                ..
            } in attacks(&suite, caps(0, 5), 1)
            {
                assert_eq!(submissions, 0);
                for known in [Some(known), known_sealed].into_iter().flatten() {
                    assert!(
                        (known - 0.5).abs()
                            < three_standard_errors(0.5, N / 2) + (chance - 0.5).abs(),
                        "{metric} {policy} {strategy} {known}"
                    );
                }
            }
        }
    }
}

#[test]
fn sealed_items_are_known_by_chance() {
    const TRIALS: u64 = 8;
    for metric in METRICS {
        let outcomes = |caps: Caps| {
            (0..TRIALS).flat_map(move |seed| {
                attacks(
                    &suite(metric, "sealed(0.5)", N, seed + 100).unwrap(),
                    caps,
                    seed,
                )
            })
        };
        for allowance in [caps(18, 1), caps(50, 2)] {
            let mut strategies: Vec<&str> = outcomes(allowance)
                .map(|outcome| outcome.strategy)
                .collect();
            strategies.sort_unstable();
            strategies.dedup();
            for strategy in strategies {
                let strategy_outcomes: Vec<Outcome> = outcomes(allowance)
                    .filter(|outcome| outcome.strategy == strategy)
                    .collect();
                let mean = |share: fn(&Outcome) -> Option<f64>| {
                    strategy_outcomes.iter().filter_map(share).sum::<f64>()
                        / strategy_outcomes.len() as f64
                };
                let known = mean(|outcome| outcome.known_sealed);
                let chance = mean(|outcome| outcome.chance_sealed);
                let leeway = three_standard_errors(0.5, N / 2 * strategy_outcomes.len())
                    + (chance - 0.5).abs();
                assert!(
                    (known - 0.5).abs() <= leeway,
                    "{metric} {strategy}: {known}, chance {chance}"
                );
            }
        }
    }
}

#[test]
fn sealed_suite_discloses_open_items() {
    for metric in METRICS {
        let share = if matches!(metric, "exact_match" | "f1_macro") {
            0.73
        } else {
            1.0
        };
        assert!(
            known(metric, "sealed(0.5)", caps(18, 1)) >= share,
            "{metric}"
        );
        assert_eq!(known(metric, "sealed(0.5)", caps(50, 1)), 1.0, "{metric}");
    }
}

#[test]
fn ladder_discloses_less_than_its_bound() {
    const TRIALS: u64 = 2;
    for metric in METRICS.into_iter().filter(|metric| has_grid(metric)) {
        for policy in ["ladder(0.05)", "ladder(0.1)"] {
            for allowance in [caps(18, 1), caps(50, 1), caps(200, 3)] {
                for seed in 0..TRIALS {
                    let suite = suite(metric, policy, N, seed + 40).unwrap();
                    let bits = suite.bits(allowance).unwrap();
                    let bound = known_at_most(bits, N, 0.5) + three_standard_errors(0.5, N);
                    for outcome in attacks(&suite, allowance, seed) {
                        assert!(
                            outcome.known <= bound,
                            "{metric} {policy} {allowance:?}: {outcome:?}, bound {bound}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn ladder_on_loss_discloses_nothing() {
    for metric in ["rmse", "log_loss", "brier"] {
        let suite = suite(metric, "ladder(0.05)", N, 3).unwrap();
        assert!(
            attack(&suite, caps(500, 1), 1).known < 0.5 + three_standard_errors(0.5, N),
            "{metric}"
        );
    }
}

#[test]
fn ladder_discloses_levels_reached_by_chance() {
    assert!(known("accuracy", "ladder(0.05)", caps(500, 5)) > 0.58);
    assert!(known("accuracy", "ladder(0.1)", caps(500, 1)) < 0.56);
}

#[test]
fn rounding_protects_nothing() {
    for metric in ["accuracy", "exact_match", "mae", "log_loss", "auc", "wis"] {
        assert!(known(metric, "rounded(2)", caps(50, 1)) > 0.58, "{metric}");
        assert!(known(metric, "rounded(2)", caps(500, 1)) > 0.88, "{metric}");
    }
}

#[test]
fn stated_numbers_of_submissions_suffice() {
    for metric in METRICS {
        for n in [20, 77, 240] {
            for policy in ["exact", "sealed(0.25)"] {
                for comparisons_count in [false, true] {
                    let suite = suite(metric, policy, n, 9).unwrap();
                    let submissions =
                        submissions_until_known(&suite, suite.n(), comparisons_count).unwrap();
                    let outcome = attack(
                        &suite,
                        Caps {
                            submissions,
                            organizations: 1,
                            comparisons_count,
                            entries: 0,
                        },
                        1,
                    );
                    assert_eq!(
                        outcome.known, 1.0,
                        "{metric} {n} {policy} {comparisons_count}: {outcome:?}"
                    );
                    assert!(outcome.submissions <= submissions);
                }
            }
        }
        for (n, policy) in [
            (77, "rounded(2)"),
            (240, "rounded(2)"),
            (240, "rounded(3)"),
            (500, "rounded(2)"),
        ] {
            let suite = suite(metric, policy, n, 9).unwrap();
            let submissions = submissions_until_known(&suite, suite.n(), false).unwrap();
            let outcome = attack(&suite, caps(submissions, 1), 1);
            assert!(
                outcome.known > 0.99,
                "{metric} {n} {policy} {submissions}: {outcome:?}"
            );
        }
        if has_grid(metric) {
            assert_eq!(
                submissions_until_known(&suite(metric, "ladder(0.1)", 77, 9).unwrap(), 77, false),
                None,
                "{metric}"
            );
        }
    }
}

#[test]
fn attacks_are_deterministic() {
    for policy in ["exact", "rounded(2)", "ladder(0.05)", "sealed(0.5)"] {
        let outcomes = || {
            METRICS
                .iter()
                .filter_map(|metric| suite(metric, policy, N, 2).ok())
                .flat_map(|suite| attacks(&suite, caps(30, 2), 7))
        };
        assert_eq!(
            outcomes().collect::<Vec<_>>(),
            outcomes().collect::<Vec<_>>()
        );
    }
}

#[test]
fn suites_with_several_labels_are_attacked() {
    for metric in [
        "accuracy",
        "exact_match",
        "f1_macro",
        "log_loss",
        "brier",
        "ece@15",
    ] {
        let suite = labelled(metric, "exact", 120, &["w", "x", "y", "z"]);
        let needed = submissions_until_known(&suite, suite.n(), false).unwrap();
        assert!(needed < 50, "{metric} {needed}");
        let outcome = attack(&suite, caps(needed, 1), 1);
        assert_eq!(outcome.known, 1.0, "{metric} {outcome:?}");
        assert!(outcome.chance > 0.5 && outcome.chance < 0.7);
    }
    // 28 submissions with their 378 comparisons disclose all answers, but far fewer if each
    // comparison counts as a submission.
    let suite = labelled("exact_match", "exact", 120, &["w", "x", "y", "z"]);
    assert_eq!(attack(&suite, caps(28, 1), 1).known, 1.0);
    let outcome = attack(
        &suite,
        Caps {
            submissions: 28,
            organizations: 1,
            comparisons_count: true,
            entries: 0,
        },
        1,
    );
    assert!(outcome.known < 0.95, "{outcome:?}");
}

#[test]
fn lists_gains_and_numbers_are_attacked() {
    for policy in ["exact", "rounded(2)", "ladder(0.1)", "sealed(0.5)"] {
        let outcome = attack(&lists(policy), caps(50, 1), 1);
        assert!((0.5..=1.0).contains(&outcome.known), "{policy} {outcome:?}");
    }
    for metric in [
        "rmse", "mae", "spearman", "pearson", "kendall", "ccc", "pinball", "wis",
    ] {
        for policy in ["exact", "rounded(3)", "ladder(0.05)"] {
            let outcome = attack(&many_numbers(metric, policy), caps(50, 1), 1);
            assert!(
                (0.0..=1.0).contains(&outcome.known) && outcome.chance < 0.2,
                "{metric} {policy} {outcome:?}"
            );
        }
    }
}

#[test]
fn numbers_are_read_from_unbounded_losses() {
    let rating = |metric: &str, policy: &str, n: usize, values: usize| {
        let item = |at: usize| Item {
            item_id: Cow::Owned(format!("i{at}")),
            answer: Answer::Number((at * at * 7919 % 1009 % values) as f64 / 2.0 - 1.0),
            is_sealed: at.is_multiple_of(3),
        };
        Suite::new(
            metric.parse().unwrap(),
            None,
            policy.parse().unwrap(),
            (0..n).map(item).collect(),
        )
        .unwrap()
    };
    for metric in ["rmse", "mae", "spearman", "pearson", "kendall", "ccc", "r2"] {
        // Ratings: several per submission. With more values than candidates: one per submission.
        for (policy, values, most) in [
            ("exact", 5, 25),
            ("exact", 11, 40),
            ("exact", 900, 301),
            ("sealed(0.5)", 5, 301),
        ] {
            let suite = rating(metric, policy, 300, values);
            let needed = submissions_until_known(&suite, suite.n(), false).unwrap();
            assert!(needed <= most, "{metric} {policy} {values}: {needed}");
            let outcome = attack(&suite, caps(needed, 1), 1);
            assert_eq!(
                outcome.known, 1.0,
                "{metric} {policy} {values}: {outcome:?}"
            );
            assert!(attack(&suite, caps(needed / 4, 1), 1).known < 0.9);
        }
    }
}

/// Builds a suite with quantiles of these values in turn.
fn quantiles(
    metric: &str,
    levels: &[f64],
    (clip, policy): (Option<Clip>, &str),
    (n, values): (usize, usize),
) -> Suite {
    let item = |at: usize| Item {
        item_id: Cow::Owned(format!("i{at}")),
        // No answer is in the middle between two others.
        answer: Answer::Number(((at * at * 7919 % 1009 % values) as f64).sqrt() / 2.0),
        is_sealed: at.is_multiple_of(3),
    };
    let levels = QuantileLevels::new(levels).unwrap();
    Suite::with_quantiles(
        metric.parse().unwrap(),
        Some(levels),
        clip,
        policy.parse().unwrap(),
        (0..n).map(item).collect(),
    )
    .unwrap()
}

#[test]
fn numbers_are_read_from_quantile_losses() {
    let clip = Clip::new(0.1, 0.2);
    for (metric, levels, clip) in [
        ("pinball", &[0.1, 0.5, 0.9][..], None),
        // The error of the median has no bounds.
        ("pinball", &[0.5], clip),
        ("wis", &[0.1, 0.5, 0.9], clip),
        ("pinball", &[0.05, 0.2], None),
        ("pinball", &[0.7, 0.8, 0.99], None),
    ] {
        for policy in ["exact", "sealed(0.5)"] {
            let suite = quantiles(metric, levels, (clip, policy), (90, 900));
            let needed = submissions_until_known(&suite, suite.n(), false).unwrap();
            assert_eq!(needed, 91, "{metric} {levels:?} {policy}");
            let outcome = attack(&suite, caps(needed, 1), 1);
            assert_eq!(outcome.known, 1.0, "{metric} {levels:?}: {outcome:?}");
            // With two values, one submission discloses many.
            let suite = quantiles(metric, levels, (clip, policy), (90, 2));
            let needed = submissions_until_known(&suite, suite.n(), false).unwrap();
            assert!(needed <= 6, "{metric} {levels:?} {policy} {needed}");
            let outcome = attack(&suite, caps(needed, 1), 1);
            assert_eq!(outcome.known, 1.0, "{metric} {levels:?}: {outcome:?}");
        }
        if clip.is_none() {
            let suite = quantiles(metric, levels, (None, "rounded(2)"), (60, 2));
            let needed = submissions_until_known(&suite, suite.n(), false).unwrap();
            let outcome = attack(&suite, caps(needed, 1), 1);
            assert!(outcome.known > 0.99, "{metric} {levels:?}: {outcome:?}");
        }
    }
    // Without the median's error, bounds keep far predictions from disclosing anything.
    let suite = quantiles("pinball", &[0.05, 0.2], (clip, "exact"), (90, 900));
    assert_eq!(submissions_until_known(&suite, 90, false), None);
}

#[test]
fn quantiles_under_ladder_disclose_less_than_the_bound() {
    for levels in [
        &[0.1, 0.5, 0.9][..],
        &[0.01, 0.25, 0.5, 0.75, 0.99],
        &[0.2, 0.9],
    ] {
        for values in [2, 5] {
            let clip = Clip::new(0.0, 0.2);
            let suite = quantiles("pinball", levels, (clip, "ladder(0.01)"), (300, values));
            let allowance = caps(200, 3);
            let chance = suite.chance().0;
            let bound = known_at_most(suite.bits(allowance).unwrap(), 300, chance);
            let outcomes = attacks(&suite, allowance, 1);
            let known = outcomes.iter().map(|outcome| outcome.known);
            let known = known.fold(0.0, f64::max);
            println!(
                "{levels:?}, {values} values: {known:.3}, bound {bound:.3}, chance {chance:.3}"
            );
            assert!(
                known <= bound + three_standard_errors(0.5, 300),
                "{outcomes:?}"
            );
            // Guesses that hedge reach levels, as with labels.
            if values == 2 && levels.contains(&0.5) {
                assert!(known > chance + 0.1, "{outcomes:?}");
            }
        }
    }
}

#[test]
fn staircase_fails_with_bounded_losses() {
    for metric in ["rmse", "mae"] {
        let outcomes = attacks(
            &suite(metric, "ladder(0.05)", N, 1).unwrap(),
            caps(100, 2),
            1,
        );
        let staircase = outcomes
            .iter()
            .find(|outcome| outcome.strategy == "staircase")
            .unwrap();
        assert_eq!(
            (staircase.known, staircase.submissions),
            (staircase.chance, 200),
            "{metric}"
        );
    }
}

#[test]
fn large_suite_is_sampled() {
    let suite = suite("accuracy", "ladder(0.05)", 5000, 1).unwrap();
    let outcome = attack(&suite, caps(50, 1), 1);
    assert_eq!(outcome.n, 1000);
    assert_eq!(suite.n(), 5000);
}

#[test]
fn suite_without_items_or_grid_fails() {
    let policy: DisclosurePolicy = "exact".parse().unwrap();
    assert_eq!(
        Suite::new(Metric::Accuracy, None, policy, Vec::new()).unwrap_err(),
        SuiteError::Empty
    );
    assert_eq!(
        suite("ece@15", "ladder(0.1)", 50, 1).unwrap_err(),
        SuiteError::NoGrid
    );
}

#[test]
fn table_covers_each_metric_and_policy() {
    let rows = bench::rows(1, 1);
    // Every metric has every policy, except ece and r2, which have no ladder.
    assert_eq!(rows.len(), METRICS.len() * bench::POLICIES.len() - 4);
    for row in &rows {
        for cell in &row.cells {
            let is_within =
                |share: f64, most: f64, n: usize| share <= most + three_standard_errors(0.5, n);
            assert!(
                cell.bound
                    .is_none_or(|bound| is_within(cell.known, bound, N)),
                "{row:?}"
            );
            assert!(
                cell.known_sealed
                    .is_none_or(|known| is_within(known, 0.5, N / 2)),
                "{row:?}"
            );
        }
        let last = row.cells.last().unwrap();
        assert!(last.bound.is_some() || last.known > 0.99, "{row:?}");
    }
    let text = bench::render(&rows);
    assert_eq!(text.lines().count(), rows.len() + 2);
    assert!(
        text.lines()
            .all(|line| line.matches('|').count() == CAPS.len() + 3),
        "{text}"
    );
    assert!(
        text.contains("\n| `log_loss` | `exact` | 100 | 100 | 100 | 100 | 100 | 100 |\n"),
        "{text}"
    );
}
