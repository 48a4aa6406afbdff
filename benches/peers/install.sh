#!/bin/sh
# Installs Debian packages of servers, and starts none of their services, now or at the next boot.
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
    systemctl disable --quiet "$@" || echo "some of these would start at the next boot: $*" >&2
fi
