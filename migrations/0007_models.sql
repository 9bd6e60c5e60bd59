-- A published version never changes. The card published last is shown.
create table models (
    id text collate "C" not null,
    version text not null,
    card jsonb not null, -- The card as callers see it.
    published_at timestamptz not null default clock_timestamp(),
    package jsonb, -- See `Package` in core/src/model/models/package.rs. Null: only a card, which is not served.
    primary key (id, version)
);
create index models_current_idx on models (id, published_at desc);
grant select on models to assay_api;

-- Models that only one organization sees, fine-tuned on its sequences. They take precedence over models with the same id.
create table org_models (
    org_id text collate "C" not null references orgs (id),
    id text collate "C" not null,
    version text not null,
    card jsonb not null,
    package jsonb not null,
    published_at timestamptz not null default clock_timestamp(),
    primary key (org_id, id, version)
);
create index org_models_current_idx on org_models (org_id, id, published_at desc);
create trigger org_models_refuse_suspended before insert on org_models for each row execute function refuse_suspended_org();
grant select on org_models to assay_api;

-- Returns the wanted version of a model, or the one published last. The organization's own models take precedence.
create function visible_model(org text, model text, wanted text)
returns table (version text, is_own boolean, card jsonb, package jsonb)
language sql stable as $$
    select m.version, m.is_own, m.card, m.package
    from (
        select o.version, o.card, o.package, o.published_at, true as is_own
        from org_models o
        where o.org_id = org
          and o.id = model
          and (wanted is null or o.version = wanted)
        union all
        select p.version, p.card, p.package, p.published_at, false
        from models p
        where p.id = model
          and (wanted is null or p.version = wanted)
    ) m
    order by m.is_own desc, m.published_at desc
    limit 1
$$;

-- The charges of synchronous requests with an idempotency key, for 24 hours. A repetition is computed again without a charge.
create table serve_keys (
    org_id text collate "C" not null references orgs (id),
    idempotency_key text not null,
    request_sha256 bytea not null,
    -- The limit that the charge counts towards, and the number of units.
    unit text not null constraint serve_keys_unit_known check (unit in ('predict_items', 'generated_events', 'embeddings')),
    units bigint not null constraint serve_keys_units_positive check (units > 0),
    created_at timestamptz not null default now(),
    -- A repetition has a result without a charge of its own, so a failed first request is no longer refunded.
    is_used_by_repetition boolean not null default false,
    repetitions integer not null default 0, -- The repetitions that have a result, at most FREE_REPETITIONS + 1.
    primary key (org_id, idempotency_key)
);
create index serve_keys_created_at_idx on serve_keys (created_at);
create trigger serve_keys_refuse_suspended before insert on serve_keys for each row execute function refuse_suspended_org();
grant select, insert, delete on serve_keys to assay_api;
grant update (request_sha256, unit, units, created_at, is_used_by_repetition, repetitions) on serve_keys to assay_api;
