//! `items.json` and `answers.json`: arrays with the objects that other files have as lines.

use std::io::{self, Write};
use std::ops::ControlFlow;

use assay_eval::suite::{BadSuite, BadSuiteCode, SuiteFiles};
use serde::de::IgnoredAny;

use super::cell::compact;
use super::converter::LineWriter;
use super::errors::{TableErrors, cannot_write};
use super::json_rows::{RowForm, RowsError, read_rows};

/// Writes each element of the array as a line.
///
/// # Errors
/// Returns the first error of the array, or the elements that are not JSON.
pub(crate) fn write_lines(
    name: &str,
    files: &dyn SuiteFiles,
    out: &mut LineWriter<'_>,
) -> Result<(), TableErrors> {
    let unreadable = |error: io::Error| BadSuite::unreadable(name, 0, &error);
    let bytes = files.open(name).map_err(unreadable)?;
    let mut errors = TableErrors::default();
    let mut failed = None;
    let read = read_rows(bytes, RowForm::Array, &mut |text, line| {
        if serde_json::from_str::<IgnoredAny>(text).is_err() {
            let message = "is not valid JSON; NaN and infinity are not numbers";
            errors.push(BadSuite::new(name, line, message).with_code(BadSuiteCode::Syntax));
            return ControlFlow::Continue(());
        }
        match out.write(line, format!("{}\n", compact(text)).as_bytes()) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        }
    });
    if let Err(RowsError {
        line,
        code,
        message,
    }) = read
    {
        errors.push(BadSuite::new(name, line, message).with_code(code));
    }
    if let Some(error) = failed {
        errors.push(cannot_write(name, &error));
    }
    errors.finish(())
}

/// Copies a file.
pub(crate) fn copy(
    name: &str,
    files: &dyn SuiteFiles,
    out: &mut dyn Write,
) -> Result<(), TableErrors> {
    let mut bytes = files
        .open(name)
        .map_err(|error| BadSuite::unreadable(name, 0, &error))?;
    io::copy(&mut bytes, out).map_err(|error| cannot_write(name, &error))?;
    Ok(())
}
