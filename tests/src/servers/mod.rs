//! Private, temporary PostgreSQL and Redis servers.
//!
//! They listen only on sockets in their own folder, so any number of them can run concurrently.
//! `DATABASE_URL` and `REDIS_URL` each replace a private server by a running one, which is never
//! started, stopped or cleared.

mod cache;
mod command;
mod copy;
mod fetch;
mod find;
mod folder;
mod guard;
pub(crate) mod handshake;
mod postgres;
mod program;
mod redis;
mod server;
mod sys;
mod trouble;
mod url;

pub use command::GuardedCommand;
pub use guard::Guarded;
pub use sys::Ids;
pub use trouble::Trouble;

use fetch::Kind;
use folder::RunFolder;
use postgres::Part;
use server::Server;
use std::env;
use std::path::{Path, PathBuf};
use sys::effective_uid;

/// The superuser of a private PostgreSQL.
const ADMINISTRATOR: &str = "postgres";

/// The URL schemes of PostgreSQL.
const POSTGRES_SCHEMES: [&str; 2] = ["postgres", "postgresql"];
const REDIS_SCHEMES: [&str; 7] = [
    "redis",
    "rediss",
    "redis+unix",
    "unix",
    "valkey",
    "valkeys",
    "valkey+unix",
];

/// A PostgreSQL and a Redis server that are ready for use. Dropping it stops the private ones,
/// waits for their exit, and removes their folder.
#[derive(Debug)]
pub struct Servers {
    // Fields are dropped in this order, so the folder is removed last.
    postgres: Source,
    standby: Option<Box<Server>>,
    redis: Source,
    redis_url: String,
    /// The TCP ports of PostgreSQL and its standby.
    ports: [u16; 2],
    folder: RunFolder,
}

/// Returns the folder with Prometheus' programs, and fetches them if needed. Calls `say` before
/// slow steps.
///
/// # Errors
/// If they cannot be fetched.
pub fn prometheus(say: &dyn Fn(&str)) -> Result<PathBuf, Trouble> {
    find::prometheus(say)
}

/// A server's origin.
#[derive(Debug)]
enum Source {
    Private(Box<Server>),
    /// A running server that the environment names, with its URL.
    Foreign(String),
}

impl Servers {
    /// Starts both servers, or uses those that `DATABASE_URL` and `REDIS_URL` name, each
    /// independently. Calls `say` with a complete sentence before each slow step.
    ///
    /// # Errors
    /// If a server is missing and cannot be fetched, or does not start.
    pub fn start(say: &dyn Fn(&str)) -> Result<Self, Trouble> {
        Self::start_as(None, say)
    }

    /// Starts private servers with a synchronous standby of PostgreSQL. Primary and standby also
    /// listen on these ports of 127.0.0.1.
    ///
    /// # Errors
    /// If a server is missing and cannot be fetched, or does not start, or if
    /// `DATABASE_URL` is set.
    pub fn start_with_standby(ports: [u16; 2], say: &dyn Fn(&str)) -> Result<Self, Trouble> {
        Self::start_as(Some(ports), say)
    }

    fn start_as(pair: Option<[u16; 2]>, say: &dyn Fn(&str)) -> Result<Self, Trouble> {
        let foreign_postgres = address("DATABASE_URL", &POSTGRES_SCHEMES)?;
        let foreign_redis = address("REDIS_URL", &REDIS_SCHEMES)?;
        let mut wanted = Vec::new();
        wanted.extend(foreign_postgres.is_none().then_some(Kind::Postgres));
        wanted.extend(foreign_redis.is_none().then_some(Kind::Redis));
        let user = server_user()?;
        // A program is found exactly if no URL is given.
        let found = find::find_or_fetch(&wanted, user, say)?;
        let folder = RunFolder::create()?;
        let redis = match found.redis {
            Some(program) => {
                Source::Private(Box::new(redis::server(folder.path(), &program, user)?))
            }
            None => Source::Foreign(foreign_redis.unwrap_or_default()),
        };
        // Redis starts while the data of PostgreSQL are copied.
        redis.launch()?;
        let postgres = |part| match &found.postgres {
            Some(programs) => Ok(Some(Box::new(postgres::server(
                folder.path(),
                part,
                programs,
                user,
                say,
            )?))),
            None => Ok::<_, Trouble>(None),
        };
        let (part, standby) = match pair {
            None => (Part::Alone, None),
            Some([primary, port]) => (
                Part::Primary { port: primary },
                postgres(Part::Standby { port, primary })?,
            ),
        };
        let postgres = postgres(part)?.map_or_else(
            || Source::Foreign(foreign_postgres.unwrap_or_default()),
            Source::Private,
        );
        postgres.launch()?;
        postgres.await_ready()?;
        if let Some(standby) = &standby {
            standby.launch()?;
            standby.await_ready()?;
        } else if pair.is_some() {
            return Err(Trouble::new(
                "Only a private server can have a standby; unset DATABASE_URL to get one.",
            ));
        }
        redis.await_ready()?;
        let redis_url = match &redis {
            Source::Private(server) => url::private_redis(&server.socket),
            Source::Foreign(url) => url.clone(),
        };
        Ok(Self {
            postgres,
            standby,
            redis,
            redis_url,
            ports: pair.unwrap_or([postgres::PORT; 2]),
            folder,
        })
    }

    /// Returns a database's URL for the administrator: a private server's superuser, or the
    /// role in `DATABASE_URL`. The database `postgres` always exists.
    pub fn postgres_url(&self, database: &str) -> String {
        match &self.postgres {
            Source::Private(_) => self.private_postgres_url(ADMINISTRATOR, database),
            Source::Foreign(url) => url::replace(url, None, database),
        }
    }

    /// Returns a database's URL for another role. The URL contains the password, although a
    /// private server does not check it.
    pub fn postgres_url_as(&self, role: &str, password: &str, database: &str) -> String {
        let credentials = url::credentials(role, password);
        match &self.postgres {
            Source::Private(_) => self.private_postgres_url(&credentials, database),
            Source::Foreign(url) => url::replace(url, Some(&credentials), database),
        }
    }

    /// Returns the URL of Redis.
    pub fn redis_url(&self) -> &str {
        &self.redis_url
    }

    /// Returns the process id of the private PostgreSQL, or `None` if it is not private or not
    /// running.
    pub fn postgres_pid(&self) -> Option<u32> {
        self.postgres.pid()
    }

    /// Returns the process id of the private Redis, or `None` if it is not private or not running.
    pub fn redis_pid(&self) -> Option<u32> {
        self.redis.pid()
    }

    /// Returns the private folder. It contains sockets and logs, and is removed with everything
    /// that the caller adds (under names other than `postgres*`, `redis*`, `pids` and
    /// `owner.lock`).
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Restarts PostgreSQL on the same data, and returns when it is ready. The stop is immediate,
    /// as in a crash that needs recovery, or orderly. Both close all connections.
    ///
    /// # Errors
    /// If the server is not private or does not start again.
    pub fn postgres_restart(&self, immediate: bool) -> Result<(), Trouble> {
        let server = self.postgres.private("DATABASE_URL")?;
        server.stop(if immediate {
            libc::SIGQUIT
        } else {
            libc::SIGINT
        });
        server.launch()?;
        server.await_ready()
    }

    /// Stops PostgreSQL immediately, as in a crash, and waits for its exit.
    ///
    /// # Errors
    /// If the server is not private.
    pub fn postgres_stop(&self) -> Result<(), Trouble> {
        self.postgres.private("DATABASE_URL")?.stop(libc::SIGQUIT);
        Ok(())
    }

    /// Starts PostgreSQL again, and returns when it is ready.
    ///
    /// # Errors
    /// If the server is not private or does not start.
    pub fn postgres_start(&self) -> Result<(), Trouble> {
        let server = self.postgres.private("DATABASE_URL")?;
        server.launch()?;
        server.await_ready()
    }

    /// Sends a signal to all processes of PostgreSQL, such as SIGSTOP to freeze it, or SIGKILL to
    /// simulate its machine's loss.
    ///
    /// # Errors
    /// If the server is not private.
    pub fn postgres_signal(&self, signal: i32) -> Result<(), Trouble> {
        self.postgres.private("DATABASE_URL")?;
        let mut family: Vec<u32> = self.postgres_pid().into_iter().collect();
        let mut at = 0;
        while let Some(pid) = family.get(at) {
            let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))
                .unwrap_or_default();
            family.extend(
                children
                    .split_whitespace()
                    .filter_map(|child| child.parse::<u32>().ok()),
            );
            at += 1;
        }
        for pid in family {
            sys::signal(pid, signal);
        }
        Ok(())
    }

    /// Returns the hosts of PostgreSQL and its standby, as in a URL.
    pub fn postgres_hosts(&self) -> String {
        self.ports.map(|port| format!("127.0.0.1:{port}")).join(",")
    }

    /// Returns the URL of a standby database, for the administrator.
    ///
    /// # Errors
    /// If the servers have no standby.
    pub fn standby_url(&self, database: &str) -> Result<String, Trouble> {
        let [primary, port] = self.ports;
        self.standby
            .as_ref()
            .ok_or_else(|| Trouble::new("The servers have no standby."))?;
        let folder = postgres::folder(self.folder.path(), Part::Standby { port, primary });
        Ok(url::private_postgres(
            &folder,
            port,
            ADMINISTRATOR,
            database,
        ))
    }

    /// Restarts Redis with an empty database, and returns when it is ready.
    ///
    /// # Errors
    /// If the server is not private or does not start again.
    pub fn redis_restart(&self) -> Result<(), Trouble> {
        self.redis_stop()?;
        self.redis_start()
    }

    /// Stops Redis and waits for its exit; all its data are lost.
    ///
    /// # Errors
    /// If the server is not private.
    pub fn redis_stop(&self) -> Result<(), Trouble> {
        self.redis.private("REDIS_URL")?.stop(libc::SIGTERM);
        Ok(())
    }

    /// Sends a signal to Redis, such as SIGSTOP to freeze it.
    ///
    /// # Errors
    /// If the server is not private.
    pub fn redis_signal(&self, signal: i32) -> Result<(), Trouble> {
        self.redis.private("REDIS_URL")?.signal(signal);
        Ok(())
    }

    /// Starts Redis if it is not running, and returns when it is ready.
    ///
    /// # Errors
    /// If the server is not private or does not start.
    pub fn redis_start(&self) -> Result<(), Trouble> {
        self.redis.private("REDIS_URL")?;
        self.redis.launch()?;
        self.redis.await_ready()
    }

    /// Returns the socket of the private Redis.
    ///
    /// # Errors
    /// If the server is not private.
    pub fn redis_socket(&self) -> Result<&Path, Trouble> {
        Ok(&self.redis.private("REDIS_URL")?.socket)
    }

    /// Returns the socket of the private PostgreSQL.
    ///
    /// # Errors
    /// If the server is not private.
    pub fn postgres_socket(&self) -> Result<&Path, Trouble> {
        Ok(&self.postgres.private("DATABASE_URL")?.socket)
    }

    fn private_postgres_url(&self, user: &str, database: &str) -> String {
        url::private_postgres(
            &postgres::folder(self.folder.path(), Part::Alone),
            self.ports[0],
            user,
            database,
        )
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        // A frozen server does not handle signals. The call fails if the server is not private.
        let _ = self.postgres_signal(libc::SIGCONT);
        if let Some(standby) = &self.standby {
            standby.begin_stop();
        }
        // All servers are signalled before the first wait.
        for source in [&self.postgres, &self.redis] {
            if let Source::Private(server) = source {
                server.begin_stop();
            }
        }
    }
}

// Lifecycle operations apply to private servers; for foreign ones they do nothing or fail.
impl Source {
    fn launch(&self) -> Result<(), Trouble> {
        match self {
            Self::Private(server) => server.launch(),
            Self::Foreign(_) => Ok(()),
        }
    }

    fn await_ready(&self) -> Result<(), Trouble> {
        match self {
            Self::Private(server) => server.await_ready(),
            Self::Foreign(_) => Ok(()),
        }
    }

    fn pid(&self) -> Option<u32> {
        match self {
            Self::Private(server) => server.pid(),
            Self::Foreign(_) => None,
        }
    }

    /// Returns the private server, or an error that names the variable of the foreign one.
    fn private(&self, variable: &str) -> Result<&Server, Trouble> {
        match self {
            Self::Private(server) => Ok(server),
            Self::Foreign(_) => Err(Trouble::new(format!(
                "Only a private server can be stopped and started; unset {variable} to get one."
            ))),
        }
    }
}

/// Returns a running server's URL from the environment, if it is set.
fn address(variable: &str, schemes: &[&str]) -> Result<Option<String>, Trouble> {
    let Some(value) = env::var_os(variable).filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    let url = value.to_str().unwrap_or_default();
    match url.split_once("://") {
        Some((scheme, _)) if schemes.contains(&scheme) => Ok(Some(url.to_owned())),
        _ => Err(Trouble::new(format!(
            "The environment variable {variable} must begin with {}://, or be unset for a private server.",
            schemes.join(":// or ")
        ))),
    }
}

/// Returns the user that runs the servers if the caller is root, because PostgreSQL refuses to run
/// as root.
fn server_user() -> Result<Option<Ids>, Trouble> {
    if effective_uid() != 0 {
        return Ok(None);
    }
    let user = sys::user("postgres").or_else(|| sys::user("nobody"));
    let none = || {
        Trouble::new(
            "The servers cannot run as root, and there is no user nobody; add one or use another.",
        )
    };
    user.map(Some).ok_or_else(none)
}
