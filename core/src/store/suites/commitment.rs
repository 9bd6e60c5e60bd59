//! Suites' commitments to their items and answers. Only the operator's role stores them and
//! opens them; processes read the public part.

use sqlx::types::Json;

use crate::model::error::{Error, Result};
use crate::model::skill::SuiteSkill;
use crate::model::slices::StoredSlices;
use crate::model::suite::{SuiteId, SuiteVersion};
use crate::model::timestamp::Timestamp;
use crate::store::PgConnection;
use assay_eval::suite::{ClusterKey, Opening};
use assay_receipts::statement::{SUITE, SkillClaim, Statement, SuitePublication};

/// Stores the commitment of a version that has just been inserted, and what opens it.
///
/// `baselines_sha256` commits to the predictions of its baselines, and `catalog_sha256` to its catalog,
/// if it has them.
pub async fn insert(
    db: &mut PgConnection,
    suite: &SuiteVersion,
    opening: &Opening,
    baselines_sha256: Option<[u8; 32]>,
    catalog_sha256: Option<[u8; 32]>,
) -> Result<()> {
    let published = sqlx::query!(
        r#"
        select
            metric,
            n_items,
            release,
            clip,
            closes_at as "closes_at: Timestamp",
            board,
            cluster,
            average,
            slices as "slices: Json<Vec<StoredSlices>>",
            slice_min,
            labels,
            quantiles,
            skill as "skill: Json<SuiteSkill>",
            published_at as "published_at: Timestamp"
        from suites
        where suite_id = $1
          and version = $2
        "#,
        suite.suite_id.as_str(),
        suite.version
    )
    .fetch_one(&mut *db)
    .await?;
    let commitment = opening.commitment();
    let publication = SuitePublication {
        suite_id: suite.suite_id.to_string(),
        suite_version: suite.version.clone(),
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
        baselines_sha256: baselines_sha256.map(hex::encode),
        catalog_sha256: catalog_sha256.map(hex::encode),
    };
    let statement = Statement::new(SUITE, "suite", hex::encode(commitment), publication);
    let payload = serde_json::to_vec(&statement).map_err(Error::internal)?;
    sqlx::query!(
        "
        with committed as (
            insert into suite_commitments (
                suite_id,
                suite_version,
                commitment,
                committed_at,
                payload
            )
            values ($1, $2, $3, $4, $5)
            returning suite_id, suite_version
        )
        insert into suite_openings (
            suite_id,
            suite_version,
            salt,
            seed,
            items_sha256,
            answers_sha256,
            retest_sha256
        )
        select
            suite_id,
            suite_version,
            $6,
            $7,
            $8,
            $9,
            $10
        from committed
        ",
        suite.suite_id.as_str(),
        suite.version,
        &commitment,
        published.published_at as Timestamp,
        payload,
        &opening.salt,
        opening.seed.as_ref().map(|seed| seed.as_bytes().as_slice()),
        &opening.items_sha256,
        &opening.answers_sha256,
        opening.retest_sha256.as_ref().map(<[u8; 32]>::as_slice)
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
    /// It retired before.
    Before,
    /// It has not closed yet: somebody who knows the answers could mark a job as final, or enter the board.
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

/// Opens a version's commitment: publishes its salt, its seed and its answers. The version
/// accepts no submissions afterwards, and a live board closes.
pub async fn retire(
    db: &mut PgConnection,
    suite: &SuiteVersion,
) -> Result<std::result::Result<Retired, NotRetired>> {
    let (suite_id, version) = (suite.suite_id.as_str(), suite.version.as_str());
    let found = sqlx::query!(
        r#"
        select
            c.commitment,
            c.retired_at is not null as "is_retired!",
            (
                select s.closes_at
                from suites s
                where s.suite_id = c.suite_id
                  and s.version = c.suite_version
                  and s.closes_at > clock_timestamp()
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
        for update
        "#,
        suite_id,
        version
    )
    .fetch_optional(&mut *db)
    .await?;
    let Some(found) = found else {
        return Ok(Err(NotRetired::Missing));
    };
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
            retired_at = clock_timestamp(),
            salt = o.salt,
            seed = o.seed,
            items_sha256 = o.items_sha256,
            answers_sha256 = o.answers_sha256,
            retest_sha256 = o.retest_sha256
        from suite_openings o
        where c.suite_id = $1
          and c.suite_version = $2
          and o.suite_id = c.suite_id
          and o.suite_version = c.suite_version
        ",
        suite_id,
        version
    )
    .execute(&mut *db)
    .await?;
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
        from suite_answers
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
        from suite_retest
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

/// Returns a suite's versions that have not retired and have these versions' items, which have.
/// Readers who see the opened answers know theirs.
pub async fn shared_answers(
    db: &mut PgConnection,
    suite_id: &SuiteId,
    retired: &[String],
) -> Result<Vec<SharedAnswers>> {
    let shared = sqlx::query_as!(
        SharedAnswers,
        r#"
        select
            other.version,
            count(*) as "n_items!"
        from suites other
        join suite_commitments c on c.suite_id = other.suite_id and c.suite_version = other.version
        join suite_items hidden on hidden.suite_id = other.suite_id and hidden.version = other.version
        join suite_answers hidden_answer
            on hidden_answer.suite_id = hidden.suite_id
            and hidden_answer.version = hidden.version
            and hidden_answer.ordinal = hidden.ordinal
        where other.suite_id = $1
          and c.retired_at is null
          and exists(
              select
              from suite_items opened
              join suite_answers opened_answer using (suite_id, version, ordinal)
              where opened.suite_id = $1
                and opened.version = any($2)
                and opened.item_id = hidden.item_id
                and opened.input::text = hidden.input::text
                and opened_answer.answer::text = hidden_answer.answer::text
          )
        group by other.version
        order by other.version
        "#,
        suite_id.as_str(),
        retired
    )
    .fetch_all(db)
    .await?;
    Ok(shared)
}
