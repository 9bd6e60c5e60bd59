//! The predictions of a submission, read from a file or from standard input.

use std::fs::File;
use std::io::{self, BufRead, Cursor, Read};
use std::path::{Path, PathBuf};

use assay_eval::content::{self, Compression};
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
pub fn open(name: &str) -> Result<(Box<dyn BufRead>, content::ContentFormat)> {
    let unreadable = |error| Failure::io(name, &error);
    let source: Box<dyn Read> = if name == STDIN {
        Box::new(io::stdin())
    } else {
        refuse_tables(name)?;
        Box::new(File::open(name).map_err(|error| missing_file(name, &error))?)
    };
    let (bytes, format) = content::open(source, name).map_err(unreadable)?;
    Ok((Box::new(bytes), format))
}

fn missing_file(name: &str, error: &io::Error) -> Box<Failure> {
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
    let inline_max = TABLE.upload.inline_max_bytes - OTHER_FIELDS_BYTES;
    let unreadable = |error| Failure::io(name, &error);
    if name != STDIN {
        refuse_tables(name)?;
        let file = File::open(name).map_err(|error| missing_file(name, &error))?;
        let metadata = file.metadata().map_err(unreadable)?;
        // A named pipe has no size, and can be read once.
        if metadata.is_file() {
            let n_bytes = metadata.len();
            let (mut bytes, format) = content::open(file, name).map_err(unreadable)?;
            if format.compression == Compression::None && n_bytes <= inline_max as u64 {
                let mut all = Vec::new();
                bytes.read_to_end(&mut all).map_err(unreadable)?;
                return inline(name, all, format.layout).map(Predictions::Inline);
            }
            return Ok(Predictions::Upload(Content {
                bytes: Bytes::File {
                    path: name.into(),
                    n_bytes,
                },
                content_type: content_type(format.layout),
                content_encoding: content_encoding(format.compression),
            }));
        }
        return read_stream(name, file, inline_max);
    }
    read_stream(name, io::stdin(), inline_max)
}

fn read_stream(
    name: &str,
    stream: impl Read + Send + 'static,
    inline_max: usize,
) -> Result<Predictions> {
    let unreadable = |error| Failure::io(name, &error);
    let (mut bytes, format) = content::open(stream, name).map_err(unreadable)?;
    let mut head = Vec::new();
    let limit = inline_max as u64 + 1;
    bytes
        .by_ref()
        .take(limit)
        .read_to_end(&mut head)
        .map_err(unreadable)?;
    if format.compression == Compression::None && head.len() <= inline_max {
        return inline(name, head, format.layout).map(Predictions::Inline);
    }
    let all = Cursor::new(head).chain(bytes);
    let (stream, compression): (Box<dyn Read + Send>, _) = match format.compression {
        Compression::None => {
            let packed = flate2::bufread::GzEncoder::new(all, flate2::Compression::fast());
            (Box::new(packed), Compression::Gzip)
        }
        compression => (Box::new(all), compression),
    };
    Ok(Predictions::Upload(Content {
        bytes: Bytes::Stream(stream),
        content_type: content_type(format.layout),
        content_encoding: content_encoding(compression),
    }))
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
    let mut lines = Vec::new();
    let rows: Vec<&RawValue> = match layout {
        Layout::Array => serde_json::from_str(&text)
            .map_err(|error| invalid(format!("it is not a JSON array: {error}")))?,
        Layout::Lines => {
            let mut rows = Vec::new();
            for (index, line) in text.lines().enumerate() {
                if line.trim().is_empty() {
                    continue;
                }
                let number = index + 1;
                let row = serde_json::from_str(line)
                    .map_err(|error| invalid(format!("line {number} is not JSON: {error}")))?;
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
