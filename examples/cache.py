#!/usr/bin/env python3
import http.client, json, os, sys, time, urllib.error, urllib.request

if len(sys.argv) != 3:
    sys.exit("usage: cache.py QUEUE-URL FILE")
url = sys.argv[1] if "://" in sys.argv[1] else "http://" + sys.argv[1]
objects, version, is_complete = {}, 0, False
while True:
    try:
        # Bookmarks come every 15 s, so 40 s of silence mean that the connection is lost.
        for line in urllib.request.urlopen(f"{url}/watch?resource_version={version}", timeout=40):
            row = json.loads(line)
            if row["type"] == "Error":
                raise OSError(row["problem"]["detail"])
            if row["type"] == "Deleted":
                objects.pop(row["key"], None)
            elif row["type"] != "Bookmark":
                objects[row["key"]] = row["object"]
            version = row["resource_version"]
            is_complete = is_complete or row["type"] == "Bookmark"
            if is_complete:
                with open(sys.argv[2] + ".new", "w") as file:
                    json.dump(objects, file, indent=1, sort_keys=True)
                os.replace(sys.argv[2] + ".new", sys.argv[2])
    except urllib.error.HTTPError as error:
        if error.code == 410:  # The version is too old: begin again with all keys.
            objects, version, is_complete = {}, 0, False
        elif error.code < 500 and error.code not in (404, 408, 429):
            sys.exit(error.read().decode())
        time.sleep(float(error.headers.get("retry-after", 1)))
    except (OSError, http.client.HTTPException) as error:
        print(f"{error}; connecting again", file=sys.stderr)
        time.sleep(1)
