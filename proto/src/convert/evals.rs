//! Submissions.

use serde::ser::{Serialize, SerializeMap as _, SerializeSeq as _, Serializer};

use crate::v1;
use crate::v1::prediction_value::Value;

/// Predictions as the JSON array that REST takes: one form to check, to keep and to score, whichever way they came.
/// A prediction without a value becomes an object without one, and is refused where REST would refuse it.
pub fn predictions_json(predictions: &[v1::Prediction]) -> Result<Vec<u8>, serde_json::Error> {
    serde_json::to_vec(&Array(predictions))
}

struct Array<'a>(&'a [v1::Prediction]);

impl Serialize for Array<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut array = serializer.serialize_seq(Some(self.0.len()))?;
        self.0.iter().try_for_each(|prediction| array.serialize_element(&Object(prediction)))?;
        array.end()
    }
}

struct Object<'a>(&'a v1::Prediction);

impl Serialize for Object<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let v1::Prediction { item_id, prediction } = self.0;
        let mut object = serializer.serialize_map(None)?;
        object.serialize_entry("item_id", item_id)?;
        match prediction.as_ref().and_then(|prediction| prediction.value.as_ref()) {
            Some(Value::Ranking(v1::Ranking { ids })) => object.serialize_entry("prediction", ids)?,
            Some(Value::Label(label)) => object.serialize_entry("prediction", label)?,
            // What is no number becomes null, and is refused like it.
            Some(Value::Number(number)) => object.serialize_entry("prediction", number)?,
            Some(Value::Probabilities(v1::Probabilities { by_label })) => object.serialize_entry("prediction", by_label)?,
            None => {}
        }
        object.end()
    }
}
