-- The role of `assay-api deliver`, which connects to addresses that organizations choose. It reads and updates deliveries, and
-- nothing else. As the roles of 0001, it may exist already.
do $$
begin
    if not exists (select from pg_roles where rolname = 'assay_delivery') then
        create role assay_delivery nologin;
    end if;
exception when duplicate_object or unique_violation then
    null;
end
$$;
grant usage on schema public to assay_delivery;
grant select on _sqlx_migrations to assay_delivery;

-- Where an organization wants its events to be sent.
create table webhooks (
    id text constraint webhooks_pkey primary key,
    org_id text not null constraint webhooks_org_id_fkey references orgs (id),
    url text not null,
    events text[] not null,
    description text,
    enabled boolean not null default true,
    disabled_reason text,
    -- The signing secret is derived from the id and this number, and not stored.
    secret_generation integer not null default 1,
    -- The time until which deliveries are also signed with the secret before.
    previous_secret_until timestamptz,
    -- The last characters of the secret.
    secret_hint text not null,
    created_by text not null,
    created_at timestamptz not null default clock_timestamp(),
    updated_at timestamptz not null default clock_timestamp(),
    last_delivered_at timestamptz,
    failing_since timestamptz,
    -- The time at which the receiver responded with 410. The API then disables the webhook.
    gone_at timestamptz,
    -- The position in the feed of events: deliveries of the events before it are stored.
    xid xid8 not null,
    position bigint not null,
    constraint webhooks_have_events check (cardinality(events) > 0),
    constraint webhooks_disabled_reason_known check (disabled_reason in ('owner', 'gone', 'failing')),
    constraint webhooks_disabled_have_reason check (enabled = (disabled_reason is null))
);
create index webhooks_org_id_idx on webhooks (org_id);
create trigger webhooks_refuse_suspended before insert on webhooks for each row execute function refuse_suspended_org();
grant select, insert, delete,
    update (
        url, events, description, enabled, disabled_reason, secret_generation, previous_secret_until, secret_hint, updated_at,
        last_delivered_at, failing_since, gone_at, xid, position
    )
    on webhooks to assay_api;
grant select, update (last_delivered_at, failing_since, gone_at) on webhooks to assay_delivery;

-- The bodies of deliveries. The webhooks of an organization share the body of an event.
create table webhook_payloads (
    -- No foreign keys: they would lock the organization's row, for which submissions wait, with each event.
    org_id text not null,
    event_id text not null,
    body text not null,
    -- The user that the event is about, whose erasure deletes it.
    user_id text generated always as (body::jsonb #>> '{data,user_id}') stored,
    created_at timestamptz not null default clock_timestamp(),
    constraint webhook_payloads_pkey primary key (org_id, event_id)
);
create index webhook_payloads_created_at_idx on webhook_payloads (created_at);
create index webhook_payloads_user_id_idx on webhook_payloads (user_id) where user_id is not null;
grant select, insert, update (created_at), delete on webhook_payloads to assay_api;
grant select on webhook_payloads to assay_delivery;

-- An event that is sent to a webhook. Finished deliveries of a deleted webhook stay until their payload is deleted.
create table webhook_deliveries (
    org_id text not null,
    webhook_id text not null,
    -- It begins with the time. The order of its bytes is the order of the listing.
    id text collate "C" not null,
    event_id text not null,
    -- The number of attempts so far.
    attempt integer not null default 0,
    -- The number of failures since the delivery was created or retried by hand. An attempt whose process died is none.
    failures integer not null default 0,
    status text not null default 'pending'
        constraint webhook_deliveries_status_known check (status in ('pending', 'delivered', 'failed')),
    response_status integer,
    error text,
    duration_ms bigint,
    created_at timestamptz not null default clock_timestamp(),
    attempted_at timestamptz,
    -- While an attempt is in progress, the time at which it is repeated if its process has died.
    next_attempt_at timestamptz default clock_timestamp(),
    constraint webhook_deliveries_pkey primary key (org_id, webhook_id, id),
    constraint webhook_deliveries_event_key unique (org_id, event_id, webhook_id),
    constraint webhook_deliveries_payload_fkey foreign key (org_id, event_id)
        references webhook_payloads (org_id, event_id) on delete cascade,
    constraint webhook_deliveries_pending_have_next check ((status = 'pending') = (next_attempt_at is not null))
);
create index webhook_deliveries_due_idx on webhook_deliveries (webhook_id, next_attempt_at) where status = 'pending';
grant select, insert, delete,
    update (attempt, failures, status, response_status, error, duration_ms, attempted_at, next_attempt_at)
    on webhook_deliveries to assay_api;
grant select, update (attempt, failures, status, response_status, error, duration_ms, attempted_at, next_attempt_at)
    on webhook_deliveries to assay_delivery;

-- Wakes up the processes that deliver.
create function notify_deliveries() returns trigger language plpgsql as $$
begin
    perform pg_notify('assay_deliveries', '');
    return null;
end
$$;
create trigger webhook_deliveries_notify after insert on webhook_deliveries
    for each statement execute function notify_deliveries();

-- The webhooks with pending deliveries that can be attempted: it is enabled, and its organization is not suspended. For each
-- webhook with pending deliveries it reads one entry of the index, not all of them.
create view webhooks_with_pending_deliveries as
    with recursive pending (webhook_id) as (
        select min(webhook_id) from webhook_deliveries where status = 'pending'
        union all
        select (
            select min(d.webhook_id)
            from webhook_deliveries d
            where d.status = 'pending'
              and d.webhook_id > p.webhook_id
        )
        from pending p
        where p.webhook_id is not null
    )
    select w.id as webhook_id
    from pending p
    join webhooks w on w.id = p.webhook_id
    join orgs o on o.id = w.org_id
    where w.enabled
      and w.gone_at is null
      and o.suspended_at is null;
grant select on webhooks_with_pending_deliveries to assay_api, assay_delivery;
