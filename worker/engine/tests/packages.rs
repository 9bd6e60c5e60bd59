//! Packages that must be refused, each with a sentence that names the file and the cause.

use assay_engine::{Model, ModelSpec, PackageError, PackageFile, PackageFiles};
use serde_json::{Value, json};

use crate::support::{Package, SMALL, Sizes, Tensor, with_header};

fn package() -> Package {
    Package::random(&SMALL, 1)
}

/// Loads a package with other weights.
fn load_weights(weights: &[u8]) -> Result<Model, PackageError> {
    Model::load(&PackageFiles {
        model: &package().model_json(),
        weights,
        items: None,
    })
}

/// Asserts that the error is a sentence that begins with the file's name.
pub fn assert_refused<T>(result: Result<T, PackageError>, file: PackageFile, cause: &str) {
    let error = match result {
        Ok(_) => panic!("the package is accepted instead of: {cause}"),
        Err(error) => error,
    };
    let message = error.to_string();
    assert_eq!(error.file, file, "{message}");
    assert!(message.starts_with(file.name()), "{message}");
    assert!(
        message.contains(cause),
        "{message:?} does not contain {cause:?}"
    );
    assert!(
        message.ends_with(['.', '…']) && message.len() < 600,
        "{message}"
    );
}

fn assert_model_refused(change: impl Fn(&mut Value), cause: &str) {
    let mut package = package();
    change(&mut package.model);
    assert_refused(
        ModelSpec::parse(&package.model_json()),
        PackageFile::Model,
        cause,
    );
    assert_refused(package.load(), PackageFile::Model, cause);
}

fn assert_weights_refused(weights: &[u8], cause: &str) {
    assert_refused(load_weights(weights), PackageFile::Weights, cause);
    let spec = ModelSpec::parse(&package().model_json()).unwrap();
    let checked = assay_engine::check_weights_header(&spec, weights);
    assert_refused(checked, PackageFile::Weights, cause);
}

#[test]
fn sizes_of_model_json_are_limited() {
    let serving = |field: &'static str, value: Value| {
        move |model: &mut Value| model["serving"][field] = value.clone()
    };
    assert_model_refused(
        serving("dim", json!(0)),
        "`serving.dim` must be between 1 and 4096, and is 0.",
    );
    assert_model_refused(
        serving("dim", json!(u64::MAX)),
        "`serving.dim` must be between 1 and 4096",
    );
    assert_model_refused(serving("dim", json!(-16)), "invalid value: integer `-16`");
    assert_model_refused(
        serving("dim", json!(24)),
        "`embedding_dim` is 16 and must equal `serving.dim`, which is 24.",
    );
    assert_model_refused(
        serving("heads", json!(3)),
        "`serving.heads` is 3 and must divide `serving.dim`, which is 16.",
    );
    assert_model_refused(
        serving("heads", json!(0)),
        "`serving.heads` must be between 1 and 4096",
    );
    assert_model_refused(
        serving("layers", json!(65)),
        "`serving.layers` must be between 1 and 64",
    );
    assert_model_refused(
        serving("norm_eps", json!(0)),
        "`serving.norm_eps` must be between 1e-12 and 0.1, and is 0.",
    );
    assert_model_refused(serving("norm_eps", json!("1e-5")), "invalid type: string");
    assert_model_refused(
        serving("activation", json!("mish")),
        "unknown variant `mish`, expected one of `relu`, `gelu`, `gelu_tanh`, `silu`",
    );
    assert_model_refused(
        serving("architecture", json!("hstu")),
        "`serving.architecture` must be `assay-seq-1`, and is \"hstu\".",
    );
    assert_model_refused(serving("batch", json!(1)), "unknown field `batch`");
    assert_model_refused(
        serving("event_types", json!(["view", "buy", "view"])),
        "`serving.event_types` has \"view\" twice.",
    );
    let many: Vec<String> = (0..1001).map(|at| at.to_string()).collect();
    assert_model_refused(
        serving("event_types", json!(many)),
        "it may have at most 1000.",
    );
    let card =
        |field: &'static str, value: Value| move |model: &mut Value| model[field] = value.clone();
    assert_model_refused(
        card("context_length", json!(10_001)),
        "`context_length` must be between 1 and 10000",
    );
    assert_model_refused(card("context_length", Value::Null), "invalid type: null");
    assert_model_refused(card("serving", json!({})), "missing field");
    let codebook = |field: &'static str, value: Value| {
        move |model: &mut Value| model["codebook"][field] = value.clone()
    };
    assert_model_refused(
        codebook("levels", json!(33)),
        "`codebook.levels` must be between 1 and 32",
    );
    assert_model_refused(
        codebook("base_size", json!(1 << 25)),
        "`codebook.base_size` must be between 1 and 16777216",
    );
    assert_model_refused(
        codebook("resolution", json!("fine")),
        "unknown variant `fine`",
    );
    let multi = |base_size: u64, levels: u64| {
        move |model: &mut Value| {
            model["codebook"] =
                json!({"levels": levels, "resolution": "multi", "base_size": base_size});
        }
    };
    assert_model_refused(
        multi(20, 4),
        "`codebook.base_size` is 20 and must be a multiple of 8",
    );
    assert_model_refused(
        multi(8, 32),
        "`codebook.base_size` is 8 and must be a multiple of 2147483648",
    );
}

#[test]
fn model_json_must_be_json() {
    let good = package();
    for (bytes, cause) in [
        (&b""[..], "EOF"),
        (b"\xff\xfe", "expected value"),
        (b"[]", "invalid"),
        (
            br#"{"context_length": 3, "context_length": 4}"#,
            "duplicate field",
        ),
    ] {
        assert_refused(ModelSpec::parse(bytes), PackageFile::Model, cause);
    }
    let mut long = good.model_json();
    long.resize(assay_engine::MODEL_BYTES_MAX + 1, b' ');
    assert_refused(
        ModelSpec::parse(&long),
        PackageFile::Model,
        "it may have at most 1048576.",
    );
    // The card's fields are not the engine's business, and multi-resolution halves the levels.
    let mut multi = good.model.clone();
    multi["new"] = json!(1);
    multi["codebook"] = json!({"levels": 3, "resolution": "multi", "base_size": 64});
    let spec = ModelSpec::parse(multi.to_string().as_bytes()).unwrap();
    assert_eq!(spec.level_sizes, [64, 32, 16]);
}

#[test]
fn other_formats_than_safetensors_are_refused() {
    // The beginnings of a pickle, PyTorch's archive, and a file without content.
    let pickle = [&b"\x80\x02}q\x00(X\x05\x00\x00\x00start"[..], &[0; 64]].concat();
    assert_weights_refused(
        &pickle,
        "The file may be in another format than safetensors.",
    );
    let archive = [&b"PK\x03\x04\x00\x00\x08\x08"[..], &[0; 64]].concat();
    assert_weights_refused(
        &archive,
        "The file may be in another format than safetensors.",
    );
    assert_weights_refused(b"", "shorter than the 8 bytes");
    assert_weights_refused(b"\x10\0\0", "shorter than the 8 bytes");
}

#[test]
fn header_length_is_limited() {
    let ten_gigabytes = [&10_000_000_000_u64.to_le_bytes()[..], b"{}"].concat();
    assert_weights_refused(
        &ten_gigabytes,
        "the header has 10000000000 bytes by its first 8 bytes; it may have at most 1048576.",
    );
    let beyond_the_end = [&1000_u64.to_le_bytes()[..], b"{}"].concat();
    assert_weights_refused(
        &beyond_the_end,
        "the header has 1000 bytes by its first 8 bytes, and 2 follow.",
    );
    let largest = [&u64::MAX.to_le_bytes()[..], b"{}"].concat();
    assert_weights_refused(&largest, "it may have at most");
}

#[test]
fn invalid_headers_are_refused() {
    assert_weights_refused(&with_header("{", b""), "invalid JSON in header");
    assert_weights_refused(&with_header("[]", b""), "invalid JSON in header");
    assert_weights_refused(
        &with_header("{}", b""),
        "the tensor `position_embedding` is missing. It must have the shape [12, 16].",
    );
    assert_weights_refused(
        &[&2_u64.to_le_bytes()[..], b"\xff\xff"].concat(),
        "invalid UTF-8 in header",
    );
    let tensor = |shape: &str, end: &str| {
        let header =
            format!(r#"{{"start":{{"dtype":"F32","shape":{shape},"data_offsets":[0,{end}]}}}}"#);
        with_header(&header, &[0; 64])
    };
    assert_weights_refused(&tensor("[16]", "128"), "does not fit its shape");
    assert_weights_refused(&tensor("[32]", "128"), "The file may be truncated.");
    assert_weights_refused(
        &tensor("[4294967296, 4294967296]", "64"),
        "the shape of a tensor is too large.",
    );
    assert_weights_refused(
        &tensor("[4611686018427387904]", "64"),
        "the shape of a tensor is too large.",
    );
    assert_weights_refused(
        &tensor("[99999999999999999999999]", "64"),
        "invalid JSON in header",
    );
    assert_weights_refused(&tensor("[-16]", "64"), "invalid JSON in header");
    assert_weights_refused(
        &tensor("[16]", "18446744073709551615"),
        "does not fit its shape",
    );
}

#[test]
fn truncated_weights_are_refused() {
    let weights = package().weights();
    for length in [
        0,
        7,
        8,
        100,
        weights.len() / 2,
        weights.len() - 4,
        weights.len() - 1,
    ] {
        assert_weights_refused(&weights[..length], "");
    }
    assert_weights_refused(
        &[&weights[..], &[0]].concat(),
        "do not end where the file ends",
    );
}

#[test]
fn tensors_must_be_those_of_the_architecture() {
    let mut missing = package();
    missing
        .tensors
        .retain(|tensor| tensor.name != "blocks.1.up.bias");
    assert_weights_refused(
        &missing.weights(),
        "the tensor `blocks.1.up.bias` is missing. It must have the shape [64].",
    );
    let mut extra = package();
    extra.tensors.push(Tensor {
        name: "blocks.2.up.bias".into(),
        shape: vec![64],
        values: vec![0.0; 64],
    });
    assert_weights_refused(
        &extra.weights(),
        "the tensor \"blocks.2.up.bias\" does not belong to the architecture.",
    );
    let mut transposed = package();
    transposed.tensor("blocks.0.up.weight").shape = vec![16, 64];
    assert_weights_refused(
        &transposed.weights(),
        "the tensor `blocks.0.up.weight` has the shape [16, 64]. By model.json it must have [64, 16].",
    );
    let mut flat = package();
    flat.tensor("heads.2.weight").shape = vec![128];
    assert_weights_refused(
        &flat.weights(),
        "has the shape [128]. By model.json it must have [8, 16].",
    );
    // Event types need their tensor, and only they.
    let sizes = Sizes {
        event_types: &["view"],
        ..SMALL
    };
    assert_weights_refused(
        &Package::random(&sizes, 1).weights(),
        "the tensor \"type_embedding\" does not belong",
    );
}

#[test]
fn data_types_other_than_floats_are_refused() {
    for dtype in ["F64", "I32", "U8", "BOOL", "F8_E4M3"] {
        let size = match dtype {
            "F64" => 8,
            "I32" => 4,
            _ => 1,
        };
        let mut package = package();
        package
            .tensors
            .retain(|tensor| tensor.name == "position_embedding");
        let end = 12 * 16 * size;
        let header = format!(
            r#"{{"position_embedding":{{"dtype":"{dtype}","shape":[12,16],"data_offsets":[0,{end}]}}}}"#
        );
        assert_weights_refused(
            &with_header(&header, &vec![0; end]),
            &format!(
                "the tensor `position_embedding` has the type {dtype}. Write it as F32, F16 or BF16."
            ),
        );
    }
}

#[test]
fn values_must_be_finite() {
    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut package = package();
        package.tensor("mixers.1.weight").values[37] = value;
        assert_refused(
            package.load(),
            PackageFile::Weights,
            &format!(
                "value 37 of the tensor `mixers.1.weight` is {value}. All values must be finite."
            ),
        );
    }
}

#[test]
fn loaded_model_reports_its_memory() {
    let package = package();
    let model = package.load().unwrap();
    let weights = package.weights().len();
    // Panels are padded to 32 columns, which these small layers do not fill.
    assert!(
        (weights / 2..8 * weights).contains(&model.bytes()),
        "{} of {weights}",
        model.bytes()
    );
    let bound = assay_engine::weights_bytes_max(model.spec());
    assert!((weights as u64..weights as u64 + (2 << 20)).contains(&bound));
}
