//! Private, throw-away PostgreSQL and Redis servers: started in a moment, gone without a trace.
//!
//! They listen on sockets in a folder of their own and nowhere else, so any number of them can run
//! side by side. Servers that run anyway can take their place, named by `DATABASE_URL` and
//! `REDIS_URL`, each on its own; those are used and never started, stopped or cleared.

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

/// The name of the administrator in a private PostgreSQL.
const ADMINISTRATOR: &str = "postgres";

/// How their addresses begin.
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

/// A PostgreSQL and a Redis server that are ready for use. Dropping it ends the private ones, waits
/// for that, and removes their folder.
#[derive(Debug)]
pub struct Servers {
    // They are dropped in this order: the folder goes last.
    postgres: Source,
    standby: Option<Box<Server>>,
    redis: Source,
    redis_url: String,
    /// Of PostgreSQL and of its standby.
    ports: [u16; 2],
    folder: RunFolder,
}

/// The folder with the programs of Prometheus, which are fetched if they are not there. `say` is told about slow steps.
///
/// # Errors
/// When they cannot be fetched.
pub fn prometheus(say: &dyn Fn(&str)) -> Result<PathBuf, Trouble> {
    find::prometheus(say)
}

/// Where a server comes from.
#[derive(Debug)]
enum Source {
    Private(Box<Server>),
    /// Its address.
    Foreign(String),
}

impl Servers {
    /// Starts both servers, or takes those that `DATABASE_URL` and `REDIS_URL` name, each on its
    /// own. `say` is told about slow steps, in whole sentences for a person; it is not called when
    /// there are none.
    ///
    /// # Errors
    /// When a server is not there and cannot be fetched, or does not start.
    pub fn start(say: &dyn Fn(&str)) -> Result<Self, Trouble> {
        Self::start_as(None, say)
    }

    /// The same with private servers only, and with a synchronous standby of PostgreSQL. The two also listen on these ports
    /// of 127.0.0.1.
    ///
    /// # Errors
    /// When a server is not there and cannot be fetched, or does not start, or `DATABASE_URL` names another one.
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
        // A program is found exactly where no address is given.
        let found = find::find_or_fetch(&wanted, user, say)?;
        let folder = RunFolder::create()?;
        let redis = match found.redis {
            Some(program) => {
                Source::Private(Box::new(redis::server(folder.path(), &program, user)?))
            }
            None => Source::Foreign(foreign_redis.unwrap_or_default()),
        };
        // It comes up while the data of the other are copied.
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

    /// The address of a database for the administrator: a private server's superuser, or whoever
    /// stands in `DATABASE_URL`. At the start there is a database `postgres`.
    pub fn postgres_url(&self, database: &str) -> String {
        match &self.postgres {
            Source::Private(_) => self.private_postgres_url(ADMINISTRATOR, database),
            Source::Foreign(url) => url::replace(url, None, database),
        }
    }

    /// The address of a database for another role. A private server lets it in by its name; the
    /// password is part of the address all the same.
    pub fn postgres_url_as(&self, role: &str, password: &str, database: &str) -> String {
        let credentials = url::credentials(role, password);
        match &self.postgres {
            Source::Private(_) => self.private_postgres_url(&credentials, database),
            Source::Foreign(url) => url::replace(url, Some(&credentials), database),
        }
    }

    /// The address of Redis.
    pub fn redis_url(&self) -> &str {
        &self.redis_url
    }

    /// The process id of the private PostgreSQL, while it runs.
    pub fn postgres_pid(&self) -> Option<u32> {
        self.postgres.pid()
    }

    /// The process id of the private Redis, while it runs.
    pub fn redis_pid(&self) -> Option<u32> {
        self.redis.pid()
    }

    /// The private folder: sockets and logs are in it, and what the caller adds (under names other
    /// than `postgres*`, `redis*`, `pids` and `owner.lock`) goes with it.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Stops PostgreSQL and starts it again on the same data, either at once, as in a crash from
    /// which it recovers, or in order. Both end all connections. Returns when it is ready.
    ///
    /// # Errors
    /// When the server is not private or does not come up again.
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

    /// Stops PostgreSQL at once, as in a crash, and waits for its end.
    ///
    /// # Errors
    /// When the server is not private.
    pub fn postgres_stop(&self) -> Result<(), Trouble> {
        self.postgres.private("DATABASE_URL")?.stop(libc::SIGQUIT);
        Ok(())
    }

    /// Starts PostgreSQL again, and returns when it is ready.
    ///
    /// # Errors
    /// When the server is not private or does not come up.
    pub fn postgres_start(&self) -> Result<(), Trouble> {
        let server = self.postgres.private("DATABASE_URL")?;
        server.launch()?;
        server.await_ready()
    }

    /// Sends a signal to all processes of PostgreSQL, such as one that freezes it, or kills it as the loss of its machine does.
    ///
    /// # Errors
    /// When the server is not private.
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

    /// Where PostgreSQL and its standby listen, as hosts of an address.
    pub fn postgres_hosts(&self) -> String {
        self.ports.map(|port| format!("127.0.0.1:{port}")).join(",")
    }

    /// The address of a database of the standby, for the administrator.
    ///
    /// # Errors
    /// When there is no standby.
    pub fn standby_url(&self, database: &str) -> Result<String, Trouble> {
        let [primary, port] = self.ports;
        self.standby
            .as_ref()
            .ok_or_else(|| Trouble::new("there is no standby"))?;
        let folder = postgres::folder(self.folder.path(), Part::Standby { port, primary });
        Ok(url::private_postgres(
            &folder,
            port,
            ADMINISTRATOR,
            database,
        ))
    }

    /// Stops Redis and starts it again, empty. Returns when it is ready.
    ///
    /// # Errors
    /// When the server is not private or does not come up again.
    pub fn redis_restart(&self) -> Result<(), Trouble> {
        self.redis_stop()?;
        self.redis_start()
    }

    /// Stops Redis and waits for its end; all that was in it is lost.
    ///
    /// # Errors
    /// When the server is not private.
    pub fn redis_stop(&self) -> Result<(), Trouble> {
        self.redis.private("REDIS_URL")?.stop(libc::SIGTERM);
        Ok(())
    }

    /// Sends a signal to Redis, such as one that freezes it.
    ///
    /// # Errors
    /// When the server is not private.
    pub fn redis_signal(&self, signal: i32) -> Result<(), Trouble> {
        self.redis.private("REDIS_URL")?.signal(signal);
        Ok(())
    }

    /// Starts Redis, if it does not run, and returns when it is ready.
    ///
    /// # Errors
    /// When the server is not private or does not come up.
    pub fn redis_start(&self) -> Result<(), Trouble> {
        self.redis.private("REDIS_URL")?;
        self.redis.launch()?;
        self.redis.await_ready()
    }

    /// Where the private Redis listens.
    ///
    /// # Errors
    /// When the server is not private.
    pub fn redis_socket(&self) -> Result<&Path, Trouble> {
        Ok(&self.redis.private("REDIS_URL")?.socket)
    }

    /// The socket that a private PostgreSQL listens on.
    ///
    /// # Errors
    /// When it is not ours.
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
        // What is frozen does not hear. It may not be ours.
        let _ = self.postgres_signal(libc::SIGCONT);
        if let Some(standby) = &self.standby {
            standby.begin_stop();
        }
        // All are told before any is waited for.
        for source in [&self.postgres, &self.redis] {
            if let Source::Private(server) = source {
                server.begin_stop();
            }
        }
    }
}

/// What is done to a private server happens to a foreign one elsewhere, or must not happen.
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

    /// The private server, or the reason why nothing may be done to this one.
    fn private(&self, variable: &str) -> Result<&Server, Trouble> {
        match self {
            Self::Private(server) => Ok(server),
            Self::Foreign(_) => Err(Trouble::new(format!(
                "Only a private server can be stopped and started; unset {variable} to get one."
            ))),
        }
    }
}

/// The address of a running server in the environment, if there is one.
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

/// As whom the servers run, if not as the caller: PostgreSQL refuses to run as root.
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
