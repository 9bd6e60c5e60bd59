//! `assay suite publish`: sends the folder of a suite as a draft, waits for its check, shows the report, asks, and publishes.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, BufRead as _, ErrorKind, IsTerminal as _, Read as _, Write as _};
use std::path::Path;

use assay_eval::suite::{BadSuite, SUITE, SuiteDefinition, derived_seal_seed};
use indicatif::ProgressStyle;
use serde_json::{Value, json};

use super::context::Context;
use super::suite_definition::placeholder;
use crate::client::Client;
use crate::failure::{Exit, Failure, Result};
use crate::operations;
use crate::output::{View, visible};
use crate::profiles::write_private;
use crate::retries::TABLE;

/// Name of the file with the opening key.
const KEY_FILE: &str = "opening.key";

/// Files of at most this size in total are sent with the draft, in bytes: escaped as JSON they fit into 5 MiB, unless they are unusual.
const INLINE_MAX: usize = 2 * 1024 * 1024;

/// Number of seconds for which one request waits for the state of a draft.
const WAIT_SECONDS: u32 = 30;

const DRAFT: View = View {
    columns: &["suite_id", "version", "status", "id", "published_at"],
    id: "id",
};

/// The options of `assay suite publish`.
pub struct Options {
    /// Publish without asking.
    pub yes: bool,
    /// Stop after the check.
    pub stops_at_draft: bool,
}

/// Sends, checks and publishes a folder.
pub fn publish(context: &Context, folder: &Path, options: &Options) -> Result<()> {
    let suite_toml = read_text(folder, SUITE)?;
    let bad = |errors: Vec<BadSuite>| {
        let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
        Failure::new(Exit::InvalidInput, lines.join("\n"))
    };
    let definition = SuiteDefinition::parse(&suite_toml).map_err(bad)?;
    if let Some(placeholder) = placeholder(&definition.suite_id) {
        return Err(Failure::new(
            Exit::InvalidInput,
            format!("{SUITE}: {placeholder}"),
        ));
    }
    if !options.yes && !options.stops_at_draft && !can_ask(context) {
        return Err(
            Failure::new(Exit::Usage, "there is no terminal to ask on").with_advice(
                "Add --yes to publish without asking, or --draft to stop after the check.",
            ),
        );
    }
    let opening_key = opening_key(context, folder)?;
    let seed = derived_seal_seed(&opening_key);
    // What fails here is not sent.
    assay_tables::read_suite(&folder, Some(&seed)).map_err(bad)?;
    let client = context.client()?;
    let names = file_names(&definition);
    let mut files = Vec::new();
    for name in names {
        match fs::read(folder.join(&name)) {
            Ok(bytes) => files.push((name, bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => {
                return Err(Failure::io(
                    &folder.join(name).display().to_string(),
                    &error,
                ));
            }
        }
    }
    let draft = send(&client, &suite_toml, &hex::encode(opening_key), files)?;
    let draft_id = text(&draft, "id");
    context
        .messages
        .progress(&format!("{draft_id} is being checked"));
    let draft = wait(&client, &draft_id, "checking")?;
    show_report(context, &draft)?;
    if options.stops_at_draft {
        return context.output.object(DRAFT, &draft);
    }
    if !options.yes && !confirms(&draft)? {
        context.messages.note(&format!(
            "Not published. {draft_id} can be published for 7 days."
        ));
        return context.output.object(DRAFT, &draft);
    }
    let request = client.request(&operations::PUBLISH_DRAFT);
    request.path("draft_id", &draft_id).send()?;
    let draft = wait(&client, &draft_id, "publishing")?;
    context.output.object(DRAFT, &draft)?;
    if draft["status"] == "in_review" {
        context.messages.note(
            "The operator reviews the suite before more organizations see it. It is published once it is approved.",
        );
    }
    if draft["was_published"] == true {
        context
            .messages
            .note("The version was published before with the same content; nothing changed.");
    }
    context.messages.note(&format!(
        "Keep {}: it is the only way to open the answers later.",
        folder.join(KEY_FILE).display()
    ));
    Ok(())
}

fn text(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap_or_default().to_owned()
}

fn read_text(folder: &Path, name: &str) -> Result<String> {
    let path = folder.join(name);
    fs::read_to_string(&path).map_err(|error| {
        let failure = Failure::io(&path.display().to_string(), &error);
        if error.kind() == ErrorKind::NotFound {
            return failure.with_advice("Name the folder of a suite, with suite.toml.");
        }
        failure
    })
}

fn can_ask(context: &Context) -> bool {
    !context.global.no_input && io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Returns the opening key in the folder, if there is one.
pub fn stored_opening_key(folder: &Path) -> Result<Option<[u8; 32]>> {
    let path = folder.join(KEY_FILE);
    match path.try_exists() {
        Ok(false) => Ok(None),
        Ok(true) | Err(_) => read_opening_key(&path).map(Some),
    }
}

/// Reads a file with an opening key.
pub fn read_opening_key(path: &Path) -> Result<[u8; 32]> {
    let name = path.display().to_string();
    let written = fs::read_to_string(path).map_err(|error| Failure::io(&name, &error))?;
    let mut key = [0; 32];
    hex::decode_to_slice(written.trim(), &mut key).map_err(|_| {
        Failure::new(
            Exit::InvalidInput,
            format!("{name}: must have 64 hex digits"),
        )
        .with_advice("Restore the file, or remove it if no version was published with it.")
    })?;
    Ok(key)
}

/// Returns the opening key in the folder. Writes a new one before anything is sent, so that a published version never has a lost key.
fn opening_key(context: &Context, folder: &Path) -> Result<[u8; 32]> {
    if let Some(key) = stored_opening_key(folder)? {
        return Ok(key);
    }
    let path = folder.join(KEY_FILE);
    let name = path.display().to_string();
    let key: [u8; 32] = rand::random();
    let line = format!("{}\n", hex::encode(key));
    write_private(&path, line.as_bytes()).map_err(|error| Failure::io(&name, &error))?;
    context
        .messages
        .note(&format!("{name} has the new opening key"));
    Ok(key)
}

/// Returns the names of the files that a definition can have.
fn file_names(definition: &SuiteDefinition) -> BTreeSet<String> {
    let always = ["retest.ndjson", "catalog.ndjson"].map(String::from);
    let mut names = BTreeSet::from(always);
    match &definition.data {
        Some(data) => {
            names.insert(data.file.clone());
        }
        None => names.extend(
            [
                "items.ndjson",
                "answers.ndjson",
                "items.json",
                "answers.json",
            ]
            .map(String::from),
        ),
    }
    names.extend(
        definition
            .baselines
            .iter()
            .map(|baseline| baseline.file.clone()),
    );
    names
}

/// Creates the draft, sends its files, and requests its check.
fn send(
    client: &Client,
    suite_toml: &str,
    opening_key: &str,
    files: Vec<(String, Vec<u8>)>,
) -> Result<Value> {
    let create = |body: &Value| {
        // A retry after a lost response must not create a second draft.
        let key = format!("suite-publish-{:032x}", rand::random::<u128>());
        let request = client.request(&operations::CREATE_DRAFT);
        request
            .header("Idempotency-Key", &key)
            .json(body)
            .send_json()
    };
    let n_bytes: usize = files.iter().map(|(_, bytes)| bytes.len()).sum();
    let is_text = files.iter().all(|(_, bytes)| str::from_utf8(bytes).is_ok());
    if n_bytes <= INLINE_MAX && is_text {
        let files: Vec<Value> = files
            .iter()
            .map(|(name, bytes)| json!({"name": name, "content": String::from_utf8_lossy(bytes)}))
            .collect();
        return create(&json!({
            "suite_toml": suite_toml, "opening_key": opening_key, "files": files, "check": true,
        }));
    }
    let draft = create(&json!({"suite_toml": suite_toml, "opening_key": opening_key}))?;
    let draft_id = text(&draft, "id");
    let template = "{percent:>3} % {wide_bar} {bytes}/{total_bytes} · {eta} left";
    let style = ProgressStyle::with_template(template);
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = client.messages().bar(Some(n_bytes as u64), style);
    let mut sent = Vec::new();
    for (name, bytes) in &files {
        let mut rest = bytes.as_slice();
        let mut number = 0;
        while number == 0 || !rest.is_empty() {
            number += 1;
            let mut part = Vec::new();
            let limit = TABLE.upload.part_bytes as u64;
            // Reading from a slice cannot fail.
            let _ = rest.by_ref().take(limit).read_to_end(&mut part);
            let n = part.len() as u64;
            client
                .request(&operations::UPLOAD_DRAFT_PART)
                .path("draft_id", &draft_id)
                .path("name", name)
                .path("number", &number.to_string())
                .bytes(part)
                .send()?;
            bar.inc(n);
        }
        sent.push(json!({"name": name, "parts": number, "sha256": sha256(bytes)}));
    }
    bar.finish_and_clear();
    let request = client.request(&operations::CHECK_DRAFT);
    request
        .path("draft_id", &draft_id)
        .json(&json!({"files": sent}))
        .send_json()
}

fn sha256(bytes: &[u8]) -> String {
    use sha2::{Digest as _, Sha256};
    hex::encode(Sha256::digest(bytes))
}

/// Waits until a draft leaves this state.
///
/// # Errors
/// If the draft has failed: with all errors of the report.
fn wait(client: &Client, draft_id: &str, state: &str) -> Result<Value> {
    loop {
        let draft = client
            .request(&operations::GET_DRAFT)
            .path("draft_id", draft_id)
            .query("wait", WAIT_SECONDS)
            .send_json()?;
        if draft["status"] == state {
            continue;
        }
        if draft["status"] != "failed" {
            return Ok(draft);
        }
        let mut lines = vec![format!(
            "{draft_id} has failed: {}",
            text(&draft["error"], "message")
        )];
        for error in draft["report"]["errors"].as_array().into_iter().flatten() {
            let line = error["line"]
                .as_i64()
                .map_or_else(String::new, |line| format!(":{line}"));
            lines.push(format!(
                "{}{line}: {}",
                text(error, "file"),
                text(error, "message")
            ));
        }
        let exit = match draft["error"]["code"].as_str() {
            Some("validation_failed") => Exit::InvalidInput,
            Some("quota_exceeded") => Exit::Limit,
            Some("conflict" | "rejected") => Exit::Conflict,
            _ => Exit::Other,
        };
        let lines: Vec<String> = lines.iter().map(|line| visible(line)).collect();
        return Err(Failure::new(exit, lines.join("\n")));
    }
}

/// Shows what the check found.
fn show_report(context: &Context, draft: &Value) -> Result<()> {
    let report = &draft["report"];
    let n = |field: &str| report[field].as_i64().unwrap_or(0);
    let sealed = match n("n_sealed") {
        0 => String::new(),
        n_sealed => format!(", {n_sealed} of them sealed"),
    };
    context.messages.note(&format!(
        "{} version {}: {} items{sealed}, {} bytes",
        text(draft, "suite_id"),
        text(draft, "version"),
        n("n_items"),
        n("bytes")
    ));
    let audit = &report["audit"];
    for trivial in audit["trivial"].as_array().into_iter().flatten() {
        if let Some(value) = trivial["value"].as_f64() {
            let name = text(trivial, "submission");
            context.messages.note(&format!(
                "a model that knows nothing reaches {value:.3} ({name})"
            ));
        }
    }
    for warning in report["warnings"].as_array().into_iter().flatten() {
        context.messages.warn(&text(warning, "message"));
    }
    Ok(())
}

/// Asks whether to publish.
fn confirms(draft: &Value) -> Result<bool> {
    let failed = |error: io::Error| Failure::io("the terminal", &error);
    let mut terminal = io::stderr().lock();
    let question = format!(
        "Publish {} version {}? A published version never changes. [y/N] ",
        visible(&text(draft, "suite_id")),
        visible(&text(draft, "version"))
    );
    terminal.write_all(question.as_bytes()).map_err(failed)?;
    terminal.flush().map_err(failed)?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).map_err(failed)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
