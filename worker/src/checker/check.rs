//! One check: from the files to the content and the report.

use std::time::{Duration, Instant};

use assay_audit::{Audit, AuditError};
use assay_core::model::draft::{CheckError, CheckWarning, DraftFailure, DraftReport, ERRORS_MAX};
use assay_core::store::draft_check::{self, ClaimedDraft, DraftPlan};
use assay_core::store::{PrimaryPool, escrow};
use assay_core::{Error, Result};
use assay_eval::suite::{BadSuite, BadSuiteCode, SUITE, SuiteFolder, derived_seal_seed};
use assay_publishing::Prepared;
use serde_json::{Map, Value};
use tokio::task::block_in_place;

use super::escrowed::{self, Escrowed};
use super::failure::fail;

/// The largest decompressed draft that a check reads, in bytes. It is in memory while it is checked.
const BYTES_MAX: u64 = 256 * 1024 * 1024;

/// Time for the attacks of the report.
const ATTACKS_TIME: Duration = Duration::from_secs(60);

/// Checks a draft: stores its content if it has no errors, and its report in any case. Its files are deleted.
pub async fn check(db: &PrimaryPool, draft: &ClaimedDraft) -> Result<()> {
    let mut connection = db.get().acquire().await?;
    let plan = draft_check::plan(&mut connection, &draft.org_id).await?;
    let free = u64::try_from(plan.free_bytes()).unwrap_or(0);
    let read = escrowed::read(&mut connection, draft, free.min(BYTES_MAX)).await?;
    drop(connection);
    let escrowed = match read {
        Ok(escrowed) => escrowed,
        Err(errors) => return reject(db, draft, errors).await,
    };
    let Escrowed { opening_key, files } = escrowed;
    let seed = derived_seal_seed(&opening_key);
    let read = block_in_place(|| assay_publishing::read(&files, Some(&seed)));
    let folder = match read {
        Ok(folder) => folder,
        Err(errors) => return reject(db, draft, errors).await,
    };
    drop(files);
    if let Some(message) = over_plan(&plan, &folder) {
        return fail(db, draft, DraftFailure::QuotaExceeded, &message, None).await;
    }
    let examined = block_in_place(|| examine(&folder));
    let (prepared, mut report) = match examined {
        Ok(examined) => examined,
        Err(Unusable::Suite(error)) => return reject(db, draft, vec![error]).await,
        Err(Unusable::Internal(error)) => return Err(error),
    };
    let bytes = prepared.bytes;
    if bytes > plan.free_bytes() {
        let message = format!(
            "The lines of the suite have {bytes} bytes; the plan has room for {} (limit suite_bytes).",
            plan.free_bytes()
        );
        return fail(db, draft, DraftFailure::QuotaExceeded, &message, None).await;
    }
    let mut transaction = db.get().begin().await?;
    let owner = Some((draft.id.as_str(), &draft.org_id));
    let content_id =
        assay_publishing::store_content(&mut transaction, &prepared, owner, opening_key).await?;
    report.bytes = Some(bytes);
    report.items_preview = Some(format!("/v1/drafts/{}/items", draft.id));
    if draft_check::finish_ready(&mut transaction, draft, content_id, &report).await? {
        escrow::delete(&mut transaction, &draft.org_id, &draft.id).await?;
        transaction.commit().await?;
        tracing::info!(draft_id = %draft.id, n_items = report.n_items, "draft checked");
    }
    Ok(())
}

/// Why a folder cannot be stored.
enum Unusable {
    /// The publisher's error.
    Suite(BadSuite),
    /// The platform's error.
    Internal(Error),
}

impl From<BadSuite> for Unusable {
    fn from(error: BadSuite) -> Self {
        Self::Suite(error)
    }
}

impl From<Error> for Unusable {
    fn from(error: Error) -> Self {
        Self::Internal(error)
    }
}

/// Returns what is stored of a folder, and its report without the bytes.
fn examine(folder: &SuiteFolder) -> std::result::Result<(Prepared<'_>, DraftReport), Unusable> {
    let until = Instant::now() + ATTACKS_TIME;
    let audit = Audit::new(folder).map_err(|error| match error {
        AuditError::Folder(error) => error,
        AuditError::Suite(error) => BadSuite::new(SUITE, 0, error.to_string()),
    })?;
    let prepared = assay_publishing::prepare(folder, &audit)?;
    let mut audit = match audit.report_while(&|| Instant::now() < until) {
        Value::Object(audit) => audit,
        _ => Map::new(),
    };
    let disclosure = match audit.remove("warnings") {
        Some(Value::Array(warnings)) => warnings,
        _ => Vec::new(),
    };
    let warning = |code: &str, message: &str| CheckWarning {
        code: code.to_owned(),
        message: message.to_owned(),
    };
    let mut warnings = Vec::new();
    let lint = folder.lint()?;
    warnings.extend(lint.iter().map(|message| warning("folder", message)));
    let disclosure = disclosure.iter().filter_map(Value::as_str);
    warnings.extend(disclosure.map(|message| warning("disclosure", message)));
    let report = DraftReport {
        n_items: Some(prepared.n_items.into()),
        n_sealed: Some(prepared.n_sealed.into()),
        warnings,
        audit: Some(audit),
        ..DraftReport::default()
    };
    Ok((prepared, report))
}

/// Returns why the plan does not allow the suite.
fn over_plan(plan: &DraftPlan, folder: &SuiteFolder) -> Option<String> {
    let n_items = i64::try_from(folder.items.len()).unwrap_or(i64::MAX);
    (n_items > plan.suite_items).then(|| {
        format!(
            "The suite has {n_items} items; the plan allows {} (limit suite_items).",
            plan.suite_items
        )
    })
}

/// Ends a check that found errors.
async fn reject(db: &PrimaryPool, draft: &ClaimedDraft, errors: Vec<BadSuite>) -> Result<()> {
    let n_errors = i64::try_from(errors.len()).unwrap_or(i64::MAX);
    let errors: Vec<CheckError> = errors
        .into_iter()
        .take(ERRORS_MAX)
        .map(check_error)
        .collect();
    let message = match errors.as_slice() {
        [only] => format!("{}: {}", place(only), only.message),
        [first, ..] => format!(
            "{}: {} (and {} more)",
            place(first),
            first.message,
            n_errors - 1
        ),
        [] => String::from("The files are not valid."),
    };
    let report = DraftReport {
        errors,
        n_errors,
        ..DraftReport::default()
    };
    fail(
        db,
        draft,
        DraftFailure::ValidationFailed,
        &message,
        Some(&report),
    )
    .await
}

fn place(error: &CheckError) -> String {
    match error.line {
        Some(line) => format!("{}:{line}", error.file),
        None => error.file.clone(),
    }
}

fn check_error(error: BadSuite) -> CheckError {
    let BadSuite {
        file,
        line,
        column,
        field,
        item_id,
        code,
        message,
    } = error;
    CheckError {
        file,
        line: i64::try_from(line).ok().filter(|line| *line > 0),
        column: column.map(i64::from),
        field,
        item_id,
        reason: BadSuiteCode::as_str(code).to_owned(),
        message,
    }
}
