//! The submission schemas. `assay_eval::prediction` parses and validates them.

use assay_eval::{Family, Metric};
use utoipa::openapi::schema::{Array, Object, OneOf, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

pub use assay_eval::prediction::*;

/// Pattern of a string without NUL.
const NO_NUL: &str = r"^[^\u0000]*$";

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

/// A predicted value's schema. [`Value`] is the parsed one.
pub struct PredictionValue;

impl PartialSchema for PredictionValue {
    fn schema() -> RefOr<Schema> {
        let text = || {
            Object::builder()
                .schema_type(Type::String)
                .pattern(Some(NO_NUL))
        };
        let metrics = |family: Family| Metric::listed(|metric| metric.family() == family);
        let ranking = Array::builder()
            .title(Some("Ranking"))
            .description(Some(format!(
                "A ranking of ids, the best first, for {}. A set of ids in any order, for {}. An empty ranking is valid and scores as the worst.",
                Metric::listed(|metric| metric.family() == Family::Rankings && !metric.compares_sets()),
                Metric::listed(Metric::compares_sets),
            )))
            .items(text().build());
        let label = text().title(Some("Label")).description(Some(format!(
            "A label, for {}. For the metrics of rankings, it is a ranking of one id.",
            metrics(Family::Labels),
        )));
        let number = Object::builder()
            .schema_type(Type::Number)
            .title(Some("Number"))
            .description(Some(format!("A number, for {}.", metrics(Family::Numbers))))
            .minimum(Some(-NUMBER_MAX))
            .maximum(Some(NUMBER_MAX));
        let by_name = Object::builder()
            .schema_type(Type::Number)
            .minimum(Some(-NUMBER_MAX))
            .maximum(Some(NUMBER_MAX));
        // One schema for both: an object of levels can have labels that look like them, and must not fit two.
        let numbers_by_name = Object::builder()
            .schema_type(Type::Object)
            .title(Some("Probabilities or quantiles"))
            .description(Some(format!(
                "The probability of each label, for {}: each from 0 to 1, with the sum 1 within 1e-6. An absent label has the probability 0. Or the number at each of the suite's levels, for {}: exactly these levels, and no number is below that of a lower level.",
                metrics(Family::Probabilities),
                metrics(Family::Quantiles),
            )))
            .property_names(Some(text().build()))
            .additional_properties(Some(by_name));
        OneOf::builder()
            .item(ranking)
            .item(label)
            .item(number)
            .item(numbers_by_name)
            .into()
    }
}

impl ToSchema for PredictionValue {}
