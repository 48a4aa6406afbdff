#!/usr/bin/env bash
# Prepares a machine for scripts/test.sh. On Debian and its relatives it installs what is missing, as root or with sudo, and says what. On other
# systems it names what is missing, and fails. The tools of scripts/tools.txt go to target/tools. Source it: it also sets PATH.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

# Debian packages whose command or file is missing. The servers of Debian are outside of the PATH of users.
missing=()
need() { # package, command
    PATH="$PATH:/usr/sbin" command -v "$2" > /dev/null || missing+=("$1")
}
need build-essential cc
need curl curl
need git git
need dpkg dpkg-deb
need fakeroot fakeroot
need lintian lintian
need reprepro reprepro
need gpg gpg
need jq jq
need openssl openssl
need xz-utils xz
need python3 python3
need php-cli php
need default-jdk-headless javac
need maven mvn
need tmux tmux
need util-linux unshare
need prometheus promtool
need chromium chromium
need chromium-driver chromedriver
need nginx nginx
need valgrind valgrind
ls /usr/lib/postgresql/*/bin/initdb > /dev/null 2>&1 || missing+=(postgresql)
need pgbouncer pgbouncer
need etcd-server etcd
need patroni patroni
# Patroni runs with Debian's Python, which need not be the first one.
/usr/bin/python3 -c 'import etcd' 2> /dev/null || missing+=(python3-etcd)
# The image. Some machines need runc, see scripts/image.sh; podman publishes ports by netavark and iptables.
need podman podman
need runc runc
need iptables iptables
need iproute2 ip
[ -x /usr/lib/podman/netavark ] || missing+=(netavark)
python3 -c 'import ensurepip, venv' 2> /dev/null || missing+=(python3-venv)

if [ "${#missing[@]}" -gt 0 ]; then
    if ! command -v apt-get > /dev/null; then
        echo "missing, by the names of Debian's packages: ${missing[*]}" >&2
        echo "install them, or run the tests that need none of them: just quick" >&2
        exit 1
    fi
    echo "installing with apt-get: ${missing[*]}"
    # The tests start these servers themselves, so the services of the packages must start neither now nor at the next boot.
    policy=/usr/sbin/policy-rc.d
    if [ -e "$policy" ]; then
        policy=
    else
        trap 'as_root rm -f "$policy"' EXIT
        printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" > /dev/null
        as_root chmod 755 "$policy"
    fi
    as_root apt-get update -qq
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends ca-certificates "${missing[@]}"
    for service in prometheus nginx postgresql pgbouncer etcd patroni; do
        if [[ " ${missing[*]} " == *" $service"[\ -]* ]] && command -v systemctl > /dev/null; then
            as_root systemctl disable --quiet "$service" || echo "$service.service would start at the next boot" >&2
        fi
    done
    if [ -n "$policy" ]; then as_root rm -f "$policy"; fi
    trap - EXIT
fi

# Rust in the version and with the components that rust-toolchain.toml names.
export PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"
if ! command -v cargo > /dev/null; then
    echo "installing Rust with rustup"
    curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y --profile minimal --default-toolchain none
fi
if ! cargo fmt --version > /dev/null 2>&1 || ! cargo clippy --version > /dev/null 2>&1; then
    if command -v rustup > /dev/null; then
        rustup toolchain install
    else
        echo "cargo has no rustfmt or clippy, and rustup is not there to install them" >&2
        exit 1
    fi
fi

PATH="$(./scripts/tools.sh):$PATH"
export PATH
