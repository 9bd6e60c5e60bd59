-- The content of versions: the items and answers with all that follows from them. It is stored before its version is published, and
-- never changes.
create table suite_contents (
    id bigint generated always as identity primary key,
    draft_id text collate "C" unique, -- The draft of an organization's version. Null for the operator's.
    org_id text collate "C",
    n_items integer not null constraint suite_contents_not_empty check (n_items > 0),
    bytes bigint not null, -- Bytes of the lines of items, answers, retest and catalog.
    content_sha256 bytea not null, -- The SHA-256 of the files: publishing the same files again is no error.
    version jsonb not null, -- The row of suites that publication inserts, by column. It has no secrets.
    -- What publication writes to suite_owners. Null: the file does not name it.
    visibility text,
    names_access boolean not null default false,
    metadata jsonb not null default '{}',
    created_at timestamptz not null default clock_timestamp()
);
create index suite_contents_org_id_idx on suite_contents (org_id);
-- Not content_sha256, which covers the answers: a reader could check a guess of the last unknown ones.
grant select (id, draft_id, org_id, n_items, bytes, created_at) on suite_contents to assay_api;

-- A published version never changes, until the operator removes it. The current version is the one published last.
create table suites (
    suite_id text collate "C" not null,
    version text not null,
    metric text not null,
    per_item_feedback boolean not null,
    description text not null,
    n_items integer not null constraint suites_not_empty check (n_items > 0),
    content_id bigint not null unique references suite_contents (id),
    published_at timestamptz not null default clock_timestamp(),
    release text not null default 'exact', -- The disclosure policy of scores.
    max_submissions_per_day integer constraint suites_max_submissions_per_day_positive check (max_submissions_per_day > 0),
    -- [low, high] of an item's loss.
    clip double precision[] constraint suites_clip_is_a_range check (array_length(clip, 1) = 2 and clip[1] >= 0 and clip[1] < clip[2]),
    -- The grid of a ladder: the value of level 0, the step between levels, the number of levels above 0.
    ladder_start double precision,
    ladder_step double precision,
    ladder_levels integer constraint suites_ladder_levels_positive check (ladder_levels > 0),
    n_sealed integer not null default 0 constraint suites_n_sealed_in_range check (n_sealed >= 0 and n_sealed < n_items),
    closes_at timestamptz, -- From then on, the sealed figures of final jobs are disclosed.
    max_submissions integer constraint suites_max_submissions_positive check (max_submissions > 0),
    access text not null default 'everyone' constraint suites_access_known check (access in ('everyone', 'verified_domain', 'granted')),
    -- The places of the events and the options in an item's input. Null: the suite is not about sequences.
    sequence_events text,
    sequence_options text,
    board text not null default 'off', -- When the board of the version shows figures.
    cluster text, -- The group field of items that are not independent. 'none': the publisher states that all are. Null: nothing is stated.
    average text not null default 'item' constraint suites_average_known check (average in ('item', 'cluster')), -- The unit that has equal weights in a value.
    cluster_is_hidden boolean not null default false, -- The field is in the lines of answers.
    n_clusters integer constraint suites_has_clusters check (n_clusters > 1),
    -- [{field, is_hidden, groups: [{group, n, ladder?: [start, step, levels]}]}]. The groups of a hidden field are in suite_hidden_groups.
    slices jsonb not null default '[]',
    scorer_min integer not null default 1, -- The least version of the scorer that a worker needs to score the suite.
    ceiling jsonb, -- The disclosed noise ceiling of the open items: {kind, value, stderr, ci95, n}. Null: the suite has no retest.
    labels text[] not null default '{}', -- The options of each answer, in their order. Empty: the suite names none.
    -- The levels of predicted quantiles, ascending. Empty: predictions are no quantiles.
    quantiles double precision[] not null default '{}' constraint suites_quantiles_in_range check (cardinality(quantiles) <= 99),
    skill jsonb, -- The baseline of the skill: {baseline, within?}. Null: results have no skill.
    slice_min integer not null default 50 constraint suites_slice_min_in_range check (slice_min between 50 and 100000),
    -- The time of a takedown. It is set before the first item or answer is deleted: a reader that then finds null has read all.
    removed_at timestamptz,
    primary key (suite_id, version),
    constraint suites_ladder_has_grid check (
        num_nonnulls(ladder_start, ladder_step, ladder_levels) = case when starts_with(release, 'ladder(') then 3 else 0 end
    ),
    constraint suites_options_have_events check (sequence_options is null or sequence_events is not null),
    constraint suites_n_clusters_match check ((n_clusters is not null) = (cluster is not null and cluster <> 'none')),
    constraint suites_average_has_clusters check (average = 'item' or n_clusters is not null),
    constraint suites_quantiles_match_metric check ((cardinality(quantiles) > 0) = (metric in ('pinball', 'wis'))),
    constraint suites_board_known check (board in ('off', 'live', 'at_close')),
    constraint suites_closes check ((n_sealed = 0 or closes_at is not null) and (board <> 'at_close' or closes_at is not null))
);
create index suites_current_idx on suites (suite_id, published_at desc);
grant select on suites to assay_api, assay_worker;

-- The publisher of a suite, and what it can change about all versions.
create table suite_owners (
    suite_id text collate "C" primary key,
    org_id text collate "C" references orgs (id), -- Null: the operator's.
    visibility text not null constraint suite_owners_visibility_known check (visibility in ('private', 'listed', 'public')),
    access text not null constraint suite_owners_access_known check (access in ('everyone', 'verified_domain', 'granted')),
    -- The keys title, description, license, citation, links, tags and contact that are set. The description of a version is its first value.
    metadata jsonb not null default '{}',
    errata jsonb not null default '[]', -- [{version, note, created_at}], the oldest first.
    approved_at timestamptz, -- The operator has approved that more than the owner and organizations with a grant see the suite.
    suspended_at timestamptz, -- While it is set, only the owner sees the suite.
    removed_at timestamptz, -- The time at which all versions were removed, for good: no further one is published.
    updated_at timestamptz not null default clock_timestamp(),
    -- The key of the names under which the publisher sees the organizations that submit: 244 random bits.
    submitter_key bytea not null default uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())
);
create index suite_owners_org_id_idx on suite_owners (org_id);
grant select, update (visibility, access, metadata, errata, updated_at) on suite_owners to assay_api;
grant select (suite_id, org_id) on suite_owners to assay_worker; -- Whether a job is by the publisher.

create table suite_items (
    content_id bigint not null,
    ordinal integer not null, -- The place in the published file, from 0.
    item_id text collate "C" not null,
    input json not null, -- Not jsonb: callers get it exactly as it was published.
    groups json, -- The public group fields, in the form of RFC 8785. Not jsonb: the commitment hashes these bytes.
    primary key (content_id, ordinal),
    constraint suite_items_content_fkey foreign key (content_id) references suite_contents (id)
);
-- Workers read items to predict a suite. Items contain no answers.
grant select on suite_items to assay_api, assay_worker;

-- The only table of secret answers. The role that serves requests has no right to it.
create table suite_answers (
    content_id bigint not null,
    ordinal integer not null,
    item_id text collate "C" not null,
    answer json not null,
    sealed boolean not null default false, -- In this table, because the API's role must not read it.
    groups json, -- The hidden group fields.
    n integer, -- The number of people behind the answer, if it is a distribution and the publisher gives it.
    skill_group integer, -- The number of the item's group within which the skill is computed.
    cluster integer, -- The number of the item's cluster among those of all items, by first item.
    slices bytea, -- A byte for each field in suites.slices: the place of the item's slice among its groups; 255: none.
    primary key (content_id, ordinal),
    constraint suite_answers_content_fkey foreign key (content_id) references suite_contents (id)
);
grant select on suite_answers to assay_worker;

-- The clusters of the open items, in their order, for comparisons: the role that serves requests must know which items are not independent,
-- but not their hidden group fields. A row has 65,536 items, the last one the rest.
create table suite_clusters (
    content_id bigint not null,
    first integer not null, -- The place of the row's first item among the open ones.
    clusters bytea not null, -- Little-endian 32-bit numbers from 0 without gaps, by the first open item of each cluster.
    primary key (content_id, first),
    constraint suite_clusters_content_fkey foreign key (content_id) references suite_contents (id)
);
grant select on suite_clusters to assay_api;

-- The slices by hidden group fields, whose values are as secret as the answers.
create table suite_hidden_groups (
    content_id bigint not null,
    field text not null,
    groups jsonb not null, -- As in suites.slices.
    primary key (content_id, field),
    constraint suite_hidden_groups_content_fkey foreign key (content_id) references suite_contents (id)
);
grant select on suite_hidden_groups to assay_worker;

-- The second set of human answers, as secret as the first.
create table suite_retest (
    content_id bigint not null,
    ordinal integer not null, -- The place in the published file, from 0.
    item_id text collate "C" not null,
    answers json not null,
    primary key (content_id, ordinal),
    constraint suite_retest_content_fkey foreign key (content_id) references suite_contents (id)
);
grant select on suite_retest to assay_worker;

-- The exact noise floors: the loss that the shares of as many other people would have.
create table suite_floors (
    content_id bigint not null,
    is_sealed boolean not null,
    value double precision not null,
    primary key (content_id, is_sealed),
    constraint suite_floors_content_fkey foreign key (content_id) references suite_contents (id)
);
grant select on suite_floors to assay_worker;

-- The ids that rankings can show, with their popularity, for figures about what a submission shows.
create table suite_catalog (
    content_id bigint not null,
    ordinal integer not null, -- The place in the published file, from 0.
    id text collate "C" not null,
    popularity double precision not null,
    primary key (content_id, ordinal),
    constraint suite_catalog_content_fkey foreign key (content_id) references suite_contents (id)
);
grant select on suite_catalog to assay_worker;

-- The submissions that a publisher pins, with their disclosed figures: those of the open items.
create table suite_baselines (
    content_id bigint not null,
    place integer not null, -- The order in suite.toml, from 0. The trivial submissions follow.
    name text not null,
    -- The keys of the name, see NameKeys: no entry of the board may look the same.
    name_key text not null,
    name_shown text not null,
    kind text not null constraint suite_baselines_kind_known check (kind in ('human', 'model', 'trivial')),
    url text,
    value double precision not null,
    stderr double precision,
    ci95 double precision[],
    n_missing integer not null,
    primary key (content_id, place),
    constraint suite_baselines_name_key unique (content_id, name_key),
    constraint suite_baselines_content_fkey foreign key (content_id) references suite_contents (id)
);
grant select on suite_baselines to assay_api, assay_worker;

-- Their exact figures and item scores, over the open and over the sealed items.
create table suite_baseline_scores (
    content_id bigint not null,
    place integer not null,
    is_sealed boolean not null,
    value double precision not null,
    stderr double precision,
    ci95 double precision[],
    n_missing integer not null,
    item_scores bytea not null,
    primary key (content_id, place, is_sealed),
    constraint suite_baseline_scores_baseline_fkey foreign key (content_id, place)
        references suite_baselines (content_id, place)
);
-- Comparisons read ranges.
alter table suite_baseline_scores alter column item_scores set storage external;
grant select on suite_baseline_scores to assay_worker;

-- The figures over the sealed items, after the suite has closed.
create view closed_baseline_scores with (security_barrier) as
select b.content_id, b.place, b.value, b.stderr, b.ci95, b.n_missing
from suite_baseline_scores b
join suites s on s.content_id = b.content_id
where b.is_sealed
  and s.closes_at <= now();
grant select on closed_baseline_scores to assay_api;

-- The item scores that comparisons read, as those of jobs: over the open items, and not under a ladder.
create view compared_baseline_scores with (security_barrier) as
select b.content_id, b.place, b.item_scores
from suite_baseline_scores b
join suites s on s.content_id = b.content_id
where not b.is_sealed
  and s.ladder_step is null;
grant select on compared_baseline_scores to assay_api;

-- Organizations that see a private suite, and may submit to a suite with access = 'granted': by their id, by a domain that they have
-- verified, or after they accepted a link.
create table suite_grants (
    id text collate "C" primary key,
    suite_id text collate "C" not null references suite_owners (suite_id),
    -- No reference: a grant does not reveal whether the organization exists.
    org_id text collate "C",
    domain text collate "C",
    token_hash bytea constraint suite_grants_token_hash_key unique, -- The SHA-256 of the token of a link.
    max_uses integer,
    uses integer not null default 0, -- Of a link: the organizations that accepted it.
    expires_at timestamptz,
    is_accepted boolean not null default false, -- The organization accepted a link, and its name is shown.
    created_by text collate "C", -- A user or a key of the publisher. Null: the operator.
    created_at timestamptz not null default clock_timestamp(),
    constraint suite_grants_one_target check (num_nonnulls(org_id, domain, token_hash) = 1),
    constraint suite_grants_uses_in_range check (
        (token_hash is null) = (max_uses is null) and (token_hash is null) = (expires_at is null) and uses <= coalesce(max_uses, 0)
    ),
    constraint suite_grants_org_key unique (suite_id, org_id),
    constraint suite_grants_domain_key unique (suite_id, domain)
);
create index suite_grants_org_id_idx on suite_grants (org_id);
grant select, insert, update (uses), delete on suite_grants to assay_api;

-- The suites that an organization sees, each with its owner as others see it and with the organization's right to submit. A null
-- organization is a caller without a credential. Only this function decides who sees and who submits. The planner expands it, so a
-- condition on suite_id uses the index.
create function visible_suites(caller text)
returns table (
    suite_id text, owner jsonb, visibility text, access text, metadata jsonb, errata jsonb, suspended_at timestamptz,
    removed_at timestamptz, updated_at timestamptz, can_submit boolean
) language sql stable as $$
    select
        s.suite_id,
        (
            select jsonb_build_object(
                'name', o.name,
                'handle', o.handle,
                'domain', (select min(d.domain) from domain_claims d where d.org_id = o.id and d.verified_at is not null)
            )
            from orgs o
            where o.id = s.org_id
        ),
        s.visibility, s.access, s.metadata, s.errata, s.suspended_at, s.removed_at, s.updated_at,
        caller is not null and (
            coalesce(s.org_id = caller, false)
            or case s.access
                when 'everyone' then true
                when 'verified_domain' then exists (
                    select from domain_claims d where d.org_id = caller and d.verified_at is not null
                )
                else granted.has_grant
            end
        )
    from suite_owners s
    cross join lateral (
        select exists (
            select from suite_grants g
            where g.suite_id = s.suite_id
              and (
                  g.org_id = caller
                  or exists (
                      select from domain_claims d where d.org_id = caller and d.verified_at is not null and d.domain = g.domain
                  )
              )
        ) as has_grant
    ) granted
    where s.org_id = caller
       or (
           s.suspended_at is null
           and (
               s.visibility = 'public'
               or (s.visibility = 'listed' and caller is not null)
               or granted.has_grant
           )
       )
$$;

-- What limits are counted for: an organization ('org:…'), all organizations of a registrable domain ('domain:…'), and all organizations on
-- the plan free that a user created ('user:…'). A submission, a comparison, a score on a ladder and a final mark lock the row.
create table suite_allowances (
    holder text not null,
    suite_id text collate "C" not null,
    suite_version text not null,
    level integer not null default 0, -- The highest level of the ladder that was disclosed to any of the organizations.
    used_at timestamptz not null default clock_timestamp(),
    n_scored integer not null default 0, -- The number of scored submissions, for the number in a receipt.
    primary key (holder, suite_id, suite_version),
    constraint suite_allowances_suite_fkey foreign key (suite_id, suite_version) references suites (suite_id, version)
);
grant select, insert, update (used_at) on suite_allowances to assay_api;
grant select, insert, update (level, n_scored) on suite_allowances to assay_worker;

-- The holders of an organization's allowances: its creator, if it is on the plan free, and its verified domains.
create view org_allowance_holders with (security_barrier) as
select
    o.id as org_id,
    o.plan = 'free' as shares_creator,
    coalesce(
        o.created_by,
        (select m.user_id from memberships m where m.org_id = o.id and m.role = 'owner' order by m.created_at, m.user_id limit 1)
    ) as creator,
    array(select c.domain from domain_claims c where c.org_id = o.id and c.verified_at is not null) as domains
from orgs o;
grant select on org_allowance_holders to assay_api, assay_worker;

-- Measures the next page of items, opened answers or opened retest answers, which is charged to the memory budget before it is read. A page has at least one item,
-- and otherwise at most `bytes_max` bytes and `items_max` items.
create function page_extent(
    of_file text, of_suite_id text, of_version text, of_content_id bigint, from_ordinal integer, items_max integer, bytes_max bigint,
    out items integer, out bytes bigint
) language plpgsql stable as $$
declare
    sizes refcursor;
    size bigint;
begin
    items := 0;
    bytes := 0;
    -- The deletion of a removed version may have begun.
    if exists (
        select from suites
        where removed_at is not null
          and (content_id = of_content_id or (suite_id = of_suite_id and version = of_version))
    ) then
        return;
    end if;
    if of_file = 'answers' then
        open sizes for
            select octet_length(item_id) + octet_length(answer::text) + coalesce(octet_length(groups::text), 0)
            from opened_answers
            where suite_id = of_suite_id
              and suite_version = of_version
              and ordinal >= from_ordinal
            order by ordinal
            limit items_max;
    elsif of_file = 'retest' then
        open sizes for
            select octet_length(item_id) + octet_length(answers::text)
            from opened_retest
            where suite_id = of_suite_id
              and suite_version = of_version
              and ordinal >= from_ordinal
            order by ordinal
            limit items_max;
    else
        open sizes for
            select octet_length(item_id) + octet_length(input::text) + coalesce(octet_length(groups::text), 0)
            from suite_items
            where content_id = coalesce(
                of_content_id, (select content_id from suites where suite_id = of_suite_id and version = of_version)
            )
              and ordinal >= from_ordinal
            order by ordinal
            limit items_max;
    end if;
    -- Row by row: a loop over the query would read up to fifty rows ahead, and each can have 256 KiB.
    loop
        fetch sizes into size;
        exit when not found or (items > 0 and bytes + size > bytes_max);
        items := items + 1;
        bytes := bytes + size;
    end loop;
    close sizes;
end
$$;
