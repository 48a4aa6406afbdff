"""Uses the client that openapi-generator has generated.

    openapi_generator.py OPENAPI URL

PYTHONPATH has the generated package `openapi_client`.
"""
import inspect
import json
import pathlib
import re
import sys

import openapi_client
from openapi_client import api
from openapi_client.models import LeasesBody, Objects, PopBody

openapi, url = sys.argv[1:]

operations = {
    operation["operationId"]: set(operation["responses"])
    for path in json.loads(pathlib.Path(openapi).read_text())["paths"].values()
    for method, operation in path.items()
    if method in ("get", "put", "post", "patch", "delete")
}
client = openapi_client.ApiClient(openapi_client.Configuration(host=url))
groups = [member(client) for name, member in inspect.getmembers(api, inspect.isclass) if name.endswith("Api")]
calls = {name: getattr(group, name) for group in groups for name in operations if hasattr(group, name)}
assert calls.keys() == operations.keys(), calls.keys() ^ operations.keys()
for name, responses in operations.items():
    table = re.search(r"_response_types_map.*?\{(.*?)\}", inspect.getsource(calls[name]), re.S)
    kept = dict(re.findall(r"'(\w+)': (?:\"(.+?)\"|None)", table[1]))
    assert kept.keys() == responses, (name, kept.keys() ^ responses)
    problems = {code: kept[code] for code in responses if code == "default" or code >= "400"}
    assert set(problems.values()) <= {"ProblemDocument"}, (name, problems)

added = calls["add"]("generated-2", Objects({"key": "a", "price": 10}))
assert added.queued == 1, added
popped = calls["pop"]("generated-2", pop_body=PopBody())
assert popped.items[0].key == "a", popped
acked = calls["ack"]("generated-2", LeasesBody(lease_ids=[popped.items[0].lease.id]))
assert acked.settled[0].result == "ok", acked
rows = [row.actual_instance for row in calls["watch"]("generated-2", _headers={"accept": "application/json"}).items]
assert [type(row).__name__ for row in rows] == ["AddedRow", "BookmarkRow"] and rows[0].key == "a", rows
try:
    calls["get_queue"]("absent")
    raise AssertionError("a queue that does not exist")
except openapi_client.exceptions.NotFoundException as refused:
    assert refused.data.code == "queue-not-found", refused.data
print(f"openapi-generator: {len(operations)} operations; add, pop, ack, watch and a problem")
