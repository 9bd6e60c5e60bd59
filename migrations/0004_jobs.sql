create table jobs (
    id text constraint jobs_pkey primary key,
    org_id text not null constraint jobs_org_id_fkey references orgs (id),
    type text not null constraint jobs_type_known check (type in ('eval', 'predict')),
    status text not null default 'queued'
        constraint jobs_status_known check (status in ('queued', 'running', 'succeeded', 'failed', 'cancelled')),
    request_id text not null,
    label text,
    hfm_sha text not null,
    suite_id text not null,
    suite_version text not null,
    -- Where the artifact store keeps the submission.
    input_key text not null,
    n_submitted bigint not null,
    idempotency_key text,
    -- The SHA-256 of what was asked, for telling a repetition from another request under the same key.
    request_sha256 bytea not null,
    -- Counts the claims. It is also the fence: an attempt may only write while this is its own number.
    attempts integer not null default 0,
    created_at timestamptz not null,
    -- When the request that made it began.
    requested_at timestamptz not null,
    -- Trace id and parent span of the client's traceparent, or of our own making.
    trace_id text not null,
    parent_span_id text,
    -- Not before this moment is it to be claimed (again).
    available_at timestamptz not null,
    started_at timestamptz,
    -- When a running attempt is stopped, alive or not.
    deadline_at timestamptz,
    worker_id text,
    finished_at timestamptz,
    result jsonb,
    error_code text constraint jobs_error_code_known
        check (error_code in ('internal', 'timeout', 'invalid_predictions', 'input_unavailable')),
    error_message text,
    -- When and how often its bell was rung. Null: it is to be rung.
    dispatched_at timestamptz,
    dispatch_no integer not null default 0,
    constraint jobs_suite_fkey foreign key (suite_id, suite_version) references suites (suite_id, version),
    constraint jobs_running_is_held check ((status = 'running') = (worker_id is not null and deadline_at is not null)),
    constraint jobs_waiting_is_not_started check (status <> 'queued' or started_at is null),
    constraint jobs_result_iff_succeeded check ((status = 'succeeded') = (result is not null)),
    constraint jobs_error_iff_failed check ((status = 'failed') = (error_code is not null)),
    constraint jobs_finished_iff_final check ((status in ('succeeded', 'failed', 'cancelled')) = (finished_at is not null)),
    -- The pages of a listing hang on it.
    constraint jobs_created_at_distinct unique (org_id, created_at)
);
create unique index jobs_idempotency_key on jobs (org_id, idempotency_key) where idempotency_key is not null;
create index jobs_active_idx on jobs (org_id) where status in ('queued', 'running');
create index jobs_queued_idx on jobs (available_at, created_at) where status = 'queued';
create index jobs_running_idx on jobs (deadline_at) where status = 'running';

-- One row per claim: what each try did and when, for the trace.
create table job_attempts (
    org_id text not null,
    job_id text not null constraint job_attempts_job_id_fkey references jobs (id),
    attempt integer not null,
    worker_id text not null,
    started_at timestamptz not null,
    ended_at timestamptz,
    outcome text constraint job_attempts_outcome_known
        check (outcome in ('succeeded', 'failed', 'released', 'lost', 'timeout', 'cancelled')),
    -- [{name, start_us, end_us}], offsets from started_at in microseconds, as the worker measured them.
    phases jsonb,
    constraint job_attempts_pkey primary key (job_id, attempt)
);

-- The processes that score. A process that does not renew its row in time is taken for dead.
create table workers (
    id text constraint workers_pkey primary key,
    started_at timestamptz not null default now(),
    seen_at timestamptz not null
);

-- One row per organization, locked while it submits: submissions of one organization go one after the other.
create table org_submissions (
    org_id text constraint org_submissions_pkey primary key constraint org_submissions_org_id_fkey references orgs (id),
    last_created_at timestamptz not null
);

create table usage (
    org_id text not null constraint usage_org_id_fkey references orgs (id),
    -- First moment of the calendar month, UTC.
    period_start timestamptz not null,
    eval_items bigint not null constraint usage_eval_items_not_negative check (eval_items >= 0),
    constraint usage_pkey primary key (org_id, period_start)
);

-- Why usage is what it is. At most one row per job and kind, so nothing is charged or given back twice.
create table usage_ledger (
    org_id text not null,
    job_id text not null constraint usage_ledger_job_id_fkey references jobs (id),
    kind text not null constraint usage_ledger_kind_known check (kind in ('charge', 'refund')),
    eval_items bigint not null,
    period_start timestamptz not null,
    created_at timestamptz not null default now(),
    constraint usage_ledger_pkey primary key (job_id, kind),
    constraint usage_ledger_usage_fkey foreign key (org_id, period_start) references usage (org_id, period_start)
);

grant select, insert, update on jobs, org_submissions, usage to assay_api;
grant select, insert on usage_ledger to assay_api;
grant select, update (ended_at, outcome) on job_attempts to assay_api;
grant select, delete on workers to assay_api;

grant select, update on jobs to assay_worker;
grant select, insert, update on job_attempts to assay_worker;
grant select, insert, update, delete on workers to assay_worker;
grant select, insert on usage_ledger to assay_worker;
grant select, update on usage to assay_worker;
