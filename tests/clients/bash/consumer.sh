#!/usr/bin/env bash
# A consumer on psql alone, one for each statement: DATABASE_URL=... QUEUE=... LEASE=... consumer.sh, until SIGTERM.
# Claims one job at a time, keeps its lease while it runs, and polls between: psql can't wait for a notification.
set -uo pipefail

queue=${QUEUE:-default} lease=${LEASE:-30} # seconds
printf -v beat '%d.%d' $((lease / 3)) $((lease % 3 * 10 / 3))
errors=$(mktemp)
stopping=''
trap 'stopping=yes' TERM
# shellcheck source=tests/clients/bash/handlers.sh
source "${BASH_SOURCE[0]%/*}/handlers.sh"

# ask SQL [NAME=VALUE]...: its first row; :'name' in the SQL is the value, quoted. Has to be answered within 30 s.
ask() {
  local values=() value
  for value in "worker=bash-$$" "queue=$queue" "lease=$lease" "${@:2}"; do values+=("--set=$value"); done
  timeout 30 psql --no-psqlrc --quiet --tuples-only --no-align --field-separator=$'\x1f' \
    --set=ON_ERROR_STOP=1 "${values[@]}" "$DATABASE_URL" <<<"$1"
}

# tell CALL [NAME=VALUE]...: of the functions for many jobs, since they answer an outcome where the others raise PW002.
tell() {
  ask "select (pgwake.${1/MINE/"array[:'id'::bigint], array[:'lease_id'::uuid]"})[1]" \
    "id=$id" "lease_id=$lease_id" "${@:2}"
}

# Keeps the lease of the job until it is ended, or this script is.
keep() {
  while sleep "$beat" && kill -0 $$ && [[ $(tell "extend_leases(MINE, :'lease')") != lease_lost ]]; do :; done
}

# Runs the job; says how it ended, or nothing if the server can't be reached.
run() {
  local result code keeper
  keep >/dev/null 2>&1 &
  keeper=$!
  result=$(handle 2>"$errors")
  code=$?
  kill "$keeper"
  ((code == 0)) && tell "complete_jobs(MINE, array[:'result'::jsonb])" "result=$result" 2>"$errors" && return
  tell "fail_jobs(MINE, array[:'error'], retry_ins => array[case :'code' when '75' then interval '0' end],
    retryables => array[:'code' <> '65'])" "code=$code" "error=$(<"$errors")"
}

echo ready
while [[ ! $stopping ]]; do
  job=$(ask "select id, lease_id, kind, attempt, payload from pgwake.claim_next_job(:'queue', :'worker', :'lease')")
  if [[ $job ]]; then
    IFS=$'\x1f' read -rd '' id lease_id kind attempt payload <<<"$job"
    outcome=$(run)
    echo "$id $kind ${outcome/lease_lost/lost}"
  else
    pause=$(ask "select case when due between 0 and 1 then due else 1 end
      from extract(epoch from pgwake.next_run_at(:'queue') - now()) as due")
    sleep "${pause:-1}"
  fi
done
rm "$errors"
