//! Reading and building the tensors of a message.
//!
//! Elements are in row-major order, in one of two forms: typed (fields of the tensor) or raw (one
//! byte string per tensor, little-endian; each element of `BYTES` has its length before it, as 4
//! bytes). Engines differ in the form of their responses, so both are read. Tensors are built in
//! the raw form.
//!
//! Messages come from other processes: shapes and lengths are compared with the elements that
//! arrived before anything is allocated. Error texts contain no elements, because those are
//! personal data.

use bytes::Bytes;

use crate::v2::{InferTensor, InferTensorContents, ModelInferRequest, ModelInferResponse};

/// The maximum number of tensors in a message.
const TENSORS_MAX: usize = 64;

/// The size of the length before an element of `BYTES`, in bytes.
const LENGTH_SIZE: usize = 4;

/// An error in a message of another process. The text is a sentence that names the tensor or
/// parameter and contains no elements.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidMessage(String);

impl InvalidMessage {
    /// Creates an error with this sentence.
    pub fn new(sentence: impl Into<String>) -> Self {
        Self(sentence.into())
    }
}

/// A type of elements.
pub trait Element<'m>: Copy + Default {
    /// The datatype of its tensors.
    const DATATYPE: &'static str;

    /// Reads `count` elements in raw form. The error says what is wrong with them.
    fn read_raw(raw: &'m [u8], count: usize) -> Result<Vec<Self>, String>;

    /// Reads all elements in typed form. The error says what is wrong with them.
    fn read_typed(contents: &'m InferTensorContents) -> Result<Vec<Self>, String>;

    /// Appends the element in raw form.
    fn write_raw(self, raw: &mut Vec<u8>);
}

macro_rules! numbers {
    ($($number:ty, $datatype:literal, $contents:ident;)*) => {
        $(impl Element<'_> for $number {
            const DATATYPE: &'static str = $datatype;

            fn read_raw(raw: &[u8], count: usize) -> Result<Vec<Self>, String> {
                let (elements, rest) = raw.as_chunks::<{ size_of::<$number>() }>();
                if elements.len() != count || !rest.is_empty() {
                    return Err(format!(
                        "has {} bytes, but its shape has {count} elements of {} bytes",
                        raw.len(),
                        size_of::<$number>(),
                    ));
                }
                Ok(elements.iter().map(|bytes| <$number>::from_le_bytes(*bytes)).collect())
            }

            fn read_typed(contents: &InferTensorContents) -> Result<Vec<Self>, String> {
                Ok(contents.$contents.clone())
            }

            fn write_raw(self, raw: &mut Vec<u8>) {
                raw.extend_from_slice(&self.to_le_bytes());
            }
        })*
    };
}

numbers! {
    i64, "INT64", int64_contents;
    f32, "FP32", fp32_contents;
    f64, "FP64", fp64_contents;
}

impl<'m> Element<'m> for &'m str {
    const DATATYPE: &'static str = "BYTES";

    fn read_raw(mut raw: &'m [u8], count: usize) -> Result<Vec<Self>, String> {
        // Each element has at least its length, so the allocation has at most four times the size
        // of the message.
        if count > raw.len() / LENGTH_SIZE {
            return Err(format!(
                "has {} bytes, too few for the {count} elements of its shape",
                raw.len()
            ));
        }
        let mut elements = Vec::with_capacity(count);
        for index in 0..count {
            let truncated = || format!("ends within element {index}");
            let (length, rest) = raw.split_first_chunk().ok_or_else(truncated)?;
            let length = usize::try_from(u32::from_le_bytes(*length)).map_err(|_| truncated())?;
            let (element, rest) = rest.split_at_checked(length).ok_or_else(truncated)?;
            elements.push(text(element, index)?);
            raw = rest;
        }
        match raw.len() {
            0 => Ok(elements),
            rest => Err(format!("has {rest} bytes after its last element")),
        }
    }

    fn read_typed(contents: &'m InferTensorContents) -> Result<Vec<Self>, String> {
        let elements = contents.bytes_contents.iter().enumerate();
        elements
            .map(|(index, element)| text(element, index))
            .collect()
    }

    fn write_raw(self, raw: &mut Vec<u8>) {
        // A message is smaller than 4 GiB, so no element of it is longer.
        let length = u32::try_from(self.len()).unwrap_or(u32::MAX);
        raw.extend_from_slice(&length.to_le_bytes());
        raw.extend_from_slice(self.as_bytes());
    }
}

fn text(element: &[u8], index: usize) -> Result<&str, String> {
    std::str::from_utf8(element).map_err(|_| format!("has no UTF-8 text in element {index}"))
}

/// The elements of a tensor with `N` dimensions.
#[derive(Debug, Clone, PartialEq)]
pub struct Values<T, const N: usize> {
    /// The size of each dimension. Their product is the number of elements.
    pub shape: [usize; N],
    /// The elements, in row-major order.
    pub elements: Vec<T>,
}

impl<T, const N: usize> Values<T, N> {
    /// Returns the elements of a row, which is a value of the first dimension. Returns no elements
    /// for a row that does not exist.
    pub fn row(&self, row: usize) -> &[T] {
        let width: usize = self.shape.iter().skip(1).product();
        let start = row.saturating_mul(width);
        self.elements
            .get(start..start.saturating_add(width))
            .unwrap_or_default()
    }
}

/// The tensors of a message, to be read by name.
#[derive(Debug, Clone, Copy)]
pub struct Tensors<'m> {
    tensors: &'m [InferTensor],
    raw: &'m [Bytes],
    rows: Option<usize>,
}

impl<'m> Tensors<'m> {
    /// Returns the inputs of a request.
    ///
    /// # Errors
    /// If they have repeated names, or raw contents for some of them only.
    pub fn from_request(request: &'m ModelInferRequest) -> Result<Self, InvalidMessage> {
        Self::new(&request.inputs, &request.raw_input_contents)
    }

    /// Returns the outputs of a response.
    ///
    /// # Errors
    /// If they have repeated names, or raw contents for some of them only.
    pub fn from_response(response: &'m ModelInferResponse) -> Result<Self, InvalidMessage> {
        Self::new(&response.outputs, &response.raw_output_contents)
    }

    fn new(tensors: &'m [InferTensor], raw: &'m [Bytes]) -> Result<Self, InvalidMessage> {
        if tensors.len() > TENSORS_MAX {
            return Err(InvalidMessage(format!(
                "The message has {} tensors, and {TENSORS_MAX} are allowed.",
                tensors.len()
            )));
        }
        if !raw.is_empty() && raw.len() != tensors.len() {
            return Err(InvalidMessage(format!(
                "The message has {} tensors, but raw contents of {}.",
                tensors.len(),
                raw.len()
            )));
        }
        for (index, tensor) in tensors.iter().enumerate() {
            if tensors[..index]
                .iter()
                .any(|other| other.name == tensor.name)
            {
                return Err(InvalidMessage(format!(
                    "The tensors {index} and an earlier one have the same name."
                )));
            }
        }
        Ok(Self {
            tensors,
            raw,
            rows: None,
        })
    }

    /// Requires this size of the first dimension of all tensors that are read from now on.
    #[must_use]
    pub fn with_rows(self, rows: usize) -> Self {
        Self {
            rows: Some(rows),
            ..self
        }
    }

    /// Returns the names of the tensors.
    pub fn names(&self) -> impl Iterator<Item = &'m str> + use<'m> {
        self.tensors.iter().map(|tensor| tensor.name.as_str())
    }

    /// Reads a tensor. Returns `None` if the message has none of this name.
    ///
    /// # Errors
    /// If the datatype, the number of dimensions, the number of rows or the number of elements is
    /// wrong, or an element of `BYTES` is not UTF-8.
    pub fn read<T: Element<'m>, const N: usize>(
        &self,
        name: &str,
    ) -> Result<Option<Values<T, N>>, InvalidMessage> {
        let Some(index) = self.tensors.iter().position(|tensor| tensor.name == name) else {
            return Ok(None);
        };
        self.values(index)
            .map(Some)
            .map_err(|what| InvalidMessage(format!("The tensor `{name}` {what}.")))
    }

    /// Reads a tensor that must exist.
    ///
    /// # Errors
    /// As [`Tensors::read`], and if the message has no tensor of this name.
    pub fn read_required<T: Element<'m>, const N: usize>(
        &self,
        name: &str,
    ) -> Result<Values<T, N>, InvalidMessage> {
        self.read(name)?
            .ok_or_else(|| InvalidMessage(format!("The tensor `{name}` is missing.")))
    }

    fn values<T: Element<'m>, const N: usize>(&self, index: usize) -> Result<Values<T, N>, String> {
        let tensor = &self.tensors[index];
        if tensor.datatype != T::DATATYPE {
            return Err(format!("must have the datatype {}", T::DATATYPE));
        }
        let shape = shape(&tensor.shape)?;
        if let Some(rows) = self.rows
            && shape.first() != Some(&rows)
        {
            return Err(format!("must have {rows} rows"));
        }
        let count = element_count(&shape).ok_or("has a shape with too many elements")?;
        // MLServer sends empty contents with each tensor whose elements are raw.
        let is_empty =
            |contents: &&InferTensorContents| **contents == InferTensorContents::default();
        let contents = tensor.contents.as_ref();
        let contents = contents.filter(|contents| !is_empty(contents));
        let elements = match (self.raw.get(index), contents) {
            (Some(_), Some(_)) => return Err(String::from("has both raw and typed contents")),
            (Some(raw), None) => T::read_raw(raw, count)?,
            (None, Some(contents)) => T::read_typed(contents)?,
            (None, None) => Vec::new(),
        };
        if elements.len() != count {
            return Err(format!(
                "has {} elements, but its shape has {count}",
                elements.len()
            ));
        }
        Ok(Values { shape, elements })
    }
}

fn shape<const N: usize>(given: &[i64]) -> Result<[usize; N], String> {
    let given: &[i64; N] = given
        .try_into()
        .map_err(|_| format!("must have {N} dimensions, and has {}", given.len()))?;
    let mut shape = [0; N];
    for (size, given) in shape.iter_mut().zip(given) {
        *size = usize::try_from(*given)
            .map_err(|_| format!("has a dimension of {given}, which is no size"))?;
    }
    Ok(shape)
}

fn element_count(shape: &[usize]) -> Option<usize> {
    shape
        .iter()
        .try_fold(1_usize, |count, size| count.checked_mul(*size))
}

/// The tensors of a message that is being built, in raw form.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct TensorsBuilder {
    tensors: Vec<InferTensor>,
    raw: Vec<Bytes>,
}

impl TensorsBuilder {
    /// Adds a tensor. Elements that are missing at the end are zeros or empty strings; elements
    /// beyond the shape are left out.
    pub fn push<'m, T: Element<'m>>(
        &mut self,
        name: &str,
        shape: &[usize],
        elements: impl IntoIterator<Item = T>,
    ) {
        let count = element_count(shape).unwrap_or_default();
        let mut raw = Vec::new();
        elements
            .into_iter()
            .chain(std::iter::repeat(T::default()))
            .take(count)
            .for_each(|element| element.write_raw(&mut raw));
        self.tensors.push(InferTensor {
            name: name.to_owned(),
            datatype: T::DATATYPE.to_owned(),
            shape: shape
                .iter()
                .map(|size| i64::try_from(*size).unwrap_or(i64::MAX))
                .collect(),
            ..InferTensor::default()
        });
        self.raw.push(raw.into());
    }

    /// Adds a tensor with the shape [rows, width], whose rows are padded on the right with zeros or
    /// empty strings. Elements of a row beyond the width are left out.
    pub fn push_rows<'m, T: Element<'m>, R: IntoIterator<Item = T>>(
        &mut self,
        name: &str,
        width: usize,
        rows: impl ExactSizeIterator<Item = R>,
    ) {
        let shape = [rows.len(), width];
        let padding = || std::iter::repeat(T::default());
        self.push(
            name,
            &shape,
            rows.flat_map(|row| row.into_iter().chain(padding()).take(width)),
        );
    }

    /// Removes all tensors but those with these names. Does nothing if there are no names.
    pub fn retain(&mut self, names: &[&str]) {
        if names.is_empty() {
            return;
        }
        let tensors = std::mem::take(&mut self.tensors).into_iter();
        let raw = std::mem::take(&mut self.raw);
        (self.tensors, self.raw) = tensors
            .zip(raw)
            .filter(|(tensor, _)| names.contains(&tensor.name.as_str()))
            .unzip();
    }

    /// Sets the inputs of a request.
    pub fn into_request(self, request: &mut ModelInferRequest) {
        request.inputs = self.tensors;
        request.raw_input_contents = self.raw;
    }

    /// Sets the outputs of a response.
    pub fn into_response(self, response: &mut ModelInferResponse) {
        response.outputs = self.tensors;
        response.raw_output_contents = self.raw;
    }
}

#[cfg(test)]
mod tests;
