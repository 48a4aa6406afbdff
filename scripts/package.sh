#!/usr/bin/env bash
# Builds target/deltaq_VERSION_ARCH.deb, a Debian package of a binary: the program, its settings as a conffile, systemd units, shell
# completions and the manual page.
#
#     scripts/package.sh [BINARY] [FOLDER]
#
# BINARY defaults to target/dist/deltaq. FOLDER, which gets the package, defaults to target. Needs dpkg-deb and objdump.
set -euo pipefail
cd "$(dirname "$0")/.."

binary=${1:-target/dist/deltaq}
folder=${2:-target}
version=$("$binary" --version | sed 's/^deltaq //; s/ .*//')
arch=$(dpkg --print-architecture)
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
chmod 755 "$root"
# The oldest glibc that has all symbols of the program. A static program needs none.
glibc=$(objdump --dynamic-syms "$binary" | sed -n 's/.*GLIBC_\([0-9.]*\).*/\1/p' | sort --version-sort | tail -n 1)

put() { install -D --mode "$1" "$2" "$root/$3"; }
put 755 "$binary" usr/bin/deltaq
put 640 config/deltaq.toml etc/deltaq/deltaq.toml
put 644 deploy/systemd/deltaq.service usr/lib/systemd/system/deltaq.service
put 644 deploy/systemd/deltaq-reflect.service usr/lib/systemd/system/deltaq-reflect.service
put 644 examples/reflect/reflect.toml usr/share/doc/deltaq/examples/reflect.toml
put 644 LICENSE usr/share/doc/deltaq/copyright
put 644 README.md usr/share/doc/deltaq/README.md
put 644 config/prometheus/deltaq.rules.yml usr/share/deltaq/prometheus/deltaq.rules.yml
put 644 config/grafana/deltaq.json usr/share/deltaq/grafana/deltaq.json
chmod 750 "$root/etc/deltaq"
# The README links to these pages.
find docs -type f | while read -r page; do put 644 "$page" "usr/share/doc/deltaq/$page"; done

folder_of() { mkdir -p "$root/$1"; printf '%s' "$root/$1"; }
"$binary" completion bash > "$(folder_of usr/share/bash-completion/completions)/deltaq"
"$binary" completion zsh > "$(folder_of usr/share/zsh/vendor-completions)/_deltaq"
"$binary" completion fish > "$(folder_of usr/share/fish/vendor_completions.d)/deltaq.fish"
"$binary" man | gzip -9n > "$(folder_of usr/share/man/man1)/deltaq.1.gz"

mkdir "$root/DEBIAN"
install --mode 755 deploy/debian/postinst deploy/debian/prerm deploy/debian/postrm "$root/DEBIAN"
echo /etc/deltaq/deltaq.toml > "$root/DEBIAN/conffiles"
cat > "$root/DEBIAN/control" << END
Package: deltaq
Version: $version
Architecture: $arch
Maintainer: The deltaq maintainers <deltaq@localhost>
Section: net
Priority: optional
Depends: ${glibc:+libc6 (>= $glibc), libgcc-s1, }passwd
Installed-Size: $(du --summarize --block-size=1K "$root" | cut -f1)
Description: keyed, event-sourced queues over HTTP
 A queue service in which every entry has a key. Producers post JSON objects;
 workers long-poll the keys that changed, each under a lease.
END
mkdir -p "$folder"
package=$folder/deltaq_${version}_$arch.deb
dpkg-deb --root-owner-group --build "$root" "$package" > /dev/null
echo "$package"
