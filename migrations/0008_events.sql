-- What happened in an organization, for its programs. An event is stored in the transaction of its change.
create table events (
    -- No foreign key: it would lock the organization's row, for which submissions wait, whenever a job finishes.
    org_id text collate "C" not null,
    -- The transaction, and the position in it. The feed shows an event when no earlier transaction is open, so none appears later.
    xid xid8 not null default pg_current_xact_id(),
    position bigint generated always as identity,
    id text collate "C" not null,
    type text not null,
    timestamp timestamptz not null default clock_timestamp(),
    -- The event's data: the job, the version of the suite, or `data`.
    job_id text collate "C",
    suite_id text collate "C",
    suite_version text,
    data jsonb,
    primary key (org_id, xid, position),
    constraint events_have_data check (num_nonnulls(job_id, suite_id, data) = 1),
    constraint events_suite_has_version check ((suite_id is null) = (suite_version is null)),
    constraint events_data_is_small check (octet_length(data::text) <= 20000)
);
create index events_timestamp_idx on events (timestamp);
-- The erasure of a user finds the events that contain their address.
create index events_user_id_idx on events ((data ->> 'user_id')) where data is not null;
grant select, insert, delete on events to assay_api;
grant insert on events to assay_worker;

-- Notifies the requests that wait for events of the organization.
create function notify_event() returns trigger language plpgsql as $$
begin
    perform pg_notify('assay_job_changed', new.org_id);
    return null;
end
$$;
create trigger events_notify after insert on events for each row execute function notify_event();

-- Stores the event of a finished job, whichever statement finished it. A job finishes once, so its event has an id of its own.
create function insert_job_event() returns trigger language plpgsql as $$
begin
    insert into events (org_id, id, type, job_id)
    values (new.org_id, 'evt_' || substr(new.id, 5), 'job.' || new.status, new.id);
    return null;
end
$$;
create trigger jobs_insert_event after update of status on jobs
    for each row when (old.finished_at is null and new.finished_at is not null)
    execute function insert_job_event();

-- Events of all organizations, such as new versions of suites, each stored once.
create table shared_events (
    -- As in events. The positions of both tables come from one sequence, so they have one order.
    xid xid8 not null default pg_current_xact_id(),
    position bigint not null default nextval('events_position_seq'),
    id text collate "C" not null,
    type text not null,
    timestamp timestamptz not null default clock_timestamp(),
    suite_id text collate "C" not null,
    suite_version text not null,
    primary key (xid, position)
);
create index shared_events_timestamp_idx on shared_events (timestamp);
grant select, delete on shared_events to assay_api;

-- Notifies the requests of all organizations that wait for events.
create function notify_shared_event() returns trigger language plpgsql as $$
begin
    perform pg_notify('assay_job_changed', 'orgs');
    return null;
end
$$;
create trigger shared_events_notify after insert on shared_events for each row execute function notify_shared_event();

-- The events of each organization: its own, and the shared ones since it was created.
create view org_events as
select org_id, xid, position, id, type, timestamp, job_id, suite_id, suite_version, data
from events
union all
select o.id, s.xid, s.position, s.id, s.type, s.timestamp, null, s.suite_id, s.suite_version, null
from shared_events s
join orgs o on o.created_at < s.timestamp and o.deleted_at is null;
grant select on org_events to assay_api;

-- The transactions in which `migrate` adopted restored events. An earlier cursor names a transaction of another server.
create table event_restores (
    xid xid8 primary key default pg_current_xact_id(),
    restored_at timestamptz not null default clock_timestamp()
);
grant select on event_restores to assay_api;

-- The receivers of an organization's events.
create table webhooks (
    id text collate "C" primary key,
    org_id text collate "C" not null references orgs (id),
    url text not null,
    events text[] not null,
    description text,
    enabled boolean not null default true,
    disabled_reason text,
    -- The signing secret, which is not stored, is derived from the id and this number.
    secret_generation integer not null default 1,
    previous_secret_until timestamptz, -- Until then, deliveries are also signed with the previous secret.
    secret_hint text not null, -- The last characters of the secret.
    created_by text collate "C" not null,
    created_at timestamptz not null default clock_timestamp(),
    updated_at timestamptz not null default clock_timestamp(),
    last_delivered_at timestamptz,
    failing_since timestamptz,
    gone_at timestamptz, -- The time at which the receiver responded with 410, for which the API disables the webhook.
    -- The position in the feed. Deliveries of earlier events are stored.
    xid xid8 not null,
    position bigint not null,
    constraint webhooks_have_events check (cardinality(events) > 0),
    constraint webhooks_disabled_reason_known check (disabled_reason in ('owner', 'gone', 'failing')),
    constraint webhooks_disabled_have_reason check (enabled = (disabled_reason is null))
);
create index webhooks_org_id_idx on webhooks (org_id);
create trigger webhooks_refuse_suspended before insert on webhooks for each row execute function refuse_suspended_org();
grant select, insert, delete on webhooks to assay_api;
grant update (url, events, description, enabled, disabled_reason, secret_generation, previous_secret_until, secret_hint, updated_at,
    last_delivered_at, failing_since, gone_at, xid, position) on webhooks to assay_api;
grant select, update (last_delivered_at, failing_since, gone_at) on webhooks to assay_delivery;

-- The bodies of deliveries, one for each event of an organization.
create table webhook_payloads (
    -- No foreign keys: they would lock the organization's row, for which submissions wait, with each event.
    org_id text collate "C" not null,
    event_id text collate "C" not null,
    body text not null,
    -- The user whom the event is about, whose erasure deletes the row.
    user_id text collate "C" generated always as (body::jsonb #>> '{data,user_id}') stored,
    created_at timestamptz not null default clock_timestamp(),
    primary key (org_id, event_id)
);
create index webhook_payloads_created_at_idx on webhook_payloads (created_at);
create index webhook_payloads_user_id_idx on webhook_payloads (user_id) where user_id is not null;
grant select, insert, delete, update (created_at) on webhook_payloads to assay_api;
grant select on webhook_payloads to assay_delivery;

-- An event that is sent to a webhook. Finished deliveries of a deleted webhook stay until their payload is deleted.
create table webhook_deliveries (
    org_id text collate "C" not null,
    webhook_id text collate "C" not null,
    id text collate "C" not null, -- Begins with the time: its byte order is the order of the listing.
    event_id text collate "C" not null,
    attempt integer not null default 0, -- The number of attempts so far.
    -- Failures since the creation or the last manual retry, without attempts whose process died.
    failures integer not null default 0,
    status text not null default 'pending' constraint webhook_deliveries_status_known check (status in ('pending', 'delivered', 'failed')),
    response_status integer,
    error text,
    duration_ms bigint,
    created_at timestamptz not null default clock_timestamp(),
    attempted_at timestamptz,
    -- While an attempt runs, the time at which it is repeated if its process has died.
    next_attempt_at timestamptz default clock_timestamp(),
    primary key (org_id, webhook_id, id),
    constraint webhook_deliveries_event_key unique (org_id, event_id, webhook_id),
    constraint webhook_deliveries_payload_fkey foreign key (org_id, event_id)
        references webhook_payloads (org_id, event_id) on delete cascade,
    constraint webhook_deliveries_pending_have_next check ((status = 'pending') = (next_attempt_at is not null))
);
create index webhook_deliveries_due_idx on webhook_deliveries (webhook_id, next_attempt_at) where status = 'pending';
grant select, insert, delete on webhook_deliveries to assay_api;
grant update (attempt, failures, status, response_status, error, duration_ms, attempted_at, next_attempt_at)
    on webhook_deliveries to assay_api, assay_delivery;
grant select on webhook_deliveries to assay_delivery;

-- Notifies the processes that deliver.
create function notify_deliveries() returns trigger language plpgsql as $$
begin
    perform pg_notify('assay_deliveries', '');
    return null;
end
$$;
create trigger webhook_deliveries_notify after insert on webhook_deliveries for each statement execute function notify_deliveries();

-- The webhooks whose pending deliveries may be attempted. The recursion reads one index entry for each webhook, not all of them.
create view webhooks_with_pending_deliveries as
    with recursive pending (webhook_id) as (
        select min(webhook_id) from webhook_deliveries where status = 'pending'
        union all
        select (select min(d.webhook_id) from webhook_deliveries d where d.status = 'pending' and d.webhook_id > p.webhook_id)
        from pending p
        where p.webhook_id is not null
    )
    select w.id as webhook_id
    from pending p
    join webhooks w on w.id = p.webhook_id
    join orgs o on o.id = w.org_id
    where w.enabled and w.gone_at is null and o.suspended_at is null;
grant select on webhooks_with_pending_deliveries to assay_api, assay_delivery;
