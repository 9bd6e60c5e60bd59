-- Score receipts: statements that workers write and `assay-api log` signs, the public log of their hashes, and the commitments of
-- suites.

-- The role of `assay-api log`, which holds the signing keys. It reads statements and writes signatures and the log, and nothing
-- else. As the roles of 0001, it may exist already. An API process that has the keys does the same with its own role; without
-- them it can write signatures, but none that verify.
do $$
begin
    if not exists (select from pg_roles where rolname = 'assay_log') then
        create role assay_log nologin;
    end if;
exception when duplicate_object or unique_violation then
    null;
end
$$;
grant usage on schema public to assay_log;
grant select on _sqlx_migrations to assay_log;

-- The public commitment of a suite's version to its items and answers. The last four columns open it when the version retires.
create table suite_commitments (
    suite_id text not null,
    suite_version text not null,
    commitment bytea not null constraint suite_commitments_sha256 check (length(commitment) = 32),
    committed_at timestamptz not null,
    -- The bytes of the statement that is signed.
    payload bytea not null,
    kid text,
    -- The Ed25519 signature of the JSON Web Signature, whose header follows from `kid`.
    signature bytea constraint suite_commitments_signature_length check (length(signature) = 64),
    log_index bigint,
    retired_at timestamptz,
    salt bytea,
    seed bytea,
    items_sha256 bytea,
    answers_sha256 bytea,
    -- Set when all figures that the close of the version disclosed have receipts.
    close_stated boolean not null default false,
    constraint suite_commitments_pkey primary key (suite_id, suite_version),
    constraint suite_commitments_suite_fkey foreign key (suite_id, suite_version) references suites (suite_id, version),
    constraint suite_commitments_signed check (num_nonnulls(kid, signature, log_index) in (0, 3)),
    constraint suite_commitments_opened check (
        num_nonnulls(retired_at, salt, items_sha256, answers_sha256) in (0, 4) and (seed is null or retired_at is not null)
    )
);
create index suite_commitments_pending_idx on suite_commitments (committed_at) where log_index is null;
grant select, update (kid, signature, log_index) on suite_commitments to assay_api;
grant select, update (close_stated) on suite_commitments to assay_worker;
grant select (suite_id, suite_version, committed_at, payload, kid, signature, log_index), update (kid, signature, log_index)
    on suite_commitments to assay_log;

-- What a commitment hides until the version retires. Like the answers, it is readable by the operator; no process needs it.
create table suite_openings (
    suite_id text not null,
    suite_version text not null,
    salt bytea not null,
    seed bytea,
    items_sha256 bytea not null,
    answers_sha256 bytea not null,
    constraint suite_openings_pkey primary key (suite_id, suite_version),
    constraint suite_openings_commitment_fkey foreign key (suite_id, suite_version)
        references suite_commitments (suite_id, suite_version)
);

-- The answers of retired versions.
create table opened_answers (
    suite_id text not null,
    suite_version text not null,
    ordinal integer not null,
    item_id text not null,
    answer json not null,
    constraint opened_answers_pkey primary key (suite_id, suite_version, ordinal),
    constraint opened_answers_commitment_fkey foreign key (suite_id, suite_version)
        references suite_commitments (suite_id, suite_version)
);
grant select on opened_answers to assay_api;

-- Statements about the figures of jobs. A receipt outlives its job: people verify it years later.
create table receipts (
    id text constraint receipts_pkey primary key,
    org_id text not null constraint receipts_org_id_fkey references orgs (id),
    job_id text not null,
    suite_id text not null,
    suite_version text not null,
    figures text not null constraint receipts_figures_known check (figures in ('all', 'open', 'sealed', 'board')),
    -- The bytes of the statement that is signed.
    payload bytea not null,
    -- Parts of the statement that the later statements about the job repeat.
    predictions_sha256 bytea not null,
    submission_number integer not null,
    issued_at timestamptz not null,
    kid text,
    signature bytea constraint receipts_signature_length check (length(signature) = 64),
    log_index bigint,
    constraint receipts_job_id_key unique (job_id, figures),
    constraint receipts_commitment_fkey foreign key (suite_id, suite_version)
        references suite_commitments (suite_id, suite_version),
    constraint receipts_signed check (num_nonnulls(kid, signature, log_index) in (0, 3))
);
create index receipts_org_id_idx on receipts (org_id);
create index receipts_pending_idx on receipts (issued_at) where log_index is null;
grant select, update (kid, signature, log_index) on receipts to assay_api;
grant insert (id, org_id, job_id, suite_id, suite_version, figures, payload, predictions_sha256, submission_number, issued_at),
    select (job_id, figures, predictions_sha256, submission_number)
    on receipts to assay_worker;
grant select (id, suite_id, suite_version, payload, issued_at, kid, signature, log_index), update (kid, signature, log_index)
    on receipts to assay_log;

-- Rejects a change of a statement, and of a signature and an index that are set, by every role.
create function refuse_changed_statement() returns trigger language plpgsql as $$
begin
    if old.payload <> new.payload
        or (
            old.log_index is not null
            and (old.kid, old.signature, old.log_index) is distinct from (new.kid, new.signature, new.log_index)
        )
    then
        raise exception 'a statement, its signature and its index never change';
    end if;
    return new;
end
$$;
create trigger receipts_refuse_change before update on receipts
    for each row execute function refuse_changed_statement();
create trigger suite_commitments_refuse_change before update on suite_commitments
    for each row execute function refuse_changed_statement();

-- The receipts of the entries that a board shows.
create view shown_receipts with (security_barrier) as
select
    e.id as entry_id,
    r.id as receipt_id,
    b.is_public
from boards b
join board_rows w
    on w.suite_id = b.suite_id
    and w.suite_version = b.suite_version
    and w.computation = b.computation
join board_entries e on e.id = w.entry_id
join suites s on s.suite_id = b.suite_id and s.version = b.suite_version
join receipts r
    on r.job_id = e.job_id
    and r.figures = case
        when s.n_sealed > 0 then 'sealed'
        when s.ladder_step is not null then 'board'
        else 'all'
    end
where e.withdrawn_at is null;
grant select on shown_receipts to assay_api;

-- The salts with which receipts name an organization, one for each version of a suite.
create table receipt_salts (
    org_id text not null constraint receipt_salts_org_id_fkey references orgs (id),
    suite_id text not null,
    suite_version text not null,
    salt bytea not null constraint receipt_salts_length check (length(salt) = 32),
    constraint receipt_salts_pkey primary key (org_id, suite_id, suite_version)
);
grant select on receipt_salts to assay_api;
grant select, insert, update (salt) on receipt_salts to assay_worker;

-- Salts never change. Workers may update them because that is how an insert returns the salt that another one has inserted.
create function refuse_changed_salt() returns trigger language plpgsql as $$
begin
    if old.salt <> new.salt then
        raise exception 'a salt never changes';
    end if;
    return new;
end
$$;
create trigger receipt_salts_refuse_change before update on receipt_salts
    for each row execute function refuse_changed_salt();

-- The public keys of receipts. Rows are never deleted: old receipts need them.
create table receipt_keys (
    kid text constraint receipt_keys_pkey primary key,
    public_key bytea not null constraint receipt_keys_length check (length(public_key) = 32),
    valid_from timestamptz not null,
    valid_until timestamptz,
    -- Set by the operator. The log then signs the revocation.
    revocation_requested_at timestamptz,
    revoked_at_index bigint,
    added_jws text not null,
    added_index bigint not null,
    revoked_jws text,
    constraint receipt_keys_revoked check ((revoked_at_index is null) = (revoked_jws is null))
);
grant select, insert, update (valid_until, revoked_at_index, revoked_jws) on receipt_keys to assay_api, assay_log;

-- The log: the SHA-256 of signed statements, in order.
create table log_entries (
    index bigint constraint log_entries_pkey primary key,
    hash bytea not null constraint log_entries_hash_key unique constraint log_entries_sha256 check (length(hash) = 32)
);
grant select, insert on log_entries to assay_api, assay_log;

-- The published checkpoints.
create table log_checkpoints (
    size bigint constraint log_checkpoints_pkey primary key,
    root bytea not null constraint log_checkpoints_sha256 check (length(root) = 32),
    note text not null,
    published_at timestamptz not null default clock_timestamp()
);
grant select, insert on log_checkpoints to assay_api, assay_log;

-- Returns the statement of a receipt. `result` is the disclosed result with the stated figures.
create function receipt_payload(
    receipt_id text,
    org_id text,
    job_id text,
    salt bytea,
    commitment bytea,
    predictions_sha256 bytea,
    submission_number integer,
    result jsonb,
    figures text,
    value_scope text,
    finished_at timestamptz,
    issued_at timestamptz,
    nonce text
) returns bytea language sql immutable as $$
    select convert_to(
        json_build_object(
            '_type', 'https://in-toto.io/Statement/v1',
            'subject', json_build_array(
                json_build_object(
                    'name', 'predictions',
                    'digest', json_build_object('sha256', encode(predictions_sha256, 'hex'))
                )
            ),
            'predicateType', 'urn:assay:eval-result:v1',
            'predicate', json_build_object(
                'receipt_id', receipt_id,
                'job_id', job_id,
                'org_hash', encode(sha256(salt || convert_to(org_id, 'UTF8')), 'hex'),
                'suite_id', result -> 'suite_id',
                'suite_version', result -> 'suite_version',
                'suite_commitment', encode(commitment, 'hex'),
                'hfm_sha', result -> 'hfm_sha',
                'metric', result -> 'metric',
                'release', result -> 'release',
                'figures', figures,
                'value_scope', value_scope,
                'value', result -> 'value',
                'ci95', result -> 'ci95',
                'ci_method', result -> 'ci_method',
                'n', result -> 'n',
                'n_submitted', result -> 'n_submitted',
                'n_missing', result -> 'n_missing',
                'submission_number', submission_number,
                'finished_at', to_char(finished_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
                'issued_at', to_char(issued_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
                'nonce', nonce
            )
        )::text,
        'UTF8'
    )
$$;

-- What the statement about the sealed figures needs in addition. Null in rows of earlier releases.
alter table sealed_results add column n_missing integer;
alter table sealed_results add column ci_method text;

-- By whom the allowances of an organization are shared: all its organizations on the plan free (null on other plans), and all
-- organizations of its verified domains.
create view org_allowance_holders with (security_barrier) as
select
    o.id as org_id,
    case
        when o.plan = 'free' then coalesce(
            o.created_by,
            (
                select m.user_id
                from memberships m
                where m.org_id = o.id
                  and m.role = 'owner'
                order by m.created_at, m.user_id
                limit 1
            )
        )
    end as creator,
    array(
        select c.domain
        from domain_claims c
        where c.org_id = o.id
          and c.verified_at is not null
    ) as domains
from orgs o;
grant select on org_allowance_holders to assay_api, assay_worker;

-- The number of scored submissions of those who share an allowance, for the number in a receipt.
alter table suite_allowances add column n_scored integer not null default 0;
grant update (n_scored) on suite_allowances to assay_worker;
insert into suite_allowances (holder, suite_id, suite_version, n_scored)
select
    'org:' || org_id,
    suite_id,
    suite_version,
    count(*)
from jobs
where type = 'eval'
  and status = 'succeeded'
group by org_id, suite_id, suite_version
on conflict (holder, suite_id, suite_version) do update
    set n_scored = excluded.n_scored;
