-- The transactions in which `migrate` adopted the events of a restored database. Cursors from before one of them name transactions of
-- another server.
create table event_restores (
    xid xid8 constraint event_restores_pkey primary key default pg_current_xact_id(),
    restored_at timestamptz not null default clock_timestamp()
);
grant select on event_restores to assay_api;

-- The deletion of organizations left the metadata of their jobs.
update jobs
set metadata = null
where org_id in (select id from orgs where deleted_at is not null)
  and metadata is not null;
