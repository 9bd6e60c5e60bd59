//! Command output: tables on a terminal, NDJSON otherwise. Field names are the API's.

use std::io::{self, IsTerminal as _, Write};

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
    is_terminal: bool,
}

/// Marks in the text of a table: characters without a width, which are replaced by the codes of
/// colors once the columns are aligned.
const MARKS: [(char, &str); 5] = [
    (PLAIN, "\u{1b}[0m"),
    (BOLD, "\u{1b}[1m"),
    (GREEN, "\u{1b}[32m"),
    (RED, "\u{1b}[31m"),
    (YELLOW, "\u{1b}[33m"),
];
const PLAIN: char = '\u{2060}';
const BOLD: char = '\u{2061}';
const GREEN: char = '\u{2062}';
const RED: char = '\u{2063}';
const YELLOW: char = '\u{2064}';

/// Fields that say nothing to people who look at one resource, or that another field repeats.
const NOT_FOR_PEOPLE: [&str; 5] = [
    "org_id",
    "hfm_sha",
    "result.suite_id",
    "result.suite_version",
    "final",
];

impl Output {
    /// Creates the output. Without a format, a terminal gets a table and a pipe NDJSON.
    pub fn new(format: Option<Format>, color: Color) -> Self {
        let is_terminal = io::stdout().is_terminal();
        let default = if is_terminal {
            Format::Table
        } else {
            Format::Ndjson
        };
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_some_and(|terminal| terminal == "dumb");
        let no_color = is_set("NO_COLOR") || is_dumb;
        Self {
            format: format.unwrap_or(default),
            has_color: match color {
                Color::Auto => is_terminal && !no_color,
                Color::Always => true,
                Color::Never => false,
            },
            is_terminal,
        }
    }

    /// Returns the format.
    pub fn format(self) -> Format {
        self.format
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
                let is_hidden = |name: &str| {
                    let mut hidden = NOT_FOR_PEOPLE.iter();
                    hidden.any(|hidden| name == *hidden || name.ends_with(&format!(".{hidden}")))
                };
                fields.retain(|(name, _)| !is_hidden(name));
                let mut table = new_table();
                for (name, text) in fields {
                    table.add_row([self.paint(BOLD, &name), self.cell(&name, &text)]);
                }
                write_table(&table)
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
                    let cells = view
                        .columns
                        .iter()
                        .map(|column| self.for_terminal(plain(field(&row, column))));
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

    /// Replaces characters that can change a terminal if the output is one. In a file, text stays as
    /// it is.
    fn for_terminal(self, text: String) -> String {
        if self.is_terminal {
            visible(&text)
        } else {
            text
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
            if self.is_terminal {
                // Nothing at all would look like a failure.
                let _ = writeln!(io::stderr().lock(), "nothing found");
            }
            return Ok(());
        }
        let mut table = new_table();
        table.set_header(columns.iter().map(|column| {
            let name = column.rsplit('/').next().unwrap_or(column);
            self.paint(BOLD, &name.to_uppercase())
        }));
        for row in rows {
            let cells = columns.iter().map(|column| {
                let value = field(row, column);
                self.cell(column, &for_people(value))
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
        write_table(&table)
    }

    /// Colors the text of a status.
    fn cell(self, column: &str, text: &str) -> String {
        let color = match (column.ends_with("status"), text) {
            (true, "succeeded" | "ready" | "delivered") => GREEN,
            (true, "failed") => RED,
            (true, "running" | "queued" | "pending") => YELLOW,
            _ => return text.to_owned(),
        };
        self.paint(color, text)
    }

    /// Marks a text with a color.
    fn paint(self, mark: char, text: &str) -> String {
        if self.has_color {
            format!("{mark}{text}{PLAIN}")
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

/// Writes a table, with the marks replaced by colors.
fn write_table(table: &Table) -> Result<()> {
    let mut text = table.trim_fmt();
    for (mark, code) in MARKS {
        text = text.replace(mark, code);
    }
    write_own_text(&text)
}

/// Writes text for people, with a newline. Whatever it contains, its lines cannot change the terminal.
pub fn write_line(text: &str) -> Result<()> {
    write_own_text(&visible_lines(text))
}

/// Writes text of this program alone as it is, with a newline: no word of a file or a server.
pub fn write_own_text(text: &str) -> Result<()> {
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
        value => fields.push((path.to_owned(), for_people(value))),
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
fn for_people(value: &Value) -> String {
    match value {
        Value::Null => "-".into(),
        Value::Number(number) if number.is_f64() => {
            let number = number.as_f64().unwrap_or(f64::NAN);
            if number != 0.0 && number.abs() < 1e-4 {
                format!("{number:.1e}")
            } else {
                format!("{number:.4}")
            }
        }
        Value::Array(entries) => {
            let texts: Vec<_> = entries.iter().map(for_people).collect();
            texts.join(", ")
        }
        // `2026-01-31T23:59:59.000000Z`: seconds are enough for people.
        Value::String(text) => match text.split_once('T') {
            Some((date, time)) if is_time(date, time) => format!("{date} {}", &time[..8]),
            _ => visible(text),
        },
        value => visible(&plain(value)),
    }
}

/// Returns whether a text is a timestamp of the API, from its parts before and after the `T`.
fn is_time(date: &str, time: &str) -> bool {
    let has_only = |text: &str, more: &[u8]| {
        text.bytes()
            .all(|byte| byte.is_ascii_digit() || more.contains(&byte))
    };
    date.len() == 10 && has_only(date, b"-") && time.len() == 16 && has_only(time, b":.Z")
}

/// Returns whether a character can change a terminal, or the order in which text is read, or is
/// invisible or a line break.
fn is_control(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        )
}

/// Replaces characters that can change a terminal.
pub fn visible(text: &str) -> String {
    if text.contains(is_control) {
        text.replace(is_control, "\u{fffd}")
    } else {
        text.to_owned()
    }
}

/// Replaces characters that can change a terminal, except for newlines.
pub fn visible_lines(text: &str) -> String {
    let lines: Vec<String> = text.split('\n').map(visible).collect();
    lines.join("\n")
}

/// Escapes the characters that JSON leaves as they are and that can change a terminal.
pub fn escape_controls(json: &str) -> String {
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
        let value = json!({"id": "a", "tiny": 7e-22, "none": null, "result": {"value": 0.5, "ci95": [0.25, 0.75]},
                           "orgs": [{"id": "x"}], "metadata": {}});
        flatten("", &value, &mut fields);
        let expected = [
            ("id", "a"),
            ("tiny", "7.0e-22"),
            ("result.value", "0.5000"),
            ("result.ci95", "0.2500, 0.7500"),
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
        for (text, expected) in [
            ("2026-01-31T23:59:59.000000Z", "2026-01-31 23:59:59"),
            (
                "\u{1b}[2J\u{1b}[2J\u{1b}[2J\u{1b}[2JTTTTTTTTT",
                "\u{fffd}[2J\u{fffd}[2J\u{fffd}[2J\u{fffd}[2JTTTTTTTTT",
            ),
            ("äöüäöüäöüäöüäöüT", "äöüäöüäöüäöüäöüT"),
            ("2026-01-31Täöüäöüäöü", "2026-01-31Täöüäöüäöü"),
        ] {
            assert_eq!(for_people(&json!(text)), expected);
        }
        assert_eq!(plain(&json!(0.1234567890123)), "0.1234567890123");
    }
}
