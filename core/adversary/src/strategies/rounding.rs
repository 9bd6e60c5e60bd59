//! The tightest bounds on the correct-guess count from all rounded figures in a result. Each
//! figure changes its last decimal at different numbers.

use assay_eval::stats::confidence::wilson;
use assay_eval::{DisclosurePolicy, Metric};

use crate::platform::Disclosed;
use crate::suite::Public;

/// Returns the last decimal's unit in a policy's figures, if it rounds.
pub fn unit(policy: DisclosurePolicy) -> Option<f64> {
    let DisclosurePolicy::Rounded(decimals) = policy else {
        return None;
    };
    Some(0.1_f64.powi(i32::from(decimals.get())))
}

/// Returns the figures that are a mean over items, each with the scores for a correct and a wrong
/// guess, for a suite with two candidates and [`super::predict`]'s predictions.
fn means(public: &Public) -> Vec<(String, f64, f64)> {
    let second = |name: &str, k: usize, score: f64| {
        (format!("{name}@{k}"), 1.0, if k > 1 { score } else { 0.0 })
    };
    match public.metric {
        Metric::Accuracy
        | Metric::HitRate(_)
        | Metric::Recall(_)
        | Metric::Precision(_)
        | Metric::Ndcg(_)
        | Metric::Mrr(_)
        | Metric::Map(_) => {
            let k = public.metric.cut().get();
            vec![
                ("accuracy".to_owned(), 1.0, 0.0),
                second("ndcg", k, 1.0 / 3.0_f64.log2()),
                second("mrr", k, 0.5),
            ]
        }
        Metric::ExactMatch
        | Metric::F1Macro
        | Metric::F1Micro
        | Metric::BalancedAccuracy
        | Metric::Mcc
        | Metric::Kappa
        | Metric::KappaQuadratic => {
            vec![
                ("accuracy".to_owned(), 1.0, 0.0),
                ("exact_match".to_owned(), 1.0, 0.0),
            ]
        }
        // A guess is a set of one id.
        Metric::Jaccard | Metric::F1Set => vec![("accuracy".to_owned(), 1.0, 0.0)],
        _ => Vec::new(),
    }
}

/// Returns the smallest and the largest correct-guess count with these figures, or `None` if
/// no figure is a mean over items.
pub fn right_guesses(public: &Public, disclosed: &Disclosed) -> Option<(f64, f64)> {
    let unit = unit(public.policy)?;
    let n = public.n_open as f64;
    let means = means(public);
    if means.is_empty() || public.candidates.len() != 2 || !public.is_complete {
        return None;
    }
    let is = |figure: f64, shown: f64| (figure - shown).abs() <= unit * 0.500_001;
    let fits = |count: usize| {
        let share = count as f64 / n;
        let fits_means = means.iter().all(|(name, right, wrong)| {
            disclosed
                .figure(public, name)
                .is_none_or(|shown| is(share * right + (1.0 - share) * wrong, shown))
        });
        let fits_estimate = match (public.metric, disclosed.figures.estimate) {
            (Metric::Accuracy | Metric::ExactMatch, Some(shown)) => wilson(share, public.n_open)
                .is_none_or(|of_share| {
                    let [low, high] = of_share.ci95;
                    is(low, shown.ci95[0])
                        && is(high, shown.ci95[1])
                        && is(of_share.stderr, shown.stderr)
                }),
            _ => true,
        };
        fits_means && fits_estimate
    };
    let low = (0..=public.n_open).find(|count| fits(*count))?;
    let high = (low..=public.n_open)
        .take_while(|count| fits(*count))
        .last()?;
    Some((low as f64, high as f64))
}
