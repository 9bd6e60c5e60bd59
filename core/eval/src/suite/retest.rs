//! `retest.ndjson`: a second set of human answers, which gives the noise ceiling.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::bad_suite::{BadSuite, BadSuiteCode};
use super::commitment::LinesDigest;
use super::folder_tables::FolderTables;
use super::lines::{
    check_item_id, explain, numbered_lines, read_optional, repeated_id, without_item,
};
use super::retest_answers::RETEST_ANSWERS;
use super::suite_files::SuiteFiles;
use crate::metric::Metric;
use crate::score::{AnswerTable, Ceiling, CeilingBuilder, RetestScores};

/// The file's name.
pub(super) const RETEST: &str = "retest.ndjson";

/// The second set of human answers in a folder.
#[derive(Debug)]
pub struct FolderRetest {
    /// The lines, in file order.
    pub lines: Vec<RetestLine>,
    /// The SHA-256 over the lines as they are published, see [`write_line`](super::write_line).
    pub sha256: [u8; 32],
    /// The ceiling of the open items.
    pub open: Ceiling,
    /// The ceiling of the sealed items; `None` without sealed items.
    pub sealed: Option<Ceiling>,
}

/// An item's retest answers.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetestLine {
    /// The item's id.
    pub item_id: String,
    /// The answers: a JSON array, byte for byte as in the file.
    pub answers: Box<RawValue>,
}

/// Reads the file. `None` if there is none.
pub(crate) fn read_file(files: &dyn SuiteFiles) -> Result<Option<String>, BadSuite> {
    read_optional(files, RETEST)
}

/// Reads the lines of a retest, and scores them for these tables, which have all items together. Each
/// table comes with its name in messages, such as `open `.
///
/// # Errors
/// Returns the first invalid line: one with an unknown or repeated item or an answer that the metric does
/// not take; or the first table with too few items.
pub(crate) fn score_retest(
    text: &str,
    metric: Metric,
    tables: &[(&str, &AnswerTable)],
) -> Result<(Vec<RetestLine>, Vec<RetestScores>), BadSuite> {
    if !metric.takes_retest() {
        let reason = format!("{metric} has no noise ceiling; remove the file");
        return Err(BadSuite::new(RETEST, 0, reason));
    }
    let mut builders: Vec<CeilingBuilder<'_>> = tables
        .iter()
        .map(|(_, table)| CeilingBuilder::new(table, metric))
        .collect();
    let mut lines = Vec::new();
    let mut seen = HashMap::new();
    for (line, json) in numbered_lines(text) {
        let bad =
            |reason: String| BadSuite::new(RETEST, line, reason).with_code(BadSuiteCode::Metric);
        let retest: RetestLine = serde_json::from_str(json)
            .map_err(|error| explain(RETEST, line, json, &error, RETEST_ANSWERS))?;
        let item_id = &retest.item_id;
        check_item_id(RETEST, line, item_id)?;
        if let Some(first) = seen.insert(item_id.clone(), line) {
            return Err(repeated_id(RETEST, line, item_id, first));
        }
        let mut is_known = false;
        for builder in &mut builders {
            is_known |= builder.add(item_id, retest.answers.get()).map_err(bad)?;
        }
        if !is_known {
            return Err(without_item(RETEST, line, item_id));
        }
        lines.push(retest);
    }
    let finished = builders.into_iter().zip(tables);
    let scores = finished.map(|(builder, (name, _))| {
        builder.finish().map_err(|reason| {
            let reason = if name.is_empty() {
                reason
            } else {
                format!("of the {name}items alone: {reason}")
            };
            BadSuite::new(RETEST, 0, reason)
        })
    });
    let scores = scores.collect::<Result<_, _>>()?;
    Ok((lines, scores))
}

/// Reads and scores `retest.ndjson` for the open and the sealed items. Returns the warnings about it too.
pub(super) fn read_folder(
    text: &str,
    metric: Metric,
    tables: &FolderTables,
) -> Result<(FolderRetest, Vec<String>), BadSuite> {
    let FolderTables { open, sealed } = tables;
    let tables: Vec<(&str, &AnswerTable)> = match sealed {
        Some(sealed) => vec![("open ", open), ("sealed ", sealed)],
        None => vec![("", open)],
    };
    let (lines, scores) = score_retest(text, metric, &tables)?;
    let warning = |(scores, (name, _)): (&RetestScores, &(&str, &AnswerTable))| {
        let warning = scores.warning()?;
        Some(format!("retest: of the {name}items, {warning}"))
    };
    let warnings = scores.iter().zip(&tables).filter_map(warning).collect();
    let mut digest = LinesDigest::default();
    for RetestLine { item_id, answers } in &lines {
        digest.add(item_id, RETEST_ANSWERS, answers.get(), None);
    }
    let mut ceilings = scores.iter().map(RetestScores::ceiling);
    let open = ceilings.next();
    let open = open.ok_or_else(|| BadSuite::new(RETEST, 0, "the suite has no open items"))?;
    let retest = FolderRetest {
        lines,
        sha256: digest.finish(),
        open,
        sealed: ceilings.next(),
    };
    Ok((retest, warnings))
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use sha2::{Digest as _, Sha256};

    use super::*;
    use crate::suite::suite_files::in_memory;
    use crate::suite::{FolderRules, ITEMS, SuiteFolder};
    use crate::{content, offline};

    /// The texts of a folder with 200 items of 30 persons, and the retest of the first items.
    struct Texts {
        suite: String,
        items: String,
        answers: String,
        retest: String,
    }

    impl Texts {
        /// Returns a suite with three answers in turn. `answers` is the JSON array of an item's retest,
        /// where `VALUE` stands for the item's answer.
        fn new(keys: &str, values: [&str; 3], answers: &str, n_retested: usize) -> Self {
            let mut texts = Self {
                suite: format!("suite_id = \"suite:s\"\nversion = \"1\"\n{keys}"),
                items: String::new(),
                answers: String::new(),
                retest: String::new(),
            };
            for at in 0..200 {
                let value = values[at % 3];
                let cluster = at % 30;
                _ = writeln!(
                    texts.items,
                    "{{\"item_id\":\"i{at}\",\"input\":{{}},\"groups\":{{\"person\":\"p{cluster}\"}}}}"
                );
                _ = writeln!(
                    texts.answers,
                    "{{\"item_id\":\"i{at}\",\"answer\":{value}}}"
                );
            }
            for at in (0..n_retested).rev() {
                let answers = answers.replace("VALUE", values[at % 3]);
                _ = writeln!(
                    texts.retest,
                    "{{\"item_id\":\"i{at}\",\"answers\":{answers}}}"
                );
            }
            texts
        }

        fn accuracy() -> Self {
            Self::new(
                "metric = \"accuracy\"\n",
                ["\"x\"", "\"y\"", "\"z\""],
                "[VALUE, \"x\"]",
                150,
            )
        }

        fn parse(&self) -> Result<SuiteFolder, String> {
            let retest = [(RETEST, self.retest.as_str())];
            let files = in_memory(&self.suite, &self.items, &self.answers, retest);
            SuiteFolder::parse_files(&files).map_err(|error| error.to_string())
        }

        fn without_retest(&self) -> SuiteFolder {
            SuiteFolder::parse(&self.suite, &self.items, &self.answers).unwrap()
        }
    }

    #[test]
    fn retest_is_in_digest_and_commitment() {
        let texts = Texts::accuracy();
        let folder = texts.parse().unwrap();
        let retest = folder.retest.as_ref().unwrap();
        // Every third item has the answer x, and its second retest answer is right too.
        assert!((retest.open.value - 2.0 / 3.0).abs() < 1e-15);
        assert_eq!((retest.open.n, retest.sealed), (150, None));
        assert_eq!(retest.lines[0].item_id, "i149");
        assert_eq!(retest.lines[0].answers.get(), "[\"z\", \"x\"]");
        assert_eq!(folder.warnings, Vec::<String>::new());
        // The lines are already in their published form.
        let sha256 = |text: &str| -> [u8; 32] { Sha256::digest(text).into() };
        assert_eq!(retest.sha256, sha256(&texts.retest));
        let without = texts.without_retest();
        let [salt, zeros] = [[7; 32], [0; 32]];
        // Inputs, groups and answers have their published form as well.
        let [items, answers] = [sha256(&texts.items), sha256(&texts.answers)];
        assert_eq!(
            without.opening(salt).commitment(),
            <[u8; 32]>::from(Sha256::digest([salt, items, answers].concat()))
        );
        assert_eq!(
            folder.opening(salt).commitment(),
            <[u8; 32]>::from(Sha256::digest(
                [salt, items, answers, zeros, retest.sha256].concat()
            ))
        );
        let mut other = Texts::accuracy();
        other.retest = other.retest.replace("[\"x\", \"x\"]", "[\"x\"]");
        let other = other.parse().unwrap();
        let digests = [&without, &folder, &other].map(|folder| folder.content_sha256);
        assert!(digests[0] != digests[1] && digests[1] != digests[2] && digests[0] != digests[2]);
        // White space outside the answers does not change the published line.
        let mut spaced = Texts::accuracy();
        spaced.retest = format!("\u{feff}\n{}", spaced.retest.replace("\",\"", "\" , \""));
        let spaced = spaced.parse().unwrap();
        assert_eq!(spaced.retest.unwrap().sha256, retest.sha256);
        assert_eq!(spaced.content_sha256, folder.content_sha256);
    }

    #[test]
    fn open_and_sealed_items_have_their_own_ceiling() {
        let keys = "metric = \"accuracy\"\ncluster = \"person\"\nrelease = \"sealed(0.5)\"\nseal_seed = \"s\"\n\
                    closes_at = 2030-01-01T00:00:00Z\n";
        let values = ["\"x\"", "\"y\"", "\"z\""];
        let folder = Texts::new(keys, values, "[VALUE]", 200).parse().unwrap();
        let retest = folder.retest.as_ref().unwrap();
        let sealed = retest.sealed.unwrap();
        let n_sealed = folder.items.iter().filter(|item| item.is_sealed).count();
        assert_eq!(
            (sealed.n, retest.open.n),
            (n_sealed as i64, 200 - n_sealed as i64)
        );
        assert_eq!([sealed.value, retest.open.value], [1.0, 1.0]);
        let error = Texts::new(keys, values, "[VALUE]", 90)
            .parse()
            .err()
            .unwrap();
        assert!(
            error.starts_with("retest.ndjson: of the ") && error.contains("but a ceiling needs 50"),
            "{error}"
        );
    }

    #[test]
    fn ceiling_worse_than_trivial_has_warning() {
        let found = Texts::new(
            "metric = \"brier\"\n",
            ["\"x\"", "\"y\"", "\"z\""],
            "[{\"x\": 1.0}, {\"y\": 1.0}]",
            60,
        );
        let warnings = found.parse().unwrap().warnings;
        assert!(
            warnings[0].starts_with("retest: of the items, the ceiling is 1.3")
                && warnings[0].contains("not better than the best trivial submission"),
            "{warnings:?}"
        );
    }

    #[test]
    fn answers_take_the_form_of_predictions() {
        let accepted = [
            (
                "ndcg@3",
                ["\"x\"", "[\"y\"]", "{\"z\": 2}"],
                "[[\"x\", \"y\"], \"z\"]",
            ),
            (
                "exact_match",
                ["\"x\"", "[\"y\", \"x\"]", "\"z\""],
                "[\"x\"]",
            ),
            (
                "f1_macro",
                ["\"x\"", "\"y\"", "\"z\""],
                "[\"other\", \"y\"]",
            ),
            ("rmse", ["1", "2", "3.5"], "[VALUE, 7, -1e3]"),
            (
                "log_loss",
                ["\"x\"", "\"y\"", "\"z\""],
                "[{\"x\": 0.5, \"y\": 0.5}]",
            ),
        ];
        for (metric, values, answers) in accepted {
            let keys = format!("metric = \"{metric}\"\n");
            let folder = Texts::new(&keys, values, answers, 50).parse();
            assert!(folder.is_ok(), "{metric}: {:?}", folder.err());
        }
        let labels = ["\"x\"", "\"y\"", "\"x\""];
        let rejected = [
            (
                "accuracy",
                labels,
                "[1]",
                "answers[0]: must be a string or an array of strings",
            ),
            (
                "accuracy",
                labels,
                "[\"x\", {\"x\": 1}]",
                "answers[1]: must be a string or an array",
            ),
            (
                "accuracy",
                labels,
                "[[]]",
                "answers[0]: an answer must name at least one id",
            ),
            (
                "accuracy",
                labels,
                "[[\"x\", \"x\"]]",
                "answers[0]: an id or label is given twice",
            ),
            ("accuracy", labels, "[\"x\\u0000\"]", "has a NUL character"),
            (
                "accuracy",
                labels,
                "[null]",
                "answers[0]: an answer is a string",
            ),
            (
                "accuracy",
                labels,
                "\"x\"",
                "answers must be an array of answers",
            ),
            (
                "accuracy",
                labels,
                "{\"x\": 1}",
                "answers must be an array of answers",
            ),
            (
                "accuracy",
                labels,
                "[]",
                "answers has 0 answers; an item has 1 to 100",
            ),
            (
                "f1_micro",
                labels,
                "[[\"x\"]]",
                "answers[0]: must be a string",
            ),
            (
                "mae",
                ["1", "2", "3"],
                "[\"1\"]",
                "answers[0]: must be a number",
            ),
            (
                "mae",
                ["1", "2", "3"],
                "[1e51]",
                "answers[0]: is too long, or has a number out of range",
            ),
            ("mae", ["1", "2", "3"], "[1e999]", "answers[0]: "),
            (
                "brier",
                labels,
                "[\"x\"]",
                "answers[0]: one label is no forecast, so brier",
            ),
            (
                "log_loss",
                labels,
                "[\"x\"]",
                "answers[0]: one label is no forecast, so log_loss",
            ),
            (
                "brier",
                labels,
                "[{\"x\": 0.9}]",
                "answers[0]: is too long, or has a number out of range, or shares",
            ),
            (
                "brier",
                labels,
                "[{\"x\": 1.5, \"y\": -0.5}]",
                "answers[0]: is too long, or has a number out of range",
            ),
            (
                "brier",
                labels,
                "[{\"x\": 0.5, \"x\": 0.5}]",
                "answers[0]: names an id, a label or a level twice",
            ),
        ];
        for (metric, values, answers, reason) in rejected {
            let keys = format!("metric = \"{metric}\"\n");
            let error = Texts::new(&keys, values, answers, 60)
                .parse()
                .err()
                .unwrap();
            assert!(
                error.starts_with("retest.ndjson:1: ") && error.contains(reason),
                "{metric} {answers}: {error}"
            );
        }
        let many = format!("[{}]", vec!["\"x\""; 101].join(","));
        let error = Texts::new("metric = \"accuracy\"\n", labels, &many, 60).parse();
        assert!(error.err().unwrap().contains("answers has 101 answers"));
        let three = ["\"x\"", "\"y\"", "\"z\""];
        for (metric, labels) in [("auc", labels), ("auc_ovr", three), ("ece@15", labels)] {
            let keys = format!("metric = \"{metric}\"\n");
            let error = Texts::new(&keys, labels, "[{\"x\": 1.0}]", 60).parse();
            assert_eq!(
                error.err().unwrap(),
                format!("retest.ndjson: {metric} has no noise ceiling; remove the file")
            );
        }
    }

    #[test]
    fn bad_lines_are_rejected_with_location() {
        let line = |item_id: &str| format!("{{\"item_id\":\"{item_id}\",\"answers\":[\"x\"]}}\n");
        let two = |second: &str| format!("{}{second}", line("i0"));
        let cases = [
            (
                two(&line("none")),
                "retest.ndjson:2: there is no item \"none\" in items.ndjson",
            ),
            (
                two(&format!("\n{}", line("i0"))),
                "retest.ndjson:3: item_id \"i0\" is repeated; it is also in line 1",
            ),
            (two(&line("")), "retest.ndjson:2: item_id must not be empty"),
            (
                two("[1]\n"),
                "retest.ndjson:2: must be an object with item_id and answers",
            ),
            (
                two("{\"item_id\":\"i1\"}\n"),
                "retest.ndjson:2: answers: this field is required",
            ),
            (
                two("{\"item_id\":\"i1\",\"answers\":[\"x\"],\"groups\":{\"person\":\"p1\"}}\n"),
                "retest.ndjson:2: a line has item_id and answers; remove all other fields",
            ),
            (
                two("{\"item_id\":\"i1\",\"item_id\":\"i1\",\"answers\":[\"x\"]}\n"),
                "retest.ndjson:2: a field is given twice",
            ),
            (
                two("{\"item_id\":1,\"answers\":[\"x\"]}\n"),
                "retest.ndjson:2: item_id must be a string",
            ),
            (
                two("{\"item_id\":\"i1\",\"answers\":[NaN]}\n"),
                "retest.ndjson:2: is not valid JSON",
            ),
            (
                String::new(),
                "retest.ndjson: 0 items have retest answers, but a ceiling needs 50",
            ),
        ];
        let mut texts = Texts::accuracy();
        for (retest, reason) in cases {
            texts.retest = retest;
            let error = texts.parse().err().unwrap();
            assert!(error.starts_with(reason), "{error} instead of {reason}");
        }
        let keys = "metric = \"accuracy\"\ncluster = \"person\"\n";
        let values = ["\"x\"", "\"y\"", "\"z\""];
        let mut texts = Texts::new(keys, values, "[VALUE]", 0);
        for at in (0..200).filter(|at| at % 30 < 9) {
            texts.retest += &line(&format!("i{at}"));
        }
        assert_eq!(
            texts.parse().err().unwrap(),
            "retest.ndjson: the items with retest answers are in 9 clusters, but a ceiling needs 10"
        );
    }

    #[test]
    fn offline_report_has_ceiling_and_share() {
        let texts = Texts::accuracy();
        let folder = std::env::temp_dir().join(format!("assay-retest-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for (name, text) in [
            ("suite.toml", &texts.suite),
            (ITEMS, &texts.items),
            ("answers.ndjson", &texts.answers),
            (RETEST, &texts.retest),
        ] {
            std::fs::write(folder.join(name), text).unwrap();
        }
        let predictions: String = (0..200)
            .map(|at| format!("{{\"item_id\":\"i{at}\",\"prediction\":\"x\"}}\n"))
            .collect();
        let report = |metric: Option<Metric>| {
            let rules = FolderRules::read(&folder, metric).unwrap();
            let table = offline::read_answers_at(&folder, &rules).unwrap();
            let (bytes, format) = content::open(predictions.as_bytes(), "p.ndjson").unwrap();
            offline::score(&table, rules.metric, bytes, format).unwrap()
        };
        let own = report(None);
        let other = report(Some(Metric::ExactMatch));
        let read = SuiteFolder::read(&folder).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(own.ceiling, Some(read.retest.unwrap().open));
        let share = own.share_of_ceiling.unwrap();
        assert!(
            (share.value - 67.0 / 200.0 * 1.5).abs() < 1e-12,
            "{share:?}"
        );
        let json = serde_json::to_value(&own).unwrap();
        assert_eq!(json["ceiling"]["kind"], "retest");
        assert_eq!(json["share_of_ceiling"].as_object().unwrap().len(), 3);
        assert_eq!((other.ceiling, other.share_of_ceiling), (None, None));
        let json = serde_json::to_value(&other).unwrap();
        assert_eq!(json.get("ceiling"), None);
    }
}
