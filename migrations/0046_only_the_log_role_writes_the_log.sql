-- Only the role `assay_log` signs statements, registers keys and writes the log. An API process that has the keys connects with a
-- second role for that (ASSAY_LOG_DATABASE_URL): its own role, which serves requests from the internet, can forge nothing.
revoke update (kid, signature, log_index) on suite_commitments from assay_api;
revoke update (kid, signature, log_index) on receipts from assay_api;
revoke insert, update (valid_until, revoked_at_index, revoked_jws) on receipt_keys from assay_api;
revoke insert on log_entries, log_checkpoints from assay_api;
