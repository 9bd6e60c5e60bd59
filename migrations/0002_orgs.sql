create table plans (
    plan text constraint plans_pkey primary key,
    requests_per_minute integer not null constraint plans_requests_positive check (requests_per_minute > 0),
    eval_items_per_month bigint not null constraint plans_eval_items_not_negative check (eval_items_per_month >= 0),
    concurrent_jobs integer not null constraint plans_jobs_positive check (concurrent_jobs > 0),
    upload_bytes_max bigint not null constraint plans_upload_positive check (upload_bytes_max > 0)
);

insert into plans (plan, requests_per_minute, eval_items_per_month, concurrent_jobs, upload_bytes_max) values
    ('free', 60, 20000, 2, 100 * 1024 * 1024::bigint),
    ('dev', 300, 200000, 10, 1024 * 1024 * 1024::bigint),
    ('team', 1000, 2000000, 50, 5 * 1024 * 1024 * 1024::bigint);

create table orgs (
    id text constraint orgs_pkey primary key,
    name text not null,
    plan text not null constraint orgs_plan_fkey references plans (plan),
    data_use text not null default 'scoring_only'
        constraint orgs_data_use_known check (data_use in ('scoring_only', 'aggregate_research', 'model_improvement')),
    created_at timestamptz not null default now()
);

create table users (
    id text constraint users_pkey primary key,
    -- Trimmed and in lower case: the one form in which addresses are compared.
    email text not null constraint users_email_key unique,
    created_at timestamptz not null default now()
);

create table memberships (
    org_id text not null constraint memberships_org_id_fkey references orgs (id),
    user_id text not null constraint memberships_user_id_fkey references users (id),
    role text not null constraint memberships_role_known check (role in ('owner', 'member', 'viewer')),
    created_at timestamptz not null default now(),
    constraint memberships_pkey primary key (org_id, user_id)
);
create index memberships_user_id_idx on memberships (user_id);

create table sessions (
    id text constraint sessions_pkey primary key,
    user_id text not null constraint sessions_user_id_fkey references users (id),
    -- The SHA-256 of the token.
    token_hash bytea not null constraint sessions_token_hash_key unique,
    -- The organization last chosen by the header X-Org-Id.
    org_id text constraint sessions_org_id_fkey references orgs (id),
    created_at timestamptz not null default now(),
    -- To about a minute; a session that was idle for 7 days is over.
    last_used_at timestamptz not null default now(),
    expires_at timestamptz not null,
    ended_at timestamptz
);

create table api_keys (
    id text constraint api_keys_pkey primary key,
    org_id text not null constraint api_keys_org_id_fkey references orgs (id),
    name text not null,
    prefix text not null,
    -- The SHA-256 of the key.
    secret_hash bytea not null constraint api_keys_secret_hash_key unique,
    created_by text not null constraint api_keys_created_by_fkey references users (id),
    created_at timestamptz not null default now(),
    last_used_at timestamptz,
    revoked_at timestamptz
);
create index api_keys_org_id_idx on api_keys (org_id, created_at desc);

grant select on plans, orgs, users, memberships to assay_api;
grant select, update (last_used_at, org_id, ended_at) on sessions to assay_api;
grant select, insert, update (last_used_at, revoked_at) on api_keys to assay_api;
