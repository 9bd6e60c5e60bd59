//! The guide's examples are run as they stand there: what is printed in docs/guide.md works.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::clients::{available, made, node_with, run};
use crate::harness::{World, world};

/// How long one program of examples may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// The examples in one language, one after the other: later ones use what earlier ones have made. A block that is
/// marked as setup needs what a test machine has not.
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

/// A folder of the test's own.
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

/// Runs a program of examples and returns what it prints.
async fn printed(world: &World, folder: &Path, program: &str, arguments: &[&str]) -> String {
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
    let output = tokio::time::timeout(PATIENCE, command.output())
        .await
        .unwrap()
        .unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(
        output.status.success(),
        "{program} {arguments:?}\n{out}\n{err}"
    );
    out.into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_examples_for_the_shell_work() {
    for tool in ["bash", "curl", "python3"] {
        if available(run(
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
    let said = printed(&world, &folder, "bash", &["examples.sh"]).await;
    for expected in [
        "'metric': 'accuracy'",
        "api_key\n",
        "1\nqueued\n",
        "'gen_ai.evaluation.result'",
    ] {
        assert!(said.contains(expected), "{expected} is not in:\n{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_examples_for_python_work() {
    if available(run(
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
    let said = printed(&world, &folder, "python3", &["examples.py"]).await;
    for expected in [
        &format!("200 api_key {}\n", world.org.id),
        "lable unknown_field - ",
        "TXT _svc-challenge.hopper.example svc-domain-",
        "succeeded accuracy 0.",
    ] {
        assert!(said.contains(expected), "{expected} is not in:\n{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_examples_for_typescript_compile_and_work() {
    let Some(node) =
        made(|| node_with("openapi", &["package.json", "package-lock.json", ".npmrc"])).await
    else {
        return;
    };
    let world = world().await;
    let folder = folder(&world, "typescript");
    // A module, so that it may wait at its top.
    std::fs::write(
        folder.join("examples.mts"),
        format!("{}\nexport {{}};\n", examples("typescript")),
    )
    .unwrap();
    let (compiler, types) = (
        node.join("node_modules/typescript/bin/tsc"),
        node.join("node_modules/@types"),
    );
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
    printed(&world, &folder, "node", &arguments).await;
    assert_eq!(
        printed(&world, &folder, "node", &["examples.mjs"]).await,
        "succeeded 0.0025\n"
    );
}
