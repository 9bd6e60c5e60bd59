//! The alerting rules and the dashboard in `helm/files`, checked with Prometheus.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use assay_core::runtime::prometheus::{ALL, Kind};
use assay_proto::v1;
use assay_proto::v1::eval_service_client::EvalServiceClient;
use assay_tests::databases;
use assay_tests::servers::{Guarded, GuardedCommand};
use assay_tests::stack::StackSize;
use prost_reflect::DescriptorPool;
use serde_json::{Value, json};

use crate::clients::{prepare, python_with, run};
use crate::harness::{
    Expect, World, ground, long_test, one_prediction, operations_in, string, wait_until,
    with_token, world, world_with,
};
use crate::packages::publish;
use crate::receiver::Receiver;
use crate::routes::ROUTES;
use crate::serving::package;
use crate::telemetry::prometheus;
use crate::uploads::{complete, open, put};
use crate::webhooks::Webhook;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn file(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the contents of all files in a folder by file name.
fn folder(path: &str) -> BTreeMap<String, String> {
    let entries = std::fs::read_dir(root().join(path))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let named = entries.map(|path| {
        (
            path.file_name().unwrap().to_str().unwrap().to_owned(),
            std::fs::read_to_string(&path).unwrap(),
        )
    });
    named.collect()
}

/// Returns the values of the lines `key: value`, in order.
fn values<'a>(yaml: &'a str, key: &str) -> Vec<&'a str> {
    yaml.lines()
        .filter_map(|line| {
            line.trim()
                .trim_start_matches("- ")
                .strip_prefix(key)?
                .strip_prefix(": ")
        })
        .collect()
}

fn dashboard() -> Value {
    serde_json::from_str(&file("helm/files/dashboard.json")).unwrap()
}

/// Returns all panels, including those of collapsed rows.
fn panels(of: &Value) -> Vec<&Value> {
    let panels = of["panels"].as_array().into_iter().flatten();
    panels
        .flat_map(|panel| std::iter::once(panel).chain(self::panels(panel)))
        .collect()
}

fn queries(panel: &Value) -> impl Iterator<Item = String> {
    panel["targets"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|target| string(&target["expr"]))
}

/// An Assay metric in a query, with its label matchers.
struct Selector {
    name: String,
    matchers: Vec<Matcher>,
}

struct Matcher {
    label: String,
    /// `true` if the matcher compares with one value instead of a pattern.
    is_exact: bool,
    value: String,
}

/// Returns the Assay metrics in a query.
fn selectors(query: &str) -> Vec<Selector> {
    let mut found = Vec::new();
    let word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == ':';
    for (at, _) in query.match_indices("assay_") {
        if query[..at].ends_with(word) {
            continue;
        }
        let name: String = query[at..]
            .chars()
            .take_while(|letter| word(*letter))
            .collect();
        let mut rest = query[at + name.len()..]
            .strip_prefix('{')
            .unwrap_or_default();
        let mut matchers = Vec::new();
        // Quoted strings may contain braces.
        while let Some((label, behind)) = rest
            .split_once('"')
            .filter(|(label, _)| !label.contains('}'))
        {
            let (value, behind) = behind.split_once('"').unwrap();
            let name = label
                .trim_start_matches(',')
                .trim_end_matches(['=', '~', '!'])
                .trim();
            matchers.push(Matcher {
                label: name.to_owned(),
                is_exact: !label.contains('~'),
                value: value.to_owned(),
            });
            rest = behind;
        }
        found.push(Selector { name, matchers });
    }
    found
}

/// Returns all values of the label `operation`.
fn operations() -> BTreeSet<String> {
    let pool = DescriptorPool::decode(assay_proto::DESCRIPTORS).unwrap();
    let rpcs = pool.services().flat_map(|service| {
        service
            .methods()
            .map(|rpc| format!("{}/{}", rpc.parent_service().full_name(), rpc.name()))
            .collect::<Vec<_>>()
    });
    let routes = ROUTES
        .iter()
        .map(|route| format!("{} {}", route.method, route.path));
    let pages = operations_in(include_str!("../../api/src/dashboard/mod.rs"));
    rpcs.chain(routes)
        .chain(pages)
        .chain(["unknown".to_owned(), "OPTIONS".to_owned()])
        .collect()
}

/// Asserts that the metrics, labels and label values of a query exist.
fn assert_known(query: &str, place: &str, operations: &BTreeSet<String>) {
    for Selector { name, matchers } in selectors(query) {
        let base = ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|end| name.strip_suffix(end));
        let histogram = ALL
            .iter()
            .find(|instrument| instrument.kind == Kind::Histogram && base == Some(instrument.name));
        let instrument = histogram.or_else(|| {
            ALL.iter()
                .find(|instrument| instrument.name == name && instrument.kind != Kind::Histogram)
        });
        let instrument =
            instrument.unwrap_or_else(|| panic!("{place}: there is no metric {name}: {query}"));
        for Matcher {
            label,
            is_exact,
            value,
        } in matchers
        {
            let values = instrument
                .labels
                .iter()
                .find(|(known, _)| *known == label)
                .map(|(_, values)| *values);
            let is_scrape_label = ["namespace", "instance", "job", "le"].contains(&label.as_str());
            assert!(
                values.is_some() || is_scrape_label,
                "{place}: {name} has no label {label}: {query}"
            );
            for value in value
                .split('|')
                .filter(|_| label == "operation" || is_exact)
                .filter(|value| !value.starts_with('$'))
            {
                let value = value.to_owned();
                let known = values
                    .is_none_or(|values| values.is_empty() || values.contains(&value.as_str()));
                assert!(
                    known && (label != "operation" || operations.contains(&value)),
                    "{place}: {label}={value:?} of {name}: {query}"
                );
            }
        }
    }
}

#[test]
fn rules_dashboard_and_runbooks_use_known_metrics() {
    let operations = operations();
    let rules = file("helm/files/alerts.yaml");
    for (at, line) in rules
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim_start().starts_with('#'))
    {
        assert_known(line, &format!("alerts.yaml:{}", at + 1), &operations);
    }
    let dashboard = dashboard();
    for panel in panels(&dashboard) {
        for query in queries(panel) {
            assert_known(&query, &string(&panel["title"]), &operations);
        }
    }
    for (name, page) in folder("docs/runbooks") {
        let blocks = page
            .split("```promql\n")
            .skip(1)
            .map(|block| block.split("```").next().unwrap());
        blocks
            .flat_map(str::lines)
            .for_each(|line| assert_known(line, &name, &operations));
    }
}

#[test]
fn each_alert_is_documented_and_tested() {
    let rules = file("helm/files/alerts.yaml");
    let alerts: BTreeSet<&str> = values(&rules, "alert").into_iter().collect();
    assert!(
        alerts.len() >= 15 && alerts.len() == values(&rules, "alert").len(),
        "{alerts:?}"
    );
    let pages = folder("docs/runbooks");
    let names: BTreeSet<&str> = pages
        .keys()
        .filter_map(|name| name.strip_suffix(".md"))
        .filter(|name| *name != "README")
        .collect();
    assert_eq!(names, alerts);
    let tests: String = folder("tests/alerts").into_values().collect();
    let tried: Vec<&str> = tests.split("alertname: ").skip(1).collect();
    let links = file("helm/files/dashboard.json");
    for alert in alerts {
        let page = &pages[&format!("{alert}.md")];
        for heading in [
            "# ",
            "## Impact",
            "## Diagnosis",
            "## Likely causes",
            "## Resolution",
            "## Recovery",
        ] {
            assert!(
                page.lines().any(|line| line.starts_with(heading)),
                "{alert}.md has no {heading:?}"
            );
        }
        assert!(
            values(&rules, "runbook_url").contains(&format!("docs/runbooks/{alert}.md").as_str()),
            "{alert}"
        );
        assert!(
            pages["README.md"].contains(&format!("[{alert}]({alert}.md)")),
            "the index does not list {alert}"
        );
        assert!(
            links.contains(&format!("{alert}.md")),
            "no panel links to the runbook of {alert}"
        );
        let fires = |test: &&str| {
            test.split_once("exp_alerts:")
                .is_some_and(|(_, expected)| expected.trim_start().starts_with('-'))
        };
        let of: Vec<bool> = tried
            .iter()
            .filter(|test| test.lines().next() == Some(alert))
            .map(fires)
            .collect();
        assert!(
            of.windows(2).any(|pair| pair == [true, false]),
            "no test in which {alert} fires and then resolves: {of:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn promtool_accepts_rules_and_alert_tests() {
    long_test!("runs all tests of the alerts with promtool");
    let Some(programs) = prometheus().await else {
        return;
    };
    let check = |arguments: &[&str]| {
        let output = Command::new(programs.join("promtool"))
            .current_dir(root())
            .args(arguments)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "promtool {arguments:?}: {said}");
    };
    check(&["check", "rules", "helm/files/alerts.yaml"]);
    let files: Vec<String> = folder("tests/alerts")
        .into_keys()
        .map(|name| format!("tests/alerts/{name}"))
        .collect();
    check(
        &["test", "rules"]
            .into_iter()
            .chain(files.iter().map(String::as_str))
            .collect::<Vec<_>>(),
    );
}

#[test]
fn dashboard_panels_do_not_overlap() {
    let dashboard = dashboard();
    let mut taken = BTreeMap::new();
    let mut ids = BTreeSet::new();
    for panel in panels(&dashboard) {
        let title = string(&panel["title"]);
        assert!(
            ids.insert(panel["id"].as_i64().unwrap()),
            "{title}: duplicate id"
        );
        let [x, y, w, h] =
            ["x", "y", "w", "h"].map(|side| panel["gridPos"][side].as_u64().unwrap_or(0));
        assert!(x + w <= 24 && h > 0, "{title}");
        assert!(
            panel["type"] == "row" || !string(&panel["description"]).is_empty(),
            "{title} has no description"
        );
        for place in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
            assert_eq!(taken.insert(place, title.clone()), None, "{title}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn dashboard_matches_its_generator() {
    let Some(python) =
        prepare(|| python_with("dashboard", &root().join("helm/requirements.txt"))).await
    else {
        return;
    };
    let checked = run(
        Command::new(python)
            .current_dir(root())
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .args(["helm/dashboard.py", "--check"]),
        "not the output of helm/dashboard.py",
    );
    assert!(checked.is_ok(), "run helm/dashboard.py");
}

#[tokio::test(flavor = "multi_thread")]
async fn runbook_sql_runs() {
    let world = world().await;
    let mut database = world.database().await;
    for (name, page) in folder("docs/runbooks") {
        for block in page
            .split("```sql\n")
            .skip(1)
            .map(|block| block.split("```").next().unwrap())
        {
            // Statements that terminate sessions are inline code in the runbooks, not blocks, so
            // they do not run here.
            let tried = sqlx::raw_sql(sqlx::AssertSqlSafe(block.to_owned()))
                .execute(&mut database)
                .await;
            assert!(tried.is_ok(), "{name}: {tried:?}\n{block}");
        }
    }
}

/// A Prometheus that scrapes a stack every second and has the rules loaded.
struct Watching {
    _process: Guarded,
    url: String,
}

impl Watching {
    async fn start(programs: &Path, world: &World) -> Self {
        let folder: PathBuf = ground()
            .servers
            .folder()
            .join(databases::fresh_name("prometheus"));
        std::fs::create_dir(&folder).unwrap();
        let targets: Vec<String> = world
            .stack
            .apis
            .iter()
            .chain(&world.stack.workers)
            .chain(&world.stack.engines)
            .map(|process| process.admin.to_string())
            .collect();
        let config = json!({
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [root().join("helm/files/alerts.yaml")],
            "scrape_configs": [{"job_name": "assay", "static_configs": [{"targets": targets}]}],
        });
        std::fs::write(folder.join("prometheus.yaml"), config.to_string()).unwrap();
        let listen = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let mut command = GuardedCommand::new(programs.join("prometheus"));
        let arguments = [
            format!("--config.file={}", folder.join("prometheus.yaml").display()),
            format!("--storage.tsdb.path={}", folder.join("data").display()),
            format!("--web.listen-address={listen}"),
        ];
        command.args = arguments.map(Into::into).to_vec();
        command.log = Some(folder.join("prometheus.log"));
        command.run_folder = Some(ground().servers.folder().to_path_buf());
        let process = Guarded::spawn(&command).unwrap();
        let watching = Self {
            _process: process,
            url: format!("http://{listen}"),
        };
        let ready = format!("{}/-/ready", watching.url);
        wait_until("Prometheus", async || {
            reqwest::get(&ready)
                .await
                .is_ok_and(|response| response.status() == 200)
        })
        .await;
        watching
    }

    async fn ask(&self, path: &str, query: &[(&str, &str)]) -> Value {
        let url =
            reqwest::Url::parse_with_params(&format!("{}/api/v1/{path}", self.url), query).unwrap();
        let response: Value = reqwest::get(url).await.unwrap().json().await.unwrap();
        assert_eq!(response["status"], "success", "{query:?}: {response}");
        response["data"].clone()
    }

    /// Returns how many series in a query's result are numbers.
    async fn numbers(&self, query: &str) -> usize {
        let found = self.ask("query", &[("query", query)]).await;
        let values = found["result"]
            .as_array()
            .unwrap()
            .iter()
            .map(|series| string(&series["value"][1]));
        values.filter(|value| value != "NaN").count()
    }
}

/// Generates load on every part of the platform.
async fn load(world: &World) {
    let key = world.key();
    for _ in 0..5 {
        world.submit_and_wait(&one_prediction()).await;
        let message = v1::CreateEvalRequest {
            suite_id: "suite:lunch".into(),
            ..Default::default()
        };
        let refused = EvalServiceClient::new(world.channel().await)
            .create_eval(with_token(message, &world.org.key))
            .await;
        assert!(refused.is_err());
        let upload_id = open(&key, json!({"kind": "predictions"})).await;
        put(&key, &upload_id, 1, one_prediction()[0].to_string()).await;
        complete(&key, &upload_id).await.expect_status(200);
        world.anonymous().get("/v1/me").await.unwrap();
        let sequence = json!({"sequence_id": "watched", "events": [{"item_id": "dish-03"}]});
        let body = json!({"sequences": [sequence]});
        let path = "/v1/models/embedded/predict";
        key.post(path, &body).await.expect_status(200);
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    world
        .sign_in(&format!("{}@example.org", databases::fresh_name("watched")))
        .await;
    let receiver = Receiver::start().await;
    let webhook = Webhook::create(&world.owner(), &receiver.url("/"), &["ping"]).await;
    for pings in 1..=5 {
        webhook.ping().await;
        receiver.wait_for("/", pings).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_panel_shows_data() {
    let Some(programs) = prometheus().await else {
        return;
    };
    let world = world_with(StackSize {
        engines: 1,
        ..StackSize::default().with_local_receivers()
    })
    .await;
    publish(&world, &package("embedded"), None).await.unwrap();
    let watching = Watching::start(&programs, &world).await;
    wait_until("a scrape of all", async || {
        watching.numbers("count(up == 1) == 3").await == 1
    })
    .await;
    load(&world).await;
    // Health and resource metrics are sampled every five seconds.
    let settled = "max_over_time(assay_worker_slots[1m]) and on () count(assay_redis_up == 1) == 2 and on () max(assay_workers) == 1";
    wait_until("the resource metrics", async || {
        watching.numbers(settled).await > 0
    })
    .await;
    load(&world).await;

    let dashboard = dashboard();
    let mut queried = 0;
    for panel in panels(&dashboard) {
        for query in queries(panel) {
            let concrete = ["$namespace", "$instance", "$operation"]
                .iter()
                .fold(query.clone(), |query, name| query.replace(name, ".*"));
            let concrete = concrete
                .replace("$__rate_interval", "30s")
                .replace("$__range", "30s")
                .replace("$__interval", "30s");
            assert!(!concrete.contains('$'), "{concrete}");
            // Rates cover the last 30 s, in which a busy machine may have sent no request.
            let event = format!("data of {}: {concrete}", string(&panel["title"]));
            wait_until(&event, async || {
                let shows_data = watching.numbers(&concrete).await > 0;
                if !shows_data {
                    load(&world).await;
                }
                shows_data
            })
            .await;
            queried += 1;
        }
    }
    assert!(queried > 50, "{queried}");
    let rules = watching.ask("rules", &[]).await;
    let rules: Vec<&Value> = rules["groups"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|group| group["rules"].as_array().unwrap())
        .collect();
    for rule in &rules {
        assert_eq!(rule["health"], "ok", "{rule}");
        assert!(
            rule["type"] == "recording" || rule["state"] == "inactive",
            "{rule}"
        );
    }
    println!("{queried} queries, {} rules", rules.len());
}
