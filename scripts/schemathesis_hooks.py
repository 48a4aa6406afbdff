"""Extends schemathesis with the rules of deltaq that its OpenAPI document cannot express.

The hooks encode NDJSON, and skip requests whose parts contradict each other: OpenAPI describes each part alone, and the
rules between parts are only in the text of its descriptions.
"""

import json

import schemathesis
from hypothesis import strategies

# The delays that are generated, shortest first.
DELAYS = ["0s", "5ms", "30s", "5m", "36h", "366d"]

# The document describes the range of a duration in words, so the valid ones are generated here.
for name, durations in {
    "duration-wait": ["0s", "1us", "25ms", "0100ms"],
    "duration-lease": ["1s", "1500ms", "30s", "060s", "12h", "43200000000us"],
    "duration-delay": DELAYS,
    "duration-hold": ["0s", "1us", "5ms", "2h", "400d"],
    "duration-head-start": ["0s", "5ms", "10m", "-10m", "7d", "-7d"],
    "duration-minutes": ["1m", "5m", "60m", "1h"],
    "instant-or-duration": ["0s", "90s", "1h", "24h"],
    "duration-text": ["1s", "1500ms", "30s", "10h", "7d"],
}.items():
    schemathesis.openapi.format(name, strategies.sampled_from(durations))


@schemathesis.serializer("application/x-ndjson")
def ndjson(context, value):
    """One document per line; a value that is not a list becomes a list of one."""
    values = value if isinstance(value, list) else [value]
    return "".join(json.dumps(value) + "\n" for value in values).encode()


@schemathesis.deserializer("application/x-ndjson")
def documents(context, response):
    """A list with one document per line."""
    return [json.loads(line) for line in response.content.splitlines()]


# The options of a settle, and the ways to settle with which they go.
OPTIONS = {"delay": ("nack", "done"), "error": ("nack", "reject"), "floor": ("nack",), "hold": ("ack", "release"),
           "through": ("ack", "nack", "release"), "keep": ("ack",), "lease_duration": ("extend",)}


def settles_contradict(settles):
    """Whether a settle names no lease or names leases in two ways, a lease appears twice, or an option does not go with its settle."""
    if not isinstance(settles, list) or not all(isinstance(settle, dict) for settle in settles):
        return False
    leases = []
    for settle in settles:
        one, several = settle.get("lease_id"), settle.get("lease_ids")
        if (not one) == ("lease_ids" not in settle) or (one and several):
            return True
        several = several if isinstance(several, list) else []
        leases += [one] if one else several
        if any(settle.get(option) is not None and settle.get("as") not in ways for option, ways in OPTIONS.items()):
            return True
        through, keeps = settle.get("through"), settle.get("keep") is True
        if (through is not None and not one and len(several) != 1) or (keeps and (through is None or settle.get("hold") is not None)):
            return True
    names = [json.dumps(lease) for lease in leases]
    return len(names) != len(set(names))


def names_group(query, body):
    """Whether a call names a group. The queues have no groups, so it is refused."""
    settles = body.get("settle") or []
    holds = [settle.get("hold") for settle in settles if isinstance(settle, dict)] + [body.get("hold")]
    scopes = [hold.get("scope") for hold in holds if isinstance(hold, dict)]
    return "group" in query or body.get("group") is not None or "group" in scopes


def holds_acknowledged_key(name, body):
    """Whether a call acknowledges a key and holds it, which is refused."""
    settles = [settle for settle in body.get("settle") or [] if isinstance(settle, dict)]
    acks = [settle for settle in settles if settle.get("as") == "ack"] + ([body] if name == "ack" else [])
    holds = [ack["hold"] for ack in acks if isinstance(ack.get("hold"), dict)]
    return any(hold.get("scope") == "key" for hold in holds)


def selects(fields):
    """How many of the ways to select keys a body has."""
    return sum([fields.get("all") is True, "error" in fields and fields["error"] is not None, "keys" in fields, fields.get("filter") is not None])


def is_empty(selection):
    """Whether a filter has no member, so that the call is refused."""
    return isinstance(selection, dict) and all(value is None for value in selection.values())


def has_other_instant(body):
    """Whether an instant of a heartbeat is before 1970, or not in UTC."""
    instants = [value for name, value in body.items() if isinstance(value, str) and name.endswith("_at")]
    return any(instant < "1970" or not instant.upper().endswith("Z") for instant in instants)


def has_empty_text(value):
    """Whether there is an empty text, which stands for an absent value, or null in place of a list."""
    if isinstance(value, dict):
        return any(has_empty_text(member) for member in value.values())
    if isinstance(value, list):
        return any(has_empty_text(member) for member in value)
    return value == ""


def waits_contradict(options):
    """Whether max_wait appears without debounce, or is shorter than it."""
    debounce, max_wait = options.get("debounce"), options.get("max_wait")
    if max_wait is None or max_wait not in DELAYS:
        return False
    return debounce is None or (debounce in DELAYS and DELAYS.index(max_wait) < DELAYS.index(debounce))


def deltas_contradict(deltas):
    """Whether final_state_unknown appears without the type Deleted, or max_wait contradicts debounce."""
    deltas = [delta for delta in (deltas if isinstance(deltas, list) else [deltas]) if isinstance(delta, dict)]
    return any(
        waits_contradict(delta) or (delta.get("final_state_unknown") is True and delta.get("type") != "Deleted")
        for delta in deltas
    )


def expects_version(deltas):
    """Whether a delta depends on the version of its key."""
    deltas = deltas if isinstance(deltas, list) else [deltas]
    return any(isinstance(delta, dict) and "expected_version" in delta for delta in deltas)


def with_key(value):
    """The objects with a member `key`, where a new queue looks for it; existing keys stay."""
    if isinstance(value, list):
        return [with_key(value) for value in value]
    if isinstance(value, dict) and "key" not in value:
        return {**value, "key": f"k{len(value)}"}
    return value


def is_possible(shard):
    """Whether a text with the form of a shard names one of its parts."""
    index, _, count = shard.partition("/") if isinstance(shard, str) else ("", "", "")
    return not (index.isdecimal() and count.isdecimal()) or int(index) < int(count)


@schemathesis.hook
def before_call(context, case, kwargs):
    """Asks for one page of a watch, because a stream does not end."""
    if case.operation.path.endswith("/watch"):
        case.headers["accept"] = "application/json"


CONDITIONS = {"if-match", "if-none-match"}


@schemathesis.hook
def map_headers(context, headers):
    """Leaves out conditions. The document describes lists of entity tags in words, and a condition on a change fails with any other tag."""
    return headers and {name: value for name, value in headers.items() if name.lower() not in CONDITIONS}


@schemathesis.hook
def map_body(context, body):
    """Gives objects a key, since every object without one is refused (422). Invalid requests stay invalid."""
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
    """Whether the descriptions in the document allow the case."""
    name = case.operation.path.rsplit("/", 1)[-1]
    query = case.query or {}
    body = case.body
    fields = body if isinstance(body, dict) else {}
    # An empty list or object is written as an empty text.
    if any(value in ("", [], {}) for value in query.values()) or body is None or has_empty_text(body):
        return False
    # Not all phases use the maps above. A delta that expects a version fails with any other version.
    headers = {header.lower() for header in case.headers or {}}
    if headers & CONDITIONS or (name == "deltas" and expects_version(body)):
        return False
    # An empty body is an empty document.
    if name == "{queue}" and case.method.upper() in ("PUT", "PATCH") and not isinstance(body, dict):
        return False
    if name in ("pop", "settle", "ack", "release", "pause", "resume") and names_group(query, fields):
        return False
    if name in ("pop", "settle", "ack") and holds_acknowledged_key(name, fields):
        return False
    if ("sequence" in query and "source" not in query) or not is_possible(query.get("shard")):
        return False
    if "key" in query and "continue" in query:
        return False
    if name == "known" and "index" in query and ("value" not in query or "key" in query):
        return False
    if name == "known" and "index" not in query and ("value" in query or "wait" in query):
        return False
    if name == "close":
        return "wait" not in query or query.get("drain") is True or query.get("drain") == "true"
    if name == "extend" and "wait" in query and query.get("until_changed") not in (True, "true"):
        return False
    if name in ("add", "update", "delete") and waits_contradict(query):
        return False
    if name == "add":
        is_rate_limited = query.get("rate_limited") in (True, "true")
        return not (is_rate_limited and ("delay" in query or "debounce" in query))
    if "/hook/deliveries/" in case.operation.path and isinstance(body, dict):
        return (fields.get("numbers") is not None) != (fields.get("all") is True)
    if name in ("promote", "redrive", "discard") and isinstance(body, dict):
        return selects(fields) == 1 and not is_empty(fields.get("filter"))
    if name == "{source}" and case.method.upper() == "PATCH" and isinstance(body, dict):
        return not fields.keys().isdisjoint(("sequence", "stale_after"))
    # The names of sources are labels, which the schema of a map cannot say.
    if name == "sources" and case.method.upper() == "PATCH":
        names = fields.get("sources")
        return isinstance(names, dict) and all(source.isprintable() and 0 < len(source.encode()) <= 256 for source in names)
    if name == "reflectors" and case.method.upper() == "POST":
        return not has_other_instant(fields)
    # The end of a series may be before its beginning.
    if name == "series" and "since" in query and "until" in query:
        return False
    if name in ("pop", "settle"):
        return not settles_contradict(fields.get("settle"))
    if name in ("ack", "done", "release", "nack", "reject", "extend"):
        return not (isinstance(body, dict) and settles_contradict([{**fields, "as": name}]))
    # Entries that are not valid are left out, whatever the document says of them.
    if name in ("deltas", "replace") and query.get("skip_invalid") in (True, "true"):
        return False
    if name == "deltas":
        return not deltas_contradict(body)
    if name == "watch":
        return query.get("bookmark") not in ("0s", "5ms", "5m", "36h", "366d")
    # A version that the queue does not have is a 409 or 410, whatever its form.
    version = str(query.get("resource_version" if name == "synced" else "min_resource_version", 0))
    return not version.isdecimal() or int(version) == 0


@schemathesis.hook
def before_add_examples(context, examples):
    """Leaves out examples whose parts contradict each other: the example of an option is made for each way to settle."""
    examples[:] = [case for case in examples if filter_case(context, case)]
