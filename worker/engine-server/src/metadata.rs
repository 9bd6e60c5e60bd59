//! A package's inputs and outputs, as `ModelMetadata` returns them.

use assay_core::model::package::PackageName;
use assay_engine::Model;
use assay_inference::ids;
use assay_inference::v2::{ModelMetadataResponse, TensorMetadata};

/// The size for a dimension that differs between calls.
const ANY: i64 = -1;

/// Describes a package.
pub fn metadata(name: &PackageName, model: &Model) -> ModelMetadataResponse {
    let tensor = |name: &str, datatype: &str, shape: &[i64]| TensorMetadata {
        name: name.to_owned(),
        datatype: datatype.to_owned(),
        shape: shape.to_vec(),
    };
    let dim = i64::try_from(model.spec().dim).unwrap_or(ANY);
    ModelMetadataResponse {
        name: name.to_string(),
        versions: vec![name.version().to_owned()],
        platform: String::from("assay-seq-1"),
        inputs: vec![
            tensor(ids::ITEM_IDS, "BYTES", &[ANY, ANY]),
            tensor(ids::LENGTHS, "INT64", &[ANY, 1]),
            tensor(ids::TYPES, "BYTES", &[ANY, ANY]),
            tensor(ids::OPTIONS, "BYTES", &[ANY, ANY]),
            tensor(ids::OPTION_COUNTS, "INT64", &[ANY, 1]),
            tensor(ids::SEQUENCE_IDS, "BYTES", &[ANY, 1]),
            tensor(ids::TEMPERATURE, "FP64", &[ANY, 1]),
        ],
        outputs: vec![
            tensor(ids::ITEM_IDS, "BYTES", &[ANY, ANY]),
            tensor(ids::SCORES, "FP32", &[ANY, ANY]),
            tensor(ids::COUNTS, "INT64", &[ANY, 1]),
            tensor(ids::N_SCORED, "INT64", &[ANY, 1]),
            tensor(ids::EXACT, "INT64", &[ANY, 1]),
            tensor(ids::CONTINUATION_LENGTHS, "INT64", &[ANY, ANY]),
            tensor(ids::EMBEDDING, "FP32", &[ANY, dim]),
            tensor(ids::N_USED, "INT64", &[ANY, 1]),
            tensor(ids::N_UNKNOWN, "INT64", &[ANY, 1]),
            tensor(ids::REFUSALS, "INT64", &[ANY, 1]),
        ],
    }
}
