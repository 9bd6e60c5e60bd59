//! The data of a Kaggle competition: `test.csv` with the inputs and `solution.csv` with the answers become one table.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::ops::ControlFlow;

use assay_eval::Metric;
use assay_eval::csv::{CsvReader, Record};
use assay_eval::suite::shown;
use serde_json::{Map, Number, Value};
use time::Duration;

use super::bundle::{Bundle, Kind};
use super::imported::{Choice, Imported, now};
use crate::commands::suite_definition::{NewDefinition, check_column};
use crate::failure::{Exit, Failure, Result};

const SOLUTION: &str = "solution.csv";
const TEST: &str = "test.csv";

/// The table of the suite.
const TABLE: &str = "data.csv";

/// The column that says in which leaderboard a row counts.
const USAGE: &str = "Usage";

/// The most errors that are shown.
const ERRORS_MAX: usize = 100;

/// The days until a sealed suite closes: Kaggle's files do not say when.
const OPEN_DAYS: i64 = 365;

/// A CSV file in memory. A field without a value is `None`.
struct Table {
    name: &'static str,
    columns: Vec<String>,
    rows: Vec<Row>,
}

struct Row {
    line: usize,
    cells: Vec<Option<String>>,
}

/// The errors of a file, of which the first are kept.
#[derive(Default)]
struct Errors(Vec<String>);

impl Errors {
    fn add(&mut self, file: &str, line: usize, message: &str) {
        if self.0.len() < ERRORS_MAX {
            self.0.push(format!("{file}:{line}: {message}"));
        }
    }

    fn finish(self) -> Result<()> {
        if self.0.is_empty() {
            return Ok(());
        }
        Err(Failure::new(Exit::InvalidInput, self.0.join("\n")))
    }
}

/// Reads the bundle.
pub fn read(bundle: &mut Bundle, choice: Choice) -> Result<Imported> {
    let solution = Table::read(bundle, SOLUTION)?;
    let test = Table::read(bundle, TEST)?;
    let Choice {
        answer,
        mut new,
        bundle_name,
    } = choice;
    let metric: Metric = new
        .metric
        .parse()
        .map_err(|reason| Failure::new(Exit::InvalidInput, format!("--metric: {reason}")))?;
    let id = match new.id.take() {
        Some(id) => {
            solution.place("--id", &id)?;
            id
        }
        None => solution.columns.first().cloned().unwrap_or_default(),
    };
    let test_id = test.place("--id", &id)?;
    let answers = Answers::new(&solution, &id, answer, metric)?;
    let mut not_read = answers.not_read.clone();
    if let Some(column) = test.columns.iter().find(|column| answers.has(column)) {
        let message = format!(
            "{TEST}:1: {} is a column of answers in {SOLUTION}, and inputs are public; remove it here",
            shown(column)
        );
        return Err(Failure::new(Exit::InvalidInput, message));
    }
    let mut errors = Errors::default();
    let mut by_id = solution.answers_by_id(&id, &answers, &mut errors)?;
    let n_ignored = by_id
        .values()
        .filter(|found| found.usage == Usage::Ignored)
        .count();
    let column = answers.column(&test.columns);
    let mut table = String::new();
    write_record(
        &mut table,
        test.columns
            .iter()
            .chain([&column])
            .map(|name| Some(name.as_str())),
    );
    let (mut n_public, mut n_private) = (0_usize, 0_usize);
    let mut seen = HashSet::new();
    for row in &test.rows {
        let Some(item_id) = row.cells[test_id].as_deref() else {
            errors.add(TEST, row.line, &format!("{} has no value", shown(&id)));
            continue;
        };
        if !seen.insert(item_id) {
            let message = format!("{} is the id of a row before; remove one", shown(item_id));
            errors.add(TEST, row.line, &message);
            continue;
        }
        let Some(found) = by_id.remove(item_id) else {
            let message = format!("{SOLUTION} has no answer for {}", shown(item_id));
            errors.add(TEST, row.line, &message);
            continue;
        };
        match found.usage {
            Usage::Ignored => continue,
            Usage::Public => n_public += 1,
            Usage::Private => n_private += 1,
        }
        let cells = row.cells.iter().map(Option::as_deref);
        write_record(&mut table, cells.chain([found.answer.as_deref()]));
    }
    let mut unmatched: Vec<(&String, usize)> = by_id
        .iter()
        .filter(|(_, found)| found.usage != Usage::Ignored)
        .map(|(item_id, found)| (item_id, found.line))
        .collect();
    unmatched.sort_by_key(|(_, line)| *line);
    for (item_id, line) in unmatched {
        let message = format!(
            "{TEST} has no item {}, which has an answer here",
            shown(item_id)
        );
        errors.add(SOLUTION, line, &message);
    }
    errors.finish()?;
    let mut definition = NewDefinition {
        file: TABLE.into(),
        answer: column,
        ..NewDefinition::new(new, None, &bundle_name)
    };
    definition.id = Some(id.clone());
    let inputs = test.columns.iter().filter(|column| **column != id);
    definition.inputs = inputs.cloned().collect();
    let n_items = n_public + n_private;
    let mut read = vec![
        format!(
            "{TEST}: {n_items} items with the ids {}; all other columns are inputs",
            shown(&id)
        ),
        format!("{SOLUTION}: the answers {}", answers.shown()),
    ];
    if let Some(release) = release(n_public, n_private)? {
        read.push(format!(
            "{SOLUTION}: {n_private} of {n_items} rows are Private, so {release}"
        ));
        not_read.push(
            "the split itself: a seal is drawn from its own seed, so other items are sealed than those in Private rows".to_owned(),
        );
        let closes_at = (now() + Duration::days(OPEN_DAYS)).date();
        not_read.push(format!(
            "an end, which the files do not have: closes_at is {closes_at}, correct it"
        ));
        definition.release = Some(release);
        definition.closes_at = Some(format!("{closes_at}T00:00:00Z"));
    }
    if n_ignored > 0 {
        not_read.push(format!("{n_ignored} rows that are Ignored"));
    }
    not_read.push("other files of the bundle".to_owned());
    Ok(Imported {
        definition,
        table: table.into_bytes(),
        read,
        not_read,
    })
}

/// Returns the policy that seals as large a share as Kaggle's private leaderboard has. `None` without private rows.
fn release(n_public: usize, n_private: usize) -> Result<Option<String>> {
    if n_private == 0 {
        return Ok(None);
    }
    if n_public == 0 {
        let message = format!(
            "{SOLUTION}: all rows are Private, but a sealed suite has open items too; mark some rows as Public, or remove {USAGE}"
        );
        return Err(Failure::new(Exit::InvalidInput, message));
    }
    let share = n_private as f64 / (n_public + n_private) as f64;
    let share = ((share * 1000.0).round() / 1000.0).clamp(0.001, 0.999);
    Ok(Some(format!("sealed({share})")))
}

impl Table {
    fn read(bundle: &mut Bundle, name: &'static str) -> Result<Self> {
        let bytes = bundle.read(name, Kind::Table)?;
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
        let mut table = Self {
            name,
            columns: Vec::new(),
            rows: Vec::new(),
        };
        let mut errors = Errors::default();
        let mut has_header = false;
        let mut each = |record: Result<Record<'_>, assay_eval::csv::CsvError>| {
            match record {
                Ok(record) if !has_header => {
                    has_header = true;
                    table.columns = record.cells().map(str::to_owned).collect();
                }
                Ok(record) => {
                    let cells = record.cells().enumerate();
                    let cells =
                        cells.map(|(at, cell)| (!record.is_absent(at)).then(|| cell.to_owned()));
                    table.rows.push(Row {
                        line: record.line,
                        cells: cells.collect(),
                    });
                }
                Err(error) => errors.add(name, error.line, &error.message),
            }
            ControlFlow::<()>::Continue(())
        };
        let mut reader = CsvReader::default();
        if reader.feed(bytes, &mut each).is_continue() {
            let _ = reader.finish(&mut each);
        }
        errors.finish()?;
        Ok(table)
    }

    /// Returns the place of a column that `argument` names.
    fn place(&self, argument: &str, name: &str) -> Result<usize> {
        check_column(&self.columns, self.name, argument, name)?;
        let place = self.columns.iter().position(|column| column == name);
        Ok(place.unwrap_or_default())
    }

    /// Returns the answer of each item.
    fn answers_by_id(
        &self,
        id: &str,
        answers: &Answers,
        errors: &mut Errors,
    ) -> Result<HashMap<String, Found>> {
        let id_place = self.place("--id", id)?;
        let usage = self.columns.iter().position(|name| is_usage(name));
        let mut found = HashMap::new();
        for row in &self.rows {
            let Some(item_id) = row.cells[id_place].clone() else {
                errors.add(self.name, row.line, &format!("{} has no value", shown(id)));
                continue;
            };
            let usage = match usage.and_then(|at| row.cells[at].as_deref()) {
                Some(text) if text.eq_ignore_ascii_case("private") => Usage::Private,
                Some(text) if text.eq_ignore_ascii_case("ignored") => Usage::Ignored,
                Some(text) if !text.eq_ignore_ascii_case("public") => {
                    let message = format!("{USAGE} must be Public, Private or Ignored");
                    errors.add(self.name, row.line, &message);
                    continue;
                }
                None if usage.is_some() => {
                    errors.add(self.name, row.line, &format!("{USAGE} has no value"));
                    continue;
                }
                _ => Usage::Public,
            };
            let answer = match answers.answer_in(row) {
                _ if usage == Usage::Ignored => None,
                Ok(answer) => Some(answer),
                Err(message) => {
                    errors.add(self.name, row.line, &message);
                    continue;
                }
            };
            let line = row.line;
            let message = format!("{} is the id of a row before; remove one", shown(&item_id));
            let answer = Found {
                line,
                usage,
                answer,
            };
            if found.insert(item_id, answer).is_some() {
                errors.add(self.name, line, &message);
            }
        }
        Ok(found)
    }
}

/// The leaderboard in which a row counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Usage {
    Public,
    Private,
    Ignored,
}

fn is_usage(column: &str) -> bool {
    column.eq_ignore_ascii_case(USAGE)
}

/// An item's answer.
struct Found {
    line: usize,
    usage: Usage,
    answer: Option<String>,
}

/// The columns of the answers.
struct Answers {
    columns: Vec<(usize, String)>,
    /// The columns that were left out, for people.
    not_read: Vec<String>,
}

impl Answers {
    /// Selects the columns: the named one, the only one, or the shares of a distribution.
    fn new(solution: &Table, id: &str, answer: Option<String>, metric: Metric) -> Result<Self> {
        let mut columns: Vec<(usize, String)> = solution
            .columns
            .iter()
            .cloned()
            .enumerate()
            .filter(|(_, column)| column != id && !is_usage(column))
            .collect();
        let mut not_read = Vec::new();
        if let Some(answer) = answer {
            let names: Vec<String> = columns.iter().map(|(_, name)| name.clone()).collect();
            check_column(&names, SOLUTION, "--answer", &answer)?;
            let (chosen, others): (Vec<_>, Vec<_>) =
                columns.into_iter().partition(|(_, name)| *name == answer);
            columns = chosen;
            not_read.extend(
                others
                    .iter()
                    .map(|(_, name)| format!("{SOLUTION}: the column {}", shown(name))),
            );
        }
        let answers = Self { columns, not_read };
        let message = match answers.columns.len() {
            0 => format!("{SOLUTION}:1: there is no column of answers"),
            2.. if !metric.takes_distributions() => format!(
                "--answer: {SOLUTION} has the columns {}, and {metric} takes one; name it",
                answers.shown()
            ),
            _ => return Ok(answers),
        };
        Err(Failure::new(Exit::InvalidInput, message))
    }

    fn has(&self, column: &str) -> bool {
        self.columns.iter().any(|(_, name)| name == column)
    }

    fn shown(&self) -> String {
        let names: Vec<String> = self.columns.iter().map(|(_, name)| shown(name)).collect();
        names.join(", ")
    }

    /// Returns the name of the column in the table.
    fn column(&self, others: &[String]) -> String {
        if let [(_, name)] = self.columns.as_slice() {
            return name.clone();
        }
        let mut name = "answer".to_owned();
        while others.contains(&name) {
            name.push('_');
        }
        name
    }

    /// Returns the answer in a row: one cell, or an object of label → share.
    fn answer_in(&self, row: &Row) -> Result<String, String> {
        let mut shares = Map::new();
        for (at, name) in &self.columns {
            let missing = || format!("{} has no value", shown(name));
            let cell = row.cells[*at].as_ref().ok_or_else(missing)?;
            if self.columns.len() == 1 {
                return Ok(cell.clone());
            }
            let share: Number = serde_json::from_str(cell).map_err(|_| {
                format!("{} must be a number, as the share of a label", shown(name))
            })?;
            shares.insert(name.clone(), Value::Number(share));
        }
        Ok(Value::Object(shares).to_string())
    }
}

/// Writes a line of CSV. A field without a value is empty, and an empty text is quoted.
fn write_record<'a>(table: &mut String, cells: impl Iterator<Item = Option<&'a str>>) {
    for (at, cell) in cells.enumerate() {
        if at > 0 {
            table.push(',');
        }
        match cell {
            None => {}
            Some(text) if text.is_empty() || text.contains(['"', ',', '\n', '\r']) => {
                // Writing to a string cannot fail.
                let _ = write!(table, "\"{}\"", text.replace('"', "\"\""));
            }
            Some(text) => table.push_str(text),
        }
    }
    table.push('\n');
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Folder, choice, n_items};
    use super::*;

    fn folder(name: &str, test: &str, solution: &str) -> Folder {
        let folder = Folder::new(&format!("kaggle-{name}"));
        folder.write(TEST, test);
        folder.write(SOLUTION, solution);
        folder
    }

    fn failed(test: &str, solution: &str, metric: &str, answer: &str) -> String {
        let name = format!("{:x}", rand::random::<u64>());
        let folder = folder(&name, test, solution);
        let failure = read(&mut folder.bundle(), choice(metric, answer))
            .err()
            .unwrap();
        assert_eq!(failure.exit, Exit::InvalidInput, "{failure}");
        failure.to_string()
    }

    #[test]
    fn answers_are_joined_by_id_and_the_split_is_a_share() {
        let mut test = String::from("\u{feff}Id,text,n\n");
        let mut solution = String::from("Id,label,Usage\n");
        for at in 0..10 {
            test += &format!("{at},\"a \"\"{at}\"\", b\",\n");
            let usage = ["Public", "private", "PRIVATE", "Ignored", "Private"][at % 5];
            // The other order.
            solution += &format!("{},{},{usage}\n", 9 - at, ["x", "y"][at % 2]);
        }
        let folder = folder("joined", &test, &solution);
        let imported = read(&mut folder.bundle(), choice("accuracy", "")).unwrap();
        let definition = &imported.definition;
        assert_eq!(definition.release.as_deref(), Some("sealed(0.75)"));
        assert_eq!(definition.suite_id, "suite:your_handle.my-bundle");
        assert_eq!(definition.id.as_deref(), Some("Id"));
        assert_eq!(definition.inputs, ["text", "n"]);
        let table = String::from_utf8(imported.table.clone()).unwrap();
        let mut lines = table.lines();
        assert_eq!(lines.next(), Some("Id,text,n,label"));
        assert_eq!(lines.next(), Some("0,\"a \"\"0\"\", b\",,y"));
        assert_eq!(n_items(&imported), 8);
        let not_read = imported.not_read.join("\n");
        assert!(not_read.contains("the split itself"), "{not_read}");
        assert!(not_read.contains("2 rows that are Ignored"), "{not_read}");
    }

    #[test]
    fn without_usage_nothing_is_sealed() {
        let folder = folder("open", "id,a\n1,2\n2,\"\"\n", "id,y\n1,0.5\n2,1.5\n");
        let imported = read(&mut folder.bundle(), choice("rmse", "")).unwrap();
        assert_eq!(imported.definition.release, None);
        assert_eq!(imported.table, b"id,a,y\n1,2,0.5\n2,\"\",1.5\n");
        assert_eq!(n_items(&imported), 2);
    }

    #[test]
    fn several_columns_are_a_distribution() {
        let test = "id,answer\n1,q\n2,r\n";
        let solution = "id,yes,no\n1,0.25,0.75\n2,0.5,0.5\n";
        let folder = folder("shares", test, solution);
        let imported = read(&mut folder.bundle(), choice("tvd", "")).unwrap();
        assert_eq!(imported.definition.answer, "answer_");
        assert_eq!(n_items(&imported), 2);
        let one = read(&mut folder.bundle(), choice("rmse", "no")).unwrap();
        assert_eq!(one.definition.answer, "no");
        assert!(one.not_read[0].contains("the column \"yes\""));
        let message = failed(test, solution, "accuracy", "");
        assert!(message.contains("\"yes\", \"no\""), "{message}");
        let message = failed(test, "id,yes,no\n1,a,0.75\n2,0.5,0.5\n", "tvd", "");
        assert!(
            message.starts_with("solution.csv:2: \"yes\" must be a number"),
            "{message}"
        );
    }

    #[test]
    fn bad_files_are_refused_with_their_line() {
        let test = "id,a\n1,q\n2,r\n";
        let solution = "id,y\n1,x\n2,z\n";
        for (test, solution, answer, expected) in [
            (
                test,
                "id,y\n1,x\n2,z\n3,x\n",
                "",
                "solution.csv:4: test.csv has no item \"3\"",
            ),
            (
                test,
                "id,y\n1,x\n",
                "",
                "test.csv:3: solution.csv has no answer for \"2\"",
            ),
            (
                test,
                "id,y\n1,x\n1,z\n2,x\n",
                "",
                "solution.csv:3: \"1\" is the id of a row before",
            ),
            (
                "id,a\n1,q\n1,q\n2,r\n",
                solution,
                "",
                "test.csv:3: \"1\" is the id of a row before",
            ),
            (
                test,
                "id,y\n1,x\n2,\n",
                "",
                "solution.csv:3: \"y\" has no value",
            ),
            (
                test,
                "id,y\n1,x\n,z\n",
                "",
                "solution.csv:3: \"id\" has no value",
            ),
            (
                test,
                "id,y,Usage\n1,x,Test\n2,z,Public\n",
                "",
                "solution.csv:2: Usage must be",
            ),
            (
                test,
                "id,y,Usage\n1,x,\n2,z,Public\n",
                "",
                "solution.csv:2: Usage has no value",
            ),
            (
                test,
                "id,y,Usage\n1,x,Private\n2,z,Private\n",
                "",
                "solution.csv: all rows are Private",
            ),
            (
                test,
                "id\n1\n2\n",
                "",
                "solution.csv:1: there is no column of answers",
            ),
            (
                "ID,a\n1,q\n",
                solution,
                "",
                "--id: test.csv has no column \"id\"",
            ),
            (
                "id,y\n1,q\n2,r\n",
                solution,
                "",
                "test.csv:1: \"y\" is a column of answers",
            ),
            (
                test,
                solution,
                "yy",
                "--answer: solution.csv has no column \"yy\"; did you mean \"y\"?",
            ),
            (test, "id,y\n1\n", "", "solution.csv:2: "),
            (test, "", "", "--id: test.csv has no column \"\""),
        ] {
            let message = failed(test, solution, "accuracy", answer);
            assert!(
                message.starts_with(expected),
                "{message} instead of {expected}"
            );
        }
        let message = failed(test, solution, "speed", "");
        assert!(
            message.starts_with("--metric: expected one of"),
            "{message}"
        );
        let folder = Folder::new("kaggle-none");
        let message = read(&mut folder.bundle(), choice("accuracy", ""))
            .err()
            .unwrap();
        assert!(
            message.to_string().contains("\"solution.csv\""),
            "{message}"
        );
    }
}
