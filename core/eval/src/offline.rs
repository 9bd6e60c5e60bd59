//! Scoring without a platform: one's own predictions and answers, with a job's figures.

use std::collections::BTreeMap;
use std::io::BufRead;
use std::path::Path;

use serde::Serialize;

use crate::content::ContentFormat;
use crate::metric::Metric;
use crate::score::{
    AnswerTable, Builder, Ceiling, Progress, Score, Scorer, ShareOfCeiling, Skill, SkillGroups,
    SlicedField, noise_floor, noise_floor_scores, score_skill_baseline,
};
use crate::score_content::{message, read_into};
use crate::suite::{
    AnswerLines, BadSuite, ClusterLabels, FolderCatalog, FolderGroups, FolderRules, GroupField,
    SliceLabels,
};
use crate::suite::{catalog, retest};

/// A score's figures, as in the result of a job whose suite discloses exact figures.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The metric of `value`.
    pub metric: String,
    /// The metric over all items. An item without a prediction counts as the worst possible one.
    pub value: f64,
    /// The value's standard error, if there are enough items to estimate it.
    pub stderr: Option<f64>,
    /// The value's 95 % confidence interval.
    pub ci95: Option<[f64; 2]>,
    /// The interval's method.
    pub ci_method: Option<&'static str>,
    /// The other figures of the metric's family, by name. Those of the catalog too, if there is one.
    pub metrics: BTreeMap<String, f64>,
    /// Items with an answer.
    pub n: i64,
    /// Prediction count.
    pub n_submitted: i64,
    /// Predictions for items without an answer.
    pub n_unmatched: i64,
    /// Items without a prediction.
    pub n_missing: i64,
    /// The number of clusters, if items are in clusters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub n_clusters: Option<i64>,
    /// The squared ratio of the standard error to that of independent items.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub design_effect: Option<f64>,
    /// The figures of the slices, by field.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub slices: Vec<SlicedField>,
    /// The value that a second set of human answers reaches, if there is a retest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ceiling: Option<Ceiling>,
    /// The share of the ceiling that the value reaches. Absent also if the ceiling is not better than the
    /// best trivial submission.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share_of_ceiling: Option<ShareOfCeiling>,
    /// The share of the way from a baseline to the best value, if the suite has a skill.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skill: Option<Skill>,
}

impl Report {
    /// Creates a score's report.
    pub fn new(metric: Metric, score: Score) -> Self {
        let estimate = score.figures.estimate;
        let clusters = score.figures.clusters;
        let mut metrics = score.figures.metrics;
        metrics.extend(score.figures.public_metrics);
        Self {
            metric: metric.to_string(),
            value: score.figures.value,
            stderr: estimate.map(|estimate| estimate.stderr),
            ci95: estimate.map(|estimate| estimate.ci95),
            ci_method: estimate.map(|estimate| estimate.method),
            metrics,
            n: score.n,
            n_submitted: score.n_submitted,
            n_unmatched: score.n_unmatched,
            n_missing: score.n_missing,
            n_clusters: clusters.map(|clusters| clusters.n),
            design_effect: clusters.and_then(|clusters| clusters.design_effect),
            slices: score.figures.slices,
            ceiling: score.figures.ceiling,
            share_of_ceiling: score.figures.share_of_ceiling,
            skill: score.figures.skill,
        }
    }
}

/// Reads all answers for a suite's rules. Fails with the first invalid answer's line, or without answers.
pub fn read_answers<R: BufRead>(
    mut lines: AnswerLines<R>,
    rules: &FolderRules,
    groups: &FolderGroups,
) -> Result<AnswerTable, BadSuite> {
    let FolderGroups {
        clusters,
        average,
        slices,
        skill,
    } = groups;
    let mut skill_labels = Vec::new();
    let fields = slices.as_ref().map_or_else(Vec::new, SliceLabels::fields);
    let mut builder = Builder::new(rules.metric, lines.estimate())
        .options(lines.named_labels())
        .clip(rules.clip)
        .quantiles(rules.quantiles.clone())
        .average(*average)
        .slices(fields);
    lines.for_each(|item_id, answer, n| {
        let pushed = builder.push(item_id, answer);
        pushed.map_err(|corrupt| corrupt.to_string())?;
        if let Some(clusters) = clusters {
            builder.put_into_cluster(clusters.of(item_id)?);
        }
        if let Some(n) = n {
            builder.add_people(n);
        }
        if let Some(slices) = slices {
            builder.put_into_slices(&slices.of(item_id)?);
        }
        if let Some(within) = skill.as_ref().and_then(|skill| skill.within.as_ref()) {
            skill_labels.push(within.of(item_id)?);
        }
        Ok(())
    })?;
    let finished = builder.finish();
    let mut table = finished.map_err(|corrupt| lines.bad(corrupt.to_string()))?;
    if table.is_empty() {
        return Err(lines.bad("there are no answers".into()));
    }
    if let Some(skill) = skill {
        let groups = SkillGroups {
            field: skill.key.within.as_ref().map(GroupField::as_str),
            labels: &skill_labels,
            values: skill.within.as_ref().map_or(&[], ClusterLabels::values),
        };
        let scores = score_skill_baseline(&table, rules.metric, skill.key.baseline, groups);
        let scores = scores.map_err(|reason| lines.bad(format!("skill: {reason}")))?;
        table.set_skill(scores);
    }
    Ok(table)
}

/// Reads all answers in a file, or in a suite's folder, as [`read_answers`] does. With a folder's own
/// metric, also reads and scores its retest.
pub fn read_answers_at(path: &Path, rules: &FolderRules) -> Result<AnswerTable, BadSuite> {
    let groups = rules.groups(path)?;
    let lines = AnswerLines::open(path, rules.metric)?.labels(&rules.labels);
    let mut table = read_answers(lines, rules, &groups)?;
    read_retest(&mut table, rules, path)?;
    read_catalog(&mut table, rules, path)?;
    Ok(table)
}

/// Reads and scores the retest of a suite's folder for a table with all its answers. Without a retest, it
/// computes the noise floor if the number of people is known for each item. Does nothing if the metric is
/// not the suite's own.
pub fn read_retest(
    table: &mut AnswerTable,
    rules: &FolderRules,
    folder: &Path,
) -> Result<(), BadSuite> {
    if !rules.has_retest {
        return Ok(());
    }
    if let Some(text) = retest::read_file(&folder)? {
        let (_, scores) = retest::score_retest(&text, rules.metric, &[("", table)])?;
        scores
            .into_iter()
            .for_each(|scores| table.set_retest(scores));
    } else if let Some(floor) = noise_floor(table, rules.metric)
        && let Some(scores) = noise_floor_scores(table, rules.metric, floor)
    {
        table.set_retest(scores);
    }
    Ok(())
}

/// Reads the catalog of a suite's folder for the table with its answers, or with its open ones. Does nothing without a
/// catalog, or if the metric is neither the suite's own nor one of rankings.
pub fn read_catalog(
    table: &mut AnswerTable,
    rules: &FolderRules,
    folder: &Path,
) -> Result<(), BadSuite> {
    if rules.has_catalog
        && let Some(text) = catalog::read_file(&folder)?
    {
        let (_, catalog) = FolderCatalog::parse(&text, rules.metric)?;
        table.set_catalog(catalog);
    }
    Ok(())
}

/// Scores predictions. Fails with the first invalid prediction's place.
pub fn score(
    answers: &AnswerTable,
    metric: Metric,
    predictions: impl BufRead,
    format: ContentFormat,
) -> Result<Report, String> {
    let score = score_all(answers, None, metric, predictions, format)?;
    Ok(Report::new(metric, score))
}

/// Scores predictions for a suite with sealed items. Fails with the first invalid prediction's
/// place.
pub fn score_all(
    open: &AnswerTable,
    sealed: Option<&AnswerTable>,
    metric: Metric,
    predictions: impl BufRead,
    format: ContentFormat,
) -> Result<Score, String> {
    let progress = Progress::default();
    let mut scorer = Scorer::new(open, metric, &progress).with_sealed(sealed);
    read_into(&mut scorer, metric, predictions, format)?;
    scorer.finish().map_err(message)
}
