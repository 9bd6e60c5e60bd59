//! The reader for predictions in a table: CSV with the columns `item_id` and `prediction`.
//!
//! The table finds the cells. The whole document's reader defines what their values must be.

use std::borrow::Cow;
use std::mem;
use std::ops::ControlFlow;

use serde::de::IgnoredAny;

use super::element::{Element, ElementBuffers, Form};
use super::reader::read_value;
use super::sink::PredictionSink;
use super::value::location;
use crate::csv::{CsvError, CsvReader, Record};
use crate::error::{FieldError, quoted};
use crate::metric::{Family, Metric};

/// A cell's value that is neither an array nor an object in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CellForm {
    /// An id or a label.
    Text,
    /// A number.
    Number,
}

impl CellForm {
    /// Returns the form for predictions that a metric scores.
    pub fn of(metric: Metric) -> Self {
        match metric.family() {
            Family::Numbers => Self::Number,
            Family::Rankings | Family::Labels | Family::Probabilities | Family::Quantiles => {
                Self::Text
            }
        }
    }
}

/// Reads predictions from a table's bytes as they arrive, as
/// [`Stream`](super::Stream) does from JSON. Columns with other names are ignored. An empty cell without
/// quotes is no prediction: its item counts as one without.
pub(crate) struct Table {
    csv: CsvReader,
    rows: Rows,
}

impl Table {
    pub(crate) fn new(cells: CellForm) -> Self {
        Self {
            csv: CsvReader::default(),
            rows: Rows {
                cells,
                columns: None,
                index: 0,
                is_invalid: false,
                buffers: ElementBuffers::default(),
            },
        }
    }

    /// Reads the next bytes. Stops when the sink breaks, and returns its reason.
    pub(crate) fn feed<B>(
        &mut self,
        bytes: &[u8],
        sink: &mut impl for<'a> PredictionSink<'a, Stop = B>,
    ) -> ControlFlow<B> {
        let Self { csv, rows } = self;
        csv.feed(bytes, &mut |row| rows.take(row, sink))
    }

    /// Ends the table: reads a last row without line end, and checks that there is one.
    pub(crate) fn finish<B>(
        self,
        sink: &mut impl for<'a> PredictionSink<'a, Stop = B>,
    ) -> ControlFlow<B> {
        let Self { csv, mut rows } = self;
        csv.finish(&mut |row| rows.take(row, sink))?;
        if rows.index == 0 && !rows.is_invalid {
            let message = "there must be at least one prediction";
            return sink.take(Err(FieldError::new("predictions", "required", message)));
        }
        ControlFlow::Continue(())
    }
}

/// A table's rows, without its bytes.
struct Rows {
    cells: CellForm,
    /// The columns for the item id and the prediction, once the first row has named them.
    columns: Option<(usize, usize)>,
    index: usize,
    /// Set once the columns are known to be missing, or the table is not CSV.
    is_invalid: bool,
    buffers: ElementBuffers,
}

impl Rows {
    fn take<B>(
        &mut self,
        row: Result<Record<'_>, CsvError>,
        sink: &mut impl for<'a> PredictionSink<'a, Stop = B>,
    ) -> ControlFlow<B> {
        if self.is_invalid {
            return ControlFlow::Continue(());
        }
        let row = match row {
            Ok(row) => row,
            Err(error) => {
                self.is_invalid = self.columns.is_none();
                self.index += 1;
                let place = location(self.index, Some(error.line));
                return sink.take(Err(FieldError::new(place, "format", error.message)));
            }
        };
        let Some((id_at, value_at)) = self.columns else {
            return self.take_header(row, sink);
        };
        let buffers = mem::take(&mut self.buffers);
        let mut element = Element::new(self.index, Some(row.line), buffers);
        self.index += 1;
        let item_id = row.cell(id_at);
        if item_id.contains('\n') {
            element.add_error(".item_id", "format", OPEN_QUOTE);
        } else {
            element.set_item_id(Some(Cow::Borrowed(item_id)));
        }
        if row.is_absent(value_at) {
            element.form = Form::Failed;
        } else {
            self.read_cell(row.cell(value_at), &mut element);
        }
        let flow = element.emit(sink);
        self.buffers = ElementBuffers::of(element);
        flow
    }

    fn take_header<B>(
        &mut self,
        header: Record<'_>,
        sink: &mut impl for<'a> PredictionSink<'a, Stop = B>,
    ) -> ControlFlow<B> {
        let column = |wanted: &str| header.cells().position(|name| name == wanted);
        if let (Some(id_at), Some(value_at)) = (column("item_id"), column("prediction")) {
            self.columns = Some((id_at, value_at));
            return ControlFlow::Continue(());
        }
        self.is_invalid = true;
        let names: Vec<_> = header.cells().take(8).map(quoted).collect();
        let message = format!(
            "must name the columns item_id and prediction, with commas between; it has {}",
            names.join(", ")
        );
        let place = location(0, Some(header.line));
        sink.take(Err(FieldError::new(place, "required", message)))
    }

    /// Reads the prediction's cell into the element.
    fn read_cell<'a>(&self, cell: &'a str, element: &mut Element<'a>) {
        if cell.starts_with(['[', '{']) {
            // Only a value that is JSON has its own errors.
            let syntax = serde_json::from_str::<IgnoredAny>(cell);
            if let Err(error) = syntax.and_then(|_| read_value(cell, element)) {
                let column = error.column();
                let message = format!("is not valid JSON (column {column} of the cell)");
                element.add_error(".prediction", "format", &message);
            }
        } else if cell.contains('\n') {
            element.add_error(".prediction", "format", OPEN_QUOTE);
        } else if self.cells == CellForm::Text {
            element.form = Form::Label;
            element.ids.push(Cow::Borrowed(cell));
        } else {
            match number(cell) {
                Some(number) => element.form = Form::Number(number),
                None => {
                    let message = format!("must be a number, not {}", quoted(cell));
                    element.add_error(".prediction", "type", &message);
                }
            }
        }
    }
}

const OPEN_QUOTE: &str = "has a line break; is a quote left open?";

/// Reads a finite decimal number, with white space around it.
fn number(cell: &str) -> Option<f64> {
    let text = cell.trim_matches([' ', '\t']);
    // Rust also reads `inf` and `nan`.
    let is_decimal = text
        .bytes()
        .all(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-'));
    let number: f64 = text.parse().ok().filter(|_| is_decimal)?;
    number.is_finite().then_some(number)
}

#[cfg(test)]
mod tests {
    use super::super::{Prediction, Value, sink_fn};
    use super::*;

    /// Reads a table. Returns each prediction or error as text.
    fn read(cells: CellForm, table: &str) -> Vec<String> {
        let mut found = Vec::new();
        let mut sink = sink_fn(|row: Result<Prediction<'_, '_>, FieldError>| {
            found.push(match row {
                Ok(row) => {
                    let value = match row.value {
                        Value::Label(label) => label.to_string(),
                        Value::Ranking(ids) => ids.join("|"),
                        Value::Number(number) => number.to_string(),
                        Value::Probabilities(all) => format!("{all:?}"),
                        Value::Failed => "none".into(),
                    };
                    format!("{}: {} {value}", row.line.unwrap_or_default(), row.item_id)
                }
                Err(error) => format!("{} {}: {}", error.field, error.reason, error.message),
            });
            ControlFlow::<()>::Continue(())
        });
        let mut reader = Table::new(cells);
        for byte in table.as_bytes() {
            assert!(reader.feed(&[*byte], &mut sink).is_continue());
        }
        assert!(reader.finish(&mut sink).is_continue());
        found
    }

    #[test]
    fn cells_are_read_by_their_form() {
        let table = "note,prediction,item_id\nx,ramen,a\n,\"[\"\"x\"\", \"\"y\"\"]\",b\n,,c\n,\"{\"\"x\"\":1}\",d\n";
        let expected = ["2: a ramen", "3: b x|y", "4: c none", "5: d [(\"x\", 1.0)]"];
        assert_eq!(read(CellForm::Text, table), expected);
        let table = "item_id,prediction\r\na,1\r\nb, -2.5e3 \r\nc,+.5\r\n";
        assert_eq!(
            read(CellForm::Number, table),
            ["2: a 1", "3: b -2500", "4: c 0.5"]
        );
        assert_eq!(
            read(CellForm::Text, "item_id,prediction\na,1\n"),
            ["2: a 1"]
        );
    }

    #[test]
    fn errors_name_the_line_and_the_column() {
        for (row, expected) in [
            (
                "a,nan",
                "line 2.prediction type: must be a number, not \"nan\"",
            ),
            ("a,1_0", "line 2.prediction type"),
            ("a,0x10", "line 2.prediction type"),
            ("a,1e999", "line 2.prediction type"),
            (",1", "line 2.item_id format: must not be empty"),
            (
                "a,\"[1,\"",
                "line 2.prediction format: is not valid JSON (column 3 of the cell)",
            ),
            ("a,[1]", "line 2.prediction[0] type: must be a string"),
            ("\"a\nb\",1", "line 2.item_id format: has a line break"),
            ("a", "line 2 format: has 1 cells, and the first line has 2"),
            (
                "a,\"1\n",
                "line 2 format: the quote in column 3 is not closed",
            ),
        ] {
            let found = read(CellForm::Number, &format!("item_id,prediction\n{row}\n"));
            assert!(found[0].starts_with(expected), "{row}: {found:?}");
        }
        for (table, expected) in [
            (
                "",
                "predictions required: there must be at least one prediction",
            ),
            (
                "item_id,prediction\n",
                "predictions required: there must be at least one",
            ),
            (
                "id,prediction\na,1\n",
                "line 1 required: must name the columns item_id and",
            ),
            ("item_id;prediction\na;1\n", "line 1 required: must name"),
            (
                "item_id,item_id\na,1\n",
                "line 1 format: names the column \"item_id\" twice",
            ),
        ] {
            let found = read(CellForm::Text, table);
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].starts_with(expected), "{found:?}");
        }
    }
}
