//! `assay-api`: serves, and carries out the operator's commands.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use assay_api::admin::commands;
use assay_api::serve;
use assay_api::settings::{self, Settings};
use assay_core::Error;
use assay_core::model::org::PlanChange;
use assay_core::runtime::prometheus::{self, Binary};
use clap::{Args, Parser, Subcommand, value_parser};

/// Returns memory to the system when the clients that it was held for have left; the system's own allocator keeps it.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// The api of Assay. Settings come from environment variables; docs/configuration.md lists them.
#[derive(Parser)]
#[command(version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve REST and gRPC until the shutdown signal
    Serve,
    /// Print the description of the REST api, OpenAPI 3.1
    Openapi {
        /// Name this build in it, as the served one does
        #[arg(long)]
        git_sha: bool,
    },
    /// Bring the database's schema to this build's version
    Migrate,
    /// Organizations
    #[command(subcommand)]
    Org(OrgCommand),
    /// Plans
    #[command(subcommand)]
    Plan(PlanCommand),
    /// The artifact store
    #[command(subcommand)]
    Artifacts(ArtifactsCommand),
    /// Sessions of people
    #[command(subcommand)]
    Session(SessionCommand),
    /// API keys
    #[command(subcommand)]
    Key(KeyCommand),
    /// Users
    #[command(subcommand)]
    User(UserCommand),
    /// Suites
    #[command(subcommand)]
    Suite(SuiteCommand),
    /// Models
    #[command(subcommand)]
    Model(ModelCommand),
}

#[derive(Subcommand)]
enum OrgCommand {
    /// Make an organization and its first owner
    Create {
        /// Its name
        #[arg(long)]
        name: String,
        /// Its plan, such as free, dev or team
        #[arg(long, default_value = "free")]
        plan: String,
        /// The e-mail address of its owner
        #[arg(long)]
        owner_email: String,
    },
    /// Put an organization on a plan
    Set {
        /// The organization
        #[arg(long)]
        org: String,
        /// The plan
        #[arg(long)]
        plan: String,
    },
    /// Refuse all credentials of an organization and let its queued jobs wait
    Suspend {
        /// The organization
        #[arg(long)]
        org: String,
    },
    /// End the suspension of an organization
    Resume {
        /// The organization
        #[arg(long)]
        org: String,
    },
    /// Delete an organization but for what accounting needs
    Delete {
        /// The organization
        #[arg(long)]
        org: String,
        /// The organization once more: this cannot be undone
        #[arg(long)]
        confirm: String,
    },
}

#[derive(Subcommand)]
enum PlanCommand {
    /// Make a plan, or change what is given of one
    Set {
        /// Its name
        name: String,
        #[command(flatten)]
        change: PlanArguments,
    },
}

#[derive(Args)]
struct PlanArguments {
    /// Requests in any 60 seconds
    #[arg(long, value_parser = value_parser!(i32).range(1..))]
    requests_per_minute: Option<i32>,
    /// Predictions scored in a calendar month
    #[arg(long, value_parser = value_parser!(i64).range(0..))]
    eval_items_per_month: Option<i64>,
    /// Jobs queued or running at once
    #[arg(long, value_parser = value_parser!(i32).range(1..))]
    concurrent_jobs: Option<i32>,
    /// Bytes of the largest upload
    #[arg(long, value_parser = value_parser!(i64).range(1..))]
    upload_bytes_max: Option<i64>,
    /// Bytes stored at once; ten times the largest upload if it was never given
    #[arg(long, value_parser = value_parser!(i64).range(1..))]
    storage_bytes: Option<i64>,
}

#[derive(Subcommand)]
enum ArtifactsCommand {
    /// Remove objects that are a day old and that no row names, and count rows whose object is missing
    Reconcile {
        /// Remove nothing
        #[arg(long)]
        dry_run: bool,
    },
}

impl From<PlanArguments> for PlanChange {
    fn from(arguments: PlanArguments) -> Self {
        let PlanArguments {
            requests_per_minute,
            eval_items_per_month,
            concurrent_jobs,
            upload_bytes_max,
            storage_bytes,
        } = arguments;
        Self {
            requests_per_minute,
            eval_items_per_month,
            concurrent_jobs,
            upload_bytes_max,
            storage_bytes,
        }
    }
}

#[derive(Subcommand)]
enum SessionCommand {
    /// Make a session of a person who is known
    Create {
        /// Their e-mail address
        #[arg(long)]
        email: String,
        /// The organization that the session begins in
        #[arg(long)]
        org: Option<String>,
    },
    /// End all sessions of a user, or one session
    End {
        /// The user's email address: all of their sessions end
        #[arg(long, required_unless_present = "session", conflicts_with = "session")]
        email: Option<String>,
        /// The session
        #[arg(long)]
        session: Option<String>,
    },
}

#[derive(Subcommand)]
enum UserCommand {
    /// Erase a user's address, sessions and memberships
    Erase {
        /// The email address
        #[arg(long)]
        email: String,
    },
}

#[derive(Subcommand)]
enum KeyCommand {
    /// Make an API key in the name of the organization's oldest owner
    Create {
        /// The organization
        #[arg(long)]
        org: String,
        /// The key's name
        #[arg(long)]
        name: String,
    },
    /// Revoke an API key of any organization
    Revoke {
        /// The key's id
        #[arg(long)]
        key: String,
    },
}

#[derive(Subcommand)]
enum SuiteCommand {
    /// Say what attackers learn from the scores of a folder's suite, under its policy and others; publishes nothing
    Audit {
        /// The folder
        dir: PathBuf,
    },
    /// Publish a folder with suite.toml, items.ndjson and answers.ndjson
    Publish {
        /// The folder
        dir: PathBuf,
    },
    /// Let an organization submit to a suite with access = "granted"
    Grant(GrantArguments),
    /// Take the grant back
    Revoke(GrantArguments),
}

#[derive(Args)]
struct GrantArguments {
    /// The suite
    #[arg(long)]
    suite: String,
    /// The organization
    #[arg(long)]
    org: String,
}

#[derive(Subcommand)]
enum ModelCommand {
    /// Publish a version of a model's card
    Publish {
        /// The file, JSON
        file: PathBuf,
    },
}

fn main() -> ExitCode {
    let Arguments { command } = Arguments::parse();
    if let Command::Openapi { git_sha } = command {
        println!(
            "{:#}",
            assay_api::openapi::document(git_sha.then_some(env!("ASSAY_GIT_SHA")))
        );
        return ExitCode::SUCCESS;
    }
    if let Command::Suite(SuiteCommand::Audit { dir }) = &command {
        return print_audit(dir);
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error.to_string()),
    };
    let done = match command {
        Command::Serve => runtime.block_on(run_server()),
        command => runtime.block_on(operate(command)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => failed(&message),
    }
}

/// Prints the audit of a folder, and its warnings where a person reads them.
fn print_audit(dir: &Path) -> ExitCode {
    match commands::suite_audit(dir) {
        Ok(report) => {
            warn(&report["warnings"]);
            println!("{report:#}");
            ExitCode::SUCCESS
        }
        Err(error) => failed(&told(&error)),
    }
}

/// Writes warnings to standard error, a line each.
fn warn(warnings: &serde_json::Value) {
    for warning in warnings
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(serde_json::Value::as_str)
    {
        eprintln!("warning: {warning}");
    }
}

fn failed(message: &str) -> ExitCode {
    eprintln!("assay-api: {message}");
    ExitCode::FAILURE
}

/// A fault as the person at the terminal should read it: the cause, where there is one, says more.
fn told(error: &Error) -> String {
    error.cause.as_ref().map_or_else(
        || error.message.trim_start_matches("command: ").to_owned(),
        ToString::to_string,
    )
}

async fn run_server() -> Result<(), String> {
    let settings = Settings::from_env(env!("ASSAY_GIT_SHA")).map_err(|bad| bad.to_string())?;
    prometheus::init_logging(&settings.common).map_err(|error| told(&error))?;
    let metrics =
        prometheus::init_metrics(Binary::Api, &settings.common).map_err(|error| told(&error))?;
    serve(settings, metrics).await.map_err(|error| told(&error))
}

async fn operate(command: Command) -> Result<(), String> {
    if let Command::Artifacts(ArtifactsCommand::Reconcile { dry_run }) = command {
        let (url, artifacts) = settings::reconciliation().map_err(|bad| bad.to_string())?;
        let object = commands::reconcile(&url, &artifacts, dry_run)
            .await
            .map_err(|error| told(&error))?;
        println!("{object}");
        return Ok(());
    }
    let url = settings::operator().map_err(|bad| bad.to_string())?;
    let url = url.as_str();
    let done = match command {
        Command::Serve
        | Command::Openapi { .. }
        | Command::Artifacts(_)
        | Command::Suite(SuiteCommand::Audit { .. }) => return Ok(()),
        // The table of the log is made by a migration.
        Command::Migrate => commands::migrate(url).await,
        Command::Org(OrgCommand::Create {
            name,
            plan,
            owner_email,
        }) => {
            commands::logged(
                url,
                "org create",
                None,
                commands::org_create(url, &name, &plan, &owner_email),
            )
            .await
        }
        Command::Org(OrgCommand::Set { org, plan }) => {
            commands::logged(
                url,
                "org set",
                Some(&org),
                commands::org_set(url, &org, &plan),
            )
            .await
        }
        Command::Org(OrgCommand::Suspend { org }) => {
            commands::logged(
                url,
                "org suspend",
                Some(&org),
                commands::org_suspend(url, &org),
            )
            .await
        }
        Command::Org(OrgCommand::Resume { org }) => {
            commands::logged(
                url,
                "org resume",
                Some(&org),
                commands::org_resume(url, &org),
            )
            .await
        }
        Command::Org(OrgCommand::Delete { org, confirm }) => {
            commands::logged(
                url,
                "org delete",
                Some(&org),
                commands::org_delete(url, &org, &confirm),
            )
            .await
        }
        Command::Plan(PlanCommand::Set { name, change }) => {
            commands::logged(
                url,
                "plan set",
                Some(&name),
                commands::plan_set(url, &name, &change.into()),
            )
            .await
        }
        Command::Session(SessionCommand::Create { email, org }) => {
            commands::logged(
                url,
                "session create",
                None,
                commands::session_create(url, &email, org.as_deref()),
            )
            .await
        }
        Command::Session(SessionCommand::End {
            email: Some(email), ..
        }) => {
            commands::logged(
                url,
                "session end",
                None,
                commands::session_end_all(url, &email),
            )
            .await
        }
        Command::Session(SessionCommand::End {
            email: None,
            session,
        }) => {
            let session = session.unwrap_or_default();
            commands::logged(
                url,
                "session end",
                Some(&session),
                commands::session_end(url, &session),
            )
            .await
        }
        Command::Key(KeyCommand::Create { org, name }) => {
            commands::logged(
                url,
                "key create",
                Some(&org),
                commands::key_create(url, &org, &name),
            )
            .await
        }
        Command::Key(KeyCommand::Revoke { key }) => {
            commands::logged(
                url,
                "key revoke",
                Some(&key),
                commands::key_revoke(url, &key),
            )
            .await
        }
        Command::User(UserCommand::Erase { email }) => {
            commands::logged(url, "user erase", None, commands::user_erase(url, &email)).await
        }
        Command::Suite(SuiteCommand::Publish { dir }) => {
            commands::logged(
                url,
                "suite publish",
                None,
                commands::suite_publish(url, &dir),
            )
            .await
        }
        Command::Suite(SuiteCommand::Grant(GrantArguments { suite, org })) => {
            commands::logged(
                url,
                "suite grant",
                Some(&org),
                commands::suite_grant(url, &suite, &org),
            )
            .await
        }
        Command::Suite(SuiteCommand::Revoke(GrantArguments { suite, org })) => {
            commands::logged(
                url,
                "suite revoke",
                Some(&org),
                commands::suite_revoke(url, &suite, &org),
            )
            .await
        }
        Command::Model(ModelCommand::Publish { file }) => {
            commands::logged(
                url,
                "model publish",
                None,
                commands::model_publish(url, &file),
            )
            .await
        }
    };
    let object = done.map_err(|error| told(&error))?;
    warn(&object["disclosure"]["warnings"]);
    println!("{object}");
    Ok(())
}
