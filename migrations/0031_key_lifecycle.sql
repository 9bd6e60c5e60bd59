-- Scopes, expiry and rotation of API keys. Keys that exist keep all scopes and do not expire.
alter table api_keys
    -- Null stands for all scopes, also those that a later release adds.
    add column scopes text[],
    add column expires_at timestamptz,
    -- The address of the client that used the key last.
    add column last_used_address text,
    -- The keys before and after a rotation. No foreign keys: the id of a key outlives its row, which cleanup deletes.
    add column replaces text,
    add column replaced_by text;
grant update (name, scopes, expires_at, last_used_address, replaced_by) on api_keys to assay_api;
