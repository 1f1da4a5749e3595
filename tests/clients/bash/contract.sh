#!/usr/bin/env bash
# Runs a contract through psql: DATABASE_URL=... contract.sh FILE
# The format is in ../README.md. Exit code 0: each step went as expected; 1: one did not.
set -euo pipefail

declare -A to from heard value wanted
pipes=$(mktemp -d)
trap 'rm -r "$pipes"' EXIT

open() { # SESSION: a psql that is fed and read through pipes
  local input output
  mkfifo "$pipes/$1.in" "$pipes/$1.out"
  psql --no-psqlrc --quiet --tuples-only --no-align --pset=null='(null)' "$DATABASE_URL" \
    <"$pipes/$1.in" >"$pipes/$1.out" 2>/dev/null &
  exec {input}>"$pipes/$1.in" {output}<"$pipes/$1.out"
  to[$1]=$input from[$1]=$output heard[$1]=''
}

# ask SESSION SQL: its output into $answer, what it was notified of into $heard[SESSION],
# its end into $state and $count
ask() {
  local line lines=() note='^Asynchronous notification "(.*)" with payload "(.*)" received'
  printf '%s\n\\echo :SQLSTATE :ROW_COUNT ended\n' "$2" >&"${to[$1]}"
  while IFS= read -r line <&"${from[$1]}"; do
    if [[ $line =~ $note ]]; then
      heard[$1]+="${heard[$1]:+, }${BASH_REMATCH[1]} ${BASH_REMATCH[2]}"
    elif [[ $line == *' ended' ]]; then
      read -r state count _ <<<"$line"
      break
    else
      lines+=("$line")
    fi
  done
  answer=$(IFS=$'\n' && echo "${lines[*]}")
}

run() { # TITLE LINES...
  local title=$1 sql='' sets='' line name word expected got kept i=0
  wanted=([in]=a)
  for line in "${@:2}"; do
    if [[ $line =~ ^--\ (in|expect|error|keep|hears):\ (.*)$ ]]; then
      wanted[${BASH_REMATCH[1]}]=${BASH_REMATCH[2]}
    elif [[ $line != --* ]]; then
      sql+=$line$'\n'
    fi
  done
  [[ -n ${to[${wanted[in]}]-} ]] || open "${wanted[in]}"
  # A parameter is a variable of psql's, quoted by it; one that is NULL can only be written.
  while [[ $sql =~ \{([a-z_]+)\} ]]; do
    name=${BASH_REMATCH[1]}
    if [[ ${value[$name]} == '(null)' ]]; then
      sql=${sql//"{$name}"/null}
    else
      word=${value[$name]//\\/\\\\}
      sets+="\\set $name '${word//\'/\'\'}'"$'\n'
      sql=${sql//"{$name}"/":'$name'"}
    fi
  done

  ask "${wanted[in]}" "$sets$sql"
  if [[ -n ${wanted[keep]-} && $state == 00000 ]]; then
    mapfile -t kept <<<"$answer"
    for name in ${wanted[keep]}; do
      value[$name]=${kept[i++]}
    done
  fi
  ((count > 0)) || answer='(no row)'
  for word in error expect hears; do
    case $word in
      error) got=$state ;;
      expect) got=${answer:-(empty)} ;;
      hears) got=${heard[${wanted[in]}]:-(nothing)} ;;
    esac
    expected=${wanted[$word]-}
    if [[ $word == error ]]; then
      expected=${expected:-00000}
    elif [[ -z $expected ]]; then
      continue
    fi
    while [[ $expected =~ \{([a-z_]+)\} ]]; do
      expected=${expected//"${BASH_REMATCH[0]}"/"${value[${BASH_REMATCH[1]}]}"}
    done
    if [[ $got != "$expected" ]]; then
      echo "step \"$title\": expected $word $expected, got $got"
      exit 1
    fi
  done
  [[ -z ${wanted[hears]-} ]] || heard[${wanted[in]}]=''
}

steps=0 step=()
while IFS= read -r line; do
  if [[ $line == '-- step: '* ]]; then
    ((${#step[@]} == 0)) || run "${step[@]}"
    step=("${line#-- step: }")
    ((++steps))
  elif ((${#step[@]} > 0)); then
    step+=("$line")
  fi
done <"$1"
run "${step[@]}"
echo "$steps steps"
