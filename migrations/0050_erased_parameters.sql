-- `org delete` left the options of predictions, the digests and the messages of uploads, and the reasons of removals.
update jobs
set parameters = '{}'
where org_id in (select id from orgs where deleted_at is not null)
  and parameters <> '{}';
update uploads
set
    digest = case when digest is not null then ''::bytea end,
    error_message = null
where org_id in (select id from orgs where deleted_at is not null)
  and (digest <> '' or error_message is not null);
update board_entries
set removed_reason = null
where org_id in (select id from orgs where deleted_at is not null)
  and removed_reason is not null;
