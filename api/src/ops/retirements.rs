//! Retirement: `/v1/suites/{suite_id}/retire`.

use std::time::Duration;

use assay_core::model::audit::{AuditType, Change};
use assay_core::model::error::Errors;
use assay_core::model::error_details::Details;
use assay_core::model::ids::OrgId;
use assay_core::model::permissions::Owner;
use assay_core::model::random;
use assay_core::model::retirement::{RetirementOutcome, WRONG_KEYS_PER_HOUR, key_hash};
use assay_core::model::suite::{NamedVersion, SuiteVersion};
use assay_core::model::validation;
use assay_core::store::retirement::{self, Retirability};
use assay_core::store::{audit, suite};
use assay_core::{Error, Resource, Result};
use assay_eval::FieldError;
use assay_eval::suite::VERSION_MAX;

use super::drafts::read_key;
use super::suite_edits::{lock, unknown_version};
use crate::app::App;
use crate::generated::inputs;

/// Longest wait for the checker: number of looks, and the interval between two.
const LOOKS: (usize, Duration) = (40, Duration::from_millis(250));

/// Length of a request's id, in characters.
const ID_CHARACTERS: usize = 22;

/// Retires a version of the organization's suite, and perhaps opens its answers. Returns the version, with the status
/// `retiring` if the checker has not executed the request within ten seconds.
pub async fn retire(
    app: &App,
    owner: &Owner,
    suite_id: &str,
    input: inputs::RetireSuite,
) -> Result<SuiteVersion> {
    let inputs::RetireSuite {
        version,
        open_answers,
        opening_key,
        confirm,
    } = input;
    let opens_answers = open_answers.unwrap_or(false);
    let mut errors = Errors::default();
    let version = errors.take(validation::text_up_to("version", &version, VERSION_MAX));
    let key = match (opens_answers, opening_key.as_deref()) {
        (true, None) => errors.take(Err(FieldError::required("opening_key"))),
        (_, Some(text)) => errors.take(read_key(text)),
        (false, None) => None,
    };
    if confirm != Some(true) {
        let message = "must be true: the version accepts no submissions afterwards, and open answers stay public";
        errors.push(FieldError::new("confirm", "confirm", message));
    }
    errors.finish()?;
    let session = owner.session();
    let org_id = session.org_id();
    let mut transaction = app.db.get().begin().await?;
    // One request after another, so that no more wrong keys are tried than permitted.
    let (suite_id, _) = lock(&mut transaction, org_id, suite_id).await?;
    let named = NamedVersion { suite_id, version };
    let NamedVersion { suite_id, version } = &named;
    let found = retirement::retirability(&mut *transaction, org_id, suite_id, version);
    let Some(found) = found.await? else {
        return Err(unknown_version());
    };
    let is_done = if opens_answers {
        found.is_opened
    } else {
        found.is_retired
    };
    if is_done {
        drop(transaction);
        return read(app, org_id, &named).await;
    }
    if found.is_removed {
        return Err(Error::suite_removed());
    }
    refuse(&found, opens_answers)?;
    if found.is_waiting {
        drop(transaction);
        return read(app, org_id, &named).await;
    }
    let hash = key
        .filter(|_| opens_answers)
        .map(|key| key_hash(&key, suite_id, version));
    let id = random::base62(ID_CHARACTERS)?;
    retirement::insert(&mut *transaction, org_id, &id, &named, hash).await?;
    let change = Change::suite(AuditType::SuiteRetired, suite_id)
        .field("version", (), version)
        .field("open_answers", (), opens_answers);
    audit::record(&mut transaction, org_id, session.actor(), &[change]).await?;
    transaction.commit().await?;
    for _ in 0..LOOKS.0 {
        tokio::time::sleep(LOOKS.1).await;
        let outcome = retirement::outcome(&app.db.get(), org_id, &id).await?;
        if let Some((outcome, shared)) = outcome {
            return match (outcome, found.closes_at) {
                (RetirementOutcome::Done, _) => read(app, org_id, &named).await,
                (RetirementOutcome::WrongKey, _) => Err(Error::field(
                    "opening_key",
                    "wrong_key",
                    "is not the opening key of this version",
                )),
                (RetirementOutcome::NotClosed, Some(at)) => Err(Error::not_closed(at)),
                (RetirementOutcome::NotClosed, None) => {
                    Err(Error::internal("a version without a close has not closed"))
                }
                (RetirementOutcome::BoardNotFinal, _) => Err(Error::board_not_final()),
                (RetirementOutcome::Failed, _) => {
                    Err(Error::internal("a retirement has failed several times"))
                }
                (RetirementOutcome::Removed, _) => Err(Error::suite_removed()),
                (RetirementOutcome::AnswersShared, _) => Err(Error::answers_shared(shared)),
            };
        }
    }
    read(app, org_id, &named).await
}

/// Returns an error for a version that cannot retire now. The checker decides again.
fn refuse(found: &Retirability, opens_answers: bool) -> Result<()> {
    if let Some(closes_at) = found.closes_at
        && (found.is_sealed || opens_answers)
    {
        return Err(Error::not_closed(closes_at));
    }
    if found.has_open_board {
        return Err(Error::board_not_final());
    }
    if opens_answers && found.n_wrong_keys >= WRONG_KEYS_PER_HOUR {
        let resets_at = found.resets_at.unwrap_or(found.now);
        let details = Details::Quota {
            limit: "wrong_opening_keys_per_hour",
            max: WRONG_KEYS_PER_HOUR,
            active: None,
            resets_at,
        };
        let message =
            format!("{WRONG_KEYS_PER_HOUR} wrong opening keys were sent for the suite in an hour.");
        return Err(Error::quota(
            message,
            details,
            found.now.seconds_until(resets_at),
        ));
    }
    Ok(())
}

async fn read(app: &App, org_id: &OrgId, suite: &NamedVersion) -> Result<SuiteVersion> {
    let NamedVersion { suite_id, version } = suite;
    let db = app.db.get();
    let found = suite::versions(&db, Some(org_id), suite_id, Some(version), 1).await?;
    let found = found.into_iter().next();
    found.ok_or_else(|| Error::not_found(Resource::Suite))
}
