-- The pairs of texts that the caller has attached to a job.
alter table jobs add column metadata jsonb;
