//! Greedy search: changes a guess block, and keeps the change if the platform shows a better
//! value. (A. Blum and M. Hardt, "The Ladder", 2015, section 4 on boosting attacks, in blocks.)

use super::guesses::{Guesses, draw_guesses, predict};
use crate::platform::Platform;
use crate::random::Random;

/// The consecutive submission count without a better value after which the next
/// organization continues.
const FAILURES_MAX: u32 = 100;

/// Runs the attack with these block sizes in turn. Each organization starts from the best
/// guesses so far.
fn run(platform: &mut Platform<'_>, random: &mut Random, sizes: &[usize]) -> Guesses {
    let public = platform.public();
    let mut guesses = draw_guesses(public, random);
    let direction = if public.metric.lower_is_better() {
        -1.0
    } else {
        1.0
    };
    for organization in 0..platform.caps().organizations as usize {
        let mut best: Option<f64> = None;
        let mut changed = guesses.clone();
        let mut failed = 0;
        for size in sizes.iter().cycle() {
            if failed >= FAILURES_MAX {
                break;
            }
            let Some(disclosed) =
                platform.submit(organization, &predict(public, platform.numbers(), &changed))
            else {
                break;
            };
            let value = disclosed.figures.value * direction;
            failed += 1;
            if best.is_none_or(|best| value > best) {
                best = Some(value);
                failed = 0;
                guesses.clone_from(&changed);
            }
            changed.clone_from(&guesses);
            for _ in 0..*size {
                let item = random.below(public.n);
                let other = random.index(&public.frequencies) as u8;
                changed[item] = if public.candidates.len() == 2 {
                    1 - guesses[item]
                } else {
                    other
                };
            }
        }
    }
    guesses
}

/// Changes one item at a time.
pub fn one(platform: &mut Platform<'_>, random: &mut Random) -> Guesses {
    run(platform, random, &[1])
}

/// Changes ten items at a time.
pub fn ten(platform: &mut Platform<'_>, random: &mut Random) -> Guesses {
    run(platform, random, &[10])
}

/// Changes forty items at a time.
pub fn forty(platform: &mut Platform<'_>, random: &mut Random) -> Guesses {
    run(platform, random, &[40])
}

/// Changes blocks with 40, 20, 10, 5 and 1 items in turn.
pub fn mixed(platform: &mut Platform<'_>, random: &mut Random) -> Guesses {
    run(platform, random, &[40, 20, 10, 5, 1])
}
