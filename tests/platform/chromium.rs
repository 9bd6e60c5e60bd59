//! A browser without a window: the machine's own, or else one that npm brings.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use assay_tests::databases;
use assay_tests::servers::{Guarded, GuardedCommand, Servers};

use crate::clients::{Missing, made_once, node_with, run};

/// Under which names it is found on PATH.
const NAMES: [&str; 4] = [
    "chromium",
    "chromium-browser",
    "google-chrome-stable",
    "google-chrome",
];

/// Nothing that it would do for a person; and it asks nobody but the servers on this machine.
const ARGUMENTS: [&str; 12] = [
    "--headless",
    // Its sandbox runs neither as root nor in most containers, and it is shown our own pages only.
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-proxy-server",
    "--enable-logging=stderr",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1",
];

/// What can be started.
#[derive(Clone)]
pub struct Chromium {
    program: PathBuf,
    env: Vec<(OsString, OsString)>,
}

/// A browser that shows a page. Dropping it ends it.
pub struct Window {
    _browser: Guarded,
    log: PathBuf,
}

impl Chromium {
    /// The first that runs.
    pub fn find() -> Result<Self, Missing> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
        let places = NAMES
            .iter()
            .flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
        let found = places.filter(|place| place.is_file()).map(|program| Self {
            program,
            env: Vec::new(),
        });
        // Some of these names stand for a note that the browser is to be had elsewhere.
        found
            .into_iter()
            .find(|own| own.runs().is_ok())
            .map_or_else(Self::packed, Ok)
    }

    /// The one that an npm package holds, with the libraries that a bare machine lacks.
    fn packed() -> Result<Self, Missing> {
        let names = ["package.json", "package-lock.json", ".npmrc", "unpack.mjs"];
        let package = node_with("chromium", &names)?;
        let key = package.as_os_str().as_encoded_bytes().to_vec();
        let at = |folder: &Path| Self {
            program: folder.join("chromium"),
            env: vec![
                ("LD_LIBRARY_PATH".into(), folder.join("al2023/lib").into()),
                ("FONTCONFIG_PATH".into(), folder.join("fonts").into()),
            ],
        };
        let folder = made_once("chromium-unpacked", &[key], |part| {
            let mut unpack = Command::new("node");
            // It unpacks the libraries only where it takes itself to be on the machines that it is made for.
            unpack
                .arg(package.join("unpack.mjs"))
                .env("TMPDIR", part)
                .env("AWS_EXECUTION_ENV", "AWS_Lambda_nodejs20.x");
            run(
                &mut unpack,
                "no chromium on PATH, and the one of npm cannot be unpacked",
            )?;
            at(part).runs()
        })?;
        Ok(at(&folder))
    }

    fn runs(&self) -> Result<(), Missing> {
        let mut command = Command::new(&self.program);
        command.arg("--version").envs(self.env.iter().cloned());
        run(
            &mut command,
            "no chromium on PATH that runs, and that of npm does not run here",
        )
        .map(|_| ())
    }

    /// Shows a page to nobody. What the browser keeps is in the servers' folder, and goes with it.
    pub fn open(&self, servers: &Servers, url: &str) -> Window {
        let folder = servers.folder().join(databases::fresh_name("browser"));
        fs::create_dir(&folder).unwrap();
        let log = folder.join("log");
        let mut command = GuardedCommand::new(&self.program);
        let mut profile = OsString::from("--user-data-dir=");
        profile.push(folder.join("profile"));
        command.args = ARGUMENTS
            .iter()
            .map(OsString::from)
            .chain([profile, url.into()])
            .collect();
        command.env = self.env.clone();
        command.env.push(("HOME".into(), folder.into()));
        command.log = Some(log.clone());
        command.run_folder = Some(servers.folder().to_path_buf());
        command.grace = Duration::from_secs(3);
        Window {
            _browser: Guarded::spawn(&command).unwrap(),
            log,
        }
    }
}

impl Window {
    /// What the browser and the page's console said.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}
