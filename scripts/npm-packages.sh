#!/usr/bin/env bash
# Packs a program for npm: deltaq-server-VERSION.tgz, whose command finds the program, and deltaq-PLATFORM-VERSION.tgz, which has it.
#
#     scripts/npm-packages.sh BINARY FOLDER
#
# The same program gives the same packages. Prints their paths. Needs neither Node nor npm.
set -euo pipefail
cd "$(dirname "$0")/.."

binary=$1
folder=$2
version=$("$binary" --version | sed 's/^deltaq //; s/ .*//')
case $(uname -m) in
    x86_64) cpu=x64 ;;
    aarch64) cpu=arm64 ;;
    *) uname -m >&2; exit 1 ;;
esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A musl or static program runs on every Linux, another one where the C library is glibc.
libc=
if [[ $(ldd "$binary" 2> /dev/null) == *'=>'* ]]; then libc='"libc": ["glibc"], '; fi

pack() { # NAME: packs $work/package, with fixed times, as npm pack does.
    tar --create --directory "$work" --sort=name --mtime='1985-10-26 08:15:00Z' --owner=0 --group=0 --numeric-owner --mode=go-w package \
        | gzip "-n${PACKAGE_LEVEL:-9}" > "$folder/$1-$version.tgz"
    rm -r "$work/package"
    echo "$folder/$1-$version.tgz"
}

mkdir -p "$folder" "$work/package/bin"
cp packages/npm/README.md LICENSE "$work/package"
install --mode 755 packages/npm/bin/deltaq.js "$work/package/bin/deltaq.js"
cat > "$work/package/package.json" << END
{
  "name": "deltaq-server",
  "version": "$version",
  "description": "A keyed, event-sourced queue service over HTTP: the server and its command line",
  "license": "Apache-2.0",
  "engines": { "node": ">=20" },
  "bin": { "deltaq": "bin/deltaq.js", "deltaq-server": "bin/deltaq.js" },
  "optionalDependencies": { "@deltaq/linux-$cpu": "$version" }
}
END
pack deltaq-server

mkdir "$work/package"
cp LICENSE "$work/package"
install --mode 755 "$binary" "$work/package/deltaq"
echo "The program deltaq for Linux on $cpu. The package deltaq-server runs it." > "$work/package/README.md"
cat > "$work/package/package.json" << END
{
  "name": "@deltaq/linux-$cpu",
  "version": "$version",
  "description": "The program deltaq for Linux on $cpu",
  "license": "Apache-2.0",
  "os": ["linux"], "cpu": ["$cpu"], $libc
  "preferUnplugged": true
}
END
pack "deltaq-linux-$cpu"
