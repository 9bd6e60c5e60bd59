//! Many answers in one double: the loss differences are powers of a base, so the digits of
//! their sum are the answers. One figure carries about 44 bits.
//!
//! With two candidates the figures `brier` (two labels, probability p: p² or (1−p)²) and `mae` or `pinball`
//! (two numbers, a prediction between them) carry the answers; `log_loss` without clip carries
//! arbitrarily many candidates. Each of these figures is disclosed together with every other metric
//! in its family.

use assay_eval::{DisclosurePolicy, Family, Sum};

use super::distances::Distance;
use super::guesses::{Guesses, losses, neutral};
use crate::platform::{Platform, Predicted};
use crate::random::Random;
use crate::suite::Public;

/// The figure that carries the answers.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Carrier {
    LogLoss,
    Brier,
    /// A mean distance, for the lower and the higher number.
    Distance(Distance, [f64; 2]),
}

impl Carrier {
    fn of(public: &Public, numbers: &[f64]) -> Option<Self> {
        let allowed = matches!(
            public.policy,
            DisclosurePolicy::Exact | DisclosurePolicy::Sealed(_)
        ) && public.is_complete;
        let two = public.candidates.len() == 2;
        match public.metric.family() {
            Family::Probabilities
                if allowed && public.clip.is_none() && public.candidates.len() >= 2 =>
            {
                Some(Self::LogLoss)
            }
            // Only log_loss discloses which items are sealed.
            Family::Probabilities if allowed && two && public.policy == DisclosurePolicy::Exact => {
                Some(Self::Brier)
            }
            Family::Numbers | Family::Quantiles if allowed && two => {
                let distance = Distance::of(public)?;
                let low = numbers[0].min(numbers[1]);
                let high = numbers[0].max(numbers[1]);
                // A clip must not change any loss.
                let clear = !distance.is_clipped
                    || public.clip.is_none_or(|clip| {
                        clip.low == 0.0
                            && clip.high >= (high - low) * distance.above.max(distance.below)
                            && public.policy == DisclosurePolicy::Exact
                    });
                clear.then_some(Self::Distance(distance, [low, high]))
            }
            _ => None,
        }
    }

    const fn figure(self) -> &'static str {
        match self {
            Self::LogLoss => "log_loss",
            Self::Brier => "brier",
            Self::Distance(distance, _) => distance.figure,
        }
    }

    /// Returns how many items' answers one submission discloses.
    fn group(self, public: &Public) -> usize {
        let n = public.candidates.len() as f64;
        // A figure is the mean as a double: the larger the total loss, the fewer bits
        // remain.
        let bits = match self {
            Self::LogLoss => 45.0 - (public.n_open as f64 * n.ln() / 693.0).log2().max(0.0),
            Self::Brier | Self::Distance(..) => {
                43.0 - (public.n_open as f64 / 250.0).log2().max(0.0)
            }
        };
        (bits / n.log2()).floor().max(1.0) as usize
    }

    /// Returns the prediction that encodes the sum's digit `at`.
    fn digit(self, public: &Public, at: usize) -> Predicted {
        let n = public.candidates.len();
        match self {
            Self::LogLoss => {
                // The candidates' losses differ by `weight`. The first digit uses most of the
                // scale up to 34.5.
                let weight = 16.0 / (n as f64 - 1.0) / (n as f64).powi(at as i32);
                let odds: Vec<f64> = (0..n)
                    .map(|candidate| (-weight * candidate as f64).exp())
                    .collect();
                let sum: f64 = odds.iter().sum();
                Predicted::Probabilities(odds.into_iter().map(|odds| odds / sum).collect())
            }
            Self::Brier => {
                let first = f64::midpoint(1.0, 0.5_f64.powi(at as i32));
                Predicted::Probabilities(vec![first, 1.0 - first])
            }
            Self::Distance(distance, [low, high]) => {
                let neutral = distance.neutral(low, high);
                let most = (high - neutral).min(neutral - low);
                Predicted::Number(neutral + most * 0.5_f64.powi(at as i32))
            }
        }
    }

    /// Returns a prediction and a base. If the item is open, the prediction's loss exceeds the
    /// base by about 2^-at on some scale, for every answer.
    fn member(self, public: &Public, at: usize) -> (Predicted, f64) {
        match self {
            Self::LogLoss | Self::Brier => {
                let n = public.candidates.len();
                let base = (n as f64).ln();
                (
                    Predicted::Probabilities(vec![
                        (-base - 16.0 * 0.5_f64.powi(at as i32)).exp();
                        n
                    ]),
                    base,
                )
            }
            Self::Distance(distance, [low, high]) => {
                // So large that all answers together have less effect than the smallest power.
                let unit = 4.0 * public.n as f64 * (high - low);
                (
                    Predicted::Number(
                        f64::midpoint(low, high)
                            + unit * 2_f64.powi(Self::MEMBERS as i32 - at as i32),
                    ),
                    distance.loss(distance.neutral(low, high), low),
                )
            }
        }
    }

    /// The item count whose answers one submission discloses if they are open or sealed.
    const MEMBERS: usize = 43;

    /// Returns a prediction's loss if this candidate is the answer.
    fn loss(self, predicted: &Predicted, candidate: usize, numbers: &[f64]) -> f64 {
        match (self, predicted) {
            (Self::Distance(distance, _), Predicted::Number(number)) => {
                distance.loss(*number, numbers[candidate])
            }
            (Self::Brier, _) => losses(predicted, candidate, numbers)[1],
            _ => losses(predicted, candidate, numbers)[0],
        }
    }
}

/// Returns `true` if the strategy applies.
pub fn applies(public: &Public, numbers: &[f64]) -> bool {
    Carrier::of(public, numbers).is_some()
}

/// Returns how many submissions disclose every answer.
pub fn submissions_needed(public: &Public, numbers: &[f64]) -> Option<u32> {
    let carrier = Carrier::of(public, numbers)?;
    let members = if public.n > public.n_open {
        public.n.div_ceil(Carrier::MEMBERS)
    } else {
        0
    };
    Some((members + public.n_open.div_ceil(carrier.group(public))) as u32)
}

/// Decodes the answers, one item group after the other. If items are sealed, it first
/// determines the open items.
pub fn run(platform: &mut Platform<'_>, _: &mut Random) -> Guesses {
    let public = platform.public();
    let numbers = platform.numbers().to_vec();
    let mut guesses = public.most_frequent();
    let Some(carrier) = Carrier::of(public, &numbers) else {
        return guesses;
    };
    let has_sealed = public.n > public.n_open;
    let mut unknown: Vec<usize> = if has_sealed {
        (0..public.n).collect()
    } else {
        Vec::new()
    };
    let mut unread: Vec<usize> = if has_sealed {
        Vec::new()
    } else {
        (0..public.n).collect()
    };
    let mut sealed: Vec<usize> = Vec::new();
    let group = carrier.group(public);
    while platform.total_left() > 0 {
        let is_last = unread.len().div_ceil(group) >= platform.total_left() as usize;
        if unread.len() >= group || unknown.is_empty() || is_last {
            if unread.is_empty() {
                break;
            }
            let chosen = unread.split_off(unread.len().saturating_sub(group));
            let answers = read(platform, carrier, &numbers, &chosen, &sealed);
            for (item, answer) in chosen.iter().zip(answers) {
                guesses[*item] = answer;
            }
        } else {
            let chosen = unknown.split_off(unknown.len().saturating_sub(Carrier::MEMBERS));
            let open = open_items(platform, carrier, &chosen);
            sealed.extend(chosen.iter().filter(|item| !open.contains(item)));
            unread.extend(open);
        }
    }
    guesses
}

/// Submits with digits for these items, and decodes their answers.
fn read(
    platform: &mut Platform<'_>,
    carrier: Carrier,
    numbers: &[f64],
    chosen: &[usize],
    sealed: &[usize],
) -> Vec<u8> {
    let public = platform.public();
    let neutral = neutral(public, numbers);
    let mut predictions = vec![neutral.clone(); public.n];
    for (at, item) in chosen.iter().enumerate() {
        predictions[*item] = carrier.digit(public, at);
    }
    // The scorer rejects a correlation if all sealed items have the same prediction.
    if let (Some(item), Carrier::Distance(_, [low, _])) = (sealed.first(), carrier) {
        predictions[*item] = Predicted::Number(low);
    }
    let Some(disclosed) = platform.submit_from_any(&predictions) else {
        return Vec::new();
    };
    let Some(value) = disclosed.figure(public, carrier.figure()) else {
        return Vec::new();
    };
    let losses = |item: usize| -> Vec<f64> {
        (0..public.candidates.len())
            .map(|candidate| carrier.loss(&predictions[item], candidate, numbers))
            .collect()
    };
    // The excess over the smallest possible sum.
    let mut rest = Sum::default();
    rest.add(value * disclosed.n as f64);
    let base = carrier.loss(&neutral, 0, numbers);
    rest.add(-base * (disclosed.n as f64 - chosen.len() as f64));
    let least = |losses: &[f64]| losses.iter().copied().fold(f64::INFINITY, f64::min);
    chosen
        .iter()
        .for_each(|item| rest.add(-least(&losses(*item))));
    let slack = chosen
        .last()
        .map_or(0.0, |last| step_of(&losses(*last)) / 4.0);
    let mut answers = Vec::with_capacity(chosen.len());
    for item in chosen {
        let losses = losses(*item);
        let least = least(&losses);
        // Take the largest loss that fits: all later digits together are less than one step in this
        // digit.
        let fitting = losses
            .iter()
            .enumerate()
            .filter(|(_, loss)| *loss - least <= rest.total() + slack);
        let (answer, loss) = fitting
            .max_by(|(_, one), (_, other)| one.total_cmp(other))
            .map_or((0, least), |(at, loss)| (at, *loss));
        rest.add(least - loss);
        answers.push(answer as u8);
    }
    answers
}

/// Returns the smallest difference between two losses.
fn step_of(losses: &[f64]) -> f64 {
    let mut sorted = losses.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted
        .windows(2)
        .map(|pair| pair[1] - pair[0])
        .fold(f64::INFINITY, f64::min)
}

/// Submits predictions with which each item adds a power of two if it is open. Returns
/// the open items.
fn open_items(platform: &mut Platform<'_>, carrier: Carrier, chosen: &[usize]) -> Vec<usize> {
    let public = platform.public();
    let mut predictions = vec![neutral(public, platform.numbers()); public.n];
    let mut base = 0.0;
    let mut weights = Vec::with_capacity(chosen.len());
    for (at, item) in chosen.iter().enumerate() {
        let (member, of_open) = carrier.member(public, at);
        base = of_open;
        weights.push(match (&member, carrier) {
            (Predicted::Probabilities(shares), _) => -shares[0].ln() - of_open,
            (Predicted::Number(number), Carrier::Distance(distance, [low, high])) => {
                distance.below * (number - f64::midpoint(low, high))
            }
            _ => 0.0,
        });
        predictions[*item] = member;
    }
    let Some(disclosed) = platform.submit_from_any(&predictions) else {
        return Vec::new();
    };
    let Some(value) = disclosed.figure(public, carrier.figure()) else {
        return Vec::new();
    };
    let mut rest = Sum::default();
    rest.add(value * disclosed.n as f64);
    rest.add(-base * disclosed.n as f64);
    // Adjacent weights differ by a factor of two, so half the smallest weight is the margin for
    // rounding and for what answers change.
    let margin = weights.last().map_or(0.0, |weight| weight / 2.0);
    let mut open = Vec::new();
    for (item, weight) in chosen.iter().zip(weights) {
        if rest.total() >= weight - margin {
            rest.add(-weight);
            open.push(*item);
        }
    }
    open
}
