-- The accounts of OpenID Connect providers with which users sign in. A provider never gives the subject of one account to another
-- (OpenID Connect Core 1.0, section 5.7), so it identifies the user even after the address has changed.
create table identities (
    issuer text not null,
    subject text not null,
    user_id text not null constraint identities_user_id_fkey references users (id),
    created_at timestamptz not null default now(),
    used_at timestamptz not null default now(),
    constraint identities_pkey primary key (issuer, subject)
);
create index identities_user_id_idx on identities (user_id);
grant select, insert, update (used_at), delete on identities to assay_api;
