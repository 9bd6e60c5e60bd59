-- Every version of a model's card that was published. A published (id, version) never changes; the card that is shown
-- is the one published last.
create table models (
    id text not null,
    version text not null,
    -- The card as callers see it.
    card jsonb not null,
    published_at timestamptz not null default clock_timestamp(),
    constraint models_pkey primary key (id, version)
);
create index models_current_idx on models (id, published_at desc);

grant select on models to assay_api;
