-- Stored objects are recorded before they are written, stored bytes are counted per organization, and old rows can be deleted.

-- Inline predictions in the artifact store. The row is committed before the object is written and deleted after the object was, so
-- that a process that dies in between leaves nothing that cleanup does not find. Submissions of an API of the release before have none.
create table stored_predictions (
    org_id text not null constraint stored_predictions_org_id_fkey references orgs (id),
    -- The job whose predictions they are. It does not exist yet when the row is inserted.
    job_id text constraint stored_predictions_pkey primary key,
    bytes bigint not null constraint stored_predictions_bytes_not_negative check (bytes >= 0),
    created_at timestamptz not null default clock_timestamp(),
    -- When the job was stored.
    accepted_at timestamptz,
    -- When cleanup gave the submission up. It cannot become a job any more.
    abandoned_at timestamptz,
    constraint stored_predictions_end_once check (num_nonnulls(accepted_at, abandoned_at) <= 1)
);
create trigger stored_predictions_refuse_suspended before insert on stored_predictions
    for each row execute function refuse_suspended_org();
create index stored_predictions_pending_idx on stored_predictions (created_at) where accepted_at is null;
grant select, insert, update (accepted_at, abandoned_at), delete on stored_predictions to assay_api;

-- How many bytes of an organization are stored: parts of uploads and inline predictions. Triggers change it in the transaction of
-- the rows that it counts, whichever release writes them. The row is the last one that a transaction locks.
create table org_storage (
    org_id text constraint org_storage_pkey primary key constraint org_storage_org_id_fkey references orgs (id) on delete cascade,
    bytes bigint not null
);
grant select, insert, update on org_storage to assay_api;

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

-- The triggers keep others from the parts until this transaction ends, so that none is missed.
insert into org_storage (org_id, bytes) select org_id, sum(bytes) from upload_parts group by org_id;

-- The last comparison of the artifact store with the rows. The first one is due a day after this migration.
create table artifact_reconciliation (
    is_only boolean constraint artifact_reconciliation_pkey primary key default true
        constraint artifact_reconciliation_is_only check (is_only),
    started_at timestamptz not null default now(),
    finished_at timestamptz,
    -- What the last one that finished found: objects without a row that it removed, their bytes, and rows without their object.
    removed bigint not null default 0,
    removed_bytes bigint not null default 0,
    missing bigint not null default 0
);
insert into artifact_reconciliation (finished_at) values (now());
grant select, update (started_at, finished_at, removed, removed_bytes, missing) on artifact_reconciliation to assay_api;

-- Rows that are deleted when their time is over.
create index sessions_expires_at_idx on sessions (expires_at);
create index sessions_ended_at_idx on sessions (ended_at) where ended_at is not null;
create index api_keys_revoked_at_idx on api_keys (revoked_at) where revoked_at is not null;
create index invites_ended_at_idx on invites (coalesce(accepted_at, revoked_at, replaced_at, expires_at));
create index domain_claims_expires_at_idx on domain_claims (expires_at) where verified_at is null;
create index uploads_removed_at_idx on uploads (removed_at) where removed_at is not null;
grant delete on sessions, api_keys, invites, uploads, jobs, job_attempts, usage_ledger to assay_api;

-- The numbers of live keys and open invites are limited.
create index api_keys_live_idx on api_keys (org_id) where revoked_at is null;
create index invites_open_idx on invites (org_id, expires_at) where accepted_at is null and revoked_at is null and replaced_at is null;

-- How many bytes an organization may store. Null: ten times its largest upload.
alter table plans add column storage_bytes bigint constraint plans_storage_positive check (storage_bytes > 0);
