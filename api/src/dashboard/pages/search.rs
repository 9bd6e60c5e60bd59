//! The search box: it opens what an id or a label names.

use askama::Template;
use assay_core::model::job::Job;
use assay_core::model::permissions::{JobReader, Session};
use assay_core::{Code, JobId, KeyId, RequestId};
use axum::extract::State;

use crate::app::App;
use crate::dashboard::filters;
use crate::dashboard::response::{PageResult, page, redirect};
use crate::dashboard::score::Score;
use crate::dashboard::section::Section;
use crate::dashboard::visitor::{Layout, Query, Visitor};
use crate::generated::inputs;
use crate::ops::{jobs, keys};

/// Jobs that are listed for a label.
const JOBS: i64 = 20;

#[derive(Template)]
#[template(path = "pages/search.html")]
struct SearchPage {
    layout: Layout,
    query: String,
    jobs: Vec<Job>,
}

/// Opens the job for an id or a request, the key for an id, or the jobs with a label.
pub async fn show(State(app): State<App>, visitor: Visitor, Query(query): Query) -> PageResult {
    let text = query.get("q");
    if text.parse::<JobId>().is_ok() {
        return Ok(redirect(&format!("/jobs/{text}")));
    }
    if text.parse::<KeyId>().is_ok() {
        let session: Session = visitor.proof()?;
        keys::get(&app, &session, text).await?;
        return Ok(redirect(&format!("/keys#{text}")));
    }
    let reader: JobReader = visitor.proof()?;
    if text.parse::<RequestId>().is_ok()
        && let Some(job_id) = jobs::find_by_request(&app, &reader, text).await?
    {
        return Ok(redirect(&format!("/jobs/{job_id}")));
    }
    let labelled = inputs::ListJobs {
        label: query.given("q").map(str::to_owned),
        ..inputs::ListJobs::newest(JOBS)
    };
    let found = match query.given("q") {
        Some(_) => jobs::list(&app, &reader, labelled, visitor.room()).await,
        None => Ok(assay_core::model::job::Jobs {
            jobs: Vec::new(),
            next_before: None,
        }),
    };
    let jobs = match found {
        Ok(found) => found.jobs,
        // A text that no job can have as its label.
        Err(error) if matches!(error.code, Code::InvalidRequest | Code::ValidationFailed) => {
            Vec::new()
        }
        Err(error) => return Err(error.into()),
    };
    if let [only] = jobs.as_slice() {
        return Ok(redirect(&format!("/jobs/{}", only.id)));
    }
    page(&SearchPage {
        layout: visitor.layout(&app, "Search", Section::None).await?,
        query: text.to_owned(),
        jobs,
    })
}
