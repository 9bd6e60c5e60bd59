//! An installation that is ready for load: a suite, and an organization whose plan allows everything.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use sqlx::PgConnection;

use crate::client::Client;
use crate::servers::Trouble;
use crate::stack::{Ground, Plan, Stack};
use crate::{databases, demo_suite};

/// See the module.
pub struct Site {
    /// Its processes.
    pub stack: Stack,
    /// Its database, as its owner.
    pub database: PgConnection,
    /// The organization.
    pub org_id: String,
    /// The organization's key.
    pub key: String,
}

impl Site {
    /// Starts one.
    ///
    /// # Errors
    /// When something cannot be started.
    pub async fn start(ground: &Arc<Ground>, plan: Plan) -> Result<Self, Trouble> {
        let stack = Stack::start(ground, plan).await?;
        let folder = ground.servers.folder().join("lunch");
        if !folder.exists() {
            demo_suite::write(&folder).map_err(Trouble::because("cannot write the suite"))?;
        }
        stack
            .operate(&["suite", "publish", &folder.to_string_lossy()])
            .await?;
        let org = stack
            .operate(&[
                "org",
                "create",
                "--name",
                "Load",
                "--plan",
                "team",
                "--owner-email",
                "owner@example.org",
            ])
            .await?;
        let org_id = org["org_id"].as_str().unwrap_or_default().to_owned();
        let key = stack
            .operate(&["key", "create", "--org", &org_id, "--name", "load"])
            .await?;
        let key = key["key"].as_str().unwrap_or_default().to_owned();
        let mut database = databases::connect(&stack.database.owner_url).await?;
        databases::widen_plans(&mut database).await?;
        Ok(Self {
            stack,
            database,
            org_id,
            key,
        })
    }

    /// So many different submissions, which share the suite's items among them.
    ///
    /// # Errors
    /// When the api does not answer.
    pub async fn submissions(&self, count: usize) -> Result<Vec<Value>, Trouble> {
        let client = Client::new(self.stack.url(), Some(&self.key));
        let page = client
            .get(&format!(
                "/v1/suites/{}/items?limit=400",
                demo_suite::SUITE_ID
            ))
            .await?;
        let items = page.body["items"].as_array().cloned().unwrap_or_default();
        Ok(items
            .chunks((items.len() / count).max(1))
            .take(count)
            .map(demo_suite::submission)
            .collect())
    }
}

/// Waits until no job waits or runs any more, for as long as `patience`. How long it took.
///
/// # Errors
/// When the database does not answer.
pub async fn drain(database: &mut PgConnection, patience: Duration) -> Result<Duration, Trouble> {
    let began = Instant::now();
    let open = "select exists(select from jobs where status in ('queued', 'running'))";
    while began.elapsed() < patience {
        if !sqlx::query_scalar(open)
            .fetch_one(&mut *database)
            .await
            .map_err(Trouble::because("cannot look for jobs"))?
        {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(began.elapsed())
}
