-- The mailbox of a link's address, without the part after `+`: all addresses of one mailbox share the limits of sign-in emails. Null in
-- links of earlier releases, which expire within minutes.
alter table sign_in_links
    add column mailbox text;
