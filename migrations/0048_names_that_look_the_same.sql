-- The key of an entry's name as it is shown, see NameKeys. Null for entries from before. name_key is the other key of NameKeys.
alter table board_entries add column name_shown text;
