//! The floors: the least that a user would write instead of the service, with the same libraries.
//!
//! `floor-api` is an axum server whose handlers return a constant or execute one statement.
//! `floor-worker` takes ids from a list in Redis and commits two updates for each. Both are
//! separate processes, which this program starts with its own binary.

use std::net::SocketAddr;
use std::time::Duration;

use assay_tests::servers::Trouble;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use redis::AsyncCommands as _;
use redis::aio::ConnectionManager;
use serde_json::{Value, json};
use sqlx::postgres::{PgPool, PgPoolOptions};

/// The table for floors and peers.
pub const TABLE: &str = "create table submissions (
    id text primary key, org_id text not null, status text not null, payload jsonb not null,
    created_at timestamptz not null default now(), finished_at timestamptz)";

/// The variables by which floors and peers find their servers.
pub const DATABASE_URL: &str = "BENCH_DATABASE_URL";
/// See [`DATABASE_URL`].
pub const REDIS_URL: &str = "BENCH_REDIS_URL";

/// The id list in Redis for the drain.
pub const QUEUE: &str = "bench:queue";
/// The list of ids whose submitter waits.
const AWAITED: &str = "bench:awaited";

/// The server's connections to PostgreSQL, and the worker's loops.
const CONNECTIONS: u32 = 16;
const LOOPS: u32 = 4;

#[derive(Clone)]
struct Floor {
    pool: PgPool,
    redis: ConnectionManager,
    /// For commands that block their connection.
    client: redis::Client,
}

impl Floor {
    async fn connect(connections: u32) -> Result<Self, Trouble> {
        let variable = |name: &str| {
            std::env::var(name).map_err(Trouble::because(format!("{name} is not set")))
        };
        // The pool's check before each use would be a second round trip.
        let pool = PgPoolOptions::new()
            .max_connections(connections)
            .min_connections(connections)
            .test_before_acquire(false)
            .connect(&variable(DATABASE_URL)?)
            .await
            .map_err(Trouble::because("cannot connect to PostgreSQL"))?;
        let no_redis = || Trouble::because("cannot connect to Redis");
        let client = redis::Client::open(variable(REDIS_URL)?).map_err(no_redis())?;
        let redis = client.get_connection_manager().await.map_err(no_redis())?;
        Ok(Self {
            pool,
            redis,
            client,
        })
    }
}

/// A handler's response, or its error's message with status 500.
type Handled = Result<(StatusCode, Json<Value>), (StatusCode, String)>;

fn failed(error: impl std::fmt::Display) -> (StatusCode, String) {
    (StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
}

/// Serves the handlers on `listen`.
///
/// # Errors
/// If the databases or the address are not available.
pub async fn serve(listen: SocketAddr) -> Result<(), Trouble> {
    let app = Router::new()
        .route("/constant", get(constant))
        .route("/submissions/{id}", get(select))
        .route("/submissions", post(insert))
        .route("/queued", post(enqueue))
        .route("/queued/{id}", get(wait))
        .layer(axum::extract::DefaultBodyLimit::max(8 << 20))
        .with_state(Floor::connect(CONNECTIONS).await?);
    let listener = tokio::net::TcpListener::bind(listen)
        .await
        .map_err(Trouble::because(format!("cannot listen on {listen}")))?;
    axum::serve(listener, app)
        .await
        .map_err(Trouble::because("the server failed"))
}

async fn constant() -> Json<Value> {
    Json(json!({"status": "succeeded"}))
}

async fn select(State(floor): State<Floor>, Path(id): Path<String>) -> Handled {
    let sql = "select id, org_id, status, payload, created_at::text from submissions where id = $1";
    let (id, org_id, status, payload, created_at): (String, String, String, Value, String) =
        sqlx::query_as(sql)
            .bind(id)
            .fetch_one(&floor.pool)
            .await
            .map_err(failed)?;
    let body = json!({"id": id, "org_id": org_id, "status": status, "payload": payload, "created_at": created_at});
    Ok((StatusCode::OK, Json(body)))
}

async fn insert(State(floor): State<Floor>, Json(payload): Json<Value>) -> Handled {
    let id = insert_one(&floor.pool, &payload).await.map_err(failed)?;
    Ok((
        StatusCode::ACCEPTED,
        Json(json!({"id": id, "status": "queued"})),
    ))
}

async fn insert_one(pool: &PgPool, payload: &Value) -> sqlx::Result<String> {
    let sql = "insert into submissions (id, org_id, status, payload) values (gen_random_uuid()::text, 'org', 'queued', $1) returning id";
    sqlx::query_scalar(sql).bind(payload).fetch_one(pool).await
}

/// Inserts a row and gives its id to the worker.
async fn enqueue(State(floor): State<Floor>, Json(payload): Json<Value>) -> Handled {
    let id = insert_one(&floor.pool, &payload).await.map_err(failed)?;
    let mut redis = floor.redis.clone();
    let _: () = redis.lpush(AWAITED, &id).await.map_err(failed)?;
    Ok((
        StatusCode::ACCEPTED,
        Json(json!({"id": id, "status": "queued"})),
    ))
}

/// Responds when the worker has finished the id.
async fn wait(State(floor): State<Floor>, Path(id): Path<String>) -> Handled {
    let mut redis = blocking(&floor.client).await.map_err(failed)?;
    let _: (String, String) = redis
        .blpop(format!("bench:done:{id}"), 30.0)
        .await
        .map_err(failed)?;
    Ok((
        StatusCode::OK,
        Json(json!({"id": id, "status": "succeeded"})),
    ))
}

/// Opens a connection whose commands may block for longer than the client's usual timeout.
async fn blocking(client: &redis::Client) -> redis::RedisResult<redis::aio::MultiplexedConnection> {
    let config =
        redis::AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(60)));
    client
        .get_multiplexed_async_connection_with_config(&config)
        .await
}

/// Takes ids from the two lists until it is killed.
///
/// # Errors
/// If the databases are not available.
pub async fn work() -> Result<(), Trouble> {
    let floor = Floor::connect(LOOPS).await?;
    let loops: Vec<_> = (0..LOOPS)
        .map(|_| tokio::spawn(take(floor.clone())))
        .collect();
    for taking in loops {
        taking
            .await
            .map_err(Trouble::because("a loop panicked"))?
            .map_err(Trouble::new)?;
    }
    Ok(())
}

async fn take(mut floor: Floor) -> Result<(), String> {
    let text = |error: redis::RedisError| error.to_string();
    let mut redis = blocking(&floor.client).await.map_err(text)?;
    loop {
        let taken: Option<(String, String)> =
            redis.brpop(&[AWAITED, QUEUE], 30.0).await.map_err(text)?;
        let Some((list, id)) = taken else { continue };
        for sql in [
            "update submissions set status = 'running' where id = $1 and status = 'queued'",
            "update submissions set status = 'succeeded', finished_at = now() where id = $1",
        ] {
            let updated = sqlx::query(sql).bind(&id).execute(&floor.pool).await;
            updated.map_err(|error| error.to_string())?;
        }
        if list == AWAITED {
            let done = format!("bench:done:{id}");
            let _: () = floor.redis.rpush(&done, "").await.map_err(text)?;
        }
    }
}
