-- How much of the submission a running attempt has scored, 0 to 1. Of one that does not run it says nothing.
alter table jobs add column progress double precision not null default 0;

-- When what an ended job does not need any more was removed from the artifact store: its submission, and what attempts kept
-- of its items that did not end it.
alter table jobs add column tidied_at timestamptz;
drop index jobs_input_left_idx;
create index jobs_untidied_idx on jobs (finished_at) where tidied_at is null and finished_at is not null;
