//! An installation that is ready for load: it has a suite, and an organization whose plan has
//! practically no limits.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sqlx::PgConnection;

use crate::client::Client;
use crate::servers::Trouble;
use crate::stack::{Ground, Stack, StackSize};
use crate::wait::wait_timeout;
use crate::{databases, demo_suite};

/// An organization with an API key.
pub struct Org {
    /// The id of the organization.
    pub id: String,
    /// Its owner's email address.
    pub owner_email: String,
    /// The organization's API key.
    pub key: String,
}

/// Creates an organization on this plan, and its key.
///
/// # Errors
/// If the organization or the key cannot be created.
pub async fn create_org(stack: &Stack, plan: &str) -> Result<Org, Trouble> {
    let email = format!("{}@example.org", databases::fresh_name("owner"));
    let created = [
        "org",
        "create",
        "--name",
        "Acme",
        "--plan",
        plan,
        "--owner-email",
        &email,
    ];
    let org = stack.operate(&created).await?;
    let id = org["org_id"].as_str().unwrap_or_default().to_owned();
    let key = stack
        .operate(&["key", "create", "--org", &id, "--name", "ci"])
        .await?;
    let key = key["key"].as_str().unwrap_or_default().to_owned();
    Ok(Org {
        id,
        owner_email: email,
        key,
    })
}

/// Uploads this many predictions, in parts, and returns the body of a submission that refers to
/// them. Their items are not in the suite: there is no limit to their number.
///
/// # Errors
/// If the API does not accept the upload.
pub async fn upload_predictions(client: &Client, predictions: usize) -> Result<Value, Trouble> {
    let lines: String = (0..predictions)
        .map(|n| format!("{{\"item_id\":\"item-{n}\",\"prediction\":[\"ramen\"]}}\n"))
        .collect();
    let accepted = async |request| {
        let response = client.send(request).await?;
        if response.status != 200 {
            let sentence = format!("the upload was not accepted: {}", response.body);
            return Err(Trouble::new(sentence));
        }
        Ok(())
    };
    let opened = client
        .post("/v1/uploads", &json!({"kind": "predictions"}))
        .await?;
    let Some(upload_id) = opened.body["id"].as_str() else {
        let sentence = format!("the upload was not opened: {}", opened.body);
        return Err(Trouble::new(sentence));
    };
    for (number, part) in lines.as_bytes().chunks(64 << 20).enumerate() {
        let path = format!("/v1/uploads/{upload_id}/parts/{}", number + 1);
        accepted(client.request("PUT", &path).body(part.to_vec())).await?;
    }
    let path = format!("/v1/uploads/{upload_id}/complete");
    accepted(client.request("POST", &path)).await?;
    Ok(json!({"suite_id": demo_suite::SUITE_ID, "input_ref": upload_id}))
}

/// Submits an eval with this body, and waits until it has succeeded.
///
/// # Errors
/// If the API does not accept it, or it fails.
pub async fn run_eval(client: &Client, body: &Value) -> Result<(), Trouble> {
    let mut job = client.post("/v1/evals", body).await?;
    loop {
        let path = match (
            job.status,
            job.body["status"].as_str(),
            job.body["id"].as_str(),
        ) {
            (_, Some("succeeded"), _) => return Ok(()),
            (200 | 202, Some("queued" | "running"), Some(id)) => format!("/v1/jobs/{id}?wait=30"),
            _ => return Err(Trouble::new(format!("the eval has failed: {}", job.body))),
        };
        job = client.get(&path).await?;
    }
}

/// A running installation with a suite, an organization and a key.
pub struct Site {
    /// The installation's processes.
    pub stack: Stack,
    /// A connection to the database as its owner.
    pub database: PgConnection,
    /// The organization.
    pub org: Org,
}

impl Site {
    /// Starts a stack, publishes `suite:lunch` and creates the organization and its key.
    ///
    /// # Errors
    /// If something cannot be started.
    pub async fn start(ground: &Arc<Ground>, plan: StackSize) -> Result<Self, Trouble> {
        let stack = Stack::start(ground, plan).await?;
        let folder = ground.servers.folder().join("lunch");
        if !folder.exists() {
            demo_suite::write(&folder).map_err(Trouble::because("cannot write the suite"))?;
        }
        stack
            .operate(&["suite", "publish", &folder.to_string_lossy()])
            .await?;
        let org = create_org(&stack, "team").await?;
        let mut database = databases::connect(&stack.database.owner_url).await?;
        databases::widen_plans(&mut database).await?;
        Ok(Self {
            stack,
            database,
            org,
        })
    }

    /// Returns `count` different request bodies, each with its share of the suite's items.
    ///
    /// # Errors
    /// If the API does not respond.
    pub async fn submissions(&self, count: usize) -> Result<Vec<Value>, Trouble> {
        let client = Client::new(self.stack.url(), Some(&self.org.key));
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

/// Waits until no job is queued or running, at most for [`wait_timeout`], and returns the time that
/// it took.
///
/// # Errors
/// If the database does not respond.
pub async fn drain(database: &mut PgConnection) -> Result<Duration, Trouble> {
    let began = Instant::now();
    // Each part has an index, also among millions of jobs.
    let open = "select exists(select from jobs where status = 'queued')
        or exists(select from jobs where status = 'running')";
    while began.elapsed() < wait_timeout() {
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
