#!/usr/bin/env python3
import http.client, json, sys, time, urllib.error, urllib.request, uuid

if len(sys.argv) != 2:
    sys.exit("usage: worker.py QUEUE-URL")
url = sys.argv[1] if "://" in sys.argv[1] else "http://" + sys.argv[1]
settle = []
while True:
    pop = f"{url}/pop?wait=20s&max=10&with=known&id={uuid.uuid4()}"
    request = urllib.request.Request(pop, json.dumps({"settle": settle}).encode())
    items, pause = None, 1
    while items is None:  # A repeat with the same id returns the same leases, so a lost reply costs nothing.
        try:
            items = json.load(urllib.request.urlopen(request, timeout=60))["items"]
        except urllib.error.HTTPError as error:
            if error.code < 500 and error.code not in (404, 408, 429):
                sys.exit(error.read().decode())
            if error.code == 404 and pause == 1:  # The first object will create it.
                print(f"queue {url.rsplit('/', 1)[1]} does not exist yet", file=sys.stderr)
            time.sleep(float(error.headers.get("retry-after", pause)))
            pause = min(2 * pause, 15)
        except (OSError, http.client.HTTPException) as error:
            print(f"{error}; trying again", file=sys.stderr)
            time.sleep(1)
    settle = []
    for item in items:
        newest = item["deltas"][-1]
        print(item["key"], newest["type"], item.get("known"), "->", newest["object"], flush=True)
        settle.append({"lease_id": item["lease"]["id"], "as": "ack"})
