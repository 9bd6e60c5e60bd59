//! `POST /v1/comparisons`

use std::ops::Range;

use assay_core::model::comparison::Comparison;
use assay_core::model::job::{ITEM_SCORES_DAYS, JobStatus};
use assay_core::model::permissions::Caller;
use assay_core::model::suite::Allowance;
use assay_core::store::allowance::{self, Decision, Use};
use assay_core::store::job::Compared;
use assay_core::{Code, Error, JobId, Resource, Result, store};
use assay_eval::{DisclosurePolicy, FieldError, Metric};
use tokio::task::block_in_place;

use super::stored_item_scores::StoredItemScores;
use crate::app::App;
use assay_eval::compare::{self, Aggregate, Contribution, Pairs, StoredItems};

/// Of how many items what two jobs keep is in memory at once: at most some 20 MB.
const ITEMS: u64 = 1 << 19;

/// A succeeded job, with what only such a one has.
struct Scored {
    job: Compared,
    value: f64,
    scores_key: String,
}

/// How two of the organization's jobs differ. Nothing is stored: asked again, it is the same.
pub async fn create(app: &App, caller: &Caller, job_a: &str, job_b: &str) -> Result<Comparison> {
    let fields = [("job_a", job_a), ("job_b", job_b)];
    let missing: Vec<_> = fields
        .iter()
        .filter(|(_, id)| id.is_empty())
        .map(|(field, _)| FieldError::required(*field))
        .collect();
    if !missing.is_empty() {
        return Err(Error::fields(missing));
    }
    let nothing = |field: &str| Error::missing(Resource::Job, format!("No such job: {field}."));
    let id = |(field, id): (&str, &str)| id.parse::<JobId>().map_err(|_| nothing(field));
    let (id_a, id_b) = (id(fields[0])?, id(fields[1])?);
    let found = store::job::compared(&app.db, caller.org_id(), [&id_a, &id_b]).await?;
    let of = |field: &str, id: &JobId| {
        found
            .iter()
            .find(|job| job.job_id == *id)
            .cloned()
            .ok_or_else(|| nothing(field))
    };
    let (a, b) = (of("job_a", &id_a)?, of("job_b", &id_b)?);
    let (a, b) = (scored("job_a", a)?, scored("job_b", b)?);
    let (of_a, of_b) = (&a.job, &b.job);
    if (&of_a.suite_id, &of_a.suite_version) != (&of_b.suite_id, &of_b.suite_version) {
        let told = format!(
            "The jobs are not on the same items: job_a is on {} in version {}, job_b on {} in version {}.",
            of_a.suite_id, of_a.suite_version, of_b.suite_id, of_b.suite_version
        );
        return Err(Error::invalid_state(Resource::Job, told));
    }
    compare(app, caller, a, b).await
}

/// Counts a comparison on a suite that bounds submissions as one of them. The same two jobs are counted once, however often they
/// are compared.
async fn use_allowance(app: &App, caller: &Caller, a: &Compared, b: &Compared) -> Result<()> {
    let Compared {
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
    let mut transaction = app.db.begin().await?;
    if allowance::has_compared(&mut transaction, org_id, first, second).await? {
        return Ok(());
    }
    // A caller who may only read must not use up what others may submit.
    caller.submitter()?;
    let at = store::now(&mut *transaction).await?;
    let (max_submissions, max_submissions_per_day) = (*max_submissions, *max_submissions_per_day);
    let allowance = Allowance {
        suite_id,
        suite_version,
        max_submissions,
        max_submissions_per_day,
    };
    let decision = allowance::permit(&mut transaction, org_id, &allowance, at).await?;
    // Another request may have compared the same two while this transaction waited for the allowance.
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

fn scored(field: &str, mut job: Compared) -> Result<Scored> {
    if !DisclosurePolicy::published(&job.release)?.allows_comparisons() {
        let told = "The suite discloses scores by a ladder; its jobs cannot be compared.";
        return Err(Error::new(Code::Forbidden, told));
    }
    let refused = |why: String| {
        Err(Error::invalid_state(
            Resource::Job,
            format!("{field} cannot be compared: {why}"),
        ))
    };
    match (job.value, job.scores_key.take()) {
        (Some(value), Some(scores_key)) => Ok(Scored {
            job,
            value,
            scores_key,
        }),
        _ if job.status == JobStatus::Succeeded => refused(format!(
            "nothing is stored of its items. That is stored for {ITEM_SCORES_DAYS} days, and of jobs that predict at least one item in \
             1,000; submit it again."
        )),
        _ => refused(format!(
            "it is {}; only a succeeded job has scores.",
            job.status
        )),
    }
}

async fn compare(app: &App, caller: &Caller, a: Scored, b: Scored) -> Result<Comparison> {
    let _turn = app.comparisons.acquire(caller.org_id().as_str()).await?;
    let n_items = u64::from(a.job.n_items.unsigned_abs());
    let (items_a, items_b) = tokio::try_join!(
        StoredItemScores::open(app, &a.scores_key, n_items),
        StoredItemScores::open(app, &b.scores_key, n_items)
    )?;
    use_allowance(app, caller, &a.job, &b.job).await?;
    let Compared {
        job_id,
        suite_id,
        suite_version,
        metric: name,
        release,
        is_sure,
        ..
    } = a.job;
    let metric = Metric::published(&name)?;
    let policy = DisclosurePolicy::published(&release)?;
    let (parts_a, parts_b) = tokio::try_join!(
        parts(metric, &items_a, n_items),
        parts(metric, &items_b, n_items)
    )?;
    let mut pairs = Pairs::new(metric);
    for items in pieces(n_items) {
        let (one, other) = tokio::try_join!(items_a.read(items.clone()), items_b.read(items))?;
        block_in_place(|| pairs.add((&one, &parts_a), (&other, &parts_b)));
    }
    let (difference, point) = (a.value - b.value, compare::point(metric, a.value, b.value));
    let found = block_in_place(|| pairs.finish(difference, point, is_sure && b.job.is_sure));
    let disclosed = policy.disclose_difference(difference, found);
    let (difference, found) = disclosed.ok_or_else(|| {
        Error::internal("a comparison that the suite's policy refuses was computed")
    })?;
    let count = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
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
    })
}

fn pieces(n_items: u64) -> impl Iterator<Item = Range<u64>> {
    (0..n_items.div_ceil(ITEMS)).map(move |piece| piece * ITEMS..n_items.min((piece + 1) * ITEMS))
}

/// How much each item is of the figure; most metrics need nothing of the items for that.
async fn parts(metric: Metric, items: &StoredItemScores<'_>, n_items: u64) -> Result<Contribution> {
    let mut figure = Aggregate::new(metric);
    if Aggregate::is_needed(metric) {
        for range in pieces(n_items) {
            let kept: StoredItems = items.read(range).await?;
            block_in_place(|| figure.add(&kept));
        }
    }
    Ok(figure.parts())
}
