-- How people come in: invites, links by e-mail, claimed domains; and the terms that their organizations accept.

create table invites (
    id text constraint invites_pkey primary key,
    org_id text not null constraint invites_org_id_fkey references orgs (id),
    -- In the one form in which addresses are compared.
    email text not null,
    role text not null constraint invites_role_known check (role in ('owner', 'member', 'viewer')),
    invited_by text not null constraint invites_invited_by_fkey references users (id),
    created_at timestamptz not null default now(),
    expires_at timestamptz not null,
    accepted_at timestamptz,
    accepted_by text constraint invites_accepted_by_fkey references users (id),
    revoked_at timestamptz,
    -- When an invite that had expired made room for another one to the same address.
    replaced_at timestamptz,
    constraint invites_accepted_by_somebody check ((accepted_at is null) = (accepted_by is null)),
    constraint invites_end_once check (num_nonnulls(accepted_at, revoked_at, replaced_at) <= 1)
);
create index invites_org_id_idx on invites (org_id, created_at desc);
-- One open invite for an address, also when two are made at once.
create unique index invites_open_key on invites (email, org_id)
    where accepted_at is null and revoked_at is null and replaced_at is null;

create table sign_in_links (
    -- The SHA-256 of the token.
    token_hash bytea constraint sign_in_links_pkey primary key,
    email text not null,
    created_at timestamptz not null default now(),
    expires_at timestamptz not null,
    used_at timestamptz
);
create index sign_in_links_expires_at_idx on sign_in_links (expires_at);

-- When mails went to an address during the last hour, so that nobody can have somebody flooded.
create table mailed (
    email text constraint mailed_pkey primary key,
    sent_at timestamptz[] not null,
    -- From then on the row says nothing any more.
    empty_at timestamptz not null
);
create index mailed_empty_at_idx on mailed (empty_at);

create table domain_claims (
    org_id text not null constraint domain_claims_org_id_fkey references orgs (id),
    -- IDNA, in lower case.
    domain text not null,
    -- What the TXT record must show. It is public.
    token text not null,
    claimed_by text not null constraint domain_claims_claimed_by_fkey references users (id),
    created_at timestamptz not null default now(),
    -- A claim that was verified does not expire.
    expires_at timestamptz not null,
    verified_at timestamptz,
    auto_join boolean not null default false,
    constraint domain_claims_pkey primary key (org_id, domain),
    constraint domain_claims_auto_join_is_verified check (verified_at is not null or not auto_join)
);
-- A claim reserves nothing until it is verified; then the domain belongs to one organization.
create unique index domain_claims_verified_key on domain_claims (domain) where verified_at is not null;

create table terms_acceptances (
    org_id text not null constraint terms_acceptances_org_id_fkey references orgs (id),
    version text not null,
    accepted_at timestamptz not null default now(),
    accepted_by text not null constraint terms_acceptances_accepted_by_fkey references users (id),
    constraint terms_acceptances_pkey primary key (org_id, version)
);

-- Whose membership an owner ended. They come back by an invite, not by the domain of their address.
create table offboardings (
    org_id text not null constraint offboardings_org_id_fkey references orgs (id),
    user_id text not null constraint offboardings_user_id_fkey references users (id),
    created_at timestamptz not null default now(),
    constraint offboardings_pkey primary key (org_id, user_id)
);

grant select, insert, update (accepted_at, accepted_by, revoked_at, replaced_at) on invites to assay_api;
grant select, insert, update (used_at), delete on sign_in_links to assay_api;
grant select, insert, update, delete on mailed, domain_claims to assay_api;
grant select, insert on terms_acceptances to assay_api;
grant select, insert, update (created_at) on offboardings to assay_api;

-- What the operator's commands alone could make so far. Of a person nothing changes: the right to update is what a lock
-- on their row needs.
grant insert, update (name, data_use) on orgs to assay_api;
grant insert, update (email) on users to assay_api;
grant insert on memberships, sessions to assay_api;
