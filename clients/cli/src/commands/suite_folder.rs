//! The folder of a suite that is not published yet.

use std::path::Path;

use assay_audit::{Audit, AuditError};
use assay_eval::suite::BadSuite;
use assay_tables::read_suite;
use serde_json::{Value, json};

use super::context::Context;
use super::suite_definition::placeholder;
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

/// `assay suite check`: an invalid folder is an error, and warnings are notes.
pub fn check(context: &Context, folder: &Path) -> Result<()> {
    let suite = read_suite(&folder, None).map_err(invalid)?;
    let report = suite.check().map_err(|bad| invalid(vec![bad]))?;
    context.output.object(REPORT, &json!(report))?;
    let placeholder = placeholder(&suite.suite_id);
    for warning in report.warnings.iter().chain(&placeholder) {
        context.messages.warn(warning);
    }
    Ok(())
}

/// `assay suite audit`: the attacks as a table, or the whole report.
pub fn audit(context: &Context, folder: &Path) -> Result<()> {
    let suite = read_suite(&folder, None).map_err(invalid)?;
    let refused = |error: AuditError| Failure::new(Exit::InvalidInput, error.to_string());
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
