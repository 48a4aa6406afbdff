#!/usr/bin/env bash
# Builds target/deltaq_VERSION_ARCH.deb, a Debian package of a binary: the program, its settings as a conffile, systemd units, shell
# completions and the manual pages.
#
#     scripts/package.sh [BINARY] [FOLDER]
#
# BINARY defaults to target/dist/deltaq. FOLDER, which gets the package, defaults to target. DELTAQ_MAINTAINER, "NAME <ADDRESS>", is whom users may
# write to. The same program at the same SOURCE_DATE_EPOCH, by default the time of the commit, gives the same package. Needs dpkg-deb, readelf
# and Python.
set -euo pipefail
cd "$(dirname "$0")/.."

binary=${1:-target/dist/deltaq}
folder=${2:-target}
version=$("$binary" --version | sed 's/^deltaq //; s/ .*//')
arch=$(dpkg --print-architecture)
maintainer=${DELTAQ_MAINTAINER:-The deltaq maintainers <deltaq@localhost>}
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
chmod 755 "$root"
# The oldest glibc that has all symbols of the program. A static program needs none.
glibc=$(readelf --dyn-syms --wide "$binary" | sed -n 's/.*GLIBC_\([0-9.]*\).*/\1/p' | sort --version-sort | tail -n 1)

put() { install -D --mode "$1" "$2" "$root/$3"; }
put 755 "$binary" usr/bin/deltaq
put 640 config/deltaq.toml etc/deltaq/deltaq.toml
put 644 deploy/systemd/deltaq.service usr/lib/systemd/system/deltaq.service
put 644 deploy/systemd/deltaq-reflect.service usr/lib/systemd/system/deltaq-reflect.service
put 644 examples/reflect/reflect.toml usr/share/doc/deltaq/examples/reflect.toml
put 644 deploy/debian/copyright usr/share/doc/deltaq/copyright
put 644 deploy/debian/lintian-overrides usr/share/lintian/overrides/deltaq
for files in prometheus grafana; do
    find "config/$files" -type f | while read -r file; do put 644 "$file" "usr/share/deltaq/${file#config/}"; done
done
chmod 750 "$root/etc/deltaq"
./scripts/documents.py "$root/usr/share/doc/deltaq"

folder_of() { mkdir -p "$root/$1"; printf '%s' "$root/$1"; }
"$binary" completion bash > "$(folder_of usr/share/bash-completion/completions)/deltaq"
"$binary" completion zsh > "$(folder_of usr/share/zsh/vendor-completions)/_deltaq"
"$binary" completion fish > "$(folder_of usr/share/fish/vendor_completions.d)/deltaq.fish"
"$binary" man --dir "$(folder_of usr/share/man/man1)"
gzip -9n "$root"/usr/share/man/man1/*.1

gzip -9n > "$root/usr/share/doc/deltaq/changelog.gz" << END
deltaq ($version) stable; urgency=medium

  * The changes are in CHANGELOG.md in this folder.

 -- $maintainer  $(LC_ALL=C date --utc --rfc-email --date "@$SOURCE_DATE_EPOCH")
END
if [ -z "${DELTAQ_MAINTAINER:-}" ]; then
    echo "# The package was built without DELTAQ_MAINTAINER." >> "$root/usr/share/lintian/overrides/deltaq"
    printf 'deltaq: %s\n' bogus-mail-host bogus-mail-host-in-debian-changelog >> "$root/usr/share/lintian/overrides/deltaq"
fi

mkdir "$root/DEBIAN"
(cd "$root" && find . -path ./DEBIAN -prune -o -path ./etc -prune -o -type f -printf '%P\0' | sort -z | xargs -0 md5sum > DEBIAN/md5sums)
install --mode 755 deploy/debian/postinst deploy/debian/prerm deploy/debian/postrm "$root/DEBIAN"
echo /etc/deltaq/deltaq.toml > "$root/DEBIAN/conffiles"
cat > "$root/DEBIAN/control" << END
Package: deltaq
Version: $version
Architecture: $arch
Maintainer: $maintainer
Section: net
Priority: optional
Depends: ${glibc:+libc6 (>= $glibc), libgcc-s1, }passwd
Installed-Size: $(du --summarize --apparent-size --block-size=1K "$root" | cut -f1)
Description: keyed, event-sourced queues over HTTP
 A queue service in which every entry has a key. Producers post JSON objects;
 workers long-poll the keys that changed, each under a lease.
END
find "$root" -exec touch --no-dereference --date "@$SOURCE_DATE_EPOCH" {} +
mkdir -p "$folder"
package=$folder/deltaq_${version}_$arch.deb
dpkg-deb --root-owner-group --build "$root" "$package" > /dev/null
echo "$package"
