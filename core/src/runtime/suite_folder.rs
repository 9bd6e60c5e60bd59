//! A suite as the operator publishes it: a folder of three files, read whole or refused whole.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;

use assay_eval::score::{AnswerTable, Builder, best_trivial, trivial_submissions};
use serde::Deserialize;
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use crate::model::suite::{SuiteAccess, SuiteId, is_version};
use crate::model::timestamp::Timestamp;
use assay_eval::prediction::line_of;
use assay_eval::{Answer, AnswersCheck, Clip, DisclosurePolicy, Ladder, Metric};

/// What is wrong with the folder: file, line and reason.
#[derive(Debug, thiserror::Error)]
#[error("{file}{}: {reason}", if *line > 0 { format!(":{line}") } else { String::new() })]
pub struct BadSuite {
    file: &'static str,
    line: usize,
    reason: String,
}

fn bad(file: &'static str, line: usize, reason: impl Into<String>) -> BadSuite {
    BadSuite {
        file,
        line,
        reason: reason.into(),
    }
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
    max_submissions: Option<i64>,
    clip: Option<Vec<f64>>,
    access: Option<String>,
    seal_seed: Option<String>,
    closes_at: Option<toml::value::Datetime>,
}

/// What keeps answers from being computed from scores.
#[derive(Debug, Clone, PartialEq)]
pub struct Protection {
    /// How much of a score is disclosed.
    pub policy: DisclosurePolicy,
    /// The bounds of the loss of one item, if there are any.
    pub clip: Option<Clip>,
    /// How many submissions an organization may make a day, if that is bounded.
    pub max_submissions_per_day: Option<i32>,
    /// How many it may make for this version for good, if that is bounded.
    pub max_submissions: Option<i32>,
    /// Who may submit.
    pub access: SuiteAccess,
    /// When the suite closes, if items are sealed.
    pub closes_at: Option<Timestamp>,
    /// What the sealed items are drawn by, if any are. Keep it as secret as the answers.
    pub seal_seed: Option<String>,
}

/// The longest seed, in bytes.
const SEED_MAX: usize = 200;

fn count(field: &str, max: Option<i64>) -> Result<Option<i32>, String> {
    let within = |max: i64| i32::try_from(max).ok().filter(|max| *max > 0);
    max.map(|max| {
        within(max).ok_or_else(|| format!("{field}: must be an integer from 1 to {}", i32::MAX))
    })
    .transpose()
}

impl Head {
    fn protection(&self, metric: Metric) -> Result<Protection, String> {
        let policy = self
            .release
            .as_deref()
            .map_or(Ok(DisclosurePolicy::Exact), str::parse)
            .map_err(|error| format!("release: {error}"))?;
        if self.per_item_feedback && policy != DisclosurePolicy::Exact {
            return Err(format!(
                "per_item_feedback: with release = \"{policy}\" the scores of single items must not be disclosed"
            ));
        }
        let max_submissions_per_day =
            count("max_submissions_per_day", self.max_submissions_per_day)?;
        let max_submissions = count("max_submissions", self.max_submissions)?;
        let access = self
            .access
            .as_deref()
            .map_or(Ok(SuiteAccess::Everyone), str::parse)
            .map_err(|error| format!("access: {error}"))?;
        let clip = self.clip(metric, policy)?;
        let closes_at = self.closes_at(policy)?;
        let seal_seed = self.seal_seed(policy)?;
        Ok(Protection {
            policy,
            clip,
            max_submissions_per_day,
            max_submissions,
            access,
            closes_at,
            seal_seed,
        })
    }

    fn clip(&self, metric: Metric, policy: DisclosurePolicy) -> Result<Option<Clip>, String> {
        let clip = match self.clip.as_deref() {
            Some([low, high]) => Clip::new(*low, *high),
            Some(_) => None,
            None if metric.takes_clip() && matches!(policy, DisclosurePolicy::Ladder(_)) => {
                return Err(format!(
                    "clip: a ladder needs bounds of the loss of one item, which {metric} has not; write for example clip = [0.0, 10.0]"
                ));
            }
            None => return Ok(None),
        };
        if !metric.takes_clip() {
            return Err(format!(
                "clip: is for rmse, mae and log_loss; {metric} has bounds of its own"
            ));
        }
        clip.map(Some)
            .ok_or_else(|| "clip: must be [low, high] with 0 <= low < high".into())
    }

    fn closes_at(&self, policy: DisclosurePolicy) -> Result<Option<Timestamp>, String> {
        match (policy, &self.closes_at) {
            (DisclosurePolicy::Sealed(_), Some(at)) => {
                let told = "closes_at: must be a time with an offset, such as 2027-01-31T12:00:00Z";
                at.to_string().parse().map(Some).map_err(|_| told.into())
            }
            (DisclosurePolicy::Sealed(_), None) => {
                Err("closes_at: sealed items need the time at which the suite closes".into())
            }
            (_, Some(_)) => Err(format!(
                "closes_at: is for release = \"sealed(fraction)\", not for \"{policy}\""
            )),
            (_, None) => Ok(None),
        }
    }

    fn seal_seed(&self, policy: DisclosurePolicy) -> Result<Option<String>, String> {
        match (policy, &self.seal_seed) {
            (DisclosurePolicy::Sealed(_), Some(seed)) if (1..=SEED_MAX).contains(&seed.len()) => {
                Ok(Some(seed.clone()))
            }
            (DisclosurePolicy::Sealed(_), _) => Err(format!(
                "seal_seed: sealed items are drawn by it; give a string of 1 to {SEED_MAX} bytes that nobody can guess"
            )),
            (_, Some(_)) => Err(format!(
                "seal_seed: is for release = \"sealed(fraction)\", not for \"{policy}\""
            )),
            (_, None) => Ok(None),
        }
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
    /// Whether it is scored without being disclosed before the suite has closed.
    pub is_sealed: bool,
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
    /// What keeps answers from being computed from scores.
    pub protection: Protection,
    /// In the order of the file.
    pub items: Vec<FolderItem>,
    /// The SHA-256 of everything above.
    pub content_sha256: [u8; 32],
}

impl SuiteFolder {
    /// Reads a folder.
    pub fn read(folder: &Path) -> Result<Self, BadSuite> {
        let text = |file| {
            fs::read_to_string(folder.join(file))
                .map_err(|error| bad(file, 0, format!("cannot be read: {error}")))
        };
        Self::parse(&text(SUITE)?, &text(ITEMS)?, &text(ANSWERS)?)
    }

    /// Reads the texts of the three files.
    pub fn parse(suite: &str, items: &str, answers: &str) -> Result<Self, BadSuite> {
        let head: Head = toml::from_str(suite).map_err(|error| bad(SUITE, 0, error.to_string()))?;
        let suite_id = head.suite_id.parse().map_err(|_| {
            bad(SUITE, 0, "suite_id must be \"suite:\" and a name of lower-case letters, digits, '.', '_' or '-', at most 64 characters")
        })?;
        if !is_version(&head.version) {
            return Err(bad(
                SUITE,
                0,
                "version must be 1 to 64 letters, digits, '.', '_', '-' or '+'",
            ));
        }
        let metric: Metric = head
            .metric
            .parse()
            .map_err(|error| bad(SUITE, 0, format!("metric: {error}")))?;
        if head.per_item_feedback && !metric.has_item_scores() {
            return Err(bad(
                SUITE,
                0,
                format!("per_item_feedback: with {metric} an item has no score of its own"),
            ));
        }
        let protection = head
            .protection(metric)
            .map_err(|reason| bad(SUITE, 0, reason))?;
        let mut answers = read_answers(answers, &metric)?;
        let mut items = join(items, &mut answers)?;
        if let Some((item_id, (line, _))) = answers.iter().min_by_key(|(_, (line, _))| *line) {
            return Err(bad(
                ANSWERS,
                *line,
                format!("there is no item {item_id:?} in {ITEMS}"),
            ));
        }
        if items.is_empty() {
            return Err(bad(ITEMS, 0, "a suite needs at least one item"));
        }
        if let (DisclosurePolicy::Sealed(fraction), Some(seed)) =
            (protection.policy, &protection.seal_seed)
        {
            let n_sealed = fraction.of(items.len());
            seal(&mut items, n_sealed, seed, metric)?;
        }
        let Head {
            version,
            per_item_feedback,
            description,
            ..
        } = head;
        let mut folder = Self {
            suite_id,
            version,
            metric,
            per_item_feedback,
            description,
            protection,
            items,
            content_sha256: [0; 32],
        };
        folder.content_sha256 = folder.digest();
        Ok(folder)
    }

    /// The answers of the open items; without sealed items, of all.
    pub fn open_answers(&self) -> Result<AnswerTable, BadSuite> {
        let unusable = |reason: String| bad(ANSWERS, 0, reason);
        let open = || self.items.iter().filter(|item| !item.is_sealed);
        let mut builder = Builder::new(self.metric, open().count()).clip(self.protection.clip);
        for item in open() {
            let answer = Answer::parse(item.answer.get(), &self.metric).map_err(unusable)?;
            builder
                .push(&item.item_id, &answer)
                .map_err(|corrupt| unusable(corrupt.to_string()))?;
        }
        builder
            .finish()
            .map_err(|corrupt| unusable(corrupt.to_string()))
    }

    /// The grid of the suite's ladder. `None` if its policy is no ladder; the error is that no step lies above the start.
    pub fn ladder(&self, open: &AnswerTable) -> Result<Option<Ladder>, BadSuite> {
        let DisclosurePolicy::Ladder(step) = self.protection.policy else {
            return Ok(None);
        };
        Ladder::of_suite(step, self.metric, self.protection.clip, open).map(Some).ok_or_else(|| {
            let best = best_trivial(&trivial_submissions(open, self.metric), self.metric);
            let told = best.map_or_else(String::new, |best| format!(" of the best trivial submission ({}: {})", best.name, best.value));
            bad(SUITE, 0, format!("release: no step of the ladder lies above the value{told}; choose a smaller step or another policy"))
        })
    }

    fn digest(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        // Each part with its length before it, so that no two contents read alike.
        let mut part = |text: &str| {
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text);
        };
        [
            self.suite_id.as_str(),
            &self.version,
            &self.metric.to_string(),
            &self.per_item_feedback.to_string(),
            &self.description,
        ]
        .into_iter()
        .for_each(&mut part);
        let Protection {
            policy,
            clip,
            max_submissions_per_day,
            max_submissions,
            access,
            closes_at,
            seal_seed,
        } = &self.protection;
        let text = |value: &dyn ToString| value.to_string();
        // Of a folder without such fields the digest is what it was before there were any.
        if (*policy, *max_submissions_per_day) != (DisclosurePolicy::Exact, None) {
            let max = max_submissions_per_day.map_or_else(String::new, |max| max.to_string());
            [
                "release",
                &policy.to_string(),
                "max_submissions_per_day",
                &max,
            ]
            .into_iter()
            .for_each(&mut part);
        }
        let later = [
            (
                "clip",
                clip.map(|Clip { low, high }| format!("{low} {high}")),
            ),
            (
                "max_submissions",
                max_submissions.as_ref().map(|max| text(max)),
            ),
            (
                "access",
                (*access != SuiteAccess::Everyone).then(|| text(access)),
            ),
            ("closes_at", closes_at.as_ref().map(|at| text(at))),
            ("seal_seed", seal_seed.clone()),
        ];
        for (field, value) in later
            .iter()
            .filter_map(|(field, value)| Some((field, value.as_ref()?)))
        {
            [*field, value].into_iter().for_each(&mut part);
        }
        for item in &self.items {
            [&item.item_id, item.input.get(), item.answer.get()]
                .into_iter()
                .for_each(&mut part);
        }
        hash.finalize().into()
    }
}

/// Seals this many items: those with the smallest hashes of the seed and their id, so that neither the order of the file nor
/// any answer has a part in the choice. Both the open and the sealed items must be enough for the metric to be defined.
fn seal(
    items: &mut [FolderItem],
    n_sealed: usize,
    seed: &str,
    metric: Metric,
) -> Result<(), BadSuite> {
    if items.len() < 2 {
        return Err(bad(
            ITEMS,
            0,
            "a suite with sealed items needs at least two items",
        ));
    }
    let hash = |item: &FolderItem| -> [u8; 32] {
        Sha256::digest(format!("{} {seed} {}", seed.len(), item.item_id)).into()
    };
    let mut order: Vec<(usize, [u8; 32])> = items
        .iter()
        .enumerate()
        .map(|(at, item)| (at, hash(item)))
        .collect();
    order.sort_unstable_by_key(|(_, hash)| *hash);
    order[..n_sealed]
        .iter()
        .for_each(|(at, _)| items[*at].is_sealed = true);
    for is_sealed in [false, true] {
        let mut check = AnswersCheck::new(metric);
        let part = items.iter().filter(|item| item.is_sealed == is_sealed);
        let checked = part
            .map(|item| check.add(&Answer::parse(item.answer.get(), &metric)?))
            .collect::<Result<Vec<_>, _>>();
        checked.and_then(|_| check.finish()).map_err(|reason| {
            let which = if is_sealed { "sealed" } else { "open" };
            bad(SUITE, 0, format!("release: of the {which} items alone: {reason}; try another seal_seed or fraction"))
        })?;
    }
    Ok(())
}

/// The metric of a suite's folder, and the bounds of the loss of an item.
pub fn metric_of(folder: &Path) -> Result<(Metric, Option<Clip>), BadSuite> {
    let text = fs::read_to_string(folder.join(SUITE))
        .map_err(|error| bad(SUITE, 0, format!("cannot be read: {error}")))?;
    let head: Head = toml::from_str(&text).map_err(|error| bad(SUITE, 0, error.to_string()))?;
    let metric: Metric = head
        .metric
        .parse()
        .map_err(|error| bad(SUITE, 0, format!("metric: {error}")))?;
    let protection = head
        .protection(metric)
        .map_err(|reason| bad(SUITE, 0, reason))?;
    Ok((metric, protection.clip))
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
        Ok(Self {
            lines: BufReader::with_capacity(256 * 1024, file),
            bytes,
            metric,
        })
    }

    /// How many answers there are, judged by the length of the first ones.
    pub fn about(&mut self) -> usize {
        let Ok(first) = self.lines.fill_buf() else {
            return 0;
        };
        let lines = first.iter().filter(|byte| **byte == b'\n').count();
        (self.bytes as usize * (lines + 1))
            .checked_div(first.len())
            .unwrap_or(0)
    }

    /// Hands on each item's id and answer; what that refuses is told with the line.
    pub fn each(
        &mut self,
        mut each: impl FnMut(&str, &Answer<'_>) -> Result<(), String>,
    ) -> Result<(), BadSuite> {
        let (mut check, mut text, mut line) = (AnswersCheck::new(self.metric), String::new(), 0);
        loop {
            text.clear();
            line += 1;
            if self
                .lines
                .read_line(&mut text)
                .map_err(|error| bad(ANSWERS, line, format!("cannot be read: {error}")))?
                == 0
            {
                break;
            }
            if text.trim().is_empty() {
                continue;
            }
            let told = |reason: String| bad(ANSWERS, line, reason);
            let mut take = |item_id: &str, json: &str| {
                check_item_id(ANSWERS, line, item_id)?;
                let answer = Answer::parse(json, &self.metric)
                    .map_err(|reason| told(format!("answer: {reason}")))?;
                check
                    .add(&answer)
                    .map_err(|reason| told(format!("answer: {reason}")))?;
                each(item_id, &answer).map_err(told)
            };
            match line_of(&text, "answer") {
                Some((item_id, json)) => take(&item_id, json)?,
                None => {
                    let AnswerLine { item_id, answer } =
                        serde_json::from_str(&text).map_err(|error| told(error.to_string()))?;
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
    text.lines()
        .enumerate()
        .map(|(at, line)| (at + 1, line))
        .filter(|(_, line)| !line.trim().is_empty())
}

fn check_item_id(file: &'static str, line: usize, item_id: &str) -> Result<(), BadSuite> {
    match item_id {
        "" => Err(bad(file, line, "item_id must not be empty")),
        id if id.len() > ITEM_ID_MAX => Err(bad(
            file,
            line,
            format!("item_id must not be longer than {ITEM_ID_MAX} bytes"),
        )),
        id if id.contains('\0') => Err(bad(file, line, "item_id must not hold a NUL character")),
        _ => Ok(()),
    }
}

fn read_answers(text: &str, metric: &Metric) -> Result<Answers, BadSuite> {
    let (mut answers, mut check) = (Answers::new(), AnswersCheck::new(*metric));
    for (line, json) in lines(text) {
        let AnswerLine { item_id, answer } =
            serde_json::from_str(json).map_err(|error| bad(ANSWERS, line, error.to_string()))?;
        check_item_id(ANSWERS, line, &item_id)?;
        let parsed = Answer::parse(answer.get(), metric).and_then(|parsed| check.add(&parsed));
        parsed.map_err(|reason| bad(ANSWERS, line, format!("answer: {reason}")))?;
        if let Some((first, _)) = answers.get(&item_id) {
            return Err(bad(
                ANSWERS,
                line,
                format!("item_id {item_id:?} was answered before, in line {first}"),
            ));
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
        let ItemLine { item_id, input } =
            serde_json::from_str(json).map_err(|error| bad(ITEMS, line, error.to_string()))?;
        check_item_id(ITEMS, line, &item_id)?;
        // Read whole: what is passed over by the reader of lines could not be handed out over every wire.
        serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(input.get())
            .map_err(|error| bad(ITEMS, line, format!("input must be an object: {error}")))?;
        if let Some(first) = seen.insert(item_id.clone(), line) {
            return Err(bad(
                ITEMS,
                line,
                format!("item_id {item_id:?} was there before, in line {first}"),
            ));
        }
        let Some((_, answer)) = answers.remove(&item_id) else {
            return Err(bad(
                ITEMS,
                line,
                format!("item {item_id:?} has no answer in {ANSWERS}"),
            ));
        };
        items.push(FolderItem {
            item_id,
            input,
            answer,
            is_sealed: false,
        });
    }
    Ok(items)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(suite: &str, items: &str, answers: &str) -> Result<SuiteFolder, String> {
        let path = std::env::temp_dir().join(format!(
            "assay-suite-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        ));
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
        let digest = |more: &str| {
            folder(&format!("{GOOD}{more}"), ITEM, ANSWER)
                .unwrap()
                .content_sha256
        };
        let silent = digest("");
        let hex: String = silent.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            hex, "67e082731c837fc82bdede4fc50e802474aab4c2746d160834c16bed61f5dbc8",
            "folders that were published before are the same"
        );
        assert_eq!(silent, digest("release = \"exact\"\n"));
        let said = [
            "release = \"rounded(2)\"\n",
            "release = \"ladder(0.01)\"\n",
            "max_submissions_per_day = 5\n",
        ]
        .map(digest);
        let all: std::collections::HashSet<_> = said.into_iter().chain([silent]).collect();
        assert_eq!(all.len(), 4);
        let read = folder(
            &format!("{GOOD}release = \"ladder(0.01)\"\nmax_submissions_per_day = 5\n"),
            ITEM,
            ANSWER,
        )
        .unwrap();
        let Protection {
            policy,
            max_submissions_per_day,
            ..
        } = read.protection;
        assert_eq!(
            (policy.to_string().as_str(), max_submissions_per_day),
            ("ladder(0.01)", Some(5))
        );
    }

    #[test]
    fn seed_alone_draws_the_sealed_items() {
        let lines = |order: &[usize], answer: &dyn Fn(usize) -> String| -> (String, String) {
            let of = |at: &usize| {
                (
                    format!("{{\"item_id\":\"i{at}\",\"input\":{{}}}}\n"),
                    format!("{{\"item_id\":\"i{at}\",\"answer\":{}}}\n", answer(*at)),
                )
            };
            order.iter().map(of).unzip()
        };
        let sealed = |head: &str, order: &[usize], answer: &dyn Fn(usize) -> String| {
            let (items, answers) = lines(order, answer);
            let read = folder(head, &items, &answers)?;
            let mut ids: Vec<String> = read
                .items
                .into_iter()
                .filter(|item| item.is_sealed)
                .map(|item| item.item_id)
                .collect();
            ids.sort();
            Ok::<_, String>(ids)
        };
        let head = |metric: &str, seed: &str| {
            format!(
                "{}release = \"sealed(0.3)\"\nseal_seed = \"{seed}\"\ncloses_at = 2030-01-01T00:00:00Z\n",
                GOOD.replace("accuracy", metric)
            )
        };
        let (up, down): (Vec<usize>, Vec<usize>) = ((0..20).collect(), (0..20).rev().collect());
        let one = sealed(&head("accuracy", "s"), &up, &|at| format!("\"{}\"", at % 2)).unwrap();
        assert_eq!(one.len(), 6);
        assert_eq!(
            sealed(&head("accuracy", "s"), &down, &|_| "\"x\"".into()).unwrap(),
            one,
            "neither order nor answers matter"
        );
        assert_ne!(
            sealed(&head("accuracy", "t"), &up, &|_| "\"x\"".into()).unwrap(),
            one
        );
        // The metric must be defined for the open and for the sealed items.
        let of_one_label = |at: usize| {
            format!(
                "\"{}\"",
                if one.contains(&format!("i{at}")) {
                    "a"
                } else {
                    ["a", "b"][at % 2]
                }
            )
        };
        let told = sealed(&head("auc", "s"), &up, &of_one_label).unwrap_err();
        assert!(
            told.contains("of the sealed items alone: auc is for two labels")
                && told.contains("try another seal_seed"),
            "{told}"
        );
        let told = sealed(&head("accuracy", "s"), &[0], &|_| "\"x\"".into()).unwrap_err();
        assert!(told.contains("at least two items"), "{told}");
    }

    #[test]
    fn a_bad_folder_is_refused_with_file_and_line() {
        let two = format!("{ANSWER}{ANSWER}");
        let cases = [
            (
                GOOD.replace("suite:s", "S"),
                ITEM.into(),
                ANSWER.into(),
                "suite.toml: suite_id must be",
            ),
            (
                GOOD.replace("accuracy", "speed"),
                ITEM.into(),
                ANSWER.into(),
                "suite.toml: metric:",
            ),
            (
                format!("{GOOD}extra = 1\n"),
                ITEM.into(),
                ANSWER.into(),
                "suite.toml: TOML parse error",
            ),
            (
                GOOD.into(),
                format!("{ITEM}{{\n"),
                ANSWER.into(),
                "items.ndjson:2: ",
            ),
            (
                GOOD.into(),
                format!("{ITEM}{ITEM}"),
                ANSWER.into(),
                "items.ndjson:2: item_id \"a\" was there before, in line 1",
            ),
            (
                GOOD.into(),
                ITEM.replace("{\"prompt\": \"?\"}", "[]"),
                ANSWER.into(),
                "items.ndjson:1: input must be an object",
            ),
            (
                GOOD.into(),
                ITEM.replace("\"?\"", "1e999"),
                ANSWER.into(),
                "items.ndjson:1: input must be an object: number out of range",
            ),
            (
                GOOD.into(),
                ITEM.into(),
                two,
                "answers.ndjson:2: item_id \"a\" was answered before, in line 1",
            ),
            (
                GOOD.into(),
                ITEM.into(),
                ANSWER.replace("\"x\"", "7"),
                "answers.ndjson:1: answer: ",
            ),
            (
                GOOD.replace("accuracy", "rmse"),
                ITEM.into(),
                ANSWER.into(),
                "answers.ndjson:1: answer: the metric rmse takes a number",
            ),
            (
                GOOD.replace("accuracy", "auc"),
                ITEM.into(),
                ANSWER.into(),
                "answers.ndjson: auc is for two labels",
            ),
            (
                GOOD.replace("accuracy", "auc") + "per_item_feedback = true\n",
                ITEM.into(),
                ANSWER.into(),
                "suite.toml: per_item_feedback: with auc an item has no score of its own",
            ),
            (
                format!("{GOOD}release = \"rounded(9)\"\n"),
                ITEM.into(),
                ANSWER.into(),
                "suite.toml: release: expected exact; rounded(d)",
            ),
            (
                format!("{GOOD}release = \"ladder(0.01)\"\nper_item_feedback = true\n"),
                ITEM.into(),
                ANSWER.into(),
                "suite.toml: per_item_feedback: with release = \"ladder(0.01)\" the scores of single items must not be disclosed",
            ),
            (
                format!("{GOOD}max_submissions_per_day = 0\n"),
                ITEM.into(),
                ANSWER.into(),
                "suite.toml: max_submissions_per_day: must be",
            ),
            (
                GOOD.into(),
                ITEM.into(),
                String::new(),
                "items.ndjson:1: item \"a\" has no answer",
            ),
            (
                GOOD.into(),
                String::new(),
                ANSWER.into(),
                "answers.ndjson:1: there is no item \"a\"",
            ),
            (
                GOOD.into(),
                String::new(),
                String::new(),
                "items.ndjson: a suite needs at least one item",
            ),
        ];
        for (suite, items, answers, expected) in cases {
            let told = folder(&suite, &items, &answers).err().unwrap();
            assert!(told.starts_with(expected), "{told}");
        }
    }
}
