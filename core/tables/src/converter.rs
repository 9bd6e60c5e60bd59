//! Rows become lines of items and answers.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashSet};
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;

use assay_eval::Metric;
use assay_eval::suite::{
    AnswerChecks, BadSuite, BadSuiteCode, DataTable, Groups, ITEMS, SuiteDefinition, TableFormat,
    check_input, item_id_error, parse_people, shown, write_answer_line, write_line,
};
use serde::de::IgnoredAny;

use super::cell::{Cell, TOO_LARGE, compact, is_number, write_string};
use super::errors::{TableErrors, cannot_write};

/// The most columns of a table.
const COLUMNS_MAX: usize = 1_000;

/// Writes lines.
pub(crate) struct LineWriter<'w> {
    out: BufWriter<&'w mut dyn Write>,
    /// The number of the next line, from 1.
    line: usize,
    /// Set if blank lines are written so that a row's line has the number of the row in its file.
    pads: bool,
}

impl<'w> LineWriter<'w> {
    pub(crate) fn new(out: &'w mut dyn Write, pads: bool) -> Self {
        Self {
            out: BufWriter::new(out),
            line: 1,
            pads,
        }
    }

    /// Writes the line of a row.
    pub(crate) fn write(&mut self, line: usize, bytes: &[u8]) -> io::Result<()> {
        while self.pads && self.line < line {
            self.out.write_all(b"\n")?;
            self.line += 1;
        }
        self.line += 1;
        self.out.write_all(bytes)
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// The places of the columns.
struct Places {
    /// Each input column's place and JSON key, in file order.
    inputs: Vec<(usize, String)>,
    answer: usize,
    id: Option<usize>,
    n: Option<usize>,
    groups: Vec<usize>,
    hidden_groups: Vec<usize>,
}

/// Writes the lines of rows, and collects the errors.
pub(crate) struct Converter<'c, 'w> {
    data: &'c DataTable,
    metric: Metric,
    checks: AnswerChecks<'c>,
    items: &'c mut LineWriter<'w>,
    answers: &'c mut LineWriter<'w>,
    columns: Vec<String>,
    places: Option<Places>,
    n_rows: usize,
    /// The item ids' 128-bit hashes.
    seen: HashSet<(u64, u64)>,
    hashers: (RandomState, RandomState),
    errors: TableErrors,
}

impl<'c, 'w> Converter<'c, 'w> {
    pub(crate) fn new(
        definition: &'c SuiteDefinition,
        data: &'c DataTable,
        items: &'c mut LineWriter<'w>,
        answers: &'c mut LineWriter<'w>,
    ) -> Self {
        Self {
            data,
            metric: definition.metric,
            checks: AnswerChecks::new(definition.metric, &definition.labels),
            items,
            answers,
            columns: Vec::new(),
            places: None,
            n_rows: 0,
            seen: HashSet::new(),
            hashers: (RandomState::new(), RandomState::new()),
            errors: TableErrors::default(),
        }
    }

    /// Adds an error.
    pub(crate) fn reject(&mut self, error: BadSuite) {
        self.errors.push(error);
    }

    /// Adds the error of a field, whose column has this place.
    pub(crate) fn reject_cell(
        &mut self,
        line: usize,
        column: usize,
        code: BadSuiteCode,
        reason: &str,
    ) {
        let name = self.columns.get(column).map_or("", String::as_str);
        let message = format!("{}: {reason}", shown(name));
        let error = BadSuite::new(&self.data.file, line, message).with_code(code);
        let error = error.with_column(column + 1).with_field(name);
        self.errors.push(error);
    }

    /// Sets the names of the columns, which `line` has. Breaks if they do not fit the definition.
    pub(crate) fn set_columns(&mut self, names: Vec<String>, line: usize) -> ControlFlow<()> {
        let file = self.data.file.as_str();
        let n_before = self.errors.n_errors;
        if names.len() > COLUMNS_MAX {
            let message = format!(
                "has {} columns; must have at most {COLUMNS_MAX}",
                names.len()
            );
            let error = BadSuite::new(file, line, message);
            self.errors.push(error.with_code(BadSuiteCode::TooLong));
        }
        let place = |wanted: &str| names.iter().position(|name| name == wanted);
        for (key, name) in self.data.named_columns() {
            if place(name).is_none() {
                let message = format!(
                    "there is no column {}, which [data] {key} names",
                    shown(name)
                );
                let error = BadSuite::new(file, line, message).with_field(name);
                self.errors
                    .push(error.with_code(BadSuiteCode::UnknownColumn));
            }
        }
        let is_input = |name: &str| match &self.data.inputs {
            Some(inputs) => inputs.iter().any(|input| input == name),
            None => !self.data.is_kept(name),
        };
        let inputs = names.iter().enumerate().filter(|(_, name)| is_input(name));
        let inputs = inputs.map(|(at, name)| {
            let mut key = String::new();
            write_string(name, &mut key);
            key.push(':');
            (at, key)
        });
        let inputs: Vec<(usize, String)> = inputs.collect();
        for (at, _) in inputs.iter().filter(|(at, _)| names[*at].is_empty()) {
            let message = "this column has no name; name it, or name the columns of the input in [data] inputs";
            let error = BadSuite::new(file, line, message).with_column(at + 1);
            self.errors.push(error);
        }
        if self.errors.n_errors > n_before {
            return ControlFlow::Break(());
        }
        let data = self.data;
        let places = |names: &mut dyn Iterator<Item = &str>| names.filter_map(place).collect();
        self.places = place(&data.answer).map(|answer| Places {
            inputs,
            answer,
            id: data.id.as_deref().and_then(place),
            n: data.n.as_deref().and_then(place),
            groups: places(&mut data.public_groups()),
            hidden_groups: places(&mut data.hidden_groups.iter().map(String::as_str)),
        });
        self.columns = names;
        ControlFlow::Continue(())
    }

    /// Returns the places of the columns that the lines need, in ascending order.
    pub(crate) fn used_columns(&self) -> Vec<usize> {
        let Some(places) = &self.places else {
            return Vec::new();
        };
        let inputs = places.inputs.iter().map(|(at, _)| *at);
        let single = [Some(places.answer), places.id, places.n];
        let groups = places.groups.iter().chain(&places.hidden_groups).copied();
        let all: BTreeSet<usize> = inputs
            .chain(single.into_iter().flatten())
            .chain(groups)
            .collect();
        all.into_iter().collect()
    }

    /// Adds the next row. Its cells have the order of the columns.
    pub(crate) fn add_row(&mut self, line: usize, cells: &[Cell<'_>]) {
        let Some(places) = self.places.take() else {
            return;
        };
        self.n_rows += 1;
        let n_before = self.errors.n_errors;
        let lines = self.lines(line, cells, &places);
        self.places = Some(places);
        if let Some((item, answer)) = lines
            && self.errors.n_errors == n_before
            && n_before == 0
        {
            let written = self.items.write(line, &item);
            let written = written.and_then(|()| self.answers.write(line, &answer));
            if let Err(error) = written {
                self.errors.push(cannot_write(ITEMS, &error));
            }
        }
    }

    /// Returns the lines of an item and its answer. Adds the errors of the row.
    fn lines(
        &mut self,
        line: usize,
        cells: &[Cell<'_>],
        places: &Places,
    ) -> Option<(Vec<u8>, Vec<u8>)> {
        let item_id = self.item_id(line, cells, places);
        let input = input_json(cells, places);
        if let Err((code, reason)) = check_input(&input) {
            let error = BadSuite::new(&self.data.file, line, reason).with_code(code);
            let error = item_id.iter().fold(error, |error, id| error.with_item(id));
            self.errors.push(error);
        }
        let n = places.n.and_then(|at| self.people(line, at, &cells[at]));
        let answer = match answer_json(&cells[places.answer], self.metric, self.data.format) {
            Ok(answer) => Some(answer),
            Err((code, reason)) => {
                self.reject_cell(line, places.answer, code, &reason);
                None
            }
        };
        if let Some(json) = &answer
            && let Err(reason) = self.checks.add(json, n)
        {
            self.reject_cell(line, places.answer, BadSuiteCode::Metric, &reason);
        }
        let groups = self.groups(line, cells, &places.groups);
        let hidden_groups = self.groups(line, cells, &places.hidden_groups);
        let (item_id, answer) = (item_id?, answer?);
        let json = |groups: Option<Groups>| groups.as_ref().map(Groups::to_json);
        let (groups, hidden_groups) = (json(groups), json(hidden_groups));
        let (mut item, mut answer_line) = (Vec::new(), Vec::new());
        write_line(&item_id, "input", &input, groups.as_deref(), &mut item);
        write_answer_line(
            &item_id,
            &answer,
            n,
            hidden_groups.as_deref(),
            &mut answer_line,
        );
        Some((item, answer_line))
    }

    fn item_id(&mut self, line: usize, cells: &[Cell<'_>], places: &Places) -> Option<String> {
        let Some(at) = places.id else {
            return Some(format!("row-{}", self.n_rows));
        };
        let Some(item_id) = cells[at].text() else {
            let (code, reason) = no_text(&cells[at], "an item id");
            self.reject_cell(line, at, code, &reason);
            return None;
        };
        if let Some((code, reason)) = item_id_error(item_id) {
            self.reject_cell(line, at, code, &reason);
            return None;
        }
        let (first, second) = &self.hashers;
        let hash = (first.hash_one(item_id), second.hash_one(item_id));
        if !self.seen.insert(hash) {
            let name = shown(&self.columns[at]);
            let message = format!("{name}: a row before has the same item id");
            let error = BadSuite::new(&self.data.file, line, message).with_item(item_id);
            let error = error.with_column(at + 1).with_field(&self.columns[at]);
            self.errors.push(error.with_code(BadSuiteCode::Duplicate));
            return None;
        }
        Some(item_id.to_owned())
    }

    fn people(&mut self, line: usize, at: usize, cell: &Cell<'_>) -> Option<u32> {
        if *cell == Cell::Null {
            return None;
        }
        let json = match cell {
            // Integers with missing values are often stored as floats.
            Cell::Float { json, .. } => Some(json.as_str()),
            cell => cell.text(),
        };
        match parse_people(json.unwrap_or_default()) {
            Ok(n) => Some(n),
            Err(reason) => {
                self.reject_cell(line, at, BadSuiteCode::Type, &reason);
                None
            }
        }
    }

    fn groups(&mut self, line: usize, cells: &[Cell<'_>], places: &[usize]) -> Option<Groups> {
        let mut fields = Vec::with_capacity(places.len());
        for at in places.iter().copied() {
            match cells[at].text() {
                Some(text) => fields.push((at, text.to_owned())),
                None => {
                    let (code, reason) = no_text(&cells[at], "a group field");
                    self.reject_cell(line, at, code, &reason);
                }
            }
        }
        let columns = &self.columns;
        let named = fields
            .into_iter()
            .map(|(at, text)| (columns[at].as_str(), text));
        match Groups::new(named) {
            Ok(groups) => groups,
            Err((name, reason)) => {
                let at = columns.iter().position(|column| column == name);
                let error = BadSuite::new(&self.data.file, line, reason).with_field(name);
                let error = at
                    .into_iter()
                    .fold(error, |error, at| error.with_column(at + 1));
                self.errors.push(error);
                None
            }
        }
    }

    /// Ends the table.
    pub(crate) fn finish(mut self) -> Result<(), TableErrors> {
        let file = &self.data.file;
        if self.errors.n_errors == 0 && self.n_rows == 0 {
            let error = BadSuite::new(file, 0, "a suite needs at least one item");
            self.errors.push(error.with_code(BadSuiteCode::Required));
        }
        // A part of the answers says nothing about all.
        if self.errors.n_errors == 0
            && let Err(reason) = self.checks.finish()
        {
            let error = BadSuite::new(file, 0, reason).with_field(&self.data.answer);
            self.errors.push(error.with_code(BadSuiteCode::Metric));
        }
        let flushed = self.items.flush().and_then(|()| self.answers.flush());
        if let Err(error) = flushed {
            self.errors.push(cannot_write(ITEMS, &error));
        }
        self.errors.finish(())
    }
}

/// Returns the reason why a cell that has no one text cannot be `role`.
fn no_text(cell: &Cell<'_>, role: &str) -> (BadSuiteCode, String) {
    if *cell == Cell::Null {
        return (
            BadSuiteCode::Required,
            format!("must have a value, because the column is {role}"),
        );
    }
    let message = format!("must be text, an integer or a boolean, because the column is {role}");
    (BadSuiteCode::Type, message)
}

fn input_json(cells: &[Cell<'_>], places: &Places) -> String {
    let mut json = String::from("{");
    for (at, key) in &places.inputs {
        if json.len() > 1 {
            json.push(',');
        }
        json.push_str(key);
        cells[*at].write_json(&mut json);
    }
    json.push('}');
    json
}

/// Returns the JSON of an answer in the form that the metric takes.
///
/// # Errors
/// Returns the kind of error and the reason, which quotes nothing of the cell.
fn answer_json<'a>(
    cell: &'a Cell<'_>,
    metric: Metric,
    format: TableFormat,
) -> Result<Cow<'a, str>, (BadSuiteCode, String)> {
    let must_be_number = || {
        let message = format!("must be a number, because the metric is {metric}");
        (BadSuiteCode::Type, message)
    };
    let is_json = matches!(format, TableFormat::Ndjson | TableFormat::Json);
    match cell {
        Cell::Null => Err((BadSuiteCode::Required, "this row has no answer".into())),
        Cell::Json(json) => Ok(json.as_ref().into()),
        // The other formats have no arrays and objects, or none of that form.
        Cell::Text(text) if !is_json && text.starts_with(['[', '{']) => {
            if serde_json::from_str::<IgnoredAny>(text).is_err() {
                let message = "begins like JSON, but is not valid JSON";
                return Err((BadSuiteCode::Syntax, message.into()));
            }
            Ok(compact(text))
        }
        Cell::Integer(json) if metric.has_number_answers() => Ok(json.as_ref().into()),
        Cell::Float { json, .. } if metric.has_number_answers() => Ok(json.into()),
        Cell::Text(text) if metric.has_number_answers() && !is_json && is_number(text) => {
            match Cell::number(text) {
                Ok(Cell::Float { json, .. }) => Ok(json.into()),
                Ok(Cell::Integer(json)) => Ok(json.into_owned().into()),
                _ => Err((BadSuiteCode::Value, TOO_LARGE.into())),
            }
        }
        _ if metric.has_number_answers() => Err(must_be_number()),
        cell => {
            let text = cell.text().ok_or_else(|| {
                let message =
                    "a number with a fraction is no label; store the answers as text or integers";
                (BadSuiteCode::Type, message.to_owned())
            })?;
            let mut json = String::new();
            write_string(text, &mut json);
            Ok(json.into())
        }
    }
}
