//! Runs the examples of docs/guide.md as they are printed there.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::clients::{node_with, or_skip, prepare, run};
use crate::harness::{World, world};

/// The timeout for one program of examples.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(120);

/// Returns the examples in one language, concatenated, as later ones use results of earlier ones.
/// Blocks marked as setup are left out: they need things that a test machine does not have.
fn examples(language: &str) -> String {
    let guide = std::fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .with_file_name("docs")
            .join("guide.md"),
    )
    .unwrap();
    let text: Vec<_> = guide
        .split("\n```")
        .filter_map(|block| block.strip_prefix(&format!("{language}\n")))
        .collect();
    assert!(
        text.len() > 1 || language == "typescript" && !text.is_empty(),
        "no examples in {language}"
    );
    text.join("\n")
}

/// Creates a folder that only this test uses.
fn folder(world: &World, name: &str) -> PathBuf {
    let folder = world
        .stack
        .ground
        .servers
        .folder()
        .join(format!("{}-{name}", world.stack.database.name));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Runs a program of examples and returns its standard output.
async fn run_examples(world: &World, folder: &Path, program: &str, arguments: &[&str]) -> String {
    let mut command = tokio::process::Command::new(program);
    command
        .args(arguments)
        .current_dir(folder)
        .env("REST", world.stack.url())
        .env("KEY", &world.org.key);
    command.env("MAILS", world.stack.mail_folder());
    command
        .env("SESSION", &world.org.session)
        .env("NO_PROXY", "127.0.0.1")
        .stdin(std::process::Stdio::null())
        .kill_on_drop(true);
    let output = tokio::time::timeout(PROGRAM_TIMEOUT, command.output())
        .await
        .unwrap()
        .unwrap();
    let out = String::from_utf8_lossy(&output.stdout);
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{program} {arguments:?}\n{out}\n{err}"
    );
    out.into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn shell_examples_work() {
    for tool in ["bash", "curl", "python3"] {
        if or_skip(run(
            std::process::Command::new(tool).arg("--version"),
            &format!("no {tool} on PATH"),
        ))
        .is_none()
        {
            return;
        }
    }
    let world = world().await;
    let folder = folder(&world, "shell");
    std::fs::write(
        folder.join("examples.sh"),
        format!("set -euo pipefail\n{}", examples("sh")),
    )
    .unwrap();
    let output = run_examples(&world, &folder, "bash", &["examples.sh"]).await;
    for expected in [
        "'metric': 'accuracy'",
        "api_key\n",
        "1\nqueued\n",
        "'gen_ai.evaluation.result'",
    ] {
        assert!(output.contains(expected), "{expected} is not in:\n{output}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn python_examples_work() {
    if or_skip(run(
        std::process::Command::new("python3").arg("--version"),
        "no python3 on PATH",
    ))
    .is_none()
    {
        return;
    }
    let world = world().await;
    let folder = folder(&world, "python");
    std::fs::write(folder.join("examples.py"), examples("python")).unwrap();
    let output = run_examples(&world, &folder, "python3", &["examples.py"]).await;
    for expected in [
        &format!("200 api_key {}\n", world.org.id),
        "lable unknown_field - ",
        "TXT _svc-challenge.hopper.example svc-domain-",
        "succeeded accuracy 0.",
    ] {
        assert!(output.contains(expected), "{expected} is not in:\n{output}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn typescript_examples_compile_and_work() {
    let Some(node) =
        prepare(|| node_with("openapi", &["package.json", "package-lock.json", ".npmrc"])).await
    else {
        return;
    };
    let world = world().await;
    let folder = folder(&world, "typescript");
    // A module, as only modules allow top-level await.
    std::fs::write(
        folder.join("examples.mts"),
        format!("{}\nexport {{}};\n", examples("typescript")),
    )
    .unwrap();
    let compiler = node.join("node_modules/typescript/bin/tsc");
    let types = node.join("node_modules/@types");
    let options = [
        "--strict",
        "--target",
        "es2022",
        "--module",
        "nodenext",
        "--types",
        "node",
        "--typeRoots",
    ];
    let arguments: Vec<&str> = [compiler.to_str().unwrap()]
        .into_iter()
        .chain(options)
        .chain([types.to_str().unwrap(), "examples.mts"])
        .collect();
    run_examples(&world, &folder, "node", &arguments).await;
    assert_eq!(
        run_examples(&world, &folder, "node", &["examples.mjs"]).await,
        "succeeded 0.0025\n"
    );
}
