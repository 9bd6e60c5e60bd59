-- Tells whoever waits for a job, or watches it, that its state has changed, whichever statement changed it.
create function notify_job_changed() returns trigger language plpgsql as $$
begin
    perform pg_notify('assay_job_changed', new.id);
    return null;
end
$$;

drop trigger jobs_notify_ended on jobs;
drop function notify_job_ended;

create trigger jobs_notify_changed after update of status on jobs
    for each row when (old.status <> new.status)
    execute function notify_job_changed();
