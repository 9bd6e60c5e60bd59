-- Small predictions are stored with their job's record instead of in the artifact store, which costs a job much less.
alter table stored_predictions
    -- The predictions of an inline submission. Null if they are in the artifact store.
    add column body bytea;
-- Predictions are read once and live for a minute: compressing them costs more than it saves.
alter table stored_predictions alter column body set storage external;
grant select (job_id, body) on stored_predictions to assay_worker;

-- A job whose predictions are in the artifact store or an upload names one of them. Others have their predictions in
-- stored_predictions.
alter table jobs drop constraint jobs_active_has_input;
alter table jobs add constraint jobs_has_at_most_one_input check (input_key is null or upload_id is null) not valid;
alter table jobs validate constraint jobs_has_at_most_one_input;

-- Workers of the release before fail jobs whose predictions are in stored_predictions. While one of them runs, the API stores all
-- predictions in the artifact store.
alter table workers add column reads_stored_predictions boolean not null default false;
grant select on workers to assay_api;

-- Predictions that are inserted with their job need no check of their own: the job's insert is checked.
drop trigger stored_predictions_refuse_suspended on stored_predictions;
create trigger stored_predictions_refuse_suspended before insert on stored_predictions
    for each row when (new.accepted_at is null) execute function refuse_suspended_org();

-- No statement reads it.
drop index jobs_submitted_idx;

-- The number of active jobs of an organization is at most active_max, if active_max_at is still the time of its last submission.
-- Submissions of the release before do not change them. A submission counts the jobs only if active_max reaches the plan's limit.
alter table org_submissions add column active_max bigint, add column active_max_at timestamptz;
grant update (active_max, active_max_at) on org_submissions to assay_api;
