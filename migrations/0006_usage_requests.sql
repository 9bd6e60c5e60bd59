-- Requests admitted, counted by the api processes and added up every second. Apart from `usage`, whose rows are locked
-- while somebody submits.
create table usage_requests (
    org_id text not null constraint usage_requests_org_id_fkey references orgs (id),
    period_start timestamptz not null,
    requests bigint not null constraint usage_requests_not_negative check (requests >= 0),
    constraint usage_requests_pkey primary key (org_id, period_start)
);

grant select, insert, update on usage_requests to assay_api;
