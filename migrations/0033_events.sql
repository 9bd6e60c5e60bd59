-- Events: what happened in an organization, for its programs. An event is stored in the transaction of its change.
create table events (
    -- No foreign key: it would lock the organization's row, for which submissions wait, with each job that finishes.
    org_id text not null,
    -- The transaction and the place in it. The feed shows an event once no transaction before it is open, so that none appears
    -- behind the position of a reader.
    xid xid8 not null default pg_current_xact_id(),
    position bigint generated always as identity,
    id text not null,
    type text not null,
    timestamp timestamptz not null default clock_timestamp(),
    -- The data is the job, the version of the suite, or `data`.
    job_id text,
    suite_id text,
    suite_version text,
    data jsonb,
    constraint events_pkey primary key (org_id, xid, position),
    constraint events_have_data check (num_nonnulls(job_id, suite_id, data) = 1),
    constraint events_suite_has_version check ((suite_id is null) = (suite_version is null)),
    constraint events_data_is_small check (octet_length(data::text) <= 20000)
);
create index events_timestamp_idx on events (timestamp);
-- The erasure of a user finds the events that hold their address.
create index events_user_id_idx on events ((data ->> 'user_id')) where data is not null;
grant select, insert, delete on events to assay_api;
grant insert on events to assay_worker;

-- Wakes up the requests that wait for events of the organization.
create function notify_event() returns trigger language plpgsql as $$
begin
    perform pg_notify('assay_job_changed', new.org_id);
    return null;
end
$$;
create trigger events_notify after insert on events for each row execute function notify_event();

-- Stores the event of a job that has finished, whichever statement finished it. A job finishes once, so the event has its id.
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

-- The highest percentages of the monthly limits for which an organization has an event.
create table usage_thresholds (
    org_id text not null constraint usage_thresholds_org_id_fkey references orgs (id),
    period_start timestamptz not null,
    -- The name of the limit in the plan.
    limit_name text not null,
    percent integer not null,
    -- The value of the limit at that time.
    max bigint not null,
    constraint usage_thresholds_pkey primary key (org_id, period_start, limit_name)
);
grant select, insert, update (percent, max), delete on usage_thresholds to assay_api;

-- The number of days before the expiry of a key for which its last notice was sent.
alter table api_keys add column expiry_notice_days integer;
grant update (expiry_notice_days) on api_keys to assay_api;
