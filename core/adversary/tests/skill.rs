//! Attackers who read the skill next to the value.
#![expect(clippy::unwrap_used, reason = "these are tests")]

use assay_adversary::bench::{self, N};
use assay_adversary::{Caps, Suite, attacks};
use assay_eval::skill::SkillBaseline::{self, Marginal, Uniform};

/// Metrics with a baseline.
const METRICS: [(&str, SkillBaseline); 8] = [
    ("accuracy", Marginal),
    ("ndcg@10", Marginal),
    ("exact_match", Uniform),
    ("mae", Marginal),
    ("log_loss", Uniform),
    ("brier", Marginal),
    ("tvd", Uniform),
    ("rps", Marginal),
];

/// Returns caps of one organization, with which comparisons are free.
fn caps(submissions: u32) -> Caps {
    Caps {
        submissions,
        organizations: 1,
        comparisons_count: false,
        entries: 0,
    }
}

/// Returns a random suite of labels or numbers.
fn suite(metric: &str, policy: &str, seed: u64) -> Suite {
    bench::suite(metric.parse().unwrap(), policy.parse().unwrap(), N, seed).unwrap()
}

/// Returns the largest share of the answers that an attack knows.
fn known(suite: &Suite, submissions: u32) -> f64 {
    let outcomes = attacks(suite, caps(submissions), 1).into_iter();
    outcomes.map(|outcome| outcome.known).fold(0.0, f64::max)
}

#[test]
fn ladder_discloses_no_skill() {
    for (metric, baseline) in METRICS {
        let plain = suite(metric, "ladder(0.05)", 3);
        let skilled = suite(metric, "ladder(0.05)", 3);
        let skilled = skilled.with_skill(baseline).unwrap();
        let allowance = caps(50);
        let outcomes = [&plain, &skilled].map(|suite| attacks(suite, allowance, 3));
        assert_eq!(outcomes[0], outcomes[1], "{metric}");
        assert_eq!(plain.bits(allowance), skilled.bits(allowance));
    }
}

/// The audit counts a skill as one more figure, which halves the number of submissions.
#[test]
fn rounded_skill_is_worth_at_most_twice_the_submissions() {
    const TRIALS: u64 = 2;
    for (metric, baseline) in METRICS {
        let known_by = |has_skill: bool, submissions: u32| {
            let trials = (0..TRIALS).map(|seed| {
                let suite = suite(metric, "rounded(2)", seed);
                if has_skill {
                    known(&suite.with_skill(baseline).unwrap(), submissions)
                } else {
                    known(&suite, submissions)
                }
            });
            trials.sum::<f64>() / TRIALS as f64
        };
        for submissions in [50, 100] {
            let [alone, skilled, twice] = [(false, 1), (true, 1), (false, 2)]
                .map(|(has_skill, times)| known_by(has_skill, times * submissions));
            println!(
                "{metric}, {submissions}: {alone:.3}, with skill {skilled:.3}, twice {twice:.3}"
            );
            // Three standard errors of a share that is known by chance.
            let chance = 1.5 / ((N as u64 * TRIALS) as f64).sqrt();
            assert!(skilled <= twice + chance, "{metric} {submissions}");
            assert!(skilled >= alone - chance, "{metric} {submissions}");
            // With the skill, a code word distinguishes more answers.
            let is_read = metric != "log_loss" || submissions > 50 || skilled > alone + 0.03;
            assert!(is_read, "{metric}: {skilled} {alone}");
        }
    }
}
