//! Submissions as they are described to clients. Reading and checking them is in `assay_eval::prediction`.

use utoipa::openapi::schema::{Array, Object, OneOf, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

pub use assay_eval::prediction::*;

use crate::model::ids::UploadId;
use crate::model::suite::SuiteId;
use crate::model::validation;

/// A text without NUL, as a pattern.
const NO_NUL: &str = r"^[^\u0000]*$";

/// A submission. Exactly one of `predictions` and `input_ref` is given.
#[derive(ToSchema)]
pub struct EvalCreate {
    /// The suite to be scored against, in its current version.
    pub suite_id: SuiteId,
    /// The predictions, inline: instead of `input_ref`. The body may have 5 MiB.
    #[schema(min_items = 1)]
    pub predictions: Option<Vec<SubmittedPrediction>>,
    /// The `input_ref` of an upload that is ready: instead of `predictions`.
    pub input_ref: Option<UploadId>,
    /// The caller's name for the job.
    #[schema(value_type = Option<validation::Text>)]
    pub label: Option<String>,
}

/// A prediction for one item. Further fields are ignored.
#[derive(ToSchema)]
#[schema(as = Prediction)]
pub struct SubmittedPrediction {
    /// From the suite's item, verbatim: at most 512 bytes of UTF-8.
    #[schema(min_length = 1, max_length = 512, pattern = "^[^\\u0000]*$")]
    pub item_id: String,
    /// What is predicted for it.
    pub prediction: PredictionValue,
}

/// What is predicted, as it is described to clients. See [`Value`].
pub struct PredictionValue;

impl PartialSchema for PredictionValue {
    fn schema() -> RefOr<Schema> {
        let text = || {
            Object::builder()
                .schema_type(Type::String)
                .pattern(Some(NO_NUL))
        };
        let ranking = Array::builder()
            .title(Some("Ranking"))
            .description(Some("Ids, best first. There may be none."))
            .items(text().build());
        let label = text()
            .title(Some("Label"))
            .description(Some("One id: the same as a ranking of one."));
        let number = Object::builder()
            .schema_type(Type::Number)
            .title(Some("Number"))
            .description(Some("For rmse, mae and spearman."))
            .minimum(Some(-NUMBER_MAX))
            .maximum(Some(NUMBER_MAX));
        let probability = Object::builder()
            .schema_type(Type::Number)
            .minimum(Some(0.0))
            .maximum(Some(1.0));
        let probabilities = Object::builder()
            .schema_type(Type::Object)
            .title(Some("Probabilities"))
            .description(Some("Label → probability, for log_loss, brier, auc and ece@15. They sum to 1, within 1e-6."))
            .property_names(Some(text().build()))
            .additional_properties(Some(probability));
        OneOf::builder()
            .item(ranking)
            .item(label)
            .item(number)
            .item(probabilities)
            .into()
    }
}

impl ToSchema for PredictionValue {}
