//! Databases on the launched or given PostgreSQL, and the roles with which processes use them.

use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, PgConnection};

use crate::servers::{Servers, Trouble};

/// The database of one stack.
#[derive(Debug, Clone)]
pub struct Database {
    /// The database's name.
    pub name: String,
    /// URL with the owner's role, for the operator's commands.
    pub owner_url: String,
    /// URL with a role in `assay_api`.
    pub api_url: String,
    /// URL with a role in `assay_worker`.
    pub worker_url: String,
    /// URL with a role in `assay_checker`.
    pub checker_url: String,
    /// URL with a role in `assay_delivery`.
    pub delivery_url: String,
    /// URL with a role in `assay_log`.
    pub log_url: String,
}

/// Connects to the database at `url`.
///
/// # Errors
/// If the URL is invalid or the server does not accept the connection.
pub async fn connect(url: &str) -> Result<PgConnection, Trouble> {
    let options: PgConnectOptions = url
        .parse()
        .map_err(Trouble::because("invalid PostgreSQL URL"))?;
    // The launcher's own statements would only be noise in the log.
    options
        .disable_statement_logging()
        .connect()
        .await
        .map_err(Trouble::because("cannot connect to PostgreSQL"))
}

/// Executes one statement without parameters. `sql` must not contain input from outside this crate.
async fn execute(connection: &mut PgConnection, sql: String) -> Result<(), Trouble> {
    let tried = format!("cannot execute: {sql}");
    sqlx::query(AssertSqlSafe(sql))
        .execute(connection)
        .await
        .map_err(Trouble::because(tried))?;
    Ok(())
}

/// Returns a unique name that starts with `assay_` and `kind`.
pub fn fresh_name(kind: &str) -> String {
    use std::collections::hash_map::RandomState;
    use std::hash::BuildHasher as _;

    format!(
        "assay_{kind}_{}_{:016x}",
        std::process::id(),
        RandomState::new().hash_one(kind)
    )
}

/// Creates a database, empty or as a copy of `template`, without roles.
///
/// # Errors
/// If the role of the server's URL lacks the privilege.
pub async fn create(servers: &Servers, name: &str, template: Option<&str>) -> Result<(), Trouble> {
    let mut connection = connect(&servers.postgres_url("postgres")).await?;
    // A copy of files is fast; the server's default strategy writes everything to the log.
    let source = template.map_or_else(String::new, |template| {
        format!(" template {template} strategy file_copy")
    });
    execute(&mut connection, format!("create database {name}{source}")).await?;
    connection.close().await.map_err(Trouble::because(
        "cannot close the connection to PostgreSQL",
    ))
}

/// The kinds of processes with their own role: `assay_api` and so on.
const KINDS: [&str; 5] = ["api", "worker", "checker", "delivery", "log"];

/// Creates login roles for the kinds of processes, with exactly the privileges of `assay_api`,
/// `assay_worker`, `assay_checker`, `assay_delivery` and `assay_log`.
///
/// # Errors
/// If the migrations, which create these groups, have not run.
pub async fn roles(servers: &Servers, name: &str) -> Result<Database, Trouble> {
    let mut connection = connect(&servers.postgres_url("postgres")).await?;
    let password = fresh_name("password");
    for kind in KINDS {
        execute(
            &mut connection,
            format!("create role {name}_{kind} login password '{password}' in role assay_{kind}"),
        )
        .await?;
    }
    connection.close().await.map_err(Trouble::because(
        "cannot close the connection to PostgreSQL",
    ))?;
    Ok(Database {
        name: name.to_owned(),
        owner_url: servers.postgres_url(name),
        api_url: servers.postgres_url_as(&format!("{name}_api"), &password, name),
        worker_url: servers.postgres_url_as(&format!("{name}_worker"), &password, name),
        checker_url: servers.postgres_url_as(&format!("{name}_checker"), &password, name),
        delivery_url: servers.postgres_url_as(&format!("{name}_delivery"), &password, name),
        log_url: servers.postgres_url_as(&format!("{name}_log"), &password, name),
    })
}

/// Removes a database and its roles.
///
/// # Errors
/// If the server does not respond.
pub async fn remove(servers: &Servers, name: &str) -> Result<(), Trouble> {
    let mut connection = connect(&servers.postgres_url("postgres")).await?;
    execute(
        &mut connection,
        format!("drop database if exists {name} with (force)"),
    )
    .await?;
    for kind in KINDS {
        execute(
            &mut connection,
            format!("drop role if exists {name}_{kind}"),
        )
        .await?;
    }
    connection.close().await.map_err(Trouble::because(
        "cannot close the connection to PostgreSQL",
    ))
}

/// Raises the limits of all plans so far that tests cannot reach them.
///
/// # Errors
/// If the database does not respond.
pub async fn widen_plans(database: &mut PgConnection) -> Result<(), Trouble> {
    for plan in ["free", "dev", "team"] {
        widen_plan(database, plan).await?;
    }
    Ok(())
}

/// Raises one plan's limits so far that tests cannot reach them.
///
/// # Errors
/// If the database does not respond.
pub async fn widen_plan(database: &mut PgConnection, plan: &str) -> Result<(), Trouble> {
    let wide = "update plans set requests_per_minute = 100000000, eval_items_per_month = 1000000000, concurrent_jobs = 1000000 where plan = $1";
    sqlx::query(wide)
        .bind(plan)
        .execute(database)
        .await
        .map_err(Trouble::because("cannot widen the plan"))?;
    Ok(())
}
