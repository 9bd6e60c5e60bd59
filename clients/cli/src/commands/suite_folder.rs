//! The folder of a suite that is not published yet.

use std::path::Path;

use assay_eval::suite::BadSuite;
use assay_tables::read_suite;
use serde_json::json;

use super::context::Context;
use crate::failure::{Exit, Failure, Result};
use crate::output::View;

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

/// `assay suite check`: an invalid folder is an error, and warnings are notes.
pub fn check(context: &Context, folder: &Path) -> Result<()> {
    let invalid = |errors: Vec<BadSuite>| {
        let lines: Vec<String> = errors.iter().map(BadSuite::to_string).collect();
        Failure::new(Exit::InvalidInput, lines.join("\n"))
    };
    let suite = read_suite(&folder, None).map_err(invalid)?;
    let report = suite.check().map_err(|bad| invalid(vec![bad]))?;
    context.output.object(REPORT, &json!(report))?;
    for warning in &report.warnings {
        context.messages.warn(warning);
    }
    Ok(())
}
