//! The columns of ids, and the forms of the ids that the platform makes.

use serde_json::json;

use crate::harness::{one_prediction, shared_world, string};

/// The names of columns that hold ids. `run_by` of the operator's log is a database role.
const IS_ID: &str = r"^(id|kid|target|replaces|compared_to)$|_(id|ids|by)$";

/// In another collation, the order of ids would not be the order of time.
#[tokio::test(flavor = "multi_thread")]
async fn id_columns_have_collation_c() {
    let world = shared_world().await;
    let columns = r#"
        select
            count(*),
            coalesce(
                array_agg(table_name || '.' || column_name order by 1) filter (where collation_name is distinct from 'C'),
                '{}'
            )
        from information_schema.columns
        where table_schema = 'public'
          and udt_name in ('text', '_text')
          and column_name ~ $1
          and column_name <> 'run_by'
    "#;
    let (n, others): (i64, Vec<String>) = sqlx::query_as(columns)
        .bind(IS_ID)
        .fetch_one(&mut world.database().await)
        .await
        .unwrap();
    assert!(n > 130, "{n}");
    assert_eq!(others, [] as [String; 0]);
}

/// The ids of jobs, uploads, events and audit entries in the database begin with the time of their
/// rows, and have the cell after it.
#[tokio::test(flavor = "multi_thread")]
async fn stored_ids_begin_with_time_and_cell() {
    let world = shared_world().await;
    for _ in 0..3 {
        let job = world
            .key()
            .post(
                "/v1/evals",
                &json!({"suite_id": "suite:lunch", "predictions": one_prediction()}),
            )
            .await
            .unwrap();
        assert_eq!(job.status, 202, "{}", job.body);
        world.wait_until_finished(&string(&job.body["id"])).await;
    }
    let mut database = world.database().await;
    for (table, order, time) in [
        ("jobs", "created_at", 8),
        ("receipts", "issued_at", 8),
        ("events", "timestamp", 8),
        ("audit_entries", "created_at", 9),
    ] {
        let ids = format!("select id from {table} where org_id = $1 order by {order}");
        let ids: Vec<String> = sqlx::query_scalar(sqlx::AssertSqlSafe(ids))
            .bind(&world.org.id)
            .fetch_all(&mut database)
            .await
            .unwrap();
        assert!(!ids.is_empty(), "{table}");
        assert!(
            ids.is_sorted_by_key(|id| id[..4 + time].to_owned()),
            "{table}: {ids:?}"
        );
        for id in ids {
            let (_, characters) = id.split_once('_').unwrap();
            assert_eq!(characters.len(), 22, "{id}");
            assert_eq!(&characters[time..time + 2], "00", "{id}");
        }
    }
}
