//! Plans of statements: those that each job executes, whose plans are made when the tables are small
//! and used until the tables have grown, and the job listing's.

use assay_core::store::{self, PoolProfile};
use assay_tests::stack::StackSize;
use serde_json::Value;
use sqlx::{AssertSqlSafe, Executor as _, Row as _, SqlSafeStr as _};

use crate::harness::{one_prediction, world, world_with};

/// Returns the records of the statements in `.sqlx`.
fn records() -> Vec<Value> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../.sqlx");
    let files = std::fs::read_dir(folder).unwrap();
    let text = files.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap());
    text.map(|text| serde_json::from_str(&text).unwrap())
        .collect()
}

/// Returns a record's types without the inferred nullability of columns whose name states it. The inference
/// depends on the plan, and so on the sizes of tables.
fn with_stated_nullability(mut types: Value) -> Value {
    let columns = types["columns"].as_array().cloned().unwrap_or_default();
    for (at, column) in columns.iter().enumerate() {
        let name = column["name"].as_str().unwrap_or_default();
        let name = name.split(':').next().unwrap_or_default();
        if name.ends_with(['!', '?']) {
            types["nullable"][at] = Value::Null;
        }
    }
    types
}

/// A build takes the types of parameters and columns from the records, and does not compile without one.
#[tokio::test(flavor = "multi_thread")]
async fn records_have_the_types_of_the_database() {
    let world = world().await;
    let mut database = world.database().await;
    let mut outdated = Vec::new();
    for record in records() {
        let sql = record["query"].as_str().unwrap().to_owned();
        let statement = AssertSqlSafe(sql.clone()).into_sql_str();
        let found = match database.describe(statement).await {
            Ok(found) => serde_json::to_value(found).unwrap(),
            Err(error) => error.to_string().into(),
        };
        let expected = with_stated_nullability(record["describe"].clone());
        if with_stated_nullability(found.clone()) != expected {
            outdated.push(format!("{sql}\n{found}"));
        }
    }
    assert!(
        outdated.is_empty(),
        "run `cargo queries`: {}",
        outdated.join("\n")
    );
}

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
    let mut checked = 0;
    for query in records() {
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
            // A polling worker, which has no ids, finds jobs by the index of notified ones.
            if scan == "jobs_rung_idx" && sql.contains("claimed as (") {
                continue;
            }
            assert!(!plan.contains(scan), "{sql}\n{plan}");
        }
        checked += 1;
    }
    assert_eq!(checked, 6, "statements");
}

/// Copies the queued job 20,000 times. All copies have succeeded with one label, for one suite.
const MANY: &str = "
    insert into jobs
    select r.*
    from jobs q
    cross join generate_series(1, 20000) n
    cross join jsonb_populate_record(
        null::jobs,
        to_jsonb(q) - 'metadata' || jsonb_build_object(
            'id', 'job_many' || n,
            'created_at', q.created_at - n * interval '1 ms',
            'status', 'succeeded',
            'label', 'nightly',
            'started_at', now(),
            'finished_at', now(),
            'cleaned_up_at', now(),
            'result', '{}'::jsonb
        )
    ) r;
    analyze jobs";

/// Returns how many rows a plan read of the table `jobs`, also in vain.
fn rows_of_jobs(node: &Value) -> f64 {
    let number = |name: &str| node[name].as_f64().unwrap_or(0.0);
    let own = if node["Relation Name"] == "jobs" {
        number("Actual Loops") * (number("Actual Rows") + number("Rows Removed by Filter"))
    } else {
        0.0
    };
    let children = node["Plans"].as_array().into_iter().flatten();
    own + children.map(rows_of_jobs).sum::<f64>()
}

#[tokio::test(flavor = "multi_thread")]
async fn listing_reads_few_rows_beyond_its_page() {
    let world = world_with(StackSize {
        workers: 0,
        ..StackSize::default()
    })
    .await;
    world.submit(&one_prediction()).await;
    let mut database = world.database().await;
    sqlx::raw_sql(MANY).execute(&mut database).await.unwrap();
    let queries = records().into_iter();
    let queries = queries.map(|query| query["query"].as_str().unwrap().to_owned());
    let queries: Vec<String> = queries.collect();
    let org_id = &world.org.id;
    for (part, arguments) in [
        // By suite, alone and in a status that few, all or no jobs have.
        (
            "page on page_id = id",
            "'suite:lunch', null, 51, null, null",
        ),
        (
            "page on page_id = id",
            "'suite:lunch', null, 51, null, 'queued'",
        ),
        (
            "page on page_id = id",
            "'suite:lunch', null, 51, 'eval', 'succeeded'",
        ),
        (
            "page on page_id = id",
            "'suite:lunch', null, 51, null, 'failed'",
        ),
        ("page on page_id = id", "'suite:none', null, 51, null, null"),
        // By label, alone and with the suite and the status that the jobs have.
        ("and label = $2", "'nightly', null, 51, null, null, null"),
        (
            "and label = $2",
            "'nightly', null, 51, 'eval', 'suite:lunch', 'succeeded'",
        ),
        ("and label = $2", "'none', null, 51, null, null, null"),
        // By a label and a status that the jobs do not have. With a suite that they do not have, all
        // jobs of the label are read.
        (
            "and label = $2",
            "'nightly', null, 51, null, null, 'failed'",
        ),
    ] {
        let reads_jobs = |sql: &&String| sql.contains("id: JobId") && sql.contains(part);
        let sql = queries.iter().find(reads_jobs).unwrap();
        let explain = format!(
            "prepare checked as {sql}; \
             explain (analyze, format json) execute checked('{org_id}', {arguments}); \
             deallocate checked"
        );
        let plan = sqlx::raw_sql(AssertSqlSafe(explain)).fetch_all(&mut database);
        let plan: Value = plan.await.unwrap()[0].get(0);
        let rows = rows_of_jobs(&plan[0]["Plan"]);
        assert!(rows < 500.0, "{rows} rows for {arguments}:\n{plan:#}");
    }
}
