//! The places that store or show data, and the search in them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use assay_tests::client::Client;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::StreamExt as _;
use memchr::memmem;
use sqlx::AssertSqlSafe;

use crate::harness::{self, World, string};

/// The raw content of each place, by the place's name.
#[derive(Default)]
pub struct Places(BTreeMap<String, Vec<u8>>);

impl Places {
    /// Appends content to a place.
    pub fn add(&mut self, place: &str, holds: impl AsRef<[u8]>) {
        let place = self.0.entry(place.to_owned()).or_default();
        place.extend(holds.as_ref());
        place.push(b'\n');
    }

    /// Returns the names of the places that contain a secret: literally, in hex, as decimal bytes,
    /// or in base64.
    pub fn containing(&self, secret: &str) -> BTreeSet<&str> {
        let bytes = secret.as_bytes();
        let numbers: Vec<String> = bytes.iter().map(u8::to_string).collect();
        let mut forms = vec![
            secret.to_owned(),
            bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
            numbers.join(", "),
        ];
        // The base64 form depends on the offset, and its edges share characters with adjacent
        // bytes.
        for before in 0..if bytes.len() < 16 { 0 } else { 3 } {
            let encoded = STANDARD.encode([&vec![b' '; before], bytes].concat());
            forms.push(encoded[4..encoded.len() - 4].to_owned());
        }
        let holds = |place: &[u8]| {
            forms
                .iter()
                .any(|form| memmem::find(place, form.as_bytes()).is_some())
        };
        self.0
            .iter()
            .filter(|(_, place)| holds(place))
            .map(|(name, _)| name.as_str())
            .collect()
    }

    /// Returns the names of all places.
    pub fn names(&self) -> BTreeSet<&str> {
        self.0.keys().map(String::as_str).collect()
    }

    /// Adds the content of `other` to the places of the same names.
    pub fn join(&mut self, other: Self) {
        for (name, holds) in other.0 {
            self.add(&name, holds);
        }
    }
}

/// Connects to Redis.
pub async fn connect_redis(url: &str) -> redis::aio::MultiplexedConnection {
    redis::Client::open(url)
        .unwrap()
        .get_multiplexed_async_connection()
        .await
        .unwrap()
}

/// Records all commands that Redis receives from now on.
pub async fn monitor_redis(url: &str) -> Arc<Mutex<Places>> {
    let recorded = Arc::new(Mutex::new(Places::default()));
    let monitor = redis::Client::open(url)
        .unwrap()
        .get_async_monitor()
        .await
        .unwrap();
    let mut commands = monitor.into_on_message::<String>();
    let places = Arc::clone(&recorded);
    tokio::spawn(async move {
        while let Some(command) = commands.next().await {
            places.lock().unwrap().add("Redis commands", command);
        }
    });
    recorded
}

/// Adds all keys of Redis with their values.
pub async fn redis_content(url: &str, places: &mut Places) {
    let mut redis = connect_redis(url).await;
    let keys: Vec<String> = redis::cmd("KEYS")
        .arg("*")
        .query_async(&mut redis)
        .await
        .unwrap();
    assert!(!keys.is_empty());
    for key in keys {
        let kind: String = redis::cmd("TYPE")
            .arg(&key)
            .query_async(&mut redis)
            .await
            .unwrap();
        let read: &[&str] = match kind.as_str() {
            "string" => &["GET"],
            "hash" => &["HGETALL"],
            "list" => &["LRANGE", "0", "-1"],
            "set" => &["SMEMBERS"],
            "zset" => &["ZRANGE", "0", "-1", "WITHSCORES"],
            "stream" => &["XRANGE", "-", "+"],
            // The key has expired in the meantime.
            "none" => continue,
            other => panic!("{key} is a {other}"),
        };
        let value: redis::Value = redis::cmd(read[0])
            .arg(&key)
            .arg(&read[1..])
            .query_async(&mut redis)
            .await
            .unwrap();
        places.add("Redis", format!("{key} {value:?}"));
    }
}

/// Adds all rows of all tables except the system catalogs, as text. Byte strings are in hex.
pub async fn tables(world: &World, places: &mut Places) {
    let mut database = world.database().await;
    let names = "select table_schema, table_name from information_schema.tables
                 where table_type = 'BASE TABLE' and table_schema not in ('pg_catalog', 'information_schema')";
    let names: Vec<(String, String)> = sqlx::query_as(names)
        .fetch_all(&mut database)
        .await
        .unwrap();
    assert!(names.len() > 20);
    for (schema, table) in names {
        let rows = format!(
            "select coalesce(string_agg(row_to_json(t)::text, ' '), '') from \"{schema}\".\"{table}\" t"
        );
        let rows: String = sqlx::query_scalar(AssertSqlSafe(rows))
            .fetch_one(&mut database)
            .await
            .unwrap();
        places.add(&format!("table {table}"), rows);
    }
}

/// Adds the content of all files in a folder.
pub fn add_files(folder: &Path, place: &str, places: &mut Places) {
    for file in harness::list_files(folder) {
        places.add(place, std::fs::read(file).unwrap());
    }
}

/// Adds the metrics, the command line and the environment of all processes.
pub async fn processes(world: &World, places: &mut Places) {
    for process in world.stack.apis.iter().chain(&world.stack.workers) {
        let metrics = Client::new(format!("http://{}", process.admin), None)
            .get("/metrics")
            .await
            .unwrap();
        places.add("metrics", string(&metrics.body));
        let proc = PathBuf::from(format!("/proc/{}", process.guarded.pid()));
        // /proc exists only on Linux.
        if proc.exists() {
            places.add("command line", std::fs::read(proc.join("cmdline")).unwrap());
            places.add("environment", std::fs::read(proc.join("environ")).unwrap());
        }
    }
}
