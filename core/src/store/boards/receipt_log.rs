//! `assay-api log`'s statements: it signs statements and writes the transparency log.
//!
//! One process leads, by an advisory lock on its connection. All statements run on that connection,
//! so a process that has lost the lock cannot write.

use futures_util::TryStreamExt as _;
use sqlx::{Connection as _, PgExecutor};

use crate::model::error::Result;
use crate::model::timestamp::Timestamp;
use crate::store::PgConnection;
use crate::store::db::try_lock;
use assay_receipts::jws::compact;
use assay_receipts::tree::Entry;

/// The advisory lock for the process that writes the log: the letters "receipt".
const LOG: i64 = 0x72_65_63_65_69_70_74;

/// The most statements that are signed, or get an index, at once.
pub const BATCH: usize = 1_000;

/// Tries to become the process that writes the log. The lock is released with the connection.
pub async fn lead(db: &mut PgConnection) -> Result<bool> {
    try_lock(db, LOG).await
}

/// A receipt key as it is stored.
pub struct StoredKey {
    /// The key's id.
    pub kid: String,
    /// The time from which it is valid.
    pub valid_from: Timestamp,
    /// The time until which it is valid, if another one has replaced it.
    pub valid_until: Option<Timestamp>,
    /// `true` if the operator has asked for its revocation, which is not logged yet.
    pub must_be_revoked: bool,
    /// `true` if it is revoked.
    pub is_revoked: bool,
}

impl StoredKey {
    /// Returns `true` if the key is neither revoked nor about to be.
    pub const fn is_valid(&self) -> bool {
        !self.is_revoked && !self.must_be_revoked
    }
}

/// Returns all receipt keys.
pub async fn keys(db: impl PgExecutor<'_>) -> Result<Vec<StoredKey>> {
    let keys = sqlx::query_as!(
        StoredKey,
        r#"
        select
            kid,
            valid_from as "valid_from: Timestamp",
            valid_until as "valid_until: Timestamp",
            revocation_requested_at is not null and revoked_jws is null as "must_be_revoked!",
            revoked_jws is not null as "is_revoked!"
        from receipt_keys
        order by valid_from, kid
        "#
    )
    .fetch_all(db)
    .await?;
    Ok(keys)
}

/// Returns the oldest unsigned statement's time, and the database's time.
pub async fn oldest_unsigned(db: impl PgExecutor<'_>) -> Result<(Option<Timestamp>, Timestamp)> {
    let row = sqlx::query!(
        r#"
        /* all tenants: the log signs the statements of every organization */
        select
            least(
                (
                    select min(issued_at)
                    from receipts
                    where log_index is null
                ),
                (
                    select min(committed_at)
                    from suite_commitments
                    where log_index is null
                )
            ) as "oldest: Timestamp",
            clock_timestamp() as "now!: Timestamp"
        "#
    )
    .fetch_one(db)
    .await?;
    Ok((row.oldest, row.now))
}

/// A receipt key that is added.
pub struct NewKey<'a> {
    /// The key's id.
    pub kid: &'a str,
    /// The public key's 32 bytes.
    pub public_key: &'a [u8; 32],
    /// The time from which it is valid.
    pub valid_from: Timestamp,
    /// The signed statement that adds it.
    pub jws: &'a str,
    /// That statement's entry.
    pub entry: &'a Entry,
}

/// Adds a key, with the statement as the log's next entry.
pub async fn insert_key(db: &mut PgConnection, key: &NewKey<'_>) -> Result<()> {
    sqlx::query!(
        "
        with logged as (
            insert into log_entries (index, hash)
            select
                coalesce(max(index) + 1, 0),
                $5
            from log_entries
            returning index
        )
        insert into receipt_keys (kid, public_key, valid_from, added_jws, added_index)
        select
            $1,
            $2,
            $3,
            $4,
            index
        from logged
        ",
        key.kid,
        key.public_key,
        key.valid_from as Timestamp,
        key.jws,
        key.entry
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Makes one key the only one that signs: ends the others' validity.
pub async fn set_signing_key(db: impl PgExecutor<'_>, kid: &str) -> Result<()> {
    sqlx::query!(
        "
        update receipt_keys
        set valid_until = case when kid <> $1 then clock_timestamp() end
        where (valid_until is null) <> (kid = $1)
        ",
        kid
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Records a key's revocation from its index in the log on. The statement was appended at that
/// index in the same transaction.
pub async fn revoke_key(db: impl PgExecutor<'_>, kid: &str, index: i64, jws: &str) -> Result<()> {
    sqlx::query!(
        "
        update receipt_keys
        set
            revoked_at_index = $2,
            revoked_jws = $3
        where kid = $1
        ",
        kid,
        index,
        jws
    )
    .execute(db)
    .await?;
    Ok(())
}

/// A statement table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Suites' commitments. Their ids are the suite's id and version.
    Suites,
    /// Jobs' receipts.
    Receipts,
}

/// A statement that is not signed.
pub struct Unsigned {
    /// Its row's id.
    pub id: String,
    /// A suite's version; empty for a receipt.
    pub version: String,
    /// The bytes to sign.
    pub payload: Vec<u8>,
    /// The statement's time.
    pub issued_at: Timestamp,
}

/// Returns the oldest statements that are not signed. A receipt is returned only after its suite's
/// statement has an index.
pub async fn unsigned(db: &mut PgConnection, source: Source) -> Result<Vec<Unsigned>> {
    let batch = BATCH as i64;
    let statements = match source {
        Source::Suites => {
            sqlx::query_as!(
                Unsigned,
                r#"
                select
                    suite_id as id,
                    suite_version as version,
                    payload,
                    committed_at as "issued_at: Timestamp"
                from suite_commitments
                where log_index is null
                order by committed_at
                limit $1
                "#,
                batch
            )
            .fetch_all(db)
            .await?
        }
        Source::Receipts => {
            sqlx::query_as!(
                Unsigned,
                r#"
                /* all tenants: the log signs the statements of every organization */
                select
                    r.id,
                    '' as "version!",
                    r.payload,
                    r.issued_at as "issued_at: Timestamp"
                from receipts r
                join suite_commitments c using (suite_id, suite_version)
                where r.log_index is null
                  and c.log_index is not null
                order by r.issued_at
                limit $1
                "#,
                batch
            )
            .fetch_all(db)
            .await?
        }
    };
    Ok(statements)
}

/// A signed statement.
pub struct SignedStatement {
    /// Its row's id.
    pub id: String,
    /// A suite's version; empty for a receipt.
    pub version: String,
    /// The id of the key.
    pub kid: String,
    /// The Ed25519 signature.
    pub signature: [u8; 64],
    /// The statement's entry in the log.
    pub entry: Entry,
}

/// Appends statements to the log, and stores their signatures and indexes.
pub async fn append_statements(
    db: &mut PgConnection,
    source: Source,
    signed: &[SignedStatement],
) -> Result<()> {
    let column = |of: fn(&SignedStatement) -> &str| signed.iter().map(of).collect::<Vec<_>>();
    let ids = column(|signed| &signed.id);
    let versions = column(|signed| &signed.version);
    let kids = column(|signed| &signed.kid);
    let signatures: Vec<_> = signed.iter().map(|signed| &signed.signature[..]).collect();
    let entries: Vec<_> = signed.iter().map(|signed| signed.entry).collect();
    let mut transaction = db.begin().await?;
    let indexes = append(&mut transaction, &entries).await?;
    match source {
        Source::Suites => {
            sqlx::query!(
                "
                update suite_commitments c
                set
                    kid = s.kid,
                    signature = s.signature,
                    log_index = s.index
                from unnest($1::text[], $2::text[], $3::text[], $4::bytea[], $5::bigint[])
                    as s(id, version, kid, signature, index)
                where c.suite_id = s.id
                  and c.suite_version = s.version
                ",
                &ids as &[&str],
                &versions as &[&str],
                &kids as &[&str],
                &signatures as &[&[u8]],
                &indexes
            )
            .execute(&mut *transaction)
            .await?;
        }
        Source::Receipts => {
            sqlx::query!(
                "
                /* all tenants: the log signs the statements of every organization */
                update receipts r
                set
                    kid = s.kid,
                    signature = s.signature,
                    log_index = s.index
                from unnest($1::text[], $2::text[], $3::bytea[], $4::bigint[])
                    as s(id, kid, signature, index)
                where r.id = s.id
                ",
                &ids as &[&str],
                &kids as &[&str],
                &signatures as &[&[u8]],
                &indexes
            )
            .execute(&mut *transaction)
            .await?;
        }
    }
    transaction.commit().await?;
    Ok(())
}

/// Appends entries to the log, and returns each index. An entry that the log has keeps its
/// index: after a restore, a statement is signed again with the same signature.
pub async fn append(db: &mut PgConnection, entries: &[Entry]) -> Result<Vec<i64>> {
    let hashes: Vec<&[u8]> = entries.iter().map(<[u8; 32]>::as_slice).collect();
    let indexes = sqlx::query_scalar!(
        r#"
        with given as (
            select
                g.hash,
                g.place,
                e.index is null as is_new,
                coalesce(
                    e.index,
                    (
                        select coalesce(max(index) + 1, 0)
                        from log_entries
                    ) + row_number() over (partition by e.index is null order by g.place) - 1
                ) as index
            from unnest($1::bytea[]) with ordinality as g(hash, place)
            left join log_entries e using (hash)
        ), appended as (
            insert into log_entries (index, hash)
            select
                index,
                hash
            from given
            where is_new
        )
        select index as "index!"
        from given
        order by place
        "#,
        &hashes as &[&[u8]]
    )
    .fetch_all(db)
    .await?;
    Ok(indexes)
}

/// Reads the log's entries from an index on, in order, and calls `each` with every one.
pub async fn entries_from(
    db: &mut PgConnection,
    from: i64,
    mut each: impl FnMut(&Entry) -> Result<()>,
) -> Result<()> {
    let mut rows = sqlx::query_scalar!(
        "
        select hash
        from log_entries
        where index >= $1
        order by index
        ",
        from
    )
    .fetch(db);
    while let Some(hash) = rows.try_next().await? {
        let entry = hash
            .try_into()
            .map_err(|_| crate::Error::internal("an entry of the log does not have 32 bytes"))?;
        each(&entry)?;
    }
    Ok(())
}

/// A signed statement in the log, about a suite, a job or a key.
pub struct LoggedStatement {
    /// Its entry's index.
    pub index: i64,
    /// The signed statement in its compact form.
    pub jws: String,
}

/// Returns the signed statements whose entries have this index or a larger one.
pub async fn statements_from(db: &mut PgConnection, from: i64) -> Result<Vec<LoggedStatement>> {
    let rows = sqlx::query!(
        r#"
        /* all tenants: the log has the statements of every organization */
        select
            log_index as "index!",
            kid as "kid!",
            payload as "payload!",
            signature as "signature!"
        from receipts
        where log_index >= $1
        union all
        select
            log_index,
            kid,
            payload,
            signature
        from suite_commitments
        where log_index >= $1
        "#,
        from
    )
    .fetch_all(&mut *db)
    .await?;
    let mut statements: Vec<_> = rows
        .into_iter()
        .map(|row| LoggedStatement {
            index: row.index,
            jws: compact(&row.kid, &row.payload, &row.signature),
        })
        .collect();
    let key_statements = sqlx::query_as!(
        LoggedStatement,
        r#"
        select
            added_index as "index!",
            added_jws as "jws!"
        from receipt_keys
        where added_index >= $1
        union all
        select
            revoked_at_index,
            revoked_jws
        from receipt_keys
        where revoked_at_index >= $1
        "#,
        from
    )
    .fetch_all(&mut *db)
    .await?;
    statements.extend(key_statements);
    Ok(statements)
}

/// Stores a published checkpoint.
pub async fn insert_checkpoint(
    db: impl PgExecutor<'_>,
    size: i64,
    root: &[u8; 32],
    note: &str,
) -> Result<()> {
    sqlx::query!(
        "
        insert into log_checkpoints (size, root, note)
        values ($1, $2, $3)
        on conflict do nothing
        ",
        size,
        root,
        note
    )
    .execute(db)
    .await?;
    Ok(())
}

/// The log's state, for metrics.
pub struct LogState {
    /// Statements that are not in a checkpoint yet.
    pub waiting: i64,
    /// The oldest one's age, in seconds; 0 without one.
    pub oldest_waiting_seconds: f64,
    /// The last checkpoint's age, in seconds. `None` before the first.
    pub checkpoint_age_seconds: Option<f64>,
    /// Entry count.
    pub entries: i64,
}

/// Returns the state of the log.
pub async fn state(db: impl PgExecutor<'_>) -> Result<LogState> {
    let state = sqlx::query_as!(
        LogState,
        r#"
        /* all tenants: the log has the statements of every organization */
        with waiting as (
            select issued_at
            from receipts
            where log_index is null
            union all
            select committed_at
            from suite_commitments
            where log_index is null
        )
        select
            (select count(*) from waiting) as "waiting!",
            coalesce(
                (select extract(epoch from clock_timestamp() - min(issued_at)) from waiting),
                0
            )::float8 as "oldest_waiting_seconds!",
            (
                select extract(epoch from clock_timestamp() - max(published_at))
                from log_checkpoints
            )::float8 as checkpoint_age_seconds,
            coalesce((select max(index) + 1 from log_entries), 0) as "entries!"
        "#
    )
    .fetch_one(db)
    .await?;
    Ok(state)
}

/// Inserts entries that the database has lost, from `first` on. Statements that lost their signature
/// are signed again, and find their entry by its hash.
pub async fn restore(db: &mut PgConnection, first: i64, entries: &[Entry]) -> Result<()> {
    let hashes: Vec<&[u8]> = entries.iter().map(<[u8; 32]>::as_slice).collect();
    sqlx::query!(
        "
        insert into log_entries (index, hash)
        select
            $1 + place - 1,
            hash
        from unnest($2::bytea[]) with ordinality as l(hash, place)
        ",
        first,
        &hashes as &[&[u8]]
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Returns the entry count.
pub async fn size(db: impl PgExecutor<'_>) -> Result<i64> {
    let size =
        sqlx::query_scalar!(r#"select coalesce(max(index) + 1, 0) as "size!" from log_entries"#);
    Ok(size.fetch_one(db).await?)
}
