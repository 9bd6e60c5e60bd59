//! The schemas of submissions. `assay_eval::prediction` parses and validates them.

use utoipa::openapi::schema::{Array, Object, OneOf, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

pub use assay_eval::prediction::*;

use crate::model::ids::{SuiteId, UploadId};
use crate::model::metadata::Metadata;
use crate::model::validation;

/// Pattern of a string without NUL.
const NO_NUL: &str = r"^[^\u0000]*$";

/// A submission. It has exactly one of `predictions` and `input_ref`.
#[derive(ToSchema)]
pub struct EvalCreate {
    /// The id of the suite. The predictions are scored against its current version.
    pub suite_id: SuiteId,
    /// The predictions, at most one for each item, instead of `input_ref`. The request body has at
    /// most 5 MiB.
    #[schema(min_items = 1)]
    pub predictions: Option<Vec<SubmittedPrediction>>,
    /// The `input_ref` of an upload that is ready, instead of `predictions`.
    pub input_ref: Option<UploadId>,
    /// The version of the suite that the predictions were made for. If it is not the current one, the
    /// request fails with 409.
    #[schema(min_length = 1)]
    pub suite_version: Option<String>,
    /// A name for the job.
    #[schema(value_type = Option<validation::Text>)]
    pub label: Option<String>,
    /// Pairs of texts that the job keeps, such as the commit of the model.
    pub metadata: Option<Metadata>,
}

/// A prediction for one item. Unknown fields are ignored.
#[derive(ToSchema)]
#[schema(as = Prediction)]
pub struct SubmittedPrediction {
    /// The id of the item, verbatim from the suite: 1 to 512 bytes of UTF-8. An item that is not in
    /// the suite is accepted and counted in `n_unmatched`.
    #[schema(min_length = 1, max_length = 512, pattern = "^[^\\u0000]*$")]
    pub item_id: String,
    /// The predicted value. The metric of the suite decides which kind is valid.
    pub prediction: PredictionValue,
}

/// The schema of a predicted value. [`Value`] is the parsed one.
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
            .description(Some("A ranking of ids, the best first, for accuracy, hit_rate@k, recall@k, precision@k, ndcg@k, mrr@k and map@k. An empty ranking is valid and scores as the worst."))
            .items(text().build());
        let label = text()
            .title(Some("Label"))
            .description(Some("A label, for exact_match, f1_macro and f1_micro. For the metrics of rankings, it is a ranking of one id."));
        let number = Object::builder()
            .schema_type(Type::Number)
            .title(Some("Number"))
            .description(Some("A number, for rmse, mae and spearman."))
            .minimum(Some(-NUMBER_MAX))
            .maximum(Some(NUMBER_MAX));
        let probability = Object::builder()
            .schema_type(Type::Number)
            .minimum(Some(0.0))
            .maximum(Some(1.0));
        let probabilities = Object::builder()
            .schema_type(Type::Object)
            .title(Some("Probabilities"))
            .description(Some("The probability of each label, for log_loss, brier, auc and ece@15. They sum to 1 within 1e-6. An absent label has the probability 0."))
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
