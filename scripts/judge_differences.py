#!/usr/bin/env python3
"""Changes random objects of a queue and applies the difference of each delivery to the known object with the package jsonpatch of PyPI: that must
make the newest object. Numbers are compared by value, and each `old` with the value that it names.

    scripts/judge_differences.py BINARY [PAIRS] [SEED]

Fails at the first difference that does not."""
import decimal, http.client, json, os, random, subprocess, sys, tempfile, time

import jsonpatch, jsonpointer

KEYS = 1_000
decimal.getcontext().prec = 1_000
SETTINGS = {"diff": {"array_keys": {"/items": "/sku", "/a~1b/0/items": "/sku"}}}
NAMES = ["a", "b", "~", "/", "", "\u00e4", "0", "~1", "sku"]
TEXTS = ["", "x", "\u00e4\"\\", "\U0001f600\n"]


def number(text):
    """A number by its value. As a text it differs from true and false, which Python takes for numbers."""
    value = decimal.Decimal(text)
    return f"number {value.normalize() if value else 0}"


def parse(text):
    return json.loads(text, parse_int=number, parse_float=number)


class Maker:
    """Makes objects as JSON, with members in any order, and with numbers and strings in any spelling."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def number(self, tenths):
        return self.random.choice([f"{tenths}e-1", f"{tenths / 10}", f"{tenths / 10:.3f}", f"{tenths / 10:E}"])

    def text(self, text):
        return json.dumps(text, ensure_ascii=self.random.random() < 0.5)

    def object(self, members):
        members = [f"{self.text(name)}:{' ' * self.random.randrange(2)}{value}" for name, value in members.items()]
        self.random.shuffle(members)
        return "{" + ",".join(members) + "}"

    def value(self, depth):
        kind = self.random.randrange(7)
        if kind < 2 and depth:
            return self.object({self.random.choice(NAMES): self.value(depth - 1) for _ in range(self.random.randrange(4))})
        if kind == 2 and depth:
            return "[" + ",".join(self.value(depth - 1) for _ in range(self.random.randrange(3))) + "]"
        if kind < 5:
            return self.random.choice(["null", "true", "false", "1e400", "123456789012345678901234567890"])
        return self.number(self.random.randrange(-30, 40, 5)) if kind == 5 else self.text(self.random.choice(TEXTS))

    def elements(self):
        skus = [sku for sku in range(6) if self.random.random() < 0.5]
        if self.random.randrange(4) == 0:
            self.random.shuffle(skus)
        elements = [self.object({"sku": self.number(10 * sku) if sku % 2 else self.text(str(sku)), "value": self.value(1)}) for sku in skus]
        if self.random.randrange(20) == 0:
            elements.append(self.value(1))
        return "[" + ",".join(elements) + "]"

    def row(self, key):
        nested = self.object({"items": self.elements()})
        return self.object({"key": self.text(key), "a": self.value(3), "b": self.value(2), "items": self.elements(), "a/b": f"[{nested}]"})


class Queue:
    def __init__(self, binary, folder):
        ready = os.path.join(folder, "ready")
        self.process = subprocess.Popen([binary, "serve", "--in-memory", "--listen", "127.0.0.1:0", "--metrics-listen", "", "--ready-file", ready, "--log-level", "error"])
        while not os.path.exists(ready):
            assert self.process.poll() is None, "the server did not start"
            time.sleep(0.05)
        with open(ready) as file:
            self.connection = http.client.HTTPConnection(json.load(file)["api"], timeout=60)

    def call(self, method, path, body):
        self.connection.request(method, f"/v1/queues/judged{path}", body.encode(), {"content-type": "application/json"})
        reply = self.connection.getresponse()
        text = reply.read().decode()
        assert reply.status in (200, 201), f"{method} {path}: {reply.status} {text[:500]}"
        return text


def judge(item, sent):
    """The number of operations of the difference."""
    known, newest, patched = parse(sent[0]), parse(sent[1]), parse(sent[0])
    assert item["known"] == known, (item["known"], known)
    assert (item["diff"] == []) == (known == newest), (item["diff"], sent)
    for operation in item["diff"]:
        if operation["op"] != "add":
            found = jsonpointer.resolve_pointer(patched, operation["path"])
            assert found == operation["old"], (operation, sent)
        assert ("old" in operation, "value" in operation) == (operation["op"] != "add", operation["op"] != "remove"), operation
        patched = jsonpatch.JsonPatch([operation]).apply(patched, in_place=True)
    assert patched == newest, (item["diff"], sent)
    return len(item["diff"])


def main(binary, pairs=1_000_000, seed=44):
    maker, judged, operations, of_elements = Maker(int(seed)), 0, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        queue = Queue(binary, folder)
        try:
            queue.call("PUT", "", json.dumps(SETTINGS))
            known, leases = {}, []
            while judged < int(pairs):
                rows = {f"k{number}": maker.row(f"k{number}") for number in range(KEYS)}
                queue.call("POST", "/update", "[" + ",".join(rows.values()) + "]")
                left = KEYS
                while left:
                    body = json.dumps({"settle": [{"lease_id": lease, "as": "ack"} for lease in leases]})
                    items = parse(queue.call("POST", f"/pop?max={KEYS}&with=known,diff", body))["items"]
                    assert items, f"{left} keys were not delivered"
                    left, leases = left - len(items), [item["lease"]["id"] for item in items]
                    for item in items:
                        key = item["key"]
                        if key in known:
                            operations += judge(item, (known[key], rows[key]))
                            of_elements += sum(operation["path"].startswith("/items/") for operation in item["diff"])
                            judged += 1
                        else:
                            assert item["diff"] is None, item
                known = rows
        finally:
            queue.process.terminate()
            queue.process.wait()
    assert of_elements, "no array was compared by its elements"
    print(f"{judged} differences with {operations} operations, {of_elements} of them in elements of arrays: each makes the newest object")


main(*sys.argv[1:])
