//! Submitting a file with predictions: choose a file, check it, submit it.

use askama::Template;
use assay_core::model::permissions::{EvalSubmitter, TermsAccepted, Uploader};
use assay_core::model::suite::Suite;
use assay_core::model::upload::{
    ContentEncoding, ContentType, UploadKind, UploadStatus, UploadSummary,
};
use assay_core::model::usage::Usage;
use assay_core::model::validation;
use assay_core::{Code, Details, Error, Result};
use assay_eval::content::{Compression, DETECTED_BYTES, text_form};
use assay_eval::prediction::{Fit, TextForm};
use axum::extract::multipart::{Field, Multipart};
use axum::extract::{Path, Request, State};
use bytes::{Bytes, BytesMut};
use futures_util::{Stream, stream};

use crate::app::App;
use crate::dashboard::filters;
use crate::dashboard::form::{Entry, Form};
use crate::dashboard::response::{PageResult, page, page_with, redirect, redirect_with_notice};
use crate::dashboard::section::Section;
use crate::dashboard::snippets::{self, Snippets};
use crate::dashboard::visitor::{Layout, Query, Submitted, Visitor};
use crate::generated::inputs;
use crate::http::request_context::RequestContext;
use crate::layers::memory;
use crate::limits::request_memory::SharedReservation;
use crate::ops::submissions::Origin;
use crate::ops::upload_fit;
use crate::ops::{complete_upload, evals, suites, uploads, usage};

/// Part size in which a file is stored, in bytes.
const PART_BYTES: usize = 32 * 1024 * 1024;

/// The most uploads that wait for their submission on the page.
const WAITING: i64 = 20;

#[derive(Template)]
#[template(path = "pages/submit.html")]
struct SubmitPage {
    layout: Layout,
    suites: Vec<Suite>,
    waiting: Vec<UploadSummary>,
}

#[derive(Template)]
#[template(path = "pages/suite_submit.html")]
struct SuiteSubmitPage {
    layout: Layout,
    entry: Entry,
    suite: Suite,
    usage: Usage,
    snippets: Snippets,
}

#[derive(Template)]
#[template(path = "pages/submission.html")]
struct SubmissionPage {
    layout: Layout,
    entry: Entry,
    suite: Suite,
    usage: Usage,
    upload: UploadSummary,
    /// The comparison of the predictions with the suite. Absent for large files.
    fit: Option<Fit>,
}

impl SubmissionPage {
    /// Returns `true` if a job with the file would fail.
    fn is_refused(&self) -> bool {
        self.fit.as_ref().is_some_and(|fit| !fit.errors.is_empty())
    }

    /// Returns how many of the month's predictions are left before the submission.
    fn remaining(&self) -> i64 {
        let (totals, limits) = (&self.usage.totals, &self.usage.limits);
        (limits.eval_items_per_month - totals.eval_items).max(0)
    }

    /// Returns how many items the submission is charged for.
    fn cost(&self) -> i64 {
        let predictions = self.upload.n_items.unwrap_or_default();
        assay_core::model::job::charged_items(predictions, self.suite.n_items)
    }
}

/// Shows the suites to submit to, and the uploads that were not submitted.
pub async fn choose(State(app): State<App>, visitor: Visitor) -> PageResult {
    let suites = suites::first_page(&app, &visitor.proof()?, visitor.room()).await?;
    let mut waiting = Vec::new();
    for status in [UploadStatus::Ready, UploadStatus::Pending] {
        let query = inputs::ListUploads {
            status: Some(status.to_string()),
            limit: Some(WAITING),
            before: None,
        };
        waiting.extend(uploads::list(&app, &visitor.proof()?, query).await?.uploads);
    }
    page(&SubmitPage {
        layout: visitor
            .layout(&app, "Submit predictions", Section::Suites)
            .await?,
        suites,
        waiting,
    })
}

/// Shows the form for a file.
pub async fn show(
    State(app): State<App>,
    visitor: Visitor,
    Path(suite_id): Path<String>,
    Query(query): Query,
) -> PageResult {
    form(&app, visitor, &suite_id, Entry::new(query)).await
}

async fn form(app: &App, visitor: Visitor, suite_id: &str, entry: Entry) -> PageResult {
    let reader = visitor.proof()?;
    let suite = suites::get(app, &reader, suite_id).await?;
    let status = entry.status();
    let snippets = snippets::submit(app, &reader, &suite, visitor.room()).await?;
    let template = SuiteSubmitPage {
        usage: usage::get(app, &visitor.proof()?).await?,
        layout: visitor
            .layout(app, format!("Submit to {suite_id}"), Section::Suites)
            .await?,
        entry,
        snippets,
        suite,
    };
    page_with(status, &template)
}

/// Stores a file as an upload, and checks it. The form's fields come before the file.
pub async fn upload(
    State(app): State<App>,
    visitor: Visitor,
    Path(suite_id): Path<String>,
    request: Request,
) -> PageResult {
    let reservation = memory::reservation(request.extensions())?;
    let multipart = <Multipart as axum::extract::FromRequest<_>>::from_request(request, &()).await;
    let multipart =
        multipart.map_err(|_| Error::new(Code::InvalidRequest, "Send the form of the page."))?;
    let mut fields = Form::default();
    let stored = store(&app, &visitor, &reservation, multipart, &mut fields).await;
    let upload_id = match stored {
        Ok(upload_id) => upload_id,
        Err(error) => {
            let entry = Entry::rejected(&fields, error)?;
            return form(&app, visitor, &suite_id, entry).await;
        }
    };
    let uploader: Uploader = visitor.proof()?;
    match complete_upload::complete(&app, &uploader, &upload_id).await {
        Ok(_) => {}
        // The upload's page shows what is wrong with the content.
        Err(error)
            if matches!(
                error.code,
                Code::ValidationFailed | Code::InvalidRequest | Code::PayloadTooLarge
            ) => {}
        Err(error) => {
            let entry = Entry::rejected(&fields, error)?;
            return form(&app, visitor, &suite_id, entry).await;
        }
    }
    let label: String = form_urlencoded::byte_serialize(fields.get("label").as_bytes()).collect();
    Ok(redirect(&format!(
        "/suites/{suite_id}/submissions/{upload_id}?label={label}"
    )))
}

/// Reads the form into `fields`, and stores its file in parts as it arrives. Returns the upload's
/// id.
async fn store(
    app: &App,
    visitor: &Visitor,
    reservation: &SharedReservation,
    mut multipart: Multipart,
    fields: &mut Form,
) -> Result<String> {
    while let Some(field) = multipart.next_field().await.map_err(incomplete)? {
        let name = field.name().unwrap_or_default().to_owned();
        if name != "file" {
            let text = field.text().await.map_err(incomplete)?;
            fields.push(&name, text);
            continue;
        }
        if fields.get("csrf") != visitor.csrf() {
            let message = "You have signed in again since this page was opened. Load the page again, and choose the file again.";
            return Err(Error::new(Code::Conflict, message));
        }
        let uploader: Uploader = visitor.proof()?;
        if fields.get("org_id") != uploader.caller().org_id().as_str() {
            let message = "You have changed to another organization since this page was opened. Load the page again, and choose the file again.";
            return Err(Error::new(Code::Conflict, message));
        }
        // Before the file is stored: the label becomes an address part.
        if let Some(label) = fields.given("label") {
            validation::text("label", label)?;
        }
        let content_type = match text_form(field.file_name().unwrap_or_default()) {
            TextForm::Json => ContentType::Ndjson,
            TextForm::Csv => ContentType::Csv,
        };
        let mut file = File::open(field).await?;
        let first = file.next.as_deref().unwrap_or_default();
        let new = inputs::CreateUpload {
            kind: UploadKind::Predictions.to_string(),
            content_type: Some(content_type.to_string()),
            content_encoding: Some(ContentEncoding::of(Compression::detect(first)).to_string()),
            bytes: None,
            sha256: None,
        };
        let upload = uploads::create(app, &uploader, new).await?;
        let upload_id = upload.upload_summary.id.to_string();
        let mut number = 0;
        while file.next.is_some() {
            number += 1;
            let mut part = file.part();
            uploads::put_part(
                app,
                &uploader,
                &upload_id,
                number,
                None,
                reservation,
                &mut part,
            )
            .await?;
        }
        return Ok(upload_id);
    }
    Err(Error::field("file", "required", "choose a file"))
}

fn incomplete(_: axum::extract::multipart::MultipartError) -> Error {
    Error::new(
        Code::InvalidRequest,
        "The file did not arrive completely. Send it again.",
    )
}

/// A file that arrives.
struct File<'a> {
    field: Field<'a>,
    /// The next bytes. `None` at the end.
    next: Option<Bytes>,
}

impl<'a> File<'a> {
    async fn open(mut field: Field<'a>) -> Result<Self> {
        let mut first = BytesMut::new();
        // The first bytes decide the compression.
        while first.len() < DETECTED_BYTES
            && let Some(bytes) = field.chunk().await.map_err(incomplete)?
        {
            first.extend_from_slice(&bytes);
        }
        if first.is_empty() {
            return Err(Error::field(
                "file",
                "required",
                "choose a file that is not empty",
            ));
        }
        Ok(Self {
            field,
            next: Some(first.freeze()),
        })
    }

    /// Returns the next part with at least `PART_BYTES` bytes, or the rest.
    fn part<'file>(
        &'file mut self,
    ) -> impl Stream<Item = Result<Bytes>> + Unpin + Send + use<'file, 'a> {
        Box::pin(stream::try_unfold(
            (self, 0_usize),
            |(file, read)| async move {
                if read >= PART_BYTES {
                    return Ok(None);
                }
                let Some(bytes) = file.next.take() else {
                    return Ok(None);
                };
                file.next = file.field.chunk().await.map_err(incomplete)?;
                let read = read + bytes.len();
                Ok(Some((bytes, (file, read))))
            },
        ))
    }
}

/// Shows what a file contains, and what its submission costs.
pub async fn check(
    State(app): State<App>,
    visitor: Visitor,
    Path((suite_id, upload_id)): Path<(String, String)>,
    Query(query): Query,
) -> PageResult {
    submission(&app, visitor, &suite_id, &upload_id, Entry::new(query)).await
}

async fn submission(
    app: &App,
    visitor: Visitor,
    suite_id: &str,
    upload_id: &str,
    entry: Entry,
) -> PageResult {
    let suite = suites::get(app, &visitor.proof()?, suite_id).await?;
    let upload = uploads::get(app, &visitor.proof()?, upload_id)
        .await?
        .upload_summary;
    let fit = upload_fit::find(app, &visitor.proof()?, &upload, &suite).await?;
    let status = entry.status();
    let template = SubmissionPage {
        usage: usage::get(app, &visitor.proof()?).await?,
        layout: visitor
            .layout(app, format!("Submit to {suite_id}"), Section::Suites)
            .await?,
        entry,
        suite,
        upload,
        fit,
    };
    page_with(status, &template)
}

/// Submits a checked file. Submitting it again opens the same job.
pub async fn submit(
    State(app): State<App>,
    visitor: Visitor,
    context: RequestContext,
    Path((suite_id, upload_id)): Path<(String, String)>,
    Submitted(fields): Submitted,
) -> PageResult {
    let submitter: TermsAccepted<EvalSubmitter> = visitor.proof()?;
    // The page offers no button for a file whose job would fail, and would cost its predictions.
    let suite = suites::get(&app, &visitor.proof()?, &suite_id).await?;
    let upload = uploads::get(&app, &visitor.proof()?, &upload_id).await?;
    let fit = upload_fit::find(&app, &visitor.proof()?, &upload.upload_summary, &suite).await?;
    if let Some(error) = fit.and_then(|fit| fit.errors.into_iter().next()) {
        let entry = Entry::rejected(&fields, error.into())?;
        return submission(&app, visitor, &suite_id, &upload_id, entry).await;
    }
    let new = evals::Submission {
        suite_id: suite_id.clone(),
        predictions: None,
        input_ref: Some(upload_id.clone()),
        suite_version: None,
        metadata: None,
        label: fields.given("label").map(str::to_owned),
        idempotency_key: Some(format!("browser {suite_id} {upload_id}")),
    };
    match evals::submit(&app, &submitter, new, Origin::from_context(context)).await {
        Ok(accepted) => Ok(redirect(&format!("/jobs/{}", accepted.job.id))),
        Err(Error {
            details: Some(Details::Replay { job_id, .. }),
            ..
        }) => Ok(redirect_with_notice(
            &format!("/jobs/{job_id}"),
            "This file was submitted before, with another label.",
        )),
        Err(error) => {
            let entry = Entry::rejected(&fields, error)?;
            submission(&app, visitor, &suite_id, &upload_id, entry).await
        }
    }
}

/// Deletes an upload that is not submitted.
pub async fn delete(
    State(app): State<App>,
    visitor: Visitor,
    Path(upload_id): Path<String>,
) -> PageResult {
    uploads::delete(&app, &visitor.proof()?, &upload_id).await?;
    Ok(redirect_with_notice("/submit", "The upload was deleted."))
}
