//! Uploads: a content in parts, several at once, which a later run continues.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::client::Client;
use crate::failure::{Exit, Failure, Result};
use crate::operations;
use crate::predictions::{Bytes, Content};
use crate::profiles::{cache_folder, write_private};
use crate::retries::TABLE;

/// An upload that is ready to be submitted.
pub struct Uploaded {
    /// The id of the upload.
    pub id: String,
    /// The content's SHA-256, for an idempotency key.
    pub digest: String,
}

/// Uploads a content, or continues its earlier upload.
pub fn upload(client: &Client, content: Content) -> Result<Uploaded> {
    let Content {
        bytes,
        content_type,
        content_encoding,
    } = content;
    let (reader, file, n_bytes) = match bytes {
        Bytes::File { path, n_bytes } => (open(&path)?, Some(path), Some(n_bytes)),
        Bytes::Stream(stream) => (stream, None, None),
    };
    let mut parts = Parts::new(reader, content_encoding);
    let Some(first) = parts.next_part()? else {
        return Err(Failure::new(Exit::InvalidInput, "there are no predictions"));
    };
    // The first part identifies the content; the others' digests are compared one by one.
    let identity = [
        client.base_url().to_owned(),
        content_encoding.to_owned(),
        n_bytes.map_or_else(String::new, |n| n.to_string()),
        first.sha256.clone(),
    ];
    let state = State::new(&identity);
    let target = match find_target(client, &state)? {
        Some(Target {
            is_ready: true,
            id,
            received,
        }) => {
            let same = match &file {
                Some(path) => same_content(Parts::new(open(path)?, content_encoding), &received)?,
                None => None,
            };
            if let Some(digest) = same {
                client
                    .messages()
                    .progress(&format!("{id} has the same content, nothing is sent"));
                return Ok(Uploaded { id, digest });
            }
            None
        }
        target => target,
    };
    let target = match target {
        Some(target) => {
            let n_parts = n_bytes.map(|n| n.div_ceil(TABLE.upload.part_bytes as u64));
            let of = n_parts.map_or_else(String::new, |n| format!(" of {n}"));
            client.messages().progress(&format!(
                "resuming {}: {}{of} parts are already uploaded",
                target.id,
                target.received.len()
            ));
            target
        }
        None => create_target(client, content_type, content_encoding, n_bytes, &state)?,
    };
    let bar = client.messages().bar(n_bytes, bar_style(n_bytes.is_some()));
    let (n_parts, digest) = send_parts(client, &target, first, parts, &bar)?;
    bar.finish_and_clear();
    if target.received.keys().any(|number| *number > n_parts) {
        // An earlier content with the same beginning was longer.
        state.delete();
        let delete = client.request(&operations::DELETE_UPLOAD);
        let _ = delete.path("upload_id", &target.id).send();
        return Err(Failure::new(
            Exit::InvalidInput,
            "the predictions have changed since the upload began",
        )
        .with_advice("Submit them again."));
    }
    let completed = client
        .request(&operations::COMPLETE_UPLOAD)
        .path("upload_id", &target.id)
        .send_json();
    match completed {
        Ok(upload) if upload["status"] == "ready" => Ok(Uploaded {
            id: target.id,
            digest,
        }),
        Ok(upload) => {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let (status, error) = (text(&upload["status"]), text(&upload["error"]["message"]));
            let message = format!("{} is {status}: {error}", target.id);
            Err(Failure::new(Exit::InvalidInput, message))
        }
        Err(failure) => {
            if failure.exit == Exit::InvalidInput {
                state.delete();
            }
            Err(failure)
        }
    }
}

fn open(path: &Path) -> Result<Box<dyn Read + Send>> {
    match File::open(path) {
        Ok(file) => Ok(Box::new(file)),
        Err(error) => Err(Failure::io(&path.display().to_string(), &error)),
    }
}

fn bar_style(has_length: bool) -> ProgressStyle {
    let template = if has_length {
        "{percent:>3} % {wide_bar} {bytes}/{total_bytes} · {bytes_per_sec} · {eta} left"
    } else {
        "{spinner} {bytes} sent · {bytes_per_sec}"
    };
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// One part in a content.
struct Part {
    /// The number, from 1.
    number: u32,
    bytes: Vec<u8>,
    sha256: String,
}

/// A content, divided into equal parts.
struct Parts {
    reader: Box<dyn Read + Send>,
    digest: Sha256,
    n_parts: u32,
}

impl Parts {
    fn new(reader: Box<dyn Read + Send>, content_encoding: &str) -> Self {
        Self {
            reader,
            digest: Sha256::new_with_prefix(content_encoding),
            n_parts: 0,
        }
    }

    fn next_part(&mut self) -> Result<Option<Part>> {
        let mut bytes = Vec::new();
        let limit = TABLE.upload.part_bytes as u64;
        self.reader
            .by_ref()
            .take(limit)
            .read_to_end(&mut bytes)
            .map_err(|error| Failure::io("the predictions", &error))?;
        if bytes.is_empty() {
            return Ok(None);
        }
        self.n_parts += 1;
        self.digest.update(&bytes);
        Ok(Some(Part {
            number: self.n_parts,
            sha256: hex::encode(Sha256::digest(&bytes)),
            bytes,
        }))
    }
}

/// Returns a content's digest if it has exactly these parts. Reads it completely.
fn same_content(mut parts: Parts, received: &HashMap<u32, String>) -> Result<Option<String>> {
    while let Some(part) = parts.next_part()? {
        if received.get(&part.number) != Some(&part.sha256) {
            return Ok(None);
        }
    }
    let is_same = parts.n_parts as usize == received.len();
    Ok(is_same.then(|| hex::encode(parts.digest.finalize())))
}

/// Sends the parts that the server does not have. Returns their number and the digest over all.
fn send_parts(
    client: &Client,
    target: &Target,
    first: Part,
    parts: Parts,
    bar: &ProgressBar,
) -> Result<(u32, String)> {
    let source = Mutex::new((Some(first), parts));
    let has_failed = AtomicBool::new(false);
    let take = || -> Result<Option<Part>> {
        // A thread that panicked has ended the program's work anyway.
        let mut source = source.lock().unwrap_or_else(PoisonError::into_inner);
        match source.0.take() {
            Some(first) => Ok(Some(first)),
            None => source.1.next_part(),
        }
    };
    let send = || -> Result<()> {
        while !has_failed.load(Ordering::Relaxed) {
            let Some(part) = take()? else { break };
            let n_bytes = part.bytes.len() as u64;
            send_part(client, target, part)?;
            bar.inc(n_bytes);
        }
        Ok(())
    };
    let results: Vec<Result<()>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..TABLE.upload.concurrent_parts)
            .map(|_| {
                scope.spawn(|| send().inspect_err(|_| has_failed.store(true, Ordering::Relaxed)))
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|_| Err(Failure::new(Exit::Other, "a part could not be sent")))
            })
            .collect()
    });
    results.into_iter().collect::<Result<Vec<()>>>()?;
    let (_, parts) = source.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok((parts.n_parts, hex::encode(parts.digest.finalize())))
}

fn send_part(client: &Client, target: &Target, part: Part) -> Result<()> {
    if target.received.get(&part.number) == Some(&part.sha256) {
        return Ok(());
    }
    let received = client
        .request(&operations::PUT_UPLOAD_PART)
        .path("upload_id", &target.id)
        .path("number", &part.number.to_string())
        .bytes(part.bytes)
        .send_json()?;
    if received["sha256"] == part.sha256 {
        return Ok(());
    }
    let message = format!("part {} of {} arrived damaged", part.number, target.id);
    Err(Failure::new(Exit::Other, message).with_advice("Submit again."))
}

/// The upload that parts are sent to.
struct Target {
    id: String,
    /// Each part's SHA-256 that the server has, by number.
    received: HashMap<u32, String>,
    is_ready: bool,
}

fn find_target(client: &Client, state: &State) -> Result<Option<Target>> {
    let Some(id) = state.load() else {
        return Ok(None);
    };
    let found = client
        .request(&operations::GET_UPLOAD)
        .path("upload_id", &id)
        .send_json();
    let upload = match found {
        Err(failure) if failure.exit == Exit::NotFound => return Ok(None),
        found => found?,
    };
    let is_ready = upload["status"] == "ready";
    if !is_ready && upload["status"] != "pending" {
        return Ok(None);
    }
    let part = |part: &Value| {
        let number = u32::try_from(part["number"].as_u64()?).ok()?;
        Some((number, part["sha256"].as_str()?.to_owned()))
    };
    let parts = upload["parts"].as_array();
    Ok(Some(Target {
        id,
        received: parts.into_iter().flatten().filter_map(part).collect(),
        is_ready,
    }))
}

fn create_target(
    client: &Client,
    content_type: &str,
    content_encoding: &str,
    n_bytes: Option<u64>,
    state: &State,
) -> Result<Target> {
    let mut body = json!({
        "kind": "predictions",
        "content_type": content_type,
        "content_encoding": content_encoding,
    });
    if let Some(n_bytes) = n_bytes {
        body["bytes"] = n_bytes.into();
    }
    let create = || {
        let request = client.request(&operations::CREATE_UPLOAD);
        request.json(&body).send_json()
    };
    // After an unknown outcome, another one is created: an upload without parts expires by itself.
    let mut left = if TABLE.upload.recreate_after_unknown_outcome {
        TABLE.max_retries()
    } else {
        0
    };
    let upload = loop {
        match create() {
            Err(failure) if left > 0 && failure.has_unknown_outcome() => left -= 1,
            created => break created?,
        }
    };
    let id = upload["id"].as_str().unwrap_or_default().to_owned();
    state.save(&id);
    Ok(Target {
        id,
        received: HashMap::new(),
        is_ready: false,
    })
}

/// An upload's id on disk, so that a later run can continue it. Without a cache, or if it
/// cannot be written, each run starts from the first part.
struct State {
    path: PathBuf,
}

impl State {
    fn new(identity: &[String]) -> Self {
        let name = hex::encode(Sha256::digest(json!(identity).to_string()));
        Self {
            path: cache_folder().join("uploads").join(name),
        }
    }

    fn load(&self) -> Option<String> {
        let id = fs::read_to_string(&self.path).ok()?;
        Some(id.trim().to_owned()).filter(|id| !id.is_empty())
    }

    fn save(&self, id: &str) {
        let saved: io::Result<()> = write_private(&self.path, id.as_bytes());
        // The upload works without it.
        let _ = saved;
    }

    fn delete(&self) {
        let _ = fs::remove_file(&self.path);
    }
}
