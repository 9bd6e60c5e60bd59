-- Predictions that are sent in parts before they are submitted.
create table uploads (
    id text constraint uploads_pkey primary key,
    org_id text not null constraint uploads_org_id_fkey references orgs (id),
    kind text not null constraint uploads_kind_known check (kind in ('predictions')),
    -- A pending or ready upload whose time is over counts as expired, also before this says so.
    status text not null default 'pending' constraint uploads_status_known check (status in ('pending', 'ready', 'failed', 'expired')),
    content_type text not null
        constraint uploads_content_type_known check (content_type in ('application/x-ndjson', 'application/json')),
    content_encoding text not null constraint uploads_content_encoding_known check (content_encoding in ('identity', 'gzip', 'zstd')),
    -- As announced; once it is ready, what was received.
    bytes bigint constraint uploads_bytes_positive check (bytes > 0),
    -- As announced, in lower case hex.
    sha256 text,
    n_items bigint,
    -- SHA-256 of the sequence of item ids and values: the same for the same predictions, however they were sent.
    digest bytea,
    error_code text constraint uploads_error_code_known check (error_code in ('invalid_predictions', 'payload_too_large')),
    error_message text,
    created_at timestamptz not null default now(),
    expires_at timestamptz not null,
    completed_at timestamptz,
    -- When its caller dropped it, or it failed.
    deleted_at timestamptz,
    failed_at timestamptz,
    -- When all of its objects were removed from the artifact store.
    removed_at timestamptz,
    constraint uploads_ready_is_counted check (status <> 'ready' or (n_items is not null and digest is not null and completed_at is not null)),
    constraint uploads_error_iff_failed check ((status = 'failed') = (error_code is not null and failed_at is not null))
);
create index uploads_pending_idx on uploads (org_id, expires_at) where status = 'pending' and deleted_at is null;
create index uploads_expiring_idx on uploads (expires_at) where status in ('pending', 'ready') and deleted_at is null;
create index uploads_to_remove_idx on uploads (id) where removed_at is null and (deleted_at is not null or status in ('failed', 'expired'));

-- What was received, each part an object of its own in the artifact store. A part that is sent again replaces the one before.
create table upload_parts (
    org_id text not null,
    upload_id text not null constraint upload_parts_upload_id_fkey references uploads (id),
    number integer not null constraint upload_parts_number_in_range check (number between 1 and 10000),
    object_key text not null,
    bytes bigint not null constraint upload_parts_bytes_not_negative check (bytes >= 0),
    sha256 text not null,
    received_at timestamptz not null default clock_timestamp(),
    constraint upload_parts_pkey primary key (upload_id, number)
);

-- A job's predictions are either kept for it alone or an upload.
alter table jobs add column upload_id text constraint jobs_upload_id_fkey references uploads (id);
alter table jobs drop constraint jobs_active_has_input;
alter table jobs add constraint jobs_active_has_input
    check (status not in ('queued', 'running') or (input_key is not null) <> (upload_id is not null));
create index jobs_upload_idx on jobs (upload_id) where upload_id is not null;

grant select, insert, update on uploads to assay_api;
grant select, insert, update, delete on upload_parts to assay_api;
grant select on uploads, upload_parts to assay_worker;
