-- Pages of items end by bytes: an API process charges a page to its memory budget before it reads the page. These functions measure
-- the next page. They stop at its end, so they read no more of the table than the page has.

-- Returns the number of items of the next page and their bytes. A page has at least
-- one item, and otherwise at most `bytes_max` bytes and `items_max` items.
create function suite_items_extent(
    of_suite_id text,
    of_version text,
    from_ordinal integer,
    items_max integer,
    bytes_max bigint,
    out items integer,
    out bytes bigint
) language plpgsql stable as $$
declare
    item record;
begin
    items := 0;
    bytes := 0;
    for item in
        select octet_length(item_id) + octet_length(input::text) as length
        from suite_items
        where suite_id = of_suite_id
          and version = of_version
          and ordinal >= from_ordinal
        order by ordinal
        limit items_max
    loop
        exit when items > 0 and bytes + item.length > bytes_max;
        items := items + 1;
        bytes := bytes + item.length;
    end loop;
end
$$;

-- Does the same for the answers of a retired version.
create function opened_answers_extent(
    of_suite_id text,
    of_version text,
    from_ordinal integer,
    items_max integer,
    bytes_max bigint,
    out items integer,
    out bytes bigint
) language plpgsql stable as $$
declare
    item record;
begin
    items := 0;
    bytes := 0;
    for item in
        select octet_length(item_id) + octet_length(answer::text) as length
        from opened_answers
        where suite_id = of_suite_id
          and suite_version = of_version
          and ordinal >= from_ordinal
        order by ordinal
        limit items_max
    loop
        exit when items > 0 and bytes + item.length > bytes_max;
        items := items + 1;
        bytes := bytes + item.length;
    end loop;
end
$$;
