-- Programs that wait for an API key, which a user approves in a browser. A login belongs to no organization until it is approved
-- for one. Cleanup deletes it a day after it has expired.
create table device_logins (
    -- The secret of the key is derived from it and the device code.
    id text constraint device_logins_pkey primary key,
    -- The SHA-256 of the codes.
    device_code_hash bytea not null constraint device_logins_device_code_key unique,
    user_code_hash bytea not null constraint device_logins_user_code_key unique,
    -- Shown to the user who decides.
    client_name text not null,
    address text not null,
    created_at timestamptz not null default now(),
    expires_at timestamptz not null,
    polled_at timestamptz,
    denied_at timestamptz,
    -- The approval: whose key the next poll creates.
    approved_at timestamptz,
    approved_by text constraint device_logins_approved_by_fkey references users (id),
    org_id text constraint device_logins_org_id_fkey references orgs (id),
    key_name text,
    -- Null stands for all scopes.
    key_scopes text[],
    key_expires_at timestamptz,
    -- The key, which can be fetched again for a minute.
    key_id text,
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
grant select, insert, delete,
    update (
        polled_at, denied_at, approved_at, approved_by, org_id, key_name, key_scopes, key_expires_at, key_id, granted_at
    )
    on device_logins to assay_api;
