//! `items.ndjson` and `answers.ndjson`: one JSON object per line.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::answers::{Answer, AnswersCheck};
use super::bad_suite::{BadSuite, BadSuiteCode, shown};
use super::groups::{GroupField, GroupLabels, Groups};
use super::names::{ANSWERS, ITEMS, SUITE};
use super::options::{OptionsCheck, PEOPLE, check_people, people, people_error};
use super::retest_answers::RETEST_ANSWERS;
use super::suite_files::SuiteFiles;
use super::suite_toml::{SkillKey, SliceKeys};
use crate::clusters::Average;
use crate::metric::Metric;
use crate::prediction::{line_of, not_json};
use crate::slices::{FieldSlices, FieldValues};

/// Longest item id, in bytes.
const ITEM_ID_BYTES_MAX: usize = 512;

/// An item's maximum input size, in bytes: a page has at least one item.
const INPUT_BYTES_MAX: usize = 256 * 1024;

/// An answer's maximum size, in bytes.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Bytes that [`AnswerLines`] reads at once.
const READ_BYTES: usize = 256 * 1024;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ItemLine {
    item_id: String,
    input: Box<RawValue>,
    groups: Option<Groups>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AnswerLine {
    item_id: String,
    answer: Box<RawValue>,
    #[serde(default, deserialize_with = "people")]
    n: Option<u32>,
    groups: Option<Groups>,
}

/// The answers by item id.
pub(super) type Answers = HashMap<String, FolderAnswer>;

/// An answer with its line.
pub(super) struct FolderAnswer {
    pub(super) line: usize,
    answer: Box<RawValue>,
    n: Option<u32>,
    groups: Option<Groups>,
}

/// An item with its answer.
pub struct FolderItem {
    /// The id with which callers submit predictions: not empty, at most 512 bytes, without NUL.
    pub item_id: String,
    /// A model's input: a JSON object, byte for byte as in the file.
    pub input: Box<RawValue>,
    /// The hidden answer: JSON that fits the suite's metric, byte for byte as in the file.
    pub answer: Box<RawValue>,
    /// The number of people behind the answer, 1 to 1e9, if it is given.
    pub n: Option<u32>,
    /// The public group fields.
    pub groups: Option<Groups>,
    /// The hidden group fields: those of the answer's line.
    pub hidden_groups: Option<Groups>,
    /// The label of the item's cluster, if the suite has clusters.
    pub cluster: Option<u32>,
    /// The code of the item's slice by each field with slices, see [`FieldSlices`].
    ///
    /// [`FieldSlices`]: crate::slices::FieldSlices
    pub slices: Vec<u8>,
    /// The label of the item's group by the field within whose groups the skill is computed, if there is
    /// one.
    pub skill_group: Option<u32>,
    /// Set if the item is scored without disclosing its figures before the suite has closed.
    pub is_sealed: bool,
    /// Its line number in the file, from 1.
    pub line: usize,
}

impl FolderItem {
    /// Returns the label of the item's value of a field, after the items before it.
    ///
    /// # Errors
    /// Returns the reason if the item has no value, or one that does not fit those before.
    pub(super) fn label(
        &self,
        field: &GroupField,
        labels: &mut GroupLabels,
    ) -> Result<u32, String> {
        let (public, hidden) = (self.groups.as_ref(), self.hidden_groups.as_ref());
        labels.add(field, self.input.get(), public, hidden)
    }
}

/// An answer reader, line by line. It keeps one line in memory.
pub struct AnswerLines<R> {
    lines: R,
    /// The file's name in errors.
    name: String,
    n_bytes: u64,
    metric: Metric,
    labels: Vec<String>,
}

impl AnswerLines<BufReader<fs::File>> {
    /// Opens an answer file, or a suite folder's, without reading it.
    pub fn open(path: &Path, metric: Metric) -> Result<Self, BadSuite> {
        let (path, name) = if path.is_dir() {
            (path.join(ANSWERS), ANSWERS.to_owned())
        } else {
            (path.to_owned(), path.display().to_string())
        };
        let unreadable = |error| BadSuite::unreadable(&name, 0, &error);
        let file = fs::File::open(path).map_err(unreadable)?;
        let n_bytes = file.metadata().map_err(unreadable)?.len();
        let lines = BufReader::with_capacity(READ_BYTES, file);
        Ok(Self::new(lines, name, n_bytes, metric))
    }
}

impl<R: BufRead> AnswerLines<R> {
    /// Creates a reader over `lines`, which have `n_bytes` bytes. Errors name them `name`.
    pub fn new(lines: R, name: String, n_bytes: u64, metric: Metric) -> Self {
        Self {
            lines,
            name,
            n_bytes,
            metric,
            labels: Vec::new(),
        }
    }

    /// Sets the options that the suite names, which all answers must have.
    #[must_use]
    pub fn labels(mut self, labels: &[String]) -> Self {
        self.labels = labels.to_vec();
        self
    }

    /// Returns the options that the suite names; empty if it names none.
    pub(crate) fn named_labels(&self) -> &[String] {
        &self.labels
    }

    /// Returns the estimated answer count, from the first ones' length.
    pub fn estimate(&mut self) -> usize {
        let Ok(first) = self.lines.fill_buf() else {
            return 0;
        };
        let lines = first.iter().filter(|byte| **byte == b'\n').count();
        (self.n_bytes as usize * (lines + 1))
            .checked_div(first.len())
            .unwrap_or(0)
    }

    /// Returns an error about all answers together.
    pub(crate) fn bad(&self, reason: String) -> BadSuite {
        BadSuite::new(&self.name, 0, reason)
    }

    /// Calls `add` with each item id, its answer and the number of people behind it, in file order. `add`'s
    /// error is returned with its line.
    pub fn for_each(
        &mut self,
        mut add: impl FnMut(&str, &Answer<'_>, Option<u32>) -> Result<(), String>,
    ) -> Result<(), BadSuite> {
        let mut check = AnswerChecks::new(self.metric, &self.labels);
        let mut text = String::new();
        let mut line = 0;
        loop {
            text.clear();
            line += 1;
            let read = self.lines.read_line(&mut text);
            if read.map_err(|error| BadSuite::unreadable(&self.name, line, &error))? == 0 {
                break;
            }
            let text = match line {
                1 => without_mark(&text),
                _ => &text,
            };
            if text.trim().is_empty() {
                continue;
            }
            let bad = |reason: String| BadSuite::new(&self.name, line, reason);
            let mut add_checked = |item_id: &str, json: &str, n: Option<u32>| {
                check_item_id(&self.name, line, item_id)?;
                let answer = check.add(json, n).map_err(|reason| {
                    bad(reason)
                        .with_code(BadSuiteCode::Metric)
                        .with_item(item_id)
                })?;
                add(item_id, &answer, n).map_err(bad)
            };
            match line_of(text, "answer") {
                Some((item_id, json)) => add_checked(&item_id, json, None)?,
                None => {
                    let AnswerLine {
                        item_id, answer, n, ..
                    } = serde_json::from_str(text)
                        .map_err(|error| explain(&self.name, line, text, &error, "answer"))?;
                    add_checked(&item_id, answer.get(), n)?;
                }
            }
        }
        check
            .finish()
            .map_err(|reason| BadSuite::new(&self.name, 0, reason).with_code(BadSuiteCode::Metric))
    }
}

/// Checks all answers in a suite, one by one and together. Messages quote no answer.
pub struct AnswerChecks<'l> {
    metric: Metric,
    together: AnswersCheck,
    options: OptionsCheck<'l>,
}

impl<'l> AnswerChecks<'l> {
    /// Creates the checks, before the first answer. `labels` are the options that the suite names.
    pub fn new(metric: Metric, labels: &'l [String]) -> Self {
        Self {
            metric,
            together: AnswersCheck::new(metric),
            options: OptionsCheck::new(metric, labels),
        }
    }

    /// Checks the next answer, which is JSON, and the number of people behind it, and returns the answer.
    ///
    /// # Errors
    /// Returns the reason if the metric does not take it, or if it does not fit those before.
    pub fn add<'a>(&mut self, json: &'a str, n: Option<u32>) -> Result<Answer<'a>, String> {
        let answer = self.checked(json);
        let answer = answer.map_err(|reason| format!("answer: {reason}"))?;
        check_people(n, self.metric)?;
        Ok(answer)
    }

    fn checked<'a>(&mut self, json: &'a str) -> Result<Answer<'a>, String> {
        check_size(json, ANSWER_BYTES_MAX)?;
        let answer = Answer::parse(json, &self.metric)?;
        self.together.add(&answer)?;
        self.options.add(&answer)?;
        Ok(answer)
    }

    /// Ends the checks, after the last answer.
    ///
    /// # Errors
    /// Returns the reason if the metric is not defined for the answers.
    pub fn finish(self) -> Result<(), String> {
        self.together.finish()?;
        self.options.finish()
    }
}

/// Returns the text of a file that a suite may have. `None` if there is none.
pub(super) fn read_optional(
    files: &dyn SuiteFiles,
    name: &str,
) -> Result<Option<String>, BadSuite> {
    files
        .text(name)
        .map_err(|error| BadSuite::unreadable(name, 0, &error))
}

/// Returns the text of a file that a suite must have.
pub(super) fn read_required(files: &dyn SuiteFiles, name: &str) -> Result<String, BadSuite> {
    read_optional(files, name)?.ok_or_else(|| {
        let message = "cannot be read: there is no such file";
        BadSuite::new(name, 0, message).with_code(BadSuiteCode::Required)
    })
}

/// The clusters of a folder's items.
#[derive(Debug, Default)]
pub struct ClusterLabels {
    by_item: HashMap<String, u32>,
    values: Vec<String>,
}

impl ClusterLabels {
    /// Returns the label of an item's cluster.
    ///
    /// # Errors
    /// Returns the reason if the folder does not have the item.
    pub fn of(&self, item_id: &str) -> Result<u32, String> {
        let label = self.by_item.get(item_id).copied();
        label.ok_or_else(|| format!("there is no item {} in {ITEMS}", shown(item_id)))
    }

    /// Returns the values of the group field, by label.
    pub fn values(&self) -> &[String] {
        &self.values
    }
}

/// The slices of a folder's items.
#[derive(Debug)]
pub struct SliceLabels {
    by_item: HashMap<String, usize>,
    fields: Vec<FieldSlices>,
}

impl SliceLabels {
    /// Returns the fields without items.
    pub fn fields(&self) -> Vec<FieldSlices> {
        let without_items =
            |field: &FieldSlices| FieldSlices::new(field.field.clone(), field.groups.clone());
        self.fields.iter().map(without_items).collect()
    }

    /// Returns the code of an item's slice by each field.
    ///
    /// # Errors
    /// Returns the reason if the folder does not have the item.
    pub fn of(&self, item_id: &str) -> Result<Vec<u8>, String> {
        let place = self.by_item.get(item_id).copied();
        let place =
            place.ok_or_else(|| format!("there is no item {} in {ITEMS}", shown(item_id)))?;
        Ok(self.fields.iter().map(|field| field.codes[place]).collect())
    }
}

/// The baseline of a folder's skill, with the groups of the folder's items.
pub struct SkillLabels {
    /// The baseline.
    pub key: SkillKey,
    /// Each item's group, if the skill is computed within groups.
    pub within: Option<ClusterLabels>,
}

/// Reads the clusters of a folder's items: items with one value of the field have one label.
///
/// # Errors
/// Returns the first line that has no value of the field.
pub fn read_clusters(folder: &Path, field: &GroupField) -> Result<ClusterLabels, BadSuite> {
    let found = FolderGroups::read(folder, Some(field), &SliceKeys::NONE, None)?;
    Ok(found.clusters.unwrap_or_default())
}

/// The groups of a folder's items.
#[derive(Default)]
pub struct FolderGroups {
    /// The cluster of each item, if items are not independent.
    pub clusters: Option<ClusterLabels>,
    /// The unit that has equal weights in a value over the items.
    pub average: Average,
    /// The slices of each item, if slices are scored. All items are open.
    pub slices: Option<SliceLabels>,
    /// The baseline of the skill, if there is one.
    pub skill: Option<SkillLabels>,
}

impl FolderGroups {
    /// Reads the groups by these fields, in one pass over the folder.
    ///
    /// # Errors
    /// Returns the first line that has no value of a field, or the field that has no slices.
    pub(super) fn read(
        folder: &Path,
        cluster: Option<&GroupField>,
        keys: &SliceKeys,
        skill: Option<&SkillKey>,
    ) -> Result<Self, BadSuite> {
        let sliced = keys.fields.iter().map(|field| (field, "slices"));
        let clustered = cluster.map(|field| (field, "cluster"));
        let within = skill.and_then(|key| key.within.as_ref());
        let within_field = within.map(|field| (field, "skill"));
        let fields: Vec<_> = clustered
            .into_iter()
            .chain(sliced)
            .chain(within_field)
            .collect();
        let skill_labels = |within: Option<ClusterLabels>| {
            let key = skill.cloned();
            key.map(|key| SkillLabels { key, within })
        };
        if fields.is_empty() {
            return Ok(Self {
                skill: skill_labels(None),
                ..Self::default()
            });
        }
        let FoundLabels { item_ids, fields } = read_labels(folder, &fields)?;
        let mut fields = fields;
        let within = within.and_then(|_| fields.pop());
        let within = within.map(|(values, labels)| ClusterLabels {
            by_item: item_ids.iter().cloned().zip(labels).collect(),
            values,
        });
        let mut fields = fields.into_iter();
        let clusters = cluster.and_then(|_| fields.next());
        let clusters_by_item = clusters.as_ref().map_or(&[][..], |(_, labels)| labels);
        let slices = keys
            .fields
            .iter()
            .zip(fields)
            .map(|(field, (values, labels))| {
                let chosen = FieldValues {
                    values: &values,
                    labels: &labels,
                    clusters: clusters_by_item,
                    is_sealed: &[],
                    min: keys.min,
                };
                let (slices, codes) = chosen.slices().map_err(|reason| {
                    BadSuite::new(SUITE, 0, format!("slices: {field}: {reason}"))
                })?;
                Ok(FieldSlices {
                    field: field.to_string(),
                    groups: slices.into_iter().map(|slice| slice.group).collect(),
                    codes,
                })
            });
        let slices = slices.collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            slices: (!slices.is_empty()).then(|| SliceLabels {
                by_item: item_ids.iter().cloned().zip(0..).collect(),
                fields: slices,
            }),
            clusters: clusters.map(|(values, labels)| ClusterLabels {
                by_item: item_ids.into_iter().zip(labels).collect(),
                values,
            }),
            average: Average::Item,
            skill: skill_labels(within),
        })
    }
}

/// A folder's labels, in the items' order.
struct FoundLabels {
    item_ids: Vec<String>,
    /// For each field its values by label, and each item's label.
    fields: Vec<(Vec<String>, Vec<u32>)>,
}

/// Reads a folder's labels by these fields, each with the key that names it.
fn read_labels(folder: &Path, fields: &[(&GroupField, &str)]) -> Result<FoundLabels, BadSuite> {
    let text = |file| read_required(&folder, file);
    let mut hidden = HashMap::new();
    for (line, json) in numbered_lines(&text(ANSWERS)?) {
        let AnswerLine {
            item_id, groups, ..
        } = serde_json::from_str(json)
            .map_err(|error| explain(ANSWERS, line, json, &error, "answer"))?;
        hidden.insert(item_id, groups);
    }
    let mut found: Vec<(GroupLabels, Vec<u32>)> =
        fields.iter().map(|_| Default::default()).collect();
    let mut item_ids = Vec::new();
    for (line, json) in numbered_lines(&text(ITEMS)?) {
        let bad = |reason: String| BadSuite::new(ITEMS, line, reason);
        let ItemLine {
            item_id,
            input,
            groups,
        } = serde_json::from_str(json)
            .map_err(|error| explain(ITEMS, line, json, &error, "input"))?;
        let hidden = hidden.get(&item_id).and_then(Option::as_ref);
        for ((field, key), (values, labels)) in fields.iter().zip(&mut found) {
            let label = values.add(field, input.get(), groups.as_ref(), hidden);
            labels.push(label.map_err(|reason| bad(missing_field(&reason, key)))?);
        }
        item_ids.push(item_id);
    }
    let fields = found.into_iter();
    Ok(FoundLabels {
        item_ids,
        fields: fields
            .map(|(values, labels)| (values.into_values(), labels))
            .collect(),
    })
}

/// Returns the error for an item without a field that this key names.
pub(super) fn missing_field(reason: &str, key: &str) -> String {
    format!("{reason}; {key} in {SUITE} names this field")
}

/// Returns a text without the byte order mark that programs on Windows write before it.
pub(super) fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// Returns the lines that are not blank, with their numbers from 1.
pub(super) fn numbered_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    without_mark(text)
        .lines()
        .enumerate()
        .map(|(at, line)| (at + 1, line))
        .filter(|(_, line)| !line.trim().is_empty())
}

/// Returns the error of a line that is not an object with `item_id` and the other field. It quotes no
/// value, and in the lines of answers no field that a line does not have.
pub(super) fn explain(
    file: &str,
    line: usize,
    json: &str,
    error: &serde_json::Error,
    other: &str,
) -> BadSuite {
    let (code, message) = reason(json, error, other);
    BadSuite::new(file, line, message).with_code(code)
}

fn reason(json: &str, error: &serde_json::Error, other: &str) -> (BadSuiteCode, String) {
    if !error.is_data() {
        return (BadSuiteCode::Syntax, not_json(json, error));
    }
    let Ok(fields) = serde_json::from_str::<BTreeMap<String, Value>>(json) else {
        let message = format!("must be an object with item_id and {other}");
        return (BadSuiteCode::Type, message);
    };
    let required = ["item_id", other];
    if let Some(missing) = required.iter().find(|field| !fields.contains_key(**field)) {
        let message = format!("{missing}: this field is required");
        return (BadSuiteCode::Required, message);
    }
    let may_have_groups = other != RETEST_ANSWERS;
    let may_have_people = other == "answer";
    let is_known = |field: &str| {
        required.contains(&field)
            || (may_have_groups && field == "groups")
            || (may_have_people && field == PEOPLE)
    };
    if let Some(unknown) = fields.keys().find(|field| !is_known(field)) {
        let line = match (may_have_groups, may_have_people) {
            (true, true) => format!("a line has item_id and {other}, and may have n and groups"),
            (true, false) => format!("a line has item_id and {other}, and may have groups"),
            _ => format!("a line has item_id and {other}"),
        };
        let message = if other == "input" {
            format!("{} is no field of a line: {line}", shown(unknown))
        } else {
            format!("{line}; remove all other fields")
        };
        return (BadSuiteCode::Value, message);
    }
    if !fields["item_id"].is_string() {
        return (BadSuiteCode::Type, "item_id must be a string".into());
    }
    if let Some(groups) = fields.get("groups")
        && let Err(reason) = serde_json::from_value::<Groups>(groups.clone())
    {
        let message = match groups.as_object() {
            Some(fields) if fields.values().all(Value::is_string) => reason.to_string(),
            _ => "groups: must be an object of strings".into(),
        };
        return (BadSuiteCode::Value, message);
    }
    if may_have_people && let Some(reason) = fields.get(PEOPLE).and_then(people_error) {
        return (BadSuiteCode::Type, reason);
    }
    (BadSuiteCode::Duplicate, "a field is given twice".into())
}

pub(super) fn check_item_id(file: &str, line: usize, item_id: &str) -> Result<(), BadSuite> {
    item_id_error(item_id).map_or(Ok(()), |(code, reason)| {
        Err(BadSuite::new(file, line, reason).with_code(code))
    })
}

/// Returns the reason why a text is no item id. `None` if it is one.
pub fn item_id_error(item_id: &str) -> Option<(BadSuiteCode, String)> {
    match item_id {
        "" => Some((BadSuiteCode::Required, "item_id must not be empty".into())),
        id if id.len() > ITEM_ID_BYTES_MAX => Some((
            BadSuiteCode::TooLong,
            format!("item_id must not be longer than {ITEM_ID_BYTES_MAX} bytes"),
        )),
        id if id.contains('\0') => Some((
            BadSuiteCode::Value,
            "item_id must not have a NUL character".into(),
        )),
        _ => None,
    }
}

/// Returns the error of an item id that a line before has.
pub(super) fn repeated_id(file: &str, line: usize, item_id: &str, first: usize) -> BadSuite {
    let item = shown(item_id);
    let message = format!("item_id {item} is repeated; it is also in line {first}");
    let error = BadSuite::new(file, line, message).with_item(item_id);
    error.with_code(BadSuiteCode::Duplicate)
}

/// Returns the error of a line whose item has no line in the file of items.
pub(super) fn without_item(file: &str, line: usize, item_id: &str) -> BadSuite {
    let message = format!("there is no item {} in {ITEMS}", shown(item_id));
    let error = BadSuite::new(file, line, message).with_item(item_id);
    error.with_code(BadSuiteCode::Unmatched)
}

/// Reads and checks all answers.
pub(super) fn read_answers(
    text: &str,
    metric: &Metric,
    labels: &[String],
) -> Result<Answers, BadSuite> {
    let mut answers = Answers::new();
    let mut check = AnswerChecks::new(*metric, labels);
    for (line, json) in numbered_lines(text) {
        let AnswerLine {
            item_id,
            answer,
            n,
            groups,
        } = serde_json::from_str(json)
            .map_err(|error| explain(ANSWERS, line, json, &error, "answer"))?;
        check_item_id(ANSWERS, line, &item_id)?;
        check.add(answer.get(), n).map_err(|reason| {
            let error = BadSuite::new(ANSWERS, line, reason).with_item(&item_id);
            error.with_code(BadSuiteCode::Metric)
        })?;
        if let Some(FolderAnswer { line: first, .. }) = answers.get(&item_id) {
            return Err(repeated_id(ANSWERS, line, &item_id, *first));
        }
        let answer = FolderAnswer {
            line,
            answer,
            n,
            groups,
        };
        answers.insert(item_id, answer);
    }
    // Without answers the missing ones are reported by item.
    if !answers.is_empty() {
        check
            .finish()
            .map_err(|reason| BadSuite::new(ANSWERS, 0, reason).with_code(BadSuiteCode::Metric))?;
    }
    Ok(answers)
}

/// Checks the size of a field's JSON.
fn check_size(json: &str, max: usize) -> Result<(), String> {
    if json.len() > max {
        return Err(format!(
            "has {} bytes; it must not have more than {max}",
            json.len()
        ));
    }
    Ok(())
}

/// Checks the JSON of an item's input: it is an object with at most 256 KiB.
///
/// # Errors
/// Returns the reason for people.
pub fn check_input(json: &str) -> Result<(), (BadSuiteCode, String)> {
    check_size(json, INPUT_BYTES_MAX)
        .map_err(|reason| (BadSuiteCode::TooLong, format!("input {reason}")))?;
    // The raw value is not validated in full, and gRPC cannot carry every number that it may
    // contain.
    let parsed = serde_json::from_str::<serde_json::Map<String, Value>>(json);
    parsed.map(drop).map_err(|error| {
        if error.is_data() {
            (BadSuiteCode::Type, "input must be an object".into())
        } else {
            let reason = format!("input {}", not_json(json, &error));
            (BadSuiteCode::Syntax, reason)
        }
    })
}

/// Returns the items in file order, none sealed, and moves each one's answer out of
/// `answers`.
pub(super) fn join_items(text: &str, answers: &mut Answers) -> Result<Vec<FolderItem>, BadSuite> {
    let mut items = Vec::with_capacity(answers.len());
    let mut seen = HashMap::new();
    for (line, json) in numbered_lines(text) {
        let ItemLine {
            item_id,
            input,
            groups,
        } = serde_json::from_str(json)
            .map_err(|error| explain(ITEMS, line, json, &error, "input"))?;
        check_item_id(ITEMS, line, &item_id)?;
        check_input(input.get()).map_err(|(code, reason)| {
            let error = BadSuite::new(ITEMS, line, reason).with_item(&item_id);
            error.with_code(code)
        })?;
        if let Some(first) = seen.insert(item_id.clone(), line) {
            return Err(repeated_id(ITEMS, line, &item_id, first));
        }
        let Some(FolderAnswer {
            answer,
            n,
            groups: hidden_groups,
            ..
        }) = answers.remove(&item_id)
        else {
            let message = format!("item {} has no answer in {ANSWERS}", shown(&item_id));
            let error = BadSuite::new(ITEMS, line, message).with_item(&item_id);
            return Err(error.with_code(BadSuiteCode::Required));
        };
        items.push(FolderItem {
            item_id,
            input,
            answer,
            n,
            groups,
            hidden_groups,
            cluster: None,
            slices: Vec::new(),
            skill_group: None,
            is_sealed: false,
            line,
        });
    }
    Ok(items)
}
