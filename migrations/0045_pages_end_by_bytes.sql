-- Measures the next page of a version's items or opened answers: pages end by bytes, and an API process charges a page to its memory
-- budget before it reads it. A page has at least one item, and otherwise at most `bytes_max` bytes and `items_max` items.
create function page_extent(
    of_answers boolean,
    of_suite_id text,
    of_version text,
    from_ordinal integer,
    items_max integer,
    bytes_max bigint,
    out items integer,
    out bytes bigint
) language plpgsql stable as $$
declare
    sizes refcursor;
    size bigint;
begin
    items := 0;
    bytes := 0;
    if of_answers then
        open sizes for
            select octet_length(item_id) + octet_length(answer::text)
            from opened_answers
            where suite_id = of_suite_id
              and suite_version = of_version
              and ordinal >= from_ordinal
            order by ordinal
            limit items_max;
    else
        open sizes for
            select octet_length(item_id) + octet_length(input::text)
            from suite_items
            where suite_id = of_suite_id
              and version = of_version
              and ordinal >= from_ordinal
            order by ordinal
            limit items_max;
    end if;
    -- Row by row: a loop over the query would read up to fifty rows ahead, and each can have 256 KiB.
    loop
        fetch sizes into size;
        exit when not found or (items > 0 and bytes + size > bytes_max);
        items := items + 1;
        bytes := bytes + size;
    end loop;
    close sizes;
end
$$;
