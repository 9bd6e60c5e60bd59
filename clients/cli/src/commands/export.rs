//! `assay export`: a job's result in the formats of other programs.

use std::fs;
use std::path::Path;

use assay_exports::{
    Entry, EveryEval, ExportError, ExportedFile, HuggingFace, Job, ModelName, Receipt, Report,
    Suite, bibtex, citation_cff, hugging_face,
};
use clap::ValueEnum as _;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::context::Context;
use super::listing::entries;
use super::suites;
use crate::arguments::{Export, ExportFormat};
use crate::client::Client;
use crate::failure::{Exit, Failure, Result};
use crate::operations;
use crate::output::{escape_controls, write_line};

/// `assay export`
pub fn export(context: &Context, export: &Export) -> Result<()> {
    let format = ExportFormat::from_str(&export.format, false)
        .map_err(|message| Failure::new(Exit::Usage, message))?;
    let client = context.client()?;
    let request = client.request(&operations::GET_JOB);
    let job: Value = request.path("job_id", &export.job).send_json()?;
    let result = &job["result"];
    let Some(suite_id) = result["suite_id"].as_str() else {
        return Err(refused(&ExportError::NoResult));
    };
    let suite: Suite = read(&suites::get(&client, suite_id)?)?;
    let receipts = receipts(&client, &export.job, result)?;
    let entry = entry(&client, &export.job, suite_id)?;
    let developer = match &export.developer {
        Some(developer) => developer.clone(),
        None => organization(&client)?,
    };
    let job: Job = read(&job)?;
    let mut model = ModelName::of(&developer, &job, entry.as_ref());
    if let Some(name) = &export.model {
        model.name.clone_from(name);
    }
    let report = Report {
        base_url: client.base_url(),
        job: &job,
        suite: &suite,
        receipts: &receipts,
        model,
    };
    let file = file(&report, format, export).map_err(|error| refused(&error))?;
    let Some(folder) = &export.out else {
        let text = escape_controls(&file.content);
        return write_line(text.trim_end());
    };
    let path = write(folder, &file)?;
    context.messages.note(&path);
    Ok(())
}

fn file(
    report: &Report<'_>,
    format: ExportFormat,
    export: &Export,
) -> Result<ExportedFile, ExportError> {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    match format {
        ExportFormat::Eee => {
            let facts = EveryEval {
                deployment_type: &export.deployment_type,
                model_availability: &export.model_availability,
            };
            facts.record(report)
        }
        ExportFormat::Hf => {
            let [dataset_id, task_id] = [&export.dataset_id, &export.task_id].map(text);
            let benchmark = HuggingFace {
                dataset_id: &dataset_id,
                task_id: &task_id,
            };
            hugging_face(report, benchmark)
        }
        ExportFormat::Bibtex => bibtex(report),
        ExportFormat::Cff => citation_cff(report),
    }
}

/// Returns the job's receipts, the one with the figure that counts last: that of the sealed items or of the board,
/// if it is disclosed.
fn receipts(client: &Client, job_id: &str, result: &Value) -> Result<Vec<Receipt>> {
    let receipt = |figures: Option<&str>| {
        let request = client.request(&operations::GET_JOB_RECEIPT);
        let request = request.path("job_id", job_id);
        request.query_if("figures", figures).send_json()
    };
    let mut receipts = vec![read(&receipt(None)?)?];
    let later = match result["release"].as_str() {
        Some(release) if release.starts_with("sealed") => {
            result["sealed"].is_object().then_some("sealed")
        }
        Some(release) if release.starts_with("ladder") => Some("board"),
        _ => None,
    };
    match later.map(|figures| receipt(Some(figures))) {
        Some(Ok(later)) => receipts.push(read(&later)?),
        // The job is on no board, or the board is not final.
        Some(Err(failure)) if failure.exit != Exit::NotFound => return Err(failure),
        Some(Err(_)) | None => {}
    }
    Ok(receipts)
}

/// Returns the job's entry on the board, unless it was withdrawn.
fn entry(client: &Client, job_id: &str, suite_id: &str) -> Result<Option<Entry>> {
    let page = || {
        let request = client.request(&operations::LIST_ENTRIES);
        request.query("limit", 200).query("suite_id", suite_id)
    };
    for entry in entries(page, "entries") {
        let entry: Entry = read(&entry?)?;
        if entry.job_id == job_id && entry.withdrawn_at.is_none() {
            return Ok(Some(entry));
        }
    }
    Ok(None)
}

/// Returns the organization's name.
fn organization(client: &Client) -> Result<String> {
    let me = client.request(&operations::GET_ME).send_json()?;
    let orgs = me["orgs"].as_array().into_iter().flatten();
    let mut own = orgs.filter(|org| org["id"] == me["org_id"]);
    let name = own.next().and_then(|org| org["name"].as_str());
    Ok(name.unwrap_or_default().to_owned())
}

fn read<T: DeserializeOwned>(value: &Value) -> Result<T> {
    T::deserialize(value).map_err(|error| {
        Failure::new(Exit::Other, format!("unexpected response: {error}"))
            .with_advice("Use a newer version of the program.")
    })
}

fn refused(error: &ExportError) -> Box<Failure> {
    Failure::new(Exit::Other, error.to_string())
}

/// Writes a file below a folder, and returns its path.
fn write(folder: &Path, file: &ExportedFile) -> Result<String> {
    let path = file
        .path
        .split('/')
        .fold(folder.to_owned(), |path, part| path.join(part));
    let name = path.display().to_string();
    let failed = |error| Failure::io(&name, &error);
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(failed)?;
    }
    fs::write(&path, &file.content).map_err(failed)?;
    Ok(name)
}
