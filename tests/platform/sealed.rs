//! Suites with sealed items: before the close of the suite nothing depends on a sealed answer;
//! afterwards the sealed scores of final jobs, and only of these, are disclosed.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use assay_eval::suite::SuiteFolder;
use assay_proto::v1;
use assay_proto::v1::job_service_client::JobServiceClient;
use assay_proto::v1::suite_service_client::SuiteServiceClient;
use assay_tests::client::{Client, Response};
use assay_tests::databases;
use assay_tests::stack::StackSize;
use futures_util::future::join_all;
use serde_json::{Value, json};
use sqlx::Row as _;

use crate::disclosure::{publish_answers, write_suite};
use crate::harness::{
    Expect, World, org, scrape, string, wait_until, with_setting, with_token, world, world_with,
};

/// Items of the suites in these tests.
const N: usize = 40;

/// Returns the `suite.toml` of a suite with half its items sealed, which closes in this many
/// seconds.
fn head(name: &str, metric: &str, seconds: i64, more: &str) -> String {
    let closes_at = assay_core::Timestamp::now().plus_micros(seconds * 1_000_000);
    format!(
        "suite_id = \"suite:{name}\"\nversion = \"1\"\nmetric = \"{metric}\"\nrelease = \"sealed(0.5)\"\nseal_seed = \"a seed\"\n\
         closes_at = {closes_at}\n{more}\n"
    )
}

/// Returns, for each item, `true` if it is sealed.
fn sealed_items(head: &str, answers: &[Value]) -> Vec<bool> {
    let line = |at: usize, field: &str, value: &Value| {
        format!("{}\n", json!({"item_id": format!("i{at}"), field: value}))
    };
    let items: String = (0..answers.len())
        .map(|at| line(at, "input", &json!({})))
        .collect();
    let lines: String = answers
        .iter()
        .enumerate()
        .map(|(at, answer)| line(at, "answer", answer))
        .collect();
    SuiteFolder::parse(head, &items, &lines)
        .unwrap()
        .items
        .iter()
        .map(|item| item.is_sealed)
        .collect()
}

fn yes_or_no(at: usize) -> &'static str {
    if at.is_multiple_of(3) { "yes" } else { "no" }
}

fn predictions(n: usize, value: impl Fn(usize) -> Value) -> Value {
    json!(
        (0..n)
            .map(|at| json!({"item_id": format!("i{at}"), "prediction": value(at)}))
            .collect::<Vec<_>>()
    )
}

async fn scored(client: &Client, suite_id: &str, predictions: &Value) -> Value {
    let job = client
        .post(
            "/v1/evals",
            &json!({"suite_id": suite_id, "predictions": predictions}),
        )
        .await
        .expect_status(202);
    let job = client
        .wait_until_finished(&string(&job.body["id"]), &|_| {})
        .await
        .unwrap();
    assert_eq!(job["status"], "succeeded", "{job}");
    job
}

/// Publishes a suite with sealed items, for tests in other files.
pub async fn publish(world: &World) {
    let answers: Vec<Value> = (0..N).map(|at| json!(yes_or_no(at))).collect();
    publish_answers(
        world,
        "sealed",
        &head("sealed", "exact_match", 3600, ""),
        &answers,
    )
    .await
    .unwrap();
}

/// Returns a succeeded job of the organization on that suite: an existing one, or a new one.
pub async fn job(world: &World, key: &Client) -> String {
    let org_id = string(&key.get("/v1/me").await.unwrap().body["org_id"]);
    let there = "select id from jobs where org_id = $1 and suite_id = 'suite:sealed' and status = 'succeeded' limit 1";
    let there: Option<String> = sqlx::query_scalar(there)
        .bind(&org_id)
        .fetch_optional(&mut world.database().await)
        .await
        .unwrap();
    match there {
        Some(job_id) => job_id,
        None => string(&scored(key, "suite:sealed", &predictions(N, |_| json!("no"))).await["id"]),
    }
}

async fn finalize(client: &Client, job: &Value) -> Response {
    client
        .send(client.request("POST", &format!("/v1/jobs/{}/final", string(&job["id"]))))
        .await
        .unwrap()
}

async fn job_of(client: &Client, job: &Value) -> Value {
    client
        .get(&format!("/v1/jobs/{}", string(&job["id"])))
        .await
        .unwrap()
        .body
}

/// Sets the close of all suites to this many seconds from now, by the database's clock.
async fn close_in(world: &World, seconds: f64) {
    let sql = "update suites set closes_at = clock_timestamp() + $1 * interval '1 second' where closes_at is not null";
    sqlx::query(sql)
        .bind(seconds)
        .execute(&mut world.database().await)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn sealed_scores_appear_after_close() {
    let world = world().await;
    world.widen_plans().await;
    let answers: Vec<Value> = (0..N).map(|at| json!(yes_or_no(at))).collect();
    let head = head("sealed", "exact_match", 3600, "");
    let is_sealed = sealed_items(&head, &answers);
    let suite_id = publish_answers(&world, "sealed", &head, &answers)
        .await
        .unwrap();
    let key = world.key();
    let listed = key.get("/v1/suites").await.unwrap().body["suites"][1].clone();
    assert_eq!(
        json!([listed["release"], listed["n_items"], listed["n_sealed"]]),
        json!(["sealed(0.5)", 40, 20])
    );
    assert!(string(&listed["closes_at"]).ends_with('Z'));

    let all_no = scored(&key, &suite_id, &predictions(N, |_| json!("no"))).await;
    let share = |wanted: bool| {
        let of: Vec<usize> = (0..N).filter(|at| is_sealed[*at] == wanted).collect();
        of.iter().filter(|at| yes_or_no(**at) == "no").count() as f64 / of.len() as f64
    };
    let r = &all_no["result"];
    assert_eq!(
        json!([r["value"], r["n"], r["n_submitted"], r["n_missing"]]),
        json!([share(false), 20, 40, 0])
    );
    assert_eq!((r.get("sealed"), &all_no["final"]), (None, &json!(false)));
    let jobs = [
        all_no,
        scored(&key, &suite_id, &predictions(N, |_| json!("yes"))).await,
        scored(&key, &suite_id, &predictions(N / 2, |_| json!("yes"))).await,
        scored(&key, &suite_id, &predictions(N, |at| json!(yes_or_no(at)))).await,
    ];
    // Comparisons use the open items; scores of single items are not disclosed.
    let compared = key
        .post(
            "/v1/comparisons",
            &json!({"job_a": jobs[0]["id"], "job_b": jobs[3]["id"]}),
        )
        .await
        .expect_status(200);
    assert_eq!(compared.body["n"], 20, "{}", compared.body);
    key.get(&format!("/v1/jobs/{}/items", string(&jobs[0]["id"])))
        .await
        .expect_status(403);

    for job in &jobs[..3] {
        let marked = finalize(&key, job).await.expect_status(200);
        assert_eq!(marked.body["final"], true, "{}", marked.body);
        // Marking it again changes nothing.
        finalize(&key, job).await.expect_status(200);
    }
    finalize(&key, &jobs[3])
        .await
        .expect_error(409, "invalid_state");
    let lunch = world
        .submit_and_wait(&crate::harness::one_prediction())
        .await;
    let refused = finalize(&key, &lunch).await;
    assert!(
        refused.status == 409
            && string(&refused.body["error"]["message"]).contains("no sealed items"),
        "{}",
        refused.body
    );
    let stranger = world.client(&org(&world.stack, "team").await.key);
    finalize(&stranger, &jobs[3]).await.expect_status(404);
    finalize(&world.member("viewer").await, &jobs[3])
        .await
        .expect_status(403);
    for job in &jobs {
        assert_eq!(job_of(&key, job).await["result"].get("sealed"), None);
    }

    close_in(&world, 0.0).await;
    let of = |job: Value| job["result"]["sealed"].clone();
    let disclosed = of(job_of(&key, &jobs[0]).await);
    assert_eq!(
        json!([disclosed["value"], disclosed["n"]]),
        json!([share(true), 20])
    );
    let half = 1.96 * (share(true) * (1.0 - share(true)) / 20.0).sqrt();
    assert!((disclosed["stderr"].as_f64().unwrap() - half / 1.96).abs() < 1e-12);
    assert!(
        disclosed["ci95"][0].as_f64().unwrap() < share(true)
            && disclosed["ci95"][1].as_f64().unwrap() > share(true)
    );
    assert_eq!(of(job_of(&key, &jobs[1]).await)["value"], 1.0 - share(true));
    assert_eq!(
        job_of(&key, &jobs[3]).await["result"].get("sealed"),
        None,
        "the job is not final"
    );
    let listed = key.get("/v1/jobs").await.unwrap().body;
    let sealed = listed["jobs"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|job| job["result"].get("sealed").is_some())
        .count();
    assert_eq!(sealed, 3);
    let mut grpc = JobServiceClient::new(world.channel().await);
    let ask = v1::GetJobRequest {
        job_id: string(&jobs[0]["id"]),
        wait: None,
    };
    let job = grpc
        .get_job(with_token(ask, &world.org.key))
        .await
        .unwrap()
        .into_inner()
        .job
        .unwrap();
    let figures = job.result.unwrap().sealed.unwrap();
    assert_eq!(
        (job.r#final, json!(figures.value), figures.n),
        (true, disclosed["value"].clone(), 20)
    );
    // After the close no job becomes final.
    let late = scored(&key, &suite_id, &predictions(N, |_| json!("no"))).await;
    for job in [&late, &jobs[3]] {
        let refused = finalize(&key, job).await;
        assert!(
            refused.status == 409
                && string(&refused.body["error"]["message"]).contains("closed at"),
            "{}",
            refused.body
        );
    }
    let ask = v1::FinalizeJobRequest {
        job_id: string(&late["id"]),
    };
    let status = grpc
        .finalize_job(with_token(ask, &world.org.key))
        .await
        .unwrap_err();
    assert_eq!(status.code(), tonic::Code::FailedPrecondition);
}

#[tokio::test(flavor = "multi_thread")]
async fn api_role_cannot_read_sealed_scores() {
    let world = world().await;
    let answers: Vec<Value> = (0..N).map(|at| json!(yes_or_no(at))).collect();
    let suite_id = publish_answers(
        &world,
        "sealed",
        &head("sealed", "exact_match", 3600, ""),
        &answers,
    )
    .await
    .unwrap();
    let job = scored(&world.key(), &suite_id, &predictions(N, |_| json!("no"))).await;
    finalize(&world.key(), &job).await;
    let mut api = databases::connect(&world.stack.database.api_url)
        .await
        .unwrap();
    for (table, column) in [
        ("suite_answers", "*"),
        ("sealed_results", "*"),
        ("suite_contents", "content_sha256"),
    ] {
        let sql = format!("select {column} from {table}");
        let refused = sqlx::raw_sql(sqlx::AssertSqlSafe(sql))
            .execute(&mut api)
            .await
            .unwrap_err()
            .to_string();
        assert!(refused.contains("permission denied"), "{table}: {refused}");
    }
    let read = "select count(*) from closed_sealed_results";
    assert_eq!(
        sqlx::query_scalar::<_, i64>(read)
            .fetch_one(&mut api)
            .await
            .unwrap(),
        0
    );
    // A function that the API's role declares cheap must not run on rows that the view hides.
    let leak = "create function pg_temp.leak(double precision) returns boolean language plpgsql cost 0.0000001 as
                $$ begin raise exception 'leaked %', $1; end $$";
    sqlx::raw_sql(leak).execute(&mut api).await.unwrap();
    let leaked = sqlx::query("select 1 from closed_sealed_results where pg_temp.leak(value)")
        .fetch_all(&mut api)
        .await;
    assert!(leaked.unwrap().is_empty());
    close_in(&world, 0.0).await;
    assert_eq!(
        sqlx::query_scalar::<_, i64>(read)
            .fetch_one(&mut api)
            .await
            .unwrap(),
        1
    );
}

// The database's clock decides for all concurrent callers.
#[tokio::test(flavor = "multi_thread")]
async fn finals_marked_during_close_are_exact() {
    let world = world_with(StackSize {
        apis: 2,
        workers: 1,
        ..StackSize::default()
    })
    .await;
    world.widen_plans().await;
    let answers: Vec<Value> = (0..N).map(|at| json!(yes_or_no(at))).collect();
    let suite_id = publish_answers(
        &world,
        "sealed",
        &head("sealed", "exact_match", 3600, ""),
        &answers,
    )
    .await
    .unwrap();
    let clients: Vec<_> = world
        .stack
        .apis
        .iter()
        .map(|api| {
            Client::new(
                format!("http://{}", api.listen.unwrap()),
                Some(&world.org.key),
            )
        })
        .collect();
    let mut jobs = Vec::new();
    for at in 0..10 {
        jobs.push(
            scored(
                &clients[at % 2],
                &suite_id,
                &predictions(at + 1, |_| json!("no")),
            )
            .await,
        );
    }
    // Many requests mark one job concurrently, long before the close: each returns it as final,
    // also if it is the third one.
    for jobs in [&jobs[..1], &jobs[..3]] {
        let marks = (0..24).map(|n| finalize(&clients[n % 2], &jobs[n % jobs.len()]));
        assert!(
            join_all(marks)
                .await
                .iter()
                .all(|response| response.status == 200 && response.body["final"] == true)
        );
    }
    let mut outcomes = [0, 0];
    // The rounds vary from a close in the past to one that leaves time for all calls, also on a
    // busy machine.
    for (round, window) in [0.0, 0.02, 0.04, 0.06, 0.08, 0.1, 0.15, 5.0]
        .into_iter()
        .enumerate()
    {
        sqlx::raw_sql("update jobs set final_at = null")
            .execute(&mut world.database().await)
            .await
            .unwrap();
        close_in(&world, window).await;
        let at = |at: usize| (&clients[at % 2], &jobs[at % jobs.len()]);
        let all = join_all((0..50).map(|n| async move {
            // The calls are spread over the time before and after the close.
            tokio::time::sleep(Duration::from_millis(n as u64 * 4)).await;
            let (client, job) = at(n);
            finalize(client, job).await
        }))
        .await;
        assert!(
            all.iter()
                .all(|response| [200, 409, 503].contains(&response.status)),
            "{:?}",
            all.iter()
                .map(|response| response.status)
                .collect::<Vec<_>>()
        );
        let (finals, late): (i64, i64) = sqlx::query_as(
            "select count(*), count(*) filter (where j.final_at >= s.closes_at)
             from jobs j join suites s on s.suite_id = j.suite_id and s.version = j.suite_version where j.final_at is not null",
        )
        .fetch_one(&mut world.database().await)
        .await
        .unwrap();
        assert!(
            finals <= 3 && late == 0,
            "round {round}: {finals} final, {late} of them late"
        );
        outcomes[usize::from(finals == 3)] += 1;
        wait_until("the close", async || {
            let closed = "select bool_and(closes_at < clock_timestamp()) from suites where closes_at is not null";
            sqlx::query_scalar::<_, bool>(closed).fetch_one(&mut world.database().await).await.unwrap()
        })
        .await;
        // Exactly the final jobs are disclosed; later calls change nothing.
        let mut disclosed = Vec::new();
        for (at, job) in jobs.iter().enumerate() {
            let seen = job_of(&clients[at % 2], job).await;
            assert_eq!(
                seen["result"].get("sealed").is_some(),
                seen["final"] == true,
                "{seen}"
            );
            disclosed.push(seen["final"] == true);
        }
        assert_eq!(
            disclosed.iter().filter(|is_final| **is_final).count() as i64,
            finals
        );
        finalize(
            &clients[0],
            &jobs[disclosed.iter().position(|is_final| !is_final).unwrap()],
        )
        .await
        .expect_status(409);
        // Every 200 belongs to a final job.
        for (n, response) in all
            .iter()
            .enumerate()
            .filter(|(_, response)| response.status == 200)
        {
            assert!(
                disclosed[n % jobs.len()],
                "round {round}, caller {n}: {}",
                response.body
            );
        }
    }
    assert!(
        outcomes[0] > 0 && outcomes[1] > 0,
        "rounds with fewer than three finals, and with three: {outcomes:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn orgs_of_one_domain_share_finals() {
    let world = world_with(with_setting("ASSAY_SIGN_IN_MAILS_PER_MINUTE", "1000")).await;
    world.widen_plans().await;
    let answers: Vec<Value> = (0..N).map(|at| json!(yes_or_no(at))).collect();
    let suite_id = publish_answers(
        &world,
        "sealed",
        &head("sealed", "exact_match", 3600, ""),
        &answers,
    )
    .await
    .unwrap();
    let other = org(&world.stack, "team").await;
    let claim = "insert into domain_claims (org_id, domain, token, claimed_by, expires_at, verified_at)
                 select $1, $2, 'x', user_id, now(), now() from memberships where org_id = $1 limit 1";
    for (org_id, domain) in [
        (&world.org.id, "example.org"),
        (&other.id, "lab.example.org"),
    ] {
        sqlx::query(claim)
            .bind(org_id)
            .bind(domain)
            .execute(&mut world.database().await)
            .await
            .unwrap();
    }
    let own = world.key();
    let other = world.client(&other.key);
    let submission = predictions(N, |_| json!("no"));
    let mut statuses = Vec::new();
    for client in [&own, &other, &own, &other, &own] {
        let job = scored(client, &suite_id, &submission).await;
        statuses.push(finalize(client, &job).await.status);
    }
    assert_eq!(statuses, [200, 200, 200, 409, 409]);
    // Releasing the domain does not separate their finals.
    sqlx::raw_sql("delete from domain_claims")
        .execute(&mut world.database().await)
        .await
        .unwrap();
    let shared = other.get("/v1/jobs").await.unwrap().body["jobs"]
        .as_array()
        .unwrap()
        .iter()
        .find(|job| job["final"] == false)
        .cloned();
    // The job was submitted while the domain was shared.
    finalize(&other, &shared.unwrap()).await.expect_status(409);
}

#[tokio::test(flavor = "multi_thread")]
async fn times_of_sealed_jobs_are_rounded() {
    let world = world().await;
    let answers: Vec<Value> = (0..N).map(|at| json!(yes_or_no(at))).collect();
    let open = |release: &str| {
        format!(
            "suite_id = \"suite:timed\"\nversion = \"{release}\"\nmetric = \"exact_match\"\nrelease = \"{release}\"\n"
        )
    };
    for (head, is_rounded) in [
        (head("timed", "exact_match", 3600, ""), true),
        (
            open("ladder(0.1)").replace("version = \"ladder(0.1)\"", "version = \"2\""),
            true,
        ),
        (open("exact"), false),
    ] {
        let suite_id = publish_answers(&world, "timed", &head, &answers)
            .await
            .unwrap();
        let job = scored(&world.key(), &suite_id, &predictions(N, |_| json!("no"))).await;
        let phases = "select phases, (extract(epoch from ended_at - started_at) * 1000)::float8 from job_attempts where job_id = $1";
        let (phases, lasted): (Value, f64) = sqlx::query_as(phases)
            .bind(string(&job["id"]))
            .fetch_one(&mut world.database().await)
            .await
            .unwrap();
        let times = phases
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|phase| [&phase["start_us"], &phase["end_us"]]);
        let all_rounded = times
            .clone()
            .all(|time| time.as_i64().unwrap() % 50_000 == 0);
        assert!(all_rounded == is_rounded && times.count() >= 6, "{phases}");
        assert!(!is_rounded || lasted >= 50.0, "{lasted}");
    }
}

/// Masks what differs between two runs of the same calls: ids, times, durations, digests of
/// requests, addresses.
fn normalized(world: &World, text: &str) -> String {
    let mut text = text.to_owned();
    for (own, name) in [
        (&world.stack.database.name, "DATABASE"),
        (&world.org.id, "ORG"),
        (&world.org.email, "EMAIL"),
    ] {
        text = text.replace(own.as_str(), name);
    }
    for process in world.stack.apis.iter().chain(&world.stack.workers) {
        let addresses = process.listen.iter().chain([&process.admin]);
        addresses.for_each(|address| text = text.replace(&address.to_string(), "ADDRESS"));
    }
    // A job's estimates, and what they are computed from, depend on durations.
    let estimates = [
        ("queue\":{", "}"),
        ("first_estimated_end_at\":", ",}"),
        ("first_estimated_end_by\":", ",}"),
        ("items_per_second\":", ",}"),
        ("overhead_seconds\":", ",}"),
        ("start_seconds\":", ",}"),
        ("end_by_ratio\":", ",}"),
        ("wait_p50\":", ",}"),
        ("wait_p95\":", ",}"),
        ("org_costs\":", "]"),
        ("org_ids\":", "]"),
        // The random part of a receipt.
        (r#"nonce\" : \""#, "\\"),
    ];
    for (key, ends) in estimates {
        let parts: Vec<String> = text.split(key).map(str::to_owned).collect();
        let masked = parts.iter().skip(1).map(|part| {
            let end = part.find(|c| ends.contains(c)).unwrap_or(part.len());
            format!("{key}#{}", &part[end..])
        });
        text = parts.iter().take(1).cloned().chain(masked).collect();
    }
    // Numbers after these names are durations, or counts of bytes and polls.
    let keys = [
        "requests\":",
        "start_us\":",
        "end_us\":",
        "seconds=",
        "seconds\":",
        "elapsed_us\":",
        "bytes\":",
        "UnixNano\":\"",
    ];
    let mut out = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some((at, key)) = keys
        .iter()
        .filter_map(|key| rest.find(key).map(|at| (at, *key)))
        .min()
    {
        let (before, after) = rest.split_at(at + key.len());
        out.push_str(before);
        out.push('#');
        rest = after.trim_start_matches(|c: char| c.is_ascii_digit() || " .e-+".contains(c));
    }
    out.push_str(rest);
    let is_word = |c: char| c.is_ascii_alphanumeric() || "_-+:.".contains(c);
    let mut words = String::with_capacity(out.len());
    let mut word = String::new();
    for c in out.chars().chain(['\n']) {
        if is_word(c) {
            word.push(c);
        } else {
            words.push_str(&without_identity(&word));
            word.clear();
            words.push(c);
        }
    }
    words
}

/// Returns the word, or the kind of id or time that it is.
fn without_identity(word: &str) -> String {
    // PostgreSQL writes bytes as `\x…`.
    let is_hex = |word: &str| {
        let digits = word.strip_prefix('x').unwrap_or(word);
        digits.len() >= 16 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let is_time = |word: &str| {
        let bytes = word.as_bytes();
        let digits = |range: std::ops::Range<usize>| {
            bytes
                .get(range)
                .is_some_and(|part| part.iter().all(u8::is_ascii_digit))
        };
        (digits(0..4) && bytes.get(4) == Some(&b'-') && digits(5..7))
            || (digits(0..2) && bytes.get(2) == Some(&b':') && digits(3..5))
    };
    let prefixes = [
        "org_", "key_", "usr_", "job_", "req_", "ses_", "upl_", "inv_", "aud_", "evt_", "wrk_",
        "ent_", "rcp_", "svc_",
    ];
    let is_id = prefixes
        .iter()
        .any(|prefix| word.starts_with(prefix) && (word.len() > 20 || *prefix == "svc_"));
    match word {
        _ if is_id => word[..4].to_owned(),
        _ if is_hex(word) || word.split('-').all(is_hex) => "HEX".to_owned(),
        _ if is_time(word) => "TIME".to_owned(),
        _ => word.to_owned(),
    }
}

/// Returns everything that a caller, a reader of logs or metrics, or the API's database role sees
/// of these calls.
async fn observe_everything(
    world: &World,
    suites: &[(&str, Value, Value)],
) -> BTreeMap<String, String> {
    let mut seen = BTreeMap::new();
    let key = world.key();
    let mut log = |name: &str, response: &Response| {
        let mut headers: Vec<_> = response
            .headers
            .iter()
            .map(|(name, value)| format!("{name}: {value:?}"))
            .collect();
        headers.retain(|header| {
            !["content-length", "date", "x-ratelimit"]
                .iter()
                .any(|name| header.starts_with(name))
        });
        headers.sort();
        let text = format!("{} {headers:?} {}", response.status, response.body);
        seen.insert(format!("response {name}"), normalized(world, &text));
    };
    let mut job_ids = Vec::new();
    for (name, good, other) in suites {
        let suite_id = format!("suite:{name}");
        let mut jobs = Vec::new();
        let parts = |all: &Value, n: usize| json!(all.as_array().unwrap()[..n]);
        for (at, predictions) in [
            good.clone(),
            other.clone(),
            parts(good, N / 2),
            parts(other, 3),
            json!([good[0], good[1], {"item_id": "nowhere", "prediction": good[0]["prediction"]}]),
        ]
        .iter()
        .enumerate()
        {
            let job = key
                .post(
                    "/v1/evals",
                    &json!({"suite_id": suite_id, "predictions": predictions}),
                )
                .await
                .unwrap();
            log(&format!("{name} submit {at}"), &job);
            world.wait_until_finished(&string(&job.body["id"])).await;
            let path = format!("/v1/jobs/{}", string(&job.body["id"]));
            for what in ["", "/trace", "/items"] {
                log(
                    &format!("{name} job {at}{what}"),
                    &key.get(&format!("{path}{what}")).await.unwrap(),
                );
            }
            job_ids.push(string(&job.body["id"]));
            jobs.push(job.body);
        }
        let succeeded = &jobs[..2];
        log(
            &format!("{name} compare"),
            &key.post(
                "/v1/comparisons",
                &json!({"job_a": succeeded[0]["id"], "job_b": succeeded[1]["id"]}),
            )
            .await
            .unwrap(),
        );
        log(
            &format!("{name} compare parts"),
            &key.post(
                "/v1/comparisons",
                &json!({"job_a": jobs[2]["id"], "job_b": jobs[3]["id"]}),
            )
            .await
            .unwrap(),
        );
        for (at, job) in jobs.iter().enumerate() {
            log(&format!("{name} final {at}"), &finalize(&key, job).await);
            let path = format!("/v1/jobs/{}/board", string(&job["id"]));
            let entry = json!({"name": format!("{name} {at}")});
            log(
                &format!("{name} enter {at}"),
                &key.post(&path, &entry).await.unwrap(),
            );
        }
        let board = format!("/v1/suites/{suite_id}/board");
        log(&format!("{name} board"), &key.get(&board).await.unwrap());
        log(
            &format!("{name} items"),
            &key.get(&format!("/v1/suites/{suite_id}/items"))
                .await
                .unwrap(),
        );
        log(
            &format!("{name} refused"),
            &key.post("/v1/evals", &json!({"suite_id": suite_id, "predictions": [{"item_id": "i0", "prediction": []}, 7]})).await.unwrap(),
        );
    }
    for path in ["/v1/suites", "/v1/jobs", "/v1/usage", "/v1/entries"] {
        log(path, &key.get(path).await.unwrap());
    }
    let mut grpc = String::new();
    let mut jobs = JobServiceClient::new(world.channel().await);
    for job_id in &job_ids {
        let ask = v1::GetJobRequest {
            job_id: job_id.clone(),
            wait: None,
        };
        let mut result = jobs
            .get_job(with_token(ask, &world.org.key))
            .await
            .unwrap()
            .into_inner()
            .job
            .unwrap()
            .result;
        // The order of a map varies.
        let metrics: Option<BTreeMap<_, _>> = result.as_mut().map(|result| {
            result
                .metrics
                .drain()
                .map(|(name, figure)| (name, figure.to_bits()))
                .collect()
        });
        write!(grpc, "{result:?} {metrics:?}").unwrap();
    }
    let mut listed = SuiteServiceClient::new(world.channel().await);
    let suites = listed
        .list_suites(with_token(v1::ListSuitesRequest::default(), &world.org.key))
        .await
        .unwrap()
        .into_inner();
    write!(
        grpc,
        "{:?}",
        suites
            .suites
            .iter()
            .map(|suite| (&suite.release, suite.n_sealed, &suite.ladder))
            .collect::<Vec<_>>()
    )
    .unwrap();
    seen.insert("grpc".into(), normalized(world, &grpc));
    for (at, job_id) in job_ids.iter().enumerate() {
        let scores = world.stack.artifacts();
        let found = std::process::Command::new("find")
            .arg(&scores)
            .args(["-type", "f", "-path", &format!("*{job_id}*")])
            .output()
            .unwrap();
        for file in String::from_utf8(found.stdout).unwrap().lines() {
            let kind = file.rsplit_once(job_id.as_str()).unwrap().1;
            seen.insert(
                format!("artifact {at} {kind}"),
                format!("{:?}", std::fs::read(file).unwrap()),
            );
        }
    }
    seen.insert(
        "database".into(),
        normalized(world, &readable_rows(world).await),
    );
    for (kind, processes) in [("api", &world.stack.apis), ("worker", &world.stack.workers)] {
        for process in processes {
            let lines = std::fs::read_to_string(&process.log).unwrap();
            // Log lines of requests, jobs and suites. The others depend on the machine: a slow
            // Redis, names of queue workers, and statements with their durations but without their
            // values.
            let is_call = |line: &&str| {
                ["\"job_id\"", "\"request_id\"", "suite:"]
                    .iter()
                    .any(|name| line.contains(name))
            };
            let lines = lines
                .lines()
                .filter(is_call)
                .filter(|line| !line.contains("sqlx::query"));
            let mut lines: Vec<String> = lines.map(|line| normalized(world, line)).collect();
            lines.sort();
            lines.dedup();
            assert!(lines.len() >= 2, "{kind}: {lines:?}");
            seen.insert(format!("log {kind}"), lines.join("\n"));
            // Series with their labels, and counts of jobs and items, but no durations.
            let counted = [
                "assay_job_attempts",
                "assay_jobs_",
                "assay_items_scored",
                "assay_quota",
                "assay_fenced",
            ];
            let series = scrape(process).await;
            let of = |line: &str| {
                if counted.iter().any(|name| line.starts_with(name)) && !line.contains("seconds") {
                    line.to_owned()
                } else {
                    line.rsplit_once(' ')
                        .map_or(line, |(name, _)| name)
                        .to_owned()
                }
            };
            let mut series: Vec<String> = series
                .lines()
                .filter(|line| {
                    !line.contains("_bucket")
                        && !line.starts_with("process_")
                        && !line.contains("job_id")
                })
                .map(of)
                .collect();
            series.sort();
            seen.insert(
                format!("metrics {kind}"),
                normalized(world, &series.join("\n")),
            );
        }
    }
    seen
}

/// Returns every row and column that the API's role can read.
async fn readable_rows(world: &World) -> String {
    let mut api = databases::connect(&world.stack.database.api_url)
        .await
        .unwrap();
    let columns = "select table_name::text,
                          string_agg(
                              case column_name when 'payload' then 'convert_from(payload, ''UTF8'') as payload' else quote_ident(column_name) end,
                              ', ' order by ordinal_position
                          ) as columns
                   from information_schema.columns
                   where table_schema = 'public' and has_column_privilege(quote_ident(table_name), column_name, 'select')
                     and table_name not in ('workers', '_sqlx_migrations', 'usage_requests', 'usage_request_days', 'sessions', 'api_keys')
                     -- Salts, salted hashes and signatures, and the times at which they were made.
                     and table_name not in ('log_checkpoints', 'log_entries', 'receipt_keys', 'receipt_salts')
                     and column_name not in ('commitment', 'kid', 'signature', 'log_index')
                     -- Measured times of the worker. They are absent until jobs have been measured.
                     and table_name <> 'queue_snapshots'
                     -- The numbers of transactions and their order differ.
                     and (table_name not in ('events', 'org_events', 'shared_events') or column_name not in ('xid', 'position'))
                   group by table_name order by table_name";
    let mut rows = String::new();
    for table in sqlx::query(columns).fetch_all(&mut api).await.unwrap() {
        let (name, columns): (String, String) = (table.get(0), table.get(1));
        let sql =
            format!("select row_to_json(t)::text as line from (select {columns} from {name}) t");
        let lines: Vec<String> = sqlx::query_scalar(sqlx::AssertSqlSafe(sql))
            .fetch_all(&mut api)
            .await
            .unwrap();
        let mut lines: Vec<String> = lines.iter().map(|line| normalized(world, line)).collect();
        lines.sort();
        writeln!(rows, "{name}\n{}", lines.join("\n")).unwrap();
    }
    rows
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_depends_on_sealed_answers() {
    type Of = fn(usize) -> Value;
    let families: [(&str, &str, Of, Of, Of); 7] = [
        (
            "labels",
            "f1_macro",
            |at| json!(yes_or_no(at)),
            |_| json!("yes"),
            |at| json!(["no", "yes"][at % 2]),
        ),
        (
            "rankings",
            "ndcg@3",
            |at| json!({yes_or_no(at): 2, "maybe": 1}),
            |_| json!(["yes", "no"]),
            |at| json!([yes_or_no(at)]),
        ),
        (
            "numbers",
            "rmse",
            |at| json!(at),
            |at| json!(at + 1),
            |_| json!(7),
        ),
        (
            "odds",
            "log_loss",
            |at| json!(yes_or_no(at)),
            |_| json!({"yes": 0.5, "no": 0.5}),
            |at| json!({yes_or_no(at): 1.0}),
        ),
        // These two metrics are undefined if a prediction is missing or all sealed predictions are
        // equal, for any answers.
        (
            "area",
            "auc",
            |at| json!(yes_or_no(at)),
            |at| json!({"yes": at as f64 / 80.0, "no": 1.0 - at as f64 / 80.0}),
            |_| json!({"yes": 0.5, "no": 0.5}),
        ),
        (
            "order",
            "spearman",
            |at| json!(at),
            |at| json!(at % 7),
            |_| json!(7),
        ),
        (
            "bins",
            "ece@15",
            |at| json!(yes_or_no(at)),
            |_| json!({"yes": 0.8, "no": 0.2}),
            |at| json!({yes_or_no(at): 1.0}),
        ),
    ];
    let mut seen = Vec::new();
    for changed in [false, true] {
        let world = world_with(with_setting("ASSAY_LOG", "debug")).await;
        world.widen_plans().await;
        let mut suites = Vec::new();
        for (name, metric, answer, good, other) in &families {
            let mut answers: Vec<Value> = (0..N).map(answer).collect();
            let head = format!(
                "suite_id = \"suite:{name}\"\nversion = \"1\"\nmetric = \"{metric}\"\nrelease = \"sealed(0.5)\"\nseal_seed = \"s\"\ncloses_at = 2100-01-01T00:00:00Z\nboard = \"at_close\"\n"
            );
            let is_sealed = sealed_items(&head, &answers);
            if changed {
                // Each sealed item gets the answer of the item two places later, or one that no
                // item has.
                let others: Vec<Value> = (0..N)
                    .map(|at| {
                        if ["numbers", "order"].contains(name) {
                            json!((at * 7919) % 1009 + 1000)
                        } else {
                            answers[(at + 2) % N].clone()
                        }
                    })
                    .collect();
                answers
                    .iter_mut()
                    .zip(others)
                    .zip(&is_sealed)
                    .filter(|(_, is_sealed)| **is_sealed)
                    .for_each(|((answer, other), _)| *answer = other);
            }
            let folder = write_suite(&world, name, &head, &answers);
            world
                .stack
                .operate(&["suite", "publish", folder.to_str().unwrap()])
                .await
                .unwrap();
            suites.push((*name, predictions(N, good), predictions(N, other)));
        }
        seen.push((
            observe_everything(&world, &suites).await,
            sealed_figures(&world).await,
        ));
    }
    let [(one, sealed), (two, other_sealed)] = <[_; 2]>::try_from(seen).unwrap();
    assert_eq!(
        one.keys().collect::<Vec<_>>(),
        two.keys().collect::<Vec<_>>()
    );
    assert!(one.len() > 100, "{}", one.len());
    for (name, text) in &one {
        let differing = text
            .lines()
            .zip(two[name].lines())
            .find(|(one, two)| one != two);
        assert!(text == &two[name], "{name}: {differing:?}");
    }
    // The sealed scores themselves differ in every suite.
    assert_eq!(sealed.len(), other_sealed.len());
    assert!(
        sealed
            .iter()
            .zip(&other_sealed)
            .all(|((suite, one), (_, two))| one != two || suite == "suite:area"),
        "{sealed:?} {other_sealed:?}"
    );
    let suites: std::collections::BTreeSet<_> = sealed.keys().collect();
    assert_eq!(suites.len(), families.len());
}

/// Returns the sealed scores of each suite's jobs, in the order of the jobs.
async fn sealed_figures(world: &World) -> BTreeMap<String, Vec<f64>> {
    let sql = "select r.suite_id, array_agg(r.value order by j.created_at) from sealed_results r join jobs j on j.id = r.job_id group by r.suite_id";
    sqlx::query_as(sql)
        .fetch_all(&mut world.database().await)
        .await
        .unwrap()
        .into_iter()
        .collect()
}
