//! Comparisons, item by item: two jobs, or a job and a baseline (`POST /v1/comparisons`).

use std::ops::Range;

use assay_core::model::comparison::Comparison;
use assay_core::model::error::Errors;
use assay_core::model::job::{ITEM_SCORES_DAYS, JobStatus};
use assay_core::model::permissions::{Caller, JobReader};
use assay_core::model::scope::Scope;
use assay_core::model::suite::Allowance;
use assay_core::store::allowance::{self, Compared, Decision, Use};
use assay_core::store::baselines::{BaselinePlace, ComparedBaseline};
use assay_core::store::item_scores::{ComparedJob, ItemScoresIn};
use assay_core::{Code, Error, JobId, Resource, Result, store};
use assay_eval::{DisclosurePolicy, FieldError, Metric};
use tokio::task::block_in_place;

use super::stored_item_scores::{StoredIn, StoredItemScores};
use crate::app::App;
use crate::generated::inputs;
use assay_eval::clusters::Average;
use assay_eval::compare::{self, Aggregate, Contribution, Pairs, StoredItems, Verdict};

/// Number of items whose scores are in memory at once, for two jobs at most about 20 MB.
const ITEMS_PER_READ: u64 = 1 << 19;

/// A succeeded job with its score.
struct ScoredJob {
    job: ComparedJob,
    score: Scored,
}

/// A score, and its item scores' place.
struct Scored {
    value: f64,
    has_stderr: bool,
    item_scores: StoredIn,
}

/// The other side in a comparison.
enum Other {
    Job(JobId),
    Baseline(String),
}

/// Compares two of the organization's jobs, or a job with a baseline of its suite. The result depends only
/// on them and is not stored, so that a repeated comparison returns the same.
pub async fn create(
    app: &App,
    caller: &JobReader,
    input: inputs::CreateComparison,
) -> Result<Comparison> {
    let inputs::CreateComparison {
        job_a,
        job_b,
        baseline,
    } = input;
    let mut errors = Errors::default();
    if job_a.is_empty() {
        errors.push(FieldError::required("job_a"));
    }
    // An empty id counted as a missing one before the field was optional.
    let job_b = job_b.filter(|id| !id.is_empty());
    if job_b.is_some() == baseline.is_some() {
        errors.push(FieldError::new(
            "job_b",
            "exactly_one_of",
            "give exactly one of job_b and baseline",
        ));
    }
    errors.finish()?;
    let not_found =
        |field: &str| Error::not_found_with(Resource::Job, format!("No such job: {field}."));
    let id = |field: &str, id: &str| id.parse::<JobId>().map_err(|_| not_found(field));
    let id_a = id("job_a", &job_a)?;
    let other = match baseline {
        None => Other::Job(id("job_b", &job_b.unwrap_or_default())?),
        Some(name) => Other::Baseline(name),
    };
    let mut ids = vec![&id_a];
    if let Other::Job(id_b) = &other {
        ids.push(id_b);
    }
    let found = store::item_scores::compared(&app.db.get(), caller.org_id(), &ids).await?;
    let job = |field: &str, id: &JobId| {
        let job = found.iter().find(|job| job.job_id == *id).cloned();
        job.ok_or_else(|| not_found(field))
    };
    let a = job("job_a", &id_a)?;
    match other {
        Other::Job(id_b) => {
            let b = job("job_b", &id_b)?;
            let a = scored("job_a", a)?;
            let b = scored("job_b", b)?;
            ensure_same_items(&a.job, &b.job)?;
            compare(app, caller, a, b.score, Other::Job(id_b)).await
        }
        Other::Baseline(name) => {
            let a = scored("job_a", a)?;
            let score = baseline_score(app, &a.job, &name).await?;
            compare(app, caller, a, score, Other::Baseline(name)).await
        }
    }
}

fn ensure_same_items(job_a: &ComparedJob, job_b: &ComparedJob) -> Result<()> {
    if (&job_a.suite_id, &job_a.suite_version) == (&job_b.suite_id, &job_b.suite_version) {
        return Ok(());
    }
    let message = format!(
        "The jobs are on different items: job_a is on {} in version {}, job_b on {} in version {}.",
        job_a.suite_id, job_a.suite_version, job_b.suite_id, job_b.suite_version
    );
    Err(Error::invalid_state(Resource::Job, message))
}

/// Returns the score for a baseline in the job's suite.
async fn baseline_score(app: &App, job: &ComparedJob, name: &str) -> Result<Scored> {
    let ComparedJob {
        suite_id,
        suite_version,
        ..
    } = job;
    let db = app.db.get();
    let found = store::baselines::compared(&db, suite_id, suite_version, name).await?;
    let ComparedBaseline {
        place,
        value,
        has_stderr,
    } = found.ok_or_else(|| {
        let message = "No such baseline: baseline. GET /v1/suites lists those of each suite.";
        Error::not_found_with(Resource::Baseline, message)
    })?;
    Ok(Scored {
        value,
        has_stderr,
        item_scores: StoredIn::Baseline(BaselinePlace {
            suite_id: suite_id.clone(),
            suite_version: suite_version.clone(),
            place,
        }),
    })
}

/// Counts the first comparison of this pair as a submission if the suite limits submissions.
async fn use_allowance(app: &App, caller: &Caller, job: &ComparedJob, other: &Other) -> Result<()> {
    let ComparedJob {
        suite_id,
        suite_version,
        max_submissions,
        max_submissions_per_day,
        ..
    } = job;
    if (max_submissions, max_submissions_per_day) == (&None, &None) {
        return Ok(());
    }
    let compared = match other {
        Other::Job(job_id) if *job_id == job.job_id => return Ok(()),
        Other::Job(job_id) => Compared::jobs(&job.job_id, job_id),
        Other::Baseline(name) => Compared::with_baseline(&job.job_id, name),
    };
    let org_id = caller.org_id();
    let mut transaction = app.db.get().begin().await?;
    if allowance::has_compared(&mut transaction, org_id, &compared).await? {
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
    // Another request may have made this comparison while this transaction waited for the lock of
    // the allowance.
    if !matches!(decision, Decision::Granted(_))
        && allowance::has_compared(&mut transaction, org_id, &compared).await?
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
                Use::Comparison(&compared),
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
            score: Scored {
                value,
                has_stderr: job.has_stderr,
                item_scores: StoredIn::Job(item_scores),
            },
            job,
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

/// Compares a job with another score on the same items, and uses up an allowance if the suite has one.
async fn compare(
    app: &App,
    caller: &Caller,
    a: ScoredJob,
    b: Scored,
    other: Other,
) -> Result<Comparison> {
    let ScoredJob { job, score: a } = a;
    let _permit = app
        .concurrency
        .comparisons
        .acquire(caller.org_id().as_str())
        .await?;
    let n_items = u64::from(job.n_items.unsigned_abs());
    let (items_a, items_b) = tokio::try_join!(
        StoredItemScores::open(app, &a.item_scores, n_items),
        StoredItemScores::open(app, &b.item_scores, n_items)
    )?;
    use_allowance(app, caller, &job, &other).await?;
    let ComparedJob {
        job_id,
        suite_id,
        suite_version,
        metric: name,
        release,
        is_clustered,
        average,
        ..
    } = job;
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
    let found = block_in_place(|| pairs.finish(difference, point, a.has_stderr && b.has_stderr));
    let disclosed = policy.disclose_difference(difference, found);
    let (difference, found) = disclosed.ok_or_else(|| {
        Error::internal("the suite's policy does not allow a comparison that was computed")
    })?;
    let count = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    let verdict = Verdict::new(metric.lower_is_better(), difference, found.p_value);
    let (job_b, baseline) = match other {
        Other::Job(id_b) => (id_b.to_string(), None),
        Other::Baseline(name) => (String::new(), Some(name)),
    };
    Ok(Comparison {
        job_a: job_id,
        job_b,
        baseline,
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
