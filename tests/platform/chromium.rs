//! A headless browser: the one on PATH, or else one from an npm package.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use assay_tests::databases;
use assay_tests::servers::{Guarded, GuardedCommand, Servers};
use serde_json::{Value, json};

use crate::clients::{MissingTool, build_once, node_with, run};

/// The browser's names on PATH, in order of preference.
const NAMES: [&str; 4] = [
    "chromium",
    "chromium-browser",
    "google-chrome-stable",
    "google-chrome",
];

/// The arguments that disable interactive features and all requests beyond this machine.
const ARGUMENTS: [&str; 12] = [
    "--headless",
    // The sandbox works neither as root nor in most containers, and the browser shows only our
    // pages.
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

/// A browser program that can be started.
#[derive(Clone)]
pub struct Chromium {
    program: PathBuf,
    env: Vec<(OsString, OsString)>,
}

/// A browser process that shows a page. Dropping it stops the process.
pub struct Window {
    _browser: Guarded,
    log: PathBuf,
}

impl Chromium {
    /// Returns the first browser that runs.
    pub fn find() -> Result<Self, MissingTool> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
        let places = NAMES
            .iter()
            .flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
        let found = places.filter(|place| place.is_file()).map(|program| Self {
            program,
            env: Vec::new(),
        });
        // On some systems these names are stubs that only print how to install the browser.
        found
            .into_iter()
            .find(|own| own.runs().is_ok())
            .map_or_else(Self::packed, Ok)
    }

    /// Returns the browser of an npm package, with the libraries that a minimal system lacks.
    fn packed() -> Result<Self, MissingTool> {
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
        let folder = build_once("chromium-unpacked", &[key], |part| {
            let mut unpack = Command::new("node");
            // The package unpacks the libraries only in the environment that it is made for.
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

    fn runs(&self) -> Result<(), MissingTool> {
        let mut command = Command::new(&self.program);
        command.arg("--version").envs(self.env.iter().cloned());
        run(
            &mut command,
            "no chromium on PATH that runs, and that of npm does not run here",
        )
        .map(|_| ())
    }

    /// Returns the program and its environment, as the options with which Playwright starts it.
    pub fn launch_options(&self) -> Value {
        let env: BTreeMap<_, _> = self
            .env
            .iter()
            .map(|(name, value)| (name.to_string_lossy(), value.to_string_lossy()))
            .collect();
        json!({"executablePath": self.program, "env": env})
    }

    /// Opens a page. The browser's profile is in the servers' folder, which is removed at the end.
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
    /// Returns the browser's log and the page's console.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}
