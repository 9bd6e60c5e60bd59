//! The emails that users have turned on, and the events for them.

use sqlx::PgExecutor;
use sqlx::types::Json;

use crate::model::error::Result;
use crate::model::event::{EventType, UsageThreshold};
use crate::model::ids::{JobId, OrgId, UserId};
use crate::model::mail_preferences::{FinishedJob, JobMails, MailPreferences, News};
use crate::store::PgConnection;

/// Minutes between two looks for a user's events.
const ROUND_MINUTES: i32 = 1;

/// Minutes between two emails to a user. Events in between are reported together.
const PAUSE_MINUTES: i32 = 10;

/// The most events that an email reports.
const EVENTS_MAX: usize = 50;

/// Returns the emails that a user has turned on.
pub async fn get(db: impl PgExecutor<'_>, user_id: &UserId) -> Result<MailPreferences> {
    let preferences = sqlx::query_as!(
        MailPreferences,
        r#"
        select
            job_mails as "job_mails: JobMails",
            thresholds
        from mail_preferences
        where user_id = $1
        "#,
        user_id.as_str()
    )
    .fetch_optional(db)
    .await?;
    Ok(preferences.unwrap_or(MailPreferences::OFF))
}

/// Stores the emails that a user turns on. Only later events are reported.
pub async fn set(
    db: impl PgExecutor<'_>,
    user_id: &UserId,
    preferences: MailPreferences,
) -> Result<()> {
    sqlx::query!(
        "
        insert into mail_preferences (user_id, job_mails, thresholds, reported_before, next_at)
        values ($1, $2, $3, pg_current_xact_id(), now())
        on conflict (user_id) do update
            set
                job_mails = excluded.job_mails,
                thresholds = excluded.thresholds,
                reported_before = excluded.reported_before
        ",
        user_id.as_str(),
        preferences.job_mails.as_str(),
        preferences.thresholds
    )
    .execute(db)
    .await?;
    Ok(())
}

/// An event of a user in an organization. Without events, a user has one row.
struct NewsRow {
    user_id: UserId,
    email: String,
    org_id: Option<OrgId>,
    org: Option<String>,
    r#type: Option<EventType>,
    threshold: Option<Json<UsageThreshold>>,
    job_id: Option<JobId>,
    label: Option<String>,
    subject: Option<String>,
}

/// Takes the news for at most `limit` users who are due, so that no other process reports them.
/// Returns them with the user count.
///
/// As in the event feed, an event is taken only when no transaction that began before it is
/// open. Events in suspended organizations, and in those that have only invited the user, are not
/// reported later either.
pub async fn take_news(db: &mut PgConnection, limit: i64) -> Result<(Vec<News>, usize)> {
    let rows = sqlx::query_as!(
        NewsRow,
        r#"
        /* all tenants: looks for events of every organization of the users */
        with due as (
            select
                m.user_id,
                m.job_mails,
                m.thresholds,
                -- A database that was restored from a dump counts transactions from the beginning.
                least(m.reported_before, h.horizon) as reported_before,
                h.horizon
            from mail_preferences m
            cross join (select pg_snapshot_xmin(pg_current_snapshot()) as horizon) h
            where m.next_at <= now()
              and (m.job_mails <> 'none' or m.thresholds)
            order by m.next_at
            limit $1
            for update of m skip locked
        ), found as (
            select
                d.user_id,
                s.org_id,
                e.type,
                e.job_id,
                e.data,
                e.xid,
                e.position
            from due d
            join memberships s on s.user_id = d.user_id
            join orgs o
                on o.id = s.org_id
                and o.suspended_at is null
            cross join lateral (
                select *
                from events e
                where e.org_id = s.org_id
                  and e.xid >= d.reported_before
                  and e.xid < d.horizon
                  and (
                      (e.type = $3 and d.job_mails <> 'none')
                      or (e.type = $4 and d.job_mails = 'finished')
                      or (e.type = $5 and d.thresholds)
                  )
                -- Many jobs must not hide that a limit is reached.
                order by e.type <> $5, e.xid, e.position
                limit $2
            ) e
            -- Anybody can invite an address: the user must have acted for the organization.
            where not s.by_invite
               or exists(
                   select from sessions x
                   where x.user_id = d.user_id
                     and x.org_id = s.org_id
               )
        ), reported as (
            update mail_preferences m
            set
                reported_before = case
                    when m.reported_before > pg_snapshot_xmax(pg_current_snapshot()) then d.horizon
                    else greatest(m.reported_before, d.horizon)
                end,
                next_at = now() + interval '1 minute' * case
                    when exists(select from found f where f.user_id = d.user_id) then $7::integer
                    else $6::integer
                end
            from due d
            where m.user_id = d.user_id
        )
        select
            d.user_id as "user_id!: UserId",
            u.email as "email!",
            f.org_id as "org_id?: OrgId",
            o.name as "org?",
            f.type as "type?: EventType",
            f.data as "threshold: Json<UsageThreshold>",
            j.id as "job_id?: JobId",
            j.label as "label?",
            coalesce(j.suite_id, j.model_id) as subject
        from due d
        join users u on u.id = d.user_id
        left join found f on f.user_id = d.user_id
        left join orgs o on o.id = f.org_id
        left join jobs j
            on j.org_id = f.org_id
            and j.id = f.job_id
        order by d.user_id, f.org_id, f.type <> $5, f.xid, f.position
        "#,
        limit,
        // One more shows that there are more.
        EVENTS_MAX as i64 + 1,
        EventType::JobFailed.as_str(),
        EventType::JobSucceeded.as_str(),
        EventType::UsageThreshold.as_str(),
        ROUND_MINUTES,
        PAUSE_MINUTES
    )
    .fetch_all(db)
    .await?;
    let users = rows
        .chunk_by(|one, next| one.user_id == next.user_id)
        .count();
    let news = rows
        .chunk_by(|one, next| (&one.user_id, &one.org_id) == (&next.user_id, &next.org_id))
        .filter_map(news_in_org);
    Ok((news.collect(), users))
}

/// Returns the news of one user in one organization. `None` for a user without events.
fn news_in_org(rows: &[NewsRow]) -> Option<News> {
    let first = rows.first()?;
    let mut news = News {
        email: first.email.clone(),
        org: first.org.clone()?,
        jobs: Vec::new(),
        has_more: rows.len() > EVENTS_MAX,
        thresholds: Vec::new(),
    };
    for row in rows.iter().take(EVENTS_MAX) {
        news.thresholds
            .extend(row.threshold.as_ref().map(|threshold| threshold.0.clone()));
        // The job may have been deleted.
        if let (Some(id), Some(subject)) = (&row.job_id, &row.subject) {
            news.jobs.push(FinishedJob {
                id: id.clone(),
                label: row.label.clone(),
                subject: subject.clone(),
                has_succeeded: row.r#type == Some(EventType::JobSucceeded),
            });
        }
    }
    Some(news)
}
