//! Runs the examples in docs/guide.md and the Python example in README.md as they are printed there.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;

use crate::clients::{node_with, or_skip, prepare, run};
use crate::harness::{World, in_time, long_test, shared_world, world};
use crate::python_client;

/// Returns a document's text, which `path` names from the repository's root.
fn document(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    std::fs::read_to_string(root.join(path)).unwrap()
}

/// Returns the examples in one language, concatenated, as later ones use earlier ones' results.
/// Blocks marked as setup are left out: they need things that a test machine does not have.
fn examples(language: &str) -> String {
    let guide = document("docs/guide.md");
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

/// Runs an example program and returns its standard output.
async fn run_examples(world: &World, folder: &Path, mut command: Command) -> String {
    command
        .current_dir(folder)
        .env("REST", world.stack.url())
        .env("KEY", &world.org.key)
        .env("ASSAY_BASE_URL", world.stack.url())
        .env("ASSAY_API_KEY", &world.org.key)
        .env("ASSAY_CACHE", folder.join("cache"))
        .env("MAILS", world.stack.mail_folder())
        .env("SESSION", &world.org.session)
        .env("NO_PROXY", "127.0.0.1")
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = in_time("the end of the program", command.output())
        .await
        .unwrap();
    let out = String::from_utf8_lossy(&output.stdout);
    let err = String::from_utf8_lossy(&output.stderr);
    let program = command.as_std().get_program();
    assert!(output.status.success(), "{program:?}\n{out}\n{err}");
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
    let mut command = Command::new("bash");
    command.arg("examples.sh");
    let output = run_examples(&world, &folder, command).await;
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
    long_test!("runs all examples of the guide with Python");
    let Some(python) = prepare(python_client::newest).await else {
        return;
    };
    let world = shared_world().await;
    let folder = folder(&world, "python");
    std::fs::write(folder.join("examples.py"), examples("python")).unwrap();
    let mut command = python_client::command(&python);
    command.arg("examples.py");
    let output = run_examples(&world, &folder, command).await;
    for expected in [
        &format!("api_key {}\n", world.org.id),
        "lable unknown_field - ",
        "TXT _svc-challenge.hopper.example svc-domain-",
        "succeeded accuracy 0.",
        "409 invalid_state\n",
    ] {
        assert!(output.contains(expected), "{expected} is not in:\n{output}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn readme_example_prints_its_result() {
    let Some(python) = prepare(python_client::newest).await else {
        return;
    };
    let readme = document("README.md");
    let (_, rest) = readme.split_once("\n```python\n").unwrap();
    let (program, rest) = rest.split_once("\n```\n").unwrap();
    let (_, rest) = rest.split_once("\n```text\n").unwrap();
    let (printed, rest) = rest.split_once("\n```\n").unwrap();
    assert!(!rest.contains("\n```python\n"), "one example is run");
    let world = shared_world().await;
    let folder = folder(&world, "readme");
    std::fs::write(folder.join("example.py"), program).unwrap();
    let mut command = python_client::command(&python);
    command.arg("example.py");
    let output = run_examples(&world, &folder, command).await;
    // Only the job's id differs.
    let (figures, _) = printed.split_once("job_").unwrap();
    assert!(output.starts_with(figures), "{output} is not:\n{printed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn typescript_examples_compile_and_work() {
    let Some(node) =
        prepare(|| node_with("openapi", &["package.json", "package-lock.json", ".npmrc"])).await
    else {
        return;
    };
    let world = shared_world().await;
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
    let mut compile = Command::new("node");
    compile
        .arg(compiler)
        .args(options)
        .arg(types)
        .arg("examples.mts");
    run_examples(&world, &folder, compile).await;
    let mut command = Command::new("node");
    command.arg("examples.mjs");
    assert_eq!(
        run_examples(&world, &folder, command).await,
        "succeeded 0.0025\n"
    );
}
