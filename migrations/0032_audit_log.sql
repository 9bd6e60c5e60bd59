-- What was changed in an organization, by whom, and from where. An entry is stored in the transaction of its change.
create table audit_entries (
    org_id text not null constraint audit_entries_org_id_fkey references orgs (id),
    -- It begins with the time. The order of its bytes is the order of the log.
    id text collate "C" not null,
    type text not null,
    created_at timestamptz not null default clock_timestamp(),
    actor_type text not null
        constraint audit_entries_actor_type_known check (actor_type in ('session', 'api_key', 'operator', 'platform')),
    user_id text,
    -- The address of the user at that time.
    email text,
    key_id text,
    request_id text,
    address text,
    target_type text not null,
    target_id text not null,
    -- {"field": {"before": …, "after": …}}
    changes jsonb,
    constraint audit_entries_pkey primary key (org_id, id)
);
create index audit_entries_created_at_idx on audit_entries (created_at);
create index audit_entries_target_id_idx on audit_entries (org_id, target_id, id);
create index audit_entries_user_id_idx on audit_entries (user_id);
-- Nothing else: nobody who controls the API can change what was recorded.
grant select, insert on audit_entries to assay_api;

-- Deletes entries that are older than some days, at least 400, and returns their number. The API calls it without the right to
-- delete others.
create function delete_old_audit_entries(days integer, entries bigint) returns bigint
language sql security definer set search_path = public, pg_temp as $$
    with old as (
        select org_id, id
        from audit_entries
        where created_at < now() - greatest(days, 400) * interval '1 day'
        order by created_at
        limit entries
        for update skip locked
    ), gone as (
        delete from audit_entries a
        using old o
        where a.org_id = o.org_id
          and a.id = o.id
        returning 1
    )
    select count(*) from gone
$$;
revoke execute on function delete_old_audit_entries(integer, bigint) from public;
grant execute on function delete_old_audit_entries(integer, bigint) to assay_api;
