-- The snapshot of the queue: its order, and the measured speed of the workers, from which the API estimates when jobs end.
alter table queue_snapshots
    -- Null until the first snapshot.
    add column as_of timestamptz,
    add column queued bigint not null default 0,
    add column running bigint not null default 0,
    add column slots bigint not null default 0,
    add column oldest_seconds double precision not null default 0,
    -- Null until jobs have been measured.
    add column items_per_second double precision,
    add column overhead_seconds double precision,
    add column start_seconds double precision,
    add column end_by_ratio double precision,
    add column wait_p50 double precision,
    add column wait_p95 double precision,
    add column busy_seconds double precision not null default 0,
    -- The first waiting jobs, in the order of the queue.
    add column job_ids text[] not null default '{}',
    add column sort_keys double precision[] not null default '{}',
    add column seconds_through double precision[] not null default '{}',
    -- The organizations with active jobs, and the cost of these jobs.
    add column org_ids text[] not null default '{}',
    add column org_costs bigint[] not null default '{}';

-- What the API estimated when it accepted the job, to measure the estimates.
alter table jobs
    add column first_estimated_end_at timestamptz,
    add column first_estimated_end_by timestamptz;
