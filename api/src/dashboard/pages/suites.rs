//! Suites: their description, items, and the organization's score history.

use askama::Template;
use assay_core::JobId;
use assay_core::model::error_details::SuiteAccess;
use assay_core::model::job::Job;
use assay_core::model::suite::{Suite, SuiteStatus};
use assay_core::model::suite_items::SuiteItem;
use assay_core::model::usage::SuiteUsage;
use axum::extract::{Path, State};

use crate::app::App;
use crate::dashboard::charts::history::History;
use crate::dashboard::charts::spark;
use crate::dashboard::filters;
use crate::dashboard::response::{PageResult, page};
use crate::dashboard::score::Score;
use crate::dashboard::section::Section;
use crate::dashboard::snippets::{self, Snippets};
use crate::dashboard::visitor::{Layout, Query, Visitor};
use crate::generated::inputs;
use crate::ops::{jobs, suites, usage};

/// Items on a page.
const ITEMS: i64 = 50;

/// Jobs in a suite's history.
const HISTORY: i64 = 100;

#[derive(Template)]
#[template(path = "pages/suites.html")]
struct SuitesPage {
    layout: Layout,
    suites: Vec<ListedSuite>,
}

/// A suite with what the organization has done with it.
struct ListedSuite {
    suite: Suite,
    usage: Option<SuiteUsage>,
}

impl ListedSuite {
    /// Returns how many submissions are left today. 0 without a daily limit.
    fn left(&self) -> i64 {
        let usage = self.usage.as_ref();
        let left = |usage: &SuiteUsage| {
            usage.max_submissions_per_day.unwrap_or_default() - usage.submissions_today
        };
        usage.map_or(0, left).max(0)
    }
}

#[derive(Template)]
#[template(path = "pages/suite.html")]
struct SuitePage {
    layout: Layout,
    suite: Suite,
    usage: Option<SuiteUsage>,
    best: Option<Job>,
    /// `None` if the operator has deleted the items.
    snippets: Option<Snippets>,
}

#[derive(Template)]
#[template(path = "pages/suite_items.html")]
struct ItemsPage {
    layout: Layout,
    suite: Suite,
    items: Vec<SuiteItem>,
    n_items: i64,
    next_cursor: Option<String>,
}

#[derive(Template)]
#[template(path = "pages/suite_history.html")]
struct HistoryPage {
    layout: Layout,
    suite: Suite,
    jobs: Vec<Job>,
    history: Option<History>,
    baseline: Option<Baseline>,
    /// The range over all jobs' values and intervals.
    range: [f64; 2],
}

/// The job that the others are compared with.
struct Baseline {
    id: JobId,
    name: String,
    value: f64,
}

/// Shows all suites.
pub async fn list(State(app): State<App>, visitor: Visitor) -> PageResult {
    let suites = suites::first_page(&app, &visitor.proof()?, visitor.room()).await?;
    let mut used = usage::get(&app, &visitor.proof()?).await?.suites;
    let suites = suites.into_iter().map(|suite| {
        let at = used.iter().position(|used| used.suite_id == suite.suite_id);
        let usage = at.map(|at| used.swap_remove(at));
        ListedSuite { suite, usage }
    });
    let suites = suites.collect();
    let layout = visitor.layout(&app, "Suites", Section::Suites).await?;
    page(&SuitesPage { layout, suites })
}

/// Shows a suite.
pub async fn show(
    State(app): State<App>,
    visitor: Visitor,
    Path(suite_id): Path<String>,
) -> PageResult {
    let reader = visitor.proof()?;
    let suite = suites::get(&app, &reader, &suite_id).await?;
    let used = usage::get(&app, &visitor.proof()?).await?;
    let usage = used.for_suite(&suite.suite_id).cloned();
    let jobs = scored_jobs(&app, &visitor, &suite).await?;
    let best = History::best(&suite, &jobs).cloned();
    let snippets = match suite.status {
        SuiteStatus::Removed => None,
        _ => Some(snippets::submit(&app, &reader, &suite, visitor.room()).await?),
    };
    let layout = visitor
        .layout(&app, suite_id.as_str(), Section::Suites)
        .await?;
    page(&SuitePage {
        layout,
        suite,
        usage,
        best,
        snippets,
    })
}

/// Returns a suite's newest evals that have succeeded, the newest first.
async fn scored_jobs(app: &App, visitor: &Visitor, suite: &Suite) -> assay_core::Result<Vec<Job>> {
    let filter = inputs::ListJobs::newest_scores(&suite.suite_id, HISTORY);
    Ok(jobs::list(app, &visitor.proof()?, filter, visitor.room())
        .await?
        .jobs)
}

/// Shows a suite's items.
pub async fn items(
    State(app): State<App>,
    visitor: Visitor,
    Path(suite_id): Path<String>,
    Query(query): Query,
) -> PageResult {
    let reader = visitor.proof()?;
    let suite = suites::get(&app, &reader, &suite_id).await?;
    let asked = inputs::ListSuiteItems {
        cursor: query.given("cursor").map(str::to_owned),
        limit: Some(ITEMS),
    };
    let found = suites::items(&app, &reader, &suite_id, asked, visitor.room()).await?;
    let layout = visitor
        .layout(&app, format!("Items of {suite_id}"), Section::Suites)
        .await?;
    page(&ItemsPage {
        layout,
        suite,
        items: found.items,
        n_items: found.n_items,
        next_cursor: found.next_cursor.map(|cursor| cursor.to_string()),
    })
}

/// Shows the organization's scores over time.
pub async fn history(
    State(app): State<App>,
    visitor: Visitor,
    Path(suite_id): Path<String>,
    Query(query): Query,
) -> PageResult {
    let suite = suites::get(&app, &visitor.proof()?, &suite_id).await?;
    let jobs = scored_jobs(&app, &visitor, &suite).await?;
    let baseline = baseline(&app, &visitor, &suite, query.get("baseline")).await?;
    let history = History::new(&suite, &jobs, baseline.as_ref().map(|job| job.value));
    let range = spark::range(jobs.iter().filter_map(Score::of)).unwrap_or_default();
    let layout = visitor
        .layout(&app, format!("History of {suite_id}"), Section::Suites)
        .await?;
    page(&HistoryPage {
        layout,
        suite,
        jobs,
        history,
        baseline,
        range,
    })
}

/// Returns the baseline with this id. Returns `None` for an empty id, and for a job that has no score
/// on the suite.
async fn baseline(
    app: &App,
    visitor: &Visitor,
    suite: &Suite,
    job_id: &str,
) -> assay_core::Result<Option<Baseline>> {
    if job_id.is_empty() {
        return Ok(None);
    }
    let job = jobs::get(app, &visitor.proof()?, job_id, inputs::GetJob::default()).await?;
    let is_of_suite = job.versions.suite_id.as_ref() == Some(&suite.suite_id);
    Ok(Score::of(&job)
        .filter(|_| is_of_suite)
        .map(|score| Baseline {
            name: job.name().to_owned(),
            id: job.id,
            value: score.value,
        }))
}
