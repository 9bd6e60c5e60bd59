//! Baselines: submissions that a suite's publisher pins, such as what people reach. Boards show them
//! next to the entries, and jobs are compared with them by name.

use std::collections::HashSet;
use std::fmt;
use std::io::{self, Read};
use std::path::{Component, Path};
use std::str::FromStr;

use serde::{Serialize, Serializer};
use sha2::{Digest as _, Sha256};

use super::bad_suite::BadSuite;
use super::folder_tables::FolderTables;
use super::suite_toml::{BaselineToml, SUITE, line_at};
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

/// Opens one of the folder's files by its path.
pub(super) type OpenFile<'f> = &'f dyn Fn(&str) -> io::Result<Box<dyn Read>>;

/// Scores the baselines that `suite.toml` names, and adds the metric's trivial submissions. `text` is
/// that file, to name the line of an error.
pub(super) fn score_baselines(
    keys: &[BaselineToml],
    text: &str,
    metric: Metric,
    tables: &FolderTables,
    open_file: OpenFile<'_>,
) -> Result<Vec<Baseline>, BadSuite> {
    let bad = |at: usize, reason: String| {
        let reason = format!("baselines: {reason}");
        Err(BadSuite::new(SUITE, line_at(text, at), reason))
    };
    if let Some(first_above) = keys.get(BASELINES_MAX) {
        let reason = format!("a suite has at most {BASELINES_MAX}");
        return bad(first_above.name.span().start, reason);
    }
    let trivial = score_trivial(&tables.open, tables.sealed.as_ref(), metric);
    let mut names: HashSet<&str> = trivial.iter().map(|(name, _)| *name).collect();
    let mut baselines = Vec::with_capacity(keys.len() + trivial.len());
    for key in keys {
        let (name, file) = (key.name.get_ref(), key.file.get_ref());
        let n_characters = name.chars().count();
        if !(1..=NAME_MAX).contains(&n_characters) {
            let reason =
                format!("name has {n_characters} characters; it must have 1 to {NAME_MAX}");
            return bad(key.name.span().start, reason);
        }
        if !names.insert(name) {
            let reason = format!("{name:?} is the name of another baseline or trivial submission");
            return bad(key.name.span().start, reason);
        }
        let is_inside = |part: Component<'_>| matches!(part, Component::Normal(_));
        if file.is_empty() || !Path::new(file).components().all(is_inside) {
            let reason = "file: must be the path of a file within the folder of the suite";
            return bad(key.file.span().start, reason.to_owned());
        }
        let kind = match key.kind.get_ref().parse() {
            Ok(kind) => kind,
            Err(reason) => return bad(key.kind.span().start, format!("kind: {reason}")),
        };
        let (score, sha256) = score_file(file, metric, tables, open_file)?;
        baselines.push(Baseline {
            name: name.clone(),
            kind,
            url: key.url.clone(),
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
    open_file: OpenFile<'_>,
) -> Result<(Score, [u8; 32]), BadSuite> {
    let unreadable = |error: io::Error| BadSuite::unreadable(file, 0, &error);
    let bytes = open_file(file).map_err(unreadable)?;
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
    use crate::suite::folder::FolderFiles;

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
        let open_file = |name: &str| {
            let found = files.iter().find(|(file, _)| *file == name);
            let content = found.map(|(_, content)| (*content).to_owned());
            let content = content.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
            Ok(Box::new(io::Cursor::new(content)) as Box<dyn Read>)
        };
        let read = SuiteFolder::parse_files(&FolderFiles {
            suite_toml: &format!("{HEAD}{suite}"),
            items: &items,
            answers: &answers,
            retest: None,
            catalog: None,
            open_file: &open_file,
        });
        read.map_err(|error| error.to_string())
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
                "suite.toml:7: baselines: kind: expected",
            ),
            (
                HUMAN.replace("People", ""),
                &people,
                "suite.toml:5: baselines: name has 0 characters",
            ),
            (
                HUMAN.repeat(2),
                &people,
                "suite.toml:9: baselines: \"People\" is the name of another",
            ),
            (
                trivial,
                &people,
                "suite.toml:5: baselines: \"most frequent answers\" is the name",
            ),
            (
                eleven,
                &people,
                "suite.toml:45: baselines: a suite has at most 10",
            ),
            (
                HUMAN.replace("people.", "../people."),
                &people,
                "suite.toml:6: baselines: file: must be the path of a file within",
            ),
            (
                HUMAN.replace("people.", "/people."),
                &people,
                "suite.toml:6: baselines: file: must be the path of a file within",
            ),
            (
                HUMAN.replace("people.", "others."),
                &people,
                "others.ndjson: cannot be read",
            ),
            (
                HUMAN.replace("kind", "sort"),
                &people,
                "suite.toml: TOML parse error",
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
