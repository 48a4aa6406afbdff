#!/bin/sh
# Installs Debian packages of servers without starting their services, neither now nor at the next boot.
set -eu
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    trap 'rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' > "$policy"
    chmod 755 "$policy"
fi
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"
if command -v systemctl > /dev/null; then
    systemctl disable --quiet "$@" || echo "cannot disable all services of: $*; some may start at the next boot" >&2
fi
