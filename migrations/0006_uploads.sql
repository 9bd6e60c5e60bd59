-- Rejects uploads and parts of a suspended organization, except for outputs of running jobs, which are inserted as ready uploads. A deleted
-- organization stores nothing.
create function refuse_suspended_upload() returns trigger language plpgsql security definer set search_path = public, pg_temp as $$
declare
    org record;
begin
    select suspended_at, deleted_at into org from orgs where id = new.org_id for key share;
    if org.deleted_at is not null or (org.suspended_at is not null and new.status <> 'ready') then
        raise exception using errcode = 'AY001', message = 'the organization is suspended';
    end if;
    return new;
end
$$;

create function refuse_suspended_part() returns trigger language plpgsql security definer set search_path = public, pg_temp as $$
declare
    org record;
begin
    select suspended_at, deleted_at into org from orgs where id = new.org_id for key share;
    if org.suspended_at is null then
        return new;
    end if;
    perform from uploads where org_id = new.org_id and id = new.upload_id and status = 'ready';
    if org.deleted_at is not null or not found then
        raise exception using errcode = 'AY001', message = 'the organization is suspended';
    end if;
    return new;
end
$$;

-- Predictions or sequences that are sent in parts before they are submitted.
create table uploads (
    id text collate "C" primary key,
    org_id text collate "C" not null references orgs (id),
    kind text not null constraint uploads_kind_known check (kind in ('predictions', 'sequences')),
    -- A pending or ready upload after expires_at counts as expired, even before the status says so.
    status text not null default 'pending' constraint uploads_status_known check (status in ('pending', 'ready', 'failed', 'expired')),
    content_type text not null
        constraint uploads_content_type_known check (content_type in ('application/x-ndjson', 'application/json', 'text/csv')),
    content_encoding text not null constraint uploads_content_encoding_known check (content_encoding in ('identity', 'gzip', 'zstd')),
    bytes bigint constraint uploads_bytes_positive check (bytes > 0), -- As announced, and the received size of a ready upload.
    sha256 text, -- As announced, in lower-case hex.
    n_items bigint,
    digest bytea, -- The SHA-256 of the item ids and values, which does not depend on how they were sent.
    error_code text
        constraint uploads_error_code_known check (error_code in ('invalid_predictions', 'invalid_sequences', 'payload_too_large')),
    error_message text,
    created_at timestamptz not null default now(),
    expires_at timestamptz not null,
    completed_at timestamptz,
    deleted_at timestamptz, -- The time at which the caller deleted it.
    failed_at timestamptz,
    removed_at timestamptz, -- The time at which all of its objects were removed from the artifact store.
    constraint uploads_ready_is_counted check (status <> 'ready' or (n_items is not null and digest is not null and completed_at is not null)),
    constraint uploads_error_iff_failed check ((status = 'failed') = (error_code is not null and failed_at is not null))
);
create index uploads_pending_idx on uploads (org_id, expires_at) where status = 'pending' and deleted_at is null;
create index uploads_expiring_idx on uploads (expires_at) where status in ('pending', 'ready') and deleted_at is null;
create index uploads_to_remove_idx on uploads (id) where removed_at is null and (deleted_at is not null or status in ('failed', 'expired'));
create index uploads_removed_at_idx on uploads (removed_at) where removed_at is not null;
create index uploads_listed_idx on uploads (org_id, created_at, id) where deleted_at is null;
create index uploads_status_idx on uploads (org_id, status, created_at, id) where deleted_at is null;
create trigger uploads_refuse_suspended before insert on uploads for each row execute function refuse_suspended_upload();
grant select, insert, delete on uploads to assay_api;
grant update (status, bytes, n_items, digest, error_code, error_message, expires_at, completed_at, deleted_at, failed_at, removed_at)
    on uploads to assay_api;
-- The output of a prediction job is an upload.
grant select, insert on uploads to assay_worker;

alter table jobs add foreign key (upload_id) references uploads (id);

-- The received parts, each an object of its own in the artifact store. A part that is sent again replaces the earlier one.
create table upload_parts (
    org_id text collate "C" not null,
    upload_id text collate "C" not null references uploads (id),
    number integer not null constraint upload_parts_number_in_range check (number between 1 and 10000),
    object_key text not null,
    bytes bigint not null constraint upload_parts_bytes_not_negative check (bytes >= 0),
    sha256 text not null,
    received_at timestamptz not null default clock_timestamp(),
    primary key (upload_id, number)
);
create trigger upload_parts_refuse_suspended before insert on upload_parts for each row execute function refuse_suspended_part();
grant select, insert, delete, update (object_key, bytes, sha256, received_at) on upload_parts to assay_api;
grant select, insert on upload_parts to assay_worker;

-- Inline predictions. Their object is written after the row is committed, and deleted before the row, so cleanup finds what a crash leaves.
create table stored_predictions (
    org_id text collate "C" not null references orgs (id),
    job_id text collate "C" primary key, -- The job, which does not exist yet when the row is inserted.
    bytes bigint not null constraint stored_predictions_bytes_not_negative check (bytes >= 0),
    created_at timestamptz not null default clock_timestamp(),
    accepted_at timestamptz, -- The time at which the job was stored.
    abandoned_at timestamptz, -- The time at which cleanup abandoned the submission, which can no longer become a job.
    body bytea, -- Small predictions, which cost a job much less here. Null: they are in the artifact store.
    constraint stored_predictions_end_once check (num_nonnulls(accepted_at, abandoned_at) <= 1)
);
-- Predictions are read once and live for a minute: compression costs more than it saves.
alter table stored_predictions alter column body set storage external;
create index stored_predictions_pending_idx on stored_predictions (created_at) where accepted_at is null;
-- The insert of the job checks accepted predictions.
create trigger stored_predictions_refuse_suspended before insert on stored_predictions
    for each row when (new.accepted_at is null) execute function refuse_suspended_org();
grant select, insert, delete, update (accepted_at, abandoned_at) on stored_predictions to assay_api;
grant select (job_id, body) on stored_predictions to assay_worker;

-- The stored bytes of an organization, in parts and inline predictions, whose triggers change it. A transaction locks it last.
create table org_storage (
    org_id text collate "C" primary key references orgs (id) on delete cascade,
    bytes bigint not null
);
grant select, insert, update on org_storage to assay_api;
grant select, insert, update (bytes) on org_storage to assay_worker;

create function count_storage() returns trigger language plpgsql as $$
begin
    -- In the order of the organizations, so that two transactions that change several of them never wait for each other.
    if tg_op = 'INSERT' then
        insert into org_storage as s (org_id, bytes)
        select org_id, sum(bytes) from added group by org_id order by org_id
        on conflict (org_id) do update set bytes = s.bytes + excluded.bytes;
    elsif tg_op = 'DELETE' then
        insert into org_storage as s (org_id, bytes)
        select org_id, -sum(bytes) from removed group by org_id order by org_id
        on conflict (org_id) do update set bytes = s.bytes + excluded.bytes;
    else
        insert into org_storage as s (org_id, bytes)
        select org_id, sum(bytes) from (select org_id, bytes from added union all select org_id, -bytes from removed) changed
        group by org_id having sum(bytes) <> 0 order by org_id
        on conflict (org_id) do update set bytes = s.bytes + excluded.bytes;
    end if;
    return null;
end
$$;
create trigger stored_predictions_added after insert on stored_predictions
    referencing new table as added for each statement execute function count_storage();
create trigger stored_predictions_removed after delete on stored_predictions
    referencing old table as removed for each statement execute function count_storage();
create trigger upload_parts_added after insert on upload_parts
    referencing new table as added for each statement execute function count_storage();
create trigger upload_parts_removed after delete on upload_parts
    referencing old table as removed for each statement execute function count_storage();
create trigger upload_parts_changed after update on upload_parts
    referencing old table as removed new table as added for each statement execute function count_storage();

-- The last comparison of the artifact store with the rows. The first one is due a day after this migration.
create table artifact_reconciliation (
    is_only boolean primary key default true constraint artifact_reconciliation_is_only check (is_only),
    started_at timestamptz not null default now(),
    finished_at timestamptz,
    -- The objects without a row that the last finished comparison removed, their bytes, and rows without their object.
    removed bigint not null default 0,
    removed_bytes bigint not null default 0,
    missing bigint not null default 0
);
insert into artifact_reconciliation (finished_at) values (now());
grant select, update (started_at, finished_at, removed, removed_bytes, missing) on artifact_reconciliation to assay_api;
