//! The attacker's strategies. They see only the figures that [`Platform`] discloses, and
//! public facts.

pub mod codebook;
pub mod counting;
pub mod distances;
mod entries;
pub mod filtering;
pub mod gaussian;
pub mod greedy;
pub mod guesses;
mod intervals;
pub mod lattice;
pub mod packing;
pub mod pairs;
pub mod reading;
pub mod rounding;
pub mod weighing;

use guesses::Guesses;

use crate::platform::Platform;
use crate::random::Random;
use crate::suite::Public;

/// A way to use submissions.
pub struct Strategy {
    /// The name in reports.
    pub name: &'static str,
    /// Returns `true` if the strategy can work for a suite with these numbers.
    pub applies: fn(&Public, &[f64]) -> bool,
    /// Runs the strategy, and returns the final guesses.
    pub run: fn(&mut Platform<'_>, &mut Random) -> Guesses,
}

/// All strategies. Among equally good ones the first is reported.
pub const ALL: &[Strategy] = &[
    Strategy {
        name: "none",
        applies: |_, _| true,
        run: |platform, _| platform.public().most_frequent(),
    },
    Strategy {
        name: "packing",
        applies: packing::applies,
        run: packing::run,
    },
    Strategy {
        name: "squares",
        applies: reading::squares_apply,
        run: reading::squares,
    },
    Strategy {
        name: "one by one",
        applies: reading::applies,
        run: reading::one_by_one,
    },
    Strategy {
        name: "staircase",
        applies: reading::staircase_applies,
        run: reading::staircase,
    },
    Strategy {
        name: "codebook",
        applies: codebook::applies,
        run: codebook::run,
    },
    Strategy {
        name: "counting",
        applies: |public, _| counting::applies(public),
        run: counting::run,
    },
    Strategy {
        name: "pairs",
        applies: pairs::applies,
        run: pairs::run,
    },
    Strategy {
        name: "covariances, random",
        applies: gaussian::applies_without_ladder,
        run: gaussian::random_guesses,
    },
    Strategy {
        name: "covariances, rare levels",
        applies: gaussian::applies_to_ladder,
        run: gaussian::rare_levels,
    },
    Strategy {
        name: "covariances, frequent levels",
        applies: gaussian::applies_to_ladder,
        run: gaussian::frequent_levels,
    },
    Strategy {
        name: "filtering, random",
        applies: filtering::is_needed,
        run: filtering::random_guesses,
    },
    Strategy {
        name: "filtering, half random",
        applies: filtering::is_needed,
        run: filtering::half_random_guesses,
    },
    Strategy {
        name: "filtering, rare levels",
        applies: filtering::is_needed_for_ladder,
        run: filtering::rare_levels,
    },
    Strategy {
        name: "filtering, frequent levels",
        applies: filtering::is_needed_for_ladder,
        run: filtering::frequent_levels,
    },
    Strategy {
        name: "greedy, blocks of 1",
        applies: |_, _| true,
        run: greedy::one,
    },
    Strategy {
        name: "greedy, blocks of 10",
        applies: |_, _| true,
        run: greedy::ten,
    },
    Strategy {
        name: "greedy, blocks of 40",
        applies: |_, _| true,
        run: greedy::forty,
    },
    Strategy {
        name: "greedy, blocks of 40 to 1",
        applies: |_, _| true,
        run: greedy::mixed,
    },
];
