-- The repetitions of a serving request that have a result, at most one more than FREE_REPETITIONS.
alter table serve_keys add column repetitions integer not null default 0;
grant update (repetitions) on serve_keys to assay_api;
