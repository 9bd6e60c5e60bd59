//! Databases on the launched (or given) PostgreSQL, and the roles with which processes use them.

use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, PgConnection};

use crate::servers::{Servers, Trouble};

/// A database of its own for one stack.
#[derive(Debug, Clone)]
pub struct Database {
    /// Its name.
    pub name: String,
    /// As its owner: for the operator's commands.
    pub owner_url: String,
    /// As a role in `assay_api`.
    pub api_url: String,
    /// As a role in `assay_worker`.
    pub worker_url: String,
}

/// Connects.
///
/// # Errors
/// When the server does not take the connection.
pub async fn connect(url: &str) -> Result<PgConnection, Trouble> {
    let options: PgConnectOptions = url
        .parse()
        .map_err(Trouble::because("the address of PostgreSQL cannot be read"))?;
    // The launcher's own statements are nobody's news.
    options
        .disable_statement_logging()
        .connect()
        .await
        .map_err(Trouble::because("cannot connect to PostgreSQL"))
}

/// Carries out one statement without parameters, made of parts of our own.
async fn execute(connection: &mut PgConnection, sql: String) -> Result<(), Trouble> {
    let tried = format!("cannot do: {sql}");
    sqlx::query(AssertSqlSafe(sql))
        .execute(connection)
        .await
        .map_err(Trouble::because(tried))?;
    Ok(())
}

/// A name that no other stack has.
pub fn fresh_name(kind: &str) -> String {
    use std::collections::hash_map::RandomState;
    use std::hash::BuildHasher as _;

    format!(
        "assay_{kind}_{}_{:016x}",
        std::process::id(),
        RandomState::new().hash_one(kind)
    )
}

/// Makes a database, empty or as a copy of `template`. It has no roles yet.
///
/// # Errors
/// When the role of the address may not.
pub async fn create(servers: &Servers, name: &str, template: Option<&str>) -> Result<(), Trouble> {
    let mut connection = connect(&servers.postgres_url("postgres")).await?;
    // Copying files is what makes a copy cheap; it is not what the server does by itself.
    let source = template.map_or_else(String::new, |template| {
        format!(" template {template} strategy file_copy")
    });
    execute(&mut connection, format!("create database {name}{source}")).await?;
    connection
        .close()
        .await
        .map_err(Trouble::because("cannot leave PostgreSQL"))
}

/// Makes login roles for the two kinds of processes, which can do what the groups may and nothing else.
///
/// # Errors
/// When the schema is not there yet: the groups are made by its migrations.
pub async fn roles(servers: &Servers, name: &str) -> Result<Database, Trouble> {
    let mut connection = connect(&servers.postgres_url("postgres")).await?;
    let password = fresh_name("password");
    for kind in ["api", "worker"] {
        execute(
            &mut connection,
            format!("create role {name}_{kind} login password '{password}' in role assay_{kind}"),
        )
        .await?;
    }
    connection
        .close()
        .await
        .map_err(Trouble::because("cannot leave PostgreSQL"))?;
    Ok(Database {
        name: name.to_owned(),
        owner_url: servers.postgres_url(name),
        api_url: servers.postgres_url_as(&format!("{name}_api"), &password, name),
        worker_url: servers.postgres_url_as(&format!("{name}_worker"), &password, name),
    })
}

/// Removes a database and its roles.
///
/// # Errors
/// When the server does not answer.
pub async fn remove(servers: &Servers, name: &str) -> Result<(), Trouble> {
    let mut connection = connect(&servers.postgres_url("postgres")).await?;
    execute(
        &mut connection,
        format!("drop database if exists {name} with (force)"),
    )
    .await?;
    for kind in ["api", "worker"] {
        execute(
            &mut connection,
            format!("drop role if exists {name}_{kind}"),
        )
        .await?;
    }
    connection
        .close()
        .await
        .map_err(Trouble::because("cannot leave PostgreSQL"))
}

/// Makes the bounds of all plans too wide to be met.
///
/// # Errors
/// When the database does not answer.
pub async fn widen_plans(database: &mut PgConnection) -> Result<(), Trouble> {
    for plan in ["free", "dev", "team"] {
        widen_plan(database, plan).await?;
    }
    Ok(())
}

/// Makes the bounds of one plan too wide to be met.
///
/// # Errors
/// When the database does not answer.
pub async fn widen_plan(database: &mut PgConnection, plan: &str) -> Result<(), Trouble> {
    let wide = "update plans set requests_per_minute = 100000000, eval_items_per_month = 1000000000, concurrent_jobs = 1000000 where plan = $1";
    sqlx::query(wide)
        .bind(plan)
        .execute(database)
        .await
        .map_err(Trouble::because("cannot widen the plan"))?;
    Ok(())
}
