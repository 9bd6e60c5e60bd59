//! `weights.safetensors`: the `assay-seq-1` tensors, and no others.

use std::collections::HashSet;

use safetensors::{Dtype, SafeTensorError, SafeTensors};

use crate::error::PackageError;
use crate::spec::ModelSpec;

/// Largest header, in bytes. The largest model has 1,200 tensors, whose entries take a tenth.
const HEADER_BYTES_MAX: u64 = 1 << 20;

/// A tensor's name and shape.
type Expected = (String, Vec<usize>);

/// Checks names, all tensors' shapes, types and byte ranges against `model.json`. It allocates
/// memory for the header only.
pub fn check_weights_header(spec: &ModelSpec, weights: &[u8]) -> Result<(), PackageError> {
    Weights::open(spec, weights).map(|_| ())
}

/// Returns the largest valid size for `weights.safetensors` of these sizes, in bytes.
pub fn weights_bytes_max(spec: &ModelSpec) -> u64 {
    8 + HEADER_BYTES_MAX + network_bytes(spec)
}

/// Returns the weights' memory once they are loaded, in bytes: 4 for each value, whatever type
/// the file has.
pub fn network_bytes(spec: &ModelSpec) -> u64 {
    let values = |(_, shape): Expected| shape.iter().map(|size| *size as u64).product::<u64>();
    4 * expected(spec).into_iter().map(values).sum::<u64>()
}

/// A file's tensors, whose header was checked.
pub(crate) struct Weights<'a> {
    tensors: SafeTensors<'a>,
}

impl<'a> Weights<'a> {
    pub(crate) fn open(spec: &ModelSpec, bytes: &'a [u8]) -> Result<Self, PackageError> {
        check_header_length(bytes)?;
        let tensors = SafeTensors::deserialize(bytes)
            .map_err(|error| PackageError::weights(reason(&error)))?;
        let expected = expected(spec);
        for (name, shape) in &expected {
            let Ok(tensor) = tensors.tensor(name) else {
                return Err(PackageError::weights(format!(
                    "the tensor `{name}` is missing. It must have the shape {shape:?}."
                )));
            };
            if tensor.shape() != shape {
                return Err(PackageError::weights(format!(
                    "the tensor `{name}` has the shape {:?}. By model.json it must have {shape:?}.",
                    tensor.shape()
                )));
            }
            if !matches!(tensor.dtype(), Dtype::F32 | Dtype::F16 | Dtype::BF16) {
                return Err(PackageError::weights(format!(
                    "the tensor `{name}` has the type {}. Write it as F32, F16 or BF16.",
                    tensor.dtype()
                )));
            }
        }
        if tensors.len() > expected.len() {
            let names: HashSet<&str> = expected.iter().map(|(name, _)| name.as_str()).collect();
            let extra = tensors
                .names()
                .into_iter()
                .filter(|name| !names.contains(name))
                .min();
            return Err(PackageError::weights(format!(
                "the tensor {:?} does not belong to the architecture. Remove it.",
                extra.unwrap_or_default()
            )));
        }
        Ok(Self { tensors })
    }

    /// Returns a tensor's values in row-major order. Values that are infinite or not a number
    /// are an error.
    pub(crate) fn read(&self, name: &str) -> Result<Vec<f32>, PackageError> {
        let tensor = self
            .tensors
            .tensor(name)
            .map_err(|error| PackageError::weights(reason(&error)))?;
        let bytes = tensor.data();
        let halves = || {
            bytes
                .as_chunks()
                .0
                .iter()
                .map(|half| u16::from_le_bytes(*half))
        };
        let values: Vec<f32> = match tensor.dtype() {
            Dtype::F16 => halves().map(from_f16).collect(),
            Dtype::BF16 => halves()
                .map(|half| f32::from_bits(u32::from(half) << 16))
                .collect(),
            _ => bytes
                .as_chunks()
                .0
                .iter()
                .map(|value| f32::from_le_bytes(*value))
                .collect(),
        };
        match values.iter().position(|value| !value.is_finite()) {
            Some(at) => Err(PackageError::weights(format!(
                "value {at} of the tensor `{name}` is {}. All values must be finite.",
                values[at]
            ))),
            None => Ok(values),
        }
    }
}

/// Checks the header's length before anything reads it.
fn check_header_length(bytes: &[u8]) -> Result<(), PackageError> {
    let Some((length, rest)) = bytes.split_first_chunk::<8>() else {
        return Err(PackageError::weights(
            "the file is shorter than the 8 bytes with the length of its header.",
        ));
    };
    let length = u64::from_le_bytes(*length);
    if length > HEADER_BYTES_MAX {
        return Err(PackageError::weights(format!(
            "the header has {length} bytes by its first 8 bytes; it may have at most {HEADER_BYTES_MAX}. The file may be in another format than safetensors."
        )));
    }
    if length > rest.len() as u64 {
        return Err(PackageError::weights(format!(
            "the header has {length} bytes by its first 8 bytes, and {} follow. The file may be truncated.",
            rest.len()
        )));
    }
    Ok(())
}

fn reason(error: &SafeTensorError) -> String {
    match error {
        SafeTensorError::MetadataIncompleteBuffer => {
            "the tensors of the header do not end where the file ends. The file may be truncated."
                .into()
        }
        SafeTensorError::TensorInvalidInfo => {
            "the byte range of a tensor does not fit its shape and type.".into()
        }
        SafeTensorError::ValidationOverflow => "the shape of a tensor is too large.".into(),
        error => format!("{error}."),
    }
}

/// Converts from the 16-bit IEEE 754 format.
fn from_f16(half: u16) -> f32 {
    let sign = u32::from(half & 0x8000) << 16;
    let exponent = u32::from(half >> 10 & 0x1f);
    let fraction = u32::from(half & 0x3ff);
    let magnitude = match exponent {
        // Zero and subnormal numbers: multiples of 2^−24.
        0 => return f32::from_bits(sign | (fraction as f32 * 2_f32.powi(-24)).to_bits()),
        0x1f => 0xff << 23 | fraction << 13,
        _ => (exponent + 112) << 23 | fraction << 13,
    };
    f32::from_bits(sign | magnitude)
}

/// Lists a model's tensors.
fn expected(spec: &ModelSpec) -> Vec<Expected> {
    let d = spec.dim;
    let mut tensors: Vec<Expected> = vec![
        ("position_embedding".into(), vec![spec.context_length, d]),
        ("start".into(), vec![d]),
        ("norm.weight".into(), vec![d]),
        ("norm.bias".into(), vec![d]),
    ];
    if !spec.event_types.is_empty() {
        tensors.push(("type_embedding".into(), vec![spec.event_types.len(), d]));
    }
    for (level, size) in spec.level_sizes.iter().enumerate() {
        tensors.push((format!("item_embedding.{level}"), vec![*size, d]));
        tensors.push((format!("heads.{level}.weight"), vec![*size, d]));
        tensors.push((format!("mixers.{level}.weight"), vec![d, d]));
        tensors.push((format!("mixers.{level}.bias"), vec![d]));
    }
    for block in 0..spec.layers {
        for norm in ["norm1", "norm2"] {
            tensors.push((format!("blocks.{block}.{norm}.weight"), vec![d]));
            tensors.push((format!("blocks.{block}.{norm}.bias"), vec![d]));
        }
        let linear = [
            ("attention.query", d, d),
            ("attention.key", d, d),
            ("attention.value", d, d),
            ("attention.output", d, d),
            ("up", 4 * d, d),
            ("down", d, 4 * d),
        ];
        for (layer, n_out, n_in) in linear {
            tensors.push((format!("blocks.{block}.{layer}.weight"), vec![n_out, n_in]));
            tensors.push((format!("blocks.{block}.{layer}.bias"), vec![n_out]));
        }
    }
    tensors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_floats_convert_exactly() {
        let cases = [
            (0x0000, 0.0),
            (0x8000, -0.0),
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x7bff, 65504.0),
            (0x0001, 5.960_464_5e-8),
            (0x03ff, 6.097_555e-5),
            (0x0400, 6.103_515_6e-5),
            (0x3555, 0.333_251_95),
        ];
        for (half, value) in cases {
            assert_eq!(from_f16(half).to_bits(), f32::to_bits(value), "{half:x}");
        }
        assert!(from_f16(0x7c00).is_infinite() && from_f16(0x7e00).is_nan());
    }
}
