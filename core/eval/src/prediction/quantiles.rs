//! Predicted quantiles: a number for each of the suite's levels.

use std::borrow::Cow;

use super::value::NUMBER_MAX;
use crate::error::quoted;
use crate::quantile_levels::{LEVELS_MAX, QuantileLevels};

/// The numbers of one prediction, by ascending level.
pub(crate) struct Quantiles {
    numbers: [f64; LEVELS_MAX],
    n: usize,
}

impl Quantiles {
    /// Reads the numbers from an object of level → number in any order. The error is a field error's
    /// `reason` and message: each level must be there, once, and no other one.
    pub(crate) fn read(
        levels: &QuantileLevels,
        object: &[(Cow<'_, str>, f64)],
    ) -> Result<Self, (&'static str, String)> {
        let n = levels.len();
        let mut numbers = [0.0; LEVELS_MAX];
        // Most predictions have the levels in the order of the suite.
        let mut pairs = levels.names().zip(object);
        if object.len() == n && pairs.all(|(name, (written, _))| name == written) {
            for (number, (_, predicted)) in numbers.iter_mut().zip(object) {
                *number = *predicted;
            }
            return Ok(Self { numbers, n });
        }
        let mut is_given = [false; LEVELS_MAX];
        for (written, number) in object {
            let Some(place) = levels.place(written) else {
                let message = format!(
                    "{} is not a level of the suite; its levels are {levels}",
                    quoted(written)
                );
                return Err(("unknown_field", message));
            };
            if is_given[place] {
                return Err(("duplicate", format!("{} is given twice", quoted(written))));
            }
            is_given[place] = true;
            numbers[place] = *number;
        }
        match is_given[..n].iter().position(|is_given| !is_given) {
            Some(place) => {
                let message = format!("the level {} is missing", levels.name(place));
                Err(("required", message))
            }
            None => Ok(Self { numbers, n }),
        }
    }

    /// Returns the numbers.
    pub(crate) fn numbers(&self) -> &[f64] {
        &self.numbers[..self.n]
    }
}

/// Checks predicted quantiles: [`Quantiles::read`] accepts them, each number is at most [`NUMBER_MAX`]
/// in absolute value, and none is below that at a lower level.
pub(super) fn check_quantiles(
    levels: &QuantileLevels,
    object: &[(Cow<'_, str>, f64)],
) -> Result<(), (&'static str, String)> {
    let quantiles = Quantiles::read(levels, object)?;
    let numbers = quantiles.numbers();
    if let Some(place) = numbers.iter().position(|number| number.abs() > NUMBER_MAX) {
        let message = format!(
            "the value at {} must be from -{NUMBER_MAX:e} to {NUMBER_MAX:e}",
            levels.name(place)
        );
        return Err(("range", message));
    }
    match numbers.windows(2).position(|pair| pair[1] < pair[0]) {
        Some(place) => {
            let message = format!(
                "the value at {} is below that at {}",
                levels.name(place + 1),
                levels.name(place)
            );
            Err(("range", message))
        }
        None => Ok(()),
    }
}
