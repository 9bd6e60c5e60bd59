-- Choosing whose bell to ring looks at the jobs that wait longest, and at those only.
create index jobs_unrung_idx on jobs (available_at, created_at) where status = 'queued' and dispatched_at is null;
create index jobs_rung_idx on jobs (dispatched_at) where status = 'queued';

-- A submission is removed from the artifact store after its job has ended; then its key is null.
alter table jobs alter column input_key drop not null;
alter table jobs add constraint jobs_active_has_input check (status not in ('queued', 'running') or input_key is not null);
create index jobs_input_left_idx on jobs (finished_at) where input_key is not null and finished_at is not null;
