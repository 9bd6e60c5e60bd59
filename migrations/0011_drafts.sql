-- Suites that organizations publish. The API stores the files of a draft and cannot read them back; the checker reads, checks and publishes them.

-- Drafts. The API changes only the columns of its grant, and the trigger below limits the states.
create table drafts (
    id text collate "C" primary key,
    org_id text collate "C" not null references orgs (id),
    -- A draft after expires_at counts as expired, even before the status says so.
    status text not null default 'open' constraint drafts_status_known
        check (status in ('open', 'checking', 'ready', 'in_review', 'failed', 'publishing', 'published', 'expired', 'deleted')),
    suite_id text collate "C" not null,
    version text not null,
    definition_hmac text not null,
    visibility text, -- As suite.toml says: to publish a public suite takes an owner. Null: it says nothing.
    created_by text collate "C" not null, -- A user or a key.
    created_at timestamptz not null default clock_timestamp(),
    expires_at timestamptz not null,
    received_bytes bigint not null default 0, -- All bytes that were sent, also those of parts that were replaced.
    manifest_id text collate "C", -- The row of the escrow that lists the files to check.
    check_requested_at timestamptz,
    publish_requested_at timestamptz,
    approved_at timestamptz, -- The end of the operator's review, for which the draft was in_review.
    idempotency_key text,
    request_hmac bytea,
    -- What the checker writes.
    claim text, -- The check or publication that runs.
    claimed_until timestamptz,
    attempts integer not null default 0,
    report json,
    error_code text constraint drafts_error_code_known
        check (error_code in ('validation_failed', 'quota_exceeded', 'conflict', 'rejected', 'internal')),
    error_message text,
    content_id bigint references suite_contents (id),
    checked_at timestamptz,
    published_at timestamptz,
    was_published boolean,
    removed_at timestamptz, -- The time at which the files and the unpublished content were deleted.
    constraint drafts_idempotency_key unique (org_id, idempotency_key),
    constraint drafts_error_iff_failed check (status = 'deleted' or (status = 'failed') = (error_code is not null))
);
create index drafts_listed_idx on drafts (org_id, created_at, id) where status <> 'deleted';
create index drafts_waiting_idx on drafts (coalesce(publish_requested_at, check_requested_at)) where status in ('checking', 'publishing');
create index drafts_to_remove_idx on drafts (expires_at) where removed_at is null and status <> 'published';
create trigger drafts_refuse_suspended before insert on drafts for each row execute function refuse_suspended_org();

create function limit_draft_change() returns trigger language plpgsql as $$
begin
    if new.status <> old.status
        and not pg_has_role(current_user, 'assay_checker', 'member')
        -- The operator ends reviews, and deletes organizations.
        and not pg_has_role(current_user, (select relowner from pg_class where oid = tg_relid), 'member')
        and (old.status, new.status) not in (
            ('open', 'checking'), ('ready', 'publishing'), ('ready', 'in_review'), ('open', 'deleted'), ('checking', 'deleted'), ('ready', 'deleted'),
            ('in_review', 'deleted'), ('failed', 'deleted'), ('expired', 'deleted')
        )
    then
        raise exception 'the API cannot change a draft from % to %', old.status, new.status;
    end if;
    return new;
end
$$;
create trigger drafts_limit_change before update on drafts for each row execute function limit_draft_change();
grant select, insert on drafts to assay_api;
grant update (status, expires_at, received_bytes, manifest_id, check_requested_at, publish_requested_at) on drafts to assay_api;
grant select, delete on drafts to assay_checker;
grant update (status, expires_at, claim, claimed_until, attempts, report, error_code, error_message, content_id, checked_at, published_at, was_published,
    removed_at) on drafts to assay_checker;

-- The parts that were received completely. They are deleted with the chunks, because their sizes depend on the answers.
create table draft_parts (
    org_id text collate "C" not null,
    draft_id text collate "C" not null references drafts (id) on delete cascade,
    name text collate "C" not null,
    number integer not null constraint draft_parts_number_in_range check (number between 1 and 10000),
    part_id text collate "C" not null,
    bytes bigint not null,
    primary key (draft_id, name, number)
);
grant select, insert, update (part_id, bytes) on draft_parts to assay_api;
grant select, delete on draft_parts to assay_checker;

-- The files of drafts, which the API can only insert. No constraint but the key, and no trigger: their errors quote rows in the log.
create table escrow_chunks (
    org_id text collate "C",
    draft_id text collate "C",
    name text collate "C",
    part_id text collate "C",
    seq integer,
    definition_hmac text collate "C", -- Chunks with another value than that of the draft's definition do not count.
    data bytea,
    primary key (part_id, seq)
);
alter table escrow_chunks alter column data set storage external;
create index escrow_chunks_draft_idx on escrow_chunks (draft_id, name);
grant insert on escrow_chunks to assay_api;
grant select, delete on escrow_chunks to assay_checker;

-- Publishers' requests to retire versions. The API inserts them; the checker executes them, in the order of their time.
create table suite_retirements (
    id text collate "C" primary key,
    org_id text collate "C" not null references orgs (id),
    suite_id text collate "C" not null,
    suite_version text not null,
    key_hash bytea, -- The hash of the opening key, suite and version, which opens the answers. Null: they stay hidden.
    requested_at timestamptz not null default clock_timestamp(),
    outcome text constraint suite_retirements_outcome_known
        check (outcome in ('done', 'wrong_key', 'not_closed', 'board_not_final', 'answers_shared', 'removed', 'failed')),
    attempts integer not null default 0,
    claimed_until timestamptz, -- While it is to come, no other checker executes the request.
    shared_versions text[] not null default '{}', -- The versions that would no longer hide their answers.
    constraint suite_retirements_suite_fkey foreign key (suite_id, suite_version) references suites (suite_id, version)
);
create index suite_retirements_suite_idx on suite_retirements (suite_id, suite_version, requested_at);
create index suite_retirements_waiting_idx on suite_retirements (requested_at) where outcome is null;
grant select, insert on suite_retirements to assay_api;
grant select, update (outcome, attempts, claimed_until, shared_versions) on suite_retirements to assay_checker;
grant insert on opened_answers, opened_retest to assay_checker;
grant update (retired_at, salt, seed, items_sha256, answers_sha256, retest_sha256) on suite_commitments to assay_checker;

-- The checker stores what it has checked, and publishes it.
grant select, insert, delete on suite_contents, suite_items, suite_answers, suite_clusters, suite_hidden_groups, suite_retest, suite_floors,
    suite_catalog, suite_baselines, suite_baseline_scores, suite_openings to assay_checker;
grant select, insert on suites, suite_commitments, boards, suite_owners to assay_checker;
grant update (closes_at) on boards to assay_checker;
grant update (visibility, access, metadata, approved_at, updated_at) on suite_owners to assay_checker;
grant insert on shared_events, events to assay_checker;
grant usage on sequence events_position_seq to assay_checker;
grant select on orgs, plan_limits, suite_grants to assay_checker;
grant select (org_id, domain, verified_at) on domain_claims to assay_checker; -- Whose grant of a private suite is for a domain.
