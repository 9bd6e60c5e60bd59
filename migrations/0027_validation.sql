-- Checks the existing jobs against the constraints of the migration before. A migration of its own, because that one locks jobs
-- against everything, and this one reads all of them.
alter table jobs validate constraint jobs_eval_has_suite;
alter table jobs validate constraint jobs_predict_has_model;
