-- The span in whose name the job was stored: attempts go on from there, in whatever process. Older jobs have none.
alter table jobs add column span_id text
    constraint jobs_span_id_hex check (span_id ~ '^[0-9a-f]{16}$');
