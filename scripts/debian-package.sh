#!/usr/bin/env bash
# Checks the Debian package: lintian accepts it, the same program gives the same package, a signed repository has it, and apt-get installs it from there,
# upgrades it over a running server, removes and purges it. DELTAQ_BIN is the program.
#
#     scripts/debian-package.sh [--all]
#
# With --all the package has the program itself, and two releases with a key must be equal. Otherwise it has a small program that runs the other one,
# because lintian and compression read every byte. Needs root: dpkg runs on an overlay of this system, which is dropped at the end, with a network of
# its own and a stand-in for systemctl that starts and stops the service. Needs lintian, reprepro and iproute2.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/server.sh
. scripts/server.sh
find_binary

fail() { echo "$*" >&2; exit 1; }
work=$(realpath "$work")
binary=$(realpath "$binary")
program=$work/deltaq
if [ "${1:-}" = --all ]; then
    strip --strip-debug -o "$program" "$binary"
else
    printf '#include <unistd.h>\nint main(int count, char **arguments) { return execv("%s", arguments), count > 0; }\n' "$binary" \
        | cc -static -x c -o "$program" -
fi

# Made in two places at different times.
export SOURCE_DATE_EPOCH=1700000000 DPKG_DEB_COMPRESSOR_LEVEL=1
package=$(./scripts/package.sh "$program" "$work/1")
again=$(./scripts/package.sh "$program" "$work/2")
cmp "$package" "$again"
lintian --allow-root --fail-on error,warning "$package"

# The next version has another number, and nothing else.
dpkg-deb --raw-extract "$package" "$work/next"
sed -i 's/^Version: .*/&+next/' "$work/next/DEBIAN/control"
next=$(basename "$package" _"$(dpkg --print-architecture)".deb)+next_$(dpkg --print-architecture).deb
dpkg-deb --root-owner-group --build "$work/next" "$work/$next" > /dev/null
version=$(dpkg-deb --field "$package" Version)

# A key that exists only here.
export GNUPGHOME=$work/gnupg
mkdir -m 700 "$GNUPGHOME"
gpg --batch --quiet --passphrase '' --quick-generate-key 'test <test@example.com>' ed25519 sign 1d 2> /dev/null
./scripts/apt-repository.sh "$work/repository" test@example.com "$package"
cp -r "$work/repository" "$work/repository-next"
./scripts/apt-repository.sh "$work/repository-next" test@example.com "$work/$next"
if [ "${1:-}" = --all ]; then
    for round in 1 2; do DELTAQ_SIGNING_KEY=test@example.com ./scripts/release.sh "$binary" "$work/release-$round" > /dev/null; done
    cmp "$work/release-1/SHA256SUMS" "$work/release-2/SHA256SUMS" || fail "the same program gives different releases"
    gpg --batch --quiet --verify "$work/release-1/SHA256SUMS.asc" "$work/release-1/SHA256SUMS" 2> /dev/null || fail "the signature of the checksums"
    [ -s "$work/release-1/apt/dists/stable/InRelease" ] || fail "no repository in the release"
    rm -r "$work/release-1" "$work/release-2"
fi
gpgconf --kill gpg-agent

if [ "$(id -u)" -ne 0 ]; then fail "the installation needs root"; fi
PATH=$PATH:/usr/sbin:/sbin
# The overlay is on a tmpfs, which is no layer of the file system below it. /run and the processes are new.
mkdir "$work/system"
export work version
# shellcheck disable=SC2016 # the inner shell expands
unshare --mount --pid --net --fork --mount-proc bash -c 'ip link set lo up && mount -t tmpfs tmpfs "$work/system" && cd "$work/system" && mkdir upper work root \
    && mount -t overlay overlay -o "lowerdir=/,upperdir=upper,workdir=work" root \
    && mount --rbind /dev root/dev && mount -t proc proc root/proc && mount -t tmpfs tmpfs root/run && mount --bind "$work" "root$work" \
    && exec chroot root bash "$1"' bash "$PWD/scripts/debian/lifecycle.sh"
echo "the package passes lintian; apt-get installed, upgraded, removed and purged it"
