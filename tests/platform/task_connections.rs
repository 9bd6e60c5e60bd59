//! Connections that tasks of the API and the worker hold between their statements.

use assay_core::Error;
use assay_core::store::{self, PgConnection, PoolProfile, PrimaryPool, TaskConnections};

use crate::harness::{World, in_time, shared_world, wait_until, world};

fn pool(world: &World) -> PrimaryPool {
    let url = &world.stack.database.owner_url;
    let (pool, _closed) = store::pool_with_task(url, 1, "test", PoolProfile::COMBINED).unwrap();
    pool
}

async fn session(db: &mut PgConnection) -> Result<i32, Error> {
    let session = sqlx::query_scalar("select pg_backend_pid()").fetch_one(db);
    Ok(session.await?)
}

async fn sleep(db: &mut PgConnection, seconds: f64) -> Result<(), Error> {
    let slept = sqlx::query("select pg_sleep($1)").bind(seconds).execute(db);
    slept.await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_stays_open_until_a_statement_fails() {
    let world = world().await;
    let pool = pool(&world);
    let connections = TaskConnections::new(pool.clone(), 1);
    let first = connections.execute(session).await.unwrap();
    assert_eq!(connections.execute(session).await.unwrap(), first);
    assert_eq!((pool.get().num_idle(), pool.idle()), (0, 1));

    let fail = async |db: &mut PgConnection| {
        let divided = sqlx::query_scalar::<_, i32>("select 1 / 0").fetch_one(db);
        Ok(divided.await?)
    };
    connections.execute(fail).await.unwrap_err();
    let second = connections.execute(session).await.unwrap();
    assert_ne!(second, first);

    // A transaction that is still open ends with its connection.
    let abandon = async |db: &mut PgConnection| {
        sqlx::raw_sql("begin; lock table suites")
            .execute(&mut *db)
            .await?;
        Err::<(), _>(Error::unavailable("abandoned"))
    };
    connections.execute(abandon).await.unwrap_err();
    let lock = async |db: &mut PgConnection| {
        sqlx::raw_sql("begin; lock table suites; rollback")
            .execute(db)
            .await?;
        Ok(())
    };
    connections.execute(lock).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_statement_does_not_delay_the_next() {
    let world = shared_world().await;
    let connections = TaskConnections::new(pool(&world), 1);
    // The server never ends the first statement.
    let endless = connections.execute(async |db| {
        sqlx::raw_sql("set statement_timeout = 0")
            .execute(&mut *db)
            .await?;
        sleep(db, 1e6).await
    });
    let mut database = world.database().await;
    let begun = wait_until("the first statement", async || {
        let sql = "select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'";
        sqlx::query_scalar::<_, i64>(sql)
            .fetch_one(&mut database)
            .await
            .unwrap()
            == 1
    });
    tokio::select! {
        ended = endless => panic!("the first statement has ended: {ended:?}"),
        () = begun => {}
    }
    in_time("the next statement", connections.execute(session))
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_wait_for_a_connection() {
    let world = shared_world().await;
    let connections = TaskConnections::new(pool(&world), 1);
    let tasks = [0.2, 0.1, 0.0].map(|seconds| {
        let connections = connections.clone();
        tokio::spawn(async move {
            connections
                .execute(async |db| sleep(db, seconds).await)
                .await
        })
    });
    for task in tasks {
        task.await.unwrap().unwrap();
    }
}
