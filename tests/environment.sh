# Sourced by tests/run and .ci/run: lays what the tests need into the checkout, and
# touches nothing outside of it, so root and an ordinary user do the same.
# shellcheck shell=bash

checkout=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv=${PGWAKE_TEST_VENV:-$checkout/.venv-tests}
cd "$checkout" || return

say() { printf '%s\n' "$*" >&2; }

find_python() {
  local python
  for python in python3.13 python3.12 python3.11 python3; do
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
  say "making $venv with $("$python" --version)"
  "$python" -m venv --clear "$venv"
  "$venv/bin/python" -m pip install -qq --disable-pip-version-check \
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

# Debian's own PostgreSQL, with plpgsql_check: unpacked, not installed. Its programs find
# their data relative to themselves, and a wrapper finds the libraries that a new machine
# lacks.
unpack_debian() {
  local new=$1.new major deb program
  rm -rf "$new"
  mkdir -p "$new"/apt/{state/lists,cache/archives}/partial "$new/bin"
  cat >"$new/apt/conf" <<CONF
Dir::State "$new/apt/state";
Dir::State::status "/var/lib/dpkg/status";
Dir::Cache "$new/apt/cache";
Dir::Log "$new/apt";
Debug::NoLocking "true";
APT::Sandbox::User "";
Acquire::Languages "none";
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
CONF
  local -x APT_CONFIG=$new/apt/conf LC_ALL=C
  apt-get -qq update
  major=$(apt-cache depends postgresql | sed -n 's/.*Depends: postgresql-\([0-9]*\)$/\1/p')
  say "unpacking Debian's PostgreSQL $major"
  # --reinstall: what the system has is wanted too, of one version with the rest.
  apt-get -qq install --download-only --reinstall --no-install-recommends libpq5 \
    "postgresql-$major" "postgresql-client-$major" "postgresql-$major-plpgsql-check"
  for deb in "$new"/apt/cache/archives/*.deb; do
    dpkg -x "$deb" "$new"
  done
  for program in "$new/usr/lib/postgresql/$major/bin"/*; do
    cat >"$new/bin/${program##*/}" <<'WRAPPER'
#!/bin/sh
root=${0%/*}/..
libraries=$(uname -m)-linux-gnu
export LD_LIBRARY_PATH="$root/usr/lib/$libraries:$root/lib/$libraries"
exec "$root"/usr/lib/postgresql/*/bin/"${0##*/}" "$@"
WRAPPER
    chmod +x "$new/bin/${program##*/}"
  done
  rm -rf "$new/apt"
  mv "$new" "$1"
}

make_venv
install_package
export PATH=$venv/bin:$PATH

if command -v apt-get >/dev/null; then
  debian=$checkout/.cache/debian-$(. /etc/os-release && echo "$VERSION_CODENAME")
  [[ -d $debian ]] || unpack_debian "$debian"
  export PGWAKE_TEST_DEBIAN_PG_BIN=$debian/bin
fi
