//! Submitting predictions.

use std::io::{self, IsTerminal as _};
use std::time::Instant;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::context::Context;
use super::{jobs, suites};
use crate::arguments::Submit;
use crate::client::Client;
use crate::failure::{Exit, Failure, Result};
use crate::messages::set_interrupt_text;
use crate::operations;
use crate::predictions::{self, Predictions, STDIN};
use crate::retries::TABLE;
use crate::upload::upload;

/// Jobs with the same predictions that were cancelled, or that the platform failed, before
/// the program gives up.
const KEYS_MAX: u32 = 50;

/// `assay submit`
pub fn submit(context: &Context, submission: &Submit) -> Result<()> {
    let file = submission.file.as_str();
    let mut keys: Vec<_> = submission.metadata.iter().map(|(key, _)| key).collect();
    keys.sort();
    if let Some(pair) = keys.windows(2).find(|pair| pair[0] == pair[1]) {
        let message = format!("--meta {} is given twice", pair[0]);
        return Err(Failure::new(Exit::Usage, message));
    }
    let client = context.client()?;
    // The version is read before the predictions: in a pipeline, `assay items` reads at the same time.
    let mut suite = suites::get(&client, &submission.suite)?;
    let metric = suites::metric_of(&suite)?;
    let suite_version = match &submission.suite_version {
        Some(version) => Value::from(version.as_str()),
        None => suite["version"].take(),
    };
    let wait = submission.wait.wait;
    if file == STDIN && io::stdin().is_terminal() {
        let hint = "Reading predictions from the terminal; end with Ctrl-D.";
        context.messages.progress(hint);
    }
    let predictions = predictions::read(file, metric)?;
    let started = Instant::now();
    let job = match predictions {
        Predictions::Inline(inline) => {
            let key = submission.key(&suite_version, &inline.digest);
            create(
                &client,
                submission,
                &suite_version,
                key,
                "predictions",
                &inline.json,
            )
            .map_err(|failure| with_lines(failure, file, &inline.lines))?
        }
        Predictions::Upload(content) => {
            set_interrupt_text(Some(
                "Interrupted. Run the same command to continue.".into(),
            ));
            let uploaded = upload(&client, content);
            let uploaded = uploaded.map_err(|failure| with_lines(failure, file, &[]))?;
            set_interrupt_text(None);
            let key = submission.key(&suite_version, &uploaded.digest);
            let reference = Value::from(uploaded.id).to_string();
            create(
                &client,
                submission,
                &suite_version,
                key,
                "input_ref",
                reference.as_bytes(),
            )?
        }
    };
    let id = job["id"].as_str().unwrap_or_default().to_owned();
    if job["status"] == "queued" {
        context.messages.progress(&format!("{id} is submitted"));
    } else {
        context.messages.progress(&format!(
            "{id} has the same predictions, and was submitted before; --fresh creates another job"
        ));
    }
    let Some(timeout) = wait else {
        return context.output.object(jobs::JOBS, &job);
    };
    let left = timeout.saturating_sub(started.elapsed());
    jobs::wait_and_show(context, &client, &id, left)
}

impl Submit {
    /// Returns the idempotency key: The submission's SHA-256, unless the user has given one.
    fn key(&self, suite_version: &Value, digest: &str) -> String {
        if let Some(key) = &self.idempotency_key {
            return key.clone();
        }
        let mut metadata = self.metadata.clone();
        metadata.sort();
        let metadata = if metadata.is_empty() {
            Value::Null
        } else {
            json!(metadata)
        };
        let identity = json!([self.suite, suite_version, self.label, metadata, digest]);
        let key = hex::encode(Sha256::digest(identity.to_string()));
        if self.fresh {
            format!("{key}-{:08x}", rand::random::<u32>())
        } else {
            key
        }
    }
}

/// Creates the job. If a key's job is useless, the next key is used.
fn create(
    client: &Client,
    submission: &Submit,
    suite_version: &Value,
    key: String,
    field: &str,
    content: &[u8],
) -> Result<Value> {
    let mut fields = json!({"suite_id": submission.suite, "suite_version": suite_version});
    if let Some(label) = &submission.label {
        fields["label"] = label.as_str().into();
    }
    if !submission.metadata.is_empty() {
        fields["metadata"] = submission.metadata.iter().cloned().collect();
    }
    let mut body = fields.to_string().into_bytes();
    body.pop();
    body.extend_from_slice(format!(",\"{field}\":").as_bytes());
    body.extend_from_slice(content);
    body.push(b'}');
    let mut next_key = key.clone();
    for number in 2..=KEYS_MAX + 1 {
        let job = client
            .request(&operations::CREATE_EVAL)
            .header("Idempotency-Key", &next_key)
            .json_bytes(body.clone())
            .wait_for_slot(submission.wait.wait)
            .send_json()?;
        if submission.idempotency_key.is_some() || !needs_next_key(&job) {
            return Ok(job);
        }
        next_key = format!("{key}-{number}");
    }
    Err(Failure::new(
        Exit::Conflict,
        "all jobs with these predictions were cancelled, or the platform failed",
    )
    .with_advice("Create a new one with: --fresh"))
}

/// Returns whether a job was cancelled, or the platform failed: submitting again makes sense.
fn needs_next_key(job: &Value) -> bool {
    let rules = &TABLE.idempotency;
    let is_one_of = |value: &Value, names: &[String]| {
        value
            .as_str()
            .is_some_and(|text| names.iter().any(|name| name == text))
    };
    is_one_of(&job["status"], &rules.next_key_after_status)
        || (job["status"] == "failed"
            && is_one_of(&job["error"]["code"], &rules.next_key_after_failure))
}

/// Replaces places such as `line 7.item_id` with those in the file. `lines` has the line for each
/// inline prediction's index, whose places are such as `predictions[3].item_id`.
fn with_lines(mut failure: Box<Failure>, file: &str, lines: &[usize]) -> Box<Failure> {
    for field in &mut failure.fields {
        let index = field
            .field
            .strip_prefix("predictions[")
            .and_then(|rest| rest.split_once(']'))
            .and_then(|(index, path)| Some((index.parse::<usize>().ok()?, path)));
        if let Some((index, path)) = index
            && let Some(line) = lines.get(index)
        {
            field.field = format!("line {line}{path}");
        }
        if field.field.starts_with("line ") {
            field.field = predictions::place(file, &field.field);
        }
    }
    failure
}
