-- A running prediction job of a suspended organization finishes, as a running eval does: its output is stored. A deleted
-- organization stores nothing.

-- In the order in which submissions lock them, so that this migration and a submission never wait for each other.
lock table uploads, upload_parts in access exclusive mode;

-- As refuse_suspended_org, except for outputs. Only the output of a job is stored as a ready upload.
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
drop trigger uploads_refuse_suspended on uploads;
create trigger uploads_refuse_suspended before insert on uploads for each row execute function refuse_suspended_upload();
drop trigger upload_parts_refuse_suspended on upload_parts;
create trigger upload_parts_refuse_suspended before insert on upload_parts for each row execute function refuse_suspended_part();

-- As in 0026, with the organization in every statement.
create or replace function finish_dependent_job() returns trigger language plpgsql as $$
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
