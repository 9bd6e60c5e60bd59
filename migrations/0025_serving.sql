-- Models that are served: packages in the artifact store, models of single organizations, and the units that requests consume.

alter table models
    -- The published package, see `Package` in core/src/model/package.rs. Null: a card alone, which is not served.
    add column package jsonb;

-- Models that only one organization sees: fine-tuned on its sequences. A row takes precedence over the row in `models` with the same
-- id. They have a table of their own, because the release before shows every row of `models` to every organization.
create table org_models (
    org_id text not null constraint org_models_org_id_fkey references orgs (id),
    id text not null,
    version text not null,
    card jsonb not null,
    package jsonb not null,
    published_at timestamptz not null default clock_timestamp(),
    constraint org_models_pkey primary key (org_id, id, version)
);
create index org_models_current_idx on org_models (org_id, id, published_at desc);
create trigger org_models_refuse_suspended before insert on org_models for each row execute function refuse_suspended_org();
grant select on org_models to assay_api;

alter table usage
    add column predict_items bigint not null default 0,
    add column generated_events bigint not null default 0,
    add column embeddings bigint not null default 0;
grant update (predict_items, generated_events, embeddings) on usage to assay_api;

-- Units per calendar month. Null: as many as eval_items_per_month.
alter table plans
    add column predict_items_per_month bigint,
    add column generated_events_per_month bigint,
    add column embeddings_per_month bigint;

-- The charges of synchronous requests with an idempotency key, for 24 hours. A repetition is computed again, but not charged again.
create table serve_keys (
    org_id text not null constraint serve_keys_org_id_fkey references orgs (id),
    idempotency_key text not null,
    request_sha256 bytea not null,
    -- The limit that the charge counts for, such as predict_items, and the number of units.
    unit text not null constraint serve_keys_unit_known check (unit in ('predict_items', 'generated_events', 'embeddings')),
    units bigint not null constraint serve_keys_units_positive check (units > 0),
    created_at timestamptz not null default now(),
    constraint serve_keys_pkey primary key (org_id, idempotency_key)
);
create index serve_keys_created_at_idx on serve_keys (created_at);
create trigger serve_keys_refuse_suspended before insert on serve_keys for each row execute function refuse_suspended_org();
grant select, insert, update (request_sha256, unit, units, created_at), delete on serve_keys to assay_api;
