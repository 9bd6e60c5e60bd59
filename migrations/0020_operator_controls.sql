-- Suspension and deletion of organizations, erasure of users, repeated checks of verified domains, and narrower rights.

-- In the order in which transactions of the API lock them, so that this migration and a request rarely wait for each other.
lock table jobs, uploads, upload_parts, api_keys, invites in share row exclusive mode;
lock table domain_claims, orgs in access exclusive mode;
lock table memberships in share row exclusive mode;

alter table orgs
    -- While it is set, every credential of the organization is refused and its queued jobs wait.
    add column suspended_at timestamptz,
    add column deleted_at timestamptz,
    -- When all of its objects were removed from the artifact store.
    add column removed_at timestamptz,
    add constraint orgs_deleted_is_suspended check (deleted_at is null or suspended_at is not null),
    add constraint orgs_removed_is_deleted check (removed_at is null or deleted_at is not null);
create index orgs_suspended_idx on orgs (id) where suspended_at is not null;
create index orgs_to_remove_idx on orgs (deleted_at) where deleted_at is not null and removed_at is null;
grant update (removed_at) on orgs to assay_api;
-- Workers do not claim jobs of suspended organizations.
grant select (id, suspended_at) on orgs to assay_worker;

-- Rejects new rows of a suspended organization. A request whose credential was checked just before the suspension would store
-- them otherwise. The lock, which is the one of the foreign key, makes the suspension wait for transactions that have passed this
-- check.
create function refuse_suspended_org() returns trigger language plpgsql security definer set search_path = public, pg_temp as $$
declare
    is_suspended boolean;
begin
    select suspended_at is not null into is_suspended from orgs where id = new.org_id for key share;
    if is_suspended then
        raise exception using errcode = 'AY001', message = 'the organization is suspended';
    end if;
    return new;
end
$$;
create trigger jobs_refuse_suspended before insert on jobs for each row execute function refuse_suspended_org();
create trigger uploads_refuse_suspended before insert on uploads for each row execute function refuse_suspended_org();
create trigger upload_parts_refuse_suspended before insert on upload_parts for each row execute function refuse_suspended_org();
create trigger api_keys_refuse_suspended before insert on api_keys for each row execute function refuse_suspended_org();
create trigger invites_refuse_suspended before insert on invites for each row execute function refuse_suspended_org();
create trigger domain_claims_refuse_suspended before insert on domain_claims for each row execute function refuse_suspended_org();

-- Skips memberships of a deleted organization and of an erased user: a sign-in that joins an organization while it is deleted
-- succeeds without the membership.
create function skip_deleted_membership() returns trigger language plpgsql security definer set search_path = public, pg_temp as $$
begin
    perform from orgs where id = new.org_id and deleted_at is null for key share;
    if not found then
        return null;
    end if;
    -- The address of an erased user, which is no address. No column, because adding one would lock out every sign-in.
    perform from users where id = new.user_id and email not like 'erased %' for key share;
    if not found then
        return null;
    end if;
    return new;
end
$$;
create trigger memberships_skip_deleted before insert on memberships for each row execute function skip_deleted_membership();

-- The operator's commands. A command that did not finish has no outcome. Neither addresses nor secrets are stored.
create table operator_log (
    id bigint generated always as identity constraint operator_log_pkey primary key,
    started_at timestamptz not null default clock_timestamp(),
    -- The login role.
    run_by text not null default current_user,
    command text not null,
    -- The id of what the command acts on, where it names one.
    target text,
    finished_at timestamptz,
    outcome text constraint operator_log_outcome_known check (outcome in ('done', 'refused')),
    constraint operator_log_finished_has_outcome check ((finished_at is null) = (outcome is null))
);

-- The record of a verified domain is looked up again and again.
alter table domain_claims
    -- When to look it up next. Null: a while after the verification. A process that looks it up now has moved it by a minute.
    add column check_at timestamptz,
    -- How often in a row it was not there.
    add column misses integer not null default 0 constraint domain_claims_misses_not_negative check (misses >= 0);

-- Each role may update the columns that its statements update, and no others. The statements of the release before update no
-- others either. It still updates users.email, which the release after this one can revoke: this one does not need it.
revoke update on jobs, uploads, upload_parts, usage, usage_requests, org_submissions, domain_claims from assay_api;
grant update (status, started_at, deadline_at, worker_id, dispatched_at, dispatch_no, available_at, finished_at, error_code, error_message,
              input_key, scores_key, tidied_at, final_at) on jobs to assay_api;
grant update (status, bytes, n_items, digest, completed_at, expires_at, error_code, error_message, failed_at, deleted_at, removed_at)
    on uploads to assay_api;
grant update (object_key, bytes, sha256, received_at) on upload_parts to assay_api;
grant update (eval_items) on usage to assay_api;
grant update (requests) on usage_requests to assay_api;
grant update (last_created_at) on org_submissions to assay_api;
grant update (token, claimed_by, created_at, expires_at, verified_at, auto_join, check_at, misses) on domain_claims to assay_api;

revoke update on jobs, job_attempts, usage, workers from assay_worker;
grant update (status, attempts, started_at, deadline_at, worker_id, dispatched_at, available_at, finished_at, progress, result, scores_key,
              error_code, error_message) on jobs to assay_worker;
grant update (ended_at, outcome, phases) on job_attempts to assay_worker;
grant update (eval_items) on usage to assay_worker;
grant update (seen_at) on workers to assay_worker;
