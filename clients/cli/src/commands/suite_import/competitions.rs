//! Bundles of Codabench and EvalAI: a configuration in YAML, and a table with the answers.

use std::collections::BTreeMap;

use assay_eval::suite::shown;
use assay_tables::columns;
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;
use time::{Date, OffsetDateTime, PrimitiveDateTime};

use super::bundle::{Bundle, Kind};
use super::imported::{Choice, Imported, now};
use super::yaml::Mapping;
use crate::commands::suite_definition::{NewDefinition, check_column};
use crate::failure::{Exit, Failure, Result};

/// The longest title and description of a suite, in characters.
const TITLE_MAX: usize = 100;
const DESCRIPTION_MAX: usize = 4_000;

/// Reads the bundle of a Codabench competition, whose reference data `answers` names.
pub fn read_codabench(bundle: &mut Bundle, choice: Choice, answers: &str) -> Result<Imported> {
    const FILE: &str = "competition.yaml";
    let mut file = Mapping::read(bundle, FILE)?;
    let title = file.text("title");
    let description = file.text("description");
    let phase = file.last_of("phases");
    let mut competition = Competition::new(choice, title, description);
    if let Some(mut phase) = phase {
        let end = phase.text("end");
        competition.close(end.as_deref());
        competition.limit(&mut phase);
        competition.rest("the last phase", &phase);
    }
    competition.rest(FILE, &file);
    competition.not_read("scoring and ingestion programs: the metric takes their place");
    competition.finish(bundle, answers)
}

/// Reads the bundle of an EvalAI challenge, whose last phase names the annotations.
pub fn read_evalai(bundle: &mut Bundle, choice: Choice) -> Result<Imported> {
    const FILE: &str = "challenge_config.yaml";
    let mut file = Mapping::read(bundle, FILE)?;
    let title = file.text("title");
    // `description` names a page, and `short_description` is a text.
    let description = file.text("short_description");
    let end = file.text("end_date");
    let missing = |field: &str| {
        let message = format!("{FILE}: {field} is missing, which names the table with the answers");
        Failure::new(Exit::InvalidInput, message)
    };
    let mut phase = file
        .last_of("challenge_phases")
        .ok_or_else(|| missing("challenge_phases"))?;
    let annotations = phase
        .text("test_annotation_file")
        .ok_or_else(|| missing("test_annotation_file of the last phase"))?;
    let mut competition = Competition::new(choice, title, description);
    competition.close(end.as_deref());
    competition.limit(&mut phase);
    competition.rest("the last phase", &phase);
    competition.rest(FILE, &file);
    competition.not_read("evaluation_script: the metric takes its place");
    competition.finish(bundle, &annotations)
}

/// A suite that comes from a competition.
struct Competition {
    definition: NewDefinition,
    answer: Option<String>,
    read: Vec<String>,
    not_read: Vec<String>,
}

impl Competition {
    fn new(choice: Choice, title: Option<String>, description: Option<String>) -> Self {
        let Choice {
            answer,
            new,
            bundle_name,
        } = choice;
        let name = title.clone().unwrap_or(bundle_name);
        let mut competition = Self {
            definition: NewDefinition::new(new, None, &name),
            answer,
            read: Vec::new(),
            not_read: Vec::new(),
        };
        competition.definition.title = competition.plain_text("title", title, TITLE_MAX);
        competition.definition.description =
            competition.plain_text("description", description, DESCRIPTION_MAX);
        competition
    }

    fn not_read(&mut self, text: impl Into<String>) {
        self.not_read.push(text.into());
    }

    /// Reads a text of the suite. What a suite's text must not have is left out, and so is what is too long.
    fn plain_text(&mut self, field: &str, text: Option<String>, max: usize) -> Option<String> {
        let text = text?;
        let is_line_break = |character: char| field == "description" && character == '\n';
        let kept: String = text
            .trim()
            .chars()
            .map(|character| match character {
                character if is_line_break(character) => character,
                character if character.is_whitespace() => ' ',
                character => character,
            })
            .filter(|character| is_line_break(*character) || !is_forbidden(*character))
            .collect();
        let cut: String = kept.chars().take(max).collect();
        if cut.len() < kept.len() {
            self.not_read(format!("{field}: what follows its first {max} characters"));
        }
        if cut.trim().is_empty() {
            self.not_read(format!("{field}, which is empty"));
            return None;
        }
        self.read.push(field.to_owned());
        Some(cut)
    }

    /// Sets the time at which the suite and its board close.
    fn close(&mut self, end: Option<&str>) {
        let Some(end) = end else {
            self.not_read("an end, which is not set");
            return;
        };
        let Some(at) = parse_time(end) else {
            self.not_read(format!(
                "the end {end:?}, which is no time: set closes_at and board"
            ));
            return;
        };
        if at <= now() {
            self.not_read(format!(
                "the end {end:?}, which is past: set closes_at and board"
            ));
            return;
        }
        // It has whole seconds, and its year has four digits.
        let Ok(at) = at.format(&Rfc3339) else { return };
        self.read.push(format!(
            "the end, as closes_at = {at} with board = \"at_close\""
        ));
        self.definition.closes_at = Some(at);
        self.definition.board = Some("at_close");
    }

    fn limit(&mut self, phase: &mut Mapping) {
        let definition = &mut self.definition;
        definition.max_submissions = phase.limit("max_submissions");
        definition.max_submissions_per_day = phase.limit("max_submissions_per_day");
        for (name, limit) in [
            ("max_submissions", definition.max_submissions),
            (
                "max_submissions_per_day",
                definition.max_submissions_per_day,
            ),
        ] {
            if let Some(limit) = limit {
                self.read
                    .push(format!("{name} = {limit}, from the last phase"));
            }
        }
    }

    fn rest(&mut self, place: &str, mapping: &Mapping) {
        let rest = mapping.rest();
        if !rest.is_empty() {
            self.not_read(format!("{place}: {}", rest.join(", ")));
        }
    }

    /// Reads the table with the answers. Its other columns are hidden like the answers until the publisher decides.
    fn finish(mut self, bundle: &mut Bundle, path: &str) -> Result<Imported> {
        let (_, extension) = path.rsplit_once('.').unwrap_or_default();
        let file = format!("data.{extension}");
        let table = bundle.read(path, Kind::Table)?;
        let files = BTreeMap::from([(file.clone(), table)]);
        let names = columns(&file, &files).map_err(|mut error| {
            path.clone_into(&mut error.file);
            Failure::new(Exit::InvalidInput, error.to_string())
        })?;
        let (id, answer) = self.columns(&names, path)?;
        self.read.push(match &id {
            Some(id) => format!(
                "{path}: the ids {} and the answers {}",
                shown(id),
                shown(&answer)
            ),
            None => format!("{path}: the answers {}", shown(&answer)),
        });
        let has_role = |name: &String| id.as_ref() == Some(name) || *name == answer;
        let others: Vec<String> = names.into_iter().filter(|name| !has_role(name)).collect();
        if !others.is_empty() {
            let shown: Vec<String> = others.iter().map(|name| shown(name)).collect();
            self.not_read(format!(
                "{path}: {}, which may disclose the answers; remove from drop what everyone may see",
                shown.join(", ")
            ));
        }
        self.definition = NewDefinition {
            file: file.clone(),
            answer,
            id,
            drop: others,
            ..self.definition
        };
        let mut files = files;
        Ok(Imported {
            definition: self.definition,
            table: files.remove(&file).unwrap_or_default(),
            read: self.read,
            not_read: self.not_read,
        })
    }

    /// Returns the columns with ids and answers: the named ones, or else the first one and the only other one.
    fn columns(&mut self, names: &[String], path: &str) -> Result<(Option<String>, String)> {
        for (argument, name) in [("--id", &self.definition.id), ("--answer", &self.answer)] {
            if let Some(name) = name {
                check_column(names, path, argument, name)?;
            }
        }
        let answer = self.answer.take();
        let id = self.definition.id.take().or_else(|| {
            let first = names.first()?;
            (names.len() > 1 && answer.as_ref() != Some(first)).then(|| first.clone())
        });
        let mut others = names.iter().filter(|name| id.as_ref() != Some(*name));
        let answer = match (answer, others.next(), others.next()) {
            (Some(answer), ..) => answer,
            (None, Some(answer), None) => answer.clone(),
            _ => {
                let names: Vec<String> = names.iter().map(|name| shown(name)).collect();
                let message = format!(
                    "--answer: {path} has the columns {}; name the one with the answers",
                    names.join(", ")
                );
                return Err(Failure::new(Exit::InvalidInput, message));
            }
        };
        Ok((id, answer))
    }
}

/// Returns `true` for a character that a suite's texts must not have.
fn is_forbidden(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}

/// Reads a time as the platforms write it, in UTC unless it has an offset: RFC 3339, a date with or without a time, or a date with the
/// month first, as Codabench reads it.
fn parse_time(text: &str) -> Option<OffsetDateTime> {
    if let Ok(at) = OffsetDateTime::parse(text, &Rfc3339) {
        return at.replace_nanosecond(0).ok();
    }
    let (date, time) = match text.split_once(['T', ' ']) {
        Some((date, time)) => (date, time.trim_end_matches('Z')),
        None => (text, "0:00:00"),
    };
    let date = [
        format_description!("[year]-[month padding:none]-[day padding:none]"),
        format_description!("[month padding:none]-[day padding:none]-[year]"),
        format_description!("[month padding:none]/[day padding:none]/[year]"),
    ]
    .into_iter()
    .find_map(|format| Date::parse(date, format).ok())?;
    let time = [
        format_description!("[hour padding:none]:[minute]:[second]"),
        format_description!("[hour padding:none]:[minute]"),
    ]
    .into_iter()
    .find_map(|format| time::Time::parse(time, format).ok())?;
    Some(PrimitiveDateTime::new(date, time).assume_utc())
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Folder, choice, n_items};
    use super::*;

    const CODABENCH: &str = "version: 2\ntitle: Wheat Seeds\ndescription: Three classes of seeds.\nimage: logo.png\npages:\n  - {title: a, file: a.md}\n\
        tasks:\n  - {index: 0, reference_data: reference/, scoring_program: scoring/}\n\
        phases:\n  - {index: 0, end: 2020-01-01, max_submissions: 9}\n  - {index: 1, end: 12-31-2099, max_submissions: 40, max_submissions_per_day: 5}\n";

    const EVALAI: &str = "title: Numbers\nshort_description: Guess them.\ndescription: templates/description.html\n\
        evaluation_script: evaluation_script.zip\nend_date: 2099-05-31 23:59:59\nchallenge_phases:\n  - {id: 1, test_annotation_file: a.csv}\n\
        \x20 - {id: 2, test_annotation_file: annotations/test.json, max_submissions_per_day: 5, max_submissions_per_month: 50, max_submissions: 60}\n";

    const ANSWERS: &str = "id,label,note\n1,a,x\n2,b,y\n3,a,z\n";

    fn codabench(name: &str, yaml: &str, answers: &str, answer: &str) -> Result<Imported> {
        let folder = Folder::new(&format!("codabench-{name}"));
        folder.write("competition.yaml", yaml);
        folder.write("reference/answers.csv", answers);
        read_codabench(
            &mut folder.bundle(),
            choice("accuracy", answer),
            "reference/answers.csv",
        )
    }

    #[test]
    fn codabench_competition_becomes_a_suite() {
        let imported = codabench("whole", CODABENCH, ANSWERS, "label").unwrap();
        let definition = &imported.definition;
        assert_eq!(definition.title.as_deref(), Some("Wheat Seeds"));
        assert_eq!(
            definition.description.as_deref(),
            Some("Three classes of seeds.")
        );
        assert_eq!(definition.suite_id, "suite:your_handle.wheat-seeds");
        assert_eq!(
            definition.closes_at.as_deref(),
            Some("2099-12-31T00:00:00Z")
        );
        assert_eq!(
            (
                definition.max_submissions,
                definition.max_submissions_per_day
            ),
            (Some(40), Some(5))
        );
        assert_eq!(definition.id.as_deref(), Some("id"));
        // A hidden column stays hidden.
        assert_eq!(definition.drop, ["note"]);
        assert_eq!(imported.table, ANSWERS.as_bytes());
        assert_eq!(n_items(&imported), 3);
        let not_read = imported.not_read.join("\n");
        for text in ["image, pages, tasks, phases", "programs", "\"note\""] {
            assert!(not_read.contains(text), "{text}: {not_read}");
        }
    }

    #[test]
    fn evalai_challenge_becomes_a_suite() {
        let folder = Folder::new("evalai");
        folder.write("challenge_config.yaml", EVALAI);
        folder.write(
            "annotations/test.json",
            "[{\"id\": \"a\", \"value\": 1.5}, {\"id\": \"b\", \"value\": 2}]",
        );
        let imported = read_evalai(&mut folder.bundle(), choice("rmse", "")).unwrap();
        let definition = &imported.definition;
        assert_eq!(definition.description.as_deref(), Some("Guess them."));
        assert_eq!(
            definition.closes_at.as_deref(),
            Some("2099-05-31T23:59:59Z")
        );
        assert_eq!(definition.max_submissions, Some(60));
        assert_eq!(
            (definition.file.as_str(), definition.answer.as_str()),
            ("data.json", "value")
        );
        assert_eq!(n_items(&imported), 2);
        let not_read = imported.not_read.join("\n");
        for text in [
            "evaluation_script",
            "max_submissions_per_month",
            "description",
        ] {
            assert!(not_read.contains(text), "{text}: {not_read}");
        }
    }

    #[test]
    #[cfg(unix)]
    fn configuration_cannot_name_files_elsewhere() {
        let folder = Folder::new("elsewhere");
        folder.write("secret.csv", "id,value\n1,1\n");
        folder.write("bundle/readme.md", "");
        let link = folder.path("bundle/link.csv");
        std::os::unix::fs::symlink("../secret.csv", link).unwrap();
        let secret = folder.path("secret.csv").display().to_string();
        for path in ["../secret.csv", "a/../../secret.csv", &secret, "link.csv"] {
            let yaml = format!("challenge_phases: [{{test_annotation_file: '{path}'}}]\n");
            folder.write("bundle/challenge_config.yaml", &yaml);
            let mut bundle = Bundle::open(&folder.path("bundle"), false).unwrap();
            let failure = read_evalai(&mut bundle, choice("rmse", "")).err().unwrap();
            let message = failure.to_string();
            let is_refused = ["within the bundle", "symbolic link"]
                .iter()
                .any(|reason| message.contains(reason));
            assert!(is_refused, "{path}: {message}");
        }
    }

    #[test]
    fn columns_are_chosen_or_asked_for() {
        let chosen = |answers: &str, answer: &str| {
            codabench(
                &format!("{:x}", rand::random::<u64>()),
                CODABENCH,
                answers,
                answer,
            )
            .map(|imported| (imported.definition.id, imported.definition.answer))
            .map_err(|failure| failure.to_string())
        };
        let id = || Some("id".to_owned());
        assert_eq!(chosen("id,y\n1,a\n", ""), Ok((id(), "y".into())));
        assert_eq!(chosen("y\na\n", ""), Ok((None, "y".into())));
        assert_eq!(chosen("y,x\na,b\n", "y"), Ok((None, "y".into())));
        let message = chosen(ANSWERS, "").unwrap_err();
        assert!(message.contains("\"id\", \"label\", \"note\""), "{message}");
        let message = chosen(ANSWERS, "lable").unwrap_err();
        assert!(message.contains("did you mean \"label\"?"), "{message}");
    }

    #[test]
    fn odd_configurations_are_read_as_far_as_possible() {
        let long = "x".repeat(101);
        for (yaml, title, closes_at, not_read) in [
            ("{}", None, None, "programs"),
            ("title: ''\n", None, None, "title, which is empty"),
            (
                &format!("title: {long}\n"),
                Some(&long[..100]),
                None,
                "its first 100",
            ),
            (
                "title: \"a\\tb\\u202e\\u0007c\"\n",
                Some("a bc"),
                None,
                "programs",
            ),
            ("phases: [{end: 2001-01-01}]\n", None, None, "is past"),
            ("phases: [{end: soon}]\n", None, None, "is no time"),
            (
                "phases: [{end: 2099-01-02T03:04:05.6+01:00}]\n",
                None,
                Some("2099-01-02T03:04:05+01:00"),
                "programs",
            ),
            (
                "phases: [{end: 1/2/2099 3:04}]\n",
                None,
                Some("2099-01-02T03:04:00Z"),
                "programs",
            ),
            ("phases: {a: 1}\n", None, None, "competition.yaml: phases"),
            (
                "phases: [{max_submissions: 0}]\n",
                None,
                None,
                "the last phase: max_submissions",
            ),
        ] {
            let name = format!("{:x}", rand::random::<u64>());
            let imported = codabench(&name, yaml, ANSWERS, "label").unwrap();
            assert_eq!(imported.definition.title.as_deref(), title, "{yaml}");
            assert_eq!(
                imported.definition.closes_at.as_deref(),
                closes_at,
                "{yaml}"
            );
            let found = imported.not_read.join("\n");
            assert!(found.contains(not_read), "{yaml}: {found}");
            assert_eq!(n_items(&imported), 3);
        }
    }
}
