//! The start page of the organization: the first steps until there is a score, then what is left
//! of its limits and the last jobs.

use askama::Template;
use assay_core::model::job::{Job, JobStatus};
use assay_core::model::permissions::{Caller, Owner, Session};
use assay_core::model::usage::Usage;
use axum::extract::State;

use crate::app::App;
use crate::dashboard::filters;
use crate::dashboard::response::{PageResult, page};
use crate::dashboard::score::Score;
use crate::dashboard::section::Section;
use crate::dashboard::visitor::{Layout, Visitor};
use crate::generated::inputs;
use crate::ops::{jobs, keys, suites, terms, usage};

/// Jobs on the page.
const JOBS: i64 = 10;

#[derive(Template)]
#[template(path = "pages/home.html")]
struct HomePage {
    layout: Layout,
    /// The first steps, until there is a score.
    steps: Option<Vec<Step>>,
    usage: Usage,
    jobs: Vec<Job>,
    /// The terms' version that an owner has to accept.
    terms_to_accept: Option<String>,
}

/// An organization's first step.
struct Step {
    name: &'static str,
    is_done: bool,
    /// The page on which it is done.
    path: String,
    /// The code that does it in a program.
    code: String,
}

/// Shows the start page.
pub async fn show(State(app): State<App>, visitor: Visitor) -> PageResult {
    let org = visitor.org()?;
    let reader = visitor.proof()?;
    let jobs = jobs::list(
        &app,
        &reader,
        inputs::ListJobs::newest(JOBS),
        visitor.room(),
    )
    .await?
    .jobs;
    let usage = usage::get(&app, &visitor.proof()?).await?;
    let has_score = jobs.iter().any(|job| job.status == JobStatus::Succeeded);
    let steps = if has_score {
        None
    } else {
        first_steps(&app, &visitor, &jobs).await?
    };
    let caller: Caller = visitor.proof()?;
    let terms_to_accept = match visitor.proof::<Owner>() {
        Ok(_) => terms::get(&app, &caller).await.ok(),
        Err(_) => None,
    };
    let terms_to_accept = terms_to_accept
        .filter(|terms| terms.accepted_at.is_none())
        .map(|terms| terms.version);
    let layout = visitor.layout(&app, org.name, Section::Home).await?;
    page(&HomePage {
        layout,
        steps,
        usage,
        jobs,
        terms_to_accept,
    })
}

/// Returns the first steps, or `None` if an earlier job has a score.
async fn first_steps(
    app: &App,
    visitor: &Visitor,
    jobs: &[Job],
) -> assay_core::Result<Option<Vec<Step>>> {
    let succeeded = inputs::ListJobs {
        status: Some(JobStatus::Succeeded.to_string()),
        ..inputs::ListJobs::newest(1)
    };
    let reader = visitor.proof()?;
    if !jobs::list(app, &reader, succeeded, visitor.room())
        .await?
        .jobs
        .is_empty()
    {
        return Ok(None);
    }
    let session: Session = visitor.proof()?;
    let one = inputs::ListKeys {
        limit: Some(1),
        cursor: None,
    };
    let has_key = !keys::list(app, &session, one).await?.keys.is_empty();
    let suites = suites::first_page(app, &visitor.proof()?, visitor.room()).await?;
    let suite = suites.first();
    let suite_id = suite.map_or("suite:…", |suite| suite.suite_id.as_str());
    let suite_path = suite.map_or_else(
        || String::from("/suites"),
        |suite| format!("/suites/{}", suite.suite_id),
    );
    let url = &app.settings.public_url;
    let has_job = !jobs.is_empty();
    Ok(Some(vec![
        Step {
            name: "Create an API key",
            is_done: has_key,
            path: String::from("/keys"),
            code: String::from("export ASSAY_API_KEY=svc_live_…"),
        },
        Step {
            name: "Read a suite",
            is_done: has_job,
            path: suite_path.clone(),
            code: format!(
                "curl {url}/v1/suites/{suite_id}/items -H \"Authorization: Bearer $ASSAY_API_KEY\""
            ),
        },
        Step {
            name: "Submit predictions",
            is_done: has_job,
            path: format!("{suite_path}/submit"),
            code: format!(
                "curl {url}/v1/evals -H \"Authorization: Bearer $ASSAY_API_KEY\" -H 'Content-Type: application/json' -d @predictions.json"
            ),
        },
        Step {
            name: "View the score",
            is_done: false,
            path: String::from("/jobs"),
            code: format!("curl {url}/v1/jobs/$JOB -H \"Authorization: Bearer $ASSAY_API_KEY\""),
        },
    ]))
}
