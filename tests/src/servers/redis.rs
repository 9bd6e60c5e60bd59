//! The private Redis server: everything in memory, nothing kept.

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

/// A restart loses everything. A full memory refuses writes instead of dropping what was written.
const SETTINGS: [(&str, &str); 8] = [
    ("port", "0"),
    ("unixsocketperm", "700"),
    ("daemonize", "no"),
    ("save", ""),
    ("appendonly", "no"),
    ("maxmemory-policy", "noeviction"),
    // A signal to end is looked for this often each second.
    ("hz", "100"),
    // The log goes to the standard output, which leads to a file.
    ("logfile", ""),
];

/// A server, not yet started, that lives in the run folder.
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

/// Says PING. Any failure means "not yet"; whether the process still lives is asked elsewhere.
fn is_ready(socket: &Path) -> Result<bool, Trouble> {
    let ping = || -> std::io::Result<bool> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        stream.write_all(b"PING\r\n")?;
        let mut answer = [0; 7];
        stream.read_exact(&mut answer)?;
        Ok(&answer == b"+PONG\r\n")
    };
    Ok(ping().unwrap_or(false))
}
