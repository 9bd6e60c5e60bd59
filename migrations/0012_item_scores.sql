-- Where the artifact store keeps the scores of a job's items, for suites that allow them to be read: one number for each
-- item of the suite, in its order.
alter table jobs add column scores_key text;
alter table jobs add constraint jobs_scores_iff_succeeded check (scores_key is null or status = 'succeeded');
