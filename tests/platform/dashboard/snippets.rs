//! Every snippet on the pages about a suite works as it stands there, for each prediction form.

use std::path::Path;

use assay_proto::v1;
use assay_proto::v1::eval_service_client::EvalServiceClient;
use prost::Message as _;
use prost_reflect::{DescriptorPool, DynamicMessage};
use serde_json::{Value, json};
use tokio::process::Command;

use super::visitor::{Page, Visitor};
use crate::clients::prepare;
use crate::disclosure::{publish_folder, write_files};
use crate::harness::{World, in_time, with_token, world};
use crate::python_client;

/// The first item's id in each suite, with characters that HTML, shells and JSON escape.
const ITEM_ID: &str = r#"it's <b>"1"\n</b> & $HOME"#;

/// The suites, each with its metric, and its answers to three items.
const SUITES: [(&str, &str, [&str; 3]); 6] = [
    ("rankings", "hit_rate@3", [r#""a""#, r#""b""#, r#""a""#]),
    ("labels", "exact_match", [r#""a""#, r#""b""#, r#""a""#]),
    ("numbers", "rmse", ["1", "2", "3"]),
    ("chances", "log_loss", [r#""a""#, r#""b""#, r#""a""#]),
    ("ranks", "spearman", ["1", "2", "3"]),
    ("areas", "auc", [r#""a""#, r#""b""#, r#""a""#]),
];

async fn publish(world: &World, folder: &Path) {
    for (name, metric, answers) in SUITES {
        let head = format!("suite_id = \"suite:{name}\"\nversion = \"1\"\nmetric = \"{metric}\"\n");
        let ids = [ITEM_ID, "2", "3"];
        let items = [1, 2, 3].map(|n: usize| {
            let input = json!({"options": ["it's $a", "b"], "note": "x".repeat(n)});
            json!({"item_id": ids[n - 1], "input": input})
        });
        let answers = ids.into_iter().zip(answers).map(|(id, answer)| {
            let answer: Value = serde_json::from_str(answer).unwrap();
            json!({"item_id": id, "answer": answer})
        });
        let lines = |rows: Vec<Value>| {
            rows.iter()
                .map(|row| format!("{row}\n"))
                .collect::<String>()
        };
        let suite = folder.join(name);
        let (items, answers) = (lines(items.to_vec()), lines(answers.collect()));
        write_files(&suite, &head, &items, &answers);
        publish_folder(world, &suite).await.unwrap();
    }
}

/// Runs a program with a snippet, and returns its standard output.
async fn output(world: &World, folder: &Path, mut command: Command) -> String {
    let cli = world.stack.ground.binaries.cli.parent().unwrap().to_owned();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let all = std::iter::once(cli).chain(std::env::split_paths(&path));
    command
        .current_dir(folder)
        .env("PATH", std::env::join_paths(all).unwrap())
        .env("HOME", folder)
        .env("NO_PROXY", "127.0.0.1")
        .env("ASSAY_BASE_URL", world.stack.url())
        .env("ASSAY_API_KEY", &world.org.key)
        .env("ASSAY_CACHE", folder.join("cache"));
    let output = in_time("the end of the snippet", command.output())
        .await
        .unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {err}");
    String::from_utf8(output.stdout).unwrap()
}

fn shell(code: &str) -> Command {
    let mut command = Command::new("bash");
    command.args(["-euo", "pipefail", "-c", code]);
    command
}

/// Sends the message that a grpcurl snippet has, as grpcurl reads its command line.
async fn send_as_grpcurl(world: &World, folder: &Path, code: &str) -> String {
    let words = format!("grpcurl() {{ printf '%s\\0' \"$@\"; }}\n{code}");
    let words = output(world, folder, shell(&words)).await;
    let words: Vec<&str> = words.split_terminator('\0').collect();
    let url = world.stack.url();
    let address = url.strip_prefix("http://").unwrap();
    let authorization = format!("Authorization: Bearer {}", world.org.key);
    let [plain, header, authorized, data, message, host, method] = words[..] else {
        panic!("{words:?}");
    };
    assert_eq!(
        (plain, header, authorized, data, host, method),
        (
            "-plaintext",
            "-H",
            authorization.as_str(),
            "-d",
            address,
            "assay.v1.EvalService/CreateEval"
        )
    );
    let pool = DescriptorPool::decode(assay_proto::DESCRIPTORS).unwrap();
    let request_type = pool
        .get_message_by_name("assay.v1.CreateEvalRequest")
        .unwrap();
    let mut json = serde_json::Deserializer::from_str(message);
    let request = DynamicMessage::deserialize(request_type, &mut json).unwrap();
    let request = v1::CreateEvalRequest::decode(&*request.encode_to_vec()).unwrap();
    let mut evals = EvalServiceClient::new(world.channel().await);
    let created = evals.create_eval(with_token(request, &world.org.key)).await;
    created.unwrap().into_inner().job.unwrap().id
}

/// Returns the job id that a program has printed.
fn job_in(printed: &str) -> String {
    let at = printed
        .find("job_")
        .unwrap_or_else(|| panic!("no job in {printed}"));
    let id = printed[at..].chars();
    id.take_while(|c| c.is_ascii_alphanumeric() || *c == '_')
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_snippet_works_as_it_is_shown() {
    let Some(python) = prepare(python_client::newest).await else {
        return;
    };
    let world = world().await;
    world.widen_plans().await;
    let folder = world.stack.ground.servers.folder();
    let folder = folder.join(assay_tests::databases::fresh_name("snippets"));
    publish(&world, &folder).await;
    let mut visitor = Visitor::signed_in(&world, &world.org.session);
    for (name, metric, _) in SUITES {
        let needs_all = matches!(metric, "spearman" | "auc");
        let pages = [
            format!("/suites/suite:{name}"),
            format!("/suites/suite:{name}/submit"),
        ];
        for path in pages {
            let page: Page = visitor.open(&path).await;
            page.assert_shows(200, "A prediction is a");
            let languages: &[&str] = if needs_all {
                &["Python"]
            } else {
                &["Python", "Command line", "curl", "grpcurl"]
            };
            if needs_all {
                assert!(page.code("Command line").starts_with("assay items "));
                assert!(!page.text.contains("/v1/evals"), "{}", page.text);
            }
            for language in languages.iter().copied() {
                let code = page.code(language);
                assert!(!code.contains('…'), "{code}");
                let job_id = match language {
                    "grpcurl" => send_as_grpcurl(&world, &folder, &code).await,
                    "Python" => {
                        let mut command = python_client::command(&python);
                        command.args(["-c", &code]);
                        job_in(&output(&world, &folder, command).await)
                    }
                    _ => job_in(&output(&world, &folder, shell(&code)).await),
                };
                let job = world.wait_until_finished(&job_id).await;
                assert_eq!(job["status"], "succeeded", "{path}: {code}: {job}");
                assert_eq!(job["result"]["suite_id"], format!("suite:{name}"), "{code}");
                let n_submitted = &job["result"]["n_submitted"];
                assert_eq!(
                    *n_submitted,
                    if language == "Python" { 3 } else { 1 },
                    "{code}"
                );
            }
        }
    }
}
