//! Attacks against random suites whose final boards show slices.
#![expect(clippy::unwrap_used, reason = "these are tests")]

mod suites;

use std::borrow::Cow;

use assay_adversary::bench::{METRICS, N};
use assay_adversary::{Caps, Item, Outcome, Suite, attacks};
use assay_eval::slices::FieldSlices;
use assay_eval::{Answer, Metric, known_at_most};
use suites::{caps, has_grid, labelled, lists, many_numbers, suite, three_standard_errors};

/// Returns the caps with the entries that an organization can have in a board.
fn with_entries(caps: Caps) -> Caps {
    Caps { entries: 3, ..caps }
}

/// Returns fields of random slices: `n_slices` of the first field, one fewer of each next one, but at
/// least two.
fn random_fields(n: usize, n_fields: usize, n_slices: usize, seed: u64) -> Vec<FieldSlices> {
    let mut state = seed.wrapping_add(1);
    let mut random_code = |n_slices: usize| {
        state = state
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        ((state >> 33) % n_slices as u64) as u8
    };
    let field = |at: usize| {
        let n_slices = n_slices.saturating_sub(at).max(2);
        let groups = (0..n_slices).map(|group| format!("g{group}")).collect();
        let mut field = FieldSlices::new(format!("f{at}"), groups);
        field.codes = (0..n).map(|_| random_code(n_slices)).collect();
        field
    };
    (0..n_fields).map(field).collect()
}

/// Returns each suite of these tests that can have a ladder, with it.
fn suites_with_ladder(policy: &str, seed: u64) -> Vec<(String, Suite)> {
    let mut suites = Vec::new();
    for metric in METRICS.into_iter().filter(|metric| has_grid(metric)) {
        for n in [77, N] {
            suites.push((
                format!("{metric} {n}"),
                suite(metric, policy, n, seed).unwrap(),
            ));
        }
    }
    let large = suite("accuracy", policy, 5000, seed).unwrap();
    suites.push(("accuracy 5000".to_owned(), large));
    for metric in ["accuracy", "exact_match", "f1_macro", "brier"] {
        let suite = labelled(metric, policy, 120, &["w", "x", "y", "z"]);
        suites.push((format!("{metric} labels"), suite));
    }
    suites.push(("ndcg@5 lists".to_owned(), lists(policy)));
    for metric in ["rmse", "mae", "spearman"] {
        suites.push((format!("{metric} numbers"), many_numbers(metric, policy)));
    }
    suites
}

#[test]
fn slices_disclose_less_than_their_bound() {
    let most_slices = [2, 5, 10];
    for policy in ["ladder(0.05)", "ladder(0.1)"] {
        for (n_fields, n_slices) in [2, 5].into_iter().flat_map(|n| most_slices.map(|k| (n, k))) {
            let seed = (n_fields + n_slices) as u64;
            for (name, suite) in suites_with_ladder(policy, seed) {
                let fields = random_fields(suite.n(), n_fields, n_slices, seed);
                let suite = suite.with_slices(fields).unwrap();
                assert!(!suite.public().slices.is_empty(), "{name}");
                for allowance in [caps(3, 1), caps(18, 1), caps(40, 2)] {
                    let allowance = with_entries(allowance);
                    let bits = suite.bits(allowance).unwrap();
                    for outcome in attacks(&suite, allowance, seed) {
                        let Outcome {
                            known, chance, n, ..
                        } = outcome;
                        let bound = known_at_most(bits, n, chance);
                        assert!(
                            known <= bound + three_standard_errors(chance, n),
                            "{name} {policy} {n_fields} {n_slices} {allowance:?}: {outcome:?}, bound {bound}"
                        );
                    }
                }
            }
        }
    }
}

/// Returns the mean share of the answers that the best attack knows without slices, and with them.
/// `suite` builds a suite with `N` items from a seed.
fn known_without_and_with(suite: impl Fn(u64) -> Suite) -> [f64; 2] {
    const TRIALS: u64 = 6;
    let allowance = caps(18, 1);
    let best = |outcomes: &[Outcome]| {
        let known = outcomes.iter().map(|outcome| outcome.known);
        known.fold(0.0, f64::max)
    };
    let mut sums = [0.0; 2];
    for seed in 0..TRIALS {
        let sliced = suite(seed)
            .with_slices(random_fields(N, 5, 10, seed))
            .unwrap();
        let plain = attacks(&suite(seed), with_entries(allowance), seed);
        // Without entries, the attacks learn nothing about slices.
        let known = |outcomes: &[Outcome]| -> Vec<f64> {
            outcomes.iter().map(|outcome| outcome.known).collect()
        };
        assert_eq!(known(&attacks(&sliced, allowance, seed)), known(&plain));
        sums[0] += best(&plain);
        sums[1] += best(&attacks(&sliced, with_entries(allowance), seed));
    }
    sums.map(|sum| sum / TRIALS as f64)
}

#[test]
fn slices_disclose_more_than_ladder_alone() {
    for (metric, policy, gain) in [
        ("accuracy", "ladder(0.05)", 0.05),
        ("spearman", "ladder(0.05)", 0.1),
        ("brier", "ladder(0.01)", 0.03),
    ] {
        let [without, with] =
            known_without_and_with(|seed| suite(metric, policy, N, seed).unwrap());
        assert!(with > without + gain, "{metric}: {without} {with}");
    }
    // Three labels, which another strategy attacks.
    let three_labels = |seed| {
        let labels = random_fields(N, 1, 3, seed + 50).remove(0).codes;
        let item = |at: usize| Item {
            item_id: Cow::Owned(format!("i{at}")),
            answer: Answer::Label(Cow::Borrowed(["x", "y", "z"][usize::from(labels[at])])),
            is_sealed: false,
        };
        let policy = "ladder(0.05)".parse().unwrap();
        Suite::new(Metric::Accuracy, None, policy, (0..N).map(item).collect()).unwrap()
    };
    let [without, with] = known_without_and_with(three_labels);
    assert!(with > without + 0.03, "{without} {with}");
}

#[test]
fn bits_count_slices_of_each_entry() {
    // Both slices have two equally frequent labels, so their grids have 10 levels above 0.5.
    let item = |at: usize| Item {
        item_id: Cow::Owned(format!("i{at}")),
        answer: Answer::Label(Cow::Borrowed(if at % 4 < 2 { "a" } else { "b" })),
        is_sealed: false,
    };
    let suite = |policy: &str| {
        let items = (0..40).map(item).collect();
        let suite = Suite::new(Metric::Accuracy, None, policy.parse().unwrap(), items).unwrap();
        let mut field = FieldSlices::new(
            "f".to_owned(),
            ["x", "y", "empty"].map(str::to_owned).into(),
        );
        field.codes = (0..40).map(|at| (at % 2) as u8).collect();
        // A field with one slice is left out, like the slice without items.
        let one = FieldSlices {
            codes: vec![0; 40],
            ..field.clone()
        };
        suite.with_slices(vec![field, one])
    };
    let ladder = suite("ladder(0.05)").unwrap();
    let is_near = |caps: Caps, bits: f64| (ladder.bits(caps).unwrap() - bits).abs() < 1e-9;
    let per_entry = 2.0 * 11_f64.log2();
    let score_bits = ladder.ladder().unwrap().bits(18);
    assert!(is_near(caps(18, 2), 2.0 * score_bits));
    let allowance = with_entries(caps(18, 2));
    assert!(is_near(allowance, 2.0 * (score_bits + 3.0 * per_entry)));
    let two = ladder.ladder().unwrap().bits(2) + 2.0 * per_entry;
    assert!(is_near(with_entries(caps(2, 1)), two));
    let exact = suite("exact").unwrap();
    assert!(exact.public().slices.is_empty());
    assert_eq!(exact.bits(allowance), None);
}

#[test]
fn sample_of_large_suite_has_slices() {
    let suite = suite("accuracy", "ladder(0.05)", 5000, 1).unwrap();
    let suite = suite.with_slices(random_fields(5000, 2, 10, 1)).unwrap();
    let sample = suite.sample(1).unwrap();
    let sizes = |suite: &Suite| -> Vec<usize> {
        let slices = suite.public().slices.iter();
        slices.map(|slice| slice.items.len()).collect()
    };
    assert_eq!(sizes(&suite).len(), 19);
    assert_eq!(sizes(&suite).iter().sum::<usize>(), 10_000);
    assert_eq!(sizes(&sample).len(), 19);
    assert_eq!(sizes(&sample).iter().sum::<usize>(), 2000);
}

#[test]
fn slices_need_a_code_for_each_item() {
    let suite = suite("accuracy", "ladder(0.05)", 50, 1).unwrap();
    let error = suite.with_slices(random_fields(49, 1, 2, 1)).unwrap_err();
    assert!(error.to_string().contains("\"f0\""), "{error}");
}

#[test]
fn grid_starts_disclose_frequent_answers() {
    // Nine answers of ten are `a` in the first slice, and `b` in the second one.
    let n = 400;
    let answer = |at: usize| {
        if at.is_multiple_of(10) ^ at.is_multiple_of(2) {
            "a"
        } else {
            "b"
        }
    };
    let item = |at: usize| Item {
        item_id: Cow::Owned(format!("i{at}")),
        answer: Answer::Label(Cow::Borrowed(answer(at))),
        is_sealed: false,
    };
    let policy = "ladder(0.1)".parse().unwrap();
    let items = || (0..n).map(item).collect();
    let plain = || Suite::new(Metric::ExactMatch, None, policy, items()).unwrap();
    let mut field = FieldSlices::new("half".to_owned(), vec!["even".into(), "odd".into()]);
    field.codes = (0..n).map(|at| (at % 2) as u8).collect();
    let sliced = plain().with_slices(vec![field]).unwrap();
    let guessed = (0..n)
        .filter(|at| (answer(*at) == "a") == at.is_multiple_of(2))
        .count();
    assert!((sliced.chance().0 - guessed as f64 / n as f64).abs() < 1e-12);
    assert!(plain().chance().0 < sliced.chance().0 - 0.2);
}
