//! The peers: FastAPI with asyncpg under uvicorn, and Celery, as their documentation recommends to
//! run them. They execute the floors' statements.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use assay_tests::servers::{Guarded, GuardedCommand, Servers, Trouble};

use crate::floor;

const REQUIREMENTS: &str = include_str!("../../peers/service-requirements.txt");

/// A Python environment with the peers' packages, and their servers' variables.
pub struct Peers {
    bin: PathBuf,
    env: Vec<(&'static str, String)>,
    folder: PathBuf,
}

impl Peers {
    /// Installs the packages into the tool folder in `target`, if they are not there yet.
    ///
    /// # Errors
    /// If Python has no `venv`, or a package cannot be installed.
    pub fn install(target: &Path, servers: &Servers, database: &str) -> Result<Self, Trouble> {
        let mut hasher = DefaultHasher::new();
        REQUIREMENTS.hash(&mut hasher);
        let venv = target.join(format!("tools/peers-{:016x}", hasher.finish()));
        let complete = venv.join("complete");
        let bin = venv.join("bin");
        if !complete.exists() {
            eprintln!("Installing FastAPI and Celery …");
            run(Command::new("python3")
                .args(["-m", "venv", "--clear"])
                .arg(&venv))?;
            let requirements =
                Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/service-requirements.txt");
            run(Command::new(bin.join("pip"))
                .args(["install", "--quiet", "--only-binary=:all:", "-r"])
                .arg(requirements))?;
            std::fs::write(&complete, "")
                .map_err(Trouble::because("cannot write into the tools"))?;
        }
        let redis = servers.redis_socket()?.display().to_string();
        let socket = servers.postgres_socket()?;
        let (folder, port) = (socket.parent(), socket.extension());
        let no_socket = || Trouble::new("PostgreSQL's socket has an unexpected name");
        // asyncpg prefers the host before the path, so the URL has none there.
        let postgres = format!(
            "postgres://postgres@/{database}?host={}&port={}",
            folder.ok_or_else(no_socket)?.display(),
            port.ok_or_else(no_socket)?.display()
        );
        Ok(Self {
            bin,
            env: vec![
                (floor::DATABASE_URL, postgres),
                ("BENCH_BROKER_URL", format!("redis+socket://{redis}")),
                ("PYTHONDONTWRITEBYTECODE", "1".to_owned()),
            ],
            folder: servers.folder().to_path_buf(),
        })
    }

    fn command(&self, program: &str, arguments: &[&str]) -> GuardedCommand {
        let mut command = GuardedCommand::new(self.bin.join(program));
        command.args = arguments.iter().map(Into::into).collect();
        command.env = self
            .env
            .iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        command.current_dir = Some(Path::new(env!("CARGO_MANIFEST_DIR")).join("peers"));
        command.log = Some(self.folder.join(format!("{program}.log")));
        command.run_folder = Some(self.folder.clone());
        command
    }

    /// Starts FastAPI under uvicorn with two processes on 127.0.0.1, `port`.
    ///
    /// # Errors
    /// If it cannot be spawned.
    pub fn fastapi(&self, port: u16) -> Result<Guarded, Trouble> {
        Guarded::spawn(&self.command(
            "uvicorn",
            &[
                "service_api:app",
                "--workers=2",
                "--no-access-log",
                &format!("--port={port}"),
            ],
        ))
    }

    /// Starts a Celery worker with two processes.
    ///
    /// # Errors
    /// If it cannot be spawned.
    pub fn celery(&self) -> Result<Guarded, Trouble> {
        Guarded::spawn(&self.command(
            "celery",
            &[
                "--app=service_worker",
                "worker",
                "--pool=prefork",
                "--concurrency=2",
                "--without-gossip",
                "--without-mingle",
            ],
        ))
    }

    /// Gives the queued rows to Celery.
    ///
    /// # Errors
    /// If the program fails.
    pub fn enqueue(&self) -> Result<(), Trouble> {
        let mut command = Command::new(self.bin.join("python"));
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers");
        command.arg("service_worker.py").current_dir(folder);
        run(command.envs(self.env.iter().map(|(name, value)| (name, value))))
    }
}

fn run(command: &mut Command) -> Result<(), Trouble> {
    let program = command.get_program().display().to_string();
    let output = command
        .output()
        .map_err(Trouble::because(format!("cannot run {program}")))?;
    if output.status.success() {
        return Ok(());
    }
    Err(Trouble::new(format!(
        "{program} failed: {}",
        String::from_utf8_lossy(&output.stderr)
    )))
}
