-- Disclosure policies: bounded losses, the grid of a ladder, sealed items, caps without end, and who may submit to a suite.

-- In the order in which submissions lock them, so that this migration and a submission never wait for each other.
lock table jobs, orgs, suites, suite_answers in access exclusive mode;

alter table suites
    -- [low, high] of the loss of one item.
    add column clip double precision[]
        constraint suites_clip_is_a_range check (array_length(clip, 1) = 2 and clip[1] >= 0 and clip[1] < clip[2]),
    -- The grid of a ladder: the value of level 0, the difference of two levels, the number of levels above 0.
    add column ladder_start double precision,
    add column ladder_step double precision,
    add column ladder_levels integer constraint suites_ladder_levels_positive check (ladder_levels > 0),
    add column n_sealed integer not null default 0 constraint suites_n_sealed_in_range check (n_sealed >= 0 and n_sealed < n_items),
    -- From then on the sealed figures of final jobs are disclosed.
    add column closes_at timestamptz,
    add column max_submissions integer constraint suites_max_submissions_positive check (max_submissions > 0),
    add column access text not null default 'everyone'
        constraint suites_access_known check (access in ('everyone', 'verified_domain', 'granted')),
    add constraint suites_ladder_is_whole check (num_nonnulls(ladder_start, ladder_step, ladder_levels) in (0, 3)),
    add constraint suites_sealed_closes check ((n_sealed > 0) = (closes_at is not null));

-- The digest of a suite's content covers its answers: a reader could check a guess of the last unknown ones.
revoke select on suites from assay_api, assay_worker;
grant select (suite_id, version, metric, per_item_feedback, description, n_items, published_at, release, max_submissions_per_day, clip,
              ladder_start, ladder_step, ladder_levels, n_sealed, closes_at, max_submissions, access)
    on suites to assay_api, assay_worker;

-- Whether the item is sealed. It stands with the answers: the API's role can read neither.
alter table suite_answers add column sealed boolean not null default false;

-- Organizations that may submit to suites with access = 'granted'.
create table suite_grants (
    suite_id text not null,
    org_id text not null constraint suite_grants_org_id_fkey references orgs (id),
    granted_at timestamptz not null default now(),
    constraint suite_grants_pkey primary key (suite_id, org_id)
);
grant select on suite_grants to assay_api;

-- The user who created the organization, and stays its creator when ownership changes. Null for organizations that the operator
-- creates. Of organizations that exist already it is their first owner, because nobody else is known.
alter table orgs add column created_by text constraint orgs_created_by_fkey references users (id);
update orgs o set created_by = (
    select m.user_id from memberships m where m.org_id = o.id and m.role = 'owner' order by m.created_at, m.user_id limit 1
);
create index orgs_created_by_idx on orgs (created_by);

-- What a suite's version allows is held by an organization ('org:…'), and also by all organizations of one registrable domain
-- ('domain:…') and by all organizations on the plan free that one user created ('user:…'). A row is locked while a submission, a
-- comparison, a score on a ladder, or a final mark uses it.
create table suite_allowances (
    holder text not null,
    suite_id text not null,
    suite_version text not null,
    -- The highest level of the ladder that was disclosed to any of the organizations.
    level integer not null default 0,
    used_at timestamptz not null default clock_timestamp(),
    constraint suite_allowances_pkey primary key (holder, suite_id, suite_version),
    constraint suite_allowances_suite_fkey foreign key (suite_id, suite_version) references suites (suite_id, version)
);
grant select, insert, update (used_at) on suite_allowances to assay_api;
grant select, insert, update (level) on suite_allowances to assay_worker;

-- What has used an allowance: a submission, a comparison of two jobs, a final mark; a row per holder.
create table suite_disclosures (
    holder text not null,
    org_id text not null constraint suite_disclosures_org_id_fkey references orgs (id),
    kind text not null constraint suite_disclosures_kind_known check (kind in ('submission', 'comparison', 'final')),
    job_id text not null constraint suite_disclosures_job_id_fkey references jobs (id),
    -- The other job of a comparison; otherwise empty.
    compared_to text not null default '',
    suite_id text not null,
    suite_version text not null,
    created_at timestamptz not null,
    constraint suite_disclosures_pkey primary key (job_id, kind, compared_to, holder),
    constraint suite_disclosures_suite_fkey foreign key (suite_id, suite_version) references suites (suite_id, version)
);
create index suite_disclosures_holder_idx on suite_disclosures (holder, suite_id, created_at);
grant select, insert on suite_disclosures to assay_api;
grant select on suite_disclosures to assay_worker;

-- When the caller chose the job as one of those whose sealed figures are disclosed.
alter table jobs add column final_at timestamptz;

-- The figures of sealed items. The API's role reads them through the view alone, after the suite has closed.
create table sealed_results (
    org_id text not null constraint sealed_results_org_id_fkey references orgs (id),
    job_id text constraint sealed_results_pkey primary key constraint sealed_results_job_id_fkey references jobs (id),
    suite_id text not null,
    suite_version text not null,
    n integer not null,
    value double precision not null,
    stderr double precision,
    ci95 double precision[],
    constraint sealed_results_suite_fkey foreign key (suite_id, suite_version) references suites (suite_id, version)
);
grant select, insert on sealed_results to assay_worker;

create view closed_sealed_results with (security_barrier) as
select r.org_id, r.job_id, r.n, r.value, r.stderr, r.ci95
from sealed_results r
join suites s on s.suite_id = r.suite_id and s.version = r.suite_version
join jobs j on j.id = r.job_id
where s.closes_at <= now()
  and j.final_at < s.closes_at;
grant select on closed_sealed_results to assay_api;

-- The stored scores of items, which expire. A table of its own, because the index that finds them would have to be built over
-- all jobs.
create table stored_item_scores (
    org_id text not null constraint stored_item_scores_org_id_fkey references orgs (id),
    job_id text constraint stored_item_scores_pkey primary key constraint stored_item_scores_job_id_fkey references jobs (id),
    scores_key text not null,
    expires_at timestamptz not null
);
create index stored_item_scores_expires_at_idx on stored_item_scores (expires_at);
grant select, delete on stored_item_scores to assay_api;
grant insert on stored_item_scores to assay_worker;
