//! The score that the predictions and the opened answers give.

use std::io::BufRead;
use std::path::Path;

use assay_eval::clusters::Average;
use assay_eval::score::{AnswerTable, Builder, Figures as Score};
use assay_eval::suite::{AnswerLines, ClusterKey, SealSeed, read_clusters};
use assay_eval::{Clip, DisclosurePolicy, Ladder, Metric, QuantileLevels, offline};

use super::opening::VerifiedSuite;
use super::predictions::OpenPredictions;
use super::steps::Passed;
use crate::statement::{EvalResult, Figures, SuitePublication, ValueScope};

/// Scores the predictions again.
pub(super) fn check_score<R: BufRead>(
    claim: &EvalResult,
    suite: &VerifiedSuite,
    folder: &Path,
    open: OpenPredictions<'_, R>,
) -> Result<Passed, String> {
    let SuitePublication {
        clip,
        release,
        quantiles,
        ..
    } = &suite.publication;
    let metric: Metric = suite.publication.metric.parse()?;
    let policy: DisclosurePolicy = release.parse()?;
    let clip = match clip {
        Some([low, high]) => Some(Clip::new(*low, *high).ok_or("clip is not a range")?),
        None => None,
    };
    let cluster = suite.publication.cluster.as_deref();
    let average = match suite.publication.average.as_deref() {
        Some(average) => average.parse()?,
        None => Average::Item,
    };
    let levels = (!quantiles.is_empty()).then(|| QuantileLevels::new(quantiles));
    let rules = Rules {
        metric,
        clip,
        average,
        labels: &suite.publication.labels,
        levels: levels.transpose()?,
    };
    let tables = Tables::read(folder, &rules, cluster, policy, suite.seed)?;
    let (content, format) = open()?;
    let sealed = tables.sealed.as_ref();
    let score = offline::score_all(&tables.open, sealed, metric, content, format)?;
    let n_submitted = score.n_submitted;
    let (n, n_missing, exact) = match (claim.figures, score.sealed) {
        (Figures::Sealed, Some(sealed)) => (sealed.n, sealed.n_missing, sealed.figures),
        (Figures::Sealed, None) => return Err("the suite has no sealed items".into()),
        (Figures::All | Figures::Open | Figures::Board, _) => {
            (score.n, score.n_missing, score.figures)
        }
    };
    if (claim.n, claim.n_missing, claim.n_submitted) != (n, n_missing, n_submitted) {
        return Err(format!(
            "n, n_missing and n_submitted are {n}, {n_missing} and {n_submitted}"
        ));
    }
    match policy {
        DisclosurePolicy::Ladder(step) => {
            let ladder = Ladder::for_suite(step, metric, clip, &tables.open)
                .ok_or("the ladder has no levels")?;
            let own = ladder.value(ladder.climb(0, exact.value));
            let is_own_alone =
                claim.value_scope == ValueScope::ThisSubmission || claim.submission_number == 1;
            let is_level = (0..=ladder.levels).any(|level| ladder.value(level) == claim.value);
            let is_worse = (claim.value - own) * ladder.step < 0.0;
            if is_own_alone && claim.value == own {
                Ok(Passed::Ok)
            } else if is_own_alone || is_worse {
                Err(format!("the value is {own} on the grid"))
            } else if !is_level {
                Err(format!("{} is no level of the grid", claim.value))
            } else {
                Ok(Passed::Skipped(format!(
                    "the value is the best of {} submissions, whose predictions are not given; that of these is {own} on the \
                     grid",
                    claim.submission_number
                )))
            }
        }
        DisclosurePolicy::Exact | DisclosurePolicy::Rounded(_) | DisclosurePolicy::Sealed(_) => {
            let disclosed = policy
                .disclose(exact, None)
                .map_err(|corrupt| corrupt.to_string())?;
            compare_figures(claim, &disclosed)
        }
    }
}

fn compare_figures(claim: &EvalResult, disclosed: &Score) -> Result<Passed, String> {
    let estimate = disclosed.estimate;
    let ci95 = estimate.map(|estimate| estimate.ci95);
    let ci_method = estimate.map(|estimate| estimate.method);
    let n_clusters = disclosed.clusters.map(|clusters| clusters.n);
    if claim.n_clusters != n_clusters {
        return Err(format!("n_clusters is {n_clusters:?}"));
    }
    if (claim.value, claim.ci95, claim.ci_method.as_deref()) == (disclosed.value, ci95, ci_method) {
        Ok(Passed::Ok)
    } else {
        Err(format!(
            "the value is {}, its interval {ci95:?}",
            disclosed.value
        ))
    }
}

/// The rules by which a suite's answers are read and scored.
struct Rules<'s> {
    metric: Metric,
    clip: Option<Clip>,
    average: Average,
    /// The options of each answer; empty if the suite names none.
    labels: &'s [String],
    levels: Option<QuantileLevels>,
}

/// A suite's answers, open and sealed ones.
struct Tables {
    open: AnswerTable,
    sealed: Option<AnswerTable>,
}

impl Tables {
    /// Reads the answers of a folder. The seed draws the sealed ones.
    fn read(
        folder: &Path,
        rules: &Rules<'_>,
        cluster: Option<&str>,
        policy: DisclosurePolicy,
        seed: Option<SealSeed>,
    ) -> Result<Self, String> {
        let Rules {
            metric,
            clip,
            average,
            labels: options,
            ref levels,
        } = *rules;
        let key: Option<ClusterKey> = cluster.map(str::parse).transpose()?;
        let field = key.as_ref().and_then(ClusterKey::field);
        let clusters = field
            .map(|field| read_clusters(folder, field))
            .transpose()
            .map_err(|bad| bad.to_string())?;
        let lines = || {
            AnswerLines::open(&folder.join("answers.ndjson"), metric)
                .map(|lines| lines.labels(options))
                .map_err(|bad| bad.to_string())
        };
        let mut ids = Vec::new();
        lines()?
            .for_each(|item_id, _, _| {
                ids.push(item_id.to_owned());
                Ok(())
            })
            .map_err(|bad| bad.to_string())?;
        let labels = match &clusters {
            Some(clusters) => ids.iter().map(|id| clusters.of(id)).collect(),
            None => Ok(Vec::new()),
        };
        let labels: Vec<u32> = labels?;
        let mut is_sealed = vec![false; ids.len()];
        match (policy, seed) {
            (DisclosurePolicy::Sealed(fraction), Some(seed)) => {
                let n_sealed = fraction.of(ids.len());
                match &clusters {
                    Some(clusters) => {
                        is_sealed = seed.draw_clusters(clusters.values(), &labels, n_sealed);
                    }
                    None => {
                        for at in seed.draw(ids.iter().map(String::as_str), n_sealed) {
                            is_sealed[at] = true;
                        }
                    }
                }
            }
            (DisclosurePolicy::Sealed(_), None) => {
                return Err("the opening has no seed, which draws the sealed items".into());
            }
            _ => {}
        }
        let n_sealed = is_sealed.iter().filter(|is_sealed| **is_sealed).count();
        let builder = |n| {
            Builder::new(metric, n)
                .options(options)
                .clip(clip)
                .average(average)
                .quantiles(levels.clone())
        };
        let mut open = builder(ids.len() - n_sealed);
        let mut sealed = builder(n_sealed);
        let mut places = is_sealed.iter().enumerate();
        lines()?
            .for_each(|item_id, answer, n| {
                let (place, is_sealed) = places.next().unwrap_or((0, &false));
                let builder = if *is_sealed { &mut sealed } else { &mut open };
                builder
                    .push(item_id, answer)
                    .map_err(|corrupt| corrupt.to_string())?;
                if let Some(n) = n {
                    builder.add_people(n);
                }
                if let Some(label) = labels.get(place) {
                    builder.put_into_cluster(*label);
                }
                Ok(())
            })
            .map_err(|bad| bad.to_string())?;
        let finish = |builder: Builder| builder.finish().map_err(|corrupt| corrupt.to_string());
        Ok(Self {
            open: finish(open)?,
            sealed: (n_sealed > 0).then(|| finish(sealed)).transpose()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sealed_items_without_seed_are_an_error() {
        let folder = std::env::temp_dir().join(format!("assay-opening-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let answers: String = (0..10)
            .map(|at| format!("{{\"item_id\":\"i{at}\",\"answer\":\"x\"}}\n"))
            .collect();
        std::fs::write(folder.join("answers.ndjson"), answers).unwrap();
        let policy: DisclosurePolicy = "sealed(0.3)".parse().unwrap();
        let rules = Rules {
            metric: Metric::Accuracy,
            clip: None,
            average: Average::Item,
            labels: &[],
            levels: None,
        };
        let read = |seed| Tables::read(&folder, &rules, None, policy, seed);
        let without = read(None).err().unwrap();
        assert!(without.contains("no seed"), "{without}");
        let with = read(Some(SealSeed::from_text("s"))).unwrap();
        assert!(with.sealed.is_some());
        std::fs::remove_dir_all(folder).unwrap();
    }
}
