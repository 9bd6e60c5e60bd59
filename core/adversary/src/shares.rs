//! The linear attack on answers that are distributions. If one prediction changes between two submissions,
//! the differences of `log_loss` and of `brier` are linear in the shares of that item's answer. All metrics
//! of distributions disclose both figures.

use std::borrow::Cow;
use std::ops::ControlFlow;

use assay_eval::prediction::{Prediction, PredictionSink as _, Value};
use assay_eval::score::{Progress, Scorer};
use assay_eval::{Answer, DisclosurePolicy, Metric};

use crate::suite::Suite;

/// A share is known if its estimate is as close as this.
const TOLERANCE: f64 = 0.01;

/// The probability of the option that `log_loss` reads: the smallest one that it does not replace.
const LEAST: f64 = 1e-15;

/// The probability of the option that `brier` reads.
const LIKELY: f64 = 0.8;

/// The result of the linear attack.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ShareOutcome {
    /// The submission count.
    pub submissions: u32,
    /// The number of open items.
    pub n: usize,
    /// The share of open items of which each share is known within 0.01.
    pub known: f64,
    /// The largest error of a share, over the items that were read; 0 if none was.
    pub largest_error: f64,
}

/// The figures that disclose shares.
#[derive(Clone, Copy, PartialEq)]
enum Readable {
    LogLoss,
    Brier,
    Both,
}

impl Readable {
    fn of(metric: Metric, is_clipped: bool, policy: DisclosurePolicy) -> Option<Self> {
        match policy {
            DisclosurePolicy::Ladder(_) => None,
            _ if metric == Metric::LogLoss && is_clipped => Some(Self::Brier),
            DisclosurePolicy::Rounded(_) => Some(Self::LogLoss),
            DisclosurePolicy::Exact | DisclosurePolicy::Sealed(_) => Some(Self::Both),
        }
    }

    /// Returns how many options one submission reads.
    fn step(self) -> usize {
        if self == Self::Both { 2 } else { 1 }
    }

    /// Returns how many submissions read an item with so many options. The last share follows from the
    /// others.
    fn submissions(self, n_options: usize) -> usize {
        n_options.saturating_sub(1).div_ceil(self.step())
    }
}

/// Returns how many submissions read the answers of `n` open items, if they are like the suite's.
pub(crate) fn submissions_needed(suite: &Suite, n: usize) -> Option<u32> {
    let public = suite.public();
    let readable = Readable::of(public.metric, public.clip.is_some(), public.policy)?;
    let open = suite.items.iter().zip(suite.options_of_items());
    let open = open.filter(|(item, _)| !item.is_sealed);
    let sum: usize = open
        .map(|(_, options)| readable.submissions(options.len()))
        .sum();
    let scaled = sum as f64 * n as f64 / public.n_open.max(1) as f64;
    Some(1 + scaled.ceil() as u32)
}

/// Reads the answers of a suite with distributions, one item after the other, as far as `submissions`
/// reach. The options of each item are public. `None` if the suite has no distributions, if its policy is
/// a ladder, or if items are sealed.
pub fn read_shares(suite: &Suite, submissions: u32) -> Option<ShareOutcome> {
    let public = suite.public();
    let readable = Readable::of(public.metric, public.clip.is_some(), public.policy)?;
    if !public.has_distributions || suite.sealed.is_some() || submissions == 0 {
        return None;
    }
    let options = suite.options_of_items();
    let uniform = |options: &Vec<String>| vec![1.0 / options.len() as f64; options.len()];
    let mut shown: Vec<Vec<f64>> = options.iter().map(uniform).collect();
    let before = figures(suite, &options, &shown)?;
    let is_halved = suite.open.n_options() <= 2;
    let n = public.n_open as f64;
    let mut used = 1;
    let (mut n_known, mut largest_error) = (0, 0.0_f64);
    for (item, options_of_item) in options.iter().enumerate() {
        let n_options = options_of_item.len();
        if used + readable.submissions(n_options) as u32 > submissions {
            break;
        }
        let mut shares = Vec::with_capacity(n_options);
        for first in (0..n_options - 1).step_by(readable.step()) {
            let read = Reader::new(readable, n_options, first);
            shown[item] = read.prediction();
            let after = figures(suite, &options, &shown)?;
            used += 1;
            let log_loss = (after[0] - before[0]) * n;
            let brier = (after[1] - before[1]) * n * if is_halved { 2.0 } else { 1.0 };
            shares.extend(read.shares(log_loss, brier));
        }
        shown[item] = uniform(options_of_item);
        shares.truncate(n_options - 1);
        shares.push(1.0 - shares.iter().sum::<f64>());
        let error = suite.largest_error(item, &options_of_item[..], &shares);
        largest_error = largest_error.max(error);
        n_known += u32::from(error <= TOLERANCE);
    }
    Some(ShareOutcome {
        submissions: used,
        n: public.n_open,
        known: f64::from(n_known) / n,
        largest_error,
    })
}

/// A prediction whose losses disclose the share of one option, or of two.
struct Reader {
    readable: Readable,
    n_options: usize,
    first: usize,
}

impl Reader {
    fn new(readable: Readable, n_options: usize, first: usize) -> Self {
        Self {
            readable,
            n_options,
            first,
        }
    }

    /// Returns `true` if the submission reads two options.
    fn reads_two(&self) -> bool {
        self.readable == Readable::Both && self.first + 2 < self.n_options
    }

    /// Returns the probabilities of the first option, of the second one and of each other one.
    fn probabilities(&self) -> [f64; 3] {
        let n = self.n_options as f64;
        match self.readable {
            _ if self.reads_two() => [LEAST, LIKELY, (1.0 - LEAST - LIKELY) / (n - 2.0)],
            Readable::Brier => [1.0, 0.0, 0.0],
            Readable::LogLoss | Readable::Both => {
                [LEAST, (1.0 - LEAST) / (n - 1.0), (1.0 - LEAST) / (n - 1.0)]
            }
        }
    }

    fn prediction(&self) -> Vec<f64> {
        let [first, second, other] = self.probabilities();
        let mut prediction = vec![other; self.n_options];
        prediction[self.first] = first;
        if let Some(place) = prediction.get_mut(self.first + 1) {
            *place = second;
        }
        prediction
    }

    /// Returns the shares of the options, by the changes of the summed losses from those of equal
    /// probabilities. Both are linear: a constant, and a slope for each share.
    fn shares(&self, log_loss: f64, brier: f64) -> Vec<f64> {
        let n = self.n_options as f64;
        let [first, second, other] = self.probabilities();
        let squares: f64 = self.prediction().iter().map(|share| share * share).sum();
        if self.readable == Readable::Brier {
            return vec![(squares + 1.0 / n - brier) / 2.0];
        }
        let log_loss = log_loss + n.ln() + other.ln();
        let log_slopes = [first, second].map(|share| other.ln() - share.ln());
        if !self.reads_two() {
            return vec![log_loss / log_slopes[0]];
        }
        let brier = squares + 1.0 / n - 2.0 * other - brier;
        let brier_slopes = [first, second].map(|share| 2.0 * (share - other));
        let determinant = log_slopes[0] * brier_slopes[1] - log_slopes[1] * brier_slopes[0];
        vec![
            (log_loss * brier_slopes[1] - log_slopes[1] * brier) / determinant,
            (log_slopes[0] * brier - log_loss * brier_slopes[0]) / determinant,
        ]
    }
}

/// Submits these probabilities of each item's options, and returns the disclosed `log_loss` and `brier`.
fn figures(suite: &Suite, options: &[Vec<String>], shown: &[Vec<f64>]) -> Option<[f64; 2]> {
    let public = suite.public();
    let progress = Progress::default();
    let mut scorer = Scorer::new(&suite.open, public.metric, &progress).without_slices();
    for (index, (item, (options, shares))) in suite
        .items
        .iter()
        .zip(options.iter().zip(shown))
        .enumerate()
    {
        let labels = options.iter().map(|label| Cow::Borrowed(label.as_str()));
        let shares: Vec<(Cow<'_, str>, f64)> = labels.zip(shares.iter().copied()).collect();
        let prediction = Prediction {
            index,
            line: None,
            item_id: Cow::Borrowed(&item.item_id),
            value: Value::Probabilities(&shares),
        };
        if let ControlFlow::Break(_) = scorer.take(Ok(prediction)) {
            return None;
        }
    }
    let score = scorer.finish().ok()?;
    let figures = public.policy.disclose(score.figures, None).ok()?;
    let metric = public.metric.to_string();
    let figure = |name: &str| {
        if name == metric {
            Some(figures.value)
        } else {
            figures.metrics.get(name).copied()
        }
    };
    Some([figure("log_loss")?, figure("brier")?])
}

impl Suite {
    /// Returns the options of each item, in its order.
    fn options_of_items(&self) -> Vec<Vec<String>> {
        let named = self.named_options();
        let all = || {
            let labels = self.items.iter().flat_map(|item| labels_of(&item.answer));
            let mut labels: Vec<String> = labels.map(str::to_owned).collect();
            labels.sort_unstable();
            labels.dedup();
            labels
        };
        let all = if named.is_empty() {
            all()
        } else {
            named.to_vec()
        };
        let options = |answer: &Answer<'_>| match answer {
            Answer::Shares(_) if named.is_empty() => {
                labels_of(answer).into_iter().map(str::to_owned).collect()
            }
            _ => all.clone(),
        };
        self.items
            .iter()
            .map(|item| options(&item.answer))
            .collect()
    }

    /// Returns the largest difference between these shares of an item's options and its answer.
    fn largest_error(&self, item: usize, options: &[String], shares: &[f64]) -> f64 {
        let right = |option: &str| match &self.items[item].answer {
            Answer::Label(label) => f64::from(u8::from(label == option)),
            Answer::Shares(shares) => {
                let found = shares.iter().find(|(label, _)| label == option);
                found.map_or(0.0, |(_, share)| *share)
            }
            _ => f64::NAN,
        };
        let errors = options.iter().zip(shares);
        let errors = errors.map(|(option, share)| (share - right(option)).abs());
        errors.fold(0.0, f64::max)
    }
}

fn labels_of<'a>(answer: &'a Answer<'_>) -> Vec<&'a str> {
    match answer {
        Answer::Label(label) => vec![label],
        Answer::Shares(shares) => shares.iter().map(|(label, _)| label.as_ref()).collect(),
        _ => Vec::new(),
    }
}
