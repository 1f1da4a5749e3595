-- What errors of one cause have in common: a short hash of the kind and of the message's
-- first line without what differs from job to job. 16 characters; no message is an empty
-- one.
--
-- Left out are quoted text (also with escaped quotes, but not what stands between two
-- apostrophes: can't), URLs, email addresses, absolute paths, UUIDs, IP and memory
-- addresses, hexadecimal words with a digit in them, ids made of letters and digits in
-- turn, and numbers with their signs, separators and exponents; a list of such is as one.
-- Words stay, so errors that say something else stay apart. The steps are in this order
-- since each would spoil what the ones before it look for.
create or replace function pgwake.error_fingerprint(kind text, message text)
returns text
language plpgsql immutable parallel safe
set search_path = pg_catalog, pg_temp
set standard_conforming_strings = on
as $$
declare
  -- Quotes may hide line breaks, so these go first.
  v_line text := left(coalesce(error_fingerprint.message, ''), 2000);
begin
  v_line := regexp_replace(
    v_line,
    $re$(?<!\w)'([^'\\]|\\.|'')*('|$)(?!\w)|"([^"\\]|\\.|"")*("|$)|`[^`]*(`|$)|\u201c[^\u201d]*(\u201d|$)|\u00ab[^\u00bb]*(\u00bb|$)$re$,
    '?', 'g');
  v_line := split_part(ltrim(v_line, E' \t\r\n'), E'\n', 1);
  v_line := regexp_replace(v_line, '\m\w[\w+.-]*://[^\s,;)\]}>]+', '?', 'g');
  v_line := regexp_replace(v_line, '[\w.+-]+@[\w-]+(\.[\w-]+)+', '?', 'g');
  v_line := regexp_replace(v_line, '(?<![\w/.])(\.{0,2}|~)(/[\w.@%+-]+)+/?|\m[A-Za-z]:\\[^\s,;:)]+', '?', 'g');
  v_line := regexp_replace(
    v_line,
    '\m[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\M'
    '|(?<![\w:])(?=[0-9a-fA-F]*:[0-9a-fA-F]*:)(?=[a-fA-F:]*[0-9])[0-9a-fA-F:.]+(?!\w)'
    '|\m0[xX][0-9a-fA-F]+\M'
    '|\m[0-9]+(\.[0-9]+)?[eE][-+]?[0-9]+\M'
    '|\m(?=[a-fA-F]*[0-9])[0-9a-fA-F]{4,}\M'
    '|\m(?=\w{16})[A-Za-z_]*([0-9]+[A-Za-z_]+){3,}[0-9]*\M',
    '#', 'g');
  v_line := regexp_replace(
    v_line, '((?<![\w#?)\]])[-+])?[0-9#]+([.,:_/-]?[0-9#]+)*([eE][-+]?[0-9#]+)?', '#', 'g');
  v_line := regexp_replace(v_line, '([#?])(\s*,\s*[#?])+', '\1', 'g');
  v_line := regexp_replace(v_line, '\s+', ' ', 'g');
  return left(md5(error_fingerprint.kind || E'\n' || left(v_line, 500)), 16);
end
$$;

comment on function pgwake.error_fingerprint is
  'Internal: what errors of one cause have in common: a hash of kind and normalised message.';
revoke all on function pgwake.error_fingerprint from public;
