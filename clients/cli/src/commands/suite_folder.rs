//! The folder of a suite that is not published yet.

use std::path::Path;

use assay_audit::{Audit, AuditError};
use assay_eval::suite::{BadSuite, SuiteFolder, derived_seal_seed};
use assay_tables::read_suite;
use serde_json::{Value, json};

use super::context::Context;
use super::suite_definition::{example_seed, placeholder};
use super::suite_publish::stored_opening_key;
use super::suite_verdict;
use crate::failure::{Exit, Failure, Result};
use crate::output::{View, write_line};

const REPORT: View = View {
    columns: &[
        "suite_id",
        "version",
        "metric",
        "n_items",
        "n_sealed",
        "n_clusters",
    ],
    id: "suite_id",
};

const AUDIT: View = View {
    columns: &[
        "suite_id", "version", "metric", "n_items", "n_sealed", "chance",
    ],
    id: "suite_id",
};

const ATTACKS: View = View {
    columns: &[
        "release",
        "is_configured",
        "submissions",
        "known",
        "distributions_read",
        "bound/known_at_most",
    ],
    id: "release",
};

fn invalid(errors: Vec<BadSuite>) -> Box<Failure> {
    let lines: Vec<String> = errors.iter().map(BadSuite::to_string).collect();
    Failure::new(Exit::InvalidInput, lines.join("\n"))
}

fn refused(error: AuditError) -> Box<Failure> {
    Failure::new(Exit::InvalidInput, error.to_string())
}

/// Reads a folder. Without an opening key, items are sealed by an example, so that the check needs no key.
fn read(folder: &Path) -> Result<SuiteFolder> {
    let key = stored_opening_key(folder)?;
    let seed = key.map_or_else(example_seed, |key| derived_seal_seed(&key));
    read_suite(&folder, Some(&seed)).map_err(invalid)
}

/// `assay suite check`: an invalid folder is an error, and warnings are notes. Prints the verdict, or the report with it.
pub fn check(context: &Context, folder: &Path) -> Result<()> {
    let suite = read(folder)?;
    let report = suite.check().map_err(|bad| invalid(vec![bad]))?;
    let verdict = suite_verdict::verdict(&suite).map_err(refused)?;
    if context.output.is_table() {
        write_line(&format!("{} version {}", suite.suite_id, suite.version))?;
        write_line(&suite_verdict::text(&verdict))?;
    } else {
        let mut report = json!(report);
        report["verdict"] = json!(verdict);
        context.output.object(REPORT, &report)?;
    }
    let placeholder = placeholder(&suite.suite_id);
    for warning in report.warnings.iter().chain(&placeholder) {
        context.messages.warn(warning);
    }
    Ok(())
}

/// `assay suite audit`: the attacks as a table, or the whole report.
pub fn audit(context: &Context, folder: &Path) -> Result<()> {
    let suite = read(folder)?;
    let audit = Audit::new(&suite).map_err(refused)?;
    context
        .messages
        .progress("Attacking the suite. This can take a minute …");
    let report = audit.report();
    if context.output.is_table() {
        let rows = attacks(&report).into_iter().map(Ok);
        context.output.list(ATTACKS, rows)?;
        let best = &report["recommended"];
        if let (Some(release), Some(cap)) =
            (best["release"].as_str(), best["max_submissions"].as_i64())
        {
            write_line(&format!(
                "\nrecommended: release = \"{release}\", max_submissions = {cap}"
            ))?;
        }
    } else {
        context.output.object(AUDIT, &report)?;
    }
    for warning in report["warnings"].as_array().into_iter().flatten() {
        context.messages.warn(warning.as_str().unwrap_or_default());
    }
    Ok(())
}

/// Returns a row for each attack, with its policy.
fn attacks(report: &Value) -> Vec<Value> {
    let mut rows = Vec::new();
    for policy in report["policies"].as_array().into_iter().flatten() {
        for attack in policy["attacks"].as_array().into_iter().flatten() {
            let mut row = attack.clone();
            row["release"] = policy["release"].clone();
            row["is_configured"] = policy["is_configured"].clone();
            rows.push(row);
        }
    }
    rows
}
