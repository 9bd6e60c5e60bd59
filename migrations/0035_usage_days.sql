-- Requests admitted on each day, UTC, for the usage by day. Charges have their day in usage_ledger. The rows are apart from those of
-- the months, which the release before counts alone. No trigger refuse_suspended_org: one statement adds the requests of many
-- organizations.
create table usage_request_days (
    org_id text not null constraint usage_request_days_org_id_fkey references orgs (id),
    date date not null,
    requests bigint not null constraint usage_request_days_not_negative check (requests >= 0),
    constraint usage_request_days_pkey primary key (org_id, date)
);
create index usage_request_days_date_idx on usage_request_days (date);
grant select, insert, update (requests), delete on usage_request_days to assay_api;
