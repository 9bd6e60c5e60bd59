//! A complete installation: a database, API processes and workers, started as an operator starts
//! them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::process::Command;
use tokio::sync::OnceCell;

use crate::binaries::Binaries;
use crate::client::http_builder;
use crate::databases::{self, Database};
use crate::servers::{Guarded, GuardedCommand, Servers, Trouble};
use crate::wait::wait_timeout;

/// The servers and binaries that stacks run on.
pub struct Ground {
    /// PostgreSQL and Redis.
    pub servers: Servers,
    /// The `assay-api` and `assay-worker` to launch.
    pub binaries: Binaries,
    /// The name of a migrated database, from which each stack's database is copied.
    template: OnceCell<String>,
    /// The name of a migrated database in which a suite is published.
    template_with_suite: OnceCell<String>,
}

impl Ground {
    /// Combines servers and binaries, with no template yet.
    pub fn new(servers: Servers, binaries: Binaries) -> Self {
        // The HTTP client of the tests requires it if another crate enables TLS in it. An error means
        // that a provider is selected already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Self {
            servers,
            binaries,
            template: OnceCell::new(),
            template_with_suite: OnceCell::new(),
        }
    }

    async fn template(&self) -> Result<&str, Trouble> {
        let made = self.template.get_or_try_init(|| async {
            let name = databases::fresh_name("template");
            databases::create(&self.servers, &name, None).await?;
            self.operate_on(&name, &["migrate"]).await?;
            Ok::<_, Trouble>(name)
        });
        Ok(made.await?)
    }

    /// Creates a migrated database with its own roles.
    ///
    /// # Errors
    /// If the server does not allow it.
    pub async fn database(&self) -> Result<Database, Trouble> {
        self.copy(self.template().await?).await
    }

    /// Like [`Ground::database`], with the suite in this folder, which is the same in each call.
    ///
    /// # Errors
    /// If the server does not allow it, or the suite cannot be published.
    pub async fn database_with_suite(&self, folder: &Path) -> Result<Database, Trouble> {
        let made = self.template_with_suite.get_or_try_init(|| async {
            let name = databases::fresh_name("template");
            databases::create(&self.servers, &name, Some(self.template().await?)).await?;
            let publish = ["suite", "publish", &folder.to_string_lossy()];
            self.operate_on(&name, &publish).await?;
            Ok::<_, Trouble>(name)
        });
        self.copy(made.await?).await
    }

    /// Runs an operator's command on this name's database.
    async fn operate_on(&self, database: &str, arguments: &[&str]) -> Result<Value, Trouble> {
        let url = self.servers.postgres_url(database);
        let env = BTreeMap::from([("ASSAY_DATABASE_URL".to_owned(), url)]);
        operate(&self.binaries.api, &env, arguments).await
    }

    async fn copy(&self, template: &str) -> Result<Database, Trouble> {
        let name = databases::fresh_name("stack");
        databases::create(&self.servers, &name, Some(template)).await?;
        databases::roles(&self.servers, &name).await
    }

    /// Removes databases and roles from servers that outlive this process. Private servers are
    /// removed as a whole.
    ///
    /// # Errors
    /// If the server does not respond.
    pub async fn clear(&self, database: &Database) -> Result<(), Trouble> {
        if self.servers.postgres_pid().is_some() {
            return Ok(());
        }
        databases::remove(&self.servers, &database.name).await?;
        let templates = [&self.template, &self.template_with_suite];
        for template in templates.into_iter().filter_map(OnceCell::get) {
            databases::remove(&self.servers, template).await?;
        }
        Ok(())
    }
}

/// The size of a stack, and its settings that differ from the defaults.
#[derive(Debug, Clone)]
pub struct StackSize {
    /// API process count.
    pub apis: usize,
    /// Worker count.
    pub workers: usize,
    /// Number of embedded engines. The first is named `default`, the others `engine-2` and so on.
    pub engines: usize,
    /// Additional settings of both, as environment variables.
    pub env: BTreeMap<String, String>,
}

impl Default for StackSize {
    fn default() -> Self {
        Self {
            apis: 1,
            workers: 1,
            engines: 0,
            env: BTreeMap::new(),
        }
    }
}

impl StackSize {
    /// Lets webhooks reach receivers on this machine, without TLS.
    #[must_use]
    pub fn with_local_receivers(mut self) -> Self {
        let settings = [
            ("ASSAY_WEBHOOK_HTTP", "true"),
            ("ASSAY_WEBHOOK_NETWORKS", "127.0.0.0/8,::1/128"),
        ];
        self.env
            .extend(settings.map(|(name, value)| (name.to_owned(), value.to_owned())));
        self
    }
}

/// A launched API process, worker or embedded engine.
#[derive(Clone)]
pub struct Process {
    /// The process's handle; dropping the last one ends the process.
    pub guarded: Arc<Guarded>,
    /// The address of the public listener, or of the Open Inference Protocol; `None` for a worker.
    pub listen: Option<SocketAddr>,
    /// The address of the admin listener.
    pub admin: SocketAddr,
    /// The log file.
    pub log: PathBuf,
}

/// A running installation. Dropping it ends its processes; its database remains on the server.
pub struct Stack {
    /// The API processes.
    pub apis: Vec<Process>,
    /// The workers.
    pub workers: Vec<Process>,
    /// The embedded engines.
    pub engines: Vec<Process>,
    /// The addresses of engines that the settings name, and that are not launched yet.
    named_engines: Vec<SocketAddr>,
    /// The database that all processes use.
    pub database: Database,
    /// The servers and binaries below it.
    pub ground: Arc<Ground>,
    /// The settings that all its processes share.
    shared: BTreeMap<String, String>,
    secrets_in_files: bool,
    /// Another stack owns the processes.
    is_borrowed: bool,
}

const CHECKER_DATABASE_URL: &str = "ASSAY_CHECKER_DATABASE_URL";

/// The settings that can be passed as files, because they contain passwords.
const SECRETS: [&str; 8] = [
    "ASSAY_DATABASE_URL",
    CHECKER_DATABASE_URL,
    "ASSAY_REDIS_URL",
    "ASSAY_SMTP_URL",
    WEBHOOK_KEY.0,
    RECEIPT_KEYS,
    LOG_KEY,
    LOG_DATABASE_URL,
];

const RECEIPT_KEYS: &str = "ASSAY_RECEIPT_KEYS";
const LOG_KEY: &str = "ASSAY_LOG_KEY";
const LOG_DATABASE_URL: &str = "ASSAY_LOG_DATABASE_URL";

/// The name of receipt logs in tests.
pub const LOG_ORIGIN: &str = "assay.test/log";

/// Returns the key that signs the receipts of tests unless a stack has another one, as the setting has
/// it.
pub fn receipt_key(number: u8) -> String {
    use base64::Engine as _;

    base64::engine::general_purpose::STANDARD.encode([number; 32])
}

/// Returns the private and the verifier key of receipt logs in tests.
pub fn log_key() -> (String, String) {
    assay_receipts::log::new_key(LOG_ORIGIN, &[7; 32]).unwrap_or_default()
}

/// The key of the webhook secrets, unless a stack has another one.
const WEBHOOK_KEY: (&str, &str) = (
    "ASSAY_WEBHOOK_KEY",
    "YXNzYXkgdGVzdHMgZGVyaXZlIHNlY3JldHMgZnJvbSB0aGlz",
);

impl Stack {
    /// Starts a stack and waits until all its processes are ready.
    ///
    /// # Errors
    /// If a process does not start; the error quotes its log's end.
    pub async fn start(ground: &Arc<Ground>, size: StackSize) -> Result<Self, Trouble> {
        Self::start_on(ground, ground.database().await?, size).await
    }

    /// Like [`Stack::start`], on this database.
    ///
    /// # Errors
    /// See [`Stack::start`].
    pub async fn start_on(
        ground: &Arc<Ground>,
        database: Database,
        size: StackSize,
    ) -> Result<Self, Trouble> {
        let folder = |kind: &str| {
            ground
                .servers
                .folder()
                .join(format!("{}-{kind}", database.name))
        };
        let artifacts = folder("artifacts");
        let mail = folder("mail");
        let mut shared = BTreeMap::from(
            [
                ("ASSAY_REDIS_URL", ground.servers.redis_url().to_owned()),
                ("ASSAY_REDIS_PREFIX", database.name.clone()),
                ("ASSAY_ARTIFACTS", artifacts.to_string_lossy().into_owned()),
                ("ASSAY_MAIL_FOLDER", mail.to_string_lossy().into_owned()),
            ]
            .map(|(name, value)| (name.to_owned(), value)),
        );
        if !ground.binaries.optimized {
            // Unoptimized binaries are many times slower.
            shared.insert("ASSAY_POOL_WAIT_MS".into(), "1500".into());
        }
        shared.extend(size.env);
        let mut stack = Self {
            apis: Vec::new(),
            workers: Vec::new(),
            engines: Vec::new(),
            named_engines: Vec::new(),
            database,
            ground: Arc::clone(ground),
            shared,
            secrets_in_files: false,
            is_borrowed: false,
        };
        let addresses = (0..size.engines)
            .map(|_| free_address())
            .collect::<Result<Vec<_>, _>>()?;
        stack.name_engines(&addresses);
        for _ in 0..size.apis {
            stack.apis.push(stack.launch_api()?);
        }
        for _ in 0..size.workers {
            stack.workers.push(stack.launch_worker()?);
        }
        stack.named_engines = addresses;
        if size.apis > 0 {
            stack.launch_named_engines()?;
        }
        for process in stack.processes() {
            process.ready().await?;
        }
        Ok(stack)
    }

    /// Returns the same stack. Dropping it does not end the processes.
    #[must_use]
    pub fn borrowed(&self) -> Self {
        Self {
            apis: self.apis.clone(),
            workers: self.workers.clone(),
            engines: self.engines.clone(),
            named_engines: self.named_engines.clone(),
            database: self.database.clone(),
            ground: Arc::clone(&self.ground),
            shared: self.shared.clone(),
            secrets_in_files: self.secrets_in_files,
            is_borrowed: true,
        }
    }

    /// Returns `true` if another stack owns the processes.
    pub fn is_borrowed(&self) -> bool {
        self.is_borrowed
    }

    /// Launches another API process without waiting until it is ready.
    ///
    /// # Errors
    /// If the process cannot be spawned.
    pub fn launch_api(&self) -> Result<Process, Trouble> {
        let mut settings = vec![(WEBHOOK_KEY.0, self.webhook_key())];
        settings.extend(self.signing());
        settings.push((LOG_DATABASE_URL, self.database.log_url.clone()));
        self.launch_as_api(&self.ground.binaries.api, &settings)
    }

    /// Launches a process that signs receipts and writes their log, without waiting until it is ready.
    ///
    /// # Errors
    /// If the process cannot be spawned.
    pub fn launch_log(&self) -> Result<Process, Trouble> {
        let admin = free_address()?;
        let mut own = vec![
            ("ASSAY_DATABASE_URL", self.database.log_url.clone()),
            ("ASSAY_ADMIN_LISTEN", admin.to_string()),
        ];
        own.extend(self.signing());
        let program = &self.ground.binaries.api;
        self.launch("log", program, "log", &own, None, admin)
    }

    /// Returns the settings for the keys of receipts and their log.
    pub fn signing(&self) -> [(&'static str, String); 3] {
        let given = |name: &str, default: String| self.shared.get(name).cloned().unwrap_or(default);
        [
            (RECEIPT_KEYS, given(RECEIPT_KEYS, receipt_key(1))),
            (LOG_KEY, given(LOG_KEY, log_key().0)),
            ("ASSAY_LOG_ORIGIN", LOG_ORIGIN.to_owned()),
        ]
    }

    /// Launches `program` as another API process without waiting until it is ready. `settings` are
    /// those that earlier releases do not know.
    ///
    /// # Errors
    /// If the process cannot be spawned.
    pub fn launch_as_api(
        &self,
        program: &Path,
        settings: &[(&str, String)],
    ) -> Result<Process, Trouble> {
        let listen = free_address()?;
        let admin = free_address()?;
        let addresses = [
            ("ASSAY_DATABASE_URL", self.database.api_url.clone()),
            ("ASSAY_LISTEN", listen.to_string()),
            ("ASSAY_ADMIN_LISTEN", admin.to_string()),
        ];
        let own: Vec<_> = addresses
            .into_iter()
            .chain(settings.iter().cloned())
            .collect();
        self.launch("api", program, "serve", &own, Some(listen), admin)
    }

    /// Launches a deliverer of webhooks without waiting until it is ready.
    ///
    /// # Errors
    /// If the process cannot be spawned.
    pub fn launch_deliverer(&self) -> Result<Process, Trouble> {
        let admin = free_address()?;
        let own = [
            ("ASSAY_DATABASE_URL", self.database.delivery_url.clone()),
            (WEBHOOK_KEY.0, self.webhook_key()),
            ("ASSAY_ADMIN_LISTEN", admin.to_string()),
        ];
        let program = &self.ground.binaries.api;
        self.launch("deliverer", program, "deliver", &own, None, admin)
    }

    fn webhook_key(&self) -> String {
        let given = self.shared.get(WEBHOOK_KEY.0).cloned();
        given.unwrap_or_else(|| WEBHOOK_KEY.1.to_owned())
    }

    /// Launches another worker without waiting until it is ready.
    ///
    /// # Errors
    /// If the process cannot be spawned.
    pub fn launch_worker(&self) -> Result<Process, Trouble> {
        let checker = (CHECKER_DATABASE_URL, self.database.checker_url.clone());
        self.launch_as_worker(&self.ground.binaries.worker, &[checker])
    }

    /// Launches `program` as another worker without waiting until it is ready. `settings` are those that
    /// earlier releases do not know.
    ///
    /// # Errors
    /// If the process cannot be spawned.
    pub fn launch_as_worker(
        &self,
        program: &Path,
        settings: &[(&str, String)],
    ) -> Result<Process, Trouble> {
        let admin = free_address()?;
        let addresses = [
            ("ASSAY_DATABASE_URL", self.database.worker_url.clone()),
            ("ASSAY_ADMIN_LISTEN", admin.to_string()),
        ];
        let own: Vec<_> = addresses
            .into_iter()
            .chain(settings.iter().cloned())
            .collect();
        self.launch("worker", program, "run", &own, None, admin)
    }

    /// Launches an embedded engine that listens at this address, without waiting until it is ready.
    ///
    /// # Errors
    /// If the process cannot be spawned.
    pub fn launch_engine(&self, listen: SocketAddr) -> Result<Process, Trouble> {
        let admin = free_address()?;
        let own = [
            ("ASSAY_ENGINE_LISTEN", listen.to_string()),
            ("ASSAY_ADMIN_LISTEN", admin.to_string()),
        ];
        let program = &self.ground.binaries.worker;
        self.launch("engine", program, "serve", &own, Some(listen), admin)
    }

    /// Launches the engines in a stack's size without API processes, after these were launched:
    /// an engine does not wait long for the artifact store, which the API creates.
    ///
    /// # Errors
    /// If a process cannot be spawned.
    pub fn launch_named_engines(&mut self) -> Result<(), Trouble> {
        for address in std::mem::take(&mut self.named_engines) {
            let engine = self.launch_engine(address)?;
            self.engines.push(engine);
        }
        Ok(())
    }

    /// Adds the embedded engines to the setting `ASSAY_ENGINES`.
    fn name_engines(&mut self, addresses: &[SocketAddr]) {
        let named = addresses
            .iter()
            .enumerate()
            .map(|(index, listen)| match index {
                0 => format!("default=http://{listen}"),
                index => format!("engine-{}=http://{listen}", index + 1),
            });
        let given = self.shared.get("ASSAY_ENGINES").cloned();
        let all: Vec<String> = named.chain(given).collect();
        if !all.is_empty() {
            self.shared.insert("ASSAY_ENGINES".into(), all.join(","));
        }
    }

    /// Returns all processes.
    fn processes(&self) -> impl Iterator<Item = &Process> {
        self.apis.iter().chain(&self.workers).chain(&self.engines)
    }

    fn launch(
        &self,
        kind: &str,
        program: &Path,
        command: &str,
        own: &[(&str, String)],
        listen: Option<SocketAddr>,
        admin: SocketAddr,
    ) -> Result<Process, Trouble> {
        let number = launch_number();
        let folder = self.ground.servers.folder();
        let mut env = Vec::new();
        // Engines and deliverers refuse credentials that they do not need.
        let is_refused =
            |name: &str| matches!(kind, "engine" | "deliverer" | "log") && SECRETS.contains(&name);
        let shared = self
            .shared
            .iter()
            .map(|(name, value)| (name.as_str(), value));
        let mut settings: BTreeMap<&str, &String> =
            shared.filter(|(name, _)| !is_refused(name)).collect();
        settings.extend(own.iter().map(|(name, value)| (*name, value)));
        for (name, value) in settings {
            let (name, value) = if self.secrets_in_files && SECRETS.contains(&name) {
                let path = folder.join(format!("{kind}-{number}-{name}"));
                write_secret(&path, value)
                    .map_err(Trouble::because(format!("cannot write {}", path.display())))?;
                (format!("{name}_FILE"), path.into_os_string())
            } else {
                (name.to_owned(), OsString::from(value))
            };
            env.push((name.into(), value));
        }
        let log = folder.join(format!("{kind}-{number}.log"));
        let guarded = spawn(program, command, env, &log, folder)?;
        Ok(Process {
            guarded: Arc::new(guarded),
            listen,
            admin,
            log,
        })
    }

    /// Changes a setting for processes launched later.
    pub fn set(&mut self, name: &str, value: &str) {
        self.shared.insert(name.to_owned(), value.to_owned());
    }

    /// Passes passwords to processes launched later as files, instead of environment variables.
    pub fn keep_secrets_in_files(&mut self) {
        self.secrets_in_files = true;
    }

    /// Returns the environment with which the operator's commands act on this stack.
    pub fn operator_env(&self) -> BTreeMap<String, String> {
        let shared = [
            "ASSAY_ARTIFACTS",
            "ASSAY_ENGINES",
            "ASSAY_REDIS_URL",
            "ASSAY_REDIS_PREFIX",
        ]
        .into_iter();
        let shared = shared.filter_map(|name| Some((name, self.shared.get(name)?.clone())));
        shared
            .chain([("ASSAY_DATABASE_URL", self.database.owner_url.clone())])
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }

    /// Runs an operator's command and returns the JSON object that it prints.
    ///
    /// # Errors
    /// If the command fails, with the message that it prints.
    pub async fn operate(&self, arguments: &[&str]) -> Result<Value, Trouble> {
        operate(&self.ground.binaries.api, &self.operator_env(), arguments).await
    }

    /// Returns the setting `ASSAY_ARTIFACTS`, the artifact folder.
    pub fn artifacts(&self) -> PathBuf {
        self.shared
            .get("ASSAY_ARTIFACTS")
            .map(PathBuf::from)
            .unwrap_or_default()
    }

    /// Returns the folder into which the stack writes emails.
    pub fn mail_folder(&self) -> PathBuf {
        self.shared
            .get("ASSAY_MAIL_FOLDER")
            .map(PathBuf::from)
            .unwrap_or_default()
    }

    /// Returns the base URLs of all API processes.
    pub fn addresses(&self) -> Vec<String> {
        self.apis
            .iter()
            .filter_map(|api| api.listen)
            .map(|listen| format!("http://{listen}"))
            .collect()
    }

    /// Returns the base URL of the first API process, or an empty string if there is none.
    pub fn url(&self) -> String {
        let listen = self.apis.first().and_then(|api| api.listen);
        listen.map_or_else(String::new, |address| format!("http://{address}"))
    }

    /// Shuts all processes down with SIGTERM, as an operator does, and waits until they have
    /// exited.
    pub fn stop(&mut self) {
        for process in self.processes() {
            process.guarded.stop();
        }
        self.apis.clear();
        self.workers.clear();
        self.engines.clear();
    }
}

impl Drop for Stack {
    /// Kills the processes. A graceful shutdown, which [`Stack::stop`] waits for, takes seconds
    /// while a client keeps connections.
    fn drop(&mut self) {
        if self.is_borrowed {
            return;
        }
        for process in self.processes() {
            process.guarded.signal(libc::SIGKILL);
        }
    }
}

/// Launches the embedded engine of the binary `worker` without waiting until it is ready. It reads
/// packages from `artifacts` and writes its log to `folder`. `settings` are in addition to its
/// addresses.
///
/// # Errors
/// If the process cannot be spawned.
pub fn launch_engine(
    worker: &Path,
    artifacts: &Path,
    folder: &Path,
    settings: &[(&str, &str)],
) -> Result<Process, Trouble> {
    let listen = free_address()?;
    let admin = free_address()?;
    let addresses = [
        ("ASSAY_ENGINE_LISTEN", OsString::from(listen.to_string())),
        ("ASSAY_ADMIN_LISTEN", OsString::from(admin.to_string())),
        ("ASSAY_ARTIFACTS", artifacts.into()),
    ];
    let settings = settings.iter().map(|(name, value)| (*name, value.into()));
    let env = addresses
        .into_iter()
        .chain(settings)
        .map(|(name, value)| (name.into(), value));
    let log = folder.join(format!("engine-{}.log", launch_number()));
    let guarded = spawn(worker, "serve", env.collect(), &log, folder)?;
    Ok(Process {
        guarded: Arc::new(guarded),
        listen: Some(listen),
        admin,
        log,
    })
}

/// Returns a number that no other process of this run has.
fn launch_number() -> u32 {
    static LAUNCHED: AtomicU32 = AtomicU32::new(0);
    LAUNCHED.fetch_add(1, Ordering::Relaxed)
}

/// Spawns a process with this environment, in addition to that of a developer's shell.
fn spawn(
    program: &Path,
    command: &str,
    env: Vec<(OsString, OsString)>,
    log: &Path,
    folder: &Path,
) -> Result<Guarded, Trouble> {
    let mut guarded = GuardedCommand::new(program);
    guarded.args = vec![command.into()];
    guarded.clear_env = true;
    guarded.env = inherited().chain(env).collect();
    guarded.log = Some(log.to_path_buf());
    guarded.run_folder = Some(folder.to_path_buf());
    Guarded::spawn(&guarded)
}

impl Process {
    /// Waits until `/readyz` of the process returns success.
    ///
    /// # Errors
    /// If it exits or does not become ready in time; the error quotes its log's end.
    pub async fn ready(&self) -> Result<(), Trouble> {
        let client = http_builder().build().unwrap_or_default();
        let url = format!("http://{}/readyz", self.admin);
        let began = Instant::now();
        loop {
            if client
                .get(&url)
                .send()
                .await
                .is_ok_and(|response| response.status().is_success())
            {
                return Ok(());
            }
            if self.guarded.try_wait().is_some() || began.elapsed() > wait_timeout() {
                let log = std::fs::read_to_string(&self.log).unwrap_or_default();
                let last: Vec<&str> = log.lines().rev().take(5).collect();
                let last = last.into_iter().rev().collect::<Vec<_>>().join("\n");
                return Err(Trouble::new(format!(
                    "a process did not become ready; its last log lines:\n{last}"
                )));
            }
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
    }
}

/// Runs an operator's command of the binary `api` in this environment, and returns the JSON object
/// that it prints.
///
/// # Errors
/// If the command fails, with the message that it prints.
pub async fn operate(
    api: &Path,
    env: &BTreeMap<String, String>,
    arguments: &[&str],
) -> Result<Value, Trouble> {
    let command = format!("assay-api {}", arguments.join(" "));
    let mut process = Command::new(api);
    process
        .args(arguments)
        .env_clear()
        .envs(inherited())
        .envs(env)
        .stdin(Stdio::null());
    let output = process
        .output()
        .await
        .map_err(Trouble::because(format!("cannot run {command}")))?;
    if !output.status.success() {
        return Err(Trouble::new(
            String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        ));
    }
    serde_json::from_slice(&output.stdout).map_err(Trouble::because(format!(
        "{command} did not print a JSON object"
    )))
}

/// Writes a new file that only its owner can read.
fn write_secret(path: &Path, value: &str) -> std::io::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;

    std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?
        .write_all(value.as_bytes())
}

/// Returns the environment of this process without Assay's settings, so that a developer's shell
/// does not affect stacks.
fn inherited() -> impl Iterator<Item = (OsString, OsString)> {
    std::env::vars_os().filter(|(name, _)| !name.to_string_lossy().starts_with("ASSAY_"))
}

/// Returns an unused local address. Its port is below the system's range for outgoing connections,
/// so that none of these takes it before the caller listens on it.
///
/// # Errors
/// If no port is free.
pub fn free_address() -> Result<SocketAddr, Trouble> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    const PORTS: std::ops::Range<u16> = 20_000..32_000;
    let span = PORTS.end - PORTS.start;
    // Concurrent launchers start at different ports.
    let start = u16::try_from(std::process::id() % u32::from(span)).unwrap_or(0);
    for _ in 0..span {
        let offset = (u32::from(start) * 7 + u32::from(NEXT.fetch_add(1, Ordering::Relaxed)))
            % u32::from(span);
        let address = SocketAddr::from((
            [127, 0, 0, 1],
            PORTS.start + u16::try_from(offset).unwrap_or(0),
        ));
        if TcpListener::bind(address).is_ok() {
            return Ok(address);
        }
    }
    Err(Trouble::new(
        "there is no free port between 20000 and 32000 on 127.0.0.1; end what listens there",
    ))
}
