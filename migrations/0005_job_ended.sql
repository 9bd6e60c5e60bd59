-- Tells whoever waits for a job that it has ended, whichever statement ended it.
create function notify_job_ended() returns trigger language plpgsql as $$
begin
    perform pg_notify('assay_job_ended', new.id);
    return null;
end
$$;

create trigger jobs_notify_ended after update of status on jobs
    for each row when (new.status in ('succeeded', 'failed', 'cancelled') and old.status <> new.status)
    execute function notify_job_ended();
