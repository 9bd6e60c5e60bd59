-- The transactions in which `migrate` adopted restored events. A cursor from before names a transaction on another server.
create table event_restores (
    xid xid8 constraint event_restores_pkey primary key default pg_current_xact_id(),
    restored_at timestamptz not null default clock_timestamp()
);
grant select on event_restores to assay_api;

-- `org delete` left the jobs' metadata.
update jobs
set metadata = null
where org_id in (select id from orgs where deleted_at is not null)
  and metadata is not null;
