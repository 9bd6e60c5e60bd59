-- The name of a withdrawn entry is free again: a refusal would reveal the entry, which no reader of the board sees. `name` keeps it for the
-- organization.
grant update (name_key, name_shown) on board_entries to assay_api;
update board_entries
set
    name_key = id,
    name_shown = id
where withdrawn_at is not null;
