//! Event deliveries to webhooks. The API stores them. The process that sends them has a role that
//! can do no more than its statements here: [`claim`], [`record`] and [`longest_delay`].

use std::time::Duration;

use sqlx::PgExecutor;

use crate::model::error::Result;
use crate::model::ids::{DeliveryId, EventId, OrgId, WebhookId};
use crate::model::timestamp::Timestamp;
use crate::model::webhook::{Delivery, DeliveryError, DeliveryStatus};
use crate::store::PgConnection;

/// The channel for notifications that deliveries are due.
pub const DUE_CHANNEL: &str = "assay_deliveries";

/// Time after which an attempt is repeated whose result is not recorded, because its process has died.
pub const ATTEMPT_LEASE: Duration = Duration::from_secs(30);

/// The most attempts for an organization that a process makes at once.
pub const ORG_ATTEMPTS_MAX: i64 = 16;

/// The most attempts for a failing webhook that a process makes at once: receivers that do not
/// respond must not occupy all places.
const FAILING_ATTEMPTS_MAX: i64 = 2;

/// Queries deliveries as their organization sees them. The columns stand between `$before` and
/// `$after`.
macro_rules! query_deliveries {
    ($before:literal, $after:literal, $($argument:expr),+ $(,)?) => {
        sqlx::query_as!(
            Delivery,
            $before
                + r#"
            id as "id: DeliveryId",
            event_id as "event_id: EventId",
            webhook_id as "webhook_id: WebhookId",
            attempt,
            status as "status: DeliveryStatus",
            response_status,
            error as "error: DeliveryError",
            duration_ms,
            created_at as "created_at: Timestamp",
            attempted_at as "attempted_at: Timestamp",
            next_attempt_at as "next_attempt_at: Timestamp"
            "# + $after,
            $($argument),+
        )
    };
}

/// Returns a delivery, or `None` if the webhook has no such delivery.
pub async fn find_by_event(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    webhook_id: &WebhookId,
    event_id: &EventId,
) -> Result<Option<Delivery>> {
    let delivery = query_deliveries!(
        r#"
        select
            "#,
        r#"
        from webhook_deliveries
        where org_id = $1
          and webhook_id = $2
          and event_id = $3
        "#,
        org_id.as_str(),
        webhook_id.as_str(),
        event_id.as_str()
    )
    .fetch_optional(db)
    .await?;
    Ok(delivery)
}

/// Returns at most `limit` of a webhook's deliveries, the newest first.
pub async fn list(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    webhook_id: &WebhookId,
    status: Option<DeliveryStatus>,
    before: Option<&DeliveryId>,
    limit: i64,
) -> Result<Vec<Delivery>> {
    let deliveries = query_deliveries!(
        r#"
        select
            "#,
        r#"
        from webhook_deliveries
        where org_id = $1
          and webhook_id = $2
          and ($3::text is null or status = $3)
          and ($4::text is null or id < $4)
        order by id desc
        limit $5
        "#,
        org_id.as_str(),
        webhook_id.as_str(),
        status.map(DeliveryStatus::as_str),
        before.map(DeliveryId::as_str),
        limit
    )
    .fetch_all(db)
    .await?;
    Ok(deliveries)
}

/// An event with the body that is sent.
pub struct Payload {
    /// The id of the event.
    pub event_id: EventId,
    /// The event as JSON.
    pub body: String,
}

/// Stores these events' deliveries to a webhook, in their order. Events that have one are left out.
pub async fn insert_all(
    db: &mut PgConnection,
    org_id: &OrgId,
    webhook_id: &WebhookId,
    payloads: &[Payload],
) -> Result<()> {
    if payloads.is_empty() {
        return Ok(());
    }
    let ids = payloads.iter().map(|_| Ok(DeliveryId::random()?.into()));
    let mut ids: Vec<String> = ids.collect::<Result<_>>()?;
    // Ids in one microsecond have a random order.
    ids.sort_unstable();
    let event_ids: Vec<&str> = payloads.iter().map(|one| one.event_id.as_str()).collect();
    let bodies: Vec<&str> = payloads.iter().map(|one| one.body.as_str()).collect();
    // An old event's payload, which is sent again, is kept as long as its delivery.
    sqlx::query!(
        "
        insert into webhook_payloads (org_id, event_id, body)
        select $1, p.event_id, p.body
        from unnest($2::text[], $3::text[]) as p (event_id, body)
        order by p.event_id
        on conflict (org_id, event_id) do update set created_at = excluded.created_at
            where webhook_payloads.created_at < now() - interval '1 day'
        ",
        org_id.as_str(),
        &event_ids as &[&str],
        &bodies as &[&str]
    )
    .execute(&mut *db)
    .await?;
    sqlx::query!(
        "
        insert into webhook_deliveries (org_id, webhook_id, id, event_id)
        select $1, $2, d.id, d.event_id
        from unnest($3::text[], $4::text[]) as d (id, event_id)
        order by d.event_id
        on conflict (org_id, event_id, webhook_id) do nothing
        ",
        org_id.as_str(),
        webhook_id.as_str(),
        &ids,
        &event_ids as &[&str]
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Makes a delivery due now, restarts its delays, and returns it. Returns `None` if the webhook has no
/// such delivery.
pub async fn retry(
    db: &mut PgConnection,
    org_id: &OrgId,
    webhook_id: &WebhookId,
    delivery_id: &DeliveryId,
) -> Result<Option<Delivery>> {
    let delivery = query_deliveries!(
        r#"
        update webhook_deliveries
        set
            status = 'pending',
            failures = 0,
            next_attempt_at = clock_timestamp()
        where org_id = $1
          and webhook_id = $2
          and id = $3
        returning
            "#,
        "",
        org_id.as_str(),
        webhook_id.as_str(),
        delivery_id.as_str()
    )
    .fetch_optional(&mut *db)
    .await?;
    announce(db).await?;
    Ok(delivery)
}

/// Makes at most `limit` failed deliveries for events since a time due now, restarts their delays,
/// and returns their number.
pub async fn retry_failed(
    db: &mut PgConnection,
    org_id: &OrgId,
    webhook_id: &WebhookId,
    since: Timestamp,
    limit: i64,
) -> Result<u64> {
    let done = sqlx::query!(
        "
        update webhook_deliveries
        set
            status = 'pending',
            failures = 0,
            next_attempt_at = clock_timestamp()
        where org_id = $1
          and webhook_id = $2
          and status = 'failed'
          and id in (
              select d.id
              from webhook_deliveries d
              join org_events e on e.org_id = d.org_id and e.id = d.event_id
              where d.org_id = $1
                and d.webhook_id = $2
                and d.status = 'failed'
                and e.timestamp >= $3
              limit $4
          )
        ",
        org_id.as_str(),
        webhook_id.as_str(),
        since as Timestamp,
        limit
    )
    .execute(&mut *db)
    .await?;
    announce(db).await?;
    Ok(done.rows_affected())
}

/// Wakes up the processes that deliver, once the transaction commits.
async fn announce(db: &mut PgConnection) -> Result<()> {
    sqlx::query!("select pg_notify($1, '')", DUE_CHANNEL)
        .execute(db)
        .await?;
    Ok(())
}

/// Deletes at most `limit` of a deleted webhook's pending deliveries, and returns their number.
pub async fn delete_pending(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    webhook_id: &WebhookId,
    limit: i64,
) -> Result<u64> {
    let done = sqlx::query!(
        "
        delete from webhook_deliveries
        where org_id = $1
          and webhook_id = $2
          and id in (
              select id
              from webhook_deliveries
              where org_id = $1
                and webhook_id = $2
                and status = 'pending'
              limit $3
          )
        ",
        org_id.as_str(),
        webhook_id.as_str(),
        limit
    )
    .execute(db)
    .await?;
    Ok(done.rows_affected())
}

/// Deletes at most `limit` payloads that are older than `days`, with their deliveries, and returns
/// their number.
pub async fn delete_old(db: impl PgExecutor<'_>, days: u32, limit: i64) -> Result<u64> {
    let done = sqlx::query!(
        "
        /* all tenants: cleanup deletes old rows of every organization */
        delete from webhook_payloads
        where ctid = any(array(
            select ctid
            from webhook_payloads
            where created_at < now() - $1::float8 * interval '1 day'
            limit $2
            for update skip locked
        ))
        ",
        f64::from(days),
        limit
    )
    .execute(db)
    .await?;
    Ok(done.rows_affected())
}

/// A webhook's attempts that are in progress in a process.
pub struct InProgress {
    /// The organization.
    pub org_id: OrgId,
    /// The webhook.
    pub webhook_id: WebhookId,
    /// The number of attempts.
    pub attempts: i64,
}

/// A delivery that this process attempts.
pub struct ClaimedDelivery {
    /// The organization.
    pub org_id: OrgId,
    /// The webhook.
    pub webhook_id: WebhookId,
    /// The delivery.
    pub id: DeliveryId,
    /// This attempt's number. A later claim has a greater one, so it fences the result.
    pub attempt: i32,
    /// The failed attempt count since the delivery was created or retried by hand.
    pub failures: i32,
    /// The event.
    pub event_id: EventId,
    /// The body.
    pub body: String,
    /// The receiver's URL.
    pub url: String,
    /// The secret's generation.
    pub secret_generation: i32,
    /// `true` if the delivery is also signed with the previous generation's secret.
    pub has_previous_secret: bool,
}

/// Claims at most `limit` due deliveries, for organizations with fewer attempts first. A delivery
/// without a result is due again after [`ATTEMPT_LEASE`].
pub async fn claim(
    db: impl PgExecutor<'_>,
    in_progress: &[InProgress],
    limit: i64,
) -> Result<Vec<ClaimedDelivery>> {
    let org_ids: Vec<&str> = in_progress.iter().map(|one| one.org_id.as_str()).collect();
    let webhook_ids = in_progress.iter().map(|one| one.webhook_id.as_str());
    let webhook_ids: Vec<&str> = webhook_ids.collect();
    let attempts: Vec<i64> = in_progress.iter().map(|one| one.attempts).collect();
    let claimed = sqlx::query_as!(
        ClaimedDelivery,
        r#"
        /* all tenants: one process delivers the events of every organization */
        with in_progress as (
            select *
            from unnest($1::text[], $2::text[], $3::bigint[]) as p (by_org, webhook_id, attempts)
        ), of_orgs as (
            select
                by_org,
                sum(attempts) as attempts
            from in_progress
            group by by_org
        ), due as (
            select
                w.org_id as by_org,
                d.webhook_id,
                d.id,
                coalesce(o.attempts, 0)
                    + row_number() over (
                        partition by w.org_id
                        order by w.failing_since is not null, d.next_attempt_at
                    ) as place
            from webhooks_with_pending_deliveries pending
            join webhooks w on w.id = pending.webhook_id
            left join in_progress p on p.webhook_id = w.id
            left join of_orgs o on o.by_org = w.org_id
            cross join lateral (
                select *
                from webhook_deliveries d
                where d.webhook_id = pending.webhook_id
                  and d.status = 'pending'
                  and d.next_attempt_at <= now()
                order by d.next_attempt_at
                limit greatest(
                    0,
                    least(
                        $6::bigint,
                        case when w.failing_since is null then $4::bigint else $5::bigint end
                            - coalesce(p.attempts, 0)
                    )
                )
            ) d
        ), chosen as (
            select d.webhook_id, d.id
            from webhook_deliveries d
            join (
                select *
                from due
                where place <= $4
                order by place, random()
                limit $6
            ) due
                on due.by_org = d.org_id
                and due.webhook_id = d.webhook_id
                and due.id = d.id
            where d.status = 'pending'
              and d.next_attempt_at <= now()
            for update of d skip locked
        )
        update webhook_deliveries d
        set
            attempt = d.attempt + 1,
            attempted_at = clock_timestamp(),
            next_attempt_at = clock_timestamp() + $7::float8 * interval '1 second'
        from chosen c, webhooks w, webhook_payloads y
        where w.id = c.webhook_id
          and d.org_id = w.org_id
          and d.webhook_id = c.webhook_id
          and d.id = c.id
          and y.org_id = d.org_id
          and y.event_id = d.event_id
        returning
            d.org_id as "org_id: OrgId",
            d.webhook_id as "webhook_id: WebhookId",
            d.id as "id: DeliveryId",
            d.attempt,
            d.failures,
            d.event_id as "event_id: EventId",
            y.body,
            w.url,
            w.secret_generation,
            coalesce(w.previous_secret_until > now(), false) as "has_previous_secret!"
        "#,
        &org_ids as &[&str],
        &webhook_ids as &[&str],
        &attempts,
        ORG_ATTEMPTS_MAX,
        FAILING_ATTEMPTS_MAX,
        limit,
        ATTEMPT_LEASE.as_secs_f64()
    )
    .fetch_all(db)
    .await?;
    Ok(claimed)
}

/// An attempt's result.
pub struct AttemptResult {
    /// The response's status, if there was one.
    pub response_status: Option<i32>,
    /// The failure's reason. `None` if the event was delivered.
    pub error: Option<DeliveryError>,
    /// The attempt's duration in milliseconds.
    pub duration_ms: i64,
    /// The time until the next attempt. `None` if the event was delivered, or no attempt is left.
    pub retry_in: Option<Duration>,
    /// `true` if the receiver is gone for good.
    pub is_gone: bool,
}

/// Records an attempt's result, unless a later one was started.
pub async fn record(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    claimed: &ClaimedDelivery,
    result: &AttemptResult,
) -> Result<()> {
    let AttemptResult {
        response_status,
        error,
        duration_ms,
        retry_in,
        is_gone,
    } = result;
    let status = match (error, retry_in) {
        (None, _) => DeliveryStatus::Delivered,
        (Some(_), Some(_)) => DeliveryStatus::Pending,
        (Some(_), None) => DeliveryStatus::Failed,
    };
    sqlx::query!(
        "
        with changed as (
            -- Locked first, as every transaction does that changes a webhook and its deliveries.
            select id
            from webhooks
            where org_id = $1
              and id = $2
              -- It may have changed since the attempt started.
              and url = $12
              -- Without this, all attempts of a webhook would wait for each other.
              and case
                  when $10 then failing_since is not null
                      or coalesce(last_delivered_at < clock_timestamp() - interval '1 second', true)
                  else failing_since is null or $11
              end
            for no key update
        ), recorded as (
            update webhook_deliveries
            set
                status = $5,
                failures = failures + case when $10 then 0 else 1 end,
                response_status = $6,
                error = $7,
                duration_ms = $8,
                next_attempt_at = clock_timestamp() + $9::float8 * interval '1 second'
            where org_id = $1
              and webhook_id = $2
              and id = $3
              and attempt = $4
              -- It was not retried by hand since the attempt started.
              and failures = $13
              and status = 'pending'
              and (select count(*) from changed) >= 0
            returning 1
        )
        update webhooks w
        set
            last_delivered_at = case when $10 then clock_timestamp() else last_delivered_at end,
            failing_since = case when not $10 then coalesce(failing_since, clock_timestamp()) end,
            gone_at = case when $11 then coalesce(gone_at, clock_timestamp()) else gone_at end
        from changed c
        where w.org_id = $1
          and w.id = c.id
          and exists (select from recorded)
        ",
        org_id.as_str(),
        claimed.webhook_id.as_str(),
        claimed.id.as_str(),
        claimed.attempt,
        status.as_str(),
        *response_status,
        error.map(DeliveryError::as_str),
        *duration_ms,
        retry_in.map(|delay| delay.as_secs_f64()),
        status == DeliveryStatus::Delivered,
        *is_gone,
        claimed.url,
        claimed.failures
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Returns the time in seconds for which the most delayed delivery has been due, 0 if none is. Failing
/// webhooks are left out: few deliveries are attempted at once.
pub async fn longest_delay(db: impl PgExecutor<'_>) -> Result<f64> {
    let delay = sqlx::query_scalar!(
        r#"
        /* all tenants: one process delivers the events of every organization */
        select
            greatest(0, extract(epoch from now() - min(first.next_attempt_at)))::float8 as "delay!"
        from webhooks_with_pending_deliveries pending
        join webhooks w on w.id = pending.webhook_id
        cross join lateral (
            select d.next_attempt_at
            from webhook_deliveries d
            where d.webhook_id = pending.webhook_id
              and d.status = 'pending'
            order by d.next_attempt_at
            limit 1
        ) first
        where w.failing_since is null
        "#
    )
    .fetch_one(db)
    .await?;
    Ok(delay)
}
