//! `cargo up`: runs a complete installation on this machine until Ctrl-C.

use std::process::ExitCode;
use std::sync::Arc;

use assay_tests::binaries::{self, Profile};
use assay_tests::servers::{Servers, Trouble};
use assay_tests::stack::{Ground, Process, Stack, StackSize};
use assay_tests::{demo_suite, demonstration, playlist_suite};
use clap::Parser;
use serde_json::{Value, json};

/// Start PostgreSQL, Redis, the API, workers and an engine, and keep them running until Ctrl-C.
/// Print one JSON line with addresses and credentials to standard output when everything is ready.
#[derive(Parser)]
#[command(bin_name = "cargo up")]
struct Arguments {
    /// Number of API processes
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=16))]
    apis: u8,
    /// Number of workers
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(0..=16))]
    workers: u8,
    /// Build and run optimized binaries
    #[arg(long)]
    release: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    match up(Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(trouble) => {
            eprintln!("cargo up: {trouble}");
            ExitCode::FAILURE
        }
    }
}

async fn up(arguments: Arguments) -> Result<(), Trouble> {
    let binaries = binaries::build(Profile::release_if(arguments.release))?;
    let servers = Servers::start(&|line| eprintln!("{line}"))?;
    let ground = Arc::new(Ground::new(servers, binaries));
    let plan = StackSize {
        apis: arguments.apis.into(),
        workers: arguments.workers.into(),
        engines: 1,
        ..StackSize::default().with_local_receivers()
    };
    let mut stack = Stack::start(&ground, plan).await?;
    println!("{}", described(&stack).await?);
    eprintln!(
        "Dashboard: {}/sign-in. Sign in as owner@example.org: the email with the link is a file in {}.",
        stack.url(),
        stack.mail_folder().display()
    );
    eprintln!("Ready. Press Ctrl-C to stop everything.");
    tokio::signal::ctrl_c()
        .await
        .map_err(Trouble::because("cannot wait for Ctrl-C"))?;
    stack.stop();
    ground.clear(&stack.database).await
}

/// Publishes suites and a model, and creates an organization with credentials; returns these and all addresses
/// as JSON.
async fn described(stack: &Stack) -> Result<Value, Trouble> {
    demonstration::publish_lunch(stack).await?;
    demonstration::publish_playlist(stack).await?;
    let org = stack
        .operate(&[
            "org",
            "create",
            "--name",
            "Demo",
            "--plan",
            "team",
            "--owner-email",
            "owner@example.org",
        ])
        .await?;
    let org_id = org["org_id"].as_str().unwrap_or_default();
    let session = stack
        .operate(&[
            "session",
            "create",
            "--email",
            "owner@example.org",
            "--org",
            org_id,
        ])
        .await?;
    let key = stack
        .operate(&["key", "create", "--org", org_id, "--name", "demo"])
        .await?;
    let addresses: Vec<String> = stack
        .apis
        .iter()
        .filter_map(|api| api.listen)
        .map(|listen| format!("http://{listen}"))
        .collect();
    let grpc = addresses
        .first()
        .map(|url| url.trim_start_matches("http://").to_owned());
    let admin = |processes: &[Process]| {
        processes
            .iter()
            .map(|process| format!("http://{}", process.admin))
            .collect::<Vec<_>>()
    };
    let pids = |processes: &[Process]| {
        processes
            .iter()
            .map(|process| process.guarded.pid())
            .collect::<Vec<_>>()
    };
    Ok(json!({
        "rest": addresses.first(),
        "grpc": grpc,
        "admin": {"api": admin(&stack.apis), "workers": admin(&stack.workers), "engines": admin(&stack.engines)},
        "apis": addresses,
        "database_url": stack.database.owner_url,
        "redis_url": stack.ground.servers.redis_url(),
        "org_id": org_id,
        "owner_session": session["token"],
        "api_key": key["key"],
        "suite_id": demo_suite::SUITE_ID,
        "model_id": demonstration::MODEL_ID,
        "model_suite_id": playlist_suite::SUITE_ID,
        "pids": {
            "api": pids(&stack.apis),
            "workers": pids(&stack.workers),
            "engines": pids(&stack.engines),
            "postgres": stack.ground.servers.postgres_pid(),
            "redis": stack.ground.servers.redis_pid(),
        },
        "mails": stack.mail_folder(),
        "env": stack.operator_env(),
    }))
}
