-- The span in whose name the job was stored, 16 hex digits: attempts go on from there, in whatever process. Older jobs have
-- none. No constraint: to check one would keep everybody from the jobs for as long as it takes to read them all.
alter table jobs add column span_id text;
