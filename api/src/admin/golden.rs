//! The golden requests of a package: `golden.json` has requests and the responses that the model was
//! trained to give. A model is published only if its engine returns them.

use std::borrow::Cow;
use std::time::Duration;

use assay_core::Error;
use assay_core::model::error_details::Endpoint;
use assay_core::model::package::GOLDEN_FILE;
use assay_core::model::sequence::{Sequence, check_sequences, read_sequences};
use assay_core::model::served_model::ServedModel;
use assay_core::model::serving::{EmbedData, GenerateData, PredictData, Refusal, SEQUENCES_MAX};
use assay_core::model::serving_options::{
    EmbedFields, GenerateFields, HistoryFields, PredictFields,
};
use assay_engine_client::{CallOptions, Computed, Engines, Priority};
use assay_eval::FieldError;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::admin::error::{CommandError, Result, refused};

/// Smallest number of requests.
const REQUESTS_MIN: usize = 3;

/// Largest number of requests.
const REQUESTS_MAX: usize = 100;

/// Largest difference of a number from the golden one. The arithmetic of an engine differs from that
/// of the training by less than a tenth of it.
const TOLERANCE: f64 = 1e-4;

/// The options of a call that computes golden requests. The engine loads the package first.
pub const CALL: CallOptions = CallOptions {
    priority: Priority::Synchronous,
    deadline: Duration::from_secs(60),
};

/// The content of `golden.json`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Golden {
    requests: Vec<GoldenRequest>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GoldenRequest {
    operation: Endpoint,
    request: Box<RawValue>,
    response: GoldenResponse,
}

#[derive(Deserialize)]
struct GoldenResponse {
    data: Value,
}

/// The fields of all operations. Which of them an operation has is not checked.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request<'a> {
    #[serde(borrow)]
    sequences: &'a RawValue,
    on_long: Option<String>,
    on_unknown: Option<String>,
    top_k: Option<i64>,
    exclude_seen: Option<bool>,
    n_events: Option<i64>,
    n_continuations: Option<i64>,
    mode: Option<String>,
    temperature: Option<f64>,
    seed: Option<String>,
    pooling: Option<String>,
    normalize: Option<bool>,
}

impl Golden {
    /// Parses `golden.json`, and checks its requests.
    pub fn parse(json: &[u8]) -> Result<Self> {
        let golden: Self = serde_json::from_slice(json)
            .map_err(|error| refused(format!("{GOLDEN_FILE}: {error}")))?;
        let count = golden.requests.len();
        if !(REQUESTS_MIN..=REQUESTS_MAX).contains(&count) {
            return Err(refused(format!(
                "{GOLDEN_FILE} has {count} requests; it must have {REQUESTS_MIN} to {REQUESTS_MAX}"
            )));
        }
        for (index, request) in golden.requests.iter().enumerate() {
            request.parse().map_err(|message| bad(index, &message))?;
        }
        Ok(golden)
    }

    /// Returns the ids of the first `n` different items that occur in the requests.
    pub fn item_ids(&self, n: usize) -> Vec<String> {
        let mut item_ids = Vec::new();
        let parsed = self.requests.iter().flat_map(|request| request.parse());
        for event in parsed
            .flat_map(|(_, sequences)| sequences)
            .flat_map(|sequence| sequence.events)
        {
            if item_ids.len() < n && !item_ids.contains(&event.item_id) {
                item_ids.push(event.item_id);
            }
        }
        item_ids.into_iter().map(Cow::into_owned).collect()
    }

    /// Lets the engine compute the requests, and compares the responses.
    ///
    /// # Errors
    /// If a response differs, or the engine fails.
    pub async fn compare(&self, engines: &Engines, model: &ServedModel) -> Result<()> {
        for (index, request) in self.requests.iter().enumerate() {
            let data = request
                .compute(engines, model)
                .await
                .map_err(|error| match error {
                    CommandError::Failed(error) => bad(
                        index,
                        &format!("the engine failed: {}", error.cause_or_message()),
                    ),
                    error => error,
                })?;
            if let Some(difference) = difference("data", &request.response.data, &data) {
                return Err(bad(index, &difference));
            }
        }
        Ok(())
    }
}

fn bad(index: usize, message: &str) -> CommandError {
    refused(format!("{GOLDEN_FILE}: requests[{index}]: {message}"))
}

impl GoldenRequest {
    fn parse(&self) -> std::result::Result<(Request<'_>, Vec<Sequence<'_>>), String> {
        let request: Request<'_> =
            serde_json::from_str(self.request.get()).map_err(|error| error.to_string())?;
        let mut sequences =
            read_sequences(request.sequences.get()).map_err(|errors| joined(&errors))?;
        let mut errors = Vec::new();
        check_sequences(&mut sequences, &mut errors);
        if !(1..=SEQUENCES_MAX).contains(&sequences.len()) {
            return Err(format!("there must be 1 to {SEQUENCES_MAX} sequences"));
        }
        match errors.is_empty() {
            true => Ok((request, sequences)),
            false => Err(joined(&errors)),
        }
    }

    /// Returns the `data` of the engine's response.
    async fn compute(&self, engines: &Engines, model: &ServedModel) -> Result<Value> {
        let (request, sequences) = self.parse().map_err(refused)?;
        let Request {
            sequences: _,
            on_long,
            on_unknown,
            top_k,
            exclude_seen,
            n_events,
            n_continuations,
            mode,
            temperature,
            seed,
            pooling,
            normalize,
        } = request;
        let history = HistoryFields {
            on_long,
            on_unknown,
        };
        let mut errors = Vec::new();
        let data = match self.operation {
            Endpoint::Predict => {
                let fields = PredictFields {
                    top_k,
                    exclude_seen,
                };
                let options = fields.check(&history, &mut errors);
                ensure_valid(&errors)?;
                let computed = engines.predict(model, &sequences, &options, CALL).await?;
                data(&sequences, computed, PredictData::new)?
            }
            Endpoint::Generate => {
                let fields = GenerateFields {
                    n_events,
                    n_continuations,
                    mode,
                    temperature,
                    seed,
                    exclude_seen,
                };
                let options = fields.check(&history, 0, &mut errors);
                ensure_valid(&errors)?;
                let computed = engines.generate(model, &sequences, &options, CALL).await?;
                data(&sequences, computed, GenerateData::new)?
            }
            Endpoint::Embed => {
                let fields = EmbedFields {
                    pooling,
                    normalize,
                    encoding_format: None,
                };
                let (options, encoding) = fields.check(&history, &mut errors);
                ensure_valid(&errors)?;
                let computed = engines.embed(model, &sequences, &options, CALL).await?;
                data(&sequences, computed, |sequence, vector| {
                    EmbedData::new(sequence, vector, encoding)
                })?
            }
        };
        Ok(data)
    }
}

fn joined(errors: &[FieldError]) -> String {
    let texts: Vec<_> = errors
        .iter()
        .map(|error| format!("{}: {}", error.field, error.message))
        .collect();
    texts.join("; ")
}

fn ensure_valid(errors: &[FieldError]) -> Result<()> {
    match errors.is_empty() {
        true => Ok(()),
        false => Err(refused(joined(errors))),
    }
}

/// Returns the results as callers see them.
fn data<T, D: serde::Serialize>(
    sequences: &[Sequence<'_>],
    computed: Computed<T>,
    new: impl Fn(&Sequence<'_>, T) -> D,
) -> Result<Value> {
    let mut data = Vec::with_capacity(sequences.len());
    for (sequence, result) in sequences.iter().zip(computed.results) {
        let result = result.map_err(|refusal: Refusal| {
            let error = refusal.field_error(sequence, "");
            refused(format!("{}: {}", error.field, error.message))
        })?;
        data.push(new(sequence, result));
    }
    Ok(serde_json::to_value(data).map_err(Error::internal)?)
}

/// Returns the first difference between a golden value and a computed one, as a sentence. Fields
/// that the golden value does not have are not compared.
fn difference(path: &str, golden: &Value, computed: &Value) -> Option<String> {
    match (golden, computed) {
        (Value::Object(golden), Value::Object(computed)) => {
            golden.iter().find_map(|(name, value)| {
                let computed = computed.get(name).unwrap_or(&Value::Null);
                difference(&format!("{path}.{name}"), value, computed)
            })
        }
        (Value::Array(golden), Value::Array(computed)) if golden.len() == computed.len() => {
            let pairs = golden.iter().zip(computed).enumerate();
            pairs.into_iter().find_map(|(index, (golden, computed))| {
                difference(&format!("{path}[{index}]"), golden, computed)
            })
        }
        (Value::Number(one), Value::Number(other))
            if one
                .as_f64()
                .zip(other.as_f64())
                .is_some_and(|(one, other)| (one - other).abs() <= TOLERANCE) =>
        {
            None
        }
        (golden, computed) if golden == computed => None,
        (Value::Array(golden), Value::Array(computed)) => Some(format!(
            "{path} has {} elements, and the engine returned {}",
            golden.len(),
            computed.len()
        )),
        (golden, computed) => Some(format!(
            "{path} is {golden}, and the engine returned {computed}; they may differ by {TOLERANCE}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn differences_beyond_tolerance_are_named() {
        let golden =
            json!([{"sequence_id": "a", "scores": [-1.0, null], "prediction": ["x", "y"]}]);
        let near = json!([{"sequence_id": "a", "scores": [-1.00009, null], "prediction": ["x", "y"], "cold": true}]);
        assert_eq!(difference("data", &golden, &near), None);
        for (path, other) in [
            (
                "data[0].scores[0]",
                json!([{"sequence_id": "a", "scores": [-1.00011, null], "prediction": ["x", "y"]}]),
            ),
            (
                "data[0].scores[1]",
                json!([{"sequence_id": "a", "scores": [-1.0, -2.0], "prediction": ["x", "y"]}]),
            ),
            (
                "data[0].prediction[0]",
                json!([{"sequence_id": "a", "scores": [-1.0, null], "prediction": ["y", "x"]}]),
            ),
            (
                "data[0].prediction",
                json!([{"sequence_id": "a", "scores": [-1.0, null], "prediction": ["x"]}]),
            ),
            ("data", json!([])),
        ] {
            let sentence = difference("data", &golden, &other).unwrap();
            assert!(sentence.starts_with(&format!("{path} ")), "{sentence}");
        }
    }

    #[test]
    fn bad_golden_requests_are_refused() {
        let request = |request: Value| json!({"operation": "predict", "request": request, "response": {"data": []}});
        let good = json!({"sequences": [{"sequence_id": "a", "events": []}]});
        for (requests, message) in [
            (vec![good.clone(); 2], "it must have 3 to 100"),
            (
                vec![good.clone(), good.clone(), json!({"sequences": []})],
                "requests[2]: there must be 1 to 64 sequences",
            ),
            (
                vec![
                    good.clone(),
                    json!({"sequences": [{"events": []}]}),
                    good.clone(),
                ],
                "requests[1]: sequences[0].sequence_id",
            ),
            (
                vec![json!({"sequence": []}), good.clone(), good.clone()],
                "requests[0]: unknown field",
            ),
        ] {
            let requests: Vec<_> = requests.into_iter().map(request).collect();
            let json = serde_json::to_vec(&json!({ "requests": requests })).unwrap();
            let error = Golden::parse(&json).err().unwrap().to_string();
            assert!(error.contains(message), "{error}");
        }
    }
}
