-- Predictions may be a table.
alter table uploads drop constraint uploads_content_type_known;
alter table uploads add constraint uploads_content_type_known
    check (content_type in ('application/x-ndjson', 'application/json', 'text/csv')) not valid;
alter table uploads validate constraint uploads_content_type_known;
