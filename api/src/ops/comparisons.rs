//! Comparison of two jobs, item by item: `POST /v1/comparisons`.

use std::ops::Range;

use assay_core::model::comparison::Comparison;
use assay_core::model::job::{ITEM_SCORES_DAYS, JobStatus};
use assay_core::model::permissions::{Caller, JobReader};
use assay_core::model::scope::Scope;
use assay_core::model::suite::Allowance;
use assay_core::store::allowance::{self, Decision, Use};
use assay_core::store::item_scores::{ComparedJob, ItemScoresIn};
use assay_core::{Code, Error, JobId, Resource, Result, store};
use assay_eval::{DisclosurePolicy, FieldError, Metric};
use tokio::task::block_in_place;

use super::stored_item_scores::StoredItemScores;
use crate::app::App;
use crate::generated::inputs;
use assay_eval::clusters::Average;
use assay_eval::compare::{self, Aggregate, Contribution, Pairs, StoredItems, Verdict};

/// Number of items whose scores are in memory at once, for two jobs at most about 20 MB.
const ITEMS_PER_READ: u64 = 1 << 19;

/// A succeeded job with its score and the place of its item scores.
struct ScoredJob {
    job: ComparedJob,
    value: f64,
    item_scores: ItemScoresIn,
}

/// Compares two jobs of the organization. The result depends only on the jobs and is not stored, so
/// that a repeated comparison returns the same.
pub async fn create(
    app: &App,
    caller: &JobReader,
    input: inputs::CreateComparison,
) -> Result<Comparison> {
    let fields = [("job_a", input.job_a.as_str()), ("job_b", &input.job_b)];
    let missing: Vec<_> = fields
        .iter()
        .filter(|(_, id)| id.is_empty())
        .map(|(field, _)| FieldError::required(*field))
        .collect();
    if !missing.is_empty() {
        return Err(Error::fields(missing));
    }
    let not_found =
        |field: &str| Error::not_found_with(Resource::Job, format!("No such job: {field}."));
    let id = |(field, id): (&str, &str)| id.parse::<JobId>().map_err(|_| not_found(field));
    let id_a = id(fields[0])?;
    let id_b = id(fields[1])?;
    let found =
        store::item_scores::compared(&app.db.get(), caller.org_id(), [&id_a, &id_b]).await?;
    let job = |field: &str, id: &JobId| {
        found
            .iter()
            .find(|job| job.job_id == *id)
            .cloned()
            .ok_or_else(|| not_found(field))
    };
    let a = job("job_a", &id_a)?;
    let b = job("job_b", &id_b)?;
    let a = scored("job_a", a)?;
    let b = scored("job_b", b)?;
    let job_a = &a.job;
    let job_b = &b.job;
    if (&job_a.suite_id, &job_a.suite_version) != (&job_b.suite_id, &job_b.suite_version) {
        let message = format!(
            "The jobs are on different items: job_a is on {} in version {}, job_b on {} in version \
             {}.",
            job_a.suite_id, job_a.suite_version, job_b.suite_id, job_b.suite_version
        );
        return Err(Error::invalid_state(Resource::Job, message));
    }
    compare(app, caller, a, b).await
}

/// Counts the first comparison of two jobs as a submission if the suite limits submissions.
async fn use_allowance(app: &App, caller: &Caller, a: &ComparedJob, b: &ComparedJob) -> Result<()> {
    let ComparedJob {
        suite_id,
        suite_version,
        max_submissions,
        max_submissions_per_day,
        ..
    } = a;
    if (max_submissions, max_submissions_per_day) == (&None, &None) || a.job_id == b.job_id {
        return Ok(());
    }
    let (first, second) = if a.job_id.as_str() < b.job_id.as_str() {
        (&a.job_id, &b.job_id)
    } else {
        (&b.job_id, &a.job_id)
    };
    let org_id = caller.org_id();
    let mut transaction = app.db.get().begin().await?;
    if allowance::has_compared(&mut transaction, org_id, first, second).await? {
        return Ok(());
    }
    // A caller who can only read must not use up the submissions of others.
    caller.submitter()?;
    caller.require_scope(Scope::EvalsWrite)?;
    let at = store::now(&mut *transaction).await?;
    let max_submissions = *max_submissions;
    let max_submissions_per_day = *max_submissions_per_day;
    let allowance = Allowance {
        suite_id,
        suite_version,
        max_submissions,
        max_submissions_per_day,
    };
    let decision = allowance::permit(&mut transaction, org_id, &allowance, at).await?;
    // Another request may have compared the two jobs while this transaction waited for the lock of
    // the allowance.
    if !matches!(decision, Decision::Granted(_))
        && allowance::has_compared(&mut transaction, org_id, first, second).await?
    {
        return Ok(());
    }
    match decision {
        Decision::UsedUp { max } => Err(Error::submissions_used_up(max)),
        Decision::DayUsedUp { max, resets_at } => Err(Error::day_used_up(
            suite_id,
            max,
            resets_at,
            at.seconds_until(resets_at),
        )),
        Decision::Granted(holders) => {
            allowance::record(
                &mut transaction,
                org_id,
                &holders,
                Use::Comparison(first, second),
                suite_id,
                suite_version,
                at,
            )
            .await?;
            transaction.commit().await?;
            Ok(())
        }
    }
}

/// Returns the job with its score, or the reason why it cannot be compared.
fn scored(field: &str, mut job: ComparedJob) -> Result<ScoredJob> {
    if !DisclosurePolicy::published(&job.release)?.allows_comparisons() {
        let message = "The suite discloses scores by a ladder; its jobs cannot be compared.";
        return Err(Error::new(Code::Forbidden, message));
    }
    let cannot_compare = |why: String| {
        Err(Error::invalid_state(
            Resource::Job,
            format!("{field} cannot be compared: {why}"),
        ))
    };
    let item_scores = ItemScoresIn::from_columns(job.scores_body.take(), job.scores_key.take());
    match (job.value, item_scores) {
        (Some(value), Some(item_scores)) => Ok(ScoredJob {
            job,
            value,
            item_scores,
        }),
        _ if job.status == JobStatus::Succeeded => cannot_compare(format!(
            "it has no stored item scores. They are stored for {ITEM_SCORES_DAYS} days, and only \
             for jobs that predict at least one item in 1,000. Submit the predictions again."
        )),
        _ => cannot_compare(format!(
            "it is {}; only a succeeded job has scores.",
            job.status
        )),
    }
}

/// Compares two jobs on the same items, and uses up an allowance if the suite has one.
async fn compare(app: &App, caller: &Caller, a: ScoredJob, b: ScoredJob) -> Result<Comparison> {
    let _permit = app
        .concurrency
        .comparisons
        .acquire(caller.org_id().as_str())
        .await?;
    let n_items = u64::from(a.job.n_items.unsigned_abs());
    let (items_a, items_b) = tokio::try_join!(
        StoredItemScores::open(app, &a.item_scores, n_items),
        StoredItemScores::open(app, &b.item_scores, n_items)
    )?;
    use_allowance(app, caller, &a.job, &b.job).await?;
    let ComparedJob {
        job_id,
        suite_id,
        suite_version,
        metric: name,
        release,
        has_stderr,
        is_clustered,
        average,
        ..
    } = a.job;
    let metric = Metric::published(&name)?;
    let policy = DisclosurePolicy::published(&release)?;
    let (contribution_a, contribution_b) = tokio::try_join!(
        contribution(metric, &items_a, n_items),
        contribution(metric, &items_b, n_items)
    )?;
    let average = Average::published(&average)?;
    let mut pairs = Pairs::new(metric).average(average);
    for range in ranges(n_items) {
        let clusters = async {
            if !is_clustered {
                return Ok(None);
            }
            let db = app.db.get();
            let found = store::suite::clusters(&db, &suite_id, &suite_version, range.clone());
            found.await.map(Some)
        };
        let (scores_a, scores_b, clusters) = tokio::try_join!(
            items_a.read(range.clone()),
            items_b.read(range.clone()),
            clusters
        )?;
        block_in_place(|| {
            pairs.add(
                (&scores_a, &contribution_a),
                (&scores_b, &contribution_b),
                clusters.as_deref(),
            );
        });
    }
    let difference = a.value - b.value;
    let point = compare::point(metric, a.value, b.value);
    let found = block_in_place(|| pairs.finish(difference, point, has_stderr && b.job.has_stderr));
    let disclosed = policy.disclose_difference(difference, found);
    let (difference, found) = disclosed.ok_or_else(|| {
        Error::internal("the suite's policy does not allow a comparison that was computed")
    })?;
    let count = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    let verdict = Verdict::new(metric.lower_is_better(), difference, found.p_value);
    Ok(Comparison {
        job_a: job_id,
        job_b: b.job.job_id,
        suite_id,
        suite_version,
        metric: name,
        n: count(n_items),
        value_a: a.value,
        value_b: b.value,
        difference,
        stderr: found.stderr,
        ci95: found.ci95,
        ci_method: found.ci95.map(|_| found.ci_method.to_owned()),
        p_value: found.p_value,
        p_method: found.p_method.to_owned(),
        n_differ: found.n_differ.map(count),
        point,
        n_needed: found.n_needed.map(count),
        lower_is_better: verdict.lower_is_better,
        better: verdict.better.map(Into::into),
        is_significant: verdict.is_significant,
        n_clusters: found.clusters.map(|clusters| count(clusters.n)),
        n_clusters_differ: found
            .clusters
            .and_then(|clusters| clusters.n_differ)
            .map(count),
        n_clusters_needed: found
            .clusters
            .and_then(|clusters| clusters.n_needed)
            .map(count),
    })
}

/// Splits the items into ranges of at most [`ITEMS_PER_READ`].
fn ranges(n_items: u64) -> impl Iterator<Item = Range<u64>> {
    (0..n_items.div_ceil(ITEMS_PER_READ)).map(move |index| {
        let start = index * ITEMS_PER_READ;
        start..n_items.min(start + ITEMS_PER_READ)
    })
}

/// Returns the contribution of each item to the value of a job. Most metrics need no pass over the
/// items for it.
async fn contribution(
    metric: Metric,
    items: &StoredItemScores<'_>,
    n_items: u64,
) -> Result<Contribution> {
    let mut aggregate = Aggregate::new(metric);
    if Aggregate::is_needed(metric) {
        for range in ranges(n_items) {
            let stored: StoredItems = items.read(range).await?;
            block_in_place(|| aggregate.add(&stored));
        }
    }
    Ok(aggregate.contribution())
}
