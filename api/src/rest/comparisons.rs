//! Handler of `POST /v1/comparisons`.

use assay_core::model::comparison::{Comparison, ComparisonCreate};
use assay_core::model::permissions::JobReader;
use axum::Json;
use axum::extract::{Request, State};

use super::extract::{Permitted, SMALL_BODY_MAX, read_json_body};
use super::input::Fields;
use crate::app::App;
use crate::http::error_response::Failure;
use crate::ops::comparisons;

/// Compare two jobs
///
/// Returns the difference of two succeeded jobs on the same version of a suite, its uncertainty,
/// and the number of items that would show a difference of one point. The comparison uses the
/// scores of the single hidden items without disclosing them. The same two jobs always get the same
/// response.
///
/// Nothing is charged. On a suite that limits submissions, the first comparison of two jobs counts
/// as a submission and requires the role `member`; repeating it is free.
///
/// Requires an API key or a session token.
#[utoipa::path(
    post,
    path = "/v1/comparisons",
    operation_id = "createComparison",
    tag = "comparisons",
    security(("api_key" = ["jobs:read"]), ("session" = [])),
    request_body = ComparisonCreate,
    responses(
        (status = 200, description = "The comparison.", body = Comparison),
        (
            status = 403,
            description =
                "It is also returned if the suite discloses scores by a ladder, or if the \
                 submissions that the suite allows are used up permanently.",
        ),
        (
            status = 404,
            description = "The organization has no such job. The message names the field.",
        ),
        (
            status = 409,
            description =
                "A job has not succeeded or has no stored item scores, or the jobs are on \
                 different suites or versions.",
        ),
    ),
)]
pub(super) async fn create(
    State(app): State<App>,
    Permitted(caller): Permitted<JobReader>,
    request: Request,
) -> Result<Json<Comparison>, Failure> {
    let body = read_json_body(&app, request, SMALL_BODY_MAX).await?;
    let mut fields = Fields::read(&body)?;
    let job_a = fields.string("job_a");
    let job_b = fields.string("job_b");
    fields.finish()?;
    Ok(Json(
        comparisons::create(&app, &caller, &job_a, &job_b).await?,
    ))
}
