"""What schemathesis must know of deltaq beside its OpenAPI document.

NDJSON is written here, and requests are left out whose parts contradict each other: OpenAPI describes each part by
itself, and the rules between them stand in its descriptions only.
"""

import json

import schemathesis


@schemathesis.serializer("application/x-ndjson")
def ndjson(context, value):
    """One document a line; what is not a list is a list of one."""
    values = value if isinstance(value, list) else [value]
    return "".join(json.dumps(value) + "\n" for value in values).encode()


@schemathesis.deserializer("application/x-ndjson")
def documents(context, response):
    """A list: one document a line."""
    return [json.loads(line) for line in response.content.splitlines()]


def settles_contradict(settles):
    """A lease twice, or a field that does not go with the way of settling."""
    if not isinstance(settles, list) or not all(isinstance(settle, dict) for settle in settles):
        return False
    leases = [json.dumps(settle.get("lease")) for settle in settles]
    return len(leases) != len(set(leases)) or any(
        (settle.get("delay") is not None and settle.get("as") != "nack")
        or (settle.get("error") is not None and settle.get("as") not in ("nack", "reject"))
        for settle in settles
    )


def deltas_contradict(deltas):
    """final_state_unknown goes with Deleted only."""
    deltas = deltas if isinstance(deltas, list) else [deltas]
    return any(
        isinstance(delta, dict) and delta.get("final_state_unknown") is True and delta.get("type") != "Deleted"
        for delta in deltas
    )


def with_key(value):
    """Objects with a key where a new queue looks for it; those that have one already keep it."""
    if isinstance(value, list):
        return [with_key(value) for value in value]
    if isinstance(value, dict) and "key" not in value:
        return {**value, "key": f"k{len(value)}"}
    return value


@schemathesis.hook
def map_body(context, body):
    """Gives objects a key, as without one they are all refused (422). It makes nothing right that was wrong."""
    name = context.operation.path.rsplit("/", 1)[-1]
    if name in ("add", "update", "delete", "replace"):
        return with_key(body)
    if name in ("deltas", "seed"):
        calls = body if isinstance(body, list) else [body]
        for call in calls:
            if isinstance(call, dict) and isinstance(call.get("object"), dict):
                call["object"] = with_key(call["object"])
    return body


@schemathesis.hook
def filter_case(context, case):
    """Says whether the case is one that the document's descriptions allow."""
    name = case.operation.path.rsplit("/", 1)[-1]
    query = case.query or {}
    body = case.body
    fields = body if isinstance(body, dict) else {}
    if name == "close":
        return "wait" not in query or query.get("drain") is True or query.get("drain") == "true"
    if name == "add":
        return not ("delay" in query and query.get("rate_limited") in (True, "true"))
    if name in ("pop", "settle"):
        return not settles_contradict(fields.get("settle"))
    if name in ("ack", "release", "nack", "reject", "extend"):
        leases = fields.get("leases")
        settles = [{"lease": lease, "as": name} for lease in leases] if isinstance(leases, list) else None
        delay = fields.get("delay") is not None and name in ("ack", "release", "reject")
        error = fields.get("error") is not None and name in ("ack", "release")
        return not (settles_contradict(settles) or delay or error)
    if name == "deltas":
        return not deltas_contradict(body)
    return True
