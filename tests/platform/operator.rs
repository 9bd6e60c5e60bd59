//! The operator's commands of `assay-api`, and both binaries' startup errors.

use std::collections::BTreeMap;
use std::process::Command;

use assay_core::model::org::{DefaultLimit, PLAN_LIMITS, PlanLimit};
use assay_tests::client::Client;
use assay_tests::link::{Ending, Link};
use assay_tests::stack::StackSize;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, PgConnection};

use crate::harness::{
    Expect, World, fresh_email, ground, one_prediction, shared_world, string, wait_until, world,
    world_on_own_servers, world_with,
};
use crate::redis_troubles::redis_command;

#[tokio::test(flavor = "multi_thread")]
async fn invalid_commands_explain_the_error() {
    let world = shared_world().await;
    let cases: [(&[&str], &str); 12] = [
        (
            &[
                "org",
                "create",
                "--name",
                "X",
                "--plan",
                "gold",
                "--owner-email",
                "a@example.org",
            ],
            "there is no plan \"gold\"; there are: free, dev, team",
        ),
        (
            &["org", "create", "--name", "X", "--owner-email", "nobody"],
            "email: must be an email address",
        ),
        (
            &[
                "org",
                "create",
                "--name",
                " ",
                "--owner-email",
                "a@example.org",
            ],
            "name: must not be blank",
        ),
        (
            &["session", "create", "--email", "unknown@example.org"],
            "nobody has the address",
        ),
        (
            &[
                "session",
                "create",
                "--email",
                &world.org.email,
                "--org",
                "org_0",
            ],
            "is not a member of org_0",
        ),
        (
            &["key", "create", "--org", "org_0", "--name", "x"],
            "there is no organization org_0",
        ),
        (
            &["suite", "publish", "/nonexistent"],
            "suite.toml: cannot be read",
        ),
        (
            &["org", "set", "--org", &world.org.id, "--plan", "gold"],
            "there is no plan \"gold\"; there are: free, dev, team",
        ),
        (
            &["org", "set", "--org", "org_0", "--plan", "dev"],
            "there is no organization org_0",
        ),
        (
            &["plan", "set", "gold", "--concurrent-jobs", "3"],
            "there is no plan \"gold\" yet; a new one needs --requests-per-minute",
        ),
        (
            &["plan", "set", " ", "--concurrent-jobs", "3"],
            "name: must not be blank",
        ),
        (
            &["plan", "set", "free", "--requests-per-minute", "0"],
            "0 is not in 1..=",
        ),
    ];
    for (arguments, expected) in cases {
        let refused = world
            .stack
            .operate(arguments)
            .await
            .unwrap_err()
            .to_string();
        assert!(refused.contains(expected), "{arguments:?}: {refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn email_spellings_are_one_user() {
    let world = shared_world().await;
    let address = fresh_email("ada");
    let other_spelling = format!("{} ", address.to_uppercase());
    let first = world
        .stack
        .operate(&[
            "org",
            "create",
            "--name",
            "A",
            "--owner-email",
            &other_spelling,
        ])
        .await
        .unwrap();
    let second = world
        .stack
        .operate(&["org", "create", "--name", "B", "--owner-email", &address])
        .await
        .unwrap();
    assert_eq!(first["owner_user_id"], second["owner_user_id"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_change_applies_to_next_request() {
    let world = world_with(StackSize {
        apis: 2,
        workers: 0,
        ..StackSize::default()
    })
    .await;
    let apis: Vec<_> = world
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
    let numbers = [
        "--requests-per-minute",
        "777",
        "--eval-items-per-month",
        "1",
        "--concurrent-jobs",
        "3",
        "--upload-bytes-max",
        "4096",
    ];
    let gold = world
        .stack
        .operate(&[&["plan", "set", "gold"] as &[&str], &numbers].concat())
        .await
        .unwrap();
    assert_eq!(
        json!([
            gold["plan"],
            gold["requests_per_minute"],
            gold["storage_bytes"],
            gold["queue_weight"]
        ]),
        json!(["gold", 777, 40960, 1])
    );
    let set = world
        .stack
        .operate(&["org", "set", "--org", &world.org.id, "--plan", "gold"])
        .await
        .unwrap();
    assert_eq!(
        set,
        json!({"org_id": world.org.id, "name": "Acme", "plan": "gold"})
    );
    for api in &apis {
        let usage = api.get("/v1/usage").await.unwrap();
        assert_eq!(
            (usage.header("x-ratelimit-limit"), &usage.body["plan"]),
            ("777", &json!("gold"))
        );
        for (limit, value) in usage.body["limits"].as_object().unwrap() {
            assert_eq!(*value, gold[limit], "{limit}");
        }
    }
    // Omitted options keep their values; without options the command prints the plan.
    let changed = world
        .stack
        .operate(&[
            "plan",
            "set",
            "gold",
            "--requests-per-minute",
            "55",
            "--eval-items-per-month",
            "0",
        ])
        .await
        .unwrap();
    assert_eq!(
        world.stack.operate(&["plan", "set", "gold"]).await.unwrap(),
        changed
    );
    assert_eq!(
        json!([
            changed["requests_per_minute"],
            changed["eval_items_per_month"],
            changed["concurrent_jobs"]
        ]),
        json!([55, 0, 3])
    );
    for api in &apis {
        assert_eq!(
            api.get("/v1/me").await.unwrap().header("x-ratelimit-limit"),
            "55"
        );
    }
    let refused = world.submit(&one_prediction()).await.expect_status(429);
    assert_eq!(
        refused.body["error"]["details"]["max"], 0,
        "{}",
        refused.body
    );
    // Two commands create the same plan concurrently.
    let make = || async {
        world
            .stack
            .operate(&[&["plan", "set", "new"] as &[&str], &numbers].concat())
            .await
            .unwrap()
    };
    let (a, b) = tokio::join!(make(), make());
    assert_eq!(a, b);
}

/// The view `plan_limits` applies the defaults that `PLAN_LIMITS` states.
#[tokio::test(flavor = "multi_thread")]
async fn plan_without_limits_has_their_defaults() {
    let world = world().await;
    let required: Vec<_> = PLAN_LIMITS
        .iter()
        .filter(|limit| limit.default == DefaultLimit::Required)
        .zip(11_i64..)
        .collect();
    let columns: String = required
        .iter()
        .map(|(limit, _)| format!(", {}", limit.column))
        .collect();
    let values: String = required
        .iter()
        .map(|(_, value)| format!(", {value}"))
        .collect();
    let insert = format!("insert into plans (plan{columns}) values ('bare'{values})");
    let mut db = world.database().await;
    sqlx::raw_sql(sqlx::AssertSqlSafe(insert))
        .execute(&mut db)
        .await
        .unwrap();
    let read = "select row_to_json(p) from plan_limits p where plan = 'bare'";
    let found: Value = sqlx::query_scalar(read).fetch_one(&mut db).await.unwrap();
    let names: Vec<&str> = PLAN_LIMITS.iter().map(|limit| limit.column).collect();
    assert_eq!(found.as_object().unwrap().len(), 1 + names.len(), "{found}");
    for limit in PLAN_LIMITS {
        let expected = match limit.default {
            DefaultLimit::Fixed(value) => json!(value),
            DefaultLimit::Times(n, other) => json!(n * found[other].as_i64().unwrap()),
            DefaultLimit::Required => {
                let (_, value) = required
                    .iter()
                    .find(|(other, _)| other.column == limit.column)
                    .unwrap();
                json!(value)
            }
        };
        assert_eq!(found[limit.column], expected, "{}", limit.column);
    }
}

/// `TEST_WRITE_PLANS=1` writes the row.
#[test]
fn operators_guide_lists_every_limit() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/operators.md");
    let guide = std::fs::read_to_string(&path).unwrap();
    let options = |limits: &mut dyn Iterator<Item = &PlanLimit>, (start, end, by)| {
        let options: Vec<_> = limits
            .map(|limit| format!("{start}--{}{end}", limit.option()))
            .collect();
        options.join(by)
    };
    let all = options(&mut PLAN_LIMITS.iter(), ("[", " N]", " "));
    let mut required = PLAN_LIMITS
        .iter()
        .filter(|limit| limit.default == DefaultLimit::Required);
    let required = options(&mut required, ("`", "`", ", "));
    let row = format!(
        "| `assay-api plan set NAME {all}` | Creates a plan, or changes the given limits of one. A new plan needs {required}. |"
    );
    let found = guide
        .lines()
        .find(|line| line.starts_with("| `assay-api plan set NAME"))
        .unwrap();
    if std::env::var_os("TEST_WRITE_PLANS").is_some() {
        std::fs::write(&path, guide.replace(found, &row)).unwrap();
    }
    assert_eq!(found, row);
}

#[tokio::test(flavor = "multi_thread")]
async fn second_migration_changes_nothing() {
    let world = world().await;
    let first = world.stack.operate(&["migrate"]).await.unwrap();
    assert_eq!(world.stack.operate(&["migrate"]).await.unwrap(), first);
}

#[tokio::test(flavor = "multi_thread")]
async fn database_before_first_release_is_refused() {
    let world = world().await;
    let mut db = world.database().await;
    // The first migration was another one, and the last one, which is missing, is not applied.
    sqlx::raw_sql(
        "update _sqlx_migrations set checksum = 'another' where version = 1;
         delete from _sqlx_migrations where version = 10",
    )
    .execute(&mut db)
    .await
    .unwrap();
    let state = "select string_agg(m::text, ' ' order by version) from _sqlx_migrations m";
    let state = async |db: &mut PgConnection| {
        sqlx::query_scalar::<_, String>(state)
            .fetch_one(db)
            .await
            .unwrap()
    };
    let before = state(&mut db).await;
    let output = Command::new(&world.stack.ground.binaries.api)
        .arg("migrate")
        .env_clear()
        .envs(world.stack.operator_env())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        String::from_utf8(output.stderr).unwrap(),
        "assay-api: This database was created before the first release. Create a new one.\n"
    );
    assert_eq!(state(&mut db).await, before);
}

#[test]
fn startup_reports_all_setting_errors() {
    let binaries = ground().binaries.clone();
    for (program, command) in [(&binaries.api, "serve"), (&binaries.worker, "run")] {
        let env = BTreeMap::from([
            ("ASSAY_LISTEM", "x"),
            ("ASSAY_ADMIN_LISTEN", "nowhere"),
            ("ASSAY_DRAIN_SECONDS", "0"),
        ]);
        let output = Command::new(program)
            .arg(command)
            .envs(&env)
            .output()
            .unwrap();
        assert!(!output.status.success());
        let stderr = String::from_utf8(output.stderr).unwrap();
        for name in [
            "ASSAY_LISTEM: there is no such setting",
            "ASSAY_ADMIN_LISTEN:",
            "ASSAY_DRAIN_SECONDS:",
            "ASSAY_DATABASE_URL: is required",
            "ASSAY_REDIS_URL: is required",
        ] {
            assert!(stderr.contains(name), "{stderr}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn occupied_port_error_names_setting() {
    let world = shared_world().await;
    let taken = world.stack.apis[0].listen.unwrap().to_string();
    let mut env = BTreeMap::from([
        ("ASSAY_REDIS_URL", "redis://127.0.0.1:1"),
        ("ASSAY_ADMIN_LISTEN", "127.0.0.1:0"),
    ]);
    env.extend([
        ("ASSAY_DATABASE_URL", world.stack.database.api_url.as_str()),
        ("ASSAY_LISTEN", taken.as_str()),
    ]);
    let output = Command::new(&world.stack.ground.binaries.api)
        .arg("serve")
        .envs(&env)
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(
        stderr.contains(&format!("cannot listen on {taken}")) && stderr.contains("ASSAY_LISTEN"),
        "{stderr}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn start_waits_for_unavailable_database() {
    let mut world = world().await;
    let link = Link::to_postgres(&world.stack.ground.servers).unwrap();
    link.refuse(Ending::Closed);
    let database = &mut world.stack.database;
    let direct = database.clone();
    database.api_url = link.postgres_url(&direct.api_url, &direct.name);
    database.worker_url = link.postgres_url(&direct.worker_url, &direct.name);
    let started = [
        world.stack.launch_api().unwrap(),
        world.stack.launch_worker().unwrap(),
    ];
    for process in &started {
        wait_until("failed attempt to connect", async || {
            assert!(process.guarded.try_wait().is_none(), "the process ended");
            let log = std::fs::read_to_string(&process.log).unwrap_or_default();
            log.contains("database unavailable, retrying")
        })
        .await;
    }
    link.mend();
    for process in &started {
        process.ready().await.unwrap();
    }
}

/// The `assay-api doctor` result: its exit code, and each check's outcome with its finding.
struct Diagnosis {
    code: Option<i32>,
    checks: BTreeMap<String, (String, String)>,
    text: String,
}

/// Runs `assay-api doctor` with settings that replace the process's.
fn diagnose(world: &World, process: &str, changed: &[(&str, &str)]) -> Diagnosis {
    let mut settings = world.stack.operator_env();
    let url = match process {
        "worker" => &world.stack.database.worker_url,
        _ => &world.stack.database.api_url,
    };
    settings.insert("ASSAY_DATABASE_URL".into(), url.clone());
    if process == "api" {
        let signing = world.stack.signing();
        settings.extend(signing.map(|(name, value)| (name.to_owned(), value)));
        let log_url = world.stack.database.log_url.clone();
        settings.insert("ASSAY_LOG_DATABASE_URL".into(), log_url);
    }
    for (name, value) in changed {
        settings.insert((*name).into(), (*value).into());
    }
    let output = Command::new(&world.stack.ground.binaries.api)
        .args(["doctor", "--for", process, "--json"])
        .env_clear()
        .envs(&settings)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let checks: Vec<Value> = serde_json::from_str(&text).unwrap_or_default();
    let checks = checks.iter().map(|check| {
        let name = format!("{} {}", string(&check["area"]), string(&check["check"]));
        let remedy = check["remedy"].as_str().unwrap_or_default().to_owned();
        (name, (string(&check["outcome"]), remedy))
    });
    Diagnosis {
        code: output.status.code(),
        checks: checks.collect(),
        text: format!("{text}{}", String::from_utf8_lossy(&output.stderr)),
    }
}

impl Diagnosis {
    /// Asserts that this check fails, with a remedy that contains this text.
    #[track_caller]
    fn assert_fails(&self, check: &str, remedy: &str) {
        let (outcome, given) = &self.checks[check];
        assert_eq!(
            (outcome.as_str(), self.code),
            ("fail", Some(1)),
            "{}",
            self.text
        );
        assert!(given.contains(remedy), "{given}");
    }

    /// Asserts that exactly this check fails, with a remedy that contains this text.
    #[track_caller]
    fn assert_only(&self, check: &str, remedy: &str) {
        let failed: Vec<_> = self
            .checks
            .iter()
            .filter(|(_, (outcome, _))| outcome == "fail")
            .map(|(name, (_, remedy))| (name.as_str(), remedy.as_str()))
            .collect();
        let [(name, found)] = failed.as_slice() else {
            panic!("{check}: {failed:?}\n{}", self.text)
        };
        assert_eq!((*name, self.code), (check, Some(1)), "{}", self.text);
        assert!(found.contains(remedy), "{found}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_finds_each_fault_and_names_its_remedy() {
    let Some(world) = world_on_own_servers(|_| StackSize::default()).await else {
        return;
    };
    let mut db = world.database().await;
    // Tests run without it, because no test outlives the machine.
    let unsafe_server = diagnose(&world, "api", &[]);
    unsafe_server.assert_only("postgresql durability", "a crash of the server");
    for setting in ["fsync = on", "full_page_writes = on"] {
        sqlx::raw_sql(AssertSqlSafe(format!("alter system set {setting}")))
            .execute(&mut db)
            .await
            .unwrap();
    }
    sqlx::raw_sql("select pg_reload_conf()")
        .execute(&mut db)
        .await
        .unwrap();
    wait_until("a safe server", async || {
        diagnose(&world, "api", &[]).code == Some(0)
    })
    .await;
    for process in ["api", "worker"] {
        let healthy = diagnose(&world, process, &[]);
        assert_eq!(healthy.code, Some(0), "{}", healthy.text);
        assert!(healthy.checks.len() >= 20, "{}", healthy.text);
    }
    let name = &world.stack.database.name;
    let run = async |db: &mut PgConnection, sql: &str| {
        let sql = sql.replace(":db", name);
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(db).await.unwrap();
    };
    let role: String = sqlx::query_scalar("select split_part(split_part($1, '://', 2), ':', 1)")
        .bind(&world.stack.database.api_url)
        .fetch_one(&mut db)
        .await
        .unwrap();
    // PostgreSQL faults: how they are made, and undone; the check, and its remedy.
    let faults: [(&str, &str, &str, &str); 8] = [
        (
            "alter database :db set default_transaction_read_only = on",
            "alter database :db reset default_transaction_read_only",
            "postgresql primary",
            "name the primary",
        ),
        (
            "alter role :role createrole",
            "alter role :role nocreaterole",
            "postgresql role",
            "nocreaterole",
        ),
        (
            "alter database :db set synchronous_commit = off",
            "alter database :db reset synchronous_commit",
            "postgresql durability",
            "a crash of the server",
        ),
        (
            "alter system set autovacuum = off",
            "alter system reset autovacuum",
            "postgresql autovacuum",
            "autovacuum",
        ),
        (
            "update pg_database set datcollversion = '0' where datname = ':db'",
            "update pg_database set datcollversion = null where datname = ':db'",
            "postgresql collation",
            "reindex",
        ),
        (
            "update pg_index set indisvalid = false where indexrelid = 'board_entries_org_id_idx'::regclass",
            "update pg_index set indisvalid = true where indexrelid = 'board_entries_org_id_idx'::regclass",
            "postgresql indexes",
            "reindex index concurrently",
        ),
        (
            "update _sqlx_migrations set success = false where version = 10",
            "update _sqlx_migrations set success = true where version = 10",
            "postgresql migrations",
            "assay-api migrate",
        ),
        (
            "grant select on suite_answers to :role",
            "revoke select on suite_answers from :role",
            "postgresql least rights",
            "revoke every grant",
        ),
    ];
    for (plant, undo, check, remedy) in faults {
        run(&mut db, &plant.replace(":role", &role)).await;
        run(&mut db, "select pg_reload_conf()").await;
        wait_until("the fault", async || {
            let found = diagnose(&world, "api", &[]);
            found
                .checks
                .get(check)
                .is_some_and(|(outcome, _)| outcome == "fail")
        })
        .await;
        diagnose(&world, "api", &[]).assert_only(check, remedy);
        run(&mut db, &undo.replace(":role", &role)).await;
        run(&mut db, "select pg_reload_conf()").await;
    }
    // Setting faults.
    let other_role = &world.stack.database.worker_url;
    let taken = format!("{}", 100_000);
    for (setting, value, check, remedy) in [
        (
            "ASSAY_DATABASE_URL",
            other_role.as_str(),
            "postgresql rights",
            "grant assay_api",
        ),
        (
            "ASSAY_DATABASE_CONNECTIONS",
            &taken,
            "postgresql max_connections",
            "raise max_connections",
        ),
        (
            "ASSAY_REDIS_URL",
            "redis://127.0.0.1:1",
            "redis connection",
            "ASSAY_REDIS_URL",
        ),
        (
            "ASSAY_ARTIFACTS",
            "/nowhere/at/all",
            "artifacts store",
            "ASSAY_ARTIFACTS",
        ),
    ] {
        let found = diagnose(&world, "api", &[(setting, value)]);
        found.assert_fails(check, remedy);
    }
    // Redis faults.
    for (plant, undo, check, remedy) in [
        (
            "replicaof 127.0.0.1 1",
            "replicaof no one",
            "redis role",
            "the primary",
        ),
        (
            "config set maxmemory-policy allkeys-lru",
            "config set maxmemory-policy noeviction",
            "redis maxmemory-policy",
            "noeviction",
        ),
        (
            "acl setuser default resetchannels",
            "acl setuser default allchannels",
            "redis messages",
            "publish and subscribe",
        ),
        (
            "acl setuser default resetkeys ~other*",
            "acl setuser default allkeys",
            "redis writes",
            "let the user write",
        ),
    ] {
        redis_command(&world, plant).await;
        let found = diagnose(&world, "api", &[]);
        redis_command(&world, undo).await;
        found.assert_fails(check, remedy);
    }
    let healthy = diagnose(&world, "api", &[]);
    assert_eq!(healthy.code, Some(0), "{}", healthy.text);
}
