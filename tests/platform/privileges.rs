//! Each database role's rights on every table, view, column, sequence and function, compared
//! with `privileges.txt`: a new right is a decision, never an accident.
//!
//! `TEST_WRITE_PRIVILEGES=1` writes the file.

use std::fmt::Write as _;
use std::path::Path;

use sqlx::{Connection as _, PgConnection};

use crate::harness::shared_world;

/// One line for each role, object and right, with the columns unless they are all.
const PRIVILEGES: &str = "
    with roles as (
        select oid, rolname from pg_roles where rolname in ('assay_api', 'assay_worker', 'assay_log', 'assay_delivery', 'assay_checker')
    ), tables as (
        select c.oid, c.relname
        from pg_class c
        where c.relnamespace = 'public'::regnamespace
          and c.relkind in ('r', 'v', 'm', 'p', 'f')
    ), columns as (
        select
            r.rolname,
            t.relname,
            p.privilege,
            string_agg(a.attname, ', ' order by a.attnum) filter (where has_column_privilege(r.oid, t.oid, a.attnum, p.privilege)) as given,
            bool_and(has_column_privilege(r.oid, t.oid, a.attnum, p.privilege)) as is_whole
        from roles r
        cross join tables t
        cross join (values ('select'), ('insert'), ('update'), ('references')) p(privilege)
        join pg_attribute a on a.attrelid = t.oid and a.attnum > 0 and not a.attisdropped
        group by 1, 2, 3
    )
    select rolname || ' ' || relname || ' ' || columns.privilege || case when is_whole then '' else ' (' || given || ')' end
    from columns
    where given is not null
    union all
    select r.rolname || ' ' || t.relname || ' ' || p.privilege
    from roles r
    cross join tables t
    cross join (values ('delete'), ('truncate'), ('trigger')) p(privilege)
    where has_table_privilege(r.oid, t.oid, p.privilege)
    union all
    select r.rolname || ' sequence ' || s.relname || ' ' || p.privilege
    from roles r
    cross join pg_class s
    cross join (values ('usage'), ('select'), ('update')) p(privilege)
    where s.relnamespace = 'public'::regnamespace
      and s.relkind = 'S'
      and has_sequence_privilege(r.oid, s.oid, p.privilege)
    union all
    select r.rolname || ' schema public create'
    from roles r
    where has_schema_privilege(r.oid, 'public', 'create')
    union all
    -- A function with the rights of its owner gives them to everybody who may call it.
    select r.rolname || ' function ' || f.proname || ' with the rights of its owner'
    from roles r
    cross join pg_proc f
    where f.pronamespace = 'public'::regnamespace
      and f.prosecdef
      and has_function_privilege(r.oid, f.oid, 'execute')
    union all
    select m.rolname || ' member of ' || g.rolname
    from pg_auth_members a
    join roles m on m.oid = a.member
    join pg_roles g on g.oid = a.roleid
    order by 1
";

async fn privileges(database: &mut PgConnection) -> String {
    let lines: Vec<String> = sqlx::query_scalar(PRIVILEGES)
        .fetch_all(database)
        .await
        .unwrap();
    lines.into_iter().fold(String::new(), |mut text, line| {
        let _ = writeln!(text, "{line}");
        text
    })
}

/// Returns the lines that only one of the texts has.
fn difference(expected: &str, found: &str) -> Vec<String> {
    let only = |sign: char, of: &str, other: &str| {
        of.lines()
            .filter(|line| !other.lines().any(|same| same == *line))
            .map(|line| format!("{sign} {line}"))
            .collect::<Vec<_>>()
    };
    [only('-', expected, found), only('+', found, expected)].concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_have_exactly_the_listed_privileges() {
    let world = shared_world().await;
    let mut database = world.database().await;
    let found = privileges(&mut database).await;
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("platform/privileges.txt");
    if std::env::var_os("TEST_WRITE_PRIVILEGES").is_some() {
        std::fs::write(&file, &found).unwrap();
    }
    let expected = std::fs::read_to_string(&file).unwrap();
    assert_eq!(difference(&expected, &found), [] as [String; 0]);

    // A grant that somebody adds is found.
    for (grant, line) in [
        (
            "grant update (signature) on receipts to assay_api",
            "+ assay_api receipts update (signature)",
        ),
        (
            "grant select on suite_answers to assay_api",
            "+ assay_api suite_answers select",
        ),
        (
            "grant delete on log_entries to assay_log",
            "+ assay_log log_entries delete",
        ),
    ] {
        let mut transaction = database.begin().await.unwrap();
        sqlx::raw_sql(grant)
            .execute(&mut *transaction)
            .await
            .unwrap();
        let changed = privileges(&mut transaction).await;
        assert_eq!(difference(&found, &changed), [line], "{grant}");
        transaction.rollback().await.unwrap();
    }
}
