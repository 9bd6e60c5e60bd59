-- Rows for existing jobs. A migration of its own, because the one before locks jobs, and this one reads all of them.

-- Submissions before this migration count for their organization.
insert into suite_disclosures (holder, org_id, kind, job_id, suite_id, suite_version, created_at)
select 'org:' || j.org_id, j.org_id, 'submission', j.id, j.suite_id, j.suite_version, j.created_at
from suites s join jobs j on j.suite_id = s.suite_id and j.suite_version = s.version
where s.release like 'ladder%' or s.max_submissions_per_day is not null
on conflict do nothing;

-- Item scores of suites with a ladder must not be stored: they expire now.
insert into stored_item_scores (org_id, job_id, scores_key, expires_at)
select j.org_id, j.id, j.scores_key, case when s.release like 'ladder%' then now() else now() + interval '30 days' end
from jobs j join suites s on s.suite_id = j.suite_id and s.version = j.suite_version
where j.scores_key is not null
on conflict do nothing;
