-- What errors of one cause have in common: a short hash of the kind and of the message's
-- first line without what differs from job to job: quoted text, hexadecimal, digits.
-- 16 characters; null for no message.
create or replace function pgwake.error_fingerprint(kind text, message text)
returns text
language sql immutable parallel safe
set search_path = ''
as $$
  select left(md5(error_fingerprint.kind || chr(10) || regexp_replace(
    regexp_replace(
      left(split_part(error_fingerprint.message, chr(10), 1), 500),
      $re$'[^']*'|"[^"]*"|`[^`]*`$re$, '?', 'g'),
    '(0x)?[0-9a-fA-F]*[0-9][0-9a-fA-F]*([-:.][0-9a-fA-F]+)*', '#', 'g')), 16)
$$;

comment on function pgwake.error_fingerprint is
  'What errors of one cause have in common: a hash of kind and normalised message.';
revoke all on function pgwake.error_fingerprint from public;
