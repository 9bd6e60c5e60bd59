//! The private Redis server, which keeps everything in memory and persists nothing.

use super::command::GuardedCommand;
use super::copy::make_owned_folder;
use super::folder::check_socket;
use super::program::Program;
use super::server::{Server, environment};
use super::sys::Ids;
use super::trouble::Trouble;
use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

/// Settings: a restart loses all data, and a full memory rejects writes instead of evicting keys.
const SETTINGS: [(&str, &str); 8] = [
    ("port", "0"),
    ("unixsocketperm", "700"),
    ("daemonize", "no"),
    ("save", ""),
    ("appendonly", "no"),
    ("maxmemory-policy", "noeviction"),
    // Redis checks for a shutdown signal this many times per second.
    ("hz", "100"),
    // The log goes to standard output, which is redirected to a file.
    ("logfile", ""),
];

/// Returns a server in the run folder, not yet started.
pub(super) fn server(run: &Path, program: &Program, user: Option<Ids>) -> Result<Server, Trouble> {
    let folder = run.join("redis");
    let socket = folder.join("redis.sock");
    check_socket(&socket)?;
    make_owned_folder(&folder, user).map_err(Trouble::because(format!(
        "{} cannot be made",
        folder.display()
    )))?;
    let settings = SETTINGS
        .iter()
        .flat_map(|(name, value)| [format!("--{name}"), (*value).into()]);
    let mut args: Vec<OsString> = settings.map(OsString::from).collect();
    args.extend(["--dir".into(), folder.clone().into()]);
    args.extend(["--unixsocket".into(), socket.clone().into()]);
    let command = GuardedCommand {
        args,
        env: environment(program.libraries.as_ref()),
        clear_env: true,
        current_dir: Some("/".into()),
        user,
        log: Some(run.join("redis.log")),
        run_folder: Some(run.into()),
        ..GuardedCommand::new(&program.file)
    };
    Ok(Server {
        name: "Redis",
        command,
        socket,
        is_ready,
        process: Mutex::default(),
    })
}

/// Sends PING. Any failure means "not yet"; the caller checks if the process still runs.
fn is_ready(socket: &Path) -> Result<bool, Trouble> {
    let ping = || -> std::io::Result<bool> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        stream.write_all(b"PING\r\n")?;
        let mut response = [0; 7];
        stream.read_exact(&mut response)?;
        Ok(&response == b"+PONG\r\n")
    };
    Ok(ping().unwrap_or(false))
}
