-- Prediction jobs: jobs with a model instead of predictions, evals that wait for their output, suites that can be predicted, and
-- uploads of sequences.

-- In the order in which submissions lock them, so that this migration and a submission never wait for each other.
lock table uploads, jobs, usage_ledger, suites in access exclusive mode;

alter table suites
    -- The places of the events and the options in the input of an item. Null: the suite is not about sequences.
    add column sequence_events text,
    add column sequence_options text,
    add constraint suites_options_have_events check (sequence_options is null or sequence_events is not null) not valid;
alter table suites validate constraint suites_options_have_events;
grant select (sequence_events, sequence_options) on suites to assay_api, assay_worker;
-- A worker that predicts a suite reads its items. Items have no answers.
grant select on suite_items to assay_worker;

alter table jobs
    -- A prediction job has a suite only if it predicts the items of one.
    alter column suite_id drop not null,
    alter column suite_version drop not null,
    add column model_id text,
    add column model_version text,
    -- The model as the worker calls it, see `ServedModel` in core/src/model/served_model.rs: a worker has no right to read models,
    -- and a later publication changes nothing. Null after the job has finished and was cleaned up.
    add column served_model jsonb,
    -- See `PredictParameters` in core/src/model/prediction.rs.
    add column parameters jsonb,
    -- The id of the upload that the output becomes. The names of the objects of all attempts begin with it.
    add column output_upload_id text,
    -- An eval that waits for a prediction job has the id of that job, and that job has the id of the eval.
    add column needs_job_id text,
    add column eval_job_id text,
    add constraint jobs_eval_has_suite check (type <> 'eval' or num_nonnulls(suite_id, suite_version) = 2) not valid,
    add constraint jobs_predict_has_model check (
        type <> 'predict'
        or (
            num_nonnulls(model_id, model_version, parameters, output_upload_id) = 4
            and (served_model is not null or finished_at is not null)
        )
    ) not valid;
grant update (served_model) on jobs to assay_api;
grant update (upload_id) on jobs to assay_worker;

alter table uploads drop constraint uploads_kind_known;
alter table uploads add constraint uploads_kind_known check (kind in ('predictions', 'sequences')) not valid;
alter table uploads validate constraint uploads_kind_known;
alter table uploads drop constraint uploads_error_code_known;
alter table uploads add constraint uploads_error_code_known
    check (error_code in ('invalid_predictions', 'invalid_sequences', 'payload_too_large')) not valid;
alter table uploads validate constraint uploads_error_code_known;
-- The output of a prediction job is an upload, whose parts count for the storage of the organization.
grant insert on uploads, upload_parts to assay_worker;
grant select, insert, update (bytes) on org_storage to assay_worker;

alter table usage_ledger add column predict_items bigint not null default 0;
grant update (predict_items) on usage to assay_worker;

-- Workers of the release before fail prediction jobs. While one of them runs, the API accepts none.
alter table workers add column runs_predictions boolean not null default false;

-- Refunds the charges of jobs to the months that they were charged to. Idempotent.
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

-- Starts or finishes the eval that waits for a prediction job, in the transaction that finishes that job, whichever statement does:
-- a worker, a sweep, a cancellation, the deletion of an organization, or a process of the release before.
create function finish_dependent_job() returns trigger language plpgsql as $$
begin
    case new.status
        when 'succeeded' then
            update jobs
            set upload_id = new.output_upload_id, available_at = clock_timestamp()
            where id = new.eval_job_id and needs_job_id = new.id and status = 'queued';
            -- The dispatchers listen to this channel.
            perform pg_notify('assay_jobs', '');
        when 'failed' then
            update jobs
            set
                status = 'failed',
                finished_at = clock_timestamp(),
                error_code = 'input_unavailable',
                error_message = 'The prediction job ' || new.id || ', whose output is the submission, failed.'
            where id = new.eval_job_id and needs_job_id = new.id and status = 'queued';
            -- A failure for lack of input is refunded in this case only: the caller could not avoid it.
            if found then
                perform refund_jobs(array[new.eval_job_id]);
            end if;
        else
            update jobs
            set status = 'cancelled', finished_at = clock_timestamp()
            where id = new.eval_job_id and needs_job_id = new.id and status = 'queued';
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
