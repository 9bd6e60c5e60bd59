//! Reading and building the parameters of a call.

use std::collections::HashMap;

use crate::tensors::InvalidMessage;
use crate::v2::InferParameter;
use crate::v2::infer_parameter::ParameterChoice;

/// The parameters of a call, by name.
pub type Parameters = HashMap<String, InferParameter>;

impl From<bool> for InferParameter {
    fn from(value: bool) -> Self {
        Self {
            parameter_choice: Some(ParameterChoice::BoolParam(value)),
        }
    }
}

impl From<i64> for InferParameter {
    fn from(value: i64) -> Self {
        Self {
            parameter_choice: Some(ParameterChoice::Int64Param(value)),
        }
    }
}

impl From<String> for InferParameter {
    fn from(value: String) -> Self {
        Self {
            parameter_choice: Some(ParameterChoice::StringParam(value)),
        }
    }
}

impl From<&str> for InferParameter {
    fn from(value: &str) -> Self {
        Self::from(value.to_owned())
    }
}

/// Returns the value of a string parameter, or `None` if it is absent.
///
/// # Errors
/// If the parameter has another type.
pub fn string<'p>(
    parameters: &'p Parameters,
    name: &str,
) -> Result<Option<&'p str>, InvalidMessage> {
    match choice(parameters, name) {
        Absent => Ok(None),
        Present(Some(ParameterChoice::StringParam(value))) => Ok(Some(value)),
        Present(_) => Err(wrong_type(name, "a string")),
    }
}

/// Returns the value of an integer parameter, or `None` if it is absent.
///
/// # Errors
/// If the parameter has another type.
pub fn integer(parameters: &Parameters, name: &str) -> Result<Option<i64>, InvalidMessage> {
    match choice(parameters, name) {
        Absent => Ok(None),
        Present(Some(ParameterChoice::Int64Param(value))) => Ok(Some(*value)),
        Present(_) => Err(wrong_type(name, "an integer")),
    }
}

/// Returns the value of a boolean parameter, or `None` if it is absent.
///
/// # Errors
/// If the parameter has another type.
pub fn boolean(parameters: &Parameters, name: &str) -> Result<Option<bool>, InvalidMessage> {
    match choice(parameters, name) {
        Absent => Ok(None),
        Present(Some(ParameterChoice::BoolParam(value))) => Ok(Some(*value)),
        Present(_) => Err(wrong_type(name, "a boolean")),
    }
}

/// A parameter that was looked up. A parameter can be present without a value: then it has a type
/// that this protocol does not have.
enum Found<'p> {
    Absent,
    Present(Option<&'p ParameterChoice>),
}
use Found::{Absent, Present};

fn choice<'p>(parameters: &'p Parameters, name: &str) -> Found<'p> {
    parameters.get(name).map_or(Absent, |parameter| {
        Present(parameter.parameter_choice.as_ref())
    })
}

fn wrong_type(name: &str, expected: &str) -> InvalidMessage {
    InvalidMessage::new(format!("The parameter `{name}` must be {expected}."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_round_trip() {
        let parameters = Parameters::from([
            (String::from("mode"), "beam".into()),
            (String::from("top_k"), 10.into()),
            (String::from("normalize"), true.into()),
        ]);
        assert_eq!(string(&parameters, "mode"), Ok(Some("beam")));
        assert_eq!(integer(&parameters, "top_k"), Ok(Some(10)));
        assert_eq!(boolean(&parameters, "normalize"), Ok(Some(true)));
        assert_eq!(string(&parameters, "seed"), Ok(None));
        assert_eq!(integer(&parameters, "seed"), Ok(None));
        assert_eq!(boolean(&parameters, "seed"), Ok(None));
    }

    #[test]
    fn wrong_type_names_the_parameter() {
        let without_value = InferParameter::default();
        let parameters = Parameters::from([
            (String::from("mode"), 1.into()),
            (String::from("top_k"), "10".into()),
            (String::from("normalize"), without_value),
        ]);
        let errors = [
            string(&parameters, "mode").unwrap_err().to_string(),
            integer(&parameters, "top_k").unwrap_err().to_string(),
            boolean(&parameters, "normalize").unwrap_err().to_string(),
        ];
        assert_eq!(
            errors,
            [
                "The parameter `mode` must be a string.",
                "The parameter `top_k` must be an integer.",
                "The parameter `normalize` must be a boolean.",
            ]
        );
    }
}
