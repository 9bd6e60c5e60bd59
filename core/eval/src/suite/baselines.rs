//! Baselines: submissions that a suite's publisher pins, such as what people reach. Boards show them
//! next to the entries, and jobs are compared with them by name.

use std::collections::HashSet;
use std::fmt;
use std::io;
use std::path::{Component, Path};
use std::str::FromStr;

use serde::{Serialize, Serializer};
use sha2::{Digest as _, Sha256};

use super::bad_suite::{BadSuite, BadSuiteCode, shown};
use super::folder_tables::FolderTables;
use super::names::SUITE;
use super::suite_files::SuiteFiles;
use super::toml_keys::Keys;
use crate::content;
use crate::metric::Metric;
use crate::score::{Progress, Score, Scorer, score_trivial};
use crate::score_content;

/// The most baselines that a suite's publisher names.
const BASELINES_MAX: usize = 10;

/// The longest name, in characters, as of a board's entry.
const NAME_MAX: usize = 100;

/// The source of a baseline's predictions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BaselineKind {
    /// People.
    Human,
    /// A model.
    Model,
    /// The distribution of the answers, without knowledge about single items.
    Trivial,
}

impl BaselineKind {
    const ALL: [Self; 3] = [Self::Human, Self::Model, Self::Trivial];

    /// Returns the name in `suite.toml` and in responses.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Human => "human",
            Self::Model => "model",
            Self::Trivial => "trivial",
        }
    }
}

impl FromStr for BaselineKind {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.as_str() == text)
            .ok_or("expected one of: human, model, trivial")
    }
}

impl fmt::Display for BaselineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for BaselineKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// A scored baseline.
#[derive(Debug, Clone, PartialEq)]
pub struct Baseline {
    /// The name, which no other baseline of the suite has.
    pub name: String,
    /// The source of the predictions.
    pub kind: BaselineKind,
    /// A page about it.
    pub url: Option<String>,
    /// The SHA-256 of the predictions' normal form. `None` for a trivial submission, which has no
    /// file.
    pub predictions_sha256: Option<[u8; 32]>,
    /// Its score, without slices.
    pub score: Score,
}

/// A baseline that `suite.toml` names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaselineKey {
    /// The name: 1 to 100 characters, which no other baseline of the suite has.
    pub name: String,
    /// The file of predictions: a path within the folder of the suite.
    pub file: String,
    /// The source of the predictions.
    pub kind: BaselineKind,
    /// A page about it.
    pub url: Option<String>,
    /// The line of the name.
    line: usize,
}

impl BaselineKey {
    /// Reads `[[baselines]]`, and adds the errors to `keys`.
    pub(super) fn read(keys: &mut Keys<'_>) -> Vec<Self> {
        let mut baselines: Vec<Self> = Vec::new();
        for (at, mut table) in keys.tables("baselines").into_iter().flatten().enumerate() {
            if at == BASELINES_MAX {
                let message = format!("a suite has at most {BASELINES_MAX} baselines");
                table.reject("name", BadSuiteCode::TooLong, message);
            }
            if let Some(key) = Self::read_keys(&mut table) {
                if baselines.iter().any(|other| other.name == key.name) {
                    table.reject("name", BadSuiteCode::Duplicate, is_taken(&key.name));
                }
                baselines.push(key);
            }
            keys.extend(table.finish());
        }
        baselines
    }

    fn read_keys(keys: &mut Keys<'_>) -> Option<Self> {
        let name = keys.required_string("name", "\"People\"");
        let file = keys.required_string("file", "\"people.ndjson\"");
        let kind = keys.required_string("kind", "\"human\"");
        let url = keys.string("url").map(|url| url.value);
        if let Some(name) = &name {
            let n_characters = name.value.chars().count();
            if !(1..=NAME_MAX).contains(&n_characters) {
                let message = format!("has {n_characters} characters; must have 1 to {NAME_MAX}");
                keys.reject("name", BadSuiteCode::Value, message);
            }
        }
        if let Some(file) = &file {
            let is_inside = |part: Component<'_>| matches!(part, Component::Normal(_));
            if file.value.is_empty() || !Path::new(&file.value).components().all(is_inside) {
                let message = "must be the path of a file within the folder of the suite";
                keys.reject("file", BadSuiteCode::Value, message);
            }
        }
        let kind = kind.and_then(|kind| match kind.value.parse() {
            Ok(kind) => Some(kind),
            Err(reason) => {
                keys.reject("kind", BadSuiteCode::Value, reason);
                None
            }
        });
        let name = name?;
        Some(Self {
            name: name.value,
            file: file?.value,
            kind: kind?,
            url,
            line: name.line,
        })
    }
}

fn is_taken(name: &str) -> String {
    format!(
        "{} is the name of another baseline or trivial submission",
        shown(name)
    )
}

/// Scores the baselines that `suite.toml` names, and adds the metric's trivial submissions.
pub(super) fn score_baselines(
    keys: &[BaselineKey],
    metric: Metric,
    tables: &FolderTables,
    files: &dyn SuiteFiles,
) -> Result<Vec<Baseline>, BadSuite> {
    let trivial = score_trivial(&tables.open, tables.sealed.as_ref(), metric);
    let names: HashSet<&str> = trivial.iter().map(|(name, _)| *name).collect();
    let mut baselines = Vec::with_capacity(keys.len() + trivial.len());
    for (at, key) in keys.iter().enumerate() {
        let BaselineKey {
            name,
            file,
            kind,
            url,
            line,
        } = key;
        if names.contains(name.as_str()) {
            let field = format!("baselines[{at}].name");
            let message = format!("{field}: {}", is_taken(name));
            let error = BadSuite::new(SUITE, *line, message);
            return Err(error.with_code(BadSuiteCode::Duplicate).with_field(&field));
        }
        let (score, sha256) = score_file(file, metric, tables, files)?;
        baselines.push(Baseline {
            name: name.clone(),
            kind: *kind,
            url: url.clone(),
            predictions_sha256: Some(sha256),
            score,
        });
    }
    baselines.extend(trivial.into_iter().map(|(name, score)| Baseline {
        name: name.to_owned(),
        kind: BaselineKind::Trivial,
        url: None,
        predictions_sha256: None,
        score,
    }));
    Ok(baselines)
}

/// Scores a file of predictions. Returns the SHA-256 of their normal form too.
fn score_file(
    file: &str,
    metric: Metric,
    tables: &FolderTables,
    files: &dyn SuiteFiles,
) -> Result<(Score, [u8; 32]), BadSuite> {
    let unreadable = |error: io::Error| BadSuite::unreadable(file, 0, &error);
    let bytes = files.open(file).map_err(unreadable)?;
    let (bytes, format) = content::open(bytes, file).map_err(unreadable)?;
    let progress = Progress::default();
    let scorer = Scorer::new(&tables.open, metric, &progress)
        .without_slices()
        .with_sealed(tables.sealed.as_ref());
    let (score, sha256) = score_content::score_and_hash(scorer, metric, bytes, format)
        .map_err(|reason| BadSuite::new(file, 0, reason))?;
    if score.n_submitted == score.n_unmatched {
        let reason = "predicts no item of the suite; compare the ids of the items";
        return Err(BadSuite::new(file, 0, reason));
    }
    Ok((score, sha256))
}

/// Returns the commitment to the baselines' predictions: SHA-256(salt ‖ the SHA-256 of each file's
/// normal form, in order). `None` if no baseline has a file.
pub fn baselines_sha256(salt: &[u8; 32], baselines: &[Baseline]) -> Option<[u8; 32]> {
    let files: Vec<[u8; 32]> = baselines
        .iter()
        .filter_map(|baseline| baseline.predictions_sha256)
        .collect();
    if files.is_empty() {
        return None;
    }
    let mut hash = Sha256::new();
    hash.update(salt);
    files.iter().for_each(|sha256| hash.update(sha256));
    Some(hash.finalize().into())
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;
    use crate::suite::SuiteFolder;
    use crate::suite::suite_files::in_memory;

    const HEAD: &str = "suite_id = \"suite:s\"\nversion = \"1\"\nmetric = \"accuracy\"\n";
    const HUMAN: &str =
        "[[baselines]]\nname = \"People\"\nfile = \"people.ndjson\"\nkind = \"human\"\n";

    /// Reads a folder with 20 items, whose answers are `a` three times in four, and files.
    fn read(suite: &str, files: &[(&str, &str)]) -> Result<SuiteFolder, String> {
        let (mut items, mut answers) = (String::new(), String::new());
        for at in 0..20 {
            writeln!(items, "{{\"item_id\":\"i{at}\",\"input\":{{}}}}").unwrap();
            let answer = if at % 4 == 0 { "b" } else { "a" };
            writeln!(answers, "{{\"item_id\":\"i{at}\",\"answer\":\"{answer}\"}}").unwrap();
        }
        let suite = format!("{HEAD}{suite}");
        let files = in_memory(&suite, &items, &answers, files.iter().copied());
        SuiteFolder::parse_files(&files).map_err(|error| error.to_string())
    }

    fn line(item: usize, label: &str) -> String {
        format!("{{\"item_id\":\"i{item}\",\"prediction\":\"{label}\"}}\n")
    }

    /// Predicts `b` for all items but the last.
    fn people() -> String {
        (0..19).map(|item| line(item, "b")).collect()
    }

    #[test]
    fn baselines_are_scored_with_trivial_submissions() {
        let read_with = |toml: &str, content: &str| read(toml, &[("people.ndjson", content)]);
        let folder = read_with(HUMAN, &people()).unwrap();
        let found: Vec<_> = folder
            .baselines
            .iter()
            .map(|baseline| {
                let Baseline {
                    name, kind, score, ..
                } = baseline;
                (name.as_str(), *kind, score.figures.value, score.n_missing)
            })
            .collect();
        assert_eq!(
            found,
            [
                ("People", BaselineKind::Human, 0.25, 1),
                ("most frequent answers", BaselineKind::Trivial, 0.75, 0),
            ]
        );
        // The content and the commitment cover the predictions, and not how they are written.
        let salt = [7; 32];
        let spaced = people().replace(':', ": ");
        let other = people().replacen("\"b\"", "\"a\"", 1);
        let digests = [people(), spaced, other].map(|content| {
            let folder = read_with(HUMAN, &content).unwrap();
            (
                folder.content_sha256,
                baselines_sha256(&salt, &folder.baselines),
            )
        });
        assert_eq!(digests[0], digests[1]);
        assert!(digests[0].0 != digests[2].0 && digests[0].1 != digests[2].1);
        let renamed = read_with(&HUMAN.replace("People", "Persons"), &people()).unwrap();
        assert_ne!(renamed.content_sha256, digests[0].0);
        // A suite without baselines has none, also no trivial ones.
        let without = read("", &[]).unwrap();
        assert!(without.baselines.is_empty());
        assert_eq!(baselines_sha256(&salt, &without.baselines), None);
    }

    #[test]
    fn sealed_items_have_figures_of_their_own() {
        let sealed =
            "release = \"sealed(0.3)\"\nseal_seed = \"s\"\ncloses_at = 2030-01-01T00:00:00Z\n";
        let files = [("people.ndjson", people())];
        let files = files
            .each_ref()
            .map(|(name, content)| (*name, content.as_str()));
        let folder = read(&format!("{sealed}{HUMAN}"), &files).unwrap();
        for baseline in &folder.baselines {
            let score = &baseline.score;
            let sealed = score.sealed.as_ref().unwrap();
            assert_eq!((score.n, sealed.n), (14, 6), "{}", baseline.name);
        }
        let n_missing = |score: &Score| score.n_missing + score.sealed.as_ref().unwrap().n_missing;
        assert_eq!(n_missing(&folder.baselines[0].score), 1);
    }

    #[test]
    fn bad_baselines_are_rejected_with_location() {
        let trivial = HUMAN.replace("People", "most frequent answers");
        let eleven: String = (0..11)
            .map(|at| HUMAN.replace("People", &format!("People {at}")))
            .collect();
        let people = people();
        let repeated = format!("{people}{}", line(3, "a"));
        let broken = format!("{}{{\n", line(0, "a"));
        let number = line(0, "a").replace("\"a\"", "0.5");
        let stranger = line(99, "a");
        for (toml, content, reason) in [
            (
                HUMAN.replace("human", "robot"),
                &people,
                "suite.toml:7: baselines[0].kind: expected",
            ),
            (
                HUMAN.replace("People", ""),
                &people,
                "suite.toml:5: baselines[0].name: has 0 characters",
            ),
            (
                HUMAN.repeat(2),
                &people,
                "suite.toml:9: baselines[1].name: \"People\" is the name of another",
            ),
            (
                trivial,
                &people,
                "suite.toml:5: baselines[0].name: \"most frequent answers\" is the name",
            ),
            (
                eleven,
                &people,
                "suite.toml:45: baselines[10].name: a suite has at most 10",
            ),
            (
                HUMAN.replace("people.", "../people."),
                &people,
                "suite.toml:6: baselines[0].file: must be the path of a file within",
            ),
            (
                HUMAN.replace("people.", "/people."),
                &people,
                "suite.toml:6: baselines[0].file: must be the path of a file within",
            ),
            (
                HUMAN.replace("people.", "others."),
                &people,
                "others.ndjson: cannot be read",
            ),
            (
                HUMAN.replace("kind", "sort"),
                &people,
                "suite.toml:5: baselines[0].kind: this key is required",
            ),
            (
                HUMAN.to_owned(),
                &repeated,
                "people.ndjson: line 20.item_id: this item is already",
            ),
            (HUMAN.to_owned(), &broken, "people.ndjson: line 2"),
            (
                HUMAN.to_owned(),
                &number,
                "people.ndjson: line 1.prediction: ",
            ),
            (
                HUMAN.to_owned(),
                &stranger,
                "people.ndjson: predicts no item of the suite",
            ),
        ] {
            let error = read(&toml, &[("people.ndjson", content)]).err().unwrap();
            assert!(error.starts_with(reason), "{error} instead of {reason}");
        }
    }
}
