-- The order of the queue. Organizations that wait share the workers by the cost of their jobs, in proportion to the weights of their
-- plans.
alter table plans add column queue_weight integer not null default 1;
alter table plans add constraint plans_queue_weight_in_range check (queue_weight between 1 and 1000) not valid;
alter table plans validate constraint plans_queue_weight_in_range;
update plans
set queue_weight = case plan when 'dev' then 2 else 4 end
where plan in ('dev', 'team');

-- The number of items that a job is charged for. For a prediction job, the number of items that take as long as its sequences.
alter table jobs add column cost bigint not null default 1;
alter table job_attempts add column cost bigint not null default 1;

-- The number of jobs that a worker runs at once. Workers of the release before do not name it, and have 4 unless it is set.
alter table workers add column slots integer not null default 4;

-- The state of the queue as it was last measured: one row.
create table queue_snapshots (
    id boolean constraint queue_snapshots_pkey primary key default true constraint queue_snapshots_has_one_row check (id),
    -- The last time at which a dispatcher could send notifications. While this is long ago, workers choose jobs themselves.
    notified_at timestamptz not null
);
insert into queue_snapshots (notified_at) values ('epoch');
grant select, update on queue_snapshots to assay_api;
grant select on queue_snapshots to assay_worker;

-- jobs_waiting_idx, which `assay-api migrate` builds, replaces it.
drop index jobs_unrung_idx;
