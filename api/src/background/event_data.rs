//! Event data: an event about a job or a suite stores its id, and shows the resource.

use std::collections::HashMap;

use assay_core::model::event::Event;
use assay_core::model::job::JobRow;
use assay_core::store::event::{EventData, EventRow};
use assay_core::{Error, JobId, OrgId, Result, store};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::app::App;

/// Returns events with their data. An event about a job or suite that no longer exists is left out, and one
/// about a suite that the organization no longer sees.
pub async fn render(app: &App, org_id: &OrgId, rows: Vec<EventRow>) -> Result<Vec<Event>> {
    let ids = rows.iter().filter_map(|row| match &row.data {
        EventData::Job(job_id) => Some((org_id.clone(), job_id.clone())),
        EventData::Suite(..) | EventData::Object(_) => None,
    });
    let ids: Vec<(OrgId, JobId)> = ids.collect();
    let mut jobs: HashMap<(OrgId, JobId), JobRow> = match ids.as_slice() {
        [] => HashMap::new(),
        ids => store::job::find_all(&app.db.jobs.get(), ids).await?,
    };
    let mut suites = HashMap::new();
    let mut events = Vec::with_capacity(rows.len());
    for row in rows {
        let EventRow {
            id,
            r#type,
            timestamp,
            cursor: _,
            data,
        } = row;
        let data = match data {
            EventData::Object(data) => Some(data),
            EventData::Job(job_id) => {
                let job = jobs.remove(&(org_id.clone(), job_id));
                job.map(|job| object(&job.into_job(&app.settings.public_url, None)))
                    .transpose()?
            }
            EventData::Suite(suite_id, version) => {
                let key = (suite_id.to_string(), version);
                if !suites.contains_key(&key) {
                    let db = app.db.jobs.get();
                    let suite =
                        store::suite::find(&db, Some(org_id), &suite_id, Some(&key.1)).await?;
                    let suite = suite
                        .map(|row| object(&row.into_suite(&app.settings.common.hfm_sha)))
                        .transpose()?;
                    suites.insert(key.clone(), suite);
                }
                suites.get(&key).cloned().flatten()
            }
        };
        events.extend(data.map(|data| Event {
            id,
            r#type,
            timestamp,
            org_id: org_id.clone(),
            data,
        }));
    }
    Ok(events)
}

/// Returns a resource as a JSON object.
pub fn object(resource: &impl Serialize) -> Result<Map<String, Value>> {
    match serde_json::to_value(resource) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(Error::internal("the data of an event is no object")),
        Err(error) => Err(Error::internal(error)),
    }
}
