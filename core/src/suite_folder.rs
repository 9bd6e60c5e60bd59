//! A suite as the operator publishes it: a folder of three files, read whole or refused whole.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;

use serde::Deserialize;
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use crate::prediction::line_of;
use crate::suite::{SuiteId, is_version};
use crate::{Answer, AnswersCheck, Metric, Release};

/// What is wrong with the folder: file, line and reason.
#[derive(Debug, thiserror::Error)]
#[error("{file}{}: {reason}", if *line > 0 { format!(":{line}") } else { String::new() })]
pub struct BadSuite {
    file: &'static str,
    line: usize,
    reason: String,
}

fn bad(file: &'static str, line: usize, reason: impl Into<String>) -> BadSuite {
    BadSuite { file, line, reason: reason.into() }
}

const SUITE: &str = "suite.toml";
const ITEMS: &str = "items.ndjson";
const ANSWERS: &str = "answers.ndjson";

/// Longest item id, in bytes.
const ITEM_ID_MAX: usize = 512;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    suite_id: String,
    version: String,
    metric: String,
    #[serde(default)]
    per_item_feedback: bool,
    #[serde(default)]
    description: String,
    release: Option<String>,
    max_submissions_per_day: Option<i64>,
}

impl Head {
    /// How scores are released, and how many submissions an organization may make a day: what keeps answers from being
    /// read out of scores.
    fn protection(&self) -> Result<(Release, Option<i32>), String> {
        let release = self.release.as_deref().map_or(Ok(Release::Exact), str::parse).map_err(|error| format!("release: {error}"))?;
        if self.per_item_feedback && release != Release::Exact {
            return Err(format!(
                "per_item_feedback: with release = \"{release}\" the scores of single items would tell what it keeps back"
            ));
        }
        let within = |max: i64| i32::try_from(max).ok().filter(|max| *max > 0);
        let max = self
            .max_submissions_per_day
            .map(|max| within(max).ok_or_else(|| format!("max_submissions_per_day: must be a whole number from 1 to {}", i32::MAX)));
        Ok((release, max.transpose()?))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ItemLine {
    item_id: String,
    input: Box<RawValue>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AnswerLine {
    item_id: String,
    answer: Box<RawValue>,
}

/// An item with its answer.
pub struct FolderItem {
    /// As callers send it back.
    pub item_id: String,
    /// A JSON object.
    pub input: Box<RawValue>,
    /// JSON that fits the suite's metric.
    pub answer: Box<RawValue>,
}

/// A suite that is ready to be published.
pub struct SuiteFolder {
    /// The suite.
    pub suite_id: SuiteId,
    /// Its version.
    pub version: String,
    /// Its metric.
    pub metric: Metric,
    /// Whether scores of single items may be read.
    pub per_item_feedback: bool,
    /// For people.
    pub description: String,
    /// How scores are released.
    pub release: Release,
    /// How many submissions an organization may make a day, if that is bounded.
    pub max_submissions_per_day: Option<i32>,
    /// In the order of the file.
    pub items: Vec<FolderItem>,
    /// The SHA-256 of everything above.
    pub content_sha256: [u8; 32],
}

impl SuiteFolder {
    /// Reads a folder.
    pub fn read(folder: &Path) -> Result<Self, BadSuite> {
        let text = |file| fs::read_to_string(folder.join(file)).map_err(|error| bad(file, 0, format!("cannot be read: {error}")));
        Self::parse(&text(SUITE)?, &text(ITEMS)?, &text(ANSWERS)?)
    }

    /// Reads the texts of the three files.
    pub fn parse(suite: &str, items: &str, answers: &str) -> Result<Self, BadSuite> {
        let head: Head = toml::from_str(suite).map_err(|error| bad(SUITE, 0, error.to_string()))?;
        let suite_id = head.suite_id.parse().map_err(|_| {
            bad(SUITE, 0, "suite_id must be \"suite:\" and a name of lower-case letters, digits, '.', '_' or '-', at most 64 characters")
        })?;
        if !is_version(&head.version) {
            return Err(bad(SUITE, 0, "version must be 1 to 64 letters, digits, '.', '_', '-' or '+'"));
        }
        let metric: Metric = head.metric.parse().map_err(|error| bad(SUITE, 0, format!("metric: {error}")))?;
        if head.per_item_feedback && !metric.has_item_scores() {
            return Err(bad(SUITE, 0, format!("per_item_feedback: with {metric} an item has no score of its own")));
        }
        let (release, max_submissions_per_day) = head.protection().map_err(|reason| bad(SUITE, 0, reason))?;
        let mut answers = read_answers(answers, &metric)?;
        let items = join(items, &mut answers)?;
        if let Some((item_id, (line, _))) = answers.iter().min_by_key(|(_, (line, _))| *line) {
            return Err(bad(ANSWERS, *line, format!("there is no item {item_id:?} in {ITEMS}")));
        }
        if items.is_empty() {
            return Err(bad(ITEMS, 0, "a suite needs at least one item"));
        }
        let Head { version, per_item_feedback, description, .. } = head;
        let mut folder = Self {
            suite_id,
            version,
            metric,
            per_item_feedback,
            description,
            release,
            max_submissions_per_day,
            items,
            content_sha256: [0; 32],
        };
        folder.content_sha256 = folder.digest();
        Ok(folder)
    }

    fn digest(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        // Each part with its length before it, so that no two contents read alike.
        let mut part = |text: &str| {
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text);
        };
        [self.suite_id.as_str(), &self.version, &self.metric.to_string(), &self.per_item_feedback.to_string(), &self.description]
            .into_iter()
            .for_each(&mut part);
        // Of a folder that says nothing of these the digest is what it was before there were such.
        if (self.release, self.max_submissions_per_day) != (Release::Exact, None) {
            let max = self.max_submissions_per_day.map_or_else(String::new, |max| max.to_string());
            ["release", &self.release.to_string(), "max_submissions_per_day", &max].into_iter().for_each(&mut part);
        }
        for item in &self.items {
            [&item.item_id, item.input.get(), item.answer.get()].into_iter().for_each(&mut part);
        }
        hash.finalize().into()
    }
}

/// The metric of a suite's folder.
pub fn metric_of(folder: &Path) -> Result<Metric, BadSuite> {
    let text = fs::read_to_string(folder.join(SUITE)).map_err(|error| bad(SUITE, 0, format!("cannot be read: {error}")))?;
    let head: Head = toml::from_str(&text).map_err(|error| bad(SUITE, 0, error.to_string()))?;
    head.metric.parse().map_err(|error| bad(SUITE, 0, format!("metric: {error}")))
}

/// The answers of a suite's folder, read a line at a time, in the order of their file.
pub struct AnswerLines {
    lines: BufReader<fs::File>,
    bytes: u64,
    metric: Metric,
}

impl AnswerLines {
    /// Nothing is read yet.
    pub fn open(folder: &Path, metric: Metric) -> Result<Self, BadSuite> {
        let unreadable = |error| bad(ANSWERS, 0, format!("cannot be read: {error}"));
        let file = fs::File::open(folder.join(ANSWERS)).map_err(unreadable)?;
        let bytes = file.metadata().map_err(unreadable)?.len();
        Ok(Self { lines: BufReader::with_capacity(256 * 1024, file), bytes, metric })
    }

    /// How many answers there are, judged by the length of the first ones.
    pub fn about(&mut self) -> usize {
        let Ok(first) = self.lines.fill_buf() else { return 0 };
        let lines = first.iter().filter(|byte| **byte == b'\n').count();
        (self.bytes as usize * (lines + 1)).checked_div(first.len()).unwrap_or(0)
    }

    /// Hands on each item's id and answer; what that refuses is told with the line.
    pub fn each(&mut self, mut each: impl FnMut(&str, &Answer<'_>) -> Result<(), String>) -> Result<(), BadSuite> {
        let (mut check, mut text, mut line) = (AnswersCheck::new(self.metric), String::new(), 0);
        loop {
            text.clear();
            line += 1;
            if self.lines.read_line(&mut text).map_err(|error| bad(ANSWERS, line, format!("cannot be read: {error}")))? == 0 {
                break;
            }
            if text.trim().is_empty() {
                continue;
            }
            let told = |reason: String| bad(ANSWERS, line, reason);
            let mut take = |item_id: &str, json: &str| {
                check_item_id(ANSWERS, line, item_id)?;
                let answer = Answer::parse(json, &self.metric).map_err(|reason| told(format!("answer: {reason}")))?;
                check.add(&answer).map_err(|reason| told(format!("answer: {reason}")))?;
                each(item_id, &answer).map_err(told)
            };
            match line_of(&text, "answer") {
                Some((item_id, json)) => take(&item_id, json)?,
                None => {
                    let AnswerLine { item_id, answer } = serde_json::from_str(&text).map_err(|error| told(error.to_string()))?;
                    take(&item_id, answer.get())?;
                }
            }
        }
        check.finish().map_err(|reason| bad(ANSWERS, 0, reason))
    }
}

type Answers = HashMap<String, (usize, Box<RawValue>)>;

/// The lines of a file that are not empty, with their numbers from 1.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(at, line)| (at + 1, line)).filter(|(_, line)| !line.trim().is_empty())
}

fn check_item_id(file: &'static str, line: usize, item_id: &str) -> Result<(), BadSuite> {
    match item_id {
        "" => Err(bad(file, line, "item_id must not be empty")),
        id if id.len() > ITEM_ID_MAX => Err(bad(file, line, format!("item_id must not be longer than {ITEM_ID_MAX} bytes"))),
        id if id.contains('\0') => Err(bad(file, line, "item_id must not hold a NUL character")),
        _ => Ok(()),
    }
}

fn read_answers(text: &str, metric: &Metric) -> Result<Answers, BadSuite> {
    let (mut answers, mut check) = (Answers::new(), AnswersCheck::new(*metric));
    for (line, json) in lines(text) {
        let AnswerLine { item_id, answer } = serde_json::from_str(json).map_err(|error| bad(ANSWERS, line, error.to_string()))?;
        check_item_id(ANSWERS, line, &item_id)?;
        let parsed = Answer::parse(answer.get(), metric).and_then(|parsed| check.add(&parsed));
        parsed.map_err(|reason| bad(ANSWERS, line, format!("answer: {reason}")))?;
        if let Some((first, _)) = answers.get(&item_id) {
            return Err(bad(ANSWERS, line, format!("item_id {item_id:?} was answered before, in line {first}")));
        }
        answers.insert(item_id, (line, answer));
    }
    // Of no answers at all there is more to say.
    if !answers.is_empty() {
        check.finish().map_err(|reason| bad(ANSWERS, 0, reason))?;
    }
    Ok(answers)
}

/// Items in order, each with its answer, which is taken out of `answers`.
fn join(text: &str, answers: &mut Answers) -> Result<Vec<FolderItem>, BadSuite> {
    let mut items = Vec::with_capacity(answers.len());
    let mut seen = HashMap::new();
    for (line, json) in lines(text) {
        let ItemLine { item_id, input } = serde_json::from_str(json).map_err(|error| bad(ITEMS, line, error.to_string()))?;
        check_item_id(ITEMS, line, &item_id)?;
        // Read whole: what is passed over by the reader of lines could not be handed out over every wire.
        serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(input.get())
            .map_err(|error| bad(ITEMS, line, format!("input must be an object: {error}")))?;
        if let Some(first) = seen.insert(item_id.clone(), line) {
            return Err(bad(ITEMS, line, format!("item_id {item_id:?} was there before, in line {first}")));
        }
        let Some((_, answer)) = answers.remove(&item_id) else {
            return Err(bad(ITEMS, line, format!("item {item_id:?} has no answer in {ANSWERS}")));
        };
        items.push(FolderItem { item_id, input, answer });
    }
    Ok(items)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(suite: &str, items: &str, answers: &str) -> Result<SuiteFolder, String> {
        let path = std::env::temp_dir().join(format!("assay-suite-{}-{:?}", std::process::id(), std::thread::current().id()));
        fs::create_dir_all(&path).unwrap();
        for (file, text) in [(SUITE, suite), (ITEMS, items), (ANSWERS, answers)] {
            fs::write(path.join(file), text).unwrap();
        }
        let read = SuiteFolder::read(&path).map_err(|error| error.to_string());
        fs::remove_dir_all(path).unwrap();
        read
    }

    const GOOD: &str = "suite_id = \"suite:s\"\nversion = \"1\"\nmetric = \"accuracy\"\n";
    const ITEM: &str = "{\"item_id\":\"a\",\"input\":{\"prompt\": \"?\"}}\n";
    const ANSWER: &str = "{\"item_id\":\"a\",\"answer\":\"x\"}\n";

    #[test]
    fn a_good_folder_is_read_with_its_inputs_untouched() {
        let read = folder(GOOD, ITEM, ANSWER).unwrap();
        assert_eq!(read.items[0].input.get(), "{\"prompt\": \"?\"}");
    }

    #[test]
    fn what_is_said_of_the_release_is_part_of_the_content_and_silence_is_what_it_was() {
        let digest = |more: &str| folder(&format!("{GOOD}{more}"), ITEM, ANSWER).unwrap().content_sha256;
        let silent = digest("");
        let hex: String = silent.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            hex, "67e082731c837fc82bdede4fc50e802474aab4c2746d160834c16bed61f5dbc8",
            "folders that were published before are the same"
        );
        assert_eq!(silent, digest("release = \"exact\"\n"));
        let said = ["release = \"rounded(2)\"\n", "release = \"ladder(0.01)\"\n", "max_submissions_per_day = 5\n"].map(digest);
        let all: std::collections::HashSet<_> = said.into_iter().chain([silent]).collect();
        assert_eq!(all.len(), 4);
        let read = folder(&format!("{GOOD}release = \"ladder(0.01)\"\nmax_submissions_per_day = 5\n"), ITEM, ANSWER).unwrap();
        assert_eq!((read.release.to_string().as_str(), read.max_submissions_per_day), ("ladder(0.01)", Some(5)));
    }

    #[test]
    fn a_bad_folder_is_refused_with_file_and_line() {
        let two = format!("{ANSWER}{ANSWER}");
        let cases = [
            (GOOD.replace("suite:s", "S"), ITEM.into(), ANSWER.into(), "suite.toml: suite_id must be"),
            (GOOD.replace("accuracy", "speed"), ITEM.into(), ANSWER.into(), "suite.toml: metric:"),
            (format!("{GOOD}extra = 1\n"), ITEM.into(), ANSWER.into(), "suite.toml: TOML parse error"),
            (GOOD.into(), format!("{ITEM}{{\n"), ANSWER.into(), "items.ndjson:2: "),
            (GOOD.into(), format!("{ITEM}{ITEM}"), ANSWER.into(), "items.ndjson:2: item_id \"a\" was there before, in line 1"),
            (GOOD.into(), ITEM.replace("{\"prompt\": \"?\"}", "[]"), ANSWER.into(), "items.ndjson:1: input must be an object"),
            (GOOD.into(), ITEM.replace("\"?\"", "1e999"), ANSWER.into(), "items.ndjson:1: input must be an object: number out of range"),
            (GOOD.into(), ITEM.into(), two, "answers.ndjson:2: item_id \"a\" was answered before, in line 1"),
            (GOOD.into(), ITEM.into(), ANSWER.replace("\"x\"", "7"), "answers.ndjson:1: answer: "),
            (GOOD.replace("accuracy", "rmse"), ITEM.into(), ANSWER.into(), "answers.ndjson:1: answer: the metric rmse takes a number"),
            (GOOD.replace("accuracy", "auc"), ITEM.into(), ANSWER.into(), "answers.ndjson: auc is for two labels"),
            (
                GOOD.replace("accuracy", "auc") + "per_item_feedback = true\n",
                ITEM.into(),
                ANSWER.into(),
                "suite.toml: per_item_feedback: with auc an item has no score of its own",
            ),
            (format!("{GOOD}release = \"rounded(9)\"\n"), ITEM.into(), ANSWER.into(), "suite.toml: release: expected exact, rounded(d)"),
            (
                format!("{GOOD}release = \"ladder(0.01)\"\nper_item_feedback = true\n"),
                ITEM.into(),
                ANSWER.into(),
                "suite.toml: per_item_feedback: with release = \"ladder(0.01)\" the scores of single items would tell what it keeps back",
            ),
            (format!("{GOOD}max_submissions_per_day = 0\n"), ITEM.into(), ANSWER.into(), "suite.toml: max_submissions_per_day: must be"),
            (GOOD.into(), ITEM.into(), String::new(), "items.ndjson:1: item \"a\" has no answer"),
            (GOOD.into(), String::new(), ANSWER.into(), "answers.ndjson:1: there is no item \"a\""),
            (GOOD.into(), String::new(), String::new(), "items.ndjson: a suite needs at least one item"),
        ];
        for (suite, items, answers, expected) in cases {
            let told = folder(&suite, &items, &answers).err().unwrap();
            assert!(told.starts_with(expected), "{told}");
        }
    }
}
