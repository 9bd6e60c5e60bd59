//! Charges for synchronous serving requests. Units are charged before the engine is called,
//! and refunded if the request has no result.

use sqlx::PgExecutor;

use super::catalog::{self, ExpectedModel};
use crate::model::error::Result;
use crate::model::ids::OrgId;
use crate::model::serving::Units;
use crate::model::timestamp::Timestamp;
use crate::store::{Connection as _, PgConnection, now, usage};

/// The hours for which an idempotency key's charge is stored.
pub const KEY_HOURS: i32 = 24;

/// The number of repetitions with a result that an idempotency key's charge covers: enough for
/// lost responses. Each is computed again, so more would be work that nobody pays.
pub const FREE_REPETITIONS: i32 = 2;

/// A charge to a month.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Charge {
    /// The month's start (UTC).
    pub period_start: Timestamp,
    /// The units.
    pub units: Units,
}

/// A charge's result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Charged {
    /// The units were charged.
    New(Charge),
    /// An earlier request with the same idempotency key was charged.
    Before {
        /// The earlier request was the same.
        is_same: bool,
    },
    /// The organization does not see the model's expected version any more.
    ModelChanged,
    /// The units left for the month do not suffice.
    MonthFull {
        /// The next month's start (UTC).
        resets_at: Timestamp,
        /// Seconds until `resets_at`.
        seconds: u32,
    },
}

/// An idempotency key, and the request that it stands for.
#[derive(Debug, Clone, Copy)]
pub struct Key<'a> {
    /// The key.
    pub key: &'a str,
    /// The request's digest.
    pub request_sha256: &'a [u8; 32],
}

/// Charges units to the current month, unless that exceeds `max`, or the organization does not see
/// a model's expected version.
pub async fn charge(
    db: &mut PgConnection,
    org_id: &OrgId,
    units: Units,
    max: i64,
    expected: Option<&ExpectedModel<'_>>,
) -> Result<Charged> {
    let Units { unit, n } = units;
    let charged = sqlx::query!(
        r#"
        with new as (
            select
                case when $2 = 'predict_items' then $3::bigint else 0 end as predict_items,
                case when $2 = 'generated_events' then $3 else 0 end as generated_events,
                case when $2 = 'embeddings' then $3 else 0 end as embeddings
        )
        insert into usage as u (
            org_id,
            period_start,
            eval_items,
            predict_items,
            generated_events,
            embeddings
        )
        select
            $1,
            date_trunc('month', now(), 'UTC'),
            0,
            predict_items,
            generated_events,
            embeddings
        from new
        where $3 <= $4::bigint
          and (
              $5::text is null
              or exists(
                  select from visible_model($1, $5, $6)
                  where version = $7
                    and is_own = $8
              )
          )
        on conflict (org_id, period_start) do update
            set
                predict_items = u.predict_items + excluded.predict_items,
                generated_events = u.generated_events + excluded.generated_events,
                embeddings = u.embeddings + excluded.embeddings
            where $3 + case $2
                when 'predict_items' then u.predict_items
                when 'generated_events' then u.generated_events
                else u.embeddings
            end <= $4
        returning period_start as "period_start: Timestamp"
        "#,
        org_id.as_str(),
        unit.as_str(),
        n,
        max,
        expected.map(|model| model.id),
        expected.and_then(|model| model.requested_version),
        expected.map(|model| model.version),
        expected.map(|model| model.is_own)
    )
    .fetch_optional(&mut *db)
    .await?;
    if let Some(row) = charged {
        return Ok(Charged::New(Charge {
            period_start: row.period_start,
            units,
        }));
    }
    if let Some(model) = expected
        && !catalog::is_visible(&mut *db, org_id, model).await?
    {
        return Ok(Charged::ModelChanged);
    }
    let now = now(&mut *db).await?;
    let resets_at = usage::next_month(&mut *db, now).await?;
    Ok(Charged::MonthFull {
        resets_at,
        seconds: now.seconds_until(resets_at),
    })
}

/// Charges units as [`charge`] does, and stores the charge under an idempotency key, unless the key
/// is stored already.
pub async fn charge_once(
    db: &mut PgConnection,
    org_id: &OrgId,
    key: Key<'_>,
    units: Units,
    max: i64,
    expected: Option<&ExpectedModel<'_>>,
) -> Result<Charged> {
    let mut db = db.begin().await?;
    // The day before's key is not one any more, even if cleanup has not deleted it yet.
    let stored = sqlx::query!(
        "
        insert into serve_keys as k (org_id, idempotency_key, request_sha256, unit, units)
        values ($1, $2, $3, $4, $5)
        on conflict (org_id, idempotency_key) do update
            set
                request_sha256 = excluded.request_sha256,
                unit = excluded.unit,
                units = excluded.units,
                is_used_by_repetition = false,
                repetitions = 0,
                created_at = now()
            where k.created_at <= now() - $6::integer * interval '1 hour'
        returning idempotency_key
        ",
        org_id.as_str(),
        key.key,
        key.request_sha256,
        units.unit.as_str(),
        units.n,
        KEY_HOURS
    )
    .fetch_optional(&mut *db)
    .await?;
    if stored.is_none() {
        // The statement before waited for a concurrent request with the key, so this one sees it.
        let before = sqlx::query_scalar!(
            "
            select request_sha256
            from serve_keys
            where org_id = $1
              and idempotency_key = $2
            ",
            org_id.as_str(),
            key.key
        )
        .fetch_one(&mut *db)
        .await?;
        if let Some(model) = expected
            && !catalog::is_visible(&mut *db, org_id, model).await?
        {
            return Ok(Charged::ModelChanged);
        }
        return Ok(Charged::Before {
            is_same: before == key.request_sha256,
        });
    }
    let charged = charge(&mut db, org_id, units, max, expected).await?;
    if matches!(charged, Charged::New(_)) {
        db.commit().await?;
    } else {
        db.rollback().await?;
    }
    Ok(charged)
}

/// Records that a repeated request has a result, so that the first request's charge is not
/// refunded if that one fails. If it was refunded already, and after [`FREE_REPETITIONS`], charges the
/// units again.
///
/// Returns [`Charged::Before`] if the charge covers the repetition, and [`Charged::New`] otherwise.
pub async fn charge_repeated(
    db: &mut PgConnection,
    org_id: &OrgId,
    key: Key<'_>,
    units: Units,
    max: i64,
) -> Result<Charged> {
    let mut db = db.begin().await?;
    let stored = sqlx::query!(
        r#"
        insert into serve_keys as k (
            org_id,
            idempotency_key,
            request_sha256,
            unit,
            units
        )
        values ($1, $2, $3, $4, $5)
        on conflict (org_id, idempotency_key) do update
            set
                is_used_by_repetition = true,
                repetitions = least(k.repetitions + 1, $6::integer + 1)
            where k.request_sha256 = excluded.request_sha256
        -- A row that existed was locked for the update, which xmax keeps.
        returning
            xmax = 0 as "is_new!",
            repetitions > $6 as "is_charged!"
        "#,
        org_id.as_str(),
        key.key,
        key.request_sha256,
        units.unit.as_str(),
        units.n,
        FREE_REPETITIONS
    )
    .fetch_optional(&mut *db)
    .await?;
    let charged = match stored {
        Some(row) if row.is_new || row.is_charged => {
            charge(&mut db, org_id, units, max, None).await?
        }
        Some(_) => Charged::Before { is_same: true },
        // The charge was refunded, and another request has used the key since.
        None => Charged::Before { is_same: false },
    };
    if matches!(charged, Charged::MonthFull { .. }) {
        db.rollback().await?;
    } else {
        db.commit().await?;
    }
    Ok(charged)
}

/// Deletes idempotency keys' charges after [`KEY_HOURS`].
pub async fn delete_expired_keys(db: impl PgExecutor<'_>) -> Result<()> {
    sqlx::query!(
        "
        /* all tenants: cleanup deletes the keys of every organization after their time */
        delete from serve_keys
        where created_at < now() - $1::integer * interval '1 hour'
        ",
        KEY_HOURS
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Refunds a charge, and forgets the idempotency key that it was stored under. Does nothing if a
/// repeated request with the key has a result: the charge is for that one then.
pub async fn refund(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    charge: &Charge,
    key: Option<&str>,
) -> Result<()> {
    let Charge {
        period_start,
        units: Units { unit, n },
    } = charge;
    sqlx::query!(
        "
        with forgotten as (
            delete from serve_keys
            where org_id = $1
              and idempotency_key = $5
              and not is_used_by_repetition
            returning idempotency_key
        )
        update usage
        set
            predict_items = predict_items - case when $3 = 'predict_items' then $4::bigint else 0 end,
            generated_events =
                generated_events - case when $3 = 'generated_events' then $4 else 0 end,
            embeddings = embeddings - case when $3 = 'embeddings' then $4 else 0 end
        where org_id = $1
          and period_start = $2
          and ($5::text is null or exists (select from forgotten))
        ",
        org_id.as_str(),
        *period_start as Timestamp,
        unit.as_str(),
        *n,
        key
    )
    .execute(db)
    .await?;
    Ok(())
}
