//! Hidden answers: how they are written in a suite, and which ids they make right.

use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

use crate::Metric;

/// The answer to one item.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// One right answer.
    Label(String),
    /// Several right answers, equally good.
    Set(Vec<String>),
    /// Answers with their gains, each from 0 to 1e100, one of them above 0.
    Gains(Vec<(String, f64)>),
}

/// Far above any use, and far enough below the largest float that no sum of gains becomes infinite.
const MAX_GAIN: f64 = 1e100;

impl Answer {
    /// Reads an answer from its JSON text: a string, a non-empty array of distinct strings, or an object of
    /// string → gain. The error says what is wrong, for the operator who wrote the suite.
    pub fn parse(json: &str, metric: &Metric) -> Result<Self, String> {
        // All of today's metrics take all of these answers; one that does not will not compile here.
        let (Metric::Accuracy | Metric::HitRate(_) | Metric::Recall(_) | Metric::Ndcg(_) | Metric::Mrr(_)) = metric;
        let json = json.trim_ascii_start();
        let answer = match json.as_bytes().first() {
            Some(b'"') => Self::Label(read(json, "the answer is not a valid JSON string")?),
            Some(b'[') => Self::Set(read(json, "an answer that is an array may hold strings only")?),
            Some(b'{') => Self::Gains(read::<Gains>(json, "an answer that is an object must give each id a number as its gain")?.0),
            _ => return Err(format!("the metric {metric} takes a string, an array of strings or an object of id → gain as answer")),
        };
        answer.sound()?;
        Ok(answer)
    }

    fn sound(&self) -> Result<(), String> {
        let ids: Vec<&str> = match self {
            Self::Label(label) => vec![label],
            Self::Set(ids) => ids.iter().map(String::as_str).collect(),
            Self::Gains(gains) => gains.iter().map(|(id, _)| id.as_str()).collect(),
        };
        if let Self::Gains(gains) = self {
            if let Some((id, gain)) = gains.iter().find(|(_, gain)| !(0.0..=MAX_GAIN).contains(gain)) {
                return Err(format!("the gain of {id:?} is {gain:e}, but a gain is from 0 to {MAX_GAIN:e}"));
            }
            if gains.iter().all(|(_, gain)| *gain == 0.0) {
                return Err(String::from("at least one gain must be above 0"));
            }
        }
        if ids.is_empty() {
            return Err(String::from("an answer must name at least one id"));
        }
        if let Some(id) = ids.iter().find(|id| id.contains('\0')) {
            return Err(format!("{id:?} has a NUL character, which no prediction may have"));
        }
        let mut seen = HashSet::new();
        match ids.iter().find(|id| !seen.insert(**id)) {
            Some(id) => Err(format!("{id:?} is given twice")),
            None => Ok(()),
        }
    }

    /// The relevant ids with their gains, in the order in which they are written: those with a gain above 0,
    /// and in a string or an array each with a gain of 1.
    pub fn relevant(&self) -> Vec<(&str, f64)> {
        match self {
            Self::Label(label) => vec![(label, 1.0)],
            Self::Set(ids) => ids.iter().map(|id| (id.as_str(), 1.0)).collect(),
            Self::Gains(gains) => gains.iter().filter(|(_, gain)| *gain > 0.0).map(|(id, gain)| (id.as_str(), *gain)).collect(),
        }
    }
}

/// The parser's own words would name a place within the answer, where the operator looks for one in the file.
fn read<'a, T: Deserialize<'a>>(json: &'a str, fault: &str) -> Result<T, String> {
    serde_json::from_str(json).map_err(|_| String::from(fault))
}

/// The entries of an object as they are written: a map would swallow an id that is given twice.
struct Gains(Vec<(String, f64)>);

impl<'de> Deserialize<'de> for Gains {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;

        impl<'de> Visitor<'de> for Entries {
            type Value = Gains;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of gains")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Gains, A::Error> {
                let mut gains = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    gains.push(entry);
                }
                Ok(Gains(gains))
            }
        }

        deserializer.deserialize_map(Entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(json: &str) -> Result<Answer, String> {
        Answer::parse(json, &Metric::Accuracy)
    }

    #[test]
    fn the_three_forms_are_read() {
        assert_eq!(parse(" \"a\\u00e4\" "), Ok(Answer::Label(String::from("aä"))));
        assert_eq!(parse("[\"b\", \"a\"]"), Ok(Answer::Set(vec![String::from("b"), String::from("a")])));
        let gains = parse("{\"a\": 0, \"b\": 2, \"c\": 0.5}").unwrap();
        assert_eq!(gains.relevant(), [("b", 2.0), ("c", 0.5)]);
    }

    #[test]
    fn what_no_metric_takes_is_refused_with_a_reason() {
        let cases = [
            ("1", "the metric accuracy takes"),
            ("null", "the metric accuracy takes"),
            ("", "the metric accuracy takes"),
            ("\"a\" 1", "not a valid JSON string"),
            ("[]", "at least one id"),
            ("{}", "at least one gain"),
            ("[1]", "strings only"),
            ("[\"a\", \"a\"]", "\"a\" is given twice"),
            ("{\"a\": 1, \"a\": 1}", "\"a\" is given twice"),
            ("{\"a\": 0}", "above 0"),
            ("{\"a\": -1}", "the gain of \"a\" is -1"),
            ("{\"a\": 1e101}", "from 0 to 1e100"),
            ("{\"a\": \"1\"}", "a number as its gain"),
            ("{\"a\": 1e999}", "a number as its gain"),
            ("\"a\\u0000\"", "NUL"),
        ];
        for (json, reason) in cases {
            let fault = parse(json).unwrap_err();
            assert!(fault.contains(reason), "{json}: {fault}");
        }
    }
}
