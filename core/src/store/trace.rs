//! What a job's trace is made of.

use serde::Deserialize;
use sqlx::PgExecutor;
use sqlx::types::Json;

use crate::model::error::Result;
use crate::model::ids::{JobId, OrgId};
use crate::model::timestamp::Timestamp;

/// When and under which trace a job was asked for.
#[derive(Debug, Clone)]
pub struct TraceRow {
    /// When the request began.
    pub requested_at: Timestamp,
    /// 32 hex digits.
    pub trace_id: String,
    /// The client's span, 16 hex digits.
    pub parent_span_id: Option<String>,
}

/// One try, as the worker measured it.
#[derive(Debug, Clone)]
pub struct AttemptRow {
    /// Its number, from 1.
    pub attempt: i32,
    /// When it began.
    pub started_at: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// How it ended.
    pub outcome: Option<String>,
    /// What it did; nothing is known of a try whose worker died.
    pub phases: Option<Json<Vec<PhaseRow>>>,
}

/// A part of an attempt, as offsets from its start in microseconds.
#[derive(Debug, Clone, Deserialize)]
pub struct PhaseRow {
    /// What was done.
    pub name: String,
    /// When it began.
    pub start_us: i64,
    /// When it ended.
    pub end_us: i64,
}

/// When and under which trace a job of the organization was asked for.
pub async fn find(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    job_id: &JobId,
) -> Result<Option<TraceRow>> {
    let row = sqlx::query_as!(
        TraceRow,
        r#"select requested_at as "requested_at: Timestamp", trace_id, parent_span_id from jobs where org_id = $1 and id = $2"#,
        org_id.as_str(),
        job_id.as_str()
    )
    .fetch_optional(db)
    .await?;
    Ok(row)
}

/// The tries of a job of the organization, in order.
pub async fn attempts(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    job_id: &JobId,
) -> Result<Vec<AttemptRow>> {
    let rows = sqlx::query_as!(
        AttemptRow,
        r#"select attempt, started_at as "started_at: Timestamp", ended_at as "ended_at: Timestamp", outcome,
                  phases as "phases: Json<Vec<PhaseRow>>"
           from job_attempts where org_id = $1 and job_id = $2 order by attempt"#,
        org_id.as_str(),
        job_id.as_str()
    )
    .fetch_all(db)
    .await?;
    Ok(rows)
}
