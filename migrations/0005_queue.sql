-- The processes that score. A process that does not renew its row in time is considered dead.
create table workers (
    id text collate "C" primary key,
    started_at timestamptz not null default now(),
    seen_at timestamptz not null,
    scorer integer not null default 1, -- The version of its scorer, see suites.scorer_min.
    slots integer not null -- The number of jobs that the worker runs at once.
);
grant select, delete on workers to assay_api;
grant select, insert, delete, update (seen_at) on workers to assay_worker;

-- The state of the queue when it was last measured: its order and the speed of the workers, for estimates. One row.
create table queue_snapshots (
    id boolean primary key default true constraint queue_snapshots_has_one_row check (id),
    -- The last time at which a dispatcher could send notifications. If it is long ago, workers choose jobs themselves.
    notified_at timestamptz not null,
    as_of timestamptz, -- Null until the first snapshot.
    queued bigint not null default 0,
    running bigint not null default 0,
    slots bigint not null default 0,
    oldest_seconds double precision not null default 0,
    -- Null until jobs have been measured.
    items_per_second double precision,
    overhead_seconds double precision,
    start_seconds double precision,
    end_by_ratio double precision,
    wait_p50 double precision,
    wait_p95 double precision,
    busy_seconds double precision not null default 0,
    -- The first waiting jobs, in the order of the queue.
    job_ids text[] collate "C" not null default '{}',
    sort_keys double precision[] not null default '{}',
    seconds_through double precision[] not null default '{}',
    -- The organizations with active jobs, and the cost of these jobs.
    org_ids text[] collate "C" not null default '{}',
    org_costs bigint[] not null default '{}'
);
insert into queue_snapshots (notified_at) values ('epoch');
grant select, update on queue_snapshots to assay_api;
grant select on queue_snapshots to assay_worker;
