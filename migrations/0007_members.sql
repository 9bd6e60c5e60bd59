-- Roles are changed and memberships ended through the api, by owners.
grant update (role), delete on memberships to assay_api;
