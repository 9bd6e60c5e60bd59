//! Jobs as records in the Every Eval Ever format, version 0.3.0.

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::report::{ExportError, ExportedFile, Report, publisher_url, suite_url};
use crate::resources::{Claim, Receipt};
use crate::text::line;

const SCHEMA_VERSION: &str = "0.3.0";

/// A path's longest part, in bytes: file systems take 255.
const PART_MAX: usize = 200;

/// Names that Windows reserves, in lower case, and the one that the format itself reserves.
const RESERVED: [&str; 23] = [
    "con", "prn", "aux", "nul", "com1", "com2", "com3", "com4", "com5", "com6", "com7", "com8",
    "com9", "lpt1", "lpt2", "lpt3", "lpt4", "lpt5", "lpt6", "lpt7", "lpt8", "lpt9", "data",
];

/// The parties that can run an evaluated model, as the schema names them.
pub const DEPLOYMENT_TYPES: [&str; 3] = ["unknown", "self_deployed", "externally_managed"];

/// The ways in which a model's weights can be available, as the schema names them.
pub const MODEL_AVAILABILITIES: [&str; 3] = ["unknown", "open_weights", "closed_weights"];

/// The facts about a model that only its developer knows.
#[derive(Debug, Clone, Copy)]
pub struct EveryEval<'a> {
    /// The party that runs the model, among [`DEPLOYMENT_TYPES`].
    pub deployment_type: &'a str,
    /// The availability of its weights, among [`MODEL_AVAILABILITIES`].
    pub model_availability: &'a str,
}

impl EveryEval<'_> {
    /// Returns a job's record: a result for each receipt. The same job has the same path and record each time, so that
    /// a repeated export does not become a second record.
    ///
    /// # Errors
    /// If the job has no figures to export, or a name has no character that a path may have.
    pub fn record(self, report: &Report<'_>) -> Result<ExportedFile, ExportError> {
        report.check()?;
        let claim = &report.receipt()?.statement.predicate;
        let suite_name = claim.suite_id.strip_prefix("suite:");
        let suite_name = path_part(suite_name.unwrap_or(&claim.suite_id), "suite")?;
        let developer = path_part(&report.model.developer, "developer")?;
        let model = path_part(&report.model.name, "model")?;
        let model_id = format!("{developer}/{model}");
        let retrieved = unix_time(&claim.finished_at);
        let results = report
            .receipts
            .iter()
            .map(|receipt| result(report, receipt, suite_name.as_str()));
        let results = results.collect::<Result<Vec<_>, _>>()?;
        let mut source = json!({
            "source_name": line(&report.suite.title),
            // The schema calls reported figures without item outputs documentation.
            "source_type": "documentation",
            "source_organization_name": report.publisher(),
            "evaluator_relationship": if report.is_by_publisher() { "first_party" } else { "third_party" },
            "additional_details": source_details(report),
        });
        if let Some(url) = publisher_url(report.base_url, report.suite) {
            source["source_organization_url"] = json!(url);
        }
        let record = json!({
            "schema_version": SCHEMA_VERSION,
            "evaluation_id": format!("{suite_name}/{model_id}/{retrieved}"),
            "evaluation_timestamp": claim.finished_at,
            "retrieved_timestamp": retrieved,
            "source_metadata": source,
            "eval_library": {"name": "assay", "version": claim.hfm_sha},
            "model_info": {
                "name": line(&report.model.name),
                "id": model_id,
                "developer": line(&report.model.developer),
                "additional_details": {
                    "deployment_type": self.deployment_type,
                    "model_availability": self.model_availability,
                },
            },
            "evaluation_results": results,
        });
        Ok(ExportedFile {
            path: format!("data/{suite_name}/{model_id}/{}.json", uuid(&report.job.id)),
            content: format!("{record:#}\n"),
        })
    }
}

/// Returns the receipts' ids, commitments and places in the log. Names for the figure that counts have no prefix.
fn source_details(report: &Report<'_>) -> Value {
    let mut details = Map::new();
    let mut add = |name: String, value: &str| details.insert(name, json!(value));
    add("job_id".into(), &report.job.id);
    for (at, receipt) in report.receipts.iter().enumerate() {
        let claim = &receipt.statement.predicate;
        let prefix = match at + 1 == report.receipts.len() {
            true => String::new(),
            false => format!("{}_", claim.figures),
        };
        add(format!("{prefix}receipt_id"), &receipt.id);
        add(format!("{prefix}receipt_url"), &report.receipt_url(receipt));
        if let Some(log) = &receipt.log {
            add(format!("{prefix}log_origin"), &log.origin);
            add(format!("{prefix}log_index"), &log.index.to_string());
        }
        if prefix.is_empty() {
            add("suite_id".into(), &claim.suite_id);
            add("suite_version".into(), &claim.suite_version);
            add("suite_commitment".into(), &claim.suite_commitment);
            add("release".into(), &claim.release);
        }
    }
    Value::Object(details)
}

/// Returns a receipt's result.
fn result(report: &Report<'_>, receipt: &Receipt, suite_name: &str) -> Result<Value, ExportError> {
    let claim = &receipt.statement.predicate;
    let Claim { figures, .. } = claim;
    let metric = claim.known_metric()?;
    let [lowest, highest] = score_bounds(metric);
    let mut details =
        json!({"score": claim.value, "details": {"figures": figures, "receipt_id": receipt.id}});
    let mut uncertainty = Map::new();
    if let Some([lower, upper]) = claim.ci95 {
        let mut interval = json!({"lower": lower, "upper": upper, "confidence_level": 0.95});
        if let Some(method) = &claim.ci_method {
            interval["method"] = json!(method);
        }
        uncertainty.insert("confidence_interval".into(), interval);
    }
    let has_job_figures = matches!(figures.as_str(), "all" | "open");
    let stderr = report.job.result.as_ref().and_then(|result| result.stderr);
    if let Some(stderr) = stderr.filter(|_| has_job_figures && claim.ci95.is_some()) {
        uncertainty.insert("standard_error".into(), json!({"value": stderr}));
    }
    uncertainty.insert("num_samples".into(), json!(claim.n));
    details["uncertainty"] = Value::Object(uncertainty);
    Ok(json!({
        "evaluation_result_id": receipt.id,
        "evaluation_name": match figures.as_str() {
            "all" => suite_name.to_owned(),
            _ => format!("{suite_name} ({figures})"),
        },
        "evaluation_timestamp": claim.finished_at,
        "source_data": source_data(report, claim),
        "metric_config": {
            "metric_id": claim.metric,
            "metric_name": claim.metric,
            "evaluation_description": format!("{} on {}", claim.metric, line(&report.suite.title)),
            "lower_is_better": metric.lower_is_better(),
            "score_type": "continuous",
            "min_score": lowest,
            "max_score": highest,
        },
        "score_details": details,
    }))
}

/// Returns the data's place: the suite's page if everybody can see it.
fn source_data(report: &Report<'_>, claim: &Claim) -> Value {
    let details = json!({
        "suite_id": claim.suite_id,
        "suite_version": claim.suite_version,
        "suite_commitment": claim.suite_commitment,
    });
    let name = line(&report.suite.title);
    match report.suite.visibility.as_str() {
        "public" => json!({
            "dataset_name": name, "source_type": "url",
            "url": [suite_url(report.base_url, report.suite)],
            "additional_details": details,
        }),
        _ => json!({"dataset_name": name, "source_type": "other", "additional_details": details}),
    }
}

/// Returns a metric's smallest and largest value: a number, or an infinity as the schema writes it. A suite's own
/// bounds are not used: a rounded value can exceed them.
fn score_bounds(metric: assay_eval::Metric) -> [Value; 2] {
    match metric.bounds(None, usize::MAX) {
        Some([worst, best]) => [json!(worst.min(best)), json!(worst.max(best))],
        None if metric.lower_is_better() => [json!(0.0), json!("Infinity")],
        None => [json!("-Infinity"), json!(1.0)],
    }
}

/// Returns a name as a portable path's part: other characters than letters, digits, `.`, `_` and `-` become
/// `-`.
fn path_part(name: &str, what: &'static str) -> Result<String, ExportError> {
    let is_kept = |character: char| character.is_alphanumeric() || "._-".contains(character);
    let mut part = String::new();
    for character in line(name).trim().chars() {
        let character = if is_kept(character) { character } else { '-' };
        if part.len() + character.len_utf8() > PART_MAX {
            break;
        }
        part.push(character);
    }
    let part = part.trim_matches(['.', '-']);
    if !part.chars().any(char::is_alphanumeric) {
        return Err(ExportError::NoName(what));
    }
    let stem = part.split('.').next().unwrap_or(part).to_lowercase();
    let is_reserved = RESERVED.contains(&stem.as_str()) || part.eq_ignore_ascii_case("unknown");
    Ok(match is_reserved {
        true => format!("{what}-{part}"),
        false => part.to_owned(),
    })
}

/// Returns a time as seconds since 1970, with microseconds so that two jobs differ.
fn unix_time(timestamp: &str) -> String {
    match OffsetDateTime::parse(timestamp, &Rfc3339) {
        Ok(time) => format!("{}.{:06}", time.unix_timestamp(), time.microsecond()),
        Err(_) => "0.000000".into(),
    }
}

/// Returns a job's UUID, in the form that version 4 has.
fn uuid(job_id: &str) -> String {
    let digest = Sha256::digest(format!("assay every eval ever\n{job_id}"));
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut uuid = String::new();
    for (at, digit) in hex.chars().take(32).enumerate() {
        if matches!(at, 8 | 12 | 16 | 20) {
            uuid.push('-');
        }
        uuid.push(match at {
            12 => '4',
            16 => 'a',
            _ => digit,
        });
    }
    uuid
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_part_is_portable() {
        for (name, expected) in [
            ("GPT 4/o", "GPT-4-o"),
            ("../../etc", "etc"),
            ("data", "model-data"),
            ("CON.txt", "model-CON.txt"),
            ("Unknown", "model-Unknown"),
            ("名前 ", "名前"),
        ] {
            assert_eq!(path_part(name, "model").unwrap(), expected);
        }
        for name in ["", "...", "/", "😀"] {
            assert!(path_part(name, "model").is_err(), "{name}");
        }
        assert_eq!(path_part(&"é".repeat(300), "model").unwrap().len(), 200);
    }

    #[test]
    fn uuid_has_version_4() {
        let uuid = uuid("job_4kQ9vPz8aYtGnUe5RbXwH2");
        assert_eq!(uuid.len(), 36);
        assert_eq!(&uuid[14..15], "4");
        assert_eq!(&uuid[19..20], "a");
    }

    #[test]
    fn unix_time_has_microseconds() {
        assert_eq!(unix_time("1970-01-02T00:00:01.000023Z"), "86401.000023");
    }
}
