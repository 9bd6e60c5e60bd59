//! The dashboard: scenarios in a real browser, and the requests of hostile ones.

mod news;
mod openid;
mod routes;
mod security;
mod snippets;
pub mod visitor;

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use assay_tests::demo_suite::{self, SUITE_ID};
use assay_tests::wait::wait_timeout;
use serde_json::{Value, json};
use sqlx::PgConnection;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::Command;

use crate::chromium::Chromium;
use crate::clients::{MissingTool, node_with, prepare};
use crate::harness::{Expect, World, long_test, one_prediction, org, string, wait_until};
use crate::{boards, device, mail, uploads};
use routes::{Resources, world};
use visitor::Visitor;

/// The scenario files.
const FILES: [&str; 12] = [
    ".npmrc",
    "package.json",
    "package-lock.json",
    "helpers.mjs",
    "device.mjs",
    "hostile.mjs",
    "journey.mjs",
    "keyboard.mjs",
    "openid.mjs",
    "pages.mjs",
    "provider.mjs",
    "scriptless.mjs",
];

/// The tools of scenarios: their script folder, and a browser.
struct Tools {
    folder: PathBuf,
    chromium: Chromium,
}

fn tools() -> Result<Tools, MissingTool> {
    Ok(Tools {
        folder: node_with("dashboard", &FILES)?,
        chromium: Chromium::find()?,
    })
}

/// Runs a scenario. `answer` answers its questions, except for the tokens of links.
async fn play(
    world: &World,
    script: &str,
    input: Value,
    mut answer: impl AsyncFnMut(&str, &Value) -> Value,
) {
    let Some(tools) = prepare(tools).await else {
        return;
    };
    // A short name: the browser puts a socket into its profile, whose path is limited to 107 bytes.
    static FOLDERS: AtomicU32 = AtomicU32::new(0);
    let name = format!("b{}", FOLDERS.fetch_add(1, Ordering::Relaxed));
    let folder = world.stack.ground.servers.folder().join(name);
    fs::create_dir(&folder).unwrap();
    let mut scenario = Command::new("node")
        .arg(tools.folder.join(script))
        .env("HOME", &folder)
        .env(
            "ASSAY_TEST_WAIT_SECONDS",
            wait_timeout().as_secs().to_string(),
        )
        .env("TMPDIR", &folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut replies = scenario.stdin.take().unwrap();
    let mut questions = BufReader::new(scenario.stdout.take().unwrap()).lines();
    let mut stderr = scenario.stderr.take().unwrap();
    let report = Arc::new(Mutex::new(String::new()));
    let reporting = tokio::spawn({
        let report = Arc::clone(&report);
        async move {
            let mut bytes = [0; 8192];
            while let Ok(length @ 1..) = stderr.read(&mut bytes).await {
                let text = String::from_utf8_lossy(&bytes[..length]);
                report.lock().unwrap().push_str(&text);
            }
        }
    });
    let task = json!({
        "base": world.stack.url(), "browser": tools.chromium.launch_options(), "input": input,
    });
    let conversation = async {
        let mut reply = task;
        loop {
            // A scenario that has failed reads no replies.
            let _ = replies.write_all(format!("{reply}\n").as_bytes()).await;
            let Some(line) = questions.next_line().await.unwrap() else {
                break;
            };
            let asked: Value = serde_json::from_str(&line).unwrap();
            let (question, value) = (string(&asked["question"]), &asked["value"]);
            reply = match question.as_str() {
                "link" => json!(newest_link(world, &string(value)).await),
                question => answer(question, value).await,
            };
        }
        scenario.wait().await.unwrap()
    };
    let status = tokio::time::timeout(2 * wait_timeout(), conversation).await;
    if status.is_ok() {
        reporting.await.unwrap();
    }
    let report = report.lock().unwrap();
    let status = status.unwrap_or_else(|_| panic!("{script} timed out\n{report}"));
    assert!(status.success(), "{script}: {status}\n{report}");
}

/// Waits for the link that a user has requested, and returns its token.
async fn newest_link(world: &World, email: &str) -> String {
    wait_until("sign-in email", async || {
        !mail::links(world, email).is_empty()
    })
    .await;
    mail::links(world, email).pop().unwrap()
}

async fn no_questions(question: &str, _: &Value) -> Value {
    panic!("unexpected question: {question}")
}

/// Answers `hold` and `release`: in between, no job finishes.
struct Holder<'a> {
    world: &'a World,
    held: Option<PgConnection>,
}

impl<'a> Holder<'a> {
    const fn new(world: &'a World) -> Self {
        Self { world, held: None }
    }

    async fn answer(&mut self, question: &str) -> Value {
        self.held = match question {
            "hold" => Some(self.world.hold_answers().await),
            "release" => None,
            _ => panic!("unexpected question: {question}"),
        };
        Value::Null
    }
}

/// Returns the lines of two files with a prediction for every item: by habit, and by the order of
/// the menu, which is worse.
async fn files(world: &World) -> [Vec<String>; 2] {
    let path = "/v1/suites/suite:lunch/items?limit=1000";
    let items = world.key().get(path).await.unwrap().body;
    let items = items["items"].as_array().unwrap();
    [demo_suite::by_habit, demo_suite::by_menu].map(|ranking| {
        let line = |item: &Value| {
            json!({"item_id": item["item_id"], "prediction": ranking(&item["input"])}).to_string()
        };
        items.iter().map(line).collect()
    })
}

/// Returns the input of scenarios that submit files.
async fn submissions(world: &World) -> Value {
    let [predictions, others] = files(world).await;
    json!({"suite": SUITE_ID, "predictions": predictions, "others": others})
}

/// Returns the input of scenarios that also enter a sealed suite's board.
async fn submissions_with_board(world: &World) -> Value {
    let mut input = submissions(world).await;
    let (suite, predictions) = boards::publish_sealed(world).await;
    input["sealed"] = json!({"suite": suite, "predictions": predictions});
    input
}

#[tokio::test(flavor = "multi_thread")]
async fn team_works_in_browser() {
    long_test!("uses the dashboard in a browser as three people");
    let (world, _name_server) = world(1, false).await;
    let input = submissions(&world).await;
    let mut holder = Holder::new(&world);
    play(&world, "journey.mjs", input, async |question, _| {
        holder.answer(question).await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn user_without_scripts_gets_score() {
    let (world, _name_server) = world(1, false).await;
    let input = submissions_with_board(&world).await;
    let mut holder = Holder::new(&world);
    play(&world, "scriptless.mjs", input, async |question, _| {
        holder.answer(question).await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn user_without_pointer_compares_scores() {
    let (world, _name_server) = world(1, false).await;
    let input = submissions_with_board(&world).await;
    play(&world, "keyboard.mjs", input, no_questions).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn program_gets_key_from_user() {
    let (world, _name_server) = world(0, false).await;
    let input = json!({"email": world.org.email, "org": world.org.id});
    let mut login = Value::Null;
    play(
        &world,
        "device.mjs",
        input,
        async |question, value| match question {
            "start" => {
                login = device::start(&world, &string(value)).await;
                login.clone()
            }
            "poll" => device::poll(&world, &login).await.body,
            _ => panic!("unexpected question: {question}"),
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_texts_stay_texts() {
    long_test!("opens every page in a browser");
    let (world, _name_server) = world(1, false).await;
    let input = submissions(&world).await;
    play(&world, "hostile.mjs", input, async |question, value| {
        match question {
            "hostile link" => {
                let email = string(&value["email"]);
                let anonymous = world.anonymous();
                let request = anonymous
                    .request("POST", "/v1/auth/email")
                    .header("user-agent", string(&value["program"]))
                    .json(&json!({"email": email}));
                anonymous.send(request).await.expect_status(202);
                json!(newest_link(&world, &email).await)
            }
            // Jobs with these labels, of the organization that the user has created.
            "jobs" => {
                let session = world.sign_in("eve@example.org").await;
                let eve = world.client(&session);
                for label in value["labels"].as_array().unwrap() {
                    let eval = json!({"suite_id": SUITE_ID, "predictions": one_prediction(), "label": label});
                    eve.post("/v1/evals", &eval).await.expect_status(202);
                }
                Value::Null
            }
            "start" => device::start(&world, &string(value)).await,
            _ => panic!("unexpected question: {question}"),
        }
    })
    .await;
}

/// Returns a page in one state, as a scenario opens it for one user.
fn state(user: &str, name: &str, path: impl Into<String>, title: &str, text: &str) -> Value {
    json!({
        "user": user, "name": name, "path": path.into(), "title": title, "text": text,
        "status": 200, "actions": [],
    })
}

/// Returns a state to which these actions lead.
fn after(mut state: Value, actions: Value) -> Value {
    state["actions"] = actions;
    state
}

/// Returns a state whose page has this status.
fn with_status(mut state: Value, status: u16) -> Value {
    state["status"] = json!(status);
    state
}

/// Submits a file with a label, and returns the job's id.
async fn submit_file(world: &World, suite_id: &str, label: &str, lines: &str) -> String {
    let key = world.key();
    let upload = uploads::uploaded(&key, json!({"kind": "predictions"}), lines.as_bytes()).await;
    let eval = json!({"suite_id": suite_id, "input_ref": upload, "label": label});
    let job = key.post("/v1/evals", &eval).await.expect_status(202);
    string(&job.body["id"])
}

/// Returns every page as an owner sees it, and pages in other states.
async fn states(world: &mut World, own: &Resources) -> Vec<Value> {
    let [by_habit, by_menu] = files(world).await.map(|lines| lines.join("\n"));
    let best = submit_file(world, SUITE_ID, "by habit", &by_habit).await;
    let worse = submit_file(world, SUITE_ID, "by menu", &by_menu).await;
    let line = format!("{}\n", one_prediction()[0]);
    let failed = submit_file(world, SUITE_ID, "=1+1", &line.repeat(2)).await;
    for job in [&best, &worse, &failed, own.id("job_id")] {
        world.wait_until_finished(job).await;
    }
    let broken = uploads::open(&world.key(), json!({"kind": "predictions"})).await;
    uploads::put(&world.key(), &broken, 1, "{\"item_id\":").await;
    uploads::complete(&world.key(), &broken)
        .await
        .expect_status(422);
    // Without a worker, the job stays as it is.
    world.stack.workers.clear();
    let queued = submit_file(world, SUITE_ID, "queued", &line).await;
    let code = string(&device::start(world, "assay on node-7").await["user_code"]);
    let submit = format!("Submit to {SUITE_ID}");
    let of = |user: &'static str| {
        move |name: &str, path: String, title: &str, text: &str| {
            state(user, name, path, title, text)
        }
    };
    let (owner, viewer, beginner, nobody) =
        (of("owner"), of("viewer"), of("beginner"), of("nobody"));
    let mut states: Vec<Value> = routes::PAGES
        .iter()
        .map(|page| {
            let user = if page.route == "/sign-in" {
                "nobody"
            } else {
                "owner"
            };
            let [path, title, text] =
                [page.route, page.title, page.text].map(|text| own.fill(text));
            state(user, page.route, path, &title, &text)
        })
        .collect();
    states.extend([
        owner(
            "failed job",
            format!("/jobs/{failed}"),
            "=1+1",
            "The job failed",
        ),
        owner(
            "queued job",
            format!("/jobs/{queued}"),
            "queued",
            "The job waits for a worker.",
        ),
        owner(
            "job with a score",
            format!("/jobs/{best}"),
            "by habit",
            "Compare with",
        ),
        owner(
            "cancellation",
            format!("/jobs/{queued}/cancel"),
            "Cancel a job",
            "Let it run",
        ),
        owner(
            "history with scores",
            format!("/suites/{SUITE_ID}/history"),
            &format!("History of {SUITE_ID}"),
            "The figures in a table",
        ),
        owner(
            "history with a baseline",
            format!("/suites/{SUITE_ID}/history?baseline={best}"),
            &format!("History of {SUITE_ID}"),
            "Remove the baseline",
        ),
        owner(
            "no matching job",
            "/jobs?status=failed&label=none".into(),
            "Jobs",
            "No job with state failed",
        ),
        owner(
            "comparison",
            format!("/compare?a={best}&b={worse}"),
            "Compare",
            "(accuracy, larger is better)",
        ),
        with_status(
            owner(
                "one selected job",
                format!("/compare?job={best}"),
                "Compare",
                "You have selected 1.",
            ),
            422,
        ),
        owner(
            "search without a result",
            "/search?q=none".into(),
            "Search",
            "Nothing with the id or label",
        ),
        owner(
            "file that cannot be scored",
            format!("/suites/{SUITE_ID}/submissions/{broken}"),
            &submit,
            "The file cannot be scored",
        ),
        owner(
            "device login",
            format!("/device?code={code}"),
            "Connect a program",
            "assay on node-7",
        ),
        with_status(
            owner(
                "wrong code",
                "/device?code=none".into(),
                "Connect a program",
                "Enter the code",
            ),
            422,
        ),
        with_status(
            owner("wrong days", "/usage?from=none".into(), "Usage", "By day"),
            422,
        ),
        after(
            owner(
                "new key",
                "/keys".into(),
                "API keys",
                "This is the only time",
            ),
            json!([["fill", "Name", "created"], ["press", "Create"]]),
        ),
        after(
            owner(
                "rejected form",
                "/keys".into(),
                "API keys",
                "this field is required",
            ),
            json!([["fill", "Name", " "], ["press", "Create"]]),
        ),
        after(
            owner(
                "form of an earlier session",
                "/keys".into(),
                "Send the form again",
                "You have signed in again",
            ),
            json!([["fill", "Name", "typed"], ["outdate"], ["press", "Create"]]),
        ),
        after(
            owner(
                "claimed domain",
                "/domains".into(),
                "Domains",
                "Prove that you own",
            ),
            json!([["fill", "Domain", "claimed.example"], ["press", "Claim"]]),
        ),
        with_status(
            owner(
                "unknown page",
                "/nothing".into(),
                "There is no such page",
                "not_found",
            ),
            404,
        ),
        with_status(
            owner(
                "unknown job",
                "/jobs/job_none".into(),
                "There is no such page",
                "not_found",
            ),
            404,
        ),
        viewer(
            "keys of a viewer",
            "/keys".into(),
            "API keys",
            "Your role is viewer.",
        ),
        viewer(
            "members of a viewer",
            "/members".into(),
            "Members",
            "Only owners invite users",
        ),
        viewer(
            "domains of a viewer",
            "/domains".into(),
            "Domains",
            "Only owners claim domains.",
        ),
        viewer(
            "settings of a viewer",
            "/settings".into(),
            "Settings",
            "Only owners change the settings.",
        ),
        viewer(
            "file of a viewer",
            format!("/suites/{SUITE_ID}/submit"),
            &submit,
            "Your role is viewer.",
        ),
        viewer(
            "queued job of a viewer",
            format!("/jobs/{queued}"),
            "queued",
            "The job waits for a worker.",
        ),
        viewer(
            "device login of a viewer",
            format!("/device?code={code}"),
            "Connect a program",
            "Your role is viewer.",
        ),
        beginner(
            "first steps",
            "/".into(),
            "Acme",
            "Nobody can create keys or submit",
        ),
        beginner(
            "terms to accept",
            "/terms".into(),
            "Terms",
            "Accept version 2026-01",
        ),
        beginner("no jobs", "/jobs".into(), "Jobs", "No jobs yet."),
        beginner(
            "no score",
            format!("/suites/{SUITE_ID}/history"),
            &format!("History of {SUITE_ID}"),
            "No score yet.",
        ),
        beginner(
            "no usage",
            "/usage".into(),
            "Usage",
            "Nothing was submitted in these days.",
        ),
        nobody(
            "link",
            format!("/sign-in?token={}", own.id("token")),
            "Sign in",
            "Continue only if you asked for the link.",
        ),
        with_status(
            nobody(
                "wrong link",
                "/sign-in?token=none".into(),
                "Sign in",
                "This link is not valid",
            ),
            422,
        ),
        after(
            nobody(
                "sent link",
                "/sign-in".into(),
                "Check your email",
                "The link works once",
            ),
            json!([
                ["fill", "Email address", "ada@example.org"],
                ["press", "Send me a link"]
            ]),
        ),
        with_status(
            nobody(
                "unknown page without a session",
                "/nothing".into(),
                "There is no such page",
                "not_found",
            ),
            404,
        ),
    ]);
    states
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_is_accessible_and_light() {
    long_test!("opens every page in a browser, in both themes");
    let (mut world, name_server) = world(1, true).await;
    let own = Resources::create(&world, &world.org, &name_server, "acme.example").await;
    let states = states(&mut world, &own).await;
    let viewer = world.member("viewer").await;
    let beginner = org(&world.stack, "free").await;
    let input = json!({
        "pages": states,
        "screenshots": std::env::var("TEST_SCREENSHOTS").ok(),
        "sessions": {
            "owner": world.org.session, "viewer": viewer.token(), "beginner": beginner.session, "nobody": null,
        },
    });
    play(&world, "pages.mjs", input, no_questions).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_and_jobs_can_be_stored_as_files() {
    let (world, name_server) = world(1, true).await;
    let own = Resources::create(&world, &world.org, &name_server, "acme.example").await;
    let line = format!("{}\n", one_prediction()[0]);
    let formula = submit_file(&world, SUITE_ID, "=1+1", &line).await;
    for job in [&formula, own.id("job_id")] {
        world.wait_until_finished(job).await;
    }
    let mut owner = Visitor::signed_in(&world, &world.org.session);
    for (route, media_type) in routes::FILES {
        let file = owner.get(&own.fill(route)).await.expect_status(200);
        assert_eq!(file.header("content-type"), media_type, "{route}");
        assert!(
            file.header("content-disposition")
                .starts_with("attachment; filename=\"")
        );
        file.assert_is_protected();
    }
    let table = owner.get("/jobs.csv").await.text;
    let row = |job: &str| table.lines().find(|row| row.starts_with(job)).unwrap();
    assert!(table.starts_with("id,label,"), "{table}");
    // A spreadsheet would compute the label.
    assert!(
        row(&formula).starts_with(&format!("{formula},'=1+1,eval,succeeded,")),
        "{table}"
    );
    let rest = world
        .key()
        .get(&format!("/v1/jobs/{formula}"))
        .await
        .unwrap()
        .body;
    let file = owner.get(&format!("/jobs/{formula}/job.json")).await.text;
    assert_eq!(serde_json::from_str::<Value>(&file).unwrap(), rest);
}
