# shellcheck shell=bash
# For scripts that need a server; they source this file in the root of the repository. It makes the folder $work under target/, and removes
# it at the end of the script, after the server has stopped.
#
#     find_binary             sets $binary: DELTAQ_BIN, or target/debug/deltaq after a build
#     start_server ARG...     runs `$binary serve ARG...` on a free port and sets $server, $server_log and, once it is ready, $api
#     stop_server             stops it cleanly

mkdir -p target
work=$(mktemp -d "target/$(basename "$0" .sh).XXXXXX")
server=
server_log=$work/server.log

stop_server() {
    if [ -n "$server" ]; then
        kill "$server" 2> /dev/null || true
        wait "$server" || true
        server=
    fi
}

trap 'stop_server; rm -rf "$work"' EXIT

find_binary() {
    binary=${DELTAQ_BIN:-}
    if [ -z "$binary" ]; then
        cargo build --locked --quiet
        binary=${CARGO_TARGET_DIR:-target}/debug/deltaq
    fi
}

start_server() {
    rm -f "$work/ready"
    "$binary" serve --listen 127.0.0.1:0 --metrics-listen "" --ready-file "$work/ready" --log-level warn "$@" > "$server_log" 2>&1 &
    server=$!
    until [ -e "$work/ready" ]; do
        if ! kill -0 "$server" 2> /dev/null; then
            echo "the server did not start:" >&2
            cat "$server_log" >&2
            exit 1
        fi
        sleep 0.05
    done
    # Used by the script that sources this file.
    # shellcheck disable=SC2034
    api=http://$(sed -E 's/.*"api":"([^"]+)".*/\1/' "$work/ready")
}
