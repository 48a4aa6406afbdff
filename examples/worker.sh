#!/bin/sh
# worker.sh QUEUE-URL COMMAND...: runs COMMAND with each item on its stdin. If it fails, the item comes again, later.
url=$1; shift; body='{}'
while answer=$(curl -sS --fail-with-body --json "$body" "$url/pop?wait=20s"); do
    body='{}'
    lease=$(printf '%s' "$answer" | jq -r '.items[0].lease.id // empty')
    if [ -z "$lease" ]; then continue; fi
    if printf '%s' "$answer" | jq -c '.items[0]' | "$@"; then as=ack; else as=nack; fi
    body="{\"settle\":[{\"lease\":\"$lease\",\"as\":\"$as\"}]}"
done
printf '%s\n' "$answer"; printf '%s' "$answer" | grep -q queue-closed
