create table jobs (
    id text collate "C" primary key,
    org_id text collate "C" not null references orgs (id),
    type text not null constraint jobs_type_known check (type in ('eval', 'predict')),
    status text not null default 'queued'
        constraint jobs_status_known check (status in ('queued', 'running', 'succeeded', 'failed', 'cancelled')),
    request_id text collate "C" not null,
    label text,
    hfm_sha text not null,
    suite_id text collate "C", -- Null for a prediction job that predicts no suite.
    suite_version text,
    input_key text, -- The submission in the artifact store. Null: it is in stored_predictions or an upload, or was cleaned up.
    n_submitted bigint not null,
    idempotency_key text,
    request_sha256 bytea not null, -- Distinguishes a repeated request from another one with the same idempotency key.
    -- The number of claims. It is the fencing token: an attempt writes only while this is its own number.
    attempts integer not null default 0,
    created_at timestamptz not null,
    requested_at timestamptz not null, -- The start of the request that created the job.
    -- From the client's `traceparent`, or generated.
    trace_id text collate "C" not null,
    parent_span_id text collate "C",
    available_at timestamptz not null, -- The earliest time of the next claim.
    started_at timestamptz,
    deadline_at timestamptz, -- The time at which a running attempt is stopped, even if its worker is alive.
    worker_id text collate "C",
    finished_at timestamptz,
    result jsonb,
    error_code text constraint jobs_error_code_known
        check (error_code in ('internal', 'timeout', 'invalid_predictions', 'input_unavailable', 'suite_removed')),
    error_message text,
    -- The time of the last notification, and their number. Null: a notification is due.
    dispatched_at timestamptz,
    dispatch_no integer not null default 0,
    upload_id text collate "C", -- References uploads, see 0006_uploads.
    scores_key text, -- The per-item scores in the artifact store: a number for each item of the suite, in its order.
    progress double precision not null default 0, -- The scored share of the submission, 0 to 1, while an attempt runs.
    cleaned_up_at timestamptz, -- The time at which cleanup removed what the finished job no longer needs from the artifact store.
    span_id text collate "C", -- The parent span of the attempts, 16 hex digits. No constraint, because validating one would read all jobs.
    final_at timestamptz, -- The time at which the caller chose the job as one whose sealed figures are disclosed.
    model_id text collate "C",
    model_version text,
    -- See core/src/model/models/served_model.rs. Workers must not read models, and later publications change nothing. Null after cleanup.
    served_model jsonb,
    parameters jsonb, -- See `PredictParameters` in core/src/model/jobs/prediction.rs.
    output_upload_id text collate "C", -- The id of the upload that the output becomes, with which the names of all attempts' objects begin.
    -- An eval that waits for a prediction job has its id, and that job has the eval's id.
    needs_job_id text collate "C",
    eval_job_id text collate "C",
    metadata jsonb, -- The caller's pairs of strings.
    -- The number of items charged, or for a prediction job the number of items that take as long as its sequences.
    cost bigint not null default 1,
    -- The estimates at submission, from which the accuracy of estimates is measured.
    first_estimated_end_at timestamptz,
    first_estimated_end_by timestamptz,
    constraint jobs_suite_fkey foreign key (suite_id, suite_version) references suites (suite_id, version),
    constraint jobs_running_is_held check ((status = 'running') = (worker_id is not null and deadline_at is not null)),
    constraint jobs_waiting_is_not_started check (status <> 'queued' or started_at is null),
    constraint jobs_result_iff_succeeded check ((status = 'succeeded') = (result is not null)),
    constraint jobs_error_iff_failed check ((status = 'failed') = (error_code is not null)),
    constraint jobs_finished_iff_final check ((status in ('succeeded', 'failed', 'cancelled')) = (finished_at is not null)),
    constraint jobs_created_at_distinct unique (org_id, created_at), -- The position of a page in a listing.
    constraint jobs_scores_iff_succeeded check (scores_key is null or status = 'succeeded'),
    constraint jobs_has_at_most_one_input check (input_key is null or upload_id is null),
    constraint jobs_eval_has_suite check (type <> 'eval' or num_nonnulls(suite_id, suite_version) = 2),
    constraint jobs_predict_has_model check (
        type <> 'predict'
        or (num_nonnulls(model_id, model_version, parameters, output_upload_id) = 4 and (served_model is not null or finished_at is not null))
    )
);
create unique index jobs_idempotency_key on jobs (org_id, idempotency_key) where idempotency_key is not null;
create index jobs_queued_idx on jobs (available_at, created_at) where status = 'queued';
create index jobs_running_idx on jobs (deadline_at) where status = 'running';
create index jobs_rung_idx on jobs (dispatched_at) where status = 'queued';
create index jobs_upload_idx on jobs (upload_id) where upload_id is not null;
create index jobs_uncleaned_idx on jobs (finished_at) where cleaned_up_at is null and finished_at is not null;
create index jobs_waiting_idx on jobs (org_id, created_at) where status = 'queued' and dispatched_at is null;
create index jobs_status_idx on jobs (org_id, status, created_at);
create index jobs_predict_idx on jobs (org_id, created_at) where type = 'predict';
create index jobs_suite_idx on jobs (org_id, suite_id, status, created_at) where status in ('succeeded', 'failed', 'cancelled');
create index jobs_submitter_idx on jobs (suite_id, org_id, created_at) include (status, suite_version) where type = 'eval';
create index jobs_label_idx on jobs (org_id, label, created_at) where label is not null;
create trigger jobs_refuse_suspended before insert on jobs for each row execute function refuse_suspended_org();
grant select, insert, delete on jobs to assay_api;
grant update (status, input_key, available_at, started_at, deadline_at, worker_id, finished_at, error_code, error_message, dispatched_at,
    dispatch_no, scores_key, cleaned_up_at, final_at, served_model) on jobs to assay_api;
grant select on jobs to assay_worker;
grant update (status, attempts, available_at, started_at, deadline_at, worker_id, finished_at, result, error_code, error_message,
    dispatched_at, upload_id, scores_key, progress) on jobs to assay_worker;

-- Notifies requests that wait for the job. The status of an unfinished job keeps a request that waits for the end from reading the job.
create function notify_job_changed() returns trigger language plpgsql as $$
begin
    perform pg_notify(
        'assay_job_changed',
        case when new.finished_at is null then new.id || ' ' || new.status else new.id end
    );
    return null;
end
$$;
create trigger jobs_notify_changed after update of status on jobs
    for each row when (old.status <> new.status)
    execute function notify_job_changed();

-- A row for each claim, for the trace.
create table job_attempts (
    org_id text collate "C" not null,
    job_id text collate "C" not null references jobs (id),
    attempt integer not null,
    worker_id text collate "C" not null,
    started_at timestamptz not null,
    ended_at timestamptz,
    outcome text constraint job_attempts_outcome_known
        check (outcome in ('succeeded', 'failed', 'released', 'lost', 'timeout', 'cancelled')),
    phases jsonb, -- [{name, start_us, end_us}]: offsets from started_at in microseconds, measured by the worker.
    cost bigint not null default 1,
    primary key (job_id, attempt)
);
create index job_attempts_started_at_idx on job_attempts (started_at);
grant select, delete, update (ended_at, outcome) on job_attempts to assay_api;
grant select, insert, update (ended_at, outcome, phases) on job_attempts to assay_worker;

-- A row for each organization, which serializes its submissions.
create table org_submissions (
    org_id text collate "C" primary key references orgs (id),
    last_created_at timestamptz not null,
    -- At least the number of active jobs while active_max_at = last_created_at. Jobs are counted only if it reaches the plan's limit.
    active_max bigint,
    active_max_at timestamptz
);
grant select, insert, update (last_created_at, active_max, active_max_at) on org_submissions to assay_api;

-- Per-item scores, which expire. Not in jobs, because the index on expires_at would have to be built over all jobs.
create table stored_item_scores (
    org_id text collate "C" not null, -- No foreign key: it would lock the organization's row whenever a job finishes.
    job_id text collate "C" primary key references jobs (id),
    scores_key text,
    expires_at timestamptz not null,
    body bytea, -- Small scores, which cost a job much less here. Null: they are in the artifact store.
    constraint stored_item_scores_have_one_place check (num_nonnulls(scores_key, body) = 1)
);
create index stored_item_scores_expires_at_idx on stored_item_scores (expires_at);
grant select, delete on stored_item_scores to assay_api;
grant insert on stored_item_scores to assay_worker;

-- What has used an allowance, a row for each holder: a submission, a comparison of two jobs, a final mark.
create table suite_disclosures (
    holder text not null,
    org_id text collate "C" not null references orgs (id),
    kind text not null constraint suite_disclosures_kind_known check (kind in ('submission', 'comparison', 'final')),
    job_id text collate "C" not null references jobs (id),
    compared_to text collate "C" not null default '', -- The other job of a comparison, or `baseline:` and a name; otherwise empty.
    suite_id text collate "C" not null,
    suite_version text not null,
    created_at timestamptz not null,
    primary key (job_id, kind, compared_to, holder),
    constraint suite_disclosures_suite_fkey foreign key (suite_id, suite_version) references suites (suite_id, version)
);
create index suite_disclosures_holder_idx on suite_disclosures (holder, suite_id, created_at);
grant select, insert on suite_disclosures to assay_api;
grant select on suite_disclosures to assay_worker;

-- The figures of sealed items. The API reads them only through the view, after the suite has closed.
create table sealed_results (
    org_id text collate "C" not null references orgs (id),
    job_id text collate "C" primary key references jobs (id),
    suite_id text collate "C" not null,
    suite_version text not null,
    n integer not null,
    value double precision not null,
    stderr double precision,
    ci95 double precision[],
    -- For the statement about the sealed figures.
    n_missing integer not null,
    ci_method text,
    n_clusters integer,
    design_effect double precision,
    slices jsonb not null default '[]',
    ceiling jsonb,
    share_of_ceiling jsonb,
    skill jsonb,
    constraint sealed_results_estimate_is_whole check (num_nonnulls(stderr, ci95, ci_method) in (0, 3)),
    constraint sealed_results_suite_fkey foreign key (suite_id, suite_version) references suites (suite_id, version)
);
grant select, insert on sealed_results to assay_worker;

create view closed_sealed_results with (security_barrier) as
select r.org_id, r.job_id, r.n, r.value, r.stderr, r.ci95, r.n_clusters, r.design_effect, r.slices, r.ceiling, r.share_of_ceiling, r.skill
from sealed_results r
join suites s on s.suite_id = r.suite_id and s.version = r.suite_version
join jobs j on j.id = r.job_id
where s.closes_at <= now()
  and j.final_at < s.closes_at;
grant select on closed_sealed_results to assay_api;

create table usage (
    org_id text collate "C" not null references orgs (id),
    period_start timestamptz not null, -- The first moment of the calendar month, UTC.
    eval_items bigint not null constraint usage_eval_items_not_negative check (eval_items >= 0),
    predict_items bigint not null default 0,
    generated_events bigint not null default 0,
    embeddings bigint not null default 0,
    primary key (org_id, period_start)
);
grant select, insert, update (eval_items, predict_items, generated_events, embeddings) on usage to assay_api;
grant select, update (eval_items, predict_items) on usage to assay_worker;

-- The charges and refunds of usage. A job has at most one of each.
create table usage_ledger (
    org_id text collate "C" not null,
    job_id text collate "C" not null references jobs (id),
    kind text not null constraint usage_ledger_kind_known check (kind in ('charge', 'refund')),
    eval_items bigint not null,
    period_start timestamptz not null,
    created_at timestamptz not null default now(),
    predict_items bigint not null default 0,
    primary key (job_id, kind),
    constraint usage_ledger_usage_fkey foreign key (org_id, period_start) references usage (org_id, period_start)
);
create index usage_ledger_day_idx on usage_ledger (org_id, kind, created_at) include (eval_items);
grant select, insert, delete on usage_ledger to assay_api;
grant select, insert on usage_ledger to assay_worker;

-- Admitted requests, added every second by the API processes. Not in usage, whose rows are locked by submissions.
create table usage_requests (
    org_id text collate "C" not null references orgs (id),
    period_start timestamptz not null,
    requests bigint not null constraint usage_requests_not_negative check (requests >= 0),
    primary key (org_id, period_start)
);
grant select, insert, update (requests) on usage_requests to assay_api;

-- Admitted requests by day, UTC. No trigger refuse_suspended_org: one statement adds the requests of many organizations.
create table usage_request_days (
    org_id text collate "C" not null references orgs (id),
    date date not null,
    requests bigint not null constraint usage_request_days_not_negative check (requests >= 0),
    primary key (org_id, date)
);
create index usage_request_days_date_idx on usage_request_days (date);
grant select, insert, delete, update (requests) on usage_request_days to assay_api;

-- The highest percentages of monthly limits for which an organization has an event.
create table usage_thresholds (
    org_id text collate "C" not null references orgs (id),
    period_start timestamptz not null,
    limit_name text not null, -- The name of the limit in the plan.
    percent integer not null,
    max bigint not null, -- The value of the limit at that time.
    primary key (org_id, period_start, limit_name)
);
grant select, insert, delete, update (percent, max) on usage_thresholds to assay_api;

-- Refunds the charges of jobs to the months in which they were charged. Idempotent.
create function refund_jobs(job_ids text[]) returns void language sql as $$
    with refund as (
        insert into usage_ledger (org_id, job_id, kind, eval_items, predict_items, period_start)
        select org_id, job_id, 'refund', eval_items, predict_items, period_start
        from usage_ledger
        where job_id = any(job_ids)
          and kind = 'charge'
        -- A job that was refunded before is not refunded again.
        on conflict do nothing
        returning org_id, period_start, eval_items, predict_items
    )
    update usage u
    set
        eval_items = u.eval_items - r.eval_items,
        predict_items = u.predict_items - r.predict_items
    from (
        select
            org_id,
            period_start,
            sum(eval_items)::bigint as eval_items,
            sum(predict_items)::bigint as predict_items
        from refund
        group by org_id, period_start
    ) r
    where u.org_id = r.org_id
      and u.period_start = r.period_start
$$;

-- Starts or finishes the eval that waits for a prediction job, in the transaction that finishes that job, whichever statement does.
create function finish_dependent_job() returns trigger language plpgsql as $$
begin
    case new.status
        when 'succeeded' then
            update jobs
            set upload_id = new.output_upload_id, available_at = clock_timestamp()
            where org_id = new.org_id and id = new.eval_job_id and needs_job_id = new.id and status = 'queued';
            -- The dispatchers listen to this channel.
            perform pg_notify('assay_jobs', '');
        when 'failed' then
            update jobs
            set
                status = 'failed',
                finished_at = clock_timestamp(),
                error_code = 'input_unavailable',
                error_message = 'The prediction job ' || new.id || ', whose output is the submission, failed.'
            where org_id = new.org_id and id = new.eval_job_id and needs_job_id = new.id and status = 'queued';
            -- A failure for lack of input is refunded in this case only: the caller could not avoid it.
            if found then
                perform refund_jobs(array[new.eval_job_id]);
            end if;
        else
            update jobs
            set status = 'cancelled', finished_at = clock_timestamp()
            where org_id = new.org_id and id = new.eval_job_id and needs_job_id = new.id and status = 'queued';
            if found then
                perform refund_jobs(array[new.eval_job_id]);
            end if;
    end case;
    return null;
end
$$;
create trigger jobs_finish_dependent after update of status on jobs
    for each row when (new.eval_job_id is not null and new.finished_at is not null and old.finished_at is null)
    execute function finish_dependent_job();
