//! Writes JSON as an encoded `google.protobuf.Struct`, without the tree in memory. The field numbers are
//! from `google/protobuf/struct.proto`.

use std::fmt;

use prost::encoding::{WireType, encode_key, encode_varint};
use serde::de::{DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde::{Deserializer, de};

/// Appends a message field's key, and returns the position at which its content begins.
pub fn begin(out: &mut Vec<u8>, field: u32) -> usize {
    encode_key(field, WireType::LengthDelimited, out);
    out.len()
}

/// Ends the field whose content began at `start`: inserts the content length there.
pub fn end(out: &mut Vec<u8>, start: usize) {
    let mut length = Vec::with_capacity(5);
    encode_varint((out.len() - start) as u64, &mut length);
    out.splice(start..start, length);
}

/// 2^53: doubles represent all integers of a smaller magnitude, and round some of the others.
const INEXACT: f64 = 9_007_199_254_740_992.0;

/// Appends a JSON object as a `Struct`. Returns `false` if the magnitude of a number is at least 2^53.
///
/// # Errors
/// If the text is not a JSON object.
pub fn write_object(json: &str, out: &mut Vec<u8>) -> Result<bool, serde_json::Error> {
    let mut json = serde_json::Deserializer::from_str(json);
    let mut is_exact = true;
    json.deserialize_map(ObjectFields(out, &mut is_exact))?;
    json.end()?;
    Ok(is_exact)
}

/// Appends an object's fields to a `Struct`. The second field becomes `false` at an inexact number.
struct ObjectFields<'a>(&'a mut Vec<u8>, &'a mut bool);

impl<'de> Visitor<'de> for ObjectFields<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self(out, is_exact) = self;
        while let Some(name) = map.next_key::<String>()? {
            let entry = begin(out, 1);
            write_string(out, 1, &name);
            let start = begin(out, 2);
            map.next_value_seed(ValueWriter(out, is_exact))?;
            end(out, start);
            end(out, entry);
        }
        Ok(())
    }
}

/// Appends a JSON value as a `Value`. The second field is that of [`ObjectFields`].
struct ValueWriter<'a>(&'a mut Vec<u8>, &'a mut bool);

impl<'de> DeserializeSeed<'de> for ValueWriter<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<(), D::Error> {
        value.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueWriter<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        prost::encoding::int32::encode(1, &0, self.0);
        Ok(())
    }

    fn visit_bool<E: de::Error>(self, flag: bool) -> Result<(), E> {
        prost::encoding::bool::encode(4, &flag, self.0);
        Ok(())
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "the numbers of a Struct are doubles"
    )]
    fn visit_u64<E: de::Error>(self, number: u64) -> Result<(), E> {
        self.visit_f64(number as f64)
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "the numbers of a Struct are doubles"
    )]
    fn visit_i64<E: de::Error>(self, number: i64) -> Result<(), E> {
        self.visit_f64(number as f64)
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<(), E> {
        *self.1 &= number.abs() < INEXACT;
        prost::encoding::double::encode(2, &number, self.0);
        Ok(())
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<(), E> {
        write_string(self.0, 3, text);
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        let start = begin(self.0, 5);
        ObjectFields(self.0, self.1).visit_map(map)?;
        end(self.0, start);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<(), A::Error> {
        let Self(out, is_exact) = self;
        let list = begin(out, 6);
        loop {
            let length = out.len();
            let start = begin(out, 1);
            if elements
                .next_element_seed(ValueWriter(out, is_exact))?
                .is_none()
            {
                out.truncate(length);
                break;
            }
            end(out, start);
        }
        end(out, list);
        Ok(())
    }
}

/// Appends a string field.
pub fn write_string(out: &mut Vec<u8>, field: u32, text: &str) {
    let start = begin(out, field);
    out.extend_from_slice(text.as_bytes());
    end(out, start);
}
