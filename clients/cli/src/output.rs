//! The output of commands: tables on a terminal, NDJSON otherwise. Field names are those of the API.

use std::io::{self, IsTerminal as _, Write};

use anstyle::{AnsiColor, Style};
use comfy_table::{CellAlignment, Table, presets};
use serde_json::Value;

use crate::failure::{Exit, Failure, Result};

/// The format of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// A table for people.
    Table,
    /// One JSON document.
    Json,
    /// One JSON document a line.
    Ndjson,
    /// Comma-separated values with a header.
    Csv,
    /// Only the ids, one a line.
    Id,
}

/// The time at which colors are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Color {
    /// On a terminal, unless `NO_COLOR` is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// The way in which a kind of resource is shown.
#[derive(Clone, Copy)]
pub struct View {
    /// The columns of tables and CSV: JSON pointers of fields, without the first slash.
    pub columns: &'static [&'static str],
    /// The field with the id.
    pub id: &'static str,
}

/// The output of the program.
#[derive(Clone, Copy)]
pub struct Output {
    format: Format,
    has_color: bool,
}

impl Output {
    /// Creates the output. Without a format, a terminal gets a table and a pipe NDJSON.
    pub fn new(format: Option<Format>, color: Color) -> Self {
        let is_terminal = io::stdout().is_terminal();
        let default = if is_terminal {
            Format::Table
        } else {
            Format::Ndjson
        };
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self {
            format: format.unwrap_or(default),
            has_color: match color {
                Color::Auto => is_terminal && !no_color,
                Color::Always => true,
                Color::Never => false,
            },
        }
    }

    /// Returns whether the output is for people.
    pub fn is_table(self) -> bool {
        self.format == Format::Table
    }

    /// Writes one resource. A table has a row for each of its fields.
    pub fn object(self, view: View, value: &Value) -> Result<()> {
        match self.format {
            Format::Table => {
                let mut fields = Vec::new();
                flatten("", value, &mut fields);
                let mut table = new_table();
                for (name, text) in fields {
                    table.add_row([
                        self.paint(Style::new().bold(), &name),
                        self.cell(&name, &text),
                    ]);
                }
                write_line(&table.trim_fmt())
            }
            Format::Json => {
                let text = serde_json::to_string_pretty(value).map_err(not_json)?;
                write_line(&escape_controls(&text))
            }
            _ => self.list(view, std::iter::once(Ok(value.clone()))),
        }
    }

    /// Writes resources. NDJSON, CSV and ids are written as the resources arrive.
    pub fn list(self, view: View, rows: impl Iterator<Item = Result<Value>>) -> Result<()> {
        match self.format {
            Format::Table => {
                let rows = rows.collect::<Result<Vec<_>>>()?;
                self.table(view, &rows)
            }
            Format::Json => {
                let rows = rows.collect::<Result<Vec<_>>>()?;
                let text = serde_json::to_string_pretty(&rows).map_err(not_json)?;
                write_line(&escape_controls(&text))
            }
            Format::Ndjson => {
                let mut out = io::BufWriter::new(io::stdout().lock());
                for row in rows {
                    writeln!(out, "{}", escape_controls(&row?.to_string())).map_err(closed)?;
                }
                out.flush().map_err(closed)
            }
            Format::Csv => {
                let mut out = csv::Writer::from_writer(io::stdout().lock());
                out.write_record(view.columns.iter().map(|column| column.replace('/', ".")))
                    .map_err(csv_closed)?;
                for row in rows {
                    let row = row?;
                    let cells = view.columns.iter().map(|column| plain(field(&row, column)));
                    out.write_record(cells).map_err(csv_closed)?;
                }
                out.flush().map_err(closed)
            }
            Format::Id => {
                let mut out = io::BufWriter::new(io::stdout().lock());
                for row in rows {
                    let id = plain(field(&row?, view.id));
                    writeln!(out, "{}", escape_controls(&id)).map_err(closed)?;
                }
                out.flush().map_err(closed)
            }
        }
    }

    fn table(self, view: View, rows: &[Value]) -> Result<()> {
        // A column without any value is noise.
        let columns: Vec<&str> = view
            .columns
            .iter()
            .copied()
            .filter(|column| rows.iter().any(|row| !is_empty(field(row, column))))
            .collect();
        if columns.is_empty() {
            return Ok(());
        }
        let mut table = new_table();
        table.set_header(columns.iter().map(|column| {
            let name = column.rsplit('/').next().unwrap_or(column);
            self.paint(Style::new().bold(), &name.to_uppercase())
        }));
        for row in rows {
            let cells = columns.iter().map(|column| {
                let value = field(row, column);
                self.cell(column, &for_people(column, value))
            });
            table.add_row(cells);
        }
        for (index, column) in columns.iter().enumerate() {
            let is_numeric = rows.iter().all(|row| {
                let value = field(row, column);
                value.is_number() || value.is_null()
            });
            if let (true, Some(column)) = (is_numeric, table.column_mut(index)) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        write_line(&table.trim_fmt())
    }

    /// Colors the text of a status.
    fn cell(self, column: &str, text: &str) -> String {
        let color = match (column.ends_with("status"), text) {
            (true, "succeeded" | "ready" | "delivered") => AnsiColor::Green,
            (true, "failed") => AnsiColor::Red,
            (true, "running" | "queued" | "pending") => AnsiColor::Yellow,
            _ => return text.to_owned(),
        };
        self.paint(Style::new().fg_color(Some(color.into())), text)
    }

    fn paint(self, style: Style, text: &str) -> String {
        if self.has_color {
            format!("{style}{text}{style:#}")
        } else {
            text.to_owned()
        }
    }
}

fn new_table() -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table
}

/// Writes text for people, with a newline.
pub fn write_line(text: &str) -> Result<()> {
    writeln!(io::stdout().lock(), "{text}").map_err(closed)
}

/// Returns the failure of writing to standard output.
pub fn closed(error: io::Error) -> Box<Failure> {
    let mut failure = Failure::io("standard output", &error);
    if error.kind() == io::ErrorKind::BrokenPipe {
        failure.exit = Exit::OutputClosed;
    }
    failure
}

fn csv_closed(error: csv::Error) -> Box<Failure> {
    closed(error.into())
}

fn not_json(error: serde_json::Error) -> Box<Failure> {
    Failure::new(Exit::Other, error.to_string())
}

fn field<'v>(row: &'v Value, column: &str) -> &'v Value {
    row.pointer(&format!("/{column}")).unwrap_or(&Value::Null)
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.is_empty(),
        Value::Array(entries) => entries.is_empty(),
        _ => false,
    }
}

/// Collects the fields that have a value, with their paths.
fn flatten(path: &str, value: &Value, fields: &mut Vec<(String, String)>) {
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                let path = if path.is_empty() {
                    name.clone()
                } else {
                    format!("{path}.{name}")
                };
                flatten(&visible(&path), value, fields);
            }
        }
        Value::Array(entries) if entries.iter().any(Value::is_object) => {
            for (index, entry) in entries.iter().enumerate() {
                flatten(&format!("{path}[{index}]"), entry, fields);
            }
        }
        value if is_empty(value) => {}
        value => fields.push((path.to_owned(), for_people(path, value))),
    }
}

/// Returns the text of a value in CSV: exact.
fn plain(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

/// Returns the text of a value in a table: short, and harmless on a terminal.
fn for_people(column: &str, value: &Value) -> String {
    match value {
        Value::Null => "-".into(),
        Value::Number(number) if number.is_f64() => {
            format!("{:.6}", number.as_f64().unwrap_or(f64::NAN))
        }
        Value::Array(entries) => {
            let texts: Vec<_> = entries
                .iter()
                .map(|entry| for_people(column, entry))
                .collect();
            texts.join(", ")
        }
        Value::String(text) if column.ends_with("_at") && text.len() > 19 => {
            // `2026-01-31T23:59:59.000000Z`: seconds are enough for people.
            format!("{} {}", &text[..10], &text[11..19])
        }
        value => visible(&plain(value)),
    }
}

/// Returns whether a character can change a terminal, or the order in which text is read.
fn is_control(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Replaces characters that can change a terminal.
pub fn visible(text: &str) -> String {
    if text.contains(is_control) {
        text.replace(is_control, "\u{fffd}")
    } else {
        text.to_owned()
    }
}

/// Escapes the characters that JSON leaves as they are and that can change a terminal.
fn escape_controls(json: &str) -> String {
    if !json.contains(|character| is_control(character) && character != '\n') {
        return json.to_owned();
    }
    let escape = |character: char| {
        if is_control(character) && character != '\n' {
            format!("\\u{:04x}", u32::from(character))
        } else {
            character.to_string()
        }
    };
    json.chars().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn text_cannot_change_the_terminal() {
        let hostile = "a\u{1b}[31m\u{9b}2J\u{202e}b";
        assert!(!visible(hostile).contains(is_control));
        let escaped = escape_controls(&json!({"label": hostile}).to_string());
        assert!(!escaped.contains(is_control));
        let read: Value = serde_json::from_str(&escaped).unwrap();
        assert_eq!(read["label"], hostile, "it is the same JSON");
    }

    #[test]
    fn fields_are_flattened_without_empty_ones() {
        let mut fields = Vec::new();
        let value = json!({"id": "a", "none": null, "result": {"value": 0.5, "ci95": [0.25, 0.75]},
                           "orgs": [{"id": "x"}], "metadata": {}});
        flatten("", &value, &mut fields);
        let expected = [
            ("id", "a"),
            ("result.value", "0.500000"),
            ("result.ci95", "0.250000, 0.750000"),
            ("orgs[0].id", "x"),
        ];
        let fields: Vec<_> = fields
            .iter()
            .map(|(name, text)| (name.as_str(), text.as_str()))
            .collect();
        assert_eq!(fields, expected);
    }

    #[test]
    fn times_are_short_and_csv_is_exact() {
        let time = json!("2026-01-31T23:59:59.000000Z");
        assert_eq!(for_people("created_at", &time), "2026-01-31 23:59:59");
        assert_eq!(plain(&json!(0.1234567890123)), "0.1234567890123");
    }
}
