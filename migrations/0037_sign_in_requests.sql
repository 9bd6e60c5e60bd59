-- A sign-in link shows who requested it, because a user may open it on another device.
alter table sign_in_links
    -- The network address of the client that requested the link. Null if a process of the release before stored it.
    add column address text,
    -- Its `User-Agent`. Null if it sent none.
    add column user_agent text;
