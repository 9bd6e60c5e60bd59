-- Rejects a change of a statement, or of a signature and an index that are set, by every role.
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

-- The public commitment of a suite's version to its items and answers. A version can retire with hidden answers; the five columns after
-- retired_at open it.
create table suite_commitments (
    suite_id text collate "C" not null,
    suite_version text not null,
    commitment bytea not null constraint suite_commitments_sha256 check (length(commitment) = 32),
    committed_at timestamptz not null,
    payload bytea not null, -- The bytes of the signed statement.
    kid text collate "C",
    -- The Ed25519 signature of the JSON Web Signature, whose header follows from `kid`.
    signature bytea constraint suite_commitments_signature_length check (length(signature) = 64),
    log_index bigint,
    retired_at timestamptz,
    salt bytea,
    seed bytea,
    items_sha256 bytea,
    answers_sha256 bytea,
    retest_sha256 bytea, -- Null without a retest.
    close_stated boolean not null default false, -- Whether all figures that the close of the version disclosed have receipts.
    primary key (suite_id, suite_version),
    constraint suite_commitments_suite_fkey foreign key (suite_id, suite_version) references suites (suite_id, version),
    constraint suite_commitments_signed check (num_nonnulls(kid, signature, log_index) in (0, 3)),
    constraint suite_commitments_opened check (
        num_nonnulls(salt, items_sha256, answers_sha256) in (0, 3)
        and (num_nonnulls(seed, retest_sha256) = 0 or salt is not null)
        and (salt is null or retired_at is not null)
    )
);
create index suite_commitments_pending_idx on suite_commitments (committed_at) where log_index is null;
create trigger suite_commitments_refuse_change before update on suite_commitments for each row execute function refuse_changed_statement();

-- What a commitment hides until the version retires, stored with the content. Only the operator can read it; no process needs it.
create table suite_openings (
    content_id bigint primary key references suite_contents (id),
    salt bytea not null,
    seed bytea,
    items_sha256 bytea not null,
    answers_sha256 bytea not null,
    retest_sha256 bytea,
    -- Stated with the commitment: of the predictions of the baselines, and of the catalog.
    baselines_sha256 bytea,
    catalog_sha256 bytea
);

-- The answers of retired versions.
create table opened_answers (
    suite_id text collate "C" not null,
    suite_version text not null,
    ordinal integer not null,
    item_id text collate "C" not null,
    answer json not null,
    n integer, -- The number of people behind the answer.
    groups json,
    primary key (suite_id, suite_version, ordinal),
    constraint opened_answers_commitment_fkey foreign key (suite_id, suite_version) references suite_commitments (suite_id, suite_version)
);

-- The retest answers of retired versions.
create table opened_retest (
    suite_id text collate "C" not null,
    suite_version text not null,
    ordinal integer not null,
    item_id text collate "C" not null,
    answers json not null,
    primary key (suite_id, suite_version, ordinal),
    constraint opened_retest_commitment_fkey foreign key (suite_id, suite_version) references suite_commitments (suite_id, suite_version)
);

-- Statements about the figures of jobs. A receipt outlives its job: people verify it years later.
create table receipts (
    id text collate "C" primary key,
    org_id text collate "C" not null references orgs (id),
    job_id text collate "C" not null,
    suite_id text collate "C" not null,
    suite_version text not null,
    figures text not null constraint receipts_figures_known check (figures in ('all', 'open', 'sealed', 'board')),
    payload bytea not null, -- The bytes of the signed statement.
    -- Repeated by later statements about the job.
    predictions_sha256 bytea not null,
    submission_number integer not null,
    issued_at timestamptz not null,
    kid text collate "C",
    signature bytea constraint receipts_signature_length check (length(signature) = 64),
    log_index bigint,
    constraint receipts_job_id_key unique (job_id, figures),
    constraint receipts_commitment_fkey foreign key (suite_id, suite_version) references suite_commitments (suite_id, suite_version),
    constraint receipts_signed check (num_nonnulls(kid, signature, log_index) in (0, 3))
);
create index receipts_org_id_idx on receipts (org_id);
create index receipts_pending_idx on receipts (issued_at) where log_index is null;
create trigger receipts_refuse_change before update on receipts for each row execute function refuse_changed_statement();

-- The salts of an organization's hash in receipts, one for each version of a suite.
create table receipt_salts (
    org_id text collate "C" not null references orgs (id),
    suite_id text collate "C" not null,
    suite_version text not null,
    salt bytea not null constraint receipt_salts_length check (length(salt) = 32),
    primary key (org_id, suite_id, suite_version)
);

-- A salt never changes. Workers have the right to update it for the upsert that returns an existing salt.
create function refuse_changed_salt() returns trigger language plpgsql as $$
begin
    if old.salt <> new.salt then
        raise exception 'a salt never changes';
    end if;
    return new;
end
$$;
create trigger receipt_salts_refuse_change before update on receipt_salts for each row execute function refuse_changed_salt();

-- The public keys of receipts. Rows are never deleted, because old receipts need them.
create table receipt_keys (
    kid text collate "C" primary key,
    public_key bytea not null constraint receipt_keys_length check (length(public_key) = 32),
    valid_from timestamptz not null,
    valid_until timestamptz,
    revocation_requested_at timestamptz, -- Set by the operator. The log then signs the revocation.
    revoked_at_index bigint,
    added_jws text not null,
    added_index bigint not null,
    revoked_jws text,
    constraint receipt_keys_revoked check ((revoked_at_index is null) = (revoked_jws is null))
);

-- The log: the SHA-256 of signed statements, in order.
create table log_entries (
    index bigint primary key,
    hash bytea not null unique constraint log_entries_sha256 check (length(hash) = 32)
);

-- The published checkpoints.
create table log_checkpoints (
    size bigint primary key,
    root bytea not null constraint log_checkpoints_sha256 check (length(root) = 32),
    note text not null,
    published_at timestamptz not null default clock_timestamp()
);

-- The receipts of the entries that a board shows.
create view shown_receipts with (security_barrier) as
select e.id as entry_id, r.id as receipt_id, b.is_public
from boards b
join board_rows w on w.suite_id = b.suite_id and w.suite_version = b.suite_version and w.computation = b.computation
join board_entries e on e.id = w.entry_id
join suites s on s.suite_id = b.suite_id and s.version = b.suite_version
join receipts r
    on r.job_id = e.job_id
    and r.figures = case when s.n_sealed > 0 then 'sealed' when s.ladder_step is not null then 'board' else 'all' end
where e.withdrawn_at is null;

-- Returns the statement of a receipt. `result` is the disclosed result with the stated figures. `cluster` is null if items are independent;
-- then the statement has no fields of clusters, which older readers reject.
create function receipt_payload(
    receipt_id text, org_id text, job_id text, salt bytea, commitment bytea, predictions_sha256 bytea, submission_number integer,
    result jsonb, figures text, value_scope text, finished_at timestamptz, issued_at timestamptz, nonce text, cluster text default null,
    average text default 'item'
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
            'predicate', (left(json_build_object(
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
            )::text, -1) || case
                when cluster is null then ''
                else ', ' || substr(left(
                    json_build_object('cluster', cluster, 'n_clusters', result -> 'n_clusters', 'average', average)::text, -1
                ), 2)
            end || case
                when result ? 'by_publisher' then ', "by_publisher" : ' || (result ->> 'by_publisher')
                else ''
            end || '}')::json
        )::text,
        'UTF8'
    )
$$;

-- Only assay_log signs statements, registers keys and writes the log. An API process with the keys has a second connection as that role
-- (ASSAY_LOG_DATABASE_URL): the role that serves requests from the internet can forge nothing.
grant select on suite_commitments, opened_answers, opened_retest, receipts, receipt_salts, receipt_keys, log_entries, log_checkpoints, shown_receipts
    to assay_api;
grant select, update (close_stated) on suite_commitments to assay_worker;
grant select (suite_id, suite_version, committed_at, payload, kid, signature, log_index) on suite_commitments to assay_log;
grant update (kid, signature, log_index) on suite_commitments to assay_log;
grant select (job_id, figures, predictions_sha256, submission_number) on receipts to assay_worker;
grant insert (id, org_id, job_id, suite_id, suite_version, figures, payload, predictions_sha256, submission_number, issued_at)
    on receipts to assay_worker;
grant select (id, suite_id, suite_version, payload, issued_at, kid, signature, log_index) on receipts to assay_log;
grant update (kid, signature, log_index) on receipts to assay_log;
grant select, insert, update (salt) on receipt_salts to assay_worker;
grant select, insert, update (valid_until, revoked_at_index, revoked_jws) on receipt_keys to assay_log;
grant select, insert on log_entries, log_checkpoints to assay_log;
