#!/bin/sh
# worker.sh QUEUE-URL COMMAND...: runs COMMAND with each item on stdin. A failed item is redelivered later.
[ $# -ge 2 ] || { echo 'usage: worker.sh QUEUE-URL COMMAND...' >&2; exit 2; }
url=$1; shift; body='{}'; pops=0; pause=1; name=$(od -An -N8 -tx8 /dev/urandom | tr -d ' ')
while :; do
    # The last line is the status. A repeat with the same id returns the same lease, so a lost reply costs nothing.
    reply=$(curl -sS -w '\n%{http_code} %header{retry-after}' --json "$body" "$url/pop?wait=20s&id=$name-$pops")
    status=$(printf '%s\n' "$reply" | tail -n 1); reply=$(printf '%s\n' "$reply" | sed '$d')
    case $status in
    200*) pause=1 ;;
    404*) [ "$pause" -gt 1 ] || echo "queue ${url##*/} does not exist yet" >&2
        sleep "$pause"; pause=$((pause < 8 ? 2 * pause : 15)); continue ;;
    000* | 408* | 429* | 5*) sleep "${status#* }" 2>/dev/null || sleep 1; continue ;;
    *) printf '%s\n' "$reply"; printf '%s' "$reply" | grep -q queue-closed; exit ;;
    esac
    body='{}'; pops=$((pops + 1)); item=$(printf '%s\n' "$reply" | jq -c '.items[0] // empty')
    if [ -z "$item" ]; then continue; fi
    if printf '%s\n' "$item" | "$@"; then as=ack; else as=nack; fi
    body=$(printf '%s\n' "$item" | jq -c --arg how "$as" '{settle: [{lease_id: .lease.id, "as": $how}]}')
done
