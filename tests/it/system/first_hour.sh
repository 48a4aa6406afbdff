# What a new user does, in a fresh folder, with the program of the package in $PROGRAMS and its settings in $SETTINGS.
set -euo pipefail
PATH=$PROGRAMS:$PATH

eventually() { # command...
    local attempt
    for attempt in {1..600}; do
        if "$@"; then return; fi
        sleep 0.1
    done
    echo "not in time after $attempt attempts: $*" >&2
    screen >&2 || true
    return 1
}
terminal() { LC_ALL=C.UTF-8 tmux -L "deltaq-first-hour-$$" -f /dev/null "$@"; }
screen() { terminal capture-pane -p; }
shows() { screen | grep -qF -- "$1"; }
finish() {
    terminal kill-server 2> /dev/null || true
    # shellcheck disable=SC2046 # one process id a word
    kill $(jobs -p) 2> /dev/null || true
    wait
}
trap finish EXIT

# Serve.
deltaq config check --config "$SETTINGS"
deltaq serve --config "$SETTINGS" --data-dir data --listen 127.0.0.1:0 --metrics-listen '' --ready-file ready 2> server.log &
eventually test -e ready
DELTAQ_URL=$(sed -E 's/.*"api":"([^"]+)".*/\1/' ready)
export DELTAQ_URL

# Replace something real: packages of this machine.
dpkg-query --show --showformat '{"key":"${binary:Package}","version":"${Version}"}\n' | sort | sed -n 1,20p > packages.ndjson
first=$(sed -n '1s/{"key":"\([^"]*\)".*/\1/p' packages.ndjson)
deltaq queue create packages max_failures=2
deltaq replace packages @packages.ndjson --source dpkg --only-changed
[ "$(deltaq items packages -o name | wc -l)" = 20 ]

# Work, with a worker that is broken for one key.
mkdir copies
cat > copy.sh << 'WORKER'
if [ "$DELTAQ_KEY" = "$1" ] && ! [ -e repaired ]; then echo "no route to the shop" >&2; exit 75; fi
cat > "copies/$DELTAQ_KEY"
WORKER
deltaq work packages --concurrency 4 -- sh copy.sh "$first" 2> work.log &
worker=$!
deltaq wait packages --idle --timeout 1m
[ "$(find copies -type f | wc -l)" = 19 ]
[ "$(deltaq parked packages -o name)" = "$first" ]

# See it parked in `top`, repair the worker, and redrive the key.
terminal new-session -d -x 100 -y 24 "deltaq top --interval 200ms"
eventually shows "parked 1"
terminal send-keys Enter
eventually shows "$first"
terminal send-keys Enter
eventually shows "no route to the shop"
touch repaired
terminal send-keys r
eventually test -s "copies/$first"
terminal send-keys q
deltaq wait packages --idle --timeout 1m
[ -z "$(deltaq parked packages -o name)" ]
[ "$(deltaq known packages -o name | wc -l)" = 20 ]
kill "$worker"
wait "$worker"

# The same list again changes nothing, and a list that lost most of its lines is refused.
deltaq replace packages @packages.ndjson --source dpkg --only-changed -o json | grep -q '"unchanged":20'
if head -n 1 packages.ndjson | deltaq replace packages --source dpkg --count 1; then exit 1; fi
[ "$(deltaq known packages -o name | wc -l)" = 20 ]
