//! Suites, their items, and checking predictions.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;
use std::path::Path;

use assay_eval::Metric;
use assay_eval::content::{ReadEnd, read_content};
use assay_eval::prediction::{CellForm, Fit, FitCheck, PredictionRules};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::context::Context;
use super::listing::entries;
use crate::client::Client;
use crate::failure::{Exit, Failure, Result};
use crate::operations;
use crate::output::{Format, View, closed, escape_controls, visible, write_line};
use crate::predictions::{self, STDIN};

/// A page's item count.
const PAGE_ITEMS: u32 = 1000;

pub const SUITES: View = View {
    columns: &[
        "suite_id",
        "version",
        "metric",
        "n_items",
        "release",
        "closes_at",
    ],
    id: "suite_id",
};

const BOARD: View = View {
    columns: &[
        "tier",
        "name",
        "org_name",
        "org_domain",
        "value",
        "rank_low",
        "rank_high",
        "n_submissions",
    ],
    id: "entry_id",
};

const CHECK: View = View {
    columns: &[
        "suite_id",
        "suite_version",
        "n_items",
        "n_matched",
        "n_missing",
        "n_unmatched",
    ],
    id: "suite_id",
};

/// `assay suites`
pub fn suites(context: &Context, suite_id: Option<&str>) -> Result<()> {
    let client = context.client()?;
    let Some(suite_id) = suite_id else {
        let page = client.request(&operations::LIST_SUITES).send_json()?;
        let suites = page["suites"].as_array().cloned().unwrap_or_default();
        return context.output.list(SUITES, suites.into_iter().map(Ok));
    };
    let mut suite = get(&client, suite_id)?;
    let usage = match client.request(&operations::GET_USAGE).send_json() {
        // The key may not read the usage.
        Err(failure) if failure.exit == Exit::Credential => Value::Null,
        usage => usage?,
    };
    let today = usage["suites"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|usage| usage["suite_id"] == suite["suite_id"])
        .and_then(|usage| usage["submissions_today"].as_i64())
        .unwrap_or(0);
    let left = suite["max_submissions_per_day"]
        .as_i64()
        .map(|max| (max - today).max(0));
    suite["submissions_left_today"] = left.into();
    context.output.object(SUITES, &suite)?;
    if context.output.is_table() {
        if suite["max_submissions_per_day"].is_null() {
            write_line(" submissions left today: no limit")?;
        }
        let prediction = metric_of(&suite).map_or("…", example_prediction);
        let id = visible(suite_id);
        write_line(&format!(
            "\nWrite one line for each item: {{\"item_id\": \"…\", \"prediction\": {prediction}}}\n\
             assay items {id} | ./model | assay submit {id} - --wait"
        ))?;
    }
    Ok(())
}

/// Returns a prediction for a metric, as JSON.
fn example_prediction(metric: Metric) -> &'static str {
    use assay_eval::Family;
    match metric.family() {
        Family::Rankings => "[\"best\", \"second\"]",
        Family::Labels => "\"label\"",
        Family::Numbers => "0.5",
        Family::Probabilities => "{\"a\": 0.7, \"b\": 0.3}",
        Family::Quantiles => "{LEVEL: NUMBER, …}",
    }
}

/// Returns a suite's or a comparison's metric. Fails if a newer program is needed for it.
pub fn metric_of(resource: &Value) -> Result<Metric> {
    let name = resource["metric"].as_str().unwrap_or_default();
    name.parse().map_err(|_| {
        Failure::new(Exit::Other, format!("this program does not know {name}"))
            .with_advice("Use a newer version of the program.")
    })
}

/// Returns the rules for predictions of a suite.
fn prediction_rules(suite: &Value) -> Result<PredictionRules> {
    let metric = metric_of(suite)?;
    let values = suite["quantiles"].as_array().into_iter().flatten();
    let values: Vec<f64> = values.filter_map(Value::as_f64).collect();
    let rules = PredictionRules::published(&metric.to_string(), &values);
    rules.map_err(|corrupt| Failure::new(Exit::Other, corrupt.to_string()))
}

/// Returns a suite.
pub fn get(client: &Client, suite_id: &str) -> Result<Value> {
    let request = client.request(&operations::GET_SUITE);
    request.path("suite_id", suite_id).send_json()
}

/// `assay board`: the entries by tier, and by name within a tier.
pub fn board(context: &Context, suite_id: &str, version: Option<String>) -> Result<()> {
    let client = context.client()?;
    let request = || {
        let request = client
            .request(&operations::GET_BOARD)
            .path("suite_id", suite_id);
        match &version {
            Some(version) => request.query("version", version.clone()),
            None => request,
        }
    };
    if context.output.is_table() {
        let first = request().query("limit", "1").send_json()?;
        let baselines = first["baselines"].as_array().into_iter().flatten();
        for line in baselines.filter_map(baseline_line) {
            context.messages.note(&line);
        }
    }
    context.output.list(BOARD, entries(request, "entries"))
}

/// Returns a board's baseline in one line.
fn baseline_line(baseline: &Value) -> Option<String> {
    let text = |field: &str| baseline[field].as_str().map(visible);
    let interval = match (baseline["ci95"][0].as_f64(), baseline["ci95"][1].as_f64()) {
        (Some(low), Some(high)) => format!(", 95 % interval {low:.3} to {high:.3}"),
        _ => String::new(),
    };
    Some(format!(
        "Baseline {} ({}), not ranked: {:.3}{interval}",
        text("name")?,
        text("kind")?,
        baseline["value"].as_f64()?
    ))
}

/// `assay items`
pub fn items(context: &Context, suite_id: &str, output: Option<&Path>) -> Result<()> {
    let client = context.client()?;
    let format = context.output.format();
    let path = match output {
        Some(path) if path != Path::new(STDIN) => path,
        _ => {
            let out = BufWriter::new(io::stdout().lock());
            let (version, n) = write_items(&client, suite_id, format, out, closed)?;
            let note = format!("{suite_id} version {version}, {n} items");
            context.messages.note(&note);
            return Ok(());
        }
    };
    // A symbolic link stays one.
    let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let name = path.display().to_string();
    let failed = |error: io::Error| Failure::io(&name, &error);
    // Devices and pipes are written to; only a file is replaced as a whole.
    if path.exists() && !path.is_file() {
        let file = fs::OpenOptions::new().write(true).open(path);
        let out = BufWriter::new(file.map_err(failed)?);
        return write_items(&client, suite_id, format, out, failed).map(|_| ());
    }
    let partial = path.with_added_extension("partial");
    let file = fs::File::create(&partial).map_err(failed)?;
    let written = write_items(&client, suite_id, format, BufWriter::new(file), failed).and_then(
        |(version, n)| {
            // The version comes first: new items must never have an old one.
            let version_file = path.with_added_extension("version");
            fs::write(version_file, format!("{version}\n")).map_err(failed)?;
            fs::rename(&partial, path).map_err(failed)?;
            Ok((version, n))
        },
    );
    if written.is_err() {
        let _ = fs::remove_file(&partial);
    }
    let (version, n) = written?;
    context.messages.note(&format!(
        "{suite_id} version {version}, {n} items in {name}, the version in {name}.version"
    ));
    Ok(())
}

/// An item page, which is written as they were published.
#[derive(Deserialize)]
struct ItemsPage<'a> {
    #[serde(borrow)]
    items: Vec<&'a RawValue>,
    suite_version: String,
    next_cursor: Option<String>,
}

/// An item, with its input as it was published.
#[derive(Deserialize)]
struct PublishedItem<'a> {
    item_id: String,
    #[serde(borrow)]
    input: &'a RawValue,
    #[serde(borrow)]
    groups: &'a RawValue,
}

/// Returns the text for items that follow `n_before` others.
fn text_of(items: &[&RawValue], n_before: usize, format: Format) -> Result<Vec<u8>> {
    let unexpected = |error: String| Failure::new(Exit::Other, error);
    let parsed = |item: &&'_ RawValue| -> Result<[String; 3]> {
        let item: PublishedItem<'_> =
            serde_json::from_str(item.get()).map_err(|error| unexpected(error.to_string()))?;
        let [input, groups] = [item.input, item.groups].map(|json| escape_controls(json.get()));
        Ok([item.item_id, input, groups])
    };
    let mut text = Vec::new();
    match format {
        Format::Csv => {
            let mut csv = csv::Writer::from_writer(&mut text);
            let header = [["item_id", "input", "groups"].map(str::to_owned)];
            let header = header.into_iter().filter(|_| n_before == 0).map(Ok);
            for row in header.chain(items.iter().map(parsed)) {
                let written = csv.write_record(row?);
                written.map_err(|error| unexpected(error.to_string()))?;
            }
        }
        Format::Id => {
            for item in items {
                text.extend(format!("{}\n", escape_controls(&parsed(item)?[0])).bytes());
            }
        }
        Format::Json => {
            for (at, item) in items.iter().enumerate() {
                let before = if n_before + at == 0 { "[\n" } else { ",\n" };
                text.extend(format!("{before}{}", escape_controls(item.get())).bytes());
            }
        }
        Format::Ndjson | Format::Table => {
            for item in items {
                text.extend(format!("{}\n", escape_controls(item.get())).bytes());
            }
        }
    }
    Ok(text)
}

/// Writes the current version's items. Returns the version and the item count.
fn write_items(
    client: &Client,
    suite_id: &str,
    format: Format,
    mut out: impl Write,
    failed: impl Fn(io::Error) -> Box<Failure>,
) -> Result<(String, usize)> {
    let mut cursor: Option<String> = None;
    let mut n = 0;
    loop {
        let response = client
            .request(&operations::LIST_SUITE_ITEMS)
            .path("suite_id", suite_id)
            .query("limit", PAGE_ITEMS)
            .query_if("cursor", cursor.take())
            .send()?;
        let page: ItemsPage<'_> = serde_json::from_slice(&response.body)
            .map_err(|error| Failure::new(Exit::Other, error.to_string()))?;
        out.write_all(&text_of(&page.items, n, format)?)
            .map_err(&failed)?;
        n += page.items.len();
        cursor = page.next_cursor;
        if cursor.is_none() {
            let end = if format == Format::Json { "\n]\n" } else { "" };
            out.write_all(end.as_bytes()).map_err(&failed)?;
            out.flush().map_err(&failed)?;
            return Ok((page.suite_version, n));
        }
    }
}

/// `assay check`
pub fn check(context: &Context, suite_id: &str, file: &str) -> Result<()> {
    let client = context.client()?;
    let suite = get(&client, suite_id)?;
    let rules = prediction_rules(&suite)?;
    let cells = CellForm::of(rules.metric());
    let page = || {
        let request = client.request(&operations::LIST_SUITE_ITEMS);
        request
            .path("suite_id", suite_id)
            .query("limit", PAGE_ITEMS)
    };
    let item_ids = entries(page, "items")
        .map(|item| Ok(item?["item_id"].as_str().unwrap_or_default().to_owned()))
        .collect::<Result<Vec<String>>>()?;
    let (bytes, format) = predictions::open(file)?;
    let mut check = FitCheck::new(rules, item_ids);
    let go_on = || ControlFlow::Continue(());
    if let ReadEnd::Invalid(error) = read_content(bytes, format, cells, go_on, &mut check) {
        return Err(Failure::new(Exit::InvalidInput, format!("{file}: {error}")));
    }
    let fit = check.finish();
    let report = json!({
        "suite_id": suite_id,
        "suite_version": suite["version"],
        "n_items": fit.n_items,
        "n_matched": fit.n_matched,
        "n_missing": fit.n_missing(),
        "n_unmatched": fit.n_unmatched,
        "first_missing": fit.first_missing,
        "first_unmatched": fit.first_unmatched.iter()
            .map(|(item_id, place)| json!({"item_id": item_id, "place": place}))
            .collect::<Vec<_>>(),
        "is_partial": fit.is_partial,
        "errors": fit.errors,
        "warnings": fit.warnings,
    });
    if context.output.is_table() {
        write_summary(&fit, &report)?;
    } else {
        context.output.object(CHECK, &report)?;
    }
    for warning in &fit.warnings {
        context.messages.note(&format!("warning: {warning}"));
    }
    if fit.errors.is_empty() {
        return Ok(());
    }
    Err(predictions::invalid(file, &fit.errors))
}

fn write_summary(fit: &Fit, report: &Value) -> Result<()> {
    let suite_id = visible(report["suite_id"].as_str().unwrap_or_default());
    let version = visible(report["suite_version"].as_str().unwrap_or_default());
    write_line(&format!(
        "{suite_id} version {version}: {} of {} items have a prediction",
        fit.n_matched, fit.n_items
    ))?;
    if fit.is_partial {
        write_line("reading stopped at the last of the errors below")?;
    }
    if fit.n_missing() > 0 {
        let first = visible(&fit.first_missing.join(", "));
        write_line(&format!(
            "{} are missing and would count as wrong; the first: {first}",
            fit.n_missing()
        ))?;
    }
    if let Some((item_id, place)) = fit.first_unmatched.first() {
        write_line(&format!(
            "{} are for items that the suite does not have; the first: {} in {place}",
            fit.n_unmatched,
            visible(item_id)
        ))?;
    }
    Ok(())
}
