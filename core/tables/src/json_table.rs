//! Tables in JSON: an object per row. The first row names the columns.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::ops::ControlFlow;

use assay_eval::suite::{BadSuite, BadSuiteCode, DataTable, SuiteFiles};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::cell::{Cell, compact};
use super::converter::Converter;
use super::json_rows::{RowForm, RowsError, read_rows};

/// Reads the table.
pub(crate) fn read(
    data: &DataTable,
    files: &dyn SuiteFiles,
    form: RowForm,
    converter: &mut Converter<'_, '_>,
) {
    let file = &data.file;
    let bytes = match files.open(file) {
        Ok(bytes) => bytes,
        Err(error) => return converter.reject(BadSuite::unreadable(file, 0, &error)),
    };
    let mut places: Option<HashMap<String, usize>> = None;
    let read = read_rows(bytes, form, &mut |text, line| {
        let row: Row<'_> = match serde_json::from_str(text) {
            Ok(row) => row,
            Err(error) => {
                converter.reject(row_error(file, line, text, &error));
                return ControlFlow::Continue(());
            }
        };
        if places.is_none() {
            let names: Vec<String> = row.0.iter().map(|(name, _)| name.to_string()).collect();
            let found: HashMap<_, _> = names.iter().cloned().zip(0..).collect();
            if found.len() < names.len() {
                converter.reject(repeated(file, line));
                return ControlFlow::Break(());
            }
            places = Some(found);
            converter.set_columns(names, line)?;
        }
        if let Some(places) = &places {
            add_row(file, line, &row, places, converter);
        }
        ControlFlow::Continue(())
    });
    if let Err(error) = read {
        converter.reject(rows_error(file, error));
    }
}

/// Returns the names of the columns.
pub(crate) fn columns(
    file: &str,
    files: &dyn SuiteFiles,
    form: RowForm,
) -> Result<Vec<String>, BadSuite> {
    let bytes = files
        .open(file)
        .map_err(|error| BadSuite::unreadable(file, 0, &error))?;
    let mut first = Ok(Vec::new());
    let read = read_rows(bytes, form, &mut |text, line| {
        first = serde_json::from_str::<Row<'_>>(text)
            .map(|row| row.0.iter().map(|(name, _)| name.to_string()).collect())
            .map_err(|error| row_error(file, line, text, &error));
        ControlFlow::Break(())
    });
    read.map_err(|error| rows_error(file, error))?;
    first
}

fn rows_error(file: &str, error: RowsError) -> BadSuite {
    let RowsError {
        line,
        code,
        message,
    } = error;
    BadSuite::new(file, line, message).with_code(code)
}

fn repeated(file: &str, line: usize) -> BadSuite {
    let message = "a row names a field twice; remove one";
    BadSuite::new(file, line, message).with_code(BadSuiteCode::Duplicate)
}

fn row_error(file: &str, line: usize, text: &str, error: &serde_json::Error) -> BadSuite {
    if error.is_data() || !text.starts_with('{') {
        let message = "a row must be an object of column → value";
        return BadSuite::new(file, line, message).with_code(BadSuiteCode::Type);
    }
    let (more, column) = match error.line() {
        // The position is within the row, which may begin later in its line.
        0 | 1 => (0, Some(error.column())),
        more => (more - 1, None),
    };
    let column = column.map_or_else(String::new, |column| format!(" (byte {column} of the row)"));
    let message = format!("is not valid JSON{column}; NaN and infinity are not numbers");
    BadSuite::new(file, line + more, message).with_code(BadSuiteCode::Syntax)
}

fn add_row(
    file: &str,
    line: usize,
    row: &Row<'_>,
    places: &HashMap<String, usize>,
    converter: &mut Converter<'_, '_>,
) {
    let mut cells = vec![Cell::Null; places.len()];
    let mut is_given = vec![false; places.len()];
    for (name, json) in &row.0 {
        let Some(place) = places.get(name.as_ref()).copied() else {
            let message = "this row has a field that the first row does not have; give all rows the same fields, with null for no value";
            let error = BadSuite::new(file, line, message);
            return converter.reject(error.with_code(BadSuiteCode::UnknownColumn));
        };
        if is_given[place] {
            return converter.reject(repeated(file, line));
        }
        is_given[place] = true;
        match cell(json.get()) {
            Ok(cell) => cells[place] = cell,
            Err(reason) => {
                return converter.reject_cell(line, place, BadSuiteCode::Value, reason);
            }
        }
    }
    converter.add_row(line, &cells);
}

/// Returns the cell of a valid JSON value.
fn cell(json: &str) -> Result<Cell<'_>, &'static str> {
    Ok(match json.as_bytes().first() {
        Some(b'n') => Cell::Null,
        Some(b't') => Cell::Bool(true),
        Some(b'f') => Cell::Bool(false),
        Some(b'"') => Cell::Text(
            serde_json::from_str::<Text<'_>>(json)
                .map_err(|_| "the text has an escape of half a character")?
                .0,
        ),
        Some(b'[' | b'{') => Cell::Json(compact(json)),
        _ => Cell::number(json)?,
    })
}

/// A string that borrows if it has no escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// The fields of a row, in its order. A map would lose a repeated one.
struct Row<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de> Deserialize<'de> for Row<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;

        impl<'de> Visitor<'de> for Fields {
            type Value = Vec<(Cow<'de, str>, &'de RawValue)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::new();
                while let Some((Text(name), json)) = map.next_entry()? {
                    fields.push((name, json));
                }
                Ok(fields)
            }
        }

        deserializer.deserialize_map(Fields).map(Self)
    }
}
