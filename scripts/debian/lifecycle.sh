# shellcheck shell=bash
# Installs, upgrades, removes and purges the package of $version from the repositories in $work, in a system that is dropped afterwards.
set -euo pipefail
: "${work:?}" "${version:?}"

fail() { echo "$*" >&2; exit 1; }
is_done=
trap '[ -n "$is_done" ] || cat "$work/apt.log" >&2' EXIT
mkdir -p /run/systemd/system /etc/systemd/system/multi-user.target.wants
rm -f /usr/bin/systemctl
install "$(dirname "$0")/systemctl" /usr/bin/systemctl
# Neither policy nor the index of manual pages matters here.
rm -f /usr/sbin/policy-rc.d /var/lib/man-db/auto-update

use() { # REPOSITORY
    echo "deb [signed-by=$work/$1/deltaq-archive-keyring.gpg] file:$work/$1 stable main" > /etc/apt/deltaq.list
    apt update
}
apt() {
    DEBIAN_FRONTEND=noninteractive apt-get -q -y -o Dir::Etc::sourcelist=/etc/apt/deltaq.list -o Dir::Etc::sourceparts=- -o APT::Sandbox::User=root \
        -o APT::Update::Error-Mode=any -o Dpkg::Options::=--force-unsafe-io -o Dpkg::Options::=--force-confold "$@" > "$work/apt.log" 2>&1
}
runs() { [ -e /run/deltaq.pid ] && kill -0 "$(cat /run/deltaq.pid)"; }
has() { # KEY...: exactly these keys are in the queue. A reply may be late on a busy machine.
    local attempt keys=
    for attempt in {1..10}; do
        if keys=$(deltaq items packages -o name); then break; fi
        echo "attempt $attempt failed" >&2
    done
    [ "$(sort <<< "$keys" | xargs)" = "$*" ] || fail "the queue has: $keys; the log: $(cat /run/deltaq.log)"
}
user_is_there() { getent passwd deltaq > /dev/null; }

use repository
apt install deltaq
[ "$(dpkg-query --show --showformat '${Version}' deltaq)" = "$version" ] || fail "not installed"
runs || fail "the installation does not start the service"
[ "$(stat --format %U "/proc/$(cat /run/deltaq.pid)")" = deltaq ] || fail "the service has another user"
[ -L /etc/systemd/system/multi-user.target.wants/deltaq.service ] || fail "the service would not start at the next boot"
[ "$(stat --format '%a %U:%G' /etc/deltaq/deltaq.toml)" = "640 root:deltaq" ] || fail "mode of the settings"
man --where deltaq > /dev/null || fail "no manual page"
bash -c '. /usr/share/bash-completion/completions/deltaq && complete -p deltaq' > /dev/null || fail "no completions"
[[ $(curl --silent --fail --header 'accept: text/html' http://127.0.0.1:7070/console/) == *'<!doctype html'* ]] || fail "no console"
deltaq add packages '{"key":"before"}' > /dev/null

# An upgrade restarts the service once, after the new files are there, and keeps changed settings.
echo '# changed' >> /etc/deltaq/deltaq.toml
old=$(cat /run/deltaq.pid)
: > /run/systemctl.log
use repository-next
apt upgrade
[ "$(dpkg-query --show --showformat '${Version}' deltaq)" = "$version+next" ] || fail "not upgraded"
if ! runs || [ "$(cat /run/deltaq.pid)" = "$old" ]; then fail "the old program still runs"; fi
[ "$(grep -c 'restart deltaq.service' /run/systemctl.log)" = 1 ] || fail "$(cat /run/systemctl.log)"
if grep -q '^stop\| stop' /run/systemctl.log; then fail "the upgrade stops the service: $(cat /run/systemctl.log)"; fi
grep -q '^# changed' /etc/deltaq/deltaq.toml || fail "the upgrade lost changed settings"
deltaq add packages '{"key":"between"}' > /dev/null
has before between

# What the operator has stopped stays stopped.
systemctl stop deltaq.service
apt install --reinstall deltaq
if runs; then fail "an upgrade starts a stopped service"; fi
systemctl start deltaq.service

# A removal keeps user, settings and queues. An installation after it goes on, with the units that were enabled.
reflect=/etc/systemd/system/multi-user.target.wants/deltaq-reflect.service
ln -s /usr/lib/systemd/system/deltaq-reflect.service $reflect
apt remove deltaq
if runs; then fail "the removal does not stop the service"; fi
if [ -e /usr/bin/deltaq ] || ! user_is_there || [ ! -e /etc/deltaq/deltaq.toml ]; then fail "a removal keeps user and settings, and no program"; fi
: > /run/systemctl.log
apt install deltaq
runs || fail "an installation after a removal does not start the service"
grep -q 'start deltaq-reflect.service' /run/systemctl.log || fail "an installation after a removal does not start reflect"
has before between

# Only a purge removes the user. The queues stay, and belong to nobody who could get the number of the user.
echo secret > /etc/deltaq/tokens.toml
apt purge deltaq
if runs || user_is_there; then fail "service or user are there after a purge"; fi
grep -q '/var/lib/deltaq still has files' "$work/apt.log" || fail "the purge does not say what it leaves"
for folder in /var/lib/deltaq /etc/deltaq; do
    [ "$(stat --format %u:%g "$folder")" = 0:0 ] || fail "$folder belongs to a removed user"
done
if [ -e /etc/deltaq/deltaq.toml ] || [ ! -e /etc/deltaq/tokens.toml ]; then fail "a purge removes the settings of the package only"; fi
for left in /etc/systemd/system/deltaq.service /etc/systemd/system/multi-user.target.wants/deltaq.service $reflect; do
    [ ! -L "$left" ] || fail "$left is there after a purge"
done
apt install deltaq
runs || fail "an installation after a purge does not start the service"
has before between
systemctl stop deltaq.service

# A repository that was changed after its signature is refused.
sed -i 's/^Version: .*/Version: 9/' "$work"/repository-next/dists/stable/main/binary-*/Packages
gzip --keep --force "$work"/repository-next/dists/stable/main/binary-*/Packages
rm -rf /var/lib/apt/lists
if use repository-next; then fail "a changed repository is accepted"; fi
grep -q 'Hash Sum mismatch\|unexpected size' "$work/apt.log"
is_done=yes
