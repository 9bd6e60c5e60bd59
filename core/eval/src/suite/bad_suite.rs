//! A suite folder's error.

use serde::{Serialize, Serializer};

/// Characters of an item id that an error shows.
const SHOWN_MAX: usize = 64;

/// The kind of an error in a suite's folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BadSuiteCode {
    /// The text has not the syntax of its format.
    Syntax,
    /// A file, a key or a field is missing.
    Required,
    /// A value has another type.
    Type,
    /// An id, a name or a key is given twice.
    Duplicate,
    /// A line has no counterpart in the other file.
    Unmatched,
    /// A value, a line or a list is above its limit.
    TooLong,
    /// A text is not UTF-8.
    Encoding,
    /// A table has no column with this name.
    UnknownColumn,
    /// The metric does not take the answers, or is not defined for them.
    Metric,
    /// The sealed items cannot be drawn.
    Seal,
    /// The ladder has no levels.
    Ladder,
    /// Another rule rejects a value.
    Value,
}

impl BadSuiteCode {
    /// Returns the name in responses.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Syntax => "syntax",
            Self::Required => "required",
            Self::Type => "type",
            Self::Duplicate => "duplicate",
            Self::Unmatched => "unmatched",
            Self::TooLong => "too_long",
            Self::Encoding => "encoding",
            Self::UnknownColumn => "unknown_column",
            Self::Metric => "metric",
            Self::Seal => "seal",
            Self::Ladder => "ladder",
            Self::Value => "value",
        }
    }
}

impl Serialize for BadSuiteCode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// An error in a suite's folder: its place, its kind and its reason. The reason never has a value of an
/// answer, because a stolen API key must not disclose answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{file}{}: {message}", if *line > 0 { format!(":{line}") } else { String::new() })]
pub struct BadSuite {
    /// The file's name.
    pub file: String,
    /// The line, from 1; 0 if the error is about the whole file. In a Parquet file, the row.
    pub line: usize,
    /// The column: the number of a field in its record, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<u32>,
    /// The key of `suite.toml`, or the name of the column.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// The item's id, cut to 64 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub item_id: Option<String>,
    /// The kind of error.
    #[serde(rename = "reason")]
    pub code: BadSuiteCode,
    /// The reason and the remedy, for people.
    pub message: String,
}

impl BadSuite {
    /// Creates a line's error, from 1, or of the whole file with line 0. Its kind is
    /// [`BadSuiteCode::Value`].
    pub fn new(file: &str, line: usize, message: impl Into<String>) -> Self {
        Self {
            file: file.into(),
            line,
            column: None,
            field: None,
            item_id: None,
            code: BadSuiteCode::Value,
            message: message.into(),
        }
    }

    /// Creates the error for a file that cannot be read.
    pub fn unreadable(file: &str, line: usize, error: &std::io::Error) -> Self {
        let code = match error.kind() {
            std::io::ErrorKind::NotFound => BadSuiteCode::Required,
            std::io::ErrorKind::InvalidData => BadSuiteCode::Encoding,
            _ => BadSuiteCode::Value,
        };
        Self::new(file, line, format!("cannot be read: {error}")).with_code(code)
    }

    /// Sets the kind of error.
    #[must_use]
    pub fn with_code(mut self, code: BadSuiteCode) -> Self {
        self.code = code;
        self
    }

    /// Sets the number of the field in its record, from 1.
    #[must_use]
    pub fn with_column(mut self, column: usize) -> Self {
        self.column = u32::try_from(column).ok();
        self
    }

    /// Sets the key or the name of the column.
    #[must_use]
    pub fn with_field(mut self, field: &str) -> Self {
        self.field = Some(field.to_owned());
        self
    }

    /// Sets the item's id. Of a long one, it keeps the first 64 characters.
    #[must_use]
    pub fn with_item(mut self, item_id: &str) -> Self {
        self.item_id = Some(item_id.chars().take(SHOWN_MAX).collect());
        self
    }
}

/// Returns an item id or a name in quotes for a message. Of a long one, it has the first 64 characters.
pub fn shown(name: &str) -> String {
    match name.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{:?}…", &name[..end]),
        None => format!("{name:?}"),
    }
}

/// Returns the first error.
pub(super) fn first(errors: Vec<BadSuite>) -> BadSuite {
    let unknown = || BadSuite::new(super::names::SUITE, 0, "is not valid");
    errors.into_iter().next().unwrap_or_else(unknown)
}
