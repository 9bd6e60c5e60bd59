//! An adversary who computes a suite's hidden answers from disclosed figures.
//!
//! The real scorer and `assay-eval`'s real disclosure policies score and disclose a suite
//! under attack. The strategies see only disclosed figures and public facts: item ids, metric,
//! policy, grid, slices, the candidate answers and their frequencies. `docs/threats.md` states the results
//! for each policy; [`mod@bench`] generates its table.

pub mod bench;
mod caps;
mod platform;
mod random;
mod shares;
mod strategies;
mod suite;

pub use caps::Caps;
pub use shares::{ShareOutcome, read_shares};
pub use suite::{
    CANDIDATES_MAX, Candidate, ITEMS_MAX, Item, Public, Rules, Slice, Suite, SuiteError,
};

use platform::Platform;
use random::Random;

/// A strategy's result.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// The strategy's name.
    pub strategy: &'static str,
    /// The submission count over all organizations, including comparisons that count.
    pub submissions: u32,
    /// The attacked item count: the suite's, or its sample's.
    pub n: usize,
    /// The open-item share whose answer the strategy guessed correctly, from 0 to 1.
    pub known: f64,
    /// The sealed-item share whose answer the strategy guessed correctly, from 0 to 1. `None`
    /// without sealed items.
    pub known_sealed: Option<f64>,
    /// The open-item share that is known without submissions, by guessing the most frequent
    /// answer.
    pub chance: f64,
    /// The same share among sealed items.
    pub chance_sealed: Option<f64>,
}

/// Attacks a suite with every applicable strategy, and returns the outcome with the largest known
/// open-item share.
///
/// A suite with more than [`ITEMS_MAX`] items is replaced by a random sample with that size.
pub fn attack(suite: &Suite, caps: Caps, seed: u64) -> Outcome {
    let better = |best: Option<Outcome>, next: Outcome| match best {
        Some(best) if best.known >= next.known => Some(best),
        _ => Some(next),
    };
    let best = attacks(suite, caps, seed).into_iter().fold(None, better);
    best.unwrap_or_else(|| run(suite, caps, seed, &strategies::ALL[0]))
}

/// Attacks a suite with each applicable strategy in turn, and returns all outcomes. Stops after the
/// first strategy that knows every answer. Samples large suites like [`attack`].
///
/// Returns nothing for a suite with distributions, whose answers no guess expresses: see
/// [`read_shares`].
pub fn attacks(suite: &Suite, caps: Caps, seed: u64) -> Vec<Outcome> {
    if suite.public().has_distributions {
        return Vec::new();
    }
    let sample = suite.sample(seed);
    let suite = sample.as_ref().unwrap_or(suite);
    let numbers = Platform::new(suite, caps).numbers().to_vec();
    let mut outcomes: Vec<Outcome> = Vec::new();
    for strategy in strategies::ALL
        .iter()
        .filter(|strategy| (strategy.applies)(suite.public(), &numbers))
    {
        if outcomes.last().is_some_and(|last| last.known >= 1.0) {
            break;
        }
        outcomes.push(run(suite, caps, seed, strategy));
    }
    outcomes
}

/// Returns how many submissions from one organization disclose every answer in a suite with `n`
/// items like `suite`; under `sealed`, every open item's answer.
///
/// Under `rounded`, if no strategy decodes every answer, the number discloses nearly every answer.
/// Comparisons are free unless `comparisons_count` is set. Answers that are distributions are read as by
/// [`read_shares`]. Returns `None` if no such strategy is
/// known, as under a ladder.
pub fn submissions_until_known(suite: &Suite, n: usize, comparisons_count: bool) -> Option<u32> {
    let caps = Caps {
        submissions: 0,
        organizations: 0,
        comparisons_count,
        entries: 0,
    };
    let n_open = n * suite.public().n_open / suite.n().max(1);
    if suite.public().has_distributions {
        return shares::submissions_needed(suite, n_open);
    }
    let platform = Platform::new(suite, caps);
    let public = &Public {
        n,
        n_open,
        ..suite.public().clone()
    };
    let numbers = platform.numbers();
    let certain = [
        strategies::packing::submissions_needed(public, numbers),
        strategies::counting::submissions_needed(public, comparisons_count),
        strategies::codebook::submissions_needed(public, numbers),
        strategies::reading::submissions_needed(public, numbers),
    ];
    let by_covariances = || strategies::gaussian::submissions_needed(public, numbers);
    certain.into_iter().flatten().min().or_else(by_covariances)
}

fn run(suite: &Suite, caps: Caps, seed: u64, strategy: &strategies::Strategy) -> Outcome {
    let mut platform = Platform::new(suite, caps);
    let guesses = (strategy.run)(&mut platform, &mut Random::new(seed));
    let (known, known_sealed) = suite.grade(&guesses);
    let (chance, chance_sealed) = suite.chance();
    Outcome {
        strategy: strategy.name,
        submissions: platform.used(),
        n: suite.n(),
        known,
        known_sealed,
        chance,
        chance_sealed,
    }
}
