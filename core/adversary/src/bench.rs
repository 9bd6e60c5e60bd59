//! The table in `docs/threats.md`: the answer share that the best attack finds in random
//! suites, by metric, policy and caps.

use std::borrow::Cow;
use std::fmt::Write as _;

use assay_eval::{Answer, Clip, DisclosurePolicy, Metric, QuantileLevels, known_at_most};

use crate::random::Random;
use crate::suite::{Item, Suite, SuiteError};
use crate::{Caps, Outcome, attacks};

/// Each suite's item count in the table.
pub const N: usize = 500;

/// The random suite count in each cell of the published table. The table takes about 80 s on one
/// core, and half that on two.
pub const TRIALS: u64 = 4;

/// The table's metrics.
pub const METRICS: [&str; 24] = [
    "accuracy",
    "ndcg@10",
    "exact_match",
    "f1_macro",
    "rmse",
    "mae",
    "spearman",
    "pearson",
    "kendall",
    "ccc",
    "r2",
    "log_loss",
    "brier",
    "auc",
    "ece@15",
    "kl",
    "tvd",
    "jsd",
    "hellinger",
    "wasserstein",
    "rps",
    "top@1",
    "pinball",
    "wis",
];

/// The levels of suites with quantiles.
const LEVELS: [f64; 3] = [0.1, 0.5, 0.9];

/// The table's policies.
pub const POLICIES: [&str; 5] = [
    "exact",
    "rounded(2)",
    "ladder(0.05)",
    "ladder(0.1)",
    "sealed(0.5)",
];

/// The caps of the table's columns: submissions per organization, and organizations.
pub const CAPS: [(u32, u32); 6] = [(18, 1), (50, 1), (500, 1), (18, 5), (50, 5), (500, 5)];

/// One table row.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The metric.
    pub metric: Metric,
    /// The policy.
    pub policy: DisclosurePolicy,
    /// One cell for each cap in [`CAPS`].
    pub cells: Vec<Cell>,
}

/// The best strategy's outcome on average.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// The caps.
    pub caps: Caps,
    /// The best strategy.
    pub strategy: &'static str,
    /// The mean open-item share whose answer it knows.
    pub known: f64,
    /// The mean sealed-item share whose answer it knows.
    pub known_sealed: Option<f64>,
    /// Under a ladder, the proven bound: the largest share that any attack can know, if half the
    /// answers are known by chance.
    pub bound: Option<f64>,
}

/// Builds a suite with random answers: the labels `a` and `b`, or the numbers 0 and 1. Under a
/// ladder, unbounded losses are clipped, as the grid requires it.
pub fn suite(
    metric: Metric,
    policy: DisclosurePolicy,
    n: usize,
    seed: u64,
) -> Result<Suite, SuiteError> {
    let mut random = Random::new(seed);
    let is_ladder = matches!(policy, DisclosurePolicy::Ladder(_));
    let clip = match metric {
        _ if !is_ladder => None,
        Metric::Rmse | Metric::Mae => Clip::new(0.0, 1.0),
        Metric::LogLoss | Metric::Kl => Clip::new(0.0, 3.0),
        Metric::Pinball => Clip::new(0.0, 0.5),
        Metric::Wis => Clip::new(0.0, 1.0),
        _ => None,
    };
    let n_sealed = if let DisclosurePolicy::Sealed(fraction) = policy {
        fraction.of(n)
    } else {
        0
    };
    let order = random.order(n);
    let items = (0..n).map(|at| {
        let second = random.below(2) == 1;
        let answer = if metric.has_number_answers() {
            Answer::Number(f64::from(u8::from(second)))
        } else {
            Answer::Label(Cow::Borrowed(if second { "b" } else { "a" }))
        };
        Item {
            item_id: Cow::Owned(format!("item-{at:05}")),
            answer,
            is_sealed: order[at] < n_sealed,
        }
    });
    if metric.is_ordinal() {
        let options = ["a".to_owned(), "b".to_owned()];
        return Suite::with_options(metric, clip, policy, &options, items.collect());
    }
    let levels = QuantileLevels::new(&LEVELS).map_err(SuiteError::Corrupt)?;
    Suite::with_quantiles(metric, Some(levels), clip, policy, items.collect())
}

/// Attacks `trials` random suites in each cell, and returns every `step`-th table row,
/// starting with the first. Equal `trials` give equal rows. A metric without a grid has no rows for
/// ladders.
pub fn rows(trials: u64, step: usize) -> Vec<Row> {
    let of = |metric: &str| {
        let metric = metric.parse::<Metric>().ok()?;
        Some(
            POLICIES
                .iter()
                .filter_map(move |policy| Some((metric, policy.parse::<DisclosurePolicy>().ok()?))),
        )
    };
    let kinds: Vec<_> = METRICS
        .iter()
        .filter_map(|metric| of(metric))
        .flatten()
        .step_by(step)
        .collect();
    let row = |(metric, policy): &(Metric, DisclosurePolicy)| row(*metric, *policy, trials);
    let half = |first: usize| -> Vec<Option<Row>> {
        kinds.iter().skip(first).step_by(2).map(row).collect()
    };
    let [even, odd] = std::thread::scope(|scope| {
        let other = scope.spawn(|| half(1));
        let even = half(0);
        // A thread that panicked returns no rows, which a test detects.
        [even, other.join().unwrap_or_default()]
    });
    let mut even = even.into_iter();
    let mut odd = odd.into_iter();
    let alternately = (0..kinds.len()).map(|at| if at % 2 == 0 { even.next() } else { odd.next() });
    alternately.flatten().flatten().collect()
}

/// Computes one row. Returns `None` if the policy does not fit the metric.
fn row(metric: Metric, policy: DisclosurePolicy, trials: u64) -> Option<Row> {
    let suites: Vec<Suite> = (0..trials)
        .map(|trial| suite(metric, policy, N, trial).ok())
        .collect::<Option<_>>()?;
    let cell = |(submissions, organizations): &(u32, u32)| {
        let caps = Caps {
            submissions: *submissions,
            organizations: *organizations,
            comparisons_count: false,
            entries: 0,
        };
        cell(&suites, caps)
    };
    Some(Row {
        metric,
        policy,
        cells: CAPS.iter().map(cell).collect(),
    })
}

/// Computes one cell: the best strategy's outcome on average.
fn cell(suites: &[Suite], caps: Caps) -> Cell {
    let mut outcomes: Vec<Vec<Outcome>> = Vec::new();
    for (trial, suite) in suites.iter().enumerate() {
        for outcome in attacks(suite, caps, trial as u64) {
            match outcomes
                .iter_mut()
                .find(|of_strategy| of_strategy[0].strategy == outcome.strategy)
            {
                Some(of_strategy) => of_strategy.push(outcome),
                None => outcomes.push(vec![outcome]),
            }
        }
    }
    let known = |of_strategy: &Vec<Outcome>| {
        of_strategy.iter().map(|outcome| outcome.known).sum::<f64>() / suites.len().max(1) as f64
    };
    let best = outcomes
        .iter()
        .fold(None, |best: Option<&Vec<Outcome>>, next| match best {
            Some(best) if known(best) >= known(next) => Some(best),
            _ => Some(next),
        });
    let sealed: Vec<f64> = best
        .into_iter()
        .flatten()
        .filter_map(|outcome| outcome.known_sealed)
        .collect();
    let bits = suites
        .iter()
        .filter_map(|suite| suite.bits(caps))
        .reduce(f64::max);
    Cell {
        caps,
        strategy: best
            .and_then(|best| best.first())
            .map_or("none", |outcome| outcome.strategy),
        known: best.map_or(0.0, known),
        known_sealed: (!sealed.is_empty())
            .then(|| sealed.iter().sum::<f64>() / sealed.len() as f64),
        bound: bits.map(|bits| known_at_most(bits, N, 0.5)),
    }
}

/// Renders rows as a Markdown table, in percent. After the open-item share comes the sealed-item
/// share, or the proven bound in parentheses.
pub fn render(rows: &[Row]) -> String {
    let mut text = String::from("| metric | policy |");
    for (submissions, organizations) in CAPS {
        _ = write!(text, " {submissions} × {organizations} |");
    }
    text.push_str("\n|---|---|");
    text.push_str(&"---|".repeat(CAPS.len()));
    for row in rows {
        _ = write!(text, "\n| `{}` | `{}` |", row.metric, row.policy);
        for cell in &row.cells {
            _ = write!(text, " {:.0}", cell.known * 100.0);
            if let Some(sealed) = cell.known_sealed {
                _ = write!(text, ", sealed {:.0}", sealed * 100.0);
            }
            if let Some(bound) = cell.bound {
                _ = write!(text, " (≤ {:.0})", bound * 100.0);
            }
            text.push_str(" |");
        }
    }
    text.push('\n');
    text
}
