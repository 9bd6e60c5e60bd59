-- Small item scores are stored in their row instead of in the artifact store, which costs a job much less.
alter table stored_item_scores
    -- The item scores. Null if they are in the artifact store.
    add column body bytea,
    alter column scores_key drop not null,
    add constraint stored_item_scores_have_one_place check (num_nonnulls(scores_key, body) = 1) not valid;
alter table stored_item_scores validate constraint stored_item_scores_have_one_place;

-- The key of the job implies that of its organization. This check locked the row of the organization whenever a job finished.
alter table stored_item_scores drop constraint stored_item_scores_org_id_fkey;

-- jobs_status_idx finds the active jobs of an organization too.
drop index jobs_active_idx;
