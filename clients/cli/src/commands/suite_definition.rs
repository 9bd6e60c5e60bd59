//! The `suite.toml` of a new suite, with comments for its publisher.

use std::fmt::Write as _;

use assay_eval::suite::{BadSuite, SUITE, SuiteFiles, SuiteFolder, derived_seal_seed, shown};
use serde_json::Value;

use super::context::Context;
use crate::arguments::NewSuite;
use crate::failure::{Exit, Failure, Result};
use crate::operations;

/// The place of the handle in the id of a suite whose publisher is not known yet. No organization can have it as its handle, because of the
/// underscore.
const PLACEHOLDER: &str = "your_handle";

/// The longest name after `suite:`, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// Names are suggested that are at least this similar (Jaro), as clap does for arguments.
const SIMILARITY_MIN: f64 = 0.7;

/// The keys of a new suite. `None` is written as a comment with an example, unless noted.
#[derive(Default)]
pub struct NewDefinition {
    pub suite_id: String,
    pub metric: String,
    /// Left out if empty.
    pub labels: Vec<String>,
    /// Left out if empty.
    pub quantiles: Vec<f64>,
    pub title: Option<String>,
    pub description: Option<String>,
    pub release: Option<String>,
    pub max_submissions: Option<i32>,
    pub max_submissions_per_day: Option<i32>,
    /// A time as in TOML.
    pub closes_at: Option<String>,
    pub board: Option<&'static str>,
    /// The name of the table.
    pub file: String,
    pub answer: String,
    pub id: Option<String>,
    pub cluster: Option<String>,
    /// The columns that the comment about `inputs` has as an example.
    pub inputs: Vec<String>,
    /// The columns that are left out. A comment suggests `personal` if empty.
    pub drop: Vec<String>,
    /// The columns that the comment about `drop` suggests.
    pub personal: Vec<String>,
}

/// The lines of a file.
struct Lines(String);

impl Lines {
    /// Adds a key with its value, or a comment with an example.
    fn key(&mut self, key: &str, value: Option<String>, example: &str, comment: &str) {
        let line = match value {
            Some(value) => format!("{key} = {value}"),
            None => format!("# {key} = {example}"),
        };
        let line = match comment {
            "" => line,
            comment => format!("{line:<40} # {comment}"),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "{line}");
    }

    /// Begins a section.
    fn section(&mut self, line: &str) {
        let _ = writeln!(self.0, "\n{line}");
    }
}

impl NewDefinition {
    /// Creates the definition for a table with what the user has chosen. Without a handle, the suite's id has a placeholder. `default_name`
    /// becomes its name unless the user has given one.
    pub fn new(new: NewSuite, handle: Option<&str>, default_name: &str) -> Self {
        let NewSuite {
            metric,
            id,
            name,
            labels,
            quantiles,
        } = new;
        Self {
            suite_id: suite_id(handle, name, default_name),
            metric,
            labels,
            quantiles,
            id,
            ..Self::default()
        }
    }

    /// Returns the text of the file. Each line is a key, a comment or blank, whatever the values are.
    pub fn to_toml(&self) -> String {
        let texts = |texts: &[String], example: &str| match texts {
            [] => example.to_owned(),
            texts => list(texts),
        };
        let mut toml = Lines(String::from(
            "# A suite for Assay. Check this folder with: assay suite check DIR\n\
             # Then publish it with: assay suite publish DIR\n\n",
        ));
        let required = |text: &str| Some(quoted(text));
        let optional = |text: &Option<String>| text.as_deref().map(quoted);
        let number = |number: Option<i32>| number.map(|number| number.to_string());
        toml.key(
            "suite_id",
            required(&self.suite_id),
            "",
            "suite:<handle>.<name>; it never changes",
        );
        let comment = "a published version never changes; corrections are a new one";
        toml.key("version", required("1"), "", comment);
        toml.key("metric", required(&self.metric), "", "");
        if !self.labels.is_empty() {
            let comment = "the options, in their order";
            toml.key("labels", Some(list(&self.labels)), "", comment);
        }
        if !self.quantiles.is_empty() {
            let levels: Vec<String> = self.quantiles.iter().map(f64::to_string).collect();
            let levels = format!("[{}]", levels.join(", "));
            toml.key("quantiles", Some(levels), "", "the predicted levels");
        }
        toml.section("# These keys can be changed after the publication. Remove a # to set one.");
        toml.key(
            "title",
            optional(&self.title),
            "\"Votes of 1,000 persons\"",
            "up to 100 characters",
        );
        toml.key(
            "description",
            optional(&self.description),
            "\"What the items are.\"",
            "plain text, up to 4,000 characters",
        );
        toml.key(
            "license",
            None,
            "\"CC-BY-4.0\"",
            "an SPDX expression, or an https URL",
        );
        let example = "\"@misc{votes, title={Votes}, year={2026}}\"";
        toml.key("citation", None, example, "BibTeX");
        let example = "[{label = \"Paper\", url = \"https://acme.example/votes\"}]";
        toml.key("links", None, example, "");
        toml.key(
            "tags",
            None,
            "[\"votes\", \"choice\"]",
            "up to 10, of a-z, 0-9 and -",
        );
        toml.key("contact", None, "\"votes@acme.example\"", "");
        toml.key(
            "visibility",
            None,
            "\"private\"",
            "private, listed or public: who sees the suite",
        );
        toml.key(
            "access",
            None,
            "\"granted\"",
            "everyone, verified_domain or granted: who may submit",
        );
        toml.section("# How much scores disclose. assay suite audit DIR shows what attackers learn, and recommends a policy.");
        toml.key(
            "release",
            optional(&self.release),
            "\"ladder(0.1)\"",
            "exact (without the key), ladder(0.1) or sealed(0.5)",
        );
        toml.key(
            "max_submissions",
            number(self.max_submissions),
            "16",
            "of an organization, for good",
        );
        toml.key(
            "max_submissions_per_day",
            number(self.max_submissions_per_day),
            "4",
            "of an organization",
        );
        toml.key(
            "closes_at",
            self.closes_at.clone(),
            "2030-01-31T12:00:00Z",
            "for sealed items or a board; without quotes",
        );
        toml.key(
            "board",
            self.board.map(quoted),
            "\"at_close\"",
            "live or at_close",
        );
        toml.section("[data]");
        toml.key("file", required(&self.file), "", "");
        toml.key("answer", required(&self.answer), "", "hidden");
        toml.key(
            "id",
            optional(&self.id),
            "\"row_id\"",
            "without it, the items are row-1, row-2 and so on",
        );
        let example = texts(&self.inputs, "[\"question\"]");
        toml.key("inputs", None, &example, "without it, all other columns");
        let example = texts(&self.personal, "[\"email\"]");
        let drop = (!self.drop.is_empty()).then(|| list(&self.drop));
        toml.key("drop", drop, &example, "columns that nobody sees");
        toml.key(
            "cluster",
            optional(&self.cluster),
            "\"person\"",
            "items with one value depend on each other",
        );
        toml.0
    }

    /// Reads and checks the suite as `assay suite check` does. `from` is the argument that names the table.
    ///
    /// # Errors
    /// Names arguments in place of the keys that they set.
    pub fn check(&self, files: &dyn SuiteFiles, from: &str) -> Result<SuiteFolder> {
        let failure = |errors: Vec<BadSuite>| {
            let lines: Vec<String> = errors
                .iter()
                .map(|error| named_by_argument(error, from))
                .collect();
            Failure::new(Exit::InvalidInput, lines.join("\n"))
        };
        let suite = assay_tables::read_suite(files, Some(&example_seed())).map_err(failure)?;
        suite.check().map_err(|error| failure(vec![error]))?;
        Ok(suite)
    }

    /// Warns about the placeholder in the suite's id, which `publish` refuses.
    pub fn warn_of_placeholder(&self, context: &Context) {
        if let Some(placeholder) = placeholder(&self.suite_id) {
            context.messages.warn(&placeholder);
        }
    }
}

/// Returns the seed with which items are sealed for a check, before there is an opening key.
pub fn example_seed() -> String {
    derived_seal_seed(&[0; 32])
}

/// Returns what the publisher has to do if a suite's id has the placeholder for the handle.
pub fn placeholder(suite_id: &str) -> Option<String> {
    suite_id
        .strip_prefix("suite:")?
        .strip_prefix(PLACEHOLDER)?
        .strip_prefix('.')?;
    Some(format!(
        "suite_id: {PLACEHOLDER} stands for the handle of your organization; write the handle in its place. assay whoami -f json shows it. If \
         there is none, an owner sets it once in the dashboard"
    ))
}

/// Returns the column of this name, or an error that names the argument and the nearest column.
pub fn check_column(columns: &[String], file: &str, argument: &str, name: &str) -> Result<()> {
    if columns.iter().any(|column| column == name) {
        return Ok(());
    }
    let nearest = columns
        .iter()
        .map(|column| (strsim::jaro(column, name), column))
        .filter(|(similarity, _)| *similarity > SIMILARITY_MIN)
        .max_by(|(a, _), (b, _)| a.total_cmp(b));
    let hint = match nearest {
        Some((_, nearest)) => format!("did you mean {}?", shown(nearest)),
        None => {
            let columns: Vec<String> = columns.iter().map(|column| shown(column)).collect();
            format!("its columns are {}", columns.join(", "))
        }
    };
    let message = format!("{argument}: {file} has no column {}; {hint}", shown(name));
    Err(Failure::new(Exit::InvalidInput, message))
}

/// Returns an error with the argument that sets its key.
fn named_by_argument(error: &BadSuite, from: &str) -> String {
    if error.file != SUITE {
        return error.to_string();
    }
    let argument = match error.field.as_deref() {
        Some("suite_id") => "--name",
        Some("metric") => "--metric",
        Some("labels") => "--labels",
        Some("quantiles") => "--quantiles",
        Some("data.file") => from,
        Some("data.answer") => "--answer",
        Some("data.id") => "--id",
        Some("data.cluster" | "cluster") => "--cluster",
        _ => return error.message.clone(),
    };
    let message = error.message.as_str();
    let reason = message
        .split_once(": ")
        .map_or(message, |(_, reason)| reason);
    format!("{argument}: {reason}")
}

fn suite_id(handle: Option<&str>, name: Option<String>, default_name: &str) -> String {
    let handle = handle.unwrap_or(PLACEHOLDER);
    let name = name.unwrap_or_else(|| {
        let longest = NAME_BYTES_MAX.saturating_sub(handle.len() + 1);
        name_from(default_name, longest)
    });
    format!("suite:{handle}.{name}")
}

/// Returns a text as the name of a suite, with at most `longest` bytes.
fn name_from(text: &str, longest: usize) -> String {
    let mut name = String::new();
    for character in text.to_lowercase().chars() {
        match character {
            'a'..='z' | '0'..='9' | '_' => name.push(character),
            // One hyphen for each run of other characters, and none at the start.
            _ if name.is_empty() || name.ends_with('-') => {}
            _ => name.push('-'),
        }
    }
    name.truncate(longest);
    match name.trim_end_matches('-') {
        "" => "suite".to_owned(),
        name => name.to_owned(),
    }
}

/// Returns the handle of the organization that the credential acts for. `None` without a credential, a handle or a response: the file can
/// be written nevertheless.
pub fn own_handle(context: &Context) -> Option<String> {
    let client = context.client().ok()?;
    let me = match client.request(&operations::GET_ME).send_json() {
        Ok(me) => me,
        Err(failure) => {
            let message = format!("the handle of your organization is not known: {failure}");
            context.messages.note(&message);
            return None;
        }
    };
    let mut orgs = me["orgs"].as_array().into_iter().flatten();
    let own = orgs.find(|org| org["id"] == me["org_id"])?;
    own["handle"].as_str().map(str::to_owned)
}

/// Returns texts as a TOML array.
fn list(texts: &[String]) -> String {
    let texts: Vec<String> = texts.iter().map(|text| quoted(text)).collect();
    format!("[{}]", texts.join(", "))
}

/// Returns a text as a TOML string on one line: a line break would end a comment. The escapes of JSON are also those of TOML, which forbids
/// one more character.
fn quoted(text: &str) -> String {
    Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

#[cfg(test)]
mod tests {
    use super::*;

    use assay_eval::suite::SuiteDefinition;

    fn hostile() -> String {
        let mut text = String::from("a\"b\\c\n[data]\r\n'''\"\"\"#=");
        text.extend((0..=0x9f_u32).filter_map(char::from_u32));
        text
    }

    #[test]
    fn every_text_stays_within_its_line() {
        let hostile = hostile();
        let definition = NewDefinition {
            suite_id: "suite:acme.votes".into(),
            metric: "accuracy".into(),
            file: "votes.csv".into(),
            answer: hostile.clone(),
            id: Some("row".into()),
            inputs: vec![hostile.clone()],
            personal: vec![hostile.clone()],
            ..NewDefinition::default()
        };
        let toml = definition.to_toml();
        let parsed = SuiteDefinition::parse(&toml).unwrap();
        let data = parsed.data.unwrap();
        assert_eq!(data.answer, hostile);
        assert_eq!((data.inputs, data.drop), (None, Vec::new()));
    }

    #[test]
    fn every_commented_key_is_valid() {
        let definition = NewDefinition {
            suite_id: "suite:acme.votes".into(),
            metric: "accuracy".into(),
            file: "votes.csv".into(),
            answer: "vote".into(),
            ..NewDefinition::default()
        };
        let toml = definition.to_toml();
        let commented = toml.lines().filter(|line| line.starts_with("# "));
        let keys: Vec<&str> = commented
            .filter_map(|line| line[2..].split_once(" = ").map(|(key, _)| key))
            .collect();
        assert_eq!(
            keys.join(" "),
            "title description license citation links tags contact visibility access release max_submissions \
             max_submissions_per_day closes_at board id inputs drop cluster"
        );
        // All of them at once are one suite.
        let all: Vec<&str> = toml
            .lines()
            .map(|line| match line.strip_prefix("# ") {
                Some(rest) if rest.contains(" = ") => rest,
                _ => line,
            })
            .collect();
        let all = SuiteDefinition::parse(&all.join("\n")).unwrap();
        assert_eq!(all.metadata.title.unwrap(), "Votes of 1,000 persons");
        assert_eq!(all.data.unwrap().drop, ["email"]);
    }

    #[test]
    fn file_name_becomes_suite_name() {
        for (text, expected) in [
            ("Votes 2026 (final)", "votes-2026-final"),
            ("r_1", "r_1"),
            ("Übung", "bung"),
            ("…", "suite"),
            ("-a-", "a"),
            ("abcdefghijk", "abcdefgh"),
            ("abcdefg hijk", "abcdefg"),
        ] {
            assert_eq!(name_from(text, 8.max(expected.len())), expected, "{text}");
        }
    }

    #[test]
    fn misspelt_column_names_the_nearest() {
        let columns = ["person", "vote", "age"].map(String::from);
        assert!(check_column(&columns, "v.csv", "--answer", "vote").is_ok());
        let message = |name: &str| {
            let failure = check_column(&columns, "v.csv", "--answer", name);
            failure.unwrap_err().to_string()
        };
        assert_eq!(
            message("voter"),
            "--answer: v.csv has no column \"voter\"; did you mean \"vote\"?"
        );
        assert_eq!(
            message("xyz"),
            "--answer: v.csv has no column \"xyz\"; its columns are \"person\", \"vote\", \"age\""
        );
    }

    #[test]
    fn only_the_placeholder_is_explained() {
        assert!(placeholder("suite:your_handle.votes").is_some());
        for suite_id in ["suite:acme.votes", "suite:your_handle", "suite:votes"] {
            assert_eq!(placeholder(suite_id), None, "{suite_id}");
        }
    }
}
