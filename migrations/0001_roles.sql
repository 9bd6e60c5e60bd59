-- Columns of ids are `text collate "C"` in all migrations: the order of ids that begin with the time is then that of time.

-- The group roles of the processes. They cannot log in: each process has a login role of the operator that is a member of one group.
-- `assay_api` serves requests and has no right to the answers. `assay_worker` scores. `assay_checker` checks the
-- drafts of suites and publishes them. `assay_delivery` is for `assay-api deliver`, which
-- connects to addresses that organizations choose, and reads and updates only deliveries. `assay_log` is for `assay-api log`, which holds
-- the signing keys, and only reads statements and writes signatures and the log. Another database of the server may have created the roles,
-- perhaps at the same time.
do $$
declare
    role_name text;
begin
    foreach role_name in array array['assay_api', 'assay_worker', 'assay_checker', 'assay_delivery', 'assay_log'] loop
        begin
            if not exists (select from pg_roles where rolname = role_name) then
                execute format('create role %I nologin', role_name);
            end if;
        exception when duplicate_object or unique_violation then
            null;
        end;
    end loop;
end
$$;

revoke create on schema public from public;
grant usage on schema public to assay_api, assay_worker, assay_checker, assay_delivery, assay_log;
-- All processes check that the schema is the one that they were built for.
grant select on _sqlx_migrations to assay_api, assay_worker, assay_checker, assay_delivery, assay_log;
