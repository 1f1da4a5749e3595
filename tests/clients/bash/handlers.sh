# shellcheck shell=bash disable=SC2154
# What consumer.sh does with a job of each kind: yours go here. A handler has the job in $kind, $attempt and $payload,
# and prints the result. What it says of a failure goes to standard error, and the exit code says when to try again:
# 75 at once, 65 never, any other by the policy.

field() { # NAME: a number of the payload, or 0; with jq: jq -r ".$1 // 0" <<<"$payload"
  if [[ $payload =~ \"$1\":\ ([0-9.]+) ]]; then echo "${BASH_REMATCH[1]}"; else echo 0; fi
}

echo_number() {
  sleep "$(field seconds)"
  printf '{"number": %s, "by": "bash"}' "$(field number)"
}

handle() {
  case $kind in
    conformance.echo) echo_number ;;
    conformance.fail_once)
      ((attempt > 1)) || { echo 'not yet' >&2 && exit 75; }
      echo_number
      ;;
    conformance.fail) sleep "$(field seconds)" && echo 'never' >&2 && exit 65 ;;
    *) echo "unknown kind $kind" >&2 && exit 1 ;;
  esac
}
