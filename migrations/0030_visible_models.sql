-- Returns the version of a model that an organization sees: the wanted one, or the one published last. Its own models take precedence
-- over the platform's.
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
