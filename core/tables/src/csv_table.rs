//! Tables in CSV (RFC 4180), with the strict reader of predictions.

use std::io::{self, Read};
use std::ops::ControlFlow;

use assay_eval::csv::{CsvError, CsvErrorKind, CsvReader, Record};
use assay_eval::suite::{BadSuite, BadSuiteCode, DataTable, SuiteFiles};

use super::cell::{Cell, is_number};
use super::converter::Converter;
use super::json_rows::READ_BYTES;

/// The byte order mark that some programs write before the header.
const MARK: &[u8] = b"\xef\xbb\xbf";

/// Reads the table twice: a column is numeric if all its fields are.
pub(crate) fn read(data: &DataTable, files: &dyn SuiteFiles, converter: &mut Converter<'_, '_>) {
    let file = &data.file;
    let unreadable = |error: &io::Error| BadSuite::unreadable(file, 0, error);
    let mut types = Types::new(data);
    let found = files.open(file).and_then(|bytes| {
        read_records(bytes, &mut |record| {
            // The second pass reports the errors.
            if let Ok(record) = record {
                types.add(&record);
            }
            ControlFlow::Continue(())
        })
    });
    if let Err(error) = found {
        return converter.reject(unreadable(&error));
    }
    let mut has_header = false;
    let found = files.open(file).and_then(|bytes| {
        read_records(bytes, &mut |record| match record {
            Err(error) => {
                converter.reject(csv_error(file, &error));
                ControlFlow::Continue(())
            }
            Ok(header) if !has_header => {
                has_header = true;
                let names = header.cells().map(str::to_owned).collect();
                converter.set_columns(names, header.line)
            }
            Ok(record) => {
                add_row(&record, &types.columns, converter);
                ControlFlow::Continue(())
            }
        })
    });
    if let Err(error) = found {
        converter.reject(unreadable(&error));
    }
}

/// Returns the names of the columns.
pub(crate) fn columns(file: &str, files: &dyn SuiteFiles) -> Result<Vec<String>, BadSuite> {
    let mut first = Ok(Vec::new());
    let read = files.open(file).and_then(|bytes| {
        read_records(bytes, &mut |record| {
            first = match record {
                Ok(header) => Ok(header.cells().map(str::to_owned).collect()),
                Err(error) => Err(csv_error(file, &error)),
            };
            ControlFlow::Break(())
        })
    });
    read.map_err(|error| BadSuite::unreadable(file, 0, &error))?;
    first
}

/// Calls `each` with each record, the first of which has the names, or with its error.
fn read_records(
    mut bytes: impl Read,
    each: &mut dyn FnMut(Result<Record<'_>, CsvError>) -> ControlFlow<()>,
) -> io::Result<()> {
    let mut each = |record: Result<Record<'_>, CsvError>| each(record);
    let mut reader = CsvReader::default();
    let mut buffer = vec![0; READ_BYTES];
    let mut first = Vec::new();
    (&mut bytes)
        .take(MARK.len() as u64)
        .read_to_end(&mut first)?;
    let first = first.strip_prefix(MARK).unwrap_or(&first);
    if reader.feed(first, &mut each).is_break() {
        return Ok(());
    }
    loop {
        match bytes.read(&mut buffer) {
            Ok(0) => break,
            Ok(n) if reader.feed(&buffer[..n], &mut each).is_break() => return Ok(()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    _ = reader.finish(&mut each);
    Ok(())
}

fn csv_error(file: &str, error: &CsvError) -> BadSuite {
    let (code, message) = match error.kind {
        CsvErrorKind::Syntax => (BadSuiteCode::Syntax, error.message.as_str()),
        CsvErrorKind::Encoding => (BadSuiteCode::Encoding, error.message.as_str()),
        CsvErrorKind::TooLong => (BadSuiteCode::TooLong, error.message.as_str()),
        // Without a header, the names are values, which may be answers.
        CsvErrorKind::Repeated => (
            BadSuiteCode::Duplicate,
            "two columns have one name; rename one",
        ),
    };
    BadSuite::new(file, error.line, message).with_code(code)
}

/// The type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ColumnType {
    Text,
    Number,
}

/// The types of the columns, from all rows.
struct Types<'d> {
    data: &'d DataTable,
    columns: Vec<ColumnType>,
    has_header: bool,
}

impl<'d> Types<'d> {
    fn new(data: &'d DataTable) -> Self {
        Self {
            data,
            columns: Vec::new(),
            has_header: false,
        }
    }

    fn add(&mut self, record: &Record<'_>) {
        if !self.has_header {
            self.has_header = true;
            // The metric decides about the answers.
            let is_text = |name: &str| {
                name == self.data.answer || self.data.text.iter().any(|text| text == name)
            };
            let columns = record.cells().map(|name| match is_text(name) {
                true => ColumnType::Text,
                false => ColumnType::Number,
            });
            self.columns = columns.collect();
            return;
        }
        for (at, column) in self.columns.iter_mut().enumerate() {
            if *column == ColumnType::Number && !record.is_absent(at) && !is_number(record.cell(at))
            {
                *column = ColumnType::Text;
            }
        }
    }
}

fn add_row(record: &Record<'_>, types: &[ColumnType], converter: &mut Converter<'_, '_>) {
    let mut cells = Vec::with_capacity(types.len());
    for (at, column) in types.iter().enumerate() {
        let text = record.cell(at);
        let cell = match column {
            _ if record.is_absent(at) => Cell::Null,
            ColumnType::Text => Cell::Text(text.into()),
            ColumnType::Number => match Cell::number(text) {
                Ok(cell) => cell,
                Err(reason) => {
                    return converter.reject_cell(record.line, at, BadSuiteCode::Value, reason);
                }
            },
        };
        cells.push(cell);
    }
    converter.add_row(record.line, &cells);
}
