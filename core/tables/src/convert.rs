//! The lines of a suite's table.

use std::io::{self, Write};

use assay_eval::suite::{ANSWERS, BadSuite, ITEMS, SuiteDefinition, SuiteFiles, TableFormat};

use super::converter::{Converter, LineWriter};
use super::errors::{TableErrors, cannot_write};
use super::json_rows::RowForm;
use super::{arrays, csv_table, json_table, parquet_table};

/// The files with arrays of items and answers.
pub(crate) const ARRAYS: [&str; 2] = ["items.json", "answers.json"];

/// Writes `items.ndjson` and `answers.ndjson`: from the suite's table, from the arrays `items.json` and
/// `answers.json`, or as copies byte for byte. A table's lines are written as they are published.
///
/// # Errors
/// Returns the first 100 errors, with the number of all. What was written is then not complete. The lines
/// of arrays and files are not checked further.
pub fn convert(
    definition: &SuiteDefinition,
    files: &dyn SuiteFiles,
    items: &mut dyn Write,
    answers: &mut dyn Write,
) -> Result<(), TableErrors> {
    let is_array = has_arrays(definition, files)
        .map_err(|error| TableErrors::from(BadSuite::unreadable(ITEMS, 0, &error)))?;
    if definition.data.is_none() && !is_array {
        arrays::copy(ITEMS, files, items)?;
        return arrays::copy(ANSWERS, files, answers);
    }
    let (mut items, mut answers) = (
        LineWriter::new(items, false),
        LineWriter::new(answers, false),
    );
    write_lines(definition, files, &mut items, &mut answers)
}

/// Returns `true` if items and answers are in arrays.
pub(crate) fn has_arrays(definition: &SuiteDefinition, files: &dyn SuiteFiles) -> io::Result<bool> {
    let has = |name: &str| match files.open(name) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    };
    Ok(definition.data.is_none() && !has(ITEMS)? && has(ARRAYS[0])?)
}

/// Writes the lines for the suite's table or arrays.
pub(crate) fn write_lines<'w>(
    definition: &SuiteDefinition,
    files: &dyn SuiteFiles,
    items: &mut LineWriter<'w>,
    answers: &mut LineWriter<'w>,
) -> Result<(), TableErrors> {
    let Some(data) = &definition.data else {
        arrays::write_lines(ARRAYS[0], files, items)?;
        arrays::write_lines(ARRAYS[1], files, answers)?;
        let flushed = items.flush().and_then(|()| answers.flush());
        return flushed.map_err(|error| cannot_write(ITEMS, &error).into());
    };
    let mut converter = Converter::new(definition, data, items, answers);
    match data.format {
        TableFormat::Csv => csv_table::read(data, files, &mut converter),
        TableFormat::Ndjson => json_table::read(data, files, RowForm::Lines, &mut converter),
        TableFormat::Json => json_table::read(data, files, RowForm::Array, &mut converter),
        TableFormat::Parquet => parquet_table::read(data, files, &mut converter),
    }
    converter.finish()
}

/// Returns the names of a table's columns, in their order.
///
/// # Errors
/// If the file has no format of a table, or its first row cannot be read.
pub fn columns(file: &str, files: &dyn SuiteFiles) -> Result<Vec<String>, BadSuite> {
    match TableFormat::from_name(file) {
        Some(TableFormat::Csv) => csv_table::columns(file, files),
        Some(TableFormat::Ndjson) => json_table::columns(file, files, RowForm::Lines),
        Some(TableFormat::Json) => json_table::columns(file, files, RowForm::Array),
        Some(TableFormat::Parquet) => parquet_table::columns(file, files),
        None => Err(BadSuite::new(
            file,
            0,
            "is no table; its name must end in .csv, .ndjson, .json or .parquet",
        )),
    }
}
