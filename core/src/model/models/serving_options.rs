//! The serving operations' options as callers send them, and their validation.

use assay_eval::FieldError;

use crate::model::serving::{
    CONTINUATION_EVENTS, CONTINUATIONS, EmbedOptions, EncodingFormat, GenerateMode,
    GenerateOptions, HistoryOptions, OnLong, OnUnknown, Pooling, PredictOptions, TEMPERATURE,
    TOP_K,
};
use crate::model::validation;

/// The options that all operations have, not validated yet.
#[derive(Debug, Clone, Default)]
pub struct HistoryFields {
    /// Long-sequence handling.
    pub on_long: Option<String>,
    /// Unknown-item handling.
    pub on_unknown: Option<String>,
}

/// The `predict` options, not validated yet.
#[derive(Debug, Clone, Default)]
pub struct PredictFields {
    /// The number of items to return.
    pub top_k: Option<i64>,
    /// Leaves out items of the history.
    pub exclude_seen: Option<bool>,
}

/// The `generate` options, not validated yet.
#[derive(Debug, Clone, Default)]
pub struct GenerateFields {
    /// Events per continuation.
    pub n_events: Option<i64>,
    /// Continuations per sequence.
    pub n_continuations: Option<i64>,
    /// `beam` or `sample`.
    pub mode: Option<String>,
    /// The temperature of `sample`.
    pub temperature: Option<f64>,
    /// `sample`'s seed, in decimal.
    pub seed: Option<String>,
    /// Leaves out items in the history and the continuation.
    pub exclude_seen: Option<bool>,
}

/// The `embed` options, not validated yet.
#[derive(Debug, Clone, Default)]
pub struct EmbedFields {
    /// `last` or `mean`.
    pub pooling: Option<String>,
    /// Scales vectors to length 1.
    pub normalize: Option<bool>,
    /// `float` or `base64`.
    pub encoding_format: Option<String>,
}

impl HistoryFields {
    /// Returns the options, and adds an error for each invalid one.
    pub fn check(&self, errors: &mut Vec<FieldError>) -> HistoryOptions {
        let Self {
            on_long,
            on_unknown,
        } = self;
        HistoryOptions {
            on_long: one_of(errors, "on_long", on_long.as_deref(), OnLong::Truncate),
            on_unknown: one_of(errors, "on_unknown", on_unknown.as_deref(), OnUnknown::Skip),
        }
    }
}

impl PredictFields {
    /// Returns the options, and adds an error for each invalid one.
    pub fn check(self, history: &HistoryFields, errors: &mut Vec<FieldError>) -> PredictOptions {
        let Self {
            top_k,
            exclude_seen,
        } = self;
        PredictOptions {
            history: history.check(errors),
            top_k: top_k.map(|top_k| integer(errors, "top_k", Some(top_k), TOP_K)),
            exclude_seen: exclude_seen.unwrap_or(false),
        }
    }
}

impl GenerateFields {
    /// Returns the options, and adds an error for each invalid one. `drawn` is the seed for a
    /// request that has none.
    pub fn check(
        self,
        history: &HistoryFields,
        drawn: u64,
        errors: &mut Vec<FieldError>,
    ) -> GenerateOptions {
        let Self {
            n_events,
            n_continuations,
            mode,
            temperature,
            seed,
            exclude_seen,
        } = self;
        let (least, most) = TEMPERATURE;
        if temperature.is_some_and(|temperature| !(least..=most).contains(&temperature)) {
            errors.push(FieldError::new(
                "temperature",
                "range",
                format!("must be a number from {least} to {most}"),
            ));
        }
        let seed = seed.map_or(Ok(drawn), |text| text.parse());
        if seed.is_err() {
            errors.push(FieldError::new(
                "seed",
                "range",
                "must be a string with an unsigned 64-bit integer",
            ));
        }
        GenerateOptions {
            history: history.check(errors),
            n_events: integer(errors, "n_events", n_events, CONTINUATION_EVENTS),
            n_continuations: integer(errors, "n_continuations", n_continuations, CONTINUATIONS),
            mode: one_of(errors, "mode", mode.as_deref(), GenerateMode::Beam),
            temperature: temperature.unwrap_or(1.0),
            seed: seed.unwrap_or(drawn),
            exclude_seen: exclude_seen.unwrap_or(false),
        }
    }
}

impl EmbedFields {
    /// Returns the options and the vectors' encoding, and adds an error for each invalid one.
    pub fn check(
        self,
        history: &HistoryFields,
        errors: &mut Vec<FieldError>,
    ) -> (EmbedOptions, EncodingFormat) {
        let Self {
            pooling,
            normalize,
            encoding_format,
        } = self;
        let options = EmbedOptions {
            history: history.check(errors),
            pooling: one_of(errors, "pooling", pooling.as_deref(), Pooling::Last),
            normalize: normalize.unwrap_or(true),
        };
        let encoding = one_of(
            errors,
            "encoding_format",
            encoding_format.as_deref(),
            EncodingFormat::Float,
        );
        (options, encoding)
    }
}

/// Returns a value in a closed set, or `default` if it is absent or not valid.
fn one_of<T: std::str::FromStr<Err = String>>(
    errors: &mut Vec<FieldError>,
    field: &str,
    value: Option<&str>,
    default: T,
) -> T {
    let Some(value) = value else { return default };
    validation::one_of(field, value).unwrap_or_else(|error| {
        errors.push(error);
        default
    })
}

/// Returns an integer from 1 to the maximum, or the default if it is absent or not valid.
fn integer(
    errors: &mut Vec<FieldError>,
    field: &'static str,
    value: Option<i64>,
    (default, max): (u32, u32),
) -> u32 {
    let Some(value) = value else { return default };
    let valid = u32::try_from(value)
        .ok()
        .filter(|value| (1..=max).contains(value));
    valid.unwrap_or_else(|| {
        errors.push(FieldError::new(
            field,
            "range",
            format!("must be an integer from 1 to {max}"),
        ));
        default
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_options_have_defaults() {
        let (history, mut errors) = (HistoryFields::default(), Vec::new());
        let predict = PredictFields::default().check(&history, &mut errors);
        assert_eq!((predict.top_k, predict.exclude_seen), (None, false));
        let generate = GenerateFields::default().check(&history, 7, &mut errors);
        assert_eq!(
            (generate.n_events, generate.n_continuations, generate.seed),
            (5, 1, 7)
        );
        assert_eq!(generate.mode, GenerateMode::Beam);
        let (embed, encoding) = EmbedFields::default().check(&history, &mut errors);
        assert!(embed.normalize && embed.pooling == Pooling::Last);
        assert_eq!(encoding, EncodingFormat::Float);
        assert_eq!(errors, []);
    }

    #[test]
    fn invalid_options_are_named() {
        let history = HistoryFields {
            on_long: Some("cut".into()),
            on_unknown: Some(String::new()),
        };
        let mut errors = Vec::new();
        let generate = GenerateFields {
            n_events: Some(51),
            n_continuations: Some(0),
            mode: Some("greedy".into()),
            temperature: Some(f64::NAN),
            seed: Some("18446744073709551616".into()),
            exclude_seen: None,
        };
        generate.check(&history, 0, &mut errors);
        PredictFields {
            top_k: Some(-1),
            exclude_seen: None,
        }
        .check(&HistoryFields::default(), &mut errors);
        let fields: Vec<_> = errors.iter().map(|error| error.field.as_str()).collect();
        let expected = [
            "temperature",
            "seed",
            "on_long",
            "on_unknown",
            "n_events",
            "n_continuations",
            "mode",
            "top_k",
        ];
        assert_eq!(fields, expected);
    }
}
