//! The folder of a suite that is not published yet.

use std::path::Path;

use assay_eval::suite::{BadSuite, SuiteFolder};
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
    let bad = |bad: BadSuite| Failure::new(Exit::InvalidInput, bad.to_string());
    let suite = SuiteFolder::read(folder).map_err(bad)?;
    let report = suite.check().map_err(bad)?;
    context.output.object(REPORT, &json!(report))?;
    for warning in &report.warnings {
        context.messages.warn(warning);
    }
    Ok(())
}
