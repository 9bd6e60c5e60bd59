//! Suites as their publishers change them: `PATCH /v1/suites/{suite_id}` and errata.

use assay_core::model::audit::{AuditType, Change};
use assay_core::model::error::Errors;
use assay_core::model::ids::OrgId;
use assay_core::model::permissions::Publisher;
use assay_core::model::suite::{
    ERRATA_MAX, ERRATUM_MAX, Suite, SuiteErratum, SuiteId, SuiteVisibility, VERSION_MAX,
};
use assay_core::model::suite_edits::SuiteEdits;
use assay_core::model::validation;
use assay_core::store::owned_suite::{self, OwnedSuite};
use assay_core::store::{self, PgConnection};
use assay_core::{Code, Error, Resource, Result};

use super::suites::seen_by;
use crate::app::App;
use crate::generated::inputs;

/// Fields that belong to a version, by their names in `suite.toml` and in responses.
pub const IMMUTABLE: [&str; 22] = [
    "suite_id",
    "version",
    "metric",
    "average",
    "per_item_feedback",
    "release",
    "max_submissions",
    "max_submissions_per_day",
    "clip",
    "ladder",
    "n_items",
    "n_sealed",
    "seal_seed",
    "closes_at",
    "board",
    "cluster",
    "slices",
    "baselines",
    "labels",
    "quantiles",
    "sequence",
    "skill",
];

/// A change that is not validated yet.
#[derive(Default)]
pub struct Edits {
    /// The new values.
    pub changes: SuiteEdits,
    /// `true` to confirm that more organizations may submit.
    pub confirm: bool,
    /// The `updated_at` that the caller has read.
    pub if_match: Option<String>,
}

/// Changes the texts, the visibility or the access of the organization's suite.
///
/// # Errors
/// All field errors at once; 409 if the suite has changed since `if_match`.
pub async fn update(
    app: &App,
    publisher: &Publisher,
    suite_id: &str,
    edits: Edits,
) -> Result<Suite> {
    let caller = publisher.caller();
    let Edits {
        changes,
        confirm,
        if_match,
    } = edits;
    let changes = changes.validate()?;
    let mut transaction = app.db.get().begin().await?;
    let (suite_id, mut suite) = lock(&mut transaction, caller.org_id(), suite_id).await?;
    if let Some(read) = &if_match
        && !matches(read, &suite)
    {
        let message = format!(
            "The suite has changed at {}. Read it, and send its updated_at in If-Match.",
            suite.updated_at
        );
        return Err(Error::new(Code::Conflict, message));
    }
    let before = suite.editable;
    suite.editable = changes.apply(before.clone());
    let after = &suite.editable;
    if after.visibility == SuiteVisibility::Public && before.visibility != SuiteVisibility::Public {
        caller.require_owner_session()?;
    }
    let review = app.settings.suite_review;
    if review.is_needed(before.visibility, after.visibility, suite.was_approved) {
        return Err(Error::suite_in_review());
    }
    if suite.limits_disclosure && after.is_wider_than(&before) && !confirm {
        let message = "must be true: each further organization has its own submissions, so that together they can learn more answers";
        return Err(Error::field("confirm", "confirm", message));
    }
    owned_suite::update(&mut transaction, &suite_id, &suite).await?;
    let change = Change::suite(AuditType::SuiteUpdated, &suite_id)
        .field("visibility", before.visibility, after.visibility)
        .field("access", before.access, after.access)
        .field("texts", &before.metadata, &after.metadata);
    store::audit::record(
        &mut transaction,
        caller.org_id(),
        &caller.actor(),
        &[change],
    )
    .await?;
    transaction.commit().await?;
    let seen = seen_by(app, Some(caller.org_id()), &suite_id).await?;
    seen.ok_or_else(|| Error::not_found(Resource::Suite))
}

/// Returns `true` if the header `If-Match`, or a message's field, names this state.
fn matches(read: &str, suite: &OwnedSuite) -> bool {
    let read = read.trim();
    read == "*" || read.trim_matches('"') == suite.updated_at.to_string()
}

/// Returns the organization's suite, and locks it until the transaction ends.
///
/// # Errors
/// 403 if the caller sees another publisher's suite, 404 if it sees none, 409 if the suite was removed.
pub(super) async fn lock(
    db: &mut PgConnection,
    org_id: &OrgId,
    suite_id: &str,
) -> Result<(SuiteId, OwnedSuite)> {
    let not_found = || Error::not_found(Resource::Suite);
    let suite_id: SuiteId = suite_id.parse().map_err(|_| not_found())?;
    match owned_suite::lock(&mut *db, Some(org_id), &suite_id).await? {
        Some(suite) if suite.is_removed => Err(Error::suite_removed()),
        Some(suite) => Ok((suite_id, suite)),
        None => Err(not_owned(db, org_id, &suite_id, Resource::Suite).await?),
    }
}

/// Returns the error for a suite that the organization does not own, or for a part of it.
pub(super) async fn not_owned(
    db: &mut PgConnection,
    org_id: &OrgId,
    suite_id: &SuiteId,
    resource: Resource,
) -> Result<Error> {
    let seen = store::suite::find(db, Some(org_id), suite_id, None).await?;
    Ok(match seen {
        Some(_) => Error::new(
            Code::Forbidden,
            "The suite belongs to another publisher, who alone can change it.",
        ),
        None => Error::not_found(resource),
    })
}

/// Returns the field error for a version that the organization's suite does not have.
pub(super) fn unknown_version() -> Error {
    Error::field("version", "not_found", "is not a version of the suite")
}

/// Adds a note about an error to a version of the organization's suite.
pub async fn add_erratum(
    app: &App,
    publisher: &Publisher,
    suite_id: &str,
    input: inputs::CreateErratum,
) -> Result<SuiteErratum> {
    let inputs::CreateErratum { version, note } = input;
    let mut errors = Errors::default();
    let version = errors.take(validation::text_up_to("version", &version, VERSION_MAX));
    let note = errors.take(validation::text_up_to("note", &note, ERRATUM_MAX));
    errors.finish()?;
    let caller = publisher.caller();
    let mut transaction = app.db.get().begin().await?;
    let (suite_id, mut suite) = lock(&mut transaction, caller.org_id(), suite_id).await?;
    if !owned_suite::has_version(&mut transaction, &suite_id, &version).await? {
        return Err(unknown_version());
    }
    if suite.errata.0.len() >= ERRATA_MAX {
        let message = format!(
            "The suite has {ERRATA_MAX} errata, and cannot have more. Publish a new version with corrected answers."
        );
        return Err(Error::invalid_state(Resource::Suite, message));
    }
    let erratum = SuiteErratum {
        version,
        note,
        created_at: suite.now,
    };
    suite.errata.0.push(erratum.clone());
    owned_suite::update(&mut transaction, &suite_id, &suite).await?;
    let change = Change::suite(AuditType::SuiteErratumAdded, &suite_id).field(
        "version",
        (),
        &erratum.version,
    );
    store::audit::record(
        &mut transaction,
        caller.org_id(),
        &caller.actor(),
        &[change],
    )
    .await?;
    transaction.commit().await?;
    Ok(erratum)
}
