//! The accounts after a run: every acknowledged submission against the jobs in the database.

use std::collections::HashMap;

use sqlx::PgConnection;

use super::{ClientLog, Report};
use crate::servers::Trouble;

/// A job in the database.
#[derive(sqlx::FromRow)]
pub(super) struct Row {
    pub(super) id: String,
    pub(super) status: String,
    /// The score of an eval, or the digest of a prediction job's output. Two scores have the
    /// same text only if they have the same bits.
    pub(super) outcome: Option<String>,
    charges: i64,
    refunds: i64,
    attempts: i64,
}

/// Reads all jobs of the organization.
pub(super) async fn rows(database: &mut PgConnection, org_id: &str) -> Result<Vec<Row>, Trouble> {
    let sql = "select j.id, j.status, coalesce(encode(u.digest, 'hex'), j.result->>'value') as outcome,
                      (select count(*) from usage_ledger l where l.job_id = j.id and l.kind = 'charge') as charges,
                      (select count(*) from usage_ledger l where l.job_id = j.id and l.kind = 'refund') as refunds,
                      (select count(*) from job_attempts a where a.job_id = j.id) as attempts
               from jobs j
               left join uploads u on u.id = j.output_upload_id and u.status = 'ready'
               where j.org_id = $1";
    sqlx::query_as(sql)
        .bind(org_id)
        .fetch_all(database)
        .await
        .map_err(Trouble::because("cannot read the jobs"))
}

/// Compares the responses that clients received with the jobs in the database. `expected` has the
/// jobs of each request from before the first fault, with their outcomes.
pub(super) fn compare(
    rows: &[Row],
    client_log: &ClientLog,
    expected: &[Vec<(String, String)>],
    read_before: &HashMap<String, String>,
) -> Report {
    let there: HashMap<&str, &Row> = rows.iter().map(|row| (row.id.as_str(), row)).collect();
    let known = client_log.submissions.iter().flat_map(|(ids, variant)| {
        let outcomes = expected[*variant]
            .iter()
            .map(|(_, outcome)| outcome.as_str());
        ids.iter().map(String::as_str).zip(outcomes)
    });
    // The jobs from before the first fault count, too.
    let first = expected.iter().flatten();
    let known: HashMap<&str, &str> = known
        .chain(first.map(|(id, outcome)| (id.as_str(), outcome.as_str())))
        .collect();
    let mut report = Report {
        acknowledged: client_log.submissions.len(),
        predictions: client_log
            .submissions
            .iter()
            .filter(|(ids, _)| ids.len() > 1)
            .count(),
        wrong_replays: client_log.wrong_replays,
        ..Report::default()
    };
    for (id, outcome) in &known {
        match there.get(id) {
            None => report.missing += 1,
            Some(row) if row.status != "succeeded" => report.lost += 1,
            Some(row) => {
                let before = read_before.get(*id).map_or(*outcome, String::as_str);
                let is_unchanged = row.outcome.as_deref() == Some(*outcome) && before == *outcome;
                report.changed += usize::from(!is_unchanged);
            }
        }
    }
    for row in rows {
        report.created_twice += usize::from(!known.contains_key(row.id.as_str()));
        report.charged_wrong += usize::from((row.charges, row.refunds) != (1, 0));
        report.executions += row.attempts;
        report.retries += (row.attempts - 1).max(0);
    }
    report
}
