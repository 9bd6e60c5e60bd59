//! Result checks that do not depend on the profile.

use assay_core::model::served_model::ServedModel;
use assay_core::model::serving::Refusal;

use crate::failure::Failure;

/// Each row's result, or the reason why it has none.
pub type Rows<T> = Vec<Result<T, Refusal>>;

/// Checks that a ranking's scores are finite and in descending order.
pub fn check_order(scores: &[f32]) -> Result<(), Failure> {
    check_finite(scores)?;
    if scores.is_sorted_by(|one, next| one >= next) {
        Ok(())
    } else {
        Err(invalid("the scores of a row are not in descending order"))
    }
}

/// Checks that all values are finite.
pub fn check_finite(values: &[f32]) -> Result<(), Failure> {
    if values.iter().all(|value| value.is_finite()) {
        Ok(())
    } else {
        Err(invalid("a value is not finite"))
    }
}

/// Checks vectors' dimension count.
pub fn check_dimensions(dimensions: usize, model: &ServedModel) -> Result<(), Failure> {
    if dimensions == model.embedding_dim as usize {
        Ok(())
    } else {
        Err(invalid(&format!(
            "vectors have {dimensions} dimensions instead of {}",
            model.embedding_dim
        )))
    }
}

/// Creates the failure for a result that is not one. The text must not contain items.
pub fn invalid(text: &str) -> Failure {
    Failure::Invalid(text.to_owned())
}
