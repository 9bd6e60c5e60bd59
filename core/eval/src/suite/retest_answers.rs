//! An item's retest answers.

use serde_json::value::RawValue;

use super::answers::Answer;
use crate::metric::{Family, Metric, Retest};
use crate::prediction::{PredictionRules, Value};
use crate::score_content::without_value;

/// The field of a line with retest answers.
pub(super) const RETEST_ANSWERS: &str = "answers";

/// The most retest answers of an item.
const ANSWERS_MAX: usize = 100;

/// An item's retest answers, each in the form of a prediction.
pub(crate) struct RetestAnswers<'a>(Vec<Answer<'a>>);

impl<'a> RetestAnswers<'a> {
    /// Reads the answers from a JSON array. The error message is for the operator who wrote the suite.
    pub(crate) fn parse(json: &'a str, metric: Metric) -> Result<Self, String> {
        let answers: Vec<&RawValue> = serde_json::from_str(json)
            .map_err(|_| format!("{RETEST_ANSWERS} must be an array of answers"))?;
        if !(1..=ANSWERS_MAX).contains(&answers.len()) {
            return Err(format!(
                "{RETEST_ANSWERS} has {} answers; an item has 1 to {ANSWERS_MAX}, or no line",
                answers.len()
            ));
        }
        let parsed = answers.into_iter().enumerate().map(|(at, json)| {
            let parsed = parse_answer(json.get(), metric);
            parsed.map_err(|reason| format!("{RETEST_ANSWERS}[{at}]: {reason}"))
        });
        parsed.collect::<Result<_, _>>().map(Self)
    }

    /// Returns the number of answers: at least one.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the answers as predicted values.
    pub(crate) fn values(&self) -> impl Iterator<Item = Value<'_, 'a>> {
        self.0.iter().map(value)
    }
}

fn value<'r, 'a>(answer: &'r Answer<'a>) -> Value<'r, 'a> {
    match answer {
        Answer::Label(label) => Value::Label(label),
        Answer::Set(ids) => Value::Ranking(ids),
        Answer::Gains(shares) | Answer::Shares(shares) => Value::Probabilities(shares),
        Answer::Number(number) => Value::Number(*number),
    }
}

fn parse_answer(json: &str, metric: Metric) -> Result<Answer<'_>, String> {
    let answer = Answer::read(json)?;
    if metric.family() == Family::Probabilities && matches!(answer, Answer::Label(_)) {
        if metric.retest() == Retest::PredictionOrLabel {
            answer.check_content()?;
            return Ok(answer);
        }
        return Err(format!(
            "one label is no forecast, so {metric} would be as bad as possible; give an object of label → share"
        ));
    }
    // A suite with quantiles has no retest.
    let rules = PredictionRules::checked(metric, None);
    rules
        .check(value(&answer))
        .map_err(|(reason, message)| match reason {
            // This one names the accepted forms only.
            "type" => message,
            reason => without_value(reason).to_owned(),
        })?;
    answer.check_content()?;
    Ok(answer)
}
