//! `POST /v1/comparisons`

use assay_core::model::comparison::{Comparison, ComparisonCreate};
use assay_core::model::permissions::Caller;
use axum::Json;
use axum::extract::{Request, State};

use super::extract::{Permitted, SMALL, json_body};
use super::input::Fields;
use crate::app::App;
use crate::http::error_response::Failure;
use crate::ops::comparisons;

/// Compare two jobs
///
/// Says by how much two succeeded jobs on the same version of a suite differ, how sure that is, and how many items would be
/// needed to be surer: from each hidden item's two scores, which are not disclosed. The same two jobs always get the same
/// response. Nothing is charged; but where the suite bounds submissions, the first comparison of two jobs counts as one of them.
#[utoipa::path(post, path = "/v1/comparisons", operation_id = "createComparison", tag = "comparisons", security(("api_key" = []), ("session" = [])),
    request_body = ComparisonCreate,
    responses(
        (status = 200, description = "How they differ.", body = Comparison),
        (status = 403, description = "Or the suite discloses scores by a ladder, or the submissions that it allows are used up."),
        (status = 404, description = "The organization has no such job; the message says which of the two."),
        (status = 409, description = "One has not succeeded, they are on different suites or versions, or nothing is stored of the items any more."),
    ))]
pub(super) async fn create(
    State(app): State<App>,
    Permitted(caller): Permitted<Caller>,
    request: Request,
) -> Result<Json<Comparison>, Failure> {
    let body = json_body(request, SMALL).await?;
    let mut fields = Fields::read(&body)?;
    let (job_a, job_b) = (fields.text("job_a"), fields.text("job_b"));
    fields.finish()?;
    Ok(Json(
        comparisons::create(&app, &caller, &job_a, &job_b).await?,
    ))
}
