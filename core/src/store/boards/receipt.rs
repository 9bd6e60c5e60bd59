//! Receipts, commitments and keys, as the API reads them. `receipt_log` signs and logs them.

use sqlx::PgExecutor;

use crate::model::error::Result;
use crate::model::ids::{JobId, OrgId, ReceiptId};
use crate::model::job::{JobStatus, JobType};
use crate::model::receipt::{ReceiptFigures, ReceiptOpening};
use crate::model::suite::{NamedVersion, OpenedFile, SuiteId};
use crate::model::suite_items::PageExtent;
use crate::model::timestamp::Timestamp;
use crate::store::suite::page_extent;
use assay_eval::suite::{write_answer_line, write_line};

/// A statement as it is stored.
pub struct StoredStatement {
    /// The statement's bytes.
    pub payload: Vec<u8>,
    /// The key id that has signed it. `None` until then, as the signature and the index.
    pub kid: Option<String>,
    /// The Ed25519 signature.
    pub signature: Option<Vec<u8>>,
    /// The index in the log.
    pub log_index: Option<i64>,
}

/// A receipt as it is stored.
pub struct StoredReceipt {
    /// The receipt's id.
    pub id: ReceiptId,
    /// The job's id.
    pub job_id: JobId,
    /// The statement's bytes.
    pub payload: Vec<u8>,
    /// The key id that has signed it. `None` until then, as the signature and the index.
    pub kid: Option<String>,
    /// The Ed25519 signature.
    pub signature: Option<Vec<u8>>,
    /// The index in the log.
    pub log_index: Option<i64>,
}

/// A job's properties that decide whether it has a receipt.
pub struct ReceiptJob {
    /// The type of the job.
    pub job_type: JobType,
    /// The job's status.
    pub status: JobStatus,
    /// `true` if the suite has sealed items.
    pub is_sealed: bool,
    /// The suite's close, if it is still to come.
    pub closes_at: Option<Timestamp>,
}

/// Returns an organization's job, as far as receipts depend on it.
pub async fn job(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    job_id: &JobId,
) -> Result<Option<ReceiptJob>> {
    let job = sqlx::query_as!(
        ReceiptJob,
        r#"
        select
            j.type as "job_type: JobType",
            j.status as "status: JobStatus",
            coalesce(s.n_sealed > 0, false) as "is_sealed!",
            case when s.closes_at > now() then s.closes_at end as "closes_at: Timestamp"
        from jobs j
        left join suites s on s.suite_id = j.suite_id and s.version = j.suite_version
        where j.org_id = $1
          and j.id = $2
        "#,
        org_id.as_str(),
        job_id.as_str()
    );
    Ok(job.fetch_optional(db).await?)
}

/// Returns the receipt for an organization's job with these figures.
pub async fn find_by_job(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    job_id: &JobId,
    figures: ReceiptFigures,
) -> Result<Option<StoredReceipt>> {
    let receipt = sqlx::query_as!(
        StoredReceipt,
        r#"
        select
            id as "id: ReceiptId",
            job_id as "job_id: JobId",
            payload,
            kid,
            signature,
            log_index
        from receipts
        where org_id = $1
          and job_id = $2
          and figures = $3
        "#,
        org_id.as_str(),
        job_id.as_str(),
        figures as ReceiptFigures
    );
    Ok(receipt.fetch_optional(db).await?)
}

/// Returns `true` if an organization's job has a signed receipt for the figures that its result shows.
pub async fn has_signed(db: impl PgExecutor<'_>, org_id: &OrgId, job_id: &JobId) -> Result<bool> {
    let has = sqlx::query_scalar!(
        r#"
        select exists(
            select from receipts
            where org_id = $1
              and job_id = $2
              and figures in ('all', 'open')
              and log_index is not null
        ) as "has!"
        "#,
        org_id.as_str(),
        job_id.as_str()
    );
    Ok(has.fetch_one(db).await?)
}

/// Returns a receipt that a caller can see: the own organization's, or one that a board shows
/// to the caller. A caller without an organization sees public boards, and those of public suites.
pub async fn find(
    db: impl PgExecutor<'_>,
    org_id: Option<&OrgId>,
    receipt_id: &ReceiptId,
) -> Result<Option<StoredReceipt>> {
    let receipt = sqlx::query_as!(
        StoredReceipt,
        r#"
        /* all tenants: a board shows the receipts of every organization */
        select
            r.id as "id: ReceiptId",
            r.job_id as "job_id: JobId",
            r.payload,
            r.kid,
            r.signature,
            r.log_index
        from receipts r
        where r.id = $1
          and (
              r.org_id = $2
              or exists (
                  select from shown_receipts s
                  where s.receipt_id = r.id
                    and (
                        (
                            s.is_public
                            and not exists (
                                select from suite_owners o
                                where o.suite_id = r.suite_id
                                  and o.suspended_at is not null
                            )
                        )
                        or exists (select from visible_suites($2) v where v.suite_id = r.suite_id)
                    )
              )
          )
        "#,
        receipt_id.as_str(),
        org_id.map(OrgId::as_str)
    );
    Ok(receipt.fetch_optional(db).await?)
}

/// Returns the salt for an organization's job's receipts.
pub async fn opening(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    job_id: &JobId,
) -> Result<Option<ReceiptOpening>> {
    let salt = sqlx::query_scalar!(
        "
        select s.salt
        from receipts r
        join receipt_salts s using (org_id, suite_id, suite_version)
        where r.org_id = $1
          and r.job_id = $2
        limit 1
        ",
        org_id.as_str(),
        job_id.as_str()
    )
    .fetch_optional(db)
    .await?;
    Ok(salt.map(|salt| ReceiptOpening {
        org_id: org_id.clone(),
        org_salt: hex::encode(salt),
    }))
}

/// A published checkpoint.
pub struct StoredCheckpoint {
    /// Entry count.
    pub size: i64,
    /// The signed checkpoint.
    pub note: String,
}

/// Returns the last published checkpoint.
pub async fn last_checkpoint(db: impl PgExecutor<'_>) -> Result<Option<StoredCheckpoint>> {
    let checkpoint = sqlx::query_as!(
        StoredCheckpoint,
        "
        select
            size,
            note
        from log_checkpoints
        order by size desc
        limit 1
        "
    );
    Ok(checkpoint.fetch_optional(db).await?)
}

/// A commitment as it is stored.
pub struct StoredCommitment {
    /// The suite.
    pub suite_id: SuiteId,
    /// The version.
    pub suite_version: String,
    /// The commitment.
    pub commitment: Vec<u8>,
    /// The time of the publication.
    pub published_at: Timestamp,
    /// The time of the commitment.
    pub committed_at: Timestamp,
    /// The statement.
    pub statement: StoredStatement,
    /// The opening, after the version has retired.
    pub opening: Option<StoredOpening>,
}

/// A commitment's opening.
pub struct StoredOpening {
    /// The time at which the version retired.
    pub retired_at: Timestamp,
    /// The salt.
    pub salt: Vec<u8>,
    /// The sealed items' seed.
    pub seed: Option<Vec<u8>>,
    /// The items' SHA-256.
    pub items_sha256: Vec<u8>,
    /// The answers' SHA-256.
    pub answers_sha256: Vec<u8>,
    /// The retest's SHA-256, if there is one.
    pub retest_sha256: Option<Vec<u8>>,
}

/// Returns the commitment for a suite's version, or its current one. That of a private suite is for
/// organizations that see it, and for those with a job on the version: they keep their receipts.
pub async fn commitment(
    db: impl PgExecutor<'_>,
    org_id: Option<&OrgId>,
    suite_id: &SuiteId,
    version: Option<&str>,
) -> Result<Option<StoredCommitment>> {
    let row = sqlx::query!(
        r#"
        select
            s.suite_id as "suite_id: SuiteId",
            s.version,
            s.published_at as "published_at: Timestamp",
            c.commitment,
            c.committed_at as "committed_at: Timestamp",
            c.payload,
            c.kid,
            c.signature,
            c.log_index,
            c.retired_at as "retired_at: Timestamp",
            c.salt,
            c.seed,
            c.items_sha256,
            c.answers_sha256,
            c.retest_sha256
        from suites s
        join suite_commitments c on c.suite_id = s.suite_id and c.suite_version = s.version
        where s.suite_id = $2
          and ($3::text is null or s.version = $3)
          and (
              exists (
                  select from suite_owners o
                  where o.suite_id = s.suite_id
                    and o.visibility <> 'private'
                    and o.suspended_at is null
              )
              or exists (select from visible_suites($1) v where v.suite_id = s.suite_id)
              or exists (
                  select from jobs j
                  where j.org_id = $1
                    and j.suite_id = s.suite_id
                    and j.suite_version = s.version
              )
          )
        order by s.published_at desc
        limit 1
        "#,
        org_id.map(OrgId::as_str),
        suite_id.as_str(),
        version
    )
    .fetch_optional(db)
    .await?;
    let Some(row) = row else {
        return Ok(None);
    };
    let opening = match (
        row.retired_at,
        row.salt,
        row.items_sha256,
        row.answers_sha256,
    ) {
        (Some(retired_at), Some(salt), Some(items_sha256), Some(answers_sha256)) => {
            Some(StoredOpening {
                retired_at,
                salt,
                seed: row.seed,
                items_sha256,
                answers_sha256,
                retest_sha256: row.retest_sha256,
            })
        }
        _ => None,
    };
    Ok(Some(StoredCommitment {
        suite_id: row.suite_id,
        suite_version: row.version,
        commitment: row.commitment,
        published_at: row.published_at,
        committed_at: row.committed_at,
        statement: StoredStatement {
            payload: row.payload,
            kid: row.kid,
            signature: row.signature,
            log_index: row.log_index,
        },
        opening,
    }))
}

/// Maximum byte count in the lines that are read at once. One line may be larger.
const OPENED_BLOCK_BYTES: u32 = 256 * 1024;

/// The most lines that are read at once.
const OPENED_BLOCK_LINES: u32 = 5_000;

/// Measures the next lines in an opened file, from the given ordinal on: at most 256 KiB, or one line.
/// No lines are the end.
pub async fn opened_extent(
    db: impl PgExecutor<'_>,
    suite: &NamedVersion,
    file: OpenedFile,
    from: i32,
) -> Result<PageExtent> {
    let NamedVersion { suite_id, version } = suite;
    let max = (OPENED_BLOCK_LINES, OPENED_BLOCK_BYTES);
    page_extent(db, file, suite_id, version, from, max).await
}

/// Returns `count` lines from an opened file, each with its line feed, from the given ordinal on, and
/// the ordinal after the last one.
pub async fn opened_lines(
    db: impl PgExecutor<'_>,
    suite: &NamedVersion,
    file: OpenedFile,
    from: i32,
    count: u32,
) -> Result<(Vec<u8>, i32)> {
    let count = i64::from(count);
    let (lines, field) = match file {
        OpenedFile::Items => (items_from(db, suite, from, count).await?, "input"),
        OpenedFile::Answers => (answers_from(db, suite, from, count).await?, "answer"),
        OpenedFile::Retest => (retest_from(db, suite, from, count).await?, "answers"),
    };
    let mut text = Vec::new();
    for line in &lines {
        let n = line.n.map(i32::unsigned_abs);
        let groups = line.groups.as_deref();
        match file {
            OpenedFile::Answers => {
                write_answer_line(&line.item_id, &line.json, n, groups, &mut text);
            }
            OpenedFile::Items | OpenedFile::Retest => {
                write_line(&line.item_id, field, &line.json, groups, &mut text);
            }
        }
    }
    Ok((text, lines.last().map_or(from, |line| line.ordinal + 1)))
}

/// An item, an answer, or an item's retest answers.
struct OpenedLine {
    ordinal: i32,
    item_id: String,
    json: String,
    /// The number of people behind an answer.
    n: Option<i32>,
    groups: Option<String>,
}

async fn items_from(
    db: impl PgExecutor<'_>,
    suite: &NamedVersion,
    from: i32,
    count: i64,
) -> Result<Vec<OpenedLine>> {
    let lines = sqlx::query_as!(
        OpenedLine,
        r#"
        select
            ordinal,
            item_id,
            input::text as "json!",
            null::integer as n,
            groups::text
        from suite_items
        where content_id = (select content_id from suites where suite_id = $1 and version = $2)
          and ordinal >= $3
        order by ordinal
        limit $4
        "#,
        suite.suite_id.as_str(),
        suite.version,
        from,
        count
    );
    Ok(lines.fetch_all(db).await?)
}

async fn answers_from(
    db: impl PgExecutor<'_>,
    suite: &NamedVersion,
    from: i32,
    count: i64,
) -> Result<Vec<OpenedLine>> {
    let lines = sqlx::query_as!(
        OpenedLine,
        r#"
        select
            ordinal,
            item_id,
            answer::text as "json!",
            n,
            groups::text
        from opened_answers
        where suite_id = $1
          and suite_version = $2
          and ordinal >= $3
        order by ordinal
        limit $4
        "#,
        suite.suite_id.as_str(),
        suite.version,
        from,
        count
    );
    Ok(lines.fetch_all(db).await?)
}

async fn retest_from(
    db: impl PgExecutor<'_>,
    suite: &NamedVersion,
    from: i32,
    count: i64,
) -> Result<Vec<OpenedLine>> {
    let lines = sqlx::query_as!(
        OpenedLine,
        r#"
        select
            ordinal,
            item_id,
            answers::text as "json!",
            null::integer as n,
            null as groups
        from opened_retest
        where suite_id = $1
          and suite_version = $2
          and ordinal >= $3
        order by ordinal
        limit $4
        "#,
        suite.suite_id.as_str(),
        suite.version,
        from,
        count
    );
    Ok(lines.fetch_all(db).await?)
}

/// A public receipt key.
pub struct PublicReceiptKey {
    /// The 32 bytes.
    pub public_key: Vec<u8>,
    /// The time from which it is valid.
    pub valid_from: Timestamp,
    /// The time until which it is valid, if another one has replaced it.
    pub valid_until: Option<Timestamp>,
    /// The signed statement that introduces it.
    pub added_jws: String,
    /// That statement's index.
    pub added_index: i64,
    /// The index from which it is not valid, if it is revoked. `revoked_jws` has it too.
    pub revoked_at_index: Option<i64>,
    /// The signed statement that revokes it.
    pub revoked_jws: Option<String>,
}

/// Returns all receipt keys, the newest first.
pub async fn public_keys(db: impl PgExecutor<'_>) -> Result<Vec<PublicReceiptKey>> {
    let keys = sqlx::query_as!(
        PublicReceiptKey,
        r#"
        select
            public_key,
            valid_from as "valid_from: Timestamp",
            valid_until as "valid_until: Timestamp",
            added_jws,
            added_index,
            revoked_at_index,
            revoked_jws
        from receipt_keys
        order by valid_from desc, kid
        "#
    );
    Ok(keys.fetch_all(db).await?)
}

/// Asks the log to revoke a key. Returns `false` if there is no such key that is not revoked.
pub async fn request_revocation(db: impl PgExecutor<'_>, kid: &str) -> Result<bool> {
    let done = sqlx::query!(
        "
        update receipt_keys
        set revocation_requested_at = coalesce(revocation_requested_at, clock_timestamp())
        where kid = $1
          and revoked_jws is null
        ",
        kid
    )
    .execute(db)
    .await?;
    Ok(done.rows_affected() == 1)
}
