//! Plans of the statements that each job executes. They are made when the tables are small, and
//! used until the tables have grown.

use assay_core::store::{self, PoolProfile};
use serde_json::Value;
use sqlx::{AssertSqlSafe, Row as _};

use crate::harness::world;

#[tokio::test(flavor = "multi_thread")]
async fn jobs_are_found_by_their_ids() {
    let world = world().await;
    let pool = store::pool(
        &world.stack.database.owner_url,
        1,
        "test",
        PoolProfile::WORK,
    )
    .unwrap();
    let mut database = pool.acquire().await.unwrap();
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../.sqlx");
    let mut checked = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        let query: Value = serde_json::from_str(&text).unwrap();
        let sql = query["query"].as_str().unwrap();
        let is_of_attempt = ["fence the write", "claimed as (", "wanted(by_org, job_id)"];
        if !is_of_attempt.iter().any(|part| sql.contains(part)) {
            continue;
        }
        let parameters = query["describe"]["parameters"]["Left"].as_array().unwrap();
        let nulls = vec!["null"; parameters.len()].join(", ");
        let explain = format!(
            "prepare checked as {sql}; explain execute checked({nulls}); deallocate checked"
        );
        let plan = sqlx::raw_sql(AssertSqlSafe(explain)).fetch_all(&mut *database);
        let plan: Vec<String> = plan.await.unwrap().iter().map(|row| row.get(0)).collect();
        let plan = plan.join("\n");
        assert!(plan.contains("jobs_pkey"), "{sql}\n{plan}");
        let scans = [
            "Seq Scan on jobs",
            "jobs_running_idx",
            "jobs_rung_idx",
            "jobs_status_idx",
        ];
        for scan in scans {
            assert!(!plan.contains(scan), "{sql}\n{plan}");
        }
        checked += 1;
    }
    assert_eq!(checked, 6, "statements");
}
