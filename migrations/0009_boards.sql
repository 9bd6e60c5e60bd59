create table boards (
    suite_id text collate "C" not null,
    suite_version text not null,
    mode text not null constraint boards_mode_known check (mode in ('live', 'at_close')),
    closes_at timestamptz, -- The end of entries: the time in suite.toml, or the publication of the next version.
    is_public boolean not null default false,
    computation integer, -- The number of the shown computation. Null before the first one.
    is_final boolean not null default false, -- Whether the computation has all entries of the closed board.
    -- The number of the last computation attempt, which is its fencing token, and the end of its worker's lease.
    attempt integer not null default 0,
    lease_until timestamptz,
    locked_at timestamptz, -- Never written. The right to update it lets the API lock rows.
    primary key (suite_id, suite_version),
    constraint boards_suite_fkey foreign key (suite_id, suite_version) references suites (suite_id, version)
);
grant select, update (locked_at) on boards to assay_api;
grant select, update (computation, is_final, attempt, lease_until) on boards to assay_worker;

-- Rows are never deleted: an entry always counts towards the limit of its organization.
create table board_entries (
    id text collate "C" primary key,
    org_id text collate "C" not null references orgs (id),
    suite_id text collate "C" not null,
    suite_version text not null,
    job_id text collate "C" not null unique references jobs (id),
    position integer, -- The entry's place in the stored pair tests. Null until they are computed.
    name text not null,
    -- The keys of the name, see `NameKeys`, or the id of a withdrawn entry: a conflict with its name would reveal the entry.
    name_key text not null,
    url text,
    entered_by text collate "C" not null, -- A user or a key.
    entered_at timestamptz not null,
    holders text[] not null, -- The holders of the organization's allowances at that time, see suite_allowances.
    withdrawn_at timestamptz,
    by_publisher boolean, -- As in the job's result. Null: the suite is the operator's.
    removed_at timestamptz,
    removed_reason text,
    removed_by text collate "C" constraint board_entries_removed_by_known check (removed_by in ('publisher', 'operator')),
    -- Increased by each change, and the revision in the shown computation.
    revision integer not null default 1,
    computed_revision integer not null default 0,
    name_shown text, -- See name_key.
    constraint board_entries_removed_completely check (num_nonnulls(removed_at, removed_reason, removed_by) in (0, 3)),
    constraint board_entries_board_fkey foreign key (suite_id, suite_version) references boards (suite_id, suite_version),
    constraint board_entries_name_key unique (suite_id, suite_version, name_key),
    constraint board_entries_position_key unique (suite_id, suite_version, position)
);
create index board_entries_org_id_idx on board_entries (org_id, entered_at);
create index board_entries_removed_idx on board_entries (suite_id, suite_version, removed_at) where removed_at is not null;
create index board_entries_changed_idx on board_entries (suite_id, suite_version) where revision > computed_revision;
grant select, insert, update (name_key, withdrawn_at, revision, name_shown, removed_at, removed_reason, removed_by) on board_entries to assay_api;
grant select, update (position, computed_revision) on board_entries to assay_worker;

-- The figures of an entry over the tested items, and the tests of its pairs. The API's role can read neither.
create table board_pairs (
    entry_id text collate "C" primary key references board_entries (id),
    suite_id text collate "C" not null,
    suite_version text not null,
    position integer not null,
    value double precision not null,
    ci95 double precision[],
    n_missing integer not null,
    slices jsonb not null default '[]',
    vs_baselines bytea not null, -- The tests against the suite's baselines, in their order, as in `evidence`.
    evidence bytea not null, -- For each earlier position: −ln p of the test as a 32-bit float, negative if this entry is better.
    constraint board_pairs_position_key unique (suite_id, suite_version, position)
);
alter table board_pairs alter column evidence set storage external;
grant select, insert on board_pairs to assay_worker;

-- The shown computation and the one before, so that a reader can finish reading its pages.
create table board_computations (
    suite_id text collate "C" not null,
    suite_version text not null,
    computation integer not null,
    as_of timestamptz not null,
    -- The numbers of entries and items in the tests.
    n_entries integer not null,
    n_items integer not null,
    n_clusters integer,
    primary key (suite_id, suite_version, computation),
    constraint board_computations_board_fkey foreign key (suite_id, suite_version) references boards (suite_id, suite_version)
);

create table board_rows (
    suite_id text collate "C" not null,
    suite_version text not null,
    computation integer not null,
    place integer not null,
    entry_id text collate "C" not null references board_entries (id),
    tier integer not null,
    rank_low integer not null,
    rank_high integer not null,
    value double precision not null,
    ci95 double precision[],
    n_missing integer not null,
    n_submissions integer not null,
    n_withdrawn integer not null,
    slices jsonb not null default '[]',
    vs_baselines jsonb not null default '[]',
    primary key (suite_id, suite_version, computation, place),
    constraint board_rows_computation_fkey foreign key (suite_id, suite_version, computation)
        references board_computations (suite_id, suite_version, computation) on delete cascade
);
grant select on board_computations, board_rows to assay_api;
grant select, insert, delete on board_computations, board_rows to assay_worker;

-- Succeeded jobs whose predictions are kept, because they are on a board or can enter one.
create table board_predictions (
    job_id text collate "C" primary key references jobs (id),
    org_id text collate "C" not null references orgs (id),
    suite_id text collate "C" not null,
    suite_version text not null
);
create index board_predictions_board_idx on board_predictions (suite_id, suite_version);
grant select, insert, delete on board_predictions to assay_api;
