//! Receipts: fetching one, and verifying it without a platform.

use std::fs;
use std::path::Path;

use assay_receipts::verify::{Evidence, Passed, Step, verify};
use serde_json::{Value, json};

use super::context::Context;
use crate::arguments;
use crate::failure::{Exit, Failure, Result};
use crate::operations;
use crate::output::{View, escape_controls, visible, write_line};
use crate::predictions;

const REPORT: View = View {
    columns: &["receipt_id", "verified"],
    id: "receipt_id",
};

/// `assay receipt`: a job's receipt, as JSON.
pub fn receipt(context: &Context, job_id: &str, figures: Option<String>) -> Result<()> {
    let client = context.client()?;
    let mut request = client
        .request(&operations::GET_JOB_RECEIPT)
        .path("job_id", job_id);
    if let Some(figures) = figures {
        request = request.query("figures", figures);
    }
    let receipt: Value = request.send_json()?;
    write_line(&escape_controls(&format!("{receipt:#}")))
}

/// `assay verify`
pub fn check(context: &Context, given: &arguments::Verify) -> Result<()> {
    let read = |path: &Path| {
        fs::read(path).map_err(|error| Failure::io(&path.display().to_string(), &error))
    };
    let receipt = read(&given.receipt)?;
    let keys = read(&given.keys)?;
    let earlier = match given.checkpoint.as_deref().zip(given.tiles.as_deref()) {
        Some((checkpoint, tiles)) => {
            let text = String::from_utf8_lossy(&read(checkpoint)?).into_owned();
            Some((text, tiles))
        }
        None => None,
    };
    let open = || {
        let name = given.predictions.as_deref().unwrap_or_default();
        predictions::open(name).map_err(|failure| failure.to_string())
    };
    let evidence = Evidence {
        keys: &keys,
        log_key: &given.log_key,
        allows_unlogged: given.allow_unlogged,
        earlier: earlier
            .as_ref()
            .map(|(checkpoint, tiles)| (checkpoint.as_str(), *tiles)),
        predictions: given.predictions.as_ref().map(|_| &open as _),
        opening: given.opening.as_deref(),
    };
    let is_table = context.output.is_table();
    let mut steps = Vec::new();
    let verified = verify(&receipt, &evidence, |step, passed| {
        steps.push(match passed {
            Passed::Ok => (step, "ok", None),
            Passed::Skipped(reason) => (step, "skipped", Some(reason.clone())),
        });
    });
    let claim = verified.inspect_err(|(step, reason)| {
        steps.push((*step, "FAILED", Some(reason.clone())));
    });
    if is_table {
        for (step, result, reason) in &steps {
            write_line(&line(*step, result, reason.as_deref()))?;
        }
    } else {
        let as_json = |(step, result, reason): &(Step, &str, Option<String>)| json!({"step": step.to_string(), "result": result.to_lowercase(), "reason": reason});
        let receipt_id = claim.as_ref().ok().map(|claim| &claim.receipt_id);
        let report = json!({
            "receipt_id": receipt_id, "verified": claim.is_ok(),
            "steps": steps.iter().map(as_json).collect::<Vec<_>>(),
        });
        context.output.object(REPORT, &report)?;
    }
    match claim {
        Ok(_) => Ok(()),
        Err((step, reason)) => Err(Failure::new(
            Exit::Other,
            format!("the receipt is not valid: {step}: {}", visible(&reason)),
        )),
    }
}

fn line(step: Step, result: &str, reason: Option<&str>) -> String {
    match reason {
        // A line break in the reason could look like the next step.
        Some(reason) => format!("{step}: {result}: {}", visible(reason)),
        None => format!("{step}: {result}"),
    }
}
