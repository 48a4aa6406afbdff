#!/usr/bin/env bash
# Makes the files of a release in target/release-files, and checks them:
#
#     deltaq-VERSION-TARGET.tar.gz    the program with its documents, manual pages, completions, settings, systemd unit, rules and dashboard, and
#                                     the simulator of the documents, unless BINARY is given
#     deltaq_VERSION_ARCH.deb         the Debian package
#     deltaq_server-VERSION-….whl     the wheel for PyPI
#     deltaq-server-VERSION.tgz       the package for npm, with deltaq-PLATFORM-VERSION.tgz, which has the program
#     deltaq-go-VERSION.zip           the modules for Go, as a folder that the go command reads as a proxy
#     deltaq-java-VERSION.zip         the packages for Java, as a Maven repository in a folder
#     deltaq-VERSION.cdx.json         the SBOM, CycloneDX 1.6
#     deltaq-VERSION.intoto.json      the provenance of all files above: an in-toto statement with the predicate of SLSA
#     SHA256SUMS                      for `sha256sum --check`
#
# With DELTAQ_SIGNING_KEY, the name of a key of gpg, also:
#
#     SHA256SUMS.asc                  its signature, for `gpg --verify`
#     apt/                            a signed repository with the Debian package, see scripts/apt-repository.sh
#
#     scripts/release.sh [BINARY [FOLDER]]
#
# Without BINARY, the program is built for musl: it is static and runs on every Linux of this architecture. The same commit gives the same files,
# without those of the key. Needs rustup with its target wasm32-unknown-unknown, musl-gcc (package musl-tools), binutils and
# dpkg-deb; with a key also gpg and reprepro.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { echo "$*" >&2; exit 1; }

folder=${2:-target/release-files}
if [ $# -gt 0 ]; then
    built=$1
    target=$(rustc -vV | sed -n 's/^host: //p')
else
    target=$(uname -m)-unknown-linux-musl
    command -v musl-gcc > /dev/null || fail "musl-gcc is missing: apt-get install musl-tools"
    [ -d "$(rustc --print target-libdir --target "$target")" ] || rustup target add "$target"
    number=$(sed -n '/^\[package\]/,/^$/s/^version = "\(.*\)"/\1/p' Cargo.toml)
    commit=$(git rev-parse --short=12 HEAD)
    if [ -n "$(git status --porcelain --untracked-files=no)" ]; then commit+=" with changes"; fi
    ./scripts/simulator.sh
    DELTAQ_VERSION="$number ($commit, $target)" cargo build --profile dist --locked --bin deltaq --target "$target"
    built=${CARGO_TARGET_DIR:-target}/$target/dist/deltaq
    if [[ $(ldd "$built" 2> /dev/null) == *'=>'* ]]; then fail "$built is not static"; fi
fi

. scripts/server.sh
[ $# -ge 2 ] || rm -rf "$folder"
mkdir -p "$folder"
[ -z "$(ls -A "$folder")" ] || fail "$folder is not empty"
version=$("$built" --version | sed 's/^deltaq //; s/ .*//')
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH

# Symbols stay, so that a backtrace has the names of functions.
binary=$work/deltaq
strip --strip-debug -o "$binary" "$built"

name=deltaq-$version-$target
put() { install -D --mode "$1" "$2" "$work/$name/$3"; }
put 755 "$binary" deltaq
for file in LICENSE config/deltaq.toml; do put 644 "$file" "$(basename "$file")"; done
for unit in deltaq deltaq-reflect; do put 644 "deploy/systemd/$unit.service" "systemd/$unit.service"; done
for files in prometheus grafana; do
    find "config/$files" -type f | while read -r file; do put 644 "$file" "${file#config/}"; done
done
./scripts/documents.py "$work/$name"
if [ $# -eq 0 ]; then
    for file in target/simulator/*; do put 644 "$file" "simulator/$(basename "$file")"; done
fi
mkdir "$work/$name/completions"
for shell in bash zsh fish; do "$binary" completion "$shell" > "$work/$name/completions/deltaq.$shell"; done
"$binary" man --dir "$work/$name/man"
tar --create --directory "$work" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=go-w "$name" \
    | gzip -n > "$folder/$name.tar.gz"

./scripts/package.sh "$binary" "$folder" > /dev/null
./scripts/wheel.py "$binary" "$folder" > /dev/null
./scripts/npm-packages.sh "$binary" "$folder" > /dev/null
./scripts/go_modules.py "$version" "$folder" > /dev/null
./scripts/java_packages.py "$version" "$folder" > /dev/null
./scripts/sbom.py "$target" > "$folder/deltaq-$version.cdx.json"
./scripts/provenance.py "$target" "$folder"/* > "$work/provenance.json"
mv "$work/provenance.json" "$folder/deltaq-$version.intoto.json"
(cd "$folder" && sha256sum -- * > SHA256SUMS)
if [ -n "${DELTAQ_SIGNING_KEY:-}" ]; then
    gpg --batch --quiet --local-user "$DELTAQ_SIGNING_KEY" --armor --detach-sign "$folder/SHA256SUMS"
    ./scripts/apt-repository.sh "$folder/apt" "$DELTAQ_SIGNING_KEY" "$folder"/deltaq_*.deb
fi

# The program of the archive serves, resolves a name, and is its own client.
rm -r "${work:?}/$name"
(cd "$folder" && sha256sum --check --quiet SHA256SUMS)
tar --extract --file "$folder/$name.tar.gz" --directory "$work"
binary=$work/$name/deltaq
start_server --data-dir "$work/data"
export DELTAQ_URL=${api/127.0.0.1/localhost}
"$binary" add release '{"key":"a"}' > /dev/null
[ "$("$binary" work release --until-empty -- printenv DELTAQ_KEY)" = a ] || fail "the program does not work"
stop_server
ls -l "$folder"
