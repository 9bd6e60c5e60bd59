//! An installation that is ready for load: it has a suite, and an organization whose plan has
//! practically no limits.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use sqlx::PgConnection;

use crate::client::Client;
use crate::servers::Trouble;
use crate::stack::{Ground, Plan, Stack};
use crate::{databases, demo_suite};

/// A running installation with a suite, an organization and a key.
pub struct Site {
    /// The processes of the installation.
    pub stack: Stack,
    /// A connection to the database as its owner.
    pub database: PgConnection,
    /// The id of the organization.
    pub org_id: String,
    /// The organization's API key.
    pub key: String,
}

impl Site {
    /// Starts a stack, publishes `suite:lunch` and creates the organization and its key.
    ///
    /// # Errors
    /// If something cannot be started.
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

    /// Returns `count` different request bodies, each with its share of the suite's items.
    ///
    /// # Errors
    /// If the API does not respond.
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

/// Waits until no job is queued or running, at most for `timeout`, and returns the time that it
/// took.
///
/// # Errors
/// If the database does not respond.
pub async fn drain(database: &mut PgConnection, timeout: Duration) -> Result<Duration, Trouble> {
    let began = Instant::now();
    // Each part has an index, also among millions of jobs.
    let open = "select exists(select from jobs where status = 'queued')
        or exists(select from jobs where status = 'running')";
    while began.elapsed() < timeout {
        if !sqlx::query_scalar(open)
            .fetch_one(&mut *database)
            .await
            .map_err(Trouble::because("cannot read the jobs"))?
        {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(began.elapsed())
}
