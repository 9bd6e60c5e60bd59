-- Sign-in links by address, what a user sees of a session, and memberships that began with an invite.

-- The live links of an address: at most a few.
create index sign_in_links_live_idx on sign_in_links (email) where used_at is null;

-- From here on `mailed` counts invites alone. Sign-in mails are counted by their links.

-- Where the session was last used from. Null for sessions that the operator creates, until they are used.
alter table sessions
    add column address text,
    add column user_agent text;
create index sessions_user_id_idx on sessions (user_id);
grant update (address, user_agent) on sessions to assay_api;

-- Whether the user joined by the invite of an organization that does not own the domain of their address. Such a membership
-- alone never decides for which of several organizations a session acts. Memberships that exist stay as they are.
alter table memberships add column by_invite boolean not null default false;
