"""The store of a reader, and the objects of a caller. Each line "dump" on stdin prints the store as a line of JSON; the end of stdin ends the program."""

import json
import os
import sys
import threading
import time

KIND, GROUP, VERSION = {"prices": "Price", "rates": "Rate"}, "shop.example", "v1"
RESOURCE = os.environ.get("WIRE_RESOURCE", "prices")


def key_of(found):
    metadata = found["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}" if metadata.get("namespace") else metadata["name"]


class Store:
    def __init__(self):
        self.lock, self.objects, self.synced, self.faults, self.counts = threading.Lock(), {}, False, [], {"lists": 0, "events": 0}

    def replace(self, items):
        with self.lock:
            self.objects, self.synced = {key_of(item): item for item in items}, True
            self.counts["lists"] += 1

    def event(self, kind, found):
        """Applies an event of a watch. None may delete a key that the store does not have."""
        with self.lock:
            if kind == "BOOKMARK":
                return
            self.counts["events"] += 1
            key = key_of(found)
            if kind == "DELETED":
                if self.objects.pop(key, None) is None:
                    self.faults.append(f"DELETED of {key} at {found['metadata'].get('resourceVersion')}, which the store does not have")
            elif kind in ("ADDED", "MODIFIED"):
                self.objects[key] = found
            else:
                self.faults.append(f"an event of the type {kind}")

    def dump(self):
        with self.lock:
            return json.dumps({"synced": self.synced, "store": self.objects, "faults": self.faults[:20], "counts": self.counts})

    def serve(self):
        for line in sys.stdin:
            if line.strip() == "dump":
                print(self.dump(), flush=True)
        os._exit(0)

    def for_ever(self, once):
        """Lists and watches again after each end and each error, as the documents of the libraries say."""
        threading.Thread(target=self.serve, daemon=True).start()
        while True:
            try:
                once()
            except Exception as error:  # noqa: BLE001
                print(f"{time.strftime('%T')} {type(error).__name__}: {str(error)[:300]}", file=sys.stderr, flush=True)
            time.sleep(0.2)


class Faults:
    """What a caller expects, and did not get."""

    def __init__(self, client):
        self.client, self.count = client, 0

    def expect(self, holds, what):
        if not holds:
            self.count += 1
            print(f"{self.client} calls: {what}")

    def refused(self, code, what, call, code_of):
        try:
            self.expect(False, f"{what}: got {str(call())[:200]} instead of {code}")
        except Exception as error:  # noqa: BLE001
            self.expect(code_of(error) == code, f"{what}: got {type(error).__name__} {str(error)[:300]} instead of {code}")

    def end(self):
        print(f"{self.count} faults")
        sys.exit(1 if self.count else 0)


def price(name, eur):
    metadata = {"name": name, "labels": {"tier": "a", "judge": "calls"}}
    if RESOURCE == "prices":
        metadata["namespace"] = "shop"
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": KIND[RESOURCE], "metadata": metadata, "spec": {"eur": eur, "tags": ["x"]}}
