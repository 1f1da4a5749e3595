# Sourced by tests/run and .ci/run: lays what the tests need into the checkout, and
# touches nothing outside of it, so root and an ordinary user do the same.
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

# Debian's packages are unpacked, not installed: into FOLDER.new, with what they need that
# the system lacks. The caller puts the finished folder in its place.
update_apt() {
  rm -rf "$1"
  mkdir -p "$1"/apt/{state/lists,cache/archives}/partial "$1/bin"
  cat >"$1/apt/conf" <<CONF
Dir::State "$1/apt/state";
Dir::State::status "/var/lib/dpkg/status";
Dir::Cache "$1/apt/cache";
Dir::Log "$1/apt";
Debug::NoLocking "true";
APT::Sandbox::User "";
Acquire::Languages "none";
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
CONF
  APT_CONFIG=$1/apt/conf apt-get -qq update
}

unpack_packages() {
  local deb
  # --reinstall: what the system has is wanted too, of one version with the rest.
  APT_CONFIG=$1/apt/conf apt-get -qq install --download-only --reinstall \
    --no-install-recommends "${@:2}"
  for deb in "$1"/apt/cache/archives/*.deb; do
    dpkg -x "$deb" "$1"
  done
  rm -rf "$1/apt"
}

# Debian's own PostgreSQL, with plpgsql_check. Its programs find their data relative to
# themselves, and a wrapper finds the libraries that a new machine lacks.
unpack_postgresql() {
  local new=$1.new major program
  update_apt "$new"
  major=$(APT_CONFIG=$new/apt/conf LC_ALL=C apt-cache depends postgresql |
    sed -n 's/.*Depends: postgresql-\([0-9]*\)$/\1/p')
  say "unpacking Debian's PostgreSQL $major"
  unpack_packages "$new" libpq5 \
    "postgresql-$major" "postgresql-client-$major" "postgresql-$major-plpgsql-check"
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
  mv "$new" "$1"
}

# The model checker of tests/lab/model.
unpack_spin() {
  say "unpacking Debian's spin"
  update_apt "$1.new"
  unpack_packages "$1.new" spin
  ln -s ../usr/bin/spin "$1.new/bin/spin"
  mv "$1.new" "$1"
}

# The C compiler that spin needs. What it makes is static, so that it needs no libraries
# beside the system's.
unpack_cc() {
  say "unpacking Debian's C compiler"
  update_apt "$1.new"
  unpack_packages "$1.new" gcc libc6-dev linux-libc-dev
  cat >"$1.new/bin/cc" <<'WRAPPER'
#!/bin/sh
root=$(cd "${0%/*}/.." && pwd)
export LD_LIBRARY_PATH="$root/usr/lib/$(uname -m)-linux-gnu" PATH="$root/usr/bin:$PATH"
exec "$root/usr/bin/gcc" --sysroot="$root" -static "$@"
WRAPPER
  chmod +x "$1.new/bin/cc"
  mv "$1.new" "$1"
}

# The pooler of tests/core/worker/test_pooler.py, with the libraries that a new machine lacks.
unpack_pgbouncer() {
  say "unpacking Debian's PgBouncer"
  update_apt "$1.new"
  unpack_packages "$1.new" pgbouncer
  cat >"$1.new/bin/pgbouncer" <<'WRAPPER'
#!/bin/sh
root=$(cd "${0%/*}/.." && pwd)
libraries=$(uname -m)-linux-gnu
export LD_LIBRARY_PATH="$root/usr/lib/$libraries:$root/lib/$libraries"
exec "$root/usr/sbin/pgbouncer" "$@"
WRAPPER
  chmod +x "$1.new/bin/pgbouncer"
  mv "$1.new" "$1"
}

# A clock that goes wrong, for tests/core/worker/test_clocks.py. Debian's own wrapper knows
# only where the library would have been installed.
unpack_faketime() {
  say "unpacking Debian's libfaketime"
  update_apt "$1.new"
  unpack_packages "$1.new" libfaketime
  cat >"$1.new/bin/faketime" <<'WRAPPER'
#!/bin/sh
# faketime -f OFFSET PROGRAM [ARGUMENT...]
root=$(cd "${0%/*}/.." && pwd)
export FAKETIME=$2 LD_PRELOAD="$root/usr/lib/$(uname -m)-linux-gnu/faketime/libfaketime.so.1"
shift 2
exec "$@"
WRAPPER
  chmod +x "$1.new/bin/faketime"
  mv "$1.new" "$1"
}

# What scrapes the worker and checks deploy/prometheus; a program in Go, without libraries.
unpack_prometheus() {
  say "unpacking Debian's Prometheus"
  update_apt "$1.new"
  unpack_packages "$1.new" prometheus
  ln -s ../usr/bin/prometheus ../usr/bin/promtool "$1.new/bin/"
  mv "$1.new" "$1"
}

# The browser of tests/page, with the libraries and the fonts that a new machine lacks.
unpack_chromium() {
  say "unpacking Debian's Chromium"
  update_apt "$1.new"
  unpack_packages "$1.new" chromium chromium-common fontconfig-config fonts-dejavu-core
  cat >"$1.new/bin/chromium" <<'WRAPPER'
#!/bin/sh
root=$(cd "${0%/*}/.." && pwd)
libraries=$(uname -m)-linux-gnu
LD_LIBRARY_PATH="$root/usr/lib/$libraries:$root/lib/$libraries"
export LD_LIBRARY_PATH="$LD_LIBRARY_PATH:$root/usr/lib/$libraries/pulseaudio"
export FONTCONFIG_SYSROOT="$root"
exec "$root/usr/lib/chromium/chromium" "$@"
WRAPPER
  chmod +x "$1.new/bin/chromium"
  mv "$1.new" "$1"
}

# What tests/lab/chaos/failover.py needs, and asks for itself: the store that Patroni elects
# its leaders by, a program in Go, and Patroni, which shares no library with the tests.
unpack_etcd() {
  say "unpacking Debian's etcd"
  update_apt "$1.new"
  unpack_packages "$1.new" etcd-server
  ln -s ../usr/bin/etcd "$1.new/bin/etcd"
  mv "$1.new" "$1"
}

unpack_patroni() {
  say "making a virtual environment with Patroni"
  "$venv/bin/python" -m venv --clear "$1.new"
  "$1.new/bin/python" -m pip install -qq --disable-pip-version-check \
    --require-hashes --requirement tests/lab/chaos/patroni.txt
  cat >"$1.new/bin/patroni" <<'WRAPPER'
#!/bin/sh
exec "${0%/*}/python" -m patroni "$@"
WRAPPER
  mv "$1.new" "$1"
}

# shellcheck source=tests/clients/tools.sh
source "$checkout/tests/clients/tools.sh"

# add_tool NAME: to the end of the search path, unless the system has it.
add_tool() {
  local folder=$checkout/.cache/$1-$release
  command -v "$1" >/dev/null && return
  [[ -d $folder ]] || "unpack_$1" "$folder"
  PATH=$PATH:$folder/bin
}

make_venv
install_package
export PATH=$venv/bin:$PATH

if [[ ${PGWAKE_TEST_TOOLS-} != later ]] && command -v apt-get >/dev/null; then
  release=$(. /etc/os-release && echo "$VERSION_CODENAME")
  debian=$checkout/.cache/debian-$release
  [[ -d $debian ]] || unpack_postgresql "$debian"
  export PGWAKE_TEST_DEBIAN_PG_BIN=$debian/bin
  add_tool spin
  add_tool cc
  add_tool pgbouncer
  add_tool faketime
  add_tool prometheus
  add_tool chromium
  add_languages
fi
