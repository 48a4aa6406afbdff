#!/usr/bin/env bash
# Checks the packages that bring the program to users of Python and of Node: a wheel and two packages for npm. Packs DELTAQ_BIN twice, which must
# give the same files, installs them into empty places without a network, and uses them.
#
#     scripts/program-packages.sh [--all]
#
# With --all also with twine, pnpm and yarn, which are fetched.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/server.sh
. scripts/server.sh
# shellcheck source=scripts/node.sh
. scripts/node.sh
find_binary

fail() { echo "$*" >&2; exit 1; }
root=$PWD
work=$(realpath "$work")
server_log=$work/server.log
stripped=$work/deltaq
strip --strip-debug -o "$stripped" "$binary"
# Most of the time would be the compression of a large debug build.
export PACKAGE_LEVEL=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INDEX=1 PIP_QUIET=1
for round in 1 2; do
    mkdir "$work/$round"
    ./scripts/wheel.py "$stripped" "$work/$round" > /dev/null
    ./scripts/npm-packages.sh "$stripped" "$work/$round" > /dev/null
done
diff -r "$work/1" "$work/2" || fail "the same program gives different packages"
wheel=$(echo "$work"/1/*.whl)
wrapper=$(echo "$work"/1/deltaq-server-*.tgz)
platform=$(echo "$work"/1/deltaq-linux-*.tgz)
expected=$("$stripped" --version)

expect() { # COMMAND...: must print the version.
    local said
    said=$("$@" --version) || fail "$* ended with $?"
    [ "$said" = "$expected" ] || fail "$* said: $said"
}

python3 -m venv "$work/venv"
python=$work/venv/bin/python
"$python" -m pip install "$wheel"
expect "$work/venv/bin/deltaq"
expect "$python" -m deltaq_server
for file in man/man1/deltaq.1 bash-completion/completions/deltaq zsh/site-functions/_deltaq fish/vendor_completions.d/deltaq.fish; do
    [ -s "$work/venv/share/$file" ] || fail "the wheel did not install $file"
done
"$python" -m pip uninstall --yes deltaq-server
[ ! -e "$work/venv/bin/deltaq" ] || fail "the program is still there"
"$python" -m pip install --target "$work/to" "$wheel"
expect env "PYTHONPATH=$work/to" "$python" -m deltaq_server
"$python" -m pip install --prefix "$work/prefix" "$wheel"
expect env "PYTHONPATH=$(echo "$work"/prefix/lib/python3*/site-packages)" "$python" -m deltaq_server
rm "$work/prefix/bin/deltaq"
if PYTHONPATH=$(echo "$work"/prefix/lib/python3*/site-packages) "$python" -m deltaq_server --version 2> "$work/said"; then
    fail "python -m deltaq_server works without the program"
fi
grep -q 'Install deltaq-server again' "$work/said" || fail "$(cat "$work/said")"

npm=(npm --offline --no-audit --no-fund --silent --ignore-scripts --cache "$work/npm-cache")
project() { mkdir -p "$work/$1"; cd "$work/$1"; echo '{"private": true}' > package.json; }
project node
"${npm[@]}" install "$wrapper" "$platform"
expect node_modules/.bin/deltaq
expect npx --no-install deltaq-server
# No folder is written to.
chmod -R a-w node_modules
expect node_modules/.bin/deltaq
chmod -R u+w node_modules

# Exit codes and signals are those of the program.
code=0
node_modules/.bin/deltaq no-such-command 2> /dev/null || code=$?
[ "$code" = 2 ] || fail "exit code $code instead of 2"
stop_with() { # SIGNAL COMMAND...: sends the signal once the program serves. Sets $code.
    local signal=$1
    shift
    rm -f "$work/ready"
    "$@" serve --in-memory --listen 127.0.0.1:0 --metrics-listen "" --ready-file "$work/ready" --log-level warn < /dev/null > "$server_log" 2>&1 &
    server=$!
    until [ -e "$work/ready" ]; do
        kill -0 "$server" || fail "$(cat "$server_log")"
        sleep 0.05
    done
    # HUP makes it read its settings again.
    kill -HUP "$server"
    sleep 0.2
    kill -0 "$server" || fail "SIGHUP has ended $*"
    code=0
    kill "-$signal" "$server"
    timeout 30 tail --pid="$server" -f /dev/null || fail "SIG$signal does not end $*"
    wait "$server" || code=$?
    server=
}
# A shell that is not interactive makes its background jobs ignore INT, and `monitor` prevents that.
set -m
# Node 22.15 and newer have execve; on them the way of older ones is checked, too.
shim=node_modules/deltaq-server/bin/deltaq.js
echo 'process.execve = undefined;' > "$work/older.js"
for signal in TERM INT; do
    stop_with "$signal" "$stripped"
    direct=$code
    stop_with "$signal" node "$shim"
    [ "$code" = "$direct" ] || fail "SIG$signal ends the package with $code, and the program with $direct"
    stop_with "$signal" node --require "$work/older.js" "$shim"
    [ "$code" = "$direct" ] || fail "SIG$signal ends the package in an older Node with $code, and the program with $direct"
done
# What execve gets, in every Node.
echo 'process.execve = (...call) => { console.log(JSON.stringify(call)); process.exit(7); };' > "$work/newer.js"
code=0
KEPT=yes node --require "$work/newer.js" "$shim" add 'a b' > said || code=$?
[ "$code" = 7 ] || fail "the package does not use execve: exit code $code"
python3 -c '
import json, sys
path, arguments, environment = json.load(open("said"))
assert path == sys.argv[1] and arguments == [path, "add", "a b"] and environment["KEPT"] == "yes"
' "$(realpath node_modules/@deltaq/linux-*/deltaq)" || fail "the package uses execve in a wrong way"
# A terminal sends its INT to the whole group. The program must get it once, because a second one ends it without waiting for the leased key.
for runner in "" "--require $work/older.js"; do
    # shellcheck disable=SC2086
    python3 "$root/scripts/ctrl-c.py" node $runner "$shim" || fail "Ctrl-C ends the package at once (node $runner)"
done

# A lock file of another platform, --omit=optional: the package with the program is missing.
project bare
"${npm[@]}" install --omit=optional "$wrapper" > /dev/null
if node_modules/.bin/deltaq --version 2> said; then fail "it works without the program"; fi
grep -q '@deltaq/linux-.*is not installed: install deltaq-server again' said || fail "$(cat said)"

if [ "${1:-}" = --all ]; then
    unset PIP_NO_INDEX
    "$python" -m pip install twine==6.2.0
    "$work/venv/bin/twine" check --strict "$wheel"
    project pnpm
    npx --yes pnpm@10 add --silent --ignore-scripts "$wrapper" "$platform"
    expect node_modules/.bin/deltaq
    project yarn
    printf 'nodeLinker: pnp\nenableTelemetry: false\nenableGlobalCache: false\n' > .yarnrc.yml
    # The package for the platform is in no registry yet.
    cpu=$(basename "$platform" | sed -E 's/deltaq-(linux-[a-z0-9]+)-.*/\1/')
    echo "{\"private\": true, \"resolutions\": {\"@deltaq/$cpu\": \"file:$platform\"}}" > package.json
    touch yarn.lock
    npx --yes @yarnpkg/cli-dist@4.9.2 add "deltaq-server@file:$wrapper" > yarn.log 2>&1 || fail "$(cat yarn.log)"
    expect npx --yes @yarnpkg/cli-dist@4.9.2 run deltaq
fi
echo "the packages for Python and for Node install, run and end as the program does"
