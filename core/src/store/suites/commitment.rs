//! Suites' commitments to their items and answers. Only the operator's role stores them and
//! opens them; processes read the public part.

use sqlx::types::Json;

use crate::model::error::{Error, Result};
use crate::model::skill::SuiteSkill;
use crate::model::slices::StoredSlices;
use crate::model::suite::{NamedVersion, SuiteId};
use crate::model::timestamp::Timestamp;
use crate::store::PgConnection;
use assay_eval::suite::{ClusterKey, Opening, SealSeed};
use assay_receipts::statement::{SUITE, SkillClaim, Statement, SuitePublication};

/// Stores what opens the commitment to a version's content.
///
/// `baselines_sha256` commits to the predictions of its baselines, and `catalog_sha256` to its catalog,
/// if it has them.
pub async fn insert_opening(
    db: &mut PgConnection,
    content_id: i64,
    opening: &Opening,
    baselines_sha256: Option<[u8; 32]>,
    catalog_sha256: Option<[u8; 32]>,
) -> Result<()> {
    let bytes = <[u8; 32]>::as_slice;
    sqlx::query!(
        "
        insert into suite_openings (
            content_id,
            salt,
            seed,
            items_sha256,
            answers_sha256,
            retest_sha256,
            baselines_sha256,
            catalog_sha256
        )
        values ($1, $2, $3, $4, $5, $6, $7, $8)
        ",
        content_id,
        &opening.salt,
        opening.seed.as_ref().map(SealSeed::as_bytes).map(bytes),
        &opening.items_sha256,
        &opening.answers_sha256,
        opening.retest_sha256.as_ref().map(bytes),
        baselines_sha256.as_ref().map(bytes),
        catalog_sha256.as_ref().map(bytes)
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Stores the commitment of a version that has just been inserted, with its statement.
pub(super) async fn insert(db: &mut PgConnection, content_id: i64) -> Result<()> {
    let published = sqlx::query!(
        r#"
        select
            s.suite_id,
            s.version,
            s.metric,
            s.n_items,
            s.release,
            s.clip,
            s.closes_at as "closes_at: Timestamp",
            s.board,
            s.cluster,
            s.average,
            s.slices as "slices: Json<Vec<StoredSlices>>",
            s.slice_min,
            s.labels,
            s.quantiles,
            s.skill as "skill: Json<SuiteSkill>",
            s.published_at as "published_at: Timestamp",
            o.salt,
            o.seed,
            o.items_sha256,
            o.answers_sha256,
            o.retest_sha256,
            o.baselines_sha256,
            o.catalog_sha256
        from suites s
        join suite_openings o using (content_id)
        where s.content_id = $1
        "#,
        content_id
    )
    .fetch_one(&mut *db)
    .await?;
    let digest = |bytes: Vec<u8>| {
        let digest = <[u8; 32]>::try_from(bytes);
        digest.map_err(|_| Error::internal("an opening has a part that is not 32 bytes long"))
    };
    let seed = published.seed.map(digest).transpose()?;
    let opening = Opening {
        salt: digest(published.salt)?,
        items_sha256: digest(published.items_sha256)?,
        answers_sha256: digest(published.answers_sha256)?,
        seed: seed.map(SealSeed::from_bytes),
        retest_sha256: published.retest_sha256.map(digest).transpose()?,
    };
    let commitment = opening.commitment();
    let publication = SuitePublication {
        suite_id: published.suite_id.clone(),
        suite_version: published.version.clone(),
        suite_commitment: hex::encode(commitment),
        metric: published.metric,
        n_items: published.n_items.into(),
        release: published.release,
        clip: published.clip.and_then(|clip| clip.try_into().ok()),
        closes_at: published.closes_at.map(|at| at.to_string()),
        board: published.board,
        published_at: published.published_at.to_string(),
        committed_at: published.published_at.to_string(),
        average: published
            .cluster
            .as_deref()
            .and_then(ClusterKey::published_field)
            .map(|_| published.average),
        cluster: published.cluster,
        slice_min: (!published.slices.is_empty()).then(|| published.slice_min.into()),
        slices: published
            .slices
            .0
            .into_iter()
            .map(|field| field.field)
            .collect(),
        labels: published.labels,
        quantiles: published.quantiles,
        skill: published.skill.map(|Json(skill)| SkillClaim {
            baseline: skill.baseline,
            within: skill.within,
        }),
        baselines_sha256: published.baselines_sha256.map(hex::encode),
        catalog_sha256: published.catalog_sha256.map(hex::encode),
    };
    let statement = Statement::new(SUITE, "suite", hex::encode(commitment), publication);
    let payload = serde_json::to_vec(&statement).map_err(Error::internal)?;
    sqlx::query!(
        "
        insert into suite_commitments (
            suite_id,
            suite_version,
            commitment,
            committed_at,
            payload
        )
        values ($1, $2, $3, $4, $5)
        ",
        published.suite_id,
        published.version,
        &commitment,
        published.published_at as Timestamp,
        payload
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Why a version cannot retire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotRetired {
    /// There is no such version.
    Missing,
    /// The operator has removed it: there are no answers.
    Removed,
    /// It retired before.
    Before,
    /// It has not closed yet: sealed items would no longer be secret, or somebody who knows the answers could mark a job
    /// as final, or enter the board.
    Closes {
        /// Its close time.
        closes_at: Timestamp,
    },
    /// Its board is computed at its close, and not final yet.
    BoardNotFinal,
}

/// Answers that another version would no longer hide.
pub struct SharedAnswers {
    /// The version that has not retired.
    pub version: String,
    /// Number of its items that retire with another version: the same id, input and answer.
    pub n_items: i64,
}

/// A retirement's result.
pub struct Retired {
    /// Answers that are public now.
    pub n_answers: i64,
    /// The commitment.
    pub commitment: Vec<u8>,
}

/// Retires a version, which accepts no submissions afterwards. A live board closes.
///
/// If `opens_answers` is set, this opens the version's commitment: it publishes its salt, its seed and its answers, also of
/// a version that has retired without them.
pub async fn retire(
    db: &mut PgConnection,
    suite: &NamedVersion,
    opens_answers: bool,
) -> Result<std::result::Result<Retired, NotRetired>> {
    let (suite_id, version) = (suite.suite_id.as_str(), suite.version.as_str());
    sqlx::query!(
        "
        select
        from suite_commitments
        where suite_id = $1
          and suite_version = $2
        -- A removal waits. Receipts that refer to the version do not.
        for no key update
        ",
        suite_id,
        version
    )
    .execute(&mut *db)
    .await?;
    // Its own statement: it sees what was committed before the lock.
    let found = sqlx::query!(
        r#"
        select
            c.commitment,
            case when $3 then c.salt is not null else c.retired_at is not null end as "is_retired!",
            exists(
                select from suites s
                where s.suite_id = c.suite_id
                  and s.version = c.suite_version
                  and s.removed_at is not null
            ) as "is_removed!",
            (
                select s.closes_at
                from suites s
                where s.suite_id = c.suite_id
                  and s.version = c.suite_version
                  and s.closes_at > clock_timestamp()
                  and (s.n_sealed > 0 or $3)
            ) as "closes_at: Timestamp",
            exists(
                select from boards b
                where b.suite_id = c.suite_id
                  and b.suite_version = c.suite_version
                  and b.mode = 'at_close'
                  and not b.is_final
            ) as "has_open_board!"
        from suite_commitments c
        where c.suite_id = $1
          and c.suite_version = $2
        "#,
        suite_id,
        version,
        opens_answers
    )
    .fetch_optional(&mut *db)
    .await?;
    let Some(found) = found else {
        return Ok(Err(NotRetired::Missing));
    };
    if found.is_removed {
        return Ok(Err(NotRetired::Removed));
    }
    if found.is_retired {
        return Ok(Err(NotRetired::Before));
    }
    if let Some(closes_at) = found.closes_at {
        return Ok(Err(NotRetired::Closes { closes_at }));
    }
    if found.has_open_board {
        return Ok(Err(NotRetired::BoardNotFinal));
    }
    sqlx::query!(
        "
        with closed as (
            update boards
            set closes_at = clock_timestamp()
            where suite_id = $1
              and suite_version = $2
              and (closes_at is null or closes_at > clock_timestamp())
        )
        update suite_commitments c
        set
            retired_at = coalesce(c.retired_at, clock_timestamp()),
            salt = o.salt,
            seed = o.seed,
            items_sha256 = o.items_sha256,
            answers_sha256 = o.answers_sha256,
            retest_sha256 = o.retest_sha256
        from suites s
        left join suite_openings o on o.content_id = s.content_id and $3
        where c.suite_id = $1
          and c.suite_version = $2
          and s.suite_id = c.suite_id
          and s.version = c.suite_version
        ",
        suite_id,
        version,
        opens_answers
    )
    .execute(&mut *db)
    .await?;
    if !opens_answers {
        return Ok(Ok(Retired {
            n_answers: 0,
            commitment: found.commitment,
        }));
    }
    let opened = sqlx::query!(
        "
        insert into opened_answers (suite_id, suite_version, ordinal, item_id, answer, n, groups)
        select
            suite_id,
            version,
            ordinal,
            item_id,
            answer,
            n,
            groups
        from suites
        join suite_answers using (content_id)
        where suite_id = $1
          and version = $2
        ",
        suite_id,
        version
    )
    .execute(&mut *db)
    .await?;
    sqlx::query!(
        "
        insert into opened_retest (suite_id, suite_version, ordinal, item_id, answers)
        select
            suite_id,
            version,
            ordinal,
            item_id,
            answers
        from suites
        join suite_retest using (content_id)
        where suite_id = $1
          and version = $2
        ",
        suite_id,
        version
    )
    .execute(db)
    .await?;
    Ok(Ok(Retired {
        n_answers: i64::try_from(opened.rows_affected()).unwrap_or(i64::MAX),
        commitment: found.commitment,
    }))
}

/// Returns a suite's other versions that have not retired and have items of these versions. Readers who see the
/// opened answers know theirs.
pub async fn shared_answers(
    db: &mut PgConnection,
    suite_id: &SuiteId,
    opened: &[String],
) -> Result<Vec<SharedAnswers>> {
    let shared = sqlx::query_as!(
        SharedAnswers,
        r#"
        select
            other.version,
            count(*) as "n_items!"
        from suites other
        join suite_commitments c on c.suite_id = other.suite_id and c.suite_version = other.version
        join suite_items hidden on hidden.content_id = other.content_id
        join suite_answers hidden_answer
            on hidden_answer.content_id = hidden.content_id
            and hidden_answer.ordinal = hidden.ordinal
        where other.suite_id = $1
          and other.version <> all($2)
          and c.retired_at is null
          and exists(
              select
              from suites opening
              join suite_items opened on opened.content_id = opening.content_id
              join suite_answers opened_answer
                  on opened_answer.content_id = opened.content_id
                  and opened_answer.ordinal = opened.ordinal
              where opening.suite_id = $1
                and opening.version = any($2)
                and opened.item_id = hidden.item_id
                and opened.input::text = hidden.input::text
                and opened_answer.answer::text = hidden_answer.answer::text
          )
        group by other.version
        order by other.version
        "#,
        suite_id.as_str(),
        opened
    )
    .fetch_all(db)
    .await?;
    Ok(shared)
}

/// Returns the versions of the publisher's suites that have not retired and have this version's opening key, which an
/// opening publishes.
pub async fn versions_with_same_key(
    db: &mut PgConnection,
    suite: &NamedVersion,
) -> Result<Vec<NamedVersion>> {
    let versions = sqlx::query_as!(
        NamedVersion,
        r#"
        select
            other.suite_id as "suite_id: SuiteId",
            other.version
        from suites opening
        join suite_openings key on key.content_id = opening.content_id
        join suite_owners owner on owner.suite_id = opening.suite_id
        join suite_owners sister on sister.org_id = owner.org_id
        join suites other on other.suite_id = sister.suite_id
        join suite_openings same on same.content_id = other.content_id and same.salt = key.salt
        join suite_commitments c on c.suite_id = other.suite_id and c.suite_version = other.version
        where opening.suite_id = $1
          and opening.version = $2
          and other.content_id <> opening.content_id
          and c.retired_at is null
        order by other.suite_id, other.version
        "#,
        suite.suite_id.as_str(),
        suite.version
    );
    Ok(versions.fetch_all(db).await?)
}
