//! Tables as CSV.

use axum::response::IntoResponse as _;
use http::header::CONTENT_TYPE;
use serde::Serialize;

use super::response::{PageResult, download};
use assay_core::Error;

/// Returns a table as a file, with the rows' field names as its head.
///
/// A spreadsheet would run a text that begins with `=`, `+`, `-`, `@`, a tab or a line break as a
/// formula. Users' texts are therefore passed through [`harmless`].
///
/// # Errors
/// `internal` if a row cannot be written.
pub fn response(name: &str, rows: impl Iterator<Item = impl Serialize>) -> PageResult {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in rows {
        writer.serialize(row).map_err(Error::internal)?;
    }
    let table = writer
        .into_inner()
        .map_err(|error| Error::internal(error.to_string()))?;
    let response = ([(CONTENT_TYPE, "text/csv; charset=utf-8")], table).into_response();
    Ok(download(name, response))
}

/// Returns a text that no spreadsheet takes for a formula.
pub fn harmless(text: &str) -> String {
    if text.starts_with(['=', '+', '-', '@', '\t', '\r', '\n']) {
        format!("'{text}")
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formulas_become_texts() {
        assert_eq!(harmless("=HYPERLINK(\"x\")"), "'=HYPERLINK(\"x\")");
        assert_eq!(harmless("a=b"), "a=b");
    }
}
