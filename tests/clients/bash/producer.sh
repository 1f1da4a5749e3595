#!/usr/bin/env bash
# A producer with psql alone: DATABASE_URL=... QUEUE=... producer.sh COUNT [PREFIX]
# Plain inserts, in the caller's own transactions, in one session.
set -euo pipefail

count=$1 prefix=${2:-bash-}

enqueue() { # NUMBER: the statement; it gives a row if the key was free
  cat <<SQL
insert into pgwake.jobs (queue, kind, payload, metadata, unique_key)
values (:'queue', 'conformance.echo', '{"number": $1}', '{"from": "bash"}', :'prefix' || $1)
on conflict do nothing returning 'inserted';
SQL
}

script() {
  local first number
  for ((first = 0; first < count; first += 10)); do
    echo 'begin;'
    for ((number = first; number < first + 10 && number < count; number++)); do
      enqueue "$number"
    done
    echo 'commit;'
  done
  echo '\o /dev/null' # none of these
  echo 'begin;'
  for ((number = count; number < count + 10; number++)); do
    enqueue "$number"
  done
  echo 'rollback;'
  echo '\o'
  echo "insert into pgwake.jobs (queue, kind, priority) values (:'queue', 'bad', 1000);"
  printf '%s\n' '\echo refused :SQLSTATE'
}

script | psql --no-psqlrc --quiet --tuples-only --no-align \
  --set=queue="${QUEUE:-default}" --set=prefix="$prefix" "$DATABASE_URL" |
  awk '/^inserted/ { inserted++ } /^refused/ { print } END { print "inserted " 0 + inserted }'
