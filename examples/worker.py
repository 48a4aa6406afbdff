#!/usr/bin/env python3
import json, sys, urllib.request

settle = []
while True:
    body = json.dumps({"settle": settle}).encode()
    request = urllib.request.Request(sys.argv[1] + "/pop?wait=20s&max=10&with=known", body)
    settle = []
    for item in json.load(urllib.request.urlopen(request, timeout=60))["items"]:
        newest = item["deltas"][-1]
        print(item["key"], newest["type"], item.get("known"), "->", newest["object"], flush=True)
        settle.append({"lease": item["lease"]["id"], "as": "ack"})
