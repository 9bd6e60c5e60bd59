//! Jobs.

use std::io::{self, IsTerminal as _};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use indicatif::ProgressStyle;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::context::Context;
use super::listing::entries;
use super::suites;
use crate::arguments::JobFilter;
use crate::client::Client;
use crate::failure::{Exit, Failure, Result};
use crate::messages::set_interrupt_text;
use crate::operations;
use crate::output::{View, visible, write_line, write_own_text};

pub const JOBS: View = View {
    columns: &[
        "id",
        "status",
        "label",
        "versions/suite_id",
        "result/metric",
        "result/value",
        "progress",
        "created_at",
    ],
    id: "id",
};

const SLICES: View = View {
    columns: &[
        "items",
        "field",
        "group",
        "n",
        "n_clusters",
        "n_missing",
        "value",
        "stderr",
        "ci95/0",
        "ci95/1",
    ],
    id: "group",
};

const ITEM_SCORES: View = View {
    columns: &["item_id", "score"],
    id: "item_id",
};

const ENTRY: View = View {
    columns: &["id", "name", "suite_id", "suite_version", "job_id"],
    id: "id",
};

/// One request's longest wait, in seconds.
const LONG_POLL_SECONDS: u64 = 30;

/// The delay between two `--watch` reads.
const WATCH: Duration = Duration::from_secs(2);

/// The default job count in a list.
const LISTED: usize = 30;

/// `assay jobs`
pub fn list(context: &Context, filter: &JobFilter, watch: bool) -> Result<()> {
    let client = context.client()?;
    let oldest = filter.since.map(oldest_time).transpose()?;
    let limit = match (filter.limit, &oldest) {
        (Some(limit), _) => limit as usize,
        (None, Some(_)) => usize::MAX,
        (None, None) => LISTED,
    };
    let read = || {
        let page = || {
            client
                .request(&operations::LIST_JOBS)
                .query("limit", limit.clamp(1, 100))
                .query_if("suite_id", filter.suite.as_ref())
                .query_if("label", filter.label.as_ref())
                .query_if("status", filter.status.as_ref())
        };
        let is_wanted = |job: &Result<Value>| match (job, &oldest) {
            // The API's timestamps have one width, so their order is the text order.
            (Ok(job), Some(oldest)) => job["created_at"]
                .as_str()
                .is_some_and(|time| time >= oldest.as_str()),
            _ => true,
        };
        entries(page, "jobs").take(limit).take_while(is_wanted)
    };
    if !watch {
        let mut n = 0;
        let counted = read().inspect(|_| n += 1);
        context.output.list(JOBS, counted)?;
        if n == LISTED && limit == LISTED {
            let hint = format!("The newest {LISTED} jobs; list more with --limit or --since.");
            context.messages.progress(&hint);
        }
        return Ok(());
    }
    loop {
        let jobs = read().collect::<Result<Vec<_>>>()?;
        if context.output.is_table() && io::stdout().is_terminal() {
            // Clears the screen, and moves to its start.
            write_own_text("\u{1b}[2J\u{1b}[H")?;
        }
        let has_active = jobs.iter().any(|job| !is_final(job));
        context.output.list(JOBS, jobs.into_iter().map(Ok))?;
        if !has_active {
            return Ok(());
        }
        thread::sleep(WATCH);
    }
}

/// Returns the time that lies this long ago, as the API writes it.
#[expect(clippy::disallowed_methods, reason = "a client has no database")]
fn oldest_time(since: Duration) -> Result<String> {
    let invalid = || Failure::new(Exit::Usage, "--since is too long");
    let time = SystemTime::now().checked_sub(since).ok_or_else(invalid)?;
    OffsetDateTime::from(time)
        .format(&Rfc3339)
        .map_err(|_| invalid())
}

/// `assay job`
pub fn show(context: &Context, id: &str, wait: Option<Duration>, slices: bool) -> Result<()> {
    let client = context.client()?;
    if slices {
        let job = match wait {
            Some(timeout) => wait_for(context, &client, id, Some(timeout))?,
            None => get(&client, id, 0)?,
        };
        return show_slices(context, &job);
    }
    match wait {
        Some(timeout) => wait_and_show(context, &client, id, timeout),
        None => show_job(context, &client, &get(&client, id, 0)?),
    }
}

/// Shows the figures of a job's slices, a row for each, and notes the gaps.
fn show_slices(context: &Context, job: &Value) -> Result<()> {
    if let Some(failure) = failure_of(job) {
        return Err(failure);
    }
    let result = &job["result"];
    let mut rows = Vec::new();
    let parts = [
        ("open", &result["slices"]),
        ("sealed", &result["sealed"]["slices"]),
    ];
    for (items, fields) in parts {
        for field in fields.as_array().into_iter().flatten() {
            for group in field["groups"].as_array().into_iter().flatten() {
                let mut row = group.clone();
                row["items"] = json!(items);
                row["field"] = field["field"].clone();
                rows.push(row);
            }
            if let Some(gap) = gap(field) {
                context.messages.note(&gap);
            }
        }
    }
    if rows.is_empty() {
        context
            .messages
            .note("The result has no slices: the suite has none, or does not disclose them.");
    }
    context.output.list(SLICES, rows.into_iter().map(Ok))
}

/// Returns the gap between a field's slices in one line.
fn gap(field: &Value) -> Option<String> {
    let gap = &field["gap"];
    let text = |value: &Value| value.as_str().map(visible);
    let interval = match (gap["ci95"][0].as_f64(), gap["ci95"][1].as_f64()) {
        (Some(low), Some(high)) => format!(", 95 % interval {low:.3} to {high:.3}"),
        _ => String::new(),
    };
    let p_value = gap["p_value"]
        .as_f64()
        .map_or_else(String::new, |p_value| format!(", p = {p_value:.3}"));
    Some(format!(
        "{}: {} is the best slice and {} the worst; the gap is {:.3}{interval}{p_value}.",
        text(&field["field"])?,
        text(&gap["best"])?,
        text(&gap["worst"])?,
        gap["value"].as_f64()?
    ))
}

/// `assay wait`
pub fn wait_for_all(context: &Context, ids: &[String], timeout: Option<Duration>) -> Result<()> {
    let client = context.client()?;
    let started = Instant::now();
    let jobs = ids.iter().map(|id| {
        let left = timeout.map(|timeout| timeout.saturating_sub(started.elapsed()));
        wait_for(context, &client, id, left)
    });
    show_each(context, ids, jobs)
}

/// Waits until a job is finished, and shows it. Fails if it failed or was cancelled.
pub fn wait_and_show(
    context: &Context,
    client: &Client,
    id: &str,
    timeout: Duration,
) -> Result<()> {
    let job = wait_for(context, client, id, Some(timeout))?;
    // A reader that has closed the output must not hide that the job failed.
    let shown = show_job(context, client, &job);
    warn_of_unmatched(context, &job["result"]);
    failure_of(&job).map_or(shown, Err)
}

/// Shows the jobs whose request succeeded, and the others' failures. Returns the first failure,
/// also a job's.
fn show_each(
    context: &Context,
    ids: &[String],
    jobs: impl Iterator<Item = Result<Value>>,
) -> Result<()> {
    let mut shown = Vec::new();
    let mut failures = Vec::new();
    for (id, job) in ids.iter().zip(jobs) {
        match job {
            Ok(job) => {
                failures.extend(failure_of(&job));
                shown.push(job);
            }
            Err(failure) => failures.push(failure.with_resource(id)),
        }
    }
    let output = context.output.list(JOBS, shown.into_iter().map(Ok));
    let mut failures = failures.into_iter();
    let Some(first) = failures.next() else {
        return output;
    };
    for failure in failures {
        context.messages.note(&failure.to_string());
    }
    Err(first)
}

/// Warns about items without a prediction, and predictions without an item.
pub fn warn_of_unmatched(context: &Context, result: &Value) {
    let number = |field: &str| result[field].as_i64().unwrap_or(0);
    let (n, n_missing, n_unmatched) = (number("n"), number("n_missing"), number("n_unmatched"));
    if n_missing > 0 {
        context.messages.warn(&format!(
            "{n_missing} of {n} items have no prediction, and count as wrong."
        ));
    }
    if n_unmatched > 0 {
        context.messages.warn(&format!(
            "{n_unmatched} predictions are for items that the suite does not have."
        ));
    }
}

/// Shows a job. For people, its score comes first.
fn show_job(context: &Context, client: &Client, job: &Value) -> Result<()> {
    if context.output.is_table()
        && let Some(headline) = headline(job, cluster_field(client, job).as_deref())
    {
        write_line(&headline)?;
        // `--slices` shows them as a table.
        let mut job = job.clone();
        for path in ["/result", "/result/sealed"] {
            if let Some(Value::Object(figures)) = job.pointer_mut(path) {
                figures.remove("slices");
            }
        }
        return context.output.object(JOBS, &job);
    }
    context.output.object(JOBS, job)
}

/// Returns the group field that names a clustered result's clusters. `None` if it cannot be read now, or
/// if the suite has another version since.
fn cluster_field(client: &Client, job: &Value) -> Option<String> {
    let result = &job["result"];
    result["n_clusters"].as_i64()?;
    let suite = suites::get(client, result["suite_id"].as_str()?).ok()?;
    let is_same = suite["version"] == result["suite_version"];
    let field = suite["cluster"].as_str().filter(|_| is_same)?;
    Some(visible(field))
}

/// Returns a job's score in one line. `field` names its clusters.
fn headline(job: &Value, field: Option<&str>) -> Option<String> {
    let result = &job["result"];
    let value = result["value"].as_f64()?;
    let metric = visible(result["metric"].as_str()?);
    let n = result["n"].as_i64()?;
    let interval = match (
        result["ci95"][0].as_f64(),
        result["ci95"][1].as_f64(),
        result["ci_method"].as_str(),
    ) {
        (Some(low), Some(high), Some(method)) => {
            format!(
                " (95 % interval {low:.3} to {high:.3}, {})",
                visible(method)
            )
        }
        _ => String::new(),
    };
    let clusters = result["n_clusters"]
        .as_i64()
        .map_or_else(String::new, |clusters| {
            let field = field.map_or_else(String::new, |field| format!(" ({field})"));
            format!(" in {clusters} clusters{field}")
        });
    let share = result["share_of_ceiling"]["value"]
        .as_f64()
        .map_or_else(String::new, |share| {
            let limit = match result["ceiling"]["kind"].as_str() {
                Some("sampling") => "the way to the noise floor",
                _ => "the noise ceiling",
            };
            format!(", {share:.3} of {limit}")
        });
    let skill = result["skill"]["value"]
        .as_f64()
        .map_or_else(String::new, |skill| format!(", skill {skill:.3}"));
    Some(format!(
        "{metric} {value:.3}{interval}, n = {n}{clusters}{share}{skill}\n"
    ))
}

fn get(client: &Client, id: &str, wait_seconds: u64) -> Result<Value> {
    let request = client.request(&operations::GET_JOB).path("job_id", id);
    let wait = Some(wait_seconds).filter(|seconds| *seconds > 0);
    request.query_if("wait", wait).send_json()
}

fn is_final(job: &Value) -> bool {
    !matches!(job["status"].as_str(), Some("queued" | "running"))
}

/// Waits until a job is finished.
fn wait_for(
    context: &Context,
    client: &Client,
    id: &str,
    timeout: Option<Duration>,
) -> Result<Value> {
    set_interrupt_text(Some(format!(
        "Interrupted. The job continues; wait for it with: assay wait {id}"
    )));
    let started = Instant::now();
    let style = ProgressStyle::with_template("{spinner} {elapsed} {msg}");
    let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner());
    let bar = context.messages.bar(None, style);
    bar.enable_steady_tick(Duration::from_millis(100));
    loop {
        let left = timeout.map(|timeout| timeout.saturating_sub(started.elapsed()));
        let seconds = left.map_or(LONG_POLL_SECONDS, |left| {
            left.as_secs().clamp(1, LONG_POLL_SECONDS)
        });
        let job = get(client, id, seconds).map_err(|failure| {
            if failure.exit == Exit::Unavailable {
                failure.with_advice(format!(
                    "The job continues; wait for it with: assay wait {id}"
                ))
            } else {
                failure
            }
        })?;
        if is_final(&job) {
            bar.finish_and_clear();
            set_interrupt_text(None);
            return Ok(job);
        }
        if left.is_some_and(|left| left <= Duration::from_secs(seconds)) {
            bar.finish_and_clear();
            let status = job["status"].as_str().unwrap_or_default();
            return Err(
                Failure::new(Exit::TimedOut, format!("{id} is still {status}")).with_advice(
                    format!("The job continues; wait for it with: assay wait {id}"),
                ),
            );
        }
        let progress = job["progress"].as_f64();
        let progress =
            progress.map_or_else(String::new, |share| format!(" {:.0} %", share * 100.0));
        let status = job["status"].as_str().unwrap_or_default();
        bar.set_message(format!("{id} is {status}{progress}"));
    }
}

/// Returns the failure for a job that failed or was cancelled.
fn failure_of(job: &Value) -> Option<Box<Failure>> {
    let id = job["id"].as_str().unwrap_or_default();
    match job["status"].as_str() {
        Some("failed") => {
            let text = |field: &str| job["error"][field].as_str().unwrap_or_default();
            let message = format!("{id} failed: {}: {}", text("code"), text("message"));
            Some(Failure::new(Exit::JobFailed, message))
        }
        Some("cancelled") => Some(Failure::new(Exit::JobFailed, format!("{id} was cancelled"))),
        _ => None,
    }
}

/// `assay cancel`
pub fn cancel(context: &Context, ids: &[String]) -> Result<()> {
    let client = context.client()?;
    let cancelled = ids.iter().map(|id| {
        let request = client.request(&operations::CANCEL_JOB);
        request.path("job_id", id).send_json()
    });
    // Each job is cancelled, also if another one cannot be.
    match show_each(context, ids, cancelled) {
        // This is what the user wanted.
        Err(failure) if failure.exit == Exit::JobFailed => Ok(()),
        shown => shown,
    }
}

/// `assay enter`
pub fn enter(
    context: &Context,
    id: &str,
    name: &str,
    url: Option<&str>,
    marks_final: bool,
) -> Result<()> {
    let client = context.client()?;
    if marks_final {
        // A repeated mark changes nothing.
        let request = client.request(&operations::FINALIZE_JOB);
        request.path("job_id", id).send_json()?;
    }
    let request = client.request(&operations::CREATE_ENTRY).path("job_id", id);
    let entry = request
        .json(&json!({"name": name, "url": url}))
        .send_json()?;
    context.output.object(ENTRY, &entry)
}

/// `assay job-items`
pub fn items(context: &Context, id: &str) -> Result<()> {
    let client = context.client()?;
    let page = || {
        let request = client.request(&operations::LIST_JOB_ITEMS);
        request.path("job_id", id).query("limit", 1000)
    };
    context.output.list(ITEM_SCORES, entries(page, "items"))
}
