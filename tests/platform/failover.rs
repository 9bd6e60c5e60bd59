//! PostgreSQL fails over to its synchronous standby, or becomes read-only.

use std::sync::Arc;

use assay_tests::chaos::{self, Scale};
use assay_tests::stack::{Ground, StackSize};

use crate::harness::{Expect, ground, long_test, one_prediction, own_ground, wait_until, world_on};

/// Kills or freezes the primary under load. The report fails if an acknowledged job is missing on
/// the standby, or if requests and jobs are not served again.
async fn fail_over(frozen: bool) {
    if own_ground().is_none() {
        return;
    }
    let ground = Arc::new(Ground::new(
        chaos::servers_with_standby().unwrap(),
        ground().binaries.clone(),
    ));
    let report = chaos::run(&ground, Scale::failover(600, frozen), &|_| ())
        .await
        .unwrap();
    println!("{report}");
    assert!(report.is_clean(), "{report}");
    assert!(report.acknowledged >= 600, "{report}");
    assert_eq!(
        report.recovered.len(),
        3,
        "two API processes and a job recover"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_primary_loses_no_acknowledged_job() {
    fail_over(false).await;
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn frozen_primary_loses_no_acknowledged_job() {
    long_test!("starts two PostgreSQL servers and fails over under load");
    fail_over(true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn read_only_server_is_unavailable() {
    let Some(ground) = own_ground() else { return };
    let world = world_on(&ground, StackSize::default()).await;
    world.submit_and_wait(&one_prediction()).await;
    let mut database = world.database().await;
    // Simulates a demoted primary whose connections stay open.
    let set = "alter system set default_transaction_read_only = on; select pg_reload_conf()";
    for statement in set.split("; ") {
        sqlx::raw_sql(sqlx::AssertSqlSafe(statement.to_owned()))
            .execute(&mut database)
            .await
            .unwrap();
    }
    wait_until("503", async || {
        world.submit_once(&one_prediction()).await.status == 503
    })
    .await;
    for _ in 0..5 {
        world
            .submit_once(&one_prediction())
            .await
            .expect_error(503, "unavailable");
    }
    let undo = "set default_transaction_read_only = off; alter system reset default_transaction_read_only; select pg_reload_conf()";
    for statement in undo.split("; ") {
        sqlx::raw_sql(sqlx::AssertSqlSafe(statement.to_owned()))
            .execute(&mut database)
            .await
            .unwrap();
    }
    wait_until("accepted submission", async || {
        world.submit_once(&one_prediction()).await.status == 202
    })
    .await;
    assert_eq!(
        world.submit_and_wait(&one_prediction()).await["status"],
        "succeeded"
    );
}
