-- What keeps answers from being read out of scores: how they are released, and how many submissions an organization may
-- make a day.
alter table suites add column release text not null default 'exact';
alter table suites add column max_submissions_per_day integer
    constraint suites_max_submissions_per_day_positive check (max_submissions_per_day > 0);

-- What an organization was told last of a suite that releases scores by a ladder. The row is locked while a job ends.
create table suite_ladders (
    org_id text not null constraint suite_ladders_org_id_fkey references orgs (id),
    suite_id text not null,
    suite_version text not null,
    -- Null only within the transaction that tells the first.
    best double precision,
    constraint suite_ladders_pkey primary key (org_id, suite_id, suite_version),
    constraint suite_ladders_suite_fkey foreign key (suite_id, suite_version) references suites (suite_id, version)
);
grant select, insert, update on suite_ladders to assay_worker;

-- The submissions of a day that count are found without passing over those that do not.
create index jobs_submitted_idx on jobs (org_id, suite_id, created_at) where status not in ('failed', 'cancelled');
