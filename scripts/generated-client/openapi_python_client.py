"""Uses the client that openapi-python-client has generated.

    openapi_python_client.py FOLDER OPENAPI URL

FOLDER has the generated package `client`, and in `log` what the generator said about OPENAPI.
"""
import importlib
import json
import pathlib
import re
import sys

folder, openapi, url = sys.argv[1:]

# The generator has no name for a body of NDJSON. The same operations also take JSON.
warnings = re.findall(r"^(?:WARNING|ERROR).*|^Cannot.*|^Unsupported.*", (pathlib.Path(folder) / "log").read_text(), re.M)
dropped = [line for line in warnings if not line.startswith("WARNING") and line != "Unsupported content type application/x-ndjson"]
assert not dropped, dropped

operations = {
    operation["operationId"]
    for path in json.loads(pathlib.Path(openapi).read_text())["paths"].values()
    for method, operation in path.items()
    if method in ("get", "put", "post", "patch", "delete")
}
modules = {path.stem: f"client.api.{path.parent.name}.{path.stem}" for path in pathlib.Path(folder).glob("client/api/*/*.py")}
del modules["__init__"]
assert modules.keys() == operations, modules.keys() ^ operations
calls = {name: importlib.import_module(module) for name, module in modules.items()}

from client import Client
from client.models import LeasesBody, PopBody, ProblemDocument, RawObject

client = Client(base_url=url)
added = calls["add"].sync("generated", client=client, body=RawObject.from_dict({"key": "a", "price": 10}))
assert added.queued == 1, added
popped = calls["pop"].sync("generated", client=client, body=PopBody())
assert popped.items[0].key == "a", popped
acked = calls["ack"].sync("generated", client=client, body=LeasesBody(lease_ids=[popped.items[0].lease.id]))
assert acked.settled[0].result == "ok", acked
rows = calls["watch"].sync("generated", client=client.with_headers({"accept": "application/json"})).items
assert [type(row).__name__ for row in rows] == ["AddedRow", "BookmarkRow"] and rows[0].key == "a", rows
problem = calls["get_queue"].sync("absent", client=client)
assert isinstance(problem, ProblemDocument) and problem.code == "queue-not-found", problem
print(f"openapi-python-client: {len(operations)} operations; add, pop, ack, watch and a problem")
