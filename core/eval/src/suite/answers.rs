//! Hidden answers: their JSON form in a suite, and the ids that they make right.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

use crate::metric::{Answers, Metric};
use crate::prediction::{NUMBER_MAX, SUM_TOLERANCE, Written, first_duplicate, written};

/// The most options of an item.
pub(super) const OPTIONS_MAX: usize = 1_000;

/// The answer to one item. Its strings are JSON slices (`'a`) if they have no escapes.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer<'a> {
    /// A single right id or label.
    Label(Cow<'a, str>),
    /// Several right ids, equally good.
    Set(Vec<Cow<'a, str>>),
    /// Ids with their gains: each from 0 to 1e100, at least one above 0.
    Gains(Vec<(Cow<'a, str>, f64)>),
    /// The right number, at most 1e50 in absolute value.
    Number(f64),
    /// The shares of an item's options, in their order. They sum to 1.
    Shares(Vec<(Cow<'a, str>, f64)>),
}

/// The largest gain: far above any practical one, and so small that no sum of gains becomes
/// infinite.
const GAIN_MAX: f64 = 1e100;

/// The most labels of a suite with `auc_ovr`, which stores the probability of each label for each item.
const OVR_LABELS_MAX: usize = 100;

/// The most probabilities that auc_ovr keeps for a job, which take 128 MiB.
const OVR_PROBABILITIES_MAX: usize = 1 << 24;

impl<'a> Answer<'a> {
    /// Reads an answer from JSON: a string, a non-empty array with distinct strings, a string →
    /// gain object, a label → share object, or a number, whichever the metric takes. The error message is
    /// for the suite's publisher, and quotes nothing of the answer.
    pub fn parse(json: &'a str, metric: &Metric) -> Result<Self, String> {
        let answer = match Self::read(json)? {
            Self::Gains(shares) if metric.takes_distributions() => Self::Shares(shares),
            answer => answer,
        };
        answer.check_form(metric)?;
        answer.check_content()?;
        Ok(match answer {
            Self::Shares(shares) => Self::Shares(scaled(shares)?),
            answer => answer,
        })
    }

    /// Reads an answer in any form from JSON.
    pub(super) fn read(json: &'a str) -> Result<Self, String> {
        let json = json.trim_ascii();
        written(json).map_or_else(|| Self::parse_slow_path(json), |written| Ok(written.into()))
    }

    /// Reads an answer that the fast path cannot read, with an error message if it is invalid.
    fn parse_slow_path(json: &str) -> Result<Self, String> {
        Ok(match json.as_bytes().first() {
            Some(b'"') => {
                Self::Label(read::<String>(json, "the answer is not a valid JSON string")?.into())
            }
            Some(b'[') => {
                let ids: Vec<String> =
                    read(json, "an answer that is an array may hold strings only")?;
                Self::Set(ids.into_iter().map(Cow::Owned).collect())
            }
            Some(b'{') => Self::Gains(
                read::<Gains>(
                    json,
                    "an answer that is an object must give each id a number as its gain or share",
                )?
                .0,
            ),
            _ => Self::Number(read(
                json,
                "an answer is a string, an array of strings, an object of id → gain, or a number",
            )?),
        })
    }

    /// Checks that the metric takes an answer in this form.
    fn check_form(&self, metric: &Metric) -> Result<(), String> {
        let (is_accepted, expected) = match metric.answers() {
            Answers::Ids => (
                !matches!(self, Self::Number(_)),
                "a string, an array of strings or an object of id → gain",
            ),
            Answers::Labels => (
                matches!(self, Self::Label(_) | Self::Set(_)),
                "a string or an array of strings",
            ),
            Answers::Class => (
                matches!(self, Self::Label(_)),
                "a string: each item is of one class",
            ),
            Answers::Number => (matches!(self, Self::Number(_)), "a number"),
            Answers::LabelOrShares | Answers::Distribution => (
                matches!(self, Self::Label(_) | Self::Shares(_)),
                "a string, or an object of label → share,",
            ),
            Answers::Label => (
                matches!(self, Self::Label(_)),
                "a string: the one right label",
            ),
        };
        if is_accepted {
            Ok(())
        } else {
            Err(format!("the metric {metric} takes {expected} as answer"))
        }
    }

    /// Checks number and gain ranges, and that ids are distinct and have no NUL.
    pub(super) fn check_content(&self) -> Result<(), String> {
        let ids: Vec<&str> = match self {
            Self::Label(label) => return check_no_nul(label),
            Self::Number(number) if number.abs() <= NUMBER_MAX => return Ok(()),
            Self::Number(_) => {
                return Err(format!(
                    "a number is from -{NUMBER_MAX:e} to {NUMBER_MAX:e}"
                ));
            }
            Self::Set(ids) => ids.iter().map(AsRef::as_ref).collect(),
            Self::Gains(gains) | Self::Shares(gains) => {
                gains.iter().map(|(id, _)| id.as_ref()).collect()
            }
        };
        if let Self::Shares(shares) = self {
            check_shares(shares)?;
        }
        if let Self::Gains(gains) = self {
            let is_invalid = |(_, gain): &(Cow<'_, str>, f64)| !(0.0..=GAIN_MAX).contains(gain);
            if gains.iter().any(is_invalid) {
                return Err(format!("a gain must be from 0 to {GAIN_MAX:e}"));
            }
            if gains.iter().all(|(_, gain)| *gain == 0.0) {
                return Err(String::from("at least one gain must be above 0"));
            }
        }
        if ids.is_empty() {
            return Err(String::from("an answer must name at least one id"));
        }
        ids.iter().try_for_each(|id| check_no_nul(id))?;
        first_duplicate(ids.iter().copied())
            .map_or(Ok(()), |_| Err("an id or label is given twice".into()))
    }

    /// Returns the ids with a gain above 0, in JSON order. A string's or an array's ids have gain
    /// 1. A number has none. The gain of an option is its share.
    pub fn relevant(&self) -> Vec<(&str, f64)> {
        match self {
            Self::Label(label) => vec![(label, 1.0)],
            Self::Set(ids) => ids.iter().map(|id| (id.as_ref(), 1.0)).collect(),
            Self::Gains(gains) | Self::Shares(gains) => gains
                .iter()
                .filter(|(_, gain)| *gain > 0.0)
                .map(|(id, gain)| (id.as_ref(), *gain))
                .collect(),
            Self::Number(_) => Vec::new(),
        }
    }
}

/// Checks the number of options, and that each share is from 0 to 1.
fn check_shares(shares: &[(Cow<'_, str>, f64)]) -> Result<(), String> {
    if shares.len() < 2 {
        return Err(
            "an answer that is an object needs the shares of two labels or more; write a single label as a string"
                .into(),
        );
    }
    if shares.len() > OPTIONS_MAX {
        return Err(format!(
            "the answer has {} labels, but at most {OPTIONS_MAX} are possible",
            shares.len()
        ));
    }
    let is_valid = |(_, share): &(Cow<'_, str>, f64)| (0.0..=1.0).contains(share);
    if shares.iter().all(is_valid) {
        Ok(())
    } else {
        Err("a share must be from 0 to 1".into())
    }
}

/// Returns the shares, scaled to a sum of 1. Fails if their sum is not 1 within 1e-6.
fn scaled(mut shares: Vec<(Cow<'_, str>, f64)>) -> Result<Vec<(Cow<'_, str>, f64)>, String> {
    let sum: f64 = shares.iter().map(|(_, share)| share).sum();
    if (sum - 1.0).abs() > SUM_TOLERANCE {
        return Err("the shares of an answer must sum to 1 (within 1e-6)".into());
    }
    shares.iter_mut().for_each(|(_, share)| *share /= sum);
    Ok(shares)
}

impl<'a> From<Written<'a>> for Answer<'a> {
    fn from(written: Written<'a>) -> Self {
        match written {
            Written::Label(label) => Self::Label(label),
            Written::Ranking(ids) => Self::Set(ids),
            Written::Number(number) => Self::Number(number),
            Written::Weights(weights) => Self::Gains(weights),
        }
    }
}

fn check_no_nul(id: &str) -> Result<(), String> {
    if id.contains('\0') {
        Err("an id or label has a NUL character, which no prediction may have".into())
    } else {
        Ok(())
    }
}

/// Deserializes JSON, with this error message: the parser's own would give a position within the
/// answer, where the operator needs one within the file.
fn read<'a, T: Deserialize<'a>>(json: &'a str, message: &str) -> Result<T, String> {
    serde_json::from_str(json).map_err(|_| String::from(message))
}

/// An object's entries in JSON order. A map would lose a repeated id.
struct Gains<'a>(Vec<(Cow<'a, str>, f64)>);

impl<'de> Deserialize<'de> for Gains<'_> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;

        impl<'de> Visitor<'de> for Entries {
            type Value = Vec<(Cow<'static, str>, f64)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of gains")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut gains = Vec::new();
                while let Some((id, gain)) = map.next_entry::<String, f64>()? {
                    gains.push((Cow::Owned(id), gain));
                }
                Ok(gains)
            }
        }

        deserializer.deserialize_map(Entries).map(Self)
    }
}

/// The smallest spread of the answers with `r2`. With a smaller one, squared errors up to 1e100 over
/// the variance, and their squares in the standard error, could be infinite.
const R2_SPREAD_MIN: f64 = 1e-20;

/// Checks all answers in a suite together: the metric must be defined, and leaving items out
/// must not pay.
#[derive(Debug)]
pub struct AnswersCheck {
    metric: Metric,
    n: usize,
    /// The first distinct labels of the answers, as many as the metric's check needs.
    labels: Vec<String>,
    least: f64,
    most: f64,
}

/// Checks the memory of auc_ovr, which keeps the probability of each label for each item.
fn check_probabilities(n_items: usize, n_labels: usize) -> Result<(), String> {
    if n_items.saturating_mul(n_labels) <= OVR_PROBABILITIES_MAX {
        return Ok(());
    }
    Err(format!(
        "auc_ovr keeps {n_labels} probabilities for each of {n_items} items, but at most {OVR_PROBABILITIES_MAX} in all; \
         leave out items, or choose another metric"
    ))
}

impl AnswersCheck {
    /// Creates the check, before the first answer.
    pub fn new(metric: Metric) -> Self {
        Self {
            metric,
            n: 0,
            labels: Vec::new(),
            least: f64::INFINITY,
            most: f64::NEG_INFINITY,
        }
    }

    /// Adds the next answer. Fails if it does not fit those before.
    pub fn add(&mut self, answer: &Answer<'_>) -> Result<(), String> {
        self.n += 1;
        match answer {
            Answer::Number(number) => {
                self.least = self.least.min(*number);
                self.most = self.most.max(*number);
            }
            Answer::Label(label)
                if self.metric.needs_different_answers()
                    && !self.labels.iter().any(|seen| seen == label) =>
            {
                match self.labels.as_slice() {
                    [_, _] if self.metric == Metric::Auc => {
                        return Err(
                            "auc is for two labels, and this is a third one; use auc_ovr".into(),
                        );
                    }
                    labels if labels.len() == OVR_LABELS_MAX => {
                        return Err(format!(
                            "auc_ovr is for 3 to {OVR_LABELS_MAX} labels, and this is one more"
                        ));
                    }
                    [_, _] if self.metric != Metric::AucOvr => {}
                    _ => self.labels.push(label.to_string()),
                }
            }
            Answer::Label(_) | Answer::Set(_) | Answer::Gains(_) | Answer::Shares(_) => {}
        }
        Ok(())
    }

    /// Ends the check, after the last answer. Fails if the metric is not defined for these answers.
    pub fn finish(self) -> Result<(), String> {
        match self.metric {
            Metric::Auc if self.labels.len() < 2 => {
                Err("auc is for two labels, and all answers are the same".into())
            }
            Metric::AucOvr if self.labels.len() < 3 => Err(format!(
                "auc_ovr is for 3 to {OVR_LABELS_MAX} labels, and the answers have {}; auc is for two",
                self.labels.len()
            )),
            Metric::AucOvr => check_probabilities(self.n, self.labels.len()),
            metric if metric.has_number_answers() && self.least == self.most => {
                Err(if metric.needs_different_answers() {
                    format!("all answers are the same number: {metric} is not defined")
                } else {
                    format!(
                        "all answers are the same number, and {metric} counts an item without a prediction with the spread of the answers as its error"
                    )
                })
            }
            Metric::R2 if self.most - self.least < R2_SPREAD_MIN => Err(format!(
                "the answers differ by less than {R2_SPREAD_MIN:e}, so r2 could be infinite; multiply all answers by a power of ten"
            )),
            metric
                if metric.needs_different_answers()
                    && !metric.has_number_answers()
                    && self.labels.len() < 2 =>
            {
                Err(format!(
                    "all answers are the same label: {metric} is not defined"
                ))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(json: &str) -> Result<Answer<'_>, String> {
        Answer::parse(json, &Metric::Accuracy)
    }

    #[test]
    fn answers_of_each_form_are_read() {
        assert_eq!(parse(" \"a\\u00e4\" "), Ok(Answer::Label("aä".into())));
        assert_eq!(
            parse("[\"b\", \"a\"]"),
            Ok(Answer::Set(vec!["b".into(), "a".into()]))
        );
        let gains = parse("{\"a\": 0, \"b\": 2, \"c\": 0.5}").unwrap();
        assert_eq!(gains.relevant(), [("b", 2.0), ("c", 0.5)]);
        assert_eq!(
            Answer::parse(" -2.5e1 ", &Metric::Mae),
            Ok(Answer::Number(-25.0))
        );
    }

    #[test]
    fn invalid_answer_is_rejected_with_reason() {
        let cases = [
            ("1", "the metric accuracy takes"),
            ("null", "an answer is a string"),
            ("", "an answer is a string"),
            ("\"a\" 1", "not a valid JSON string"),
            ("[]", "at least one id"),
            ("{}", "at least one gain"),
            ("[1]", "strings only"),
            ("[\"a\", \"a\"]", "is given twice"),
            ("{\"a\": 1, \"a\": 1}", "is given twice"),
            ("{\"a\": 0}", "above 0"),
            ("{\"a\": -1}", "a gain must be from 0 to 1e100"),
            ("{\"a\": 1e101}", "from 0 to 1e100"),
            ("{\"a\": \"1\"}", "a number as its gain"),
            ("{\"a\": 1e999}", "a number as its gain"),
            ("\"a\\u0000\"", "NUL"),
        ];
        for (json, reason) in cases {
            let error = parse(json).unwrap_err();
            assert!(error.contains(reason), "{json}: {error}");
        }
        let many = format!(
            "[{}\"7\"]",
            (0..40).map(|at| format!("\"{at}\",")).collect::<String>()
        );
        assert!(parse(&many).unwrap_err().contains("is given twice"));
        for (metric, json, reason) in [
            (
                "exact_match",
                "{\"a\":1}",
                "takes a string or an array of strings",
            ),
            ("f1_macro", "[\"a\"]", "takes a string: each item"),
            ("rmse", "\"1\"", "takes a number"),
            ("mae", "1e51", "from -1e50 to 1e50"),
            ("mae", "1e999", "or a number"),
            ("auc", "1", "the one right label"),
            ("ece@15", "[\"a\"]", "the one right label"),
        ] {
            let error = Answer::parse(json, &metric.parse().unwrap()).unwrap_err();
            assert!(error.contains(reason), "{metric} {json}: {error}");
        }
    }

    #[test]
    fn answers_with_undefined_metric_are_rejected() {
        let check = |metric: &str, answers: &[&str]| {
            let metric = metric.parse().unwrap();
            let mut all = AnswersCheck::new(metric);
            answers
                .iter()
                .try_for_each(|json| all.add(&Answer::parse(json, &metric).unwrap()))
                .and_then(|()| all.finish())
        };
        assert!(check("auc", &["\"a\"", "\"b\"", "\"a\""]).is_ok());
        assert!(
            check("auc", &["\"a\"", "\"b\"", "\"c\""])
                .unwrap_err()
                .contains("this is a third")
        );
        assert!(
            check("auc", &["\"a\"", "\"a\""])
                .unwrap_err()
                .contains("all answers are the same")
        );
        let labels: Vec<String> = (0..101).map(|at| format!("\"l{at}\"")).collect();
        let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
        let labelled = |n: usize| check("auc_ovr", &labels[..n]);
        assert_eq!((labelled(3), labelled(100)), (Ok(()), Ok(())));
        assert!(labelled(2).unwrap_err().contains("the answers have 2; auc"));
        assert!(labelled(101).unwrap_err().contains("this is one more"));
        assert_eq!(check_probabilities(1 << 20, 16), Ok(()));
        let error = check_probabilities(1 << 20, 17).unwrap_err();
        assert!(
            error.contains("17 probabilities for each of 1048576 items"),
            "{error}"
        );
        for metric in ["mcc", "kappa"] {
            assert!(check(metric, &["\"a\"", "\"b\"", "\"c\""]).is_ok());
            let error = check(metric, &["\"a\"", "\"a\""]).unwrap_err();
            let expected = format!("all answers are the same label: {metric} is not defined");
            assert_eq!(error, expected);
        }
        for metric in ["rmse", "mae", "spearman", "pearson", "kendall", "ccc", "r2"] {
            assert!(check(metric, &["1", "2"]).is_ok());
            assert!(
                check(metric, &["1", "1.0"])
                    .unwrap_err()
                    .contains("all answers are the same number"),
                "{metric}"
            );
        }
        assert!(check("r2", &["1e-20", "0"]).is_ok());
        let error = check("r2", &["9e-21", "0"]).unwrap_err();
        assert!(error.contains("differ by less than 1e-20"), "{error}");
    }
}
