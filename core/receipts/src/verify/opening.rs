//! The opening of a suite's commitment.

use std::path::Path;

use assay_eval::suite::{ClusterKey, Opening, SealSeed};
use serde::Deserialize;
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use super::signed_statement::{check_signature, read_statement};
use crate::chain;
use crate::jws::Jws;
use crate::keys::JwkSet;
use crate::logged::Logged;
use crate::place::LogPlace;
use crate::statement::{EvalResult, SUITE, Statement, SuitePublication};

/// `commitment.json` in an opening's folder: the platform's response.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Commitment {
    suite_id: String,
    suite_version: String,
    suite_commitment: String,
    published_at: String,
    committed_at: String,
    statement: Box<RawValue>,
    jws: String,
    log: Option<LogPlace>,
    opening: Option<OpenedSuite>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OpenedSuite {
    #[serde(rename = "retired_at")]
    _retired_at: String,
    salt: String,
    seed: Option<String>,
    items_sha256: String,
    answers_sha256: String,
    #[serde(rename = "items_url")]
    _items_url: String,
    #[serde(rename = "answers_url")]
    _answers_url: String,
    /// Absent without a retest.
    retest_sha256: Option<String>,
    #[serde(rename = "retest_url")]
    _retest_url: Option<String>,
}

/// A suite whose opening was verified.
pub(super) struct VerifiedSuite {
    pub(super) publication: SuitePublication,
    pub(super) seed: Option<SealSeed>,
}

/// Checks that a folder opens the commitment for a receipt's suite, which is in the log before the
/// receipt.
pub(super) fn open_suite(
    folder: &Path,
    claim: &EvalResult,
    keys: &JwkSet,
    log_key: &str,
    receipt_index: Option<u64>,
) -> Result<VerifiedSuite, String> {
    let file = |name: &str| {
        std::fs::read(folder.join(name)).map_err(|error| format!("{name} cannot be read: {error}"))
    };
    let commitment: Commitment = serde_json::from_slice(&file("commitment.json")?)
        .map_err(|error| format!("commitment.json is invalid: {error}"))?;
    let jws = Jws::parse(&commitment.jws)?;
    check_signature(keys, &jws)?;
    let statement: Statement<SuitePublication> =
        read_statement(&jws.payload, &commitment.statement, SUITE, "suite")?;
    let publication = statement.predicate;
    let is_of_statement = statement.subject[0].digest.sha256 == publication.suite_commitment
        && commitment.suite_id == publication.suite_id
        && commitment.suite_version == publication.suite_version
        && commitment.suite_commitment == publication.suite_commitment
        && commitment.published_at == publication.published_at
        && commitment.committed_at == publication.committed_at;
    if !is_of_statement {
        return Err("commitment.json differs from its statement".into());
    }
    let is_of_receipt = claim.suite_id == publication.suite_id
        && claim.suite_version == publication.suite_version
        && claim.suite_commitment == publication.suite_commitment
        && claim.metric == publication.metric
        && claim.release == publication.release
        && claim.cluster.as_deref()
            == publication
                .cluster
                .as_deref()
                .and_then(ClusterKey::published_field)
        && claim.average == publication.average;
    if !is_of_receipt {
        return Err("the opening is not that of the receipt's suite".into());
    }
    let place = commitment
        .log
        .ok_or("the publication of the suite is not in the log")?;
    let logged = Logged::read(&place, &commitment.jws)?;
    logged.check_checkpoint(&place, log_key)?;
    chain::check(keys, &jws.kid, log_key)?;
    let (jwk, _) = keys.find(&jws.kid)?;
    jwk.check_validity(&publication.committed_at, Some(logged.index))?;
    if receipt_index.is_some_and(|index| logged.index >= index) {
        return Err(format!(
            "the publication of the suite has index {}, after the receipt",
            logged.index
        ));
    }
    let opened = commitment
        .opening
        .ok_or("the suite is not opened yet: it has not retired")?;
    let sha256 = |name: &str| Ok::<[u8; 32], String>(Sha256::digest(file(name)?).into());
    let bytes = |hex: &str| {
        let mut bytes = [0; 32];
        let is_canonical = hex.bytes().all(|byte| !byte.is_ascii_uppercase());
        match hex::decode_to_slice(hex, &mut bytes) {
            Ok(()) if is_canonical => Ok(bytes),
            _ => Err(format!("{hex:?} is not 32 bytes in lower-case hex")),
        }
    };
    let opening = Opening {
        salt: bytes(&opened.salt)?,
        items_sha256: sha256("items.ndjson")?,
        answers_sha256: sha256("answers.ndjson")?,
        seed: opened
            .seed
            .as_deref()
            .map(bytes)
            .transpose()?
            .map(SealSeed::from_bytes),
        retest_sha256: opened
            .retest_sha256
            .as_ref()
            .map(|_| sha256("retest.ndjson"))
            .transpose()?,
    };
    let retest = opened.retest_sha256.as_ref().zip(opening.retest_sha256);
    let files = [
        ("items.ndjson", &opened.items_sha256, opening.items_sha256),
        (
            "answers.ndjson",
            &opened.answers_sha256,
            opening.answers_sha256,
        ),
    ];
    let retest = retest.map(|(given, actual)| ("retest.ndjson", given, actual));
    for (name, given, actual) in files.into_iter().chain(retest) {
        if *given != hex::encode(actual) {
            return Err(format!("{name} does not have the digest of the opening"));
        }
    }
    if hex::encode(opening.commitment()) != publication.suite_commitment {
        return Err(
            "salt, items, answers, seed and retest do not give the suite's commitment".into(),
        );
    }
    Ok(VerifiedSuite {
        publication,
        seed: opening.seed,
    })
}
