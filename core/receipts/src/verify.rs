//! Verifying a receipt, without a network and without trust in the platform.

use std::fmt;
use std::io::BufRead;
use std::ops::ControlFlow;
use std::path::Path;

use assay_eval::content::{ContentFormat, ReadEnd, read_content};
use assay_eval::prediction::CellForm;
use assay_eval::score::{AnswerTable, Builder, Figures as Score};
use assay_eval::suite::{AnswerLines, ClusterKey, Opening, SealSeed, read_clusters};
use assay_eval::{Clip, DisclosurePolicy, Ladder, Metric, offline};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use crate::chain;
use crate::jws::Jws;
use crate::keys::JwkSet;
use crate::log::SignedCheckpoint;
use crate::logged::Logged;
use crate::place::LogPlace;
use crate::statement::{
    EVAL_RESULT, EvalResult, Figures, STATEMENT_TYPE, SUITE, Statement, SuitePublication,
    ValueScope,
};
use crate::strict_json::is_same;
use crate::tree::{GrowingTree, bundle_paths, read_bundle};

/// A verification step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The signature is by the key that it names.
    Signature,
    /// The readable statement is the signed one.
    Statement,
    /// The log contains the signature.
    Inclusion,
    /// The log key signed the proof's tree.
    Checkpoint,
    /// The receipt key was valid, and a key chain leads from the log's first entry to it.
    Key,
    /// The tree continues an earlier checkpoint's.
    Consistency,
    /// The receipt is about these predictions.
    Predictions,
    /// The answers are those to which the suite was committed.
    Commitment,
    /// Scoring the predictions again gives the figures.
    Score,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Signature => "signature",
            Self::Statement => "statement",
            Self::Inclusion => "inclusion",
            Self::Checkpoint => "checkpoint",
            Self::Key => "key",
            Self::Consistency => "consistency",
            Self::Predictions => "predictions",
            Self::Commitment => "commitment",
            Self::Score => "score",
        })
    }
}

/// A step's result that did not fail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Passed {
    /// The check succeeded.
    Ok,
    /// The step had nothing to check, for this reason.
    Skipped(String),
}

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
    pub predictions: Option<&'a dyn Fn() -> Result<(R, ContentFormat), String>>,
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

fn check_signature(keys: &JwkSet, jws: &Jws<'_>) -> Result<(), String> {
    let (_, key) = keys.find(&jws.kid)?;
    if jws.is_by(&key) {
        Ok(())
    } else {
        Err(format!("the key {} did not sign the statement", jws.kid))
    }
}

/// Reads a signed statement strictly, and compares it with the readable one.
fn read_statement<P: for<'de> Deserialize<'de>>(
    payload: &[u8],
    readable: &RawValue,
    predicate_type: &str,
    subject: &str,
) -> Result<Statement<P>, String> {
    let invalid = |error: serde_json::Error| format!("the statement is invalid: {error}");
    let statement: Statement<P> = serde_json::from_slice(payload).map_err(invalid)?;
    let _: Statement<P> = serde_json::from_str(readable.get()).map_err(invalid)?;
    let signed: Value = serde_json::from_slice(payload).map_err(invalid)?;
    let shown: Value = serde_json::from_str(readable.get()).map_err(invalid)?;
    if !is_same(&signed, &shown) {
        return Err("the statement is not the signed one".into());
    }
    if statement.r#type != STATEMENT_TYPE
        || statement.predicate_type != predicate_type
        || statement.subject[0].name != subject
    {
        return Err(format!(
            "the statement is not of the type {predicate_type} about {subject}"
        ));
    }
    Ok(statement)
}

/// Builds the tree from the entries in the folder, and compares it with both checkpoints and with
/// every tile.
fn check_consistency(
    earlier: &str,
    folder: &Path,
    logged: &Logged,
    log_key: &str,
) -> Result<(), String> {
    let earlier = SignedCheckpoint::parse(earlier)?;
    earlier.check_signature(log_key)?;
    let (earlier, tree) = (&earlier.tree, &logged.checkpoint.tree);
    if earlier.size() > tree.size() {
        return Err(format!(
            "the earlier checkpoint has {} entries, the one of the receipt only {}",
            earlier.size(),
            tree.size()
        ));
    }
    let read = |path: &str| {
        std::fs::read(folder.join(path)).map_err(|error| format!("{path} cannot be read: {error}"))
    };
    let inconsistent = |error: tlog_tiles::Error| format!("the tree is inconsistent: {error}");
    let mut grown = GrowingTree::default();
    for path in bundle_paths(tree.size()) {
        for entry in read_bundle(&read(&path)?)? {
            if grown.size() == earlier.size()
                && grown.root().map_err(inconsistent)? != *earlier.hash()
            {
                return Err("the log is not a continuation of the earlier checkpoint".into());
            }
            grown.push(&entry).map_err(inconsistent)?;
        }
    }
    let root = grown.root().map_err(inconsistent)?;
    if grown.size() != tree.size() || root != *tree.hash() {
        return Err("the entries do not lead to the root of the checkpoint".into());
    }
    if earlier.size() == tree.size() && root != *earlier.hash() {
        return Err("the log is not a continuation of the earlier checkpoint".into());
    }
    for file in grown.files_since(0).map_err(inconsistent)? {
        if read(&file.path)? != file.bytes {
            return Err(format!("{} does not belong to this tree", file.path));
        }
    }
    Ok(())
}

/// Opens the predictions again.
type OpenPredictions<'a, R> = &'a dyn Fn() -> Result<(R, ContentFormat), String>;

fn hash_predictions<R: BufRead>(
    open: OpenPredictions<'_, R>,
    cells: CellForm,
) -> Result<String, String> {
    use assay_eval::prediction::{HashedPredictions, Prediction, sink_fn};

    let (content, format) = open()?;
    let take = sink_fn(
        |prediction: Result<Prediction<'_, '_>, assay_eval::FieldError>| match prediction {
            Ok(_) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(format!("{}: {}", error.field, error.message)),
        },
    );
    let mut hashed = HashedPredictions::new(take);
    let go_on = || ControlFlow::Continue(());
    match read_content(content, format, cells, go_on, &mut hashed) {
        ReadEnd::Complete => Ok(hex::encode(hashed.finish().1)),
        ReadEnd::Stopped(reason) => Err(reason),
        ReadEnd::Invalid(error) => Err(error.to_string()),
    }
}

/// A suite whose opening was verified.
struct VerifiedSuite {
    publication: SuitePublication,
    seed: Option<SealSeed>,
}

/// Checks that a folder opens the commitment for a receipt's suite, which is in the log before the
/// receipt.
fn open_suite(
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
                .filter(|cluster| *cluster != "none")
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
    };
    for (name, given, actual) in [
        ("items.ndjson", &opened.items_sha256, opening.items_sha256),
        (
            "answers.ndjson",
            &opened.answers_sha256,
            opening.answers_sha256,
        ),
    ] {
        if *given != hex::encode(actual) {
            return Err(format!("{name} does not have the digest of the opening"));
        }
    }
    if hex::encode(opening.commitment()) != publication.suite_commitment {
        return Err("salt, items, answers and seed do not give the suite's commitment".into());
    }
    Ok(VerifiedSuite {
        publication,
        seed: opening.seed,
    })
}

/// Scores the predictions again.
fn check_score<R: BufRead>(
    claim: &EvalResult,
    suite: &VerifiedSuite,
    folder: &Path,
    open: OpenPredictions<'_, R>,
) -> Result<Passed, String> {
    let SuitePublication { clip, release, .. } = &suite.publication;
    let metric: Metric = suite.publication.metric.parse()?;
    let policy: DisclosurePolicy = release.parse()?;
    let clip = match clip {
        Some([low, high]) => Some(Clip::new(*low, *high).ok_or("clip is not a range")?),
        None => None,
    };
    let cluster = suite.publication.cluster.as_deref();
    let tables = Tables::read(folder, metric, clip, cluster, policy, suite.seed)?;
    let (content, format) = open()?;
    let sealed = tables.sealed.as_ref();
    let score = offline::score_all(&tables.open, sealed, metric, content, format)?;
    let n_submitted = score.n_submitted;
    let (n, n_missing, exact) = match (claim.figures, score.sealed) {
        (Figures::Sealed, Some(sealed)) => (sealed.n, sealed.n_missing, sealed.figures),
        (Figures::Sealed, None) => return Err("the suite has no sealed items".into()),
        (Figures::All | Figures::Open | Figures::Board, _) => {
            (score.n, score.n_missing, score.figures)
        }
    };
    if (claim.n, claim.n_missing, claim.n_submitted) != (n, n_missing, n_submitted) {
        return Err(format!(
            "n, n_missing and n_submitted are {n}, {n_missing} and {n_submitted}"
        ));
    }
    match policy {
        DisclosurePolicy::Ladder(step) => {
            let ladder = Ladder::for_suite(step, metric, clip, &tables.open)
                .ok_or("the ladder has no levels")?;
            let own = ladder.value(ladder.climb(0, exact.value));
            let is_own_alone =
                claim.value_scope == ValueScope::ThisSubmission || claim.submission_number == 1;
            let is_level = (0..=ladder.levels).any(|level| ladder.value(level) == claim.value);
            let is_worse = (claim.value - own) * ladder.step < 0.0;
            if is_own_alone && claim.value == own {
                Ok(Passed::Ok)
            } else if is_own_alone || is_worse {
                Err(format!("the value is {own} on the grid"))
            } else if !is_level {
                Err(format!("{} is no level of the grid", claim.value))
            } else {
                Ok(Passed::Skipped(format!(
                    "the value is the best of {} submissions, whose predictions are not given; that of these is {own} on the \
                     grid",
                    claim.submission_number
                )))
            }
        }
        DisclosurePolicy::Exact | DisclosurePolicy::Rounded(_) | DisclosurePolicy::Sealed(_) => {
            let disclosed = policy
                .disclose(exact, None)
                .map_err(|corrupt| corrupt.to_string())?;
            compare_figures(claim, &disclosed)
        }
    }
}

fn compare_figures(claim: &EvalResult, disclosed: &Score) -> Result<Passed, String> {
    let estimate = disclosed.estimate;
    let ci95 = estimate.map(|estimate| estimate.ci95);
    let ci_method = estimate.map(|estimate| estimate.method);
    let n_clusters = disclosed.clusters.map(|clusters| clusters.n);
    if claim.n_clusters != n_clusters {
        return Err(format!("n_clusters is {n_clusters:?}"));
    }
    if (claim.value, claim.ci95, claim.ci_method.as_deref()) == (disclosed.value, ci95, ci_method) {
        Ok(Passed::Ok)
    } else {
        Err(format!(
            "the value is {}, its interval {ci95:?}",
            disclosed.value
        ))
    }
}

/// A suite's answers, open and sealed ones.
struct Tables {
    open: AnswerTable,
    sealed: Option<AnswerTable>,
}

impl Tables {
    /// Reads the answers of a folder. The seed draws the sealed ones.
    fn read(
        folder: &Path,
        metric: Metric,
        clip: Option<Clip>,
        cluster: Option<&str>,
        policy: DisclosurePolicy,
        seed: Option<SealSeed>,
    ) -> Result<Self, String> {
        let key: Option<ClusterKey> = cluster.map(str::parse).transpose()?;
        let field = key.as_ref().and_then(ClusterKey::field);
        let clusters = field
            .map(|field| read_clusters(folder, field))
            .transpose()
            .map_err(|bad| bad.to_string())?;
        let lines = || {
            AnswerLines::open(&folder.join("answers.ndjson"), metric).map_err(|bad| bad.to_string())
        };
        let mut ids = Vec::new();
        lines()?
            .for_each(|item_id, _| {
                ids.push(item_id.to_owned());
                Ok(())
            })
            .map_err(|bad| bad.to_string())?;
        let labels = match &clusters {
            Some(clusters) => ids.iter().map(|id| clusters.of(id)).collect(),
            None => Ok(Vec::new()),
        };
        let labels: Vec<u32> = labels?;
        let mut is_sealed = vec![false; ids.len()];
        match (policy, seed) {
            (DisclosurePolicy::Sealed(fraction), Some(seed)) => {
                let n_sealed = fraction.of(ids.len());
                match &clusters {
                    Some(clusters) => {
                        is_sealed = seed.draw_clusters(clusters.values(), &labels, n_sealed);
                    }
                    None => {
                        for at in seed.draw(ids.iter().map(String::as_str), n_sealed) {
                            is_sealed[at] = true;
                        }
                    }
                }
            }
            (DisclosurePolicy::Sealed(_), None) => {
                return Err("the opening has no seed, which draws the sealed items".into());
            }
            _ => {}
        }
        let n_sealed = is_sealed.iter().filter(|is_sealed| **is_sealed).count();
        let mut open = Builder::new(metric, ids.len() - n_sealed).clip(clip);
        let mut sealed = Builder::new(metric, n_sealed).clip(clip);
        let mut places = is_sealed.iter().enumerate();
        lines()?
            .for_each(|item_id, answer| {
                let (place, is_sealed) = places.next().unwrap_or((0, &false));
                let builder = if *is_sealed { &mut sealed } else { &mut open };
                builder
                    .push(item_id, answer)
                    .map_err(|corrupt| corrupt.to_string())?;
                labels
                    .get(place)
                    .into_iter()
                    .for_each(|label| builder.put_into_cluster(*label));
                Ok(())
            })
            .map_err(|bad| bad.to_string())?;
        let finish = |builder: Builder| builder.finish().map_err(|corrupt| corrupt.to_string());
        Ok(Self {
            open: finish(open)?,
            sealed: (n_sealed > 0).then(|| finish(sealed)).transpose()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sealed_items_without_seed_are_an_error() {
        let folder = std::env::temp_dir().join(format!("assay-opening-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let answers: String = (0..10)
            .map(|at| format!("{{\"item_id\":\"i{at}\",\"answer\":\"x\"}}\n"))
            .collect();
        std::fs::write(folder.join("answers.ndjson"), answers).unwrap();
        let policy: DisclosurePolicy = "sealed(0.3)".parse().unwrap();
        let read = |seed| Tables::read(&folder, Metric::Accuracy, None, None, policy, seed);
        let without = read(None).err().unwrap();
        assert!(without.contains("no seed"), "{without}");
        let with = read(Some(SealSeed::from_text("s"))).unwrap();
        assert!(with.sealed.is_some());
        std::fs::remove_dir_all(folder).unwrap();
    }
}
