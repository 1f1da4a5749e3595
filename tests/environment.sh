# Sourced by tests/run, tests/unpack and .ci/run: lays a virtual environment with pgwake
# and all Python packages of the tests into the checkout, and puts it on the search path.
# shellcheck shell=bash

checkout=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv=${PGWAKE_TEST_VENV:-$checkout/.venv-tests}
cd "$checkout" || return

say() { printf '%s\n' "$*" >&2; }

find_python() {
  local python
  for python in ${PGWAKE_TEST_PYTHON:-python3.13 python3.12 python3.11 python3}; do
    # Run, not only found: pyenv has a shim for versions that are not switched on.
    if "$python" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' \
      2>/dev/null; then
      echo "$python"
      return
    fi
  done
  say "no Python from 3.11 on that can make a virtual environment was found:" \
    "install one, on Debian and Ubuntu with: apt-get install python3-venv"
  return 1
}

# unchanged STAMP FILE...: is this what the stamp was made from?
unchanged() { [[ -f $1 && $(<"$1") == "$(fingerprint "${@:2}")" ]]; }
fingerprint() { echo "$checkout" && cksum "$@"; }

make_venv() {
  local python stamp=$venv/requirements.stamp
  unchanged "$stamp" tests/requirements.txt && return
  python=$(find_python)
  say "installing the tests' packages into $venv, by $("$python" --version)"
  "$python" -m venv --clear "$venv"
  "$venv/bin/python" -m pip install -qq --disable-pip-version-check --no-compile \
    --require-hashes --requirement tests/requirements.txt
  fingerprint tests/requirements.txt >"$stamp"
}

install_package() {
  local stamp=$venv/package.stamp
  unchanged "$stamp" pyproject.toml && return
  "$venv/bin/python" -m pip install -qq --disable-pip-version-check \
    --no-deps --no-build-isolation --editable .
  fingerprint pyproject.toml >"$stamp"
}

make_venv
install_package
export PATH=$venv/bin:$PATH
# The tests start a thousand interpreters: each would compile what it imports once more.
unset PYTHONDONTWRITEBYTECODE
