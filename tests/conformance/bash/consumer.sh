#!/usr/bin/env bash
# A consumer with psql alone: DATABASE_URL=... QUEUE=... consumer.sh, until SIGTERM.
# One job at a time, a psql for each statement. psql can't wait for a notification, so it
# polls: each second, or when the next job is due.
set -uo pipefail

queue=${QUEUE:-default} lease=${LEASE:-30} # seconds
scratch=$(mktemp -d)
trap 'stopping=yes' TERM
stopping=''

# query SQL [NAME=VALUE]...: its first row; :'name' in the SQL is the value, quoted. Who has
# no answer within 30 s goes on without.
query() {
  local variables=() variable
  for variable in "worker=bash-$$" "queue=$queue" "lease=$lease seconds" "${@:2}"; do
    variables+=("--set=$variable")
  done
  timeout 30 psql --no-psqlrc --quiet --tuples-only --no-align \
    --field-separator=$'\x1f' --set=ON_ERROR_STOP=1 --set=VERBOSITY=sqlstate \
    "${variables[@]}" "$DATABASE_URL" <<<"$1"
}

# What a kind does: prints the result. Exits with 1: try again by the policy; 75: try
# again at once; 100: never. What it says of that goes to standard error.
handle() {
  case $kind in
    conformance.echo) sleep "$seconds" && printf '{"number": %s, "by": "bash"}' "$number" ;;
    conformance.fail_once)
      ((attempt > 1)) || { echo 'not yet' >&2 && exit 75; }
      kind=conformance.echo && handle
      ;;
    conformance.fail) echo 'never' >&2 && exit 100 ;;
    *) echo "unknown kind $kind" >&2 && exit 1 ;;
  esac
}

# A statement about the job: its answer, or `lost` if it is somebody else's by now.
tell() {
  local sql=$1 mine="array[:'id'::bigint], array[:'lease_id'::uuid]"
  query "${sql//MINE/$mine}" "id=$id" "lease_id=$lease_id" "${@:2}" 2>"$scratch/refused" && return
  if grep -q PW002 "$scratch/refused"; then echo lost; else cat "$scratch/refused" >&2; fi
}

# Runs the job; $outcome: how it ended, or nothing if the server can't be reached. The
# handler has a process group of its own, to be ended with all that it has started.
run() {
  local handler timer code beat
  printf -v beat '%d.%d' $((lease / 3)) $((lease % 3 * 10 / 3))
  outcome=''
  set -m
  handle >"$scratch/result" 2>"$scratch/error" &
  handler=$!
  set +m
  while kill -0 "$handler" 2>/dev/null; do
    sleep "$beat" &
    timer=$!
    wait -n "$handler" "$timer"
    kill "$timer" 2>/dev/null
    kill -0 "$handler" 2>/dev/null || break
    if [[ $stopping ]]; then
      outcome=$(tell "select (pgwake.release_jobs(MINE, 'shutdown'))[1]")
    else
      outcome=$(tell "select (pgwake.extend_leases(MINE, :'lease'))[1]")
      [[ $outcome != extended ]] || continue
    fi
    kill -- "-$handler"
    [[ $outcome == cancel_requested ]] && break
    return
  done
  wait "$handler"
  code=$?
  if ((code == 0)); then
    outcome=$(tell "select 'completed' from pgwake.complete_job(:'id', :'lease_id', :'result')" "result=$(<"$scratch/result")")
  else
    outcome=$(tell "select pgwake.fail_job(:'id', :'lease_id', :'error', retryable => :'code' <> '100',
      retry_in => case when :'code' = '75' then interval '0' end)" "code=$code" "error=$(<"$scratch/error")")
  fi
}

echo ready
while [[ ! $stopping ]]; do
  job=$(query "select id, lease_id, kind, attempt, payload ->> 'number', coalesce(payload ->> 'seconds', '0')
    from pgwake.claim_next_job(:'queue', :'worker', :'lease')")
  if [[ $job ]]; then
    IFS=$'\x1f' read -r id lease_id kind attempt number seconds <<<"$job"
    run
    echo "$id $kind ${outcome/lease_lost/lost}"
  else
    pause=$(query "select case when due > 0 then least(due, 1) else 1 end
      from extract(epoch from pgwake.next_run_at(:'queue') - now()) as due")
    sleep "${pause:-1}" &
    wait $!
  fi
done
rm -r "$scratch" # no trap: a child that is killed as it starts would run it
