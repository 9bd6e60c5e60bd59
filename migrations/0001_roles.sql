-- Two group roles keep the answers out of the api's reach: what serves requests is granted no right to them.
-- They cannot log in. The operator gives each process a login role of its own that is a member of one of them.
-- Roles belong to the whole server, so another database of this installation may have made them already,
-- perhaps at this very moment.
do $$
declare
    role_name text;
begin
    foreach role_name in array array['assay_api', 'assay_worker'] loop
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
grant usage on schema public to assay_api, assay_worker;
-- Both processes ask whether the schema is the one that they were built for.
grant select on _sqlx_migrations to assay_api, assay_worker;
