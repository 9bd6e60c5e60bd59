//! The keys of `suite.toml`, each with its line. All errors are collected, so that a publisher corrects
//! them at once.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Display;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::bad_suite::{BadSuite, BadSuiteCode, shown};
use super::names::SUITE;

/// The longest number or key in a message, in bytes.
const SHOWN_MAX: usize = 40;

/// A key's value with its line.
#[derive(Debug, Clone)]
pub(super) struct At<T> {
    pub(super) value: T,
    pub(super) line: usize,
}

/// A value as it is written.
struct Found<'t> {
    value: DeValue<'t>,
    span: Range<usize>,
}

/// The keys of one table.
pub(super) struct Keys<'t> {
    text: &'t str,
    /// The path of the table with a dot at its end; empty for the file.
    prefix: String,
    values: BTreeMap<String, Spanned<DeValue<'t>>>,
    /// Each key's line, also after it was taken.
    lines: BTreeMap<String, usize>,
    errors: Vec<BadSuite>,
}

impl<'t> Keys<'t> {
    /// Reads the file.
    ///
    /// # Errors
    /// Returns the syntax errors: at most one for each line.
    pub(super) fn parse(text: &'t str) -> Result<Self, Vec<BadSuite>> {
        let (table, errors) = DeTable::parse_recoverable(text);
        if errors.is_empty() {
            return Ok(Self::new(text, String::new(), table.into_inner()));
        }
        let mut lines = HashSet::new();
        let bad = errors.iter().filter_map(|error| {
            let line = error.span().map_or(0, |span| line_at(text, span.start));
            // The parser's own message may quote the line.
            let message = if error.message().starts_with("duplicate key") {
                let message = "names a key twice, or a table twice; remove one";
                BadSuite::new(SUITE, line, message).with_code(BadSuiteCode::Duplicate)
            } else {
                let message = "is not valid TOML; write key = value, with strings in quotes";
                BadSuite::new(SUITE, line, message).with_code(BadSuiteCode::Syntax)
            };
            lines.insert(line).then_some(message)
        });
        let mut bad: Vec<BadSuite> = bad.collect();
        bad.sort_by_key(|error| error.line);
        Err(bad)
    }

    fn new(text: &'t str, prefix: String, table: DeTable<'t>) -> Self {
        let mut values = BTreeMap::new();
        let mut lines = BTreeMap::new();
        for (key, value) in table {
            lines.insert(key.get_ref().to_string(), line_at(text, key.span().start));
            values.insert(key.into_inner().into_owned(), value);
        }
        Self {
            text,
            prefix,
            values,
            lines,
            errors: Vec::new(),
        }
    }

    /// Returns the line of a key; 0 if the table does not have it.
    pub(super) fn line(&self, key: &str) -> usize {
        self.lines.get(key).copied().unwrap_or(0)
    }

    /// Returns `true` if the table has the key.
    pub(super) fn has(&self, key: &str) -> bool {
        self.lines.contains_key(key)
    }

    /// Adds an error about a key at its line.
    pub(super) fn reject(&mut self, key: &str, code: BadSuiteCode, message: impl Display) {
        self.reject_at(self.line(key), key, code, message);
    }

    /// Adds an error about a key at another line, such as that of an element.
    pub(super) fn reject_at(
        &mut self,
        line: usize,
        key: &str,
        code: BadSuiteCode,
        message: impl Display,
    ) {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.[]".contains(&byte);
        let key = format!("{}{key}", self.prefix);
        // A key in quotes can have any characters.
        let key = if key.len() <= SHOWN_MAX && key.bytes().all(is_plain) {
            key
        } else {
            shown(&key)
        };
        let error = BadSuite::new(SUITE, line, format!("{key}: {message}"));
        self.errors.push(error.with_code(code).with_field(&key));
    }

    /// Adds the errors of a table within this one.
    pub(super) fn extend(&mut self, errors: Vec<BadSuite>) {
        self.errors.extend(errors);
    }

    /// Rejects the keys that nobody has read, and returns all errors by line.
    pub(super) fn finish(mut self) -> Vec<BadSuite> {
        let unknown: Vec<String> = self.values.keys().cloned().collect();
        for key in unknown {
            let message = "is no key of this table; correct or remove it";
            self.reject(&key, BadSuiteCode::Value, message);
        }
        self.errors.sort_by_key(|error| error.line);
        self.errors
    }

    fn take(&mut self, key: &str) -> Option<Found<'t>> {
        let value = self.values.remove(key)?;
        let span = value.span();
        Some(Found {
            value: value.into_inner(),
            span,
        })
    }

    fn line_of(&self, span: &Range<usize>) -> usize {
        line_at(self.text, span.start)
    }

    fn wrong_type(&mut self, key: &str, expected: &str) {
        let message = format!("must be {expected}");
        self.reject(key, BadSuiteCode::Type, message);
    }

    /// Returns a string. One without quotes is an error with the corrected line, unless it is secret.
    pub(super) fn string(&mut self, key: &str) -> Option<At<String>> {
        let Found { value, span } = self.take(key)?;
        let line = self.line_of(&span);
        match value {
            DeValue::String(text) => Some(At {
                value: text.into_owned(),
                line,
            }),
            value => {
                let is_number = matches!(
                    value,
                    DeValue::Integer(_) | DeValue::Float(_) | DeValue::Datetime(_)
                );
                let written = &self.text[span];
                if is_number && key != "seal_seed" && written.len() <= SHOWN_MAX {
                    let message = format!("a string in quotes; write {key} = \"{written}\"");
                    self.wrong_type(key, &message);
                } else {
                    self.wrong_type(key, "a string in quotes");
                }
                None
            }
        }
    }

    /// Returns a string, or adds an error if the table does not have the key.
    pub(super) fn required_string(&mut self, key: &str, example: &str) -> Option<At<String>> {
        if !self.has(key) {
            let line = self.table_line();
            let message = format!("this key is required, such as {key} = {example}");
            self.reject_at(line, key, BadSuiteCode::Required, message);
        }
        self.string(key)
    }

    /// Returns the first line of the table's keys; 0 for the file.
    fn table_line(&self) -> usize {
        if self.prefix.is_empty() {
            return 0;
        }
        self.lines.values().min().copied().unwrap_or(0)
    }

    /// Returns a boolean.
    pub(super) fn boolean(&mut self, key: &str) -> Option<bool> {
        match self.take(key)?.value {
            DeValue::Boolean(value) => Some(value),
            _ => {
                self.wrong_type(key, "true or false, without quotes");
                None
            }
        }
    }

    /// Returns an integer, or `None` within for one that is too large.
    pub(super) fn integer(&mut self, key: &str) -> Option<Option<i64>> {
        match self.take(key)?.value {
            DeValue::Integer(value) => {
                Some(i64::from_str_radix(value.as_str(), value.radix()).ok())
            }
            _ => {
                self.wrong_type(key, "an integer, without quotes");
                None
            }
        }
    }

    /// Returns an array of numbers, each with its text and line.
    pub(super) fn numbers(&mut self, key: &str) -> Option<Vec<At<(f64, &'t str)>>> {
        const EXPECTED: &str = "an array of numbers, without quotes";
        let DeValue::Array(values) = self.take(key)?.value else {
            self.wrong_type(key, EXPECTED);
            return None;
        };
        let mut numbers = Vec::new();
        for value in values {
            let span = value.span();
            let text = &self.text[span.clone()];
            let number = match value.get_ref() {
                DeValue::Integer(number) if number.radix() == 10 => number.as_str().parse().ok(),
                DeValue::Float(number) => number.as_str().parse().ok(),
                _ => None,
            };
            let Some(number) = number else {
                self.wrong_type(key, EXPECTED);
                return None;
            };
            numbers.push(At {
                value: (number, text),
                line: self.line_of(&span),
            });
        }
        Some(numbers)
    }

    /// Returns an array of strings with its line.
    pub(super) fn strings(&mut self, key: &str) -> Option<At<Vec<String>>> {
        const EXPECTED: &str = "an array of strings, such as [\"a\", \"b\"]";
        let Found { value, span } = self.take(key)?;
        let DeValue::Array(values) = value else {
            self.wrong_type(key, EXPECTED);
            return None;
        };
        let mut strings = Vec::new();
        for value in values {
            let DeValue::String(text) = value.into_inner() else {
                self.wrong_type(key, EXPECTED);
                return None;
            };
            strings.push(text.into_owned());
        }
        Some(At {
            value: strings,
            line: self.line_of(&span),
        })
    }

    /// Returns a datetime as it is written. Of a string that is one, the error has the corrected line.
    pub(super) fn datetime(&mut self, key: &str) -> Option<At<String>> {
        let Found { value, span } = self.take(key)?;
        let line = self.line_of(&span);
        let example = match value {
            DeValue::Datetime(at) => {
                return Some(At {
                    value: at.to_string(),
                    line,
                });
            }
            DeValue::String(text) if toml_datetime(&text) => text.into_owned(),
            _ => "2027-01-31T12:00:00Z".to_owned(),
        };
        let message = format!("a time with an offset and without quotes; write {key} = {example}");
        self.wrong_type(key, &message);
        None
    }

    /// Returns the keys of a table within this one. The caller finishes them and adds their errors.
    pub(super) fn table(&mut self, key: &str) -> Option<Self> {
        match self.take(key)?.value {
            DeValue::Table(table) => {
                let prefix = format!("{}{key}.", self.prefix);
                Some(Self::new(self.text, prefix, table))
            }
            _ => {
                self.wrong_type(key, "a table with keys and values");
                None
            }
        }
    }

    /// Returns the tables of an array. The caller finishes them and adds their errors.
    pub(super) fn tables(&mut self, key: &str) -> Option<Vec<Self>> {
        const EXPECTED: &str = "an array of tables";
        let DeValue::Array(values) = self.take(key)?.value else {
            self.wrong_type(key, EXPECTED);
            return None;
        };
        let mut tables = Vec::new();
        for (at, value) in values.into_iter().enumerate() {
            let DeValue::Table(table) = value.into_inner() else {
                self.wrong_type(key, EXPECTED);
                return None;
            };
            let prefix = format!("{}{key}[{at}].", self.prefix);
            tables.push(Self::new(self.text, prefix, table));
        }
        Some(tables)
    }
}

/// Returns `true` if a string has the form of a datetime with an offset.
fn toml_datetime(text: &str) -> bool {
    let written: Result<toml::value::Datetime, _> = text.parse();
    written.is_ok_and(|at| at.date.is_some() && at.time.is_some() && at.offset.is_some())
}

/// Returns the line at this place in the text, from 1.
fn line_at(text: &str, offset: usize) -> usize {
    let before = text.as_bytes().get(..offset).unwrap_or_default();
    1 + before.iter().filter(|byte| **byte == b'\n').count()
}
