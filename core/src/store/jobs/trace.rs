//! The rows from which a job's trace document is built.

use serde::Deserialize;
use sqlx::PgExecutor;
use sqlx::types::Json;

use crate::model::error::Result;
use crate::model::ids::{JobId, OrgId};
use crate::model::timestamp::Timestamp;

/// A job's request, and its trace.
#[derive(Debug, Clone)]
pub struct TraceRow {
    /// The request's start.
    pub requested_at: Timestamp,
    /// The trace's id, 32 hex digits.
    pub trace_id: String,
    /// The client span's id, 16 hex digits.
    pub parent_span_id: Option<String>,
}

/// One attempt, as the worker measured it.
#[derive(Debug, Clone)]
pub struct AttemptRow {
    /// The attempt's number, from 1.
    pub attempt: i32,
    /// The attempt's start.
    pub started_at: Timestamp,
    /// The attempt's end. `None` while it is running.
    pub ended_at: Option<Timestamp>,
    /// The attempt's outcome. `None` while it is running.
    pub outcome: Option<String>,
    /// The attempt's phases. `None` if the worker has not reported them, for example because
    /// it died.
    pub phases: Option<Json<Vec<PhaseRow>>>,
}

/// An attempt's phase, as offsets from its start in microseconds.
#[derive(Debug, Clone, Deserialize)]
pub struct PhaseRow {
    /// The phase's name.
    pub name: String,
    /// Microseconds until the phase starts.
    pub start_us: i64,
    /// Microseconds until the phase ends.
    pub end_us: i64,
}

/// Returns the request and the trace for an organization's job.
pub async fn find(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    job_id: &JobId,
) -> Result<Option<TraceRow>> {
    let row = sqlx::query_as!(
        TraceRow,
        r#"
        select
            requested_at as "requested_at: Timestamp",
            trace_id,
            parent_span_id
        from jobs
        where org_id = $1
          and id = $2
        "#,
        org_id.as_str(),
        job_id.as_str()
    )
    .fetch_optional(db)
    .await?;
    Ok(row)
}

/// Returns the attempts of an organization's job, in order.
pub async fn attempts(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    job_id: &JobId,
) -> Result<Vec<AttemptRow>> {
    let rows = sqlx::query_as!(
        AttemptRow,
        r#"
        select
            attempt,
            started_at as "started_at: Timestamp",
            ended_at as "ended_at: Timestamp",
            outcome,
            phases as "phases: Json<Vec<PhaseRow>>"
        from job_attempts
        where org_id = $1
          and job_id = $2
        order by attempt
        "#,
        org_id.as_str(),
        job_id.as_str()
    )
    .fetch_all(db)
    .await?;
    Ok(rows)
}
