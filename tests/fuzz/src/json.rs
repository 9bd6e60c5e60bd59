//! A simple JSON parser, as a reference implementation for the readers.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

/// Returns the nesting depth of brackets outside strings, for valid JSON.
pub fn nesting(json: &[u8]) -> usize {
    let mut open = 0_usize;
    let mut deepest = 0;
    let mut bytes = json.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'[' | b'{' => open += 1,
            b']' | b'}' => open = open.saturating_sub(1),
            b'"' => {
                while let Some(byte) = bytes.next().filter(|byte| **byte != b'"') {
                    if *byte == b'\\' {
                        bytes.next();
                    }
                }
            }
            _ => {}
        }
        deepest = deepest.max(open);
    }
    deepest
}

/// A JSON value; objects contain repeated keys.
#[derive(Debug, Clone, PartialEq)]
pub enum Json {
    Text(String),
    Array(Vec<Json>),
    Object(Vec<(String, Json)>),
    Number(f64),
    Other,
}

impl Json {
    /// Parses JSON. Returns `None` if the input is no JSON, or exceeds the parser (a number that is
    /// too large, half a surrogate pair, more than 127 levels).
    pub fn read(json: &[u8]) -> Option<Self> {
        let mut parser = serde_json::Deserializer::from_slice(json);
        let read = Self::deserialize(&mut parser).ok()?;
        parser.end().ok().map(|()| read)
    }

    /// Returns an object's values at this key.
    pub fn at(&self, key: &str) -> Vec<&Self> {
        match self {
            Self::Object(entries) => entries
                .iter()
                .filter(|(name, _)| name == key)
                .map(|(_, value)| value)
                .collect(),
            _ => Vec::new(),
        }
    }

    /// Returns `true` for an object with a repeated key.
    pub fn repeats_a_key(&self) -> bool {
        match self {
            Self::Object(entries) => {
                let mut keys: Vec<&str> = entries.iter().map(|(key, _)| key.as_str()).collect();
                keys.sort_unstable();
                keys.windows(2).any(|two| two[0] == two[1])
            }
            _ => false,
        }
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;

        impl<'de> Visitor<'de> for Any {
            type Value = Json;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("JSON")
            }

            fn visit_unit<E>(self) -> Result<Json, E> {
                Ok(Json::Other)
            }

            fn visit_bool<E>(self, _: bool) -> Result<Json, E> {
                Ok(Json::Other)
            }

            fn visit_i64<E>(self, number: i64) -> Result<Json, E> {
                Ok(Json::Number(number as f64))
            }

            fn visit_u64<E>(self, number: u64) -> Result<Json, E> {
                Ok(Json::Number(number as f64))
            }

            fn visit_f64<E>(self, number: f64) -> Result<Json, E> {
                Ok(Json::Number(number))
            }

            fn visit_str<E>(self, text: &str) -> Result<Json, E> {
                Ok(Json::Text(text.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<Json, A::Error> {
                let mut values = Vec::new();
                while let Some(value) = array.next_element()? {
                    values.push(value);
                }
                Ok(Json::Array(values))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Json::Object(entries))
            }
        }

        deserializer.deserialize_any(Any)
    }
}
