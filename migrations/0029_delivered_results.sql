-- The charge of an idempotency key that a repeated request has relied on.

alter table serve_keys
    -- A repeated request returned its result without a charge of its own. Then the charge of the first request is not refunded
    -- any more, even if that request fails.
    add column has_result boolean not null default false;
grant update (has_result) on serve_keys to assay_api;
