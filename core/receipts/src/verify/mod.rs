//! Verifying a receipt, without a network and without trust in the platform.

mod consistency;
mod opening;
mod predictions;
mod score;
mod signed_statement;
mod steps;

use std::io::BufRead;
use std::path::Path;

use assay_eval::Metric;
use assay_eval::prediction::CellForm;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use self::consistency::check_consistency;
use self::opening::open_suite;
pub use self::predictions::OpenPredictions;
use self::predictions::hash_predictions;
use self::score::check_score;
use self::signed_statement::{check_signature, read_statement};
pub use self::steps::{Passed, Step};
use crate::chain;
use crate::jws::Jws;
use crate::keys::JwkSet;
use crate::logged::Logged;
use crate::place::LogPlace;
use crate::statement::{EVAL_RESULT, EvalResult, Statement};

/// The evidence for a receipt.
pub struct Evidence<'a, R> {
    /// The receipt keys' JWK set.
    pub keys: &'a [u8],
    /// The log's pinned key.
    pub log_key: &'a str,
    /// `true` accepts a receipt that is not in the log yet.
    pub allows_unlogged: bool,
    /// An earlier checkpoint, and the folder with the log's files.
    pub earlier: Option<(&'a str, &'a Path)>,
    /// Opens the predictions; called once for each step that reads them.
    pub predictions: Option<OpenPredictions<'a, R>>,
    /// The folder with the suite's opening.
    pub opening: Option<&'a Path>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Receipt {
    id: String,
    job_id: String,
    statement: Box<RawValue>,
    jws: String,
    log: Option<LogPlace>,
}

/// Verifies a receipt. Calls `report` with each step that passed, in order.
///
/// # Errors
/// The first step that failed, and why.
pub fn verify<R: BufRead>(
    receipt: &[u8],
    evidence: &Evidence<'_, R>,
    mut report: impl FnMut(Step, &Passed),
) -> Result<EvalResult, (Step, String)> {
    let keys = JwkSet::parse(evidence.keys).map_err(at(Step::Signature))?;
    let receipt = parse_receipt(receipt)?;
    let jws = Jws::parse(&receipt.jws).map_err(at(Step::Signature))?;
    check_signature(&keys, &jws).map_err(at(Step::Signature))?;
    report(Step::Signature, &Passed::Ok);

    let statement: Statement<EvalResult> =
        read_statement(&jws.payload, &receipt.statement, EVAL_RESULT, "predictions")
            .map_err(at(Step::Statement))?;
    let claim = &statement.predicate;
    if (&claim.receipt_id, &claim.job_id) != (&receipt.id, &receipt.job_id) {
        return Err((
            Step::Statement,
            "id and job_id are not those of the statement".into(),
        ));
    }
    report(Step::Statement, &Passed::Ok);

    let logged = match &receipt.log {
        Some(place) => {
            let logged = Logged::read(place, &receipt.jws).map_err(at(Step::Inclusion))?;
            report(Step::Inclusion, &Passed::Ok);
            logged
                .check_checkpoint(place, evidence.log_key)
                .map_err(at(Step::Checkpoint))?;
            report(Step::Checkpoint, &Passed::Ok);
            Some(logged)
        }
        None if evidence.allows_unlogged => {
            let reason = Passed::Skipped("the receipt is not in the log yet".into());
            report(Step::Inclusion, &reason);
            report(Step::Checkpoint, &reason);
            None
        }
        None => {
            return Err((
                Step::Inclusion,
                "the receipt is not in the log; fetch it again".into(),
            ));
        }
    };
    let index = logged.as_ref().map(|logged| logged.index);

    let (jwk, _) = keys.find(&jws.kid).map_err(at(Step::Key))?;
    jwk.check_validity(&claim.issued_at, index)
        .map_err(at(Step::Key))?;
    chain::check(&keys, &jws.kid, evidence.log_key).map_err(at(Step::Key))?;
    report(Step::Key, &Passed::Ok);

    let consistency = match (evidence.earlier, &logged) {
        (Some((earlier, tiles)), Some(logged)) => {
            check_consistency(earlier, tiles, logged, evidence.log_key)
                .map_err(at(Step::Consistency))?;
            Passed::Ok
        }
        _ => Passed::Skipped("no earlier checkpoint was given".into()),
    };
    report(Step::Consistency, &consistency);

    let predictions = match evidence.predictions {
        Some(open) => {
            let metric: Metric = claim.metric.parse().map_err(at(Step::Predictions))?;
            let digest =
                hash_predictions(open, CellForm::of(metric)).map_err(at(Step::Predictions))?;
            if digest != statement.subject[0].digest.sha256 {
                return Err((
                    Step::Predictions,
                    format!("the predictions have the digest {digest}"),
                ));
            }
            Passed::Ok
        }
        None => Passed::Skipped("no predictions were given".into()),
    };
    report(Step::Predictions, &predictions);

    let opened = match evidence.opening {
        Some(folder) => Some(
            open_suite(folder, claim, &keys, evidence.log_key, index)
                .map_err(at(Step::Commitment))?,
        ),
        None => None,
    };
    let skipped = || Passed::Skipped("no opening was given".into());
    report(
        Step::Commitment,
        &opened.as_ref().map_or_else(skipped, |_| Passed::Ok),
    );

    let score = match (evidence.predictions, opened, evidence.opening) {
        (Some(open), Some(opened), Some(folder)) => {
            check_score(claim, &opened, folder, open).map_err(at(Step::Score))?
        }
        _ => Passed::Skipped("predictions and an opening are needed".into()),
    };
    report(Step::Score, &score);
    Ok(statement.predicate)
}

fn at(step: Step) -> impl Fn(String) -> (Step, String) {
    move |reason| (step, reason)
}

/// Parses a receipt. Text that has no signature fails at `signature`, other errors at `statement`.
fn parse_receipt(json: &[u8]) -> Result<Receipt, (Step, String)> {
    let invalid = |error: serde_json::Error| format!("the receipt is invalid: {error}");
    let lenient: Value = serde_json::from_slice(json)
        .map_err(invalid)
        .map_err(at(Step::Signature))?;
    if !lenient["jws"].is_string() {
        let reason = "the receipt is invalid: it has no string `jws`";
        return Err((Step::Signature, reason.into()));
    }
    serde_json::from_slice(json)
        .map_err(invalid)
        .map_err(at(Step::Statement))
}
