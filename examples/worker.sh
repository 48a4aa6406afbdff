#!/bin/sh
# worker.sh QUEUE-URL COMMAND...: runs COMMAND with each item on stdin. A failed item is redelivered later.
url=$1; shift; body='{}'
while reply=$(curl -sS --fail-with-body --json "$body" "$url/pop?wait=20s"); do
    body='{}'
    lease=$(printf '%s' "$reply" | jq -r '.items[0].lease.id // empty')
    if [ -z "$lease" ]; then continue; fi
    if printf '%s' "$reply" | jq -c '.items[0]' | "$@"; then as=ack; else as=nack; fi
    body="{\"settle\":[{\"lease\":\"$lease\",\"as\":\"$as\"}]}"
done
printf '%s\n' "$reply"; printf '%s' "$reply" | grep -q queue-closed
