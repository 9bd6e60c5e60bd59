-- The emails about an organization's jobs and usage that a user has turned on.
create table mail_preferences (
    user_id text constraint mail_preferences_pkey primary key constraint mail_preferences_user_id_fkey references users (id),
    job_mails text not null constraint mail_preferences_job_mails_known check (job_mails in ('none', 'failed', 'finished')),
    thresholds boolean not null,
    -- The events of transactions before this one were reported, or are older than the choice.
    reported_before xid8 not null,
    -- The time at which events are looked for again.
    next_at timestamptz not null
);
create index mail_preferences_next_at_idx on mail_preferences (next_at) where job_mails <> 'none' or thresholds;
grant select, insert, update (job_mails, thresholds, reported_before, next_at) on mail_preferences to assay_api;
