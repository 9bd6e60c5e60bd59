//! The command line of `assay-api`.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use assay_core::model::org::{PLAN_LIMITS, PlanChange, PlanLimit};
use assay_core::model::suite_edits::SuiteEdits;
use assay_eval::suite::{SuiteLink, SuiteMetadata};
use clap::{
    Arg, ArgMatches, Args, CommandFactory as _, FromArgMatches, Parser, Subcommand, value_parser,
};
use serde_json::{Value, json};

use crate::admin::error::{Result, refused};
use crate::admin::{boards, commands, doctor, model_package, publish, receipts, suites};
use crate::settings::{self, LogSettings};

pub use crate::admin::error::CommandError;

/// The API of Assay. Settings come from environment variables; docs/configuration.md lists them.
#[derive(Parser)]
#[command(version, about)]
pub struct Arguments {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
    /// The name of the command, such as `org create`.
    #[arg(skip)]
    name: String,
}

impl Arguments {
    /// Reads the arguments of this process. Prints the help or an error, and exits, if they are not a
    /// command.
    pub fn read() -> Self {
        let matches = Self::command().get_matches();
        let read = Self::from_arg_matches(&matches);
        Self {
            name: command_name(&matches).join(" "),
            ..read.unwrap_or_else(|error| error.exit())
        }
    }
}

/// Returns the name of each subcommand, from the outermost to the innermost.
fn command_name(matches: &ArgMatches) -> Vec<&str> {
    let subcommands = std::iter::successors(matches.subcommand(), |(_, inner)| inner.subcommand());
    subcommands.map(|(name, _)| name).collect()
}

/// The commands of the binary.
#[derive(Subcommand)]
pub enum Command {
    /// Serve REST and gRPC until the shutdown signal
    Serve,
    /// Deliver webhooks until the shutdown signal
    Deliver,
    /// Sign score receipts and write their log until the shutdown signal
    Log(LogArguments),
    /// Print the OpenAPI 3.1 document of the REST API
    Openapi {
        /// Include the commit of this build, as the served document does
        #[arg(long)]
        git_sha: bool,
    },
    /// Apply the database migrations of this build
    Migrate,
    /// Check what a process depends on: PostgreSQL, Redis, the artifact store and the receipt log; exit with 1 if a check fails
    Doctor {
        /// The process whose settings are in the environment
        #[arg(long = "for", value_enum, default_value = "api")]
        process: doctor::Process,
        /// Print the checks as JSON
        #[arg(long)]
        json: bool,
    },
    /// Manage organizations
    #[command(subcommand)]
    Org(OrgCommand),
    /// Manage plans
    #[command(subcommand)]
    Plan(PlanCommand),
    /// Maintain the artifact store
    #[command(subcommand)]
    Artifacts(ArtifactsCommand),
    /// Manage user sessions
    #[command(subcommand)]
    Session(SessionCommand),
    /// Manage API keys
    #[command(subcommand)]
    Key(KeyCommand),
    /// Manage users
    #[command(subcommand)]
    User(UserCommand),
    /// Check, audit, publish, change, review, suspend, remove and retire suites, and grant access to them
    #[command(subcommand)]
    Suite(SuiteCommand),
    /// Manage the boards of suites
    #[command(subcommand)]
    Board(BoardCommand),
    /// Publish models
    #[command(subcommand)]
    Model(ModelCommand),
    /// Manage the keys of score receipts
    #[command(subcommand)]
    ReceiptKey(ReceiptKeyCommand),
}

/// The receipt log: without a command, the process that writes it.
#[derive(Args)]
pub struct LogArguments {
    /// The command.
    #[command(subcommand)]
    pub command: Option<LogCommand>,
}

/// The commands of `log`.
#[derive(Subcommand)]
pub enum LogCommand {
    /// Read the entries that the database has lost from the tiles of the artifact store
    Recover,
    /// Print a new key of a log: the private key, and the one with which others verify checkpoints
    Keygen {
        /// The name of the log, such as assay.example.org/log
        #[arg(long)]
        origin: String,
    },
}

/// The commands of `receipt-key`.
#[derive(Subcommand)]
pub enum ReceiptKeyCommand {
    /// Print a new private key
    Generate,
    /// Revoke a key: receipts that get their place in the log later are invalid
    Revoke {
        /// The id of the key, as in the JWK set
        kid: String,
        /// Confirms the revocation, which cannot be undone
        #[arg(long)]
        yes: bool,
    },
}

/// The commands of `org`.
#[derive(Subcommand)]
pub enum OrgCommand {
    /// Create an organization with its first owner
    Create {
        /// The name of the organization
        #[arg(long)]
        name: String,
        /// The plan, such as free, dev or team
        #[arg(long, default_value = "free")]
        plan: String,
        /// The email address of the owner
        #[arg(long)]
        owner_email: String,
    },
    /// Change the plan of an organization
    Set {
        /// The id of the organization
        #[arg(long)]
        org: String,
        /// The plan
        #[arg(long)]
        plan: String,
    },
    /// Suspend an organization: its credentials are rejected, and its queued jobs wait
    Suspend {
        /// The id of the organization
        #[arg(long)]
        org: String,
    },
    /// End the suspension of an organization
    Resume {
        /// The id of the organization
        #[arg(long)]
        org: String,
    },
    /// Delete an organization, except the rows that accounting needs
    Delete {
        /// The id of the organization
        #[arg(long)]
        org: String,
        /// The id of the organization again, because this cannot be undone
        #[arg(long)]
        confirm: String,
    },
}

/// The commands of `plan`.
#[derive(Subcommand)]
pub enum PlanCommand {
    /// Create a plan, or change the given limits of one
    Set {
        /// The name of the plan
        name: String,
        /// The limits.
        #[command(flatten)]
        change: PlanArguments,
    },
}

/// The limits of a plan: an option for each of [`PLAN_LIMITS`].
pub struct PlanArguments(PlanChange);

/// The names of the options, as long as the program runs.
static PLAN_OPTIONS: LazyLock<Vec<String>> =
    LazyLock::new(|| PLAN_LIMITS.iter().map(PlanLimit::option).collect());

impl Args for PlanArguments {
    fn augment_args(command: clap::Command) -> clap::Command {
        let options = PLAN_LIMITS.iter().zip(PLAN_OPTIONS.iter());
        command.args(options.map(|(limit, option)| {
            Arg::new(limit.column)
                .long(option.as_str())
                .value_parser(value_parser!(i64).range(limit.min..=limit.max))
                .help(limit.option_help())
        }))
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for PlanArguments {
    fn from_arg_matches(matches: &ArgMatches) -> std::result::Result<Self, clap::Error> {
        let given = PLAN_LIMITS
            .iter()
            .filter_map(|limit| Some((limit.column, *matches.get_one::<i64>(limit.column)?)));
        Ok(Self(given.collect()))
    }

    fn update_from_arg_matches(
        &mut self,
        matches: &ArgMatches,
    ) -> std::result::Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The commands of `artifacts`.
#[derive(Subcommand)]
pub enum ArtifactsCommand {
    /// Remove objects older than a day that no row names, and count rows whose object is missing
    Reconcile {
        /// Only count
        #[arg(long)]
        dry_run: bool,
    },
}

/// The commands of `session`.
#[derive(Subcommand)]
pub enum SessionCommand {
    /// Create a session for an existing user
    Create {
        /// The email address of the user
        #[arg(long)]
        email: String,
        /// The current organization of the session
        #[arg(long)]
        org: Option<String>,
    },
    /// End one session, or all sessions of a user
    End {
        /// The email address of the user whose sessions end
        #[arg(long, required_unless_present = "session", conflicts_with = "session")]
        email: Option<String>,
        /// The id of the session
        #[arg(long)]
        session: Option<String>,
    },
}

/// The commands of `user`.
#[derive(Subcommand)]
pub enum UserCommand {
    /// Erase the email address, sessions and memberships of a user
    Erase {
        /// The email address
        #[arg(long)]
        email: String,
    },
}

/// The commands of `key`.
#[derive(Subcommand)]
pub enum KeyCommand {
    /// Create an API key on behalf of the organization's oldest owner
    Create {
        /// The id of the organization
        #[arg(long)]
        org: String,
        /// The name of the key
        #[arg(long)]
        name: String,
    },
    /// Revoke an API key of any organization
    Revoke {
        /// The id of the key
        #[arg(long)]
        key: String,
    },
}

/// The commands of `suite`.
#[derive(Subcommand)]
pub enum SuiteCommand {
    /// Report the share of the answers that attackers can compute from the scores; publishes nothing
    Audit {
        /// The folder
        dir: PathBuf,
    },
    /// Check a folder and warn of likely mistakes, such as items of one person; publishes nothing
    Check {
        /// The folder
        dir: PathBuf,
    },
    /// Publish a folder with suite.toml, items.ndjson and answers.ndjson as a version of a suite
    Publish {
        /// The folder
        dir: PathBuf,
    },
    /// List the published suites, and the drafts in review
    List {
        /// Only those of this organization
        #[arg(long)]
        org: Option<String>,
        /// Only the drafts in review
        #[arg(long)]
        in_review: bool,
    },
    /// Approve a draft in review, which is then published
    Approve {
        /// The id of the draft
        draft: String,
    },
    /// Reject a draft in review
    Reject {
        /// The id of the draft
        draft: String,
        /// The reason, which the organization sees
        #[arg(long)]
        reason: String,
    },
    /// Change the texts, the visibility or the access of a suite without an owner
    Set(Box<SuiteSetArguments>),
    /// Hide a suite from everybody but its owner; it accepts no submissions, and queued jobs are scored
    Suspend(SuspensionArguments),
    /// End the suspension of a suite
    Resume(SuspensionArguments),
    /// Delete the items and answers of a suite for good; versions, boards, commitments and receipts stay
    Remove {
        /// The id of the suite
        #[arg(long)]
        suite: String,
        /// Only this version
        #[arg(long)]
        version: Option<String>,
        /// The reason, which the owner sees in its audit log
        #[arg(long)]
        reason: String,
        /// Confirms the deletion, which cannot be undone
        #[arg(long)]
        yes: bool,
    },
    /// Allow an organization to submit to a suite with access = "granted"
    Grant(GrantArguments),
    /// Revoke the grant
    Revoke(GrantArguments),
    /// Make the answers of a version public, so that anyone can check its scores; it accepts no submissions afterwards
    Retire {
        /// The id of the suite
        #[arg(long)]
        suite: String,
        /// The version; several that share items retire together
        #[arg(long = "version", value_name = "VERSION", required = true)]
        versions: Vec<String>,
        /// Says that the answers become public
        #[arg(long, required = true)]
        open_answers: bool,
        /// Confirms it, because it cannot be undone
        #[arg(long)]
        yes: bool,
    },
}

/// A suite with new values.
#[derive(Args)]
pub struct SuiteSetArguments {
    /// The id of the suite
    #[arg(long)]
    suite: String,
    /// The title
    #[arg(long)]
    title: Option<String>,
    /// The description
    #[arg(long)]
    description: Option<String>,
    /// An SPDX expression, or an https URL
    #[arg(long)]
    license: Option<String>,
    /// A BibTeX entry
    #[arg(long)]
    citation: Option<String>,
    /// A page about the suite; all links together replace the earlier ones
    #[arg(long = "link", value_name = "LABEL=URL", value_parser = parse_link)]
    links: Vec<SuiteLink>,
    /// A word by which people find the suite; all tags together replace the earlier ones
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// An address for questions
    #[arg(long)]
    contact: Option<String>,
    /// The callers who can see the suite: private, listed or public
    #[arg(long)]
    visibility: Option<String>,
    /// The organizations that can submit: everyone, verified_domain or granted
    #[arg(long)]
    access: Option<String>,
    /// A text to remove, such as license
    #[arg(long = "clear", value_name = "TEXT")]
    clear: Vec<String>,
    /// Confirms that more organizations may submit to a suite with a ladder or a cap
    #[arg(long)]
    yes: bool,
}

/// Reads a link with its label.
fn parse_link(text: &str) -> std::result::Result<SuiteLink, &'static str> {
    let (label, url) = text
        .split_once('=')
        .ok_or("expected LABEL=URL, such as Paper=https://acme.example/votes")?;
    Ok(SuiteLink {
        label: label.to_owned(),
        url: url.to_owned(),
    })
}

impl SuiteSetArguments {
    /// Returns the suite, the changes, and whether they are confirmed.
    fn into_edits(self) -> (String, SuiteEdits, bool) {
        let Self {
            suite,
            title,
            description,
            license,
            citation,
            links,
            tags,
            contact,
            visibility,
            access,
            clear,
            yes,
        } = self;
        let edits = SuiteEdits {
            metadata: SuiteMetadata {
                title,
                description,
                license,
                citation,
                links: (!links.is_empty()).then_some(links),
                tags: (!tags.is_empty()).then_some(tags),
                contact,
            },
            visibility,
            access,
            clear,
        };
        (suite, edits, yes)
    }
}

/// A suite whose suspension begins or ends.
#[derive(Args)]
pub struct SuspensionArguments {
    /// The id of the suite
    #[arg(long)]
    suite: String,
    /// The reason, which the owner sees in its audit log
    #[arg(long)]
    reason: String,
}

/// A suite and an organization.
#[derive(Args)]
pub struct GrantArguments {
    /// The id of the suite
    #[arg(long)]
    suite: String,
    /// The id of the organization
    #[arg(long)]
    org: String,
}

/// The commands of `board`.
#[derive(Subcommand)]
pub enum BoardCommand {
    /// Open a board to callers without a credential, or close it to them
    Set {
        /// The id of the suite
        #[arg(long)]
        suite: String,
        /// The version of the suite
        #[arg(long)]
        version: String,
        /// The callers that can read the board: credential or public
        #[arg(long)]
        visibility: String,
    },
    /// Remove an entry from its board, which is computed again without it
    Remove {
        /// The id of the entry
        entry: String,
        /// The reason, which the organization of the entry and the readers of the board see
        #[arg(long)]
        reason: String,
    },
    /// Restore a removed entry to its board, which is computed again with it
    Restore {
        /// The id of the entry
        entry: String,
        /// The reason, which the organization of the entry sees
        #[arg(long)]
        reason: String,
    },
}

/// The commands of `model`.
#[derive(Subcommand)]
pub enum ModelCommand {
    /// Publish a version of a model: a package that an engine serves, or a card alone
    Publish {
        /// The folder with the package, or the JSON file with the card
        path: PathBuf,
        /// The organization that alone sees the model
        #[arg(long)]
        org: Option<String>,
    },
}

/// Runs a command, and prints its result as one JSON object. Warnings go to standard error. Commands
/// that change the database are recorded in `operator_log`.
///
/// `serve`, `deliver`, `log` without a command, and `openapi` are not commands of the operator: they do nothing here.
///
/// # Errors
/// If the command is refused, or the database fails.
pub async fn run(Arguments { command, name }: Arguments) -> Result<()> {
    let target = command.target().map(str::to_owned);
    let object = match command {
        Command::Serve
        | Command::Deliver
        | Command::Log(LogArguments { command: None })
        | Command::Openapi { .. } => return Ok(()),
        Command::Log(LogArguments {
            command: Some(LogCommand::Recover),
        }) => receipts::recover(&LogSettings::from_env()?).await?,
        Command::Log(LogArguments {
            command: Some(LogCommand::Keygen { origin }),
        }) => receipts::log_keygen(&origin)?,
        Command::ReceiptKey(ReceiptKeyCommand::Generate) => {
            // The value of the setting alone, so that it can become a file.
            println!("{}", receipts::generate_receipt_key()?);
            return Ok(());
        }
        Command::Suite(SuiteCommand::Audit { dir }) => return print_audit(&dir),
        // It needs no database, so it is not recorded.
        Command::Suite(SuiteCommand::Check { dir }) => json!(publish::suite_check(&dir)?),
        // It changes nothing, so it is not recorded.
        Command::Suite(SuiteCommand::List { org, in_review }) => {
            suites::suite_list(&settings::operator()?, org.as_deref(), in_review).await?
        }
        Command::Doctor { process, json } => return doctor::run(process, json).await,
        Command::Artifacts(ArtifactsCommand::Reconcile { dry_run }) => {
            let (url, artifacts) = settings::reconciliation()?;
            commands::reconcile(&url, &artifacts, dry_run).await?
        }
        // A migration creates the table of the log, so this command cannot be recorded.
        Command::Migrate => commands::migrate(&settings::operator()?).await?,
        Command::Model(ModelCommand::Publish { path, org }) if path.is_dir() => {
            let settings = settings::publication()?;
            let publish = model_package::publish(&settings, &path, org.as_deref());
            commands::logged(&settings.database_url, &name, target.as_deref(), publish).await?
        }
        Command::Model(ModelCommand::Publish { org: Some(_), .. }) => {
            return Err(refused(
                "--org needs the folder of a package; a card alone is for everybody",
            ));
        }
        command => {
            let url = settings::operator()?;
            commands::logged(&url, &name, target.as_deref(), change(&url, command)).await?
        }
    };
    print_warnings(&object["warnings"]);
    print_warnings(&object["disclosure"]["warnings"]);
    println!("{object}");
    Ok(())
}

/// Prints the audit of a folder.
fn print_audit(folder: &Path) -> Result<()> {
    let report = publish::suite_audit(folder)?;
    print_warnings(&report["warnings"]);
    println!("{report:#}");
    Ok(())
}

fn print_warnings(warnings: &Value) {
    let warnings = warnings.as_array().into_iter().flatten();
    for warning in warnings.filter_map(Value::as_str) {
        eprintln!("warning: {warning}");
    }
}

impl Command {
    /// Returns the id of the object that the command changes, if an argument names it.
    fn target(&self) -> Option<&str> {
        match self {
            Self::Org(
                OrgCommand::Set { org, .. }
                | OrgCommand::Suspend { org }
                | OrgCommand::Resume { org }
                | OrgCommand::Delete { org, .. },
            )
            | Self::Key(KeyCommand::Create { org, .. })
            | Self::Suite(
                SuiteCommand::Grant(GrantArguments { org, .. })
                | SuiteCommand::Revoke(GrantArguments { org, .. }),
            ) => Some(org),
            Self::Plan(PlanCommand::Set { name, .. }) => Some(name),
            Self::Session(SessionCommand::End { session, .. }) => session.as_deref(),
            Self::Key(KeyCommand::Revoke { key }) => Some(key),
            Self::Suite(SuiteCommand::Set(arguments)) => Some(&arguments.suite),
            Self::Suite(SuiteCommand::Approve { draft } | SuiteCommand::Reject { draft, .. }) => {
                Some(draft)
            }
            Self::Suite(
                SuiteCommand::Retire { suite, .. }
                | SuiteCommand::Remove { suite, .. }
                | SuiteCommand::Suspend(SuspensionArguments { suite, .. })
                | SuiteCommand::Resume(SuspensionArguments { suite, .. }),
            )
            | Self::Board(BoardCommand::Set { suite, .. }) => Some(suite),
            Self::Board(
                BoardCommand::Remove { entry, .. } | BoardCommand::Restore { entry, .. },
            ) => Some(entry),
            Self::ReceiptKey(ReceiptKeyCommand::Revoke { kid, .. }) => Some(kid),
            Self::Model(ModelCommand::Publish { org, .. }) => org.as_deref(),
            _ => None,
        }
    }
}

/// Executes a command that changes the database.
async fn change(url: &str, command: Command) -> Result<Value> {
    match command {
        Command::Org(OrgCommand::Create {
            name,
            plan,
            owner_email,
        }) => commands::org_create(url, &name, &plan, &owner_email).await,
        Command::Org(OrgCommand::Set { org, plan }) => commands::org_set(url, &org, &plan).await,
        Command::Org(OrgCommand::Suspend { org }) => commands::org_suspend(url, &org).await,
        Command::Org(OrgCommand::Resume { org }) => commands::org_resume(url, &org).await,
        Command::Org(OrgCommand::Delete { org, confirm }) => {
            commands::org_delete(url, &org, &confirm).await
        }
        Command::Plan(PlanCommand::Set { name, change }) => {
            commands::plan_set(url, &name, &change.0).await
        }
        Command::Session(SessionCommand::Create { email, org }) => {
            commands::session_create(url, &email, org.as_deref()).await
        }
        Command::Session(SessionCommand::End {
            email: Some(email), ..
        }) => commands::session_end_all(url, &email).await,
        Command::Session(SessionCommand::End {
            email: None,
            session,
        }) => commands::session_end(url, &session.unwrap_or_default()).await,
        Command::Key(KeyCommand::Create { org, name }) => {
            commands::key_create(url, &org, &name).await
        }
        Command::Key(KeyCommand::Revoke { key }) => commands::key_revoke(url, &key).await,
        Command::User(UserCommand::Erase { email }) => commands::user_erase(url, &email).await,
        Command::Suite(SuiteCommand::Publish { dir }) => publish::suite_publish(url, &dir).await,
        Command::Suite(SuiteCommand::Grant(GrantArguments { suite, org })) => {
            publish::suite_grant(url, &suite, &org).await
        }
        Command::Suite(SuiteCommand::Revoke(GrantArguments { suite, org })) => {
            publish::suite_revoke(url, &suite, &org).await
        }
        Command::Suite(SuiteCommand::Set(arguments)) => {
            let (suite, edits, yes) = arguments.into_edits();
            suites::suite_set(url, &suite, edits, yes).await
        }
        Command::Suite(SuiteCommand::Approve { draft }) => {
            suites::suite_review(url, &draft, None).await
        }
        Command::Suite(SuiteCommand::Reject { draft, reason }) => {
            suites::suite_review(url, &draft, Some(&reason)).await
        }
        Command::Suite(SuiteCommand::Suspend(SuspensionArguments { suite, reason })) => {
            suites::suite_suspend(url, &suite, &reason).await
        }
        Command::Suite(SuiteCommand::Resume(SuspensionArguments { suite, reason })) => {
            suites::suite_resume(url, &suite, &reason).await
        }
        Command::Suite(SuiteCommand::Remove {
            suite,
            version,
            reason,
            yes,
        }) => suites::suite_remove(url, &suite, version.as_deref(), &reason, yes).await,
        Command::Suite(SuiteCommand::Retire {
            suite,
            versions,
            yes,
            ..
        }) => publish::suite_retire(url, &suite, &versions, yes).await,
        Command::Board(BoardCommand::Set {
            suite,
            version,
            visibility,
        }) => boards::board_set(url, &suite, &version, &visibility).await,
        Command::Board(BoardCommand::Remove { entry, reason }) => {
            boards::board_remove(url, &entry, &reason).await
        }
        Command::Board(BoardCommand::Restore { entry, reason }) => {
            boards::board_restore(url, &entry, &reason).await
        }
        Command::ReceiptKey(ReceiptKeyCommand::Revoke { kid, yes }) => {
            receipts::revoke_receipt_key(url, &kid, yes).await
        }
        Command::Model(ModelCommand::Publish { path, .. }) => {
            publish::model_publish(url, &path).await
        }
        // `run` handles these, which change nothing or are not recorded.
        Command::Serve
        | Command::Deliver
        | Command::Log(_)
        | Command::ReceiptKey(ReceiptKeyCommand::Generate)
        | Command::Openapi { .. }
        | Command::Artifacts(_)
        | Command::Doctor { .. }
        | Command::Migrate
        | Command::Suite(
            SuiteCommand::Audit { .. } | SuiteCommand::Check { .. } | SuiteCommand::List { .. },
        ) => Ok(Value::Null),
    }
}
