-- Leaderboards: a board for a version of a suite, its entries, the tests of all pairs, and the computed rows.

-- When the board of the version shows figures.
alter table suites add column board text not null default 'off';
alter table suites add constraint suites_board_known check (board in ('off', 'live', 'at_close')) not valid;
alter table suites validate constraint suites_board_known;
grant select (board) on suites to assay_api, assay_worker;

-- A board may close without sealed items.
alter table suites drop constraint suites_sealed_closes;
alter table suites
    add constraint suites_closes check ((n_sealed = 0 or closes_at is not null) and (board <> 'at_close' or closes_at is not null))
    not valid;
alter table suites validate constraint suites_closes;

create table boards (
    suite_id text not null,
    suite_version text not null,
    mode text not null constraint boards_mode_known check (mode in ('live', 'at_close')),
    -- From then on the board accepts no entries: the time in suite.toml, or that of the next version's publication.
    closes_at timestamptz,
    is_public boolean not null default false,
    -- The number of the computation that is shown. Null before the first one.
    computation integer,
    -- Set if the computation has all entries of the closed board.
    is_final boolean not null default false,
    -- The number of the last attempt at a computation, which fences its writes, and the time until which its worker holds it.
    attempt integer not null default 0,
    lease_until timestamptz,
    -- Never written. The API may lock rows because it may update this column.
    locked_at timestamptz,
    constraint boards_pkey primary key (suite_id, suite_version),
    constraint boards_suite_fkey foreign key (suite_id, suite_version) references suites (suite_id, version)
);
grant select, update (locked_at) on boards to assay_api;
grant select, update (computation, is_final, attempt, lease_until) on boards to assay_worker;

-- Rows are never deleted: an entry counts towards the limit of its organization for good.
create table board_entries (
    id text constraint board_entries_pkey primary key,
    org_id text not null constraint board_entries_org_id_fkey references orgs (id),
    suite_id text not null,
    suite_version text not null,
    job_id text not null constraint board_entries_job_id_key unique constraint board_entries_job_id_fkey references jobs (id),
    -- The place among all entries of the board by which the tests of its pairs are stored. Null until its tests are computed.
    position integer,
    name text not null,
    -- The name in lower case, by which names are compared.
    name_key text not null,
    url text,
    -- The user or the key that entered the job.
    entered_by text not null,
    entered_at timestamptz not null,
    -- The holders of the organization's allowances when it entered the job, see suite_allowances.
    holders text[] not null,
    withdrawn_at timestamptz,
    removed_at timestamptz,
    removed_reason text,
    -- Increased by each change, and the number that the shown computation has seen.
    revision integer not null default 1,
    computed_revision integer not null default 0,
    constraint board_entries_board_fkey foreign key (suite_id, suite_version) references boards (suite_id, suite_version),
    constraint board_entries_name_key unique (suite_id, suite_version, name_key),
    constraint board_entries_position_key unique (suite_id, suite_version, position)
);
create index board_entries_org_id_idx on board_entries (org_id, entered_at);
create index board_entries_changed_idx on board_entries (suite_id, suite_version) where revision > computed_revision;
grant select, insert, update (withdrawn_at, revision) on board_entries to assay_api;
grant select, update (position, computed_revision) on board_entries to assay_worker;

-- The figures of an entry over the items in the tests, and the tests of its pairs. The API's role can read neither.
create table board_pairs (
    entry_id text constraint board_pairs_pkey primary key constraint board_pairs_entry_id_fkey references board_entries (id),
    suite_id text not null,
    suite_version text not null,
    position integer not null,
    value double precision not null,
    ci95 double precision[],
    n_missing integer not null,
    -- For each earlier position: −ln p of the test as a 32-bit float, negative if this entry is the better one.
    evidence bytea not null,
    constraint board_pairs_position_key unique (suite_id, suite_version, position)
);
alter table board_pairs alter column evidence set storage external;
grant select, insert on board_pairs to assay_worker;

-- The shown computation and the one before, so that a reader of several pages finishes.
create table board_computations (
    suite_id text not null,
    suite_version text not null,
    computation integer not null,
    as_of timestamptz not null,
    -- The numbers of entries and of items in its tests.
    n_entries integer not null,
    n_items integer not null,
    constraint board_computations_pkey primary key (suite_id, suite_version, computation),
    constraint board_computations_board_fkey foreign key (suite_id, suite_version) references boards (suite_id, suite_version)
);
grant select on board_computations to assay_api;
grant select, insert, delete on board_computations to assay_worker;

create table board_rows (
    suite_id text not null,
    suite_version text not null,
    computation integer not null,
    place integer not null,
    entry_id text not null constraint board_rows_entry_id_fkey references board_entries (id),
    tier integer not null,
    rank_low integer not null,
    rank_high integer not null,
    value double precision not null,
    ci95 double precision[],
    n_missing integer not null,
    n_submissions integer not null,
    n_withdrawn integer not null,
    constraint board_rows_pkey primary key (suite_id, suite_version, computation, place),
    constraint board_rows_computation_fkey foreign key (suite_id, suite_version, computation)
        references board_computations (suite_id, suite_version, computation) on delete cascade
);
grant select on board_rows to assay_api;
grant select, insert, delete on board_rows to assay_worker;

-- Succeeded jobs whose predictions are kept after the job has ended, because they are on a board or can enter one.
create table board_predictions (
    job_id text constraint board_predictions_pkey primary key constraint board_predictions_job_id_fkey references jobs (id),
    org_id text not null constraint board_predictions_org_id_fkey references orgs (id),
    suite_id text not null,
    suite_version text not null
);
create index board_predictions_board_idx on board_predictions (suite_id, suite_version);
grant select, insert, delete on board_predictions to assay_api;
