//! An organization's webhooks. Their secrets are derived, and stored nowhere.

use sqlx::PgExecutor;

use crate::model::error::Result;
use crate::model::event::{EventCursor, EventType};
use crate::model::ids::{OrgId, UserId, WebhookId};
use crate::model::timestamp::Timestamp;
use crate::model::webhook::{DisabledReason, FAILING_MAX, NewWebhook, Webhook, WebhookChange};
use crate::store::{PgConnection, lock_name};

/// Queries webhooks as their organization sees them. The columns stand between `$before` and `$after`.
macro_rules! query_webhooks {
    ($before:literal, $after:literal, $($argument:expr),+ $(,)?) => {
        sqlx::query_as!(
            Webhook,
            $before
                + r#"
            id as "id: WebhookId",
            org_id as "org_id: OrgId",
            url,
            events as "events: Vec<EventType>",
            description,
            enabled,
            disabled_reason as "disabled_reason: DisabledReason",
            secret_hint,
            created_by as "created_by: UserId",
            created_at as "created_at: Timestamp",
            updated_at as "updated_at: Timestamp",
            last_delivered_at as "last_delivered_at: Timestamp",
            failing_since as "failing_since: Timestamp"
            "# + $after,
            $($argument),+
        )
    };
}

/// Returns an organization's webhooks, the oldest first.
pub async fn list(db: impl PgExecutor<'_>, org_id: &OrgId) -> Result<Vec<Webhook>> {
    let webhooks = query_webhooks!(
        r#"
        select
            "#,
        r#"
        from webhooks
        where org_id = $1
        order by created_at, id
        "#,
        org_id.as_str()
    )
    .fetch_all(db)
    .await?;
    Ok(webhooks)
}

/// Returns a webhook, or `None` if the organization has no such webhook.
pub async fn find(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    webhook_id: &WebhookId,
) -> Result<Option<Webhook>> {
    let webhook = query_webhooks!(
        r#"
        select
            "#,
        r#"
        from webhooks
        where org_id = $1
          and id = $2
        "#,
        org_id.as_str(),
        webhook_id.as_str()
    )
    .fetch_optional(db)
    .await?;
    Ok(webhook)
}

/// Locks a webhook until the transaction ends, and returns it. Returns `None` if the organization has
/// no such webhook.
pub async fn lock(
    db: &mut PgConnection,
    org_id: &OrgId,
    webhook_id: &WebhookId,
) -> Result<Option<Webhook>> {
    let webhook = query_webhooks!(
        r#"
        select
            "#,
        r#"
        from webhooks
        where org_id = $1
          and id = $2
        for no key update
        "#,
        org_id.as_str(),
        webhook_id.as_str()
    )
    .fetch_optional(db)
    .await?;
    Ok(webhook)
}

/// Locks creating webhooks for the organization until the transaction ends, and returns their
/// number.
pub async fn lock_count(db: &mut PgConnection, org_id: &OrgId) -> Result<i64> {
    lock_name(&mut *db, &format!("webhooks of {org_id}")).await?;
    let count = sqlx::query_scalar!(
        r#"select count(*) as "count!" from webhooks where org_id = $1"#,
        org_id.as_str()
    )
    .fetch_one(db)
    .await?;
    Ok(count)
}

/// Stores a new webhook. Its first event is one that the feed does not show yet.
pub async fn insert(db: impl PgExecutor<'_>, org_id: &OrgId, new: &NewWebhook) -> Result<Webhook> {
    let NewWebhook {
        id,
        url,
        events,
        description,
        secret_hint,
        created_by,
    } = new;
    let webhook = query_webhooks!(
        r#"
        insert into webhooks (
            id,
            org_id,
            url,
            events,
            description,
            secret_hint,
            created_by,
            xid,
            position
        )
        values (
            $1,
            $2,
            $3,
            $4,
            $5,
            $6,
            $7,
            (pg_snapshot_xmin(pg_current_snapshot())::text::bigint - 1)::text::xid8,
            9223372036854775807
        )
        returning
            "#,
        "",
        id.as_str(),
        org_id.as_str(),
        url,
        events as &[EventType],
        description.as_deref(),
        secret_hint,
        created_by.as_str()
    )
    .fetch_one(db)
    .await?;
    Ok(webhook)
}

/// Changes a webhook. The caller holds the lock on it. If it is enabled, it continues with the events
/// from now on. If it is enabled or has a new URL, earlier failures are forgotten.
pub async fn update(
    db: &mut PgConnection,
    org_id: &OrgId,
    webhook_id: &WebhookId,
    change: &WebhookChange,
) -> Result<Webhook> {
    let WebhookChange {
        url,
        events,
        description,
        disabled_reason,
    } = change;
    let is_enabled = matches!(disabled_reason, Some(None));
    let webhook = query_webhooks!(
        r#"
        update webhooks
        set
            url = coalesce($3, url),
            events = coalesce($4, events),
            description = case when $5 then $6 else description end,
            enabled = case when $7 then $8::text is null else enabled end,
            disabled_reason = case when $7 then $8 else disabled_reason end,
            updated_at = clock_timestamp(),
            failing_since = case when $9 or url <> $3 then null else failing_since end,
            gone_at = case when $9 or url <> $3 then null else gone_at end,
            xid = case
                when $9 then (pg_snapshot_xmin(pg_current_snapshot())::text::bigint - 1)::text::xid8
                else xid
            end,
            position = case when $9 then 9223372036854775807 else position end
        where org_id = $1
          and id = $2
        returning
            "#,
        "",
        org_id.as_str(),
        webhook_id.as_str(),
        url.as_deref(),
        events.as_deref() as Option<&[EventType]>,
        description.is_some(),
        description.as_ref().and_then(Option::as_deref),
        disabled_reason.is_some(),
        disabled_reason.flatten().map(DisabledReason::as_str),
        is_enabled
    )
    .fetch_one(db)
    .await?;
    Ok(webhook)
}

/// Deletes a webhook, and returns it. Its deliveries are no longer attempted. Cleanup deletes them
/// with their events.
pub async fn delete(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    webhook_id: &WebhookId,
) -> Result<Option<Webhook>> {
    let webhook = query_webhooks!(
        r#"
        delete from webhooks
        where org_id = $1
          and id = $2
        returning
            "#,
        "",
        org_id.as_str(),
        webhook_id.as_str()
    )
    .fetch_optional(db)
    .await?;
    Ok(webhook)
}

/// Returns a webhook's current secret's generation. The caller holds the lock on it.
pub async fn secret_generation(
    db: &mut PgConnection,
    org_id: &OrgId,
    webhook_id: &WebhookId,
) -> Result<i32> {
    let generation = sqlx::query_scalar!(
        "select secret_generation from webhooks where org_id = $1 and id = $2",
        org_id.as_str(),
        webhook_id.as_str()
    )
    .fetch_one(db)
    .await?;
    Ok(generation)
}

/// Replaces a webhook's secret by a generation's. Deliveries are also signed with the secret
/// before for `overlap_hours`. The caller holds the lock on the webhook.
pub async fn rotate(
    db: &mut PgConnection,
    org_id: &OrgId,
    webhook_id: &WebhookId,
    generation: i32,
    secret_hint: &str,
    overlap_hours: i64,
) -> Result<Webhook> {
    let webhook = query_webhooks!(
        r#"
        update webhooks
        set
            secret_generation = $3,
            previous_secret_until = clock_timestamp() + $5::float8 * interval '1 hour',
            secret_hint = $4,
            updated_at = clock_timestamp()
        where org_id = $1
          and id = $2
        returning
            "#,
        "",
        org_id.as_str(),
        webhook_id.as_str(),
        generation,
        secret_hint,
        overlap_hours as f64
    )
    .fetch_one(db)
    .await?;
    Ok(webhook)
}

/// The feed's part that a webhook has not been sent yet.
pub struct FeedReader {
    /// The types of the events that are sent.
    pub events: Vec<EventType>,
    /// The position in the feed.
    pub cursor: EventCursor,
}

/// Returns these organizations' enabled webhooks, or all, with events after their positions
/// in the feed. Suspended organizations' webhooks are left out.
pub async fn list_behind(
    db: impl PgExecutor<'_>,
    org_ids: Option<&[String]>,
) -> Result<Vec<(OrgId, WebhookId)>> {
    let rows = sqlx::query!(
        r#"
        /* all tenants: one process sends the events of every organization */
        select
            w.org_id as "org_id: OrgId",
            w.id as "id: WebhookId"
        from webhooks w
        join orgs o on o.id = w.org_id
        left join (
            select *
            from shared_events
            order by xid desc, position desc
            limit 1
        ) s on true
        where w.enabled
          and o.suspended_at is null
          and ($1::text[] is null or w.org_id = any($1))
          -- Without the view `org_events`, which would be computed for all organizations.
          and (
              exists (
                  select from events e
                  where e.org_id = w.org_id
                    and (e.xid, e.position) > (w.xid, w.position)
              )
              or (
                  s.timestamp > o.created_at
                  and (s.xid, s.position) > (w.xid, w.position)
              )
          )
        "#,
        org_ids
    )
    .fetch_all(db)
    .await?;
    Ok(rows.into_iter().map(|row| (row.org_id, row.id)).collect())
}

/// Locks an enabled webhook until the transaction ends, and returns its position in the feed. Returns
/// `None` if there is no such webhook any more, or if another transaction holds the lock.
pub async fn lock_reader(
    db: &mut PgConnection,
    org_id: &OrgId,
    webhook_id: &WebhookId,
) -> Result<Option<FeedReader>> {
    let row = sqlx::query!(
        r#"
        select
            events as "events: Vec<EventType>",
            xid::text::bigint as "xid!",
            position
        from webhooks
        where org_id = $1
          and id = $2
          and enabled
        for no key update skip locked
        "#,
        org_id.as_str(),
        webhook_id.as_str()
    )
    .fetch_optional(db)
    .await?;
    Ok(row.map(|row| FeedReader {
        events: row.events,
        cursor: EventCursor {
            xid: row.xid,
            position: row.position,
        },
    }))
}

/// Changes a webhook's position in the feed. The caller holds the lock on it.
pub async fn set_position(
    db: &mut PgConnection,
    org_id: &OrgId,
    webhook_id: &WebhookId,
    cursor: EventCursor,
) -> Result<()> {
    sqlx::query!(
        "
        update webhooks
        set
            xid = $3::bigint::text::xid8,
            position = $4
        where org_id = $1
          and id = $2
        ",
        org_id.as_str(),
        webhook_id.as_str(),
        cursor.xid,
        cursor.position
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Moves a webhook's position back to the first event since a time, unless it is there already.
/// The caller holds the lock on it.
pub async fn move_back(
    db: &mut PgConnection,
    org_id: &OrgId,
    webhook_id: &WebhookId,
    since: Timestamp,
) -> Result<()> {
    sqlx::query!(
        "
        update webhooks w
        set
            xid = e.xid,
            position = e.position - 1
        from (
            select xid, position
            from org_events
            where org_id = $1
              and timestamp >= $3
            order by xid, position
            limit 1
        ) e
        where w.org_id = $1
          and w.id = $2
          and (e.xid, e.position - 1) < (w.xid, w.position)
        ",
        org_id.as_str(),
        webhook_id.as_str(),
        since as Timestamp
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Returns the enabled webhooks that are to be disabled: their receivers are gone, or have failed for
/// [`FAILING_MAX`].
pub async fn list_unreachable(db: impl PgExecutor<'_>) -> Result<Vec<(OrgId, WebhookId)>> {
    let rows = sqlx::query!(
        r#"
        /* all tenants: one process disables the webhooks of every organization */
        select
            org_id as "org_id: OrgId",
            id as "id: WebhookId"
        from webhooks
        where enabled
          and (gone_at is not null or failing_since < now() - $1::float8 * interval '1 second')
        order by random()
        limit 100
        "#,
        FAILING_MAX.as_secs_f64()
    )
    .fetch_all(db)
    .await?;
    Ok(rows.into_iter().map(|row| (row.org_id, row.id)).collect())
}

/// Locks a webhook until the transaction ends, and returns the reason why it is to be disabled. Returns
/// `None` if there is none any more.
pub async fn lock_unreachable(
    db: &mut PgConnection,
    org_id: &OrgId,
    webhook_id: &WebhookId,
) -> Result<Option<DisabledReason>> {
    let is_gone = sqlx::query_scalar!(
        r#"
        select gone_at is not null as "is_gone!"
        from webhooks
        where org_id = $1
          and id = $2
          and enabled
          and (gone_at is not null or failing_since < now() - $3::float8 * interval '1 second')
        for no key update
        "#,
        org_id.as_str(),
        webhook_id.as_str(),
        FAILING_MAX.as_secs_f64()
    )
    .fetch_optional(db)
    .await?;
    Ok(is_gone.map(|is_gone| match is_gone {
        true => DisabledReason::Gone,
        false => DisabledReason::Failing,
    }))
}
