//! A large board's cost: `cargo bench -p assay-tests --bench boards`.
//!
//! Fills a private database with succeeded jobs that have entered a board, whose predictions are right
//! with different probabilities, and lets a worker compute the board. Then one more job enters. The
//! output has the durations of both computations, and quantiles of how long it takes to read a page.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use assay_tests::binaries::{self, Profile};
use assay_tests::client::Client;
use assay_tests::databases;
use assay_tests::servers::{Servers, Trouble};
use assay_tests::site::Site;
use assay_tests::stack::{Ground, Stack, StackSize};
use clap::Parser;
use serde_json::{Value, json};

#[derive(Parser)]
struct Arguments {
    /// Number of entries
    #[arg(long, default_value_t = 10_000)]
    entries: i64,
    /// Number of items of the suite
    #[arg(long, default_value_t = 500)]
    items: i64,
    /// Metric of the suite: exact_match or mae
    #[arg(long, default_value = "exact_match")]
    metric: String,
    /// Number of pages that are read
    #[arg(long, default_value_t = 500)]
    reads: usize,
    /// Ignored; cargo passes it to benchmarks
    #[arg(long)]
    bench: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    match measure(Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Copies the one succeeded job and its entry. Each copy has other predictions.
const FILL: &str = "
    set session_replication_role = replica;
    insert into jobs
    select r.*
    from jobs j
    cross join generate_series(1, :entries - 1) n
    cross join jsonb_populate_record(
        null::jobs,
        to_jsonb(j) || jsonb_build_object(
            'id', 'job_copy' || n, 'cleaned_up_at', now(), 'idempotency_key', null, 'created_at', j.created_at - n * interval '1 us'
        )
    ) r;
    insert into board_entries (id, org_id, suite_id, suite_version, job_id, name, name_key, entered_by, entered_at, holders)
    select 'ent_copy' || n, e.org_id, e.suite_id, e.suite_version, 'job_copy' || n, 'Entry ' || n, 'entry ' || n, '', now(),
        array['org:copy' || n / 3]
    from board_entries e
    cross join generate_series(1, :entries - 1) n
    where e.id not like 'ent_copy%';
    insert into stored_predictions (org_id, job_id, bytes, accepted_at, body)
    select j.org_id, j.id, 1, now(), convert_to(p.predictions::text, 'UTF8')
    from jobs j
    cross join lateral (
        select json_agg(json_build_object('item_id', 'i' || i, 'prediction', :prediction)) as predictions
        from generate_series(0, :items - 1) i
    ) p
    where j.id like 'job_copy%';
    analyze;";

/// A label that is right more often in later copies, and a number that is nearer to 0.
const LABEL: &str =
    "case when random() < 0.3 + 0.5 * substr(j.id, 9)::float8 / :entries then 'yes' else 'no' end";
const NUMBER: &str = "random() * (1.5 - substr(j.id, 9)::float8 / :entries)";

async fn measure(arguments: Arguments) -> Result<(), Trouble> {
    let binaries = binaries::build(Profile::Release)?;
    let ground = Arc::new(Ground::new(
        Servers::start(&|line| eprintln!("{line}"))?,
        binaries,
    ));
    let Site {
        mut stack,
        mut database,
        org,
        ..
    } = Site::start(&ground, StackSize::default()).await?;
    publish(&stack, &arguments).await?;
    let client = Client::new(stack.url(), Some(&org.key));
    enter(&client, &arguments, "first").await?;
    wait_for(&client, 1).await?;
    stack.workers.clear();
    let prediction = match arguments.metric.as_str() {
        "exact_match" => LABEL,
        _ => NUMBER,
    };
    let sql = FILL
        .replace(":prediction", prediction)
        .replace(":entries", &arguments.entries.to_string())
        .replace(":items", &arguments.items.to_string());
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql))
        .execute(&mut database)
        .await
        .map_err(Trouble::because("the database cannot be filled"))?;
    pass_a_minute(&stack).await?;
    let began = Instant::now();
    let _worker = stack.launch_worker()?;
    wait_for(&client, arguments.entries).await?;
    println!(
        "{} entries computed in {:.1} s, with the start of the worker",
        arguments.entries,
        began.elapsed().as_secs_f64()
    );

    let mut durations = Vec::new();
    for _ in 0..arguments.reads {
        let began = Instant::now();
        board(&client, 1000).await?;
        durations.push(began.elapsed());
    }
    durations.sort_unstable();
    for share in [50, 99] {
        let at = (durations.len() * share / 100).min(durations.len().saturating_sub(1));
        let milliseconds = durations.get(at).map_or(0.0, Duration::as_secs_f64) * 1000.0;
        println!("a page of 1,000 entries, p{share}: {milliseconds:.1} ms");
    }

    enter(&client, &arguments, "one more").await?;
    pass_a_minute(&stack).await?;
    let began = Instant::now();
    wait_for(&client, arguments.entries + 1).await?;
    println!(
        "one more entry computed in {:.1} s, with up to 1 s until the worker looks for it",
        began.elapsed().as_secs_f64()
    );
    Ok(())
}

/// Publishes a suite with a live board.
async fn publish(stack: &Stack, arguments: &Arguments) -> Result<(), Trouble> {
    let Arguments { items, metric, .. } = arguments;
    let answer = if metric == "exact_match" {
        json!("yes")
    } else {
        json!(0.0)
    };
    let folder = stack.ground.servers.folder().join("board");
    let lines = |field: &str, value: &Value| -> String {
        (0..*items)
            .map(|at| format!("{}\n", json!({"item_id": format!("i{at}"), field: value})))
            .collect()
    };
    let suite = format!(
        "suite_id = \"suite:board\"\nversion = \"1\"\nmetric = \"{metric}\"\nboard = \"live\"\n"
    );
    let write = || {
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join("suite.toml"), suite)?;
        std::fs::write(folder.join("items.ndjson"), lines("input", &json!({})))?;
        std::fs::write(folder.join("answers.ndjson"), lines("answer", &answer))
    };
    write().map_err(Trouble::because("the suite cannot be written"))?;
    let folder = folder.display().to_string();
    stack.operate(&["suite", "publish", &folder]).await?;
    Ok(())
}

/// Submits predictions, and enters the job on the board.
async fn enter(client: &Client, arguments: &Arguments, name: &str) -> Result<(), Trouble> {
    let value = |at: i64| match arguments.metric.as_str() {
        "exact_match" => json!(if at % 3 == 0 { "no" } else { "yes" }),
        _ => json!(at % 10),
    };
    let predictions: Vec<Value> = (0..arguments.items)
        .map(|at| json!({"item_id": format!("i{at}"), "prediction": value(at)}))
        .collect();
    let body = json!({"suite_id": "suite:board", "predictions": predictions});
    let job = client.post("/v1/evals", &body).await?.body;
    let job_id = job["id"].as_str().unwrap_or_default().to_owned();
    client.wait_until_finished(&job_id, &|_| {}).await?;
    let path = format!("/v1/jobs/{job_id}/board");
    let entered = client.post(&path, &json!({"name": name})).await?;
    if entered.status == 201 {
        Ok(())
    } else {
        Err(Trouble::new(format!("not entered: {}", entered.body)))
    }
}

async fn board(client: &Client, limit: i64) -> Result<Value, Trouble> {
    let path = format!("/v1/suites/suite:board/board?limit={limit}");
    Ok(client.get(&path).await?.body)
}

async fn wait_for(client: &Client, entries: i64) -> Result<(), Trouble> {
    while board(client, 1).await?["n_entries"] != json!(entries) {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// Lets a minute pass for the interval between two computations of a live board.
async fn pass_a_minute(stack: &Stack) -> Result<(), Trouble> {
    let mut database = databases::connect(&stack.database.owner_url).await?;
    let sql = "update board_computations set as_of = as_of - interval '61 s'";
    sqlx::raw_sql(sql)
        .execute(&mut database)
        .await
        .map_err(Trouble::because("the time of the board cannot be changed"))?;
    Ok(())
}
