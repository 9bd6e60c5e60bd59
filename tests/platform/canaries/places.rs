//! The places in which something is kept or told, and the search in them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use assay_tests::client::Client;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::StreamExt as _;
use memchr::memmem;
use sqlx::AssertSqlSafe;

use crate::harness::{self, World, text};

/// What is in each place, as it is there.
#[derive(Default)]
pub struct Places(BTreeMap<String, Vec<u8>>);

impl Places {
    pub fn add(&mut self, place: &str, holds: impl AsRef<[u8]>) {
        let place = self.0.entry(place.to_owned()).or_default();
        place.extend(holds.as_ref());
        place.push(b'\n');
    }

    /// Where a text is found: as it is, or in one of the ways in which bytes are written.
    pub fn with(&self, secret: &str) -> BTreeSet<&str> {
        let bytes = secret.as_bytes();
        let numbers: Vec<String> = bytes.iter().map(u8::to_string).collect();
        let mut forms = vec![
            secret.to_owned(),
            bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
            numbers.join(", "),
        ];
        // In base64 it depends on what stands before; the edges share characters with what stands around.
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

    /// The names of all places.
    pub fn names(&self) -> BTreeSet<&str> {
        self.0.keys().map(String::as_str).collect()
    }

    /// These and those of another.
    pub fn join(&mut self, other: Self) {
        for (name, holds) in other.0 {
            self.add(&name, holds);
        }
    }
}

/// A connection to Redis.
pub async fn redis_of(url: &str) -> redis::aio::MultiplexedConnection {
    redis::Client::open(url)
        .unwrap()
        .get_multiplexed_async_connection()
        .await
        .unwrap()
}

/// All that Redis is told from here on.
pub async fn redis_overheard(url: &str) -> Arc<Mutex<Places>> {
    let heard = Arc::new(Mutex::new(Places::default()));
    let monitor = redis::Client::open(url)
        .unwrap()
        .get_async_monitor()
        .await
        .unwrap();
    let (mut told, places) = (monitor.into_on_message::<String>(), Arc::clone(&heard));
    tokio::spawn(async move {
        while let Some(command) = told.next().await {
            places.lock().unwrap().add("Redis, as it was told", command);
        }
    });
    heard
}

/// All that is in Redis.
pub async fn redis_content(url: &str, places: &mut Places) {
    let mut redis = redis_of(url).await;
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
            // It has gone in the meantime.
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

/// All rows of all tables that are not the server's own, as text; bytes are in hex.
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

/// What is in the files of a folder.
pub fn files(folder: &Path, place: &str, places: &mut Places) {
    for file in harness::files(folder) {
        places.add(place, std::fs::read(file).unwrap());
    }
}

/// What the processes show to whoever looks at them from outside.
pub async fn processes(world: &World, places: &mut Places) {
    for process in world.stack.apis.iter().chain(&world.stack.workers) {
        let metrics = Client::new(format!("http://{}", process.admin), None)
            .get("/metrics")
            .await
            .unwrap();
        places.add("metrics", text(&metrics.body));
        let proc = PathBuf::from(format!("/proc/{}", process.guarded.pid()));
        // Elsewhere than on Linux there is no such folder.
        if proc.exists() {
            places.add("command line", std::fs::read(proc.join("cmdline")).unwrap());
            places.add("environment", std::fs::read(proc.join("environ")).unwrap());
        }
    }
}
