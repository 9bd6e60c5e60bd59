-- Adds the status to the notification of a changed job unless the job has finished, so that a request that waits for its end
-- does not read it before. Processes of the release before take notifications with a status for those of other jobs.
create or replace function notify_job_changed() returns trigger language plpgsql as $$
begin
    perform pg_notify(
        'assay_job_changed',
        case when new.finished_at is null then new.id || ' ' || new.status else new.id end
    );
    return null;
end
$$;
