//! Everything that is measured, started on the same PostgreSQL and Redis: the platform, the floors
//! and the peers.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use assay_core::model::ids::{KeyId, OrgId};
use assay_core::model::secret::{Secret, SecretKind};
use assay_proto::v1::{CreateEvalRequest, Prediction, PredictionValue, Ranking, prediction_value};
use assay_tests::binaries::{self, Profile};
use assay_tests::databases;
use assay_tests::servers::{Guarded, GuardedCommand, Servers, Trouble};
use assay_tests::site::Site;
use assay_tests::stack::{Ground, Process, StackSize, free_address};
use bytes::{BufMut as _, Bytes, BytesMut};
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, TE};
use http::{HeaderMap, HeaderValue, Method};
use prost::Message as _;
use serde_json::{Value, json};
use sqlx::PgConnection;

use crate::cpu::Parts;
use crate::floor;
use crate::load::{self, Template};
use crate::peers::Peers;

/// Different rows that are read: a program must not profit from reading the same one.
pub const READ_ROWS: u8 = 32;

/// The two suites' item counts. A submission to the larger one has 4.9 MB.
pub const SMALL: usize = 1_000;
/// See [`SMALL`].
pub const LARGE: usize = 29_000;

/// The platform's size.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// Organization count.
    pub orgs: usize,
    /// API process count.
    pub apis: usize,
    /// Worker count.
    pub workers: usize,
}

/// A platform installation.
pub struct Platform {
    /// Its processes, without workers, and its database.
    pub site: Site,
    /// The organizations' keys.
    pub keys: Vec<String>,
}

/// All programs under test.
pub struct Installation {
    /// The platform that is measured.
    pub platform: Platform,
    /// Workers that score, while [`Installation::workers`] live.
    n_workers: usize,
    /// A connection to the database for floors and peers.
    pub floor_database: PgConnection,
    floor_database_name: String,
    floor: Guarded,
    /// The floor's address.
    pub floor_address: SocketAddr,
    fastapi: Guarded,
    /// FastAPI's address.
    pub fastapi_address: SocketAddr,
    /// The peers' environment.
    pub peers: Peers,
}

/// A submission of a suite's first items.
#[derive(Clone, Copy)]
pub struct Submission {
    /// The suite's item count.
    pub suite: usize,
    /// Prediction count.
    pub predictions: usize,
}

impl Installation {
    /// Builds and starts everything.
    ///
    /// # Errors
    /// If something cannot be built, installed or started.
    pub async fn start(size: Size) -> Result<Self, Trouble> {
        let binaries = binaries::build(Profile::Dist)?;
        let servers = Servers::start(&|line| eprintln!("{line}"))?;
        // CPU time is only known for servers that this program started.
        if servers.postgres_pid().is_none() || servers.redis_pid().is_none() {
            return Err(Trouble::new(
                "unset DATABASE_URL and REDIS_URL: only private servers can be measured",
            ));
        }
        let ground = Arc::new(Ground::new(servers, binaries));
        let platform = Platform::start(&ground, size).await?;
        let name = databases::fresh_name("floor");
        databases::create(&ground.servers, &name, None).await?;
        let mut floor_database = databases::connect(&ground.servers.postgres_url(&name)).await?;
        sqlx::query(floor::TABLE)
            .execute(&mut floor_database)
            .await
            .map_err(Trouble::because("cannot create the floor's table"))?;
        let floor_address = free_address()?;
        let arguments = ["floor-api".to_owned(), floor_address.to_string()];
        let floor = floor_process(&ground.servers, &name, &arguments)?;
        let target = target(&ground.binaries.api)?;
        let peers = Peers::install(&target, &ground.servers, &name)?;
        let fastapi_address = free_address()?;
        let fastapi = peers.fastapi(fastapi_address.port())?;
        for (address, name) in [(floor_address, "the floor"), (fastapi_address, "FastAPI")] {
            await_ready(address, name).await?;
        }
        Ok(Self {
            platform,
            n_workers: size.workers,
            floor_database,
            floor_database_name: name,
            floor,
            floor_address,
            fastapi,
            fastapi_address,
            peers,
        })
    }

    /// Returns the API processes' addresses.
    pub fn api_addresses(&self) -> Vec<SocketAddr> {
        let apis = self.platform.site.stack.apis.iter();
        apis.filter_map(|api| api.listen).collect()
    }

    fn servers(&self) -> &Servers {
        &self.platform.site.stack.ground.servers
    }

    /// Returns a program's parts: its own processes, PostgreSQL and Redis.
    fn parts(&self, own: impl IntoIterator<Item = (&'static str, u32)>) -> Parts {
        let mut parts = Parts::new();
        for (name, pid) in own {
            parts.entry(name).or_default().push(pid);
        }
        parts.insert(
            "PostgreSQL",
            self.servers().postgres_pid().into_iter().collect(),
        );
        parts.insert("Redis", self.servers().redis_pid().into_iter().collect());
        parts
    }

    /// Returns the platform's parts, with these workers.
    pub fn platform_parts(&self, workers: &[Process]) -> Parts {
        let apis = self.platform.site.stack.apis.iter();
        let apis = apis.map(|api| ("API", api.guarded.pid()));
        let workers = workers
            .iter()
            .map(|worker| ("worker", worker.guarded.pid()));
        self.parts(apis.chain(workers))
    }

    /// Returns the floor's parts, with its worker if there is one.
    pub fn floor_parts(&self, worker: Option<&Guarded>) -> Parts {
        let worker = worker.map(|worker| ("worker", worker.pid()));
        self.parts([("server", self.floor.pid())].into_iter().chain(worker))
    }

    /// Returns FastAPI's parts.
    pub fn fastapi_parts(&self) -> Parts {
        self.parts([("server", self.fastapi.pid())])
    }

    /// Starts the platform's workers and waits until they are ready.
    ///
    /// # Errors
    /// If one does not become ready.
    pub async fn workers(&self) -> Result<Vec<Process>, Trouble> {
        let launched = (0..self.n_workers).map(|_| self.platform.site.stack.launch_worker());
        let workers: Vec<Process> = launched.collect::<Result<_, _>>()?;
        for worker in &workers {
            worker.ready().await?;
        }
        Ok(workers)
    }

    /// Starts the floor's worker.
    ///
    /// # Errors
    /// If it cannot be spawned.
    pub fn floor_worker(&self) -> Result<Guarded, Trouble> {
        floor_process(
            self.servers(),
            &self.floor_database_name,
            &["floor-worker".to_owned()],
        )
    }

    /// Empties the table for floors and peers.
    ///
    /// # Errors
    /// If the database does not respond.
    pub async fn reset_floor(&mut self) -> Result<(), Trouble> {
        sqlx::query("truncate submissions")
            .execute(&mut self.floor_database)
            .await
            .map_err(Trouble::because("cannot empty the floor's table"))?;
        Ok(())
    }

    /// Removes all jobs' predictions and item scores, which would fill the disk. No job may be
    /// queued or running.
    ///
    /// # Errors
    /// If a folder cannot be removed.
    pub fn remove_artifacts(&self) -> Result<(), Trouble> {
        let artifacts = self.platform.site.stack.artifacts();
        let entries = std::fs::read_dir(&artifacts)
            .into_iter()
            .flatten()
            .flatten();
        for folder in entries
            .map(|entry| entry.path())
            .filter(|path| path.is_dir())
        {
            std::fs::remove_dir_all(&folder).map_err(Trouble::because(format!(
                "cannot remove {}",
                folder.display()
            )))?;
        }
        Ok(())
    }

    /// Inserts the rows that floors and peers read, and returns the requests.
    ///
    /// # Errors
    /// If the database does not respond.
    pub async fn selects(&mut self) -> Result<Vec<Template>, Trouble> {
        self.reset_floor().await?;
        let sql = r#"insert into submissions
            select 'row-' || n, 'org', 'succeeded', '{"value": 0.5, "n": 10}', now(), now() from generate_series(1, $1) n"#;
        sqlx::query(sql)
            .bind(i32::from(READ_ROWS))
            .execute(&mut self.floor_database)
            .await
            .map_err(Trouble::because("cannot fill the floor's table"))?;
        let select = |row| plain(&format!("/submissions/row-{row}"), None);
        Ok((1..=READ_ROWS).map(select).collect())
    }

    /// Returns a request without a body to the platform, as the first organization.
    pub fn get(&self, path: &str) -> Template {
        Template {
            method: Method::GET,
            path: path.to_owned(),
            headers: headers(Some(&self.platform.site.org.key), None),
            body: Bytes::new(),
            grpc: false,
        }
    }

    /// Returns a submission over REST, as `key`'s organization.
    pub fn rest(&self, submission: Submission, key: &str) -> Template {
        Template {
            method: Method::POST,
            path: "/v1/evals".to_owned(),
            headers: headers(Some(key), Some("application/json")),
            body: submission.json(),
            grpc: false,
        }
    }

    /// Returns a submission over gRPC, as the first organization.
    pub fn grpc(&self, submission: Submission) -> Template {
        let mut headers = headers(Some(&self.platform.site.org.key), Some("application/grpc"));
        headers.insert(TE, HeaderValue::from_static("trailers"));
        // HTTP/2 has the request target's authority instead.
        headers.remove(HOST);
        Template {
            method: Method::POST,
            path: "/assay.v1.EvalService/CreateEval".to_owned(),
            headers,
            body: submission.message(),
            grpc: true,
        }
    }

    /// Stops everything and removes the databases.
    ///
    /// # Errors
    /// If the database does not respond.
    pub async fn stop(self) -> Result<(), Trouble> {
        self.floor.stop();
        self.fastapi.stop();
        self.platform.stop().await
    }
}

impl Platform {
    /// Starts an installation without workers, publishes the suites and creates the organizations.
    ///
    /// # Errors
    /// If something cannot be started.
    pub async fn start(ground: &Arc<Ground>, size: Size) -> Result<Self, Trouble> {
        let plan = StackSize {
            apis: size.apis,
            workers: 0,
            ..StackSize::default()
        };
        let mut site = Site::start(ground, plan).await?;
        for items in [SMALL, LARGE] {
            let folder = ground.servers.folder().join(suite_id(items));
            write_suite(&folder, items).map_err(Trouble::because("cannot write a suite"))?;
            let folder = folder.to_string_lossy();
            site.stack.operate(&["suite", "publish", &folder]).await?;
        }
        let mut keys = vec![site.org.key.clone()];
        for _ in 1..size.orgs {
            keys.push(create_org(&mut site).await?);
        }
        Ok(Self { site, keys })
    }

    /// Stops the processes and removes the database.
    ///
    /// # Errors
    /// If the database does not respond.
    pub async fn stop(mut self) -> Result<(), Trouble> {
        self.site.stack.stop();
        let ground = Arc::clone(&self.site.stack.ground);
        ground.clear(&self.site.stack.database).await
    }
}

/// Returns a request without a credential to a floor or a peer.
pub fn plain(path: &str, body: Option<Bytes>) -> Template {
    let content_type = body.as_ref().map(|_| "application/json");
    Template {
        method: if body.is_some() {
            Method::POST
        } else {
            Method::GET
        },
        path: path.to_owned(),
        headers: headers(None, content_type),
        body: body.unwrap_or_default(),
        grpc: false,
    }
}

fn headers(key: Option<&str>, content_type: Option<&'static str>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(HOST, HeaderValue::from_static("127.0.0.1"));
    if let Some(content_type) = content_type {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    }
    let bearer = key.and_then(|key| HeaderValue::try_from(format!("Bearer {key}")).ok());
    if let Some(bearer) = bearer {
        headers.insert(AUTHORIZATION, bearer);
    }
    headers
}

/// Creates an organization like the first one, and returns its key. It writes the rows itself, because
/// the operator's command is a separate process for each.
async fn create_org(site: &mut Site) -> Result<String, Trouble> {
    let no_randomness = || Trouble::because("no random numbers");
    let org_id = OrgId::random().map_err(no_randomness())?;
    let key_id = KeyId::random().map_err(no_randomness())?;
    let secret = Secret::random(SecretKind::ApiKey).map_err(no_randomness())?;
    let sql = "with new as (
            insert into orgs (id, name, plan) select $2, name, plan from orgs where id = $1 returning id
        )
        insert into api_keys (id, org_id, name, prefix, secret_hash, created_by)
        select $3, new.id, 'load', $4, $5, k.created_by from new, api_keys k where k.org_id = $1";
    sqlx::query(sql)
        .bind(&site.org.id)
        .bind(org_id.as_str())
        .bind(key_id.as_str())
        .bind(secret.prefix())
        .bind(secret.hash().as_bytes())
        .execute(&mut site.database)
        .await
        .map_err(Trouble::because("cannot create an organization"))?;
    Ok(secret.into_text())
}

fn floor_process(
    servers: &Servers,
    database: &str,
    arguments: &[String],
) -> Result<Guarded, Trouble> {
    let own = std::env::current_exe()
        .map_err(Trouble::because("cannot find the path of this program"))?;
    let mut command = GuardedCommand::new(own);
    command.args = arguments.iter().map(Into::into).collect();
    command.env = vec![
        (
            floor::DATABASE_URL.into(),
            servers.postgres_url(database).into(),
        ),
        (floor::REDIS_URL.into(), servers.redis_url().into()),
    ];
    command.run_folder = Some(servers.folder().to_path_buf());
    Guarded::spawn(&command)
}

async fn await_ready(address: SocketAddr, name: &str) -> Result<(), Trouble> {
    let began = Instant::now();
    while let Err(trouble) = load::send(address, &plain("/constant", None)).await {
        if began.elapsed() > Duration::from_secs(30) {
            return Err(Trouble::new(format!(
                "{name} did not become ready: {trouble}"
            )));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// Returns the target folder from a binary's path, `target/release/assay-api`.
fn target(binary: &Path) -> Result<PathBuf, Trouble> {
    let target = binary.parent().and_then(Path::parent);
    target
        .map(Path::to_path_buf)
        .ok_or_else(|| Trouble::new("the binaries are not in a target folder"))
}

fn suite_id(items: usize) -> String {
    format!("suite:bench-{items}")
}

/// Returns a pseudo-random label, always the same for the same index.
fn label(at: usize) -> String {
    format!(
        "dish-{:05}",
        (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) % 100_000
    )
}

fn item_id(at: usize) -> String {
    format!("q{at:09}")
}

fn ranking(at: usize) -> Vec<String> {
    (0..10).map(|place| label(at * 10 + place)).collect()
}

/// Returns the answer, which is in five rankings out of six.
fn answer(at: usize) -> String {
    label(at * 10 + at % 12)
}

fn write_suite(folder: &Path, items: usize) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let head = format!(
        "suite_id = \"{}\"\nversion = \"1\"\nmetric = \"accuracy\"\ndescription = \"Load\"\n",
        suite_id(items)
    );
    std::fs::write(folder.join("suite.toml"), head)?;
    let mut lines = [String::new(), String::new()];
    for at in 0..items {
        let item = json!({"item_id": item_id(at), "input": {"prompt": "What is for lunch?"}});
        let answer = json!({"item_id": item_id(at), "answer": answer(at)});
        for (lines, line) in lines.iter_mut().zip([item, answer]) {
            // Writing to a String cannot fail.
            let _ = writeln!(lines, "{line}");
        }
    }
    std::fs::write(folder.join("items.ndjson"), &lines[0])?;
    std::fs::write(folder.join("answers.ndjson"), &lines[1])
}

impl Submission {
    /// Returns the prediction array.
    pub fn predictions(self) -> Value {
        (0..self.predictions)
            .map(|at| json!({"item_id": item_id(at), "prediction": ranking(at)}))
            .collect()
    }

    /// Returns the suite's ids and answers.
    pub fn answers(self) -> impl Iterator<Item = (String, String)> {
        (0..self.suite).map(|at| (item_id(at), answer(at)))
    }

    /// Returns the body for REST, floors and peers.
    pub fn json(self) -> Bytes {
        let body = json!({"suite_id": suite_id(self.suite), "predictions": self.predictions()});
        body.to_string().into()
    }

    /// Returns the message for gRPC with its prefix: uncompressed, and its length.
    fn message(self) -> Bytes {
        let predictions = (0..self.predictions).map(|at| Prediction {
            item_id: item_id(at),
            prediction: Some(PredictionValue {
                value: Some(prediction_value::Value::Ranking(Ranking {
                    ids: ranking(at),
                })),
            }),
        });
        let message = CreateEvalRequest {
            suite_id: suite_id(self.suite),
            predictions: predictions.collect(),
            ..Default::default()
        };
        let length = message.encoded_len();
        let mut bytes = BytesMut::with_capacity(5 + length);
        bytes.put_u8(0);
        bytes.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
        bytes.put(message.encode_to_vec().as_slice());
        bytes.freeze()
    }
}
