//! Conversions of single fields, except those whose values are messages of the contract.

use std::collections::{BTreeMap, HashMap};

use assay_core::Timestamp;
use assay_core::model::scope::Scopes;
use prost_types::Struct;
use serde_json::{Map, Value};

use super::structs::object;

/// A type of a resource's field that converts to type `T` of a message's field.
pub trait IntoProto<T> {
    fn into_proto(self) -> T;
}

macro_rules! scalars {
    ($($scalar:ty),+) => {$(
        impl<T: Into<$scalar>> IntoProto<$scalar> for T {
            fn into_proto(self) -> $scalar {
                self.into()
            }
        }
    )+};
}

scalars!(String, bool, f64, i32, i64, u64);

impl IntoProto<prost_types::Timestamp> for Timestamp {
    fn into_proto(self) -> prost_types::Timestamp {
        prost_types::Timestamp {
            seconds: self.unix_seconds(),
            nanos: i32::try_from(self.subsecond_nanos()).unwrap_or_default(),
        }
    }
}

impl IntoProto<Struct> for Map<String, Value> {
    fn into_proto(self) -> Struct {
        object(self)
    }
}

impl<T, S: IntoProto<T>> IntoProto<Option<T>> for Option<S> {
    fn into_proto(self) -> Option<T> {
        self.map(IntoProto::into_proto)
    }
}

impl<T, S: IntoProto<T>> IntoProto<Vec<T>> for Vec<S> {
    fn into_proto(self) -> Vec<T> {
        self.into_iter().map(IntoProto::into_proto).collect()
    }
}

/// A nullable pair of numbers is an empty list in a message.
impl IntoProto<Vec<f64>> for Option<[f64; 2]> {
    fn into_proto(self) -> Vec<f64> {
        self.map(Vec::from).unwrap_or_default()
    }
}

impl IntoProto<Vec<String>> for Scopes {
    fn into_proto(self) -> Vec<String> {
        self.list().to_vec().into_proto()
    }
}

impl<T> IntoProto<HashMap<String, T>> for BTreeMap<String, T> {
    fn into_proto(self) -> HashMap<String, T> {
        self.into_iter().collect()
    }
}
