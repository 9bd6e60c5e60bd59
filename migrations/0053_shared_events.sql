-- Events that all organizations have: each is stored once, and not for each organization.
create table shared_events (
    -- As in `events`. The positions of both tables come from one sequence, so they form one order.
    xid xid8 not null default pg_current_xact_id(),
    position bigint not null default nextval('events_position_seq'),
    id text not null,
    type text not null,
    timestamp timestamptz not null default clock_timestamp(),
    suite_id text not null,
    suite_version text not null,
    constraint shared_events_pkey primary key (xid, position)
);
create index shared_events_timestamp_idx on shared_events (timestamp);
grant select, delete on shared_events to assay_api;

-- Wakes up the requests of all organizations that wait for events.
create function notify_shared_event() returns trigger language plpgsql as $$
begin
    perform pg_notify('assay_job_changed', 'orgs');
    return null;
end
$$;
create trigger shared_events_notify after insert on shared_events for each row execute function notify_shared_event();

-- The events of each organization: its own, and the shared ones since it was created.
create view org_events as
select
    org_id,
    xid,
    position,
    id,
    type,
    timestamp,
    job_id,
    suite_id,
    suite_version,
    data
from events
union all
select
    o.id,
    s.xid,
    s.position,
    s.id,
    s.type,
    s.timestamp,
    null,
    s.suite_id,
    s.suite_version,
    null
from shared_events s
join orgs o
    on o.created_at < s.timestamp
    and o.deleted_at is null;
grant select on org_events to assay_api;
