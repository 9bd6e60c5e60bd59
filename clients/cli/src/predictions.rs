//! The predictions of a submission, read from a file or from standard input.

use std::fs::File;
use std::io::{self, BufRead, Cursor, Read};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use assay_eval::content::{self, Compression, ContentFormat, ReadEnd, read_pieces};
use assay_eval::prediction::Layout;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use crate::failure::{Exit, Failure, Result};
use crate::retries::TABLE;

/// The name of standard input.
pub const STDIN: &str = "-";

/// Bytes left for the other fields of a request with inline predictions.
const OTHER_FIELDS_BYTES: usize = 64 * 1024;

/// The predictions of a submission.
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
    /// The line of each prediction, if the input has one on each line.
    pub lines: Vec<usize>,
    /// SHA-256 of the predictions. White space and escapes do not change it.
    pub digest: String,
}

/// The content of an upload, before it is divided into parts.
pub struct Content {
    /// The bytes as they are sent.
    pub bytes: Bytes,
    /// The media type of the decompressed content.
    pub content_type: &'static str,
    /// The compression of the bytes as they are sent.
    pub content_encoding: &'static str,
}

/// The bytes of an upload.
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

/// Returns the failure of reading predictions.
fn unreadable(name: &str, error: &io::Error) -> Box<Failure> {
    let mut failure = Failure::io(name, error);
    failure.exit = Exit::InvalidInput;
    failure
}

/// Refuses files that only the Python client converts.
fn refuse_tables(name: &str) -> Result<()> {
    let extension = Path::new(name).extension().and_then(|text| text.to_str());
    match extension {
        Some(kind @ ("csv" | "parquet" | "arrow" | "feather")) => Err(Failure::new(
            Exit::InvalidInput,
            format!("{name}: {kind} files are not supported"),
        )
        .with_advice(
            "Write one JSON object a line, with item_id and prediction. The Python client converts CSV and Parquet.",
        )),
        _ => Ok(()),
    }
}

/// Reads the predictions to submit. Large ones are left in their file or stream.
pub fn read(name: &str) -> Result<Predictions> {
    if name == STDIN {
        return read_stream(name, None, io::stdin());
    }
    refuse_tables(name)?;
    let file = File::open(name).map_err(|error| unreadable(name, &error))?;
    let metadata = file.metadata().map_err(|error| unreadable(name, &error))?;
    // A named pipe can be read once.
    let path = metadata.is_file().then(|| Bytes::File {
        path: name.into(),
        n_bytes: metadata.len(),
    });
    read_stream(name, path, file)
}

/// Reads predictions from their bytes. Large ones are uploaded from `file` if they are in one, as the
/// bytes of a file can be read again.
fn read_stream(
    name: &str,
    file: Option<Bytes>,
    stream: impl Read + Send + 'static,
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
    if head.len() <= inline_max
        && let Some(all) = decompressed(&head, format, inline_max)
    {
        return inline(name, all, format.layout).map(Predictions::Inline);
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
        content_type: content_type(format.layout),
        content_encoding: content_encoding(compression),
    }))
}

/// Decompresses a whole content. Returns `None` if it has more than `max` bytes, or if it is not valid:
/// the server reports that.
fn decompressed(content: &[u8], format: ContentFormat, max: usize) -> Option<Vec<u8>> {
    let mut all = Vec::new();
    let format = ContentFormat {
        bytes_max: max as u64,
        ..format
    };
    let end: ReadEnd<()> = read_pieces(content, format, |piece| {
        all.extend_from_slice(piece);
        ControlFlow::Continue(())
    });
    (end == ReadEnd::Complete).then_some(all)
}

fn content_type(layout: Layout) -> &'static str {
    match layout {
        Layout::Lines => "application/x-ndjson",
        Layout::Array => "application/json",
    }
}

fn content_encoding(compression: Compression) -> &'static str {
    match compression {
        Compression::None => "identity",
        Compression::Gzip => "gzip",
        Compression::Zstd => "zstd",
    }
}

/// The fields of a prediction that matter for its digest.
#[derive(Deserialize)]
struct Row {
    item_id: Value,
    prediction: Value,
}

fn inline(name: &str, bytes: Vec<u8>, layout: Layout) -> Result<Inline> {
    let invalid = |message: String| Failure::new(Exit::InvalidInput, format!("{name}: {message}"));
    let text = String::from_utf8(bytes).map_err(|_| invalid("it is not UTF-8".into()))?;
    // Programs on Windows begin a file with this mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let mut lines = Vec::new();
    let rows: Vec<&RawValue> = match layout {
        Layout::Array => serde_json::from_str(text)
            .map_err(|error| invalid(format!("it is not a JSON array: {error}")))?,
        Layout::Lines => {
            let mut rows = Vec::new();
            for (index, line) in text.lines().enumerate() {
                if line.trim().is_empty() {
                    continue;
                }
                let number = index + 1;
                let row = serde_json::from_str(line).map_err(|error| {
                    let column = error.column();
                    invalid(format!("line {number} is not JSON (column {column})"))
                        .with_advice("Find all errors with: assay check SUITE FILE")
                })?;
                rows.push(row);
                lines.push(number);
            }
            rows
        }
    };
    if rows.is_empty() {
        return Err(invalid("there are no predictions".into())
            .with_advice("Each line must be a JSON object with item_id and prediction."));
    }
    let mut hash = Sha256::new();
    for row in &rows {
        match serde_json::from_str::<Row>(row.get()) {
            Ok(Row {
                item_id,
                prediction,
            }) => hash.update(Value::from(vec![item_id, prediction]).to_string()),
            // The server reports what is wrong with this prediction.
            Err(_) => hash.update(row.get()),
        }
        hash.update("\n");
    }
    let mut json = Vec::with_capacity(text.len() + 2);
    json.push(b'[');
    for (index, row) in rows.iter().enumerate() {
        if index > 0 {
            json.push(b',');
        }
        json.extend_from_slice(row.get().as_bytes());
    }
    json.push(b']');
    Ok(Inline {
        json,
        lines,
        digest: hex::encode(hash.finalize()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_follows_from_the_predictions_only() {
        let digest = |text: &str, layout| inline("x", text.into(), layout).unwrap().digest;
        let one = digest(r#"{"item_id":"a","prediction":["b"]}"#, Layout::Lines);
        for same in [
            "\n{ \"prediction\" : [\"\\u0062\"], \"item_id\": \"a\" }\n\n",
            "{\"item_id\":\"a\",\"prediction\":[\"b\"],\"note\":1}",
            "\u{feff}{\"item_id\":\"a\",\"prediction\":[\"b\"]}",
        ] {
            assert_eq!(digest(same, Layout::Lines), one, "{same}");
        }
        assert_eq!(
            digest(r#"[{"item_id":"a","prediction":["b"]}]"#, Layout::Array),
            one
        );
        assert_ne!(
            digest(r#"{"item_id":"a","prediction":["c"]}"#, Layout::Lines),
            one
        );
    }

    #[test]
    fn predictions_keep_the_numbers_of_their_lines() {
        let text = "\n{\"item_id\":1}\n\n{\"item_id\":2}\n";
        let read = inline("x", text.into(), Layout::Lines).unwrap();
        assert_eq!(read.lines, [2, 4]);
        assert_eq!(read.json, br#"[{"item_id":1},{"item_id":2}]"#);
    }

    #[test]
    fn error_names_the_line() {
        let failure = inline("p", b"{}\n{".to_vec(), Layout::Lines).err().unwrap();
        assert_eq!(failure.exit, Exit::InvalidInput);
        assert!(failure.to_string().starts_with("p: line 2 is not JSON"));
    }
}
