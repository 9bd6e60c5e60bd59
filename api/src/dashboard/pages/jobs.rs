//! Jobs: the list, one job, and its actions.

use askama::Template;
use assay_core::model::job::{EvalResult, FailureCode, Job, JobResult, JobStatus};
use assay_core::model::permissions::JobReader;
use assay_core::model::slices::FieldSlices;
use assay_core::model::suite::{BoardMode, Suite};
use assay_core::{Code, Result};
use axum::Json;
use axum::extract::{Path, State};
use axum::response::IntoResponse as _;
use serde::Serialize;

use crate::app::App;
use crate::dashboard::charts::{interval, spark};
use crate::dashboard::csv;
use crate::dashboard::filters;
use crate::dashboard::form::Form;
use crate::dashboard::response::{PageResult, download, page, redirect_with_notice};
use crate::dashboard::score::{Score, eval_result};
use crate::dashboard::section::Section;
use crate::dashboard::visitor::{Layout, Query, Visitor};
use crate::dashboard::waterfall::Waterfall;
use crate::generated::inputs;
use crate::ops::{jobs, receipts, suites};

/// Jobs on a page.
const JOBS: i64 = 50;

/// Jobs in an exported table.
const EXPORTED: i64 = 200;

/// Longest time that a request waits for a job's change, in seconds.
const WAIT: i64 = 25;

#[derive(Template)]
#[template(path = "pages/jobs.html")]
struct JobsPage {
    layout: Layout,
    filter: Form,
    suites: Vec<String>,
    jobs: Vec<Job>,
    /// The next page's query.
    next: Option<String>,
}

impl JobsPage {
    /// Returns `true` if a job on the page can still change.
    fn is_active(&self) -> bool {
        self.jobs.iter().any(|job| !job.status.is_final())
    }

    /// Returns `true` if the user has restricted the list.
    fn is_filtered(&self) -> bool {
        ["suite_id", "status", "label", "type", "before"]
            .iter()
            .any(|name| !self.filter.get(name).is_empty())
    }

    /// Returns the filter's query, for the exported table.
    fn query(&self) -> String {
        query_of(&self.filter, None)
    }
}

/// A field's slices, each with a chart for its value and interval.
struct ShownSlices {
    slices: FieldSlices,
    /// In the order of the slices.
    charts: Vec<String>,
}

impl ShownSlices {
    fn all(fields: &[FieldSlices]) -> Vec<Self> {
        fields.iter().map(Self::new).collect()
    }

    fn new(slices: &FieldSlices) -> Self {
        let scores = slices.groups.iter().map(|slice| Score {
            value: slice.value,
            stderr: slice.stderr,
            ci95: slice.ci95,
        });
        let range = spark::range(scores.clone()).unwrap_or_default();
        Self {
            charts: scores.map(|score| spark::draw(&score, range)).collect(),
            slices: slices.clone(),
        }
    }
}

#[derive(Template)]
#[template(path = "pages/job.html")]
struct JobPage {
    layout: Layout,
    job: Job,
    waterfall: Option<Waterfall>,
    /// The value's chart with its interval.
    interval: Option<String>,
    /// The open items' figures by slice.
    slices: Vec<ShownSlices>,
    /// The sealed items' figures by slice.
    sealed_slices: Vec<ShownSlices>,
    /// The suite's other jobs, to compare with.
    others: Vec<Job>,
    /// The suite's cluster field, if the score is on its current version.
    cluster: Option<String>,
    /// `true` if the job has a score on a suite's current version with a board.
    has_board: bool,
    /// `true` if the job has a signed receipt.
    has_receipt: bool,
}

impl JobPage {
    /// Returns what the user can do about a failed job.
    fn remedy(&self) -> &'static str {
        match self.job.error.as_ref().map(|error| error.code) {
            Some(FailureCode::InvalidPredictions) => {
                "Correct the predictions that the message names, and submit again."
            }
            Some(FailureCode::InputUnavailable) => {
                "The predictions no longer exist. Upload them again, and submit."
            }
            Some(FailureCode::SuiteRemoved) => {
                "The charge was refunded. Ask the operator why, or submit to another suite."
            }
            Some(FailureCode::Timeout) => {
                "The job took too long, and its charge was refunded. Submit fewer predictions, or submit again."
            }
            Some(FailureCode::Internal) => {
                "The failure is ours, and the charge was refunded. Submit again; if it fails again, report the id of the request."
            }
            None => "",
        }
    }

    /// Returns the result, if the job is an eval that has succeeded.
    fn eval(&self) -> Option<&EvalResult> {
        eval_result(&self.job)
    }
}

#[derive(Template)]
#[template(path = "pages/cancel_job.html")]
struct CancelPage {
    layout: Layout,
    job: Job,
}

/// Returns the filter of a list of jobs.
fn filter_of(query: &Form, limit: i64) -> inputs::ListJobs {
    let given = |name| query.given(name).map(str::to_owned);
    inputs::ListJobs {
        r#type: given("type"),
        status: given("status"),
        suite_id: given("suite_id"),
        label: given("label"),
        limit: Some(limit),
        before: given("before"),
    }
}

fn query_of(filter: &Form, before: Option<&str>) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    for name in ["suite_id", "status", "label", "type"] {
        if let Some(value) = filter.given(name) {
            query.append_pair(name, value);
        }
    }
    if let Some(before) = before.or_else(|| filter.given("before")) {
        query.append_pair("before", before);
    }
    query.finish()
}

/// Shows a job page.
pub async fn list(State(app): State<App>, visitor: Visitor, Query(filter): Query) -> PageResult {
    let reader: JobReader = visitor.proof()?;
    let found = jobs::list(&app, &reader, filter_of(&filter, JOBS), visitor.room()).await?;
    let suites = suites::first_page(&app, &visitor.proof()?, visitor.room()).await?;
    let next = found
        .next_before
        .map(|before| query_of(&filter, Some(&before.to_string())));
    page(&JobsPage {
        layout: visitor.layout(&app, "Jobs", Section::Jobs).await?,
        filter,
        suites: suites
            .into_iter()
            .map(|suite| suite.suite_id.to_string())
            .collect(),
        jobs: found.jobs,
        next,
    })
}

/// An exported table row.
#[derive(Serialize)]
struct Row<'a> {
    id: &'a str,
    label: String,
    r#type: &'static str,
    status: &'static str,
    suite_id: String,
    suite_version: &'a str,
    created_at: String,
    finished_at: String,
    value: Option<f64>,
    ci95_low: Option<f64>,
    ci95_high: Option<f64>,
}

/// Returns the filter's newest jobs as CSV.
pub async fn export(State(app): State<App>, visitor: Visitor, Query(filter): Query) -> PageResult {
    let reader: JobReader = visitor.proof()?;
    let found = jobs::list(&app, &reader, filter_of(&filter, EXPORTED), visitor.room()).await?;
    let rows = found.jobs.iter().map(|job| {
        let score = Score::of(job);
        let ci95 = score.and_then(|score| score.ci95);
        let suite_id = job.versions.suite_id.as_ref();
        Row {
            id: job.id.as_str(),
            label: csv::harmless(job.label.as_deref().unwrap_or_default()),
            r#type: job.r#type.as_str(),
            status: job.status.as_str(),
            suite_id: suite_id.map(ToString::to_string).unwrap_or_default(),
            suite_version: job.versions.suite_version.as_deref().unwrap_or_default(),
            created_at: job.created_at.to_string(),
            finished_at: job.finished_at.map(|at| at.to_string()).unwrap_or_default(),
            value: score.map(|score| score.value),
            ci95_low: ci95.map(|[low, _]| low),
            ci95_high: ci95.map(|[_, high]| high),
        }
    });
    csv::response("jobs.csv", rows)
}

/// Shows a job. With `wait`, the response comes when the job has changed, or after `WAIT` seconds.
pub async fn show(
    State(app): State<App>,
    visitor: Visitor,
    Path(job_id): Path<String>,
    Query(query): Query,
) -> PageResult {
    let reader: JobReader = visitor.proof()?;
    let wait = query.given("wait").map(|_| WAIT);
    let job = jobs::get(&app, &reader, &job_id, inputs::GetJob { wait }).await?;
    let waterfall = match job.status {
        JobStatus::Succeeded | JobStatus::Failed => trace(&app, &reader, &job_id).await?,
        _ => None,
    };
    let interval = Score::of(&job).and_then(|score| {
        let title = format!("{} with its 95 % interval", eval_result(&job)?.metric);
        Some(interval::draw(
            "interval",
            &title,
            score.value,
            score.ci95?,
            false,
        ))
    });
    let result = eval_result(&job);
    let slices = ShownSlices::all(result.map_or(&[], |result| &result.slices));
    let sealed = result.and_then(|result| result.sealed.as_ref());
    let sealed_slices = ShownSlices::all(sealed.map_or(&[], |sealed| &sealed.slices));
    let others = comparable(&app, &visitor, &job).await?;
    let suite = current_suite(&app, &visitor, &job).await?;
    let has_board = suite
        .as_ref()
        .is_some_and(|suite| suite.board != BoardMode::Off);
    let has_receipt =
        job.status == JobStatus::Succeeded && receipts::has_receipt(&app, &reader, &job.id).await?;
    let title = job.name().to_owned();
    page(&JobPage {
        layout: visitor.layout(&app, title, Section::Jobs).await?,
        job,
        waterfall,
        interval,
        slices,
        sealed_slices,
        others,
        cluster: suite.and_then(|suite| suite.cluster),
        has_board,
        has_receipt,
    })
}

/// Returns the chart for a job's spans, or `None` if its trace has expired.
async fn trace(app: &App, reader: &JobReader, job_id: &str) -> Result<Option<Waterfall>> {
    match jobs::trace(app, reader, job_id).await {
        Ok(document) => Ok(Waterfall::of(&document)),
        Err(error) if error.code == Code::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the suite if the job has a score on its current version.
async fn current_suite(app: &App, visitor: &Visitor, job: &Job) -> Result<Option<Suite>> {
    let (Some(suite_id), Some(_)) = (&job.versions.suite_id, Score::of(job)) else {
        return Ok(None);
    };
    let suite = suites::get(app, &visitor.proof()?, suite_id.as_str()).await?;
    let is_current = job.versions.suite_version.as_deref() == Some(suite.version.as_str());
    Ok(Some(suite).filter(|_| is_current))
}

/// Returns the same suite's other scored jobs.
async fn comparable(app: &App, visitor: &Visitor, job: &Job) -> Result<Vec<Job>> {
    let Some(suite_id) = job
        .versions
        .suite_id
        .as_ref()
        .filter(|_| Score::of(job).is_some())
    else {
        return Ok(Vec::new());
    };
    let filter = inputs::ListJobs::newest_scores(suite_id, 20);
    let reader = visitor.proof()?;
    let mut others = jobs::list(app, &reader, filter, visitor.room()).await?.jobs;
    others.retain(|other| other.id != job.id);
    Ok(others)
}

/// Returns a job as the API does.
pub async fn json(
    State(app): State<App>,
    visitor: Visitor,
    Path(job_id): Path<String>,
) -> PageResult {
    let reader: JobReader = visitor.proof()?;
    let job = jobs::get(&app, &reader, &job_id, inputs::GetJob::default()).await?;
    Ok(download(
        &format!("{job_id}.json"),
        Json(job).into_response(),
    ))
}

/// Returns the trace of a job.
pub async fn trace_json(
    State(app): State<App>,
    visitor: Visitor,
    Path(job_id): Path<String>,
) -> PageResult {
    let reader: JobReader = visitor.proof()?;
    let trace = jobs::trace(&app, &reader, &job_id).await?;
    let response = Json(trace).into_response();
    Ok(download(&format!("{job_id}-trace.json"), response))
}

/// Returns a job's receipt.
pub async fn receipt_json(
    State(app): State<App>,
    visitor: Visitor,
    Path(job_id): Path<String>,
) -> PageResult {
    let reader: JobReader = visitor.proof()?;
    let receipt =
        receipts::for_job(&app, &reader, &job_id, inputs::GetJobReceipt::default()).await?;
    let response = Json(receipt).into_response();
    Ok(download(&format!("{job_id}-receipt.json"), response))
}

/// Shows what cancelling a job changes.
pub async fn confirm_cancellation(
    State(app): State<App>,
    visitor: Visitor,
    Path(job_id): Path<String>,
) -> PageResult {
    let reader: JobReader = visitor.proof()?;
    let job = jobs::get(&app, &reader, &job_id, inputs::GetJob::default()).await?;
    let layout = visitor.layout(&app, "Cancel a job", Section::Jobs).await?;
    page(&CancelPage { layout, job })
}

/// Cancels a job.
pub async fn cancel(
    State(app): State<App>,
    visitor: Visitor,
    Path(job_id): Path<String>,
) -> PageResult {
    let path = format!("/jobs/{job_id}");
    match jobs::cancel(&app, &visitor.proof()?, &job_id).await {
        Ok(_) => Ok(redirect_with_notice(&path, "The job was cancelled.")),
        // It has finished meanwhile. Its page shows how.
        Err(error) if error.code == Code::InvalidState => {
            Ok(redirect_with_notice(&path, "The job had finished before."))
        }
        Err(error) => Err(error.into()),
    }
}
