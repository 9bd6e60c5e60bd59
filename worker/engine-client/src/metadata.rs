//! Compares the tensors that an external engine declares for a model with its calls' tensors.

use std::time::Duration;

use assay_core::model::error::Result;
use assay_core::model::error_details::Endpoint;
use assay_core::model::served_model::{CodeOutputs, PredictOutput, Profile, ServedModel};
use assay_inference::ids;
use assay_inference::v2::{ModelMetadataRequest, ModelMetadataResponse, TensorMetadata};
use tonic::Code;

use crate::code_calls::CODES;
use crate::codes::{CONTINUATIONS, ITEMS, LOGITS};
use crate::engines::Engines;
use crate::failure::Failure;

/// The size of a dimension that differs between calls.
const ANY: i64 = -1;

/// The tensors in one model's calls.
#[derive(Default)]
struct Needed {
    inputs: Vec<Tensor>,
    outputs: Vec<Tensor>,
}

struct Tensor {
    name: &'static str,
    datatype: &'static str,
    /// `None` if the dimension count depends on the operation.
    shape: Option<Vec<i64>>,
}

impl Engines {
    /// Compares the tensors that a model's engine declares with those that calls need.
    /// `endpoints` are the operations that the model offers.
    ///
    /// Returns a sentence for each difference. Nothing is compared for the embedded engine, which
    /// reads the package itself, and for engines that declare no tensors, as MLServer allows.
    ///
    /// # Errors
    /// If the engine does not return the metadata. The cause has the engine's text.
    pub async fn check_metadata(
        &self,
        model: &ServedModel,
        endpoints: &[Endpoint],
        deadline: Duration,
    ) -> Result<Vec<String>> {
        let (name, needed) = match &model.profile {
            Profile::Embedded => return Ok(Vec::new()),
            Profile::Ids { name, generates } => {
                (name, Needed::by_ids(model, *generates, endpoints))
            }
            Profile::Codes { name, outputs } => (name, Needed::by_codes(model, *outputs)),
        };
        let engine = self.engine(model)?;
        let call = async {
            let replica = engine.replicas().pick().await?;
            let request = ModelMetadataRequest {
                name: name.clone(),
                version: model.version.clone(),
            };
            replica.client().model_metadata(request).await
        };
        let failure = match tokio::time::timeout(deadline, call).await {
            Ok(Ok(declared)) => return Ok(needed.differences(declared.get_ref())),
            Ok(Err(status)) if status.code() == Code::Unimplemented => return Ok(Vec::new()),
            Ok(Err(status)) => Failure::from_status(&status),
            Err(_) => Failure::Timeout(String::from("no metadata within the deadline")),
        };
        Err(failure.into_error(&model.engine))
    }
}

impl Needed {
    fn by_codes(model: &ServedModel, outputs: CodeOutputs) -> Self {
        let sizes = model.level_sizes();
        let mut needed = Self::default();
        needed.input(CODES, "INT64", &[ANY, ANY, size(sizes.len())]);
        needed.input(ids::LENGTHS, "INT64", &[ANY, 1]);
        match outputs.predict {
            Some(PredictOutput::Logits) => {
                let n_codes = sizes.first().map_or(ANY, |n| size(*n));
                needed.output(LOGITS, "FP32", Some(&[ANY, n_codes]));
            }
            Some(PredictOutput::TopK) => {
                needed.output(ITEMS, "INT64", Some(&[ANY, ANY]));
                needed.output(ids::SCORES, "FP32", Some(&[ANY, ANY]));
            }
            None => {}
        }
        if outputs.continuations {
            needed.output(CONTINUATIONS, "INT64", Some(&[ANY, ANY, ANY]));
            needed.output(ids::SCORES, "FP32", Some(&[ANY, ANY]));
        }
        if outputs.embedding {
            needed.embedding(model);
        }
        needed
    }

    fn by_ids(model: &ServedModel, generates: bool, endpoints: &[Endpoint]) -> Self {
        let mut needed = Self::default();
        needed.input(ids::ITEM_IDS, "BYTES", &[ANY, ANY]);
        needed.input(ids::LENGTHS, "INT64", &[ANY, 1]);
        for endpoint in endpoints {
            match endpoint {
                Endpoint::Predict => {
                    needed.input(ids::OPTIONS, "BYTES", &[ANY, ANY]);
                    needed.input(ids::OPTION_COUNTS, "INT64", &[ANY, 1]);
                }
                Endpoint::Generate if generates => {
                    needed.input(ids::SEQUENCE_IDS, "BYTES", &[ANY, 1]);
                    needed.input(ids::TEMPERATURE, "FP64", &[ANY, 1]);
                }
                // The client continues sequences by predictions.
                Endpoint::Generate => {}
                Endpoint::Embed => {
                    needed.embedding(model);
                    continue;
                }
            }
            // A model that generates returns continuations in its rankings' output.
            let items: Option<&[i64]> = if generates { None } else { Some(&[ANY, ANY]) };
            needed.output(ids::ITEM_IDS, "BYTES", items);
            needed.output(ids::SCORES, "FP32", Some(&[ANY, ANY]));
        }
        needed
    }

    fn embedding(&mut self, model: &ServedModel) {
        let shape = [ANY, i64::from(model.embedding_dim)];
        self.output(ids::EMBEDDING, "FP32", Some(&shape));
    }

    fn input(&mut self, name: &'static str, datatype: &'static str, shape: &[i64]) {
        self.inputs.push(Tensor {
            name,
            datatype,
            shape: Some(shape.to_vec()),
        });
    }

    /// Adds an output, unless another operation has added it.
    fn output(&mut self, name: &'static str, datatype: &'static str, shape: Option<&[i64]>) {
        if self.outputs.iter().all(|tensor| tensor.name != name) {
            self.outputs.push(Tensor {
                name,
                datatype,
                shape: shape.map(<[i64]>::to_vec),
            });
        }
    }

    fn differences(&self, declared: &ModelMetadataResponse) -> Vec<String> {
        if declared.inputs.is_empty() && declared.outputs.is_empty() {
            return Vec::new();
        }
        let inputs = self.inputs.iter();
        let inputs = inputs
            .filter_map(|tensor| tensor.difference("input", &declared.inputs, accepts_all_sizes));
        let outputs = self.outputs.iter();
        let outputs = outputs
            .filter_map(|tensor| tensor.difference("output", &declared.outputs, can_have_size));
        inputs.chain(outputs).collect()
    }
}

impl Tensor {
    fn difference(
        &self,
        kind: &str,
        declared: &[TensorMetadata],
        fits: impl Fn(i64, i64) -> bool,
    ) -> Option<String> {
        let Self {
            name,
            datatype,
            shape,
        } = self;
        let Some(found) = declared.iter().find(|tensor| tensor.name == *name) else {
            let names: Vec<_> = declared.iter().map(|tensor| tensor.name.as_str()).collect();
            return Some(format!("the {kind} `{name}` is not among {names:?}"));
        };
        if found.datatype != *datatype {
            return Some(format!(
                "the {kind} `{name}` has the data type {}; it must be {datatype}",
                found.datatype
            ));
        }
        let shape = shape.as_deref()?;
        let pairs = || shape.iter().zip(&found.shape);
        let fits =
            found.shape.len() == shape.len() && pairs().all(|(one, other)| fits(*one, *other));
        (!fits).then(|| {
            format!(
                "the {kind} `{name}` has the shape {:?}; it must be {shape:?}",
                found.shape
            )
        })
    }
}

/// Returns `true` if an input's dimension takes all sizes that are sent. A fixed size does not take
/// other calls' sizes.
fn accepts_all_sizes(sent: i64, declared: i64) -> bool {
    declared == ANY || declared == sent
}

/// Returns `true` if an output's dimension can have the expected size.
fn can_have_size(expected: i64, declared: i64) -> bool {
    expected == ANY || declared == ANY || declared == expected
}

fn size(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(ANY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use assay_core::model::catalog::{Codebook, Resolution};

    fn model(profile: Profile) -> ServedModel {
        ServedModel {
            id: "next".into(),
            version: "1".into(),
            engine: "other".into(),
            package: "models/next/1".into(),
            profile,
            context_length: 12,
            embedding_dim: 16,
            codebook: Codebook {
                levels: 1,
                resolution: Resolution::Uniform,
                base_size: 32,
            },
            has_item_table: true,
            returns_items: true,
        }
    }

    fn codes(predict: PredictOutput) -> Needed {
        let outputs = CodeOutputs {
            predict: Some(predict),
            continuations: false,
            embedding: true,
        };
        let name = "codes".into();
        Needed::by_codes(&model(Profile::Codes { name, outputs }), outputs)
    }

    fn tensor(name: &str, datatype: &str, shape: &[i64]) -> TensorMetadata {
        TensorMetadata {
            name: name.into(),
            datatype: datatype.into(),
            shape: shape.to_vec(),
        }
    }

    fn declared() -> ModelMetadataResponse {
        ModelMetadataResponse {
            inputs: vec![
                tensor("codes", "INT64", &[-1, -1, 1]),
                tensor("lengths", "INT64", &[-1, 1]),
            ],
            outputs: vec![
                tensor("logits", "FP32", &[-1, 32]),
                tensor("embedding", "FP32", &[-1, -1]),
                tensor("other", "FP64", &[7]),
            ],
            ..ModelMetadataResponse::default()
        }
    }

    #[test]
    fn matching_tensors_have_no_difference() {
        let needed = codes(PredictOutput::Logits);
        assert_eq!(needed.differences(&declared()), [""; 0]);
        let nothing = ModelMetadataResponse::default();
        assert_eq!(needed.differences(&nothing), [""; 0]);
    }

    #[test]
    fn other_tensors_are_named() {
        type Change = fn(&mut ModelMetadataResponse);
        let changes: [(Change, &str); 6] = [
            (
                |declared| declared.inputs[0].name = "tokens".into(),
                "the input `codes` is not among [\"tokens\", \"lengths\"]",
            ),
            (
                |declared| declared.inputs[1].datatype = "INT32".into(),
                "the input `lengths` has the data type INT32; it must be INT64",
            ),
            // Triton declares a vector without a batch dimension like this.
            (
                |declared| declared.inputs[1].shape = vec![-1],
                "the input `lengths` has the shape [-1]; it must be [-1, 1]",
            ),
            (
                |declared| declared.inputs[0].shape = vec![-1, 50, 1],
                "the input `codes` has the shape [-1, 50, 1]; it must be [-1, -1, 1]",
            ),
            (
                |declared| declared.outputs[0].shape = vec![-1, 31],
                "the output `logits` has the shape [-1, 31]; it must be [-1, 32]",
            ),
            (
                |declared| declared.outputs[1].shape = vec![-1, 17],
                "the output `embedding` has the shape [-1, 17]; it must be [-1, 16]",
            ),
        ];
        for (change, sentence) in changes {
            let mut declared = declared();
            change(&mut declared);
            let needed = codes(PredictOutput::Logits);
            assert_eq!(needed.differences(&declared), [sentence]);
        }
        let needed = codes(PredictOutput::TopK);
        let missing = needed.differences(&declared());
        assert_eq!(missing.len(), 2, "{missing:?}");
    }

    #[test]
    fn tensors_of_ids_depend_on_operations() {
        let name = || String::from("ids");
        let names = |generates: bool, endpoints: &[Endpoint]| {
            let profile = Profile::Ids {
                name: name(),
                generates,
            };
            let needed = Needed::by_ids(&model(profile), generates, endpoints);
            let names = |tensors: Vec<Tensor>| -> Vec<_> {
                tensors.into_iter().map(|tensor| tensor.name).collect()
            };
            (
                names(needed.inputs).join(" "),
                names(needed.outputs).join(" "),
            )
        };
        assert_eq!(
            names(false, &[Endpoint::Predict, Endpoint::Generate]),
            (
                "item_ids lengths options option_counts".into(),
                "item_ids scores".into()
            )
        );
        assert_eq!(
            names(true, &[Endpoint::Generate]),
            (
                "item_ids lengths sequence_ids temperature".into(),
                "item_ids scores".into()
            )
        );
        assert_eq!(
            names(false, &[Endpoint::Embed]),
            ("item_ids lengths".into(), "embedding".into())
        );
    }
}
