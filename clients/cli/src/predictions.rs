//! A submission's predictions, read from a file or from standard input.

use std::fs::File;
use std::io::{self, BufRead, Cursor, Read};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use assay_eval::content::{self, Compression, ContentFormat, ReadEnd, read_content, read_pieces};
use assay_eval::prediction::{
    CellForm, FIELD_ERRORS_MAX, Prediction, PredictionSink, SubmissionDigest, TextForm, Value,
    location,
};
use assay_eval::{FieldError, Metric};

use crate::failure::{Exit, Failure, Result};
use crate::retries::TABLE;

/// Standard input's name.
pub const STDIN: &str = "-";

/// Bytes left for the other fields in a request with inline predictions.
const OTHER_FIELDS_BYTES: usize = 64 * 1024;

/// A submission's predictions.
pub enum Predictions {
    /// They are small and sent with the request.
    Inline(Inline),
    /// They are large or compressed, and sent as an upload.
    Upload(Content),
}

/// Predictions that are sent with a request.
pub struct Inline {
    /// A JSON array.
    pub json: Vec<u8>,
    /// Each prediction's line, if the input has one on each line.
    pub lines: Vec<usize>,
    /// SHA-256 of the predictions. Their form does not change it.
    pub digest: String,
}

/// An upload's content, before it is divided into parts.
pub struct Content {
    /// The bytes as they are sent.
    pub bytes: Bytes,
    /// The decompressed content's media type.
    pub content_type: &'static str,
    /// The bytes' compression as they are sent.
    pub content_encoding: &'static str,
}

/// An upload's bytes.
pub enum Bytes {
    /// A file that can be read again.
    File {
        /// Its path.
        path: PathBuf,
        /// Its size.
        n_bytes: u64,
    },
    /// A stream that can be read once.
    Stream(Box<dyn Read + Send>),
}

/// Opens a file, or standard input for `-`. Returns its bytes and its format.
pub fn open(name: &str) -> Result<(Box<dyn BufRead>, ContentFormat)> {
    let source: Box<dyn Read> = if name == STDIN {
        Box::new(io::stdin())
    } else {
        refuse_tables(name)?;
        Box::new(File::open(name).map_err(|error| unreadable(name, &error))?)
    };
    let (bytes, format) = content::open(source, name).map_err(|error| unreadable(name, &error))?;
    Ok((Box::new(bytes), format))
}

/// Returns the failure to read predictions.
fn unreadable(name: &str, error: &io::Error) -> Box<Failure> {
    let mut failure = Failure::io(name, error);
    failure.exit = Exit::InvalidInput;
    failure
}

/// Refuses files that only the Python client converts.
fn refuse_tables(name: &str) -> Result<()> {
    let extension = Path::new(name).extension().and_then(|text| text.to_str());
    match extension {
        Some(kind @ ("parquet" | "arrow" | "feather")) => Err(Failure::new(
            Exit::InvalidInput,
            format!("{name}: {kind} files are not supported"),
        )
        .with_advice(
            "Write CSV with the columns item_id and prediction, or one JSON object a line. The Python client reads Parquet.",
        )),
        _ => Ok(()),
    }
}

/// Reads the predictions to submit for a metric. Large ones are left in their file or stream.
pub fn read(name: &str, metric: Metric) -> Result<Predictions> {
    if name == STDIN {
        return read_stream(name, None, io::stdin(), metric);
    }
    refuse_tables(name)?;
    let file = File::open(name).map_err(|error| unreadable(name, &error))?;
    let metadata = file.metadata().map_err(|error| unreadable(name, &error))?;
    // A named pipe can be read once.
    let path = metadata.is_file().then(|| Bytes::File {
        path: name.into(),
        n_bytes: metadata.len(),
    });
    read_stream(name, path, file, metric)
}

/// Reads predictions from their bytes. Large ones are uploaded from `file` if they are in one, as a
/// file's bytes can be read again.
fn read_stream(
    name: &str,
    file: Option<Bytes>,
    stream: impl Read + Send + 'static,
    metric: Metric,
) -> Result<Predictions> {
    let inline_max = TABLE.upload.inline_max_bytes - OTHER_FIELDS_BYTES;
    let failed = |error| unreadable(name, &error);
    let (mut bytes, format) = content::open(stream, name).map_err(failed)?;
    let mut head = Vec::new();
    let limit = inline_max as u64 + 1;
    bytes
        .by_ref()
        .take(limit)
        .read_to_end(&mut head)
        .map_err(failed)?;
    if head.len() <= inline_max && is_at_most(&head, format, inline_max) {
        let inline = inline(name, &head, format, metric)?;
        // A table is shorter than its JSON.
        if inline.json.len() <= inline_max {
            return Ok(Predictions::Inline(inline));
        }
    }
    let (bytes, compression) = match (file, format.compression) {
        (Some(file), compression) => (file, compression),
        (None, Compression::None) => {
            let all = Cursor::new(head).chain(bytes);
            let packed = flate2::bufread::GzEncoder::new(all, flate2::Compression::fast());
            (Bytes::Stream(Box::new(packed)), Compression::Gzip)
        }
        (None, compression) => {
            let all = Cursor::new(head).chain(bytes);
            (Bytes::Stream(Box::new(all)), compression)
        }
    };
    Ok(Predictions::Upload(Content {
        bytes,
        content_type: content_type(format.text),
        content_encoding: content_encoding(compression),
    }))
}

/// Returns whether a content has at most `max` bytes once it is decompressed.
fn is_at_most(content: &[u8], format: ContentFormat, max: usize) -> bool {
    let format = ContentFormat {
        bytes_max: max as u64,
        ..format
    };
    let end: ReadEnd<()> = read_pieces(content, format, |_| ControlFlow::Continue(()));
    end != ReadEnd::Invalid(content::ContentError::TooLarge)
}

fn content_type(form: TextForm) -> &'static str {
    match form {
        TextForm::Json => "application/x-ndjson",
        TextForm::Csv => "text/csv",
    }
}

fn content_encoding(compression: Compression) -> &'static str {
    match compression {
        Compression::None => "identity",
        Compression::Gzip => "gzip",
        Compression::Zstd => "zstd",
    }
}

/// Reads predictions that are small, and writes them as one JSON array.
fn inline(name: &str, bytes: &[u8], format: ContentFormat, metric: Metric) -> Result<Inline> {
    let mut written = Written::default();
    let cells = CellForm::of(metric);
    let go_on = || ControlFlow::Continue(());
    if let ReadEnd::Invalid(error) = read_content(bytes, format, cells, go_on, &mut written) {
        return Err(Failure::new(Exit::InvalidInput, format!("{name}: {error}")));
    }
    let Written {
        mut json,
        lines,
        digest,
        errors,
    } = written;
    if !errors.is_empty() {
        return Err(invalid(name, &errors));
    }
    json.push(b']');
    Ok(Inline {
        json,
        lines,
        digest: hex::encode(digest.finish()),
    })
}

/// Returns the failure for a file with these errors.
pub fn invalid(name: &str, errors: &[FieldError]) -> Box<Failure> {
    let details = errors
        .iter()
        .map(|error| format!("{}: {}", place(name, &error.field), error.message));
    Failure::new(
        Exit::InvalidInput,
        "a job with these predictions would fail",
    )
    .with_details(details)
}

/// Returns a place in a file, such as `FILE:7: prediction` for `line 7.prediction`, and `FILE: FIELD` for
/// a field without a line.
pub fn place(name: &str, field: &str) -> String {
    let Some(rest) = field.strip_prefix("line ") else {
        return format!("{name}: {field}");
    };
    match rest.split_once('.') {
        Some((line, path)) => format!("{name}:{line}: {path}"),
        None => format!("{name}:{rest}"),
    }
}

/// Writes predictions as a JSON array, and collects their errors.
#[derive(Default)]
struct Written {
    json: Vec<u8>,
    lines: Vec<usize>,
    digest: SubmissionDigest,
    errors: Vec<FieldError>,
}

impl Written {
    fn push(&mut self, prediction: &Prediction<'_, '_>) -> serde_json::Result<()> {
        let out = &mut self.json;
        let start = if out.is_empty() { b'[' } else { b',' };
        out.push(start);
        out.extend_from_slice(b"{\"item_id\":");
        serde_json::to_writer(&mut *out, &prediction.item_id)?;
        match prediction.value {
            Value::Failed => out.extend_from_slice(b",\"error\":{"),
            _ => out.extend_from_slice(b",\"prediction\":"),
        }
        match prediction.value {
            Value::Label(label) => serde_json::to_writer(&mut *out, label)?,
            Value::Ranking(ids) => serde_json::to_writer(&mut *out, ids)?,
            Value::Number(number) => serde_json::to_writer(&mut *out, &number)?,
            Value::Probabilities(all) => {
                // A label may be given twice, which the server reports.
                let mut map = serde_json::Serializer::new(&mut *out);
                let pairs = all.iter().map(|(label, number)| (label, number));
                serde::Serializer::collect_map(&mut map, pairs)?;
            }
            Value::Failed => out.push(b'}'),
        }
        out.push(b'}');
        self.lines.extend(prediction.line);
        self.digest.add(prediction);
        Ok(())
    }
}

impl<'a> PredictionSink<'a> for Written {
    type Stop = ();

    fn take(
        &mut self,
        prediction: std::result::Result<Prediction<'_, 'a>, FieldError>,
    ) -> ControlFlow<()> {
        match prediction {
            Ok(prediction) => {
                if let Err(error) = self.push(&prediction) {
                    let place = location(prediction.index, prediction.line);
                    let error = FieldError::new(place, "format", error.to_string());
                    self.errors.push(error);
                }
            }
            Err(error) => self.errors.push(error),
        }
        if self.errors.len() < FIELD_ERRORS_MAX {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, content: &[u8], metric: Metric) -> Result<Inline> {
        let (_, format) = content::open(content, name).unwrap();
        inline(name, content, format, metric)
    }

    #[test]
    fn digest_follows_from_the_predictions_only() {
        let digest = |text: &str| read("x", text.as_bytes(), Metric::Accuracy).unwrap().digest;
        let one = digest(r#"{"item_id":"a","prediction":"b"}"#);
        for same in [
            "\n{ \"prediction\" : \"\\u0062\", \"item_id\": \"a\" }\n\n",
            "{\"item_id\":\"a\",\"prediction\":\"b\",\"note\":1}",
            "\u{feff}{\"item_id\":\"a\",\"prediction\":\"b\"}",
            r#"[{"item_id":"a","prediction":"b"}]"#,
            "\u{feff}item_id,prediction\r\na,b\r\n",
        ] {
            assert_eq!(digest(same), one, "{same}");
        }
        assert_ne!(digest(r#"{"item_id":"a","prediction":"c"}"#), one);
    }

    #[test]
    fn predictions_keep_the_numbers_of_their_lines() {
        let text =
            b"\n{\"item_id\":\"1\",\"prediction\":[\"x\"]}\n\n{\"item_id\":\"2\",\"error\":{}}\n";
        let found = read("x", text, Metric::Accuracy).unwrap();
        assert_eq!(found.lines, [2, 4]);
        let expected = br#"[{"item_id":"1","prediction":["x"]},{"item_id":"2","error":{}}]"#;
        assert_eq!(found.json, expected);
    }

    #[test]
    fn cells_are_numbers_if_the_metric_scores_numbers() {
        let table = b"item_id,prediction\na,0.5\n";
        let numbers = read("x.csv", table, Metric::Rmse).unwrap();
        assert_eq!(numbers.json, br#"[{"item_id":"a","prediction":0.5}]"#);
        let labels = read("x.csv", table, Metric::ExactMatch).unwrap();
        assert_eq!(labels.json, br#"[{"item_id":"a","prediction":"0.5"}]"#);
    }

    #[test]
    fn error_names_the_file_and_the_line() {
        let row = r#"{"item_id":"a","prediction":{"x":0.5,"y":0.5}}"#;
        let text = format!("{row}\n{{\n{{\"item_id\":\"b\"}}\n");
        let failure = read("p", text.as_bytes(), Metric::LogLoss).err().unwrap();
        assert_eq!(failure.exit, Exit::InvalidInput);
        let text = failure.to_string();
        assert!(text.contains("p:2: is not valid JSON (column 1)"), "{text}");
        assert!(
            text.contains("p:3: prediction: this field is required"),
            "{text}"
        );
    }
}
