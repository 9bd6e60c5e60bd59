//! The private PostgreSQL server. Its data must survive a crash of the server, not of the machine.

use super::cache::{cache, lock};
use super::command::GuardedCommand;
use super::copy::{copy_folder, make_owned_folder};
use super::folder::{check_socket, remove_folder};
use super::handshake::is_ready;
use super::program::Postgres;
use super::server::{Server, environment};
use super::sys::Ids;
use super::trouble::{Trouble, last_lines};
use std::ffi::OsString;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Mutex;

/// Settings that differ from those of a new installation. A test can change them with `alter system`.
const SETTINGS: [&str; 13] = [
    // The socket's folder is already private to one user.
    "unix_socket_permissions=0700",
    "max_connections=1000",
    "shared_buffers=128MB",
    // No data outlive the machine, so no write needs to reach a disk.
    "fsync=off",
    "full_page_writes=off",
    // The folder may be in memory, which old WAL segments must not fill.
    "min_wal_size=32MB",
    "max_wal_size=256MB",
    // As in a production installation, for tests that depend on it.
    "synchronous_commit=on",
    "autovacuum=on",
    // It starts a process for each database in turn, and each stack leaves a database behind.
    "autovacuum_naptime=10min",
    // The log goes to standard error, which is redirected to a file.
    "log_destination=stderr",
    "logging_collector=off",
    "log_line_prefix=%m [%p] %q%u@%d ",
];

/// Appends [`SETTINGS`] to a server's configuration.
fn write_settings(data: &Path) -> Result<(), Trouble> {
    let file = data.join("postgresql.conf");
    let append = || {
        let mut text = fs::read_to_string(&file)?;
        for (name, value) in SETTINGS
            .iter()
            .filter_map(|setting| setting.split_once('='))
        {
            text.push_str(&format!("{name} = '{value}'\n"));
        }
        fs::write(&file, text)
    };
    append().map_err(Trouble::because(format!(
        "{} cannot be written",
        file.display()
    )))
}

/// The locale of the databases, and the fallback for systems without it.
const LOCALES: [&str; 2] = ["C.UTF-8", "C"];

/// The port in the name of a socket whose server listens on no TCP port.
pub(super) const PORT: u16 = 5432;

/// The replication role of a server. A primary and its standby also listen on a port of 127.0.0.1.
#[derive(Debug, Clone, Copy)]
pub(super) enum Part {
    /// A server without replication.
    Alone,
    /// A primary that acknowledges a commit when the standby has it.
    Primary { port: u16 },
    /// A standby that follows the primary.
    Standby { port: u16, primary: u16 },
}

impl Part {
    pub(super) const fn port(self) -> u16 {
        match self {
            Self::Alone => PORT,
            Self::Primary { port } | Self::Standby { port, .. } => port,
        }
    }

    /// Returns the settings that depend on the role.
    fn settings(self, run: &Path) -> Vec<String> {
        let port = format!("port={}", self.port());
        let listen = |address: &str| format!("listen_addresses={address}");
        match self {
            Self::Alone => vec![listen(""), port],
            Self::Primary { .. } => {
                vec![
                    listen("127.0.0.1"),
                    port,
                    "synchronous_standby_names=standby".to_owned(),
                    "wal_keep_size=64MB".to_owned(),
                ]
            }
            Self::Standby { primary, .. } => {
                let host = folder(run, Self::Alone);
                let primary = format!(
                    "primary_conninfo=host={} port={primary} user=postgres application_name=standby",
                    host.display()
                );
                vec![listen("127.0.0.1"), port, primary]
            }
        }
    }
}

/// Returns the folder of data and socket inside the run folder.
pub(super) fn folder(run: &Path, part: Part) -> PathBuf {
    run.join(if matches!(part, Part::Standby { .. }) {
        "postgres-standby"
    } else {
        "postgres"
    })
}

/// Returns a server in the run folder, not yet started, with new data. The data are the same for
/// all servers, so that one can be the standby of another.
pub(super) fn server(
    run: &Path,
    part: Part,
    postgres: &Postgres,
    user: Option<Ids>,
    say: &dyn Fn(&str),
) -> Result<Server, Trouble> {
    let folder = folder(run, part);
    let data = folder.join("data");
    let socket = folder.join(format!(".s.PGSQL.{}", part.port()));
    check_socket(&socket)?;
    make_owned_folder(&folder, user).map_err(Trouble::because(format!(
        "{} cannot be made",
        folder.display()
    )))?;
    copy_pristine(postgres, user, &data, say)?;
    if let Part::Standby { .. } = part {
        let signal = data.join("standby.signal");
        fs::write(&signal, "").map_err(Trouble::because(format!(
            "{} cannot be written",
            signal.display()
        )))?;
    }
    write_settings(&data)?;
    let log = folder.with_added_extension("log");
    let mut args: Vec<OsString> = vec!["-D".into(), data.into(), "-k".into(), folder.into()];
    let settings = part.settings(run).into_iter();
    args.extend(settings.flat_map(|setting| ["-c".into(), setting.into()]));
    let command = GuardedCommand {
        args,
        env: environment(postgres.server.libraries.as_ref()),
        clear_env: true,
        current_dir: Some("/".into()),
        user,
        log: Some(log),
        // SIGQUIT is the immediate shutdown: the data are discarded, so a checkpoint has no use.
        stop_signal: libc::SIGQUIT,
        run_folder: Some(run.into()),
        ..GuardedCommand::new(&postgres.server.file)
    };
    Ok(Server {
        name: "PostgreSQL",
        command,
        socket,
        is_ready,
        process: Mutex::default(),
    })
}

/// Copies the data folder of a new installation from the cache, which takes a fraction of initdb's
/// time. The first process that needs it creates it.
fn copy_pristine(
    postgres: &Postgres,
    user: Option<Ids>,
    target: &Path,
    say: &dyn Fn(&str),
) -> Result<(), Trouble> {
    let (family, name) = pristine_name(postgres, user)?;
    let cache = cache()?;
    let pristine = cache.join(&name);
    if !pristine.is_dir() {
        let _alone = lock("data", true, say)?;
        if !pristine.is_dir() {
            say("Preparing an empty PostgreSQL data folder, which is kept for the next time …");
            forget(&cache, &family);
            make_pristine(postgres, user, &pristine)?;
        }
    }
    let _shared = lock("data", false, say)?;
    copy_folder(&pristine, target, user).map_err(Trouble::because(format!(
        "{} cannot be copied to {}",
        pristine.display(),
        target.display()
    )))
}

/// Returns a name that differs if the data could differ, and the part of it that all versions of
/// the same installation share.
fn pristine_name(postgres: &Postgres, user: Option<Ids>) -> Result<(String, String), Trouble> {
    let file = &postgres.server.file;
    let changed = fs::metadata(file).map(|data| data.mtime());
    let changed = changed.map_err(Trouble::because(format!(
        "{} cannot be read",
        file.display()
    )))?;
    let mut hasher = DefaultHasher::new();
    (file, user).hash(&mut hasher);
    let family = format!("data-{:016x}-", hasher.finish());
    let name = format!("{family}{}-{changed}", postgres.version);
    Ok((family, name))
}

/// Removes the data folders of earlier versions, and unfinished ones of killed processes.
fn forget(cache: &Path, family: &str) {
    for entry in fs::read_dir(cache).into_iter().flatten().flatten() {
        if entry
            .file_name()
            .to_str()
            .is_some_and(|name| name.starts_with(family))
        {
            // A leftover only occupies space.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Creates the pristine folder under a temporary name and renames it, so that it is always
/// complete.
fn make_pristine(postgres: &Postgres, user: Option<Ids>, path: &Path) -> Result<(), Trouble> {
    let draft = path.with_added_extension("new");
    let tried = format!("{} cannot be made", draft.display());
    let mut complaint = String::new();
    for locale in LOCALES {
        remove_folder(&draft)?;
        make_owned_folder(&draft, user).map_err(Trouble::because(&tried))?;
        let output = initdb(postgres, user, &draft, locale).map_err(Trouble::because(&tried))?;
        if output.status.success() {
            return fs::rename(&draft, path).map_err(Trouble::because(&tried));
        }
        complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    }
    remove_folder(&draft)?;
    Err(Trouble::new(format!(
        "{} failed; try another PostgreSQL by setting ASSAY_POSTGRES_BIN to its bin folder, or \
         DATABASE_URL to a server. Its last words:\n{}",
        postgres.initdb.display(),
        last_lines(&complaint)
    )))
}

fn initdb(postgres: &Postgres, user: Option<Ids>, data: &Path, locale: &str) -> io::Result<Output> {
    let mut command = postgres.server.command(&postgres.initdb, user);
    command
        .arg("-D")
        .arg(data)
        .arg(format!("--locale={locale}"));
    command.args([
        "--username=postgres",
        "--auth=trust",
        "--encoding=UTF8",
        "--no-sync",
    ]);
    command.output()
}
