create table plans (
    plan text primary key,
    requests_per_minute integer not null constraint plans_requests_positive check (requests_per_minute > 0),
    eval_items_per_month bigint not null constraint plans_eval_items_not_negative check (eval_items_per_month >= 0),
    concurrent_jobs integer not null constraint plans_jobs_positive check (concurrent_jobs > 0),
    upload_bytes_max bigint not null constraint plans_upload_positive check (upload_bytes_max > 0),
    storage_bytes bigint constraint plans_storage_positive check (storage_bytes > 0), -- Null: ten times upload_bytes_max.
    -- Units per calendar month. Null: as many as eval_items_per_month.
    predict_items_per_month bigint,
    generated_events_per_month bigint,
    embeddings_per_month bigint,
    -- What an organization can publish.
    suites bigint not null default 3 constraint plans_suites_not_negative check (suites >= 0),
    suite_items bigint not null default 20000 constraint plans_suite_items_in_range check (suite_items between 0 and 10000000),
    suite_bytes bigint not null default 104857600 constraint plans_suite_bytes_not_negative check (suite_bytes >= 0),
    queue_weight integer not null default 1, -- The organization's share of the workers while others wait, by the cost of its jobs.
    constraint plans_queue_weight_in_range check (queue_weight between 1 and 1000)
);
insert into plans (
    plan, requests_per_minute, eval_items_per_month, concurrent_jobs, upload_bytes_max, queue_weight, suites, suite_items, suite_bytes
) values
    ('free', 60, 20000, 2, 100 * 1024 * 1024::bigint, 1, 3, 20000, 100 * 1024 * 1024::bigint),
    ('dev', 300, 200000, 10, 1024 * 1024 * 1024::bigint, 2, 20, 1000000, 2 * 1024 * 1024 * 1024::bigint),
    ('team', 1000, 2000000, 50, 5 * 1024 * 1024 * 1024::bigint, 4, 100, 10000000, 20 * 1024 * 1024 * 1024::bigint);

-- The limits of each plan. A limit that a plan does not set follows another one: see PLAN_LIMITS in core/src/model/people/org.rs.
create view plan_limits as
select
    plan, requests_per_minute, eval_items_per_month, concurrent_jobs, upload_bytes_max, queue_weight,
    coalesce(storage_bytes, upload_bytes_max * 10) as storage_bytes,
    coalesce(predict_items_per_month, eval_items_per_month) as predict_items_per_month,
    coalesce(generated_events_per_month, eval_items_per_month) as generated_events_per_month,
    coalesce(embeddings_per_month, eval_items_per_month) as embeddings_per_month,
    suites, suite_items, suite_bytes
from plans;
grant select on plan_limits to assay_api;

create table users (
    id text collate "C" primary key,
    -- Trimmed and in lower case, the only form in which addresses are compared. 'erased …' after the erasure of the user.
    email text not null unique,
    created_at timestamptz not null default now()
);
-- The API never updates users. It needs the right to lock their rows.
grant select, insert, update (email) on users to assay_api;

create table orgs (
    id text collate "C" primary key,
    name text not null,
    plan text not null references plans (plan),
    data_use text not null default 'scoring_only'
        constraint orgs_data_use_known check (data_use in ('scoring_only', 'aggregate_research', 'model_improvement')),
    created_at timestamptz not null default now(),
    -- Stays the same when ownership changes. Null if the operator created the organization.
    created_by text collate "C" references users (id),
    suspended_at timestamptz, -- While it is set, the organization's credentials are rejected and its queued jobs wait.
    deleted_at timestamptz,
    -- The beginning of the ids of the organization's suites. It never changes and is never given out again: the row of a deleted
    -- organization stays.
    handle text collate "C" unique constraint orgs_handle_form check (handle ~ '^[a-z][a-z0-9-]{1,23}$' and handle !~ '--'),
    removed_at timestamptz, -- The time at which all objects of a deleted organization were removed from the artifact store.
    constraint orgs_deleted_is_suspended check (deleted_at is null or suspended_at is not null),
    constraint orgs_removed_is_deleted check (removed_at is null or deleted_at is not null)
);
create index orgs_created_by_idx on orgs (created_by);
create index orgs_suspended_idx on orgs (id) where suspended_at is not null;
create index orgs_to_remove_idx on orgs (deleted_at) where deleted_at is not null and removed_at is null;
grant select, insert, update (name, data_use, handle, removed_at) on orgs to assay_api;
-- Workers do not claim jobs of suspended organizations.
grant select (id, suspended_at) on orgs to assay_worker;

-- Rejects new rows of a suspended organization, whose credential may have been checked just before. The lock, as of a foreign key, makes
-- the suspension wait for transactions that have passed this check.
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

-- Rejects a change of a handle that is set, by every role: the ids of suites contain it.
create function refuse_changed_handle() returns trigger language plpgsql as $$
begin
    raise exception 'a handle never changes';
end
$$;
create trigger orgs_refuse_changed_handle before update of handle on orgs
    for each row when (old.handle is not null and new.handle is distinct from old.handle) execute function refuse_changed_handle();

create table memberships (
    org_id text collate "C" not null references orgs (id),
    user_id text collate "C" not null references users (id),
    role text not null constraint memberships_role_known check (role in ('owner', 'member', 'viewer')),
    created_at timestamptz not null default now(),
    -- Joined by invite of an organization that does not own the address's domain. Alone, it never decides for which one a session acts.
    by_invite boolean not null default false,
    primary key (org_id, user_id)
);
create index memberships_user_id_idx on memberships (user_id);
grant select, insert, delete, update (role) on memberships to assay_api;

-- Skips memberships of deleted organizations and erased users: a sign-in during the deletion succeeds without the membership.
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

create table sessions (
    id text collate "C" primary key,
    user_id text collate "C" not null references users (id),
    token_hash bytea not null unique, -- SHA-256.
    org_id text collate "C" references orgs (id), -- The organization last chosen by the header `X-Org-Id`.
    created_at timestamptz not null default now(),
    last_used_at timestamptz not null default now(), -- Accurate to about a minute. A session expires after 7 days without use.
    expires_at timestamptz not null,
    ended_at timestamptz,
    -- The client that used the session last. Null until a session that the operator created is used.
    address text,
    user_agent text
);
create index sessions_user_id_idx on sessions (user_id);
create index sessions_expires_at_idx on sessions (expires_at);
create index sessions_ended_at_idx on sessions (ended_at) where ended_at is not null;
grant select, insert, delete, update (org_id, last_used_at, ended_at, address, user_agent) on sessions to assay_api;

create table api_keys (
    id text collate "C" primary key,
    org_id text collate "C" not null references orgs (id),
    name text not null,
    prefix text not null,
    secret_hash bytea not null unique, -- SHA-256.
    created_by text collate "C" not null references users (id),
    created_at timestamptz not null default now(),
    last_used_at timestamptz,
    revoked_at timestamptz,
    scopes text[], -- Null: all scopes, including scopes that a later release adds.
    expires_at timestamptz,
    last_used_address text, -- The address of the client that used the key last.
    -- The keys before and after a rotation. No foreign keys, because cleanup deletes rows of keys whose ids are still named.
    replaces text collate "C",
    replaced_by text collate "C",
    expiry_notice_days integer -- The number of days before the expiry for which the last notice was sent.
);
create index api_keys_org_id_idx on api_keys (org_id, created_at desc);
create index api_keys_revoked_at_idx on api_keys (revoked_at) where revoked_at is not null;
create index api_keys_live_idx on api_keys (org_id) where revoked_at is null;
create index api_keys_expires_at_idx on api_keys (expires_at) where expires_at is not null;
create trigger api_keys_refuse_suspended before insert on api_keys for each row execute function refuse_suspended_org();
grant select, insert, delete on api_keys to assay_api;
grant update (name, last_used_at, revoked_at, scopes, expires_at, last_used_address, replaced_by, expiry_notice_days)
    on api_keys to assay_api;

-- Programs that wait for an API key, which a user approves in a browser. Cleanup deletes a login a day after its expiry.
create table device_logins (
    id text collate "C" primary key, -- The key's secret is derived from it and the device code.
    -- SHA-256.
    device_code_hash bytea not null constraint device_logins_device_code_key unique,
    user_code_hash bytea not null constraint device_logins_user_code_key unique,
    client_name text not null, -- Shown to the user who decides.
    address text not null,
    created_at timestamptz not null default now(),
    expires_at timestamptz not null,
    polled_at timestamptz,
    denied_at timestamptz,
    -- The approval, which names the key that the next poll creates. key_scopes is null for all scopes.
    approved_at timestamptz,
    approved_by text collate "C" references users (id),
    org_id text collate "C" references orgs (id),
    key_name text,
    key_scopes text[],
    key_expires_at timestamptz,
    -- The key, which can be fetched again for a minute.
    key_id text collate "C",
    granted_at timestamptz,
    constraint device_logins_approval_is_whole check (num_nonnulls(approved_at, approved_by, org_id, key_name) in (0, 4)),
    constraint device_logins_grant_is_whole check ((key_id is null) = (granted_at is null)),
    constraint device_logins_granted_is_approved check (key_id is null or (approved_at is not null and denied_at is null))
);
create index device_logins_expires_at_idx on device_logins (expires_at);
create index device_logins_org_id_idx on device_logins (org_id) where org_id is not null;
create index device_logins_approved_by_idx on device_logins (approved_by) where approved_by is not null;
create trigger device_logins_refuse_suspended before update of org_id on device_logins
    for each row when (new.org_id is not null) execute function refuse_suspended_org();
grant select, insert, delete on device_logins to assay_api;
grant update (polled_at, denied_at, approved_at, approved_by, org_id, key_name, key_scopes, key_expires_at, key_id, granted_at)
    on device_logins to assay_api;

-- Accounts of OpenID Connect providers. A subject is never reassigned (Core 1.0, section 5.7): it outlives a change of the address.
create table identities (
    issuer text not null,
    subject text not null,
    user_id text collate "C" not null references users (id),
    created_at timestamptz not null default now(),
    used_at timestamptz not null default now(),
    primary key (issuer, subject)
);
create index identities_user_id_idx on identities (user_id);
grant select, insert, delete, update (used_at) on identities to assay_api;

create table invites (
    id text collate "C" primary key,
    org_id text collate "C" not null references orgs (id),
    email text not null, -- As in users.
    role text not null constraint invites_role_known check (role in ('owner', 'member', 'viewer')),
    invited_by text collate "C" not null references users (id),
    created_at timestamptz not null default now(),
    expires_at timestamptz not null,
    accepted_at timestamptz,
    accepted_by text collate "C" references users (id),
    revoked_at timestamptz,
    replaced_at timestamptz, -- The time at which the expired invite was replaced by a new one to the same address.
    constraint invites_accepted_by_somebody check ((accepted_at is null) = (accepted_by is null)),
    constraint invites_end_once check (num_nonnulls(accepted_at, revoked_at, replaced_at) <= 1)
);
create index invites_org_id_idx on invites (org_id, created_at desc);
-- An address has at most one open invite of an organization, even if two are created concurrently.
create unique index invites_open_key on invites (email, org_id) where accepted_at is null and revoked_at is null and replaced_at is null;
create index invites_ended_at_idx on invites (coalesce(accepted_at, revoked_at, replaced_at, expires_at));
create index invites_open_idx on invites (org_id, expires_at) where accepted_at is null and revoked_at is null and replaced_at is null;
create trigger invites_refuse_suspended before insert on invites for each row execute function refuse_suspended_org();
grant select, insert, delete, update (accepted_at, accepted_by, revoked_at, replaced_at) on invites to assay_api;

create table sign_in_links (
    token_hash bytea primary key, -- SHA-256.
    email text not null,
    created_at timestamptz not null default now(),
    expires_at timestamptz not null,
    used_at timestamptz,
    -- The client that requested the link, which is shown because a user may open the link on another device.
    address text,
    user_agent text,
    mailbox text -- The address without the part after `+`. All addresses of a mailbox share the limits of sign-in emails.
);
create index sign_in_links_expires_at_idx on sign_in_links (expires_at);
create index sign_in_links_live_idx on sign_in_links (email) where used_at is null;
create index sign_in_links_mailbox_idx on sign_in_links (mailbox) where used_at is null;
grant select, insert, delete, update (used_at) on sign_in_links to assay_api;

-- The emails of the last hour that other users can cause, such as invites, by mailbox, to limit them.
create table mailed (
    email text primary key,
    sent_at timestamptz[] not null,
    empty_at timestamptz not null -- The time at which the last email no longer counts.
);
create index mailed_empty_at_idx on mailed (empty_at);
grant select, insert, update, delete on mailed to assay_api;

-- The emails about an organization's jobs and usage that a user has turned on.
create table mail_preferences (
    user_id text collate "C" primary key references users (id),
    job_mails text not null constraint mail_preferences_job_mails_known check (job_mails in ('none', 'failed', 'finished')),
    thresholds boolean not null,
    reported_before xid8 not null, -- Events of earlier transactions are reported, or older than the choice.
    next_at timestamptz not null -- The time of the next search for events.
);
create index mail_preferences_next_at_idx on mail_preferences (next_at) where job_mails <> 'none' or thresholds;
grant select, insert, update (job_mails, thresholds, reported_before, next_at) on mail_preferences to assay_api;

create table domain_claims (
    org_id text collate "C" not null references orgs (id),
    domain text not null, -- IDNA, in lower case.
    token text not null, -- The public content of the TXT record.
    claimed_by text collate "C" not null references users (id),
    created_at timestamptz not null default now(),
    expires_at timestamptz not null, -- A verified claim does not expire.
    verified_at timestamptz,
    auto_join boolean not null default false,
    -- The next lookup of a verified record, moved by a minute before each lookup. Null: some days after verified_at.
    check_at timestamptz,
    -- The number of consecutive lookups that did not find the record.
    misses integer not null default 0 constraint domain_claims_misses_not_negative check (misses >= 0),
    primary key (org_id, domain),
    constraint domain_claims_auto_join_is_verified check (verified_at is not null or not auto_join)
);
-- A claim reserves the domain only when it is verified.
create unique index domain_claims_verified_key on domain_claims (domain) where verified_at is not null;
create index domain_claims_expires_at_idx on domain_claims (expires_at) where verified_at is null;
create trigger domain_claims_refuse_suspended before insert on domain_claims for each row execute function refuse_suspended_org();
grant select, insert, delete on domain_claims to assay_api;
grant update (token, claimed_by, created_at, expires_at, verified_at, auto_join, check_at, misses) on domain_claims to assay_api;

-- Users whose membership an owner ended. They join again by an invite, not by the domain of their address.
create table offboardings (
    org_id text collate "C" not null references orgs (id),
    user_id text collate "C" not null references users (id),
    created_at timestamptz not null default now(),
    primary key (org_id, user_id)
);
grant select, insert, update (created_at) on offboardings to assay_api;

create table terms_acceptances (
    org_id text collate "C" not null references orgs (id),
    version text not null,
    accepted_at timestamptz not null default now(),
    accepted_by text collate "C" not null references users (id),
    primary key (org_id, version)
);
grant select, insert on terms_acceptances to assay_api;

-- The changes in an organization. An entry is stored in the transaction of its change.
create table audit_entries (
    org_id text collate "C" not null references orgs (id),
    id text collate "C" not null, -- Begins with the time: its byte order is the order of the log.
    type text not null,
    created_at timestamptz not null default clock_timestamp(),
    actor_type text not null constraint audit_entries_actor_type_known check (actor_type in ('session', 'api_key', 'publisher', 'operator', 'platform')),
    user_id text collate "C",
    email text, -- The user's address at that time.
    key_id text collate "C",
    request_id text collate "C",
    address text,
    target_type text not null,
    target_id text collate "C" not null,
    changes jsonb, -- {"field": {"before": …, "after": …}}
    primary key (org_id, id)
);
create index audit_entries_created_at_idx on audit_entries (created_at);
create index audit_entries_target_id_idx on audit_entries (org_id, target_id, id);
create index audit_entries_user_id_idx on audit_entries (user_id);
-- No other right: an attacker who controls the API cannot change the record.
grant select, insert on audit_entries to assay_api;

-- Deletes entries older than this number of days, at least 400, and returns their number. The API has no right to delete others.
create function delete_old_audit_entries(days integer, entries bigint) returns bigint
language sql security definer set search_path = public, pg_temp as $$
    with old as (
        select org_id, id
        from audit_entries
        where created_at < now() - greatest(days, 400) * interval '1 day'
        order by created_at
        limit entries
        for update skip locked
    ), gone as (
        delete from audit_entries a
        using old o
        where a.org_id = o.org_id
          and a.id = o.id
        returning 1
    )
    select count(*) from gone
$$;
revoke execute on function delete_old_audit_entries from public;
grant execute on function delete_old_audit_entries to assay_api;

-- The operator's commands. A command that did not finish has no outcome. No addresses or secrets are stored.
create table operator_log (
    id bigint generated always as identity primary key,
    started_at timestamptz not null default clock_timestamp(),
    run_by text not null default current_user, -- The login role.
    command text not null,
    target text collate "C", -- The id that the command names, if it names one.
    finished_at timestamptz,
    outcome text constraint operator_log_outcome_known check (outcome in ('done', 'refused')),
    constraint operator_log_finished_has_outcome check ((finished_at is null) = (outcome is null))
);
