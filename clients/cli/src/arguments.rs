//! The program's arguments.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::output::{Color, Format};

/// Evaluates models of human behaviour with Assay.
///
/// On a terminal the output is a table; piped it is NDJSON. Exit codes: assay help exit-codes
#[derive(Parser)]
#[command(
    name = "assay",
    version,
    disable_help_subcommand = true,
    arg_required_else_help = true
)]
pub struct Arguments {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

/// The arguments of all commands.
#[derive(Args)]
#[command(next_help_heading = "Options of all commands")]
pub struct Global {
    /// The profile with the address and the credential
    #[arg(long, global = true, env = "ASSAY_PROFILE", value_name = "NAME")]
    pub profile: Option<String>,
    /// The address of the installation
    #[arg(long, global = true, env = "ASSAY_BASE_URL", value_name = "URL")]
    pub base_url: Option<String>,
    /// The organization that a session token acts for
    #[arg(long, global = true, value_name = "ORG_ID")]
    pub org: Option<String>,
    /// The format of the output: a table on a terminal, otherwise ndjson
    // `export` has formats of its own under the same name, and clap hands values of global arguments to all
    // commands: the two need one type.
    #[arg(short, long, global = true, value_parser = names::<Format>())]
    pub format: Option<String>,
    /// The use of colors
    #[arg(long, global = true, value_enum, default_value = "auto")]
    pub color: Color,
    /// Show neither notes nor progress
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// Show one line per request, without secrets
    #[arg(short, long, global = true)]
    pub verbose: bool,
    /// Never ask, also on a terminal
    #[arg(long, global = true)]
    pub no_input: bool,
}

#[derive(Subcommand)]
pub enum Command {
    /// Sign in by a code that you confirm in a browser
    Login {
        /// Read an API key or a session token from standard input instead
        #[arg(long)]
        with_key: bool,
    },
    /// Remove the credential from the profile
    Logout,
    /// Show who the credential belongs to
    Whoami,
    /// List the profiles
    Profiles,
    /// List the suites, or show one
    Suites {
        /// The id of a suite, such as suite:lunch
        suite: Option<String>,
    },
    /// Write the items of a suite, as NDJSON unless another format is set
    Items {
        /// The id of the suite, such as suite:lunch
        suite: String,
        /// Write to this file, and the version of the suite to FILE.version
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Compare predictions with the items of a suite; sends no predictions
    Check {
        /// The id of the suite, such as suite:lunch
        suite: String,
        /// Predictions as NDJSON, a JSON array or CSV, also with gzip or zstd; - is standard input
        file: String,
    },
    /// Submit predictions
    Submit(Submit),
    /// List jobs, the newest first
    Jobs {
        #[command(flatten)]
        filter: JobFilter,
        /// Show the jobs again until all of them are finished
        #[arg(long)]
        watch: bool,
    },
    /// Show a job
    Job {
        /// The id of the job
        id: String,
        #[command(flatten)]
        wait: Wait,
        /// Show the figures of the slices instead, and the gap between the best and the worst one
        #[arg(long)]
        slices: bool,
    },
    /// Cancel jobs
    Cancel {
        /// The ids of the jobs
        #[arg(required = true)]
        ids: Vec<String>,
    },
    /// Wait until jobs are finished
    Wait {
        /// The ids of the jobs
        #[arg(required = true)]
        ids: Vec<String>,
        /// Give up after this time, such as 15m
        #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
        timeout: Option<Duration>,
    },
    /// List the scores of a job's items, if the suite discloses them
    JobItems {
        /// The id of the job
        id: String,
    },
    /// Show where the time of a job went
    Trace {
        /// The id of the job
        id: String,
    },
    /// Compare two jobs of a suite, or a job with a baseline of the suite
    Compare {
        /// The id of a job
        a: String,
        /// The id of the job that it is compared with
        #[arg(required_unless_present = "baseline", conflicts_with = "baseline")]
        b: Option<String>,
        /// Compare with this baseline of the suite, in place of a second job
        #[arg(long, value_name = "NAME")]
        baseline: Option<String>,
        /// Exit with 9 if A is worse by more than this margin: the whole interval is worse
        #[arg(long, value_name = "MARGIN", num_args = 0..=1, require_equals = true, default_missing_value = "0")]
        fail_if_worse: Option<f64>,
    },
    /// Show the board of a suite
    Board {
        /// The id of the suite
        suite: String,
        /// The version of the suite; the current one unless you name one
        #[arg(long, value_name = "VERSION")]
        version: Option<String>,
    },
    /// Enter a job on the board of its suite
    ///
    /// All users of the installation can read the entry. At most three jobs can enter a board, and
    /// withdrawn entries count.
    Enter {
        /// The id of the job
        id: String,
        /// The name on the board
        #[arg(long)]
        name: String,
        /// The address of a page about it, with https
        #[arg(long)]
        url: Option<String>,
        /// Mark the job as final first, as suites with sealed items require; at most three jobs of a
        /// version can be final, and a mark cannot be removed
        #[arg(long = "final")]
        marks_final: bool,
    },
    /// Score predictions against answers of your own; needs no key and sends nothing
    Score {
        /// A file answers.ndjson, or the folder of a suite
        #[arg(long, value_name = "FILE")]
        answers: PathBuf,
        /// The metric; for the folder of a suite, its own unless you name one
        #[arg(long)]
        metric: Option<String>,
        /// Predictions as NDJSON, a JSON array or CSV, also with gzip or zstd; - is standard input
        file: String,
    },
    /// Prepare a suite that you will publish
    Suite {
        #[command(subcommand)]
        action: Suite,
    },
    /// Print the receipt of a job, as JSON
    Receipt {
        /// The id of the job
        id: String,
        /// The stated figures: all, open, sealed or board
        #[arg(long)]
        figures: Option<String>,
    },
    /// Write the result of a job in the format of another program
    ///
    /// Prints the file, or writes it below --out at the path that the format prescribes.
    Export(Export),
    /// Verify a receipt; needs no key and no network
    ///
    /// Prints one line for each step, and stops at the first that fails, with exit code 1.
    Verify(Verify),
    /// Show the usage of the month
    Usage {
        /// One line per day
        #[arg(long)]
        days: bool,
    },
    /// List the models, or show one
    Models {
        /// The id of a model
        model: Option<String>,
    },
    /// Manage API keys (with a session token)
    Keys {
        #[command(subcommand)]
        action: Option<Keys>,
    },
    /// Manage members (with a session token)
    Members {
        #[command(subcommand)]
        action: Option<Members>,
    },
    /// Manage invites (with a session token)
    Invites {
        #[command(subcommand)]
        action: Option<Invites>,
    },
    /// Manage domains (with a session token)
    Domains {
        #[command(subcommand)]
        action: Option<Domains>,
    },
    /// Manage webhooks (with a session token)
    Webhooks {
        #[command(subcommand)]
        action: Option<Webhooks>,
    },
    /// Send any request to the API
    Api(Call),
    /// Open a page of the dashboard
    Open {
        /// The id of a job or a suite, or the name of a page, such as usage
        page: Option<String>,
    },
    /// Print the completions of a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print help for a command, or for exit-codes or environment
    Help {
        /// A command, exit-codes or environment
        topic: Vec<String>,
    },
}

/// A submission.
#[derive(Args)]
pub struct Submit {
    /// The id of the suite, such as suite:lunch
    pub suite: String,
    /// Predictions as NDJSON, a JSON array or CSV, also with gzip or zstd; - is standard input
    pub file: String,
    /// A name for the job
    #[arg(long)]
    pub label: Option<String>,
    /// A pair of strings that the job keeps, such as commit=9f1c2e
    #[arg(long = "meta", value_name = "KEY=VALUE", value_parser = parse_pair)]
    pub metadata: Vec<(String, String)>,
    /// The version from which the items were read; otherwise the current one
    #[arg(long, value_name = "VERSION")]
    pub suite_version: Option<String>,
    #[command(flatten)]
    pub wait: Wait,
    /// A key of your own; the same key returns the same job
    #[arg(long, value_name = "KEY")]
    pub idempotency_key: Option<String>,
    /// Create a new job even if the same predictions were submitted before
    #[arg(long, conflicts_with = "idempotency_key")]
    pub fresh: bool,
}

/// The filters of a job list.
#[derive(Args)]
pub struct JobFilter {
    /// Only jobs of this suite
    #[arg(long)]
    pub suite: Option<String>,
    /// Only jobs with this label
    #[arg(long)]
    pub label: Option<String>,
    /// Only jobs with this status
    #[arg(long, value_parser = ["queued", "running", "succeeded", "failed", "cancelled"])]
    pub status: Option<String>,
    /// Only jobs of this time, such as 7d or 12h
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub since: Option<Duration>,
    /// The largest number of jobs [default: 30, or all with --since]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: Option<u32>,
}

/// An export of a job.
#[derive(Args)]
pub struct Export {
    /// The id of the job
    pub job: String,
    /// The format of the file
    #[arg(short, long, value_parser = names::<ExportFormat>())]
    pub format: String,
    /// Write the file below this folder
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// The name of the evaluated model [default: that of the entry, of the model of a prediction job, or the label]
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// The developer of the model [default: the organization]
    #[arg(long, value_name = "NAME")]
    pub developer: Option<String>,
    /// hf: the dataset of the benchmark on the Hub, such as acme/votes
    #[arg(long, value_name = "ID", required_if_eq("format", "hf"))]
    pub dataset_id: Option<String>,
    /// hf: the task, as the dataset's eval.yaml names it
    #[arg(long, value_name = "ID", required_if_eq("format", "hf"))]
    pub task_id: Option<String>,
    /// eee: the party that runs the model
    #[arg(long, default_value = "unknown", value_parser = assay_exports::DEPLOYMENT_TYPES)]
    pub deployment_type: String,
    /// eee: the availability of the weights
    #[arg(long, default_value = "unknown", value_parser = assay_exports::MODEL_AVAILABILITIES)]
    pub model_availability: String,
}

/// A format of `assay export`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// A record of Every Eval Ever 0.3.0, as JSON
    Eee,
    /// Evaluation results of a model on the Hugging Face Hub, as YAML
    Hf,
    /// BibTeX entries of the result and of its suite
    Bibtex,
    /// CITATION.cff 1.2.0
    Cff,
}

/// Returns the parser for the names of an enum's values.
fn names<T: ValueEnum>() -> PossibleValuesParser {
    let values = T::value_variants().iter();
    PossibleValuesParser::new(values.filter_map(ValueEnum::to_possible_value))
}

/// The evidence for a receipt.
#[derive(Args)]
pub struct Verify {
    /// The file of the receipt
    #[arg(value_name = "RECEIPT.json")]
    pub receipt: PathBuf,
    /// The receipt keys: the file of <BASE_URL>/.well-known/jwks.json
    #[arg(long, value_name = "JWKS.json")]
    pub keys: PathBuf,
    /// The verifier key of the log
    #[arg(long, value_name = "VKEY")]
    pub log_key: String,
    /// The predictions of the job
    #[arg(long, value_name = "FILE")]
    pub predictions: Option<String>,
    /// The folder with commitment.json, items.ndjson and answers.ndjson of the retired suite
    #[arg(long, value_name = "DIR")]
    pub opening: Option<PathBuf>,
    /// An earlier checkpoint, which the log must continue
    #[arg(long, value_name = "FILE", requires = "tiles")]
    pub checkpoint: Option<PathBuf>,
    /// The folder with the files of the log
    #[arg(long, value_name = "DIR", requires = "checkpoint")]
    pub tiles: Option<PathBuf>,
    /// Accept a receipt that is not in the log yet
    #[arg(long)]
    pub allow_unlogged: bool,
}

/// A request to the API.
#[derive(Args)]
pub struct Call {
    /// GET, POST, PUT, PATCH or DELETE
    pub method: String,
    /// The path, such as /v1/me
    pub path: String,
    /// A parameter of a GET request, or a field of the JSON body; true, false, null and numbers
    /// are converted
    #[arg(short = 'F', long = "field", value_name = "NAME=VALUE", value_parser = parse_pair)]
    pub fields: Vec<(String, String)>,
    /// A header of the request
    #[arg(short = 'H', long = "header", value_name = "NAME:VALUE", value_parser = parse_header)]
    pub headers: Vec<(String, String)>,
    /// Read the body from this file; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "fields")]
    pub input: Option<String>,
    /// Read all pages, and write one a line
    #[arg(long)]
    pub paginate: bool,
}

/// The wait for a job.
#[derive(Args)]
pub struct Wait {
    /// Wait until the job is finished, at most this time, as in --wait or --wait=15m
    #[arg(long, value_name = "DURATION", num_args = 0..=1, require_equals = true, default_missing_value = "365d", value_parser = parse_duration)]
    pub wait: Option<Duration>,
}

#[derive(Subcommand)]
pub enum Suite {
    /// List the suites that the organization sees
    List {
        /// Only those that the organization has published
        #[arg(long)]
        own: bool,
    },
    /// Show a suite
    Show {
        /// The id of the suite, such as suite:acme.votes
        suite: String,
    },
    /// List the versions of a suite, the newest first
    Versions {
        /// The id of the suite, such as suite:acme.votes
        suite: String,
    },
    /// Change the texts, the visibility or the access of a suite, for all its versions
    Edit(Box<SuiteEdit>),
    /// Add a note about an error to a version; it is never removed
    Erratum {
        /// The id of the suite, such as suite:acme.votes
        suite: String,
        /// The version with the error
        version: String,
        /// The note: at most 500 characters
        note: String,
    },
    /// List the grants of a suite
    Grants {
        /// The id of the suite, such as suite:acme.votes
        suite: String,
    },
    /// Let other organizations see a suite and submit to it
    Grant {
        /// The id of the suite, such as suite:acme.votes
        suite: String,
        #[command(flatten)]
        target: GrantTarget,
        /// The number of organizations that can accept the link
        #[arg(long, value_name = "N", requires = "link")]
        max_uses: Option<i64>,
        /// The number of days until the link expires
        #[arg(long, value_name = "DAYS", requires = "link")]
        expires_in_days: Option<i64>,
    },
    /// Revoke a grant
    Revoke {
        /// The id of the grant
        grant: String,
    },
    /// List the organizations that have submitted to a suite, the newest submission first
    Submitters {
        /// The id of the suite, such as suite:acme.votes
        suite: String,
        /// Count only submissions to this version
        #[arg(long)]
        version: Option<String>,
    },
    /// Retire a version for good: it accepts no submissions (with an owner's session token)
    Retire {
        /// The id of the suite, such as suite:acme.votes
        suite: String,
        /// The version
        #[arg(long)]
        version: String,
        /// Publish the answers of the version, too: the file with its opening key, opening.key
        #[arg(long, value_name = "FILE")]
        open_answers: Option<PathBuf>,
    },
    /// Accept the link of a publisher, whose token is read from standard input (with a session token)
    Accept,
    /// Write suite.toml next to a table with items and answers, which is neither copied nor sent
    ///
    /// Each key that can be changed later is in the file as a comment with an example. With a credential, the id of the suite begins
    /// with the handle of the organization.
    Init(Box<SuiteInit>),
    /// Make the folder of a suite from the bundle of another platform; needs no key and sends nothing
    ///
    /// Reads files of the bundle only, follows no symbolic link, and says what it did not read. Scoring programs are not read: --metric
    /// takes their place.
    Import(Box<SuiteImport>),
    /// Check the folder of a suite; needs no key and sends nothing
    ///
    /// Prints a verdict: items, what a model that knows nothing reaches, what scores disclose, clusters and visibility. Warns if items seem to
    /// come from persons or other groups that suite.toml does not name. The platform also checks the events of sequences when the suite is
    /// published.
    Check {
        /// The folder with suite.toml and the files that it names
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
    /// Measure how many answers attackers learn from the scores of a suite; needs no key and sends nothing
    ///
    /// Attacks the suite under its own disclosure policy and under others. The JSON also has what a model that knows nothing reaches, and a
    /// recommended policy.
    Audit {
        /// The folder with suite.toml and the files that it names
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
    /// Send a suite, have it checked, and publish it
    ///
    /// Writes the opening key to DIR/opening.key before it sends anything. The key is the only way to open the answers later. Shows the report
    /// of the check, and asks before it publishes: a published version never changes.
    Publish {
        /// The folder with suite.toml and the files that it names
        #[arg(value_name = "DIR")]
        folder: PathBuf,
        /// Publish without asking
        #[arg(long, conflicts_with = "draft")]
        yes: bool,
        /// Stop after the check
        #[arg(long)]
        draft: bool,
    },
}

/// A new suite whose data are one table.
#[derive(Args)]
pub struct SuiteInit {
    /// The table: a file .csv, .ndjson, .json or .parquet with a row per item
    #[arg(long, value_name = "FILE")]
    pub from: PathBuf,
    /// The column with the answers, which stay hidden
    #[arg(long, value_name = "COLUMN")]
    pub answer: String,
    /// The column that names the person or group of an item, if items of one group depend on each other
    #[arg(long, value_name = "COLUMN")]
    pub cluster: Option<String>,
    #[command(flatten)]
    pub new: NewSuite,
    /// The folder of the table; may be left out
    #[arg(value_name = "DIR")]
    pub folder: Option<PathBuf>,
}

/// A bundle of another platform.
#[derive(Args)]
pub struct SuiteImport {
    /// The platform of the bundle
    #[arg(value_enum)]
    pub source: BundleSource,
    /// The folder of the bundle; for Codabench also its ZIP file
    pub bundle: PathBuf,
    /// The folder of the new suite
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// The table with the answers, by its path within the bundle; for Codabench only
    #[arg(long, value_name = "FILE", required_if_eq("source", "codabench"))]
    pub answers: Option<String>,
    /// The column with the answers, if there are several columns
    #[arg(long, value_name = "COLUMN")]
    pub answer: Option<String>,
    #[command(flatten)]
    pub new: NewSuite,
}

/// A platform whose bundles can be imported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum BundleSource {
    /// A folder with solution.csv and test.csv.
    Kaggle,
    /// A folder or ZIP file with competition.yaml.
    Codabench,
    /// A folder with challenge_config.yaml.
    #[value(name = "evalai")]
    EvalAi,
}

/// The properties of each new suite.
#[derive(Args)]
pub struct NewSuite {
    /// The metric, such as accuracy
    #[arg(long)]
    pub metric: String,
    /// The column with the item ids
    #[arg(long, value_name = "COLUMN")]
    pub id: Option<String>,
    /// The name of the suite, which follows the handle in its id
    #[arg(long)]
    pub name: Option<String>,
    /// The options of the items in their order, such as low,medium,high; some metrics need them
    #[arg(long, value_name = "LABELS", value_delimiter = ',')]
    pub labels: Vec<String>,
    /// The levels of predicted quantiles, such as 0.1,0.5,0.9; pinball and wis need them
    #[arg(long, value_name = "LEVELS", value_delimiter = ',')]
    pub quantiles: Vec<f64>,
}

/// The changes of a suite.
#[derive(Args)]
pub struct SuiteEdit {
    /// The id of the suite, such as suite:acme.votes
    pub suite: String,
    #[arg(long)]
    pub title: Option<String>,
    #[arg(long)]
    pub description: Option<String>,
    /// An SPDX expression, or an https URL
    #[arg(long)]
    pub license: Option<String>,
    /// A BibTeX entry
    #[arg(long)]
    pub citation: Option<String>,
    /// A page about the suite; all links together replace the earlier ones
    #[arg(long = "link", value_name = "LABEL=URL", value_parser = parse_link)]
    pub links: Vec<(String, String)>,
    /// A word by which people find the suite; all tags together replace the earlier ones
    #[arg(long = "tag", value_name = "TAG")]
    pub tags: Vec<String>,
    /// An address for questions
    #[arg(long)]
    pub contact: Option<String>,
    /// The callers who can see the suite: private, listed or public (an owner only)
    #[arg(long)]
    pub visibility: Option<String>,
    /// The organizations that can submit: everyone, verified_domain or granted
    #[arg(long)]
    pub access: Option<String>,
    /// A text to remove, such as license
    #[arg(long = "clear", value_name = "TEXT")]
    pub clear: Vec<String>,
    /// Confirm that more organizations may submit to a suite with a ladder or a cap
    #[arg(long)]
    pub confirm: bool,
}

/// The organizations that get a grant.
#[derive(Args)]
#[group(required = true, multiple = false)]
pub struct GrantTarget {
    /// An organization
    #[arg(long, value_name = "ORG_ID")]
    pub to: Option<String>,
    /// All organizations that have verified this domain
    #[arg(long)]
    pub domain: Option<String>,
    /// The first organizations that accept a link; its token is shown once
    #[arg(long)]
    pub link: bool,
}

#[derive(Subcommand)]
pub enum Keys {
    /// List the keys
    List,
    /// Create a key; its secret is shown once
    Create {
        name: String,
        /// A scope, such as evals:write; without any, the key has all
        #[arg(long = "scope", value_name = "SCOPE")]
        scopes: Vec<String>,
        /// The time at which the key expires, such as 2027-01-31T00:00:00Z
        #[arg(long, value_name = "TIME")]
        expires_at: Option<String>,
    },
    /// Rename a key, narrow its scopes, or bring its expiry forward
    Update {
        id: String,
        #[arg(long)]
        name: Option<String>,
        #[arg(long = "scope", value_name = "SCOPE")]
        scopes: Vec<String>,
        #[arg(long, value_name = "TIME")]
        expires_at: Option<String>,
    },
    /// Replace a key; the old one works until the overlap ends
    Rotate {
        id: String,
        #[arg(long, value_name = "HOURS")]
        overlap_hours: Option<u32>,
    },
    /// Revoke a key
    Revoke { id: String },
}

#[derive(Subcommand)]
pub enum Members {
    /// List the members
    List,
    /// Change the role of a member
    Role {
        /// The id of the member, such as usr_5gGkwnuU0Kqhcfk8Wsnx3Z
        user_id: String,
        /// The new role: owner, member or viewer
        role: String,
    },
    /// Remove a member
    Remove { user_id: String },
}

#[derive(Subcommand)]
pub enum Invites {
    /// List the invites
    List,
    /// Invite an address
    Create {
        email: String,
        #[arg(long)]
        role: String,
    },
    /// Revoke an invite
    Revoke { id: String },
}

#[derive(Subcommand)]
pub enum Domains {
    /// List the domains
    List,
    /// Claim a domain; shows the DNS record to create
    Claim { domain: String },
    /// Check the DNS record
    Verify { domain: String },
    /// Let new users with an address of the domain join by themselves, or not
    AutoJoin {
        domain: String,
        #[arg(action = clap::ArgAction::Set)]
        auto_join: bool,
    },
    /// Release a domain
    Release { domain: String },
}

#[derive(Subcommand)]
pub enum Webhooks {
    /// List the webhooks
    List,
    /// Show a webhook
    Show { id: String },
    /// Create a webhook; its secret is shown once
    Create {
        url: String,
        /// A type of event, such as job.succeeded
        #[arg(long = "event", value_name = "TYPE", required = true)]
        events: Vec<String>,
        #[arg(long)]
        description: Option<String>,
    },
    /// Enable a webhook, or disable it with false
    Enable {
        id: String,
        #[arg(action = clap::ArgAction::Set)]
        enabled: bool,
    },
    /// Delete a webhook
    Delete { id: String },
    /// Replace the secret; the old one signs as well until the overlap ends
    Rotate {
        id: String,
        #[arg(long, value_name = "HOURS")]
        overlap_hours: Option<u32>,
    },
    /// Send an event of this type
    Test {
        id: String,
        #[arg(default_value = "ping")]
        event: String,
    },
    /// List the deliveries, the newest first
    Deliveries {
        id: String,
        #[arg(long)]
        status: Option<String>,
    },
    /// Repeat a delivery
    Retry { id: String, delivery_id: String },
    /// Send all events again that were not delivered since a time
    Recover {
        id: String,
        #[arg(long, value_name = "TIME")]
        since: String,
    },
}

/// Parses a link, as in `Paper=https://acme.example/votes`.
fn parse_link(text: &str) -> Result<(String, String), String> {
    let (label, url) = text
        .split_once('=')
        .ok_or("must be LABEL=URL, such as Paper=https://acme.example/votes")?;
    Ok((label.to_owned(), url.to_owned()))
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|_| "it must be a duration, such as 90s, 15m or 7d".into())
}

fn parse_header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text
        .split_once([':', '='])
        .ok_or("it must have the form NAME:VALUE")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

fn parse_pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text
        .split_once('=')
        .ok_or("it must have the form NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}
