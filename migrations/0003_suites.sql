-- A published (suite_id, version) never changes.
create table suites (
    suite_id text not null,
    version text not null,
    metric text not null,
    per_item_feedback boolean not null,
    description text not null,
    n_items integer not null constraint suites_not_empty check (n_items > 0),
    -- The SHA-256 of the files, so that publishing the same again is no error and publishing something else is.
    content_sha256 bytea not null,
    -- The current version of a suite is the one published last.
    published_at timestamptz not null default clock_timestamp(),
    constraint suites_pkey primary key (suite_id, version)
);
create index suites_current_idx on suites (suite_id, published_at desc);

create table suite_items (
    suite_id text not null,
    version text not null,
    -- The place in the published file, from 0.
    ordinal integer not null,
    item_id text not null,
    -- Kept as text, not as jsonb: callers get it exactly as it was published.
    input json not null,
    constraint suite_items_pkey primary key (suite_id, version, ordinal),
    constraint suite_items_suite_fkey foreign key (suite_id, version) references suites (suite_id, version)
);

-- The only place where answers are. The role that serves requests is granted nothing here.
create table suite_answers (
    suite_id text not null,
    version text not null,
    ordinal integer not null,
    item_id text not null,
    answer json not null,
    constraint suite_answers_pkey primary key (suite_id, version, ordinal),
    constraint suite_answers_suite_fkey foreign key (suite_id, version) references suites (suite_id, version)
);

grant select on suites, suite_items to assay_api;
grant select on suites, suite_answers to assay_worker;
