-- Charges that repeated requests rely on.

alter table serve_keys
    -- A repeated request has a result and no charge of its own. Then the charge of the first request is not refunded any more, even
    -- if that request fails.
    add column is_used_by_repetition boolean not null default false;
grant update (is_used_by_repetition) on serve_keys to assay_api;
