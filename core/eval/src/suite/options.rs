//! The options of a suite's items: the labels of answers that are distributions, and their order.

use std::collections::HashSet;

use serde::{Deserialize as _, Deserializer};

use super::answers::{Answer, OPTIONS_MAX};
use super::bad_suite::shown;
use crate::metric::Metric;

/// The most bytes of all named options together: each response with the suite has them.
const LABELS_BYTES_MAX: usize = 8 * 1024;

/// The most people behind an answer.
const PEOPLE_MAX: u32 = 1_000_000_000;

/// The field of an answer's line that has the number of people behind it.
pub(super) const PEOPLE: &str = "n";

/// Reads the number of people behind an answer.
pub(super) fn people<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    let n = u32::deserialize(deserializer)?;
    if (1..=PEOPLE_MAX).contains(&n) {
        Ok(Some(n))
    } else {
        Err(serde::de::Error::custom("out of range"))
    }
}

/// Reads the number of people behind an answer from decimal digits.
///
/// # Errors
/// Returns the reason for people.
pub fn parse_people(text: &str) -> Result<u32, String> {
    let n = text.parse().ok().filter(|n| (1..=PEOPLE_MAX).contains(n));
    n.ok_or_else(out_of_range)
}

fn out_of_range() -> String {
    format!(
        "{PEOPLE}: must be an integer from 1 to {PEOPLE_MAX}: the number of people behind the answer"
    )
}

/// Returns the reason why a line's number of people is invalid. `None` if it is valid.
pub(super) fn people_error(json: &serde_json::Value) -> Option<String> {
    people(json).err().map(|_| out_of_range())
}

/// Checks that the metric's answers have people behind them.
pub(super) fn check_people(n: Option<u32>, metric: Metric) -> Result<(), String> {
    if n.is_none() || metric.takes_distributions() {
        return Ok(());
    }
    Err(format!(
        "{PEOPLE}: the number of people belongs to an answer that is a distribution, which {metric} does not take; remove the field"
    ))
}

/// Checks the key `labels` of a suite with this metric.
pub(super) fn check_labels(labels: &[String], metric: Metric) -> Result<(), String> {
    if !metric.takes_options() {
        return Err(format!(
            "the options are for kappa_quadratic and the metrics of distributions, such as log_loss or tvd, not for {metric}; remove the key"
        ));
    }
    if !(2..=OPTIONS_MAX).contains(&labels.len()) {
        return Err(format!(
            "{} labels are named; must be 2 to {OPTIONS_MAX}",
            labels.len()
        ));
    }
    if let Some(label) = labels.iter().find(|label| label.contains('\0')) {
        return Err(format!(
            "{} has a NUL character, which no prediction may have",
            shown(label)
        ));
    }
    let n_bytes: usize = labels.iter().map(String::len).sum();
    if n_bytes > LABELS_BYTES_MAX {
        return Err(format!(
            "the labels have {n_bytes} bytes together; at most {LABELS_BYTES_MAX} are possible, so choose shorter names"
        ));
    }
    let mut seen = HashSet::new();
    let repeated = labels.iter().find(|label| !seen.insert(label.as_str()));
    repeated.map_or(Ok(()), |label| {
        Err(format!("{} is named twice", shown(label)))
    })
}

/// Checks that all answers of a suite have options for the metric.
#[derive(Debug)]
pub(super) struct OptionsCheck<'l> {
    metric: Metric,
    /// The named options; empty if the suite names none.
    named: HashSet<&'l str>,
    /// The labels of answers; only if they are the options.
    labels: HashSet<String>,
    has_labels: bool,
}

impl<'l> OptionsCheck<'l> {
    /// Creates the check, before the first answer. `labels` are the options that the suite names, if it
    /// does.
    pub(super) fn new(metric: Metric, labels: &'l [String]) -> Self {
        Self {
            metric,
            named: labels.iter().map(String::as_str).collect(),
            labels: HashSet::new(),
            has_labels: false,
        }
    }

    /// Adds the next answer. Fails if it has a label that is no option.
    pub(super) fn add(&mut self, answer: &Answer<'_>) -> Result<(), String> {
        if !self.metric.takes_options() {
            return Ok(());
        }
        let unknown = |label: &str| !self.named.is_empty() && !self.named.contains(label);
        let is_unknown = match answer {
            Answer::Label(label) => {
                self.has_labels = true;
                if self.metric.compares_distributions()
                    && self.named.is_empty()
                    && !self.labels.contains(label.as_ref())
                {
                    self.labels.insert(label.to_string());
                }
                unknown(label)
            }
            Answer::Shares(shares) => {
                let mut labels = shares.iter().map(|(label, _)| label.as_ref());
                labels.any(unknown)
            }
            Answer::Set(_) | Answer::Gains(_) | Answer::Number(_) => false,
        };
        if is_unknown {
            return Err(
                "a label of the answer is none of the labels in suite.toml; correct it, or add it to labels"
                    .into(),
            );
        }
        if self.labels.len() > OPTIONS_MAX {
            return Err(format!(
                "the answers of the suite have more than {OPTIONS_MAX} labels, which all are options of an item whose answer is one of them; \
                 give each item an object of label → share"
            ));
        }
        Ok(())
    }

    /// Ends the check, after the last answer.
    pub(super) fn finish(self) -> Result<(), String> {
        let Self {
            metric,
            named,
            labels,
            has_labels,
        } = self;
        if !named.is_empty() {
            return Ok(());
        }
        if metric.is_ordinal() && !metric.takes_distributions() {
            return Err(format!(
                "{metric} needs the order of the options; name them in labels in suite.toml, such as \
                 labels = [\"low\", \"medium\", \"high\"]"
            ));
        }
        if metric.is_ordinal() && has_labels {
            return Err(format!(
                "{metric} needs the order of the options; name them in labels in suite.toml, or give each item an object of label → share"
            ));
        }
        if has_labels && metric.compares_distributions() && labels.len() < 2 {
            return Err(format!(
                "all answers that are labels are the same, and {metric} needs two options; name the options in labels in suite.toml"
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use sha2::{Digest as _, Sha256};

    use super::super::SuiteFolder;
    use super::super::commitment::write_answer_line;
    use crate::metric::Metric;
    use crate::offline;
    use crate::suite::{FolderRules, Opening};

    const LABELS: &str = "labels = [\"low\", \"medium\", \"high\"]\n";
    const LOW: &str = "\"low\"";
    const SHARES: &str = "{\"low\":0.25,\"high\":0.75}";

    fn head(metric: &str, keys: &str) -> String {
        format!("suite_id = \"suite:s\"\nversion = \"1\"\nmetric = \"{metric}\"\n{keys}")
    }

    /// Returns the items and the answers of a suite. An answer is JSON, and possibly more fields.
    fn lines(answers: &[&str]) -> (String, String) {
        let lines = answers.iter().enumerate().map(|(at, answer)| {
            (
                format!("{{\"item_id\":\"i{at}\",\"input\":{{}}}}\n"),
                format!("{{\"item_id\":\"i{at}\",\"answer\":{answer}}}\n"),
            )
        });
        lines.unzip()
    }

    fn folder(metric: &str, keys: &str, answers: &[&str]) -> Result<SuiteFolder, String> {
        let (items, answers) = lines(answers);
        let parsed = SuiteFolder::parse(&head(metric, keys), &items, &answers);
        parsed.map_err(|error| error.to_string())
    }

    #[test]
    fn suite_mixes_labels_and_distributions() {
        for metric in [
            "log_loss",
            "brier",
            "kl",
            "tvd",
            "jsd",
            "hellinger",
            "top@3",
        ] {
            let found = folder(metric, "", &[SHARES, LOW, "\"high\""]).unwrap();
            let table = found.open_answers().unwrap();
            assert_eq!((table.n_options(), table.n_labels()), (2, 2), "{metric}");
            assert!(table.has_distributions());
            assert_eq!(found.scorer_min(), 3);
        }
        for metric in ["wasserstein", "rps", "tvd", "log_loss"] {
            let found = folder(metric, LABELS, &[SHARES, LOW]).unwrap();
            let table = found.open_answers().unwrap();
            assert_eq!((table.n_options(), table.n_labels()), (3, 3), "{metric}");
            assert_eq!(found.labels, ["low", "medium", "high"]);
        }
        // Without a distribution, a suite of labels needs no newer worker.
        let old = folder("brier", "", &[LOW, "\"high\""]).unwrap();
        assert_eq!(old.scorer_min(), 1);
        assert_eq!(folder("brier", LABELS, &[LOW]).unwrap().scorer_min(), 3);
        assert_eq!(folder("kl", "", &[LOW, "\"x\""]).unwrap().scorer_min(), 3);
    }

    #[test]
    fn bad_options_are_rejected_with_location() {
        let many: Vec<String> = (0..1001).map(|at| format!("\"l{at}\"")).collect();
        let long_labels = format!(
            "labels = [\"{}\", \"{}\"]\n",
            "x".repeat(4_096),
            "y".repeat(4_097)
        );
        let many_labels = format!("labels = [{}]\n", many.join(","));
        let many_shares = format!("{{{}:0}}", many.join(":0,"));
        let many_answers: Vec<&str> = many.iter().map(String::as_str).collect();
        for (metric, keys, answers, expected) in [
            (
                "tvd",
                "",
                &[SHARES, "{\"a\":0.1,\"b\":0.8}"][..],
                "answers.ndjson:2: answer: the shares of an answer must sum to 1",
            ),
            (
                "tvd",
                "",
                &["{\"a\":-0.25,\"b\":1.25}"],
                "answers.ndjson:1: answer: a share must be from 0 to 1",
            ),
            (
                "tvd",
                "",
                &["{\"a\":1}"],
                "answers.ndjson:1: answer: an answer that is an object needs the shares of two labels or more",
            ),
            (
                "tvd",
                "",
                &["{\"a\":0.5,\"a\":0.5}"],
                "answers.ndjson:1: answer: an id or label is given twice",
            ),
            ("tvd", "", &["{\"a\":1e999,\"b\":0}"], "answers.ndjson:1: "),
            (
                "tvd",
                "",
                &[&many_shares],
                "answers.ndjson:1: answer: the answer has 1001 labels, but at most 1000",
            ),
            (
                "tvd",
                "",
                &many_answers,
                "answers.ndjson:1001: answer: the answers of the suite have more than 1000 labels",
            ),
            (
                "tvd",
                LABELS,
                &[SHARES, "{\"low\":0.5,\"other\":0.5}"],
                "answers.ndjson:2: answer: a label of the answer is none of the labels in suite.toml; correct it",
            ),
            (
                "brier",
                LABELS,
                &[SHARES, "\"other\""],
                "answers.ndjson:2: answer: a label of the answer is none of the labels in suite.toml",
            ),
            (
                "auc",
                "",
                &[SHARES],
                "answers.ndjson:1: answer: the metric auc takes a string: the one right label",
            ),
            (
                "ece@15",
                "",
                &[SHARES],
                "answers.ndjson:1: answer: the metric ece@15 takes a string",
            ),
            (
                "tvd",
                "",
                &["[\"a\",\"b\"]"],
                "answers.ndjson:1: answer: the metric tvd takes a string, or an object of label",
            ),
            (
                "wasserstein",
                "",
                &[SHARES, LOW],
                "answers.ndjson: wasserstein needs the order of the options; name them in labels",
            ),
            (
                "rps",
                "",
                &[LOW, "\"high\""],
                "answers.ndjson: rps needs the order of the options",
            ),
            (
                "jsd",
                "",
                &[LOW, LOW],
                "answers.ndjson: all answers that are labels are the same, and jsd needs two options",
            ),
            (
                "kappa_quadratic",
                "",
                &[LOW, "\"high\""],
                "answers.ndjson: kappa_quadratic needs the order of the options; name them in labels",
            ),
            (
                "kappa_quadratic",
                LABELS,
                &[LOW, "\"other\""],
                "answers.ndjson:2: answer: a label of the answer is none of the labels",
            ),
            (
                "kappa_quadratic",
                LABELS,
                &[LOW, LOW],
                "answers.ndjson: all answers are the same label: kappa_quadratic is not defined",
            ),
            (
                "accuracy",
                LABELS,
                &[LOW],
                "suite.toml:4: labels: the options are for kappa_quadratic and the metrics of",
            ),
            (
                "tvd",
                "labels = [\"a\"]\n",
                &[LOW],
                "suite.toml:4: labels: 1 labels are named; must be 2 to 1000",
            ),
            (
                "tvd",
                &many_labels,
                &[LOW],
                "suite.toml:4: labels: 1001 labels are named",
            ),
            (
                "tvd",
                &long_labels,
                &[LOW],
                "suite.toml:4: labels: the labels have 8193 bytes together; at most 8192 are possible",
            ),
            (
                "tvd",
                "labels = [\"a\", \"b\", \"a\"]\n",
                &[LOW],
                "suite.toml:4: labels: \"a\" is named twice",
            ),
            (
                "tvd",
                "labels = [\"a\", \"\\u0000\"]\n",
                &[LOW],
                "suite.toml:4: labels: \"\\0\" has a NUL character",
            ),
            (
                "tvd",
                "",
                &[SHARES, "{\"a\":0.5,\"b\":0.5},\"n\":0"],
                "answers.ndjson:2: n: must be an integer from 1 to 1000000000",
            ),
            (
                "tvd",
                "",
                &["{\"a\":0.5,\"b\":0.5},\"n\":1000000001"],
                "answers.ndjson:1: n: must be an integer from 1 to 1000000000",
            ),
            (
                "tvd",
                "",
                &["{\"a\":0.5,\"b\":0.5},\"n\":1.5"],
                "answers.ndjson:1: n: must be an integer",
            ),
            (
                "tvd",
                "",
                &["{\"a\":0.5,\"b\":0.5},\"n\":null"],
                "answers.ndjson:1: n: must be an integer",
            ),
            (
                "accuracy",
                "",
                &["\"a\",\"n\":7"],
                "answers.ndjson:1: n: the number of people belongs to an answer that is a distribution",
            ),
            (
                "tvd",
                "",
                &["{\"a\":0.5,\"b\":0.5},\"people\":7"],
                "answers.ndjson:1: a line has item_id and answer, and may have n and groups; remove all other fields",
            ),
            (
                "kl",
                "release = \"ladder(0.01)\"\n",
                &[SHARES],
                "suite.toml:4: clip: a ladder needs bounds of the loss of one item, which kl does not have",
            ),
        ] {
            let error = folder(metric, keys, answers).err().unwrap();
            assert!(error.starts_with(expected), "{error} instead of {expected}");
        }
        let items = "{\"item_id\":\"i0\",\"input\":{},\"n\":7}\n";
        let (_, answers) = lines(&[SHARES]);
        let error = SuiteFolder::parse(&head("tvd", ""), items, &answers).err();
        let error = error.unwrap().to_string();
        assert!(
            error.starts_with("items.ndjson:1: \"n\" is no field"),
            "{error}"
        );
    }

    #[test]
    fn shares_are_scaled_to_one() {
        let answer = "{\"b\":0.3333333,\"a\":0.6666664}";
        let parsed = crate::Answer::parse(answer, &Metric::Tvd).unwrap();
        let crate::Answer::Shares(shares) = parsed else {
            panic!("{parsed:?}");
        };
        assert_eq!(shares[0].0, "b");
        assert!((shares[0].1 + shares[1].1 - 1.0).abs() <= 1e-16);
        let ratio = shares[1].1 / shares[0].1;
        assert!((ratio - 0.666_666_4 / 0.333_333_3).abs() <= 1e-15);
        let error = crate::Answer::parse("{\"b\":0.3333,\"a\":0.6666}", &Metric::Tvd);
        assert!(error.unwrap_err().contains("must sum to 1"));
    }

    #[test]
    fn people_are_in_digest_and_commitment() {
        let with = |n: &str| {
            let answer = format!("{SHARES}{n}");
            folder("tvd", "", &[&answer, LOW, "\"high\""]).unwrap()
        };
        let [without, seven, eight] = ["", ",\"n\":7", ",\"n\":8"].map(with);
        assert_eq!((without.items[0].n, seven.items[0].n), (None, Some(7)));
        let digests = [&without, &seven, &eight].map(|folder| folder.content_sha256);
        assert!(digests[0] != digests[1] && digests[1] != digests[2]);
        let named = folder("tvd", LABELS, &[SHARES, LOW, "\"high\""]).unwrap();
        assert_ne!(named.content_sha256, without.content_sha256);

        let mut line = Vec::new();
        let groups = Some("{\"age\":\"old\"}");
        write_answer_line("i0", SHARES, Some(7), groups, &mut line);
        assert_eq!(
            String::from_utf8(line).unwrap(),
            format!(
                "{{\"item_id\":\"i0\",\"answer\":{SHARES},\"n\":7,\"groups\":{{\"age\":\"old\"}}}}\n"
            )
        );
        let sha256 = |text: String| -> [u8; 32] { Sha256::digest(text).into() };
        let (items, answers) = lines(&[&format!("{SHARES},\"n\":7"), LOW, "\"high\""]);
        let expected = Opening {
            salt: [1; 32],
            items_sha256: sha256(items),
            answers_sha256: sha256(answers),
            seed: None,
            retest_sha256: None,
        };
        assert_eq!(seven.opening([1; 32]).commitment(), expected.commitment());
    }

    #[test]
    fn people_of_all_items_give_a_noise_floor() {
        let with = |metric: &str, keys: &str, people: [&str; 40]| {
            let answers = people.map(|n| format!("{SHARES}{n}"));
            let answers: Vec<&str> = answers.iter().map(String::as_str).collect();
            folder(metric, keys, &answers).unwrap()
        };
        let all = [",\"n\":100"; 40];
        let open = with("tvd", LABELS, all).floor.unwrap();
        // Two options: the mean absolute deviation of a binomial distribution.
        assert!((open.open.value - 0.0345).abs() < 0.001, "{:?}", open.open);
        assert_eq!((open.open.kind, open.open.n), ("sampling", 40));
        assert!(open.sealed.is_none());
        let sealed =
            "release = \"sealed(0.5)\"\nseal_seed = \"s\"\ncloses_at = 2030-01-01T00:00:00Z\n";
        let sealed = with("tvd", sealed, all).floor.unwrap();
        assert_eq!((sealed.open.n, sealed.sealed.unwrap().n), (20, 20));
        let mut some = all;
        some[7] = "";
        assert!(with("tvd", "", some).floor.is_none());
        assert!(with("log_loss", "", all).floor.is_none());
        // All answers are the same, so a constant is better than the floor.
        let warnings = with("brier", LABELS, all).warnings;
        assert!(
            warnings[0].starts_with("n: of the items, the ceiling is"),
            "{warnings:?}"
        );
    }

    #[test]
    fn folder_on_disk_is_scored_with_its_options() {
        let path = std::env::temp_dir().join(format!("assay-options-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        let (items, answers) = lines(&[SHARES, LOW]);
        for (name, text) in [
            ("suite.toml", &head("wasserstein", LABELS)),
            ("items.ndjson", &items),
            ("answers.ndjson", &answers),
        ] {
            std::fs::write(path.join(name), text).unwrap();
        }
        let value = |metric: Option<Metric>| {
            let rules = FolderRules::read(&path, metric).unwrap();
            let table = offline::read_answers_at(&path, &rules).unwrap();
            let predictions = "{\"item_id\":\"i0\",\"prediction\":{\"medium\":1}}\n";
            let (bytes, format) = crate::content::open(predictions.as_bytes(), "p.ndjson").unwrap();
            let report = offline::score(&table, rules.metric, bytes, format).unwrap();
            report.value
        };
        // Half of the scale from either end, and an item without a prediction.
        let found = [None, Some(Metric::Rps), Some(Metric::Tvd)].map(value);
        std::fs::remove_dir_all(&path).unwrap();
        let rps = (0.0625 + 0.5625) / 2.0;
        assert_eq!(found, [0.75, (rps + 1.0) / 2.0, 1.0]);
    }
}
